"""Tables over two processes: the numbers of one process, refusals, checkpoints, and being killed."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from recsys_emb.errors import ArtifactError, LineageError
from recsys_emb.integrations.torchrec import last_checkpoint, read_factorization

pytest.importorskip("torchrec", reason="TorchRec is not installed: make test-torchrec", exc_type=ImportError)

SCRIPT = Path(__file__).with_name("torchrec_rank.py")
ENVIRONMENT = {
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    # Else a restarted process may meet the addresses of those that died (pytorch/pytorch#135712).
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


def finished(commands: Sequence[Sequence[str]]) -> None:
    """Run commands side by side to their end."""
    options = {"env": os.environ | ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    running: list[subprocess.Popen[str]] = [subprocess.Popen(command, **options) for command in commands]
    try:
        said = [one.communicate(timeout=300)[0] for one in running]
    finally:
        for one in running:
            one.kill()
            one.wait()
    assert [one.returncode for one in running] == [0] * len(running), "\n".join(said)


def ranks(case: str, folder: Path, size: int) -> list[dict[Any, Any]]:
    """Run a case on so many processes; give what each found."""
    finished([[sys.executable, str(SCRIPT), case, str(folder), str(rank), str(size)] for rank in range(size)])
    return [torch.load(folder / f"{case}.{size}.{rank}") for rank in range(size)]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[key].double() - other[key].double()).abs().max()) for key in one)


# --- learning ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    return ranks("learn", tmp_path_factory.mktemp("learn"), 2)[0]


CASES = [
    (rule, place)
    for rule in ("SGD", "Adagrad", "row-wise Adagrad")
    for place in ("row-wise", "table-wise", "column-wise", "mixed")
    if (rule, place) != ("row-wise Adagrad", "column-wise")
]


@pytest.mark.parametrize(("rule", "place"), CASES)
def test_steps_on_unequal_batches_end_where_one_process_in_float64_ends(
    learned: dict[Any, Any], rule: str, place: str
) -> None:
    found = learned[rule, place, "steps"]
    assert found["birth"] == 0
    assert found["difference"] < 1e-6
    assert found["moved"] > 0.1
    assert found["scores"] == 0


@pytest.mark.parametrize(("rule", "place"), CASES)
def test_training_with_l2_ends_where_one_process_in_float64_ends(
    learned: dict[Any, Any], rule: str, place: str
) -> None:
    found = learned[rule, place, "epochs"]
    assert found["difference"] < 1e-6
    assert found["losses"] < 1e-6
    assert found["moved"] > 0.1


# --- refusing ----------------------------------------------------------------------------------------------------

EVERYWHERE = {
    "schema": "FitError: ShardedFactorization: expected the same schema on every rank, got {schema[0]} on rank 0, "
    "{schema[1]} on rank 1. Declare it once, and import it.",
    "encoder": "FitError: ShardedFactorization: expected the same encoder on every rank, got {encoder[0]} on rank 0, "
    "{encoder[1]} on rank 1. Fit it once, save it, and load it on every rank.",
    "seed": "FitError: ShardedFactorization: expected the same seed on every rank, got 0 on rank 0, 7 on rank 1. "
    "Give every rank the same.",
    "placement": "FitError: ShardedFactorization: expected the same placement on every rank, got RowWise() on rank 0, "
    "TableWise() on rank 1. Give every rank the same.",
    "hashed": "SchemaError: ShardedFactorization: expected a table with a row per value for 'user.id', got a "
    "HashedEmbedding. Declare it with table=Lookup(), or train in one process.",
    "columns": "SchemaError: placement: expected RowWise() or TableWise() with RowWiseAdagradUpdate, got ColumnWise(). "
    "Its state is one number per row, of which every process would have its own; use AdagradUpdate to split columns.",
    "rule": "FitError: ShardedFactorization: expected SGDUpdate, AdagradUpdate or RowWiseAdagradUpdate, got "
    "LazyAdamUpdate. FBGEMM has no other on the CPU.",
    "l2": "FitError: ShardedFactorization: expected an update without l2, got l2=0.5. Give it to train_sharded.",
    "contrast": "FitError: train_sharded: expected an objective that learns a label, got BPR(). Use SquaredError() or "
    "Logistic().",
    "rank": "DataError: train_sharded: expected a loader of rank {rank} of 2, got rank 0 of 1. Give BatchLoader the "
    "rank and world_size of its process.",
    "batches": "FitError: train_sharded: expected the same number of batches on every rank, got 7 on rank 0, 5 on "
    "rank 1. Give every rank the same rows, batch_size and drop_last.",
    "no batch": "EmptySourceError: train_sharded: expected at least one batch on every rank, got 75 rows for 2 "
    "ranks. Give more rows, a smaller batch_size, or drop_last=False.",
    "checkpoint": "LineageError: checkpoint: expected one of the encoder {encoder[1]}, got that of {encoder[0]}. Its "
    "rows stand for other values; load it with the encoder that it was trained with.",
    "other rule": "ArtifactError: checkpoint: expected the rule AdagradUpdate, got SGDUpdate. Make the model as it was "
    "made.",
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return ranks("refuse", tmp_path_factory.mktemp("refuse"), 2)


@pytest.mark.parametrize("case", EVERYWHERE)
def test_every_process_refuses_with_the_whole_message(refused: list[dict[str, str]], case: str) -> None:
    for rank, found in enumerate(refused):
        shown = {name: found[f"shown {name}"].split() for name in ("schema", "encoder")}
        assert found[case] == EVERYWHERE[case].format(rank=rank, **shown)


def test_a_process_that_waits_in_vain_says_so_in_time(refused: list[dict[str, str]]) -> None:
    start = "FitError: ShardedFactorization: expected every rank to come within 2 seconds, got no answer: "
    end = ". See what the other ranks wrote before they stopped, or give a longer timeout."
    assert refused[0]["absent"].startswith(start)
    assert refused[0]["absent"].endswith(end)
    assert float(refused[0]["waited"]) < 30


# --- checkpoints -------------------------------------------------------------------------------------------------


class Kept:
    """A checkpoint of two processes, and what two, one and three made of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "kept"
        self.written = ranks("write", folder, 2)[0]
        self.read = {size: ranks("read", folder, size)[0] for size in (1, 3)}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return Kept(tmp_path_factory.mktemp("kept"))


def script() -> ModuleType:
    """The script of the processes, for its encoder."""
    spec = importlib.util.spec_from_file_location("torchrec_rank", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("size", [1, 3])
def test_a_checkpoint_is_read_by_another_number_of_processes_with_the_state_of_its_rule(kept: Kept, size: int) -> None:
    found = kept.read[size]
    assert same(found["trained"], kept.written["trained"])
    assert found["numbers"]["place"]["epoch"] == 1
    assert difference(found["stepped"], kept.written["stepped"]) < 1e-6
    assert difference(found["stepped"], found["trained"]) > 0.01


@pytest.mark.parametrize(("size", "last"), [(1, "step-000000000020"), (3, "step-000000000012")])
def test_training_goes_on_with_another_number_of_processes_between_epochs_and_not_within(
    kept: Kept, size: int, last: str
) -> None:
    found = kept.read[size]
    assert len(found["losses"]) == 2
    assert found["losses"][0] == found["numbers"]["losses"][0] > found["losses"][1]
    assert found["last"] == last
    assert found["within"] == (
        f"DataError: BatchLoader.load_state_dict: expected world_size={size}, got 2. "
        "Resume with the loader that the state came from."
    )
    assert same(*found["untouched"])


@pytest.mark.parametrize("size", [1, 3])
def test_the_weights_of_one_process_are_spread_over_several(kept: Kept, size: int) -> None:
    assert same(kept.read[size]["loaded"], kept.read[size]["stepped"])


def test_one_process_reads_a_checkpoint_without_torchrec(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchrec"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchrec", None)
    path = last_checkpoint(kept.folder)
    assert path is not None
    encoder, rows = script().ENCODER, script().FRAME
    model = read_factorization(path, encoder)
    assert same(model.state_dict(), kept.written["trained"])
    assert model(encoder.transform(rows)).shape == (len(rows),)


def test_a_checkpoint_is_refused_where_it_is_none_or_that_of_another_encoder(kept: Kept, tmp_path: Path) -> None:
    module = script()
    other = module.FeatureEncoder(module.SCHEMA).fit(module.frame(seed=1))
    path = last_checkpoint(kept.folder)
    assert path is not None
    with pytest.raises(LineageError) as refused:
        read_factorization(path, other)
    assert str(refused.value) == (
        f"checkpoint: expected one of the encoder {other.fingerprint[:12]}, got that of "
        f"{module.ENCODER.fingerprint[:12]}. Its rows stand for other values; load it with the encoder that it was "
        "trained with."
    )
    assert last_checkpoint(tmp_path) is None
    with pytest.raises(ArtifactError) as absent:
        read_factorization(tmp_path / "step-000000000007", other)
    assert str(absent.value) == (
        "step-000000000007: expected a checkpoint, got no 'state.json'. Give what last_checkpoint finds in its folder."
    )


# --- being killed ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    [name for _, name in socket.if_nameindex()] != ["lo"],
    reason="torchrun listens on every network interface: make test-torchrec",
)
def test_a_run_that_is_killed_three_times_ends_with_the_bits_of_one_that_is_not(tmp_path: Path) -> None:
    command = (
        "--nproc-per-node=2 --max-restarts=3 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:0 --local-addr=127.0.0.1"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", *command.split()]
    finished([[*launch, "--local-addr=127.0.0.1", str(SCRIPT), "survive", str(tmp_path)]])
    killed = torch.load(tmp_path / "survive.2.0")
    undisturbed = ranks("survive", tmp_path, 2)[0]

    # Killed in step 8, then while step 12 was being written, then before what was written got its name.
    starts = "0 None\n1 step-000000000006\n2 step-000000000009\n3 step-000000000009\n"
    assert [(tmp_path / f"starts{rank}").read_text() for rank in range(2)] == [starts + "9 None\n"] * 2
    assert same(killed["trained"], undisturbed["trained"])
    assert killed["losses"] == undisturbed["losses"]
    assert sorted(path.name for path in (tmp_path / "keptFalse").iterdir()) == [
        "step-000000000018",
        "step-000000000021",
    ]
