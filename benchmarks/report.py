"""Turn the results of the benchmarks into the tables of README.md and two pictures.

Run:    python benchmarks/report.py [FOLDER]
Needs:  results in FOLDER (out/bench unless given); matplotlib
Writes: benchmarks/README.md between its markers, benchmarks/ratios.png, benchmarks/growth.png; for another FOLDER,
        report.md and the pictures in that folder
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import report_pictures
from harness import OUT
from results import Record, Results, read
from timing import in_figures, in_words

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- results: begin (written by report.py) -->", "<!-- results: end -->"


def tables(results: list[Results]) -> str:
    """Write all results as Markdown."""
    parts = [line for one in results for line in (*_races(one), "")]
    return "\n".join([*parts, *_growths(results)]).strip()


def _races(results: Results) -> Iterator[str]:
    yield f"### {results.benchmark}"
    yield ""
    yield f"{results.described}."
    yield ""
    yield "| | time ÷ ours | goal | time |"
    yield "|---|---:|---:|---:|"
    for case, race in results.races.items():
        yield f"| **{case}**: {race[0]['about']} | | | |"
        for entry in race:
            yield _entry(entry)
    for one in results.skipped:
        yield ""
        yield f"Left out of {one['case']}: {one['name']} ({one['reason']})."


def _entry(entry: Record) -> str:
    name = f"{entry['name']} {entry['version']}".strip()
    remarks = [entry["note"]] if entry["note"] else []
    if entry["share"] != 1:
        remarks.append(f"on 1/{1 / entry['share']:.0f} of the work, scaled up")
    said = f" ({'; '.join(remarks)})" if remarks else ""
    ratio = "1" if entry["ours"] else _met(in_figures(entry["ratio"]), entry)
    goal = "" if entry["goal"] is None else f"{entry['goal']:g}"
    return f"| {name}{said} | {ratio} | {goal} | {in_words(entry['seconds'])} |"


def _met(ratio: str, entry: Record) -> str:
    return f"**{ratio}**" if entry["goal"] is not None and entry["ratio"] >= entry["goal"] else ratio


def _growths(results: list[Results]) -> Iterator[str]:
    yield "### Growth"
    yield ""
    yield "| | change | | factor | at most | before, after |"
    yield "|---|---|---|---:|---:|---|"
    for one in (growth for result in results for growth in result.growths):
        factor = f"**{in_figures(one['ratio'])}**" if one["ratio"] <= one["goal"] else in_figures(one["ratio"])
        values = " → ".join(_quantity(one[key], one["unit"]) for key in ("before", "after"))
        place = f"{one['benchmark']}, {one['case']}: {one['about']}"
        yield f"| {place} | {one['change']} | {one['quantity']} | {factor} | {one['goal']:g} | {values} |"


def _quantity(value: float, unit: str) -> str:
    return in_words(value) if unit == "s" else f"{value:.0f} {unit}"


def between_markers(page: str, text: str) -> str:
    """Replace what stands between the markers of a page."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}"


def main(folder: Path = OUT) -> None:
    results = read(folder)
    if not results:
        raise SystemExit(f"report: expected results in {folder}, got none. Run the benchmarks first.")
    page = HERE / "README.md" if folder == OUT else folder / "report.md"
    before = page.read_text() if page.exists() else ""
    page.write_text(between_markers(before, tables(results)))
    for name, draw in (("ratios.png", report_pictures.draw_ratios), ("growth.png", report_pictures.draw_growth)):
        draw(results).savefig(page.parent / name)
    print(f"{page}, ratios.png, growth.png: {', '.join(one.benchmark for one in results)}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
