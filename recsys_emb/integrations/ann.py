"""Approximate search by faiss, for catalogues that are too large to be scanned at every request."""

from __future__ import annotations

import functools
import importlib
import threading
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from recsys_emb.errors import MissingDependencyError, at_least
from recsys_emb.evaluation.catalogue import NO_COLUMN, Catalogue


class ApproximateIndex:
    """A graph of near neighbours, in which the best items of a user are looked for instead of among all.

    Give it to `Recommender.recommend` or `Recommender.similar`. The graph proposes items; what a user must not get
    is taken out exactly, and scores are exact, so that an answer may lack a good item and is right in all else.
    `recall_of` says how many it lacks. A user whom the graph finds fewer than k items is answered by the full scan.

    Parameters
    ----------
    neighbours
        Links of each item. More find more, and take more memory: about 8 bytes each, beside a float32 copy of the
        vectors.
    building_effort, effort
        Items that are looked at to place one in the graph, and to answer a user. More find more, and take longer.

    Raises
    ------
    MissingDependencyError
        When faiss is not installed.
    DataError
        When a number is no integer of at least 1, or ``neighbours`` is below 2.

    Notes
    -----
    The graph is built at the first request, item by item on one thread so that equal items give equal graphs, and kept
    for as long as the items stay as they are: it is built anew when the weights change. An answer depends on its user
    alone, not on who asks beside it. Any number of threads may share an index; a copy or a pickle is built anew.

    Biases are one more column of the vectors. Reducing the search to Euclidean distance instead loses most answers
    where items differ much in length.

    References
    ----------
    Malkov, Y. and Yashunin, D. "Efficient and robust approximate nearest neighbor search using hierarchical navigable
    small world graphs." IEEE TPAMI 42, 2020.
    """

    def __init__(self, *, neighbours: int = 32, building_effort: int = 100, effort: int = 128) -> None:
        _faiss()
        whole = functools.partial(at_least, "ApproximateIndex")
        self.neighbours = whole("neighbours", neighbours, 2)
        self.building_effort, self.effort = whole("building_effort", building_effort, 1), whole("effort", effort, 1)
        self._lock = threading.Lock()
        self._graphs: weakref.WeakKeyDictionary[Catalogue, Any] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return (
            f"ApproximateIndex(neighbours={self.neighbours}, building_effort={self.building_effort}, "
            f"effort={self.effort})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings."""
        settings = {name: getattr(self, name) for name in ("neighbours", "building_effort", "effort")}
        return functools.partial(ApproximateIndex, **settings), ()

    def find(self, catalogue: Catalogue, users: Tensor, wanted: Tensor) -> Tensor:
        """Propose columns of a catalogue, see `recsys_emb.evaluation.ranking.Finder`."""
        faiss, graph = _faiss(), self._graph(catalogue)
        vectors = _with_column(users, torch.ones(len(users)))
        # A power of two, so that users go together without a part in each other's answers.
        sizes = (2 ** wanted.clamp(min=1).double().log2().ceil()).long().clamp(max=len(catalogue)).cpu().numpy()
        found = np.full((len(users), int(sizes.max()) if len(sizes) else 0), NO_COLUMN, np.int64)
        for size in np.unique(sizes).tolist():
            alike = np.flatnonzero(sizes == size)
            effort = faiss.SearchParametersHNSW(efSearch=max(self.effort, size))
            found[alike, :size] = graph.search(vectors[alike], size, params=effort)[1]
        return torch.from_numpy(found).to(users.device)

    def _graph(self, catalogue: Catalogue) -> Any:
        graph = self._graphs.get(catalogue)
        if graph is None:
            with self._lock:
                graph = self._graphs.get(catalogue)
                if graph is None:
                    graph = self._graphs[catalogue] = self._build(catalogue)
        return graph

    def _build(self, catalogue: Catalogue) -> Any:
        faiss, vectors = _faiss(), _with_column(catalogue.vectors, catalogue.biases)
        graph = faiss.IndexHNSWFlat(vectors.shape[1], self.neighbours, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = self.building_effort
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            graph.add(vectors)
        finally:
            faiss.omp_set_num_threads(threads)
        return graph


def recall_of(found: pd.DataFrame, exact: pd.DataFrame) -> float:
    """Tell which share of the rows of an exact answer an approximate one holds; NaN where there are none.

    Parameters
    ----------
    found, exact
        Answers of `Recommender.recommend` or `Recommender.similar` to the same request. Rows are compared by their
        first two columns: who asked, and what it got.

    Examples
    --------
    >>> exact = pd.DataFrame({"user": ["a", "a", "b"], "item": [1, 2, 1], "rank": [1, 2, 1]})
    >>> recall_of(exact.iloc[[0, 2]], exact)
    0.6666666666666666
    """
    names = exact.columns[:2].tolist()
    wanted = exact[names].drop_duplicates()
    return len(wanted.merge(found[names].drop_duplicates(), on=names)) / len(wanted) if len(wanted) else float("nan")


def _with_column(vectors: Tensor, last: Tensor) -> npt.NDArray[np.float32]:
    """Lay vectors and one more column out as faiss takes them."""
    return torch.cat([vectors.float(), last.float().to(vectors.device)[:, None]], dim=1).cpu().contiguous().numpy()


def _faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise MissingDependencyError(
            "ApproximateIndex: expected faiss to be installed, got none. Run: pip install 'recsys-emb[ann]'"
        ) from error
