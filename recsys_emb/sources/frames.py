"""Tables in memory as parts: pandas, Polars, Arrow, mappings of columns, and whatever speaks Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from recsys_emb.errors import ColumnError, DataError
from recsys_emb.sources.keys import to_arrow
from recsys_emb.sources.lists import holds_lists, lists_to_arrow
from recsys_emb.sources.parts import BATCH_ROWS, Blocks, Part


def memory_part(source: Any) -> Part:
    """Make a part of anything tabular that is not a path.

    Raises
    ------
    DataError
        When it is not tabular.
    """
    for is_such, make in _KINDS:
        if is_such(source):
            return make(source)
    raise _not_tabular(source)


def _not_tabular(source: Any) -> DataError:
    return DataError(
        f"source: expected a frame, an Arrow table, a mapping of columns or a path, got {type(source).__name__}. "
        "Pass a pandas DataFrame."
    )


# --- pandas and mappings: columns of Python or numpy values ------------------------------------------------------


def _pandas_part(frame: pd.DataFrame) -> Part:
    names = tuple(name for name in frame.columns if isinstance(name, str))
    blocks = Blocks.of_slices(len(frame), partial(_read_pandas, frame))
    index = tuple(frame.index.names)
    return Part("frame", names, partial(_read_pandas, frame), len(frame), by_column=True, blocks=blocks, index=index)


def _read_pandas(
    frame: pd.DataFrame, names: Sequence[str], first: int = 0, last: int | None = None
) -> Iterator[pa.RecordBatch]:
    yield from _read_columns(frame if last is None else frame.iloc[first:last], names)


def _mapping_part(source: Mapping[str, Any]) -> Part:
    return Part("mapping", tuple(source), partial(_read_columns, source))


def _read_columns(columns: Mapping[str, Any] | pd.DataFrame, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    arrays = {name: _column_to_arrow(columns[name], name) for name in names}
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise ColumnError(f"mapping: expected columns of equal length, got {sizes!r}. Give every row a value.")
    is_small = all(isinstance(array, pa.Array) and len(array) <= BATCH_ROWS for array in arrays.values())
    if is_small:  # which spares a single row most of its way
        yield pa.RecordBatch.from_arrays(list(arrays.values()), names=list(names))
    else:
        yield from _read_table(pa.table(arrays), names)


def _column_to_arrow(values: Any, where: str) -> pa.Array | pa.ChunkedArray:
    return lists_to_arrow(values, where) if holds_lists(values) else to_arrow(values, where)


# --- Arrow and Polars --------------------------------------------------------------------------------------------


def _table_part(table: pa.Table) -> Part:
    read = partial(_read_table, table)
    blocks = Blocks.of_slices(table.num_rows, read)
    return Part("table", tuple(table.column_names), read, table.num_rows, by_column=True, blocks=blocks)


def _read_table(
    table: pa.Table, names: Sequence[str], first: int = 0, last: int | None = None
) -> Iterator[pa.RecordBatch]:
    rows = table.slice(first, None if last is None else last - first)
    yield from rows.select(list(names)).to_batches(max_chunksize=BATCH_ROWS)


def _record_part(record: pa.RecordBatch) -> Part:
    return _table_part(pa.Table.from_batches([record]))


def _dataset_part(dataset: ds.Dataset) -> Part:
    return Part("dataset", tuple(dataset.schema.names), partial(_read_dataset, dataset))


def _read_dataset(dataset: ds.Dataset, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    yield from dataset.to_batches(columns=list(names), batch_size=BATCH_ROWS)


def _polars_part(frame: Any) -> Part:
    read = partial(_read_polars, frame)
    blocks = Blocks.of_slices(frame.height, read)
    return Part("frame", tuple(frame.columns), read, frame.height, by_column=True, blocks=blocks)


def _read_polars(frame: Any, names: Sequence[str], first: int = 0, last: int | None = None) -> Iterator[pa.RecordBatch]:
    # Not the frame's own to_arrow(): it shows the addresses of Python objects as their values.
    rows = frame.slice(first, None if last is None else last - first)
    columns = {name: rows.get_column(name) for name in names}
    yield from _read_columns({name: _polars_values(column) for name, column in columns.items()}, names)


def _polars_values(column: Any) -> Any:
    return column.to_list() if str(column.dtype) == "Object" else column


def _lazy_part(frame: Any) -> Part:
    return Part("frame", tuple(frame.collect_schema().names()), partial(_read_lazy, frame))


def _read_lazy(frame: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    chosen = frame.select(list(names))
    # Polars before 1.34 has no batches to offer; the chosen columns are then held in memory.
    batches = (
        chosen.collect_batches(chunk_size=BATCH_ROWS) if hasattr(chosen, "collect_batches") else [chosen.collect()]
    )
    for batch in batches:
        yield from _read_polars(batch, names)


def _stream_part(source: Any) -> Part:
    try:
        names = tuple(pa.RecordBatchReader.from_stream(source).schema.names)
    except pa.ArrowInvalid:  # a stream of one column
        raise _not_tabular(source) from None
    return Part(type(source).__name__, names, partial(_read_stream, source))


def _read_stream(source: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for record in pa.RecordBatchReader.from_stream(source):
        yield record.select(list(names))


def _reader_part(reader: pa.RecordBatchReader) -> Part:
    return Part("reader", tuple(reader.schema.names), _ReadOnce(reader), repeatable=False)


class _ReadOnce:
    """Reads a reader, and refuses to do it again: the second time it would look empty."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self.reader = reader
        self.is_read = False

    def __call__(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self.is_read:
            raise DataError("reader: expected rows, got a reader that was read before. Pass a table or files.")
        self.is_read = True
        for record in self.reader:
            yield record.select(list(names))


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda source: isinstance(source, kind)


def _has(*attributes: str) -> Callable[[Any], bool]:
    return lambda source: all(hasattr(source, attribute) for attribute in attributes)


# Polars is known by what it can do, so that it need not be installed.
_KINDS: list[tuple[Callable[[Any], bool], Callable[[Any], Part]]] = [
    (_is(pd.DataFrame), _pandas_part),
    (_is(pa.Table), _table_part),
    (_is(pa.RecordBatch), _record_part),
    (_is(pa.RecordBatchReader), _reader_part),
    (_is(ds.Dataset), _dataset_part),
    (_is(Mapping), _mapping_part),
    (_has("collect_schema", "collect"), _lazy_part),
    (_has("select", "to_arrow", "height"), _polars_part),
    (_has("__arrow_c_stream__"), _stream_part),
]
