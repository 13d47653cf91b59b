"""Algorithm `weights_tap_lanes`: `backward_weights` of channels that fill no tile, in groups or not: lanes are (tap, channel).

    taps[g,m,c,t] = SUM over n, y   large[n,g,c,y*s - b + t*d] * small[n,g,m,y]

The large side of some positions is laid out once, [line][x2][c], framed with zeros along the innermost axis; where they are fewer
than a line has, only what they meet of it.  There the channels of all taps of a line lie side by side, from one position to the next
by the stride; they fill vectors where the channels of one tap do not.  Rows are the channels m of the small side, read where they lie if they are floats.

A task is a group, or where there are few a part of its rows, through all pieces of the reduction.  Where its sums are not finite,
something infinite may have met a zero of the frame: they are computed again, each tap along the positions that it meets.

uses: engine/algorithms.pxi (Problem), engine/costs.pxi (BLOCKS_JOINED, DECODED, NUMBER_MOVED, TAP_MOVED,
    VECTORS_A_CYCLE), engine/weights/gradient.pxi (Row, Weights, tap_at), engine/weights/next_numbers.pxi (wish_for),
    engine/weights/positions.pxi (cut_rows, last_of_plane, most_rows, small_offset), engine/weights/sums.pxi
    (join_pieces), engine/weights/tap_lanes_plan.pxi
gives: decode_rows, fits_tap_lanes, lay_out_chunk, lay_out_tap_lanes, run_tap_lanes, store_tap_lanes,
    tap_lanes_cycles, wastes_lanes
"""

cdef void lay_out_line(const Weights* w, const instruction_set* isa, int64_t offset, int64_t first, int64_t columns, float* place,
                       float* padded) noexcept nogil:
    """Columns from `first` on of a line of the large side whose position 0 is at `offset`: [x2][c]. `padded` has room for some
    positions in whole vectors."""
    cdef int64_t low, high, some, x = 0, i, pitch = ceiling(w.C, isa.width) * isa.width
    cdef lane_span span
    meet_inside(first - w.b[2], 1, w.X[2], columns, &low, &high)
    memset(place, 0, low * w.C * sizeof(float))
    if high > low:
        span = lane_span(0, w.C, offset + (first + low - w.b[2]) * w.large.x[2], w.large.c)
        if w.C == pitch or w.large.x[2] == 1 and w.large.c != 1 and high - low >= TRANSPOSED_STEPS:
            isa.gather(place + low * w.C, w.C, high - low, w.large.data, w.large.format, w.large.x[2], &span, 1)
        else:  # vectors are stored whole
            while x < high - low:
                some = min(high - low - x, PADDED_STEPS)
                check_room(b"lay_out_line", padded, 4 * some * pitch)
                isa.gather(padded, pitch, some, w.large.data, w.large.format, w.large.x[2], &span, 1)
                for i in range(some):
                    memcpy(place + (low + x + i) * w.C, padded + i * pitch, w.C * sizeof(float))
                span.offset += some * w.large.x[2]
                x += some
    # Lanes beyond the last tap meet what follows, maybe a line that is not laid out: stale bits may be subnormal, which is slow.
    memset(place + high * w.C, 0, ((columns - high) * w.C + isa.width) * sizeof(float))


cdef void lay_out_chunk(const Weights* w, const TapLanes* p, const instruction_set* isa, int64_t g, int64_t row_count,
                        TapLanesScratch* s) noexcept nogil:
    """The lines of the large side that the rows of a chunk meet."""
    cdef int64_t r = 0, end, i, lines, t0, x0, x1, place = 0, first, columns
    cdef const Row* row
    while r < row_count:
        row = &s.rows[r]
        end = (r if p.windows else last_of_plane(s.rows, row_count, r)) + 1
        first, columns = first_column(w, p, row), row_columns(w, p, row)
        lines = (s.rows[end - 1].y[1] - row.y[1]) * w.s[1] + (w.K[1] - 1) * w.d[1] + 1
        for i in range(r, end):
            s.places[i] = place + (s.rows[i].y[1] - row.y[1]) * w.s[1] * p.line - first * w.C
            s.planes[i] = lines * p.line
        for t0 in range(w.K[0]):
            x0 = row.y[0] * w.s[0] + t0 * w.d[0] - w.b[0]
            check_room(b"lay_out_chunk", s.block + place, 4 * (lines * p.line + isa.width))
            for i in range(lines if 0 <= x0 < w.X[0] else 0):
                x1 = row.y[1] * w.s[1] - w.b[1] + i
                if 0 <= x1 < w.X[1]:
                    lay_out_line(w, isa, row.n * w.large.n + g * w.large.g + x0 * w.large.x[0] + x1 * w.large.x[1], first, columns,
                                 s.block + place + i * p.line, s.padded)
            place += lines * p.line
        r = end


cdef void decode_rows(const Weights* w, const TapLanes* p, const instruction_set* isa, int64_t g, int64_t m, int64_t m_end,
                      int64_t row_count, TapLanesScratch* s) noexcept nogil:
    """Channels [m, m_end) of the small side."""
    cdef int64_t r, size = element_size(w.small.format)
    cdef const Row* row
    check_room(b"decode_rows", s.small, 4 * (m_end - m) * p.small_pitch)
    for r in range(row_count):
        row = &s.rows[r]
        isa.frame(s.small + row.first, p.small_pitch, m_end - m, row.count, 0, row.count,
                  <const char*>w.small.data + size * (small_offset(w, g, row) + m * w.small.c), w.small.format, w.small.c,
                  w.small.x[2], 0)


cdef const tile_wish* next_rows_of_tile(const Weights* w, const TapLanes* p, int64_t g, int64_t tile, int64_t row_count,
                                        const TapLanesScratch* s, tile_wish* wish) noexcept nogil:
    """What row tile `tile` decodes of one row of a chunk, mostly the only one; NULL if its positions are apart."""
    cdef int64_t size = element_size(w.small.format), m = share(w.M, p.row_tiles, tile)
    cdef const Row* row = &s.rows[row_count // 2]
    if w.small.x[2] != 1:
        return NULL
    wish.place = <char*>w.small.data + size * (small_offset(w, g, row) + m * w.small.c)
    wish.row_step, wish.reach = size * w.small.c, 0
    wish.rows = share(w.M, p.row_tiles, tile + 1) - m
    wish.parts = 0
    wish_for(wish, 0, size * row.count)
    return wish


cdef int64_t tap_line_runs(const Weights* w, const TapLanes* p, int64_t g, const int64_t* t, int64_t low, int64_t high,
                           int64_t row_count, TapLanesScratch* s) noexcept nogil:
    """Runs of the rows of a chunk, positions [low, high) of their lines, from which tap line `t` meets the large side."""
    cdef int64_t number = 0, r, x0, x1, y, end, stop, position, half, last = -1
    cdef bint both = False  # halves of the block hold runs
    cdef const Row* row
    check_room(b"tap_line_runs", s.runs, most_tap_runs(w, p) * sizeof(half_run))
    for r in range(row_count):
        row = &s.rows[r]
        x0 = row.y[0] * w.s[0] + t[0] * w.d[0] - w.b[0]
        x1 = row.y[1] * w.s[1] + t[1] * w.d[1] - w.b[1]
        if x0 < 0 or x0 >= w.X[0] or x1 < 0 or x1 >= w.X[1]:
            continue
        y, end = max(low, row.y[2]), min(high, row.y[2] + row.count)
        while y < end:
            position = row.first + y - row.y[2]
            stop = end
            if p.blocks:
                half = position // HALF_BLOCK
                stop = min(end, y + HALF_BLOCK - position % HALF_BLOCK)
                if half != last and number > 0:
                    s.runs[number - 1].halves = 2 if both else 1 if half == last + 1 and last % 2 == 0 else 3
                    both = s.runs[number - 1].halves == 1
                last = half
            s.runs[number].run.rows = position if p.decoded else small_offset(w, g, row) + y - row.y[2]
            s.runs[number].run.lanes = s.places[r] + t[0] * s.planes[r] + t[1] * w.d[1] * p.line + y * w.s[2] * w.C
            s.runs[number].run.steps = stop - y
            s.runs[number].halves = 0
            number += 1
            y = stop
    if number > 0:
        s.runs[number - 1].halves = 2 if both else 3
    return number


cdef void run_tap_tiles(const Weights* w, const TapLanes* p, const instruction_set* isa, int64_t g, int64_t first_tile, int64_t end_tile,
                        int64_t row_count, int64_t run_count, const float* lanes, int64_t lane_count, bint exact, float* sums,
                        TapLanesScratch* s) noexcept nogil:
    """As `run_some_tiles`; where rows are decoded for a tile at a time, one tile after the other."""
    cdef int64_t tile, m, start = share(w.M, p.row_tiles, first_tile)
    cdef tile_wish wish
    if not p.by_tiles:
        run_some_tiles(w, p, isa, first_tile, end_tile, run_count, lanes, lane_count, exact, sums, NULL, s)
        return
    for tile in range(first_tile, end_tile):
        m = share(w.M, p.row_tiles, tile)
        decode_rows(w, p, isa, g, m, share(w.M, p.row_tiles, tile + 1), row_count, s)
        run_some_tiles(w, p, isa, tile, tile + 1, run_count, lanes, lane_count, exact, sums + (m - start) * p.pitch,
                       next_rows_of_tile(w, p, g, tile + 1, row_count, s, &wish) if tile + 1 < end_tile else NULL, s)


cdef void run_some_tiles(const Weights* w, const TapLanes* p, const instruction_set* isa, int64_t first_tile, int64_t end_tile,
                         int64_t run_count, const float* lanes, int64_t lane_count, bint exact, float* sums,
                         const tile_wish* wish, TapLanesScratch* s) noexcept nogil:
    """`lane_count` lanes against row tiles, whose sums are at `sums`; `exact`: no lanes beyond these are touched. The last panel of
    lanes asks for what `wish` names."""
    cdef int64_t vectors = ceiling(lane_count, isa.width), panels = ceiling(vectors, isa.vectors), panel, tile, m, rows, i
    cdef int64_t first, lane, width, count, start = share(w.M, p.row_tiles, first_tile)
    cdef int64_t offsets[TILE_ROWS]
    cdef const float* source = s.small
    cdef int64_t channel = p.small_pitch if p.decoded else w.small.c
    cdef float* c
    if not p.decoded:
        source = <const float*>w.small.data
    for panel in range(panels):
        first = share(vectors, panels, panel)
        lane, width = first * isa.width, share(vectors, panels, panel + 1) - first
        count = min(lane_count - lane, width * isa.width)
        for tile in range(first_tile, end_tile):
            m = share(w.M, p.row_tiles, tile)
            rows = share(w.M, p.row_tiles, tile + 1) - m
            for i in range(rows):
                offsets[i] = (m + i - (start if p.decoded else 0)) * channel
            c = sums + (m - start) * p.pitch + lane
            if not exact:
                check_room(b"run_some_tiles", c, 4 * ((rows - 1) * p.pitch + width * isa.width))
                isa.tap_tile[rows - 1][width - 1](s.runs, run_count, source, offsets, 1, lanes + lane, w.s[2] * w.C, c, p.pitch,
                                                   p.blocks, wish if panel + 1 == panels else NULL)
                continue
            for i in range(rows):
                memcpy(s.exact + i * TILE_LANES, c + i * p.pitch, count * sizeof(float))
            isa.tap_tile[rows - 1][width - 1](s.runs, run_count, source, offsets, 1, lanes + lane, w.s[2] * w.C, s.exact, TILE_LANES,
                                               p.blocks, NULL)
            for i in range(rows):
                memcpy(c + i * p.pitch, s.exact + i * TILE_LANES, count * sizeof(float))


cdef void run_tap_piece(const Weights* w, const TapLanes* p, const instruction_set* isa, int64_t g, int64_t first_tile, int64_t end_tile,
                        int64_t piece, bint exact, float* sums, TapLanesScratch* s) noexcept nogil:
    cdef int64_t first = piece_start(&w.cut, piece, p.positions), piece_end = piece_start(&w.cut, piece + 1, p.positions), end
    cdef int64_t m = share(w.M, p.row_tiles, first_tile), m_end = share(w.M, p.row_tiles, end_tile)
    cdef int64_t row_count, run_count, tap_line, tap, low, high
    cdef int64_t t[3]
    cdef float* c
    memset(sums, 0, p.tap_lines * (m_end - m) * p.pitch * sizeof(float))
    while first < piece_end:
        end = min(piece_end, first + p.chunk)
        row_count = cut_rows(w, first, end, s.rows)
        lay_out_chunk(w, p, isa, g, row_count, s)
        if p.decoded and not p.by_tiles:
            decode_rows(w, p, isa, g, m, m_end, row_count, s)
        for tap_line in range(p.tap_lines):
            tap_at(w, tap_line * p.taps, t)
            c = sums + tap_line * (m_end - m) * p.pitch
            if not exact:
                run_count = tap_line_runs(w, p, g, t, 0, w.Y[2], row_count, s)
                run_tap_tiles(w, p, isa, g, first_tile, end_tile, row_count, run_count, s.block + t[2] * w.d[2] * w.C, p.lanes, False, c,
                              s)
                continue
            for tap in range(t[2], t[2] + p.taps):
                meet_inside(tap * w.d[2] - w.b[2], w.s[2], w.X[2], w.Y[2], &low, &high)
                run_count = tap_line_runs(w, p, g, t, low, high, row_count, s)
                run_tap_tiles(w, p, isa, g, first_tile, end_tile, row_count, run_count, s.block + tap * w.d[2] * w.C, w.C, True,
                              c + (tap - t[2]) * w.C, s)
        first = end


cdef void store_tap_lanes(const Weights* w, const TapLanes* p, const instruction_set* isa, int64_t g, int64_t first_m, int64_t end_m,
                          const float* sums, TapLanesScratch* s) noexcept nogil:
    """The sums of rows [first_m, end_m): taps of a channel side by side."""
    cdef int64_t m, tap_line, tap, taps = p.tap_lines * p.taps, start, step = (end_m - first_m) * p.pitch
    cdef int64_t t[3]
    cdef bint together = True  # all numbers of a row are
    cdef lane_span span
    check_room(b"store_tap_lanes", s.stored, 4 * taps * w.C)
    for tap in range(taps):
        tap_at(w, tap, t)
        together = together and t[0] * w.taps_stride[3] + t[1] * w.taps_stride[4] + t[2] * w.taps_stride[5] == tap
    together = together and w.taps_stride[2] == taps
    for m in range(first_m, end_m):
        start = g * w.taps_stride[0] + m * w.taps_stride[1]
        if not together:
            for tap in range(taps):
                tap_at(w, tap, t)
                span = lane_span(0, w.C, start + t[0] * w.taps_stride[3] + t[1] * w.taps_stride[4] + t[2] * w.taps_stride[5],
                                 w.taps_stride[2])
                isa.scatter(sums + tap // p.taps * step + (m - first_m) * p.pitch + tap % p.taps * w.C, 0, 1, w.taps,
                            w.taps_format, 0, &span, 1, NULL)
            continue
        for tap_line in range(p.tap_lines):
            s.spans[tap_line] = lane_span(tap_line * p.taps, p.taps, tap_line * step + (m - first_m) * p.pitch, w.C)
        isa.gather(s.stored, taps, w.C, sums, NUMBER_FLOAT32, 1, s.spans, p.tap_lines)
        span = lane_span(0, taps * w.C, start, 1)
        isa.scatter(s.stored, 0, 1, w.taps, w.taps_format, 0, &span, 1, NULL)


cdef void run_tap_lanes_task(const Weights* w, const TapLanes* p, const instruction_set* isa, int64_t task, TapLanesScratch* s) noexcept nogil:
    cdef int64_t g = task // p.parts, first_tile = share(p.row_tiles, p.parts, task % p.parts), piece, count
    cdef int64_t end_tile = share(p.row_tiles, p.parts, task % p.parts + 1)
    cdef int64_t m = share(w.M, p.row_tiles, first_tile), m_end = share(w.M, p.row_tiles, end_tile)
    count = p.tap_lines * (m_end - m) * p.pitch
    check_room(b"run_tap_lanes_task", s.sums, 4 * w.cut.pieces * count)
    for piece in range(w.cut.pieces):
        run_tap_piece(w, p, isa, g, first_tile, end_tile, piece, False, s.sums + piece * count, s)
        if p.framed and not isa.finite(s.sums + piece * count, count):
            run_tap_piece(w, p, isa, g, first_tile, end_tile, piece, True, s.sums + piece * count, s)
    join_pieces(s.sums, w.cut.pieces, count, count)
    store_tap_lanes(w, p, isa, g, m, m_end, s.sums, s)


cdef inline bint wastes_lanes(const Weights* w, const instruction_set* isa) noexcept nogil:
    """Whether `weights_product` computes many lanes of one group in vain."""
    return TAP_WASTE * (ceiling(w.M, isa.width) * isa.width - w.M) >= w.M


cdef inline bint reads_waveform(const Weights* w) noexcept nogil:
    """First layers of sound: few taps meet many channels of the small side, of which `weights_product` would pack each number."""
    return w.G == 1 and w.C < TAP_CHANNELS and w.K[0] * w.K[1] == 1 and w.K[2] > 1 and w.d[2] == 1 and w.small.x[2] == 1


cdef bint fits_tap_lanes(Problem* q) noexcept nogil:
    if q.weights == NULL or q.weights.large.format == NUMBER_FLOAT64 or q.weights.cut.chains > 1:
        return False
    if not reads_waveform(q.weights) and (q.weights.C < TAP_CHANNELS or q.weights.G == 1 and not wastes_lanes(q.weights, q.isa)):
        return False
    return plan_tap_lanes(q.weights, q.isa, q.threads, &q.weights_lanes)


cdef double tap_lanes_cycles(const Problem* q) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef const TapLanes* p = &q.weights_lanes
    cdef int64_t vectors = ceiling(p.lanes, q.isa.width), panels = ceiling(vectors, q.isa.vectors)
    cdef int64_t tasks = ceiling(w.G * p.parts, q.threads) * q.threads  # threads wait for the last
    cdef double loads = w.M * panels + <double>vectors * p.row_tiles, products = <double>w.M * vectors
    products = p.tap_lines * max(products, loads) / VECTORS_A_CYCLE
    if p.blocks:
        products *= BLOCKS_JOINED
    return (products + TAP_MOVED * w.C * w.K[0] * w.s[1] * w.s[2] * p.parts
            + (NUMBER_MOVED + DECODED if p.decoded else 0) * w.M) * p.positions / p.parts * tasks


cdef void lay_out_tap_lanes(Problem* q, workspace* memory) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef TapLanes* p = &q.weights_lanes
    cdef TapLanesScratch counted
    cdef TapLanesScratch* s
    cdef int worker
    p.scratch = <TapLanesScratch*>take(memory, q.threads * sizeof(TapLanesScratch))
    for worker in range(q.threads):
        s = &p.scratch[worker] if memory.base != NULL else &counted
        s.block = <float*>take(memory, 4 * (<int64_t>block_lines(w, p.chunk) * p.line + (q.isa.vectors + 1) * q.isa.width))
        s.small = <float*>take(memory, 4 * (p.small_pitch * (TILE_ROWS if p.by_tiles else w.M) + q.isa.width) if p.decoded else 0)
        s.sums = <float*>take(memory, 4 * w.cut.pieces * p.sums)
        s.exact = <float*>take(memory, 4 * TILE_ROWS * TILE_LANES)
        s.stored = <float*>take(memory, 4 * (p.tap_lines * p.taps * w.C + q.isa.width))
        s.padded = <float*>take(memory, 4 * (PADDED_STEPS * ceiling(w.C, q.isa.width) + 1) * q.isa.width)
        s.rows = <Row*>take(memory, (most_rows(w, p.chunk) + 1) * sizeof(Row))
        s.places = <int64_t*>take(memory, (most_rows(w, p.chunk) + 1) * sizeof(int64_t))
        s.planes = <int64_t*>take(memory, (most_rows(w, p.chunk) + 1) * sizeof(int64_t))
        s.runs = <half_run*>take(memory, most_tap_runs(w, p) * sizeof(half_run))
        s.spans = <lane_span*>take(memory, p.tap_lines * sizeof(lane_span))


cdef bint run_tap_lanes(Problem* q, workspace* memory) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef const TapLanes* p = &q.weights_lanes
    cdef TapLanesScratch* scratch = p.scratch
    cdef int64_t tasks = w.G * p.parts, task
    if q.threads == 1:
        for task in range(tasks):
            run_tap_lanes_task(w, p, q.isa, task, scratch)
    else:
        for task in prange(tasks, schedule="dynamic", num_threads=q.threads):
            run_tap_lanes_task(w, p, q.isa, task, &scratch[thread_number()])
    return True
