"""The kernels, fast: operands become strided tensors, the relation of positions becomes products of packed panels.

    core/isa.pxi        which instruction set is in use        core/isa.h, simd/tile.h, isa_*.c    what it does in registers
    core/team.pxi       how many threads a call runs on
    core/extents.pxi    how large a call may be
    core/panels.pxd     small arithmetic of both products
    engine/product/product.pxi    forward, and each stride class of backward_data, from gathered panels
    engine/product/pairs.pxi      ... in pairs of bfloat16 channels
    engine/product/store.pxi    ... where their sums end up
    engine/product/position_classes.pxi      ... with positions sorted by the taps they meet
    engine/product/laid_out.pxi     ... from input laid out once for all taps
    engine/product/laid_out_fill.pxi       ... which that is
    engine/product/stacked.pxi     ... and rows that share lanes stacked to one tile
    engine/product/rows_are_positions.pxi     ... where rows are positions and lanes output channels
    engine/product/few_columns.pxi   ... of few columns
    engine/product/depthwise_nxc.pxi   ... of groups of one channel, their channels side by side in memory
    engine/product/depthwise_ncx.pxi, engine/product/depthwise_ncx_jobs.pxi   ... of groups of few channels, their positions side by side
    engine/product/passes.pxi     ... of more taps than are packed at once
    engine/product/jobs.pxi       ... cut into tasks
    engine/product/laid_out_ahead.pxi     ... and the next block laid out meanwhile
    engine/weights/product.pxi    backward_weights
    engine/weights/positions.pxi  ... where its taps meet the large side
    engine/weights/sums.pxi   ... how its pieces are joined and stored
    engine/weights/blocks.pxi ... of operands within bfloat16
    engine/weights/jobs.pxi   ... cut into tasks
    engine/weights/few_channels.pxi     ... where the small side has few channels in a group
    engine/weights/depthwise_ncx.pxi  ... and loads take masks
    engine/weights/depthwise_nxc.pxi   ... where there is one in each, and groups lie side by side in memory
    engine/weights/parts.pxi  ... in parts where its workspace would be too large
    engine/product/stride_classes.pxi    backward_data as products, one for each stride class
    engine/product/float64.pxi, engine/weights/float64.pxi   everything in float64

Results equal those of `reference.pyx` bit for bit, on every instruction set and number of threads. What is left goes there:
calls in float64 where something infinite or NaN may meet a position outside.
"""

import os

import numpy as np

from cpython.buffer cimport PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from isa cimport (
    NO_TASK, claim, copy_move, copying, offer, withdraw,
    DOT_LANES, DOT_TAPS, NO_ELEMENT, NCX_COLUMNS, NCX_ROWS, NCX_SLOTS, TILE_LANES, TILE_ROWS, TILE_VECTORS,
    half_run, instruction_set, instruction_sets, lane_span, line_function, masked_function, pair_channel, pair_functions,
    pair_steps, prepare_codes, result_cell, strided_function, ncx_row, tile_function, tile_result, tile_run, tile_wish,
)
from numbers cimport NUMBER_FLOAT32, NUMBER_FLOAT64, decode8, decode16, real, within_bfloat16
from panels cimport (
    ceiling, common_divisor, copy_codes, element_size, meet_inside, return_workspace, share, take, take_workspace,
    thread_number,
)
from reduction cimport (
    HALF_BLOCK, REDUCTION_CHAINS, REDUCTION_FEW, REDUCTION_LEVELS, SUM_BLOCK, chain_sum, cut_reduction, positions_in_blocks,
    reduction_cut, sums_in_blocks,
)

from . import reference
from .reference import FORMATS

prepare_codes()

include "core/isa.pxi"
include "core/team.pxi"
include "engine/product/product.pxi"
include "engine/product/pairs.pxi"
include "engine/product/store.pxi"
include "engine/product/position_classes.pxi"
include "engine/product/laid_out.pxi"
include "engine/product/laid_out_fill.pxi"
include "engine/product/stacked.pxi"
include "engine/product/rows_are_positions.pxi"
include "engine/product/few_columns.pxi"
include "engine/product/depthwise_nxc.pxi"
include "engine/product/depthwise_ncx.pxi"
include "engine/product/depthwise_ncx_jobs.pxi"
include "engine/product/float64.pxi"
include "engine/product/passes.pxi"
include "engine/product/jobs.pxi"
include "engine/product/laid_out_ahead.pxi"
include "engine/weights/sums.pxi"
include "engine/weights/product.pxi"
include "engine/weights/positions.pxi"
include "engine/weights/blocks.pxi"
include "engine/weights/jobs.pxi"
include "engine/weights/few_channels.pxi"
include "engine/weights/depthwise_ncx.pxi"
include "engine/weights/depthwise_nxc.pxi"
include "engine/weights/parts.pxi"
include "engine/weights/float64.pxi"

# ---------------------------------------------------------------------------------------------------------------------
# From views to products


cdef struct View:  # a 6-D operand
    Py_buffer buffer
    int format
    int64_t shape[6]
    int64_t stride[6]  # in elements


cdef int open_view(View* view, object array, str format, bint writable) except -1:
    cdef int axis
    view.format = FORMATS[format]
    PyObject_GetBuffer(array, &view.buffer, PyBUF_STRIDES | (PyBUF_WRITABLE if writable else 0))
    for axis in range(6):
        view.shape[axis] = view.buffer.shape[axis]
        view.stride[axis] = view.buffer.strides[axis] // view.buffer.itemsize
    return 0


cdef Operand operand_of(const View* view) noexcept nogil:
    """Positions and channels of large or small: (n, g, channel, x0, x1, x2)."""
    cdef Operand o
    cdef int axis
    o.data, o.format = view.buffer.buf, view.format
    o.n, o.g, o.c = view.stride[0], view.stride[1], view.stride[2]
    for axis in range(3):
        o.x[axis] = view.stride[3 + axis]
    return o



cdef struct AxisTaps:  # the taps of one axis that meet one residue class of output positions
    int64_t count
    int64_t first      # tap
    int64_t step       # between taps
    int64_t offset     # of the first tap
    int64_t offset_step


cdef void build_product(Product* p, const AxisTaps* axes, const View* taps, Tap* store,
                        int64_t* offsets) noexcept nogil:
    """Fill in the taps of a product, in the order of the definition."""
    cdef int64_t i0, i1, i2, number = 0, x
    cdef int axis
    cdef Tap* tap
    p.all_taps = p.taps = store
    p.all_offsets = p.tap_offsets = offsets
    p.all_count = p.tap_count = axes[0].count * axes[1].count * axes[2].count
    if p.D == 0 or p.I[0] == 0 or p.I[1] == 0 or p.I[2] == 0:
        p.all_count = p.tap_count = 0
    for i0 in range(axes[0].count):
        for i1 in range(axes[1].count):
            for i2 in range(axes[2].count):
                tap = &store[number]
                number += 1
                tap.offset[0] = axes[0].offset + i0 * axes[0].offset_step
                tap.offset[1] = axes[1].offset + i1 * axes[1].offset_step
                tap.offset[2] = axes[2].offset + i2 * axes[2].offset_step
                offsets[number - 1] = ((axes[0].first + i0 * axes[0].step) * taps.stride[3]
                                       + (axes[1].first + i1 * axes[1].step) * taps.stride[4]
                                       + (axes[2].first + i2 * axes[2].step) * taps.stride[5])
    p.cell = NULL
    p.padded = False
    for axis in range(3):
        for i0 in range(axes[axis].count):
            x = axes[axis].offset + i0 * axes[axis].offset_step
            if x < 0 or (p.Q[axis] - 1) * p.step[axis] + x >= p.I[axis]:
                p.padded = True


cdef struct Call:
    View large
    View small
    View taps
    int64_t s[3]
    int64_t d[3]
    int64_t b[3]


cdef int open_call(Call* c, large, small, taps, formats, stride, dilation, begin, int written) except -1:
    """Open the operands; `written` is the index of the result. To be closed whether that succeeds or not."""
    cdef int axis
    memset(c, 0, sizeof(Call))  # what is not opened is not closed
    open_view(&c.large, large, formats[0], written == 0)
    open_view(&c.small, small, formats[1], written == 1)
    open_view(&c.taps, taps, formats[2], written == 2)
    for axis in range(3):
        c.s[axis], c.d[axis], c.b[axis] = stride[axis], dilation[axis], begin[axis]
    return 0


cdef void close_call(Call* c):
    PyBuffer_Release(&c.large.buffer)
    PyBuffer_Release(&c.small.buffer)
    PyBuffer_Release(&c.taps.buffer)


cdef inline int64_t size(const View* view) noexcept nogil:
    cdef int64_t total = 1
    cdef int axis
    for axis in range(6):
        total *= view.shape[axis]
    return total


include "core/extents.pxi"


cdef int run_forward(Call* c, const float* bias, int threads, int64_t* report) except -1 nogil:
    cdef Product p
    cdef AxisTaps axes[3]
    cdef int axis
    cdef int64_t tap_count
    cdef Tap* taps
    cdef int64_t* offsets
    check_extents(c)
    tap_count = c.taps.shape[3] * c.taps.shape[4] * c.taps.shape[5]
    taps = <Tap*>malloc((tap_count + 1) * (sizeof(Tap) + sizeof(int64_t)))
    if taps == NULL:
        with gil:
            raise MemoryError
    offsets = <int64_t*>(taps + tap_count + 1)
    p.N, p.G, p.R, p.D = c.large.shape[0], c.taps.shape[0], c.taps.shape[1], c.taps.shape[2]
    for axis in range(3):
        p.Q[axis], p.I[axis], p.step[axis] = c.small.shape[3 + axis], c.large.shape[3 + axis], c.s[axis]
        axes[axis] = AxisTaps(c.taps.shape[3 + axis], 0, 1, -c.b[axis], c.d[axis])
    p.input, p.output, p.bias = operand_of(&c.large), operand_of(&c.small), bias
    p.weights.data, p.weights.format = c.taps.buffer.buf, c.taps.format
    p.weights.g, p.weights.n, p.weights.c = c.taps.stride[0], c.taps.stride[1], c.taps.stride[2]
    build_product(&p, axes, &c.taps, taps, offsets)
    try:
        return run_products(&p, 1, 1, threads, report)
    finally:
        free(taps)


include "engine/product/stride_classes.pxi"


cdef class Bias:
    """Its numbers, held while a call reads them."""
    cdef const float[::1] floats
    cdef const double[::1] doubles
    cdef const float* first  # NULL where there are none

    def __cinit__(self, bias, bint wide):
        self.first = NULL
        if bias is None or len(bias) == 0:
            return
        if wide:
            self.doubles = np.require(bias, np.float64, "CA")
            self.first = <const float*>&self.doubles[0]
            return
        self.floats = bias
        if <uintptr_t>&self.floats[0] % sizeof(float) != 0:
            self.floats = np.array(bias, np.float32)
        self.first = &self.floats[0]


def forward(large, taps, small, *, stride, dilation, begin, formats, bias=None, int threads=1):
    """Write small."""
    cdef Call c
    cdef Bias added = Bias(bias, formats[0] == "float64")
    cdef bint undone = False
    try:
        open_call(&c, large, small, taps, (formats[0], formats[2], formats[1]), stride, dilation, begin, 1)
        with nogil:
            if size(&c.small) > 0:
                undone = run_forward(&c, added.first, threads, NULL)
    finally:
        close_call(&c)
    if undone:
        reference.forward(large, taps, small, stride=stride, dilation=dilation, begin=begin, formats=formats, bias=bias, threads=threads)


def backward_data(small, taps, large, *, stride, dilation, begin, formats, bias=None, int threads=1):
    """Write large."""
    cdef Call c
    cdef Bias added = Bias(bias, formats[0] == "float64")
    cdef bint undone = False
    try:
        open_call(&c, large, small, taps, (formats[2], formats[0], formats[1]), stride, dilation, begin, 0)
        with nogil:
            if size(&c.large) > 0:
                undone = run_backward_data(&c, added.first, threads, NULL)
    finally:
        close_call(&c)
    if undone:
        reference.backward_data(small, taps, large, stride=stride, dilation=dilation, begin=begin, formats=formats, bias=bias, threads=threads)


cdef void write_zeros(const View* view) noexcept nogil:
    """To every element: of all formats the zero is code 0."""
    cdef int64_t number, rest, offset
    cdef int axis
    for number in range(size(view)):
        rest, offset = number, 0
        for axis in range(5, -1, -1):
            offset += rest % view.shape[axis] * view.stride[axis]
            rest //= view.shape[axis]
        memset(<char*>view.buffer.buf + offset * view.buffer.itemsize, 0, view.buffer.itemsize)


cdef int run_backward_weights(Call* c, int threads, int64_t* report) except -1 nogil:
    cdef Weights w
    cdef int axis
    if size(&c.small) == 0 or size(&c.large) == 0:
        if report == NULL:
            write_zeros(&c.taps)
        return 0
    check_extents(c)
    w.N, w.G, w.C, w.M = c.small.shape[0], c.taps.shape[0], c.taps.shape[2], c.taps.shape[1]
    w.large, w.small = operand_of(&c.large), operand_of(&c.small)
    w.taps, w.taps_format = c.taps.buffer.buf, c.taps.format
    for axis in range(3):
        w.X[axis], w.Y[axis], w.K[axis] = c.large.shape[3 + axis], c.small.shape[3 + axis], c.taps.shape[3 + axis]
        w.s[axis], w.d[axis], w.b[axis] = c.s[axis], c.d[axis], c.b[axis]
    for axis in range(6):
        w.taps_stride[axis] = c.taps.stride[axis]
    w.cut = cut_reduction(w.N * w.Y[0] * w.Y[1] * w.Y[2], w.Y[2], w.M, w.G * w.M * w.C * w.K[0] * w.K[1] * w.K[2])
    if c.large.format == NUMBER_FLOAT64:
        return run_double_weights(&w, threads, report)
    w.indivisible = False
    run_weights_parts(&w, threads, report)
    return 0


def backward_weights(large, small, taps, *, stride, dilation, begin, formats, int threads=1):
    """Write taps."""
    cdef Call c
    cdef bint undone = False
    try:
        open_call(&c, large, small, taps, formats, stride, dilation, begin, 2)
        with nogil:
            if size(&c.taps) > 0:
                undone = run_backward_weights(&c, threads, NULL)
    finally:
        close_call(&c)
    if undone:
        reference.backward_weights(large, small, taps, stride=stride, dilation=dilation, begin=begin, formats=formats, threads=threads)


def workspace_bytes(str kernel, first, second, result, *, stride, dilation, begin, formats, int threads=1) -> int:
    """Bytes a call of the named kernel with these arguments allocates; nothing is computed."""
    cdef Call c
    cdef int64_t report = 0
    large, small, taps = {
        "forward": (0, 2, 1), "backward_data": (2, 0, 1), "backward_weights": (0, 1, 2)
    }[kernel]
    arrays = (first, second, result)
    try:
        open_call(&c, arrays[large], arrays[small], arrays[taps], (formats[large], formats[small], formats[taps]), stride,
                  dilation, begin, 3)
        if size(&c.small if kernel == "forward" else &c.large if kernel == "backward_data" else &c.taps) > 0:
            if kernel == "forward":
                run_forward(&c, NULL, threads, &report)
            elif kernel == "backward_data":
                run_backward_data(&c, NULL, threads, &report)
            else:
                run_backward_weights(&c, threads, &report)
    finally:
        close_call(&c)
    return report
