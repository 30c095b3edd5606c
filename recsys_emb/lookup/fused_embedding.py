"""`FusedEmbedding`: a `FeatureEmbedding` whose tables learn in backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Jagged, check_batch
from recsys_emb.errors import SchemaError
from recsys_emb.lookup.base import check_indices
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.fused_lookup import looked_up
from recsys_emb.lookup.fused_table import FusedTable
from recsys_emb.lookup.growth import Optimizers
from recsys_emb.lookup.new_rows import ByFeature, DrawnRows
from recsys_emb.lookup.pooling import filled_lists, pool, pooled_weights
from recsys_emb.lookup.row_rules import RowRule
from recsys_emb.lookup.row_stack import RowStack
from recsys_emb.lookup.tables import FeatureTable, TableSizes
from recsys_emb.lookup.widths import Width
from recsys_emb.schema.columns import MultiCategorical

if TYPE_CHECKING:
    import pandas as pd


class FusedEmbedding(FeatureEmbedding):
    """A `FeatureEmbedding` whose tables learn in backward: no gradient of a table, no optimizer, no step.

    Tables of kind `Lookup` lie in one matrix. All features are read in one go, and ``loss.backward()`` moves the rows
    that were read, in place, by ``update``: what a step costs follows the batch, not the size of the tables. On the
    CPU this is compiled code that uses as many threads as torch; elsewhere it is plain torch. Values, names and the
    state dict of the tables are those of a `FeatureEmbedding`.

    Parameters
    ----------
    encoder, embedding_dim, features, init_std, seed
        As for `FeatureEmbedding`; tables begin with the same numbers.
    update
        How rows move: `SGDUpdate`, `AdagradUpdate`, `RowWiseAdagradUpdate` or `LazyAdamUpdate`.
    compiled
        False takes plain torch on the CPU too.

    Attributes
    ----------
    stack : RowStack
        The tables' memory and the state of ``update``.

    Notes
    -----
    - **Each backward is a step.** Look up once and go backward once, by `forward`, by `concatenated`, or table by
      table; a second backward through a table since it was looked up is refused. There is no gradient to clip, to
      accumulate, to scale, to average over processes or to differentiate again: for these use `FeatureEmbedding` with
      `RowWiseAdagrad` or `LazyAdam`, which does the same arithmetic in separate steps.
    - To export a model, load its state dict into a `FeatureEmbedding`.
    - Tables are not among ``parameters()``, so that no optimizer can move them a second time. What is not of kind
      `Lookup` (numbers, one-hot, hashed, quotient–remainder) is there, and needs an optimizer.
    - ``eval()``, ``torch.no_grad()`` and ``requires_grad_(False)`` of this module or of one of its tables read without
      learning. What freezes parameters from further up does not reach the tables.
    - A state dict holds ``tables.*`` as that of a `FeatureEmbedding`, and the state of ``update`` as ``stack.*``. Each
      of the two classes loads what the other one saved: a `FeatureEmbedding` passes over ``stack.*``, and where there
      is none, ``update`` begins anew.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from recsys_emb.lookup.row_rules import SGDUpdate
    >>> from recsys_emb.schema.columns import Categorical
    >>> from recsys_emb.schema.schema import Schema
    >>> schema = Schema(user=Categorical("user_id"), item=Categorical("item_id"), embedding_dim=2)
    >>> encoder = SimpleNamespace(schema=schema, num_embeddings=lambda name: 10)
    >>> embed = FusedEmbedding(encoder, update=SGDUpdate(lr=1.0), init_std=0.0)
    >>> batch = Batch({"user_id": torch.tensor([3, 4, 3]), "item_id": torch.tensor([5, 6, 7])})
    >>> embed(batch)["user_id"].sum().backward()
    >>> embed(batch)["user_id"]
    tensor([[-2., -2.],
            [-1., -1.],
            [-2., -2.]], grad_fn=...)
    """

    def __init__(
        self,
        encoder: TableSizes,
        *,
        update: RowRule,
        embedding_dim: int | None = None,
        features: Sequence[str] | None = None,
        init_std: float = 0.01,
        seed: int = 0,
        compiled: bool = True,
    ) -> None:
        super().__init__(encoder, embedding_dim=embedding_dim, features=features, init_std=init_std, seed=seed)
        found = [
            (parent, name, table)
            for parent in self.tables.modules()
            for name, table in parent.named_children()
            if isinstance(table, CategoryEmbedding) and table.max_norm is None
        ]
        sizes = [table.num_embeddings for _, _, table in found]
        self.stack = RowStack(sizes, self.embedding_dim, update, compiled=compiled)
        for place, (parent, name, table) in enumerate(found):
            setattr(parent, name, FusedTable(table, self.stack, place))
        self._fused = self._fused_tables()

    @property
    def update(self) -> RowRule:
        """How rows move."""
        return self.stack.rule

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Look up all features: ``{name: (B, D)}``; with ``pooling="none"``, ``(B, L, D)`` and `mask`."""
        check_batch(batch, type(self).__name__)
        columns = {name: self._column(name, batch, table) for name, table in self._fused.items()}
        found = dict(zip(columns, self._read(list(columns.values())), strict=True))
        vectors = {}
        for name in self.names:
            if name not in found:
                vectors[name] = self.vectors_of(name, batch)
            elif isinstance(lists := columns[name], Jagged):
                vectors[name] = pool(found[name], lists, cast("MultiCategorical", self._feature(name)).pooling)
            else:
                vectors[name] = found[name]
        return vectors

    def concatenated(self, batch: Batch) -> Tensor:
        """Look up all features, one beside another in the order of `names`: ``(B, F·D)``.

        The same as ``torch.cat`` of what `forward` gives, without that copy where each feature has one index per row.

        Raises
        ------
        SchemaError
            When a list has ``pooling="none"``, which is not one vector.
        """
        several = {name: one for name, one in self._features.items() if isinstance(one, MultiCategorical)}
        for name, feature in several.items():
            if feature.pooling == "none":
                raise SchemaError(
                    f"FusedEmbedding.concatenated: expected one vector per row, got pooling='none' of {name!r}. "
                    "Pool it by 'mean', 'sum', 'sqrtn' or 'max'."
                )
        learning = {table.learns for table in self._fused.values()}
        if several or len(self._fused) < len(self.names) or len(learning) != 1:
            return torch.cat(list(self(batch).values()), 1)
        indices = [_indices(self._column(name, batch, table)) for name, table in self._fused.items()]
        places, learn = [table.place for table in self._fused.values()], self.training and True in learning
        return cast("Tensor", looked_up(self.stack, places, indices, learn=learn, together=True)).flatten(1)

    def replace(self, name: str, table: FeatureTable) -> None:
        """Let the feature called ``name`` read ``table``, which learns by an optimizer if at all."""
        super().replace(name, table)
        self._fused = self._fused_tables()

    def requires_grad_(self, requires_grad: bool = True) -> FusedEmbedding:
        """Let all tables learn, or freeze them."""
        for table in self.modules():
            if isinstance(table, FusedTable):
                table.requires_grad_(requires_grad)
        return super().requires_grad_(requires_grad)

    def grow(self, encoder: TableSizes, optimizer: Optimizers = None, *, new_rows: ByFeature = DrawnRows()) -> None:
        """Follow an encoder that ``partial_fit`` extended; see `FeatureEmbedding.grow`. State grows along."""
        if encoder.schema == self.schema:
            # All tables at once: each alone would move the whole stack.
            sizes = list(self.stack.sizes)
            for name in self.names:
                table = getattr(self.lookup(name), "items", self.lookup(name))
                if isinstance(table, FusedTable):
                    sizes[table.place] = encoder.num_embeddings(name)
            self.stack.reserve(sizes)
        super().grow(encoder, optimizer, new_rows=new_rows)

    @classmethod
    def plan(
        cls,
        encoder: TableSizes,
        *,
        embedding_dim: Width | None = None,
        features: Sequence[str] | None = None,
        batch_size: int = 8192,
    ) -> pd.DataFrame:
        """Account for the tables before anything is allocated; see `FeatureEmbedding.plan`."""
        return FeatureEmbedding.plan(encoder, embedding_dim=embedding_dim, features=features, batch_size=batch_size)

    def _column(self, name: str, batch: Batch, table: FusedTable) -> Tensor | Jagged:
        """Give the checked indices of a feature; lists with at least one entry that counts."""
        feature = self._feature(name)
        column = batch.lists(name) if isinstance(feature, MultiCategorical) else batch.indices(name)
        if batch.limits.get(name, table.num_embeddings + 1) > table.num_embeddings:
            check_indices(column.values if isinstance(column, Jagged) else column, table.num_embeddings, name)
        if not isinstance(column, Jagged):
            return column
        pooling = cast("MultiCategorical", feature).pooling
        return pooled_weights(column, pooling) if pooling == "none" else filled_lists(column, pooling)

    def _read(self, columns: Sequence[Tensor | Jagged]) -> list[Tensor]:
        """Read the fused tables: all that learn at once, and all that are frozen."""
        tables = list(self._fused.values())
        found: dict[int, Tensor] = {}
        for learns in (True, False):
            chosen = [k for k, table in enumerate(tables) if table.learns is learns]
            if chosen:
                places, indices = [tables[k].place for k in chosen], [_indices(columns[k]) for k in chosen]
                learn = learns and self.training
                found |= dict(zip(chosen, looked_up(self.stack, places, indices, learn=learn), strict=True))
        return [found[k] for k in range(len(tables))]

    def _fused_tables(self) -> dict[str, FusedTable]:
        """Give the tables that are read together, by feature."""
        return {name: table for name in self.names if isinstance(table := self.lookup(name), FusedTable)}


def _indices(column: Tensor | Jagged) -> Tensor:
    return (column.values if isinstance(column, Jagged) else column).long()
