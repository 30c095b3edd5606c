"""A model that lives for years: what growing keeps, what unknown rows are worth, and what a crash costs.

Run:    python benchmarks/reliability.py [--small] [FOLDER ...]
Needs:  data/movielens_100k; a FOLDER may hold eurovision_jurors, which is left out otherwise; a system with fork;
        2 GB of disk and 4 GB of memory for the large vocabularies, which --small leaves out, with 20 kills for 200
Prints: the promises and what was measured of each; RMSE after each of five growths beside that of training from
        scratch, and whether old scores stayed bit for bit; RMSE of new users and items with and without training of
        unknown rows, and of strangers folded in; kills survived; damages refused; seconds from opening ten million
        keys to the first answer
Writes: docs/reliability.md between its markers
"""

from __future__ import annotations

import copy
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"  # processes are forked below

import machine
import numpy as np
import pandas as pd
import quality
import reliability_crashes as crashes
import reliability_promises as promises
import torch

from recsys_emb import FeatureEncoder, InheritedRows, Recommender
from recsys_emb.serving.scoring import score

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: begin (written by benchmarks/reliability.py) -->", "<!-- figures: end -->"
GROWTHS, TEST, SPLITS = 5, 0.1, 5


class Part(NamedTuple):
    """Tables for the page, and a few words on each promise that they measure."""

    text: str
    figures: dict[str, str]


def rmse(recommender: Recommender, rows: pd.DataFrame) -> float:
    return float(np.sqrt(np.mean((recommender.predict(rows) - rows[recommender.schema.label]) ** 2)))


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (list(head), *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(list(head)), *lines[1:]])


# --- growth ----------------------------------------------------------------------------------------------------


def unchanged(recommender: Recommender, old: pd.DataFrame, more: pd.DataFrame) -> bool:
    """Grow copies of encoder and model, and compare the scores of old rows bit for bit."""
    encoder = FeatureEncoder.from_state(recommender.encoder.to_state())
    model, before = copy.deepcopy(recommender.model), score(recommender.model, encoder.transform(old))
    model.grow(encoder.partial_fit(more))
    return torch.equal(score(model, encoder.transform(old)), before)


def growth(data: quality.DataSet) -> Part:
    """Train on the first four fifths by time, grow by the rest in five steps, and train from scratch beside it."""
    frame = data.frame.sort_values("timestamp", kind="stable").reset_index(drop=True)
    held_out = np.random.default_rng(0).random(len(frame)) < TEST
    rows, test = frame[~held_out], frame[held_out]
    size = int(0.8 * len(rows))
    seen, recommender = rows.iloc[:size], Recommender(data.schema, progress=False).fit(rows.iloc[:size])
    lines = [("start", len(seen), "", "", "", f"{rmse(recommender, test):.4f}", f"{rmse(recommender, test):.4f}", "")]
    counts, largest = [], 0.0
    for number, part in enumerate(np.array_split(np.arange(size, len(rows)), GROWTHS), 1):
        more = rows.iloc[part]
        kept = unchanged(recommender, seen, more)
        new = [len(set(more[name]) - set(seen[name])) for name in ("user_id", "movie_id")]
        recommender.partial_fit(more)
        seen = pd.concat([seen, more])
        figures = rmse(recommender, test), rmse(Recommender(data.schema, progress=False).fit(seen), test)
        difference = figures[0] - figures[1]
        counts.append(kept)
        largest = max(largest, difference, key=abs)
        shown = (f"{figures[0]:.4f}", f"{figures[1]:.4f}", f"{difference:+.4f}")
        lines.append((number, len(more), *new, "yes" if kept else "NO", *shown))
    head = (
        "step",
        "rows",
        "new users",
        "new movies",
        "old scores bit-identical",
        "RMSE grown",
        "from scratch",
        "difference",
    )
    said = {
        "kept": f"bit for bit in {sum(counts)} of {GROWTHS} growths",
        "grown": f"RMSE {largest:+.4f} at most against training from scratch",
    }
    return Part(table(head, lines), said)


# --- unknown rows and strangers --------------------------------------------------------------------------------


def cold_split(data: quality.DataSet, seed: int) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Hold out a fifth of the users, a fifth of the items, and a tenth of the rows of the others."""
    rng, frame = np.random.default_rng(seed), data.frame
    user, item = (frame[side.name] for side in (data.schema.user, data.schema.item))
    new_user, new_item = (one.isin(rng.choice(one.unique(), one.nunique() // 5, replace=False)) for one in (user, item))
    rest = frame[~new_user & ~new_item]
    known = rng.random(len(rest)) < TEST
    tests = {"new users": new_user & ~new_item, "new items": ~new_user & new_item, "both new": new_user & new_item}
    return rest[~known], {**{name: frame[rows] for name, rows in tests.items()}, "known": rest[known]}


def unknown_rows(data: quality.DataSet) -> str:
    """Compare models whose unknown rows never occur in training with such whose do."""
    schema, shares = data.schema, ((0.0, 0.0), (0.0, 0.1), (0.1, 0.0), (0.1, 0.1))
    errors: dict[tuple[float, float], list[list[float]]] = {pair: [] for pair in shares}
    for seed in range(SPLITS):
        train, tests = cold_split(data, seed)
        for pair in shares:
            sides = {"user": schema.user, "item": schema.item}
            told = {
                role: dataclasses.replace(one, unknown_dropout=share)
                for (role, one), share in zip(sides.items(), pair, strict=True)
            }
            recommender = Recommender(dataclasses.replace(schema, **told), progress=False).fit(train)
            errors[pair].append([rmse(recommender, rows) for rows in tests.values()])
    base, lines = np.array(errors[shares[0]]), []
    for pair, found in errors.items():
        gaps = np.array(found) - base
        spread = gaps.std(0, ddof=1) / SPLITS**0.5
        cells = [f"{mean:.4f}" for mean in np.mean(found, 0)]
        if any(pair):
            cells = [
                f"{cell} ({gap:+.4f} ± {one:.4f})" for cell, gap, one in zip(cells, gaps.mean(0), spread, strict=True)
            ]
        lines.append((data.name, *pair, *cells))
    return table(("data", "dropout of users", "of items", "new users", "new items", "both new", "known"), lines)


def strangers(data: quality.DataSet) -> Part:
    """Answer users whom training did not know from their first ratings, and judge by the others."""
    schema = dataclasses.replace(data.schema, position=None)
    frame = data.frame.sort_values("timestamp", kind="stable")
    rng, users = np.random.default_rng(0), frame["user_id"].unique()
    strange = frame["user_id"].isin(rng.choice(users, len(users) // 5, replace=False))
    recommender = Recommender(schema, progress=False).fit(frame[~strange])
    order = frame[strange].groupby("user_id").cumcount()
    test = frame[strange][order >= 20]
    movies = sorted(test["movie_id"].unique())
    unknown, errors = rmse(recommender, test), []
    lines = [("0 (unknown row and features)", f"{unknown:.4f}", "", "")]
    for count in (1, 5, 20):
        history = frame[strange][order < count]
        started = time.perf_counter()
        answer = recommender.recommend(history=history, k=len(movies), candidates=movies, exclude_seen=False)
        milliseconds = 1000 * (time.perf_counter() - started) / history["user_id"].nunique()
        found = test.merge(answer, on=["user_id", "movie_id"])
        folded = float(np.sqrt(np.mean((found["score"] - found["rating"]) ** 2)))
        grown = copy.deepcopy(recommender).partial_fit(history, new_rows=InheritedRows())
        errors.append(folded)
        lines.append((count, f"{folded:.4f}", f"{rmse(grown, test):.4f}", f"{milliseconds:.1f} ms"))
    head = ("ratings known of a stranger", "RMSE folded in", "RMSE after partial_fit", "fold-in and ranking, per user")
    return Part(table(head, lines), {"stranger": f"RMSE {unknown:.4f} unknown, {errors[-1]:.4f} after 20 ratings"})


# --- crashes ---------------------------------------------------------------------------------------------------


def crash(data: quality.DataSet, *, small: bool) -> Part:
    """Kill, damage, and open."""
    torch.set_num_threads(1)
    rng, rows, count = np.random.default_rng(0), data.frame.head(4000), 10 if small else 100
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saving = crashes.kills_while_saving(rows, folder / "model", count, rng)
        training = {
            solver: crashes.kills_while_training(rows, folder, solver, count // 2, rng) for solver in crashes.SOLVERS
        }
        damages = [(kind, of, refused) for kind, refused, of in crashes.damages(folder / "model", folder / "damaged")]
        large = []
        for users, text in () if small else ((1_000, False), (10_000_000, False), (10_000_000, True)):
            place = folder / f"{users}-{text}"
            seconds = crashes.seconds_to_first_answer(place, crashes.large_model(place, users, text=text))
            large.append((f"{users:,}", "text" if text else "integers", *(f"{one:.2f} s" for one in seconds)))
    killed = [
        ("saving", saving["kills"], f"{saving['whole']} times one whole model, {saving['left behind']} leftovers")
    ]
    killed += [
        (f"training, {solver}", one["kills"], f"{one['equal']} of {one['runs']} runs bit-equal")
        for solver, one in training.items()
    ]
    parts = [
        table(("killed while", "kills", "afterwards"), killed),
        table(("damage", "files", "refused, naming the file"), damages),
        *([table(("keys", "of type", "from opening to the first answer", "of processors"), large)] if large else []),
    ]
    runs, equal, kills = (sum(one[name] for one in training.values()) for name in ("runs", "equal", "kills"))
    said = {
        "saving": f"{saving['whole']} of {saving['kills']} kills",
        "training": f"{equal} of {runs} fits, after {kills} kills",
        "damages": f"{sum(one[2] for one in damages)} of {sum(one[1] for one in damages)} damages",
        "opening": f"{large[-1][2]} for {large[-1][0]} keys of {large[-1][1]}" if large else "",
    }
    return Part("\n\n".join(parts), said)


def main(arguments: list[str]) -> dict[str, str]:
    small, folders = "--small" in arguments, [Path(one) for one in arguments if one != "--small"]
    films = quality.movielens(quality.MOVIELENS)
    jurors = [parent / "eurovision_jurors" for parent in folders if (parent / "eurovision_jurors").is_dir()]
    unknown = [unknown_rows(data) for data in (films, *map(quality.eurovision, jurors))]
    parts = {"Growth": growth(films), "Strangers": strangers(films), "Crashes": crash(films, small=small)}
    figures = {name: said for part in parts.values() for name, said in part.figures.items()}
    texts = {
        "Promises": table(("promise", "measured", "shown by"), promises.rows(figures)),
        "Growth": parts["Growth"].text,
        "Unknown rows": "\n\n".join(unknown),
        **{name: parts[name].text for name in ("Strangers", "Crashes")},
    }
    text = "\n\n".join(f"### {title}\n\n{part}" for title, part in texts.items())
    print(text)
    if not small:
        described = machine.in_words(machine.describe() | {"clock": "elapsed seconds"})
        head, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n\n{described}\n\n{text}\n\n{END}{rest.partition(END)[2]}")
    return figures


if __name__ == "__main__":
    main(sys.argv[1:])
