"""What it costs to import this library, and to use it for the first time.

Run:    python benchmarks/importing.py [--full | --tiny]
Needs:  nothing more; PyTorch Frame takes part where it is installed

Every measurement is a process of its own, which keeps its own time from its first line on. Names load when they are
first asked for, so what an import costs depends on the names.

- **face**: `import recsys_emb`, which loads nothing else.
- **lookup**: a lookup for somebody's own module, beside torch, which it needs.
- **recommender**: schema, encoder and recommender, beside what they need: torch, pandas, Arrow, and scikit-learn, whose
  transformer the encoder is.
- **first use**: after that import, fit an encoder, train and recommend from sixty rows. numba compiles each kernel
  once on a machine and keeps it beside the code, or in ``NUMBA_CACHE_DIR``; here that is a folder, full or empty.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import NamedTuple

from harness import Bench, Entry, Timed
from timing import Clock

# A third more than what is needed anyway, at most.
AS_FAST = 1 / 1.3
TABLES = "import torch, pandas, pyarrow"
NAMES = "from recsys_emb import Categorical, FeatureEncoder, MultiCategorical, Recommender, Schema"
USE = """
import pandas
frame = pandas.DataFrame({
    "user": [1, 2, 3] * 20, "item": [*"abcd"] * 15, "tags": [["x"], ["x", "y"], []] * 20, "label": [1.0, 2.0, 3.0] * 20
})
schema = Schema(
    user=Categorical("user"), item=Categorical("item"), item_features=[MultiCategorical("tags")], label="label"
)
FeatureEncoder(schema).fit(frame).transform(frame)
Recommender(schema, epochs=1, progress=False).fit(frame).recommend([1], 2)
"""


class Process(NamedTuple):
    """Code for a new process, which says how long it took from after ``before`` to its end."""

    code: str
    before: str = ""

    def run(self, cache: str | None = None) -> Timed:
        """Run it, with a folder of compiled kernels or the usual one."""
        clock = "process_time" if Clock.read is time.process_time else "perf_counter"
        script = f"import time\n{self.before}\nstart = time.{clock}()\n{self.code}\nprint(time.{clock}() - start)"
        environment = os.environ | ({} if cache is None else {"NUMBA_CACHE_DIR": cache})
        answer = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
        )
        if answer.returncode:
            raise RuntimeError(answer.stderr.strip().splitlines()[-1])
        return Timed(float(answer.stdout.split()[-1]))

    def run_without_kernels(self) -> Timed:
        """Run it where nothing is compiled yet."""
        with tempfile.TemporaryDirectory() as empty:
            return self.run(empty)


def entry(name: str, code: str, package: str | None = None, goal: float | None = None) -> Entry:
    return Entry(name, lambda: Process(code).run, package, goal=goal)


def on_imports(bench: Bench) -> None:
    bench.race(
        "face",
        "import the library, and name nothing",
        entry("import recsys_emb", "import recsys_emb"),
        entry("torch, pandas, pyarrow", TABLES, goal=AS_FAST),
    )
    bench.race(
        "lookup",
        "import a lookup",
        entry("CategoryEmbedding", "from recsys_emb import CategoryEmbedding"),
        entry("torch", "import torch", "torch", goal=AS_FAST),
    )
    bench.race(
        "recommender",
        "import schema, encoder and recommender",
        entry("Schema, FeatureEncoder, Recommender, ...", NAMES),
        entry("torch, pandas, pyarrow", TABLES),
        entry("torch, pandas, pyarrow, sklearn.base", f"{TABLES}, sklearn.base", goal=AS_FAST),
        entry("PyTorch Frame", "import torch_frame", "pytorch-frame"),
    )


def on_first_use(bench: Bench) -> None:
    use = Process(USE, before=NAMES)
    with tempfile.TemporaryDirectory() as full:
        bench.race(
            "first use",
            "fit an encoder, train and recommend from 60 rows, in a new process",
            Entry("recsys_emb, kernels compiled before", lambda: partial(use.run, full)),
            Entry("recsys_emb, compiling them", lambda: use.run_without_kernels, "numba"),
        )


if __name__ == "__main__":
    bench = Bench("importing", __doc__)
    on_imports(bench)
    if bench.size(0, 1, 1):
        on_first_use(bench)
