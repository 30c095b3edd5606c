"""Small models and rows for the training tests."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position, Schema

SIZES = {"user": 9, "item": 10, "slot": 7, "age": 2, "country": 6, "tags": 8, "brand": 5}


@pytest.fixture
def ids() -> Schema:
    """A user and an item."""
    return Schema(user=Categorical("user"), item=Categorical("item"), label="rating", embedding_dim=4)


@pytest.fixture
def rich() -> Schema:
    """Every kind of feature on either side."""
    return Schema(
        user=Categorical("user"),
        item=Categorical("item"),
        position=Position("slot", max_position=3),
        user_features=[Numeric("age"), Categorical("country")],
        item_features=[MultiCategorical("tags"), Categorical("brand", l2_scale=2.0)],
        label="rating",
        embedding_dim=4,
    )


@pytest.fixture
def model_of() -> Callable[..., MatrixFactorization]:
    """Make a model whose rows are all non-zero but padding."""

    def make(schema: Schema, *, sparse: bool = False) -> MatrixFactorization:
        sizes = SimpleNamespace(schema=schema, num_embeddings=SIZES.__getitem__)
        model = MatrixFactorization(sizes, init_std=0.3, sparse=sparse)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
            for table in [*model.vectors.lookups, *model.biases.lookups]:
                if table.num_embeddings > 2:
                    table.storage()[0] = 0
        return model

    return make


@pytest.fixture
def rows_of() -> Callable[..., Batch]:
    """Make training rows with every feature."""

    def make(count: int, *, seed: int = 0, label: bool = True) -> Batch:
        generator = torch.Generator().manual_seed(seed)

        def draw(name: str, low: int = 3) -> torch.Tensor:
            return torch.randint(low, SIZES[name], (count,), generator=generator)

        columns = {name: draw(name) for name in ("user", "item")}
        columns |= {name: draw(name, low=1) for name in ("slot", "country", "brand")}
        missing = (torch.rand(count, generator=generator) < 0.3).float()
        columns["age"] = torch.stack([torch.randn(count, generator=generator) * (1 - missing), missing], 1)
        lengths = torch.randint(0, 4, (count,), generator=generator).tolist()
        tags = torch.randint(3, SIZES["tags"], (sum(lengths),), generator=generator).split(lengths)
        columns["tags"] = Jagged.from_lists([one.tolist() for one in tags])
        ratings = torch.randint(1, 6, (count,), generator=generator).float()
        return Batch(columns, ratings if label else None, limits=SIZES)

    return make
