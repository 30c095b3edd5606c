"""`MatrixFactorization`: biases, and a dot product of two sums of lookups."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from recsys_emb.encoding.batch import Batch, check_batch
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import FitError, SchemaError
from recsys_emb.lookup.carrying import carry
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.growth import Optimizers
from recsys_emb.lookup.lineage import check_own, check_weights
from recsys_emb.lookup.new_rows import ByFeature, DrawnRows, ways_of_biases
from recsys_emb.lookup.tables import TableSizes
from recsys_emb.schema.columns import Feature, History, MultiCategorical, Position
from recsys_emb.schema.schema import Schema


class LinearTable(NamedTuple):
    """A feature's rows as plain matrices over the parameters' own memory.

    Parameters
    ----------
    name
        The feature.
    vectors
        ``(V, D)``, or None where the feature has a bias alone. A one-hot projection's is a transposed view.
    biases
        ``(V, 1)``, or None where the feature has vectors alone.
    """

    name: str
    vectors: Tensor | None
    biases: Tensor | None


class MatrixFactorization(nn.Module):
    """score = μ + Σ biases + ⟨Σ user-side vectors, Σ item-side vectors⟩.

    Each side is a sum of lookups, as BERT's input is: the user's row plus the rows of its features and of the
    context; the item's row plus its features' plus the position's. `Numeric` features weigh their two rows,
    `MultiCategorical` ones pool theirs. With a user and an item alone this is biased matrix factorization; with a
    `History` it is SVD++, once `FeatureEmbedding.remember` has seen who had what (`train` sees to that).

    Parameters
    ----------
    encoder
        A fitted `FeatureEncoder`, or anything with its ``schema`` and ``num_embeddings(name)``.
    embedding_dim
        D; the schema's unless given.
    init_std
        Vectors of real values start as N(0, init_std); biases and reserved rows at zero.
    seed
        A table is a function of the seed and its feature's name.
    sparse
        Gradients as sparse tensors of the touched rows.

    Attributes
    ----------
    vectors : FeatureEmbedding
        Width D; without ``Position(vector=False)``.
    biases : FeatureEmbedding
        Width 1, for every feature but `History`.
    offset, scale : torch.Tensor
        0-dim buffers: what a score of 0 and a step of 1 are in units of the label.

    Raises
    ------
    SchemaError
        When a side has no feature, a list is declared with ``pooling="none"``, or features want widths of their own.

    References
    ----------
    Koren, Y., Bell, R. and Volinsky, C. "Matrix factorization techniques for recommender systems." Computer 42, 2009.
    Rendle, S. "Factorization machines." ICDM 2010 (sums of feature vectors).

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from recsys_emb.schema.columns import Categorical
    >>> schema = Schema(user=Categorical("user_id"), item=Categorical("item_id"), embedding_dim=8)
    >>> model = MatrixFactorization(SimpleNamespace(schema=schema, num_embeddings=lambda name: 10))
    >>> model(Batch({"user_id": torch.tensor([3, 4, 0]), "item_id": torch.tensor([9, 1, 9])})).shape
    torch.Size([3])
    """

    offset: Tensor
    scale: Tensor

    def __init__(
        self,
        encoder: TableSizes,
        *,
        embedding_dim: int | None = None,
        init_std: float = 0.01,
        seed: int = 0,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        _check(encoder.schema)
        _check_width(embedding_dim)
        self.schema: Schema = encoder.schema
        self.user_names = _names(self.schema.user_side)
        self.item_names = _names(self.schema.item_side)
        with_vector = [name for name in (*self.user_names, *self.item_names) if _has_vector(self.schema[name])]
        self.vectors = FeatureEmbedding(
            encoder, embedding_dim=embedding_dim, features=with_vector, init_std=init_std, seed=seed, sparse=sparse
        )
        with_bias = [feature.name for feature in self.schema.features if not isinstance(feature, History)]
        self.biases = FeatureEmbedding(
            encoder, embedding_dim=1, features=with_bias, init_std=0.0, seed=seed, sparse=sparse
        )
        self.register_buffer("offset", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def raw(self, batch: Batch) -> Tensor:
        """Score in standard units, in which solvers learn: ``(B,)``."""
        users, user_biases = self.side(batch, self.user_names)
        items, item_biases = self.side(batch, self.item_names)
        return user_biases + item_biases + (users * items).sum(-1)

    def forward(self, batch: Batch) -> Tensor:
        """Score in units of the label: ``(B,)``, the sum of `terms` in their order."""
        check_batch(batch, type(self).__name__)
        return functools.reduce(torch.add, self.terms(batch).values())

    def side(self, batch: Batch, names: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Sum the lookups of some features, in standard units: vectors ``(B, D)`` and biases ``(B,)``.

        Features without a vector add a bias alone, and the reverse; no features at all add zeros.
        """
        with_bias = [name for name in names if name in self.biases.names]
        biases = [self._bias(name, batch) for name in with_bias] or [self.scale.new_zeros(len(batch))]
        return self.side_vectors(batch, names), functools.reduce(torch.add, biases)

    def side_vectors(self, batch: Batch, names: Sequence[str]) -> Tensor:
        """As `side`, the vectors alone."""
        vectors = [self.vectors.vectors_of(name, batch) for name in names if name in self.vectors.names]
        return functools.reduce(torch.add, vectors or [self.scale.new_zeros(len(batch), self.vectors.embedding_dim)])

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Explain scores: ``"offset"``, ``"bias:<name>"`` of every feature with one, ``"interaction"``; each ``(B,)``.

        In units of the label; added up in this order they are `forward`, bit for bit.
        """
        users, items = self.side_vectors(batch, self.user_names), self.side_vectors(batch, self.item_names)
        biases = {f"bias:{name}": self.scale * self._bias(name, batch) for name in self.biases.names}
        interaction = self.scale * (users * items).sum(-1)
        return {"offset": self.offset.expand_as(interaction), **biases, "interaction": interaction}

    def reset_parameters(self, *, init_std: float, seed: int) -> None:
        """Draw vectors as at birth and set biases to zero; `offset` and `scale` stay."""
        self.vectors.reset_parameters(init_std=init_std, seed=seed)
        self.biases.reset_parameters(init_std=0.0, seed=seed)

    def set_units(self, offset: float, scale: float) -> None:
        """State the label's units: ``forward`` is ``offset + scale * raw``."""
        self.offset.fill_(offset)
        self.scale.fill_(scale)

    def grow(self, encoder: TableSizes, optimizer: Optimizers = None, *, new_rows: ByFeature = DrawnRows()) -> None:
        """Follow an encoder that ``partial_fit`` extended: new rows at the end, all else bit for bit.

        Old rows, their gradients, their optimizer state and hence the scores of old values stay bit for bit. How new
        rows begin says ``new_rows`` (see `FeatureEmbedding.grow`); drawn ones have a bias of zero.

        Raises
        ------
        SchemaError, LineageError, FitError
            When the encoder does not extend the one that sized the tables. Nothing has grown then.
        """
        self.vectors.grow(encoder, optimizer, new_rows=new_rows)
        self.biases.grow(encoder, optimizer, new_rows=ways_of_biases(new_rows))

    def load_by_value(self, weights: Mapping[str, Tensor], before: FeatureEncoder, after: FeatureEncoder) -> None:
        """Take over the weights of a model of other vocabularies: the row of every value that both know.

        Where `load_state_dict` refuses. Rows of values that ``weights`` does not know stay as they are, and what
        only ``weights`` knows is left out (see `recsys_emb.lookup.carrying.carry`).

        Parameters
        ----------
        weights
            The ``state_dict()`` of the other model, of the same width.
        before
            The encoder that the other model was made with.
        after
            The encoder that this one was made with.

        Raises
        ------
        LineageError
            When an encoder is not that of its model, or a feature cannot be carried over.
        """
        check_own(self.biases.meanings, after, self.biases.names)
        with torch.device("meta"):
            other = MatrixFactorization(before, embedding_dim=self.vectors.embedding_dim)
        other.load_state_dict(weights, assign=True)
        carry(other.vectors, self.vectors, before, after)
        carry(other.biases, self.biases, before, after)
        self.set_units(float(other.offset), float(other.scale))

    def why_not_linear(self) -> str | None:
        """Say why a score is not a dot product of weighted sums of table rows; None when it is."""
        for name in (*self.user_names, *self.item_names):
            feature = self.schema[name]
            if isinstance(feature, MultiCategorical) and feature.pooling == "max":
                return f"feature {name!r} pools by 'max', which is no weighted sum"
            for table in [embed.lookup(name) for embed in (self.vectors, self.biases) if name in embed.names]:
                if table.storage() is None:
                    return f"feature {name!r} reads a {type(table).__name__}, which holds no row per index"
        return None

    def linear_tables(self) -> list[LinearTable]:
        """Give the rows of every feature, user side first, as views: writing to one trains the model.

        Features that share a table share memory. A list weighs its rows as `pooled_weights` says, a number its two
        rows by value and missing indicator, a history as `HistoryEmbedding.lists` says.

        Raises
        ------
        FitError
            When `why_not_linear` has a reason.
        """
        reason = self.why_not_linear()
        if reason is not None:
            raise FitError(
                f"MatrixFactorization: expected a table behind every feature, but {reason}. Train with Minibatch()."
            )
        vectors = {name: self.vectors.lookup(name).storage() for name in self.vectors.names}
        biases = {name: self.biases.lookup(name).storage() for name in self.biases.names}
        names = (*self.user_names, *self.item_names)
        return [LinearTable(name, vectors.get(name), biases.get(name)) for name in names]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Before anything is copied: a refused state leaves the model as it was.
        for part in ("vectors", "biases"):
            check_weights(getattr(self, part).meanings, state_dict.get(f"{prefix}{part}.fingerprint"))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _bias(self, name: str, batch: Batch) -> Tensor:
        return self.biases.vectors_of(name, batch)[:, 0]


def _check(schema: Schema) -> None:
    for side, features in (("user", schema.user_side), ("item", schema.item_side)):
        if not _names(features):
            raise SchemaError(
                f"MatrixFactorization: expected a feature on the {side} side, got none. "
                f"Declare {side}=Categorical(...)."
            )
    for feature in schema.features:
        if isinstance(feature, MultiCategorical) and feature.pooling == "none":
            raise SchemaError(
                f"MatrixFactorization: expected one vector per row, got pooling='none' of {feature.name!r}. "
                "Pool it by 'mean', 'sum', 'sqrtn' or 'max'."
            )


def _check_width(embedding_dim: object) -> None:
    if isinstance(embedding_dim, (str, Mapping)):
        raise SchemaError(
            f"MatrixFactorization: expected one embedding_dim, got {embedding_dim!r}. The vectors of both sides meet "
            "in a dot product, so that all are as wide; state an integer."
        )


def _names(features: Sequence[Feature]) -> tuple[str, ...]:
    return tuple(feature.name for feature in features)


def _has_vector(feature: Feature) -> bool:
    return not isinstance(feature, Position) or feature.vector
