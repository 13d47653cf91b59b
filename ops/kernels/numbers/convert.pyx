"""Conversion of arrays between number formats: decode exactly, round once, any strides, any number of threads.

Elements are numbered in row-major order of the arrays. A thread takes blocks of consecutive numbers: it gathers a block
unless the array is contiguous, takes it to float32 bits, and encodes them, by functions of the engine's instruction set
(`simd/conversions.h`). A float64 becomes a float32 first, rounded so that the second rounding does not notice. Where there are
scales, numbers are multiplied by them in float32, float64 in float64, before that.

Stochastic rounding compares the discarded part of element i with word i % 4 of Philox4x32-10, key `seed`, counter
(i // 4, stream), low words first: stream 0 for the format, stream 1 for float64 to float32. So its results depend on
nothing but seed, number and value.
"""

import convreg.ops.kernels.reference as reference
import convreg.ops.kernels.teams as teams
import convreg.ops.kernels.engine as engine

from cpython.buffer cimport PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy
from numbers cimport NUMBER_FLOAT32, NUMBER_FLOAT64

cdef extern from "numbers/rounding.h" nogil:
    enum:
        NEAREST_EVEN
        HALF_AWAY
        TOWARD_ZERO
        STOCHASTIC
        HYBRID
        TO_ODD
        ROUND_TO_HF32

cdef extern from "numbers/conversion.h" nogil:
    ctypedef struct conversion_functions:
        void (*decode)(const void*, int, uint32_t*, int64_t) noexcept nogil
        void (*narrow)(const uint64_t*, const uint32_t*, uint32_t*, int, int, int64_t) noexcept nogil
        void (*scale)(const uint32_t*, const float*, int64_t, uint32_t*, int64_t) noexcept nogil
        void (*encode)(const uint32_t*, const uint32_t*, void*, int, int, int, int, int64_t) noexcept nogil
        void (*draw)(uint32_t*, uint64_t, uint64_t, uint32_t, int64_t) noexcept nogil

cdef enum:
    BLOCK = 1024  # elements; a multiple of 4
    MOST_AXES = 64
    SHARE = 16  # blocks that a thread takes at a time
    SHARED_FROM = 1 << 16  # elements for each further thread: below, starting it costs more than it saves

FORMATS = {**reference.FORMATS, "hf32": ROUND_TO_HF32}
ROUNDINGS = {
    "nearest_even": NEAREST_EVEN,
    "half_away": HALF_AWAY,
    "toward_zero": TOWARD_ZERO,
    "stochastic": STOCHASTIC,
    "hybrid": HYBRID,
}

include "core/team.pxi"


cdef struct Side:  # one of the two arrays
    char* data
    int64_t strides[MOST_AXES]  # in bytes
    int item
    bint contiguous
    int format


cdef struct Job:
    const conversion_functions* isa
    Side source
    Side target
    Side scale  # float32; data is NULL where there is none
    int64_t shape[MOST_AXES]
    int axes
    int64_t size
    int rounding
    bint saturate
    uint64_t seed
    int64_t number   # of the first element, for stochastic rounding


def convert(source, target, *, str source_format, str target_format, str rounding, bint saturate, seed, int threads, scale=None,
            int64_t number=0):
    """Write every number of `source` to `target`, an array of the same shape that shares no memory with it.

    Arrays hold stored numbers as the kernels take them: float32 and float64 as such, the other formats as codes. A
    target of float64 only widens. `scale` is float32, any strides. `number` is that of the first element in stochastic
    rounding. The caller has checked everything.
    """
    cdef Job job
    cdef Py_buffer read, written, factors
    cdef int64_t block, blocks
    job.isa = <const conversion_functions*><uintptr_t>engine.conversions_address()
    job.rounding, job.saturate, job.seed, job.number = ROUNDINGS[rounding], saturate, seed, number
    job.source.format, job.target.format = FORMATS[source_format], FORMATS[target_format]
    PyObject_GetBuffer(source, &read, PyBUF_STRIDES)
    try:
        PyObject_GetBuffer(target, &written, PyBUF_STRIDES | PyBUF_WRITABLE)
        try:
            if scale is not None:
                PyObject_GetBuffer(scale, &factors, PyBUF_STRIDES)
            plan(&job, &read, &written, &factors if scale is not None else NULL)
            blocks = (job.size + BLOCK - 1) // BLOCK
            threads = grant_team(max(1, min(threads, job.size // SHARED_FROM + 1)))
            with teams.Arithmetic(), nogil:
                if threads == 1:
                    for block in range(blocks):
                        convert_block(&job, block * BLOCK)
                else:
                    for block in prange(blocks, num_threads=threads, schedule="dynamic", chunksize=SHARE):
                        convert_block(&job, block * BLOCK)
        finally:
            PyBuffer_Release(&written)
            if scale is not None:
                PyBuffer_Release(&factors)
    finally:
        PyBuffer_Release(&read)


cdef void plan(Job* job, const Py_buffer* read, const Py_buffer* written, const Py_buffer* factors) noexcept:
    """Join axes that all arrays step through evenly, and drop those of extent 1."""
    cdef Side* sides[3]
    cdef const Py_buffer* buffers[3]
    cdef int axis, i, last, count = 2 if factors == NULL else 3
    cdef bint joined
    job.axes, job.size, job.scale.data = 0, 1, NULL
    sides[0], sides[1], sides[2] = &job.source, &job.target, &job.scale
    buffers[0], buffers[1], buffers[2] = read, written, factors
    for i in range(count):
        sides[i].data, sides[i].item = <char*>buffers[i].buf, <int>buffers[i].itemsize
    for axis in range(read.ndim):
        job.size *= read.shape[axis]
        if read.shape[axis] == 1:
            continue
        last = job.axes - 1
        joined = last >= 0
        for i in range(count):
            joined = joined and sides[i].strides[last] == buffers[i].strides[axis] * read.shape[axis]
        if joined:
            job.shape[last] *= read.shape[axis]
        else:
            last += 1
            job.axes += 1
            job.shape[last] = read.shape[axis]
        for i in range(count):
            sides[i].strides[last] = buffers[i].strides[axis]
    if job.axes == 0:
        job.axes, job.shape[0] = 1, job.size
        for i in range(count):
            sides[i].strides[0] = sides[i].item
    for i in range(count):
        sides[i].contiguous = is_contiguous(sides[i], job.shape, job.axes)


cdef bint is_contiguous(const Side* side, const int64_t* shape, int axes) noexcept:
    """Whether the elements lie side by side in order, axes that could be joined for this array alone included."""
    cdef int64_t step = side.item
    cdef int axis
    for axis in range(axes - 1, -1, -1):
        if side.strides[axis] != step:
            return False
        step *= shape[axis]
    return <size_t>side.data % side.item == 0


cdef const float* scales_of(const Job* job, int64_t first, int64_t count, float* gathered, int64_t* step) noexcept nogil:
    """The scales of elements `first` to `first + count`, `step` apart."""
    step[0] = 1
    if job.scale.contiguous:
        return <const float*>(job.scale.data + first * sizeof(float))
    if job.axes == 1 and job.scale.strides[0] == 0:
        step[0] = 0
        memcpy(gathered, job.scale.data, sizeof(float))
    else:
        move(job, &job.scale, first, count, <char*>gathered, True)
    return gathered


cdef void convert_block(const Job* job, int64_t first) noexcept nogil:
    """Convert the elements from number `first`, a multiple of BLOCK, to the end of the block."""
    cdef uint64_t gathered[BLOCK]
    cdef uint64_t codes[BLOCK]
    cdef uint32_t values[BLOCK]
    cdef uint32_t drawn[BLOCK + 4]
    cdef uint32_t scaled[BLOCK]
    cdef float scales[BLOCK]
    cdef const float* factors = NULL
    cdef uint32_t* random = NULL
    cdef int64_t step = 0, counter = (job.number + first) // 4, before = (job.number + first) % 4
    cdef int64_t count = min(<int64_t>BLOCK, job.size - first)
    cdef const void* numbers = job.source.data + first * job.source.item
    cdef void* results = job.target.data + first * job.target.item
    cdef int64_t i
    cdef int first_rounding = job.rounding
    cdef bint widen = job.target.format == NUMBER_FLOAT64, to_float32 = job.target.format == NUMBER_FLOAT32
    if not job.source.contiguous:
        move(job, &job.source, first, count, <char*>gathered, True)
        numbers = gathered
    if not job.target.contiguous:
        results = codes
    if job.rounding == STOCHASTIC:
        random = drawn + before  # a counter gives four words
    if job.scale.data != NULL:
        factors = scales_of(job, first, count, scales, &step)
    if job.source.format == NUMBER_FLOAT64:
        if factors != NULL:
            memcpy(gathered, numbers, count * sizeof(double))
            for i in range(count):
                (<double*>gathered)[i] *= factors[i * step]
            numbers = gathered
        if job.rounding == STOCHASTIC:
            job.isa.draw(drawn, job.seed, counter, 1, (before + count + 3) // 4)
        elif job.rounding == HYBRID:
            first_rounding = TOWARD_ZERO
        elif not to_float32:
            first_rounding = TO_ODD
        job.isa.narrow(<const uint64_t*>numbers, random, values, first_rounding, job.saturate and to_float32, count)
        numbers = values
    elif to_float32 and not job.saturate and factors == NULL:
        job.isa.decode(numbers, job.source.format, <uint32_t*>results, count)
        numbers = NULL
    elif job.source.format != NUMBER_FLOAT32:
        job.isa.decode(numbers, job.source.format, values, count)
        numbers = values
    if factors != NULL and job.source.format != NUMBER_FLOAT64:
        job.isa.scale(<const uint32_t*>numbers, factors, step, scaled, count)
        numbers = scaled
    if widen:
        for i in range(count):
            (<double*>results)[i] = (<const float*>numbers)[i]
    elif numbers != NULL:
        if job.rounding == STOCHASTIC:
            job.isa.draw(drawn, job.seed, counter, 0, (before + count + 3) // 4)
        job.isa.encode(<const uint32_t*>numbers, random, results, job.target.format, job.rounding, job.saturate,
                       NUMBER_FLOAT32 if job.source.format == NUMBER_FLOAT64 else job.source.format, count)
    if not job.target.contiguous:
        move(job, &job.target, first, count, <char*>codes, False)


cdef void move(const Job* job, const Side* side, int64_t first, int64_t count, char* block, bint gather) noexcept nogil:
    """Copy elements `first` to `first + count` of an array into a contiguous block, or back."""
    cdef int64_t at[MOST_AXES]
    cdef int64_t rest = first, run
    cdef int axis, last = job.axes - 1
    cdef char* place = side.data
    for axis in range(last, -1, -1):
        at[axis] = rest % job.shape[axis]
        rest = rest // job.shape[axis]
        place += at[axis] * side.strides[axis]
    while count > 0:
        run = min(count, job.shape[last] - at[last])
        if gather:
            copy(block, side.item, place, side.strides[last], run, side.item)
        else:
            copy(place, side.strides[last], block, side.item, run, side.item)
        block += run * side.item
        count -= run
        at[last] += run
        place += run * side.strides[last]
        axis = last
        while axis > 0 and at[axis] == job.shape[axis]:
            place += side.strides[axis - 1] - at[axis] * side.strides[axis]
            at[axis] = 0
            at[axis - 1] += 1
            axis -= 1


cdef inline void copy(char* to, int64_t to_stride, const char* source, int64_t source_stride, int64_t count,
                      int item) noexcept nogil:
    cdef int64_t i
    cdef uint32_t repeated
    if to_stride == item and source_stride == item:
        memcpy(to, source, count * item)
    elif item == 4 and to_stride == 4 and source_stride == 0:
        memcpy(&repeated, source, 4)
        for i in range(count):
            (<uint32_t*>to)[i] = repeated
    elif item == 1:
        for i in range(count):
            to[i * to_stride] = source[i * source_stride]
    elif item == 2:
        for i in range(count):
            memcpy(to + i * to_stride, source + i * source_stride, 2)
    elif item == 4:
        for i in range(count):
            memcpy(to + i * to_stride, source + i * source_stride, 4)
    else:
        for i in range(count):
            memcpy(to + i * to_stride, source + i * source_stride, 8)
