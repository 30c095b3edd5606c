"""Recommender-system feature embeddings: pandas in, tensors out."""

from recsys_emb._version import __version__

__all__ = ["__version__"]
