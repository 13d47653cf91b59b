"""The kernels as plain loops: the definition of what every other implementation computes, bit for bit.

Along each of three spatial axes, with stride s, dilation d and begin b, position x of the large side meets position y
of the small side at tap t where

    x = y*s - b + t*d          0 <= x < X,  0 <= y < Y,  0 <= t < K

    large (N, G, C, X0, X1, X2)     small (N, G, M, Y0, Y1, Y2)     taps (G, M, C, K0, K1, K2)

    forward            small[n,g,m,y] = SUM over t, c   large[n,g,c,x] * taps[g,m,c,t]   (+ bias[g*M + m])
    backward_data      large[n,g,c,x] = SUM over t, m   small[n,g,m,y] * taps[g,m,c,t]   (+ bias[g*C + c])
    backward_weights   taps[g,m,c,t]  = SUM over n, y   large[n,g,c,x] * small[n,g,m,y]
    bias_sum           bias[g*M + m]  = SUM over n, y   small[n,g,m,y]

A triple (x, y, t) outside the relation contributes nothing, not even 0*inf. A sum starts at +0 and takes one fused
multiply-add per term, in the order of the loops below, but for those that `core/reduction.h` cuts. The finished sum takes
one more +0, so a zero is +0 however its terms underflowed. Sums are carried in float32 (float64 between float64
arrays), and rounded once when stored.

Arrays are views with any strides of stored numbers (`numbers/numbers.h`); the operands of a call share one format. Threads
share out the results, never a sum, so their number does not show. The caller has checked shapes and overlap.
"""

from math import gcd

import numpy as np

from cython.parallel cimport prange
from libc.math cimport fma, fmaf
from libc.stdint cimport int64_t, uintptr_t
from numbers cimport (
    NUMBER_BFLOAT16, NUMBER_FLOAT8_E4M3FN, NUMBER_FLOAT8_E5M2, NUMBER_FLOAT16, NUMBER_FLOAT32, NUMBER_FLOAT64,
    NUMBER_HIFLOAT8, load, operand, real, result, store,
)
from reduction cimport (
    HALF_BLOCK, REDUCTION_CHAINS, REDUCTION_LEVELS, SUM_BLOCK, chain_sum, cut_reduction, piece_start, positions_in_blocks,
    push_partial, reduction_cut, sums_in_blocks, tree_sum,
)

from . import teams

include "core/team.pxi"

FORMATS = {
    "float32": NUMBER_FLOAT32,
    "float64": NUMBER_FLOAT64,
    "float16": NUMBER_FLOAT16,
    "bfloat16": NUMBER_BFLOAT16,
    "float8_e4m3fn": NUMBER_FLOAT8_E4M3FN,
    "float8_e5m2": NUMBER_FLOAT8_E5M2,
    "hifloat8": NUMBER_HIFLOAT8,
}


# ---------------------------------------------------------------------------------------------------------------------
# Which positions meet


cdef struct Window:  # of one call, per axis: stride, dilation, begin
    int64_t s[3]
    int64_t d[3]
    int64_t b[3]
    int64_t period[3]  # taps this far apart meet x at the same remainder of y*s modulo s


cdef struct Index:  # of one result: its row-major number taken apart
    int64_t i[6]


cdef struct Range:  # first <= i < end
    int64_t first
    int64_t end


cdef struct Hits:  # first, first + step, ...: so many
    int64_t first
    int64_t step
    int64_t count


cdef Window window_of(stride, dilation, begin):
    cdef Window w
    cdef int axis
    for axis in range(3):
        w.s[axis], w.d[axis], w.b[axis] = stride[axis], dilation[axis], begin[axis]
        w.period[axis] = stride[axis] // gcd(stride[axis], dilation[axis])
    return w


cdef inline int64_t size(const Py_ssize_t* shape) noexcept nogil:
    return <int64_t>shape[0] * shape[1] * shape[2] * shape[3] * shape[4] * shape[5]


cdef inline Index index_of(int64_t number, const Py_ssize_t* shape) noexcept nogil:
    cdef Index at
    cdef int axis
    for axis in range(5, -1, -1):
        at.i[axis] = number % shape[axis]
        number = number // shape[axis]
    return at


cdef inline Range inside(int64_t origin, int64_t step, int64_t extent, int64_t count) noexcept nogil:
    """The i of 0 <= i < count with 0 <= origin + i*step < extent."""
    cdef Range r = Range(0, 0)
    if origin < 0:
        r.first = (-origin + step - 1) // step
    if origin < extent:
        r.end = min(count, (extent - 1 - origin) // step + 1)
    return r


cdef inline Hits hits_of(int64_t x, Window* w, int axis, int64_t Y, int64_t K) noexcept nogil:
    """The taps t for which y = (x + b - t*d) / s is a position of the small side."""
    cdef int64_t s = w.s[axis], d = w.d[axis], b = w.b[axis], t
    cdef int64_t extent = (Y - 1) * s + 1 if Y > 0 else 0  # of y*s
    cdef Range r = inside(extent - 1 - x - b, d, extent, K)  # y*s falls as t rises: counted from its far end
    cdef Hits hits = Hits(0, w.period[axis], 0)
    for t in range(r.first, min(r.end, r.first + hits.step)):
        if (x + b - t * d) % s == 0:
            hits.first = t
            hits.count = (r.end - 1 - t) // hits.step + 1
            break
    return hits


# ---------------------------------------------------------------------------------------------------------------------
# One result of each kernel; `total` comes in as +0 and carries the sum


cdef inline real multiply_add(double a, double b, real total) noexcept nogil:
    """a*b + total, rounded once; a and b are exact in the type of the sum."""
    if real is float:
        return fmaf(<float>a, <float>b, total)
    else:
        return fma(a, b, total)


cdef inline real add_term(double a, double b, real total, real* halves, int64_t c, int64_t channels, bint blocks) noexcept nogil:
    """Term c of the `channels` of a tap joins the sum; in `blocks` it joins half of one, which joins when it is complete."""
    cdef real* half = &halves[c // HALF_BLOCK % 2]
    if not blocks:
        return multiply_add(a, b, total)
    half[0] = multiply_add(a, b, half[0])
    if (c + 1) % SUM_BLOCK == 0 or c + 1 == channels:
        total = total + (halves[0] + halves[1])
        halves[0] = halves[1] = 0
    return total


cdef inline real forward_at(
    Index at, const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] taps, int format, Window* w,
    real total
) noexcept nogil:
    """small[n,g,m,y] = SUM over t, c   large[n,g,c, y*s - b + t*d] * taps[g,m,c,t]"""
    cdef int64_t n = at.i[0], g = at.i[1], m = at.i[2], c, t0, t1, t2, x0, x1, x2, C = taps.shape[2]
    cdef real halves[2]
    cdef bint blocks = sums_in_blocks(C, taps.shape[1], format, format)
    cdef int64_t origin0 = at.i[3] * w.s[0] - w.b[0]
    cdef int64_t origin1 = at.i[4] * w.s[1] - w.b[1]
    cdef int64_t origin2 = at.i[5] * w.s[2] - w.b[2]
    cdef Range inside0 = inside(origin0, w.d[0], large.shape[3], taps.shape[3])
    cdef Range inside1 = inside(origin1, w.d[1], large.shape[4], taps.shape[4])
    cdef Range inside2 = inside(origin2, w.d[2], large.shape[5], taps.shape[5])
    halves[0] = halves[1] = total
    for t0 in range(inside0.first, inside0.end):
        x0 = origin0 + t0 * w.d[0]
        for t1 in range(inside1.first, inside1.end):
            x1 = origin1 + t1 * w.d[1]
            for t2 in range(inside2.first, inside2.end):
                x2 = origin2 + t2 * w.d[2]
                for c in range(C):
                    total = add_term(
                        load(large[n, g, c, x0, x1, x2], format), load(taps[g, m, c, t0, t1, t2], format), total,
                        halves, c, C, blocks
                    )
    return total + <real>0


cdef inline real backward_data_at(
    Index at, const operand[:, :, :, :, :, :] small, const operand[:, :, :, :, :, :] taps, int format, Window* w,
    real total
) noexcept nogil:
    """large[n,g,c,x] = SUM over t, m   small[n,g,m, (x + b - t*d) / s] * taps[g,m,c,t]"""
    cdef int64_t n = at.i[0], g = at.i[1], c = at.i[2], m, i0, i1, i2, t0, t1, t2, y0, y1, y2, M = taps.shape[1]
    cdef real halves[2]
    cdef bint blocks = sums_in_blocks(M, taps.shape[2], format, format)
    cdef Hits hits0 = hits_of(at.i[3], w, 0, small.shape[3], taps.shape[3])
    cdef Hits hits1 = hits_of(at.i[4], w, 1, small.shape[4], taps.shape[4])
    cdef Hits hits2 = hits_of(at.i[5], w, 2, small.shape[5], taps.shape[5])
    halves[0] = halves[1] = total
    for i0 in range(hits0.count):
        t0 = hits0.first + i0 * hits0.step
        y0 = (at.i[3] + w.b[0] - t0 * w.d[0]) // w.s[0]
        for i1 in range(hits1.count):
            t1 = hits1.first + i1 * hits1.step
            y1 = (at.i[4] + w.b[1] - t1 * w.d[1]) // w.s[1]
            for i2 in range(hits2.count):
                t2 = hits2.first + i2 * hits2.step
                y2 = (at.i[5] + w.b[2] - t2 * w.d[2]) // w.s[2]
                for m in range(M):
                    total = add_term(
                        load(small[n, g, m, y0, y1, y2], format), load(taps[g, m, c, t0, t1, t2], format), total,
                        halves, m, M, blocks
                    )
    return total + <real>0


cdef inline real backward_weights_piece(
    int64_t first, int64_t end, int64_t chain, int64_t chains, Index at,
    const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] small, int format, Window* w, real total
) noexcept nogil:
    """The terms of taps[g,m,c,t] = SUM over n, y   large[n,g,c, y*s - b + t*d] * small[n,g,m,y] at the positions
    first <= ((n*Y0 + y0)*Y1 + y1)*Y2 + y2 < end whose y2 is `chain` modulo `chains`."""
    cdef int64_t g = at.i[0], m = at.i[1], c = at.i[2], n, row, y0, y1, y2, x0, x1
    cdef int64_t Y0 = small.shape[3], Y1 = small.shape[4], Y2 = small.shape[5]
    cdef int64_t origin0 = at.i[3] * w.d[0] - w.b[0]
    cdef int64_t origin1 = at.i[4] * w.d[1] - w.b[1]
    cdef int64_t origin2 = at.i[5] * w.d[2] - w.b[2]
    cdef Range inside2 = inside(origin2, w.s[2], large.shape[5], Y2)
    cdef real halves[2]
    cdef real* part = &total  # what takes the next term
    cdef int64_t term, block = 0
    cdef bint blocks = positions_in_blocks(chains, format, format)
    halves[0] = halves[1] = total
    if first == end:
        return total
    for row in range(first // Y2, (end - 1) // Y2 + 1):
        n, y0, y1 = row // Y1 // Y0, row // Y1 % Y0, row % Y1
        x0 = origin0 + y0 * w.s[0]
        x1 = origin1 + y1 * w.s[1]
        if 0 <= x0 < large.shape[3] and 0 <= x1 < large.shape[4]:
            y2 = max(inside2.first, first - row * Y2)
            y2 += (chains + chain - y2 % chains) % chains
            while y2 < min(inside2.end, end - row * Y2):
                term = row * Y2 + y2 - first
                if blocks and term // SUM_BLOCK > block:
                    total = total + (halves[0] + halves[1])
                    halves[0] = halves[1] = 0
                    block = term // SUM_BLOCK
                if blocks:
                    part = &halves[term // HALF_BLOCK % 2]
                part[0] = multiply_add(
                    load(large[n, g, c, x0, x1, origin2 + y2 * w.s[2]], format),
                    load(small[n, g, m, y0, y1, y2], format),
                    part[0],
                )
                y2 += chains
    return total + (halves[0] + halves[1]) if blocks else total


cdef inline real backward_weights_at(
    Index at, const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] small, int format, Window* w,
    real total, int64_t positions, reduction_cut cut
) noexcept nogil:
    cdef real stack[REDUCTION_LEVELS]
    cdef real sums[REDUCTION_CHAINS]
    cdef int depth = 0
    cdef int64_t piece, first, end, chain
    for piece in range(cut.pieces):
        first = piece_start(&cut, piece, positions)
        end = piece_start(&cut, piece + 1, positions)
        for chain in range(cut.chains):
            sums[chain] = backward_weights_piece(first, end, chain, cut.chains, at, large, small, format, w, total)
        depth = push_partial(stack, depth, piece, chain_sum(sums, cut.chains))
    return tree_sum(stack, depth) + <real>0


# ---------------------------------------------------------------------------------------------------------------------
# All results


cdef inline void forward_one(
    int64_t number, const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] taps, int format, Window* w,
    real total, const double[:] bias, result[:, :, :, :, :, :] small, int result_format
) noexcept nogil:
    cdef Index at = index_of(number, small.shape)
    total = forward_at(at, large, taps, format, w, total)
    if bias.shape[0] > 0:
        total = total + <real>bias[at.i[1] * small.shape[2] + at.i[2]]
    store(&small[at.i[0], at.i[1], at.i[2], at.i[3], at.i[4], at.i[5]], result_format, total)


def forward(
    const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] taps, result[:, :, :, :, :, :] small, *,
    stride, dilation, begin, formats, bias=None, int threads=1
):
    """Write small."""
    cdef int64_t i, results = size(small.shape)
    cdef int team = team_for(<double>results * size(taps.shape) / max(1, taps.shape[0] * taps.shape[1]), threads)
    cdef Window w = window_of(stride, dilation, begin)
    cdef const double[:] added = bias_values(bias)
    cdef int format = operand_format(formats), result_format = FORMATS[formats[2]]
    with teams.Arithmetic():
        if operand is double and result is double:
            for i in prange(results, num_threads=team, schedule="static", nogil=True):
                forward_one(i, large, taps, format, &w, <double>0, added, small, result_format)
        elif operand is double or result is double:
            raise TypeError(MIXED)
        else:
            for i in prange(results, num_threads=team, schedule="static", nogil=True):
                forward_one(i, large, taps, format, &w, <float>0, added, small, result_format)


cdef inline void backward_data_one(
    int64_t number, const operand[:, :, :, :, :, :] small, const operand[:, :, :, :, :, :] taps, int format, Window* w,
    real total, const double[:] bias, result[:, :, :, :, :, :] large, int result_format
) noexcept nogil:
    cdef Index at = index_of(number, large.shape)
    total = backward_data_at(at, small, taps, format, w, total)
    if bias.shape[0] > 0:
        total = total + <real>bias[at.i[1] * large.shape[2] + at.i[2]]
    store(&large[at.i[0], at.i[1], at.i[2], at.i[3], at.i[4], at.i[5]], result_format, total)


def backward_data(
    const operand[:, :, :, :, :, :] small, const operand[:, :, :, :, :, :] taps, result[:, :, :, :, :, :] large, *,
    stride, dilation, begin, formats, bias=None, int threads=1
):
    """Write large."""
    cdef int64_t i, results = size(large.shape)
    cdef int team = team_for(<double>results * size(taps.shape) / max(1, taps.shape[0] * taps.shape[2]), threads)
    cdef Window w = window_of(stride, dilation, begin)
    cdef const double[:] added = bias_values(bias)
    cdef int format = operand_format(formats), result_format = FORMATS[formats[2]]
    with teams.Arithmetic():
        if operand is double and result is double:
            for i in prange(results, num_threads=team, schedule="static", nogil=True):
                backward_data_one(i, small, taps, format, &w, <double>0, added, large, result_format)
        elif operand is double or result is double:
            raise TypeError(MIXED)
        else:
            for i in prange(results, num_threads=team, schedule="static", nogil=True):
                backward_data_one(i, small, taps, format, &w, <float>0, added, large, result_format)


cdef reduction_cut with_subtree(reduction_cut cut, subtree) except *:
    if subtree is not None:
        cut.offset, cut.pieces, cut.length = subtree
    return cut


cdef inline void backward_weights_one(
    int64_t number, const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] small, int format, Window* w,
    real total, int64_t positions, reduction_cut cut, result[:, :, :, :, :, :] taps, int result_format
) noexcept nogil:
    cdef Index at = index_of(number, taps.shape)
    total = backward_weights_at(at, large, small, format, w, total, positions, cut)
    store(&taps[at.i[0], at.i[1], at.i[2], at.i[3], at.i[4], at.i[5]], result_format, total)


def backward_weights(
    const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] small, result[:, :, :, :, :, :] taps, *,
    stride, dilation, begin, formats, int threads=1, subtree=None
):
    """Write taps, or the sum of a subtree of a larger sum (`core/reduction.h`): `subtree` is the place of its first piece among
    the positions of small, the number of its pieces, and their length."""
    cdef int64_t i, results = size(taps.shape)
    cdef int64_t positions = <int64_t>small.shape[0] * small.shape[3] * small.shape[4] * small.shape[5]
    cdef int team = team_for(<double>results * positions, threads)
    cdef reduction_cut cut = with_subtree(cut_reduction(positions, small.shape[5], small.shape[2], results), subtree)
    cdef Window w = window_of(stride, dilation, begin)
    cdef int format = operand_format(formats), result_format = FORMATS[formats[2]]
    with teams.Arithmetic():
        if operand is double and result is double:
            for i in prange(results, num_threads=team, schedule="static", nogil=True):
                backward_weights_one(i, large, small, format, &w, <double>0, positions, cut, taps, result_format)
        elif operand is double or result is double:
            raise TypeError(MIXED)
        else:
            for i in prange(results, num_threads=team, schedule="static", nogil=True):
                backward_weights_one(i, large, small, format, &w, <float>0, positions, cut, taps, result_format)


def bias_sum(small, bias, *, formats, int threads=1):
    """Write bias: `backward_weights` of a single tap whose large side is one everywhere (1*v + total is the sum)."""
    N, G, M, *Y = small.shape
    one = np.empty((1, 1, 1, 1, 1, 1), small.dtype)
    encode(np.ones(one.shape, np.float32), one, format=formats[0])
    backward_weights(
        np.broadcast_to(one, (N, G, 1, *Y)), small, bias.reshape(G, M, 1, 1, 1, 1), stride=(1, 1, 1),
        dilation=(1, 1, 1), begin=(0, 0, 0), formats=(formats[0], *formats), threads=threads,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Formats

MIXED = "float64 goes with no other format"
cdef const double[:] NO_BIAS = np.empty(0)


cdef const double[:] bias_values(bias):
    """The bias as doubles, which hold it exactly."""
    return NO_BIAS if bias is None else np.require(bias, np.float64, "A")


cdef int operand_format(formats) except -1:
    if formats[0] != formats[1]:
        raise TypeError(f"operands in two formats, {formats[0]} and {formats[1]}: decode them to float32 first")
    return FORMATS[formats[0]]


def decode(const operand[:, :, :, :, :, :] stored, float[:, :, :, :, :, :] values, *, format, int threads=1):
    """Write the values of stored numbers, exactly (float64: rounded to float32)."""
    cdef int64_t i, results = size(values.shape)
    cdef int team = grant_team(max(1, threads))
    cdef int code = FORMATS[format]
    with teams.Arithmetic():
        for i in prange(results, num_threads=team, schedule="static", nogil=True):
            decode_one(i, stored, code, values)


cdef inline void decode_one(
    int64_t number, const operand[:, :, :, :, :, :] stored, int format, float[:, :, :, :, :, :] values
) noexcept nogil:
    cdef Index at = index_of(number, values.shape)
    values[at.i[0], at.i[1], at.i[2], at.i[3], at.i[4], at.i[5]] = <float>load(
        stored[at.i[0], at.i[1], at.i[2], at.i[3], at.i[4], at.i[5]], format
    )


def encode(const float[:, :, :, :, :, :] values, result[:, :, :, :, :, :] stored, *, format, int threads=1):
    """Write values as stored numbers, rounded once."""
    cdef int64_t i, results = size(stored.shape)
    cdef int team = grant_team(max(1, threads))
    cdef int code = FORMATS[format]
    with teams.Arithmetic():
        for i in prange(results, num_threads=team, schedule="static", nogil=True):
            encode_one(i, values, stored, code)


cdef inline void encode_one(
    int64_t number, const float[:, :, :, :, :, :] values, result[:, :, :, :, :, :] stored, int format
) noexcept nogil:
    cdef Index at = index_of(number, stored.shape)
    store(
        &stored[at.i[0], at.i[1], at.i[2], at.i[3], at.i[4], at.i[5]], format,
        values[at.i[0], at.i[1], at.i[2], at.i[3], at.i[4], at.i[5]],
    )
