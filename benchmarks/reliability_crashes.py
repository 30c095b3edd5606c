"""What `reliability.py` does to saved folders and running fits: kills, damage, and opening large ones."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from recsys_emb import Categorical, FeatureEncoder, MatrixFactorization, Minibatch, Recommender, Schema, SequentialSGD
from recsys_emb.artifact.contents import Artifact, save_artifact
from recsys_emb.artifact.manifest import MANIFEST, describe_file
from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.entities import EntityTable
from recsys_emb.encoding.learning import EncoderState
from recsys_emb.errors import ArtifactError
from recsys_emb.schema import UnknownRow
from recsys_emb.vocabulary.vocabulary import Vocabulary

PAIR = Schema(user=Categorical("user_id"), item=Categorical("movie_id"), label="rating", embedding_dim=8)
SOLVERS = {"SequentialSGD": SequentialSGD(), "Minibatch": Minibatch(batch_size=512)}
KILLS_PER_RUN = 10
Damage = Callable[[Path, str], None]


def forked(work: Callable[[], object]) -> int:
    """Let a copy of this process do some work; it is gone afterwards, whatever happens."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def killed_after(child: int, seconds: float) -> bool:
    """Kill a process after some time; whether it was still at work."""
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def weights(recommender: Recommender) -> dict[str, torch.Tensor]:
    return recommender.model.state_dict()


def equal(one: Recommender, other: Recommender) -> bool:
    mine, theirs = weights(one), weights(other)
    return mine.keys() == theirs.keys() and all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())


def kills_while_saving(rows: pd.DataFrame, folder: Path, count: int, rng: np.random.Generator) -> dict[str, int]:
    """Kill writers of two models that take turns at one folder; after each kill the folder must hold one of them."""
    models = [Recommender(PAIR, epochs=1, seed=seed, progress=False).fit(rows) for seed in (1, 2)]
    models[0].save(folder)

    def write() -> None:
        while True:
            for model in models:
                model.save(folder)

    started = time.perf_counter()
    models[1].save(folder)
    once = time.perf_counter() - started
    whole = kills = 0
    while kills < count:
        kills += killed_after(forked(write), rng.uniform(0, 4 * once))
        found = Recommender.load(folder)
        whole += any(equal(found, model) for model in models)
    models[0].save(folder)
    return {"kills": kills, "whole": whole, "left behind": len(list(folder.parent.glob(f".{folder.name}.*")))}


def kills_while_training(
    rows: pd.DataFrame, folder: Path, name: str, count: int, rng: np.random.Generator
) -> dict[str, int]:
    """Kill fits, start them again, and kill them again; every model at the end must be the very same."""

    def fit(place: Path | None) -> Recommender:
        recommender = Recommender(PAIR, solver=SOLVERS[name], epochs=6, progress=False)
        return recommender.fit(rows, checkpoint=place, every=timedelta(milliseconds=10))

    expected = fit(None)
    started = time.perf_counter()
    fit(folder / f"{name}-trial")
    once = time.perf_counter() - started
    equal_runs = runs = kills = 0
    while kills < count:
        place = folder / f"{name}-{runs}"
        for _ in range(KILLS_PER_RUN):
            if not killed_after(forked(lambda place=place: fit(place)), rng.uniform(0.05, 0.8) * once):
                break
            kills += 1
        equal_runs += equal(fit(place), expected)
        runs += 1
    return {"kills": kills, "runs": runs, "equal": equal_runs}


# --- damage ----------------------------------------------------------------------------------------------------


def _cut(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])


def _flip(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)


def _swap(folder: Path, name: str) -> None:
    other = next(file for file in files_of(folder) if file not in (name, MANIFEST))
    mine, theirs = ((folder / one).read_bytes() for one in (name, other))
    (folder / name).write_bytes(theirs)
    (folder / other).write_bytes(mine)


def _link(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to(folder.parent / "elsewhere")


def _pickle(folder: Path, name: str) -> None:
    (folder / name).write_bytes(pickle.dumps({"name": name}))


def _add(folder: Path, name: str) -> None:
    (folder / f"{name}.bak").write_bytes(b"{}")


def _believed(damage: Damage) -> Damage:
    """Damage a file, and state its size and hash as they are then, as somebody would who wants it to be believed."""

    def apply(folder: Path, name: str) -> None:
        damage(folder, name)
        manifest = json.loads((folder / MANIFEST).read_text())
        manifest["files"][name] = describe_file(folder / name)
        (folder / MANIFEST).write_text(json.dumps(manifest))

    return apply


def _lead_outside(folder: Path, name: str) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][f"../{Path(name).name}"] = manifest["files"].pop(name)
    (folder / MANIFEST).write_text(json.dumps(manifest))


DAMAGES: dict[str, Damage] = {
    "deleted": lambda folder, name: (folder / name).unlink(),
    "one byte cut off": _cut,
    "one bit flipped": _flip,
    "swapped with another": _swap,
    "a link in its place": _link,
    "a pickle in its place": _pickle,
    "a file added beside it": _add,
    "a path that leads outside": _lead_outside,
    "a pickle with the hash to it": _believed(_pickle),
    "emptied, with the hash to it": _believed(lambda folder, name: (folder / name).write_bytes(b"")),
}


def files_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def damages(saved: Path, scratch: Path) -> Iterator[tuple[str, int, int]]:
    """Do each kind of damage to each file: how many were refused naming the file, of how many."""
    names = [name for name in files_of(saved) if name != MANIFEST]
    for kind, damage in DAMAGES.items():
        refused = 0
        for name in names:
            shutil.rmtree(scratch, ignore_errors=True)
            copy = shutil.copytree(saved, scratch / "model")
            damage(copy, name)
            try:
                Recommender.load(copy)
            except ArtifactError as error:
                refused += Path(name).name in str(error)
        yield kind, refused, len(names)


# --- opening ---------------------------------------------------------------------------------------------------

OPEN = """
import sys, time
from recsys_emb import Recommender
key = int(sys.argv[2]) if sys.argv[2].isdigit() else sys.argv[2]
start, work = time.perf_counter(), time.process_time()
recommender = Recommender.load(sys.argv[1])
answer = recommender.recommend([key], k=5)
print(time.perf_counter() - start, time.process_time() - work)
assert answer["known"].all()
"""


def large_model(folder: Path, users: int, *, text: bool, items: int = 50_000, width: int = 16) -> str:
    """Save a model of many users, each with one item; give the name of one."""
    order = np.random.default_rng(0).permutation(users)
    keys = pa.array([f"user-{key:09}" for key in order.tolist()] if text else order * 1_000_003 + 7)
    schema = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=width)
    vocabularies = {
        "user": Vocabulary(
            "user", keys.cast(pa.large_string()) if text else keys, np.ones(users, np.int64), UnknownRow()
        ),
        "item": Vocabulary("item", pa.array(np.arange(items)), np.ones(items, np.int64), UnknownRow()),
    }
    encoder = FeatureEncoder.from_state(EncoderState(schema, vocabularies, {}, {}))
    tables = [_everybody(name, len(vocabulary)) for name, vocabulary in vocabularies.items()]
    seen = Jagged(torch.arange(users) % items + 3, torch.cat([torch.arange(users + 1), torch.tensor([users])]))
    step = {"fingerprint": encoder.fingerprint, "rows": users, "values": {"user": users, "item": items}}
    settings = {
        "objective": {"kind": "SquaredError", "clip": True},
        "label": {"low": 1, "high": 5},
        "lineage": [step],
        "prior": {"noise": 1.0, "spread": [1.0] * (width + 1)},
    }
    save_artifact(folder, Artifact(encoder, MatrixFactorization(encoder), *tables, seen, settings))
    return str(keys[users // 2].as_py())


def _everybody(name: str, count: int) -> EntityTable:
    indices = torch.arange(3, count + 3)
    return EntityTable(name, indices, Batch({name: torch.cat([indices, torch.ones(1, dtype=torch.int64)])}))


def seconds_to_first_answer(folder: Path, key: str, *, rounds: int = 8) -> tuple[float, float]:
    """Load and answer in new processes, the imports apart: elapsed and processor seconds, the best of some rounds."""
    command = [sys.executable, "-c", OPEN, str(folder), key]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(rounds)]
    elapsed, worked = zip(*(map(float, run.stdout.split()) for run in runs), strict=True)
    return min(elapsed), min(worked)
