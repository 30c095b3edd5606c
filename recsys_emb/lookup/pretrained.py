"""`PretrainedVectors`: vectors from elsewhere, put onto the rows of their own keys."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recsys_emb.errors import ColumnError, DataError, counted, listed
from recsys_emb.lookup.base import IndexLookup
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.coverage import Coverage
from recsys_emb.lookup.projected import ProjectedEmbedding
from recsys_emb.lookup.vector_files import VectorFile, read_binary, read_parquet, read_text
from recsys_emb.sources.locations import local_path
from recsys_emb.vocabulary.reserved import MISSING_INDEX, PADDING_INDEX
from recsys_emb.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pandas as pd

StrPath: TypeAlias = str | os.PathLike[str]


class PretrainedVectors:
    """Keys and their vectors, to be aligned with any vocabulary by key.

    Parameters
    ----------
    keys
        ``(N,)``: list, NumPy or Arrow array, pandas Series. A key that stands there again keeps its first vector,
        with a warning. Keys have the identity that a `Vocabulary` gives them: 5 and 5.0 are one, ``"5"`` is another.
    vectors
        ``(N, D)`` floating point: tensor or array.
    name
        The source, for messages.
    skipped
        Lines of the source that could not be read, for the report.

    Attributes
    ----------
    vectors : torch.Tensor
        float32 ``(N', D)`` on the CPU, one per distinct key.

    Raises
    ------
    DataError
        When the numbers of keys and vectors differ, a key is missing, or a vector is not finite.

    Examples
    --------
    >>> pretrained = PretrainedVectors(["tea", "milk"], torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> vocabulary = Vocabulary.from_values(["milk", "rum", "tea"], name="drink")
    >>> embedding = CategoryEmbedding(vocabulary.num_embeddings, 2)
    >>> print(pretrained.fill(embedding, vocabulary))
    2 of 3 values have a vector (66.7 % of occurrences); without: 'rum'. 0 keys unused, 0 repeated, 0 lines skipped.
    >>> embedding(vocabulary.encode(["tea"]))
    tensor([[1., 2.]], grad_fn=<EmbeddingBackward0>)
    """

    def __init__(self, keys: Any, vectors: Any, *, name: str = "pretrained", skipped: int = 0) -> None:
        made = vectors if isinstance(vectors, Tensor) else torch.from_numpy(np.require(vectors, np.float32, "W"))
        matrix = made.detach().to("cpu", torch.float32)
        if matrix.ndim != 2 or len(matrix) != len(keys):
            raise DataError(
                f"{name}: expected one vector per key, ({len(keys)}, D), got {tuple(matrix.shape)}. Pass a matrix."
            )
        self.name = name
        self.skipped = skipped
        self._keys = Vocabulary.from_values(keys, name=name)
        places = self._keys.encode(keys)
        self._refuse_missing_keys(places)
        codes = places - self._keys.first_index
        first = torch.full((len(self._keys),), len(codes)).scatter_reduce(0, codes, torch.arange(len(codes)), "amin")
        self.repeated = len(codes) - len(first)
        self._warn_of_repeats(codes)
        self.vectors = matrix[first]
        self._refuse_broken_vectors()

    @classmethod
    def from_mapping(cls, mapping: Mapping[Any, Any], *, name: str = "pretrained") -> PretrainedVectors:
        """Take a mapping of key to vector.

        >>> PretrainedVectors.from_mapping({"tea": [1.0, 2.0], "milk": [3.0, 4.0]}).embedding_dim
        2
        """
        return cls(list(mapping), _matrix_of(mapping.values(), name), name=name)

    @classmethod
    def from_word2vec(cls, path: StrPath, *, binary: bool = False, skip_bad_lines: bool = False) -> PretrainedVectors:
        """Read word2vec's formats (fastText's ``.vec`` is the text one): a header ``"N D"``, then the vectors.

        In text, a key is everything before the last D numbers of its line. ``skip_bad_lines`` counts lines that
        cannot be read instead of raising `DataError` with the line's number.
        """
        if binary:
            return cls._of(read_binary(_local(path)), path)
        return cls._of(read_text(_local(path), embedding_dim=None, header=True, skip_bad_lines=skip_bad_lines), path)

    @classmethod
    def from_glove(
        cls, path: StrPath, *, embedding_dim: int | None = None, skip_bad_lines: bool = False
    ) -> PretrainedVectors:
        """Read GloVe's text: lines of a key and D numbers, without a header (one is recognised and passed over).

        Parameters
        ----------
        path
            UTF-8 text.
        embedding_dim
            D; None takes it from the first line, whose key must then be free of spaces.
        skip_bad_lines
            Count lines that cannot be read instead of raising `DataError` with the line's number.
        """
        read = read_text(_local(path), embedding_dim=embedding_dim, header=False, skip_bad_lines=skip_bad_lines)
        return cls._of(read, path)

    @classmethod
    def from_parquet(cls, path: StrPath, *, key: str = "key", vector: str = "vector") -> PretrainedVectors:
        """Read a Parquet file with a column of keys and a column of equally long lists of numbers."""
        return cls._of(read_parquet(_local(path), key=key, vector=vector), path)

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, *, key: str | None = None, vector: str = "vector", name: str = "pretrained"
    ) -> PretrainedVectors:
        """Take a frame with a column of keys and a column of equally long vectors, as `Recommender.embeddings` gives.

        Parameters
        ----------
        frame
            Its index is ignored.
        key
            The column of keys; the only other one unless given.
        vector
            The column of vectors.
        name
            The source, for messages.

        Raises
        ------
        ColumnError
            When a column is not there, or ``key`` is left open among several.
        DataError
            When the vectors are of several widths.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"drink": ["tea", "milk"], "vector": [[1.0, 2.0], [3.0, 4.0]]})
        >>> PretrainedVectors.from_frame(frame).embedding(Vocabulary.from_values(["milk"]))(torch.tensor([3]))
        tensor([[3., 4.]], grad_fn=...)
        """
        columns = [str(column) for column in frame.columns]
        others = [column for column in columns if column != vector]
        if vector not in columns or (key is None and len(others) != 1) or (key is not None and key not in columns):
            wanted = "one of keys" if key is None else repr(key)
            raise ColumnError(
                f"{name}: expected the columns {vector!r} and {wanted}, got {listed(columns)}. Name key and vector."
            )
        keys = frame[key if key is not None else others[0]]
        return cls(keys, _matrix_of(frame[vector], name), name=name)

    def __len__(self) -> int:
        """Count the distinct keys."""
        return len(self.vectors)

    @property
    def embedding_dim(self) -> int:
        """Width of the vectors, D."""
        return self.vectors.shape[1]

    @property
    def fingerprint(self) -> str:
        """Hash of keys and vectors."""
        return hashlib.sha256(self._keys.fingerprint.encode() + self.vectors.numpy().tobytes()).hexdigest()

    def coverage(self, vocabulary: Vocabulary) -> Coverage:
        """Report which values of a vocabulary have a vector."""
        return self._aligned(vocabulary)[2]

    def aligned(self, vocabulary: Vocabulary) -> tuple[Tensor, Tensor]:
        """Give the rows of a vocabulary's table that have a vector, int64 ``(M,)``, and these vectors ``(M, D)``."""
        return self._aligned(vocabulary)[:2]

    def fill(self, table: IndexLookup, vocabulary: Vocabulary, *, freeze: bool = False) -> Coverage:
        """Write the vectors onto the rows of their keys; other rows, the reserved ones too, stay as they are.

        Parameters
        ----------
        table
            A lookup with a row per index (`CategoryEmbedding`, `OneHotProjection`), such as
            ``embed.lookup("item_id")``. Whenever it is reset, these rows start from these vectors again.
        vocabulary
            What the table's indices mean.
        freeze
            Stop the whole table from learning, rows without a vector included.

        Raises
        ------
        DataError
            When the widths differ, or the table is not sized by the vocabulary.
        KeyTypeError
            When the keys are of another type than the vocabulary's.
        """
        expected = (vocabulary.num_embeddings, self.embedding_dim)
        if (table.num_embeddings, table.embedding_dim) != expected:
            raise DataError(
                f"feature {table.name!r}: expected a table {expected} for {self.name!r} and its vocabulary, "
                f"got {(table.num_embeddings, table.embedding_dim)}. Size it by the vocabulary; "
                "project with embedding(vocabulary, embedding_dim=...)."
            )
        rows, vectors, coverage = self._aligned(vocabulary)
        table.give(rows, vectors)
        if freeze:
            table.requires_grad_(False)
        return coverage

    def embedding(
        self,
        vocabulary: Vocabulary,
        *,
        embedding_dim: int | None = None,
        freeze: bool = False,
        init_std: float = 0.01,
        sparse: bool = False,
        generator: torch.Generator | None = None,
    ) -> IndexLookup:
        """Make a lookup for a vocabulary: these vectors on their keys' rows, N(0, init_std) on the other real rows.

        Parameters
        ----------
        vocabulary
            Gives the rows.
        embedding_dim
            Width to read the vectors at. Another than their own puts a learned matrix behind them
            (`ProjectedEmbedding`), which ``freeze`` leaves free.
        freeze
            Stop the table from learning, rows without a vector included.
        init_std, sparse, generator
            As in `CategoryEmbedding`.

        Examples
        --------
        >>> pretrained = PretrainedVectors(["tea", "milk"], torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> vocabulary = Vocabulary.from_values(["milk", "tea"], name="drink")
        >>> pretrained.embedding(vocabulary, embedding_dim=8, freeze=True)(vocabulary.encode(["tea"])).shape
        torch.Size([1, 8])
        """
        table = CategoryEmbedding(
            vocabulary.num_embeddings,
            self.embedding_dim,
            padding_index=PADDING_INDEX,
            reserved=vocabulary.first_index,
            init_std=init_std,
            sparse=sparse,
            generator=generator,
            name=vocabulary.name,
        )
        self.fill(table, vocabulary, freeze=freeze)
        if embedding_dim is None or embedding_dim == self.embedding_dim:
            return table
        return ProjectedEmbedding(table, embedding_dim, generator=generator)

    @classmethod
    def _of(cls, file: VectorFile, path: StrPath) -> PretrainedVectors:
        return cls(file.keys, file.vectors, name=Path(path).name, skipped=file.skipped)

    def _aligned(self, vocabulary: Vocabulary) -> tuple[Tensor, Tensor, Coverage]:
        """Rows of the vocabulary's table that have a vector, those vectors, and the report."""
        codes = self._keys.encode(vocabulary.values) - self._keys.first_index
        known = codes >= 0
        absent = vocabulary.take(vocabulary.first_index + (~known).nonzero()[:, 0]).to_pylist()
        counts = torch.as_tensor(vocabulary.counts)
        coverage = Coverage(
            found=int(known.sum()),
            absent=tuple(absent),
            found_share=float(counts[known].sum() / counts.sum()) if len(counts) else 0.0,
            unused=len(self) - int(known.sum()),
            repeated=self.repeated,
            skipped=self.skipped,
        )
        return vocabulary.first_index + known.nonzero()[:, 0], self.vectors[codes[known]], coverage

    def _refuse_missing_keys(self, places: Tensor) -> None:
        missing = int((places == MISSING_INDEX).sum())
        if missing:
            raise DataError(
                f"{self.name}: expected a key per vector, got {counted(missing, 'missing key')}. Drop them."
            )

    def _refuse_broken_vectors(self) -> None:
        broken = (~self.vectors.isfinite().all(1)).nonzero()[:, 0]
        if len(broken):
            keys = self._keys.decode(broken + self._keys.first_index)
            raise DataError(
                f"{self.name}: expected finite vectors, got NaN or infinity in those of {listed(keys)}. Drop them."
            )

    def _warn_of_repeats(self, codes: Tensor) -> None:
        repeats = (codes.bincount() > 1).nonzero()[:, 0]
        if len(repeats):
            keys = listed(self._keys.decode(repeats + self._keys.first_index))
            message = f"{self.name}: {keys} stand there more than once; the first vector of each counts."
            warnings.warn(message, stacklevel=3)


def _matrix_of(vectors: Iterable[Any], name: str) -> NDArray[np.float32]:
    rows = [np.asarray(vector, dtype=np.float32) for vector in vectors]
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1:
        raise DataError(f"{name}: expected vectors of one width, got shapes {listed(shapes)}. Make them equal.")
    return np.stack(rows) if rows else np.empty((0, 0), dtype=np.float32)


def _local(path: StrPath) -> Path:
    return local_path(path, "PretrainedVectors")
