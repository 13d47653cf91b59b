"""Algorithm `weights_tap_pairs`: the sums of `weights_tap_lanes` as dot products of pairs of positions.

Lanes are (tap, channel) of the large side, rows are channels of the small side.  Positions 2*k and 2*k + 1 of a chunk are a pair.  On
the large side each number is laid out once, with the number that the same tap meets at the next position; where a chunk is shorter
than a line, only what it meets of the line is.  A pair whose positions lie in two lines is joined for each line of taps.  Which pairs a line of taps meets in a chunk, and where, is the same in all groups: it
is noted once, as steps.

Zeros outside are terms here.  They change no sum, unless they meet something infinite or NaN: then a sum is NaN, and the call is
repeated without pairs.

uses: engine/ahead.pxi (Ahead, ask_ahead, begin_ahead), engine/algorithms.pxi (Problem), engine/costs.pxi
    (TAP_PAIRS_JOINED, TAP_PAIRS_LINE, TAP_PAIRS_MOVED), engine/product/pairs.pxi (never_subnormal, on_matrix),
    engine/weights/gradient.pxi (Row, Weights, large_at, tap_at), engine/weights/positions.pxi (cut_rows, most_rows,
    small_offset), engine/weights/product.pxi (fits_weights), engine/weights/sums.pxi (join_pieces),
    engine/weights/tap_lanes.pxi (store_tap_lanes, wastes_lanes), engine/weights/tap_lanes_plan.pxi
gives: TapPairs, fits_tap_pairs, lay_out_tap_pairs, run_tap_pairs, tap_pairs_cycles
"""

cdef enum:
    TAP_PAIRS_BYTES = 3 << 16   # of the large side, laid out
    TAP_STEPS_BYTES = 1 << 22   # steps of all chunks
    TAP_PAIRS_STRIDE = 4        # along the innermost axis, at most
    MOST_TAP_ROWS = 6           # of a tile of two vectors; three have 4, one has 8


cdef struct TapPairsScratch:  # of one thread
    TapLanesScratch lanes    # what is stored
    float* block             # [line][x2][c]
    float* joined            # [row of the chunk][tap line][lane]
    float* small             # [m][pair]
    float* sums              # [piece][tap line][m][lane]
    Row* rows                # of the chunk ...
    int64_t* places          # ... where its first line of the large side, if it were inside, begins in the block
    bint unbounded
    uint16_t smallest_large
    uint16_t smallest_small


cdef struct TapPairs:
    TapLanes lanes           # taps of a line, lanes, pitch, windows, floats of a line, row tiles, parts
    int64_t columns          # of a line that is laid out, at most
    int64_t chunk            # positions, at most
    int64_t chunks           # of a piece
    int64_t small_pitch
    int64_t vectors
    int64_t panels
    tap_pair* steps          # [piece][chunk][tap line][pair]
    int32_t* halves          # [piece][chunk][tap line][half]: so many steps
    TapPairsScratch* scratch


cdef bint plan_tap_pairs(const Weights* w, int width, int threads, TapPairs* p) noexcept nogil:
    cdef TapLanes* l = &p.lanes
    l.positions = w.N * w.Y[1] * w.Y[2]
    if (l.positions == 0 or w.X[1] * w.X[2] == 0 or w.K[0] != 1 or w.Y[0] != 1 or w.X[0] != 1 or w.b[0] != 0 or w.s[2] < 1
            or w.s[2] > TAP_PAIRS_STRIDE or w.large.x[2] != 1 or w.small.x[2] != 1 or w.C < TAP_CHANNELS or <double>w.K[1] * w.K[2] > TAP_LINES
            or w.s[1] > TAP_LINES or w.K[1] * <double>w.d[1] > TAP_LINES):
        return False
    l.taps = w.K[2] if w.d[2] == 1 else 1
    l.tap_lines = w.K[1] * (w.K[2] // l.taps)
    l.lanes = l.taps * w.C
    l.pitch = ceiling(l.lanes, width) * width
    if 4.0 * l.tap_lines * w.M * l.pitch * w.cut.pieces > TAP_SUMS_BYTES:
        return False
    p.vectors = l.pitch // width
    p.panels = ceiling(p.vectors, TILE_VECTORS)
    p.chunk = ceiling(min(l.positions, w.cut.length), SUM_BLOCK) * SUM_BLOCK
    while block_bytes(w, p.chunk) > TAP_PAIRS_BYTES and p.chunk > SUM_BLOCK:
        p.chunk = ceiling(p.chunk, 2 * SUM_BLOCK) * SUM_BLOCK
    if block_bytes(w, p.chunk) > 16 * TAP_PAIRS_BYTES:
        return False
    l.windows = p.chunk < w.Y[2]
    p.columns = <int64_t>met_columns(w, p.chunk)
    l.line = p.columns * w.C
    p.chunks = ceiling(w.cut.length, p.chunk)
    p.small_pitch = (p.chunk // 2 // width + 2 | 1) * width
    if 4.0 * w.cut.pieces * p.chunks * l.tap_lines * p.chunk > TAP_STEPS_BYTES:
        return False
    l.row_tiles = ceiling(w.M, 4)
    l.parts = min(l.row_tiles, ceiling(2 * threads, w.G)) if threads > 1 else 1
    l.sums = l.tap_lines * min(w.M, ceiling(l.row_tiles, l.parts) * 4) * l.pitch
    return True


cdef void place_rows(const Weights* w, const TapPairs* p, int64_t row_count, TapPairsScratch* s) noexcept nogil:
    """Where the lines of the rows of a chunk, if they were whole, lie in the block: those of an image side by side."""
    cdef int64_t r, place = 0, first = 0
    check_room(b"place_rows", s.places, 8 * row_count)
    for r in range(row_count):
        if r > 0 and (p.lanes.windows or s.rows[r].n != s.rows[r - 1].n):
            place += ((s.rows[r - 1].y[1] - s.rows[first].y[1]) * w.s[1] + (w.K[1] - 1) * w.d[1] + 1) * p.lanes.line
            first = r
        s.places[r] = place + (s.rows[r].y[1] - s.rows[first].y[1]) * w.s[1] * p.lanes.line - first_column(w, &p.lanes, &s.rows[r]) * w.C


cdef inline bint meets_line(const Weights* w, const Row* row, int64_t t1) noexcept nogil:
    return 0 <= row.y[1] * w.s[1] + t1 * w.d[1] - w.b[1] < w.X[1]


cdef inline int64_t chunk_end(const Weights* w, const TapPairs* p, int64_t number, int64_t* first) noexcept nogil:
    """The positions of a chunk of all: its first, and its end."""
    cdef int64_t piece = number // p.chunks, start = piece_start(&w.cut, piece, p.lanes.positions)
    cdef int64_t end = piece_start(&w.cut, piece + 1, p.lanes.positions)
    first[0] = min(end, start + number % p.chunks * p.chunk)
    return min(end, first[0] + p.chunk)


cdef inline int64_t joined_floats(const Weights* w, const TapPairs* p) noexcept nogil:
    """All pairs of a chunk that lie in two lines."""
    return most_rows(w, p.chunk) * p.lanes.tap_lines * p.lanes.pitch


cdef void note_steps(const Weights* w, const TapPairs* p, int64_t number, TapPairsScratch* s) noexcept nogil:
    """The steps of all lines of taps in a chunk; joined pairs lie behind the block."""
    cdef int64_t first = 0, end = chunk_end(w, p, number, &first), row_count = cut_rows(w, first, end, s.rows)
    cdef int64_t tap_line, r, i, shift, half, block
    cdef int64_t t[3]
    cdef const Row* row
    cdef tap_pair* step
    cdef int32_t* halves
    place_rows(w, p, row_count, s)
    block = s.joined - s.block
    for tap_line in range(p.lanes.tap_lines):
        tap_at(w, tap_line * p.lanes.taps, t)
        step = p.steps + (number * p.lanes.tap_lines + tap_line) * (p.chunk // 2)
        halves = p.halves + (number * p.lanes.tap_lines + tap_line) * (p.chunk // HALF_BLOCK)
        memset(halves, 0, 4 * (p.chunk // HALF_BLOCK))
        for r in range(row_count):
            row = &s.rows[r]
            shift = s.places[r] + t[1] * w.d[1] * p.lanes.line + t[2] * w.d[2] * w.C
            i = row.first % 2
            while i < row.count:
                half = (row.first + i) // HALF_BLOCK
                if i + 1 < row.count or r + 1 == row_count:
                    if not meets_line(w, row, t[1]):
                        i += 2
                        continue
                    step[0] = tap_pair((row.first + i) // 2, shift + (row.y[2] + i) * w.s[2] * w.C)
                else:
                    if not meets_line(w, row, t[1]) and not meets_line(w, row + 1, t[1]):
                        break
                    step[0] = tap_pair((row.first + i) // 2, block + (r * p.lanes.tap_lines + tap_line) * p.lanes.pitch)
                halves[half] += 1
                step += 1
                i += 2


cdef void lay_out_tap_chunk(const Weights* w, const TapPairs* p, const pair_functions* pairs, int64_t g, int64_t m, int64_t m_end,
                            int64_t row_count, TapPairsScratch* s) noexcept nogil:
    cdef int64_t r = 0, end, lines, low, high, x1, tap_line, count, start, column, columns, i, line = p.lanes.line
    cdef int64_t t[3]
    cdef float* place
    cdef const Row* row
    cdef bint first, second
    place_rows(w, p, row_count, s)
    while r < row_count:  # of an image
        row = &s.rows[r]
        end = r + 1
        while not p.lanes.windows and end < row_count and s.rows[end].n == row.n:
            end += 1
        column = first_column(w, &p.lanes, row)
        columns = row_columns(w, &p.lanes, row)
        lines = (s.rows[end - 1].y[1] - row.y[1]) * w.s[1] + (w.K[1] - 1) * w.d[1] + 1
        x1 = row.y[1] * w.s[1] - w.b[1]
        meet_inside(x1, 1, w.X[1], lines, &low, &high)
        if high > low:
            place = s.block + s.places[r] + column * w.C
            check_room(b"lay_out_tap_chunk", place, 4 * (high * line + TILE_LANES))
            pairs.lay_tap_pairs(
                place + low * line, line, high - low, columns, w.C,
                large_at(w, row.n * w.large.n + g * w.large.g + (x1 + low) * w.large.x[1] + column - w.b[2]), w.large.format,
                w.large.x[1], w.large.c, w.b[2] - column, w.b[2] + w.X[2] - column, w.s[2], &s.smallest_large)
            for i in range(low, high):  # lanes beyond the last tap of a line
                memset(place + i * line + columns * w.C, 0,
                       4 * (min(<int64_t>TILE_LANES, (p.columns - columns) * w.C) if i + 1 < high else TILE_LANES))
        while r < end:  # lines of the small side that follow one another in memory
            row = &s.rows[r]
            count, r = row.count, r + 1
            while r < end and small_offset(w, g, &s.rows[r]) == small_offset(w, g, row) + count:
                count += s.rows[r].count
                r += 1
            start = small_offset(w, g, row) + m * w.small.c
            check_room(b"lay_out_tap_chunk", s.small, 4 * (m_end - m) * p.small_pitch)
            pairs.lay_row_pairs(s.small, p.small_pitch, m_end - m, row.first,
                                <const char*>w.small.data + start * element_size(w.small.format), w.small.format, w.small.c, count,
                                &s.smallest_small)
    for r in range(row_count - 1):
        row = &s.rows[r]
        if (row.first + row.count) % 2 == 0:
            continue
        for tap_line in range(p.lanes.tap_lines):
            tap_at(w, tap_line * p.lanes.taps, t)
            first, second = meets_line(w, row, t[1]), meets_line(w, row + 1, t[1])
            start = t[1] * w.d[1] * line + t[2] * w.d[2] * w.C
            if first or second:
                pairs.join_tap_pairs(
                    s.joined + (r * p.lanes.tap_lines + tap_line) * p.lanes.pitch,
                    s.block + s.places[r] + start + (row.y[2] + row.count - 1) * w.s[2] * w.C if first else NULL,
                    s.block + s.places[r + 1] + start + (row + 1).y[2] * w.s[2] * w.C if second else NULL, p.lanes.lanes)


cdef void run_tap_pair_tiles(const TapPairs* p, const pair_functions* pairs, int64_t number, int64_t blocks,
                             int64_t row_count, float* sums, TapPairsScratch* s, Ahead* large, Ahead* small) noexcept nogil:
    """`row_count` rows, all lanes, of a chunk."""
    cdef int64_t panel, tap_line, vectors, lane, tiles, tile, m, rows
    cdef const tap_pair* steps
    cdef const int32_t* halves
    cdef float* c
    for panel in range(p.panels):
        lane, vectors = share(p.vectors, p.panels, panel), share(p.vectors, p.panels, panel + 1)
        vectors -= lane
        lane *= DOT_LANES
        tiles = ceiling(row_count, 4 if vectors == 3 else MOST_TAP_ROWS if vectors == 2 else TILE_ROWS)
        for tap_line in range(p.lanes.tap_lines):
            steps = p.steps + (number * p.lanes.tap_lines + tap_line) * (p.chunk // 2)
            halves = p.halves + (number * p.lanes.tap_lines + tap_line) * (p.chunk // HALF_BLOCK)
            for tile in range(tiles):
                m = share(row_count, tiles, tile)
                rows = share(row_count, tiles, tile + 1) - m
                ask_ahead(large)
                ask_ahead(small)
                c = sums + (tap_line * row_count + m) * p.lanes.pitch + lane
                check_room(b"run_tap_pair_tiles", c, 4 * ((rows - 1) * p.lanes.pitch + vectors * DOT_LANES))
                pairs.tap_pairs[rows - 1][vectors - 1](steps, halves, blocks, s.small + m * p.small_pitch, p.small_pitch, s.block + lane,
                                                       c, p.lanes.pitch)


cdef void ask_tap_chunk(const Weights* w, const TapPairs* p, int64_t g, int64_t number, int64_t calls, Ahead* large,
                        Ahead* small) noexcept nogil:
    """The first image of what a thread is likely to lay out next."""
    cdef int64_t first = 0, end = chunk_end(w, p, number, &first) if g < w.G else 0, plane = w.Y[1] * w.Y[2], n = first // plane
    cdef int64_t y = first % plane // w.Y[2], lines = min(w.Y[1] - y, ceiling(end - first, w.Y[2])), x = max(0, y * w.s[1] - w.b[1])
    cdef int64_t x_end = min(w.X[1], (y + lines - 1) * w.s[1] + (w.K[1] - 1) * w.d[1] - w.b[1] + 1)
    cdef int64_t images = min(w.N - n, ceiling(end - first, plane)) if y == 0 else 1, start = x * w.large.x[1]
    cdef int64_t large_count = (x_end - x) * w.large.x[1], small_start = y * w.small.x[1], small_count = lines * w.small.x[1]
    if end <= first or x_end <= x:
        images = 0
    if p.lanes.windows:
        y = first % w.Y[2]
        small_start, small_count = small_start + y, min(end - first, w.Y[2] - y)
        x = y * w.s[2] - w.b[2]
        start += max(0, x)
        large_count = min(w.X[2], x + <int64_t>met_columns(w, small_count)) - max(0, x)
    large[0] = begin_ahead(&w.large, images, w.C, n * w.large.n + g * w.large.g + start, large_count, calls, False)
    small[0] = begin_ahead(&w.small, images, w.M, n * w.small.n + g * w.small.g + small_start, small_count, calls, False)


cdef void run_tap_pairs_task(const Weights* w, const TapPairs* p, const Problem* q, int64_t task, TapPairsScratch* s) noexcept nogil:
    cdef const TapLanes* l = &p.lanes
    cdef int64_t g = task // l.parts, m = share(l.row_tiles, l.parts, task % l.parts) * 4, piece, number, first = 0, end, count, calls
    cdef int64_t m_end = min(w.M, share(l.row_tiles, l.parts, task % l.parts + 1) * 4), row_count, most = w.cut.pieces * p.chunks
    cdef Ahead large, small
    cdef float* sums
    count = l.tap_lines * (m_end - m) * l.pitch
    calls = l.tap_lines * p.panels * ceiling(m_end - m, MOST_TAP_ROWS)
    check_room(b"run_tap_pairs_task", s.sums, 4 * w.cut.pieces * count)
    memset(s.sums, 0, 4 * w.cut.pieces * count)
    for number in range(most):
        end = chunk_end(w, p, number, &first)
        if end <= first:
            continue
        sums = s.sums + number // p.chunks * count
        row_count = cut_rows(w, first, end, s.rows)
        lay_out_tap_chunk(w, p, q.pairs, g, m, m_end, row_count, s)
        ask_tap_chunk(w, p, g if number + 1 < most else g + 1, (number + 1) % most, calls, &large, &small)
        run_tap_pair_tiles(p, q.pairs, number, ceiling(end - first, SUM_BLOCK), m_end - m, sums, s, &large, &small)
    s.unbounded = s.unbounded or not q.isa.finite(s.sums, w.cut.pieces * count)
    join_pieces(s.sums, w.cut.pieces, count, count)
    store_tap_lanes(w, l, q.isa, g, m, m_end, s.sums, &s.lanes)


cdef bint fits_tap_pairs(Problem* q) noexcept nogil:
    if (q.weights == NULL or q.pairs == NULL or on_matrix(q.pairs) or q.weights.cut.chains > 1 or q.isa.width != DOT_LANES
            or q.weights.G == 1 and not wastes_lanes(q.weights, q.isa)):
        return False
    if not plan_tap_pairs(q.weights, q.isa.width, q.threads, &q.tap_pairs):
        return False
    return q.weights.G > 1 or not fits_weights(q)  # in pairs `weights_product` is faster


cdef double tap_pairs_cycles(const Problem* q) noexcept nogil:
    """Of products with whole vectors, and of pairs that are laid out."""
    cdef const Weights* w = q.weights
    cdef const TapPairs* p = &q.tap_pairs
    cdef double products = TAP_PAIRS_JOINED * p.lanes.tap_lines * w.M * p.vectors / 2
    cdef double line = ceiling(w.C, DOT_LANES) * DOT_LANES * ceiling(p.columns, 30) * 30.0  # numbers, as they are transposed
    cdef double moved = TAP_PAIRS_MOVED * w.s[1] * line / min(w.Y[2], p.chunk) * p.lanes.parts
    return (products + moved + TAP_PAIRS_LINE / w.Y[2]) * w.G * p.lanes.positions


cdef void lay_out_tap_pairs(Problem* q, workspace* memory) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef TapPairs* p = &q.tap_pairs
    cdef TapPairsScratch counted
    cdef TapPairsScratch* s
    cdef int worker
    cdef int64_t block = (p.lanes.line * <int64_t>block_lines(w, p.chunk) // TILE_LANES + 2) * TILE_LANES
    p.scratch = <TapPairsScratch*>take(memory, q.threads * sizeof(TapPairsScratch))
    p.steps = <tap_pair*>take(memory, w.cut.pieces * p.chunks * p.lanes.tap_lines * (p.chunk // 2) * sizeof(tap_pair))
    p.halves = <int32_t*>take(memory, 4 * w.cut.pieces * p.chunks * p.lanes.tap_lines * (p.chunk // HALF_BLOCK))
    for worker in range(q.threads):
        s = &p.scratch[worker] if memory.base != NULL else &counted
        s.block = <float*>take(memory, 4 * (block + joined_floats(w, p) + TILE_LANES))
        s.joined = s.block + block
        s.small = <float*>take(memory, 4 * p.small_pitch * w.M)
        s.sums = <float*>take(memory, 4 * w.cut.pieces * p.lanes.sums)
        s.rows = <Row*>take(memory, (most_rows(w, p.chunk) + 1) * sizeof(Row))
        s.places = <int64_t*>take(memory, (most_rows(w, p.chunk) + 1) * sizeof(int64_t))
        s.lanes.stored = <float*>take(memory, 4 * (p.lanes.tap_lines * p.lanes.taps * w.C + q.isa.width))
        s.lanes.spans = <lane_span*>take(memory, p.lanes.tap_lines * sizeof(lane_span))
        s.unbounded, s.smallest_large, s.smallest_small = False, 0xffff, 0xffff


cdef bint run_tap_pairs(Problem* q, workspace* memory) noexcept nogil:
    """Returns false where pairs do not do."""
    cdef const Weights* w = q.weights
    cdef const TapPairs* p = &q.tap_pairs
    cdef TapPairsScratch* scratch = p.scratch
    cdef int64_t tasks = w.G * p.lanes.parts, task, chunks = w.cut.pieces * p.chunks
    cdef uint16_t smallest_large = 0xffff, smallest_small = 0xffff
    cdef bint unbounded = False
    cdef int threads = q.threads, worker
    if threads == 1:
        for task in range(chunks):
            note_steps(w, p, task, scratch)
        for task in range(tasks):
            run_tap_pairs_task(w, p, q, task, scratch)
    else:
        for task in prange(chunks, schedule="static", num_threads=threads):
            note_steps(w, p, task, &scratch[thread_number()])
        for task in prange(tasks, schedule="dynamic", num_threads=threads):
            run_tap_pairs_task(w, p, q, task, &scratch[thread_number()])
    for worker in range(threads):
        smallest_large = min(smallest_large, scratch[worker].smallest_large)
        smallest_small = min(smallest_small, scratch[worker].smallest_small)
        unbounded = unbounded or scratch[worker].unbounded
    return not unbounded and never_subnormal(smallest_large, smallest_small)
