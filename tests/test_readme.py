"""The README keeps its word: its Python runs and prints what it shows, its commands, files and pictures exist."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_of_the_readme_runs_and_prints_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = ""
    for language, text in BLOCKS:
        if language == "python":
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(compile(text, "README.md", "exec"), names)
            printed = stream.getvalue()
        elif language == "text":
            assert printed == text


def test_there_is_python_in_the_readme_and_every_block_shows_what_it_prints():
    languages = [language for language, _ in BLOCKS]
    assert languages.count("python") >= 3
    follows = [languages[i + 1] for i, language in enumerate(languages) if language == "python"]
    assert follows == ["text"] * len(follows)


@pytest.mark.parametrize("command", re.findall(r"^make (\w+)", README, flags=re.MULTILINE))
def test_every_command_of_the_readme_is_a_target(command):
    assert re.search(rf"^{command}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/design.md"])
def test_every_link_to_a_file_leads_to_one(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / page).read_text())
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert links
    assert missing == []
