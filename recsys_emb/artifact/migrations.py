"""What folders of older formats lack, one step per version: each brings a folder to the next one.

A step that is added here for version n must read every folder of version n that there is; `tests/artifact` keeps a
folder of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from recsys_emb.artifact import version_1
from recsys_emb.artifact.memory import Known
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.models.matrix_factorization import MatrixFactorization


class Migration:
    """A step from one format version to the next; what it does not override stays as it is."""

    def described(self, content: dict[str, Any]) -> dict[str, Any]:
        """Bring the content of ``recommender.json`` to the next version, before anything else is read."""
        return content

    def settled(self, settings: dict[str, Any], encoder: FeatureEncoder) -> dict[str, Any]:
        """Bring the owner's settings to the next version."""
        del encoder
        return settings

    def weights(self, tensors: dict[str, Tensor], model: MatrixFactorization) -> dict[str, Tensor]:
        """Bring the weights to the next version; ``model`` has the right shapes, and memory for nothing."""
        del model
        return tensors

    def known(self, folder: Path, encoder: FeatureEncoder) -> Known | None:
        """Read what is known of users and items, where a version holds it otherwise than this one."""
        del folder, encoder
        return None


class _FromVersion1(Migration):
    """It did not say where a model comes from, nor what its rows and vocabularies stand for, and kept Parquet alone."""

    def described(self, content: dict[str, Any]) -> dict[str, Any]:
        files = content.get("vocabularies")
        return {**content, "vocabularies": {name: {"file": file} for name, file in dict(files or {}).items()}}

    def settled(self, settings: dict[str, Any], encoder: FeatureEncoder) -> dict[str, Any]:
        state = encoder.to_state()
        user = encoder.vocabularies[state.schema.user.name] if state.schema.user else None
        rows = 0 if user is None else int(user.counts.sum())
        values = {name: len(vocabulary) for name, vocabulary in state.vocabularies.items()}
        step = {"fingerprint": encoder.fingerprint, "rows": rows, "values": values}
        return {"lineage": [step], **settings}

    def known(self, folder: Path, encoder: FeatureEncoder) -> Known:
        return version_1.read_known(folder, encoder)

    def weights(self, tensors: dict[str, Tensor], model: MatrixFactorization) -> dict[str, Tensor]:
        parts = {name: one for name, one in model.named_modules() if isinstance(one, FeatureEmbedding)}
        return {**tensors, **{f"{name}.fingerprint": one.fingerprint for name, one in parts.items()}}


MIGRATIONS: Mapping[int, Migration] = {1: _FromVersion1()}
"""By the version that a step starts from."""


def steps(version: int) -> list[Migration]:
    """Give the steps from a version to this library's, in order."""
    return [step for start, step in sorted(MIGRATIONS.items()) if start >= version]
