"""`Recommender`: the verbs, in raw values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pandas as pd

from recsys_emb.artifact.contents import load_artifact, save_artifact
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import NotFittedError, counted
from recsys_emb.evaluation.ranking import Finder
from recsys_emb.lookup.new_rows import ByFeature, DrawnRows
from recsys_emb.lookup.pretrained import PretrainedVectors
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.reporting.model_report import ModelReport, model_report
from recsys_emb.schema.schema import Schema
from recsys_emb.serving.beginning import check_pretrained
from recsys_emb.serving.exporting import embeddings, explain, predict
from recsys_emb.serving.fitted import Fitted
from recsys_emb.serving.judging import evaluate
from recsys_emb.serving.keeping import pack, unpack
from recsys_emb.serving.learning import Plan
from recsys_emb.serving.lineage import Step
from recsys_emb.serving.memory import pair_of
from recsys_emb.serving.recommending import recommend, similar
from recsys_emb.serving.weights import check_finite
from recsys_emb.training.fitting import Solver
from recsys_emb.training.history import FitHistory
from recsys_emb.training.objective import EarlyStopping, Objective


class Recommender:
    """From a table of interactions to recommendations, all in the caller's own values.

    Parameters
    ----------
    schema
        What the columns mean; it names a user and an item.
    objective
        What to learn. Unless given: `SquaredError` for ratings, `Logistic` for a 0/1 label, and
        `Logistic(negatives=5)` without a label, where every row is a positive.
    solver
        How to learn it. Unless given: `SequentialSGD`, and `Minibatch` where that does not apply.
    epochs
        Passes over the training rows, at most; the objective's default unless given.
    early_stopping
        When to stop before; the objective's default unless given. With ``epochs`` alone the run takes exactly as many.
    pretrained
        Vectors that the rows of a feature begin with, by feature name, as wide as the schema's ``embedding_dim``. They
        are found by key and learn like all others; rows without one begin as ever, and keys that are no value of the
        feature are passed over. What the vectors reach is printed beside the choices below, and
        ``pretrained.coverage(recommender.encoder.vocabularies[name])`` says it again. They serve `fit` and are not
        saved; rows that `partial_fit` appends begin as its ``new_rows`` says.
    seed
        Of everything drawn at random: the same rows, settings and seed give the same model.
    progress
        True shows a progress bar, None only on a terminal; False also keeps the choice of objective and solver
        from being printed to standard error.

    Attributes
    ----------
    encoder : FeatureEncoder
    model : MatrixFactorization
    history : FitHistory
        Loss and validation by epoch.

    Raises
    ------
    SchemaError
        When the schema has no user or no item, or its tables cannot take the pretrained vectors.

    Notes
    -----
    Every training row counts as seen, whatever its label: who saw an item and disliked it is not offered it again.
    The catalogue is the items of the training rows that the vocabulary holds; a value that ``min_count`` or
    ``max_size`` cut off is unknown, like one that training did not see, and nobody is remembered to have seen it.
    A user or item that training did not know is scored by the unknown row, with missing features, and flagged
    ``known=False``; all unknown values of a feature score alike, unless it spreads them over `UnknownBuckets`.

    Examples
    --------
    >>> from recsys_emb.schema import Categorical
    >>> frame = pd.DataFrame(
    ...     {
    ...         "user": ["ann", "ann", "bob", "bob", "cy"],
    ...         "film": [1, 2, 1, 3, 2],
    ...         "stars": [5, 1, 4, 2, 1],
    ...     }
    ... )
    >>> schema = Schema(user=Categorical("user"), item=Categorical("film"), label="stars", embedding_dim=4)
    >>> recommender = Recommender(schema, epochs=30, progress=False).fit(frame)
    >>> recommender.recommend(["cy", "zoe"], k=2)[["user", "film", "rank", "known"]]
      user  film  rank  known
    0   cy     1     1   True
    1   cy     3     2   True
    2  zoe     1     1  False
    3  zoe     3     2  False
    """

    def __init__(
        self,
        schema: Schema,
        *,
        objective: Objective | None = None,
        solver: Solver | None = None,
        epochs: int | None = None,
        early_stopping: EarlyStopping | None = None,
        pretrained: Mapping[str, PretrainedVectors] | None = None,
        seed: int = 0,
        progress: bool | None = None,
    ) -> None:
        pair_of(schema)
        given = dict(pretrained or {})
        check_pretrained(schema, given)
        self.schema = schema
        self._plan = Plan(objective, solver, epochs, early_stopping, seed, progress, given)
        self._fitted: Fitted | None = None

    def __repr__(self) -> str:
        """Say in a line what it is about, what it learns and what it knows."""
        user, item = pair_of(self.schema)
        fitted = self._fitted
        objective = self._plan.objective if fitted is None else fitted.objective
        said = [f"{user.name!r} × {item.name!r}", *([] if objective is None else [repr(objective)])]
        if fitted is None:
            said.append("not fitted")
        else:
            known = counted(len(fitted.memory.users), "user"), counted(len(fitted.memory.items), "item")
            rows = sum(step.rows for step in fitted.lineage)
            said.append(f"fitted: {', '.join(known)}, {counted(rows, 'row')}")
        return f"Recommender({', '.join(said)})"

    @property
    def encoder(self) -> FeatureEncoder:
        """The fitted encoder: schema, vocabularies, statistics."""
        return self._known().encoder

    @property
    def model(self) -> MatrixFactorization:
        """The trained model, an ordinary `torch.nn.Module`, to look at or to train on.

        Requests follow what torch does to its weights. Torch knows nothing of what is written through ``.data`` or
        numpy: call `torch.autograd.graph.increment_version` on the weight then.
        """
        return self._known().model

    @property
    def history(self) -> FitHistory:
        """How the last fit went, epoch by epoch."""
        return self._known().history

    @property
    def lineage(self) -> tuple[Step, ...]:
        """Where the model comes from: its fit, then every `partial_fit`, each with the fingerprint that it led to."""
        return self._known().lineage

    # --- learning ----------------------------------------------------------------------------------------------

    def fit(
        self,
        train: Any,
        *,
        validation: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | timedelta = 1,
    ) -> Recommender:
        """Learn vocabularies, then the model.

        Parameters
        ----------
        train
            Interactions: a pandas or Polars frame, an Arrow table or dataset, or Parquet files. They are read twice,
            which a one-shot Arrow reader refuses.
        validation
            Interactions to stop early by, and to choose the best epoch. Without them a share of ``train`` serves,
            and the model is then fitted again on all of ``train``.
        checkpoint
            A folder, or its URI, for the state of the run. A fit that was killed, at any moment, goes on from there
            when it is called again with the same rows and settings, and ends with the bits that it would have ended
            with; a finished one is read back. Training on a GPU may round otherwise each time.
        every
            Epochs between two checkpoints, or a `datetime.timedelta`, which takes them within epochs too.

        Raises
        ------
        EmptySourceError
            When ``train`` has no rows.
        ColumnError, KeyTypeError, DataError, FitError
            When a column is not there, or holds what cannot be learned from.
        ArtifactError
            When ``checkpoint`` is that of another schema, other rows or other settings, or is damaged.

        Notes
        -----
        Row weights say how rows compare; they are scaled to a mean of 1 over the rows learned. Values that
        ``min_count`` or ``max_size`` cut off are unknown, and what stands with them is not remembered as seen.

        An interrupt from the keyboard while it trains ends the fit with a warning and leaves a usable model.
        """
        self._fitted = self._plan.fit(self.schema, train, validation, checkpoint, every)
        return self

    def partial_fit(self, more: Any, *, new_rows: ByFeature = DrawnRows()) -> Recommender:
        """Learn from more rows: new users and items are appended, and training goes on, on these rows alone.

        Indices keep their meaning, and the features that ``more`` states of known users and items win. What has
        learned before moves in proportion to how much of what is known of it is new, so that the earlier rows are
        not forgotten; negatives are drawn knowing all rows so far. Unless `epochs` or `early_stopping` were given,
        training takes as many epochs as early stopping would at least. Until it succeeds, the recommender stays as
        it is. The first call is `fit`.

        Parameters
        ----------
        more
            Interactions, as in `fit`.
        new_rows
            How the rows of new values begin, for all features or by feature name: `DrawnRows` (as at birth),
            `ZeroRows`, `MeanRows`, `InheritedRows` (what the unknown row knew) or `PretrainedRows`.

        Warns
        -----
        UserWarning
            When ratings are far off the scale of those so far.
        """
        if self._fitted is None:
            return self.fit(more)
        self._fitted = self._plan.extend(self._fitted, more, new_rows)
        return self

    # --- answering ---------------------------------------------------------------------------------------------

    def predict(self, frame: Any) -> pd.Series:
        """Predict a rating, a probability or a score for every row, as the objective means it.

        Parameters
        ----------
        frame
            Any source with the columns of user, item, their features, context and position, null as the missing row;
            the label is not read. Or what `recommend` answered: the columns that it has not are as it scored them.

        Returns
        -------
        pandas.Series
            float64, named ``"score"``, with the frame's index. Ratings are within the range of the training label.

        Raises
        ------
        ColumnError
            When a column is not there.
        """
        return predict(self._ready(), frame)

    def recommend(
        self,
        users: Any = None,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        candidates: Any = None,
        history: Any = None,
        items: Any = None,
        index: Finder | None = None,
    ) -> pd.DataFrame:
        """Give every user the k best items.

        Parameters
        ----------
        users
            A list of users; repeats are answered again, in the order asked. None for those of ``history``.
        k
            At least 1. A user gets fewer when fewer are left.
        exclude_seen
            Leave out what stands with the user in the training rows, for users and items that the vocabulary holds:
            values that ``min_count`` or ``max_size`` cut off are unknown, and nothing is remembered of them.
        candidates
            A list of items to choose from; None for the catalogue, which is the items of the training rows that the
            vocabulary holds. Each distinct item counts once, and missing values are no items.
        history
            A frame of interactions of users that training did not know, or knew less well: the item, the label if
            the model learns one, the user unless all rows are one nameless stranger's, and whatever features there
            are. These users are folded in without training: their vector and bias solve the training objective for
            these rows with everything else as it is (see `recsys_emb.serving.folding`). What stands in it counts as
            seen. Users of the list without rows in it are answered as ever.
        items
            A frame of items with their features, instead of ``candidates``: what it says of them is what counts, so
            that items which training did not know are scored by their features.
        index
            An `recsys_emb.integrations.ann.ApproximateIndex`, which looks for the best of the whole catalogue without
            scanning it. Scores and what is left out are exact as ever; a few of the best may be missed. Given
            ``candidates`` or ``items`` are scanned all the same.

        Returns
        -------
        pandas.DataFrame
            The user, the item, ``"score"``, ``"rank"`` (1 is best) and ``"known"``: whether training knew both. The
            score is that of `predict` at the position's ``serve_at``, with what the training rows last said about
            user and item; the context of a request is missing. Ties are in an order that depends on the item alone.
            With ``history`` or ``items`` two more columns say what an answer rests on: ``"user_route"`` is
            ``"trained"``, ``"history"`` or ``"unknown"``, ``"item_route"`` ``"trained"``, ``"features"`` or
            ``"unknown"``.

        Raises
        ------
        DataError
            When ``users`` or ``candidates`` is not a list, ``k`` not an integer of at least 1, or a history cannot be
            learned from.
        ColumnError
            When ``history`` or ``items`` lacks a column.
        KeyTypeError
            When the values are of another type than in training: text against integers.
        FitError
            When the model holds weights that are not finite.
        """
        said = {"candidates": candidates, "history": history, "items": items, "index": index}
        return recommend(self._ready(), users, k, exclude_seen=exclude_seen, **said)

    def similar(self, items: Any, k: int = 10, *, index: Finder | None = None) -> pd.DataFrame:
        """Give every item the k most similar others, by the cosine of item-side vectors without the position.

        Parameters
        ----------
        items
            A list of items of the training rows that the vocabulary holds.
        k
            At least 1.
        index
            As in `recommend`.

        Returns
        -------
        pandas.DataFrame
            The item, the similar one (``"similar_"`` and the item's column), ``"score"`` in [-1, 1] and ``"rank"``.

        Raises
        ------
        UnknownValueError
            Listing the items that training did not know, or that ``min_count`` or ``max_size`` cut off.
        """
        return similar(self._ready(), items, k, index=index)

    def explain(self, frame: Any) -> pd.DataFrame:
        """Take the predictions for the rows of a frame apart; it is read as by `predict`.

        Returns
        -------
        pandas.DataFrame
            With the frame's index: ``"offset"``, ``"bias:<feature>"`` of every feature, ``"interaction"``;
            ``"clipping"`` where ratings are clipped; and ``"score"``, their sum to the rounding of float64. With
            `Logistic` these are log odds, and ``"probability"`` stands beside them.
        """
        return explain(self._ready(), frame)

    def embeddings(self, name: str) -> pd.DataFrame:
        """Export a feature's vectors: a row per value of its vocabulary, with its ``"vector"``, float32 ``(D,)``.

        Another recommender begins with them by ``pretrained={name: PretrainedVectors.from_frame(...)}``.

        Raises
        ------
        ColumnError
            When there is no such feature, or it has no vocabulary.
        """
        return embeddings(self._ready(), name)

    # --- judging -----------------------------------------------------------------------------------------------

    def evaluate(
        self, frame: Any, k: int = 10, *, relevant_at: float | None = None, exclude_seen: bool = True
    ) -> dict[str, float]:
        """Judge predictions and recommendations by the rows of a frame.

        Parameters
        ----------
        frame
            Any source with the feature columns and, if the schema declares one, the label.
        k
            Length of the recommended lists.
        relevant_at
            Rows with a label of at least this show something relevant. Unless given: rows of label 1 where the
            training label is 0 or 1, all rows otherwise.
        exclude_seen
            Recommend as `recommend` does by default. A relevant item that the training rows hold cannot be
            recommended then and counts as missed; say False where a test repeats pairs of the training rows.

        Returns
        -------
        dict
            ``rmse`` and ``mae`` of ratings, or ``auc`` and ``log_loss`` of a 0/1 label (``auc`` alone with
            negatives), over all rows, each at its own position. Of the ranking of the whole catalogue at the
            position's ``serve_at``: ``recall``, ``ndcg``, ``mrr``, ``hit_rate``, means over the ``n_evaluated``
            users to whom something is relevant; ``n_skipped`` users have nothing relevant. ``n_rows`` rows in all.
            What cannot be said is NaN, with a warning.

        Raises
        ------
        ColumnError
            When the schema declares a label and the frame has none.

        Warns
        -----
        RepeatedPairsWarning
            When ``exclude_seen`` counts most of the relevant pairs as missed.
        """
        return evaluate(self._ready(), frame, k, relevant_at=relevant_at, exclude_seen=exclude_seen)

    def report(self) -> ModelReport:
        """Report on the tables: rows that never learned, reserved rows, norms by popularity, memory.

        Occurrences of reserved rows, positions and numbers are those of all training rows, growths included; they are
        kept with the recommender, but not by versions before 2 of the format.

        Returns
        -------
        ModelReport
            Print it, or take ``to_frame()``, ``plot()`` or ``to_html(path)``. A reserved row that is served and
            never learned gives a warning line.
        """
        fitted = self._known()
        return model_report(fitted.model, fitted.encoder, fitted.occurrences)

    # --- keeping -----------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write everything needed to serve and to go on training into a folder: JSON, Parquet and safetensors.

        The folder appears, or replaces an earlier one, in one step: a reader finds the old model or the new one.

        Parameters
        ----------
        folder
            A path, or the URI of a folder in an object store (``s3://bucket/model``), without credentials in it.

        Warns
        -----
        UserWarning
            When the solver has an optimizer of the caller's own, or the solver or rule for stopping is itself the
            caller's. It is not saved, and the loaded recommender chooses for itself where training goes on. When
            the objects of an earlier save cannot be removed from a store.

        Raises
        ------
        ArtifactError
            When something other than a saved recommender stands there, the objective is not one of this library, or a
            store does not answer.
        """
        save_artifact(folder, pack(self._plan, self._ready()))

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, mapped: bool = True) -> Recommender:
        """Read what `save` wrote, or an earlier version of it. Nothing in the folder is executed.

        Parameters
        ----------
        folder
            The folder, or its URI; every file in it is checked against its hash.
        mapped
            Map the weights into memory: rows are read when they are touched, and processes that serve the same folder
            share them. `save` may replace the folder meanwhile, and it may be removed; do not write into its files,
            or say False, which reads them. What is in a store is read, by way of the temporary folder.

        Raises
        ------
        ArtifactError
            When it is not a saved recommender, was written by a newer version, or is damaged.
        """
        plan, fitted = unpack(load_artifact(folder, mapped=mapped))
        recommender = cls(fitted.schema)
        recommender._plan, recommender._fitted = plan, fitted
        return recommender

    def _known(self) -> Fitted:
        if self._fitted is None:
            raise NotFittedError("Recommender: expected a fitted recommender, got an unfitted one. Call fit first.")
        return self._fitted

    def _ready(self) -> Fitted:
        """Give what was fitted, if its weights can be trusted."""
        fitted = self._known()
        check_finite(fitted.model)
        return fitted
