"""`Coverage`: how much of a vocabulary pretrained vectors reach."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_emb.errors import counted, listed


@dataclass(frozen=True)
class Coverage:
    """How many values of a vocabulary have a pretrained vector.

    Parameters
    ----------
    found
        Values with a vector.
    absent
        Values without one, in vocabulary order; their rows kept what they had.
    found_share
        Share of occurrences, by the vocabulary's counts, whose value has a vector.
    unused
        Pretrained keys that the vocabulary does not know.
    repeated, skipped
        Keys that stood in the source again (their first vector counts), and lines that could not be read.

    Examples
    --------
    >>> print(Coverage(found=5, absent=("absent",), found_share=0.9, unused=1, repeated=1, skipped=0))
    5 of 6 values have a vector (90.0 % of occurrences); without: 'absent'. 1 key unused, 1 repeated, 0 lines skipped.
    """

    found: int
    absent: tuple[object, ...]
    found_share: float
    unused: int
    repeated: int = 0
    skipped: int = 0

    @property
    def total(self) -> int:
        """Values of the vocabulary."""
        return self.found + len(self.absent)

    def __str__(self) -> str:
        without = f"; without: {listed(self.absent)}" if self.absent else ""
        return (
            f"{self.found} of {counted(self.total, 'value')} have a vector ({self.found_share:.1%} of occurrences)"
            f"{without}. {counted(self.unused, 'key')} unused, {self.repeated} repeated, "
            f"{counted(self.skipped, 'line')} skipped."
        ).replace("%", " %")
