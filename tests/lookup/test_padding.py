"""A row of padding reads zero and weighs nothing, whatever fills the tables and whatever trains them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.schema.columns import MultiCategorical
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import Hashed, Lookup, OneHot, QuotientRemainder
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
from recsys_emb.vocabulary.reserved import PADDING_INDEX

TABLES = [Lookup(), OneHot(), OneHot(dense_limit=0), Hashed(6), QuotientRemainder(3)]
PADDED = Batch({"tags": Jagged.from_lists([[3, 0, 5, 0], [0, 0], [0, 11]])})
BARE = Batch({"tags": Jagged.from_lists([[3, 5], [], [11]])})

OPTIMIZERS = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=0.1),
    "Adam": lambda weights: torch.optim.Adam(weights, lr=0.1, weight_decay=0.1),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=0.1, weight_decay=0.1),
    "Adagrad": lambda weights: torch.optim.Adagrad(weights, lr=0.1, weight_decay=0.1),
    "LazyAdam": lambda weights: LazyAdam(weights, lr=0.1),
    "RowWiseAdagrad": lambda weights: RowWiseAdagrad(weights, lr=0.1),
}


@dataclass
class Sizes:
    schema: Schema

    def num_embeddings(self, name: str) -> int:
        return 12


def filled(table: object, pooling: str, initialiser: object = nn.init.ones_) -> FeatureEmbedding:
    """A feature of tags whose parameters are all filled, rows of padding too."""
    schema = Schema(context_features=[MultiCategorical("tags", table=table, pooling=pooling)], embedding_dim=4)
    embed = FeatureEmbedding(Sizes(schema))
    for parameter in embed.parameters():
        initialiser(parameter)
    return embed


def check(embed: FeatureEmbedding) -> None:
    assert torch.equal(embed(PADDED)["tags"], embed(BARE)["tags"])
    assert not bool(embed.lookup("tags")(torch.tensor([PADDING_INDEX])).any())


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("pooling", ["mean", "sum", "sqrtn", "max", "none"])
@pytest.mark.parametrize("initialiser", [nn.init.ones_, nn.init.xavier_uniform_, nn.init.orthogonal_])
def test_padding_changes_no_vector_under_any_initialiser_and_pooling(table, pooling, initialiser):
    embed = filled(table, pooling, initialiser)
    if pooling != "none":
        check(embed)
        return
    vectors, mask = embed(PADDED)["tags"], embed.mask("tags", PADDED)
    assert torch.equal(vectors[mask], embed(BARE)["tags"][embed.mask("tags", BARE)])
    assert not bool(vectors[~mask].any())


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("table", TABLES)
def test_padding_changes_no_vector_under_any_optimizer_and_decay(table, name):
    embed = filled(table, "mean", nn.init.xavier_uniform_)
    before = embed(BARE)["tags"].detach()
    optimizer = OPTIMIZERS[name](list(embed.parameters()))
    for _ in range(3):
        optimizer.zero_grad()
        embed(PADDED)["tags"].square().sum().backward()
        optimizer.step()
    check(embed)
    assert not torch.equal(embed(BARE)["tags"], before)
