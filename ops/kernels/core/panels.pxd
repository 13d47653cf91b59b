"""Small arithmetic of panels and tasks, copies of stored numbers, and the workspace of a call."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from numbers cimport NUMBER_BFLOAT16, NUMBER_FLOAT16, NUMBER_FLOAT32

cdef extern from *:
    """
    #ifdef _OPENMP
    #include <omp.h>
    #define thread_number() omp_get_thread_num()
    #else
    #define thread_number() 0
    #endif
    """
    int thread_number() noexcept nogil

cdef extern from "numbers/copy_codes.h" nogil:
    void copy_codes(char* place, const char* source, int64_t count, int64_t step, int64_t size)

cdef extern from "core/workspace.h" nogil:
    char* take_workspace(size_t size)
    void return_workspace(char* memory)

    ctypedef struct workspace:
        char* base
        int64_t used
        int64_t capacity
        int64_t last

    int workspace_guarded
    void set_workspace_guarded(bint guarded)
    void* take(workspace* w, int64_t size)
    bint workspace_overrun(const workspace* w)
    void enter_workspace(const workspace* w)
    void extend_workspace(const workspace* w)
    void leave_workspace()
    void check_room(const char* writer, const void* place, int64_t size)


cdef inline int64_t ceiling(int64_t a, int64_t b) noexcept nogil:
    return a if b == 1 else (a + b - 1) // b  # divisions are slow


cdef inline int64_t floor_divided(int64_t a, int64_t b) noexcept nogil:
    return (a if a >= 0 else a - b + 1) // b


cdef inline int64_t magnitude(int64_t a) noexcept nogil:
    return a if a >= 0 else -a


cdef inline int64_t common_divisor(int64_t a, int64_t b) noexcept nogil:
    while b != 0:
        a, b = b, a % b
    return a


cdef inline int64_t share(int64_t total, int64_t parts, int64_t part) noexcept nogil:
    """Where part number `part` of an even split begins."""
    if parts == 1:  # divisions are slow
        return part * total
    return part * (total // parts) + min(part, total % parts)


cdef inline void meet_inside(int64_t x, int64_t step, int64_t extent, int64_t count, int64_t* low, int64_t* high) noexcept nogil:
    """Which of the `count` positions x, x + step, ... lie in [0, extent): those from low to high, high not included."""
    low[0] = min(count, ceiling(-x, step)) if x < 0 else 0
    high[0] = max(low[0], min(count, ceiling(extent - x, step))) if x < extent else low[0]


cdef inline uint32_t bits_from(int64_t low, int64_t high) noexcept nogil:
    """Bits low, ..., high - 1."""
    return <uint32_t>((<uint64_t>1 << high) - (<uint64_t>1 << low)) if low < high else 0


cdef inline int element_size(int format) noexcept nogil:
    return 4 if format == NUMBER_FLOAT32 else 2 if format == NUMBER_FLOAT16 or format == NUMBER_BFLOAT16 else 1
