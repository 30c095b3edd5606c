"""`SchemaPlan`: what a schema costs in memory and time at a size that is stated, before anything is read.

Bytes are counted as the library lays them out; `tests/reporting/test_planning.py` compares them with what is there in
the end. Times are rates that were measured, times what there is to do.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from recsys_emb import kernels
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.lookup.plan import memory_plan
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.reporting.machines import MEASURED, ColumnRates, LookupRates, Machine
from recsys_emb.reporting.sizes import Sizes
from recsys_emb.reporting.text import TextTable, in_bytes
from recsys_emb.schema.columns import Feature, History, MultiCategorical, Numeric, Position

# `Recommender.fit` was measured to hold up to so many times the encoded rows at its highest, from some 3 million on:
# of fewer, the allocator keeps a part that was freed.
_TRAINING = 7
_WORD = 8


@dataclass(frozen=True)
class SchemaPlan:
    """What a schema costs at a stated size. Print it.

    Parameters
    ----------
    rows
        Rows that are learned from.
    vocabularies
        Bytes of the vocabularies, each with its table; at most, since keys that lie close together take less.
    fit_peak
        Bytes that `FeatureEncoder.fit` takes at its highest, at most, beside the buffers that read the rows: some tens
        of MiB for a file. They do not grow with the rows.
    batch, cache
        Bytes of all rows encoded: as the `Batch` of one `transform`, and as `BatchLoader` keeps them.
    tables
        Bytes of the tables of `MatrixFactorization`, or of `FeatureEmbedding` where a side has no feature.
    row_wise_adagrad, adam
        Bytes of an optimizer's state beside them; `SequentialSGD` has none.
    recommender_peak
        Bytes that `Recommender.fit` takes at its highest, roughly.
    fit_seconds, encode_seconds, sequential_seconds, minibatch_seconds
        Seconds of one core: of `FeatureEncoder.fit` and ``transform`` from Parquet, and of an epoch of `SequentialSGD`
        and of `Minibatch`. Good to a factor of two on the machine that was measured, where tables are larger than its
        cache; smaller ones learn faster.
    machine
        Where the rates were measured.
    """

    rows: int
    vocabularies: int
    fit_peak: int
    batch: int
    cache: int
    tables: int
    row_wise_adagrad: int
    adam: int
    recommender_peak: int
    fit_seconds: float
    encode_seconds: float
    sequential_seconds: float
    minibatch_seconds: float
    machine: Machine

    def __str__(self) -> str:
        """Lay it out as a table."""
        memory = {
            "vocabularies": self.vocabularies,
            "FeatureEncoder.fit, beside reading": self.fit_peak,
            "rows as a Batch": self.batch,
            "rows in a BatchLoader": self.cache,
            "tables": self.tables,
            "state of row-wise Adagrad": self.row_wise_adagrad,
            "state of Adam": self.adam,
            "Recommender.fit, about": self.recommender_peak,
        }
        times = {
            "FeatureEncoder.fit": self.fit_seconds,
            "transform": self.encode_seconds,
            "epoch of SequentialSGD": self.sequential_seconds,
            "epoch of Minibatch": self.minibatch_seconds,
        }
        shown = [[name, in_bytes(count)] for name, count in memory.items()]
        timed = [[name, f"{seconds:,.1f} s"] for name, seconds in times.items()]
        return "\n".join(
            [
                str(TextTable([f"memory for {self.rows:,} rows", ""], shown)),
                "",
                str(TextTable(["seconds of one core", ""], timed)),
                f"as measured on {self.machine.name}",
            ]
        )


def plan_schema(sizes: Sizes, machine: Machine = MEASURED) -> SchemaPlan:
    """Account for a schema; see `Schema.plan`."""
    tables = _tables(sizes)
    owned = [(sizes.distinct[name], sizes.kept(name), sizes.text.get(name)) for name in sizes.distinct]
    vocabularies = sum(vocabulary_bytes(kept, text) for _, kept, text in owned)
    batch = _row_bytes(sizes, number=_WORD)
    return SchemaPlan(
        rows=sizes.rows,
        vocabularies=vocabularies,
        fit_peak=sum(counting_bytes(distinct, text) for distinct, _, text in owned) + vocabularies,
        batch=batch,
        cache=_row_bytes(sizes, number=4),
        tables=tables["weight_bytes"],
        row_wise_adagrad=tables["row_wise_adagrad_bytes"],
        adam=tables["adam_bytes"],
        recommender_peak=vocabularies + tables["weight_bytes"] + _TRAINING * batch,
        fit_seconds=sum(_fit_seconds(sizes, one, machine) for one in sizes.schema.features),
        encode_seconds=sum(sizes.values(one) * _rates(sizes, one, machine).encode for one in _read(sizes)) / 1e9,
        sequential_seconds=_epoch_seconds(sizes, machine.sequential),
        minibatch_seconds=_epoch_seconds(sizes, machine.minibatch),
        machine=machine,
    )


# --- bytes -------------------------------------------------------------------------------------------------------


def vocabulary_bytes(distinct: int, text: float | None) -> int:
    """Bytes of a vocabulary: values, counts and the table that finds them; ``text`` bytes each, or integers."""
    slots = kernels.integer_table.table_size(distinct)
    if text is None:
        return 2 * _WORD * distinct + 2 * _WORD * slots
    return _WORD * distinct + _WORD * (distinct + 1) + round(text * distinct) + _WORD * slots


def counting_bytes(distinct: int, text: float | None) -> int:
    """Bytes that counting the values takes beside the vocabulary, at the highest."""
    slots = _grown(distinct)
    if text is None:
        return 2 * _WORD * slots
    words = 1 << (int(distinct * (2 + (text + 7) // 8)) + 1024).bit_length()
    ranking = round(distinct * (48 + text))
    return _WORD * (slots + words) + max(ranking - _WORD * kernels.integer_table.table_size(distinct), 0)


def _grown(keys: int) -> int:
    """Slots of a table that doubled until it held so many keys, and a block more."""
    slots = 8 * kernels.integer_table.BLOCK
    while kernels.integer_table.capacity(slots) < keys + kernels.integer_table.BLOCK:
        slots *= 2
    return slots


def _row_bytes(sizes: Sizes, *, number: int) -> int:
    """Bytes of all rows, encoded, with indices of ``number`` bytes."""
    answers = 4 * sum(name is not None for name in (sizes.schema.label, sizes.schema.weight))
    return round(sum(_column_bytes(sizes, one, number) for one in _read(sizes)) + answers * sizes.rows)


def _column_bytes(sizes: Sizes, feature: Feature, number: int) -> float:
    if isinstance(feature, MultiCategorical):
        weight = 0 if feature.weights is None else 4
        return _WORD * (sizes.rows + 1) + (number + weight) * sizes.values(feature)
    return sizes.rows * (_WORD if isinstance(feature, Numeric) else number)


def _tables(sizes: Sizes) -> dict[str, int]:
    """Bytes of tables and of optimizers beside them, in all."""
    schema = sizes.schema
    with torch.device("meta"):
        model = MatrixFactorization(sizes) if schema.user_side and schema.item_side else None
        parts = [FeatureEmbedding(sizes)] if model is None else [model.vectors, model.biases]
    plans = [memory_plan(zip(part.names, part.lookups, strict=True), batch_size=1) for part in parts]
    names = ("weight_bytes", "row_wise_adagrad_bytes", "adam_bytes")
    total = {name: sum(int(plan[name].sum()) for plan in plans) for name in names}
    histories = [table for part in parts for table in part.histories.values()]
    total["weight_bytes"] += sum(_history_bytes(sizes, table) for table in histories)
    return total


def _history_bytes(sizes: Sizes, table: HistoryEmbedding) -> int:
    """Bytes of who had what: at most every row, once."""
    return _WORD * (len(table.offsets) + sizes.rows)


# --- seconds -----------------------------------------------------------------------------------------------------


def _read(sizes: Sizes) -> list[Feature]:
    return [one for one in sizes.schema.features if not isinstance(one, History)]


def _rates(sizes: Sizes, feature: Feature, machine: Machine) -> ColumnRates:
    if isinstance(feature, (Numeric, Position, History)):
        return machine.numbers
    return machine.texts if feature.vocabulary_name in sizes.text else machine.integers


def _fit_seconds(sizes: Sizes, feature: Feature, machine: Machine) -> float:
    if isinstance(feature, History):
        return 0.0
    rates = _rates(sizes, feature, machine)
    return (sizes.values(feature) * rates.fit + sizes.distinct.get(feature.name, 0) * rates.distinct) / 1e9


def _epoch_seconds(sizes: Sizes, rates: LookupRates) -> float:
    lookups = sum(sizes.values(one) for one in sizes.schema.features)
    return lookups * (rates.start + rates.width * sizes.schema.embedding_dim) / 1e9
