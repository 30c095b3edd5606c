"""`report`: how a source meets a fitted encoder, as data, text, a picture and a page."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import pandas as pd

from recsys_emb.encoding.crew import crew
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import DataError, counted
from recsys_emb.reporting.counters import counters_of
from recsys_emb.reporting.drift import LARGE
from recsys_emb.reporting.feature_report import FeatureReport
from recsys_emb.reporting.page import heading, paragraph, picture, table, write_page
from recsys_emb.reporting.pictures import draw_coverage
from recsys_emb.reporting.text import TextTable, decimal, many, percent, plain, shown, whole
from recsys_emb.sources.sources import open_source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEADER = (
    "feature",
    "kind",
    "cardinality",
    "coverage",
    "missing",
    "unknown",
    "by chance",
    "drift",
    "by chance",
    "details",
)
_LEFT = (0, 1, 9)
# Unknown values named in a table; the page lists all that were kept.
_NAMED = 3


def report(encoder: FeatureEncoder, source: Any, *, top: int = 10) -> EncodingReport:
    """Report what a fitted encoder makes of a source, without encoding it.

    Parameters
    ----------
    encoder
        Fitted.
    source
        Anything that `FeatureEncoder.transform` takes, with a column for every feature; a label is not read. It is
        streamed once.
    top
        How many of the most frequent unknown values to keep for each feature.

    Returns
    -------
    EncodingReport
        One `FeatureReport` per feature, in the order of the schema.

    Raises
    ------
    DataError
        When ``encoder`` is something else; a `Recommender` has it as ``recommender.encoder``.
    NotFittedError
        Before a fit.
    ColumnError, KeyTypeError, DataError
        As `FeatureEncoder.transform`, except that values which a feature refuses are counted.

    Notes
    -----
    Memory does not grow with the rows: one count per row of a table, and at most 65,536 unknown values per feature,
    beyond which counts are too low by a stated number (`recsys_emb.reporting.frequent`).

    Drift is the population stability index Σ (q − p) · ln(q / p), where q is the share that a band of the vocabulary
    has now, and p the share that another sample of the fitted kind is expected to give it. The bands hold about a
    tenth of the fitted occurrences each: the most frequent values, the next, and so on. Unknown values had no share in
    the fit and would make the index infinite; they are `FeatureReport.unknown_rate`. Features that share a vocabulary
    were fitted together and drift together. For a `Numeric` it is the same divergence between two normal
    distributions; for a `Position`, whose fit keeps no counts, it is not given. `recsys_emb.reporting.drift` has the
    formulas, their sources, and what chance alone explains.

    Examples
    --------
    >>> from recsys_emb.schema import Categorical, Schema
    >>> encoder = FeatureEncoder(Schema(item=Categorical("film"), context_features=[Categorical("device")]))
    >>> encoder = encoder.fit({"film": [1, 1, 2, 3], "device": ["tv", "tv", "phone", None]})
    >>> print(report(encoder, {"film": [1, 2, 9, 9], "device": ["tv", None, "tv", "phone"]}))
    4 rows against the fit
    feature  kind         cardinality  coverage  missing  unknown  by chance   drift  by chance  details
    device   Categorical            2    75.0 %   25.0 %    0.0 %     25.0 %  0.0000     2.4978
    film     Categorical            3    50.0 %    0.0 %   50.0 %     50.0 %  0.1559     4.4527  1 unknown value: 9 (2)
    """
    if not isinstance(encoder, FeatureEncoder):
        hint = "Pass recommender.encoder." if hasattr(encoder, "encoder") else "Pass the encoder, then the rows."
        raise DataError(f"report: expected a fitted FeatureEncoder, got a {type(encoder).__name__}. {hint}")
    state = encoder.to_state()
    if isinstance(top, bool) or not isinstance(top, int) or top < 0:
        raise DataError(f"report: expected top to be an integer of at least 0, got {top!r}. It counts values.")
    counters = counters_of(state)
    opened = open_source(source, encoder.row_encoder.types)
    columns = [name for counter in counters for name in counter.columns]
    num_rows = 0
    with crew(opened.num_rows) as hands:
        for rows in hands.ahead(opened.rows(columns)):
            num_rows += len(rows)
            hands.map(methodcaller("observe", rows), counters)
    found = {one.name: one for counter in counters for one in counter.reports(top)}
    return EncodingReport(num_rows, tuple(found[name] for name in state.schema.names if name in found))


@dataclass(frozen=True)
class EncodingReport:
    """What `report` found.

    Parameters
    ----------
    num_rows
        Rows that were read.
    features
        One report per feature.
    """

    num_rows: int
    features: tuple[FeatureReport, ...]

    def __getitem__(self, name: str) -> FeatureReport:
        """Report of the feature called ``name``."""
        return {one.name: one for one in self.features}[name]

    def to_frame(self) -> pd.DataFrame:
        """Give a row per feature, with the fields and rates of `FeatureReport`, indexed by the feature's name."""
        frame = pd.DataFrame(
            {
                "feature": [one.name for one in self.features],
                "kind": [one.kind for one in self.features],
                "cardinality": pd.array([one.cardinality for one in self.features], dtype="Int64"),
                "occurrences": [one.occurrences for one in self.features],
                "coverage": [one.coverage for one in self.features],
                "missing_rate": [one.missing_rate for one in self.features],
                "unknown_rate": [one.unknown_rate for one in self.features],
                "unknown_by_chance": [one.unknown_by_chance for one in self.features],
                "unknown_values": [one.unknown_values for one in self.features],
                "top_unknown": pd.Series([list(one.top_unknown) for one in self.features], dtype=object),
                "drift": [one.drift for one in self.features],
                "drift_by_chance": [one.drift_by_chance for one in self.features],
                "shift": [one.shift for one in self.features],
                "spread": [one.spread for one in self.features],
            }
        )
        return frame.set_index("feature")

    @property
    def _title(self) -> str:
        return f"{many(self.num_rows, 'row')} against the fit"

    @property
    def _table(self) -> TextTable:
        return TextTable(_HEADER, [_cells(one) for one in self.features], _LEFT)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to look at: large drift that chance does not explain, and values that `transform` refuses."""
        return tuple(self._warnings())

    def _warnings(self) -> Iterator[str]:
        for one in self.features:
            name = plain(one.name)
            if one.drift >= LARGE and one.drift > one.drift_by_chance:
                yield (
                    f"{name}: drift of {one.drift:.2f}, where chance explains {one.drift_by_chance:.2f} and "
                    f"{LARGE} is held to be a shift (Siddiqi, 2006). Consider a new fit."
                )
            if one.refused:
                yield (
                    f"{name}: transform refuses {counted(one.unknown, 'unknown occurrence')}. "
                    "Correct them, or declare unknown=UnknownRow()."
                )

    def __str__(self) -> str:
        """Lay the report out as a table, with its warnings below."""
        return "\n".join([self._title, str(self._table), *(f"Warning: {warning}" for warning in self.warnings)])

    def plot(self) -> Figure:
        """Draw how each feature's occurrences divide into covered, unknown and missing, and its drift.

        Raises
        ------
        MissingDependencyError
            When matplotlib is not installed.
        """
        return draw_coverage(self.features, title=self._title)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report into one HTML file, without scripts; the picture is in it where matplotlib is installed.

        Values are escaped: whatever a column holds is shown and never acts.
        """
        parts = [paragraph(warning, warning=True) for warning in self.warnings]
        parts += [picture(self.plot, self._title), table(self._table)]
        for one in self.features:
            if one.top_unknown:
                rows = [(shown(value, 200), whole(count)) for value, count in one.top_unknown]
                parts += [heading(f"{plain(one.name)}: {_strangers(one)}"), table(TextTable(("value", "count"), rows))]
        write_page(path, self._title, parts)


def _cells(one: FeatureReport) -> list[str]:
    rates = [percent(rate) for rate in (one.coverage, one.missing_rate, one.unknown_rate, one.unknown_by_chance)]
    drift = [decimal(one.drift), decimal(one.drift_by_chance)]
    return [plain(one.name), one.kind, whole(one.cardinality), *rates, *drift, _details(one)]


def _details(one: FeatureReport) -> str:
    """Name some unknown values and count the others; of numbers, tell how they moved."""
    if not math.isnan(one.shift):
        return f"mean {one.shift:+.2f} sd, spread × {one.spread:.2f}"
    if not one.unknown_values:
        return ""
    named = ", ".join(f"{shown(value)} ({whole(count)})" for value, count in one.top_unknown[:_NAMED])
    others = one.unknown_values - len(one.top_unknown[:_NAMED])
    return f"{_strangers(one)}: {named}{', …' if others else ''}" if named else _strangers(one)


def _strangers(one: FeatureReport) -> str:
    """Count the unknown values."""
    values = many(one.unknown_values, "unknown value")
    return f"at least {values}, counts up to {whole(one.count_error)} too low" if one.count_error else values
