"""What is known of users and items survives the disk bit for bit, and what does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from recsys_emb.artifact.memory import Known, read_known, write_known
from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.entities import EntityTable
from recsys_emb.errors import ArtifactError
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Schema

SCHEMA = Schema(
    user=Categorical("a.b"),
    item=Categorical("item"),
    user_features=[Numeric("age")],
    item_features=[MultiCategorical("tags", weights="shares"), MultiCategorical("words")],
    embedding_dim=2,
)
ROWS = pd.DataFrame(
    {
        "a.b": [7, 8, 9],
        "item": ["x", "y", "x"],
        "age": [1.0, None, 3.0],
        "tags": [["t", "u"], [], ["t"]],
        "shares": [[0.5, 2.0], [], [1.0]],
        "words": [["w"], None, ["v", "w"]],
    }
)
ENCODER = FeatureEncoder(SCHEMA).fit(ROWS)


def known(seen: list[list[int]] | None = None) -> Known:
    batch = ENCODER.transform(ROWS)
    users = EntityTable.from_batch(batch, "a.b", ["a.b", "age"])
    items = EntityTable.from_batch(batch, "item", ["item", "tags", "words"])
    return Known(users, items, Jagged.from_lists([[3], [4, 3], [], []] if seen is None else seen))


def columns_equal(one: Column, other: Column) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return torch.equal(one, other)
    weights = (one.weights is None) == (other.weights is None)
    same = weights and (one.weights is None or torch.equal(one.weights, other.weights))
    return same and torch.equal(one.values, other.values) and torch.equal(one.offsets, other.offsets)


def assert_equal(one: Batch, other: Batch) -> None:
    assert one.names == other.names
    assert all(columns_equal(one[name], other[name]) for name in one)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(3, 4), max_size=3), min_size=4, max_size=4), st.booleans())
def test_it_comes_back_bit_for_bit(tmp_path_factory, seen: list[list[int]], mapped: bool) -> None:
    path = tmp_path_factory.mktemp("memory") / "memory.safetensors"
    before = known(seen)
    write_known(path, before)
    after = read_known(path, ENCODER, mapped=mapped)
    for mine, theirs in ((before.users, after.users), (before.items, after.items)):
        assert (mine.key, mine.indices.tolist()) == (theirs.key, theirs.indices.tolist())
        assert_equal(mine.features, theirs.features)
        assert theirs.features.limits == {name: ENCODER.num_embeddings(name) for name in mine.features.names}
    assert after.seen.to_lists() == seen


def test_what_was_mapped_may_be_changed_and_the_file_stays(tmp_path: Path) -> None:
    write_known(tmp_path / "x", known())
    content = (tmp_path / "x").read_bytes()
    read_known(tmp_path / "x", ENCODER, mapped=True).users.features.indices("age")[0] = 9.0
    assert (tmp_path / "x").read_bytes() == content


def changed(path: Path, change: Callable[[dict[str, Tensor]], None]) -> str:
    write_known(path, known())
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)
    with pytest.raises(ArtifactError) as caught:
        read_known(path, ENCODER, mapped=True)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("users.0", None, "expected 'users.0' to be torch.int64 in 1 dimensions, got nothing."),
        (
            "users.0",
            torch.ones(4, dtype=torch.int32),
            "expected 'users.0' to be torch.int64 in 1 dimensions, got torch.int32 (4,).",
        ),
        (
            "users.1",
            torch.ones(4, 3),
            "expected 'users.1' to be torch.float32 in 2 dimensions, got torch.float32 (4, 3).",
        ),
        (
            "users.1",
            torch.ones(4, 2).double(),
            "expected 'users.1' to be torch.float32 in 2 dimensions, got torch.float64 (4, 2).",
        ),
        ("users.9", torch.ones(1), "expected no more than these columns, got 'users.9' too."),
        ("items.1.values", torch.tensor([9]), "items.1: expected indices in [0, 5), got 9 to 9."),
        ("users.0", torch.tensor([3, 4, -5, 1]), "users.0: expected indices in [0, 6), got -5 to 4."),
        ("items.1.offsets", torch.tensor([0, 2, 9, 2]), "items.1: expected lists end to end, got others."),
        ("items.1.offsets", torch.tensor([1, 2, 2, 3]), "items.1: expected lists end to end, got others."),
        ("items.1.weights", torch.ones(2), "items.1: expected lists end to end, got others."),
        ("users.0", torch.tensor([4, 3, 5, 1]), "users: expected ascending indices and a stranger's row in columns"),
        ("users.0", torch.tensor([3, 3, 5, 1]), "users: expected ascending indices and a stranger's row in columns"),
        ("users.0", torch.tensor([3, 5, 1]), "users: expected ascending indices and a stranger's row in columns"),
        ("seen.offsets", torch.tensor([0, 1, 3]), "seen: expected 4 lists, one per user, got 2 lists."),
        ("users.0", torch.tensor([1, 4, 5, 1]), "users: expected indices from 3 on, got 1."),
        ("items.0", torch.tensor([2, 4, 1]), "items: expected indices from 3 on, got 2."),
        ("seen.values", torch.tensor([3, 0, 3]), "seen: expected indices of its items, got 0."),
        ("users.1", torch.tensor([[0.0, torch.nan]] * 4), "users.1: expected finite numbers, got NaN or infinity."),
        ("items.1.weights", torch.tensor([1, 2, torch.inf]), "items.1.weights: expected finite numbers, got NaN"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, name: str, tensor: Tensor | None, message: str) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors.pop(name, None)
        tensors.update({} if tensor is None else {name: tensor})

    assert changed(tmp_path / "memory.safetensors", change).startswith(f"memory.safetensors: {message}")


def test_an_item_that_was_seen_and_is_none_of_the_items_is_refused(tmp_path: Path) -> None:
    def forget(tensors: dict[str, Tensor]) -> None:
        for name in ("items.0", "items.1.offsets", "items.2.offsets"):
            tensors[name] = tensors[name][[0, *range(2, len(tensors[name]))]]
        for name in ("items.1.values", "items.1.weights", "items.2.values"):
            tensors[name] = tensors[name][:0]
        tensors["items.1.offsets"][:] = tensors["items.2.offsets"][:] = 0

    text = changed(tmp_path / "x", forget)
    assert text == "memory.safetensors: seen: expected indices of its items, got 4. Save the artifact again."


def test_lists_that_are_none_are_refused(tmp_path: Path) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        del tensors["seen.offsets"], tensors["seen.values"]
        tensors["seen"] = torch.tensor([3, 4, 3, 3])

    text = changed(tmp_path / "memory.safetensors", change)
    assert text.startswith("memory.safetensors: seen: expected 4 lists, one per user, got 4 rows.")


@pytest.mark.parametrize("content", [b"", bytes(8), b"\x80\x04N.", b"\xff" * 64])
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "memory.safetensors").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"^memory\.safetensors: expected a safetensors file, got "):
        read_known(tmp_path / "memory.safetensors", ENCODER, mapped=True)
