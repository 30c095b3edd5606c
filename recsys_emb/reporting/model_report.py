"""`model_report`: what training made of a model's tables, as data, text, a picture and a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.reporting.page import heading, paragraph, picture, table, write_page
from recsys_emb.reporting.pictures import draw_tables
from recsys_emb.reporting.served import warnings_of
from recsys_emb.reporting.tables import Band, Model, RowCounts, TableRows, table_rows
from recsys_emb.reporting.text import TextTable, in_bytes, many, plain, whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def model_report(model: Model, encoder: FeatureEncoder, counts: RowCounts | None = None) -> ModelReport:
    """Report which rows of a model's tables learned something, how long their vectors are, and what they take.

    Parameters
    ----------
    model
        Trained: a `MatrixFactorization`, or the `FeatureEmbedding` of another model.
    encoder
        The encoder that it was made with.
    counts
        By feature, how often training looked each row up: `row_counts` of the training batch, or the sum over
        batches. The first rows are enough, those that are reserved. Without it the counts of values are those of the
        encoder's fit, and those of reserved rows are not known; whether a row learned is seen from its weights.

    Returns
    -------
    ModelReport
        One `TableRows` per table.

    Raises
    ------
    NotFittedError
        When the encoder is not fitted.
    DataError
        When a table has another number of rows than the encoder says.

    Notes
    -----
    A row counts as never updated when its vector and its bias are zero. Reserved rows are born so, and `train` sets
    values that no training row names to zero. In a model that another loop trained, other rows keep what they were
    born with; ``counts`` tells those apart.

    Features that share a vocabulary but no table are counted together in a fit; ``counts`` tells them apart too.

    Examples
    --------
    >>> from recsys_emb.schema import Categorical, Schema
    >>> from recsys_emb.models.matrix_factorization import MatrixFactorization
    >>> schema = Schema(user=Categorical("user"), item=Categorical("film"), embedding_dim=2)
    >>> encoder = FeatureEncoder(schema).fit({"user": ["a", "b", "b"], "film": [1, 1, 2]})
    >>> print(model_report(MatrixFactorization(encoder), encoder))
    2 tables, 30 parameters, 120 B
    features  table              rows  width  never updated  memory
    user      CategoryEmbedding     5      2              0    60 B
    film      CategoryEmbedding     5      2              0    60 B
    ...
    """
    tables = table_rows(model, encoder, counts or {})
    return ModelReport(tables, warnings_of(model.schema, encoder, tables))


@dataclass(frozen=True, eq=False)
class ModelReport:
    """What `model_report` found.

    Parameters
    ----------
    tables
        One per table, in the order of the features.
    warnings
        Reserved rows that answer requests and learned nothing.
    """

    tables: tuple[TableRows, ...]
    warnings: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Give a row per table: what it is, its rows, how many were never updated, parameters and bytes."""
        rows = [
            {
                "features": ", ".join(one.names),
                "table": one.kind,
                "num_embeddings": len(one.learned),
                "embedding_dim": one.embedding_dim,
                "never_updated": one.never_updated,
                "parameters": one.parameters,
                "weight_bytes": one.weight_bytes,
            }
            for one in self.tables
        ]
        return pd.DataFrame(rows).set_index("features")

    def reserved_frame(self) -> pd.DataFrame:
        """Give a row per kind of reserved rows of each table: how many, how often looked up, how many never updated.

        ``occurrences`` is missing where it is not known; ``never_updated`` counts rows that are zero.
        """
        rows = [
            {
                "features": ", ".join(one.names),
                "reserved": kind,
                "rows": one.size(kind),
                "occurrences": one.seen(kind),
                "never_updated": one.blank(kind),
            }
            for one in self.tables
            for kind in one.reserved
        ]
        return pd.DataFrame(rows).astype({"occurrences": "Int64"}).set_index(["features", "reserved"])

    def bands_frame(self) -> pd.DataFrame:
        """Give a row per table and band of popularity: ``low`` and ``high`` count, values, their vectors' lengths."""
        rows = [{"features": ", ".join(one.names), **band._asdict()} for one in self.tables for band in one.bands()]
        return pd.DataFrame(rows, columns=["features", *Band._fields]).set_index("features")

    def __str__(self) -> str:
        """Lay the report out as tables, with its warnings below."""
        parts = "\n\n".join(f"{title}\n{cells}" for title, cells in self._tables().items())
        return "\n".join([parts, *(f"Warning: {warning}" for warning in self.warnings)])

    def plot(self) -> Figure:
        """Draw the mean length of vectors by popularity, and the memory that each table takes.

        Raises
        ------
        MissingDependencyError
            When matplotlib is not installed.
        """
        return draw_tables(self.tables, title=self._title)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report into one HTML file, without scripts; the picture is in it where matplotlib is installed."""
        parts = [paragraph(warning, warning=True) for warning in self.warnings]
        parts.append(picture(self.plot, self._title))
        for title, cells in self._tables().items():
            parts += [heading(title), table(cells)]
        write_page(path, "What training made of the tables", parts)

    @property
    def _title(self) -> str:
        parameters, memory = (sum(getattr(one, name) for one in self.tables) for name in ("parameters", "weight_bytes"))
        return f"{many(len(self.tables), 'table')}, {many(parameters, 'parameter')}, {in_bytes(memory)}"

    def _tables(self) -> dict[str, TextTable]:
        """Give the tables of the text and of the page by their titles."""
        tables = {self._title: _sizes(self.tables), "Reserved rows": _reserved(self.tables)}
        bands = _bands(self.tables)
        return {**tables, "Mean length of vectors by occurrences in training": bands} if bands.rows else tables


def _names(one: TableRows) -> str:
    return ", ".join(map(plain, one.names))


def _sizes(tables: Sequence[TableRows]) -> TextTable:
    rows = [
        [
            _names(one),
            one.kind,
            whole(len(one.learned)),
            whole(one.embedding_dim),
            whole(one.never_updated),
            in_bytes(one.weight_bytes),
        ]
        for one in tables
    ]
    return TextTable(["features", "table", "rows", "width", "never updated", "memory"], rows, (0, 1))


def _reserved(tables: Sequence[TableRows]) -> TextTable:
    rows = [
        [_names(one), kind, *map(whole, (one.size(kind), one.seen(kind), one.blank(kind)))]
        for one in tables
        for kind in one.reserved
    ]
    return TextTable(["features", "reserved for", "rows", "occurrences", "never updated"], rows, (0, 1))


def _bands(tables: Sequence[TableRows]) -> TextTable:
    """Give a row per band and a column per table that has any."""
    columns = {_names(one): {band[:2]: band for band in one.bands()} for one in tables}
    columns = {name: bands for name, bands in columns.items() if bands}
    ranges = sorted({place for bands in columns.values() for place in bands})
    rows = [[_range(*place), *(_length(bands.get(place)) for bands in columns.values())] for place in ranges]
    return TextTable(["times", *columns], rows, ())


def _range(low: int, high: int) -> str:
    return whole(low) if low == high else f"{whole(low)} to {whole(high)}"


def _length(band: Band | None) -> str:
    return "" if band is None else f"{band.norm:.3f}"
