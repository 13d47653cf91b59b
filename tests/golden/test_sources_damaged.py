"""Damaged files of every kind end in convreg's exceptions, or are read as what they then say."""

from __future__ import annotations

import copy
import json
import random

import pytest
import vendor_tables as tables

from convreg import GraphError
from convreg.golden import cases, write_cases

BATCH = """\
--reset --dir=FWD_B,BWD_D --dt=f32,bf16:bf16:f32 --mb=0,2 # comment
g2mb3_ic4ih7iw6_oc6oh4ow6_kh3kw2_sh2sw1_ph1pw1_dh0dw1_n"first layer"
--batch=other --stag=axb --wtag=any --dtag=axb ic2iw5oc4kw3pw1n1d
"""
ODD = ["", "0", "-1", "None", "(", ")", "{", "}", "'", '"', ",", "\n", "\0", "9" * 30, "inf", "nan", "True", "\ud7ff",
       "--", "=", ":", "1e400", "(((", "[]", "\\"]
VALUES = [None, True, -1, 0, 2**70, 1.5, "", "x", [], {}, [[]], [None], {"a": 1}, "nan"]


def attempt(path):
    """Read all cases; what is wrong is told in one sentence that names the file."""
    try:
        return list(cases(path))
    except GraphError as error:
        message = str(error)
    assert str(path.parent) in message or "descriptor" in message, message
    assert "\n" not in message
    return []


def edited(text, draw):
    """A text with a few pieces replaced, removed or doubled."""
    for _ in range(draw.randint(1, 3)):
        place, length = draw.randrange(len(text) + 1), draw.randint(0, 12)
        text = text[:place] + draw.choice([*ODD, text[place:place + length] * 2]) + text[place + length:]
    return text


def replaced(document, draw):
    """A JSON document with one value replaced or removed, at any depth."""
    document = copy.deepcopy(document)
    inner = document
    while True:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = draw.choice(keys)
        if not isinstance(inner[key], dict | list) or not inner[key] or draw.random() < 0.2:
            if draw.random() < 0.2:
                del inner[key]
            else:
                inner[key] = draw.choice(VALUES)
            return document
        inner = inner[key]


@pytest.mark.parametrize("kind", ["batch", "ttk_aclnn.csv", "ttk_kernel_input.csv", "ttk_kernel_filter.csv"])
def test_edited_texts(tmp_path, kind):
    draw = random.Random(kind)
    text = {**tables.ttk_tables(), "batch": BATCH}[kind]
    if kind != "batch":
        text = "".join(text.splitlines(keepends=True)[:4])
    (tmp_path / "other").write_text("mb1_ic2ih5oc2kh3")
    path = tmp_path / kind
    read = 0
    for _ in range(250):
        path.write_text(edited(text, draw), "utf-8")
        read += bool(attempt(path))
    assert 0 < read < 250


@pytest.mark.parametrize("kind", ["atk", "own"])
def test_edited_documents(tmp_path, kind):
    draw = random.Random(kind)
    path = tmp_path / "cases.json"
    if kind == "own":
        (tmp_path / "table.csv").write_text(tables.ttk_tables()["ttk_kernel_filter.csv"])
        write_cases(list(cases(tmp_path / "table.csv"))[:2], path)
        document = json.loads(path.read_text())
    else:
        document = tables.atk_calls(2)
    read = 0
    for _ in range(400):
        path.write_text(json.dumps(replaced(document, draw)))
        read += bool(attempt(path))
    assert 0 < read < 400
