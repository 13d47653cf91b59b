"""Frames of a weights gradient: what a chunk meets of the large side as floats, zeros outside.

A framed block has, of each channel and line of positions, the lines that taps meet: [channel][row][t0][t1][x2]. Taps that meet
every line share them: [channel][plane][t0][line][x2]. Where no number of a line is met by two taps, the block has of each tap the
numbers of all positions side by side: [channel][t0][t1][t2][position]. Then tiles read whole cache lines.

uses: engine/product/pack.pxi (channels_innermost, gather_line), engine/weights/gradient.pxi (Reach, Row, Weights,
    large_at), engine/weights/kept.pxi (asks_for_numbers, last_step), engine/weights/plan.pxi (WeightsPlan),
    engine/weights/positions.pxi (inside_of, last_of_plane, reach_of)
gives: frame_block, tap_offset
"""

cdef enum:
    SPANS = 32  # lines of positions that are turned together


cdef void frame_block(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t channel, int64_t channels,
                      int64_t first_tap, int64_t end_tap, const Row* rows, int64_t row_count, float* block) noexcept nogil:
    """Of the channels from `channel` on, at least what these taps meet."""
    cdef int64_t first = first_tap // w.K[2], end = ceiling(end_tap, w.K[2])
    check_room(b"frame_block", block, 4 * channels * plan.channel_floats)
    if plan.by_taps and plan.taps == 1:
        frame_tap(w, plan, isa, g, channel, channels, rows, row_count, block)
    elif plan.by_taps:
        frame_taps(w, plan, isa, g, channel, channels, first, end, rows, row_count, block)
    else:
        frame_rows(w, plan, isa, g, channel, channels, first, end, rows, row_count, block)


cdef void frame_rows(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t channel, int64_t channels,
                     int64_t first, int64_t end, const Row* rows, int64_t row_count, float* block) noexcept nogil:
    """[channel][row][t0][t1][x2], or if rows are joined [channel][plane][t0][line][x2], of the pairs (t0, t1) from number `first` to `end`.
    Lines count from that of t1 = 0 and the first row."""
    cdef int64_t r = 0, last, t0, low, high, inside, beyond, x0, x1, x2, lines
    while r < row_count:
        last = last_of_plane(rows, row_count, r) if plan.joined else r
        lines = (rows[last].y[1] - rows[r].y[1]) * w.s[1]  # beside those of the last row
        x1, x2 = rows[r].y[1] * w.s[1] - w.b[1], (0 if plan.joined else rows[r].y[2] * w.s[2]) - w.b[2]
        meet_inside(x1, w.d[1], w.X[1], lines + w.K[1], &inside, &beyond)
        meet_inside(x2, 1, w.X[2], plan.extent, &low, &high)
        for t0 in range(first // w.K[1], ceiling(end, w.K[1])):
            x0 = rows[r].y[0] * w.s[0] - w.b[0] + t0 * w.d[0]
            frame_lines_of_taps(w, plan, isa, channels, max(0, first - t0 * w.K[1]), lines + min(w.K[1], end - t0 * w.K[1]), inside,
                                beyond if 0 <= x0 < w.X[0] else inside, low, high,
                                rows[r].n * w.large.n + g * w.large.g + channel * w.large.c + x0 * w.large.x[0] + x1 * w.large.x[1]
                                + (x2 + low) * w.large.x[2], block + t0 * plan.plane_floats)
        block += plan.row_floats
        r = last + 1


cdef void frame_lines_of_taps(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t channels, int64_t first,
                              int64_t end, int64_t inside, int64_t beyond, int64_t low, int64_t high, int64_t offset,
                              float* place) noexcept nogil:
    """Lines of the taps from t1 = `first` to `end`, or of a plane, those from `inside` to `beyond` in the large side; numbers
    [low, high) of the first line, number 0, from `offset` on. Lines of a channel are framed together where there are fewer channels."""
    cdef int64_t t1, c, step = w.d[1] * w.large.x[1]
    if channels_innermost(&w.large, channels):
        for t1 in range(first, end):
            frame_transposed(w, plan, isa, channels, low if inside <= t1 < beyond else 0, high if inside <= t1 < beyond else 0,
                             offset + t1 * step, place + t1 * plan.extent)
    elif channels < end - first:
        inside, beyond = max(first, inside), min(end, beyond)
        beyond = max(inside, beyond)
        for c in range(channels):
            if beyond == inside:
                memset(place + first * plan.extent, 0, (end - first) * plan.extent * sizeof(float))
            else:
                memset(place + first * plan.extent, 0, (inside - first) * plan.extent * sizeof(float))
                isa.frame(place + inside * plan.extent, plan.extent, beyond - inside, plan.extent, low, high,
                          large_at(w, offset + inside * step), w.large.format, step, w.large.x[2], w.s[1] * w.large.x[1])
                memset(place + beyond * plan.extent, 0, (end - beyond) * plan.extent * sizeof(float))
            place += plan.channel_floats
            offset += w.large.c
    else:
        for t1 in range(first, end):
            isa.frame(place + t1 * plan.extent, plan.channel_floats, channels, plan.extent, low if inside <= t1 < beyond else 0,
                      high if inside <= t1 < beyond else 0, large_at(w, offset + t1 * step), w.large.format, w.large.c, w.large.x[2],
                      w.s[1] * w.large.x[1])


cdef void frame_transposed(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t channels, int64_t low,
                           int64_t high, int64_t offset, float* place) noexcept nogil:
    """One line of all channels at once, where they lie side by side; numbers [low, high) from `offset` on."""
    cdef int64_t c
    for c in range(channels):
        memset(place + c * plan.channel_floats, 0, low * sizeof(float))
        memset(place + c * plan.channel_floats + high, 0, (plan.extent - high) * sizeof(float))
    gather_line(&w.large, isa, NULL, place + low, plan.channel_floats, channels, offset, w.large.x[2], high - low, NULL)


cdef void frame_tap(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t channel, int64_t channels,
                    const Row* rows, int64_t row_count, float* block) noexcept nogil:
    """[channel][position], of a single tap."""
    cdef int64_t r, low, high, offset, step = w.s[2] * w.large.x[2], next
    cdef int64_t x[3]
    cdef bint asked = asks_for_numbers(w, plan)
    cdef Reach reach
    reach_of(w, 0, &reach)
    for r in range(row_count):
        if not inside_of(w, &reach, &rows[r], &low, &high, x):
            low = high = x[0] = x[1] = x[2] = 0
        offset = (rows[r].n * w.large.n + g * w.large.g + channel * w.large.c + x[0] * w.large.x[0] + x[1] * w.large.x[1]
                  + x[2] * w.large.x[2])
        next = rows[r].count * step if rows[r].y[2] + rows[r].count < w.Y[2] else w.s[1] * w.large.x[1]
        isa.frame(block + rows[r].first, plan.channel_floats, channels, rows[r].count, low, high, large_at(w, offset), w.large.format,
                  w.large.c, step, 0 if asked else next)


cdef bint all_inside(const Weights* w, const Row* rows, int64_t row_count) noexcept nogil:
    """Whether all taps of a line lie inside at all positions."""
    cdef int64_t r
    for r in range(row_count):
        if (rows[r].y[2] * w.s[2] < w.b[2]
                or (rows[r].y[2] + rows[r].count - 1) * w.s[2] - w.b[2] + last_step(w, 2) >= w.X[2]):
            return False
    return True


cdef void frame_taps(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t channel, int64_t channels,
                     int64_t first_line, int64_t end_line, const Row* rows, int64_t row_count, float* block) noexcept nogil:
    """[channel][t0][t1][t2][position], of the same pairs."""
    cdef int64_t c, line, r, x0, x1
    cdef int64_t lines[SPANS]  # where lines of positions begin, or NO_ELEMENT
    cdef int64_t first, count
    cdef bint split = can_split_taps(w, isa), whole = not split and all_inside(w, rows, row_count)
    cdef float* place
    for c in range(channels):
        for line in range(first_line, end_line):
            first = 0
            while first < row_count:
                count = min(<int64_t>SPANS, row_count - first)
                for r in range(count):
                    x0 = rows[first + r].y[0] * w.s[0] - w.b[0] + line // w.K[1] * w.d[0]
                    x1 = rows[first + r].y[1] * w.s[1] - w.b[1] + line % w.K[1] * w.d[1]
                    lines[r] = NO_ELEMENT
                    if 0 <= x0 < w.X[0] and 0 <= x1 < w.X[1]:
                        lines[r] = (rows[first + r].n * w.large.n + g * w.large.g + (channel + c) * w.large.c + x0 * w.large.x[0]
                                    + x1 * w.large.x[1] + (rows[first + r].y[2] * w.s[2] - w.b[2]) * w.large.x[2])
                place = block + c * plan.channel_floats + line * w.K[2] * plan.extent
                if split:
                    split_taps(w, plan, isa, rows + first, count, lines, place)
                elif whole:
                    turn_lines(w, plan, isa, rows + first, count, lines, place)
                else:
                    frame_lines(w, plan, isa, rows + first, count, lines, place)
                first += count


cdef inline bint can_split_taps(const Weights* w, const instruction_set* isa) noexcept nogil:
    """Whether the taps of a line meet numbers that take turns."""
    return (isa.split != NULL and w.large.x[2] == w.d[2] == 1 and w.K[2] == w.s[2]
            and (w.K[2] == 4 or w.K[2] == 8 or w.K[2] == 16))


cdef void split_taps(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const Row* rows, int64_t count,
                     const int64_t* lines, float* place) noexcept nogil:
    """The taps of some lines. Whole lines of positions that follow one another are split together."""
    cdef int64_t r = 0, end, t2, x2, apart = w.s[1] * w.large.x[1]
    while r < count:
        end = r + 1
        if lines[r] == NO_ELEMENT:
            for t2 in range(w.K[2]):
                memset(place + t2 * plan.extent + rows[r].first, 0, rows[r].count * sizeof(float))
        else:
            while (end < count and lines[end] != NO_ELEMENT and lines[end] - lines[end - 1] == apart
                    and rows[r].count == rows[end].count == w.Y[2]):
                end += 1
            x2 = rows[r].y[2] * w.s[2] - w.b[2]
            isa.split(place + rows[r].first, plan.extent, rows[r].count, end - r, rows[r].count, w.K[2], large_at(w, lines[r] - x2),
                      w.large.format, apart, x2, w.X[2], apart)
        r = end


cdef void turn_lines(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const Row* rows, int64_t count,
                     const int64_t* lines, float* place) noexcept nogil:
    """The taps of some lines, inside or outside as a whole."""
    cdef lane_span spans[SPANS]
    cdef int64_t r
    for r in range(count):
        spans[r] = lane_span(rows[r].first - rows.first, rows[r].count, lines[r], w.s[2] * w.large.x[2])
    isa.gather(place + rows.first, plan.extent, w.K[2], w.large.data, w.large.format, w.d[2] * w.large.x[2], spans, count)


cdef void frame_lines(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const Row* rows, int64_t count,
                      const int64_t* lines, float* place) noexcept nogil:
    """The same where some positions meet the outside."""
    cdef int64_t r, t2, x2, low, high
    for r in range(count):
        for t2 in range(w.K[2]):
            x2 = rows[r].y[2] * w.s[2] - w.b[2] + t2 * w.d[2]
            low = high = 0
            if lines[r] != NO_ELEMENT:
                meet_inside(x2, w.s[2], w.X[2], rows[r].count, &low, &high)
            isa.frame(place + t2 * plan.extent + rows[r].first, 0, 1, rows[r].count, low, high,
                      large_at(w, lines[r] + (t2 * w.d[2] + low * w.s[2]) * w.large.x[2]) if low < high else NULL, w.large.format,
                      0, w.s[2] * w.large.x[2], 0)


cdef inline int64_t tap_offset(const Weights* w, const WeightsPlan* plan, int64_t tap, const int64_t* t) noexcept nogil:
    """From tap 0, where runs of all taps begin, to tap t, number `tap`: in a framed block or in the large side."""
    if plan.kept:
        return 0  # runs begin where a tap does
    if plan.by_taps:
        return tap * plan.extent
    if plan.framed:
        return t[0] * plan.plane_floats + t[1] * plan.extent + t[2] * w.d[2]
    return t[0] * w.d[0] * w.large.x[0] + t[1] * w.d[1] * w.large.x[1] + t[2] * w.d[2] * w.large.x[2]
