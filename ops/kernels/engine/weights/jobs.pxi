"""backward_weights cut into tasks for threads, with a workspace of bounded size."""

cdef enum:
    COLLIDING = 1024      # floats between steps that share a set of the nearest cache, and each need a page
    LAST_FLOATS = 11264   # channels last: of a lane panel and what its steps meet on the large side, in the nearest cache ...
    FEWEST_STEPS = 128    # ... unless so many do not fit
    HUGE_FRAME = 1 << 30  # floats of a line's taps, more than any that are framed
    PAIRS_DO_NOT = 0      # what became of an attempt
    DONE = 1
    TOO_MUCH = 2          # workspace: nothing is computed
    PAIR_LANES = 48       # whose products in pairs save what it takes to lay out a row of which every other position is met


cdef double ROW_PACKED = 1.6  # quarters of a cycle: a number of a row packed in blocks


cdef inline bint steps_collide(const Weights* w, int64_t positions) noexcept nogil:
    """Whether positions of the large side, channels last, lie so that few of them stay near."""
    return channels_innermost(&w.large, w.C) and w.s[2] * w.large.x[2] % COLLIDING == 0 and positions >= FEWEST_STEPS


cdef void make_plan(const Weights* w, const instruction_set* isa, const pair_functions* pairs, int threads, WeightsPlan* plan) noexcept nogil:
    cdef int64_t axis
    plan.positions = w.N * w.Y[0] * w.Y[1] * w.Y[2]
    plan.taps = w.K[0] * w.K[1] * w.K[2]
    plan.cut = w.cut
    plan.blocks = positions_in_blocks(plan.cut.chains, w.large.format, w.small.format)
    plan.pairs, plan.rows = pairs, isa.rows if pairs == NULL else pairs.panel_rows
    plan.mixed = w.C < plan.rows and plan.taps > 1
    plan.framed = plan.mixed or w.large.format != NUMBER_FLOAT32 or steps_collide(w, plan.positions)
    plan.padded = False
    for axis in range(3):
        if reaches_outside(w, axis):
            plan.padded = True
    plan.tap_tiles = ceiling(w.C, plan.rows)
    plan.row_tiles = ceiling(w.C * plan.taps, plan.rows) if plan.mixed else plan.taps * plan.tap_tiles
    plan.strands = plan.row_tiles if plan.mixed else plan.tap_tiles
    plan.vectors = ceiling(w.M, isa.width)
    plan.panels = ceiling(plan.vectors, isa.vectors)
    plan.tile_floats = plan.rows * isa.vectors * isa.width
    plan.packed = plan.blocks and pairs != NULL
    if not plan.packed:
        plan_chunk(w, isa, plan)
        plan.packed = plan.blocks and not frames_fit(w, isa, plan)
    if plan.packed:
        plan_blocks(w, isa, plan)
    share_work(w, isa, threads, plan)


cdef inline bint frames_fit(const Weights* w, const instruction_set* isa, const WeightsPlan* plan) noexcept nogil:
    return plan.channel_floats * 4 * min(w.C, isa.rows) <= 8 * FRAME_BYTES


cdef inline int64_t whole_units(const WeightsPlan* plan, int64_t most, int64_t unit) noexcept nogil:
    """Positions that hold a piece, at most so many, in units."""
    return max(unit, min(ceiling(plan.cut.length, unit), most // unit) * unit)


cdef void plan_chunk(const Weights* w, const instruction_set* isa, WeightsPlan* plan) noexcept nogil:
    """How much of the reduction is packed at a time."""
    cdef int64_t lane_width = ceiling(plan.vectors, plan.panels) * isa.width
    cdef int64_t unit = SUM_BLOCK if plan.blocks else 1
    plan.chunk = whole_units(plan, LANE_FLOATS // lane_width, unit)
    if not plan.framed and channels_innermost(&w.large, w.C) and FEWEST_STEPS * (w.C + lane_width) <= LAST_FLOATS:
        plan.chunk = min(plan.chunk, LAST_FLOATS // (w.C + lane_width))
    while True:
        plan.extent = (min(plan.chunk, w.Y[2]) - 1) * w.s[2] + (w.K[2] - 1) * w.d[2] + 1
        plan.row_floats = <int64_t>min(<double>w.K[0] * w.K[1] * plan.extent, <double>HUGE_FRAME)
        plan.channel_floats = (plan.chunk // w.Y[2] + 2) * plan.row_floats + isa.width
        if not plan.framed or plan.chunk == unit or frames_fit(w, isa, plan):
            break
        plan.chunk = ceiling(plan.chunk, 2 * unit) * unit
    plan.steps = plan.chunk
    plan.channels = plan.tap_tiles  # in tiles
    if plan.framed and not plan.mixed:
        plan.channels = max(1, FRAME_BYTES // (4 * plan.channel_floats * isa.rows))


cdef inline bint in_chunks(const WeightsPlan* plan) noexcept nogil:
    """Whether the sums of a task are met more than once, as far as is known before."""
    return plan.cut.length > plan.chunk


cdef void plan_sums(const WeightsPlan* plan, int64_t levels, int64_t panel_parts, int64_t row_parts, WaitingSums* sums) noexcept nogil:
    """Where sums wait with blocks of 2**levels pieces."""
    cdef int64_t strand_floats, kept
    sums.levels = levels
    sums.blocks = ceiling(plan.cut.pieces, 1 << levels)
    sums.at_once = sums.blocks == 1
    sums.panels = ceiling(plan.panels, panel_parts)
    strand_floats = strand_tiles(plan) * sums.panels * plan.tile_floats
    sums.together = max(1, STORED_BYTES // (4 * strand_floats)) if plan.cut.pieces == 1 else 0
    kept = ceiling(plan.strands, row_parts)
    if sums.together > 0 and not in_chunks(plan):
        kept = min(kept, sums.together)
    sums.task_floats = kept * strand_floats
    if levels == 0 and 4 * sums.task_floats > LEVELS_BYTES:
        sums.at_once = False
        sums.together = 0
        sums.task_floats = ceiling(plan.strands, row_parts) * strand_floats


cdef inline int64_t own_levels(const WaitingSums* sums) noexcept nogil:
    return sums.levels + (1 if sums.at_once else 0)


cdef inline double busiest(int64_t tasks, int64_t shorter, double length, int threads) noexcept nogil:
    """What the busiest thread gets of tasks of length 1 and then shorter ones."""
    cdef int64_t rounds = ceiling(tasks, threads)
    return rounds + length * ceiling(max(0, shorter - (rounds * threads - tasks)), threads)


cdef void share_work(const Weights* w, const instruction_set* isa, int threads, WeightsPlan* plan) noexcept nogil:
    """Cut pieces, panels and strands into tasks: work that comes out even, sums that stay near, and the least packed twice."""
    cdef int64_t panel_parts, row_parts, least_rows, levels, largest, full, rest
    cdef double cost, least = -1, lanes = <double>w.M, frames, products, busy, sums_cost  # times 1/4 cycle a position
    cdef WaitingSums sums
    products = lanes * w.C * plan.taps * (2 if plan.pairs == NULL else 0.15 if on_matrix(plan.pairs) else 1) / isa.width
    if plan.packed:
        frames = ROW_PACKED * w.C * plan.taps
    elif plan.framed:
        frames = <double>w.C * w.K[0] * w.K[1] * w.s[2]
    else:
        frames = 0.5 * w.C  # read where they lie
    plan.panel_parts, plan.row_parts = 1, 1
    plan_sums(plan, 0, 1, 1, &plan.sums)
    for levels in range(MOST_LEVELS + 1):
        full = plan.cut.pieces >> levels
        rest = plan.cut.pieces - (full << levels)
        if levels > 0 and full == 0 and plan.cut.pieces <= 1 << (levels - 1):
            break
        for panel_parts in range(max(1, ceiling(4 * plan.panels * panel_floats(plan, isa), LANES_BYTES)), plan.panels + 1):
            least_rows = 1
            if in_chunks(plan):
                largest = 4 * plan.row_tiles * ceiling(plan.panels, panel_parts) * plan.tile_floats
                least_rows = max(1, min(plan.strands, ceiling(largest, NEAR_SUMS_BYTES)))
            for row_parts in range(least_rows, min(plan.strands, least_rows + 4 * threads) + 1):
                plan_sums(plan, levels, panel_parts, row_parts, &sums)
                if levels > 0 and 4 * own_levels(&sums) * sums.task_floats > LEVELS_BYTES:
                    continue
                busy = busiest(w.G * full * panel_parts * row_parts, (w.G if rest > 0 else 0) * panel_parts * row_parts,
                               <double>rest / (1 << levels), threads) * (1 << levels)
                largest = ceiling(plan.panels, panel_parts) * ceiling(plan.strands, row_parts)
                sums_cost = 0 if sums.at_once else WAITING_COST * lanes * w.C * plan.taps * sums.blocks / max(1, plan.positions)
                cost = (products * busy * largest * threads / (<double>w.G * plan.cut.pieces * plan.panels * plan.strands)
                        + lanes * row_parts + frames * panel_parts + sums_cost)
                if least < 0 or cost < least:
                    least = cost
                    plan.panel_parts, plan.row_parts, plan.sums = panel_parts, row_parts, sums


cdef int64_t lay_out_weights(WeightsScratch* s, const Weights* w, const WeightsPlan* plan, const instruction_set* isa, char* space) noexcept nogil:
    cdef char* start = space
    s.lanes = <float*>take(&space, 4 * ceiling(plan.panels, plan.panel_parts) * panel_floats(plan, isa) + 64)
    s.sums = <float*>take(&space, 4 * own_levels(&plan.sums) * plan.sums.task_floats)
    s.block, s.codes = NULL, NULL
    s.rows = <Row*>take(&space, (plan.chunk + 1) * sizeof(Row))
    s.runs = <tile_run*>take(&space, (plan.chunk + 1) * sizeof(tile_run))
    if plan.packed:
        s.codes = take(&space, plan.code_bytes + 64)
        s.block = <float*>take(&space, 4 * plan.rows * plan.steps + 64)
        s.masks = <float*>take(&space, 4 * plan.chunk * isa.vectors * isa.width if plan.padded and plan.pairs == NULL else 0)
        return space - start
    if plan.framed:
        s.block = <float*>take(&space, 4 * plan.channel_floats * min(w.C, plan.channels * isa.rows) + 64)
    return space - start


cdef struct WeightsPass:  # some groups, or some row parts of one group, whose sums fit the workspace
    int64_t first_group
    int64_t groups
    int64_t first_row_part
    int64_t row_parts
    float* sums          # [group][block][row part][panel part][task_floats]


cdef inline WeightsPart part_of(const WeightsPlan* plan, int64_t g, int64_t row_part, int64_t panel_part) noexcept nogil:
    return WeightsPart(
        g, share(plan.strands, plan.row_parts, row_part), share(plan.strands, plan.row_parts, row_part + 1),
        share(plan.panels, plan.panel_parts, panel_part), share(plan.panels, plan.panel_parts, panel_part + 1))


cdef void run_pass_task(const Weights* w, const WeightsPlan* plan, const WeightsPass* some, const instruction_set* isa,
                        int64_t task, WeightsScratch* s) noexcept nogil:
    cdef int64_t parts = some.row_parts * plan.panel_parts, group = task // parts // plan.sums.blocks
    cdef WeightsPart part = part_of(plan, some.first_group + group, some.first_row_part + task % parts // plan.panel_parts,
                                    task % plan.panel_parts)
    run_part(w, plan, isa, &part, task // parts % plan.sums.blocks, some.sums + task * plan.sums.task_floats, s)


cdef void store_pass_task(const Weights* w, const WeightsPlan* plan, const WeightsPass* some, const instruction_set* isa,
                          int64_t task) noexcept nogil:
    """A strand of a part, where it has so many."""
    cdef int64_t strands = ceiling(plan.strands, plan.row_parts), parts = some.row_parts * plan.panel_parts, panel
    cdef int64_t group = task // strands // parts, rest = task // strands % parts, block_floats = parts * plan.sums.task_floats
    cdef WeightsPart part = part_of(plan, some.first_group + group, some.first_row_part + rest // plan.panel_parts,
                                    rest % plan.panel_parts)
    cdef float* sums = sums_from(
        plan, some.sums + group * plan.sums.blocks * block_floats + rest * plan.sums.task_floats, part.first_strand, part.first_panel)
    if part.first_strand + task % strands < part.end_strand:
        for panel in range(part.first_panel, part.end_panel):
            store_strand(w, plan, isa, part.g, part.first_strand + task % strands, panel, sums, block_floats)


cdef void run_pass(const Weights* w, const WeightsPlan* plan, const WeightsPass* some, const instruction_set* isa, int threads,
                   WeightsScratch* scratch) noexcept nogil:
    cdef int64_t parts = some.groups * some.row_parts * plan.panel_parts, tasks = parts * plan.sums.blocks, task
    cdef int64_t stores = 0 if plan.sums.at_once else parts * ceiling(plan.strands, plan.row_parts)
    if threads == 1:
        for task in range(tasks):
            run_pass_task(w, plan, some, isa, task, scratch)
        for task in range(stores):
            store_pass_task(w, plan, some, isa, task)
    else:
        for task in prange(tasks, schedule="dynamic", num_threads=threads):
            run_pass_task(w, plan, some, isa, task, &scratch[thread_number()])
        for task in prange(stores, schedule="dynamic", num_threads=threads):
            store_pass_task(w, plan, some, isa, task)


cdef void merge_axes(Weights* w, int outer) noexcept nogil:
    """Make one line of axis `outer` and the innermost, where a single tap meets all of both and both sides allow it."""
    if (w.K[outer] == 1 and w.K[2] == 1 and w.s[outer] == 1 and w.s[2] == 1 and w.b[outer] == 0 and w.b[2] == 0
            and w.X[outer] == w.Y[outer] and w.X[2] == w.Y[2]
            and w.large.x[outer] == w.X[2] * w.large.x[2] and w.small.x[outer] == w.Y[2] * w.small.x[2]):
        w.X[2] = w.Y[2] = w.Y[2] * w.Y[outer]
        w.X[outer] = w.Y[outer] = 1


cdef int run_weights(Weights* w, int threads, int64_t* report) except -1 nogil:
    """In bfloat16 pairs where that gives the same bits; `report` as in `run_products`. Returns false where it must be divided."""
    cdef const instruction_set* isa = current
    cdef const pair_functions* pairs = isa.pairs if isa.matrix == NULL else isa.matrix
    cdef int outcome
    merge_axes(w, 1)
    if w.Y[1] == 1:
        merge_axes(w, 0)
    if pairs != NULL and within_bfloat16(w.large.format) and within_bfloat16(w.small.format):
        outcome = try_weights(w, isa, pairs, threads, report)
        if outcome != PAIRS_DO_NOT:
            return outcome == DONE
    return try_weights(w, isa, NULL, threads, report) == DONE


cdef inline bint pairs_pay(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    """Whether products in pairs save more than it costs to lay out rows whose positions are apart."""
    cdef int64_t step = 1 if laid_out_wide(w, plan) else magnitude(w.s[2] * w.large.x[2])
    return w.M >= PAIR_LANES * (min(step, 3) - 1)


cdef int try_weights(Weights* w, const instruction_set* isa, const pair_functions* pairs, int threads, int64_t* report) except -1 nogil:
    """Pairs may not do, as in `try_products`."""
    cdef WeightsPlan plan
    cdef WeightsScratch layout
    cdef WeightsScratch* scratch
    cdef WeightsPass some
    cdef bint as_in_float32
    cdef int64_t size_needed, size, groups, row_parts, waiting = 0, tap
    cdef int64_t t[3]
    cdef int worker
    cdef char* space
    cdef char* aligned
    threads = team_for(<double>w.N * w.Y[0] * w.Y[1] * w.Y[2] * w.G * w.M * w.C * w.K[0] * w.K[1] * w.K[2], threads)
    make_plan(w, isa, pairs, threads, &plan)
    if pairs != NULL and not pairs_pay(w, &plan):
        return PAIRS_DO_NOT
    groups, row_parts = w.G, plan.row_parts
    if not plan.sums.at_once:
        waiting = 4 * plan.sums.blocks * plan.panel_parts * plan.sums.task_floats  # bytes for a row part
        row_parts = min(plan.row_parts, max(1, <int64_t>PARTIAL_BYTES // waiting))
        groups = min(w.G, max(1, <int64_t>PARTIAL_BYTES // (waiting * plan.row_parts)))
    size = lay_out_weights(&layout, w, &plan, isa, NULL)
    size_needed = (groups * row_parts * waiting + threads * size
                   + threads * sizeof(WeightsScratch) + 192 + plan.taps * sizeof(int64_t))
    if takes_too_much(w, size_needed, threads):
        return TOO_MUCH
    if report != NULL:
        report[0] = max(report[0], size_needed)
        return DONE if pairs == NULL else PAIRS_DO_NOT
    space = take_workspace(size_needed)
    if space == NULL:
        with gil:
            raise MemoryError
    aligned = space
    scratch = <WeightsScratch*>take(&aligned, threads * sizeof(WeightsScratch))
    for worker in range(threads):
        aligned += lay_out_weights(&scratch[worker], w, &plan, isa, aligned)
        scratch[worker].smallest_large = scratch[worker].smallest_small = 0xffff
        scratch[worker].met_unbounded = False
    plan.tap_offsets = <int64_t*>take(&aligned, plan.taps * sizeof(int64_t))
    for tap in range(plan.taps):
        tap_at(w, tap, t)
        plan.tap_offsets[tap] = t[0] * w.taps_stride[3] + t[1] * w.taps_stride[4] + t[2] * w.taps_stride[5]
    some.sums = <float*>aligned
    some.first_group = 0
    while some.first_group < w.G:
        some.groups = min(groups, w.G - some.first_group)
        some.first_row_part = 0
        while some.first_row_part < plan.row_parts:
            some.row_parts = min(row_parts, plan.row_parts - some.first_row_part)
            run_pass(w, &plan, &some, isa, threads, scratch)
            some.first_row_part += some.row_parts
        some.first_group += some.groups
    for worker in range(1, threads):
        scratch.smallest_large = min(scratch.smallest_large, scratch[worker].smallest_large)
        scratch.smallest_small = min(scratch.smallest_small, scratch[worker].smallest_small)
        scratch.met_unbounded = scratch.met_unbounded or scratch[worker].met_unbounded
    as_in_float32 = not scratch.met_unbounded and never_subnormal(scratch.smallest_large, scratch.smallest_small)
    return_workspace(space)
    return DONE if pairs == NULL or as_in_float32 else PAIRS_DO_NOT
