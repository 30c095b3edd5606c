"""Every kind of damage to a saved recommender is refused by the name of the file; what is refused changes nothing."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from recsys_emb import inspect
from recsys_emb.artifact.manifest import FORMAT_VERSION, MANIFEST, describe_file
from recsys_emb.errors import ArtifactError, RecsysEmbError
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, History, MultiCategorical, Numeric, Position, Schema

SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    position=Position("slot", max_position=3, serve_at=1),
    user_features=[Numeric("age"), History("item")],
    item_features=[MultiCategorical("tags")],
    label="stars",
    embedding_dim=3,
)
FILES = [
    "memory.safetensors",
    "recommender.json",
    "schema.json",
    "vocabularies/000.parquet",
    "vocabularies/001.parquet",
    "vocabularies/002.parquet",
    "weights.safetensors",
]


def rows(seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    items = generator.integers(0, 6, 50)
    return pd.DataFrame(
        {
            "user": generator.integers(0, 8, 50),
            "item": [f"i{item}" for item in items],
            "slot": generator.integers(1, 4, 50),
            "age": generator.normal(40, 9, 50),
            "tags": [[f"t{item % 2}"] for item in items],
            "stars": generator.integers(1, 6, 50),
        }
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "model"
    Recommender(SCHEMA, epochs=2, progress=False).fit(rows()).save(folder)
    return folder


@pytest.fixture
def saved(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "model")


def reseal(folder: Path, **changes: object) -> None:
    """Write a manifest that fits the files as they are now, as somebody would who wants them to be believed."""
    manifest = json.loads((folder / MANIFEST).read_text())
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    manifest["files"] = {name: describe_file(folder / name) for name in names if name != MANIFEST}
    (folder / MANIFEST).write_text(json.dumps({**manifest, **changes}))


def refusal(folder: Path, load: Callable[[Path], object] = Recommender.load) -> str:
    with pytest.raises(ArtifactError) as caught:
        load(folder)
    return str(caught.value)


def test_the_files_are_these(original: Path) -> None:
    found = sorted(path.relative_to(original).as_posix() for path in original.rglob("*") if path.is_file())
    assert found == sorted([*FILES, MANIFEST])


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_is_named(saved: Path, name: str) -> None:
    (saved / name).unlink()
    expected = f"model: expected exactly the files of its manifest, got {name!r} missing. Save it again."
    assert refusal(saved) == refusal(saved, inspect) == expected


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0.0, 0.5, -1])
def test_a_file_that_was_cut_short_is_named(saved: Path, name: str, keep: float) -> None:
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[: int(keep * len(content)) if keep >= 0 else -1])
    expected = f"model: expected files as they were written, got {name!r} altered or cut short. Save it again."
    assert refusal(saved) == refusal(saved, inspect) == expected


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_bit_is_found(saved: Path, name: str) -> None:
    content = (saved / name).read_bytes()
    generator = np.random.default_rng(len(content))
    places = {0, 7, len(content) - 1, *generator.integers(0, len(content), 12).tolist()}
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(generator.integers(8))
        (saved / name).write_bytes(damaged)
        expected = f"model: expected files as they were written, got {name!r} altered or cut short. Save it again."
        assert refusal(saved) == expected


@pytest.mark.parametrize(("one", "other"), [(FILES[3], FILES[4]), (FILES[0], FILES[6]), (FILES[1], FILES[2])])
def test_files_that_changed_places_are_named(saved: Path, one: str, other: str) -> None:
    (saved / one).rename(saved / "aside")
    (saved / other).rename(saved / one)
    (saved / "aside").rename(saved / other)
    names = f"'{min(one, other)}', '{max(one, other)}'"
    assert refusal(saved) == (
        f"model: expected files as they were written, got {names} altered or cut short. Save it again."
    )


@pytest.mark.parametrize("name", ["extra.json", "vocabularies/003.parquet", "weights.pt", ".hidden"])
def test_a_file_that_was_added_is_named(saved: Path, name: str) -> None:
    (saved / name).write_bytes(b"{}")
    expected = f"model: expected exactly the files of its manifest, got {name!r} added. Save it again."
    assert refusal(saved) == refusal(saved, inspect) == expected


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_a_link_is_refused_wherever_it_leads(saved: Path, name: str) -> None:
    (saved / name).rename(saved.parent / "elsewhere")
    (saved / name).symlink_to(saved.parent / "elsewhere")
    text = refusal(saved)
    assert text == refusal(saved, inspect)
    assert name in text


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../outside", "C:\\outside"])
def test_a_path_outside_is_refused(saved: Path, name: str) -> None:
    manifest = json.loads((saved / MANIFEST).read_text())
    manifest["files"][name] = {"sha256": "0" * 64, "bytes": 1}
    (saved / MANIFEST).write_text(json.dumps(manifest))
    text = refusal(saved)
    assert text == refusal(saved, inspect)
    assert "naming files inside the folder" in text


@pytest.mark.parametrize("name", FILES)
def test_a_pickle_is_read_by_nobody(saved: Path, name: str, tmp_path: Path) -> None:
    class Marker:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    (saved / name).write_bytes(pickle.dumps(Marker()))
    reseal(saved)
    assert Path(name).name in refusal(saved)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", ["weights.safetensors", "memory.safetensors"])
@pytest.mark.parametrize("length", [2**62, 2**40, 10**8, 3])
def test_a_header_of_another_length_than_it_says_is_refused(saved: Path, name: str, length: int) -> None:
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(struct.pack("<Q", length) + content[8:])
    reseal(saved)
    assert refusal(saved).startswith(f"{name}: expected a safetensors file, got ")


def test_a_manifest_of_any_size_is_not_read(saved: Path) -> None:
    with (saved / MANIFEST).open("r+b") as file:
        file.truncate(10**10)
    assert refusal(saved) == "manifest.json: expected a JSON object, got something else. Save the artifact again."


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 10**9])
def test_a_newer_version_is_refused_with_both(saved: Path, version: int) -> None:
    reseal(saved, format_version=version, library_version="9.9.9")
    text = refusal(saved)
    assert text == refusal(saved, inspect)
    assert f"expected format version {FORMAT_VERSION} or older, got {version}, written by a newer version" in text


@pytest.mark.parametrize("version", [0, -1, None, "2", 2.0, True])
def test_a_version_that_is_none_is_refused(saved: Path, version: object) -> None:
    reseal(saved, format_version=version)
    assert refusal(saved).startswith(f"model: expected an integer format_version, got {version!r}.")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda tensor: tensor.double(), "torch.float64 (11, 3)"),
        (lambda tensor: tensor.half(), "torch.float16 (11, 3)"),
        (lambda tensor: tensor[:-1].clone(), "torch.float32 (10, 3)"),
        (lambda tensor: tensor.T.contiguous(), "torch.float32 (3, 11)"),
        (lambda tensor: tensor.flatten(), "torch.float32 (33,)"),
    ],
)
def test_weights_of_another_type_or_shape_are_refused(saved: Path, change, found: str) -> None:
    path = saved / "weights.safetensors"
    weights = {name: tensor.clone() for name, tensor in load_file(path).items()}
    weights["vectors.tables.0.weight"] = change(weights["vectors.tables.0.weight"])
    fingerprint = json.loads((saved / "recommender.json").read_text())["fingerprint"]
    save_file(weights, path, metadata={"fingerprint": fingerprint})
    reseal(saved)
    assert refusal(saved) == (
        "weights.safetensors: expected 'vectors.tables.0.weight' to be torch.float32 (11, 3), "
        f"got {found}. Save the artifact again."
    )


def test_weights_whose_rows_stand_for_other_values_are_refused(saved: Path) -> None:
    path = saved / "weights.safetensors"
    weights = {name: tensor.clone() for name, tensor in load_file(path).items()}
    weights["vectors.fingerprint"] = torch.zeros(32, dtype=torch.uint8)
    fingerprint = json.loads((saved / "recommender.json").read_text())["fingerprint"]
    save_file(weights, path, metadata={"fingerprint": fingerprint})
    reseal(saved)
    assert refusal(saved).startswith("weights.safetensors: load_state_dict: expected weights of the vocabularies ")


ROWS = 10**6
FEW_BYTES_FOR_MANY = {
    "a dictionary": ({}, pa.array(np.zeros(ROWS, np.int64))),
    "long text": ({}, pa.DictionaryArray.from_arrays(np.zeros(10**4, np.int32), ["x" * 10**5])),
    "differences": ({"use_dictionary": False, "column_encoding": "DELTA_BINARY_PACKED"}, pa.array(np.arange(ROWS))),
    "zeros": ({"use_dictionary": False, "compression": "zstd"}, pa.array(np.zeros(ROWS, np.int64))),
    "nothing": ({"use_dictionary": False}, pa.nulls(ROWS, pa.int64())),
}


@pytest.mark.parametrize("kind", FEW_BYTES_FOR_MANY)
def test_a_few_bytes_that_stand_for_many_are_not_unfolded(saved: Path, kind: str) -> None:
    options, values = FEW_BYTES_FOR_MANY[kind]
    pq.write_table(pa.table({"value": values}), saved / FILES[3], **options)
    described = describe_file(saved / FILES[3])
    settings = json.loads((saved / "recommender.json").read_text())
    for one in settings["vocabularies"].values():
        one.update({"sha256": described["sha256"]} if one["file"] == FILES[3] else {})
    (saved / "recommender.json").write_text(json.dumps(settings))
    reseal(saved)
    assert refusal(saved) == (
        "000.parquet: expected plain columns of about its own size, got a few bytes that stand for many. "
        "Save the artifact again."
    )


def set_in(folder: Path, name: str, place: tuple[Any, ...], value: object) -> None:
    """Set a value inside a JSON file, and state its hash as it is then."""
    document = json.loads((folder / name).read_text())
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (folder / name).write_text(json.dumps(document))
    reseal(folder)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("settings", "objective", "kind"), []),
        (("settings", "plan", "solver"), {"kind": "Minibatch", "optimizer": []}),
        (("settings", "occurrences"), {"user": [-1]}),
        (("statistics", "positions", "slot"), [-1, 2]),
        (("statistics", "positions", "slot"), [1, 4]),
        (("statistics", "positions", "slot"), [1, 1]),
        (("statistics", "positions", "slot"), ["1"]),
        (("statistics", "numeric", "age", "mean"), float("nan")),
        (("statistics", "numeric", "age", "std"), "wide"),
        (("statistics", "numeric", "age", "count"), -1),
    ],
)
def test_settings_that_no_save_writes_are_refused(saved: Path, place: tuple[Any, ...], value: object) -> None:
    set_in(saved, "recommender.json", place, value)
    assert refusal(saved).startswith("recommender.json: expected ")


def test_weights_that_are_no_numbers_answer_nothing(saved: Path) -> None:
    path = saved / "weights.safetensors"
    weights = {name: tensor.clone() for name, tensor in load_file(path).items()}
    weights["vectors.tables.0.weight"][3:] = torch.nan
    fingerprint = json.loads((saved / "recommender.json").read_text())["fingerprint"]
    save_file(weights, path, metadata={"fingerprint": fingerprint})
    reseal(saved)
    loaded = Recommender.load(saved)
    for ask in (lambda: loaded.predict(rows()), lambda: loaded.recommend(rows()["user"].unique())):
        with pytest.raises(RecsysEmbError, match="expected finite "):
            ask()


def test_what_was_refused_is_left_as_it_is(saved: Path) -> None:
    (saved / "schema.json").unlink()
    before = {path: path.read_bytes() for path in saved.rglob("*") if path.is_file()}
    refusal(saved)
    assert {path: path.read_bytes() for path in saved.rglob("*") if path.is_file()} == before
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_a_damaged_folder_can_be_saved_over(saved: Path, original: Path) -> None:
    (saved / "schema.json").unlink()
    (saved / "weights.safetensors").write_bytes(b"")
    Recommender.load(original).save(saved)
    assert Recommender.load(saved).predict(rows()).equals(Recommender.load(original).predict(rows()))
