"""benchdnn's problem descriptors and batch files as cases of oneDNN Graph's operators.

A batch file holds options and descriptors between white space. Options hold for all later descriptors, in nested files
too, until ``--reset``; a list with commas makes one case per entry. Options that change neither operands nor results
are passed over, all others that are not understood are refused: golden vectors of another problem are worse than none.
Source: oneDNN's benchdnn, doc/driver_conv.md, doc/knobs_common.md and the reader of batch files in utils/.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from ...descriptors import parse_descriptor
from ...errors import GraphError, near_misses, shorten
from ...files import read_bytes
from ...layers import RESULT, Layer, in_layout
from ..record import Case, Operand

FORMATS = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f8_e5m2": "float8_e5m2",
           "f8_e4m3": "float8_e4m3fn"}
DIRS = {"FWD_B": "forward", "FWD_D": "forward", "FWD_I": "forward", "BWD_D": "data", "BWD_W": "weights",
        "BWD_WB": "weights"}
GRADIENTS = ("BWD_D", "BWD_W")
"""What a descriptor that is not in a file stands for."""

WITHOUT_EFFECT = frozenset((
    "allow-enum-tags-only", "attr-deterministic", "attr-same-pd-check", "attr-scratchpad", "canonical",
    "check-ref-impl", "cold-cache", "cpu-isa-hints", "ctx-exe", "ctx-init", "engine", "execution-mode", "fast-ref",
    "fix-times-per-prb", "impl", "inplace", "max-ms-per-prb", "mem-check", "memory-kind", "mode", "mode-modifier",
    "num-streams", "perf-template", "repeats-per-prb", "skip-impl", "stream-kind", "summary", "verbose"))
"""Options that say how benchdnn runs and reports, and not what is computed."""
NEUTRAL = {
    **dict.fromkeys(("attr-scales", "attr-zero-points", "attr-precomputed-reductions", "attr-post-ops", "attr-dropout",
                     "attr-rounding-mode", "strides", "match", "buffer-prefix"), ("",)),
    "attr-fpmath": ("", "strict", "strict:false"), "attr-acc-mode": ("", "strict", "f32"),
    "alg": ("direct", "auto", "wino"), "start": ("0",),
}
"""Options that have values without effect on the exact result. Winograd's algorithm has the same one."""
LAYOUTS = {"ncx": ("", "any", "undef", "abx"), "nxc": ("axb",)}
WEIGHT_LAYOUTS = {"ncx": ("", "any", "undef", "abx"), "nxc": ("", "any", "undef", "xba")}
"""Names of memory orders by the layout of a case; of weights those without groups."""
DEEPEST, MOST_FILES, MOST_CASES = 16, 1000, 100_000
"""Limits of one source: batch files within batch files, nested files in all, and cases, which lists multiply."""
_TEXT = re.compile(r"--[a-z]|-v\d|(?:g|mb|[io]c|[iokspd][dhw])\d")


class Settings(NamedTuple):
    """The options in force: lists make products."""

    dir: tuple[str, ...] = ("FWD_B",)
    dt: tuple[str, ...] = ("f32",)
    mb: tuple[str, ...] = ("0",)
    bia_dt: tuple[str, ...] = ("undef",)
    stag: tuple[str, ...] = ("any",)
    wtag: tuple[str, ...] = ("any",)
    dtag: tuple[str, ...] = ("any",)


class Word(NamedTuple):
    """An option or a descriptor, and where it stands."""

    text: str
    where: str


def looks_like_options(text: str) -> bool:
    """Whether a text consists of options and descriptors as far as one sees without reading them."""
    words = text.split()
    return bool(words) and all(_TEXT.match(word) for word in words)


def of_text(text: str, *, deconv: bool = False) -> Iterator[Case]:
    """Yield the cases of options and descriptors on one line; without ``--dir`` they are both gradients."""
    reader = _Reader(deconv, Settings(dir=GRADIENTS), Path())
    return reader.cases(Word(word, "") for word in text.split())


def of_file(path: Path, content: bytes, *, deconv: bool = False) -> Iterator[Case]:
    """Yield the cases of a batch file."""
    return _Reader(deconv, Settings(), path.parent, (path.resolve(),)).cases(_words(path, content))


def _words(path: Path, content: bytes) -> Iterator[Word]:
    """Yield the words of a batch file without comments; a backslash joins a word to the next one."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise GraphError(f"{path}: not a batch file of benchdnn: the byte at {error.start} is not UTF-8 text") from None
    joined, first = "", 0
    for number, line in enumerate(lines, 1):
        for word in line.split():
            if word.startswith("#"):
                break
            joined, first = joined + word.removesuffix("\\"), first or number
            if not word.endswith("\\"):
                yield Word(joined, f"{path}, line {first}: ")
                joined, first = "", 0
    if joined:
        yield Word(joined, f"{path}, line {first}: ")


class _Reader:
    """Reads words in order and keeps the options in force.

    A file that another one names lies in the folder of the first file, which the caller named.
    """

    def __init__(self, deconv: bool, settings: Settings, folder: Path, files: tuple[Path, ...] = ()) -> None:
        self.deconv, self.settings, self.default = deconv, settings, settings
        self.folder, self.files = folder, files
        self.root = folder.resolve() if files else None
        self.opened = self.made = 0

    def cases(self, words: Iterable[Word]) -> Iterator[Case]:
        """Yield the cases of the descriptors among the words."""
        for word in words:
            if word.text in ("--conv", "--deconv"):
                self.deconv = word.text == "--deconv"
            elif word.text == "--reset":
                self.settings = self.default
            elif word.text.startswith("--batch="):
                yield from self._nested(word)
            elif word.text.startswith("-"):
                self._option(word)
            else:
                yield from self._described(word)

    def _nested(self, word: Word) -> Iterator[Case]:
        name = word.text.partition("=")[2]
        path = self.folder / name
        if not name or not os.path.exists(path):  # which takes a name that is too long for none
            raise GraphError(f"{word.where}{shorten(word.text)} names no file beside it; needed: a path from "
                             f"{str(self.folder)!r}")
        if path.resolve() in self.files or len(self.files) >= DEEPEST:
            what = "is being read already" if path.resolve() in self.files else f"is nested {DEEPEST} files deep"
            raise GraphError(f"{word.where}the file of {shorten(word.text)} {what}; needed: batch files that end")
        if self.root is not None and not path.resolve().is_relative_to(self.root):
            raise GraphError(f"{word.where}{shorten(word.text)} leads out of the folder {str(self.root)!r}; needed: a "
                             "file inside it")
        self.opened += 1
        if self.opened > MOST_FILES:
            raise GraphError(f"{word.where}{shorten(word.text)} is nested file {self.opened}; needed: at most "
                             f"{MOST_FILES}")
        outside = self.folder, self.files, self.root
        self.folder, self.files = path.parent, (*self.files, path.resolve())
        self.root = self.root or path.parent.resolve()
        try:
            content = read_bytes(path)
        except GraphError as error:
            raise GraphError(f"{word.where}{error}") from None
        yield from self.cases(_words(path, content))
        self.folder, self.files, self.root = outside

    def _option(self, word: Word) -> None:
        name, equals, value = word.text.removeprefix("--").partition("=")
        key = name.replace("-", "_")
        if re.fullmatch(r"-v\d+", word.text) or (equals and name in WITHOUT_EFFECT):
            return
        entries = tuple(entry.strip() for entry in value.split(","))
        if equals and name in NEUTRAL:
            for entry in entries:
                if entry.lower() not in NEUTRAL[name]:
                    raise _refusal(word, entry, (entry or "nothing" for entry in NEUTRAL[name]),
                                   "it changes the values or the choice of problems")
        elif equals and key in Settings._fields and value:
            self.settings = self.settings._replace(**{key: tuple(_checked(word, key, entry) for entry in entries)})
        else:
            known = [f"--{known.replace('_', '-')}" for known in (*Settings._fields, *NEUTRAL, *WITHOUT_EFFECT)]
            near = near_misses(word.text.partition("=")[0], known)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise GraphError(f"{word.where}option {shorten(word.text)} is not understood{hint}; needed: --dir, --dt, "
                             "--mb, --bia-dt, --stag, --wtag, --dtag, --batch, --reset, or one that does not change "
                             "the values")

    def _described(self, word: Word) -> Iterator[Case]:
        try:
            layer = parse_descriptor(word.text, transposed=self.deconv)
        except GraphError as error:
            raise GraphError(f"{word.where}{error}") from None
        self.made += prod(map(len, self.settings))
        if self.made > MOST_CASES:
            raise GraphError(f"{word.where}{shorten(word.text)} with the lists of the options makes {self.made} cases "
                             f"so far; needed: at most {MOST_CASES}")
        for chosen in product(*self.settings):
            yield _case(word, layer, *chosen, deconv=self.deconv)


def _refusal(word: Word, entry: str, allowed: Iterable[str], why: str) -> GraphError:
    return GraphError(f"{word.where}{entry!r} of {shorten(word.text)} is refused, because {why}; needed: "
                      f"{' or '.join(allowed)}")


def _checked(word: Word, key: str, entry: str) -> str:
    """Return an entry of a list in the one spelling that later steps know."""
    if key == "dir":
        if entry.upper() not in DIRS:
            raise _refusal(word, entry, DIRS, "it is no direction")
        return entry.upper()
    if key == "mb":
        if not re.fullmatch(r"\d{1,9}", entry):
            raise _refusal(word, entry, ["a batch size, 0 for that of the descriptor"], "it is no integer")
        return entry
    if key == "dt":
        parts = entry.lower().split(":")
        for part in parts:
            if part not in FORMATS:
                raise _refusal(word, part, FORMATS, "no operator here has that format")
        if len(parts) not in (1, 3):
            raise _refusal(word, entry, ["one format", "those of source, weights and destination with colons"],
                           f"it has {len(parts)} formats")
        return ":".join(parts)
    if key == "bia_dt":
        if entry.lower() not in (*FORMATS, "undef"):
            raise _refusal(word, entry, (*FORMATS, "undef"), "no bias here has that format")
        return entry.lower()
    orders = WEIGHT_LAYOUTS if key == "wtag" else LAYOUTS
    allowed = [name for names in orders.values() for name in names]
    if entry.lower() not in allowed:
        raise _refusal(word, entry, dict.fromkeys(filter(None, allowed)), "no array here has that order in memory")
    return entry.lower()


def _case(word: Word, layer: Layer, dir: str, dt: str, mb: str, bia_dt: str, stag: str, wtag: str, dtag: str, *,
          deconv: bool) -> Case:
    """Return the case of one descriptor under one choice of all options."""
    if int(mb):
        layer = replace(layer, geometry=replace(layer.geometry, batch=int(mb)))
    layout = _layout(word, stag, wtag, dtag)
    source, weights, destination = dt.split(":") if ":" in dt else (dt,) * 3
    large, small = (destination, source) if deconv else (source, destination)
    formats = {"large": FORMATS[large], "small": FORMATS[small], "taps": FORMATS[weights]}
    bias = FORMATS.get(bia_dt) or (FORMATS["f32"] if dir in ("FWD_B", "BWD_WB") else None)
    parts = [layer.name, *(["mb" + mb] if int(mb) else []), dir, dt.replace(":", "_")]
    name = "-".join([*parts, *(["nxc"] if layout == "nxc" else []), *(["deconv"] if deconv else [])])
    fields = {"driver": "deconv" if deconv else "conv", "descriptor": word.text, "dir": dir, "dt": dt, "mb": mb}
    if dir.startswith("BWD_W") and bias is not None:
        return _with_bias_gradient(word, layer, layout, formats, bias, name, fields)
    return _onednn(layer, DIRS[dir], layout, formats, bias if dir.startswith("FWD") else None, name, fields)


def _layout(word: Word, stag: str, wtag: str, dtag: str) -> str:
    """Return the layout that the orders in memory of the three tensors ask for."""
    last = [tag for tag in (stag, dtag) if tag in LAYOUTS["nxc"]]
    layout = "nxc" if last else "ncx"
    free = ("", "any", "undef")
    data = [tag for tag in (stag, dtag) if tag not in free and tag not in LAYOUTS[layout]]
    if data or (wtag not in free and wtag not in WEIGHT_LAYOUTS[layout]):
        raise GraphError(f"{word.where}--stag={stag} --wtag={wtag} --dtag={dtag} put tensors into different orders; "
                         "needed: abx for all of them, or axb with xba for the weights")
    return layout


def _onednn(layer: Layer, direction: str, layout: str, formats: dict[str, str], bias: str | None, name: str,
            fields: dict[str, str]) -> Case:
    """Return a case of oneDNN Graph's operator, under emulation where the formats differ or have eight bits."""
    operator, operands, attributes = layer.call(direction, layout)
    result = formats[RESULT[layer.kernel(direction)]]
    names = {"forward": ("src", "weights"), "data": ("diff_dst", "weights"), "weights": ("src", "diff_dst")}[direction]
    inputs = {name: Operand(in_layout(getattr(layer.shapes, side), side, layout), formats[side])
              for name, side in zip(names, operands, strict=True)}
    if bias is not None:
        channels = layer.shapes.large[1] if layer.transposed else layer.shapes.small[1]
        inputs["bias"] = Operand((channels,), bias)
    used = {operand.format for operand in inputs.values()} | {result}
    emulated = len(used) > 1 or not used <= {"float32", "bfloat16", "float16"}
    chosen: dict[str, Any] = {"output_format": result} if emulated else {}
    return Case(name, f"onednn::{operator}", inputs, {**attributes, **chosen}, "emulation" if emulated else None,
                fields)


def _with_bias_gradient(word: Word, layer: Layer, layout: str, formats: dict[str, str], bias: str, name: str,
                        fields: dict[str, str]) -> Case:
    """Return a case of ATen's operator: oneDNN Graph's has no gradient of a bias."""
    geometry, shapes = layer.geometry, layer.shapes
    ends = [axis.large + 2 * axis.begin - axis.reach for axis in geometry.axes]
    if layout != "ncx" or any(not 0 <= end < axis.stride for end, axis in zip(ends, geometry.axes, strict=True)):
        what = "channels last" if layout != "ncx" else "pads that differ"
        raise GraphError(f"{word.where}BWD_WB of {layer.name} has {what}, and the operator with a bias gradient has no "
                         "such thing; needed: abx and equal pads on both sides, or BWD_W")
    large, small, taps = (Operand(getattr(shapes, side), formats[side]) for side in ("large", "small", "taps"))
    grad_output, data = (large, small) if layer.transposed else (small, large)
    channels = grad_output.shape[1]
    attributes: dict[str, Any] = {
        "bias_sizes": [channels], "stride": [axis.stride for axis in geometry.axes],
        "padding": [axis.begin for axis in geometry.axes], "dilation": [axis.dilation for axis in geometry.axes],
        "transposed": layer.transposed, "groups": geometry.groups, "output_mask": [False, True, True],
        "output_padding": ends if layer.transposed else [0] * len(ends)}
    used = {*formats.values(), bias}
    emulated = len(used) > 1 or not used <= {"float32", "bfloat16", "float16"}
    if emulated:
        attributes["output_formats"] = ["", taps.format, bias]
    return Case(name, "aten::convolution_backward", {"grad_output": grad_output, "input": data, "weight": taps},
                attributes, "emulation" if emulated else None, fields)

