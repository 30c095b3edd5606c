"""Two solvers, one objective: steps against each other and against autograd, seeds, devices, refusals."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.errors import FitError
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Categorical, Hashed, History, MultiCategorical, OneHot, Position, Schema
from recsys_emb.training.fitting import train
from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.objective import EarlyStopping, Objective
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
from recsys_emb.training.sequential import SequentialSGD

ModelOf = Callable[..., MatrixFactorization]
RowsOf = Callable[..., Batch]

# With two items and a user that has one of them, there is one negative to draw, for either solver.
TWO_ROWS = {"user": torch.tensor([3, 4]), "item": torch.tensor([5, 6])}
STRENGTH = {"l2": 0.3, "bias_l2": 0.2}


def weights_of(model: MatrixFactorization) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_close(left: MatrixFactorization, right: MatrixFactorization, atol: float = 1e-5) -> None:
    for name, value in left.state_dict().items():
        torch.testing.assert_close(value, right.state_dict()[name], atol=atol, rtol=0, msg=name)


def sgd(rate: float) -> Callable[..., torch.optim.Optimizer]:
    return functools.partial(torch.optim.SGD, lr=rate)


@pytest.mark.parametrize("objective", [SquaredError(), Logistic()], ids=repr)
@pytest.mark.parametrize("kind", ["ids", "rich"])
def test_one_step_of_each_solver_is_equal_on_one_labelled_row(
    objective: Objective, kind: str, request: pytest.FixtureRequest, model_of: ModelOf, rows_of: RowsOf
) -> None:
    schema = request.getfixturevalue(kind)
    row = rows_of(1, seed=3).keeping(schema.names)
    row = Batch(row.columns, torch.ones(1), torch.tensor([1.5]), row.limits)
    first, second = model_of(schema), model_of(schema)
    for model in (first, second):
        model.set_units(0.25, 1.0 if isinstance(objective, Logistic) else 2.0)
    loss = SequentialSGD(learning_rate=0.1, **STRENGTH).start(first, row, objective, seed=0).epoch()
    other = Minibatch(optimizer=sgd(0.1), batch_size=1, **STRENGTH).start(second, row, objective, seed=0).epoch()
    assert loss == pytest.approx(other, abs=1e-6)
    assert_close(first, second)


@pytest.mark.parametrize("objective", [BPR(), Logistic(negatives=1), Logistic(negatives=3)], ids=repr)
@pytest.mark.parametrize("kind", ["ids", "rich"])
def test_one_step_of_each_solver_is_equal_on_one_positive(
    objective: Objective, kind: str, request: pytest.FixtureRequest, model_of: ModelOf, rows_of: RowsOf
) -> None:
    schema = request.getfixturevalue(kind)
    # The second user has every item and is skipped; the first can draw only the one that it lacks.
    rows = rows_of(3, seed=4, label=False).replacing(
        {"user": torch.tensor([3, 4, 4]), "item": torch.tensor([5, 5, 6]), "country": torch.tensor([3, 4, 4])}
    )
    rows = rows.keeping(schema.names)
    first, second = model_of(schema), model_of(schema)
    # Rows that several lists of the step share decay one after another in the kernel: equal to first order in the rate.
    rate = 1e-3
    loss = SequentialSGD(learning_rate=rate, **STRENGTH).start(first, rows, objective, seed=0).epoch()
    other = Minibatch(optimizer=sgd(rate), batch_size=1, **STRENGTH).start(second, rows, objective, seed=0).epoch()
    assert loss == pytest.approx(other, abs=1e-6)
    assert_close(first, second, atol=1e-5)
    assert max(float((value - old).abs().max()) for value, old in _moves(first, model_of(schema))) > 1e-4


def _moves(model: MatrixFactorization, start: MatrixFactorization) -> list[tuple[Tensor, Tensor]]:
    return list(zip(model.state_dict().values(), start.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    "solver", [SequentialSGD(learning_rate=0.1, l2=0.5, bias_l2=0.25), None], ids=["rows", "batch"]
)
def test_l2_is_felt_once_per_occurrence(solver: SequentialSGD | None, ids: Schema, model_of: ModelOf) -> None:
    model = model_of(ids)
    rows = Batch({"user": torch.tensor([3, 3, 3]), "item": torch.tensor([4, 5, 6])}, torch.zeros(3), torch.zeros(3))
    user, item = (model.vectors.lookup(name).weight.detach().clone() for name in ("user", "item"))
    bias = model.biases.lookup("user").weight.detach().clone()
    solver = solver or Minibatch(optimizer=sgd(0.1), batch_size=1, l2=0.5, bias_l2=0.25)
    solver.start(model, rows, SquaredError(), seed=0).epoch()
    torch.testing.assert_close(model.vectors.lookup("user").weight[3], user[3] * (1 - 0.1 * 0.5) ** 3)
    torch.testing.assert_close(model.vectors.lookup("item").weight[4], item[4] * (1 - 0.1 * 0.5))
    torch.testing.assert_close(model.biases.lookup("user").weight[3], bias[3] * (1 - 0.1 * 0.25) ** 3)


def test_a_list_shares_its_l2_by_squared_weight(model_of: ModelOf) -> None:
    schema = Schema(user=Categorical("user"), item=Categorical("item"), item_features=[MultiCategorical("tags")])
    columns = {"user": torch.tensor([3]), "item": torch.tensor([4]), "tags": Jagged.from_lists([[3, 4]])}
    rows = Batch(columns, torch.zeros(1), torch.zeros(1))
    for solver in (SequentialSGD(learning_rate=0.1, l2=0.5), Minibatch(optimizer=sgd(0.1), l2=0.5)):
        model = model_of(schema)
        before = model.vectors.lookup("tags").weight.detach().clone()
        solver.start(model, rows, SquaredError(), seed=0).epoch()
        torch.testing.assert_close(model.vectors.lookup("tags").weight[3], before[3] * (1 - 0.1 * 0.5 / 4))


def test_many_row_steps_equal_autograd_row_by_row(rich: Schema, model_of: ModelOf, rows_of: RowsOf) -> None:
    rows, model, reference = rows_of(30), model_of(rich), model_of(rich)
    run = SequentialSGD(learning_rate=0.05, l2=0.0, bias_l2=0.0).start(model, rows, SquaredError(), seed=0)
    # Rows that many share learn more slowly, which autograd cannot know: let all learn alike.
    run._tables.pace[:, [0, 2]] = 0.05
    run.epoch()
    order = _order_of(rows, seed=0)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05)
    for row in order:
        one = rows.select(torch.tensor([row]))
        optimizer.zero_grad()
        ((one.label - reference.raw(one)) ** 2 / 2).sum().backward()
        optimizer.step()
    assert_close(model, reference)


def _order_of(rows: Batch, seed: int) -> list[int]:
    from recsys_emb.training.plan import user_order

    stored = user_order(rows.indices("user").numpy(), seed)
    rng = np.random.default_rng([seed, 0])
    rng.integers(2**63)
    return stored[rng.permutation(len(rows))].tolist()  # fewer rows than parts: each row is a part


@pytest.mark.parametrize("objective", [SquaredError(), BPR(), Logistic(negatives=3)], ids=repr)
@pytest.mark.parametrize("solver", [SequentialSGD(), Minibatch(batch_size=7)], ids=["rows", "batch"])
def test_a_seed_repeats_exactly_and_another_does_not(
    objective: Objective, solver: SequentialSGD | Minibatch, rich: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    rows, results = rows_of(40), []
    for seed in (0, 0, 1):
        model = model_of(rich)
        run = solver.start(model, rows, objective, seed=seed)
        losses = [run.epoch() for _ in range(3)]
        results.append((losses, torch.cat([value.flatten() for value in model.state_dict().values()])))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(results[0][1], results[2][1])


@pytest.mark.parametrize("objective", [SquaredError(), Logistic(negatives=2), SampledSoftmax(3)], ids=repr)
def test_global_random_state_is_untouched(
    objective: Objective, rich: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    for solver in (SequentialSGD(), Minibatch()):
        if solver.why_not(model_of(rich), objective) is None:
            solver.start(model_of(rich), rows_of(20), objective, seed=0).epoch()
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


@pytest.mark.parametrize("solver", [SequentialSGD(), Minibatch(), Minibatch(optimizer=RowWiseAdagrad)], ids=repr)
@pytest.mark.parametrize("objective", [SquaredError(), BPR()], ids=repr)
def test_padding_rows_stay_bit_for_bit(
    solver: SequentialSGD | Minibatch, objective: Objective, rich: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    model, rows = model_of(rich), rows_of(30)
    rows = rows.replacing({"country": torch.zeros(30, dtype=torch.int64), "tags": Jagged.from_lists([[0, 3]] * 30)})
    tables = [table for table in [*model.vectors.lookups, *model.biases.lookups] if table.num_embeddings > 2]
    for table in tables:
        table.storage()[0] = 7
    run = solver.start(model, rows, objective, seed=0)
    run.epoch()
    assert all(bool((table.storage()[0] == 7).all()) for table in tables)


@pytest.mark.parametrize("solver", [SequentialSGD(), Minibatch(batch_size=2)], ids=["rows", "batch"])
def test_frozen_tables_stay(solver: SequentialSGD | Minibatch, ids: Schema, model_of: ModelOf, rows_of: RowsOf) -> None:
    model, rows = model_of(ids), rows_of(20).keeping(["user", "item"])
    frozen = model.vectors.lookup("item").weight.requires_grad_(False)
    before = frozen.clone()
    solver.start(model, rows, SquaredError(), seed=0).epoch()
    assert torch.equal(frozen, before)


@pytest.mark.parametrize("count", [1, 3, 5, 9])
@pytest.mark.parametrize("solver", [SequentialSGD(), Minibatch(batch_size=4)], ids=["rows", "batch"])
def test_every_row_is_learned_once_per_epoch(
    solver: SequentialSGD | Minibatch, count: int, ids: Schema, model_of: ModelOf
) -> None:
    model = model_of(ids)
    # Weights count the rows: the mean loss is the mean of weight · ½ · 1.
    columns = {"user": torch.full((count,), 0), "item": torch.full((count,), 0)}
    rows = Batch(columns, torch.ones(count), torch.arange(count).float())
    assert solver.start(model, rows, SquaredError(), seed=0).epoch() == pytest.approx((count - 1) / 4)


def test_the_pair_kernel_is_chosen_for_two_ids_and_gives_the_same(
    ids: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    rows = rows_of(50).keeping(["user", "item"])
    models = model_of(ids), model_of(ids)
    runs = [SequentialSGD().start(model, rows, SquaredError(), seed=0) for model in models]
    assert runs[0]._are_pairs
    runs[1]._are_pairs = False
    assert runs[0].epoch() == pytest.approx(runs[1].epoch(), abs=1e-6)
    assert_close(*models)


def test_a_table_on_both_sides_is_no_pair(model_of: ModelOf) -> None:
    schema = Schema(
        user=Categorical("user"), item=Categorical("item", vocabulary="user", share_table=True), embedding_dim=4
    )
    rows = Batch({"user": torch.tensor([3, 4]), "item": torch.tensor([4, 5])}, torch.ones(2))
    run = SequentialSGD().start(model_of(schema), rows, SquaredError(), seed=0)
    assert not run._are_pairs


def test_a_position_learns_a_bias_alone_where_it_has_no_vector(ids: Schema, model_of: ModelOf) -> None:
    schema = Schema(user=ids.user, item=ids.item, position=Position("slot", max_position=3, vector=False))
    model = model_of(schema)
    before = model.biases.lookup("slot").weight.detach().clone()
    rows = Batch({**TWO_ROWS, "slot": torch.tensor([3, 4])}, torch.ones(2))
    SequentialSGD().start(model, rows, SquaredError(), seed=0).epoch()
    assert model.biases.lookup("slot").weight[3] != before[3]
    assert "slot" not in model.vectors.names


def test_one_hot_projections_learn_as_lookups_do(model_of: ModelOf) -> None:
    lookup = Schema(user=Categorical("user"), item=Categorical("item"), embedding_dim=4)
    one_hot = Schema(user=Categorical("user", table=OneHot()), item=Categorical("item"), embedding_dim=4)
    first, second = model_of(lookup), model_of(one_hot)
    second.load_state_dict(
        {name: value.T if "vectors.tables.0" in name else value for name, value in first.state_dict().items()}
        | {"biases.tables.0.weight": first.biases.lookup("user").weight.T}
    )
    rows = Batch(TWO_ROWS, torch.tensor([1.0, 2.0]))
    for model in (first, second):
        SequentialSGD().start(model, rows, SquaredError(), seed=0).epoch()
    torch.testing.assert_close(first(rows), second(rows))


# --- minibatch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", [SquaredError(), BPR(), SampledSoftmax(), SampledSoftmax(4)], ids=repr)
@pytest.mark.parametrize(
    "optimizer", [RowWiseAdagrad, LazyAdam, torch.optim.Adam, functools.partial(torch.optim.SGD, momentum=0.9)]
)
def test_any_optimizer_and_objective_brings_the_loss_down(
    optimizer: Callable[..., torch.optim.Optimizer],
    objective: Objective,
    rich: Schema,
    model_of: ModelOf,
    rows_of: RowsOf,
) -> None:
    model = model_of(rich)
    solver = Minibatch(optimizer=optimizer, learning_rate=0.05, batch_size=8, l2=0.0, bias_l2=0.0)
    run = solver.start(model, rows_of(24), objective, seed=0)
    losses = [run.epoch() for _ in range(12)]
    assert losses[-1] < losses[0]
    assert run.learning_rate == 0.05


def test_hashed_tables_and_max_pooling_learn_in_batches(model_of: ModelOf, rows_of: RowsOf) -> None:
    schema = Schema(
        user=Categorical("user", table=Hashed(6)),
        item=Categorical("item"),
        item_features=[MultiCategorical("tags", pooling="max")],
        label="rating",
    )
    model = model_of_without_storage(schema)
    assert SequentialSGD().why_not(model, SquaredError()) is not None
    run = Minibatch(learning_rate=0.05).start(model, rows_of(24), SquaredError(), seed=0)
    losses = [run.epoch() for _ in range(8)]
    assert losses[-1] < losses[0]


def model_of_without_storage(schema: Schema) -> MatrixFactorization:
    from types import SimpleNamespace

    sizes = {"user": 9, "item": 10, "tags": 8}
    return MatrixFactorization(SimpleNamespace(schema=schema, num_embeddings=sizes.__getitem__), init_std=0.3)


@pytest.mark.parametrize("optimizer", [RowWiseAdagrad, LazyAdam])
def test_row_sparse_optimizers_get_sparse_gradients_for_the_run_alone(
    optimizer: type, ids: Schema, model_of: ModelOf
) -> None:
    model = model_of(ids)
    run = Minibatch(optimizer=optimizer).start(model, Batch(TWO_ROWS, torch.ones(2)), BPR(), seed=0)
    run.epoch()
    assert model.vectors.lookup("user").weight.grad.is_sparse
    assert not any(table.sparse for table in model.vectors.lookups)


def test_dense_optimizers_get_dense_gradients(ids: Schema, model_of: ModelOf) -> None:
    model = model_of(ids)
    solver = Minibatch(optimizer=torch.optim.Adam)
    solver.start(model, Batch(TWO_ROWS, torch.ones(2)), SquaredError(), seed=0).epoch()
    assert not model.vectors.lookup("user").weight.grad.is_sparse


def test_a_batch_of_one_has_no_in_batch_negatives_and_stays_finite(ids: Schema, model_of: ModelOf) -> None:
    model = model_of(ids)
    run = Minibatch(batch_size=1, l2=0.0, bias_l2=0.0).start(model, Batch(TWO_ROWS), SampledSoftmax(), seed=0)
    assert run.epoch() == 0.0
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_a_meta_device_is_asked_for_by_name(ids: Schema, model_of: ModelOf) -> None:
    model = model_of(ids).to("meta")
    assert SequentialSGD().why_not(model, SquaredError()) == "the model is on meta, and the kernels run on the CPU"


def test_other_dtypes_and_objectives_are_named(ids: Schema, model_of: ModelOf) -> None:
    solver, model = SequentialSGD(), model_of(ids)
    assert solver.why_not(model, SampledSoftmax()) == (
        "SampledSoftmax is no loss of single examples, as SquaredError, Logistic and BPR are"
    )
    assert solver.why_not(model.double(), SquaredError()) == (
        "the model has parameters of torch.float64, and the kernels take torch.float32"
    )


def test_settings_without_meaning_are_refused() -> None:
    with pytest.raises(FitError) as error:
        Minibatch(batch_size=0)
    assert str(error.value) == "Minibatch: expected batch_size of at least 1, got 0. It counts rows."
    with pytest.raises(FitError):
        SequentialSGD(learning_rate=-1.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("objective", [SquaredError(), Logistic(negatives=3), SampledSoftmax(4)], ids=repr)
def test_a_cuda_run_learns_what_the_cpu_does(
    objective: Objective, rich: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    model = model_of(rich)
    run = Minibatch(learning_rate=0.05, device="cuda").start(model, rows_of(24), objective, seed=0)
    losses = [run.epoch() for _ in range(12)]
    assert losses[-1] < losses[0]
    assert model.scale.device.type == "cuda"


# --- histories -------------------------------------------------------------------------------------------------


@pytest.fixture
def remembering(rich: Schema) -> Schema:
    """Every kind of feature, and what users had."""
    user_features = (*rich.user_features, History("item", l2_scale=4.0))
    return dataclasses.replace(rich, user_features=user_features)


@pytest.mark.parametrize("objective", [SquaredError(), Logistic(negatives=1)], ids=repr)
def test_one_step_of_each_solver_is_equal_with_a_history(
    objective: Objective, remembering: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    rows = rows_of(3, seed=4, label=objective == SquaredError()).replacing(
        {"user": torch.tensor([3, 4, 4]), "item": torch.tensor([5, 5, 6]), "country": torch.tensor([3, 4, 4])}
    )
    rows = rows if objective.contrast else rows.select(torch.tensor([0]))
    models = model_of(remembering), model_of(remembering)
    for model in models:
        model.vectors.remember(rows_of(30).replacing({"user": torch.tensor([3, 4, 5]).repeat(10)}))
    start = models[0].vectors.lookup("item_history").storage().clone()
    SequentialSGD(learning_rate=1e-3, **STRENGTH).start(models[0], rows, objective, seed=0).epoch()
    Minibatch(optimizer=sgd(1e-3), batch_size=1, **STRENGTH).start(models[1], rows, objective, seed=0).epoch()
    assert_close(*models)
    assert (models[0].vectors.lookup("item_history").storage() - start).abs().max() > 1e-4


def test_a_history_holds_the_rows_that_are_learned_alone(
    remembering: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    seen = []

    class Spy(SequentialSGD):
        def start(self, model: MatrixFactorization, batch: Batch, *args: object, **kwargs: object) -> object:
            remembered = model.vectors.lookup("item_history").lists().to_lists()
            had = [set(batch.indices("item")[batch.indices("user") == user].tolist()) for user in range(9)]
            assert [set(one) for one in remembered] == had
            seen.append(len(batch))
            return super().start(model, batch, *args, **kwargs)

    stopping = EarlyStopping(fraction=0.25, min_epochs=2, patience=1)
    train(model_of(remembering), rows_of(40), SquaredError(), Spy(), epochs=3, early_stopping=stopping)
    assert seen == [30, 40]


def test_items_that_nobody_had_add_nothing_to_a_history(
    remembering: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    model, rows = model_of(remembering), rows_of(40).replacing({"item": torch.tensor([3, 4, 5, 6]).repeat(10)})
    train(model, rows, SquaredError(), SequentialSGD(), epochs=2)
    table = model.vectors.lookup("item_history").storage()
    assert not table[7:].any()
    assert table[3:7].all()


def test_the_kernels_take_one_history_and_batches_any_number(
    remembering: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    both = (*remembering.user_features, History("item", max_length=2, name="latest"))
    schema = dataclasses.replace(remembering, user_features=both)
    model, rows = model_of(schema), rows_of(20)
    assert SequentialSGD().why_not(model, SquaredError()) == (
        "the schema declares 2 histories, and the kernels take one"
    )
    history = train(model, rows, SquaredError(), Minibatch(learning_rate=0.01), epochs=15)
    assert history.epochs[-1].train_loss < history.epochs[0].train_loss
