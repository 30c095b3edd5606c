"""Which rows begin with vectors from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import SchemaError, did_you_mean, listed
from recsys_emb.lookup.base import IndexLookup
from recsys_emb.lookup.coverage import Coverage
from recsys_emb.lookup.pretrained import PretrainedVectors
from recsys_emb.lookup.tables import owner_of
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.columns import Categorical, MultiCategorical
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import Lookup, OneHot

ByName: TypeAlias = Mapping[str, PretrainedVectors]


def check_pretrained(schema: Schema, pretrained: ByName) -> None:
    """Refuse vectors that no table of a schema can take.

    Raises
    ------
    SchemaError
        When a feature is not there or has no row per value, the width is another, or two features share the table.
    """
    keyed = {one.name: one for one in schema.features if isinstance(one, (Categorical, MultiCategorical))}
    taken: dict[str, str] = {}
    for name, vectors in pretrained.items():
        where = f"Recommender: pretrained[{name!r}]"
        if name not in keyed:
            hint = did_you_mean(name, list(keyed))
            raise SchemaError(f"{where}: expected one of the features {listed(keyed)}, got {name!r}.{hint}")
        if not isinstance(vectors, PretrainedVectors):
            got = type(vectors).__name__
            raise SchemaError(
                f"{where}: expected PretrainedVectors, got {got}. Use PretrainedVectors.from_mapping or another reader."
            )
        if not isinstance(keyed[name].table, (Lookup, OneHot)):
            raise SchemaError(
                f"{where}: expected a feature with a row per value, got table={keyed[name].table!r}. "
                "Declare it with table=Lookup()."
            )
        if vectors.embedding_dim != schema.embedding_dim:
            raise SchemaError(
                f"{where}: expected vectors of the schema's width {schema.embedding_dim}, got {vectors.embedding_dim}. "
                f"Declare Schema(..., embedding_dim={vectors.embedding_dim}), or reduce the vectors to "
                f"{schema.embedding_dim} numbers."
            )
        other = taken.setdefault(owner_of(keyed[name]), name)
        if other != name:
            raise SchemaError(
                f"{where}: expected vectors once for a table, got them for {other!r} too, which shares it. Keep one."
            )


def begin_with(pretrained: ByName, model: MatrixFactorization, encoder: FeatureEncoder) -> dict[str, Coverage]:
    """Let rows begin with their vectors, now and whenever the model is drawn anew; say what they reach, by feature.

    Raises
    ------
    KeyTypeError
        When keys are of another type than the feature's.
    """
    return {
        name: vectors.fill(cast("IndexLookup", model.vectors.lookup(name)), encoder.vocabularies[name])
        for name, vectors in pretrained.items()
    }
