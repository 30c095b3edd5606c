"""The benchmarks' own tools: ratios, peers left out, answers compared, results read back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
RACE = """
import sys
from pathlib import Path
import harness
from harness import Bench, Entry, Timed

harness.OUT = Path(sys.argv.pop())
bench = Bench("trial", None)
bench.race(
    "case",
    "twice the work",
    Entry("ours", lambda: lambda: Timed(1.0, answer=7)),
    Entry("slow", lambda: lambda: Timed(3.0, answer=7), goal=2, note="a note"),
    Entry("half", lambda: lambda: Timed(0.25, answer=7), share=0.5),
    Entry("absent", lambda: harness.needs("no_such_module")),
    Entry("other", lambda: lambda: Timed(1.0, answer={other}), agrees=agree),
)
"""
AGREE = """
def agree(mine, other):
    assert mine == other, f"{mine} is not {other}"
"""


def run(folder: Path, *, other: int = 7) -> subprocess.CompletedProcess[str]:
    script = folder / "trial.py"
    script.write_text(AGREE + RACE.replace("{other}", str(other)))
    command = [sys.executable, str(script), "--cpu", str(folder)]
    return subprocess.run(
        command, env={"PYTHONPATH": str(FOLDER)}, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bench")
    assert run(made).returncode == 0
    return made


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("matplotlib")
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
        monkeypatch.setenv(variable, "1")  # importing the tools sets them; this takes that back
    monkeypatch.syspath_prepend(str(FOLDER))
    import report
    import results

    yield report, results
    for name in ("report", "report_pictures", "results", "harness", "timing", "machine"):
        sys.modules.pop(name, None)


def records(folder: Path, kind: str) -> dict[str, dict[str, Any]]:
    lines = map(json.loads, (folder / "trial.json").read_text().splitlines())
    return {line["name"]: line for line in lines if line["kind"] == kind}


def test_a_race_reports_the_time_of_others_over_ours(folder: Path) -> None:
    ratios = {name: record["ratio"] for name, record in records(folder, "race").items()}
    assert ratios == {"ours": 1.0, "slow": 3.0, "half": 0.5, "other": 1.0}


def test_a_peer_that_is_not_installed_is_left_out_with_a_line_that_says_so(folder: Path) -> None:
    skipped = records(folder, "skipped")
    assert list(skipped) == ["absent"]
    assert skipped["absent"]["reason"].startswith("no_such_module cannot be imported (ModuleNotFoundError")


def test_a_peer_with_another_answer_stops_the_race(tmp_path: Path) -> None:
    done = run(tmp_path, other=8)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("AssertionError: 7 is not 8")


def test_a_report_has_a_line_for_every_contestant_and_marks_met_goals(folder: Path, tools: Any) -> None:
    report, results = tools
    lines = report.tables(results.read(folder)).splitlines()
    assert "| **case**: twice the work | | | |" in lines
    assert "| slow (a note) | **3** | 2 | 3 s |" in lines
    assert "| half (on 1/2 of the work, scaled up) | 0.5 |  | 500 ms |" in lines
    assert any(line.startswith("Left out of case: absent (no_such_module") for line in lines)


def test_a_report_replaces_what_stands_between_its_markers_and_nothing_else(tools: Any) -> None:
    report, _ = tools
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    once = report.between_markers(page, "new")
    assert once == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"
    assert report.between_markers(once, "new") == once


def test_pictures_are_drawn_from_races_alone(folder: Path, tools: Any) -> None:
    report, results = tools
    figure = report.report_pictures.draw_ratios(results.read(folder))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["trial"]
    assert len(figure.axes[0].patches) == 3
