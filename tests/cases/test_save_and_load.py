"""Known faults of saved models, kind "save and load": none of them here."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recsys_emb._version import __version__
from recsys_emb.artifact.manifest import FORMAT_VERSION, MANIFEST, describe_file
from recsys_emb.errors import ArtifactError
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position, Schema

PAIR = Schema(user=Categorical("user"), item=Categorical("item"), label="label", embedding_dim=3)


def rows(items: list[str], count: int = 60) -> pd.DataFrame:
    generator = np.random.default_rng(1)
    chosen = generator.integers(0, len(items), count)
    return pd.DataFrame(
        {
            "user": generator.integers(0, 9, count),
            "item": [items[place] for place in chosen],
            "label": generator.normal(3, 1, count),
            "tags": [["x", "é\n"] if place % 2 else [] for place in chosen],
            "age": generator.normal(40, 9, count),
            "slot": generator.integers(0, 3, count),
        }
    )


def fitted(frame: pd.DataFrame, schema: Schema = PAIR) -> Recommender:
    return Recommender(schema, epochs=3, progress=False).fit(frame)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "model"
    schema = Schema(
        user=Categorical("user"),
        item=Categorical("item"),
        position=Position("slot", max_position=3, serve_at=0),
        user_features=[Numeric("age")],
        item_features=[MultiCategorical("tags")],
        label="label",
        embedding_dim=3,
    )
    fitted(rows(["b", "a", "c"]), schema).save(folder)
    return folder


@pytest.fixture
def saved(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "model")


def files_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


FILES = [
    "manifest.json",
    "memory.safetensors",
    "recommender.json",
    "schema.json",
    "vocabularies/000.parquet",
    "vocabularies/001.parquet",
    "vocabularies/002.parquet",
    "weights.safetensors",
]


def reseal(folder: Path, **changes: object) -> None:
    """Write a manifest that fits the files as they are now, as an attacker would."""
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"] = {name: describe_file(folder / name) for name in files_of(folder) if name != MANIFEST}
    (folder / MANIFEST).write_text(json.dumps({**manifest, **changes}))


def edit(path: Path, change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


class Marker:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


# --- SV-01 ---------------------------------------------------------------------------------------------------------


def test_sv_01_a_new_process_without_the_data_recommends_the_same(tmp_path: Path) -> None:
    recommender = fitted(rows(["b", "a", "c"]))
    recommender.save(tmp_path / "model")
    code = (
        "import sys; from recsys_emb.recommender import Recommender;"
        "print(Recommender.load(sys.argv[1]).recommend([1, 2, 77], k=3, exclude_seen=False).to_json())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model")], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == recommender.recommend([1, 2, 77], k=3, exclude_seen=False).to_json()


@pytest.mark.parametrize("items", [["a", "aa", "b", "c"], ["b", "d", "c"]], ids=["more values", "as many values"])
def test_sv_01_weights_are_refused_beside_another_vocabulary(tmp_path: Path, items: list[str]) -> None:
    fitted(rows(["b", "a", "c"])).save(tmp_path / "old")
    fitted(rows(items)).save(tmp_path / "new")
    shutil.copy(tmp_path / "old" / "weights.safetensors", tmp_path / "new" / "weights.safetensors")
    reseal(tmp_path / "new")
    with pytest.raises(ArtifactError) as caught:
        Recommender.load(tmp_path / "new")
    assert str(caught.value) == (
        "weights.safetensors: expected weights trained with these vocabularies, got weights of other ones. "
        "Keep the files of one artifact together."
    )


def test_sv_01_a_vocabulary_in_another_order_is_refused(saved: Path) -> None:
    other = fitted(rows(["c", "b", "a"], count=61))
    other.save(saved.parent / "other")
    shutil.copy(saved.parent / "other" / "vocabularies" / "001.parquet", saved / "vocabularies" / "001.parquet")
    reseal(saved)
    with pytest.raises(ArtifactError, match=r"expected 'vocabularies/001\.parquet' as it was saved with it"):
        Recommender.load(saved)


def test_sv_01_any_number_of_rounds_changes_nothing(saved: Path) -> None:
    first = Recommender.load(saved)
    first.save(saved.parent / "second")
    second = Recommender.load(saved.parent / "second")
    second.save(saved.parent / "third")
    frame = rows(["b", "a", "c", "stranger"])
    for name in files_of(saved):
        assert (saved / name).read_bytes() == (saved.parent / "third" / name).read_bytes(), name
    assert second.predict(frame).tolist() == first.predict(frame).tolist()


# --- SV-03 ---------------------------------------------------------------------------------------------------------


def test_sv_03_the_files_are_those_that_these_tests_attack(saved: Path) -> None:
    assert files_of(saved) == FILES


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("sealed", [False, True], ids=["found out by its hash", "with a matching hash"])
def test_sv_03_a_pickle_in_place_of_a_file_is_never_loaded(saved: Path, name: str, sealed: bool) -> None:
    marker = saved.parent / "marker"
    (saved / name).write_bytes(pickle.dumps(Marker(marker)))
    if sealed and name != MANIFEST:
        reseal(saved)
    with pytest.raises(ArtifactError):
        Recommender.load(saved)
    assert not marker.exists()


def test_sv_03_no_file_is_a_pickle(saved: Path) -> None:
    starts = {(saved / name).read_bytes()[:1] for name in files_of(saved)}
    assert b"\x80" not in starts


def test_sv_03_a_newer_format_names_both_versions(saved: Path) -> None:
    reseal(saved, format_version=FORMAT_VERSION + 1, library_version="99.0")
    with pytest.raises(ArtifactError) as caught:
        Recommender.load(saved)
    got = f"{FORMAT_VERSION + 1}, written by a newer version of recsys_emb: 99.0"
    assert str(caught.value) == (
        f"model: expected format version {FORMAT_VERSION} or older, got {got}. This is {__version__}; upgrade it."
    )


@pytest.mark.parametrize("field", ["plan", "history", "label"])
def test_sv_03_settings_that_an_older_version_did_not_write_have_defaults(saved: Path, field: str) -> None:
    expected = Recommender.load(saved).recommend([1, 2])
    edit(saved / "recommender.json", lambda content: content["settings"].pop(field))
    reseal(saved)
    answer = Recommender.load(saved).recommend([1, 2])
    assert answer["item"].tolist() == expected["item"].tolist()


@pytest.mark.parametrize("field", ["settings", "statistics", "vocabularies", "fingerprint"])
def test_sv_03_what_serving_needs_is_asked_for_by_name(saved: Path, field: str) -> None:
    edit(saved / "recommender.json", lambda content: content.pop(field))
    reseal(saved)
    with pytest.raises(ArtifactError, match=r"^recommender\.json: expected"):
        Recommender.load(saved)


@pytest.mark.parametrize("path", ["../outside.parquet", "/outside.parquet", "vocabularies/../../outside.parquet"])
def test_sv_03_a_vocabulary_outside_the_folder_is_refused(saved: Path, path: str) -> None:
    shutil.copy(saved / "vocabularies" / "000.parquet", saved.parent / "outside.parquet")
    edit(saved / "recommender.json", lambda content: content["vocabularies"]["user"].update(file=path))
    reseal(saved)
    with pytest.raises(ArtifactError) as caught:
        Recommender.load(saved)
    names = "'vocabularies/000.parquet', 'vocabularies/001.parquet', 'vocabularies/002.parquet'"
    assert str(caught.value) == (f"recommender.json: expected one of {names}, got {path!r}. Save the artifact again.")


def test_sv_03_a_manifest_that_names_a_file_outside_is_refused(saved: Path) -> None:
    (saved.parent / "outside.json").write_text("{}")
    edit(saved / MANIFEST, lambda content: content["files"].update({"../outside.json": {"sha256": "", "bytes": 2}}))
    with pytest.raises(ArtifactError, match="naming files inside the folder"):
        Recommender.load(saved)


# --- other kinds, through a saved folder ---------------------------------------------------------------------------


def test_mv_05_values_that_look_like_markers_survive_the_disk(tmp_path: Path) -> None:
    names = ["NA", "null", "None", "nan", "", "0", "<unk>", "<pad>"]
    frame = pd.DataFrame({"user": range(17), "item": [*names, *names, None], "label": [float(n) for n in range(17)]})
    fitted(frame).save(tmp_path / "model")
    vocabulary = Recommender.load(tmp_path / "model").encoder.vocabularies["item"]
    codes = vocabulary.encode(names)
    assert len(set(codes.tolist())) == 8
    assert codes.min() >= vocabulary.first_index
    assert vocabulary.decode(codes) == names


def test_kt_06_text_that_only_looks_equal_stays_apart_after_loading(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user": [1, 2, 3], "item": ["se\u00f1or", "x", "y "], "label": [1.0, 2.0, 3.0]})
    fitted(frame).save(tmp_path / "model")
    vocabulary = Recommender.load(tmp_path / "model").encoder.vocabularies["item"]
    assert vocabulary.encode(["sen\u0303or", "x\u00a0", "x\u200b", "y"]).tolist() == [2, 2, 2, 2]
    assert sorted(vocabulary.values.to_pylist()) == ["se\u00f1or", "x", "y "]
