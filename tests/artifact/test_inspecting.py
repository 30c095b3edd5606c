"""A saved folder tells what is in it without its weights being read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import recsys_emb
from recsys_emb.artifact.manifest import FORMAT_VERSION, MANIFEST, describe_file
from recsys_emb.errors import ArtifactError
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, Numeric, Schema

SCHEMA = Schema(
    user=Categorical("user"), item=Categorical("item"), user_features=[Numeric("age")], label="stars", embedding_dim=2
)
ROWS = pd.DataFrame({"user": [1, 2, 1], "item": ["a", "b", "b"], "age": [1.0, 2.0, 1.0], "stars": [1.0, 5.0, 2.0]})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspected") / "model"
    recommender = Recommender(SCHEMA, epochs=1, progress=False).fit(ROWS)
    recommender.partial_fit(ROWS.assign(user=[3, 3, 3])).save(folder)
    return folder


def test_it_says_what_is_inside(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contents = recsys_emb.inspect(saved)
    assert contents.schema == SCHEMA
    assert (contents.format_version, contents.library_version) == (FORMAT_VERSION, recsys_emb.__version__)
    assert contents.vocabularies == {"user": 3, "item": 2}
    assert contents.tensors["vectors.tables.0.weight"] == "F32 (6, 2)"
    assert contents.num_parameters == 3 * (6 + 5 + 2)
    assert contents.files["weights.safetensors"] == (saved / "weights.safetensors").stat().st_size
    lineage = Recommender.load(saved).lineage
    text = str(contents)
    assert capsys.readouterr().out == f"{text}\n"
    total = sum(contents.files.values())
    assert repr(contents) == f"Contents(format {FORMAT_VERSION}, {len(contents.files)} files, {total / 1000:.1f} kB)"
    lines = text.splitlines()
    assert lines[0].startswith(f"format {FORMAT_VERSION} of recsys_emb {recsys_emb.__version__}, ")
    assert lines[1].endswith("39 parameters")
    assert lines[2:] == [
        "  user: Categorical, 3 values",
        "  age: Numeric",
        "  item: Categorical, 2 values",
        "label 'stars', width 2, SquaredError",
        f"  step 0: 3 rows, {lineage[0].fingerprint[:12]}",
        f"  step 1: 3 rows, {lineage[1].fingerprint[:12]}",
    ]


def test_it_reads_folders_of_earlier_versions() -> None:
    contents = recsys_emb.inspect(Path(__file__).parent / "version_1")
    assert (contents.format_version, contents.vocabularies) == (1, {"user": 3, "item": 3, "tags": 2})


def test_what_is_no_saved_recommender_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="got nothing there"):
        recsys_emb.inspect(tmp_path / "absent")
    Recommender(SCHEMA, epochs=1, progress=False).fit(ROWS, checkpoint=tmp_path / "run")
    with pytest.raises(ArtifactError, match="expected a saved model, got a checkpoint"):
        recsys_emb.inspect(tmp_path / "run")


def changed(saved: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Change settings, and state their size as it is then."""
    shutil.copytree(saved, folder)
    settings = json.loads((folder / "recommender.json").read_text())
    change(settings["settings"])
    (folder / "recommender.json").write_text(json.dumps(settings))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"]["recommender.json"] = describe_file(folder / "recommender.json")
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("lineage", [None, [None], [{}], 3, [{"fingerprint": "x", "rows": "many"}]])
def test_settings_that_are_none_are_refused(saved: Path, tmp_path: Path, lineage: object) -> None:
    folder = changed(saved, tmp_path / "model", lambda settings: settings.update(lineage=lineage))
    with pytest.raises(ArtifactError, match="model: expected a saved recommender, got "):
        recsys_emb.inspect(folder)


def test_what_a_terminal_would_act_on_is_shown(saved: Path, tmp_path: Path, capsys) -> None:
    folder = changed(saved, tmp_path / "model", lambda settings: settings["objective"].update(kind="\x1b[2J"))
    recsys_emb.inspect(folder)
    assert "\nlabel 'stars', width 2, \\x1b[2J\n" in capsys.readouterr().out
