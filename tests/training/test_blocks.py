"""`SequentialSGD(blocks=...)`: the same bits for any number of threads, and what they are."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from recsys_emb.encoding import crew
from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.errors import FitError
from recsys_emb.kernels import row_copies, sequential_reference
from recsys_emb.kernels.sequential import Tables
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Categorical, History, MultiCategorical, Numeric, Position, Schema
from recsys_emb.training.fitting import train
from recsys_emb.training.losses import BPR, Logistic, SquaredError
from recsys_emb.training.sequential import SequentialRun, SequentialSGD

SIZES = {"user": 120, "item": 90, "age": 2, "tags": 30, "slot": 8, "item_history": 90}
IDS = Schema(user=Categorical("user", unknown_dropout=0.1), item=Categorical("item"), label="y", embedding_dim=5)
RICH = dataclasses.replace(
    IDS,
    user_features=(Numeric("age"), History("item")),
    item_features=(MultiCategorical("tags"),),
    position=Position("slot", max_position=4),
)
TWICE = Schema(
    user=Categorical("user"), item=Categorical("item", vocabulary="user", share_table=True), label="y", embedding_dim=5
)
SCHEMAS = {"ids": IDS, "rich": RICH, "shared table": TWICE}
KINDS = pytest.mark.parametrize("kind", SCHEMAS)


def rows_of(count: int, seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    columns = {name: torch.randint(2, SIZES[name], (count,), generator=rng) for name in ("user", "item", "slot")}
    lengths = torch.randint(0, 4, (count,), generator=rng)
    tags = torch.randint(2, SIZES["tags"], (int(lengths.sum()),), generator=rng)
    columns["tags"] = Jagged(tags, torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]))
    columns["age"] = torch.stack([torch.randn(count, generator=rng), torch.zeros(count)], 1)
    label = ((columns["user"] + columns["item"]) % 5).float()
    return Batch(columns, label, limits=SIZES)


def model_of(schema: Schema, rows: Batch) -> MatrixFactorization:
    sizes = SimpleNamespace(schema=schema, num_embeddings=lambda name: 120 if schema is TWICE else SIZES[name])
    model = MatrixFactorization(sizes, init_std=0.3)
    model.vectors.remember(rows, anew=True)
    return model


def started(kind: str, blocks: int, count: int = 2000) -> tuple[MatrixFactorization, SequentialRun]:
    rows = rows_of(count)
    model = model_of(SCHEMAS[kind], rows)
    return model, SequentialSGD(learning_rate=0.05, blocks=blocks).start(model, rows, SquaredError(), seed=3)


def bits(model: MatrixFactorization) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in model.state_dict().values()])


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let small data have threads, and torch its own again."""
    before = torch.get_num_threads()
    monkeypatch.setattr(crew, "_WORTH_IT", 1)
    yield
    torch.set_num_threads(before)


@KINDS
@pytest.mark.parametrize("blocks", [2, 3])
@pytest.mark.usefixtures("threads")
def test_any_number_of_threads_gives_the_same_bits(kind: str, blocks: int) -> None:
    results = []
    for count in (1, 2, 3, 5):
        torch.set_num_threads(count)
        model, run = started(kind, blocks)
        results.append(([run.epoch() for _ in range(4)], bits(model)))
    for losses, weights in results[1:]:
        assert losses == results[0][0]
        assert torch.equal(weights, results[0][1])


@pytest.mark.usefixtures("threads")
def test_threads_work_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(2)
    _, run = started("rich", 2)
    # Each waits for the other in every round: alone, none would get past.
    meeting, learn = threading.Barrier(2, timeout=30), SequentialRun._learn

    def learn_together(self: SequentialRun, *given: object) -> tuple[float, int]:
        meeting.wait()
        return learn(self, *given)

    monkeypatch.setattr(SequentialRun, "_learn", learn_together)
    assert np.isfinite(run.epoch())


@KINDS
def test_an_epoch_is_that_of_the_plain_twins(kind: str) -> None:
    run = started(kind, 2, count=400)[1]
    tables, shared = run._tables, run._shared
    twins = Tables(tables.vectors.astype(np.float64), tables.biases.astype(np.float64), tables.pace)
    for array in (twins.vectors, twins.biases):
        array[shared.copies.first :] = np.concatenate([array[shared.copies.originals]] * 2)
    rng = np.random.default_rng([3, 0])
    rng.integers(2**63)
    total = 0.0
    for number in rng.permutation(len(run._rounds)):
        for span in run._rounds[number]:
            total += sequential_reference.list_pass_reference(run._task, span, run._examples, twins)
        row_copies.merge_reference(shared.copies, shared.touched[number], shared.shares[number], twins)
    assert run.epoch() == pytest.approx(total / 400, rel=1e-4)
    np.testing.assert_allclose(tables.vectors, twins.vectors, atol=1e-5, rtol=0)
    np.testing.assert_allclose(tables.biases, twins.biases, atol=1e-5, rtol=0)


def test_a_user_and_an_item_alone_need_no_copies_and_keep_their_kernel() -> None:
    schema = dataclasses.replace(IDS, user=Categorical("user"))
    rows = rows_of(2000)
    rows = rows.select(((rows["user"] > 2) & (rows["item"] > 2)).nonzero()[:, 0])  # known ones learn at one pace
    run = SequentialSGD(blocks=3).start(model_of(schema, rows), rows, SquaredError(), seed=0)
    assert run._are_pairs
    assert run._shared.size == 0
    assert started("ids", 3)[1]._shared.size == 0


def test_blocks_are_part_of_what_a_run_is_a_function_of() -> None:
    results = [started("ids", blocks) for blocks in (1, 1, 2)]
    for _, run in results:
        run.epoch()
    assert torch.equal(bits(results[0][0]), bits(results[1][0]))
    assert not torch.equal(bits(results[0][0]), bits(results[2][0]))


@KINDS
@pytest.mark.parametrize("stop", [1, 20, 49])
def test_a_run_that_was_stopped_anywhere_goes_on_with_the_same_bits(kind: str, stop: int) -> None:
    (whole, run), (late, again) = started(kind, 2), started(kind, 2)
    parts, kept = [], []

    def note() -> None:
        parts.append(None)
        if len(parts) == stop:
            kept.append((copy.deepcopy(whole.state_dict()), run.state()))

    run.after_part = note
    losses = [run.epoch() for _ in range(3)]
    late.load_state_dict(kept[0][0])
    again.restore(kept[0][1])
    assert [again.epoch() for _ in losses] == losses
    assert torch.equal(bits(late), bits(whole))


def test_padding_and_frozen_rows_stay_bit_for_bit() -> None:
    rows = rows_of(1000)
    model = model_of(RICH, rows)
    frozen = model.vectors.lookup("tags").weight.requires_grad_(False)
    model.biases.lookup("slot").weight.data[0] = 7
    before = frozen.clone()
    SequentialSGD(blocks=2).start(model, rows, SquaredError(), seed=0).epoch()
    assert torch.equal(frozen, before)
    assert model.biases.lookup("slot").weight[0] == 7
    assert model.vectors.lookup("item").weight[0].eq(0).all()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_few_rows_are_learned_by_few_workers(count: int) -> None:
    model, run = started("rich", 4, count)
    before = bits(model)
    assert np.isfinite(run.epoch())
    assert not torch.equal(bits(model), before)


def test_a_planted_factorization_is_found_as_well_as_by_one_thread() -> None:
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(118, 2)), rng.normal(size=(88, 2))
    pairs = torch.from_numpy(np.stack([rng.integers(0, 118, 6000), rng.integers(0, 88, 6000)]))
    label = torch.from_numpy((users[pairs[0]] * items[pairs[1]]).sum(1)).float()
    rows = Batch({"user": pairs[0] + 2, "item": pairs[1] + 2}, label, limits=SIZES)
    kept, apart = rows.select(torch.arange(5000)), rows.select(torch.arange(5000, 6000))
    errors = []
    for blocks in (1, 2, 4):
        model = model_of(dataclasses.replace(IDS, user=Categorical("user")), kept)
        train(model, kept, SquaredError(), SequentialSGD(learning_rate=0.03, blocks=blocks), epochs=40)
        with torch.no_grad():
            errors.append(float((model(apart) - apart.label).square().mean().sqrt()))
    assert max(errors) < 0.25 * float(label.std())
    assert max(errors) < 1.1 * min(errors)


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (0, "of at least 1, got 0"),
        (65, "of at most 64, got 65"),
        (2.0, "to be an integer, got 2.0"),
        (True, "to be an integer, got True"),
    ],
)
def test_blocks_count_threads(blocks: object, expected: str) -> None:
    with pytest.raises(FitError) as caught:
        SequentialSGD(blocks=blocks)
    assert str(caught.value) == (
        f"SequentialSGD: expected blocks {expected}. Give one per thread that shall learn at the same time."
    )


@pytest.mark.parametrize("objective", [BPR(), Logistic(negatives=2)], ids=repr)
def test_negatives_are_not_for_blocks(objective: BPR) -> None:
    model = model_of(IDS, rows_of(10))
    assert SequentialSGD().why_not(model, objective) is None
    assert SequentialSGD(blocks=2).why_not(model, objective) == (
        f"{objective!r} draws negatives from all items, and blocks=2 gives threads their own"
    )
    assert SequentialSGD(blocks=2).why_not(model, SquaredError()) is None


@pytest.mark.parametrize("missing", ["user", "item"])
def test_blocks_need_a_user_and_an_item(missing: str) -> None:
    given = {"user": Categorical("user"), "item": Categorical("item")} | {missing: None}
    features = {f"{missing}_features": [Categorical("tags")]}
    model = model_of(Schema(**given, **features), rows_of(10))
    assert SequentialSGD(blocks=2).why_not(model, SquaredError()) == (
        f"the schema has no {missing}, and blocks=2 deals users and items out"
    )
    assert SequentialSGD().why_not(model, SquaredError()) is None
