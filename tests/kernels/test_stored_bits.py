"""The bits of results are those of every other machine: kernels by algorithm, operators, conversions of numbers."""

from __future__ import annotations

import json

import pytest
from convreg.ops.kernels import engine
from stored_bits import CHOSEN, PATH, conversion_bits, kernel_bits, operator_bits

import convreg

STORED = json.loads(PATH.read_text())


def test_every_algorithm_and_format_is_stored():
    assert {*STORED["kernels"]} == {CHOSEN, *engine.algorithm_names()}
    assert {*STORED["conversions"]} >= {name for name in convreg.formats() if "64" not in name}


@pytest.mark.parametrize("algorithm", STORED["kernels"])
def test_kernels(algorithm, isa):
    for seed, stored in STORED["kernels"][algorithm].items():
        assert kernel_bits(algorithm, int(seed), or_another=True) == stored, (algorithm, seed, isa)


@pytest.mark.parametrize("number_format", STORED["operators"])
def test_operators(number_format, isa):
    assert operator_bits(number_format) == STORED["operators"][number_format]


@pytest.mark.parametrize("name", STORED["conversions"])
def test_conversions(name, isa):
    assert conversion_bits(name) == STORED["conversions"][name]
