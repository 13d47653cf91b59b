"""Algorithm `weights_chain_lanes`: the sums of `weights_few_channels` with channels of the large side as lanes.

    taps[g,m,c,t] = SUM over n, y   large[n,g,c,y*s - b + t*d] * small[n,g,m,y]

A chain (`core/reduction.h`) takes every REDUCTION_CHAINS-th position of a line.  Where the lanes are positions, a line of 17 takes as
long as one of 32, and sums of many channels leave the registers after each image.  Here a tile is one chain: its rows are the channels
m of the small side, its lanes some channels c of one tap, or where they are few all channels of neighbouring taps, its steps the
positions of the chain in all lines of a piece that are laid out together, as `weights_tap_lanes` lays them out.

A task is a panel of channels of a group in one piece of the reduction.  Where its sums are not finite, something infinite may have met
a zero of the frame: they are computed again, each tap along the positions that it meets.

uses: engine/algorithms.pxi (Problem), engine/costs.pxi (DECODED, NUMBER_MOVED, TAP_MOVED, VECTORS_A_CYCLE),
    engine/weights/few_channels.pxi (store_few_channels), engine/weights/gradient.pxi (Row, Weights, reaches_outside),
    engine/weights/positions.pxi (cut_rows, most_rows, small_offset), engine/weights/sums.pxi (add_sums),
    engine/weights/tap_lanes.pxi (decode_rows, lay_out_chunk), engine/weights/tap_lanes_plan.pxi
gives: ChainLanes, chain_lanes_cycles, fits_chain_lanes, lay_out_chain_lanes, run_chain_lanes
"""

cdef enum:
    CHAIN_LANES = 4             # channels of the large side, at least
    CHAIN_BLOCK_BYTES = 1 << 19 # of the large side: stays in the middle cache
    CHAIN_LINES = 1 << 12       # of taps and planes, at most
    CHAIN_RUN = 12              # multiply-adds as which a run of a few steps counts besides
    CHAIN_MANY_LANES = 96       # channels of the large side: sums of fewer stay near where lanes are positions, which is faster ...
    CHAIN_FEW_LANES = 2         # ... so many times
    CHAIN_ROWS = 3              # channels of the small side: of fewer, other algorithms cost twice their estimate


cdef struct ChainLanesScratch:  # of one thread
    TapLanesScratch large   # what is laid out of the large side, and the decoded small side
    tile_run* runs
    float* sums             # [tap part][chain][m][lane]
    float* exact            # of a tile and one tap
    float* stored           # [m][c][tap], where there is one piece
    lane_span* spans        # of the tap parts


cdef struct ChainLanes:
    TapLanes large          # how lines are laid out
    int64_t vectors         # of the lanes of a line of taps
    int64_t panels          # of channels, or 1 if lanes are the channels of several taps
    int64_t tap_parts       # of a line of taps
    int64_t parts           # ... of all lines
    int64_t most_lanes      # of a tile
    int64_t taps
    int64_t row_tiles
    ChainLanesScratch* scratch
    float* partials         # [group][piece][m][c][tap], where there are several pieces


cdef inline int64_t chain_channel(const Weights* w, const ChainLanes* p, const instruction_set* isa, int64_t panel) noexcept nogil:
    """The first of a panel."""
    return min(w.C, share(ceiling(w.C, isa.width), p.panels, panel) * isa.width)


cdef inline int64_t part_tap(const Weights* w, const ChainLanes* p, int64_t part) noexcept nogil:
    """The first of a part of a line of taps."""
    return share(w.K[2], p.tap_parts, part)


cdef inline int64_t part_vectors(const Weights* w, const ChainLanes* p, const instruction_set* isa, int64_t part) noexcept nogil:
    """Of the lanes of a part of a line of taps."""
    return ceiling((part_tap(w, p, part + 1) - part_tap(w, p, part)) * w.C, isa.width)


cdef inline int64_t most_channels(const Weights* w, const ChainLanes* p) noexcept nogil:
    """Of a panel."""
    return min(w.C, p.most_lanes) if p.panels > 1 else w.C


cdef inline Weights of_channels(const Weights* w, int64_t first, int64_t end) noexcept nogil:
    """The gradient of some channels of the large side."""
    cdef Weights some = w[0]
    some.C = end - first
    some.large.data = <char*>w.large.data + first * w.large.c * element_size(w.large.format)
    return some


cdef bint plan_chain_lanes(const Weights* w, const instruction_set* isa, ChainLanes* p) noexcept nogil:
    cdef TapLanes* l = &p.large
    cdef Weights panel
    cdef int64_t part
    l.positions = w.N * w.Y[0] * w.Y[1] * w.Y[2]
    if l.positions == 0 or w.X[0] * w.X[1] * w.X[2] == 0 or w.C < CHAIN_LANES:
        return False
    p.tap_parts = ceiling(w.K[2], max(1, isa.vectors * isa.width // w.C)) if w.d[2] == 1 else w.K[2]
    p.parts = w.K[0] * w.K[1] * p.tap_parts
    p.vectors, p.panels = 0, 1
    for part in range(p.tap_parts):
        p.vectors += part_vectors(w, p, isa, part)
    if p.tap_parts == w.K[2]:
        p.panels = ceiling(ceiling(w.C, isa.width), isa.vectors)
    p.most_lanes = ceiling(ceiling(ceiling(w.K[2], p.tap_parts) * w.C, isa.width), p.panels) * isa.width
    p.row_tiles = ceiling(w.M, isa.rows)
    l.decoded = w.small.format != NUMBER_FLOAT32 or w.small.x[2] != 1
    l.framed = reaches_outside(w, 2)
    l.windows = False
    panel = of_channels(w, 0, most_channels(w, p))
    # Whole lines, of as few chunks as possible.
    l.chunk = min(l.positions, w.cut.length)
    while block_bytes(&panel, l.chunk) > CHAIN_BLOCK_BYTES and l.chunk > w.Y[2]:
        l.chunk = ceiling(l.chunk // w.Y[2], 2) * w.Y[2]
    if (block_bytes(&panel, l.chunk) > 2 * CHAIN_BLOCK_BYTES or <double>w.K[0] * w.K[1] * w.K[2] > CHAIN_LINES
            or 4.0 * p.parts * REDUCTION_CHAINS * w.M * p.most_lanes > TAP_SUMS_BYTES):
        return False
    p.taps = w.K[0] * w.K[1] * w.K[2]
    l.small_pitch = l.chunk + isa.width
    return True


cdef int64_t chain_runs(const Weights* w, const ChainLanes* p, int64_t g, int64_t t0, int64_t t1, int64_t count, int64_t row_count,
                        ChainLanesScratch* s) noexcept nogil:
    """A run of `count` steps for each line of a chunk that a row of taps meets; where that is 1, one for the lines of each plane.
    They begin at position 0 and at the first tap."""
    cdef int64_t number = 0, r, x0, x1, last = -2
    cdef const Row* row
    check_room(b"chain_runs", s.runs, row_count * sizeof(tile_run))
    for r in range(row_count):
        row = &s.large.rows[r]
        x0 = row.y[0] * w.s[0] + t0 * w.d[0] - w.b[0]
        x1 = row.y[1] * w.s[1] + t1 * w.d[1] - w.b[1]
        if x0 < 0 or x0 >= w.X[0] or x1 < 0 or x1 >= w.X[1]:
            continue
        if count == 1 and last == r - 1 and row.y[1] > 0:
            s.runs[number - 1].steps += 1
        else:
            s.runs[number] = tile_run(row.first if p.large.decoded else small_offset(w, g, row),
                                      s.large.places[r] + t0 * s.large.planes[r] + t1 * w.d[1] * p.large.line, count)
            number += 1
        last = r
    return number


cdef void run_chain(const Weights* w, const ChainLanes* p, const instruction_set* isa, int64_t first, int64_t count, int64_t run_count,
                    int64_t part, int64_t chain, int64_t tap, int64_t taps, bint exact, ChainLanesScratch* s) noexcept nogil:
    """A chain from position `first` of each line on: of the taps from `tap` on that are a part; or if `exact`, of one of them."""
    cdef int64_t width = part_vectors(w, p, isa, part % p.tap_parts) * isa.width, tile, m, rows, i, row_step, lane_step, lane, lanes = taps * w.C
    cdef int64_t channel = p.large.small_pitch if p.large.decoded else w.small.c, vectors = ceiling(lanes, isa.width)
    cdef const float* small = s.large.small if p.large.decoded else <const float*>w.small.data
    cdef const float* large = s.large.block + (first * w.s[2] + tap * w.d[2]) * w.C
    cdef float* sums = s.sums + (part * REDUCTION_CHAINS + chain) * w.M * p.most_lanes
    cdef float* c
    cdef int64_t offsets[TILE_ROWS]
    row_step, lane_step = REDUCTION_CHAINS, REDUCTION_CHAINS * w.s[2] * w.C
    if count == 1:
        row_step, lane_step = w.Y[2] if p.large.decoded else w.small.x[1], w.s[1] * p.large.line
    check_room(b"run_chain", sums, 4 * w.M * width)
    lane = (tap - part_tap(w, p, part % p.tap_parts)) * w.C
    for tile in range(p.row_tiles):
        m = share(w.M, p.row_tiles, tile)
        rows = share(w.M, p.row_tiles, tile + 1) - m
        for i in range(rows):
            offsets[i] = (m + i) * channel
        c = s.exact if exact else sums + m * width
        for i in range(rows if exact else 0):
            memcpy(s.exact + i * vectors * isa.width, sums + (m + i) * width + lane, lanes * sizeof(float))
        isa.strided[rows - 1][vectors - 1](s.runs, run_count, small + first, offsets, row_step, large, lane_step, c, True, NULL)
        for i in range(rows if exact else 0):
            memcpy(sums + (m + i) * width + lane, s.exact + i * vectors * isa.width, lanes * sizeof(float))


cdef void run_chains(const Weights* w, const ChainLanes* p, const instruction_set* isa, int64_t g, int64_t row_count, bint exact,
                     ChainLanesScratch* s) noexcept nogil:
    """All chains of all taps through a chunk; `exact`: each tap by itself, only where it meets the large side."""
    cdef int64_t line, chain, i, tap, end, first, count, planned, run_count, low = 0, high = w.Y[2]
    for line in range(w.K[0] * w.K[1]):
        planned = run_count = 0
        for chain in range(REDUCTION_CHAINS):
            for i in range(p.tap_parts):
                tap, end = part_tap(w, p, i), part_tap(w, p, i + 1)
                while tap < end:
                    if exact:
                        meet_inside(tap * w.d[2] - w.b[2], w.s[2], w.X[2], w.Y[2], &low, &high)
                    first = low + (chain + REDUCTION_CHAINS - low % REDUCTION_CHAINS) % REDUCTION_CHAINS
                    if first < high:
                        count = ceiling(high - first, REDUCTION_CHAINS)
                        if count != planned:
                            planned = count
                            run_count = chain_runs(w, p, g, line // w.K[1], line % w.K[1], count, row_count, s)
                        if run_count > 0:
                            run_chain(w, p, isa, first, count, run_count, line * p.tap_parts + i, chain, tap, 1 if exact else end - tap,
                                      exact, s)
                    tap = tap + 1 if exact else end


cdef void run_chain_piece(const Weights* w, const ChainLanes* p, const instruction_set* isa, int64_t g, int64_t piece, bint exact,
                          ChainLanesScratch* s) noexcept nogil:
    cdef int64_t first = piece_start(&w.cut, piece, p.large.positions), piece_end = piece_start(&w.cut, piece + 1, p.large.positions)
    cdef int64_t end, row_count, count = p.parts * REDUCTION_CHAINS * w.M * p.most_lanes
    check_room(b"run_chain_piece", s.sums, 4 * count)
    memset(s.sums, 0, count * sizeof(float))
    while first < piece_end:
        end = min(piece_end, first + p.large.chunk)
        row_count = cut_rows(w, first, end, s.large.rows)
        lay_out_chunk(w, &p.large, isa, g, row_count, &s.large)
        if p.large.decoded:
            decode_rows(w, &p.large, isa, g, 0, w.M, row_count, &s.large)
        run_chains(w, p, isa, g, row_count, exact, s)
        first = end


cdef void run_chain_lanes_task(const Weights* w, const ChainLanes* p, const instruction_set* isa, int64_t task,
                               ChainLanesScratch* s) noexcept nogil:
    cdef int64_t panel = task % p.panels, piece = task // p.panels % w.cut.pieces, g = task // p.panels // w.cut.pieces
    cdef int64_t channel = chain_channel(w, p, isa, panel), channels = chain_channel(w, p, isa, panel + 1) - channel
    cdef int64_t part, i, m, half, row = channels * p.taps, chain
    cdef Weights some = of_channels(w, channel, channel + channels)
    cdef ChainLanes of_panel = p[0]
    cdef float* sums
    cdef float* place = s.stored
    of_panel.large.line = <int64_t>met_columns(w, w.Y[2]) * channels
    if p.panels > 1:
        of_panel.most_lanes = ceiling(channels, isa.width) * isa.width
    chain = w.M * of_panel.most_lanes
    run_chain_piece(&some, &of_panel, isa, g, piece, False, s)
    if p.large.framed and not isa.finite(s.sums, p.parts * REDUCTION_CHAINS * chain):
        run_chain_piece(&some, &of_panel, isa, g, piece, True, s)
    for part in range(p.parts):
        sums = s.sums + part * REDUCTION_CHAINS * chain
        half = REDUCTION_CHAINS // 2
        while half > 0:
            add_sums(sums, sums + half * chain, half * chain)
            half //= 2
    if w.cut.pieces > 1:
        place, row = p.partials + ((g * w.cut.pieces + piece) * w.M * w.C + channel) * p.taps, w.C * p.taps
    check_room(b"run_chain_lanes_task", place, 4 * ((w.M - 1) * row + channels * p.taps))
    check_room(b"run_chain_lanes_task", s.spans, p.parts * sizeof(lane_span))
    for m in range(w.M):
        for part in range(p.parts):
            i = part % p.tap_parts
            s.spans[part] = lane_span(part // p.tap_parts * w.K[2] + part_tap(w, p, i), part_tap(w, p, i + 1) - part_tap(w, p, i),
                                      part * REDUCTION_CHAINS * chain + m * part_vectors(&some, p, isa, i) * isa.width, channels)
        isa.gather(place + m * row, p.taps, channels, s.sums, NUMBER_FLOAT32, 1, s.spans, p.parts)
    if w.cut.pieces == 1:
        store_few_channels(w, p.taps, 1, isa, g, channel, channels, s.stored)


cdef bint fits_chain_lanes(Problem* q) noexcept nogil:
    if q.weights == NULL or q.weights.large.format == NUMBER_FLOAT64 or q.weights.cut.chains == 1:
        return False
    return plan_chain_lanes(q.weights, q.isa, &q.chain_lanes)


cdef double chain_lanes_cycles(const Problem* q) noexcept nogil:
    """Of products, runs, and both sides laid out."""
    cdef const Weights* w = q.weights
    cdef const ChainLanes* p = &q.chain_lanes
    cdef double tiles = <double>p.panels * p.tap_parts * p.row_tiles, loads = w.M * p.panels * p.tap_parts + p.vectors * p.row_tiles
    cdef double products = max(max(<double>w.M * p.vectors, loads), 4 * VECTORS_A_CYCLE * tiles)
    if w.Y[2] > REDUCTION_CHAINS:
        products += tiles * CHAIN_RUN / ceiling(w.Y[2], REDUCTION_CHAINS)
    if w.C < CHAIN_MANY_LANES:
        products *= CHAIN_FEW_LANES
    if w.M < CHAIN_ROWS:
        products /= 2
    return w.G * p.large.positions * (w.K[0] * w.K[1] * products / VECTORS_A_CYCLE + TAP_MOVED * w.C * w.K[0] * w.s[1] * w.s[2]
                                      + (NUMBER_MOVED + DECODED if p.large.decoded else 0) * w.M * p.panels)


cdef void lay_out_chain_lanes(Problem* q, workspace* memory) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef ChainLanes* p = &q.chain_lanes
    cdef ChainLanesScratch counted
    cdef ChainLanesScratch* s
    cdef int64_t rows = most_rows(w, p.large.chunk) + 1, count = w.M * p.parts * p.most_lanes
    cdef int worker
    p.scratch = <ChainLanesScratch*>take(memory, q.threads * sizeof(ChainLanesScratch))
    for worker in range(q.threads):
        s = &p.scratch[worker] if memory.base != NULL else &counted
        s.large.block = <float*>take(memory, 4 * (<int64_t>(block_lines(w, p.large.chunk) * met_columns(w, w.Y[2])) * most_channels(w, p)
                                                  + (q.isa.vectors + 1) * q.isa.width))
        s.large.small = <float*>take(memory, 4 * (p.large.small_pitch * w.M + q.isa.width) if p.large.decoded else 0)
        s.large.padded = <float*>take(memory, 4 * (PADDED_STEPS * ceiling(most_channels(w, p), q.isa.width) + 1) * q.isa.width)
        s.large.rows = <Row*>take(memory, rows * sizeof(Row))
        s.large.places = <int64_t*>take(memory, rows * sizeof(int64_t))
        s.large.planes = <int64_t*>take(memory, rows * sizeof(int64_t))
        s.runs = <tile_run*>take(memory, rows * sizeof(tile_run))
        s.sums = <float*>take(memory, 4 * REDUCTION_CHAINS * count)
        s.exact = <float*>take(memory, 4 * TILE_ROWS * p.most_lanes)
        s.stored = <float*>take(memory, 4 * (w.M * p.taps * most_channels(w, p) + q.isa.width) if w.cut.pieces == 1 else 0)
        s.spans = <lane_span*>take(memory, p.parts * sizeof(lane_span))
    p.partials = <float*>take(memory, 4 * w.G * w.cut.pieces * w.M * w.C * p.taps if w.cut.pieces > 1 else 0)


cdef bint run_chain_lanes(Problem* q, workspace* memory) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef const ChainLanes* p = &q.chain_lanes
    cdef ChainLanesScratch* scratch = p.scratch
    cdef int64_t tasks = w.G * w.cut.pieces * p.panels, count = w.M * w.C * p.taps, task
    if q.threads == 1:
        for task in range(tasks):
            run_chain_lanes_task(w, p, q.isa, task, scratch)
    else:
        for task in prange(tasks, schedule="dynamic", num_threads=q.threads):
            run_chain_lanes_task(w, p, q.isa, task, &scratch[thread_number()])
    if w.cut.pieces > 1:
        for task in prange(w.G, schedule="static", num_threads=q.threads):
            store_few_channels(w, p.taps, w.cut.pieces, q.isa, task, 0, w.C, p.partials + task * w.cut.pieces * count)
    return True
