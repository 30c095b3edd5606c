"""The training script of docs/scale.md runs, on two processes, and leaves what `Recommender.load` reads."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recsys_emb.recommender import Recommender

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torchrec") is None, reason="needs TorchRec")


def test_the_training_script_of_the_page_runs_under_torchrun(tmp_path: Path) -> None:
    scripts = re.findall(r"```py\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (script,) = (one for one in scripts if "init_process_group" in one)
    (tmp_path / "train.py").write_text(script)
    draw = np.random.default_rng(0)
    rows = pd.DataFrame({name: draw.integers(0, 40, 500) for name in ("user", "film")})
    rows.assign(stars=draw.integers(1, 6, 500).astype(np.float32)).to_parquet(tmp_path / "rows.parquet")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, timeout=300)
    losses = [epoch.train_loss for epoch in Recommender.load(tmp_path / "model").history.epochs]
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)
