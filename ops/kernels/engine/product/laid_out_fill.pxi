"""The input, copied to the blocks that are laid out.

uses: engine/product/laid_out_plan.pxi (Layout, plane_place), engine/product/pack.pxi (channels_innermost, gather_line),
    engine/product/pairs.pxi (first_channel), engine/product/product.pxi (Product)
gives: Lines, clear_gaps, copied_ahead, fill_block
"""

cdef enum:
    AHEAD_FLOATS = 512       # copied from now to what is asked for in advance


cdef struct Lines:  # of one plane of the input, for a block
    int64_t start  # of the batch and group: an element
    int64_t x[3]   # input position where they begin
    int64_t first  # of the block's lines, [first, end) lie inside the input
    int64_t end
    int64_t ahead  # elements to what will be copied some time later


cdef inline int64_t copied_ahead(const Product* p, const Layout* l) noexcept nogil:
    """Elements from what is copied to what is asked for: some channels."""
    return max(1, min(8, AHEAD_FLOATS // (l.u[1] * l.u[2]))) * p.input.c


cdef void fill_block(const Product* p, const Layout* l, const instruction_set* isa, int64_t g, int64_t n, const int64_t* first,
                     int64_t first_plane, float* block, uint16_t* smallest) noexcept nogil:
    """The input that output positions from `first` meet, of each channel and phase the planes from `first_plane` on."""
    cdef int64_t phase0, phase1, phase2, u0, first_line, end_line, d
    cdef int axis
    cdef float* start
    cdef bint transposed = channels_innermost(&p.input, p.D), split = can_split(p, l, isa) and not transposed
    cdef float* place
    cdef Lines lines
    check_room(b"fill_block", block, 4 * p.S * l.plane)
    lines.ahead = copied_ahead(p, l) * (1 if p.pairs == NULL else 2)
    lines.start = n * p.input.n + g * p.input.g
    clear_gaps(p, l, block)
    if (l.u[0] * l.u[1] * l.phases[0] * l.phases[1] * l.phases[2] == 1 and not transposed
            and (p.pairs == NULL or p.pairs.apart == 1)):
        for axis in range(3):
            lines.x[axis] = first[axis] * p.step[axis] + l.low[axis]
        fill_single_lines(p, l, isa, &lines, block, smallest)
        return
    for phase0 in range(l.phases[0]):
        for phase1 in range(l.phases[1]):
            lines.x[1] = first[1] * p.step[1] + l.low[1] + phase1
            meet_inside(lines.x[1], p.step[1], p.I[1], l.u[1], &first_line, &end_line)
            for d in range(1 if transposed else p.S):
                start = block + d * l.plane + (phase0 * l.phases[1] + phase1) * l.phases[2] * l.cell
                # A channel is filled from its beginning to its end: what overruns a line is overwritten by the next.
                for phase2 in range(1 if split else l.phases[2]):
                    lines.x[2] = first[2] * p.step[2] + l.low[2] + phase2
                    for u0 in range(first_plane, l.u[0]):
                        place = start + phase2 * l.cell + plane_place(l, first, u0)
                        lines.x[0] = (first[0] + u0) * p.step[0] + l.low[0] + phase0
                        lines.first, lines.end = first_line, end_line if 0 <= lines.x[0] < p.I[0] else first_line
                        if transposed:
                            fill_transposed(p, l, isa, &lines, place, smallest)
                        elif split:
                            split_lines(p, l, isa, &lines, d, place, smallest)
                        else:
                            fill_lines(p, l, isa, &lines, d, place, smallest)


cdef void clear_gaps(const Product* p, const Layout* l, float* block) noexcept nogil:
    """Zeros for lanes without a position: stale bits may be subnormal numbers, and a product with one takes a hundred cycles."""
    cdef int64_t d, slot, numbers = l.cell * l.phases[0] * l.phases[1] * l.phases[2]
    check_room(b"clear_gaps", block, 4 * p.S * l.plane)
    for d in range(p.S):
        for slot in range(l.slots if l.rolls else 0):
            memset(block + d * l.plane + slot * l.slot + l.u[1] * l.u[2], 0, (l.slot - l.u[1] * l.u[2]) * sizeof(float))
        memset(block + d * l.plane + numbers, 0, (l.plane - numbers) * sizeof(float))


cdef inline bint can_split(const Product* p, const Layout* l, const instruction_set* isa) noexcept nogil:
    """Whether all residues of a line are told apart at once."""
    return (isa.split != NULL and p.input.x[2] == 1 and l.phases[2] == p.step[2]
            and (p.step[2] == 4 or p.step[2] == 8 or p.step[2] == 16))


cdef void split_lines(const Product* p, const Layout* l, const instruction_set* isa, const Lines* lines, int64_t d, float* place,
                      uint16_t* smallest) noexcept nogil:
    """Lines of one channel, or of one pair of channels, all their residues."""
    cdef int64_t way, pitch = l.u[2], size = element_size(p.input.format), c = first_channel(p, d), count = lines.end - lines.first
    cdef const char* source = <const char*>p.input.data + size * (first_number(p, lines, 0) - lines.x[2] + c * p.input.c)
    if c >= p.D:
        count = 0
    for way in range(l.phases[2]):
        memset(place + way * l.cell, 0, lines.first * pitch * sizeof(float))
        memset(place + way * l.cell + (lines.first + count) * pitch, 0, (l.u[1] - lines.first - count) * pitch * sizeof(float))
    if count == 0:
        return
    place += lines.first * pitch
    if p.pairs == NULL:
        isa.split(place, l.cell, pitch, count, pitch, l.phases[2], source, p.input.format, p.step[1] * p.input.x[1], lines.x[2], p.I[2],
                  lines.ahead)
    else:
        p.pairs.split(place, l.cell, pitch, count, pitch, l.phases[2], source, next_of_pair(p, c, source), p.input.format,
                      p.step[1] * p.input.x[1], lines.x[2], p.I[2], lines.ahead, smallest)


cdef inline const char* next_of_pair(const Product* p, int64_t c, const char* source) noexcept nogil:
    """The other channel of a pair whose first is c, or NULL."""
    return source + p.pairs.apart * p.input.c * element_size(p.input.format) if c + p.pairs.apart < p.D else NULL


cdef void fill_lines(const Product* p, const Layout* l, const instruction_set* isa, const Lines* lines, int64_t d, float* place,
                     uint16_t* smallest) noexcept nogil:
    """Lines of one channel, or of one pair of channels."""
    cdef int64_t low, high, size = element_size(p.input.format), step = p.step[2], pitch = l.u[2]
    cdef int64_t count = lines.end - lines.first, line_count = count, c = first_channel(p, d)
    cdef const char* source
    meet_inside(lines.x[2], step, p.I[2], pitch, &low, &high)
    if count == 0 or low == high or c >= p.D:
        memset(place, 0, l.u[1] * pitch * sizeof(float))
        return
    memset(place, 0, lines.first * pitch * sizeof(float))
    place += lines.first * pitch
    if high - low == pitch and step * p.input.x[2] == 1 and p.step[1] * p.input.x[1] == pitch:
        pitch = high = pitch * count  # one after the other: all are one line
        line_count = 1
    source = <const char*>p.input.data + size * (first_number(p, lines, low) + c * p.input.c)
    if p.pairs != NULL:
        p.pairs.frame(place, pitch, line_count, pitch, low, high, source, next_of_pair(p, c, source), p.input.format,
                      p.step[1] * p.input.x[1], step * p.input.x[2], lines.ahead, smallest)
    else:
        isa.frame(place, pitch, line_count, pitch, low, high, source, p.input.format,
                  p.step[1] * p.input.x[1], step * p.input.x[2], lines.ahead)
    memset(place + count * l.u[2], 0, (l.u[1] - lines.end) * l.u[2] * sizeof(float))


cdef void fill_single_lines(const Product* p, const Layout* l, const instruction_set* isa, Lines* lines, float* block,
                            uint16_t* smallest) noexcept nogil:
    """All channels, of which the block has one line each."""
    cdef int64_t low, high, steps, step = p.step[2] * p.input.x[2], c = p.input.c, d
    cdef const char* source
    lines.first = 0
    meet_inside(lines.x[2], p.step[2], p.I[2], l.u[2], &low, &high)
    if low == high or not 0 <= lines.x[0] < p.I[0] or not 0 <= lines.x[1] < p.I[1]:
        steps = 0
    else:
        source = <const char*>p.input.data + element_size(p.input.format) * first_number(p, lines, low)
        if p.pairs == NULL:
            steps = min(p.S, p.D)
            isa.frame(block, l.plane, steps, l.u[2], low, high, source, p.input.format, c, step, lines.ahead)
        else:
            steps = p.D // 2
            p.pairs.frame(block, l.plane, steps, l.u[2], low, high, source, next_of_pair(p, 0, source), p.input.format, 2 * c, step,
                          lines.ahead, smallest)
            if p.D % 2 == 1:
                p.pairs.frame(block + steps * l.plane, l.plane, 1, l.u[2], low, high,
                              source + 2 * steps * c * element_size(p.input.format), NULL, p.input.format, 2 * c, step, lines.ahead, smallest)
                steps += 1
    for d in range(steps, p.S):
        memset(block + d * l.plane, 0, l.u[2] * sizeof(float))


cdef inline int64_t first_number(const Product* p, const Lines* lines, int64_t low) noexcept nogil:
    return (lines.start + lines.x[0] * p.input.x[0] + (lines.x[1] + lines.first * p.step[1]) * p.input.x[1]
            + (lines.x[2] + low * p.step[2]) * p.input.x[2])


cdef void fill_transposed(const Product* p, const Layout* l, const instruction_set* isa, const Lines* lines, float* place,
                          uint16_t* smallest) noexcept nogil:
    """The lines of all channels at once, where channels lie side by side."""
    cdef int64_t u1, d, low, high, offset
    meet_inside(lines.x[2], p.step[2], p.I[2], l.u[2], &low, &high)
    offset = first_number(p, lines, low)
    for d in range(p.S):
        memset(place + d * l.plane, 0, l.u[1] * l.u[2] * sizeof(float))
    for u1 in range(lines.first, lines.end):
        gather_line(&p.input, isa, p.pairs, place + u1 * l.u[2] + low, l.plane, p.D,
                    offset + (u1 - lines.first) * p.step[1] * p.input.x[1], p.step[2] * p.input.x[2], high - low, smallest)
