"""Training that goes on knows what came before."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.entities import EntityTable
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Schema
from recsys_emb.training.past import Experience, Past
from recsys_emb.training.rows import with_pooling_weights
from recsys_emb.training.sampling import Interactions

PAIR = Schema(
    user=Categorical("user"), item=Categorical("item"), item_features=[MultiCategorical("tags")], embedding_dim=2
)
Pairs = list[tuple[int, int]]


def frame(pairs: Pairs) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["user", "item"]).assign(tags=lambda rows: [[str(i)] for i in rows["item"]])


def both(earlier: Pairs, later: Pairs) -> tuple[FeatureEncoder, Past, Interactions]:
    encoder = FeatureEncoder(PAIR).fit(frame(earlier)).partial_fit(frame(later))
    before, now = (encoder.transform(frame(pairs)) for pairs in (earlier, later))
    catalogue = EntityTable.from_batch(before, "item", ["item", "tags"])
    past = Past(before.indices("user"), before.indices("item"), catalogue).pooled(PAIR)
    return encoder, past, Interactions.from_batch(with_pooling_weights(now, PAIR), PAIR, past)


pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(pairs, pairs)
def test_negatives_are_all_items_so_far_but_those_that_a_user_ever_had(earlier: Pairs, later: Pairs) -> None:
    encoder, _, interactions = both(earlier, later)
    items = encoder.vocabularies["item"].decode(interactions.catalogue.indices)
    assert sorted(items) == sorted({item for _, item in (*earlier, *later)})
    for row, (user, item) in enumerate(later):
        number = interactions.users[row]
        start, end = interactions.seen.offsets[number], interactions.seen.offsets[number + 1]
        seen = {items[one] for one in interactions.seen.items[start:end]}
        assert seen == {other for one, other in (*earlier, *later) if one == user}
        assert items[interactions.items[row]] == item


def test_items_of_the_past_come_with_their_features_pooled() -> None:
    encoder, _, interactions = both([(0, 1), (0, 2)], [(1, 3)])
    tags = interactions.catalogue.features.lists("tags")
    assert encoder.vocabularies["tags"].decode(tags.values) == ["1", "2", "3"]


def test_experienced_rows_go_the_share_that_is_new() -> None:
    schema = Schema(user=Categorical("user"), item=Categorical("item"), context_features=[Numeric("age")])
    source = pd.DataFrame({"user": [1, 1, 2], "item": [5, 6, 6], "age": [1.0, 2.0, None]})
    encoder = FeatureEncoder(schema).fit(source)
    model, batch = MatrixFactorization(encoder), encoder.transform(source)
    nothing = torch.empty(0, dtype=torch.int64)
    items = EntityTable.from_batch(batch, "item", ["item"])
    counts = {"user": torch.tensor([0, 0, 0, 2, 0]), "age": torch.tensor([6, 1])}
    past = Past(nothing, nothing, items, counts)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with Experience(model, batch, past, draws=False).held(), torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    moved = {name: tensor - before[name] for name, tensor in model.state_dict().items() if "tables" in name}
    torch.testing.assert_close(moved["vectors.tables.0.weight"][:, 0], torch.tensor([1.0, 1, 1, 2 / 4, 1]))
    torch.testing.assert_close(moved["biases.tables.1.weight"][:, 0], torch.tensor([2 / 8, 1 / 2]))
    torch.testing.assert_close(moved["vectors.tables.2.weight"], torch.ones(5, 64))


@pytest.mark.parametrize("draws", [False, True])
def test_an_item_without_new_rows_stays_where_it_may_be_drawn(draws: bool) -> None:
    encoder, past, _ = both([(0, 1), (0, 2)], [(1, 2)])
    model, batch = MatrixFactorization(encoder), encoder.transform(frame([(1, 2)]))
    learned = torch.full((encoder.num_embeddings("item"),), 1.0)
    past = Past(past.users, past.items, past.catalogue, {"item": learned})
    row = int(encoder.vocabularies["item"].encode([1]))
    before = model.vectors.lookup("item").weight[row].clone()
    with Experience(model, batch, past, draws=draws).held(), torch.no_grad():
        model.vectors.lookup("item").weight.add_(1.0)
    assert torch.equal(model.vectors.lookup("item").weight[row], before) == draws
