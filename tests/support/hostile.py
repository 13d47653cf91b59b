"""Values that nobody should pass, and the call of a function that has to answer them in order."""

from __future__ import annotations

import copy
import decimal
import fractions
import pickle
import tracemalloc
from collections import deque
from itertools import count

import ml_dtypes
import numpy as np

import convreg

OURS = (convreg.OpError, convreg.UnknownOp, convreg.GraphError)
MOST = 64 * 2**20
COPIED: set = set()


class Raising:
    """Whatever is asked of it raises something of its own."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError("no text")

    def __index__(self):
        raise RuntimeError("no number")

    def __len__(self):
        raise RuntimeError("no length")

    def __iter__(self):
        raise RuntimeError("no entries")

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no array")

    def __bool__(self):
        raise RuntimeError("no truth")

    def __eq__(self, other):
        raise RuntimeError("equal to nothing")

    def __hash__(self):
        raise RuntimeError("no hash")


ITSELF: list = []
ITSELF.append(ITSELF)
HOSTILE = {
    "none": None, "list": [], "tuple": (), "dict": {}, "set": {1}, "object": object(), "type": int, "lambda": lambda: 0,
    "nan": float("nan"), "inf": 1e400, "minus": -1, "zero": 0, "huge": 10**5000, "int64": 2**63, "least": -(2**63),
    "half": 0.5, "true": True, "complex": 1j, "decimal": decimal.Decimal(1), "fraction": fractions.Fraction(1, 2),
    "bytes": b"\x00", "bytearray": bytearray(b"ab"), "memoryview": memoryview(b"ab"), "empty text": "", "text": "NCX",
    "nul": "a\0b", "surrogate": "\ud800", "long text": "x" * 100_000, "line": "a\nb", "floats": [1.5, 2.5],
    "ragged": [[1], [2, 3]], "deep": [[[[[[[[1]]]]]]]], "itself": ITSELF, "texts": ["a", None], "huge list": [10**5000],
    "long list": [1] * 10_000, "deque": deque([1, 1]), "endless": count(), "generator": (n for n in [1, 1]),
    "range": range(2), "raising": Raising(), "raising entry": [Raising()], "scalar": np.float32(1), "array": np.ones(2),
    "empty array": np.zeros(0, np.float32), "objects": np.array([None, "a"], object), "words": np.array(["a", "b"]),
    "dates": np.array(["2020-01-01"], "M8[D]"), "structure": np.zeros(2, [("a", "f4"), ("b", "i4")]),
    "big endian": np.ones((1, 1, 1), ">f4"), "wide": np.broadcast_to(np.float32(0), (2**20, 2**20)),
    "wide big endian": np.broadcast_to(np.array(0, ">f4"), (2**20, 2**20)),
    "long shape": np.broadcast_to(np.int32(1), (2**40,)), "empty and giant": np.empty((0, 2**30, 2**30), np.float32),
    "many axes": np.ones((1,) * 32, np.float32), "masked": np.ma.masked_array([1.0], [True]),
    "booleans": np.array([True, False]), "int4": np.zeros(2, ml_dtypes.int4), "module": np, "ellipsis": ...,
}


def attempt(operation, function, *args, **kwargs):
    """The result, or the exception of ours; it has text, pickles and copies."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        result = function(*args, **kwargs)
    except OURS as error:
        result = error
    if isinstance(result, OURS):
        check_exception(operation, result)
    assert tracemalloc.get_traced_memory()[1] - before < MOST
    return result


def check_exception(operation, error):
    """It is one printable sentence of bounded length, and copies say the same."""
    text = str(error)
    assert text.isprintable()
    assert len(text) < 3000
    seen = type(error), type(getattr(error, "value", None)), getattr(error, "argument", None)
    if seen not in COPIED:
        COPIED.add(seen)
        for twin in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
            assert type(twin) is type(error)
            assert str(twin) == text
            assert vars(twin).keys() == vars(error).keys()
    if isinstance(error, convreg.OpError):
        assert error.op == operation
        assert isinstance(error.argument, str)
