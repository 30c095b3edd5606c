"""Approximate search: what it finds is right, and how much it finds is said."""

from __future__ import annotations

import copy
import importlib
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch

from recsys_emb.encoding.batch import Jagged
from recsys_emb.errors import DataError, MissingDependencyError
from recsys_emb.evaluation.catalogue import Catalogue
from recsys_emb.evaluation.ranking import rank
from recsys_emb.integrations.ann import ApproximateIndex, recall_of
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, Schema


def test_without_faiss_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingDependencyError) as caught:
        ApproximateIndex()
    assert str(caught.value) == (
        "ApproximateIndex: expected faiss to be installed, got none. Run: pip install 'recsys-emb[ann]'"
    )


def test_recall_is_the_share_of_the_exact_rows() -> None:
    exact = pd.DataFrame({"user": [1, 1, 2, 2, 1, 1], "item": [5, 6, 5, 7, 5, 6]})
    assert recall_of(exact, exact) == 1.0
    assert recall_of(exact.iloc[:3], exact) == 0.75
    assert recall_of(exact.assign(item=0), exact) == 0.0
    assert math.isnan(recall_of(exact, exact[:0]))


@pytest.fixture(scope="module")
def faiss() -> object:
    return pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def sides() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    users, items = (torch.randn(count, 8, generator=generator) for count in (60, 3000))
    lengths = torch.rand(3000, 1, generator=generator)
    return users, items * lengths, 0.3 * torch.randn(3000, generator=generator).double()


@pytest.fixture(scope="module")
def seen() -> Jagged:
    draw = np.random.default_rng(0)
    return Jagged.from_lists([np.unique(draw.integers(0, 3000, 40 * (user % 5))).tolist() for user in range(60)])


@pytest.mark.usefixtures("faiss")
class TestIndex:
    def test_it_finds_nearly_all_and_scores_exactly(self, sides, seen) -> None:
        users, items, biases = sides
        catalogue = Catalogue(items, biases)
        exact = rank(catalogue, users, 10, excluded=seen)
        found = rank(catalogue, users, 10, excluded=seen, finder=ApproximateIndex())
        pairs = zip(found.to_lists(), exact.to_lists(), strict=True)
        assert np.mean([len({*mine} & {*true}) / 10 for mine, true in pairs]) > 0.99
        assert found.lengths.tolist() == [10] * 60
        for mine, barred in zip(found.to_lists(), seen.to_lists(), strict=True):
            assert not {*mine} & {*barred}
        scores = (users[:, None].double() * items[found.items].double()).sum(-1) + biases[found.items]
        torch.testing.assert_close(found.scores, scores, rtol=1e-12, atol=1e-12)

    def test_a_user_gets_the_same_answer_in_any_company_and_from_any_copy(self, sides, seen) -> None:
        users, items, biases = sides
        catalogue, index = Catalogue(items, biases), ApproximateIndex(effort=16)
        together = rank(catalogue, users, 10, excluded=seen, finder=index)
        for user in range(0, 60, 7):
            alone = rank(
                catalogue,
                users[user : user + 1],
                10,
                excluded=seen.select(torch.tensor([user])),
                finder=pickle.loads(pickle.dumps(index)) if user == 7 else index,
            )
            assert torch.equal(alone.items[0], together.items[user])
            assert torch.equal(alone.scores[0], together.scores[user])

    def test_the_graph_is_built_once_for_a_catalogue_by_whatever_thread(self, sides) -> None:
        catalogues, index = [Catalogue(*sides[1:])], ApproximateIndex()
        with ThreadPoolExecutor(4) as pool:
            graphs = {id(one) for one in pool.map(lambda _: index._graph(catalogues[0]), range(8))}
        assert len(graphs) == 1
        assert len(index._graphs) == 1
        catalogues.clear()
        assert len(index._graphs) == 0

    @pytest.mark.parametrize("count", [1, 2, 12])
    def test_small_catalogues_are_answered_whole(self, count: int) -> None:
        items = torch.arange(count).float()[:, None]
        index = ApproximateIndex()
        barred = Jagged.from_lists([[0], []])
        found = rank(Catalogue(items, None), torch.ones(2, 1), 20, excluded=barred, finder=index)
        assert found.to_lists() == [list(range(count - 1, 0, -1)), list(range(count - 1, -1, -1))]

    def test_a_user_who_has_seen_nearly_all_gets_the_rest(self, sides) -> None:
        users, items, biases = sides
        catalogue = Catalogue(items, biases)
        most = Jagged.from_lists([list(range(5, 3000))])
        found = rank(catalogue, users[:1], 10, excluded=most, finder=ApproximateIndex())
        assert found.to_lists() == rank(catalogue, users[:1], 10, excluded=most).to_lists()

    @pytest.mark.parametrize("value", [0, 1, 2.0, True, "many"])
    def test_settings_are_whole_numbers(self, value: object) -> None:
        with pytest.raises(DataError) as caught:
            ApproximateIndex(neighbours=value)
        assert str(caught.value) == (
            f"ApproximateIndex: expected neighbours to be an integer of at least 2, got {value!r}. "
            "Give neighbours=2 or more."
        )

    def test_a_recommender_takes_it_and_it_follows_the_weights(self) -> None:
        draw = np.random.default_rng(1)
        frame = pd.DataFrame(
            {"user": draw.integers(0, 50, 3000), "item": draw.integers(0, 400, 3000), "y": draw.normal(size=3000)}
        )
        schema = Schema(user=Categorical("user"), item=Categorical("item"), label="y", embedding_dim=8)
        recommender = Recommender(schema, epochs=3, progress=False).fit(frame)
        index, users = ApproximateIndex(), list(range(50))
        for _ in range(2):
            found, exact = recommender.recommend(users, k=5, index=index), recommender.recommend(users, k=5)
            assert recall_of(found, exact) > 0.97
            both = found.merge(exact, on=["user", "item"])
            assert both["score_x"].tolist() == both["score_y"].tolist()
            assert recall_of(recommender.similar(users, index=index), recommender.similar(users)) > 0.97
            with torch.no_grad():
                recommender.model.vectors.lookup("item").weight.mul_(-3)
        few = recommender.recommend(users, candidates=[1, 2, 3], index=index)
        pd.testing.assert_frame_equal(few, recommender.recommend(users, candidates=[1, 2, 3]))
        assert repr(copy.deepcopy(index)) == "ApproximateIndex(neighbours=32, building_effort=100, effort=128)"
