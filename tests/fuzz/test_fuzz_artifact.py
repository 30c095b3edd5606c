"""Whatever a saved folder holds, it is loaded right or refused in words; what was loaded answers or refuses alike."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

from recsys_emb import inspect
from recsys_emb.artifact.manifest import MANIFEST, describe_file
from recsys_emb.errors import RecsysEmbError
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
JSON = ["recommender.json", "schema.json", MANIFEST]
TENSORS = ["weights.safetensors", "memory.safetensors"]
TABLES = ["vocabularies/000.parquet", "vocabularies/001.parquet", "vocabularies/002.parquet"]
ROWS = pd.DataFrame(
    {
        "user": np.arange(40) % 8,
        "item": [f"i{number % 6}" for number in range(40)],
        "slot": np.arange(40) % 3 + 1,
        "age": np.arange(40.0),
        "tags": [[f"t{number % 2}"] for number in range(40)],
        "stars": np.arange(40) % 5 + 1,
    }
)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "model"
    Recommender(SCHEMA, epochs=2, progress=False).fit(ROWS).save(folder)
    return folder


@pytest.fixture
def saved(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "model")


def reseal(folder: Path) -> None:
    """Write hashes that fit the files as they are now, as somebody would who wants them to be believed."""
    manifest = json.loads((folder / MANIFEST).read_text())
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    manifest["files"] = {name: describe_file(folder / name) for name in names if name != MANIFEST}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def use(folder: Path) -> None:
    """Look into a folder, load it, and ask what was loaded; every step may refuse, in words."""
    with contextlib.suppress(RecsysEmbError), contextlib.redirect_stdout(io.StringIO()):
        inspect(folder)
    with contextlib.suppress(RecsysEmbError):
        loaded = Recommender.load(folder)
        predicted = loaded.predict(ROWS)
        assert len(predicted) == len(ROWS)
        answer = loaded.recommend([1, 999], k=3)
        assert np.isfinite(answer["score"]).all()
        assert set(answer["item"]) <= {f"i{number}" for number in range(6)}


def places(content: Any, path: tuple = ()) -> list[tuple]:
    """Paths to every value of a JSON document."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [path, *(place for name, one in inner for place in places(one, (*path, name)))]


def put(content: Any, path: tuple, change: Any) -> Any:
    """The document with another value at a path; or without it, for a change of ``...``."""
    if not path:
        return None if change is ... else change
    name, *rest = path
    content = list(content) if isinstance(content, list) else dict(content)
    if not rest and change is ...:
        del content[name]
    else:
        content[name] = put(content[name], tuple(rest), change)
    return content


HOSTILE = st.one_of(
    st.just(...),
    st.sampled_from([None, True, 0, -1, 1, 2, 2**31, 2**63, -(2**70), 1e308, -0.5, float("nan"), float("inf")]),
    st.sampled_from(
        ["", "x", "item", "user", "../../etc/passwd", "vocabularies/001.parquet", "SquaredError", "\x1b[2J"]
    ),
    st.sampled_from([[], {}, [[]], [0, 1], {"kind": "Logistic"}, {"kind": []}, {"": None}, [None], ["user"]]),
)


@pytest.mark.parametrize("name", JSON)
def test_documents_with_other_values_in_them(name: str, original: Path, saved: Path, fuzz) -> None:
    document = json.loads((original / name).read_text())
    paths = st.sampled_from(places(document))

    def check(changes: list[tuple[tuple, Any]]) -> None:
        changed = document
        for path, value in changes:
            with contextlib.suppress(KeyError, IndexError, TypeError, ValueError):
                changed = put(changed, path, value)
        (saved / name).write_text(json.dumps(changed))
        if name != MANIFEST:
            shutil.copy(original / MANIFEST, saved / MANIFEST)
            reseal(saved)
        use(saved)

    fuzz(st.lists(st.tuples(paths, HOSTILE), min_size=1, max_size=2), check)


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[float, int]]:
    """Bytes to write, at places given as shares of the length; then the share that is kept."""
    return draw(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4))


@pytest.mark.parametrize("name", [*TABLES[:1], *TABLES[2:], *TENSORS])
def test_files_with_other_bytes_in_them(name: str, original: Path, saved: Path, fuzz) -> None:
    content = (original / name).read_bytes()

    def check(drawn: tuple[list[tuple[float, int]], float]) -> None:
        changes, kept = drawn
        damaged = bytearray(content)
        for place, byte in changes:
            damaged[int(place * len(content))] = byte
        (saved / name).write_bytes(damaged[: int(kept * len(damaged))])
        reseal(saved)
        use(saved)

    fuzz(st.tuples(damages(), st.just(1.0) | st.floats(0, 1)), check)


DTYPES = st.sampled_from(["F32", "F64", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8_E4M3", "C64", "X1"])
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 11, -1, 2**31, 2**62]), max_size=3)
OFFSETS = st.lists(st.sampled_from([0, 4, 12, 132, 10**6, 2**63, -4]), min_size=1, max_size=3)
ENTRY = st.fixed_dictionaries({}, optional={"dtype": DTYPES, "shape": SHAPES, "data_offsets": OFFSETS})


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_whose_header_says_otherwise(name: str, original: Path, saved: Path, fuzz) -> None:
    content = (original / name).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]

    def check(changes: dict[str, dict[str, Any] | None]) -> None:
        changed = {key: {**header.get(key, {}), **one} for key, one in changes.items() if one is not None}
        said = {key: one for key, one in {**header, **changed}.items() if changes.get(key, one) is not None}
        text = json.dumps(said).encode()
        (saved / name).write_bytes(struct.pack("<Q", len(text)) + text + body)
        reseal(saved)
        use(saved)

    names = st.sampled_from([*header, "another", ""])
    fuzz(st.dictionaries(names, ENTRY | st.none(), min_size=1, max_size=2), check)


NUMBERS = st.sampled_from([0, 1, 2, -1, 7, 2**40, -(2**63)])


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_other_numbers(name: str, original: Path, saved: Path, fuzz) -> None:
    """Indices, lists and weights may be anything of the right type and shape."""
    content = (original / name).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    words = (len(content) - length) // 8 - 1

    def check(changes: list[tuple[int, int]]) -> None:
        damaged = bytearray(content)
        for place, number in changes:
            struct.pack_into("<q", damaged, 8 + length + 8 * place, number)
        (saved / name).write_bytes(damaged)
        reseal(saved)
        use(saved)

    fuzz(st.lists(st.tuples(st.integers(0, words - 1), NUMBERS), min_size=1, max_size=3), check)
