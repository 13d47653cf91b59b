"""docs/golden.md: every command runs and prints what the page shows."""

from __future__ import annotations

import re
import shutil

import pytest
from pages import BLOCK, run, steps_of
from places import ROOT

PAGE = (ROOT / "docs" / "golden.md").read_text("utf-8")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_examples_print_what_the_page_shows(tmp_path, monkeypatch, capsys):
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    steps = steps_of(PAGE)
    assert len(steps) >= 7
    for step in steps:
        printed, status = run(step, names)
        assert printed == step.printed, step.source
        assert status == (1 if printed.startswith("FAIL") else 0), step.source
    names["my_kernel"] = lambda dy, w: dy
    names["test_my_kernel"](lambda *call, **attributes: None)


def test_every_block_is_run_or_a_shell_command_for_elsewhere():
    assert {language for language, _ in BLOCK.findall(PAGE)} == {"python", "console", "sh"}


def test_a_descriptor_of_the_example_stands_in_its_readme():
    readme = (ROOT / "examples" / "kernel_check" / "README.md").read_text("utf-8")
    assert set(re.findall(r"check\.py( --fixed)?", readme)) == {"", " --fixed"}
