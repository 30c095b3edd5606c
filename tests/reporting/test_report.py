"""The encoding report: rates counted by hand, any source, any size, and nothing in a page that acts."""

from __future__ import annotations

import html.parser
import importlib
import io
import math
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ColumnError, DataError, KeyTypeError, MissingDependencyError, NotFittedError
from recsys_emb.reporting.report import EncodingReport, report
from recsys_emb.schema.columns import Categorical, Feature, MultiCategorical, Numeric, Position
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import RefuseUnknown, UnknownBuckets

SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("film"),
    position=Position("slot", max_position=5),
    item_features=[MultiCategorical("tags", max_length=2), Numeric("year")],
    label="stars",
)
FITTED = pd.DataFrame(
    {
        "user": ["a", "a", "b", "c"],
        "film": [1, 2, 1, 3],
        "slot": [1, 2, 1, None],
        "tags": [["war"], ["war", "love"], [], None],
        "year": [1990.0, 2010.0, None, 2000.0],
        "stars": [1.0, 2.0, 3.0, 4.0],
    }
)
FOUND = pd.DataFrame(
    {
        "user": ["a", "z", None, "z", "y"],
        "film": [1, 2, 9, 9, 9],
        "slot": [1, 3, 7, None, 7],
        "tags": [["war", "sea", "sea"], [None, "war"], [], None, ["sky"]],
        "year": [2000.0, None, None, 2000.0, 2000.0],
    }
)


@pytest.fixture(scope="module")
def encoder() -> FeatureEncoder:
    return FeatureEncoder(SCHEMA).fit(FITTED)


@pytest.fixture(scope="module")
def found(encoder: FeatureEncoder) -> EncodingReport:
    return report(encoder, FOUND)


def of_feature(feature: Feature, fitted: list[object], found: list[object]) -> EncodingReport:
    encoder = FeatureEncoder(Schema(context_features=[feature])).fit({feature.name: fitted})
    return report(encoder, {feature.name: found})


def test_a_categorical_is_counted_by_rows(found: EncodingReport) -> None:
    user = found["user"]
    assert (user.kind, user.cardinality, user.occurrences, user.missing, user.unknown) == ("Categorical", 3, 5, 1, 3)
    assert (user.coverage, user.missing_rate, user.unknown_rate) == (0.2, 0.2, 0.6)
    assert (user.unknown_values, user.top_unknown) == (2, (("z", 2), ("y", 1)))


def test_a_list_is_counted_by_values_after_the_cut_and_an_empty_one_as_missing(found: EncodingReport) -> None:
    tags = found["tags"]
    assert (tags.occurrences, tags.missing, tags.unknown) == (7, 3, 3)
    assert tags.top_unknown == (("sea", 2), ("sky", 1))


def test_a_position_has_unknown_places_and_no_drift(found: EncodingReport) -> None:
    slot = found["slot"]
    assert (slot.kind, slot.cardinality, slot.occurrences, slot.missing, slot.unknown) == ("Position", 2, 5, 1, 3)
    assert slot.top_unknown == ((7, 2), (3, 1))
    assert math.isnan(slot.drift)


def test_a_number_tells_how_mean_and_spread_moved(encoder: FeatureEncoder) -> None:
    year = report(encoder, FOUND.assign(year=[2000.0, 2020.0, None, None, None]))["year"]
    assert (year.cardinality, year.occurrences, year.missing, year.unknown) == (None, 5, 3, 0)
    deviation = np.std([1990, 2010, 2000])
    assert year.shift == pytest.approx(10 / deviation)
    assert year.spread == pytest.approx(10 / deviation)
    assert year.drift > 0


def test_features_stand_in_the_order_of_the_schema(found: EncodingReport) -> None:
    assert [one.name for one in found.features] == ["user", "film", "tags", "year", "slot"]


def test_the_rates_are_those_of_the_encoded_batch(encoder: FeatureEncoder, found: EncodingReport) -> None:
    batch = encoder.transform(FOUND)
    for name in ("user", "film", "slot"):
        indices = batch.indices(name)
        assert found[name].missing_rate == (indices == 1).double().mean()
        assert found[name].unknown_rate == (indices == 2).double().mean()


def test_the_rows_of_the_fit_are_covered_and_have_not_drifted(encoder: FeatureEncoder) -> None:
    same = report(encoder, FITTED)
    assert [one.unknown for one in same.features] == [0] * 5
    assert all(one.drift == 0 for one in same.features if one.name != "slot")
    assert same.warnings == ()


def test_the_rows_of_a_fit_of_rare_values_have_not_drifted_either() -> None:
    fitted = [*range(2000), *range(1000), *range(100)]
    assert of_feature(Categorical("x"), fitted, fitted[::-1])["x"].drift == 0


def test_values_seen_once_tell_how_many_strangers_chance_brings(found: EncodingReport) -> None:
    assert found["user"].unknown_by_chance == pytest.approx(2 / 4 * 4 / 5)
    dropped = of_feature(Categorical("x", min_count=2), [1, 1, 2], [1, 3])
    assert math.isnan(dropped["x"].unknown_by_chance)


def test_popularity_turned_round_is_drift() -> None:
    fitted = [value for value in range(20) for _ in range(5 * (value + 1))]
    turned = of_feature(Categorical("x"), fitted, [19 - value for value in fitted])
    assert turned["x"].drift > 0.25 > turned["x"].drift_by_chance
    assert turned.warnings[0].startswith("x: drift of ")


def test_new_values_do_not_count_as_drift() -> None:
    fitted = [value for value in range(20) for _ in range(5)]
    found = of_feature(Categorical("x"), fitted, [*fitted, *[99] * 100])
    assert (found["x"].drift, found["x"].unknown_rate) == (0.0, 0.5)


def test_features_that_share_a_vocabulary_drift_together() -> None:
    schema = Schema(context_features=[Categorical("a"), Categorical("b", vocabulary="a")])
    encoder = FeatureEncoder(schema).fit({"a": [1, 1, 2], "b": [2, 2, 3]})
    found = report(encoder, {"a": [2, 2, 2, 9], "b": [1, 1, 3, 8]})
    assert found["a"].drift == found["b"].drift == 0
    assert [found[name].top_unknown for name in "ab"] == [((9, 1),), ((8, 1),)]
    assert math.isnan(found["a"].unknown_by_chance)


def test_refused_values_are_counted_and_warned_of() -> None:
    found = of_feature(Categorical("x", unknown=RefuseUnknown()), ["a"], ["a", "b", "b"])
    assert (found["x"].unknown, found["x"].top_unknown) == (2, (("b", 2),))
    assert found.warnings == (
        "x: transform refuses 2 unknown occurrences. Correct them, or declare unknown=UnknownRow().",
    )


def test_all_unknown_buckets_are_unknown() -> None:
    found = of_feature(Categorical("x", unknown=UnknownBuckets(4)), ["a"], ["a", *"bcdefgh", None])
    assert (found["x"].unknown, found["x"].missing) == (7, 1)


def sources(folder: Path) -> dict[str, object]:
    table = pa.Table.from_pandas(FOUND, preserve_index=False)
    pq.write_table(table.slice(0, 2), folder / "1.parquet")
    pq.write_table(table.slice(2), folder / "2.parquet", row_group_size=1)
    batches = table.to_batches(max_chunksize=1)
    return {
        "pandas": FOUND,
        "polars": pl.from_arrow(table),
        "arrow": table,
        "reader": pa.RecordBatchReader.from_batches(table.schema, batches),
        "parquet": folder,
    }


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "reader", "parquet"])
def test_any_source_in_any_pieces_gives_the_same_report(
    encoder: FeatureEncoder, found: EncodingReport, tmp_path: Path, kind: str
) -> None:
    assert str(report(encoder, sources(tmp_path)[kind])) == str(found)


@pytest.mark.parametrize("rows", [0, 1])
def test_no_row_and_one_row_are_ordinary(encoder: FeatureEncoder, rows: int, tmp_path: Path) -> None:
    found = report(encoder, FOUND.head(rows))
    assert found.num_rows == rows
    assert [one.occurrences for one in found.features] == [rows, rows, 2 * rows, rows, rows]
    assert len(str(found).splitlines()) == 7
    found.to_html(tmp_path / "report.html")


def test_a_report_of_no_rows_has_no_rates(encoder: FeatureEncoder) -> None:
    frame = report(encoder, FOUND.head(0)).to_frame()
    assert frame[["coverage", "missing_rate", "unknown_rate", "drift"]].isna().all(axis=None)


def test_an_all_missing_fit_takes_any_column() -> None:
    found = of_feature(Categorical("x"), [None, None], ["a", None])
    assert (found["x"].cardinality, found["x"].unknown, found["x"].missing) == (0, 1, 1)
    assert math.isnan(found["x"].drift)


def test_many_unknown_values_keep_the_report_small() -> None:
    found = of_feature(Categorical("x"), [0], [*range(1, 70_001), *[7] * 500])
    x = found["x"]
    assert (x.unknown, [value for value, _ in x.top_unknown]) == (70_500, [7])
    assert x.unknown_values >= 2**16
    assert x.count_error == 1
    assert str(found).endswith("at least 70,000 unknown values, counts up to 1 too low: 7 (500), …")


def test_the_frame_has_a_row_per_feature(found: EncodingReport) -> None:
    frame = found.to_frame()
    assert frame.index.tolist() == ["user", "film", "tags", "year", "slot"]
    assert frame["cardinality"].tolist()[:3] == [3, 3, 2]
    assert frame["cardinality"].isna()["year"]
    assert frame.loc["film", "top_unknown"] == [(9, 3)]
    assert frame.loc["film", "unknown_rate"] == 0.6


def test_the_text_is_a_table(found: EncodingReport) -> None:
    lines = str(found).splitlines()
    assert lines[0] == "5 rows against the fit"
    assert lines[1].split()[:4] == ["feature", "kind", "cardinality", "coverage"]
    assert lines[3].endswith("1 unknown value: 9 (3)")
    assert lines[5].startswith("year     Numeric                     –    60.0 %   40.0 %    0.0 %          –       –")


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(found: EncodingReport, folder: Path) -> tuple[str, Tags]:
    found.to_html(folder / "report.html")
    text = (folder / "report.html").read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    return text, tags


EVIL = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "&lt;script&gt;",
    "a\x00b\u202ec",
    "'; --",
    "ü日本",
]


@pytest.mark.parametrize("evil", EVIL)
def test_values_and_names_in_the_page_are_inert(evil: str, tmp_path: Path) -> None:
    text, tags = page_of(of_feature(Categorical(evil), ["a"], [evil, "a"]), tmp_path)
    assert not {"script", "iframe", "link", "object"} & set(tags.tags)
    assert tags.tags.count("img") == 1
    assert not [name for name, _ in tags.attributes if name.startswith("on")]
    assert repr(evil) in tags.text
    assert "<script" not in text


def test_the_page_holds_everything_itself(found: EncodingReport, tmp_path: Path) -> None:
    text, tags = page_of(found, tmp_path)
    sources = [value for name, value in tags.attributes if name in ("src", "href")]
    assert all((value or "").startswith("data:image/png;base64,") for value in sources)
    assert "default-src 'none'" in text
    assert text.startswith("<!DOCTYPE html>")


def test_a_page_is_made_without_matplotlib(found: EncodingReport, tmp_path: Path, monkeypatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    _, tags = page_of(found, tmp_path)
    assert "img" not in tags.tags
    with pytest.raises(MissingDependencyError):
        found.plot()


def test_the_picture_names_every_feature_literally() -> None:
    figure = of_feature(Categorical("price $_x$ \\frac"), [1, 2], [1, 3]).plot()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["price $_x$ \\frac"]
    figure.savefig(io.BytesIO(), format="png")


def test_the_picture_of_a_report_divides_the_occurrences(found: EncodingReport) -> None:
    figure = found.plot()
    shares, drift = figure.axes
    assert shares.get_title(loc="left") == "5 rows against the fit"
    widths = np.array([bar.get_width() for bar in shares.patches]).reshape(3, 5)
    assert widths.sum(axis=0) == pytest.approx(np.ones(5))
    written = [text.get_text() for text in drift.texts]
    assert written == ["not given" if np.isnan(one) else f"{one:.4f}" for one in found.to_frame()["drift"]]
    assert written.count("not given") == 2
    figure.savefig(io.BytesIO(), format="png")


def test_a_column_that_is_not_there_is_refused(encoder: FeatureEncoder) -> None:
    with pytest.raises(ColumnError) as caught:
        report(encoder, FOUND.rename(columns={"film": "films"}))
    assert "expected a column 'film', got " in str(caught.value)


def test_keys_of_another_kind_are_refused(encoder: FeatureEncoder) -> None:
    with pytest.raises(KeyTypeError) as caught:
        report(encoder, FOUND.assign(film=["1", "2", "3", "4", "5"]))
    assert str(caught.value).startswith("film: expected integer keys, got text ('1', '2', '3', '4', '5').")


@pytest.mark.parametrize("top", [-1, True, 2.0])
def test_a_count_that_is_none_is_refused(encoder: FeatureEncoder, top: object) -> None:
    with pytest.raises(DataError) as caught:
        report(encoder, FOUND, top=top)
    assert str(caught.value) == f"report: expected top to be an integer of at least 0, got {top!r}. It counts values."


def test_an_unfitted_encoder_is_refused() -> None:
    with pytest.raises(NotFittedError):
        report(FeatureEncoder(SCHEMA), FOUND)


def test_no_unknown_value_is_named_if_none_is_asked_for(encoder: FeatureEncoder) -> None:
    found = report(encoder, FOUND, top=0)
    assert [one.top_unknown for one in found.features] == [()] * 5
    assert str(found).splitlines()[3].endswith("1 unknown value")


def test_huge_and_infinite_positions_are_unknown_and_not_named(encoder: FeatureEncoder) -> None:
    slot = report(encoder, FOUND.assign(slot=[1e20, -1, 2.5, np.inf, 1]))["slot"]
    assert (slot.unknown, dict(slot.top_unknown)) == (4, {-1: 1, 2.5: 1})
