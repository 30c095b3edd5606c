"""The pages in docs/ keep their word: their Python runs and prints what they show, and their links lead somewhere."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))


def blocks_of(page: str) -> list[tuple[str, str]]:
    return re.findall(r"```(\w*)\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs_and_prints_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = shown = ""
    for language, text in blocks_of(page):
        if language == "python":
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(compile(text, page, "exec"), names)
            printed += stream.getvalue()
        elif language == "text":
            shown += text
    assert printed == shown


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_to_a_file(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", (DOCS / page).read_text())
    assert [link for link in links if not (DOCS / link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page):
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (DOCS / page).read_text())
    assert [name for file, name in named if f"def {name}(" not in (DOCS.parent / file).read_text()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_example_that_a_page_names_exists(page):
    named = re.findall(r"examples/\w+\.py", (DOCS / page).read_text())
    assert [name for name in named if not (DOCS.parent / name).exists()] == []
