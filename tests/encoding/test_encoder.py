from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import (
    ColumnError,
    DataError,
    EmptySourceError,
    IndexRangeError,
    KeyTypeError,
    NotFittedError,
    SchemaError,
    UnknownValueError,
)
from recsys_emb.schema import (
    Categorical,
    History,
    MultiCategorical,
    Numeric,
    Position,
    RefuseUnknown,
    Schema,
    UnknownBuckets,
)
from recsys_emb.vocabulary.reserved import MISSING_INDEX, UNKNOWN_INDEX

SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    position=Position("slot", max_position=9),
    user_features=[Numeric("age"), MultiCategorical("recent", vocabulary="item")],
    item_features=[MultiCategorical("tags", weights="tag_weights")],
    label="rating",
    weight="importance",
)
FRAME = pd.DataFrame(
    {
        "rating": [4.0, 3.5, 1.0],
        "user": [70, 90, 70],
        "item": ["b", "a", "b"],
        "slot": [0, 2, 9],
        "age": [30.0, np.nan, 40.0],
        "recent": [["a", "c"], [], None],
        "tags": [["x", "y"], None, ["y"]],
        "tag_weights": [[0.5, 1.0], None, [2.0]],
        "importance": [1.0, 0.0, 2.0],
        "junk": [object(), object(), object()],
    }
)


@pytest.fixture(scope="module")
def encoder() -> FeatureEncoder:
    return FeatureEncoder(SCHEMA).fit(FRAME)


def one_column(*values: object, dtype: object = None) -> pd.DataFrame:
    return pd.DataFrame({"user": pd.Series(list(values), dtype=dtype)})


def users(**options: object) -> Schema:
    return Schema(user=Categorical("user", **options))


def assert_equal(got: Batch, expected: Batch) -> None:
    assert got.names == expected.names
    for name in got:
        left, right = got[name], expected[name]
        if isinstance(left, Jagged):
            assert isinstance(right, Jagged)
            assert left.to_lists() == right.to_lists()
            assert (left.weights is None) == (right.weights is None)
            assert left.weights is None or torch.equal(left.weights, right.weights)
        else:
            assert torch.equal(left, right)
    assert (got.label is None) == (expected.label is None)
    assert got.label is None or torch.equal(got.label, expected.label)


# --- values to tensors -------------------------------------------------------------------------------------------


def test_a_frame_becomes_tensors_of_the_promised_types_and_shapes(encoder: FeatureEncoder) -> None:
    batch = encoder.transform(FRAME)
    assert batch.names == ("user", "age", "recent", "item", "tags", "slot")
    assert batch.indices("user").tolist() == [3, 4, 3]
    # "b" occurs twice, "a" once in either column, "c" once.
    assert batch.indices("item").tolist() == [4, 3, 4]
    assert batch.lists("recent").to_lists() == [[3, 5], [], []]
    assert batch.indices("slot").tolist() == [3, 5, 12]
    assert batch.indices("age").tolist() == [[-1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    assert batch.lists("tags").to_lists() == [[4, 3], [], [3]]
    weights = batch.lists("tags").weights
    assert weights is not None
    assert weights.tolist() == [0.5, 1.0, 2.0]
    assert batch.label is not None
    assert batch.label.tolist() == [4.0, 3.5, 1.0]
    assert batch.weight is not None
    assert batch.weight.tolist() == [1.0, 0.0, 2.0]
    types = {name: batch.lists(name).values.dtype for name in ("recent", "tags")}
    types |= {name: batch.indices(name).dtype for name in ("user", "item", "slot")}
    assert set(types.values()) == {torch.int64}
    assert {batch.indices("age").dtype, batch.label.dtype, batch.weight.dtype, weights.dtype} == {torch.float32}


def test_the_limits_of_a_batch_are_the_table_sizes(encoder: FeatureEncoder) -> None:
    sizes = {"user": 5, "age": 2, "recent": 6, "item": 6, "tags": 5, "slot": 13}
    assert encoder.transform(FRAME).limits == sizes
    assert {name: encoder.num_embeddings(name) for name in sizes} == sizes


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_any_number_of_rows_has_the_right_widths(encoder: FeatureEncoder, rows: int) -> None:
    batch = encoder.transform(FRAME.iloc[:rows])
    assert len(batch) == rows
    assert batch.indices("age").shape == (rows, 2)
    assert len(batch.lists("tags")) == rows
    assert batch.indices("user").dtype == torch.int64
    assert len(encoder.inverse_transform(batch)) == rows


def test_many_pieces_encode_like_one(encoder: FeatureEncoder) -> None:
    pieces = [FRAME.iloc[[0]], pa.Table.from_pandas(FRAME.iloc[[1]].drop(columns="junk")), FRAME.iloc[[2]]]
    assert_equal(encoder.transform(pieces), encoder.transform(FRAME))


def test_the_callers_frame_is_not_changed(encoder: FeatureEncoder) -> None:
    frame = FRAME.drop(columns="junk").set_axis([3, 0, 0])
    copy = frame.copy(deep=True)
    encoder.transform(frame)
    FeatureEncoder(SCHEMA).fit(frame)
    pd.testing.assert_frame_equal(frame, copy)


def test_missing_and_unknown_values_take_their_own_rows(encoder: FeatureEncoder) -> None:
    strange = FRAME.assign(user=[None, 71, 70], item=["z", None, "b"], slot=[None, 1, 10])
    batch = encoder.transform(strange)
    assert batch.indices("user").tolist() == [MISSING_INDEX, UNKNOWN_INDEX, 3]
    assert batch.indices("item").tolist() == [UNKNOWN_INDEX, MISSING_INDEX, 4]
    assert batch.indices("slot").tolist() == [MISSING_INDEX, UNKNOWN_INDEX, UNKNOWN_INDEX]


def test_unknown_values_are_spread_over_buckets_if_declared() -> None:
    encoder = FeatureEncoder(users(unknown=UnknownBuckets(4))).fit(one_column(1, 2))
    indices = encoder.transform(one_column(*range(100, 200))).indices("user")
    assert set(indices.tolist()) == {2, 3, 4, 5}
    assert encoder.num_embeddings("user") == 8


def test_unknown_values_are_refused_if_declared() -> None:
    encoder = FeatureEncoder(users(unknown=RefuseUnknown())).fit(one_column(1, 2))
    with pytest.raises(UnknownValueError, match=r"^user: expected values of the vocabulary, got 7\."):
        encoder.transform(one_column(1, 7))


def test_min_count_and_max_size_hold_together() -> None:
    frame = one_column(*"aaabbbccd")
    assert len(FeatureEncoder(users(min_count=2, max_size=2)).fit(frame).vocabularies["user"]) == 2
    assert len(FeatureEncoder(users(min_count=3)).fit(frame).vocabularies["user"]) == 2


def test_a_declared_type_converts_the_column() -> None:
    encoder = FeatureEncoder(users(dtype="int64")).fit(one_column("07", "8", "7"))
    assert encoder.vocabularies["user"].values.to_pylist() == [7, 8]
    assert encoder.transform(one_column(7.0, np.nan)).indices("user").tolist() == [3, MISSING_INDEX]
    assert encoder.transform(one_column("8", dtype="category")).indices("user").tolist() == [4]
    with pytest.raises(DataError) as caught:
        encoder.transform(one_column("x"))
    assert str(caught.value) == (
        "user: expected values that are int64, got an error: Failed to parse string: 'x' as a scalar of type int64. "
        "Correct them, or leave dtype= out."
    )


def test_a_declared_type_must_be_one() -> None:
    with pytest.raises(SchemaError) as caught:
        FeatureEncoder(users(dtype="integer")).fit(one_column(1))
    assert str(caught.value) == (
        "Categorical('user'): expected dtype to name an Arrow type, got 'integer'. Write for instance dtype='int64'."
    )


# --- shared vocabularies -----------------------------------------------------------------------------------------


def test_columns_that_share_a_vocabulary_are_counted_together_and_hold_one_object(encoder: FeatureEncoder) -> None:
    vocabularies = encoder.vocabularies
    assert vocabularies["recent"] is vocabularies["item"]
    assert dict(zip(vocabularies["item"].values.to_pylist(), vocabularies["item"].counts, strict=True)) == {
        "a": 2,
        "b": 2,
        "c": 1,
    }


def test_values_beyond_the_cut_of_a_list_are_not_learned() -> None:
    schema = Schema(context_features=[MultiCategorical("tags", max_length=2, keep="first")])
    frame = pd.DataFrame({"tags": [["a", "b", "never"], ["a"]]})
    encoder = FeatureEncoder(schema).fit(frame)
    assert encoder.vocabularies["tags"].values.to_pylist() == ["a", "b"]
    assert encoder.transform(frame).lists("tags").to_lists() == [[3, 4], [3]]


# --- tensors to values -------------------------------------------------------------------------------------------


def test_the_inverse_gives_raw_values_back(encoder: FeatureEncoder) -> None:
    decoded = encoder.inverse_transform(encoder.transform(FRAME))
    expected = FRAME.assign(
        recent=[["a", "c"], [], []],
        tags=[["x", "y"], [], ["y"]],
        tag_weights=[[0.5, 1.0], [], [2.0]],
        rating=FRAME["rating"].astype("float32"),
        importance=FRAME["importance"].astype("float32"),
    )
    pd.testing.assert_frame_equal(decoded, expected[list(decoded.columns)])
    features = ["user", "age", "recent", "item", "tags", "tag_weights", "slot"]
    assert list(decoded.columns) == [*features, "rating", "importance"]
    assert_equal(encoder.transform(decoded), encoder.transform(FRAME))


def test_reserved_indices_decode_to_missing_and_integers_stay_integers(encoder: FeatureEncoder) -> None:
    batch = Batch({"user": torch.tensor([0, 1, 2, 4]), "slot": torch.tensor([0, 1, 2, 3])})
    decoded = encoder.inverse_transform(batch)
    assert decoded["user"].tolist() == [pd.NA, pd.NA, pd.NA, 90]
    assert decoded["slot"].tolist() == [pd.NA, pd.NA, pd.NA, 0]
    assert [str(dtype) for dtype in decoded.dtypes] == ["Int64", "Int64"]


BIG = 2**60 + 1
KEYS = {
    "int64": (st.integers(-(2**63), 2**63 - 1), "int64"),
    "uint64": (st.integers(0, 2**64 - 1), "uint64"),
    "nullable": (st.one_of(st.none(), st.integers(BIG, BIG + 3)), "Int64"),
    "text": (st.one_of(st.none(), st.text(max_size=4)), object),
    "bytes": (st.one_of(st.none(), st.binary(max_size=4)), object),
    "boolean": (st.one_of(st.none(), st.booleans()), "boolean"),
    "date": (st.one_of(st.none(), st.dates()), object),
    "time": (st.one_of(st.none(), st.times()), object),
    "uuid": (st.one_of(st.none(), st.uuids()), object),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_kind_come_back_exactly(kind: str) -> None:
    strategy, dtype = KEYS[kind]

    @given(st.lists(strategy, min_size=1, max_size=8))
    @settings(max_examples=15, deadline=None)
    def check(values: list[object]) -> None:
        frame = one_column(*values, dtype=dtype)
        encoder = FeatureEncoder(users()).fit(frame)
        decoded = encoder.inverse_transform(encoder.transform(frame))["user"]
        assert [None if pd.isna(value) else value for value in decoded] == values

    check()


def test_numbers_come_back_to_the_digits_of_float32() -> None:
    prices = [4.99, 33.0, -0.05, 1234.56, 0.0]
    encoder = FeatureEncoder(Schema(context_features=[Numeric("price")])).fit({"price": prices})
    assert encoder.inverse_transform(encoder.transform({"price": prices}))["price"].tolist() == prices


def test_huge_numbers_come_back_without_a_warning() -> None:
    encoder = FeatureEncoder(Schema(context_features=[Numeric("mass")])).fit({"mass": [1e300, 1e300]})
    assert encoder.inverse_transform(encoder.transform({"mass": [1e300]}))["mass"].tolist() == [1e300]


def test_timestamps_keep_their_zone_and_unit() -> None:
    stamps = pd.Series(pd.to_datetime(["2024-03-31 02:30", None], utc=True)).astype("datetime64[ns, UTC]")
    encoder = FeatureEncoder(users()).fit(pd.DataFrame({"user": stamps}))
    decoded = encoder.inverse_transform(encoder.transform(pd.DataFrame({"user": stamps})))["user"]
    assert decoded[0] == stamps[0]
    assert decoded[1] is pd.NaT


def test_an_index_outside_the_table_is_refused(encoder: FeatureEncoder) -> None:
    with pytest.raises(IndexRangeError, match=r"^user: expected indices in \[0, 5\), got 5\."):
        encoder.inverse_transform(Batch({"user": torch.tensor([5])}))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"usr": torch.tensor([3])},
            "FeatureEncoder: expected one of 'user', 'age', 'recent', 'item', 'tags' and 1 more, got 'usr'. "
            "Did you mean 'user'?",
        ),
        (
            {"user": Jagged.from_lists([[3]])},
            "user: expected one index per row, got lists. Encode with this encoder.",
        ),
        (
            {"tags": torch.tensor([3])},
            "tags: expected lists of indices, got one per row. Encode with this encoder.",
        ),
        (
            {"age": torch.tensor([3.0])},
            "age: expected float32 (B, 2), got shape (1,). Encode with this encoder.",
        ),
    ],
)
def test_a_batch_of_another_encoder_is_refused(
    encoder: FeatureEncoder, columns: dict[str, object], message: str
) -> None:
    with pytest.raises(ColumnError) as caught:
        encoder.inverse_transform(Batch(columns))
    assert str(caught.value) == message


# --- labels ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", ["rating", "importance"])
def test_labels_and_weights_are_read_only_where_they_are(encoder: FeatureEncoder, absent: str) -> None:
    batch = encoder.transform(FRAME.drop(columns=absent))
    assert (batch.label is None) == (absent == "rating")
    assert (batch.weight is None) == (absent == "importance")


@pytest.mark.parametrize("rating", [[np.nan] * 3, ["a"] * 3, [np.inf] * 3])
def test_labels_are_not_looked_at_without_being_asked_for(encoder: FeatureEncoder, rating: list[object]) -> None:
    batch = encoder.transform(FRAME.assign(rating=rating, importance=-1), with_label=False)
    assert batch.label is None
    assert batch.weight is None


def test_the_fit_looks_at_no_label() -> None:
    assert FeatureEncoder(SCHEMA).fit(FRAME.drop(columns=["rating", "importance"])).num_embeddings("user") == 5


def test_a_label_in_one_part_is_asked_of_all(encoder: FeatureEncoder) -> None:
    with pytest.raises(ColumnError, match="frame: expected a column 'rating', got 'user'"):
        encoder.transform([FRAME, FRAME.drop(columns="rating")])


def test_boolean_labels_are_zero_and_one(encoder: FeatureEncoder) -> None:
    label = encoder.transform(FRAME.assign(rating=[True, False, True])).label
    assert label is not None
    assert label.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (
            "rating",
            [1.0, np.nan, np.inf],
            "rating: expected finite float32 numbers, got missing, infinite or larger ones in 2 rows (first: row 1). "
            "Correct or drop such rows.",
        ),
        (
            "rating",
            [1e39, 1.0, 1.0],
            "rating: expected finite float32 numbers, got missing, infinite or larger ones in 1 row (first: row 0). "
            "Correct or drop such rows.",
        ),
        ("rating", ["4.0", "3", "1"], "rating: expected numbers, got text in 3 rows. Convert the column to numbers."),
        (
            "importance",
            [1, -1, -2],
            "importance: expected weights of at least 0, got negative ones in 2 rows (first: row 1). "
            "Correct or drop such rows.",
        ),
        (
            "age",
            [1, np.inf, 2],
            "age: expected finite numbers, got infinity in 1 row (first: row 1). Correct or drop such rows.",
        ),
        ("age", ["x", None, "y"], "age: expected numbers, got text in 2 rows. Convert the column to numbers."),
        (
            "age",
            [1e300, 1, 1],
            "age: expected numbers within float32 of the fit, got larger ones in 1 row (first: row 0). "
            "Correct or drop such rows.",
        ),
        (
            "tag_weights",
            [[1.0], None, [2.0]],
            "tag_weights: expected a weight per value of 'tags', got another number in 1 row (first: row 0). "
            "Correct or drop such rows.",
        ),
        (
            "tag_weights",
            [[1.0, 1.0], None, [-2.0]],
            "tag_weights: expected finite weights of at least 0, got others in 1 row (first: row 2). "
            "Correct or drop such rows.",
        ),
        (
            "tag_weights",
            [[1.0, None], None, [2.0]],
            "tag_weights: expected finite weights of at least 0, got others in 1 row (first: row 0). "
            "Correct or drop such rows.",
        ),
    ],
)
def test_numbers_that_would_spoil_a_training_are_refused_with_column_and_count(
    encoder: FeatureEncoder, column: str, values: list[object], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        encoder.transform(FRAME.assign(**{column: values}))
    assert str(caught.value) == message


def test_rows_are_counted_within_their_file(encoder: FeatureEncoder, tmp_path: Path) -> None:
    for name, rating in (("a", [1.0, 2.0, 3.0]), ("b", [1.0, np.nan, 2.0])):
        FRAME.drop(columns="junk").assign(rating=rating).to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(DataError) as caught:
        encoder.transform(tmp_path)
    assert str(caught.value) == (
        "b.parquet: rating: expected finite float32 numbers, got missing, infinite or larger ones in 1 row "
        "(first: row 1). Correct or drop such rows."
    )


# --- fitting -----------------------------------------------------------------------------------------------------


def test_a_fit_without_rows_is_refused() -> None:
    with pytest.raises(EmptySourceError) as caught:
        FeatureEncoder(SCHEMA).fit(FRAME.iloc[:0])
    assert str(caught.value) == "FeatureEncoder.fit: expected at least one row, got none. Check the source."


def test_a_failed_fit_leaves_the_encoder_as_it_was(encoder: FeatureEncoder) -> None:
    fitted = FeatureEncoder.from_state(encoder.to_state())
    with pytest.raises(KeyTypeError):
        fitted.partial_fit(FRAME.assign(user=["text"] * 3))
    assert fitted.fingerprint == encoder.fingerprint
    with pytest.raises(ColumnError):
        fitted.fit(FRAME.drop(columns="slot"))
    assert fitted.fingerprint == encoder.fingerprint


@given(order=st.permutations(range(12)), pieces=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_what_is_learned_depends_on_the_rows_alone(order: list[int], pieces: int) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"user": rng.integers(0, 4, 12), "age": rng.normal(size=12), "slot": rng.integers(0, 5, 12)})
    schema = Schema(user=Categorical("user"), user_features=[Numeric("age")], position=Position("slot", max_position=4))
    shuffled = frame.iloc[order]
    parts = [shuffled.iloc[start::pieces] for start in range(pieces)]
    again, once = FeatureEncoder(schema).fit(parts), FeatureEncoder(schema).fit(frame)
    assert again.fingerprint == once.fingerprint
    assert again.numeric_statistics == once.numeric_statistics
    assert again.vocabularies["user"].counts.tolist() == once.vocabularies["user"].counts.tolist()


def test_growing_appends_and_moves_no_index(encoder: FeatureEncoder) -> None:
    grown = FeatureEncoder.from_state(encoder.to_state())
    more = FRAME.assign(user=[5, 90, 6], item=["z", "a", "z"], recent=[["c"], [], []], slot=[4, 4, 4], age=[99, 98, 97])
    assert grown.partial_fit(more) is grown
    assert_equal(grown.transform(FRAME), encoder.transform(FRAME))
    assert grown.transform(more).indices("user").tolist() == [5, 4, 6]
    assert grown.seen_positions == {0, 2, 4, 9}
    assert encoder.seen_positions == {0, 2, 9}
    assert grown.numeric_statistics == encoder.numeric_statistics
    assert grown.fingerprint != encoder.fingerprint


def test_the_first_partial_fit_is_a_fit(encoder: FeatureEncoder) -> None:
    assert FeatureEncoder(SCHEMA).partial_fit(FRAME).fingerprint == encoder.fingerprint
    with pytest.raises(EmptySourceError):
        FeatureEncoder(SCHEMA).partial_fit(FRAME.iloc[:0])


def test_growing_by_no_rows_changes_nothing(encoder: FeatureEncoder) -> None:
    grown = FeatureEncoder.from_state(encoder.to_state()).partial_fit(FRAME.iloc[:0])
    assert grown.fingerprint == encoder.fingerprint


def test_statistics_of_a_number_that_was_never_there_are_learned_late() -> None:
    schema = Schema(context_features=[Numeric("age")])
    encoder = FeatureEncoder(schema).fit({"age": [None, None]}).partial_fit({"age": [10.0, 20.0]})
    assert encoder.numeric_statistics["age"].mean == 15.0


def test_growing_under_another_schema_is_refused(encoder: FeatureEncoder) -> None:
    fitted = FeatureEncoder.from_state(encoder.to_state()).set_params(schema=users())
    with pytest.raises(SchemaError) as caught:
        fitted.partial_fit(FRAME)
    assert str(caught.value) == (
        "FeatureEncoder.partial_fit: expected the schema of the fit, got another one. Fit a new encoder."
    )
    assert fitted.transform(FRAME).names == ("user", "age", "recent", "item", "tags", "slot")


def test_fitting_again_forgets(encoder: FeatureEncoder) -> None:
    fitted = FeatureEncoder.from_state(encoder.to_state()).fit(FRAME.assign(user=[1, 2, 3]), renumber=True)
    assert fitted.vocabularies["user"].values.to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (["a"] * 3, "slot: expected integer positions, got text. Convert the column to integers."),
        ([True] * 3, "slot: expected integer positions, got bool. Convert the column to integers."),
        ([0.5, 1, 2], "slot: expected integer positions, got 0.5. Declare it Numeric, or round it."),
        ([np.inf, 1, 2], "slot: expected integer positions, got inf. Declare it Numeric, or round it."),
    ],
)
def test_positions_must_be_integers_when_fitted(slots: list[object], message: str) -> None:
    with pytest.raises(KeyTypeError) as caught:
        FeatureEncoder(SCHEMA).fit(FRAME.assign(slot=slots))
    assert str(caught.value) == message


def test_positions_are_found_in_any_number_type(encoder: FeatureEncoder) -> None:
    for dtype in ("int8", "uint64", "float32", "Int16", "category", "object"):
        batch = encoder.transform(FRAME.astype({"slot": dtype}))
        assert batch.indices("slot").tolist() == [3, 5, 12]


def test_strange_positions_are_unknown(encoder: FeatureEncoder) -> None:
    for strange in ([-1, 1, 10], [0.5, np.inf, 2.0**63], pd.array([2**63, 3, 4], "UInt64")):
        assert encoder.transform(FRAME.assign(slot=strange)).indices("slot").tolist() == [2, 2, 2]


def test_far_positions_count_as_the_last_if_clamped() -> None:
    schema = Schema(position=Position("slot", max_position=3, clamp=True))
    encoder = FeatureEncoder(schema).fit({"slot": [0, 7]})
    assert encoder.seen_positions == {0, 3}
    assert encoder.transform({"slot": [0, 3, 4, 10**12, -1, 1, None]}).indices("slot").tolist() == [3, 6, 6, 6, 2, 2, 1]


def test_a_history_reads_no_column_and_has_the_table_of_its_items() -> None:
    schema = Schema(user=Categorical("user"), item=Categorical("item"), user_features=[History("item")])
    encoder = FeatureEncoder(schema).fit(FRAME)
    assert encoder.transform(FRAME).names == ("user", "item")
    assert encoder.num_embeddings("item_history") == encoder.num_embeddings("item")


# --- scikit-learn ------------------------------------------------------------------------------------------------


class UserIndices(TransformerMixin, BaseEstimator):
    def fit(self, batch: Batch, y: object = None) -> UserIndices:
        self.fitted_ = True
        return self

    def transform(self, batch: Batch) -> npt.NDArray[np.int64]:
        return batch.indices("user").numpy()


def test_an_unfitted_encoder_says_so_in_both_tongues() -> None:
    for use in (
        lambda encoder: encoder.transform(FRAME),
        lambda encoder: encoder.vocabularies,
        lambda encoder: encoder.num_embeddings("user"),
        lambda encoder: encoder.inverse_transform(Batch({"user": torch.tensor([3])})),
        lambda encoder: encoder.fingerprint,
        lambda encoder: encoder.get_feature_names_out(),
    ):
        with pytest.raises(NotFittedError) as caught:
            use(FeatureEncoder(SCHEMA))
        assert str(caught.value) == "FeatureEncoder: expected a fitted encoder, got an unfitted one. Call fit first."
        assert isinstance(caught.value, SklearnNotFittedError)


def test_check_is_fitted_knows(encoder: FeatureEncoder) -> None:
    check_is_fitted(encoder)
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(FeatureEncoder(SCHEMA))


def test_a_clone_is_unfitted_and_declared_alike(encoder: FeatureEncoder) -> None:
    copy = clone(encoder)
    assert copy.get_params() == {"schema": SCHEMA}
    with pytest.raises(NotFittedError):
        copy.to_state()
    assert copy.set_params(schema=users()).schema == users()


def test_it_stands_in_a_pipeline() -> None:
    pipeline = make_pipeline(FeatureEncoder(SCHEMA), UserIndices())
    assert pipeline.fit_transform(FRAME).tolist() == [3, 4, 3]
    assert pipeline.transform(FRAME.iloc[1:]).tolist() == [4, 3]


def test_names_out_are_those_of_the_batch(encoder: FeatureEncoder) -> None:
    assert encoder.get_feature_names_out().tolist() == list(encoder.transform(FRAME).names)


def test_an_encoder_goes_through_its_state_and_through_pickle(encoder: FeatureEncoder) -> None:
    for copy in (FeatureEncoder.from_state(encoder.to_state()), pickle.loads(pickle.dumps(encoder))):
        assert copy.fingerprint == encoder.fingerprint
        assert_equal(copy.transform(FRAME), encoder.transform(FRAME))


def test_an_unknown_feature_has_no_table(encoder: FeatureEncoder) -> None:
    with pytest.raises(ColumnError, match=r"FeatureEncoder: expected one of 'user', .* got 'usr'"):
        encoder.num_embeddings("usr")


def test_the_fingerprint_tells_schemas_values_positions_and_statistics_apart() -> None:
    schema = Schema(context_features=[Numeric("age")], position=Position("slot", max_position=3))
    base = FeatureEncoder(schema).fit({"age": [1.0, 2.0], "slot": [0, 1]}).fingerprint
    others = [{"age": [1.0, 3.0], "slot": [0, 1]}, {"age": [1.0, 2.0], "slot": [0, 2]}]
    wider = Schema(context_features=[Numeric("age")], position=Position("slot", max_position=4))
    prints = [FeatureEncoder(schema).fit(other).fingerprint for other in others]
    prints.append(FeatureEncoder(wider).fit({"age": [1.0, 2.0], "slot": [0, 1]}).fingerprint)
    assert len({base, *prints}) == 4
    assert FeatureEncoder(schema).fit({"age": [2.0, 1.0], "slot": [1, 0]}).fingerprint == base
