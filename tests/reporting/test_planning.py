"""A plan says what there is in the end: its bytes are compared with those of what is built."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import SchemaError
from recsys_emb.loading.row_store import RowStore
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.reporting.machines import ColumnRates, LookupRates, Machine
from recsys_emb.reporting.planning import SchemaPlan, vocabulary_bytes
from recsys_emb.schema import (
    Categorical,
    Hashed,
    History,
    MultiCategorical,
    Numeric,
    OneHot,
    Position,
    Schema,
    UnknownBuckets,
)
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
from recsys_emb.vocabulary.vocabulary import Vocabulary

SCHEMA = Schema(
    user=Categorical("user", unknown=UnknownBuckets(3)),
    item=Categorical("item"),
    position=Position("slot", max_position=5),
    user_features=[Numeric("age"), History("item"), MultiCategorical("liked", vocabulary="item", share_table=True)],
    item_features=[
        MultiCategorical("tags", weights="tag_weights"),
        Categorical("brand", table=OneHot(), max_size=4),
        Categorical("shop", table=Hashed(7)),
    ],
    label="stars",
    weight="weight",
    embedding_dim=6,
)
DISTINCT = {"user": 40, "item": 20, "tags": 5, "brand": 9, "shop": 3}
LENGTHS = {"liked": 2.0, "tags": 3.0}


def rows(count: int = 200) -> dict[str, Any]:
    """A table in which every value occurs that `DISTINCT` counts; integers lie far apart, brands are text."""
    order = np.arange(count)
    return {
        "user": order % 40 * 10**9,
        "item": (order * 7 + order // 40) % 20 * 10**9,  # nobody has an item twice
        "slot": order % 6,
        "age": order * 0.5,
        "liked": [[int(n) % 20 * 10**9, 0] for n in order],
        "tags": [[int(n) % 5 * 10**9, 0, 10**9] for n in order],
        "tag_weights": [[1.0, 0.5, 2.0] for _ in order],
        "brand": [f"brand-{n % 9}" for n in order],
        "shop": order % 3 * 10**9,
        "stars": np.ones(count, np.float32),
        "weight": np.ones(count, np.float32),
    }


@pytest.fixture(scope="module")
def encoder() -> FeatureEncoder:
    return FeatureEncoder(SCHEMA).fit(rows())


@pytest.fixture(scope="module")
def batch(encoder: FeatureEncoder) -> Batch:
    return encoder.transform(rows())


@pytest.fixture(scope="module")
def plan() -> SchemaPlan:
    return SCHEMA.plan(rows=200, distinct=DISTINCT, lengths=LENGTHS, text={"brand": 7})


def vocabulary_size(vocabulary: Vocabulary) -> Any:
    """Bytes of what a vocabulary holds, but for a bit per text that says it is there, and a few bytes around."""
    (table,) = vocabulary._index._tables.values()
    exact = vocabulary.values.nbytes + vocabulary.counts.nbytes + table._slots.nbytes
    return pytest.approx(exact, rel=0.01, abs=16)


def column_size(column: torch.Tensor | Jagged | None) -> int:
    parts = [column.values, column.offsets, column.weights] if isinstance(column, Jagged) else [column]
    return sum(one.nbytes for one in parts if one is not None)


def test_vocabularies_take_what_the_plan_says(encoder: FeatureEncoder, plan: SchemaPlan) -> None:
    owned = encoder.to_state().vocabularies
    said = [(name, vocabulary_bytes(len(one), 7 if name == "brand" else None)) for name, one in owned.items()]
    assert said == [(name, vocabulary_size(one)) for name, one in owned.items()]
    assert plan.vocabularies == sum(size for _, size in said)


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 5000), st.integers(1, 40))
def test_a_vocabulary_of_any_size_takes_what_the_plan_says(count: int, length: int) -> None:
    numbers = Vocabulary.from_values(pa.array(np.arange(count) * 2**40))
    assert vocabulary_bytes(len(numbers), None) == vocabulary_size(numbers)
    texts = Vocabulary.from_values(pa.array([f"{number:0{length}d}" for number in range(count)]))
    mean = sum(len(text) for text in texts.values.to_pylist()) / len(texts)
    assert vocabulary_bytes(len(texts), mean) == vocabulary_size(texts)


def test_a_batch_and_a_store_take_what_the_plan_says(batch: Batch, plan: SchemaPlan) -> None:
    assert plan.batch == sum(map(column_size, [*batch.columns.values(), batch.label, batch.weight]))
    store = RowStore.of([batch])
    arrays = [array for one in store.lists.values() for array in (one.values, one.offsets, one.weights)]
    assert plan.cache == sum(array.nbytes for array in (store.cells, *arrays) if array is not None)


def test_tables_take_what_the_plan_says(encoder: FeatureEncoder, batch: Batch, plan: SchemaPlan) -> None:
    model = MatrixFactorization(encoder)
    model.vectors.remember(batch)
    weights = sum(one.numel() * 4 for one in model.parameters())
    histories = [table for part in (model.vectors, model.biases) for table in part.histories.values()]
    assert plan.tables == weights + sum(table.offsets.nbytes + table.values.nbytes for table in histories)


@pytest.mark.parametrize(("optimizer", "field"), [(RowWiseAdagrad, "row_wise_adagrad"), (LazyAdam, "adam")])
def test_optimizers_take_what_the_plan_says(
    encoder: FeatureEncoder, batch: Batch, plan: SchemaPlan, optimizer: Any, field: str
) -> None:
    model = MatrixFactorization(encoder)
    model.vectors.remember(batch)
    stepped = optimizer(model.parameters(), lr=0.1)
    model(batch).sum().backward()
    stepped.step()
    states = [one for state in stepped.state.values() for one in state.values() if isinstance(one, torch.Tensor)]
    assert getattr(plan, field) == sum(one.nbytes for one in states if one.ndim)


@pytest.mark.parametrize(("count", "text"), [(60_000, None), (150_000, None), (60_000, 20), (90_000, 40)])
def test_a_fit_peaks_where_the_plan_says(count: int, text: int | None) -> None:
    numbers = np.arange(count) * 2654435761
    values = pa.array(numbers if text is None else [f"{number:0{text}d}" for number in numbers])
    schema = Schema(user=Categorical("x"))
    table = pa.table({"x": values})
    FeatureEncoder(schema).fit(table.slice(0, 1000))  # compiles
    tracemalloc.start()
    try:
        vocabulary = FeatureEncoder(schema).fit(table).vocabularies["x"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Arrow's memory is not traced; what it took by count and value was numpy's, and of texts the values are Arrow's.
    peak += 0 if text is None else vocabulary.values.nbytes
    plan = schema.plan(rows=count, distinct={"x": count}, text={} if text is None else {"x": text})
    assert peak == pytest.approx(plan.fit_peak, rel=0.06)


def test_seconds_are_rates_times_what_there_is_to_do() -> None:
    machine = Machine(
        "a stopwatch",
        integers=ColumnRates(fit=1, encode=2, distinct=1000),
        texts=ColumnRates(fit=10, encode=20, distinct=5000),
        numbers=ColumnRates(fit=100, encode=200),
        sequential=LookupRates(start=5, width=1),
        minibatch=LookupRates(start=50, width=10),
    )
    schema = Schema(
        user=Categorical("user"),
        item=Categorical("item"),
        item_features=[MultiCategorical("tags"), Numeric("age")],
        embedding_dim=4,
    )
    sizes = {"distinct": {"user": 2_000_000, "item": 10, "tags": 0}, "lengths": {"tags": 3}, "text": {"item": 8}}
    plan = schema.plan(rows=10**9, machine=machine, **sizes)
    assert plan.fit_seconds == pytest.approx(1 + 2 + 10 + 10 * 5e-6 + 3 + 100)
    assert plan.encode_seconds == pytest.approx(2 + 20 + 3 * 2 + 200)
    assert plan.sequential_seconds == pytest.approx((1 + 1 + 3 + 1) * (5 + 4))
    assert plan.minibatch_seconds == pytest.approx((1 + 1 + 3 + 1) * (50 + 40))
    assert plan.machine is machine


def test_a_side_without_features_is_planned_as_lookups_alone() -> None:
    schema = Schema(user=Categorical("user"), embedding_dim=8)
    plan = schema.plan(rows=5, distinct={"user": 97})
    made = FeatureEmbedding(FeatureEncoder(schema).fit({"user": list(range(97))}))
    assert plan.tables == sum(one.numel() * 4 for one in made.parameters())


def test_a_plan_allocates_nothing_and_prints_itself() -> None:
    schema = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=64)
    plan = schema.plan(rows=10**11, distinct={"user": 10**10, "item": 10**7})
    assert plan.tables == 4 * (64 + 1) * (10**10 + 10**7 + 6)
    lines = str(plan).splitlines()
    assert lines[0] == "memory for 100,000,000,000 rows"
    assert lines[5].split() == ["tables", "2.4", "TiB"]
    assert (lines[10], lines[-1]) == ("seconds of one core", f"as measured on {plan.machine.name}")
    assert lines[11].split() == ["FeatureEncoder.fit", f"{plan.fit_seconds:,.1f}", "s"]


def test_counts_may_be_whole_numbers_of_any_type() -> None:
    said = {name: float(count) for name, count in DISTINCT.items()}
    other = SCHEMA.plan(rows=np.int64(200), distinct=said, lengths=LENGTHS)
    assert SCHEMA.plan(rows=2e2, distinct=said, lengths=LENGTHS) == other
    assert other == SCHEMA.plan(rows=200, distinct=DISTINCT, lengths=LENGTHS)
    assert type(other.rows) is int


def test_nothing_to_do_costs_nothing(plan: SchemaPlan) -> None:
    empty = SCHEMA.plan(rows=0, distinct=dict.fromkeys(DISTINCT, 0), lengths=LENGTHS)
    seconds = (empty.fit_seconds, empty.encode_seconds, empty.sequential_seconds, empty.minibatch_seconds)
    assert (empty.batch, seconds) == (16, (0, 0, 0, 0))  # two lists of offsets
    assert empty.tables < plan.tables


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": -1}, "expected rows to be an integer of 0 or more, got -1. Count them."),
        ({"rows": 1.5}, "expected rows to be an integer of 0 or more, got 1.5. Count them."),
        ({"rows": True}, "expected rows to be an integer of 0 or more, got True. Count them."),
        ({"rows": "9"}, "expected rows to be an integer of 0 or more, got '9'. Count them."),
        ({"rows": float("inf")}, "expected rows to be an integer of 0 or more, got inf. Count them."),
        (
            {"distinct": {**DISTINCT, "usr": 3}},
            "expected distinct= to name 'user', 'item', 'tags', 'brand', 'shop', got 'usr'. Did you mean 'user'?",
        ),
        (
            {"distinct": {"user": 3, "item": 2, "tags": 1}},
            "expected distinct= to name 'user', 'item', 'tags', 'brand', 'shop', got none for 'brand', 'shop'. "
            "Say how many, as far as you know.",
        ),
        ({"distinct": {**DISTINCT, "user": 2.5}}, "expected counts in distinct=, got others for 'user'. Count them."),
        (
            {"lengths": {"liked": 2.0}},
            "expected lengths= to name 'liked', 'tags', got none for 'tags'. Say how many, as far as you know.",
        ),
        (
            {"lengths": {**LENGTHS, "liked": float("nan")}},
            "expected means of at least 0 in lengths=, got others for 'liked'. Give finite numbers.",
        ),
        (
            {"lengths": {"liked": float("inf"), "tags": "x"}},
            "expected means of at least 0 in lengths=, got others for 'liked', 'tags'. Give finite numbers.",
        ),
        (
            {"text": {"brand": -1}},
            "expected means of at least 0 in text=, got others for 'brand'. Give finite numbers.",
        ),
        ({"distinct": None}, "expected distinct= to map names to numbers, got None. Give a dict."),
        ({"distinct": [3]}, "expected distinct= to map names to numbers, got [3]. Give a dict."),
        ({"text": "x"}, "expected text= to map names to numbers, got 'x'. Give a dict."),
        (
            {"text": {"age": 3}},
            "expected text= to name 'user', 'item', 'tags', 'brand', 'shop', got 'age'.",
        ),
    ],
)
def test_sizes_that_do_not_fit_the_schema_are_refused(changes: dict[str, Any], message: str) -> None:
    said = {"rows": 200, "distinct": DISTINCT, "lengths": LENGTHS, **changes}
    with pytest.raises(SchemaError) as caught:
        SCHEMA.plan(**said)
    assert str(caught.value) == f"Schema.plan: {message}"
