"""`FeatureReport`: how the column of one feature meets the fit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FeatureReport:
    """How a feature's column meets the fit.

    Parameters
    ----------
    name, kind
        The feature and its declaration, ``"Categorical"``.
    cardinality
        Values with a row of their own; None for a `Numeric`.
    occurrences
        Lookups: one per row; of lists, one per value and one for each list without values, which reads the missing
        row.
    missing, unknown
        How many of these were missing, and how many had no row of their own.
    unknown_values
        How many distinct values had none; at least so many where ``count_error`` is above 0.
    top_unknown
        The most frequent of them, raw, with their counts.
    count_error
        By how much these counts may be too low; 0 up to 65,536 distinct values.
    drift
        Population stability index against the fitted counts; NaN where it cannot be said.
    drift_by_chance
        About what the index reaches when nothing has moved, see `recsys_emb.reporting.drift`.
    unknown_by_chance
        Unknown rate that is expected when nothing has moved, from the values that the fit saw once (Good, 1953); NaN
        where the fit dropped values (``min_count``, ``max_size``) or several features share the vocabulary.
    shift, spread
        Of a `Numeric`: the mean found less the fitted one, in fitted standard deviations, and the standard deviation
        found over the fitted one; NaN where there is no number.
    refused
        Whether `transform` refuses these rows, because the feature declares `RefuseUnknown`.
    """

    name: str
    kind: str
    cardinality: int | None
    occurrences: int
    missing: int
    unknown: int = 0
    unknown_values: int = 0
    top_unknown: tuple[tuple[object, int], ...] = ()
    count_error: int = 0
    drift: float = float("nan")
    drift_by_chance: float = float("nan")
    unknown_by_chance: float = float("nan")
    shift: float = float("nan")
    spread: float = float("nan")
    refused: bool = False

    @property
    def missing_rate(self) -> float:
        """Share of the occurrences that are missing; NaN without any."""
        return self._share(self.missing)

    @property
    def unknown_rate(self) -> float:
        """Share of the occurrences that have no row of their own; NaN without any."""
        return self._share(self.unknown)

    @property
    def coverage(self) -> float:
        """Share of the occurrences that are values with a row of their own; NaN without any."""
        return self._share(self.occurrences - self.missing - self.unknown)

    def _share(self, count: int) -> float:
        return count / self.occurrences if self.occurrences else float("nan")
