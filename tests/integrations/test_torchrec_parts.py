"""What of sharded tables needs no TorchRec: where rows stand, what is refused, and how to install it."""

from __future__ import annotations

import math
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.errors import ArtifactError, FitError, MissingDependencyError
from recsys_emb.integrations.torchrec import (
    RowWise,
    ShardedCheckpoints,
    ShardedFactorization,
    TableWise,
    bag_configs,
    last_checkpoint,
)
from recsys_emb.integrations.torchrec.agreement import Ranks
from recsys_emb.integrations.torchrec.placement import ColumnWise, dealt_out, padded_width, placement_of
from recsys_emb.integrations.torchrec.spread import Spread
from recsys_emb.lookup.row_rules import SGDUpdate
from recsys_emb.schema import Categorical, Schema

INSTALL = (
    "recsys_emb.integrations.torchrec: expected TorchRec to be installed, got none. Run: pip install tensordict "
    "pyre-extensions torchmetrics==1.0.3 tqdm iopath && pip install --no-deps fbgemm-gpu-cpu==1.8.0 torchrec==1.8.0"
)


@pytest.mark.parametrize(
    "call", [lambda: ShardedFactorization(None, update=SGDUpdate(lr=0.1)), lambda: bag_configs(_sizes())]
)
def test_without_torchrec_the_error_says_how_to_install_it(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchrec", None)
    with pytest.raises(MissingDependencyError) as error:
        call()
    assert str(error.value) == INSTALL


def _sizes() -> Any:
    return SimpleNamespace(schema=Schema(user=Categorical("user")), num_embeddings={"user": 10}.__getitem__)


@given(num_embeddings=st.integers(1, 5000), processes=st.integers(1, 9), data=st.data())
@settings(max_examples=100, deadline=None)
def test_rows_are_permuted_and_every_process_gets_its_share_of_the_frequent_values(
    num_embeddings: int, processes: int, data: st.DataObject
) -> None:
    spread = Spread.of(num_embeddings)
    indices = torch.arange(num_embeddings)
    rows = spread.rows(indices)
    assert torch.equal(rows.sort().values, indices)
    assert torch.equal(spread.indices(rows), indices)

    # Whatever number of the most frequent values: no process holds much more than its share.
    first = data.draw(st.integers(1, num_embeddings))
    block = math.ceil(num_embeddings / processes)
    held = torch.bincount(rows[:first] // block, minlength=processes)
    assert int(held.max()) <= first * block / num_embeddings + 2 + 2 * math.log2(num_embeddings)


def test_a_table_of_a_billion_rows_is_permuted_without_overflow() -> None:
    spread = Spread.of(2_000_000_011)
    indices = torch.tensor([0, 1, 1_999_999_999, 2_000_000_010])
    assert torch.equal(spread.indices(spread.rows(indices)), indices)
    assert spread.rows(indices).max() < 2_000_000_011


def test_tables_are_dealt_out_the_largest_first() -> None:
    assert dealt_out([5, 100, 40, 50, 5], 2) == [1, 0, 1, 1, 1]
    assert dealt_out([], 3) == []


def test_a_placement_is_that_of_a_feature_which_reads_the_table_or_by_rows() -> None:
    assert placement_of(TableWise(), ["a"]) == TableWise()
    assert placement_of({"b": TableWise()}, ["a", "b"]) == TableWise()
    assert placement_of({"b": TableWise()}, ["a"]) == RowWise()


@pytest.mark.parametrize(("width", "split", "expected"), [(1, False, 4), (4, False, 4), (6, False, 8), (6, True, 12)])
def test_tables_are_as_wide_as_fbgemm_wants_them(width: int, split: bool, expected: int) -> None:
    assert padded_width(width, [RowWise(), ColumnWise() if split else TableWise()], 3) == expected


def test_a_process_group_is_asked_for() -> None:
    with pytest.raises(FitError) as error:
        Ranks(None, timeout=timedelta(seconds=1))
    assert str(error.value) == (
        "ShardedFactorization: expected a process group, got none. Start the script with torchrun, and call "
        "torch.distributed.init_process_group first; one process is a group too."
    )


def test_checkpoints_in_the_home_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "runs" / "step-000000000007").mkdir(parents=True)
    assert last_checkpoint("~/runs") == tmp_path / "runs" / "step-000000000007"


@pytest.mark.parametrize("name", ["every", "keep"])
def test_checkpoints_are_written_and_kept(name: str) -> None:
    with pytest.raises(ArtifactError) as error:
        ShardedCheckpoints("folder", **{name: 0})
    assert str(error.value) == (
        f"ShardedCheckpoints: expected {name} to be an integer of at least 1, got 0. Give {name}=1 or more."
    )
