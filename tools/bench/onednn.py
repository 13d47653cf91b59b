"""oneDNN's own primitives through its C interface, in the memory layouts that the library prefers.

This is the hardest comparison: operands and result stay in the library's layouts, so a call reorders nothing, allocates
nothing and is timed alone, which no user with plain arrays can have.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_int, c_int64, c_size_t, c_uint, c_void_p
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np

from convreg.layers import OPERANDS, RESULT

from ..onednn_dtypes import DATA_TYPES, FLOATS
from .check import Array, Case
from .peer import Prepared, Unsupported

LIBRARY = "libdnnl.so.3"
ANY = 1
CPU, IN_ORDER, TRAINING, DIRECT = 1, 1, 64, 1
ALLOCATE = c_void_p(-1)
FROM, TO = 1, 17
MOST_AXES = 12

# Roles of the operands per kernel: the argument of an execution, and the query for the layout the library chose.
ROLES = {
    "forward": {"large": (1, 129), "taps": (33, 131), "small": (17, 133)},
    "backward_data": {"large": (129, 130), "taps": (33, 131), "small": (145, 134)},
    "backward_weights": {"large": (1, 129), "taps": (161, 132), "small": (145, 134)},
}


class Version(ctypes.Structure):
    """What dnnl_version points to."""

    _fields_ = (("major", c_int), ("minor", c_int), ("patch", c_int), ("hash", ctypes.c_char_p),
                ("cpu_runtime", c_uint), ("gpu_runtime", c_uint))


class Argument(ctypes.Structure):
    """An operand of an execution."""

    _fields_ = (("role", c_int), ("memory", c_void_p))


class Descriptor:
    """Owns a handle of the library's and gives it back."""

    def __init__(self, library: ctypes.CDLL, destroy: str, handle: c_void_p) -> None:
        self.handle, self._destroy = handle, getattr(library, destroy)

    def __del__(self) -> None:
        self._destroy(self.handle)


class OneDnn:
    """oneDNN as PyPI's package `onednn` has it."""

    def __init__(self, threads: int) -> None:
        with _first_processors(threads):  # it makes one thread per processor that it may use
            self.library = _load()
            version = self.library.dnnl_version().contents
            self.engine, self.stream = c_void_p(), c_void_p()
            try:
                self._do("dnnl_engine_create", byref(self.engine), CPU, c_size_t(0))
                self._do("dnnl_stream_create", byref(self.stream), self.engine, IN_ORDER)
            except Unsupported as error:
                raise ImportError(f"no oneDNN engine on this machine: {error}") from None
            self._warm_up()
        self.about = (f"oneDNN {version.major}.{version.minor}.{version.patch}, the convolution primitive alone in "
                      "memory layouts of its own choice, no reorder counted")

    def prepare(self, case: Case) -> Prepared:
        """Create the primitive and move the operands into its layouts; the call only executes it."""
        kernel, result = case.kernel, RESULT[case.kernel]
        primitive_descriptor = self._primitive_descriptor(case)
        memories = {}
        for name, (_, query) in ROLES[kernel].items():
            chosen = c_void_p(self.library.dnnl_primitive_desc_query_md(primitive_descriptor.handle, query, 0))
            memories[name] = self._memory(chosen)
        for name in OPERANDS[kernel]:
            self._copy_in(case, name, case.operands[name], memories[name])
        primitive = self._primitive(primitive_descriptor)
        arguments = _arguments((role, memories[name]) for name, (role, _) in ROLES[kernel].items())
        execute, wait = self.library.dnnl_primitive_execute, self.library.dnnl_stream_wait

        def call() -> _Memory:
            if execute(primitive.handle, self.stream, 3, arguments) or wait(self.stream):
                raise RuntimeError("oneDNN's primitive fails")
            return memories[result]  # and keeps the others alive

        return Prepared(call, lambda memory: self._copy_out(case, result, memory))

    def _do(self, function: str, *arguments: Any) -> None:
        status = getattr(self.library, function)(*arguments)
        if status:
            known = {1: "out of memory", 2: "invalid arguments", 3: "not implemented"}
            raise Unsupported(f"{function}: {known.get(status, f'status {status}')}")

    def _warm_up(self) -> None:
        """Reorder something large enough for all threads, so that they start while the process is confined."""
        shape = (2**20,)
        plain = self._descriptor(shape, "f32", (1,))
        source, target = self._memory(plain.handle), self._memory(plain.handle)
        self._reorder(source, target)

    def _descriptor(self, shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None) -> Descriptor:
        """Describe a tensor with these strides, in elements, or leave the layout to the library."""
        if dtype not in FLOATS:
            raise Unsupported("formats other than f32, bf16 and f16")
        handle = c_void_p()
        common = (byref(handle), len(shape), _integers(shape), DATA_TYPES[dtype].number)
        if strides is None:
            self._do("dnnl_memory_desc_create_with_tag", *common, ANY)
        else:
            self._do("dnnl_memory_desc_create_with_strides", *common, _integers(strides))
        return Descriptor(self.library, "dnnl_memory_desc_destroy", handle)

    def _primitive_descriptor(self, case: Case) -> Descriptor:
        axes = case.problem.geometry.axes
        geometry = (_integers(axis.stride for axis in axes), _integers(axis.dilation - 1 for axis in axes),
                    _integers(axis.begin for axis in axes), _integers(case.problem.geometry.pads_end))
        described = {name: self._descriptor(self._shape(case, name), case.dtype, None) for name in
                     ("large", "taps", "small")}
        large, taps, small = (described[name].handle for name in ("large", "taps", "small"))
        handle = c_void_p()
        self._do("dnnl_convolution_forward_primitive_desc_create", byref(handle), self.engine, TRAINING, DIRECT, large,
                 taps, None, small, *geometry, None)
        forward = Descriptor(self.library, "dnnl_primitive_desc_destroy", handle)
        if case.kernel == "forward":
            return forward
        handle = c_void_p()
        operands = (large, taps, None, small) if case.kernel == "backward_weights" else (large, taps, small)
        self._do(f"dnnl_convolution_{case.kernel}_primitive_desc_create", byref(handle), self.engine, DIRECT, *operands,
                 *geometry, forward.handle, None)
        return Descriptor(self.library, "dnnl_primitive_desc_destroy", handle)

    def _primitive(self, descriptor: Descriptor) -> Descriptor:
        handle = c_void_p()
        self._do("dnnl_primitive_create", byref(handle), descriptor.handle)
        return Descriptor(self.library, "dnnl_primitive_destroy", handle)

    def _memory(self, descriptor: c_void_p) -> _Memory:
        handle = c_void_p()
        self._do("dnnl_memory_create", byref(handle), descriptor, self.engine, ALLOCATE)
        return _Memory(self.library, "dnnl_memory_destroy", handle)

    def _shape(self, case: Case, name: str) -> tuple[int, ...]:
        """Shape as the library has it: grouped weights have the groups as an axis of their own."""
        shape: tuple[int, ...] = getattr(case.problem.shapes, name)
        groups = case.problem.geometry.groups
        return (groups, shape[0] // groups, *shape[1:]) if name == "taps" and groups > 1 else shape

    def _plain(self, case: Case, name: str) -> _Memory:
        shape = self._shape(case, name)
        strides = tuple(int(np.prod(shape[index + 1:], dtype=np.int64)) for index in range(len(shape)))
        descriptor = self._descriptor(shape, case.dtype, strides)
        return self._memory(descriptor.handle)

    def _copy_in(self, case: Case, name: str, array: Array, memory: _Memory) -> None:
        plain = self._plain(case, name)
        source = np.ascontiguousarray(array)
        with plain.mapped() as address:
            ctypes.memmove(address, source.ctypes.data, source.nbytes)
        self._reorder(plain, memory)

    def _copy_out(self, case: Case, name: str, memory: _Memory) -> Array:
        plain = self._plain(case, name)
        self._reorder(memory, plain)
        result = np.empty(case.result_shape, next(iter(case.operands.values())).dtype)
        with plain.mapped() as address:
            ctypes.memmove(result.ctypes.data, address, result.nbytes)
        return result

    def _reorder(self, source: _Memory, target: _Memory) -> None:
        handle = c_void_p()
        self._do("dnnl_reorder_primitive_desc_create", byref(handle), source.descriptor(), self.engine,
                 target.descriptor(), self.engine, None)
        primitive = self._primitive(Descriptor(self.library, "dnnl_primitive_desc_destroy", handle))
        arguments = _arguments([(FROM, source), (TO, target)])
        self._do("dnnl_primitive_execute", primitive.handle, self.stream, 2, arguments)
        self._do("dnnl_stream_wait", self.stream)


class _Memory(Descriptor):
    """A tensor that the library has allocated."""

    def __init__(self, library: ctypes.CDLL, destroy: str, handle: c_void_p) -> None:
        super().__init__(library, destroy, handle)
        self.library = library

    def descriptor(self) -> c_void_p:
        """Describe its layout; the tensor owns the description."""
        handle = c_void_p()
        self.library.dnnl_memory_get_memory_desc(self.handle, byref(handle))
        return handle

    @contextmanager
    def mapped(self) -> Iterator[c_void_p]:
        """Lend the address of its bytes."""
        address = c_void_p()
        self.library.dnnl_memory_map_data(self.handle, byref(address))
        try:
            yield address
        finally:
            self.library.dnnl_memory_unmap_data(self.handle, address)


def _arguments(operands: Iterable[tuple[int, _Memory]]) -> Any:
    entries = [Argument(role, memory.handle) for role, memory in operands]
    return (Argument * len(entries))(*entries)


def _integers(values: Iterable[int]) -> Any:
    entries = list(values)
    return (c_int64 * MOST_AXES)(*entries, *[0] * (MOST_AXES - len(entries)))


@contextmanager
def _first_processors(count: int) -> Iterator[None]:
    """Confine the process to as many processors, where the system can; threads made meanwhile stay confined.

    Raises
    ------
    Unsupported
        If there are fewer.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    if len(allowed) < count:
        raise Unsupported(f"it runs on one thread per processor, {len(allowed)} here, not on {count}")
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _load() -> ctypes.CDLL:
    """Open the library of the installed package.

    The package's libraries lie in one folder and do not know it, so those that one needs are opened before it. Its
    runtime finds the processor through an OpenCL driver in the same folder.
    """
    try:
        listed = distribution("onednn").files or []
    except PackageNotFoundError:
        raise ImportError("the package onednn is not installed") from None
    found = next((Path(str(file.locate())).resolve() for file in listed if file.name == LIBRARY), None)
    if found is None or not sys.platform.startswith("linux"):
        raise ImportError(f"the package onednn has no {LIBRARY} for this system")
    driver = found.parent / "libintelocl.so"
    if driver.exists():
        os.environ.setdefault("OCL_ICD_FILENAMES", str(driver))
    os.environ.setdefault("ONEDNN_VERBOSE", "none")  # it writes its errors to the standard output
    library = _open(found, set())
    library.dnnl_version.restype = POINTER(Version)
    library.dnnl_primitive_desc_query_md.restype = c_void_p
    for name in ("dnnl_memory_desc_destroy", "dnnl_memory_destroy", "dnnl_primitive_destroy",
                 "dnnl_primitive_desc_destroy"):
        getattr(library, name).argtypes = [c_void_p]
    return library


def _open(path: Path, tried: set[str]) -> ctypes.CDLL:
    while True:
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            missing = re.match(r"(\S+): cannot open shared object file", str(error))
            if missing is None or missing[1] in tried or not (path.parent / missing[1]).exists():
                raise ImportError(str(error)) from None
            tried.add(missing[1])
            _open(path.parent / missing[1], tried)
