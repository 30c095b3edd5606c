from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.inference import infer_schema
from recsys_emb.errors import ColumnError, DataError
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position, Schema

DATA = Path(__file__).parents[2] / "../shared/data"

ROWS = 60
RNG = np.random.default_rng(0)
USER, ITEM = np.arange(ROWS) % 7, np.arange(ROWS) % 11
FRAME = pd.DataFrame(
    {
        "userId": USER,
        "movie_id": [f"m{item}" for item in ITEM],
        "slot": np.arange(ROWS) % 5,
        "age": USER * 3 + 20.5,
        "country": [["fr", "de", None][user % 3] for user in USER],
        "genres": [[f"g{item % 4}", "all"] for item in ITEM],
        "year": 1990 + ITEM,
        "title": [f"Film {item}" for item in ITEM],
        "device": RNG.choice(["phone", "tv"], ROWS),
        "seconds": RNG.integers(0, 1000, ROWS),
        "comment": [f"text {row}" for row in range(ROWS)],
        "recent": [[f"m{item}"] for item in RNG.integers(0, 11, ROWS)],
        "rating": RNG.integers(1, 6, ROWS),
        "sound_rating": RNG.integers(1, 6, ROWS),
        "rated_at": pd.Timestamp("2024-01-01"),
        "timestamp": np.arange(ROWS),
        "source": "web",
        "nothing": None,
        "vector": [[0.5, float(row)] for row in range(ROWS)],
        "mixed": pd.Series([1, "1"] * (ROWS // 2), dtype=object),
        "Unnamed: 0": np.arange(ROWS),
    }
)


def propose(source: object, **options: object) -> tuple[Schema, str]:
    shown: list[str] = []
    schema = infer_schema(source, show=shown.append, **options)
    return schema, "\n".join(shown)


def test_names_types_and_dependencies_make_a_schema() -> None:
    schema, _ = propose(FRAME)
    assert schema == Schema(
        user=Categorical("userId"),
        item=Categorical("movie_id"),
        position=Position("slot", max_position=4),
        user_features=[Numeric("age"), Categorical("country")],
        item_features=[MultiCategorical("genres"), Categorical("year")],
        context_features=[Categorical("device"), Numeric("seconds"), MultiCategorical("recent", vocabulary="movie_id")],
        label="rating",
    )


def test_the_table_says_what_it_is_based_on() -> None:
    _, shown = propose(FRAME)
    lines = shown.splitlines()
    assert lines[0] == "Based on 60 rows:"
    assert len(lines) == 2 + len(FRAME.columns)
    cells = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[2:]}
    assert cells["userId"] == "int64 Categorical user 7 0 its name means the user"
    assert cells["slot"] == "int64 Position position 5 0 its name means a place, up to 4; serve_at is None"
    assert cells["country"] == "text Categorical user feature 2 17 one value per user"
    assert cells["rating"] == "int64 label 5 0 its name means the outcome"
    reasons = {
        "title": "it names each item once more",
        "comment": "nearly every row has its own",
        "sound_rating": "its name means another outcome",
        "rated_at": "times are not encoded",
        "timestamp": "times are not encoded",
        "source": "it has one value only",
        "nothing": "it has no values",
        "vector": "it does not hold keys",
        "mixed": "it does not hold keys",
    }
    for name, reason in reasons.items():
        assert "left out" in cells[name]
        assert cells[name].endswith(reason)
    assert lines[-1].split()[:2] == ["Unnamed:", "0"]
    assert lines[-1].endswith("it numbers the rows")


def test_the_proposal_fits_the_source_it_came_from(tmp_path: Path) -> None:
    frame = FRAME.drop(columns="mixed").set_index(np.arange(ROWS)[::-1])
    frame.to_parquet(tmp_path / "a.parquet")
    schema, _ = propose(tmp_path)
    assert schema == propose(FRAME)[0]
    assert len(FeatureEncoder(schema).fit(tmp_path).transform(tmp_path)) == ROWS


def test_only_the_first_rows_are_looked_at() -> None:
    schema, shown = propose([FRAME, FRAME], max_rows=75)
    assert shown.startswith("Based on 75 rows:")
    assert schema.user == Categorical("userId")


def test_a_reader_is_looked_at_in_one_pass() -> None:
    table = pa.Table.from_pandas(FRAME.drop(columns="mixed"))
    assert propose(table.to_reader(max_chunksize=7))[0] == propose(table)[0]


def test_a_table_of_items_describes_items() -> None:
    items = FRAME[["movie_id", "genres", "year", "title"]].iloc[:11]
    schema, _ = propose(items)
    assert schema == Schema(
        item=Categorical("movie_id"), item_features=[MultiCategorical("genres"), Categorical("year")]
    )


@pytest.mark.parametrize(
    ("columns", "user", "item"),
    [
        (["customer_id", "product"], "customer_id", "product"),
        (["uid", "itemid"], None, "itemid"),
        (["userid", "user_name", "SKU"], "userid", "SKU"),
        (["User ID", "Item ID"], "User ID", "Item ID"),
        (["a", "b"], None, None),
        (["u", "i"], "u", "i"),
        (["IID", "UID"], "UID", "IID"),
        (["u", "v"], None, None),
        (["u", "i", "item"], None, "item"),
    ],
)
def test_users_and_items_have_many_names(columns: list[str], user: str | None, item: str | None) -> None:
    schema, _ = propose(pd.DataFrame({name: ["x", "y", "y"] for name in columns}))
    assert (schema.user and schema.user.name, schema.item and schema.item.name) == (user, item)


def test_names_that_say_whose_feature_it_is_are_believed() -> None:
    rows = {"user_group": ["a", "b", "a", "b"], "item_price": [0.5, 1.5, 2.5, 1.5], "weekday": ["mo", "tu", "tu", "mo"]}
    schema, _ = propose(rows)
    assert schema.user_features == (Categorical("user_group"),)
    assert schema.item_features == (Numeric("item_price"),)
    assert schema.context_features == (Categorical("weekday"),)


def test_a_column_that_is_there_twice_is_left_aside() -> None:
    frame = pd.DataFrame([["u", 1, 2], ["v", 3, 4]], columns=["user", "junk", "junk"])
    assert propose(frame)[0].names == ("user",)
    reader = pa.table([["u", "v"], [1, 2], [3, 4]], names=["user", "junk", "junk"]).to_reader()
    assert propose(reader)[0].names == ("user",)


@pytest.mark.parametrize("values", [[1, 2], [0.5, 1.5], ["x", "y"]])
def test_a_column_without_a_name_is_left_out(values: list[object]) -> None:
    schema, shown = propose(pd.DataFrame({"user": ["u", "v"], "": values}))
    assert schema.names == ("user",)
    assert "it has no name" in shown


def test_columns_of_several_lengths_are_refused() -> None:
    with pytest.raises(ColumnError) as caught:
        propose({"user": [1, 2], "item": [1, 2, 3]})
    assert str(caught.value) == (
        "Schema.infer: expected columns of equal length, got {'user': 2, 'item': 3}. Give every row a value."
    )


def cells_of(source: object) -> dict[str, str]:
    lines = propose(source)[1].splitlines()
    return {line.split()[0]: " ".join(line.split()[1:]) for line in lines[2:]}


def test_elements_of_lists_are_counted_not_lists() -> None:
    rng = np.random.default_rng(1)
    tags = [[f"t{one}" for one in rng.choice(8, rng.integers(0, 5), replace=False)] for _ in range(200)]
    users = [f"u{row % 50}" for row in range(200)]
    cells = cells_of({"user": users, "tags": [None, None, [], *tags[3:]]})
    assert cells["tags"] == "list of text MultiCategorical context 8 2 neither user nor item decides it"


def test_a_list_that_every_row_has_is_left_out() -> None:
    cells = cells_of(
        {
            "user": ["u", "v", "w"],
            "both": [["a", "b"], ["a", "b"], None],
            "one": [["a"]] * 3,
            "some": [["a"], [], ["a"]],
            "none": [[], [], None],
        }
    )
    assert cells["both"] == "list of text left out 2 1 every row has the same values"
    assert cells["one"] == "list of text left out 1 0 it has one value only"
    assert cells["some"].startswith("list of text MultiCategorical")
    assert cells["none"].endswith("left out 0 1 it has no values")


def test_one_value_and_missing_ones_are_a_constant() -> None:
    cells = cells_of({"user": ["u", "v", "w"], "text": ["a", None, "a"], "number": [None, 2, 2]})
    assert cells["text"] == "text left out 1 1 it has one value only"
    assert cells["number"].endswith("left out 1 1 it has one value only")


def test_integers_that_number_the_rows_are_left_out() -> None:
    cells = cells_of(
        {
            "user": USER,
            "line": np.arange(ROWS) + 5,
            "order_id": np.arange(ROWS)[::-1] * 7 + 1000,
            "seconds": np.arange(ROWS) * 20,
            "amount": np.arange(ROWS) * 0.5,
        }
    )
    for name in ("line", "order_id"):
        assert cells[name] == "int64 left out 60 0 nearly every row has its own"
    assert cells["seconds"].startswith("int64 Numeric context")
    assert cells["amount"].startswith("double Numeric context")


@pytest.mark.parametrize(
    ("values", "is_date"),
    [
        (["2024-01-31", "2024-02-01"], True),
        (["2024-01-31T10:00:00Z", "2024-02-01 09:30"], True),
        (["2024-01-31", None, "2024-02-01"], True),
        (["2024-01-31", "soon"], False),
        (["2024-01-31-a", "2024-01-31-b"], False),
    ],
)
def test_dates_as_text_are_times(values: list[str], is_date: bool) -> None:
    cells = cells_of({"user": [f"u{row}" for row in range(len(values))], "day": values})
    assert cells["day"].endswith("times are not encoded") == is_date


def test_records_within_a_row_are_left_out() -> None:
    table = pa.table({"user": ["u", "v"], "address": [{"city": "x"}, {"city": "y"}]})
    schema, shown = propose(table)
    assert schema.names == ("user",)
    assert "it does not hold keys" in shown


def test_no_rows_are_refused() -> None:
    with pytest.raises(DataError) as caught:
        infer_schema(FRAME.iloc[:0])
    assert str(caught.value) == "Schema.infer: expected at least one row, got none. Check the source."


def test_nothing_to_propose_is_refused_after_the_table_was_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError) as caught:
        infer_schema({"timestamp": [1, 2]})
    assert str(caught.value) == (
        "Schema.infer: expected a column that could be a feature, got none. Write the schema by hand."
    )
    assert capsys.readouterr().out.startswith("Based on 2 rows:")


@pytest.mark.skipif(not DATA.exists(), reason="the data sets are elsewhere")
def test_clicks_on_slots_are_recognised() -> None:
    schema, _ = propose(DATA / "obd_sample" / "impressions.parquet")
    assert schema.item == Categorical("item_id")
    assert schema.position == Position("position", max_position=3)
    assert schema.label == "click"
    assert {feature.name for feature in schema.user_features} >= {"user_segment", "user_feature_0"}
    assert "timestamp" not in schema.names
