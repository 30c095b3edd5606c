"""The example that leaves one machine, in a network that is the loopback interface alone: ``make test-torchrec``."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RATINGS = ROOT / "data" / "movielens_100k" / "ratings.parquet"


@pytest.mark.skipif(importlib.util.find_spec("torchrec") is None, reason="needs TorchRec")
@pytest.mark.skipif(not RATINGS.exists(), reason="no MovieLens 100K")
def test_the_example_learns_on_two_processes_and_recommends_in_one(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "scale_out.py")]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE, timeout=300)
    encoded, losses, error, *answers = done.stdout.decode().splitlines()
    assert encoded.startswith("EncodedRows(90000 rows")
    assert sorted(losses.split(), reverse=True) == losses.split()
    assert 0.85 < float(error.removeprefix("RMSE ")) < 0.94
    assert len(answers) == 6
    assert (tmp_path / "out" / "scale_out" / "model" / "manifest.json").exists()
