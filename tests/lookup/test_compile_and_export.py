"""`torch.compile` with its own code generator, and `torch.export`, of a `FeatureEmbedding`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.schema.columns import Categorical, MultiCategorical, Numeric
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import Hashed, OneHot, QuotientRemainder


@dataclass
class Sizes:
    schema: Schema

    def num_embeddings(self, name: str) -> int:
        return 2 if isinstance(self.schema[name], Numeric) else 12


SCHEMA = Schema(
    user=Categorical("user"),
    user_features=[Numeric("age")],
    context_features=[
        MultiCategorical("tags", pooling="mean"),
        Categorical("brand", table=OneHot()),
        Categorical("shop", table=Hashed(6)),
        Categorical("city", table=QuotientRemainder(3)),
    ],
    embedding_dim=4,
)


def batch_of(rows: int) -> Batch:
    rng = torch.Generator().manual_seed(rows)
    names = ("user", "brand", "shop", "city")
    columns = {name: torch.randint(0, 12, (rows,), generator=rng) for name in names}
    age = torch.stack([torch.randn(rows, generator=rng), torch.zeros(rows)], 1)
    tags = Jagged.from_lists([torch.randint(0, 12, (row % 4,), generator=rng).tolist() for row in range(rows)])
    return Batch({**columns, "age": age, "tags": tags}, limits=dict.fromkeys(SCHEMA.names, 12))


class Tensors(torch.nn.Module):
    """Tensors to vectors, the signature that an exported program can have."""

    def __init__(self, embed: FeatureEmbedding) -> None:
        super().__init__()
        self.embed = embed

    def forward(self, columns: dict[str, torch.Tensor | tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
        return self.embed(Batch({name: Jagged(*c) if isinstance(c, tuple) else c for name, c in columns.items()}))


def tensors_of(batch: Batch) -> dict[str, torch.Tensor | tuple[torch.Tensor, torch.Tensor]]:
    return {name: (c.values, c.offsets) if isinstance(c, Jagged) else c for name, c in batch.columns.items()}


@pytest.mark.filterwarnings("ignore")  # of the code generator's own making
@pytest.mark.skipif(shutil.which("g++") is None, reason="the code generator of torch.compile needs a C++ compiler")
def test_generated_code_and_eager_agree_forward_and_backward():
    embed = FeatureEmbedding(Sizes(SCHEMA), init_std=1.0)
    compiled = torch.compile(embed, fullgraph=True, dynamic=True)
    for rows in (5, 9):
        batch = batch_of(rows)
        expected, found = embed(batch), compiled(batch)
        assert all(bool(torch.isfinite(one).all()) for one in found.values())
        assert_close(found, expected)
        weights = list(embed.parameters())
        gradients = [
            torch.autograd.grad(sum(one.pow(2).sum() for one in vectors.values()), weights)
            for vectors in (expected, found)
        ]
        assert_close(gradients[1], gradients[0])
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore")  # of torch.export's own making
def test_an_exported_program_looks_up_any_number_of_rows():
    from torch.fx.experimental import _config

    embed = FeatureEmbedding(Sizes(SCHEMA), init_std=1.0)
    example = tensors_of(batch_of(6))
    dynamic = {0: torch.export.Dim.DYNAMIC}
    shapes = {name: (dynamic, dynamic) if isinstance(column, tuple) else dynamic for name, column in example.items()}
    # Without it an exported program refuses single rows.
    with _config.patch(backed_size_oblivious=True):
        program = torch.export.export(Tensors(embed), (example,), dynamic_shapes=(shapes,), strict=False)
        for rows in (1, 2, 17):
            batch = batch_of(rows)
            assert_close(program.module()(tensors_of(batch)), embed(batch))
