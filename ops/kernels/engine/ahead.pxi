"""Memory that is asked for while something else is computed, a part with each call.

uses: core/problem.pxi (Operand), engine/product/product.pxi (LINE_BYTES)
gives: Ahead, ask_ahead, begin_ahead
"""

cdef enum:
    AHEAD_BYTES = 3 << 16  # of a channel, at most: more are not asked for, since its lines may be far apart


cdef struct Ahead:
    const char* place
    int64_t image     # bytes from one to the next
    int64_t channel
    int64_t channels
    int64_t lines     # cache lines of a channel
    int64_t total
    int64_t step      # ... asked for together
    int64_t done
    bint written


cdef Ahead begin_ahead(const Operand* operand, int64_t images, int64_t channels, int64_t start, int64_t count, int64_t calls,
                       bint written) noexcept nogil:
    """`count` numbers of all channels of some images from element `start` on, in so many calls."""
    cdef Ahead a
    cdef int64_t size = element_size(operand.format)
    a.place, a.image, a.channel = <const char*>operand.data + start * size, operand.n * size, operand.c * size
    a.channels, a.lines, a.written = channels, ceiling(count * size, LINE_BYTES), written
    a.total, a.done = images * channels * a.lines if count * size <= AHEAD_BYTES else 0, 0
    a.step = ceiling(a.total, max(1, calls))
    return a


cdef inline void ask_ahead(Ahead* a) noexcept nogil:
    cdef int64_t end = min(a.total, a.done + a.step), row, line, count
    while a.done < end:
        row, line = a.done // a.lines, a.done % a.lines
        count = min(end - a.done, a.lines - line)
        prefetch_lines(a.place + row // a.channels * a.image + row % a.channels * a.channel + line * LINE_BYTES, count, a.written)
        a.done += count
