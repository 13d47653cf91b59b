"""Which positions of the small side a chunk of a weights gradient takes, and where taps meet the large side from there.

uses: engine/weights/gradient.pxi (LineReach, Reach, Row, Weights, tap_at), engine/weights/kept.pxi (number_of),
    engine/weights/plan.pxi (WeightsPlan)
gives: cut_rows, cut_tap_runs, in_one_plane, inside_of, large_step, last_of_plane, most_rows, outer_reach,
    reach_of, reach_of_taps, small_offset, tap_runs
"""

cdef void reach_of(const Weights* w, int64_t tap, Reach* reach) noexcept nogil:
    cdef int64_t t[3]
    cdef int axis
    tap_at(w, tap, t)
    for axis in range(3):
        reach.start[axis] = t[axis] * w.d[axis] - w.b[axis]
    meet_inside(reach.start[2], w.s[2], w.X[2], w.Y[2], &reach.low, &reach.high)


cdef bint inside_of(const Weights* w, const Reach* reach, const Row* row, int64_t* low, int64_t* high, int64_t* x) noexcept nogil:
    """The positions [low, high) of a row from which a tap meets the large side, the first of them at x."""
    cdef int axis
    for axis in range(2):
        x[axis] = row.y[axis] * w.s[axis] + reach.start[axis]
        if x[axis] < 0 or x[axis] >= w.X[axis]:
            return False
    low[0], high[0] = max(0, reach.low - row.y[2]), min(row.count, reach.high - row.y[2])
    x[2] = (row.y[2] + low[0]) * w.s[2] + reach.start[2]
    return low[0] < high[0]


cdef LineReach outer_reach(const Weights* w, const Row* rows, int64_t row_count) noexcept nogil:
    """Of a tap at 0 from some rows."""
    cdef LineReach outer
    cdef int64_t r
    cdef int axis
    for axis in range(2):
        outer.lowest[axis] = outer.highest[axis] = rows.y[axis] * w.s[axis]
        for r in range(1, row_count):
            outer.lowest[axis] = min(outer.lowest[axis], rows[r].y[axis] * w.s[axis])
            outer.highest[axis] = max(outer.highest[axis], rows[r].y[axis] * w.s[axis])
    return outer


cdef LineReach reach_of_taps(const Weights* w, int64_t first_tap, int64_t last_tap, const LineReach* outer) noexcept nogil:
    """Of some taps, no farther than tells the rows of `outer` apart."""
    cdef LineReach reach
    cdef int64_t first[3]
    cdef int64_t last[3]
    cdef int axis
    tap_at(w, first_tap, first)
    tap_at(w, last_tap, last)
    if first[0] < last[0]:
        first[1], last[1] = 0, w.K[1] - 1
    for axis in range(2):
        reach.lowest[axis] = max(first[axis] * w.d[axis] - w.b[axis], w.X[axis] - 1 - outer.highest[axis])
        reach.highest[axis] = min(last[axis] * w.d[axis] - w.b[axis], -outer.lowest[axis])
    return reach


cdef inline bint meets_lines(const Weights* w, const Row* row, const LineReach* reach) noexcept nogil:
    """Whether one of these taps may meet the large side from a row."""
    cdef int axis
    for axis in range(2):
        if row.y[axis] * w.s[axis] + reach.highest[axis] < 0 or row.y[axis] * w.s[axis] + reach.lowest[axis] >= w.X[axis]:
            return False
    return True


cdef inline int64_t most_rows(const Weights* w, int64_t positions) noexcept nogil:
    """That so many positions are cut into."""
    return min(positions, positions // w.Y[2] + 2)


cdef int64_t cut_rows(const Weights* w, int64_t first, int64_t end, Row* rows) noexcept nogil:
    cdef int64_t number = 0, k = first, rest
    cdef Row* row
    while k < end:
        row = &rows[number]
        row.y[2] = k % w.Y[2]
        rest = k // w.Y[2]
        row.y[1] = rest % w.Y[1]
        rest = rest // w.Y[1]
        row.y[0] = rest % w.Y[0]
        row.n = rest // w.Y[0]
        row.count = min(end - k, w.Y[2] - row.y[2])
        row.first = k - first
        k += row.count
        number += 1
    return number


cdef inline int64_t small_offset(const Weights* w, int64_t g, const Row* row) noexcept nogil:
    """Where a row of positions begins, in channel 0."""
    return row.n * w.small.n + g * w.small.g + row.y[0] * w.small.x[0] + row.y[1] * w.small.x[1] + row.y[2] * w.small.x[2]


cdef inline bint in_one_plane(const Row* a, const Row* b) noexcept nogil:
    return a.n == b.n and a.y[0] == b.y[0]


cdef inline int64_t last_of_plane(const Row* rows, int64_t row_count, int64_t r) noexcept nogil:
    """The last row of those in a plane that begin with row r."""
    while r + 1 < row_count and in_one_plane(&rows[r + 1], &rows[r]):
        r += 1
    return r


cdef int64_t tap_runs(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const Reach* reach, const LineReach* lines,
                      const Row* rows, int64_t row_count, tile_run* runs) noexcept nogil:
    """Runs of the positions that a tap meets inside (NULL: all of the rows that `lines` meets), in blocks cut into halves; their
    rows are addressed relative to tap 0 of channel 0 of a group."""
    cdef int64_t x[3]
    cdef int64_t number = 0, r, low, high, end, position, base, start, lanes, step = large_step(w, plan), pitch = isa.vectors * isa.width
    cdef int64_t first = 0, place = 0  # of a plane: its first row, and where its frames begin
    cdef int64_t ring = plan.ring if plan.kept else INT64_MAX, lap = -1  # a multiple of it before the numbers of a row
    cdef const Row* row
    cdef tile_run* run
    x[0] = x[1] = x[2] = 0
    check_room(b"tap_runs", runs, row_count * sizeof(tile_run))
    for r in range(row_count):
        row = &rows[r]
        low = 0
        high = row.count
        if plan.joined and not in_one_plane(row, &rows[first]):
            place += plan.row_floats
            first = r
        if not meets_lines(w, row, lines) if reach == NULL else not inside_of(w, reach, row, &low, &high, x):
            continue
        if plan.kept:
            base = number_of(w, row.n, x[0], x[1], x[2]) - low * step
        elif plan.by_taps:
            base = row.first
        elif plan.joined:
            base = place + (row.y[1] - rows[first].y[1]) * w.s[1] * plan.extent + row.y[2] * w.s[2]
        elif plan.framed:
            base = r * plan.row_floats
        else:
            base = (row.n * w.large.n + (row.y[0] * w.s[0] - w.b[0]) * w.large.x[0]
                    + (row.y[1] * w.s[1] - w.b[1]) * w.large.x[1] + (row.y[2] * w.s[2] - w.b[2]) * w.large.x[2])
        start = base + low * step
        if plan.kept:
            if lap < 0:
                lap = start - start % ring
            start -= lap
            while start >= ring:  # rarely: the numbers of a row lie behind those of the row before
                start -= ring
                lap += ring
        while low < high:
            position = row.first + low
            end = min(high, low + HALF_BLOCK - position % HALF_BLOCK) if plan.blocks else high
            if start + (end - low) * step > ring:
                end = min(end, low + ceiling(ring - start, step))
            run = &runs[number - 1]
            if (number > 0 and run.rows + run.steps * step == start and run.lanes + run.steps * pitch == position * pitch
                    and not (plan.blocks and position % HALF_BLOCK == 0)):
                run.steps += end - low
            else:
                check_room(b"tap_runs", &runs[number], sizeof(tile_run))
                runs[number] = tile_run(start, position * pitch, end - low)
                number += 1
            start += (end - low) * step
            low = end
            if plan.blocks and (row.first + low) % HALF_BLOCK == 0:
                lanes = (row.first + low) * pitch
                while high - low >= HALF_BLOCK and start + (HALF_BLOCK - 1) * step < ring:
                    check_room(b"tap_runs", &runs[number], sizeof(tile_run))
                    runs[number] = tile_run(start, lanes, HALF_BLOCK)
                    number += 1
                    start += HALF_BLOCK * step
                    lanes += HALF_BLOCK * pitch
                    low += HALF_BLOCK
            if start >= ring:
                start -= ring
    return number


cdef void cut_tap_runs(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const Row* rows, int64_t row_count,
                       int64_t most, tile_run* runs, int64_t* counts) noexcept nogil:
    """The runs of every tap, `most` apart."""
    cdef int64_t tap
    cdef Reach reach
    for tap in range(plan.taps):
        reach_of(w, tap, &reach)
        counts[tap] = tap_runs(w, plan, isa, &reach, NULL, rows, row_count, runs + tap * most)


cdef inline int64_t large_step(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    return 1 if plan.by_taps else w.s[2] if plan.framed else w.s[2] * w.large.x[2]
