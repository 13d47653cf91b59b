"""backward_weights as a product over batch and space.

    taps[g,m,c,t] = SUM over n, y   large[n,g,c,y*s - b + t*d] * small[n,g,m,y]

Lanes of the product are the channels m of the small side, rows are (t, c), its reduction is (n, y), cut into pieces by
`reduction.h`.  A task takes some lanes and rows of one piece.  It packs a few hundred positions of the small side into
lane panels, [position][m], and runs all its row tiles over them.  The rows need no packing where the large side holds
floats: each tap walks the large side where it lies, along those runs of positions that it meets inside.  Tiles that mix
taps (few channels) and stored numbers other than floats go through a block of the large side, decoded and framed with
zeros, that is laid out beforehand.  The sums of each piece wait in memory, are added in the fixed tree and stored.
"""

cdef enum:
    LANE_FLOATS = 9216          # of a lane panel: fits the nearest cache
    LANES_BYTES = 1 << 19       # all lane panels of a task
    FRAME_BYTES = 1 << 18       # the framed block of the large side
    NEAR_SUMS_BYTES = 3 << 17   # sums of a task
    PARTIAL_BYTES = 48 << 20    # partial sums of all pieces


cdef struct Weights:  # taps[g,m,c,t] = SUM over n, y  large[n,g,c,y*s - b + t*d] * small[n,g,m,y]
    int64_t N
    int64_t G
    int64_t C
    int64_t M
    int64_t X[3]
    int64_t Y[3]
    int64_t K[3]
    int64_t s[3]
    int64_t d[3]
    int64_t b[3]
    Operand large
    Operand small
    void* taps
    int taps_format
    int64_t taps_stride[6]   # g, m, c, t0, t1, t2


cdef struct WeightsPlan:
    reduction_cut cut
    int64_t positions      # of the reduction
    bint framed            # rows come from a framed block
    bint mixed             # row tiles mix taps
    bint padded            # some tap meets a position outside
    int64_t taps
    int64_t tap_tiles      # row tiles of one tap, unless mixed
    int64_t row_tiles
    int64_t vectors        # of the lanes
    int64_t panels
    int64_t chunk          # positions packed at a time
    int64_t row_parts
    int64_t panel_parts
    int64_t tile_floats
    int64_t extent         # of the framed block: x2 ...
    int64_t row_floats     # ... [t0][t1][x2] of one row of a chunk
    int64_t channel_floats # ... of all its rows
    int64_t channels       # ... how many
    int64_t* tap_offsets   # in the result


cdef struct Row:  # positions of the small side that differ in the innermost axis only
    int64_t n
    int64_t y[3]
    int64_t count
    int64_t first          # place in the chunk


cdef struct WeightsScratch:  # of one thread
    float* lanes
    float* block
    Row* rows
    tile_run* runs


cdef inline bint reaches_outside(const Weights* w, int axis) noexcept nogil:
    return w.b[axis] > 0 or (w.Y[axis] - 1) * w.s[axis] - w.b[axis] + (w.K[axis] - 1) * w.d[axis] >= w.X[axis] \
        or (w.Y[axis] - 1) * w.s[axis] - w.b[axis] >= w.X[axis] or -w.b[axis] + (w.K[axis] - 1) * w.d[axis] < 0


cdef void tap_at(const Weights* w, int64_t tap, int64_t* t) noexcept nogil:
    t[2] = tap % w.K[2]
    t[1] = tap // w.K[2] % w.K[1]
    t[0] = tap // (w.K[2] * w.K[1])


# ---------------------------------------------------------------------------------------------------------------------
# The positions of a chunk


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


cdef void pack_lanes(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t first_panel,
                     int64_t end_panel, const Row* rows, int64_t row_count, float* lanes) noexcept nogil:
    """Panels [position][m] of the small side."""
    cdef int64_t r, panel, offset, next_offset = 0, start = 0, count = 0, m, lane_count
    cdef lane_span span
    cdef const Row* row
    for r in range(row_count + 1):
        # Rows that go on where the last one ended are packed as one.
        if r < row_count:
            row = &rows[r]
            offset = (row.n * w.small.n + g * w.small.g + row.y[0] * w.small.x[0] + row.y[1] * w.small.x[1]
                      + row.y[2] * w.small.x[2])
            if count > 0 and offset == next_offset:
                count += row.count
                next_offset += row.count * w.small.x[2]
                continue
        if count > 0:
            for panel in range(first_panel, end_panel):
                m = share(plan.vectors, plan.panels, panel) * isa.width
                lane_count = min(w.M, share(plan.vectors, plan.panels, panel + 1) * isa.width) - m
                span = lane_span(0, lane_count, next_offset - count * w.small.x[2] + m * w.small.c, w.small.c)
                isa.gather(lanes + (panel - first_panel) * panel_floats(plan, isa) + start * isa.vectors * isa.width,
                           isa.vectors * isa.width, count, w.small.data, w.small.format, w.small.x[2], &span, 1)
        if r < row_count:
            start, count, next_offset = row.first, row.count, offset + row.count * w.small.x[2]


cdef inline int64_t panel_floats(const WeightsPlan* plan, const instruction_set* isa) noexcept nogil:
    return plan.chunk * isa.vectors * isa.width + isa.width


cdef int64_t tap_runs(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, const int64_t* t,
                      const Row* rows, int64_t row_count, tile_run* runs) noexcept nogil:
    """Runs of the positions that tap `t` (NULL: all, inside or not) meets inside; their rows are addressed relative to
    tap 0 of channel 0."""
    cdef int64_t number = 0, r, x0, x1, x2, low, high, base, step = row_step(w, plan), pitch = isa.vectors * isa.width
    cdef const Row* row
    cdef tile_run* run
    for r in range(row_count):
        row = &rows[r]
        low = 0
        high = row.count
        if t != NULL:
            x0 = row.y[0] * w.s[0] - w.b[0] + t[0] * w.d[0]
            x1 = row.y[1] * w.s[1] - w.b[1] + t[1] * w.d[1]
            x2 = row.y[2] * w.s[2] - w.b[2] + t[2] * w.d[2]
            if x0 < 0 or x0 >= w.X[0] or x1 < 0 or x1 >= w.X[1] or x2 >= w.X[2]:
                continue
            if x2 < 0:
                low = ceiling(-x2, w.s[2])
            high = min(high, (w.X[2] - 1 - x2) // w.s[2] + 1)
            if low >= high:
                continue
        if plan.framed:
            base = r * plan.row_floats
        else:
            base = (row.n * w.large.n + g * w.large.g + (row.y[0] * w.s[0] - w.b[0]) * w.large.x[0]
                    + (row.y[1] * w.s[1] - w.b[1]) * w.large.x[1] + (row.y[2] * w.s[2] - w.b[2]) * w.large.x[2])
        base += low * step
        run = &runs[number - 1]
        if number > 0 and run.rows + run.steps * step == base and run.lanes + run.steps * pitch == (row.first + low) * pitch:
            run.steps += high - low
        else:
            runs[number] = tile_run(base, (row.first + low) * pitch, high - low)
            number += 1
    return number


cdef inline int64_t row_step(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    return w.s[2] if plan.framed else w.s[2] * w.large.x[2]


cdef inline const char* large_at(const Weights* w, int64_t offset) noexcept nogil:
    return <const char*>w.large.data + offset * element_size(w.large.format)


cdef void frame_rows(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t channel, int64_t channels,
                     const Row* rows, int64_t row_count, float* block) noexcept nogil:
    """[channel][row][t0][t1][x2]: the large side as floats, zeros outside."""
    cdef int64_t r, t0, t1, x0, x1, x2, lane, low, high, width, number
    cdef lane_span spans[3]
    cdef const Row* row
    cdef float* place
    for r in range(row_count):
        row = &rows[r]
        for t0 in range(w.K[0]):
            for t1 in range(w.K[1]):
                x0 = row.y[0] * w.s[0] - w.b[0] + t0 * w.d[0]
                x1 = row.y[1] * w.s[1] - w.b[1] + t1 * w.d[1]
                place = block + r * plan.row_floats + (t0 * w.K[1] + t1) * plan.extent
                lane = 0
                while lane < plan.extent:
                    width = min(plan.extent - lane, TILE_LANES)
                    x2 = row.y[2] * w.s[2] - w.b[2] + lane
                    low = high = 0
                    if 0 <= x0 < w.X[0] and 0 <= x1 < w.X[1]:
                        low = min(width, max(0, -x2))
                        high = max(low, min(width, w.X[2] - x2))
                    number = 0
                    if low > 0:
                        spans[number] = lane_span(0, low, NO_ELEMENT, 0)
                        number += 1
                    if high > low:
                        spans[number] = lane_span(low, high - low, row.n * w.large.n + g * w.large.g + x0 * w.large.x[0]
                                                  + x1 * w.large.x[1] + (x2 + low) * w.large.x[2], w.large.x[2])
                        number += 1
                    if high < width:
                        spans[number] = lane_span(high, width - high, NO_ELEMENT, 0)
                        number += 1
                    isa.gather(place + lane, plan.channel_floats, channels, large_at(w, channel * w.large.c), w.large.format,
                               w.large.c, spans, number)
                    lane += width


# ---------------------------------------------------------------------------------------------------------------------
# One task


cdef void row_offsets(const Weights* w, const WeightsPlan* plan, int64_t first, int64_t rows, int64_t channel, int64_t* offsets) noexcept nogil:
    """Where rows first, first + 1, ... of (t, c) lie, relative to tap 0 of channel 0 (of `channel` in a framed block)."""
    cdef int64_t i
    cdef int64_t t[3]
    for i in range(rows):
        tap_at(w, (first + i) // w.C, t)
        if plan.framed:
            offsets[i] = (((first + i) % w.C - channel) * plan.channel_floats + (t[0] * w.K[1] + t[1]) * plan.extent
                          + t[2] * w.d[2])
        else:
            offsets[i] = ((first + i) % w.C * w.large.c + t[0] * w.d[0] * w.large.x[0] + t[1] * w.d[1] * w.large.x[1]
                          + t[2] * w.d[2] * w.large.x[2])


cdef inline int64_t tile_start(const Weights* w, const WeightsPlan* plan, int64_t tile) noexcept nogil:
    """The first row (t, c) of a row tile."""
    if plan.mixed:
        return share(w.C * plan.taps, plan.row_tiles, tile)
    return tile // plan.tap_tiles * w.C + share(w.C, plan.tap_tiles, tile % plan.tap_tiles)


cdef void run_tile(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t tile, int64_t first_panel,
                   int64_t end_panel, int64_t channel, WeightsScratch* s, int64_t row_count, const tile_run* runs, int64_t run_count,
                   bint one_by_one, float* sums, bint resume) noexcept nogil:
    """One row tile against all lane panels of a task; `one_by_one`: each row along the runs of its own tap."""
    cdef int64_t first = tile_start(w, plan, tile), rows = tile_start(w, plan, tile + 1) - first, panel, vectors, i
    cdef int64_t offsets[TILE_ROWS]
    cdef int64_t t[3]
    cdef const float* source = s.block if plan.framed else <const float*>w.large.data
    cdef float* c
    row_offsets(w, plan, first, rows, channel, offsets)
    for i in range(rows if one_by_one else 1):
        if one_by_one:
            tap_at(w, (first + i) // w.C, t)
            run_count = tap_runs(w, plan, isa, g, t, s.rows, row_count, s.runs)
            runs = s.runs
        for panel in range(first_panel, end_panel):
            vectors = share(plan.vectors, plan.panels, panel + 1) - share(plan.vectors, plan.panels, panel)
            c = sums + (tile * plan.panels + panel) * plan.tile_floats + i * vectors * isa.width
            isa.strided[0 if one_by_one else rows - 1][vectors - 1](
                runs, run_count, source, offsets + i, row_step(w, plan),
                s.lanes + (panel - first_panel) * panel_floats(plan, isa), isa.vectors * isa.width, c, resume)


cdef void run_weights_task(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t piece, int64_t first_tile,
                   int64_t end_tile, int64_t first_panel, int64_t end_panel, float* sums, WeightsScratch* s) noexcept nogil:
    """Row tiles and lane panels of one piece of one group, into sums[tile][panel]."""
    cdef int64_t first = min(plan.positions, piece * plan.cut.length), end, row_count, run_count, tap, tile, channel = 0, channels
    cdef int64_t piece_end = min(plan.positions, (piece + 1) * plan.cut.length), tap_end, c0, c1
    cdef int64_t t[3]
    cdef bint resume = False, one_by_one
    memset(s.lanes, 0, 4 * (end_panel - first_panel) * panel_floats(plan, isa))
    while True:
        end = min(piece_end, first + plan.chunk)
        row_count = cut_rows(w, first, end, s.rows)
        pack_lanes(w, plan, isa, g, first_panel, end_panel, s.rows, row_count, s.lanes)
        if plan.mixed:
            frame_rows(w, plan, isa, g, 0, w.C, s.rows, row_count, s.block)
            run_count = tap_runs(w, plan, isa, g, NULL, s.rows, row_count, s.runs)
            one_by_one = plan.padded and not isa.finite(s.lanes, (end_panel - first_panel) * panel_floats(plan, isa))
            for tile in range(first_tile, end_tile):
                run_tile(w, plan, isa, g, tile, first_panel, end_panel, 0, s, row_count, s.runs, run_count, one_by_one, sums, resume)
        else:
            c0 = 0
            while c0 < plan.tap_tiles:  # channels in blocks where they are framed
                c1 = min(plan.tap_tiles, c0 + plan.channels)
                if plan.framed:
                    channel = share(w.C, plan.tap_tiles, c0)
                    channels = share(w.C, plan.tap_tiles, c1) - channel
                    frame_rows(w, plan, isa, g, channel, channels, s.rows, row_count, s.block)
                for tap in range(first_tile // plan.tap_tiles, ceiling(end_tile, plan.tap_tiles)):
                    tap_at(w, tap, t)
                    run_count = tap_runs(w, plan, isa, g, t, s.rows, row_count, s.runs)
                    if run_count > 0 or not resume:
                        for tile in range(max(first_tile, tap * plan.tap_tiles + c0), min(end_tile, tap * plan.tap_tiles + c1)):
                            run_tile(w, plan, isa, g, tile, first_panel, end_panel, channel, s, row_count, s.runs, run_count,
                                     False, sums, resume)
                c0 = c1
        first = end
        resume = True
        if first >= piece_end:
            return


# ---------------------------------------------------------------------------------------------------------------------
# The end: add the pieces, store


cdef void add_pieces(const WeightsPlan* plan, float* c, int64_t piece_floats, int64_t count) noexcept nogil:
    """The fixed tree over the pieces of one tile, into the first."""
    cdef int64_t step = 1, i, j
    cdef float* left
    cdef const float* right
    while step < plan.cut.pieces:
        i = 0
        while i + step < plan.cut.pieces:
            left = c + i * piece_floats
            right = left + step * piece_floats
            for j in range(count):
                left[j] = left[j] + right[j]
            i += 2 * step
        step *= 2


cdef void store_strand(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t strand,
                       int64_t panel, float* sums, int64_t piece_floats) noexcept nogil:
    """One lane panel of the row tiles of all taps that share channels: neighbours in the result are stored together."""
    cdef int64_t vectors = share(plan.vectors, plan.panels, panel + 1) - share(plan.vectors, plan.panels, panel)
    cdef int64_t m = share(plan.vectors, plan.panels, panel) * isa.width, pitch = vectors * isa.width, tile, first, rows, i
    cdef int64_t start = g * w.taps_stride[0] + m * w.taps_stride[1], step = plan.tap_tiles * plan.panels * plan.tile_floats
    cdef char* target = <char*>w.taps
    cdef float* c = sums + (strand * plan.panels + panel) * plan.tile_floats
    cdef lane_span span = lane_span(0, min(w.M, m + pitch) - m, 0, w.taps_stride[1])
    if plan.mixed or w.taps_stride[1] == 1:
        tile = strand
        while tile < plan.row_tiles:
            first = tile_start(w, plan, tile)
            rows = tile_start(w, plan, tile + 1) - first
            c = sums + (tile * plan.panels + panel) * plan.tile_floats
            add_pieces(plan, c, piece_floats, rows * pitch)
            for i in range(rows):
                span.offset = start + (first + i) % w.C * w.taps_stride[2] + plan.tap_offsets[(first + i) // w.C]
                isa.scatter(c + i * pitch, 0, 1, target, w.taps_format, 0, &span, 1, NULL)
            tile += 1 if plan.mixed else plan.tap_tiles
        return
    first = tile_start(w, plan, strand)
    rows = tile_start(w, plan, strand + 1) - first
    for i in range(plan.taps):
        add_pieces(plan, c + i * step, piece_floats, rows * pitch)
    isa.scatter_taps(c, step, pitch, rows, span.count,
                     target + (start + first * w.taps_stride[2]) * element_size(w.taps_format), w.taps_format,
                     w.taps_stride[1], w.taps_stride[2], plan.tap_offsets, plan.taps)


# ---------------------------------------------------------------------------------------------------------------------
# The whole


cdef void make_plan(const Weights* w, const instruction_set* isa, int threads, WeightsPlan* plan) noexcept nogil:
    cdef int64_t axis, tasks, lane_width
    plan.positions = w.N * w.Y[0] * w.Y[1] * w.Y[2]
    plan.taps = w.K[0] * w.K[1] * w.K[2]
    plan.cut = cut_reduction(plan.positions, w.Y[2], w.M, w.G * w.M * w.C * plan.taps)
    plan.mixed = w.C < isa.rows and plan.taps > 1
    plan.framed = plan.mixed or w.large.format != NUMBER_FLOAT32
    plan.padded = False
    for axis in range(3):
        if reaches_outside(w, axis):
            plan.padded = True
    plan.tap_tiles = ceiling(w.C, isa.rows)
    plan.row_tiles = ceiling(w.C * plan.taps, isa.rows) if plan.mixed else plan.taps * plan.tap_tiles
    plan.vectors = ceiling(w.M, isa.width)
    plan.panels = ceiling(plan.vectors, isa.vectors)
    plan.tile_floats = isa.rows * isa.vectors * isa.width
    lane_width = ceiling(plan.vectors, plan.panels) * isa.width
    plan.chunk = max(1, min(plan.cut.length, LANE_FLOATS // lane_width))
    while True:
        plan.extent = (min(plan.chunk, w.Y[2]) - 1) * w.s[2] + (w.K[2] - 1) * w.d[2] + 1
        plan.row_floats = w.K[0] * w.K[1] * plan.extent
        plan.channel_floats = (plan.chunk // w.Y[2] + 2) * plan.row_floats + isa.width
        if not plan.framed or plan.chunk == 1 or plan.channel_floats * 4 * min(w.C, isa.rows) <= 8 * FRAME_BYTES:
            break
        plan.chunk = (plan.chunk + 1) // 2
    plan.channels = plan.tap_tiles  # in tiles
    if plan.framed and not plan.mixed:
        plan.channels = max(1, FRAME_BYTES // (4 * plan.channel_floats * isa.rows))
    # Enough tasks for the threads: lanes apart first, which shares no packing.
    plan.panel_parts = max(1, ceiling(4 * plan.panels * panel_floats(plan, isa), LANES_BYTES))
    plan.row_parts = 1
    if threads > 1:
        tasks = w.G * plan.cut.pieces
        if tasks < 4 * threads:
            plan.panel_parts = min(plan.panels, max(plan.panel_parts, ceiling(4 * threads, tasks)))
        tasks *= plan.panel_parts
        if tasks < 4 * threads:
            plan.row_parts = min(plan.row_tiles, ceiling(4 * threads, tasks))
    plan.panel_parts = min(plan.panel_parts, plan.panels)
    if plan.cut.length > plan.chunk:  # the sums of a task are met once a chunk: they should be near
        plan.row_parts = max(plan.row_parts, ceiling(
            4 * plan.row_tiles * ceiling(plan.panels, plan.panel_parts) * plan.tile_floats, NEAR_SUMS_BYTES))
    plan.row_parts = min(plan.row_parts, plan.row_tiles)


cdef int64_t lay_out_weights(WeightsScratch* s, const Weights* w, const WeightsPlan* plan, const instruction_set* isa, char* space) noexcept nogil:
    cdef char* start = space
    s.lanes = <float*>take(&space, 4 * ceiling(plan.panels, plan.panel_parts) * panel_floats(plan, isa) + 64)
    s.block = NULL
    if plan.framed:
        s.block = <float*>take(&space, 4 * plan.channel_floats * min(w.C, plan.channels * isa.rows) + 64)
    s.rows = <Row*>take(&space, (plan.chunk + 1) * sizeof(Row))
    s.runs = <tile_run*>take(&space, (plan.chunk + 1) * sizeof(tile_run))
    return space - start


cdef void run_numbered(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t first_group, int64_t task,
                       float* sums, int64_t piece_floats, WeightsScratch* s) noexcept nogil:
    cdef int64_t rest = task, panel_part, row_part, piece
    panel_part = rest % plan.panel_parts
    rest = rest // plan.panel_parts
    row_part = rest % plan.row_parts
    rest = rest // plan.row_parts
    piece = rest % plan.cut.pieces
    rest = rest // plan.cut.pieces
    run_weights_task(w, plan, isa, first_group + rest, piece,
             share(plan.row_tiles, plan.row_parts, row_part), share(plan.row_tiles, plan.row_parts, row_part + 1),
             share(plan.panels, plan.panel_parts, panel_part), share(plan.panels, plan.panel_parts, panel_part + 1),
             sums + (rest * plan.cut.pieces + piece) * piece_floats, s)


cdef int run_weights(Weights* w, int threads) except -1 nogil:
    cdef const instruction_set* isa = current
    cdef WeightsPlan plan
    cdef WeightsScratch layout
    cdef WeightsScratch* scratch
    cdef int64_t size, piece_floats, groups, first_group, count, tasks, task, strands
    cdef int64_t t[3]
    cdef int worker
    cdef float* sums
    cdef char* space
    cdef char* aligned
    threads = team_for(<double>w.N * w.Y[0] * w.Y[1] * w.Y[2] * w.G * w.M * w.C * w.K[0] * w.K[1] * w.K[2], threads)
    make_plan(w, isa, threads, &plan)
    piece_floats = plan.row_tiles * plan.panels * plan.tile_floats
    groups = min(w.G, max(1, <int64_t>PARTIAL_BYTES // (4 * plan.cut.pieces * piece_floats)))
    size = lay_out_weights(&layout, w, &plan, isa, NULL)
    space = take_workspace(4 * groups * plan.cut.pieces * piece_floats + threads * size + threads * sizeof(WeightsScratch) + 192
                           + plan.taps * sizeof(int64_t))
    if space == NULL:
        with gil:
            raise MemoryError
    aligned = space
    scratch = <WeightsScratch*>take(&aligned, threads * sizeof(WeightsScratch))
    for worker in range(threads):
        aligned += lay_out_weights(&scratch[worker], w, &plan, isa, aligned)
    plan.tap_offsets = <int64_t*>take(&aligned, plan.taps * sizeof(int64_t))
    for task in range(plan.taps):
        tap_at(w, task, t)
        plan.tap_offsets[task] = t[0] * w.taps_stride[3] + t[1] * w.taps_stride[4] + t[2] * w.taps_stride[5]
    sums = <float*>aligned
    first_group = 0
    while first_group < w.G:
        count = min(groups, w.G - first_group)
        tasks = count * plan.cut.pieces * plan.row_parts * plan.panel_parts
        if threads == 1:
            for task in range(tasks):
                run_numbered(w, &plan, isa, first_group, task, sums, piece_floats, scratch)
        else:
            for task in prange(tasks, schedule="dynamic", num_threads=threads):
                run_numbered(w, &plan, isa, first_group, task, sums, piece_floats, &scratch[thread_number()])
        strands = 1 if plan.mixed else plan.tap_tiles
        tasks = count * strands * plan.panels
        if threads == 1:
            for task in range(tasks):
                store_strand(w, &plan, isa, first_group + task // plan.panels // strands, task // plan.panels % strands,
                             task % plan.panels, sums + task // plan.panels // strands * plan.cut.pieces * piece_floats,
                             piece_floats)
        else:
            for task in prange(tasks, schedule="dynamic", num_threads=threads):
                store_strand(w, &plan, isa, first_group + task // plan.panels // strands, task // plan.panels % strands,
                             task % plan.panels, sums + task // plan.panels // strands * plan.cut.pieces * piece_floats,
                             piece_floats)
        first_group += count
    return_workspace(space)
    return 0
