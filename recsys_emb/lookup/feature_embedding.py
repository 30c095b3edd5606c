"""`FeatureEmbedding`: one table per feature of a schema, sized by its encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from recsys_emb.encoding.batch import Batch, Jagged, check_batch
from recsys_emb.errors import ColumnError, SchemaError, did_you_mean, listed
from recsys_emb.lookup.base import check_indices, seeded_generator
from recsys_emb.lookup.growing import begin, starts_of, ways
from recsys_emb.lookup.growth import Optimizers
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.lookup.lineage import check_extends, check_weights, meanings_of, to_buffer
from recsys_emb.lookup.new_rows import ByFeature, DrawnRows
from recsys_emb.lookup.numeric import NumericProjection
from recsys_emb.lookup.plan import memory_plan
from recsys_emb.lookup.pooling import filled_lists, list_mask, pool, pooled_weights
from recsys_emb.lookup.tables import FeatureTable, TableSizes, build_table, owner_of, pair_of
from recsys_emb.lookup.widths import Width, widths_of
from recsys_emb.schema.columns import Feature, MultiCategorical
from recsys_emb.schema.schema import Schema

if TYPE_CHECKING:
    import pandas as pd


class FeatureEmbedding(nn.Module):
    """A table per feature: `Batch` to ``{name: (B, D)}``.

    Parameters
    ----------
    encoder
        A fitted `FeatureEncoder`, or anything with its ``schema`` and ``num_embeddings(name)``.
    embedding_dim
        D; the schema's unless given. ``"auto"`` gives each feature the width that `suggested_dim` says for its
        values, and a `Numeric` 1; a mapping says each feature's width by name.
    features
        Names of the features to embed, in this order; all of the schema's unless given.
    init_std
        Real rows start as N(0, init_std), reserved rows (padding, missing, unknown) at zero.
    seed
        A table is a function of the seed and its feature's name, whatever the other features are.
    sparse
        Gradients as sparse tensors of the touched rows, for row-sparse optimizers.

    Attributes
    ----------
    tables : torch.nn.ModuleList
        The distinct tables. Features that share a table share the module.
    embedding_dims : dict
        Width of each feature's vectors, by name.
    fingerprint : torch.Tensor
        uint8 ``(32,)``, a buffer: what the rows stand for. `load_state_dict` refuses weights of other vocabularies
        with a `LineageError`. Not there when ``encoder`` is a stand-in.

    Notes
    -----
    A row of padding is zero, learns nothing and weighs nothing in pooling. A list that is empty, missing, or whose
    weights are all zero pools to the missing row's vector. Indices are checked against the table before any lookup,
    unless ``batch.limits`` says that the encoder checked them. Widths stay when tables grow: to load the weights of
    an ``"auto"`` that grew, state its `embedding_dims`. A `History` reads the user's column, and is zero until
    `remember` has seen training rows.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from recsys_emb.schema.columns import Categorical
    >>> schema = Schema(user=Categorical("user_id"), user_features=[MultiCategorical("tags")], embedding_dim=4)
    >>> embed = FeatureEmbedding(SimpleNamespace(schema=schema, num_embeddings=lambda name: 10))
    >>> batch = Batch({"user_id": torch.tensor([3, 9]), "tags": Jagged.from_lists([[3, 4], []])})
    >>> {name: tuple(vectors.shape) for name, vectors in embed(batch).items()}
    {'user_id': (2, 4), 'tags': (2, 4)}
    >>> encoder = SimpleNamespace(schema=schema, num_embeddings=lambda name: 1003 if name == "tags" else 10)
    >>> FeatureEmbedding(encoder, embedding_dim="auto").embedding_dims
    {'user_id': 5, 'tags': 77}
    """

    fingerprint: Tensor

    def __init__(
        self,
        encoder: TableSizes,
        *,
        embedding_dim: Width | None = None,
        features: Sequence[str] | None = None,
        init_std: float = 0.01,
        seed: int = 0,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.schema: Schema = encoder.schema
        self.init_std, self.seed = init_std, seed
        self._features = {feature.name: feature for feature in _chosen(self.schema, features)}
        width = self.schema.embedding_dim if embedding_dim is None else embedding_dim
        self.embedding_dims = widths_of(self._features.values(), encoder, width)
        owners: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self.tables = nn.ModuleList()
        for name, feature in self._features.items():
            place = owners.setdefault(owner_of(feature), len(owners))
            if place == len(self.tables):
                own = self.embedding_dims[name]
                self.tables.append(build_table(feature, encoder, own, init_std=init_std, seed=seed, sparse=sparse))
            self._places[name] = place
        self._check_shared_widths()
        self.meanings = meanings_of(encoder, self.names)
        if self.meanings is not None:
            self.register_buffer("fingerprint", to_buffer(self.meanings))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return tuple(self._features)

    @property
    def embedding_dim(self) -> int:
        """Width of all vectors, D.

        Raises
        ------
        SchemaError
            When features have widths of their own.
        """
        widths = set(self.embedding_dims.values()) or {self.schema.embedding_dim}
        if len(widths) > 1:
            raise SchemaError(
                f"{type(self).__name__}: expected one width, got {listed(sorted(widths))}. "
                "Give one embedding_dim, or read embedding_dims."
            )
        return widths.pop()

    @property
    def lookups(self) -> tuple[FeatureTable, ...]:
        """The table of each feature, in the order of `names`; a shared table stands there several times."""
        return tuple(self.lookup(name) for name in self.names)

    @property
    def histories(self) -> dict[str, HistoryEmbedding]:
        """The tables of the `History` features, by feature name."""
        tables = {name: self.lookup(name) for name in self.names}
        return {name: table for name, table in tables.items() if isinstance(table, HistoryEmbedding)}

    def remember(self, batch: Batch, *, anew: bool = True) -> None:
        """Let the histories hold what users had in training rows; ``anew=False`` appends to what they hold."""
        for table in self.histories.values():
            users, items = (batch.indices(one.name) for one in pair_of(self.schema))
            table.remember(users, items, anew=anew)

    def lookup(self, name: str) -> FeatureTable:
        """Table of the feature called ``name``."""
        return cast("FeatureTable", self.tables[self._places[self._feature(name).name]])

    def replace(self, name: str, table: FeatureTable) -> None:
        """Let the feature called ``name``, and all that share its table, read ``table`` (pretrained vectors, say).

        Raises
        ------
        SchemaError
            When the new table has another width or another number of rows.
        """
        old = self.lookup(name)
        if (table.num_embeddings, table.embedding_dim) != (old.num_embeddings, old.embedding_dim):
            raise SchemaError(
                f"feature {name!r}: expected a table of {old.num_embeddings} rows and width {old.embedding_dim}, "
                f"got {table.num_embeddings} rows and width {table.embedding_dim}. Size it by the encoder; project it."
            )
        self.tables[self._places[name]] = table

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Look up all features: ``{name: (B, D)}``; with ``pooling="none"``, ``(B, L, D)`` and `mask`."""
        check_batch(batch, type(self).__name__)
        return {name: self.vectors_of(name, batch) for name in self.names}

    def vectors_of(self, name: str, batch: Batch) -> Tensor:
        """Look up one feature: ``(B, D)``, or ``(B, L, D)`` with ``pooling="none"``.

        Raises
        ------
        IndexRangeError
            When an index lies outside the table; the message names the feature, the index and the range.
        """
        feature, table = self._feature(name), self.lookup(name)
        if isinstance(table, HistoryEmbedding):
            pooled: Tensor = table(batch.indices(pair_of(self.schema)[0].name))
            return pooled
        column = batch.lists(name) if isinstance(feature, MultiCategorical) else batch.indices(name)
        if isinstance(table, NumericProjection):
            numbers: Tensor = table(column)
            return numbers
        if batch.limits.get(name, table.num_embeddings + 1) > table.num_embeddings:
            check_indices(column.values if isinstance(column, Jagged) else column, table.num_embeddings, name)
        if not isinstance(column, Jagged):
            return table.rows(column)
        pooling = cast("MultiCategorical", feature).pooling
        lists = pooled_weights(column, pooling) if pooling == "none" else filled_lists(column, pooling)
        return pool(table.rows(lists.values), lists, pooling)

    def mask(self, name: str, batch: Batch) -> Tensor:
        """Tell entries from padding in the vectors of a feature with ``pooling="none"``: bool ``(B, L)``."""
        return list_mask(pooled_weights(batch.lists(name), "none"))

    def reset_parameters(self, *, init_std: float, seed: int) -> None:
        """Draw all tables as at birth, with this standard deviation and seed."""
        self.init_std, self.seed = init_std, seed
        for name in self._owners():
            self.lookup(name).reset_parameters(init_std=init_std, generator=self._generator(name))

    def grow(self, encoder: TableSizes, optimizer: Optimizers = None, *, new_rows: ByFeature = DrawnRows()) -> None:
        """Follow an encoder that ``partial_fit`` extended: new rows at the end, all else bit for bit.

        Parameters
        ----------
        encoder
            The extended encoder.
        optimizer
            The optimizer (or optimizers) of these tables, whose per-row state grows along. One that is not given
            refuses its next step.
        new_rows
            How the rows of new values, and of positions seen for the first time, begin: `DrawnRows`, `ZeroRows`,
            `MeanRows`, `InheritedRows`, `PretrainedRows`, or a mapping of feature names to these. Tables without a
            row per value (`Hashed`, `QuotientRemainder`) grow in their own way.

        Notes
        -----
        Drawn rows are N(0, init_std), from the seed, the feature's name and the old number of rows. Parameters grow
        in place: references to them stay valid.

        Raises
        ------
        SchemaError
            When the encoder has another schema.
        LineageError, FitError
            When it does not extend the encoder that sized the tables. Nothing has grown then.
        """
        if encoder.schema != self.schema:
            raise SchemaError(
                "FeatureEmbedding.grow: expected an encoder of the same schema, got another. "
                "Extend the fitted encoder with partial_fit."
            )
        check_extends(self.meanings, encoder, self.names)
        tables = {name: self.lookup(name) for name in self._owners()}
        starts = starts_of(tables, encoder, self.meanings, ways(new_rows, self._places))
        for name, table in tables.items():
            if isinstance(table, NumericProjection):
                continue
            if isinstance(table, HistoryEmbedding):
                table.admit(encoder.num_embeddings(pair_of(self.schema)[0].name))
            generator = self._generator(name, table.num_embeddings)
            table.grow(encoder.num_embeddings(name), generator=generator, optimizer=optimizer)
            if name in starts:
                begin(table, starts[name])
        if self.meanings is not None:
            self.meanings = meanings_of(encoder, self.names) or self.meanings
            self.fingerprint.copy_(to_buffer(self.meanings))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Not imported: it stands on this module.
        by_value = "recsys_emb.lookup.carrying.carry"
        check_weights(self.meanings, state_dict.get(f"{prefix}fingerprint"), by_value=by_value)
        if "stack" not in self._modules:
            # A `FusedEmbedding` saved how its rows move beside its tables.
            for key in [key for key in state_dict if key.startswith(f"{prefix}stack.")]:
                del state_dict[key]
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @classmethod
    def plan(
        cls,
        encoder: TableSizes,
        *,
        embedding_dim: Width | None = None,
        features: Sequence[str] | None = None,
        batch_size: int = 8192,
    ) -> pd.DataFrame:
        """Account for the tables before anything is allocated.

        Returns
        -------
        pandas.DataFrame
            One row per feature: ``kind``, ``num_embeddings``, ``embedding_dim``, ``parameters``, and bytes: of the
            weights, of a dense gradient, of row-wise Adagrad's state, of Adam's state, of the dense one-hot matrix
            of a batch. A shared table is counted once, with the first of its features.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> from recsys_emb.schema.columns import Categorical
        >>> schema = Schema(user=Categorical("user_id"), embedding_dim=64)
        >>> encoder = SimpleNamespace(schema=schema, num_embeddings=lambda name: 1_000_000_000)
        >>> FeatureEmbedding.plan(encoder).loc["user_id", ["parameters", "weight_bytes"]].tolist()
        [64000000000, 256000000000]
        """
        with torch.device("meta"):
            made = cls(encoder, embedding_dim=embedding_dim, features=features)
        return memory_plan(zip(made.names, made.lookups, strict=True), batch_size=batch_size)

    def _feature(self, name: str) -> Feature:
        if name not in self._features:
            hint = did_you_mean(name, self.names)
            raise ColumnError(f"FeatureEmbedding: expected one of {listed(self.names)}, got {name!r}.{hint}")
        return self._features[name]

    def _check_shared_widths(self) -> None:
        for name, width in self.embedding_dims.items():
            shared = self.lookup(name).embedding_dim
            if shared != width:
                raise SchemaError(
                    f"feature {name!r}: expected width {shared}, that of the table that it shares, got {width}. "
                    "Give both the same."
                )

    def _owners(self) -> list[str]:
        """First feature of each table."""
        first = {place: name for name, place in reversed(self._places.items())}
        return [first[place] for place in range(len(self.tables))]

    def _generator(self, name: str, *parts: int) -> torch.Generator:
        """Draw from the seed and the name of the table's owner; for growth, from the old number of rows too."""
        return seeded_generator(self.seed, owner_of(self._features[name]), *parts)


def _chosen(schema: Schema, names: Sequence[str] | None) -> list[Feature]:
    known = {feature.name: feature for feature in schema.features}
    unknown = [name for name in names or () if name not in known]
    if unknown:
        hint = did_you_mean(unknown[0], list(known))
        raise ColumnError(f"FeatureEmbedding: expected features among {listed(known)}, got {listed(unknown)}.{hint}")
    return list(known.values()) if names is None else [known[name] for name in names]
