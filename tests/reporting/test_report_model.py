"""The model report: rows that learned nothing, lengths by popularity, memory, and warnings that name the remedy."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import DataError
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.row_counts import row_counts
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.reporting.model_report import ModelReport, model_report
from recsys_emb.schema.columns import Categorical, History, MultiCategorical, Numeric, Position
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import Hashed, OneHot, QuotientRemainder, RefuseUnknown, UnknownBuckets
from recsys_emb.training.fitting import train
from recsys_emb.training.losses import SquaredError
from recsys_emb.training.sequential import SequentialSGD

FRAME = {
    "user": ["a", "a", "b", "b", "c", "c", "d", "d"] * 4,
    "film": [1, 2, 1, 3, 1, 2, 4, 1] * 4,
    "slot": [1, 2, 1, 2, 3, 1, 1, 1] * 4,
    "country": ["x", "x", "y", "y", None, None, "x", "x"] * 4,
    "tags": [["u"], ["v", "w"], ["u"], [], ["u"], ["v", "w"], ["w"], ["u"]] * 4,
    "device": ["tv", "phone", "tv", "tv", "phone", "tv", "tv", "tv"] * 4,
    "year": [1.0, 2.0, 3.0, 4.0] * 8,
    "stars": [5.0, 1.0, 4.0, 2.0, 5.0, 2.0, 3.0, 4.0] * 4,
}


def schema(**changes: object) -> Schema:
    parts: dict[str, object] = {
        "user": Categorical("user"),
        "item": Categorical("film"),
        "position": Position("slot", max_position=4, serve_at=1),
        "user_features": [Categorical("country")],
        "item_features": [MultiCategorical("tags"), Numeric("year")],
        "context_features": [Categorical("device")],
        "label": "stars",
        "embedding_dim": 3,
    }
    return Schema(**{**parts, **changes})


def trained(declared: Schema) -> tuple[MatrixFactorization, FeatureEncoder]:
    encoder = FeatureEncoder(declared).fit(FRAME)
    model = MatrixFactorization(encoder)
    train(model, encoder.transform(FRAME), SquaredError(), SequentialSGD(), epochs=3, progress=False)
    return model, encoder


@pytest.fixture(scope="module")
def fitted() -> tuple[MatrixFactorization, FeatureEncoder]:
    return trained(schema())


@pytest.fixture(scope="module")
def found(fitted: tuple[MatrixFactorization, FeatureEncoder]) -> ModelReport:
    model, encoder = fitted
    return model_report(model, encoder, row_counts(encoder.transform(FRAME)))


def test_reserved_rows_tell_how_often_training_read_them(found: ModelReport) -> None:
    frame = found.reserved_frame()
    read = {key: (row["occurrences"], row["never_updated"]) for key, row in frame.iterrows()}
    assert read["country", "missing"] == (8, 0)
    assert read["country", "unknown"] == (0, 1)
    assert read["tags", "missing"] == (4, 0)
    assert read["user", "missing"] == (0, 1)
    assert read["year", "missing"] == (0, 1)


def test_without_counts_the_weights_tell_which_reserved_rows_learned(
    fitted: tuple[MatrixFactorization, FeatureEncoder], found: ModelReport
) -> None:
    bare = model_report(*fitted)
    frame = bare.reserved_frame()
    assert frame["occurrences"].isna().sum() == len(frame) - 1
    assert frame["never_updated"].equals(found.reserved_frame()["never_updated"])
    assert bare.warnings == found.warnings


def test_the_reserved_rows_alone_may_be_counted(
    fitted: tuple[MatrixFactorization, FeatureEncoder], found: ModelReport
) -> None:
    model, encoder = fitted
    first = {name: counts[:3] for name, counts in row_counts(encoder.transform(FRAME)).items()}
    short = model_report(model, encoder, first)
    assert short.reserved_frame().equals(found.reserved_frame())
    columns = [name for name in found.bands_frame().index.unique() if name != "slot"]
    assert short.bands_frame().loc[columns].equals(found.bands_frame().loc[columns])


def test_rows_that_training_never_read_are_counted(found: ModelReport) -> None:
    never = found.to_frame()["never_updated"]
    assert never["slot"] == 2
    assert never.drop("slot").eq(0).all()


def test_values_that_share_a_vocabulary_but_no_table_are_told_apart_by_their_weights() -> None:
    declared = schema(
        item_features=[MultiCategorical("tags", vocabulary="device")], context_features=[Categorical("device")]
    )
    model, encoder = trained(declared)
    never = model_report(model, encoder).to_frame()["never_updated"]
    assert (never["tags"], never["device"]) == (2, 3)


def test_features_that_share_a_table_are_told_together() -> None:
    declared = schema(item_features=[MultiCategorical("tags", vocabulary="device", share_table=True)])
    model, encoder = trained(declared)
    counts = row_counts(encoder.transform(FRAME))
    [shared] = [one for one in model_report(model, encoder, counts).tables if "device" in one.names]
    assert shared.names == ("device", "tags")
    assert shared.occurrences.tolist() == (counts["device"] + counts["tags"]).tolist()


def test_bands_are_doublings_of_the_occurrences(found: ModelReport, fitted: tuple) -> None:
    model, encoder = fitted
    bands = found.bands_frame().loc["film"]
    assert bands[["low", "high", "values"]].to_numpy().tolist() == [[4, 7, 2], [8, 15, 1], [16, 31, 1]]
    rows = encoder.vocabularies["film"].encode([3, 4])
    lengths = model.vectors.lookup("film")(rows).detach().double().norm(dim=1)
    assert bands["norm"].iloc[0] == pytest.approx(float(lengths.mean()))
    assert bands["deviation"].iloc[0] == pytest.approx(float(lengths.std(correction=0)))


def test_a_feature_whose_values_are_all_in_one_band_is_shown(found: ModelReport) -> None:
    bands = found.bands_frame()
    assert bands.loc[["user"], ["low", "high", "values"]].to_numpy().tolist() == [[8, 15, 4]]
    lines = str(found).splitlines()
    below = lines.index("Mean length of vectors by occurrences in training")
    assert lines[below + 1].split() == ["times", "user", "country", "device", "film", "tags", "year", "slot"]
    (row,) = (line for line in lines[below:] if line.startswith(" 8 to 15"))
    assert row.split()[3] == f"{bands.loc['user', 'norm']:.3f}"


@pytest.mark.parametrize(
    ("declared", "remedy"),
    [
        (Categorical("film", min_count=2), "a min_count above 2, or unknown_dropout=0.05"),
        (
            Categorical("film", min_count=2, unknown_dropout=1e-9),
            "a min_count above 2, or an unknown_dropout above 1e-09",
        ),
    ],
)
def test_advice_goes_beyond_what_is_declared(declared: Categorical, remedy: str) -> None:
    told = model_report(*trained(schema(item=declared))).warnings
    assert told[0].startswith("user, country, device, tags: ")
    assert told[0].endswith("Let it learn: min_count=2, or unknown_dropout=0.05.")
    assert told[1].startswith("film: ")
    assert told[1].endswith(f"Let it learn: {remedy}.")


def test_memory_is_that_of_all_parameters(found: ModelReport, fitted: tuple) -> None:
    parameters = list(fitted[0].parameters())
    frame = found.to_frame()
    assert frame["parameters"].sum() == sum(parameter.numel() for parameter in parameters)
    assert frame["weight_bytes"].sum() == sum(parameter.numel() * parameter.element_size() for parameter in parameters)


def test_served_rows_that_learned_nothing_are_warned_of_once_per_reason(found: ModelReport) -> None:
    assert found.warnings == (
        "user, country, device, film, tags: values that the fit did not know are answered by an unknown row that no "
        "training row reached; it adds nothing to a score. Let it learn: min_count=2, or unknown_dropout=0.05.",
        "year: users and items that training did not know read a missing row that no training row reached; it adds "
        "nothing to a score. Let it learn from rows where the value is missing.",
        "device: recommendations, whose context is not known, read a missing row that no training row reached; it adds "
        "nothing to a score. Let it learn from rows where the value is missing.",
    )


@pytest.mark.parametrize(("serve_at", "kind"), [(None, "missing"), (4, "unknown")])
def test_serving_at_a_place_that_training_never_saw_is_warned_of(serve_at: int | None, kind: str) -> None:
    warnings = model_report(*trained(schema(position=Position("slot", max_position=4, serve_at=serve_at)))).warnings
    assert warnings[-1] == (
        f"slot: recommendations are scored at the {kind} row, which no training row reached; it adds nothing to a "
        "score. Declare serve_at= as a position of the training rows."
    )


@pytest.mark.parametrize("declared", [{"min_count": 9}, {"unknown_dropout": 0.5}, {"unknown": RefuseUnknown()}])
def test_an_unknown_row_that_learned_or_refuses_is_not_warned_of(declared: dict[str, object]) -> None:
    features = {"user": Categorical("user", **declared), "item": Categorical("film", **declared)}
    bare = {"user_features": (), "item_features": (), "context_features": ()}
    if "min_count" in declared:
        features["user"] = Categorical("user", unknown=RefuseUnknown())
    assert model_report(*trained(schema(**features, **bare))).warnings == ()


def test_one_blank_bucket_of_several_is_warned_of() -> None:
    declared = schema(item=Categorical("film", min_count=9, unknown=UnknownBuckets(50)))
    found = model_report(*trained(declared))
    row = found.reserved_frame().loc[("film", "unknown")]
    assert row["rows"] == 50
    assert 40 < row["never_updated"] < 50
    assert "film" in found.warnings[1].split(":")[0]


@pytest.mark.parametrize("table", [OneHot(), Hashed(16), QuotientRemainder(2)])
def test_any_table_is_reported(table: object) -> None:
    encoder = FeatureEncoder(schema(item=Categorical("film", table=table))).fit(FRAME)
    one = next(one for one in model_report(MatrixFactorization(encoder), encoder).tables if "film" in one.names)
    assert one.never_updated == 0
    assert (one.blank("missing"), one.blank("unknown")) == (1, 1)
    assert (one.norms[one.values] > 0).all()


def test_a_history_counts_the_users_that_have_an_item() -> None:
    model, encoder = trained(schema(user_features=[History("film")]))
    one = next(one for one in model_report(model, encoder).tables if "film_history" in one.names)
    film = encoder.vocabularies["film"]
    assert one.occurrences[film.encode([1, 2, 3, 4]).numpy()].tolist() == [4, 2, 1, 1]
    assert one.reserved == {}


def test_a_feature_layer_in_another_model_is_reported() -> None:
    encoder = FeatureEncoder(schema()).fit(FRAME)
    embed = FeatureEmbedding(encoder, features=["user", "film"], init_std=0.1)
    counts = row_counts(encoder.transform(FRAME))
    counts["film"][-1] = 0
    frame = model_report(embed, encoder, counts).to_frame()
    assert frame.index.tolist() == ["user", "film"]
    assert frame["never_updated"].tolist() == [0, 1]


def test_an_encoder_that_outgrew_the_model_is_refused(fitted: tuple[MatrixFactorization, FeatureEncoder]) -> None:
    model, encoder = fitted
    grown = FeatureEncoder.from_state(encoder.to_state()).partial_fit({**FRAME, "user": ["new"] * 32})
    with pytest.raises(DataError) as caught:
        model_report(model, grown)
    assert str(caught.value) == (
        "model_report: expected a table of 8 rows for 'user', as the encoder says, got 7. "
        "Give the encoder that the model was made with, or call model.grow(encoder)."
    )


def test_the_text_shows_tables_rows_lengths_and_warnings(found: ModelReport) -> None:
    lines = str(found).splitlines()
    assert lines[0] == "7 tables, 160 parameters, 640 B"
    assert lines[2].split() == ["user", "CategoryEmbedding", "7", "3", "0", "112", "B"]
    assert "Reserved rows" in lines
    assert "Mean length of vectors by occurrences in training" in lines
    assert [line.startswith("Warning: ") for line in lines[-3:]] == [True] * 3


def test_the_page_shows_the_same_tables_and_no_script(found: ModelReport, tmp_path: Path) -> None:
    found.to_html(tmp_path / "model.html")
    text = (tmp_path / "model.html").read_text(encoding="utf-8")
    assert text.count("<table>") == 3
    assert text.count('class="warning"') == 3
    assert "<script" not in text


def test_names_in_the_page_are_inert(tmp_path: Path) -> None:
    encoder = FeatureEncoder(Schema(context_features=[Categorical("<script>")])).fit({"<script>": ["a", "b", "b"]})
    model_report(FeatureEmbedding(encoder), encoder).to_html(tmp_path / "model.html")
    assert "<script" not in (tmp_path / "model.html").read_text(encoding="utf-8")


def test_the_picture_has_a_line_per_table_with_several_bands_and_a_bar_per_table(found: ModelReport) -> None:
    figure = found.plot()
    lines, bars = figure.axes
    assert {line.get_label() for line in lines.lines} == {"film", "country", "tags", "device", "slot"}
    assert [bar.get_width() for bar in bars.patches] == found.to_frame()["weight_bytes"].tolist()
    figure.savefig(io.BytesIO(), format="png")


def test_a_width_of_one_and_an_empty_vocabulary_are_ordinary(tmp_path: Path) -> None:
    declared = Schema(user=Categorical("u"), item=Categorical("i"), embedding_dim=1)
    encoder = FeatureEncoder(declared).fit({"u": [None], "i": [None]})
    found = model_report(MatrixFactorization(encoder), encoder)
    assert found.to_frame()["never_updated"].tolist() == [0, 0]
    assert len(found.bands_frame()) == 0
    found.plot().savefig(tmp_path / "picture.png")
    found.to_html(tmp_path / "page.html")
    assert len(str(found).splitlines()) > 5


def test_the_model_is_left_as_it_was(fitted: tuple[MatrixFactorization, FeatureEncoder]) -> None:
    model, encoder = fitted
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model_report(model, encoder)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_counts_may_be_arrays_or_lists(fitted: tuple[MatrixFactorization, FeatureEncoder]) -> None:
    counts = {"user": [0, 7, 0], "film": np.array([0, 1, 2])}
    frame = model_report(*fitted, counts).reserved_frame()
    assert frame.loc[("user", "missing"), "occurrences"] == 7
    assert frame.loc[("film", "unknown"), "occurrences"] == 2
