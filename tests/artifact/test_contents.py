"""A saved recommender is whole, belongs together, and goes on working."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from recsys_emb.artifact.contents import Artifact, load_artifact, save_artifact
from recsys_emb.artifact.manifest import MANIFEST, describe_file
from recsys_emb.encoding.batch import Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ArtifactError
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import (
    Categorical,
    Hashed,
    MultiCategorical,
    Numeric,
    OneHot,
    Position,
    QuotientRemainder,
    RefuseUnknown,
    Schema,
    UnknownBuckets,
)
from recsys_emb.serving.memory import Memory

SCHEMA = Schema(
    user=Categorical("type", unknown=UnknownBuckets(3)),
    item=Categorical("a.b", table=Hashed(7)),
    position=Position("slot", max_position=4, serve_at=1, vector=False),
    user_features=[Numeric("age"), MultiCategorical("recent", vocabulary="a.b", share_table=False)],
    item_features=[
        MultiCategorical("tags", weights="tag_weights"),
        Categorical("brand", table=OneHot()),
        Categorical("shop", table=QuotientRemainder(3), unknown=RefuseUnknown()),
        Categorical("twin", vocabulary="brand", share_table=True, table=OneHot()),
    ],
    label="stars",
    embedding_dim=3,
)


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "type": ["u", "v", "u", None],
            "a.b": [2**60 + 1, 5, 6, 5],
            "slot": [1, 2, 1, None],
            "age": [1.5, None, 3.0, 4.0],
            "recent": [[5], [], None, [6, 5]],
            "tags": [["x", "y"], [], ["y"], None],
            "tag_weights": [[0.5, 2.0], [], [1.0], None],
            "brand": ["p", "q", None, "p"],
            "shop": ["s", "s", "t", "t"],
            "twin": ["q", "p", "p", "p"],
            "stars": [1.0, 2.0, 3.0, 4.0],
        }
    )


def artifact(embedding_dim: int | None = None) -> Artifact:
    encoder = FeatureEncoder(SCHEMA).fit(frame())
    model = MatrixFactorization(encoder, embedding_dim=embedding_dim, init_std=1.0, seed=3)
    model.set_units(3.25, 0.5)
    memory = Memory.from_batch(encoder.transform(frame()), encoder)
    return Artifact(encoder, model, memory.users, memory.items, memory.seen, {"note": [1, None, "é"]})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact") / "model"
    save_artifact(folder, artifact())
    return folder


@pytest.fixture
def saved(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "model")


def reseal(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    manifest["files"] = {name: describe_file(folder / name) for name in names if name != MANIFEST}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def refusal(folder: Path) -> str:
    reseal(folder)
    with pytest.raises(ArtifactError) as caught:
        load_artifact(folder)
    return str(caught.value)


def edit_settings(folder: Path, **changes: object) -> None:
    content = json.loads((folder / "recommender.json").read_text())
    (folder / "recommender.json").write_text(json.dumps({**content, **changes}))


def test_all_kinds_of_tables_and_features_come_back(saved: Path) -> None:
    before, after = artifact(), load_artifact(saved)
    assert after.encoder.schema == SCHEMA
    assert after.encoder.fingerprint == before.encoder.fingerprint
    assert after.settings == before.settings
    batch = before.encoder.transform(frame())
    again = after.encoder.transform(frame())
    assert torch.equal(after.model(again), before.model(batch))
    assert {name: tensor.dtype for name, tensor in after.model.state_dict().items()} == {
        name: tensor.dtype for name, tensor in before.model.state_dict().items()
    }
    for mine, theirs in ((before.users, after.users), (before.items, after.items)):
        assert torch.equal(mine.indices, theirs.indices)
        assert mine.features.names == theirs.features.names
    assert after.seen.to_lists() == before.seen.to_lists()


def test_shared_tables_are_still_shared(saved: Path) -> None:
    vectors = load_artifact(saved).model.vectors
    assert vectors.lookup("twin") is vectors.lookup("brand")


def test_another_width_than_the_schemas_comes_back(tmp_path: Path) -> None:
    save_artifact(tmp_path / "wide", artifact(embedding_dim=5))
    assert load_artifact(tmp_path / "wide").model.vectors.embedding_dim == 5


def test_a_loaded_model_trains_and_leaves_the_file_alone(saved: Path) -> None:
    content = (saved / "weights.safetensors").read_bytes()
    loaded = load_artifact(saved)
    optimizer = torch.optim.SGD(loaded.model.parameters(), lr=0.1)
    before = loaded.model.vectors.lookup("brand").weight.detach().clone()
    loaded.model(loaded.encoder.transform(frame())).sum().backward()
    optimizer.step()
    assert not torch.equal(loaded.model.vectors.lookup("brand").weight, before)
    assert all(parameter.requires_grad for parameter in loaded.model.parameters())
    assert (saved / "weights.safetensors").read_bytes() == content


def test_a_model_that_was_read_does_not_follow_its_file(saved: Path) -> None:
    loaded = load_artifact(saved, mapped=False)
    before = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    with (saved / "weights.safetensors").open("r+b") as file:
        file.seek(-64, 2)
        file.write(bytes(64))
    assert all(torch.equal(tensor, before[name]) for name, tensor in loaded.model.state_dict().items())


def test_a_mapped_model_keeps_its_weights_when_another_takes_its_place(saved: Path) -> None:
    loaded, batch = load_artifact(saved), artifact().encoder.transform(frame())
    before = artifact().model(batch)
    other = artifact()
    other.model.reset_parameters(init_std=3.0, seed=9)
    save_artifact(saved, other)
    assert torch.equal(loaded.model(batch), before)
    assert torch.equal(load_artifact(saved).model(batch), other.model(batch))


def test_a_loaded_model_outlives_its_folder(saved: Path) -> None:
    loaded = load_artifact(saved)
    shutil.rmtree(saved)
    assert loaded.model(loaded.encoder.transform(frame())).isfinite().all()


def test_saving_in_place_of_the_loaded_artifact_works(saved: Path) -> None:
    loaded = load_artifact(saved)
    save_artifact(saved, loaded)
    batch = loaded.encoder.transform(frame())
    assert torch.equal(load_artifact(saved).model(batch), loaded.model(batch))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda tensor: tensor.double(), "torch.float64 ()"),
        (lambda tensor: tensor.reshape(1), "torch.float32 (1,)"),
        (None, "absent"),
    ],
)
def test_weights_of_another_type_or_shape_are_refused(saved: Path, change, found: str) -> None:
    path = saved / "weights.safetensors"
    weights = {name: tensor.clone() for name, tensor in load_file(path).items()}
    offset = weights.pop("offset")
    weights |= {} if change is None else {"offset": change(offset)}
    save_file(weights, path, metadata={"fingerprint": artifact().encoder.fingerprint})
    expected = f"weights.safetensors: expected 'offset' to be torch.float32 (), got {found}. Save the artifact again."
    assert refusal(saved) == expected


def test_an_extra_tensor_is_refused(saved: Path) -> None:
    path = saved / "weights.safetensors"
    weights = {name: tensor.clone() for name, tensor in load_file(path).items()}
    save_file({**weights, "aaa": torch.zeros(2)}, path, metadata={"fingerprint": artifact().encoder.fingerprint})
    expected = "weights.safetensors: expected 'aaa' to be absent, got torch.float32 (2,). Save the artifact again."
    assert refusal(saved) == expected


def test_weights_without_a_fingerprint_are_refused(saved: Path) -> None:
    path = saved / "weights.safetensors"
    save_file({name: tensor.clone() for name, tensor in load_file(path).items()}, path)
    assert refusal(saved) == (
        "weights.safetensors: expected weights trained with these vocabularies, got weights of other ones. "
        "Keep the files of one artifact together."
    )


def test_a_vocabulary_that_was_changed_is_refused(saved: Path) -> None:
    table = pq.read_table(saved / "vocabularies" / "000.parquet")
    pq.write_table(table.take(pa.array([1, 0])), saved / "vocabularies" / "000.parquet")
    text = refusal(saved)
    assert text.startswith("recommender.json: expected")


def test_a_schema_that_was_changed_is_refused(saved: Path) -> None:
    path = saved / "schema.json"
    path.write_text(path.read_text().replace('"serve_at": 1', '"serve_at": 2'))
    expected = "recommender.json: expected the fingerprint of these vocabularies, got another one."
    assert refusal(saved) == f"{expected} Save the artifact again."


def test_an_artifact_of_one_side_is_refused(tmp_path: Path) -> None:
    whole = artifact()
    schema = Schema(user=Categorical("u"), item_features=[Categorical("i")], embedding_dim=2)
    encoder = FeatureEncoder(schema).fit(pd.DataFrame({"u": [1], "i": [2]}))
    model = MatrixFactorization(encoder)
    save_artifact(tmp_path / "x", Artifact(encoder, model, whole.users, whole.items, whole.seen, {}))
    with pytest.raises(ArtifactError) as caught:
        load_artifact(tmp_path / "x")
    expected = "schema.json: expected a user and an item, got Categorical(name='u'"
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("width", [0, -3, 2.5, "3", True, 10**30])
def test_a_width_that_is_none_is_refused(saved: Path, width: object) -> None:
    edit_settings(saved, embedding_dim=width)
    expected = f"recommender.json: expected embedding_dim of at least 1, got {width!r}. Save the artifact again."
    assert refusal(saved) == expected


@pytest.mark.parametrize(
    "change", [{"vocabularies": {}}, {"vocabularies": None}, {"statistics": {}}, {"statistics": {"numeric": []}}]
)
def test_settings_that_do_not_fit_the_schema_are_refused(saved: Path, change: dict[str, object]) -> None:
    edit_settings(saved, **change)
    text = refusal(saved)
    assert text.startswith("recommender.json: expected schema.json, vocabularies and statistics that fit each other")


def test_a_vocabulary_of_another_feature_is_refused(saved: Path) -> None:
    settings = json.loads((saved / "recommender.json").read_text())
    other = settings["vocabularies"]["a.b"]
    edit_settings(saved, vocabularies={**settings["vocabularies"], "brand": other})
    assert refusal(saved).startswith("recommender.json: expected")


def test_numbers_that_json_cannot_say_are_not_written(tmp_path: Path) -> None:
    broken = artifact()
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_artifact(
            tmp_path / "x",
            Artifact(broken.encoder, broken.model, broken.users, broken.items, broken.seen, {"x": np.nan}),
        )
    assert not list(tmp_path.iterdir())


def test_nothing_seen_is_nothing_seen(tmp_path: Path) -> None:
    empty = artifact()
    seen = Jagged.from_lists([[] for _ in range(len(empty.users) + 1)])
    save_artifact(tmp_path / "x", Artifact(empty.encoder, empty.model, empty.users, empty.items, seen, {}))
    assert load_artifact(tmp_path / "x").seen.to_lists() == [[]] * (len(empty.users) + 1)
