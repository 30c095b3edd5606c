"""A machine of the cluster that is lost amid a fit changes nothing: what it held is made again."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.integrations.ray import Ray
from recsys_emb.schema import Categorical, Numeric, Schema

ray = pytest.importorskip("ray")
if {name for _, name in socket.if_nameindex()} != {"lo"}:
    pytest.skip("Ray listens on every network interface; run make test-ray", allow_module_level=True)

SCHEMA = Schema(user=Categorical("user"), item=Categorical("item"), context_features=[Numeric("age")])
STORE = 80 * 2**20


class Losing(Ray):
    """Loses a machine when all pieces are counted, and before any count is merged."""

    def __init__(self, address: str, lose: Any) -> None:
        super().__init__(address)
        self.lose = lose

    def gather(self, handles: Sequence[Any]) -> Iterator[Any]:
        yield from super().gather(handles)
        if self.lose is not None:
            self.lose()
            self.lose = None


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    assert not ray.is_initialized()
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    os.environ.update(RAY_TMPDIR=folder, RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
    # A lost machine is noticed after some 5 seconds, not 20.
    checks = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000}
    node = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False, "_system_config": checks}
    started = Cluster(initialize_head=True, head_node_args=node)
    yield started
    started.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_lost_machine_changes_nothing(cluster: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    users = rng.integers(0, 2**60, 200_000)
    frame = pd.DataFrame({"user": users, "item": [f"i{one}" for one in rng.zipf(1.3, 200_000)]})
    frame["age"] = rng.normal(size=200_000)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=20_000)
    second = cluster.add_node(num_cpus=1, object_store_memory=STORE)

    def lose() -> None:
        cluster.remove_node(second, allow_graceful=False)

    with Losing(cluster.address, lose) as engine:
        cluster.wait_for_nodes()
        fitted = FeatureEncoder(SCHEMA).fit(tmp_path, engine=engine)
        alive = sum(node["Alive"] for node in ray.nodes())
    assert not ray.is_initialized()
    expected = FeatureEncoder(SCHEMA).fit(tmp_path)
    assert fitted.fingerprint == expected.fingerprint
    for name, vocabulary in expected.vocabularies.items():
        assert fitted.vocabularies[name].to_table().equals(vocabulary.to_table())
    assert alive == 1
