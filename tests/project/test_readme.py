"""Every example of README.md runs and prints what the page shows."""

import re
import shutil
import textwrap
from importlib.util import find_spec

import pytest
from pages import BLOCK, Step, run, steps_of
from places import ROOT

import convreg
from convreg.calls.text import table

README = (ROOT / "README.md").read_text("utf-8")


def test_steps_are_found():
    page = textwrap.dedent("""\
        ```python
        print(1)
        ```

        ```text
        1
        ```

        ```python
        x = 2
        ```

        ```console
        $ convreg a
        b
        $ convreg c
        ```
        """)
    assert steps_of(page) == [Step("print(1)\n", "1\n", False), Step("x = 2\n", "", False),
                              Step("convreg a", "b\n", True), Step("convreg c", "", True)]


def test_examples_print_what_the_page_shows(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    steps = steps_of(README)
    assert sum(step.is_command for step in steps) >= 3
    assert sum(not step.is_command for step in steps) >= 5
    for step in steps:
        if "import torch" in step.source and find_spec("torch") is None:
            continue
        assert run(step, names) == (step.printed, 0), step.source


def test_every_text_block_is_checked():
    """A text block that no Python block precedes would be compared with nothing."""
    languages = [language for language, _ in BLOCK.findall(README)]
    assert set(languages) <= {"python", "text", "console", "sh"}
    before = ["", *languages[:-1]]
    assert {first for first, second in zip(before, languages, strict=True) if second == "text"} == {"python"}


def test_table_of_operators_is_the_derived_one():
    assert table(convreg.operators()) in README


@pytest.mark.skipif(not (ROOT / "Makefile").is_file(), reason="needs the source checkout")
def test_make_knows_the_goals_that_the_page_names():
    named = set(re.findall(r"^make (\w+)", README, re.MULTILINE))
    goals = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named <= goals
