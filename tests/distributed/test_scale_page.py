"""The Python of docs/scale.md runs from top to bottom and prints what the page says."""

from __future__ import annotations

import pytest
from pages import run, steps_of
from places import ROOT

pytest.importorskip("distributed")
pytest.importorskip("onnxruntime")


def test_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for step in steps_of((ROOT / "docs" / "scale.md").read_text("utf-8")):
        printed, _ = run(step, names)
        assert not step.printed or printed == step.printed, step.source
    assert (tmp_path / "errors.jsonl").is_file()
