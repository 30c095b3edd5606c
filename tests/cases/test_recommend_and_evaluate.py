"""Known faults of recommenders, kind "recommend and evaluate": none of them here."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import UndefinedMetricWarning

from recsys_emb.errors import ColumnError, KeyTypeError
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, Position, Schema
from recsys_emb.serving import scoring

ITEMS = ["a", "b", "c", "d", "e"]


def schema(label: str | None = "label", **more: object) -> Schema:
    return Schema(user=Categorical("user"), item=Categorical("item"), label=label, embedding_dim=3, **more)


def fitted(frame: pd.DataFrame, declared: Schema | None = None) -> Recommender:
    return Recommender(declared or schema(), epochs=3, progress=False).fit(frame)


def rows(pairs: str, label: object = 1.0) -> pd.DataFrame:
    """``"u1:abc u2:d"`` as one row per user and letter."""
    split = [(part.split(":")[0], item) for part in pairs.split() for item in part.split(":")[1]]
    return pd.DataFrame(split, columns=["user", "item"]).assign(label=label)


def with_item_biases(recommender: Recommender, biases: dict[str, float]) -> Recommender:
    """Let the items' biases alone decide."""
    model = recommender.model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        places = recommender.encoder.vocabularies["item"].encode(list(biases))
        model.biases.lookup("item").weight[places, 0] = torch.tensor(list(biases.values()))
        model.set_units(0.0, 1.0)
    return recommender


def random_rows(count: int = 300) -> pd.DataFrame:
    generator = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "user": [f"u{user}" for user in generator.integers(0, 20, count)],
            "item": [f"i{item}" for item in generator.integers(0, 9, count)],
            "slot": generator.integers(1, 4, count),
            "label": generator.normal(3, 1, count),
        }
    )


# --- RE-01 ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_catalogue() -> Recommender:
    """u1 has seen four of five items, u2 all, u3 none that is known."""
    return fitted(rows("u1:abcd u2:abcde", label=[3.0, 1, 4, 1, 5, 9, 2, 6, 5]))


@pytest.mark.parametrize("k", [3, 10])
def test_re_01_only_what_is_left_is_recommended(small_catalogue: Recommender, k: int) -> None:
    answer = small_catalogue.recommend(["u1", "u2", "u3"], k=k)
    got = {user: answer.loc[answer["user"] == user, "item"].tolist() for user in ("u1", "u2", "u3")}
    assert got["u1"] == ["e"]
    assert got["u2"] == []
    assert len(got["u3"]) == min(k, 5)
    assert set(got["u3"]) <= set(ITEMS)


@pytest.mark.parametrize("k", [3, 10])
def test_re_01_with_seen_items_everybody_gets_real_distinct_ones(small_catalogue: Recommender, k: int) -> None:
    answer = small_catalogue.recommend(["u1", "u2", "u3"], k=k, exclude_seen=False)
    for _, mine in answer.groupby("user"):
        assert len(mine) == mine["item"].nunique() == min(k, 5)
        assert set(mine["item"]) <= set(ITEMS)
        assert np.isfinite(mine["score"]).all()
        assert mine["score"].is_monotonic_decreasing


def test_re_01_a_short_candidate_list_with_a_repeat(small_catalogue: Recommender) -> None:
    answer = small_catalogue.recommend(["u1", "u3"], k=10, candidates=["e", "a", "e"])
    assert answer.loc[answer["user"] == "u1", "item"].tolist() == ["e"]
    assert sorted(answer.loc[answer["user"] == "u3", "item"]) == ["a", "e"]


def test_re_01_the_first_item_of_the_catalogue_is_not_lost(small_catalogue: Recommender) -> None:
    best = with_item_biases(fitted(rows("u1:abcde")), {"a": 1.0, "b": 0.5}).recommend(["x"], k=2)
    assert best["item"].tolist() == ["a", "b"]
    assert "a" in set(small_catalogue.recommend(["u3"], k=5)["item"])


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_re_01_users_asked_together_and_alone_get_the_same(small_catalogue: Recommender, exclude_seen: bool) -> None:
    together = small_catalogue.recommend(["u1", "u2", "u3"], k=3, exclude_seen=exclude_seen)
    alone = [small_catalogue.recommend([user], k=3, exclude_seen=exclude_seen) for user in ("u1", "u2", "u3")]
    joined = pd.concat([one for one in alone if len(one)], ignore_index=True)
    pd.testing.assert_frame_equal(together, joined)


# --- RE-03 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("three", [np.int32(3), np.int64(3), 3.0, np.float64(3.0)])
def test_re_03_a_number_is_the_same_user_in_every_container(three: object) -> None:
    frame = rows("1:ab 2:bc 3:cd 4:de 5:ea", label=[float(number) for number in range(10)])
    recommender = fitted(frame.assign(user=frame["user"].astype(int)))
    expected = recommender.recommend([3])
    assert recommender.recommend([three]).drop(columns="user").equals(expected.drop(columns="user"))


def test_re_03_text_against_numbers_is_an_error_that_says_so_and_a_stranger_is_flagged() -> None:
    frame = rows("1:ab 2:bc 3:cd 4:de 5:ea")
    recommender = fitted(frame.assign(user=frame["user"].astype(int)))
    for text in ("3", "99"):
        with pytest.raises(KeyTypeError, match="user"):
            recommender.recommend([text])
    assert not recommender.recommend([99])["known"].any()


def test_re_03_numbers_against_text_are_an_error_that_says_so() -> None:
    with pytest.raises(KeyTypeError, match="user"):
        fitted(rows("1:ab 2:bc")).recommend([1])


# --- RE-05 ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judge() -> Recommender:
    """u1 gets a and b first; u3 has seen everything and gets nothing."""
    train = rows("u1:c u2:c u3:abc", label=[0.0, 1, 0, 1, 1])
    return with_item_biases(fitted(train), {"a": 2.0, "b": 1.0, "c": 0.0})


def test_re_05_users_without_relevant_items_are_skipped_and_unserved_ones_count_as_zero(judge: Recommender) -> None:
    test = pd.concat([rows("u1:ab u3:a", label=1.0), rows("u2:a", label=0.0)])
    figures = judge.evaluate(test, k=10)
    assert figures["ndcg"] == figures["recall"] == figures["mrr"] == figures["hit_rate"] == 0.5
    assert (figures["n_evaluated"], figures["n_skipped"]) == (2, 1)


def test_re_05_a_perfect_ranking_is_one_however_few_are_relevant(judge: Recommender) -> None:
    figures = judge.evaluate(pd.concat([rows("u1:ab"), rows("u1:c", label=0.0)]), k=10)
    assert figures["ndcg"] == figures["recall"] == 1.0


def test_re_05_with_nobody_to_judge_the_answer_is_nan_with_a_warning(judge: Recommender) -> None:
    test = pd.concat([rows("u1:ab", label=0.0), rows("u2:a", label=0.0)])
    with pytest.warns(UndefinedMetricWarning):
        figures = judge.evaluate(test)
    assert np.isnan([figures[name] for name in ("recall", "ndcg", "mrr", "hit_rate")]).all()
    assert (figures["n_evaluated"], figures["n_skipped"]) == (0, 2)


# --- RE-06 ---------------------------------------------------------------------------------------------------------

SEVEN = pd.DataFrame({"user": ["u"] * 7, "item": list("abcdefg"), "label": [0, 1, 0, 1, 0, 0, 0]})


@pytest.fixture(scope="module")
def seven() -> Recommender:
    odds = [float(np.log(p / (1 - p))) for p in (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)]
    return with_item_biases(fitted(SEVEN), dict(zip("abcdefg", odds, strict=True)))


@pytest.mark.parametrize("block", [1, 2, 3, 7, 100])
def test_re_06_figures_are_means_over_rows_whatever_the_batches(
    seven: Recommender, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "BLOCK", block)
    figures = seven.evaluate(SEVEN, exclude_seen=False)
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3])
    losses = -np.log(np.where(SEVEN["label"] == 1, scores, 1 - scores))
    assert figures["auc"] == pytest.approx(0.7, abs=1e-9)
    assert figures["log_loss"] == pytest.approx(losses.mean(), abs=1e-6)
    assert figures["n_rows"] == 7


def test_re_06_figures_do_not_depend_on_the_order_of_the_rows(seven: Recommender) -> None:
    figures = [seven.evaluate(SEVEN.sample(frac=1, random_state=seed), exclude_seen=False) for seed in range(5)]
    for name in ("auc", "log_loss", "ndcg"):
        values = [one[name] for one in figures]
        assert max(values) - min(values) < 1e-9


def test_re_06_rmse_does_not_depend_on_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = fitted(random_rows())
    values = []
    for block in (1, 7, 100, 1000):
        monkeypatch.setattr(scoring, "BLOCK", block)
        values.append(recommender.evaluate(random_rows(), exclude_seen=False)["rmse"])
    assert max(values) - min(values) < 1e-9


def test_re_06_auc_of_one_class_is_nan_with_a_warning(seven: Recommender) -> None:
    with pytest.warns(UndefinedMetricWarning):
        assert np.isnan(seven.evaluate(SEVEN.assign(label=0))["auc"])


# --- RE-07 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.drop(columns="label"),
        lambda frame: frame.assign(label=np.nan),
        lambda frame: frame.assign(label="four"),
        lambda frame: frame.assign(label=-77.0),
        lambda frame: frame.assign(label=frame["label"].to_numpy()[::-1]),
    ],
    ids=["absent", "missing", "text", "never seen", "permuted"],
)
def test_re_07_the_label_plays_no_part_in_a_prediction(change) -> None:
    frame = random_rows()
    recommender = fitted(frame, schema(position=Position("slot", max_position=5)))
    changed = change(frame)
    columns = list(changed.columns)
    assert recommender.predict(changed).tolist() == recommender.predict(frame).tolist()
    assert list(changed.columns) == columns


def test_re_07_judging_without_the_label_names_it() -> None:
    with pytest.raises(ColumnError, match="'label'"):
        fitted(random_rows()).evaluate(random_rows().drop(columns="label"))


# --- RE-08 ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def steady() -> Recommender:
    declared = Schema(
        user=Categorical("user", unknown_dropout=0.3),
        item=Categorical("item", unknown_dropout=0.3),
        position=Position("slot", max_position=5),
        label="label",
        embedding_dim=3,
    )
    return fitted(random_rows(), declared)


def test_re_08_a_row_scores_alike_alone_in_company_reversed_and_again(steady: Recommender) -> None:
    frame = random_rows(100)
    scores = steady.predict(frame)
    alone = [steady.predict(frame[row : row + 1]).item() for row in range(len(frame))]
    assert alone == scores.tolist()
    assert steady.predict(frame[::-1]).tolist() == scores.tolist()[::-1]
    assert steady.predict(frame).tolist() == scores.tolist()


@pytest.mark.parametrize("block", [1, 7, 100])
def test_re_08_the_size_of_a_batch_changes_no_score(
    steady: Recommender, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = steady.predict(random_rows()).tolist()
    monkeypatch.setattr(scoring, "BLOCK", block)
    assert steady.predict(random_rows()).tolist() == expected


def test_re_08_a_model_left_in_training_mode_scores_alike_and_stays_in_it(steady: Recommender) -> None:
    expected = steady.predict(random_rows()).tolist()
    steady.model.train()
    assert steady.predict(random_rows()).tolist() == expected
    assert steady.model.training
    steady.model.eval()


def test_re_08_scoring_changes_no_weight_and_draws_nothing(steady: Recommender) -> None:
    before = {name: tensor.clone() for name, tensor in steady.model.state_dict().items()}
    states = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002 - the global state is the point
    steady.predict(random_rows())
    steady.recommend(["u1", "nobody"])
    steady.evaluate(random_rows(), exclude_seen=False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in steady.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]  # noqa: NPY002


def test_re_08_a_recommended_pair_scores_like_the_predicted_one(steady: Recommender) -> None:
    answer = steady.recommend(["u7", "u8"], k=9, exclude_seen=False)
    asked = answer[["user", "item"]].assign(slot=pd.array([None] * len(answer), dtype="Int64"))
    assert steady.predict(asked).tolist() == answer["score"].tolist()
    assert steady.recommend(["u7"], k=9, exclude_seen=False)["score"].tolist() == answer["score"].tolist()[:9]
