"""The three kernels and the bias sum as plain loops: the definition of what every other kernel computes, bit for bit.

Along each of three spatial axes, with stride s, dilation d and begin b, position x of the large side meets position y
of the small side at tap t where

    x = y*s - b + t*d          0 <= x < X,  0 <= y < Y,  0 <= t < K

    large (N, G, C, X0, X1, X2)     small (N, G, M, Y0, Y1, Y2)     taps (G, M, C, K0, K1, K2)

    forward            small[n,g,m,y] = SUM over t, c   large[n,g,c,x] * taps[g,m,c,t]   (+ bias[g*M + m])
    backward_data      large[n,g,c,x] = SUM over t, m   small[n,g,m,y] * taps[g,m,c,t]   (+ bias[g*C + c])
    backward_weights   taps[g,m,c,t]  = SUM over n, y   large[n,g,c,x] * small[n,g,m,y]
    bias_sum           bias[g*M + m]  = SUM over n, y   small[n,g,m,y]

A triple (x, y, t) that breaks the relation contributes nothing, not even 0*inf.  Sums start at +0 and take one fused
multiply-add per term, the loops below giving the order; `reduction.h` cuts the sums over n and y.  They are carried in
float32 (float64 between float64 arrays) and rounded once, to nearest even, when stored.

Arrays are strided views of stored numbers (`numbers.h`), any strides, all operands of a call in one format.  Threads
share the outputs, never a sum, so their number does not show.  The caller has checked shapes, formats and aliasing.
"""

from math import gcd

from cython.parallel cimport prange
from libc.math cimport fma, fmaf
from libc.stdint cimport int64_t

from numbers cimport load, operand, real, result, store
from numbers cimport NUMBER_BFLOAT16, NUMBER_FLOAT16, NUMBER_FLOAT32, NUMBER_FLOAT64
from reduction cimport REDUCTION_LEVELS, cut_reduction, push_partial, reduction_cut, tree_sum

cdef extern from *:
    """
    #ifdef _OPENMP
    #define CONVREG_OPENMP 1
    #else
    #define CONVREG_OPENMP 0
    #endif
    """
    enum:
        CONVREG_OPENMP

OPENMP = bool(CONVREG_OPENMP)  # whether `threads` has an effect

cdef dict CODES = {
    "float32": NUMBER_FLOAT32,
    "float64": NUMBER_FLOAT64,
    "float16": NUMBER_FLOAT16,
    "bfloat16": NUMBER_BFLOAT16,
}
cdef str MIXED = "float64 mixes with no other format"


cdef int code_of(str first, str second) except -1:
    if first != second:
        raise TypeError(f"operands in two formats, {first} and {second}: widen them to float32 first")
    return CODES[first]


# ---------------------------------------------------------------------------------------------------------------------
# Which positions meet


cdef struct Window:  # of one call, per axis: stride, dilation, begin
    int64_t s[3]
    int64_t d[3]
    int64_t b[3]
    int64_t period[3]  # every so many taps, the same residue of x modulo the stride


cdef struct Place:  # of one output: its row-major index taken apart
    int64_t i[6]


cdef struct Range:  # first <= i < end
    int64_t first
    int64_t end


cdef struct Hits:  # first, first + step, ..., count of them
    int64_t first
    int64_t step
    int64_t count


cdef Window window(stride, dilation, begin):
    cdef Window w
    cdef int axis
    for axis in range(3):
        w.s[axis], w.d[axis], w.b[axis] = stride[axis], dilation[axis], begin[axis]
        w.period[axis] = stride[axis] // gcd(stride[axis], dilation[axis])
    return w


cdef inline Place place(int64_t index, const Py_ssize_t* shape) noexcept nogil:
    cdef Place p
    cdef int axis
    for axis in range(5, -1, -1):
        p.i[axis] = index % shape[axis]
        index = index // shape[axis]
    return p


cdef inline int64_t size(const Py_ssize_t* shape) noexcept nogil:
    return <int64_t>shape[0] * shape[1] * shape[2] * shape[3] * shape[4] * shape[5]


cdef inline Range inside(int64_t origin, int64_t step, int64_t extent, int64_t count) noexcept nogil:
    """The i of 0 <= i < count with 0 <= origin + i*step < extent."""
    cdef Range r = Range(0, 0)
    if origin < 0:
        r.first = (-origin + step - 1) // step
    if origin < extent:
        r.end = min(count, (extent - 1 - origin) // step + 1)
    return r


cdef inline Hits taps_at(int64_t x, Window* w, int axis, int64_t Y, int64_t K) noexcept nogil:
    """The taps t for which y = (x + b - t*d) / s is a position of the small side."""
    cdef int64_t s = w.s[axis], d = w.d[axis], t
    cdef int64_t extent = (Y - 1) * s + 1 if Y > 0 else 0  # of y*s
    cdef Range r = inside(extent - 1 - x - w.b[axis], d, extent, K)  # y*s falls as t rises: count from its far end
    cdef Hits hits = Hits(0, w.period[axis], 0)
    for t in range(r.first, min(r.end, r.first + hits.step)):
        if (x + w.b[axis] - t * d) % s == 0:
            hits.first = t
            hits.count = (r.end - 1 - t) // hits.step + 1
            break
    return hits


cdef inline real multiply_add(real a, real b, real total) noexcept nogil:
    """a*b + total, rounded once."""
    if real is float:
        return fmaf(a, b, total)
    else:
        return fma(a, b, total)


# ---------------------------------------------------------------------------------------------------------------------
# One output each


cdef inline real forward_at(
    const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] taps, Place p, Window* w, int format, real zero
) noexcept nogil:
    """small[n,g,m,y] = SUM over t, c  large[n,g,c, y*s - b + t*d] * taps[g,m,c,t]"""
    cdef int64_t n = p.i[0], g = p.i[1], m = p.i[2], c, t0, t1, t2, x0, x1, x2
    cdef int64_t origin0 = p.i[3] * w.s[0] - w.b[0]
    cdef int64_t origin1 = p.i[4] * w.s[1] - w.b[1]
    cdef int64_t origin2 = p.i[5] * w.s[2] - w.b[2]
    cdef Range r0 = inside(origin0, w.d[0], large.shape[3], taps.shape[3])
    cdef Range r1 = inside(origin1, w.d[1], large.shape[4], taps.shape[4])
    cdef Range r2 = inside(origin2, w.d[2], large.shape[5], taps.shape[5])
    cdef real total = zero
    for t0 in range(r0.first, r0.end):
        x0 = origin0 + t0 * w.d[0]
        for t1 in range(r1.first, r1.end):
            x1 = origin1 + t1 * w.d[1]
            for t2 in range(r2.first, r2.end):
                x2 = origin2 + t2 * w.d[2]
                for c in range(taps.shape[2]):
                    total = multiply_add(
                        load(large[n, g, c, x0, x1, x2], format, zero), load(taps[g, m, c, t0, t1, t2], format, zero), total
                    )
    return total


cdef inline real backward_data_at(
    const operand[:, :, :, :, :, :] small, const operand[:, :, :, :, :, :] taps, Place p, Window* w, int format, real zero
) noexcept nogil:
    """large[n,g,c,x] = SUM over t, m  small[n,g,m, (x + b - t*d) / s] * taps[g,m,c,t]"""
    cdef int64_t n = p.i[0], g = p.i[1], c = p.i[2], m, i0, i1, i2, t0, t1, t2, y0, y1, y2
    cdef Hits h0 = taps_at(p.i[3], w, 0, small.shape[3], taps.shape[3])
    cdef Hits h1 = taps_at(p.i[4], w, 1, small.shape[4], taps.shape[4])
    cdef Hits h2 = taps_at(p.i[5], w, 2, small.shape[5], taps.shape[5])
    cdef real total = zero
    for i0 in range(h0.count):
        t0 = h0.first + i0 * h0.step
        y0 = (p.i[3] + w.b[0] - t0 * w.d[0]) // w.s[0]
        for i1 in range(h1.count):
            t1 = h1.first + i1 * h1.step
            y1 = (p.i[4] + w.b[1] - t1 * w.d[1]) // w.s[1]
            for i2 in range(h2.count):
                t2 = h2.first + i2 * h2.step
                y2 = (p.i[5] + w.b[2] - t2 * w.d[2]) // w.s[2]
                for m in range(taps.shape[1]):
                    total = multiply_add(
                        load(small[n, g, m, y0, y1, y2], format, zero), load(taps[g, m, c, t0, t1, t2], format, zero), total
                    )
    return total


cdef inline real backward_weights_piece(
    const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] small,
    Place p, Window* w, int format, int64_t first, int64_t end, real zero
) noexcept nogil:
    """The terms of taps[g,m,c,t] = SUM over n, y  large[n,g,c, y*s - b + t*d] * small[n,g,m,y] at positions
    first <= ((n*Y0 + y0)*Y1 + y1)*Y2 + y2 < end."""
    cdef int64_t g = p.i[0], m = p.i[1], c = p.i[2], n, y0, y1, y2, x0, x1, row
    cdef int64_t Y0 = small.shape[3], Y1 = small.shape[4], Y2 = small.shape[5]
    cdef int64_t origin0 = p.i[3] * w.d[0] - w.b[0]
    cdef int64_t origin1 = p.i[4] * w.d[1] - w.b[1]
    cdef int64_t origin2 = p.i[5] * w.d[2] - w.b[2]
    cdef Range r2 = inside(origin2, w.s[2], large.shape[5], Y2)
    cdef real total = zero
    if first == end:
        return total
    for row in range(first // Y2, (end - 1) // Y2 + 1):
        n, y0, y1 = row // (Y0 * Y1), row // Y1 % Y0, row % Y1
        x0 = origin0 + y0 * w.s[0]
        x1 = origin1 + y1 * w.s[1]
        if 0 <= x0 < large.shape[3] and 0 <= x1 < large.shape[4]:
            for y2 in range(max(r2.first, first - row * Y2), min(r2.end, end - row * Y2)):
                total = multiply_add(
                    load(large[n, g, c, x0, x1, origin2 + y2 * w.s[2]], format, zero),
                    load(small[n, g, m, y0, y1, y2], format, zero),
                    total,
                )
    return total


cdef inline real backward_weights_at(
    const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] small,
    Place p, Window* w, int format, int64_t positions, reduction_cut cut, real zero
) noexcept nogil:
    cdef real stack[REDUCTION_LEVELS]
    cdef int depth = 0
    cdef int64_t piece
    for piece in range(cut.pieces):
        depth = push_partial(stack, depth, piece, backward_weights_piece(
            large, small, p, w, format, min(positions, piece * cut.length), min(positions, (piece + 1) * cut.length), zero
        ))
    return tree_sum(stack, depth)


# ---------------------------------------------------------------------------------------------------------------------
# All outputs


cdef inline void forward_one(
    const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] taps, result[:, :, :, :, :, :] small,
    const double[:] bias, int64_t index, Window* w, int format, int result_format, real zero
) noexcept nogil:
    cdef Place p = place(index, small.shape)
    cdef real total = forward_at(large, taps, p, w, format, zero)
    if bias.shape[0] > 0:
        total = total + <real>bias[p.i[1] * small.shape[2] + p.i[2]]
    store(&small[p.i[0], p.i[1], p.i[2], p.i[3], p.i[4], p.i[5]], result_format, total)


def forward(
    const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] taps, result[:, :, :, :, :, :] small, *,
    stride, dilation, begin, formats, const double[:] bias, int threads
):
    """Write small; `bias` is empty or has G*M values."""
    cdef Window w = window(stride, dilation, begin)
    cdef int format = code_of(formats[0], formats[1]), result_format = CODES[formats[2]]
    cdef int64_t i
    if operand is double and result is double:
        for i in prange(size(small.shape), num_threads=threads, schedule="static", nogil=True):
            forward_one(large, taps, small, bias, i, &w, format, result_format, <double>0)
    elif operand is double or result is double:
        raise TypeError(MIXED)
    else:
        for i in prange(size(small.shape), num_threads=threads, schedule="static", nogil=True):
            forward_one(large, taps, small, bias, i, &w, format, result_format, <float>0)


cdef inline void backward_data_one(
    const operand[:, :, :, :, :, :] small, const operand[:, :, :, :, :, :] taps, result[:, :, :, :, :, :] large,
    const double[:] bias, int64_t index, Window* w, int format, int result_format, real zero
) noexcept nogil:
    cdef Place p = place(index, large.shape)
    cdef real total = backward_data_at(small, taps, p, w, format, zero)
    if bias.shape[0] > 0:
        total = total + <real>bias[p.i[1] * large.shape[2] + p.i[2]]
    store(&large[p.i[0], p.i[1], p.i[2], p.i[3], p.i[4], p.i[5]], result_format, total)


def backward_data(
    const operand[:, :, :, :, :, :] small, const operand[:, :, :, :, :, :] taps, result[:, :, :, :, :, :] large, *,
    stride, dilation, begin, formats, const double[:] bias, int threads
):
    """Write large; `bias` is empty or has G*C values."""
    cdef Window w = window(stride, dilation, begin)
    cdef int format = code_of(formats[0], formats[1]), result_format = CODES[formats[2]]
    cdef int64_t i
    if operand is double and result is double:
        for i in prange(size(large.shape), num_threads=threads, schedule="static", nogil=True):
            backward_data_one(small, taps, large, bias, i, &w, format, result_format, <double>0)
    elif operand is double or result is double:
        raise TypeError(MIXED)
    else:
        for i in prange(size(large.shape), num_threads=threads, schedule="static", nogil=True):
            backward_data_one(small, taps, large, bias, i, &w, format, result_format, <float>0)


cdef inline void backward_weights_one(
    const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] small, result[:, :, :, :, :, :] taps,
    int64_t positions, reduction_cut cut, int64_t index, Window* w, int format, int result_format, real zero
) noexcept nogil:
    cdef Place p = place(index, taps.shape)
    cdef real total = backward_weights_at(large, small, p, w, format, positions, cut, zero)
    store(&taps[p.i[0], p.i[1], p.i[2], p.i[3], p.i[4], p.i[5]], result_format, total)


def backward_weights(
    const operand[:, :, :, :, :, :] large, const operand[:, :, :, :, :, :] small, result[:, :, :, :, :, :] taps, *,
    stride, dilation, begin, formats, int threads
):
    """Write taps."""
    cdef Window w = window(stride, dilation, begin)
    cdef int format = code_of(formats[0], formats[1]), result_format = CODES[formats[2]]
    cdef int64_t positions = <int64_t>small.shape[0] * small.shape[3] * small.shape[4] * small.shape[5], i
    cdef reduction_cut cut = cut_reduction(positions, size(taps.shape))
    if operand is double and result is double:
        for i in prange(size(taps.shape), num_threads=threads, schedule="static", nogil=True):
            backward_weights_one(large, small, taps, positions, cut, i, &w, format, result_format, <double>0)
    elif operand is double or result is double:
        raise TypeError(MIXED)
    else:
        for i in prange(size(taps.shape), num_threads=threads, schedule="static", nogil=True):
            backward_weights_one(large, small, taps, positions, cut, i, &w, format, result_format, <float>0)
