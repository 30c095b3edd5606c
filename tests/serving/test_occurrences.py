"""A recommender's report counts reserved rows, positions and numbers in all rows that it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ArtifactError
from recsys_emb.lookup.row_counts import row_counts
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position, Schema, UnknownBuckets
from recsys_emb.serving.occurrences import occurrences_of, read_occurrences

SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("item", min_count=2),
    position=Position("slot", max_position=3, serve_at=1),
    user_features=[Numeric("age")],
    item_features=[MultiCategorical("tags")],
    label="stars",
    embedding_dim=2,
)
ROWS = pd.DataFrame(
    {
        "user": ["a", "a", "b", "b", None],
        "item": [1, 1, 2, 2, 3],
        "slot": [1, 2, 1, None, 1],
        "age": [1.0, 2.0, None, 4.0, 5.0],
        "tags": [["t", "u"], [], None, ["t"], ["u"]],
        "stars": [1.0, 2.0, 3.0, 4.0, 5.0],
    }
)


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return Recommender(SCHEMA, epochs=1, progress=False).fit(ROWS)


def occurrences(recommender: Recommender) -> dict[tuple[str, str], int]:
    return recommender.report().reserved_frame()["occurrences"].to_dict()


FOUND = {
    ("user", "missing"): 1,
    ("user", "unknown"): 0,
    ("item", "missing"): 0,
    ("item", "unknown"): 1,
    ("slot", "missing"): 1,
    ("slot", "unknown"): 0,
    ("age", "missing"): 1,
    ("tags", "missing"): 2,
    ("tags", "unknown"): 0,
}


def test_reserved_rows_are_counted_in_the_training_rows(fitted: Recommender) -> None:
    assert occurrences(fitted) == FOUND


def test_positions_are_counted_one_by_one(fitted: Recommender) -> None:
    [slot] = [one for one in fitted.report().tables if one.names == ("slot",)]
    assert slot.occurrences.tolist() == [0, 1, 0, 0, 3, 1, 0]
    assert slot.never_updated == 2


def test_a_growth_adds_its_rows(fitted: Recommender, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    assert occurrences(loaded) == FOUND
    loaded.partial_fit(ROWS.assign(user=["z", None, None, "z", "z"], slot=3))
    more = {("user", "missing"): 2, ("item", "unknown"): 1, ("age", "missing"): 1, ("tags", "missing"): 2}
    assert occurrences(loaded) == {key: count + more.get(key, 0) for key, count in FOUND.items()}
    assert occurrences(fitted) == FOUND


def test_where_nothing_was_kept_nothing_is_known() -> None:
    folder = Path(__file__).parents[1] / "artifact" / "version_1"
    frame = Recommender.load(folder).report().reserved_frame()
    assert frame.loc[("user", "missing"), "occurrences"] is pd.NA


@pytest.mark.parametrize(
    "said", [[], "x", {"user": 3}, {"user": [-1]}, {"user": [True]}, {"x": [1]}, {"user": [2**63]}]
)
def test_what_are_no_counts_is_refused(said: Any) -> None:
    with pytest.raises(ArtifactError) as caught:
        read_occurrences(said, FeatureEncoder(SCHEMA).fit(ROWS))
    assert str(caught.value) == (
        "recommender.json: expected occurrences by feature, got something else. Save it again."
    )


def test_every_bucket_of_unknown_values_is_counted() -> None:
    declared = Schema(item=Categorical("item", min_count=2, unknown=UnknownBuckets(3)))
    encoder = FeatureEncoder(declared).fit(ROWS)
    batch = encoder.transform(ROWS)
    assert occurrences_of(batch, encoder) == {"item": tuple(row_counts(batch)["item"][:5].tolist())}
    assert sum(occurrences_of(batch, encoder)["item"]) == 1
