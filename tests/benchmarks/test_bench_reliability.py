"""The page on reliability promises what tests show, and says what its figures say."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
FIGURES = PAGE.partition("<!-- figures: begin")[2].partition("<!-- figures: end -->")[0]


def promised() -> list[str]:
    """Names of the tests of `benchmarks/reliability_promises.py`."""
    tree = ast.parse((ROOT / "benchmarks" / "reliability_promises.py").read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text for text in texts if re.fullmatch(r"[\w/]+\.py::\w+", text)]


def rows(part: str) -> list[list[str]]:
    """Cells of all tables under a heading of the figures, without their heads."""
    text = FIGURES.partition(f"### {part}\n")[2].partition("\n### ")[0]
    tables = re.findall(r"\|---.*\n((?:\|.*\n?)+)", text)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for one in tables for line in one.splitlines()]


@pytest.mark.parametrize("test", promised())
def test_the_test_of_a_promise_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / "tests" / file).read_text()


def test_every_promise_stands_on_the_page() -> None:
    assert [cells[2].strip("`").removeprefix("tests/") for cells in rows("Promises")] == promised()


def test_no_growth_moved_a_score_and_none_ends_far_from_training_anew() -> None:
    growths = [cells for cells in rows("Growth") if cells[0] != "start"]
    assert [cells[4] for cells in growths] == ["yes"] * 5
    assert all(abs(float(cells[7].rstrip(" |"))) < 0.01 for cells in growths)


def test_every_kill_was_survived_and_every_damage_refused() -> None:
    kills, damages = [], []
    for cells in rows("Crashes"):
        (kills if "times" in cells[2] or "runs" in cells[2] else damages).append(cells)
    assert sum(int(cells[1]) for cells in kills) >= 200
    assert re.match(r"(\d+) times one whole model, 0 leftovers", kills[0][2])[1] == kills[0][1]
    for cells in kills[1:]:
        equal, runs = re.match(r"(\d+) of (\d+) runs bit-equal", cells[2]).groups()
        assert equal == runs
    assert all(cells[1] == cells[2].rstrip(" |") for cells in damages if cells[2].rstrip(" |").isdigit())


def test_dropout_of_items_pays_for_new_items_on_movielens() -> None:
    [cells] = [cells for cells in rows("Unknown rows") if cells[:3] == ["MovieLens-100K", "0.0", "0.1"]]
    gap, spread = re.search(r"\((\S+) ± (\S+)\)", cells[4]).groups()
    assert float(gap) + 2 * float(spread) < 0


def test_a_stranger_is_answered_better_from_the_first_rating_on() -> None:
    unknown, *folded = [float(cells[1]) for cells in rows("Strangers")]
    assert all(one < unknown for one in folded)


def test_ten_million_keys_are_open_less_than_a_second_after_a_thousand() -> None:
    seconds = [float(cells[2].rstrip(" |").removesuffix(" s")) for cells in rows("Crashes") if cells[-1].endswith(" s")]
    few, *many = seconds
    assert len(many) == 2
    assert all(one - few < 1 for one in many)
