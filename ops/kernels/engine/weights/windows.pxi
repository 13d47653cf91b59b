"""Windows: rows of blocks where row tiles mix taps, because the large side has few channels.

A window holds what all taps meet of the large side at some thousand positions.  It has a column for each channel, each plane of a
tap (t0), each tap along lines (t2), and each residue of t1*d1 modulo the stride.  A column is one line of the large side after the
other, each as long as a line of positions: the numbers that such a tap meets.  Taps with one residue lie some lines apart in their
column.  So positions that follow one another meet numbers side by side, and tiles read pairs in place.  A column is laid out when
a tile first needs it.

Positions of another plane are a segment of their own, since the lines that lie between taps (`overlap`) end a plane.  A chunk
in which a segment begins within a pair has its rows copied.

Where a plane is one line, windows see its positions as lines of one number, whose taps share columns.

uses: engine/costs.pxi (ROW_IN_PLACE, ROW_LINE), engine/product/product.pxi (LINE_BYTES), engine/weights/gradient.pxi
    (Weights, large_at, tap_at), engine/weights/lines.pxi (row_pair, row_start, run_line_tile), engine/weights/plan.pxi
gives: begin_windows, find_window_rows, plan_window, run_window_tiles, window_for, window_moved, window_rows,
    window_runs, window_segments
"""

cdef enum:
    WINDOW_BYTES = 3 << 18     # of a window that holds several chunks: stays in the middle cache
    LARGEST_WINDOW = 1 << 21   # ... one chunk
    MOST_COLUMNS = 1 << 14
    TURNED_TAPS = 4            # of a line from which on they are laid out together ...
    TURNED_STRIDE = 5          # ... with such a stride or more


cdef inline int64_t window_segments(const Weights* w, int64_t positions) noexcept nogil:
    """Planes that so many positions lie in, at most."""
    return min(w.N * w.Y[0], positions // (w.Y[1] * w.Y[2]) + 2)


cdef inline double window_numbers(const Weights* w, const WeightsPlan* plan, int64_t positions) noexcept nogil:
    """Of a column for so many positions, at most."""
    cdef int64_t lines = min(w.N * w.Y[0] * w.Y[1], positions // w.Y[2] + 2)
    return (lines + <double>window_segments(w, positions) * plan.overlap) * w.Y[2]


cdef void exchange_axes(Weights* w) noexcept nogil:
    """A plane of one line becomes one of lines of one number."""
    w.X[1], w.X[2] = w.X[2], w.X[1]
    w.Y[1], w.Y[2] = w.Y[2], w.Y[1]
    w.K[1], w.K[2] = w.K[2], w.K[1]
    w.s[1], w.s[2] = w.s[2], w.s[1]
    w.d[1], w.d[2] = w.d[2], w.d[1]
    w.b[1], w.b[2] = w.b[2], w.b[1]
    w.large.x[1], w.large.x[2] = w.large.x[2], w.large.x[1]
    w.small.x[1], w.small.x[2] = w.small.x[2], w.small.x[1]


cdef inline bint taps_share(const Weights* w) noexcept nogil:
    """Whether the taps of a plane that is one line share columns: not where they are laid out together."""
    return w.Y[1] == 1 and w.K[1] == 1 and w.s[2] < min(w.K[2], <int64_t>TURNED_STRIDE)


cdef bint plan_window(const Weights* given, WeightsPlan* plan) noexcept nogil:
    """Whether a window of one chunk is small enough; and as many chunks as fit."""
    cdef Weights* w = &plan.windowed
    cdef int64_t chunks = 1, most = ceiling(min(plan.cut.length, plan.positions), plan.chunk), more
    cdef double columns
    w[0] = given[0]
    if taps_share(w):
        exchange_axes(w)
    plan.phases = min(w.s[1], (w.K[1] - 1) * w.d[1] + 1)
    plan.overlap = (w.K[1] - 1) * w.d[1] // w.s[1]
    columns = <double>w.C * w.K[0] * w.K[2] * plan.phases
    if columns > MOST_COLUMNS or columns * (2 * window_numbers(w, plan, plan.chunk) + 2 * LINE_BYTES) > LARGEST_WINDOW:
        return False
    while chunks < most:
        more = min(most, chunks + 1 + chunks // 8)
        if columns * (2 * window_numbers(w, plan, more * plan.chunk) + 2 * LINE_BYTES) > WINDOW_BYTES:
            break
        chunks = more
    plan.columns, plan.window_positions = <int64_t>columns, chunks * plan.chunk
    plan.column_bytes = (ceiling(2 * <int64_t>window_numbers(w, plan, plan.window_positions), LINE_BYTES) + 1 | 1) * LINE_BYTES
    return True


cdef inline double window_moved(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    """Quarters of a cycle for a position: what is laid out of all columns, and read in place by all taps."""
    return ROW_LINE * plan.columns * window_numbers(w, plan, plan.window_positions) / plan.window_positions + ROW_IN_PLACE * w.C * plan.taps


cdef void begin_windows(const WeightsPlan* plan, WeightsScratch* s) noexcept nogil:
    check_room(b"begin_windows", s.window.laid_out, plan.columns * sizeof(int64_t))
    memset(s.window.laid_out, 0, plan.columns * sizeof(int64_t))
    s.window.g, s.window.number = -1, 0


cdef void window_for(const Weights* w, const WeightsPlan* plan, int64_t g, int64_t first, int64_t end, int64_t piece_end,
                     WeightsScratch* s) noexcept nogil:
    """A window that holds positions [first, end) of a group: the one there is, or an empty one that goes on to `piece_end` at most."""
    cdef Window* window = &s.window
    cdef Segment* segment
    cdef int64_t k, rest, start = 0, room = window_segments(w, plan.window_positions)
    if window.g == g and window.first <= first and end <= window.end:
        return
    window.g, window.first, window.end = g, first, min(piece_end, first + plan.window_positions)
    window.number += 1  # no column is laid out yet
    window.segment_count, k = 0, first
    check_room(b"window_for", window.segments, room * sizeof(Segment))
    while k < window.end:
        segment = &window.segments[window.segment_count]
        rest = k // w.Y[2]
        segment.y1 = rest % w.Y[1]
        rest //= w.Y[1]
        segment.y0 = rest % w.Y[0]
        segment.n = rest // w.Y[0]
        segment.first = k - k % w.Y[2]
        segment.lines = min(w.Y[1] - segment.y1, ceiling(window.end - segment.first, w.Y[2]))
        segment.start = start
        start += (segment.lines + plan.overlap) * w.Y[2]
        k = segment.first + segment.lines * w.Y[2]
        window.segment_count += 1


cdef inline int64_t column_place(const WeightsPlan* plan, int64_t column) noexcept nogil:
    """Where number 0 of a column lies in a window, in bytes; columns run backwards."""
    return (column + 1) * plan.column_bytes - 2


cdef void find_window_rows(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    """Where each row (t, c) begins."""
    cdef int64_t i, c, phase, shift
    cdef int64_t t[3]
    check_room(b"find_window_rows", plan.window_rows, w.C * plan.taps * sizeof(WindowRow))
    for i in range(w.C * plan.taps):
        c = i % w.C
        tap_at(w, i // w.C, t)
        phase, shift = t[1] * w.d[1] % w.s[1], t[1] * w.d[1] // w.s[1] * w.Y[2]
        plan.window_rows[i].column = ((c * w.K[0] + t[0]) * w.K[2] + t[2]) * plan.phases + phase
        plan.window_rows[i].offset = column_place(plan, plan.window_rows[i].column) - 2 * shift - 2


cdef void lay_out_column(const Weights* w, const WeightsPlan* plan, int64_t column, WeightsScratch* s) noexcept nogil:
    cdef Window* window = &s.window
    cdef const Segment* segment
    cdef int64_t phase = column % plan.phases, t2 = column // plan.phases % w.K[2], t0 = column // plan.phases // w.K[2] % w.K[0]
    cdef int64_t c = column // plan.phases // w.K[2] // w.K[0], i, x0, x1, x2 = t2 * w.d[2] - w.b[2]
    cdef plane_lines all, lines
    cdef char* place
    cdef const char* source
    cdef bint together = w.K[2] >= TURNED_TAPS and w.s[2] >= TURNED_STRIDE and w.d[2] == 1 and w.large.x[2] == 1
    all.count, all.line_step, all.step = w.Y[2], w.s[1] * w.large.x[1], w.s[2] * w.large.x[2]
    all.low = all.high = 0
    if together:
        column -= t2 * plan.phases
        x2 = -w.b[2]
        all.low, all.high = -x2, w.X[2] - x2
    else:
        meet_inside(x2, w.s[2], w.X[2], w.Y[2], &all.low, &all.high)
        x2 += all.low * w.s[2]
    for i in range(w.K[2] if together else 1):
        check_room(b"lay_out_column", window.numbers + (column + i * plan.phases) * plan.column_bytes, plan.column_bytes)
        window.laid_out[column + i * plan.phases] = window.number
    place = window.numbers + column_place(plan, column)
    for i in range(window.segment_count):
        segment = &window.segments[i]
        all.lines = segment.lines + plan.overlap
        all.first = all.end = 0
        x0 = segment.y0 * w.s[0] - w.b[0] + t0 * w.d[0]
        x1 = segment.y1 * w.s[1] - w.b[1] + phase
        if 0 <= x0 < w.X[0] and all.low < all.high:
            meet_inside(x1, w.s[1], w.X[1], all.lines, &all.first, &all.end)
        x1 += all.first * w.s[1]
        lines = all
        if all.count == 1 and not together:  # numbers of one line
            lines.count, lines.step, lines.low, lines.high = all.lines, all.line_step, all.first, all.end
            lines.lines, lines.first, lines.end = 1, 0, 1
        source = large_at(w, segment.n * w.large.n + window.g * w.large.g + c * w.large.c + x0 * w.large.x[0] + x1 * w.large.x[1]
                          + x2 * w.large.x[2])
        if together:
            plan.pairs.lay_planes(place - 2 * segment.start, plan.phases * plan.column_bytes, w.K[2], &lines, source, w.large.format,
                                  &s.smallest_large)
        else:
            plan.pairs.lay_plane(place - 2 * segment.start, &lines, source, w.large.format, &s.smallest_large)


cdef int64_t window_runs(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t first, int64_t count,
                         WeightsScratch* s) noexcept nogil:
    """Runs of positions from `first` on in a column, or 0 if a pair of them does not lie side by side, or the last is not one."""
    cdef const Window* window = &s.window
    cdef const Segment* segment = window.segments
    cdef int64_t number = 0, k = 0, end, next_k, pitch = isa.vectors * isa.width
    cdef tile_run* run
    if count % 2 == 1:
        return 0
    while k < count:
        while segment.first + segment.lines * w.Y[2] <= first + k:
            segment += 1
        end = min(count, segment.first + segment.lines * w.Y[2] - first) if plan.overlap > 0 else count
        if end % 2 == 1:
            return 0
        while k < end:
            next_k = min(end, (k // HALF_BLOCK + 1) * HALF_BLOCK)
            run = &s.runs[number]
            check_room(b"window_runs", run, sizeof(tile_run))
            run.rows, run.lanes, run.steps = -2 * (segment.start + first + k - segment.first), k // 2 * pitch, (next_k - k) // 2
            number += 1
            k = next_k
    return number


cdef void copy_row(const Weights* w, const WeightsPlan* plan, const char* start, int64_t first, int64_t count, int64_t row,
                   WeightsScratch* s) noexcept nogil:
    """What a tap meets at a chunk, from column numbers that begin at `start`, to a line of its own."""
    cdef const Segment* segment = s.window.segments
    cdef int64_t k = 0, end
    cdef char* line = row_start(plan, s, row)
    check_room(b"copy_row", line - 2 * count, 2 * count + 2)
    while k < count:
        while segment.first + segment.lines * w.Y[2] <= first + k:
            segment += 1
        end = min(count, segment.first + segment.lines * w.Y[2] - first)
        memcpy(line - 2 * (end - 1), start - 2 * (segment.start + first + end - 1 - segment.first), 2 * (end - k))
        k = end
    (<uint16_t*>(line - 2 * count))[0] = 0  # the other number of a last pair


cdef void window_rows(const Weights* w, const WeightsPlan* plan, int64_t tile, int64_t* offsets, WeightsScratch* s) noexcept nogil:
    """Where the rows of a tile lie in the window, relative to its beginning: their first pairs at number 0 of their columns."""
    cdef const WindowRow* row = plan.window_rows + tile_start(w, plan, tile)
    cdef int64_t i
    for i in range(tile_rows(plan, tile)):
        if s.window.laid_out[row[i].column] != s.window.number:
            lay_out_column(w, plan, row[i].column, s)
        offsets[i] = row[i].offset


cdef void run_window_tiles(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t first_tile,
                           int64_t end_tile, const Chunk* chunk, int64_t first, bint in_place, float* sums, WeightsScratch* s) noexcept nogil:
    """Tiles at positions from `first` on, along runs of the window, or if not `in_place` of lines that rows are copied to."""
    cdef int64_t tile, i
    cdef int64_t offsets[TILE_ROWS]
    for tile in range(first_tile, end_tile):
        window_rows(w, plan, tile, offsets, s)
        if in_place:
            run_line_tile(w, plan, isa, part, tile, chunk, s.window.numbers, offsets, sums, s)
            continue
        for i in range(tile_rows(plan, tile)):
            copy_row(w, plan, s.window.numbers + offsets[i] + 2, first, chunk.count, i, s)
            offsets[i] = row_pair(plan, i)
        run_line_tile(w, plan, isa, part, tile, chunk, <const char*>s.block, offsets, sums, s)
