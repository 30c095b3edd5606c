"""A fitted encoder is saved without a model, and comes back whole or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from pyarrow import fs

from recsys_emb.artifact.manifest import MANIFEST, describe_file
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ArtifactError, NotFittedError
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position, Schema, UnknownBuckets
from recsys_emb.sources import locations
from recsys_emb.vocabulary.spilling import Spill

SCHEMA = Schema(
    user=Categorical("user", unknown=UnknownBuckets(3)),
    item=Categorical("a.b"),
    position=Position("slot", max_position=4),
    user_features=[Numeric("age"), MultiCategorical("recent", vocabulary="a.b")],
    item_features=[MultiCategorical("tags")],
    label="stars",
)
ROWS = pd.DataFrame(
    {
        "user": ["u", "v", None],
        "a.b": [2**60 + 1, 5, 5],
        "slot": [1, 2, None],
        "age": [1.5, None, 3.0],
        "recent": [[5], [], None],
        "tags": [["x", "é"], [], None],
        "stars": [1.0, 2.0, 3.0],
    }
)


def encoder() -> FeatureEncoder:
    return FeatureEncoder(SCHEMA).fit(ROWS)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    encoder().save(tmp_path / "encoder")
    return tmp_path / "encoder"


def refusal(folder: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        FeatureEncoder.load(folder)
    return str(caught.value)


def reseal(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"] = {name: describe_file(folder / name) for name in manifest["files"] if (folder / name).exists()}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_what_comes_back_encodes_as_before(saved: Path) -> None:
    before, after = encoder(), FeatureEncoder.load(saved)
    shutil.rmtree(saved)
    assert after.fingerprint == before.fingerprint
    assert after.schema == SCHEMA
    again = after.inverse_transform(after.transform(ROWS))
    pd.testing.assert_frame_equal(again, before.inverse_transform(before.transform(ROWS)))
    assert after.seen_positions == {1, 2}
    assert after.numeric_statistics == before.numeric_statistics


def test_what_comes_back_grows_as_the_first(saved: Path) -> None:
    more = ROWS.assign(user=["w", "x", "y"])
    assert FeatureEncoder.load(saved).partial_fit(more).fingerprint == encoder().partial_fit(more).fingerprint


def test_the_folder_is_data_alone(saved: Path) -> None:
    names = sorted(path.relative_to(saved).as_posix() for path in saved.rglob("*") if path.is_file())
    vocabularies = [f"vocabularies/{number:03}.parquet" for number in range(3)]
    assert names == ["encoder.json", "manifest.json", "schema.json", *vocabularies]


def test_a_second_save_takes_the_place_of_the_first(saved: Path) -> None:
    grown = encoder().partial_fit(ROWS.assign(user=["w", "x", "y"]))
    grown.save(saved)
    assert FeatureEncoder.load(saved).fingerprint == grown.fingerprint


def test_a_vocabulary_in_files_is_saved_whole(tmp_path: Path) -> None:
    apart = FeatureEncoder(SCHEMA).fit(ROWS, spill=Spill(str(tmp_path / "spilled"), above=1))
    apart.save(tmp_path / "encoder")
    shutil.rmtree(tmp_path / "spilled")
    assert FeatureEncoder.load(tmp_path / "encoder").fingerprint == encoder().fingerprint


def test_an_encoder_goes_to_a_store_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bucket").mkdir()
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(locations, "from_uri", lambda uri: (store, uri.partition("://")[2]))
    encoder().save("store://bucket/encoder")
    assert FeatureEncoder.load("store://bucket/encoder").fingerprint == encoder().fingerprint


def test_an_encoder_that_is_not_fitted_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError) as caught:
        FeatureEncoder(SCHEMA).save(tmp_path / "encoder")
    assert str(caught.value) == "FeatureEncoder: expected a fitted encoder, got an unfitted one. Call fit first."
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_refused_by_name(saved: Path) -> None:
    file = saved / "vocabularies" / "000.parquet"
    content = file.read_bytes()
    file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    assert refusal(saved) == (
        "encoder: expected files as they were written, got 'vocabularies/000.parquet' altered or cut short. "
        "Save it again."
    )


def test_a_missing_file_is_refused_by_name(saved: Path) -> None:
    (saved / "schema.json").unlink()
    assert refusal(saved) == (
        "encoder: expected exactly the files of its manifest, got 'schema.json' missing. Save it again."
    )


@pytest.mark.parametrize("name", ["encoder.json", "schema.json"])
def test_a_folder_whose_manifest_lacks_a_file_is_refused(saved: Path, name: str) -> None:
    (saved / name).unlink()
    reseal(saved)
    assert refusal(saved).startswith("encoder.json: expected ")


def test_a_vocabulary_of_another_save_is_refused(saved: Path) -> None:
    shutil.copy(saved / "vocabularies" / "001.parquet", saved / "vocabularies" / "000.parquet")
    reseal(saved)
    assert refusal(saved) == (
        "encoder.json: expected 'vocabularies/000.parquet' as it was saved with it, got another one. "
        "Save the artifact again."
    )


def test_a_fingerprint_of_another_encoder_is_refused(saved: Path) -> None:
    learned = json.loads((saved / "encoder.json").read_text())
    (saved / "encoder.json").write_text(json.dumps({**learned, "fingerprint": "0"}))
    reseal(saved)
    assert refusal(saved) == (
        "encoder.json: expected the fingerprint of these vocabularies, got another one. Save the artifact again."
    )


def test_a_model_is_no_encoder_and_an_encoder_no_model(saved: Path, tmp_path: Path) -> None:
    schema = Schema(user=Categorical("user"), item=Categorical("a.b"), label="stars", embedding_dim=2)
    recommender = Recommender(schema, epochs=1, progress=False).fit(ROWS)
    recommender.save(tmp_path / "model")
    assert refusal(tmp_path / "model") == (
        "model: expected a saved encoder, got a model. Give the folder of an encoder."
    )
    with pytest.raises(ArtifactError) as caught:
        Recommender.load(saved)
    assert str(caught.value) == "encoder: expected a saved model, got an encoder. Give the folder of a model."
    with pytest.raises(ArtifactError) as caught:
        recommender.save(saved)
    assert str(caught.value) == "encoder: expected an artifact or an empty place, got something else. Save elsewhere."
    with pytest.raises(ArtifactError) as caught:
        encoder().save(tmp_path / "model")
    assert str(caught.value) == "model: expected an artifact or an empty place, got something else. Save elsewhere."


def test_encoded_rows_are_no_encoder(tmp_path: Path) -> None:
    encoder().transform_to(ROWS, tmp_path / "rows")
    assert refusal(tmp_path / "rows") == (
        "rows: expected a saved encoder, got encoded rows. Give the folder of an encoder."
    )
