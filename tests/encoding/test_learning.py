from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.learning import EncoderState
from recsys_emb.errors import DataError, SchemaError
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position, Schema

SCHEMA = Schema(
    user=Categorical("user"),
    position=Position("slot", max_position=9),
    context_features=[Numeric("age"), MultiCategorical("recent", vocabulary="user")],
)
FRAME = pd.DataFrame({"user": [1, 2], "slot": [7, 2], "age": [0.1, None], "recent": [[5], [1, 2]]})


def test_a_state_goes_through_json_to_the_last_bit() -> None:
    state = FeatureEncoder(SCHEMA).fit(FRAME).to_state()
    written = json.loads(json.dumps(state.statistics))
    assert written == {
        "numeric": {"age": {"count": 1, "mean": 0.1, "std": 0.0, "missing": 1}},
        "positions": {"slot": [2, 7]},
    }
    restored = EncoderState.from_parts(SCHEMA, state.vocabularies, written)
    assert FeatureEncoder.from_state(restored).fingerprint == FeatureEncoder.from_state(state).fingerprint
    assert list(state.vocabularies) == ["user"]


def test_parts_of_another_schema_are_refused() -> None:
    state = FeatureEncoder(SCHEMA).fit(FRAME).to_state()
    with pytest.raises(SchemaError) as caught:
        EncoderState.from_parts(SCHEMA, {}, state.statistics)
    assert str(caught.value) == (
        "EncoderState: expected what was learned about 'age', 'slot', 'user', got 'age', 'slot'. "
        "Keep the schema and the data of one fit together."
    )


def test_growing_leaves_the_former_state_alone() -> None:
    encoder = FeatureEncoder(SCHEMA).fit(FRAME)
    state = encoder.to_state()
    before = FeatureEncoder.from_state(state).fingerprint
    encoder.partial_fit(FRAME.assign(user=[8, 9], slot=[1, 3]))
    assert FeatureEncoder.from_state(state).fingerprint == before != encoder.fingerprint


# --- from files --------------------------------------------------------------------------------------------------


def test_folder_names_feed_features_in_the_type_that_the_schema_means(tmp_path: Path) -> None:
    for slot, user in ((0, "05"), (3, "7")):
        folder = tmp_path / f"slot={slot}" / f"user={user}" / "age=1.5" / "y=1"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"recent": [[5, 7]]}), folder / "0.parquet")
    schema = Schema(
        user=Categorical("user", dtype="int64"),
        position=SCHEMA.position,
        context_features=SCHEMA.context_features,
        label="y",
    )
    encoder = FeatureEncoder(schema).fit(tmp_path)
    assert encoder.vocabularies["user"].values.to_pylist() == [5, 7]
    assert encoder.seen_positions == {0, 3}
    assert encoder.numeric_statistics["age"].mean == 1.5
    label = encoder.transform(tmp_path).label
    assert label is not None
    assert label.tolist() == [1.0, 1.0]


def test_a_folder_name_that_is_no_number_is_refused_where_one_is_meant(tmp_path: Path) -> None:
    (tmp_path / "age=old").mkdir()
    pq.write_table(pa.table({"user": [1]}), tmp_path / "age=old" / "0.parquet")
    with pytest.raises(DataError) as caught:
        FeatureEncoder(Schema(user=Categorical("user"), user_features=[Numeric("age")])).fit(tmp_path)
    assert str(caught.value) == (
        "age=old/0.parquet: expected 'age' to be double, got 'old'. Rename the folder, or change dtype=."
    )


def test_a_fit_holds_a_few_batches_however_many_there_are() -> None:
    schema = pa.schema({"user": pa.int64(), "age": pa.float64()})
    held: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(200):
            held.append(pa.total_allocated_bytes())
            users = np.arange(2000) % 100
            yield pa.record_batch([pa.array(users.tolist()), pa.array((users * number).tolist(), pa.float64())], schema)

    declared = Schema(user=Categorical("user"), user_features=[Numeric("age")])
    FeatureEncoder(declared).fit(pa.RecordBatchReader.from_batches(schema, batches()))
    one_batch = 2000 * 2 * 8
    assert max(held) - min(held) < 20 * one_batch
