"""docs/gradients.md: its example runs as printed, and its table is that of the registered rules."""

import re

import pytest
from pages import run, steps_of
from places import ROOT

from convreg.onnx.training import rule_registry

PAGE = ROOT / "docs" / "gradients.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="needs the source checkout")


def test_the_table_is_that_of_the_rules():
    [held] = re.findall(r"<!-- rules -->\n(.*?)\n<!-- end of rules -->", PAGE.read_text("utf-8"), re.DOTALL)
    ours = [row for row in rule_registry.table().splitlines() if "my.domain" not in row]
    assert held.splitlines() == ours


def test_the_examples_print_what_the_page_says(rules):
    first, second = steps_of(PAGE.read_text("utf-8"))
    assert run(first, {}) == (first.printed, 0)
    assert run(second, {}) == ("", 0)
    assert rules.find("my.domain", "Cube") is not None


def test_every_rule_says_what_it_computes():
    for entry in rule_registry.entries():
        assert entry.function.__doc__, entry.name
