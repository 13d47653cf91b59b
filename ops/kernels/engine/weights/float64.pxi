"""Algorithm `weights_float64`: `backward_weights` in float64, as a product, or with few channels in the small side as dot
products along lines.

Rows of the result are (t, c), as many of one tap as a tile holds; its lanes are the channels m of the small side.  A task sums
some rows and lanes over a block of pieces that follow one another.  Their number is a power of two, so they are a subtree of
the tree in `core/reduction.h`.  A task that has all pieces stores; others wait to be joined.
With many channels, tiles read the large side where it lies, from the positions that a tap meets inside.  With few, a row is a
single (t, c), and the lines it meets are laid out, zeros outside, which is the same where the small side is finite.

uses: engine/algorithms.pxi (Problem), engine/product/float64.pxi (DOUBLE_STEPS, copy_doubles, double_pitch,
    not_finite), engine/weights/gradient.pxi (Reach, Row, Weights, reaches_outside, tap_at),
    engine/weights/positions.pxi (cut_rows, inside_of, reach_of, small_offset), engine/weights/sums.pxi (add_sums,
    join_pieces)
gives: DoublesPlan, fits_double_weights, lay_out_double_weights, run_double_weights
"""

cdef enum:
    DOUBLE_LANE_PANELS = 16         # of a task, at most
    DOUBLE_FEW_ROWS = 64            # of a task with few channels, at most
    DOUBLE_LINE = 512               # positions laid out at a time there: all lines of them fit the nearest cache
    DOUBLE_LEVELS_BYTES = 4 << 20   # sums of a task, while its pieces are joined
    DOUBLE_WAITING_BYTES = 1 << 20  # sums of blocks that wait, for a thread


cdef struct DoubleWeightsScratch:  # of one thread
    double* sums          # of all levels
    double* lanes         # lane panels [position][m]; few: lines of the small side [m]
    double* large         # few: lines of the large side
    double* chains        # few: [row][m]
    Row* rows
    tile_run* runs


cdef struct DoublesPlan:
    reduction_cut cut
    bint few
    bint padded           # some tap meets a position outside
    int64_t positions
    int64_t taps
    int64_t heights       # rows of the result of a tap, cut into tiles
    int64_t tiles         # ... of all taps
    int64_t lane_width    # lanes of a vector
    int64_t pitch         # ... of a full tile
    int64_t tile_doubles
    int64_t vectors
    int64_t panels
    int64_t row_parts
    int64_t panel_parts
    int64_t levels        # 2**levels pieces are a block
    int64_t blocks
    int64_t part_doubles  # sums of a task
    int64_t tasks
    double* waiting       # sums of all tasks, where there are several blocks
    bint unbounded        # something infinite or NaN may meet a position outside
    DoubleWeightsScratch* scratch


cdef struct DoublesPart:
    int64_t g
    int64_t first_tile
    int64_t end_tile
    int64_t first_panel
    int64_t end_panel


cdef inline int64_t double_lane(const Weights* w, const DoublesPlan* plan, int64_t panel) noexcept nogil:
    """The first of a lane panel."""
    return min(w.M, share(plan.vectors, plan.panels, panel) * plan.lane_width)


cdef inline int64_t double_row(const Weights* w, const DoublesPlan* plan, int64_t tile) noexcept nogil:
    """The first channel of a row tile; for the one that follows it, where it ends."""
    return share(w.C, plan.heights, tile)


cdef inline const double* small_doubles(const Weights* w, int64_t g, int64_t m, const Row* row) noexcept nogil:
    return <const double*>w.small.data + small_offset(w, g, row) + m * w.small.c


cdef inline int64_t large_offset(const Weights* w, int64_t g, const Row* row, const int64_t* x) noexcept nogil:
    return row.n * w.large.n + g * w.large.g + x[0] * w.large.x[0] + x[1] * w.large.x[1] + x[2] * w.large.x[2]


cdef int64_t double_runs(const Weights* w, const DoublesPlan* plan, int64_t g, int64_t tap, const Row* rows, int64_t row_count,
                         tile_run* runs) noexcept nogil:
    """Runs of the positions that a tap meets inside, their rows addressed in channel 0."""
    cdef int64_t x[3]
    cdef int64_t number = 0, r, low, high, base, place, step = w.s[2] * w.large.x[2]
    cdef Reach reach
    cdef tile_run* run
    reach_of(w, tap, &reach)
    check_room(b"double_runs", runs, row_count * sizeof(tile_run))
    for r in range(row_count):
        if inside_of(w, &reach, &rows[r], &low, &high, x):
            base, place = large_offset(w, g, &rows[r], x), (rows[r].first + low) * plan.pitch
            run = &runs[number - 1]
            if number > 0 and run.rows + run.steps * step == base and run.lanes + run.steps * plan.pitch == place:
                run.steps += high - low
            else:
                runs[number] = tile_run(base, place, high - low)
                number += 1
    return number


cdef void sum_tiles(const Weights* w, const DoublesPlan* plan, const instruction_set* isa, const DoublesPart* part, int64_t first,
                    int64_t end, double* sums, DoubleWeightsScratch* s) noexcept nogil:
    """Positions [first, end) of a part."""
    cdef int64_t row_count = cut_rows(w, first, end, s.rows), run_count = 0, r, m, k, lane, tile, panel, lanes, channel, i
    cdef int64_t offsets[TILE_ROWS]
    cdef const double* source
    cdef double* place
    check_room(b"sum_tiles", s.lanes, (part.end_panel - part.first_panel) * DOUBLE_STEPS * plan.pitch * sizeof(double))
    check_room(b"sum_tiles", sums, (part.end_tile - part.first_tile) * (part.end_panel - part.first_panel) * plan.tile_doubles
               * sizeof(double))
    for panel in range(part.first_panel, part.end_panel):
        lane = double_lane(w, plan, panel)
        for r in range(row_count):
            for m in range(double_lane(w, plan, panel + 1) - lane):
                source = small_doubles(w, part.g, lane + m, &s.rows[r])
                place = s.lanes + ((panel - part.first_panel) * DOUBLE_STEPS + s.rows[r].first) * plan.pitch + m
                for k in range(s.rows[r].count):
                    place[k * plan.pitch] = source[k * w.small.x[2]]
    for i in range(isa.rows):
        offsets[i] = i * w.large.c
    for tile in range(part.first_tile, part.end_tile):
        if tile == part.first_tile or tile % plan.heights == 0:
            run_count = double_runs(w, plan, part.g, tile // plan.heights, s.rows, row_count, s.runs)
        channel = double_row(w, plan, tile % plan.heights)
        for panel in range(part.first_panel, part.end_panel):
            lanes = double_lane(w, plan, panel + 1) - double_lane(w, plan, panel)
            if run_count > 0:
                isa.tile64[double_row(w, plan, tile % plan.heights + 1) - channel - 1][ceiling(lanes, plan.lane_width) - 1](
                    s.runs, run_count, <const double*>w.large.data + channel * w.large.c, offsets, w.s[2] * w.large.x[2],
                    s.lanes + (panel - part.first_panel) * DOUBLE_STEPS * plan.pitch, sums)
            sums += plan.tile_doubles


cdef void sum_lines(const Weights* w, DoublesPlan* plan, const instruction_set* isa, const DoublesPart* part, int64_t first,
                    int64_t end, DoubleWeightsScratch* s) noexcept nogil:
    """Positions [first, end) of a part: whole lines, or of one line from a multiple of REDUCTION_CHAINS on."""
    cdef int64_t row_count = cut_rows(w, first, end, s.rows), pitch, i, k, m, tile, low, high
    cdef int64_t x[3]
    cdef Reach reach
    cdef const double* source
    cdef double* place
    pitch = ceiling(s.rows.count, REDUCTION_CHAINS) * REDUCTION_CHAINS
    check_room(b"sum_lines", s.lanes, ((w.M - 1) * DOUBLE_LINE + row_count * pitch) * sizeof(double))
    check_room(b"sum_lines", s.large, row_count * pitch * sizeof(double))
    for m in range(w.M):
        for i in range(row_count):
            source = small_doubles(w, part.g, m, &s.rows[i])
            place = s.lanes + m * DOUBLE_LINE + i * pitch
            memset(place + s.rows.count, 0, (pitch - s.rows.count) * sizeof(double))
            copy_doubles(place, source, s.rows.count, w.small.x[2])
            for k in range(s.rows.count if plan.padded else 0):
                if not_finite(place[k]):
                    plan.unbounded = True
    for tile in range(part.first_tile, part.end_tile):
        reach_of(w, tile // plan.heights, &reach)
        for i in range(row_count):
            place = s.large + i * pitch
            if not inside_of(w, &reach, &s.rows[i], &low, &high, x):
                low = high = 0
            memset(place, 0, low * sizeof(double))
            memset(place + high, 0, (pitch - high) * sizeof(double))
            if low < high:
                source = <const double*>w.large.data + tile % plan.heights * w.large.c + large_offset(w, part.g, &s.rows[i], x)
                copy_doubles(place + low, source, high - low, w.s[2] * w.large.x[2])
        isa.dot64[w.M - 1](s.chains + (tile - part.first_tile) * w.M * REDUCTION_CHAINS, s.large, s.lanes, DOUBLE_LINE,
                           row_count * pitch)


cdef void sum_piece(const Weights* w, DoublesPlan* plan, const instruction_set* isa, const DoublesPart* part, int64_t piece,
                    double* sums, DoubleWeightsScratch* s) noexcept nogil:
    cdef int64_t first = piece_start(&plan.cut, piece, plan.positions), end = piece_start(&plan.cut, piece + 1, plan.positions), next, i
    cdef int64_t line = ceiling(w.Y[2], REDUCTION_CHAINS) * REDUCTION_CHAINS, tiles = part.end_tile - part.first_tile
    check_room(b"sum_piece", sums, tiles * w.M * sizeof(double) if plan.few else plan.part_doubles * sizeof(double))
    memset(s.chains if plan.few else sums, 0, sizeof(double) * (
        tiles * w.M * REDUCTION_CHAINS if plan.few else plan.part_doubles))
    while first < end:
        if not plan.few:
            next = min(end, first + DOUBLE_STEPS)
            sum_tiles(w, plan, isa, part, first, next, sums, s)
        else:
            if line <= DOUBLE_LINE:
                next = min(end, first + DOUBLE_LINE // line * w.Y[2])
            else:
                next = min(first + DOUBLE_LINE, (first // w.Y[2] + 1) * w.Y[2])
            sum_lines(w, plan, isa, part, first, next, s)
        first = next
    for i in range(tiles * w.M if plan.few else 0):
        sums[i] = chain_sum(s.chains + i * REDUCTION_CHAINS, REDUCTION_CHAINS)


cdef void store_double_part(const Weights* w, const DoublesPlan* plan, const DoublesPart* part, const double* sums) noexcept nogil:
    cdef int64_t tile, panel, channel, lane, rows, i, m
    cdef int64_t t[3]
    cdef double* place
    for tile in range(part.first_tile, part.end_tile):
        tap_at(w, tile // plan.heights, t)
        channel = double_row(w, plan, tile % plan.heights)
        rows = double_row(w, plan, tile % plan.heights + 1) - channel
        for panel in range(part.first_panel, part.end_panel):
            lane = double_lane(w, plan, panel)
            place = (<double*>w.taps + part.g * w.taps_stride[0] + lane * w.taps_stride[1] + channel * w.taps_stride[2]
                     + t[0] * w.taps_stride[3] + t[1] * w.taps_stride[4] + t[2] * w.taps_stride[5])
            for i in range(rows):
                for m in range(double_lane(w, plan, panel + 1) - lane):
                    place[i * w.taps_stride[2] + m * w.taps_stride[1]] = sums[i * plan.pitch + m] + 0.0
            sums += plan.tile_doubles


cdef DoublesPart double_part(const DoublesPlan* plan, int64_t task) noexcept nogil:
    """The part of the result that a task sums; tasks of one part follow one another, a block each."""
    cdef int64_t part = task // plan.blocks, rows = part // plan.panel_parts % plan.row_parts, panels = part % plan.panel_parts
    return DoublesPart(
        part // plan.panel_parts // plan.row_parts, share(plan.tiles, plan.row_parts, rows), share(plan.tiles, plan.row_parts, rows + 1),
        share(plan.panels, plan.panel_parts, panels), share(plan.panels, plan.panel_parts, panels + 1))


cdef void run_double_part(const Weights* w, DoublesPlan* plan, const instruction_set* isa, int64_t task,
                          DoubleWeightsScratch* s) noexcept nogil:
    """The pieces of a block, joined as they come."""
    cdef int64_t first = task % plan.blocks << plan.levels, pieces = min(1 << plan.levels, plan.cut.pieces - first), i, rest, depth = 0
    cdef DoublesPart part = double_part(plan, task)
    cdef double* level[REDUCTION_LEVELS + 1]
    for i in range(plan.levels + 1):
        level[i] = s.sums + i * plan.part_doubles
    if plan.blocks > 1:
        level[0] = plan.waiting + task * plan.part_doubles
    memset(s.lanes, 0, (part.end_panel - part.first_panel) * DOUBLE_STEPS * plan.pitch * sizeof(double))
    for i in range(pieces):
        sum_piece(w, plan, isa, &part, first + i, level[depth], s)
        rest = i
        while depth > 0 and (rest & 1 or i == pieces - 1):
            add_sums(level[depth - 1], level[depth], plan.part_doubles)
            depth -= 1
            rest >>= 1
        depth += 1
    if plan.blocks == 1:
        store_double_part(w, plan, &part, level[0])


cdef void join_double_part(const Weights* w, const DoublesPlan* plan, int64_t number) noexcept nogil:
    """The blocks of a part, in the tree of all pieces."""
    cdef DoublesPart part = double_part(plan, number * plan.blocks)
    cdef double* sums = plan.waiting + number * plan.blocks * plan.part_doubles
    join_pieces(sums, plan.blocks, plan.part_doubles, plan.part_doubles)
    store_double_part(w, plan, &part, sums)


cdef void count_double_parts(const Weights* w, DoublesPlan* plan) noexcept nogil:
    plan.blocks = ceiling(plan.cut.pieces, 1 << plan.levels)
    plan.part_doubles = ceiling(plan.tiles, plan.row_parts) * ceiling(plan.panels, plan.panel_parts) * plan.tile_doubles
    plan.tasks = w.G * plan.row_parts * plan.panel_parts * plan.blocks


cdef void plan_doubles(const Weights* w, const instruction_set* isa, int threads, DoublesPlan* plan) noexcept nogil:
    """Cut the result and its pieces into tasks: blocks of pieces rather than rows, which each lay out the small side anew."""
    cdef int64_t wanted = 4 * threads if threads > 1 else 1
    plan.positions, plan.taps = w.N * w.Y[0] * w.Y[1] * w.Y[2], w.K[0] * w.K[1] * w.K[2]
    plan.cut = w.cut
    plan.few, plan.unbounded = plan.cut.chains > 1, False
    plan.padded = reaches_outside(w, 0) or reaches_outside(w, 1) or reaches_outside(w, 2)
    plan.lane_width = w.M if plan.few else isa.width // 2
    plan.vectors = ceiling(w.M, plan.lane_width)
    plan.panels = ceiling(plan.vectors, isa.vectors)
    plan.pitch = w.M if plan.few else double_pitch(isa)
    plan.tile_doubles = plan.pitch * (1 if plan.few else isa.rows)
    plan.heights = w.C if plan.few else ceiling(w.C, isa.rows)
    plan.tiles = plan.taps * plan.heights
    plan.row_parts = ceiling(plan.tiles, DOUBLE_FEW_ROWS) if plan.few else 1
    plan.panel_parts = ceiling(plan.panels, DOUBLE_LANE_PANELS)
    plan.levels = 0
    while 1 << plan.levels < plan.cut.pieces:
        plan.levels += 1
    count_double_parts(w, plan)
    while (plan.levels > 0 and plan.tasks < wanted
           and plan.tasks * 2 * plan.part_doubles * <int64_t>sizeof(double) <= DOUBLE_WAITING_BYTES * threads):
        plan.levels -= 1
        count_double_parts(w, plan)
    while plan.row_parts < plan.tiles and (plan.tasks < wanted or (plan.levels + 1) * plan.part_doubles * <int64_t>sizeof(double)
                                           > DOUBLE_LEVELS_BYTES):
        plan.row_parts += 1
        count_double_parts(w, plan)
    while plan.panel_parts < plan.panels and plan.tasks < wanted:
        plan.panel_parts += 1
        count_double_parts(w, plan)


cdef bint fits_double_weights(Problem* q) noexcept nogil:
    if q.weights == NULL or q.weights.large.format != NUMBER_FLOAT64:
        return False
    plan_doubles(q.weights, q.isa, q.threads, &q.double_weights)
    return True


cdef void lay_out_double_weights(Problem* q, workspace* memory) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef DoublesPlan* plan = &q.double_weights
    cdef int64_t size = sizeof(double), chains = w.M * REDUCTION_CHAINS * ceiling(plan.tiles, plan.row_parts)
    cdef DoubleWeightsScratch counted
    cdef DoubleWeightsScratch* s
    cdef int worker
    plan.scratch = <DoubleWeightsScratch*>take(memory, q.threads * sizeof(DoubleWeightsScratch))
    for worker in range(q.threads):
        s = &plan.scratch[worker] if memory.base != NULL else &counted
        s.sums = <double*>take(memory, size * (plan.levels + 1) * plan.part_doubles)
        s.lanes = <double*>take(memory, size * max(w.M * DOUBLE_LINE if plan.few else 0,
                                                   ceiling(plan.panels, plan.panel_parts) * DOUBLE_STEPS * plan.pitch))
        s.large = <double*>take(memory, size * DOUBLE_LINE if plan.few else 0)
        s.chains = <double*>take(memory, size * chains if plan.few else 0)
        s.rows = <Row*>take(memory, DOUBLE_STEPS * sizeof(Row))
        s.runs = <tile_run*>take(memory, DOUBLE_STEPS * sizeof(tile_run))
    plan.waiting = <double*>take(memory, size * plan.tasks * plan.part_doubles if plan.blocks > 1 else 0)


cdef bint run_double_weights(Problem* q, workspace* memory) noexcept nogil:
    """Returns false where something infinite or NaN may have met a position outside."""
    cdef DoublesPlan* plan = &q.double_weights
    cdef DoubleWeightsScratch* scratch = plan.scratch
    cdef int64_t task
    if q.threads == 1:
        for task in range(plan.tasks):
            run_double_part(q.weights, plan, q.isa, task, scratch)
    else:
        for task in prange(plan.tasks, schedule="dynamic", num_threads=q.threads):
            run_double_part(q.weights, plan, q.isa, task, &scratch[thread_number()])
    for task in range(plan.tasks // plan.blocks if plan.blocks > 1 else 0):
        join_double_part(q.weights, plan, task)
    return not plan.unbounded
