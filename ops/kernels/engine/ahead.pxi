"""Memory that is asked for while something else is computed, a part with each call.

uses: core/problem.pxi (Operand), engine/product/product.pxi (LINE_BYTES)
gives: Ahead, Wishes, ask_ahead, begin_ahead, begin_wishes, next_rows
"""

cdef enum:
    AHEAD_BYTES = 3 << 16  # of a channel, at most: more are not asked for, since its lines may be far apart


cdef struct Ahead:
    const char* place # of a channel
    int64_t channel   # bytes from one to the next
    int64_t image     # ... from behind the last channel of an image to the next image
    int64_t channels
    int64_t lines     # cache lines of a channel
    int64_t next[2]   # channel of the image and line of the channel that are asked for next
    int64_t left      # cache lines
    int64_t step      # ... asked for together
    bint written


cdef Ahead begin_ahead(const Operand* operand, int64_t images, int64_t channels, int64_t start, int64_t count, int64_t calls,
                       bint written) noexcept nogil:
    """`count` numbers of all channels of some images from element `start` on, in so many calls."""
    cdef Ahead a
    cdef int64_t size = element_size(operand.format)
    a.place, a.channel = <const char*>operand.data + start * size, operand.c * size
    a.image = operand.n * size - channels * a.channel
    a.channels, a.lines, a.written = channels, ceiling(count * size, LINE_BYTES), written
    a.next[0] = a.next[1] = 0
    a.left = images * channels * a.lines if count * size <= AHEAD_BYTES else 0
    a.step = ceiling(a.left, max(1, calls))
    return a


cdef struct Wishes:  # the same in wishes of tiles, each of some rows
    tile_wish wish    # whose parts are rows, and whose rows the cache lines of each
    int64_t step      # bytes from a row to the next
    int64_t at_once
    int64_t left


cdef void begin_wishes(Wishes* a, const char* place, int64_t step, int64_t rows, int64_t bytes, int64_t calls) noexcept nogil:
    """So many bytes of each row, in so many calls."""
    cdef int64_t i
    a.step, a.left, a.at_once = step, rows, min(<int64_t>TILE_LANES, ceiling(rows, max(1, calls)))
    a.wish.place, a.wish.row_step, a.wish.rows, a.wish.parts, a.wish.reach = <char*>place, LINE_BYTES, ceiling(bytes, LINE_BYTES), 0, 0
    for i in range(a.at_once):
        a.wish.offsets[i] = i * step


cdef inline const tile_wish* next_rows(Wishes* a) noexcept nogil:
    """What the next tile asks for, or NULL."""
    if a.left == 0:
        return NULL
    a.wish.place += a.wish.parts * a.step
    a.wish.parts = min(a.at_once, a.left)
    a.left -= a.wish.parts
    return &a.wish


cdef inline void ask_ahead(Ahead* a) noexcept nogil:
    cdef int64_t count = min(a.step, a.left), some
    a.left -= count
    while count > 0:
        some = min(count, a.lines - a.next[1])
        prefetch_lines(a.place + a.next[1] * LINE_BYTES, some, a.written)
        count -= some
        a.next[1] += some
        if a.next[1] == a.lines:
            a.next[1] = 0
            a.next[0] += 1
            a.place += a.channel
            if a.next[0] == a.channels:
                a.next[0] = 0
                a.place += a.image
