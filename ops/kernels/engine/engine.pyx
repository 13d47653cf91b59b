"""The kernels, fast: operands become strided tensors, the relation of positions becomes products of packed panels.

Results equal those of `reference.pyx` bit for bit, on every instruction set and number of threads. What is left goes there:
calls in float64 where something infinite or NaN may meet a position outside.

The files below are one Cython module, since functions that are called for every tile must be inlined. The head of each
says what it uses and gives; `algorithms.pxi` has the table of algorithms.
"""

import os
import warnings

import numpy as np

from arithmetic cimport arithmetic_state, begin_arithmetic, end_arithmetic
from cpython.buffer cimport PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cython.parallel cimport prange
from libc.math cimport log2
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from isa cimport (
    LINE_PIECE, NO_TASK, claim, code_values, copy_move, copying, prefetch_lines, DOT_LANES, DOT_TAPS, NO_ELEMENT, NCX_COLUMNS,
    NCX_ROWS, NCX_SLOTS, PLANE_OUTPUTS, PLANE_TAPS, PLANE_WIDTHS, plane_pair_functions, plane_row, planes_function, store_planes_function, TALL_ROWS, TILE_LANES, TILE_ROWS, TILE_VECTORS, half_run, instruction_set, instruction_sets, lane_span,
    line_function, masked_function, FRAME_STEPS, PART_STEPS, line_part, pair_channel, pair_functions, chain_lines, chain_rows, chain_units, pair_steps, tap_pair, prepare_codes, result_cell, byte_look_ups, want_byte_look_ups,
    halves_function, line_blocks_function, line_piece, plane_lines, strided_function, ncx_masks, ncx_row, tile_function, tile_result, tile_run, tile_wish,
    DOT_PRODUCTS_PAY, measured_rates, product_rates, DOT_TILE, DOT_LARGE, LINE_TILE_ROWS,
    SEGMENT_BLOCKS, SEGMENT_BLOCK_LENGTH, SEGMENT_CHAIN, SEGMENT_LENGTH, SEGMENT_ONE_HALF, SEGMENT_PANELS_LENGTH, segment_function,
)
from numbers cimport NUMBER_FLOAT8_E4M3FN, NUMBER_FLOAT16, NUMBER_FLOAT32, NUMBER_FLOAT64, decode16, real, within_bfloat16
from panels cimport (
    bits_from, ceiling, check_room, common_divisor, copy_codes, element_size, enter_workspace, extend_workspace, floor_divided,
    leave_workspace, magnitude, meet_inside, return_workspace, set_workspace_guarded, share, take, take_workspace,
    thread_number, workspace, workspace_guarded, workspace_overrun,
)
from reduction cimport (
    HALF_BLOCK, REDUCTION_CHAINS, REDUCTION_FEW, REDUCTION_LEVELS, SUM_BLOCK, chain_sum, cut_reduction, piece_start,
    positions_in_blocks, reduction_cut, sums_in_blocks,
)
from trials cimport NOT_SETTLED, TRIAL_FAILED, call_settled, forget_trials, next_trial, note_trial, settled_trial, trial_clock, trial_key, trial_seconds

from . import reference, teams
from .reference import FORMATS

prepare_codes()

cdef struct Problem
cdef struct Inquiry
cdef struct Algorithm

include "core/isa.pxi"
include "core/team.pxi"
include "core/caches.pxi"
include "core/problem.pxi"
include "core/extents.pxi"
include "engine/product/product.pxi"
include "engine/product/pairs.pxi"
include "engine/costs.pxi"
include "engine/product/position_classes.pxi"
include "engine/product/pack.pxi"
include "engine/product/store.pxi"
include "engine/product/passes.pxi"
include "engine/product/laid_out_plan.pxi"
include "engine/product/laid_out_fill.pxi"
include "engine/product/stacked.pxi"
include "engine/product/plan.pxi"
include "engine/product/laid_out_ahead.pxi"
include "engine/product/jobs.pxi"
include "engine/product/gathered.pxi"
include "engine/product/laid_out.pxi"
include "engine/ahead.pxi"
include "engine/product/transposed.pxi"
include "engine/product/rows_are_positions_plan.pxi"
include "engine/product/position_weights.pxi"
include "engine/product/position_store.pxi"
include "engine/product/rows_are_positions.pxi"
include "engine/product/rows_are_lines_plan.pxi"
include "engine/product/rows_are_lines.pxi"
include "engine/product/patches.pxi"
include "engine/product/few_columns.pxi"
include "engine/product/depthwise_nxc.pxi"
include "engine/product/depthwise_ncx_plan.pxi"
include "engine/product/depthwise_ncx.pxi"
include "engine/product/depthwise_planes_plan.pxi"
include "engine/product/depthwise_planes.pxi"
include "engine/product/float64_lines.pxi"
include "engine/product/float64.pxi"
include "engine/weights/gradient.pxi"
include "engine/weights/plan.pxi"
include "engine/weights/make_plan.pxi"
include "engine/weights/share_work.pxi"
include "engine/weights/kept.pxi"
include "engine/weights/sums.pxi"
include "engine/weights/positions.pxi"
include "engine/weights/next_numbers.pxi"
include "engine/weights/frames.pxi"
include "engine/weights/product.pxi"
include "engine/weights/matrix_frames.pxi"
include "engine/weights/matrix_rows.pxi"
include "engine/weights/blocks.pxi"
include "engine/weights/line_runs.pxi"
include "engine/weights/lines.pxi"
include "engine/weights/windows.pxi"
include "engine/weights/shared_chunks.pxi"
include "engine/weights/jobs.pxi"
include "engine/weights/few_channels.pxi"
include "engine/weights/few_pairs.pxi"
include "engine/weights/depthwise_ncx.pxi"
include "engine/weights/depthwise_planes.pxi"
include "engine/weights/depthwise_nxc.pxi"
include "engine/weights/tap_lanes_plan.pxi"
include "engine/weights/tap_lanes.pxi"
include "engine/weights/chain_lanes.pxi"
include "engine/weights/tap_pairs.pxi"
include "engine/weights/float64.pxi"
include "engine/trials.pxi"
include "engine/algorithms.pxi"
include "engine/product/sums.pxi"
include "engine/product/stride_classes.pxi"
include "engine/weights/parts.pxi"


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


cdef enum:
    FORWARD
    BACKWARD_DATA
    BACKWARD_WEIGHTS


cdef int run_call(int kernel, Call* c, const float* bias, int threads, Inquiry* inquiry) except -1 nogil:
    """Returns true where the results are not those of the definition."""
    if element_count(&c.small if kernel == FORWARD else &c.large if kernel == BACKWARD_DATA else &c.taps) == 0:
        return 0
    if kernel == FORWARD:
        return run_forward(c, bias, threads, inquiry)
    if kernel == BACKWARD_DATA:
        return run_backward_data(c, bias, threads, inquiry)
    return run_backward_weights(c, threads, inquiry)


cdef bint run_kernel(int kernel, large, small, taps, formats, stride, dilation, begin, bias, int threads, algorithm,
                     subtree=None) except -1:
    """Returns true where the plain loops are to be run."""
    cdef Call c
    cdef Bias added = Bias(bias, formats[0] == "float64")
    cdef bint undone = False
    cdef arithmetic_state before
    cdef Inquiry inquiry = Inquiry(forced_algorithm(algorithm), False, 0, NULL)
    if algorithm == REFERENCE:
        return True
    try:
        open_call(&c, large, small, taps, formats, stride, dilation, begin, (1, 0, 2)[kernel], subtree)
        if inquiry.forced != NULL:  # it fits all parts of the call, or nothing is computed
            inquiry.asked = True
            run_call(kernel, &c, NULL, threads, &inquiry)
            inquiry.asked = False
        with nogil:
            before = begin_arithmetic()
            try:
                undone = run_call(kernel, &c, added.first, threads, &inquiry if inquiry.forced != NULL else NULL)
            finally:
                end_arithmetic(before)
    finally:
        close_call(&c)
    return undone


cdef tuple alike(first, second, formats):
    """Both operands in one format, as the plain loops take them, and its name: bfloat16 if it has all values, since it tells how
    sums are taken, or float32."""
    if formats[0] == formats[1]:
        return first, second, formats[0]
    values = [np.empty(array.shape, np.float32) for array in (first, second)]
    for array, value, format in zip((first, second), values, formats):
        reference.decode(array, value, format=format)
    if not (within_bfloat16(FORMATS[formats[0]]) and within_bfloat16(FORMATS[formats[1]])):
        return values[0], values[1], "float32"
    codes = [np.empty(value.shape, np.uint16) for value in values]
    for value, code in zip(values, codes):
        reference.encode(value, code, format="bfloat16")
    return codes[0], codes[1], "bfloat16"


def forward(large, taps, small, *, stride, dilation, begin, formats, bias=None, int threads=1, algorithm=None):
    """Write small."""
    if run_kernel(FORWARD, large, small, taps, (formats[0], formats[2], formats[1]), stride, dilation, begin, bias, threads, algorithm):
        large, taps, format = alike(large, taps, formats[:2])
        reference.forward(large, taps, small, stride=stride, dilation=dilation, begin=begin, formats=(format, format, formats[2]),
                          bias=bias, threads=threads)


def backward_data(small, taps, large, *, stride, dilation, begin, formats, bias=None, int threads=1, algorithm=None):
    """Write large."""
    if run_kernel(BACKWARD_DATA, large, small, taps, (formats[2], formats[0], formats[1]), stride, dilation, begin, bias, threads,
                  algorithm):
        small, taps, format = alike(small, taps, formats[:2])
        reference.backward_data(small, taps, large, stride=stride, dilation=dilation, begin=begin,
                                formats=(format, format, formats[2]), bias=bias, threads=threads)


def backward_weights(large, small, taps, *, stride, dilation, begin, formats, int threads=1, algorithm=None, subtree=None):
    """Write taps; `subtree` as in `reference.backward_weights`."""
    if run_kernel(BACKWARD_WEIGHTS, large, small, taps, formats, stride, dilation, begin, None, threads, algorithm, subtree):
        large, small, format = alike(large, small, formats[:2])
        reference.backward_weights(large, small, taps, stride=stride, dilation=dilation, begin=begin,
                                   formats=(format, format, formats[2]), threads=threads, subtree=subtree)


# ---------------------------------------------------------------------------------------------------------------------
# What a call would do

REFERENCE = "reference"


cdef const Algorithm* forced_algorithm(str name) except? NULL:
    cdef int i
    if name is None or name == REFERENCE:
        return NULL
    for i in range(ALGORITHMS):
        if algorithms[i].name.decode() == name:
            return &algorithms[i]
    raise ValueError(name, *algorithm_names())


def algorithm_names() -> list[str]:
    """Names of the algorithms that a call can name, the plain loops first."""
    return [REFERENCE, *[algorithms[i].name.decode() for i in range(ALGORITHMS)]]


cdef int64_t ask(str kernel, first, second, result, formats, stride, dilation, begin, int threads, algorithm, list findings,
                 subtree) except -1:
    """The bytes of workspace of a call; `findings` may be None."""
    cdef Call c
    cdef Inquiry inquiry = Inquiry(forced_algorithm(algorithm), True, 0, NULL)
    if findings is not None:
        inquiry.findings = <void*>findings
    number, (large, small, taps) = {
        "forward": (FORWARD, (0, 2, 1)), "backward_data": (BACKWARD_DATA, (2, 0, 1)),
        "backward_weights": (BACKWARD_WEIGHTS, (0, 1, 2)),
    }[kernel]
    arrays = (first, second, result)
    try:
        open_call(&c, arrays[large], arrays[small], arrays[taps], (formats[large], formats[small], formats[taps]), stride,
                  dilation, begin, 3, subtree)
        run_call(number, &c, NULL, threads, &inquiry)
    finally:
        close_call(&c)
    return inquiry.bytes_needed


def workspace_bytes(str kernel, first, second, result, *, stride, dilation, begin, formats, bias=None, int threads=1,
                    algorithm=None, subtree=None) -> int:
    """Bytes a call of the named kernel with these arguments allocates, whatever its bias; nothing is computed."""
    return ask(kernel, first, second, result, formats, stride, dilation, begin, threads, algorithm, None, subtree)


def choices(str kernel, first, second, result, *, stride, dilation, begin, formats, bias=None, int threads=1, algorithm=None,
            subtree=None) -> list:
    """For each part of a call of the named kernel, whatever its bias: the algorithm, the unit that multiplies, the threads, the
    products of numbers, and of every algorithm that fits its name, its file, the unit, its cycles, its bytes of workspace and the
    shortest time of its trials in seconds, or None; twice where it fits with two units. Nothing is computed."""
    findings = []
    ask(kernel, first, second, result, formats, stride, dilation, begin, threads, algorithm, findings, subtree)
    return findings


def assume_loads_wait(wait: bool | None) -> None:
    """Choose tiles and algorithms as a processor does whose multiply-adds wait for loads, or do not; None: as this one's measured
    rates say. For tests, which compare the bits of both."""
    global wait_found
    wait_found = NOT_ASKED if wait is None else LOADS if wait else STORES


def try_algorithms(tried: bool) -> None:
    """Let calls that come again take the algorithm that is measured to be the fastest, or the least estimate; times are forgotten."""
    global trying
    trying = tried
    forget_trials()


def trials() -> bool:
    """Whether calls that come again take the algorithm that is measured to be the fastest."""
    return trying


def guard_workspace(bint guarded) -> None:
    """Put guards between the buffers of every later call, which tests look at: a call that writes to one raises RuntimeError."""
    set_workspace_guarded(guarded)
