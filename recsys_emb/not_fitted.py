"""The one error that is scikit-learn's too, in a room of its own: who does not name it need not load scikit-learn.

Import it from `recsys_emb.errors`, beside all others.
"""

from __future__ import annotations

import sklearn.exceptions

from recsys_emb.errors import RecsysEmbError


class NotFittedError(RecsysEmbError, sklearn.exceptions.NotFittedError):
    """Used before ``fit``."""


NotFittedError.__module__ = RecsysEmbError.__module__
