"""What is kept between requests never outlives the weights that it was made of."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from recsys_emb.errors import FitError
from recsys_emb.evaluation import catalogue as catalogues
from recsys_emb.evaluation.catalogue import Catalogue
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position, Schema
from recsys_emb.serving.scoring import at_rest
from recsys_emb.serving.weights import Kept, check_finite
from recsys_emb.training.fitting import train
from recsys_emb.training.losses import SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.optim import LazyAdam
from recsys_emb.training.sequential import SequentialSGD

SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    position=Position("slot", max_position=5, serve_at=1),
    user_features=[Numeric("age")],
    item_features=[MultiCategorical("tags"), Categorical("brand")],
    label="stars",
    embedding_dim=4,
)
USERS = [f"u{number}" for number in range(12)]


def rows(count: int = 200, items: int = 30) -> pd.DataFrame:
    draw = np.random.default_rng(5)
    item = draw.integers(0, items, count)
    return pd.DataFrame(
        {
            "user": [f"u{number}" for number in draw.integers(0, 12, count)],
            "item": item,
            "slot": draw.integers(1, 4, count),
            "age": draw.integers(20, 60, count),
            "tags": [["red", "blue", "old"][: one % 4] for one in item],
            "brand": [f"b{one % 5}" for one in item],
            "stars": draw.integers(1, 6, count),
        }
    )


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return Recommender(SCHEMA, epochs=3, progress=False).fit(rows())


@pytest.fixture
def recommender(fitted: Recommender) -> Recommender:
    """A copy with everything laid out."""
    copied = copy.deepcopy(fitted)
    answers(copied)
    return copied


def answers(recommender: Recommender) -> list[pd.DataFrame]:
    strangers = rows(6).assign(user=["x", "y", "x", "u1", "z", "z"])
    return [
        recommender.recommend(USERS, k=7),
        recommender.recommend(USERS, k=7, exclude_seen=False, candidates=[3, 99, 4, 5]),
        recommender.recommend(history=strangers, k=5),
        recommender.similar(list(range(30)), k=4),
    ]


def assert_same(first: list[pd.DataFrame], second: list[pd.DataFrame]) -> None:
    for mine, other in zip(first, second, strict=True):
        pd.testing.assert_frame_equal(mine, other, check_exact=True)


# --- changes of the weights --------------------------------------------------------------------------------------


def item_table(model: nn.Module) -> nn.Module:
    return model.vectors.lookup("item")


@torch.no_grad()
def flipped(model: nn.Module) -> None:
    item_table(model).weight.neg_()


def swapped_memory(model: nn.Module) -> None:
    item_table(model).weight.data = item_table(model).weight.detach().flip(0).clone()


def swapped_parameter(model: nn.Module) -> None:
    item_table(model).weight = nn.Parameter(item_table(model).weight.detach().flip(0).clone())


def loaded(model: nn.Module) -> None:
    model.load_state_dict({name: one.flip(0) if one.ndim == 2 else one for name, one in model.state_dict().items()})


def other_units(model: nn.Module) -> None:
    model.set_units(1.0, 2.0)


def behind_torch(model: nn.Module) -> None:
    item_table(model).weight.data.mul_(-2.0)


def trained(solver: object) -> Callable[[nn.Module], None]:
    def change(model: nn.Module) -> None:
        batch = model.rows
        train(model, batch, SquaredError(), solver, epochs=2, fresh=False, progress=False)

    return change


WAYS = {
    "in place": flipped,
    "other memory": swapped_memory,
    "another parameter": swapped_parameter,
    "a state": loaded,
    "other units": other_units,
    "the whole table behind torch": behind_torch,
    "the sequential solver": trained(SequentialSGD(learning_rate=0.1)),
    "row-sparse steps": trained(Minibatch(optimizer=LazyAdam, batch_size=16)),
    "a torch optimizer": trained(Minibatch(optimizer=torch.optim.SGD, batch_size=16)),
}


@pytest.mark.parametrize("way", WAYS)
def test_answers_follow_the_weights_however_they_change(recommender: Recommender, way: str) -> None:
    before = answers(recommender)
    recommender.model.rows = recommender.encoder.transform(rows())
    WAYS[way](recommender.model)
    now = answers(recommender)
    assert_same(now, answers(copy.deepcopy(recommender)))
    assert not now[0].equals(before[0])


def test_a_solver_that_goes_on_between_requests_is_noticed(recommender: Recommender) -> None:
    model, batch = recommender.model, recommender.encoder.transform(rows())
    run = SequentialSGD(learning_rate=0.1).start(model, batch, SquaredError(), seed=0)
    for _ in range(3):
        run.epoch()
        assert_same(answers(recommender), answers(copy.deepcopy(recommender)))


def test_growth_and_loading_begin_anew(recommender: Recommender, tmp_path: Path) -> None:
    recommender.partial_fit(rows(60, items=40).assign(user="new"))
    assert_same(answers(recommender), answers(copy.deepcopy(recommender)))
    recommender.save(tmp_path / "kept")
    assert_same(answers(Recommender.load(tmp_path / "kept")), answers(recommender))


@pytest.mark.parametrize("feature", ["user", "item"])
def test_weights_that_were_ruined_after_a_request_are_refused(recommender: Recommender, feature: str) -> None:
    with torch.no_grad():
        recommender.model.vectors.lookup(feature).weight[4, 2] = torch.nan
    name = f"vectors.tables.{0 if feature == 'user' else 2}.weight"
    with pytest.raises(FitError) as refused:
        recommender.recommend(["u1"])
    assert str(refused.value) == (
        f"Recommender: expected finite weights, got 1 number not finite in {name!r}. "
        "Fit again with a lower learning rate."
    )


# --- what is kept --------------------------------------------------------------------------------------------------


def test_requests_share_one_catalogue(recommender: Recommender) -> None:
    first = recommender._fitted.catalogue
    answers(recommender)
    assert recommender._fitted.catalogue is first
    assert copy.deepcopy(recommender)._fitted.catalogue is not first


def test_a_copy_and_a_pickle_keep_nothing_and_answer_alike(recommender: Recommender) -> None:
    for made in (copy.deepcopy(recommender), pickle.loads(pickle.dumps(recommender))):
        assert made._fitted._catalogue._kept is None
        assert_same(answers(made), answers(recommender))


def test_of_many_threads_one_makes_it() -> None:
    model, made, kept = nn.Linear(2, 2), [], Kept[object]()
    gate = threading.Barrier(8)

    def make() -> object:
        made.append(object())
        return made[-1]

    def ask() -> object:
        gate.wait()
        return kept.of(model, make)

    with ThreadPoolExecutor(8) as pool:
        found = {id(future.result()) for future in [pool.submit(ask) for _ in range(8)]}
    assert found == {id(made[0])}
    assert len(made) == 1


def test_a_stamp_is_one_object_while_the_weights_stay() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    first = check_finite(model)
    assert check_finite(model) is first
    model[1].running_mean.add_(1.0)
    assert check_finite(model) is not first


def test_eight_threads_get_the_answers_of_one(fitted: Recommender) -> None:
    expected = {user: fitted.recommend([user], k=5) for user in USERS}
    pairs = rows().to_dict("records")
    scores = fitted.predict(rows()).tolist()
    fresh = copy.deepcopy(fitted)
    gate = threading.Barrier(8)

    def ask(seed: int) -> bool:
        gate.wait()
        draw = np.random.default_rng(seed)
        for number in draw.integers(0, len(pairs), 25).tolist():
            user = USERS[number % 12]
            pd.testing.assert_frame_equal(fresh.recommend([user], k=5), expected[user], check_exact=True)
            assert fresh.predict({name: [value] for name, value in pairs[number].items()})[0] == scores[number]
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


# --- rest ----------------------------------------------------------------------------------------------------------


def test_rest_gives_every_module_its_own_mode_back() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Linear(2, 2))
    model.train()
    model[1].eval()
    with at_rest(model), at_rest(model):
        assert not any(one.training for one in model.modules())
    assert [one.training for one in model.modules()] == [True, True, False]


def test_rest_lasts_until_the_last_thread_is_done() -> None:
    model, inside, leave = nn.Dropout(), threading.Event(), threading.Event()

    def rest() -> None:
        with at_rest(model):
            inside.set()
            leave.wait()

    thread = threading.Thread(target=rest)
    thread.start()
    inside.wait()
    with at_rest(model):
        pass
    assert not model.training
    leave.set()
    thread.join()
    assert model.training


# --- single rows ---------------------------------------------------------------------------------------------------

ODD = [
    {},
    {"user": None},
    {"user": "nobody"},
    {"item": 29.0},
    {"item": 10**6},
    {"slot": None},
    {"slot": 99},
    {"age": None},
    {"age": float("nan")},
    {"tags": []},
    {"tags": None},
    {"tags": ["blue", "nowhere", "blue"]},
]


@pytest.mark.parametrize("said", ODD, ids=str)
def test_a_row_alone_is_read_as_in_a_table(fitted: Recommender, said: dict[str, object]) -> None:
    plain = {"user": "u1", "item": 3, "slot": 2, "age": 30, "tags": ["red"], "brand": "b1"}
    alone = fitted.predict({name: [value] for name, value in {**plain, **said}.items()})
    both = {name: [plain[name], {**plain, **said}[name]] for name in plain}
    assert alone.tolist() == fitted.predict(both).tolist()[1:]
    pd.testing.assert_index_equal(alone.index, pd.RangeIndex(1))


# --- a catalogue of some items ---------------------------------------------------------------------------------------


def test_a_catalogue_of_numbered_vectors_is_that_of_candidates() -> None:
    vectors, biases = torch.randn(9, 3), torch.randn(9).double()
    chosen = torch.tensor([7, 1, 4])
    whole = Catalogue(vectors, biases, candidates=chosen)
    some = Catalogue(vectors[chosen], biases[chosen], numbers=chosen, num_items=9)
    for name in ("items", "columns", "vectors", "biases"):
        assert torch.equal(getattr(whole, name), getattr(some, name))
    assert torch.equal(some.vectors_of(torch.tensor([4, 7])), vectors[[4, 7]])


@torch.no_grad()
def test_biases_that_were_written_behind_torch_are_noticed(recommender: Recommender) -> None:
    before = recommender.recommend(USERS, k=3)
    recommender.model.biases.lookup("item").weight.data.mul_(-50)
    now = recommender.recommend(USERS, k=3)
    assert not now.equals(before)
    pd.testing.assert_frame_equal(now, copy.deepcopy(recommender).recommend(USERS, k=3), check_exact=True)


# --- everybody at once -----------------------------------------------------------------------------------------------


def test_everybody_at_once_takes_no_memory_for_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    count, items, width = 3000, 2000, 16
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"user": draw.permutation(count), "item": np.arange(count) % items})
    schema = Schema(user=Categorical("user"), item=Categorical("item"), embedding_dim=width)
    recommender = Recommender(schema, epochs=1, progress=False).fit(frame)
    for module in ("scoring", "recommending"):
        monkeypatch.setattr(f"recsys_emb.serving.{module}.BLOCK", 500)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        answer = recommender.recommend(list(range(count)), k=20)
    assert len(answer) == 20 * count
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    # The pairs of users and items, and the vectors of all that is recommended, would take more each.
    assert largest <= 4 * catalogues.CPU_TILE < min(4 * count * items, 4 * 20 * count * width)
