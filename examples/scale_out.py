"""Encode with workers, train tables that are spread over two processes, and recommend in one process without them.

Run:    python examples/scale_out.py
Needs:  the network once, for the data; TorchRec (docs/scale.md); Ray, or else threads do its part. A minute.
Prints: what was encoded, the loss of each epoch, the RMSE on ratings that were held out, and one user's
        recommendations.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pandas as pd
from movielens_data import ITEM, USER, load, schema
from torch import distributed

from recsys_emb import (
    BatchLoader,
    EncodedRows,
    FeatureEncoder,
    Local,
    Ray,
    Recommender,
    RowWiseAdagradUpdate,
    SquaredError,
    split_random,
)
from recsys_emb.integrations.torchrec import ShardedCheckpoints, ShardedFactorization, train_sharded
from recsys_emb.serving.adopting import save_recommender

SCHEMA = schema("rating")
UNITS = {"offset": 3.5, "scale": 1.1}


def encode(rows: pd.DataFrame, folder: Path) -> None:
    """Write rows as several files, and encode them into a folder, both as many workers as there are."""
    (folder / "ratings").mkdir(parents=True, exist_ok=True)
    for number in range(4):
        rows.iloc[number::4].to_parquet(folder / "ratings" / f"part-{number}.parquet", row_group_size=8192)
    with Ray(workers=2, object_store_memory=2**28) if importlib.util.find_spec("ray") else Local(2) as engine:
        encoder = FeatureEncoder(SCHEMA).fit(folder / "ratings", engine=engine)
        print(encoder.transform_to(folder / "ratings", folder / "encoded", engine=engine, progress=False))


def train(folder: Path) -> None:
    """Be one of the processes that train; the first one saves."""
    distributed.init_process_group("gloo", timeout=timedelta(minutes=5))
    rank, size = distributed.get_rank(), distributed.get_world_size()
    encoder = FeatureEncoder(SCHEMA).fit(folder / "ratings")
    encoded = EncodedRows(folder / "encoded")
    loader = BatchLoader(encoder, encoded, batch_size=1024, shuffle=True, rank=rank, world_size=size)
    model = ShardedFactorization(encoder, update=RowWiseAdagradUpdate(lr=0.05), embedding_dim=32)
    model.set_units(**UNITS)
    kept = ShardedCheckpoints(folder / "checkpoints", every=200)
    history = train_sharded(model, loader, SquaredError(), epochs=8, l2=0.02, bias_l2=0.02, checkpoints=kept)
    whole = model.gathered()
    if whole is not None:
        print(*(f"{epoch.train_loss:.3f}" for epoch in history.epochs))
        save_recommender(folder / "model", whole, encoder, folder / "ratings", SquaredError(), history=history)
    distributed.destroy_process_group()


def launch(folder: Path) -> None:
    """Start two processes by torchrun, which starts them again when one dies."""
    options = ["--standalone", "--nproc-per-node=2", "--max-restarts=3"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, __file__, "train", str(folder)]
    subprocess.run(command, check=True, env=os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})


def main(folder: Path) -> float:
    """Do all of it, and return the error on ratings that were held out."""
    kept, held_out = split_random(load()[0], 0.1, seed=0)
    encode(kept, folder)
    launch(folder)
    recommender = Recommender.load(folder / "model")
    error = recommender.evaluate(held_out)["rmse"]
    print(f"RMSE {error:.3f}")
    print(recommender.recommend([held_out[USER].iloc[0]], k=5)[[USER, ITEM, "rank"]].to_string(index=False))
    return error


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(Path(sys.argv[2]))
    else:
        main(Path("out/scale_out"))
