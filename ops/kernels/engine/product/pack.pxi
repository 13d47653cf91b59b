"""Weights of row panels and input of column panels, packed for tiles.

The input of a column panel is gathered in spans: lanes that follow one another in memory at one distance, or lie outside.

uses: core/problem.pxi (Operand), engine/product/pairs.pxi (are_finite, gather_steps, on_matrix),
    engine/product/product.pxi (Fragment, Product, Tap, row_panels)
gives: TAKEN, add_span, channels_innermost, gather_all_taps, gather_line, input_spans, mask_spans, pack_rows
"""

cdef void gather_all_taps(const Product* p, const instruction_set* isa, float* packed, int64_t tap_floats, int64_t pitch, int64_t rows,
                          const char* start, uint16_t* smallest) noexcept nogil:
    """The weights of some rows from `start` on, [tap][step][row]."""
    cdef lane_span span = lane_span(0, rows, 0, p.weights.n)
    cdef int64_t t
    if p.weights.n != 1 and p.weights.c != 1 and p.pairs != NULL:
        p.pairs.gather_taps(packed, tap_floats, pitch, rows, p.D, start, p.weights.format, p.weights.n, p.weights.c, p.tap_offsets,
                            p.tap_count, smallest)
    elif p.weights.n != 1 and p.weights.c != 1:
        isa.gather_taps(packed, tap_floats, pitch, rows, p.D, start, p.weights.format, p.weights.n, p.weights.c, p.tap_offsets,
                        p.tap_count)
    else:
        for t in range(p.tap_count):
            span.offset = p.tap_offsets[t]
            gather_steps(isa, p.pairs, packed + t * tap_floats, pitch, p.D, start, p.weights.format, p.weights.c, &span, 1, smallest)


cdef bint pack_rows(const Product* p, const instruction_set* isa, int64_t g, int64_t panel, float* packed,
                    uint16_t* smallest) noexcept nogil:
    """The weights of one row panel: steps (tap, d), each `p.rows` numbers. Tells whether some are not finite."""
    cdef int64_t panels = row_panels(p), row = share(p.R, panels, panel), rows = share(p.R, panels, panel + 1) - row, t
    cdef const char* start = (<const char*>p.weights.data
                              + (g * p.weights.g + row * p.weights.n) * element_size(p.weights.format))
    check_room(b"pack_rows", packed, 4 * p.panel_size)
    if rows < p.rows or on_matrix(p.pairs) and p.D % SUM_BLOCK != 0:
        memset(packed, 0, p.panel_size * sizeof(float))
    gather_all_taps(p, isa, packed, p.tap_floats, p.rows, rows, start, smallest)
    if on_matrix(p.pairs):
        p.pairs.turn(packed, p.tap_floats, p.tap_count, p.S)
    if not p.padded:
        return False
    for t in range(p.tap_count):
        if not are_finite(isa, p.pairs, packed + t * p.tap_floats, p.S * p.rows):
            return True
    return False


cdef inline void add_span(lane_span* spans, int64_t* number, int64_t lane, int64_t count, int64_t offset,
                          int64_t step) noexcept nogil:
    """Append a span, or lengthen the last where it goes on."""
    cdef lane_span* last
    if number[0] > 0 and spans[number[0] - 1].lane + spans[number[0] - 1].count == lane:
        last = &spans[number[0] - 1]
        if last.offset == NO_ELEMENT:
            if offset == NO_ELEMENT:
                last.count += count
                return
        elif offset != NO_ELEMENT and last.step == step and offset == last.offset + last.count * step:
            last.count += count
            return
    spans[number[0]] = lane_span(lane, count, offset, step)
    number[0] += 1


cdef int64_t input_spans(const Product* p, const Tap* tap, int64_t g, const Fragment* fragments, int64_t fragment_count,
                         lane_span* spans) noexcept nogil:
    """Where the lanes of a column panel find their input at a tap."""
    cdef int64_t number = 0, i, x0, x1, x2, step = p.step[2], low, high
    cdef const Fragment* f
    for i in range(fragment_count):
        f = &fragments[i]
        x0 = f.q[0] * p.step[0] + tap.offset[0]
        x1 = f.q[1] * p.step[1] + tap.offset[1]
        x2 = f.q[2] * step + tap.offset[2]
        low = 0
        high = f.count
        if p.padded:
            if x0 < 0 or x0 >= p.I[0] or x1 < 0 or x1 >= p.I[1]:
                high = 0
            else:
                meet_inside(x2, step, p.I[2], f.count, &low, &high)
            if high == low:
                low = high = 0
        if low > 0:
            add_span(spans, &number, f.lane, low, NO_ELEMENT, 0)
        if high > low:
            add_span(spans, &number, f.lane + low, high - low,
                     f.n * p.input.n + g * p.input.g + x0 * p.input.x[0] + x1 * p.input.x[1]
                     + (x2 + low * step) * p.input.x[2], step * p.input.x[2])
        if high < f.count:
            add_span(spans, &number, f.lane + high, f.count - high, NO_ELEMENT, 0)
    return number


cdef uint32_t TAKEN = 0xFFFFFFFF


cdef void mask_spans(lane_span* spans, int64_t number) noexcept nogil:
    """Turn the spans of an input into those of its mask: TAKEN everywhere but outside."""
    cdef int64_t i
    for i in range(number):
        if spans[i].offset != NO_ELEMENT:
            spans[i].offset = spans[i].step = 0


cdef inline bint channels_innermost(const Operand* operand, int64_t channels) noexcept nogil:
    """Whether channels lie side by side, enough of them to be gathered position by position."""
    return operand.c == 1 and channels >= 4 and operand.x[2] != 1


cdef void gather_line(const Operand* operand, const instruction_set* isa, const pair_functions* pairs, float* place, int64_t pitch,
                      int64_t channels, int64_t offset, int64_t step, int64_t count, uint16_t* smallest) noexcept nogil:
    """place[d*pitch + i] for i < count: channel d of elements offset + i*step; channels lie side by side."""
    cdef int64_t i = 0
    cdef lane_span span
    while i < count:
        span = lane_span(0, min(count - i, TILE_LANES), offset + i * step, step)
        gather_steps(isa, pairs, place + i, pitch, channels, operand.data, operand.format, 1, &span, 1, smallest)
        i += span.count
