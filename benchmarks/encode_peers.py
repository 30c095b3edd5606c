"""The work of `encode.py` as others would do it: Parquet → vocabularies, and Parquet → int64 tensors.

`Counted` peers do all that this library does in a fit: they count the values and order them by count, then value.
`Collected` ones do less: they learn the distinct values, without counts. Each is written for speed, as its manual
advises. A missing value gets code -1, and lists are laid end to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import harness
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from logs import COLUMNS

SINGLE = COLUMNS[:-1]
NUMBERS = ("user_id", "position")

Counted: TypeAlias = Mapping[str, pa.Table]
"""By column, a table of ``value`` and ``count``, in order."""

Codes: TypeAlias = list[torch.Tensor]
"""int64 ``(rows,)`` of each column of `COLUMNS`, for tags ``(values,)``."""


class Peer(Protocol):
    """A library at this work."""

    def fit(self, path: Path) -> Any:
        """Learn what `transform` needs."""

    def transform(self, path: Path, fitted: Any) -> Codes:
        """Encode a file."""


# --- those who count and order ---------------------------------------------------------------------------------


class DuckDB:
    """GROUP BY, ORDER BY, and LEFT JOIN."""

    def __init__(self) -> None:
        self.database = harness.needs("duckdb").connect()
        self.database.execute("set threads = 1")

    def fit(self, path: Path) -> Counted:
        """Count every column by a query of its own, which was faster than one for all."""
        sources = {name: f"select {name} as value from '{path}'" for name in SINGLE}
        sources["tags"] = f"select unnest(tags) as value from '{path}'"
        query = "select value, count(*) as count from ({}) where value is not null group by 1 order by 2 desc, 1"
        return {name: self.database.sql(query.format(source)).to_arrow_table() for name, source in sources.items()}

    def transform(self, path: Path, fitted: Counted) -> Codes:
        """Join every column with its values, and restore the order of the rows."""
        codes = []
        for name in COLUMNS:
            known = pa.table({"value": fitted[name]["value"], "code": np.arange(len(fitted[name]))})
            self.database.register("known", known)
            source = f"select {name} as value, file_row_number as row from read_parquet('{path}', file_row_number=true)"
            if name == "tags":
                source = f"select unnest(tags) as value, row_number() over () as row from '{path}'"
            query = f"select coalesce(code, -1) as code from ({source}) left join known using (value) order by row"
            codes.append(_tensor(self.database.sql(query).to_arrow_table()["code"].to_numpy()))
        return codes


class Polars:
    """In memory: ``value_counts``, and a left join."""

    def __init__(self) -> None:
        self.polars = harness.needs("polars")

    def fit(self, path: Path) -> Counted:
        """Read once, count column by column."""
        frame = self.polars.read_parquet(path, columns=list(COLUMNS))
        return {name: self._ordered(self._flat(frame[name]).alias("value").value_counts()) for name in COLUMNS}

    def transform(self, path: Path, fitted: Counted) -> Codes:
        """Join column by column, keeping the order of the rows."""
        frame = self.polars.read_parquet(path, columns=list(COLUMNS))
        codes = []
        for name in COLUMNS:
            known = self.polars.from_arrow(fitted[name].select(["value"])).with_row_index("code")
            asked = self._flat(frame[name]).alias("value").to_frame()
            found = asked.join(known, on="value", how="left", maintain_order="left")["code"]
            codes.append(_tensor(found.cast(self.polars.Int64).fill_null(-1).to_numpy()))
        return codes

    def _flat(self, column: Any) -> Any:
        if column.name == "tags":
            column = column.drop_nulls()
            return column.filter(column.list.len() > 0).explode()
        return column.cast(self.polars.String) if column.name == "country" else column

    def _ordered(self, counts: Any) -> pa.Table:
        ordered = counts.drop_nulls().sort(["count", "value"], descending=[True, False])
        return ordered.to_arrow()


class PolarsStreaming(Polars):
    """GROUP BY in the streaming engine, in bounded memory."""

    def fit(self, path: Path) -> Counted:
        """Scan the file once for every column."""
        column, fitted = self.polars.col("value"), {}
        for name in COLUMNS:
            values = self.polars.scan_parquet(path).select(self.polars.col(name).alias("value"))
            values = values.with_columns(column.cast(self.polars.String)) if name == "country" else values
            values = values.select(column.explode()) if name == "tags" else values
            counts = values.group_by("value").agg(self.polars.len().alias("count"))
            fitted[name] = self._ordered(counts.collect(engine="streaming"))
        return fitted


class Arrow:
    """``value_counts`` and ``sort_indices``; ``index_in``."""

    def fit(self, path: Path) -> Counted:
        """Read once, count column by column."""
        table = pq.read_table(path, columns=list(COLUMNS), use_threads=False)
        fitted = {}
        for name in COLUMNS:
            counted = pc.value_counts(_flat_arrow(table, name))
            counts = pa.table({"value": counted.field(0), "count": counted.field(1)})
            counts = counts.filter(pc.is_valid(counts["value"])).combine_chunks()
            fitted[name] = counts.take(pc.sort_indices(counts, [("count", "descending"), ("value", "ascending")]))
        return fitted

    def transform(self, path: Path, fitted: Counted) -> Codes:
        """Look up column by column."""
        table = pq.read_table(path, columns=list(COLUMNS), use_threads=False)
        found = [pc.index_in(_flat_arrow(table, name), value_set=fitted[name]["value"]) for name in COLUMNS]
        return [_tensor(pc.fill_null(codes, -1).to_numpy()) for codes in found]


# --- those who collect the values ------------------------------------------------------------------------------


class Pandas:
    """``factorize``, and an ``Index`` for each column."""

    def fit(self, path: Path) -> list[pd.Index]:
        """Values in the order in which they first occur."""
        frame = _frame(path)
        return [pd.Index(pd.factorize(_flat_pandas(frame, name))[1]) for name in COLUMNS]

    def transform(self, path: Path, fitted: list[pd.Index]) -> Codes:
        """Look up column by column."""
        frame = _frame(path)
        pairs = zip(COLUMNS, fitted, strict=True)
        return [_tensor(index.get_indexer(_flat_pandas(frame, name))) for name, index in pairs]


class ScikitLearn:
    """``OrdinalEncoder``, one for each column."""

    def fit(self, path: Path) -> list[Any]:
        """Values in their own order."""
        made = harness.needs("sklearn.preprocessing").OrdinalEncoder
        frame = _frame(path)
        options = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
        return [
            made(**options, **({"encoded_missing_value": -1} if name in SINGLE else {})).fit(_column(frame, name))
            for name in COLUMNS
        ]

    def transform(self, path: Path, fitted: list[Any]) -> Codes:
        """Look up column by column."""
        frame = _frame(path)
        pairs = zip(COLUMNS, fitted, strict=True)
        return [_tensor(encoder.transform(_column(frame, name))[:, 0]) for name, encoder in pairs]


class CategoryEncoders:
    """``OrdinalEncoder`` of category_encoders, one for all columns and one for the tags."""

    def __init__(self) -> None:
        self.encoder = harness.needs("category_encoders").OrdinalEncoder

    def fit(self, path: Path) -> list[Any]:
        """Values in the order in which they first occur."""
        frame, options = _frame(path), {"handle_unknown": "value", "handle_missing": "value"}
        tags = _flat_pandas(frame, "tags").astype(object).to_frame()
        return [
            self.encoder(cols=list(SINGLE), **options).fit(frame[list(SINGLE)]),
            self.encoder(cols=["tags"], **options).fit(tags),
        ]

    def transform(self, path: Path, fitted: list[Any]) -> Codes:
        """Encode the frame, then the tags; a missing value has a code of its own."""
        frame = _frame(path)
        single = fitted[0].transform(frame[list(SINGLE)])
        tags = fitted[1].transform(_flat_pandas(frame, "tags").astype(object).to_frame())
        return [*(_tensor(single[name].to_numpy()) for name in SINGLE), _tensor(tags["tags"].to_numpy())]


class TorchFrame:
    """``Dataset.materialize`` of PyTorch Frame, whose fit encodes too."""

    def __init__(self) -> None:
        frame = harness.needs("torch_frame")
        self.dataset = harness.needs("torch_frame.data").Dataset
        self.kinds = {**dict.fromkeys(SINGLE, frame.categorical), "tags": frame.multicategorical}

    def fit(self, path: Path) -> Any:
        """Materialize."""
        dataset = self.dataset(self._frame(path), col_to_stype=self.kinds)
        dataset.materialize()
        return dataset

    def transform(self, path: Path, fitted: Any) -> Codes:
        """Encode another frame with the statistics of the first."""
        encoded = fitted.convert_to_tensor_frame(self._frame(path))
        single, tags = (encoded.feat_dict[kind] for kind in (self.kinds["user_id"], self.kinds["tags"]))
        names = encoded.col_names_dict[self.kinds["user_id"]]
        return [*(single[:, names.index(name)].long() for name in SINGLE), tags.values.long()]

    def _frame(self, path: Path) -> pd.DataFrame:
        frame = _frame(path)
        frame["tags"] = [None if tags is None else list(tags) for tags in frame["tags"]]
        return frame


# --- reading ---------------------------------------------------------------------------------------------------


def _tensor(codes: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(codes, np.int64))


def _flat_arrow(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name == "tags":
        return pc.list_flatten(table[name])
    return table[name].cast(pa.string()) if name == "country" else table[name]


def _frame(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path, columns=list(COLUMNS), use_threads=False)


def _flat_pandas(frame: pd.DataFrame, name: str) -> pd.Series:
    return frame[name].explode().dropna() if name == "tags" else frame[name]


def _column(frame: pd.DataFrame, name: str) -> Any:
    """Make the one column that scikit-learn takes."""
    flat = _flat_pandas(frame, name)
    return flat.to_frame() if name in NUMBERS else flat.astype(object).to_frame()
