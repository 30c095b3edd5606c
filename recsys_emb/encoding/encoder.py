"""`FeatureEncoder`: raw values -> `Batch` and back, with the conventions of scikit-learn."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.columns import ColumnCodec
from recsys_emb.encoding.crew import crew
from recsys_emb.encoding.encoded_folder import EncodedRows
from recsys_emb.encoding.engine_fit import learn_on
from recsys_emb.encoding.engine_transform import transform_on
from recsys_emb.encoding.learning import EncoderState, Learning
from recsys_emb.encoding.lineage import check_indices_stay
from recsys_emb.encoding.row_encoder import Answers, RowEncoder, folder_types
from recsys_emb.encoding.statistics import NumericStatistics
from recsys_emb.engines.engine import Engine
from recsys_emb.engines.local import threads_unless
from recsys_emb.errors import (
    ColumnError,
    DataError,
    EmptySourceError,
    NotFittedError,
    SchemaError,
    did_you_mean,
    listed,
)
from recsys_emb.schema import History, Schema
from recsys_emb.sources.locations import locate, path_text
from recsys_emb.sources.sources import open_source, refuse_output_in
from recsys_emb.vocabulary.spilling import Spill
from recsys_emb.vocabulary.vocabulary import Vocabulary


class FeatureEncoder(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):
    """Encode the columns that a schema names as tensors, and decode them.

    An ordinary scikit-learn transformer: it takes part in ``clone``, ``Pipeline`` and ``check_is_fitted``. A fit
    streams the source once; its memory grows with the number of distinct values, not of rows. What it learns does
    not depend on the order of the rows or files, or on how they are batched.

    Parameters
    ----------
    schema
        Which columns to read and what they mean.

    Examples
    --------
    >>> from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Schema
    >>> schema = Schema(
    ...     user=Categorical("user_id"),
    ...     item=Categorical("item_id"),
    ...     item_features=[MultiCategorical("genres"), Numeric("year")],
    ...     label="rating",
    ... )
    >>> frame = pd.DataFrame(
    ...     {
    ...         "user_id": [7, 7, 9],
    ...         "item_id": ["b", "a", "b"],
    ...         "genres": [["war"], None, ["war", "drama"]],
    ...         "year": [1990, 2000, 2010],
    ...         "rating": [4.0, 3.5, 5.0],
    ...     }
    ... )
    >>> encoder = FeatureEncoder(schema).fit(frame)
    >>> batch = encoder.transform(frame)
    >>> batch["user_id"], batch.lists("genres").to_lists(), batch.label
    (tensor([3, 3, 4]), [[3], [], [3, 4]], tensor([4.0000, 3.5000, 5.0000]))
    >>> encoder.inverse_transform(batch)
       user_id item_id        genres    year  rating
    0        7       b         [war]  1990.0     4.0
    1        7       a            []  2000.0     3.5
    2        9       b  [war, drama]  2010.0     5.0
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def fit(
        self,
        source: Any,
        y: object = None,
        *,
        renumber: bool = False,
        engine: Engine | None = None,
        spill: Spill | None = None,
        progress: bool | None = None,
    ) -> FeatureEncoder:
        """Learn vocabularies, positions and statistics from any source, once through; ``y`` is not used.

        A second fit forgets the first, and must not move an index that weights may know: every value and position
        of the first keeps its index, or ``renumber`` says that whatever was trained on the first is given up. A
        clone is not fitted, so scikit-learn's searches and validations need not say it. Statistics of numbers may
        change; weights know them by fingerprint.

        With an ``engine`` (`Local()`, `Ray()`) its workers count the row groups of files, or slices of tables, and
        what comes out is the same bit for bit. The values of a large column are shared out among them; the finished
        vocabularies are held here, but for those that a ``spill`` keeps in files (`PartitionedVocabulary`).
        ``progress`` shows a bar over the pieces: True, or None on a terminal.

        Raises
        ------
        EmptySourceError
            When there are no rows.
        ColumnError, KeyTypeError, DataError
            When a column is not there or does not hold what the schema says.
        LineageError
            When an index would move, unless ``renumber`` allows it; the encoder stays as it was.
        EngineError
            When the engine lost workers too often.
        """
        del y
        if engine is None and spill is None:
            self._learn(source, None, stay=not renumber)
            return self
        if spill is not None and not isinstance(spill, Spill):
            raise DataError(f"FeatureEncoder.fit: expected spill to be a Spill, got {spill!r}. Pass Spill(folder).")
        opened = open_source(source, folder_types(self.schema))
        with ExitStack() as held:
            # On an error it is emptied, once the threads have ended, so that the fit can be tried again.
            place = None if spill is None else held.enter_context(spill.claimed())
            above = 0 if spill is None else spill.above
            with threads_unless(engine) as workers:
                learned = learn_on(workers, self.schema, opened, place=place, above=above, progress=progress)
            self._take(*learned, stay=not renumber)
        return self

    def partial_fit(self, source: Any, y: object = None) -> FeatureEncoder:
        """Learn from more rows, so that all that was learned keeps its meaning; the first call is `fit`.

        New values are appended to the vocabularies: ``min_count`` applies to their count in ``source``,
        ``max_size`` to the grown vocabulary. New positions are no longer unknown. The statistics of a `Numeric`
        stay, unless there was no number before.

        Raises
        ------
        SchemaError
            When ``schema`` was replaced since the fit.
        """
        del y
        if not self.__sklearn_is_fitted__():
            return self.fit(source)
        state = self.to_state()
        if self.schema != state.schema:
            raise SchemaError(
                "FeatureEncoder.partial_fit: expected the schema of the fit, got another one. Fit a new encoder."
            )
        self._learn(source, state)
        return self

    def _learn(self, source: Any, previous: EncoderState | None, *, stay: bool = False) -> None:
        learning = Learning(self.schema, previous)
        opened = open_source(source, folder_types(self.schema))
        with crew(opened.num_rows) as hands:
            state = learning.learn(opened, hands)
        self._take(learning.num_rows if previous is None else None, state, stay=stay)

    def _take(self, num_rows: int | None, state: EncoderState, *, stay: bool) -> None:
        """Be fitted on so many rows; None for rows on top of others."""
        if num_rows == 0:
            raise EmptySourceError("FeatureEncoder.fit: expected at least one row, got none. Check the source.")
        if stay and self.__sklearn_is_fitted__():
            check_indices_stay(self.state_, state)
        self._restore(state)

    def _restore(self, state: EncoderState) -> None:
        self.state_ = state
        self.row_encoder_ = RowEncoder(state)

    def transform(self, source: Any, *, with_label: bool = True) -> Batch:
        """Encode all rows of a source.

        Parameters
        ----------
        source
            Anything that `open_source` takes; no rows are fine.
        with_label
            Read the label and the weight, where the schema declares them and the source has them.

        Returns
        -------
        Batch
            One row per row of the source, in its order.

        Raises
        ------
        DataError
            When a label, a weight or a number is not finite, with the column and the number of rows.
        """
        encoder = self.row_encoder
        opened = open_source(source, encoder.types)
        answers = Answers.of(self.state_.schema, opened) if with_label else Answers()
        return encoder.encode_all(opened, answers)

    def transform_to(
        self,
        source: Any,
        folder: str | os.PathLike[str],
        *,
        engine: Engine | None = None,
        with_label: bool = True,
        progress: bool | None = None,
    ) -> EncodedRows:
        """Encode all rows of a source into a folder of Parquet parts, for rows that do not fit into memory.

        A part is named after the file and the row group that it came from. It is written beside its name and renamed,
        and the manifest comes last: a task that is done twice, or a run that is repeated, ends in the same folder, and
        one that was broken off is refused by the reader.

        Parameters
        ----------
        source
            Anything that `open_source` takes.
        folder
            Path or URI of an empty folder, or of one of encoded rows, whose parts are replaced; made if it is not
            there. With workers on several machines, all of them must see it under this name.
        engine
            Where to do it; None takes the threads of this process.
        with_label
            Read the label and the weight, where the schema declares them and the source has them.
        progress
            True shows a bar over the parts, None only on a terminal.

        Returns
        -------
        EncodedRows
            A source for `BatchLoader`; ``read(encoder)`` is what `transform` gives.

        Raises
        ------
        DataError
            As `transform`, also naming the row group; or when the folder holds anything else, or lies where the next
            reading of ``source`` would find it; or when a file of ``source`` was written meanwhile.
        EngineError
            When the engine lost workers too often.
        """
        state = self.to_state()
        place = locate(path_text(folder, "FeatureEncoder.transform_to: folder"))
        opened = open_source(source, self.row_encoder.types)
        refuse_output_in(source, place)
        with threads_unless(engine) as workers:
            return transform_on(workers, state, opened, folder, with_label=with_label, progress=progress)

    def transform_row(self, row: Mapping[str, Any]) -> Batch:
        """Encode one row, as a server receives it: in some ten microseconds instead of a hundred.

        Parameters
        ----------
        row
            A value, or a list of values, by column name. Columns that the schema does not name are ignored, and so
            are the label and the weight.

        Returns
        -------
        Batch
            What `transform` makes of a table of this one row, ``with_label=False``.

        Raises
        ------
        DataError
            When a column is not there, or does not hold what the schema says; or ``row`` is no mapping.

        Examples
        --------
        >>> from recsys_emb.schema import Categorical, Numeric, Schema
        >>> schema = Schema(user=Categorical("user_id"), user_features=[Numeric("age")])
        >>> encoder = FeatureEncoder(schema).fit({"user_id": ["ann", "bob"], "age": [20, 40]})
        >>> batch = encoder.transform_row({"user_id": "bob", "age": 40})
        >>> batch["user_id"], batch["age"]
        (tensor([4]), tensor([[1., 0.]]))
        """
        if not isinstance(row, Mapping):
            raise DataError(
                f"FeatureEncoder.transform_row: expected a mapping of columns to values, got {type(row).__name__}. "
                "Use transform for tables."
            )
        return self.row_encoder.encode_row(row)

    @property
    def row_encoder(self) -> RowEncoder:
        """What encodes a source piece by piece, for those who cannot hold it all."""
        self.to_state()
        return self.row_encoder_

    def inverse_transform(self, batch: Batch) -> pd.DataFrame:
        """Decode a batch into raw values, and the label and weight if it has them.

        Keys come back exactly and in their own type; reserved indices become missing values, in a nullable dtype
        where integers would turn into floats. Lists come back as lists. Numbers come back as exactly as
        float32 carries their standardised values: to about seven digits of their spread around the mean.

        Raises
        ------
        ColumnError
            When the batch has a column that this encoder does not know.
        IndexRangeError
            When an index is outside its vocabulary.
        """
        schema = self.to_state().schema
        columns = [column for name in batch for column in self._codec(name).decode(batch[name])]
        frame = pd.DataFrame({column.name: column for column in columns}, index=range(len(batch)))
        for name, values in ((schema.label, batch.label), (schema.weight, batch.weight)):
            if name is not None and values is not None:
                frame[name] = values.cpu().numpy()
        return frame

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        """Vocabulary of each `Categorical` and `MultiCategorical`, by feature name; shared ones are one object."""
        state = self.to_state()
        return {feature.name: state.vocabularies[feature.vocabulary_name] for feature in state.schema.keyed}

    @property
    def numeric_statistics(self) -> dict[str, NumericStatistics]:
        """Statistics of each `Numeric`, by feature name."""
        return dict(self.to_state().numeric)

    @property
    def seen_positions(self) -> set[int]:
        """Positions that occurred in the fit."""
        return {position for seen in self.to_state().positions.values() for position in seen}

    @property
    def fingerprint(self) -> str:
        """Hash of the schema and of all that was learned: equal fingerprints encode equally."""
        return self.to_state().fingerprint

    def num_embeddings(self, name: str) -> int:
        """Rows that the table of the feature called ``name`` needs.

        Raises
        ------
        ColumnError
            When there is no such feature.
        """
        state = self.to_state()
        for feature in state.schema.features:
            if isinstance(feature, History) and feature.name == name:
                return self.num_embeddings(feature.item)
        return self._codec(name).num_embeddings

    def _codec(self, name: str) -> ColumnCodec:
        codecs = self.row_encoder.codecs
        if name not in codecs:
            names = list(codecs)
            raise ColumnError(
                f"FeatureEncoder: expected one of {listed(names)}, got {name!r}.{did_you_mean(name, names)}"
            )
        return codecs[name]

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[np.object_]:
        """Names of the columns of a transformed batch; ``input_features`` is not used."""
        del input_features
        return np.array(list(self.row_encoder.codecs), dtype=object)

    def to_state(self) -> EncoderState:
        """All that was learned.

        Raises
        ------
        NotFittedError
            Before a fit.
        """
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("FeatureEncoder: expected a fitted encoder, got an unfitted one. Call fit first.")
        return self.state_

    @classmethod
    def from_state(cls, state: EncoderState) -> FeatureEncoder:
        """Make the encoder that `to_state` described."""
        encoder = cls(state.schema)
        encoder._restore(state)
        return encoder

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save what was learned as a folder of JSON and Parquet, in one step.

        Parameters
        ----------
        path
            Of the folder, or its URI in an object store. Nothing, an empty folder or a saved encoder may be there.

        Raises
        ------
        NotFittedError
            Before a fit.
        ArtifactError
            When something else stands there; it is left as it is.

        Examples
        --------
        >>> import tempfile
        >>> from recsys_emb.schema import Categorical, Schema
        >>> encoder = FeatureEncoder(Schema(user=Categorical("user_id"))).fit({"user_id": ["ann", "bob"]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     encoder.save(folder)
        ...     FeatureEncoder.load(folder).transform({"user_id": ["bob", "eve"]})["user_id"]
        tensor([4, 2])
        """
        # A promise of the encoder, kept by the room above that knows folders.
        importlib.import_module("recsys_emb.artifact.encoders").save_encoder(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FeatureEncoder:
        """Load what `save` wrote; no code in it is run.

        Raises
        ------
        ArtifactError
            When the folder is not one, is damaged or added to, holds a model, or was written by a newer version.
        """
        encoder: FeatureEncoder = importlib.import_module("recsys_emb.artifact.encoders").load_encoder(path)
        return encoder

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is something to encode with."""
        return hasattr(self, "state_")
