"""Measures quantize and dequantize beside ml_dtypes, NumPy and en_dtypes: `python docs/quantize_speed.py`.

One process, one thread, the same float32 normal numbers for both, results allocated by each; the two take turns, and
the fastest of all turns counts. Prints the table of docs/formats.md, in millions of numbers a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import numpy as np

import convreg

SIZES = (2**16, 2**22)
TURNS = 25


def fastest(ours: Callable[[], object], theirs: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Seconds of one call of each, the fastest of their turns."""
    best = [np.inf, np.inf]
    for _ in range(TURNS):
        for index, function in enumerate((ours, theirs)):
            start = time.perf_counter()
            for _ in range(repeats):
                function()
            best[index] = min(best[index], (time.perf_counter() - start) / repeats)
    return best[0], best[1]


def peer(name: str) -> tuple[str, np.dtype] | None:
    """Who else converts to a format with astype, and the dtype they take."""
    if name != "hifloat8":
        return ("NumPy" if name == "float16" else "ml_dtypes"), convreg.formats()[name].dtype
    if find_spec("en_dtypes") is None:
        return None
    import en_dtypes

    return "en_dtypes", np.dtype(en_dtypes.hifloat8)


def main() -> None:
    """Print the table."""
    print("| format | peer | numbers | quantize | peer | ratio | dequantize | peer | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8"):
        other = peer(name)
        if other is None:
            continue
        who, dtype = other
        for size in SIZES:
            x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
            codes, theirs = convreg.quantize(x, name), x.astype(dtype)
            repeats = max(1, 2**18 // size)
            cells = [name, who, f"2^{size.bit_length() - 1}"]
            pairs = ((partial(convreg.quantize, x, name, threads=1), partial(x.astype, dtype)),
                     (partial(convreg.dequantize, codes, threads=1), partial(theirs.astype, np.float32)))
            for pair in pairs:
                ours, others = fastest(*pair, repeats)
                cells += [f"{size / ours / 1e6:.0f}", f"{size / others / 1e6:.0f}", f"{others / ours:.1f}"]
            print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
