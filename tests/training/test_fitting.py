"""The loop around a solver: how long, from where, with which weights at the end, and what it says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from recsys_emb.encoding.batch import Batch
from recsys_emb.errors import EmptySourceError, FitError
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Categorical, Hashed, Schema
from recsys_emb.training.fitting import train
from recsys_emb.training.history import Epoch, FitHistory, best_of
from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.objective import EarlyStopping, Objective
from recsys_emb.training.sequential import SequentialSGD

ModelOf = Callable[..., MatrixFactorization]
RowsOf = Callable[..., Batch]


@dataclass
class Scripted:
    """A solver that sets a bias to the next of ``biases`` in every epoch, and keeps a record."""

    biases: list[float]
    sizes: list[int] = field(default_factory=list)
    learning_rate: float = 0.5
    model: MatrixFactorization | None = None

    def why_not(self, model: MatrixFactorization, objective: Objective) -> str | None:
        return None

    def start(self, model: MatrixFactorization, batch: Batch, objective: Objective, *, seed: int) -> Scripted:
        self.sizes.append(len(batch))
        self.model, self.script = model, iter(self.biases)
        return self

    def epoch(self) -> float:
        with torch.no_grad():
            self.model.biases.lookup("user").weight.fill_(next(self.script))
        return 0.25


class Interrupted(Scripted):
    """A solver whose third epoch is interrupted from the keyboard."""

    def epoch(self) -> float:
        if len(self.biases) == 1:
            raise KeyboardInterrupt
        self.biases = self.biases[1:]
        return 0.25


def bias_of(model: MatrixFactorization) -> float:
    return model.biases.lookup("user").weight[3].item()


def fitted(model: MatrixFactorization, rows: Batch) -> torch.Tensor:
    with torch.no_grad():
        return model(rows)


@pytest.fixture
def rows() -> Batch:
    """Ratings of mean 3 and standard deviation 1."""
    users, items = torch.tensor(list(itertools.product(range(3, 9), range(3, 8)))).T
    return Batch({"user": users, "item": items}, 3 + torch.tensor([-1.0, 1.0]).repeat(15))


def test_epochs_alone_are_exactly_as_many(ids: Schema, model_of: ModelOf, rows: Batch) -> None:
    history = train(model_of(ids), rows, SquaredError(), SequentialSGD(), epochs=4)
    assert [line.epoch for line in history.epochs] == [1, 2, 3, 4]
    assert (history.best_epoch, history.refit, history.interrupted) == (4, [], False)
    assert history.seconds > 0
    assert all(line.validation is None for line in history.epochs)


def test_validation_keeps_the_best_weights(ids: Schema, model_of: ModelOf, rows: Batch) -> None:
    model, solver = model_of(ids), Scripted([2.0, 0.1, 1.0, 3.0])
    flat = Batch(rows.columns, torch.full((30,), 3.0))
    history = train(model, rows, SquaredError(), solver, epochs=4, validation=flat)
    assert history.best_epoch == 2
    assert bias_of(model) == pytest.approx(0.1)
    assert history.epochs[1].validation < history.epochs[0].validation


def test_validation_stops_after_patience_but_never_before_the_minimum(
    ids: Schema, model_of: ModelOf, rows: Batch
) -> None:
    flat = Batch(rows.columns, torch.full((30,), 3.0))
    script = [0.1, *(1.0 for _ in range(20))]
    for stopping, length in (
        (EarlyStopping(min_epochs=6, patience=2), 6),
        (EarlyStopping(min_epochs=1, patience=3), 4),
    ):
        history = train(
            model_of(ids), rows, SquaredError(), Scripted(script), epochs=20, validation=flat, early_stopping=stopping
        )
        assert (len(history.epochs), history.best_epoch) == (length, 1)


def test_a_search_holds_rows_out_and_refits_on_all(ids: Schema, model_of: ModelOf, rows: Batch) -> None:
    model, solver = model_of(ids), Scripted([3.0, 2.0, 0.0, 2.0, 2.0, 2.0])
    stopping = EarlyStopping(fraction=0.2, min_epochs=2, patience=2)
    history = train(model, rows, SquaredError(), solver, epochs=6, early_stopping=stopping)
    assert solver.sizes == [24, 30]
    assert (len(history.epochs), history.best_epoch, len(history.refit)) == (5, 3, 3)
    assert bias_of(model) == 0.0


def test_a_search_that_is_asked_to_continue_refits_from_where_it_began(
    ids: Schema, model_of: ModelOf, rows: Batch
) -> None:
    model = model_of(ids)
    train(model, rows, SquaredError(), SequentialSGD(), epochs=3)
    before = fitted(model, rows)
    stopping = EarlyStopping(min_epochs=1, patience=1)
    history = train(model, rows, SquaredError(), SequentialSGD(), epochs=3, early_stopping=stopping, fresh=False)
    assert len(history.refit) == history.best_epoch
    again = model_of(ids)
    train(again, rows, SquaredError(), SequentialSGD(), epochs=3)
    torch.testing.assert_close(fitted(again, rows), before)
    train(again, rows, SquaredError(), SequentialSGD(), epochs=history.best_epoch, fresh=False)
    torch.testing.assert_close(fitted(again, rows), fitted(model, rows))


def test_too_few_rows_to_hold_out_train_the_least_number_of_epochs(ids: Schema, model_of: ModelOf) -> None:
    rows = Batch({"user": torch.tensor([3, 4]), "item": torch.tensor([3, 4])}, torch.tensor([1.0, 2.0]))
    history = train(model_of(ids), rows, SquaredError(), SequentialSGD())
    assert (len(history.epochs), history.best_epoch) == (25, 25)


def test_ranking_takes_its_fixed_number_of_epochs(ids: Schema, model_of: ModelOf, rows: Batch) -> None:
    history = train(model_of(ids), rows.select(torch.arange(0, 30, 2)), Logistic(negatives=5), SequentialSGD())
    assert len(history.epochs) == Logistic(negatives=5).defaults.epochs


@pytest.mark.parametrize("objective", [BPR(), Logistic(negatives=2), SampledSoftmax()], ids=repr)
def test_rankings_can_be_watched(objective: Objective, ids: Schema, model_of: ModelOf, rows: Batch) -> None:
    learned, watched = rows.select(torch.arange(0, 30, 3)), rows.select(torch.arange(1, 30, 3))
    solver = SequentialSGD() if SequentialSGD().why_not(model_of(ids), objective) is None else Minibatch()
    first, second = (train(model_of(ids), learned, objective, solver, epochs=3, validation=watched) for _ in range(2))
    assert first.epochs == second.epochs
    assert first.epochs[-1].validation > 0


def test_the_same_seed_gives_the_same_model_whatever_it_was_before(
    rich: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    rows, models = rows_of(40), [model_of(rich), model_of(rich)]
    torch.nn.init.constant_(models[1].vectors.lookup("brand").weight, 9.0)
    histories = [train(model, rows, SquaredError(), SequentialSGD(), seed=5) for model in models]
    assert histories[0].epochs == histories[1].epochs
    assert torch.equal(fitted(models[0], rows), fitted(models[1], rows))


def test_rows_that_do_not_occur_are_zero_after_a_fresh_fit_and_stay_otherwise(
    ids: Schema, model_of: ModelOf, rows: Batch
) -> None:
    some = rows.select((rows.indices("user") < 6).nonzero()[:, 0])
    for fresh in (True, False):
        model = model_of(ids)
        before = model.vectors.lookup("user").weight[6:].detach().clone()
        train(model, some, SquaredError(), SequentialSGD(), epochs=2, fresh=fresh)
        after = model.vectors.lookup("user").weight[6:].detach()
        assert torch.equal(after, torch.zeros_like(before) if fresh else before)


def test_continuing_keeps_the_units(ids: Schema, model_of: ModelOf, rows: Batch) -> None:
    model = model_of(ids)
    train(model, rows, SquaredError(), SequentialSGD(), epochs=2)
    units = float(model.offset), float(model.scale)
    assert units == pytest.approx((3.0, 1.0))
    later = Batch(rows.columns, rows.label * 100)
    train(model, later, SquaredError(), SequentialSGD(learning_rate=1e-6), epochs=1, fresh=False)
    assert (float(model.offset), float(model.scale)) == units


@pytest.mark.parametrize(
    "solver", [SequentialSGD(learning_rate=50.0), Minibatch(optimizer=torch.optim.SGD, learning_rate=1e9)], ids=repr
)
def test_a_run_that_diverges_says_so_and_names_the_remedy(
    solver: SequentialSGD | Minibatch, ids: Schema, model_of: ModelOf, rows: Batch
) -> None:
    with pytest.raises(FitError) as error:
        train(model_of(ids), rows, SquaredError(), solver, epochs=50)
    assert str(error.value).startswith(f"{type(solver).__name__}: expected finite weights and losses, got a loss of ")
    assert str(error.value).endswith(f"The run diverged; use a learning_rate below {solver.learning_rate!r}.")


def test_weights_that_are_not_finite_are_a_divergence_even_at_a_finite_loss(
    ids: Schema, model_of: ModelOf, rows: Batch
) -> None:
    with pytest.raises(FitError) as error:
        train(model_of(ids), rows, SquaredError(), Scripted([float("inf")]), epochs=1)
    assert str(error.value) == (
        "Scripted: expected finite weights and losses, got a loss of 0.25 in epoch 1. "
        "The run diverged; use a learning_rate below 0.5."
    )


def test_an_interrupt_keeps_the_model_and_is_reported(ids: Schema, model_of: ModelOf, rows: Batch) -> None:
    model = model_of(ids)
    with pytest.warns(RuntimeWarning) as caught:
        history = train(model, rows, SquaredError(), Interrupted([0.0, 0.0, 0.0]), epochs=9)
    assert str(caught[0].message) == (
        "train: interrupted after 2 epochs. The model is usable and holds what it learned until then."
    )
    assert (history.interrupted, history.best_epoch, len(history.epochs)) == (True, 2, 2)
    assert fitted(model, rows).isfinite().all()


def test_an_interrupt_of_a_watched_run_keeps_the_best_weights(ids: Schema, model_of: ModelOf, rows: Batch) -> None:
    class Script(Scripted):
        def epoch(self) -> float:
            try:
                return super().epoch()
            except StopIteration:
                raise KeyboardInterrupt from None

    model = model_of(ids)
    with pytest.warns(RuntimeWarning, match="interrupted after 3 epochs"):
        history = train(
            model, rows, SquaredError(), Script([2.0, 0.1, 3.0]), epochs=9, validation=Batch(rows.columns, rows.label)
        )
    assert history.best_epoch == 2
    assert bias_of(model) == pytest.approx(0.1)


def test_an_interrupt_of_the_second_training_keeps_the_first_one(ids: Schema, model_of: ModelOf, rows: Batch) -> None:
    class Script(Scripted):
        def epoch(self) -> float:
            if len(self.sizes) == 2:
                raise KeyboardInterrupt
            return super().epoch()

    model, stopping = model_of(ids), EarlyStopping(fraction=0.2, min_epochs=2, patience=1)
    with pytest.warns(RuntimeWarning, match="interrupted after 2 epochs"):
        history = train(model, rows, SquaredError(), Script([0.5, 2.0, 9.0]), epochs=3, early_stopping=stopping)
    assert (history.interrupted, history.best_epoch, history.refit) == (True, 1, [])
    assert bias_of(model) == 2.0


def test_a_bar_is_shown_when_asked_for_and_hidden_off_a_terminal(
    ids: Schema, model_of: ModelOf, rows: Batch, capsys: pytest.CaptureFixture[str]
) -> None:
    for progress in (None, False):
        train(model_of(ids), rows, SquaredError(), SequentialSGD(), epochs=2, progress=progress)
        assert capsys.readouterr() == ("", "")
    train(model_of(ids), rows, SquaredError(), SequentialSGD(), epochs=2, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2/2" in captured.err


def test_a_solver_that_cannot_train_the_model_says_why(ids: Schema) -> None:
    from types import SimpleNamespace

    schema = Schema(user=Categorical("user", table=Hashed(4)), item=ids.item)
    model = MatrixFactorization(SimpleNamespace(schema=schema, num_embeddings=lambda _: 9))
    with pytest.raises(FitError) as error:
        train(model, Batch({}), SquaredError(), SequentialSGD())
    assert str(error.value) == (
        "SequentialSGD: expected a model that it can train, but feature 'user' reads a HashedEmbedding, "
        "which holds no row per index. Train with another solver, or change the model."
    )


def test_no_rows_are_refused_and_so_is_no_epoch(ids: Schema, model_of: ModelOf, rows: Batch) -> None:
    with pytest.raises(EmptySourceError):
        train(model_of(ids), rows.select(torch.zeros(0, dtype=torch.int64)), SquaredError(), SequentialSGD())
    with pytest.raises(FitError) as error:
        train(model_of(ids), rows, SquaredError(), SequentialSGD(), epochs=0)
    assert str(error.value) == "train: expected epochs of at least 1, got 0. An epoch is a pass over the rows."


def test_a_history_is_a_frame_with_one_line_per_epoch() -> None:
    history = FitHistory([Epoch(1, 0.5, 0.9), Epoch(2, 0.4, 1.0)], best_epoch=1, refit=[Epoch(1, 0.6, None)])
    frame = history.to_frame()
    assert frame.columns.tolist() == ["stage", "epoch", "train_loss", "validation"]
    assert frame["stage"].tolist() == ["train", "train", "refit"]
    assert frame["validation"].isna().tolist() == [False, False, True]
    assert len(FitHistory().to_frame()) == 0
    assert best_of(history.epochs) == 1


def test_a_small_factorization_is_recovered(model_of: ModelOf) -> None:
    generator = torch.Generator().manual_seed(0)
    users, items = torch.randn(6, 2, generator=generator), torch.randn(7, 2, generator=generator)
    pairs = torch.cartesian_prod(torch.arange(6), torch.arange(7))
    label = (users[pairs[:, 0]] * items[pairs[:, 1]]).sum(1)
    schema = Schema(user=Categorical("user"), item=Categorical("item"), label="y", embedding_dim=2)
    batch = Batch({"user": pairs[:, 0] + 3, "item": pairs[:, 1] + 3}, label)
    model = model_of(schema)
    train(model, batch, SquaredError(), SequentialSGD(learning_rate=0.05, l2=0.0, bias_l2=0.0), epochs=400)
    torch.testing.assert_close(fitted(model, batch), label, atol=1e-2, rtol=0)
