"""Ways to train tables of 26 features one step, each by the best means that its library has.

Each is made of the sizes of its tables and the width, holds tables filled with `START`, and takes indices int64
``(B, 26)`` in its own form to vectors ``(B, 26·D)``; backward and `after` complete the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from harness import needs
from torch import Tensor, nn

from recsys_emb.encoding.batch import Batch
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.fused_embedding import FusedEmbedding
from recsys_emb.lookup.row_rules import RowRule
from recsys_emb.schema import Categorical, Schema

START = 0.01
OptimizerOf = Callable[..., torch.optim.Optimizer]


class Fused:
    """`FusedEmbedding`: moves tables in backward."""

    def __init__(self, sizes: Sequence[int], D: int, *, update: RowRule, compiled: bool = True) -> None:
        self.embed = FusedEmbedding(_encoder(sizes, D), update=update, compiled=compiled)
        self.embed.stack.weights.fill_(START)
        self.vectors = self.embed.concatenated

    def prepared(self, indices: Tensor) -> Batch:
        """As the encoder gives them: a column per feature, checked."""
        return _batch(indices, self.embed)

    def after(self) -> None:
        """Nothing is left to do."""


class Ordinary:
    """`FeatureEmbedding` with sparse gradients and an optimizer of this library."""

    def __init__(self, sizes: Sequence[int], D: int, *, optimizer: OptimizerOf) -> None:
        self.embed = FeatureEmbedding(_encoder(sizes, D), sparse=True)
        for table in self.embed.parameters():
            nn.init.constant_(table, START)
        self.optimizer = optimizer(self.embed.parameters())

    def prepared(self, indices: Tensor) -> Batch:
        """As the encoder gives them."""
        return _batch(indices, self.embed)

    def vectors(self, batch: Batch) -> Tensor:
        """Look up and lay side by side."""
        return torch.cat(list(self.embed(batch).values()), 1)

    def after(self) -> None:
        """Step."""
        self.optimizer.step()
        self.optimizer.zero_grad()


class Tutorial:
    """An `nn.Embedding` per feature and an optimizer of torch."""

    def __init__(self, sizes: Sequence[int], D: int, *, optimizer: OptimizerOf, sparse: bool = False) -> None:
        self.tables = nn.ModuleList(nn.Embedding(size, D, sparse=sparse) for size in sizes)
        for table in self.tables.parameters():
            nn.init.constant_(table, START)
        self.optimizer = optimizer(self.tables.parameters())

    def prepared(self, indices: Tensor) -> list[Tensor]:
        """Give a column per feature."""
        return [column.contiguous() for column in indices.unbind(1)]

    def vectors(self, columns: list[Tensor]) -> Tensor:
        """Look up and lay side by side."""
        return torch.cat([table(column) for table, column in zip(self.tables, columns, strict=True)], 1)

    def after(self) -> None:
        """Step."""
        self.optimizer.step()
        self.optimizer.zero_grad()


class Fbgemm:
    """FBGEMM's table-batched embeddings on the CPU: one operator for all tables, which updates in backward."""

    def __init__(self, sizes: Sequence[int], D: int, *, rule: str, lr: float) -> None:
        ops = needs("fbgemm_gpu.split_table_batched_embeddings_ops_training")
        pooling = needs("fbgemm_gpu.split_table_batched_embeddings_ops_common").PoolingMode.SUM
        places = (ops.EmbeddingLocation.HOST, ops.ComputeDevice.CPU)
        self.vectors_of = ops.SplitTableBatchedEmbeddingBagsCodegen(
            [(size, D, *places) for size in sizes],
            optimizer=getattr(ops.OptimType, rule),
            learning_rate=lr,
            eps=1e-8,
            pooling_mode=pooling,
        )
        for weights in self.vectors_of.split_embedding_weights():
            weights.fill_(START)

    def prepared(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Feature after feature, bags of one."""
        return indices.t().reshape(-1).contiguous(), torch.arange(indices.numel() + 1)

    def vectors(self, bags: tuple[Tensor, Tensor]) -> Tensor:
        """Look up."""
        found: Tensor = self.vectors_of(*bags)
        return found

    def after(self) -> None:
        """Nothing is left to do."""


def _encoder(sizes: Sequence[int], D: int) -> Any:
    """Stand in for a fitted encoder."""
    features = [Categorical(f"feature {place}") for place in range(len(sizes))]
    rows = dict(zip((feature.name for feature in features), sizes, strict=True))
    return SimpleNamespace(schema=Schema(context_features=features, embedding_dim=D), num_embeddings=rows.get)


def _batch(indices: Tensor, embed: FeatureEmbedding) -> Batch:
    columns = [column.contiguous() for column in indices.unbind(1)]
    limits = {name: table.num_embeddings for name, table in zip(embed.names, embed.lookups, strict=True)}
    return Batch(dict(zip(embed.names, columns, strict=True)), limits=limits)
