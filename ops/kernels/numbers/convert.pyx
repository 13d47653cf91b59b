"""Conversion of arrays between number formats: decode exactly, round once, any strides, any number of threads.

Elements are numbered in row-major order of the arrays. A thread takes blocks of consecutive numbers: it gathers a block
unless the array is contiguous, takes it to float32 bits, and encodes them, by functions of the engine's instruction set
(`simd/conversions.h`). A float64 becomes a float32 first, rounded so that the second rounding does not notice.

Stochastic rounding compares the discarded part of element i with word i % 4 of Philox4x32-10, key `seed`, counter
(i // 4, stream), low words first: stream 0 for the format, stream 1 for float64 to float32. So its results depend on
nothing but seed, number and value.
"""

import convreg.ops.kernels.reference as reference
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

ctypedef int (*team_function)(int threads) noexcept nogil

cdef team_function grant_team = <team_function><uintptr_t>reference.team_addresses()[1]


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
    int64_t shape[MOST_AXES]
    int axes
    int64_t size
    int rounding
    bint saturate
    uint64_t seed


def convert(source, target, *, str source_format, str target_format, str rounding, bint saturate, seed, int threads):
    """Write every number of `source` to `target`, an array of the same shape that shares no memory with it.

    Arrays hold stored numbers as the kernels take them: float32 and float64 as such, the other formats as codes. A
    target of float64 only widens. The caller has checked everything.
    """
    cdef Job job
    cdef Py_buffer read, written
    cdef int64_t block, blocks
    job.isa = <const conversion_functions*><uintptr_t>engine.conversions_address()
    job.rounding, job.saturate, job.seed = ROUNDINGS[rounding], saturate, seed
    job.source.format, job.target.format = FORMATS[source_format], FORMATS[target_format]
    PyObject_GetBuffer(source, &read, PyBUF_STRIDES)
    try:
        PyObject_GetBuffer(target, &written, PyBUF_STRIDES | PyBUF_WRITABLE)
        try:
            plan(&job, &read, &written)
            blocks = (job.size + BLOCK - 1) // BLOCK
            threads = grant_team(max(1, min(threads, job.size // SHARED_FROM + 1)))
            with nogil:
                if threads == 1:
                    for block in range(blocks):
                        convert_block(&job, block * BLOCK)
                else:
                    for block in prange(blocks, num_threads=threads, schedule="dynamic", chunksize=SHARE):
                        convert_block(&job, block * BLOCK)
        finally:
            PyBuffer_Release(&written)
    finally:
        PyBuffer_Release(&read)


cdef void plan(Job* job, const Py_buffer* read, const Py_buffer* written) noexcept:
    """Join axes that both arrays step through evenly, and drop those of extent 1."""
    cdef int axis, last
    job.axes, job.size = 0, 1
    job.source.data, job.target.data = <char*>read.buf, <char*>written.buf
    job.source.item, job.target.item = <int>read.itemsize, <int>written.itemsize
    for axis in range(read.ndim):
        job.size *= read.shape[axis]
        if read.shape[axis] == 1:
            continue
        last = job.axes - 1
        if (last >= 0 and job.source.strides[last] == read.strides[axis] * read.shape[axis]
                and job.target.strides[last] == written.strides[axis] * read.shape[axis]):
            job.shape[last] *= read.shape[axis]
        else:
            last += 1
            job.axes += 1
            job.shape[last] = read.shape[axis]
        job.source.strides[last] = read.strides[axis]
        job.target.strides[last] = written.strides[axis]
    if job.axes == 0:
        job.axes, job.shape[0] = 1, job.size
        job.source.strides[0], job.target.strides[0] = job.source.item, job.target.item
    job.source.contiguous = is_contiguous(&job.source, job.axes)
    job.target.contiguous = is_contiguous(&job.target, job.axes)


cdef bint is_contiguous(const Side* side, int axes) noexcept:
    return axes == 1 and side.strides[0] == side.item and <size_t>side.data % side.item == 0


cdef void convert_block(const Job* job, int64_t first) noexcept nogil:
    """Convert the elements from number `first`, a multiple of BLOCK, to the end of the block."""
    cdef uint64_t gathered[BLOCK]
    cdef uint64_t codes[BLOCK]
    cdef uint32_t values[BLOCK]
    cdef uint32_t drawn[BLOCK]
    cdef uint32_t* random = NULL
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
        random = drawn
    if job.source.format == NUMBER_FLOAT64:
        if job.rounding == STOCHASTIC:
            job.isa.draw(random, job.seed, first // 4, 1, (count + 3) // 4)
        elif job.rounding == HYBRID:
            first_rounding = TOWARD_ZERO
        elif not to_float32:
            first_rounding = TO_ODD
        job.isa.narrow(<const uint64_t*>numbers, random, values, first_rounding, job.saturate and to_float32, count)
        numbers = values
    elif to_float32 and not job.saturate:
        job.isa.decode(numbers, job.source.format, <uint32_t*>results, count)
        numbers = NULL
    elif job.source.format != NUMBER_FLOAT32:
        job.isa.decode(numbers, job.source.format, values, count)
        numbers = values
    if widen:
        for i in range(count):
            (<double*>results)[i] = (<const float*>numbers)[i]
    elif numbers != NULL:
        if job.rounding == STOCHASTIC:
            job.isa.draw(random, job.seed, first // 4, 0, (count + 3) // 4)
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
    if to_stride == item and source_stride == item:
        memcpy(to, source, count * item)
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
