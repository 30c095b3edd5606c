"""Baselines against answers worked out by hand or by a dense least-squares solution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge

from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.errors import ColumnError, DataError, EmptySourceError, FitError
from recsys_emb.models.baselines import BiasModel, OneHotLinear, Popularity


def batch_of(label: list[float] | None = None, weight: list[float] | None = None, **columns: list[int]) -> Batch:
    named: dict[str, Column] = {name: torch.tensor(column, dtype=torch.int64) for name, column in columns.items()}
    optional = [None if values is None else torch.tensor(values) for values in (label, weight)]
    return Batch(named, *optional)


def random_ratings(rows: int = 300, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    label = rng.integers(1, 6, rows).astype(np.float32)
    columns: dict[str, Column] = {
        "user": torch.from_numpy(rng.integers(3, 15, rows)),
        "item": torch.from_numpy(rng.integers(3, 10, rows)),
    }
    return Batch(columns, torch.from_numpy(label), torch.from_numpy(rng.random(rows).astype(np.float32)))


# --- popularity ------------------------------------------------------------------------------------------------


def test_popularity_counts_rows() -> None:
    popularity = Popularity("item").fit(batch_of(item=[4, 3, 4]))
    assert popularity.item_scores().tolist() == [0, 0, 0, 1, 2]


def test_popularity_adds_up_row_weights() -> None:
    popularity = Popularity("item").fit(batch_of(item=[4, 3, 4], weight=[0.5, 1.0, 2.0]))
    assert popularity.item_scores().tolist() == [0, 0, 0, 1, 2.5]


def test_popularity_scores_every_index_of_the_encoder_s_table() -> None:
    batch = Batch({"item": torch.tensor([3])}, limits={"item": 6})
    assert len(Popularity("item").fit(batch).item_scores()) == 6


def test_popularity_gives_each_row_its_item_s_count_and_items_beyond_the_fit_none() -> None:
    popularity = Popularity("item").fit(batch_of(item=[4, 3, 4]))
    assert popularity.predict(batch_of(item=[3, 4, 5, 900])).tolist() == [1, 2, 0, 0]
    assert popularity.predict(batch_of(item=[])).shape == (0,)


def test_changing_the_scores_does_not_change_the_model() -> None:
    popularity = Popularity("item").fit(batch_of(item=[3]))
    popularity.item_scores().zero_()
    assert popularity.item_scores().tolist() == [0, 0, 0, 1]


# --- biases ----------------------------------------------------------------------------------------------------


def test_one_bias_is_the_shrunk_mean_of_the_residuals() -> None:
    batch = batch_of([5.0, 5.0, 1.0, 1.0], user=[3, 3, 4, 4])
    model = BiasModel(("user",), l2=2.0).fit(batch)
    # mean 3; residuals +2, +2 over count 2 + l2 2.
    assert model.biases("user").tolist() == [0, 0, 0, 1, -1]
    assert model.predict(batch_of(user=[3, 4])).tolist() == [4, 2]


def test_many_sweeps_reach_the_least_squares_solution() -> None:
    batch = random_ratings()
    model = BiasModel(("user", "item"), l2=3.0, sweeps=200).fit(batch)
    assert batch.label is not None
    assert batch.weight is not None
    label, weight = batch.label.double(), batch.weight.double()
    mean = (label * weight).sum() / weight.sum()
    users, items = (torch.nn.functional.one_hot(batch.indices(name), 15).double() for name in ("user", "item"))
    columns = torch.cat([users, items], dim=1)
    normal = columns.T @ (weight[:, None] * columns) + 3.0 * torch.eye(30)
    solution = torch.linalg.solve(normal, columns.T @ (weight * (label - mean)))
    expected = (mean + columns @ solution).clamp(1, 5)
    torch.testing.assert_close(model.predict(batch), expected, rtol=0, atol=1e-9)


def test_default_sweeps_are_enough() -> None:
    batch = random_ratings()
    few, many = (BiasModel(("user", "item"), sweeps=sweeps).fit(batch).predict(batch) for sweeps in (10, 200))
    torch.testing.assert_close(few, many, rtol=0, atol=1e-3)


def test_without_l2_indices_that_never_occur_have_no_bias() -> None:
    model = BiasModel(("user",), l2=0.0).fit(batch_of([1.0, 3.0], user=[4, 6]))
    assert model.biases("user").tolist() == [0, 0, 0, 0, -1, 0, 1]


def test_a_stranger_is_predicted_the_mean() -> None:
    model = BiasModel(("user", "item")).fit(batch_of([1.0, 3.0], user=[3, 4], item=[3, 3]))
    assert model.predict(batch_of(user=[80], item=[90])).tolist() == [2.0]


def test_a_row_of_weight_zero_is_as_good_as_absent() -> None:
    weighed = BiasModel(("user",)).fit(batch_of([1.0, 4.0, 3.0], [1.0, 0.0, 1.0], user=[3, 4, 4]))
    without = BiasModel(("user",)).fit(batch_of([1.0, 3.0], user=[3, 4]))
    assert torch.equal(weighed.biases("user"), without.biases("user"))


def test_predictions_stay_within_the_labels_of_the_fit() -> None:
    rows = {"user": [3, 3, 4, 4, 5], "item": [3, 4, 3, 4, 3]}
    batch = batch_of([5.0, 5.0, 5.0, 1.0, 1.0], **rows)
    for model in (BiasModel(("user", "item"), l2=0.0), OneHotLinear(("user", "item"), Ridge(alpha=1e-6))):
        predicted = model.fit(batch).predict(batch)
        assert predicted.min() >= 1
        assert predicted.max() <= 5


# --- one-hot linear --------------------------------------------------------------------------------------------


def mixed_batch() -> Batch:
    tags = Jagged.from_lists([[3, 4], [], [4], [3, 0, 3], [4]])
    weighted = Jagged(torch.tensor([3, 4, 3]), torch.tensor([0, 2, 2, 3, 3, 3]), torch.tensor([1.0, 3.0, 1.0]))
    numeric = torch.tensor([[0.5, 0.0], [-1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.1, 0.0]])
    columns: dict[str, Column] = {
        "user": torch.tensor([3, 4, 3, 1, 2]),
        "tags": tags,
        "weighted": weighted,
        "age": numeric,
    }
    return Batch(
        columns, torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), limits={"user": 5, "tags": 5, "weighted": 5, "age": 2}
    )


def mixed_matrix() -> np.ndarray:
    """What `mixed_batch` is in one-hot columns: user 0-4, tags 0-4, weighted 0-4, age and its missing indicator."""
    matrix = np.zeros((5, 17))
    matrix[range(5), [3, 4, 3, 1, 2]] = 1
    matrix[[0, 0, 1, 2, 3, 4], [8, 9, 6, 9, 8, 9]] = [0.5, 0.5, 1, 1, 1, 1]
    matrix[[0, 0, 1, 2, 3, 4], [13, 14, 11, 13, 11, 11]] = [0.25, 0.75, 1, 1, 1, 1]
    matrix[:, 15] = [0.5, -1.0, 0.0, 2.0, 0.1]
    matrix[2, 16] = 1
    return matrix


def test_every_kind_of_feature_becomes_its_columns() -> None:
    batch = mixed_batch()
    expected = Ridge(alpha=0.1).fit(mixed_matrix(), batch.label).predict(mixed_matrix()).clip(1, 5)
    model = OneHotLinear(("user", "tags", "weighted", "age"), Ridge(alpha=0.1, tol=1e-10)).fit(batch)
    np.testing.assert_allclose(model.predict(batch).numpy(), expected, atol=1e-5)


def test_ratings_are_the_default() -> None:
    batch = random_ratings()
    by_default = OneHotLinear(("user", "item")).fit(batch).predict(batch)
    assert torch.equal(by_default, OneHotLinear(("user", "item"), Ridge()).fit(batch).predict(batch))


def test_row_weights_are_used() -> None:
    weighed = OneHotLinear(("user",)).fit(batch_of([1.0, 4.0, 3.0], [1.0, 0.0, 1.0], user=[3, 4, 4]))
    without = OneHotLinear(("user",)).fit(batch_of([1.0, 3.0], user=[3, 4]))
    rows = batch_of(user=[3, 4])
    torch.testing.assert_close(weighed.predict(rows), without.predict(rows), rtol=0, atol=1e-4)


def test_labels_of_0_and_1_give_probabilities() -> None:
    batch = batch_of([1.0, 1.0, 0.0, 0.0, 1.0], item=[3, 3, 4, 4, 4])
    model = OneHotLinear(("item",), LogisticRegression(C=1e6, tol=1e-8, max_iter=1000)).fit(batch)
    predicted = model.predict(batch_of(item=[3, 4]))
    assert predicted[0] > 0.99
    assert predicted[1].item() == pytest.approx(1 / 3, abs=1e-3)


def test_an_index_beyond_the_fit_adds_nothing() -> None:
    model = OneHotLinear(("item",)).fit(batch_of([1.0, 3.0], item=[3, 4]))
    assert model.predict(batch_of(item=[999])).item() == pytest.approx(2.0)


def test_no_rows_give_no_predictions() -> None:
    model = OneHotLinear(("item",)).fit(batch_of([1.0, 3.0], item=[3, 4]))
    assert model.predict(batch_of(item=[])).shape == (0,)


def test_one_row_is_enough_for_ratings() -> None:
    batch = batch_of([4.0], item=[3])
    assert OneHotLinear(("item",)).fit(batch).predict(batch).tolist() == [4.0]


def test_the_given_estimator_is_not_fitted() -> None:
    estimator = Ridge()
    OneHotLinear(("item",), estimator).fit(batch_of([1.0, 3.0], item=[3, 4]))
    assert not hasattr(estimator, "coef_")


@pytest.mark.parametrize(("labels", "got"), [([1.0, 1.0], "1.0"), ([0.0, 2.0], "0.0, 2.0")])
def test_a_classifier_wants_both_labels(labels: list[float], got: str) -> None:
    with pytest.raises(FitError) as caught:
        OneHotLinear(("item",), LogisticRegression()).fit(batch_of(labels, item=[3, 4]))
    assert str(caught.value) == f"OneHotLinear: expected labels 0 and 1, both, got {got}. Use Ridge() for ratings."


# --- what all refuse -------------------------------------------------------------------------------------------

Baseline = Popularity | BiasModel | OneHotLinear
EVERY = [lambda: Popularity("item"), lambda: BiasModel(("item",)), lambda: OneHotLinear(("item",))]


@pytest.mark.parametrize("make", EVERY)
def test_a_baseline_that_is_not_fitted_says_so(make: type[Baseline]) -> None:
    model = make()
    with pytest.raises(NotFittedError) as caught:
        model.predict(batch_of(item=[3]))
    name = type(model).__name__
    assert str(caught.value) == f"{name}: expected a fitted model, got one that is not. Call fit first."


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize(("rows", "got"), [(0, "none"), (2, "2 rows of weight 0")])
def test_nothing_to_learn_from_is_refused(make: type[Baseline], rows: int, got: str) -> None:
    model = make()
    with pytest.raises(EmptySourceError) as caught:
        model.fit(batch_of([1.0] * rows, [0.0] * rows, item=[3] * rows))
    name = type(model).__name__
    assert str(caught.value) == f"{name}: expected rows to fit, got {got}. Check the filter before it."


@pytest.mark.parametrize("make", EVERY[1:])
def test_a_batch_without_a_label_is_refused(make: type[Baseline]) -> None:
    model = make()
    with pytest.raises(DataError) as caught:
        model.fit(batch_of(item=[3]))
    assert str(caught.value) == (
        f"{type(model).__name__}: expected a batch with a label, got none. Declare Schema(label=...) and encode again."
    )


@pytest.mark.parametrize("make", EVERY)
def test_a_name_that_is_not_in_the_batch_is_refused(make: type[Baseline]) -> None:
    with pytest.raises(ColumnError) as caught:
        make().fit(batch_of([1.0, 2.0], items=[3, 4]))
    assert str(caught.value) == "Batch: expected one of 'items', got 'item'. Did you mean 'items'?"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: BiasModel(("user",), l2=-1.0),
            "BiasModel: expected l2 of at least 0, got -1.0. 0 leaves the biases unbound.",
        ),
        (
            lambda: BiasModel(("user",), sweeps=0),
            "BiasModel: expected sweeps to be an integer of at least 1, got 0. 10 rounds are enough.",
        ),
        (
            lambda: BiasModel(("user",), sweeps=1.5),
            "BiasModel: expected sweeps to be an integer of at least 1, got 1.5. 10 rounds are enough.",
        ),
        (lambda: OneHotLinear(()), "OneHotLinear: expected the names of features, got none. Name one at least."),
    ],
)
def test_settings_that_cannot_be_fitted_are_refused(make, text: str) -> None:
    with pytest.raises(FitError) as caught:
        make()
    assert str(caught.value) == text


def test_numbers_have_no_bias() -> None:
    batch = Batch({"age": torch.zeros(2, 2)}, label=torch.tensor([1.0, 2.0]))
    with pytest.raises(DataError) as caught:
        BiasModel(("age",)).fit(batch)
    assert str(caught.value) == (
        "BiasModel: expected a feature with one index per row, got numbers in 'age'. Learn them with OneHotLinear."
    )
