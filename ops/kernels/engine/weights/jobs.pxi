"""backward_weights cut into tasks for threads, with a workspace of bounded size."""

cdef enum:
    COLLIDING = 1024      # floats between steps that share a set of the nearest cache, and each need a page
    LAST_FLOATS = 11264   # channels last: of a lane panel and what its steps meet on the large side, in the nearest cache ...
    FEWEST_STEPS = 128    # ... unless so many do not fit
    HUGE_FRAME = 1 << 30  # floats of a line's taps, more than any that are framed
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
    plan.panel_parts, plan.row_parts, plan.quarters = 1, 1, 0
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
                    plan.panel_parts, plan.row_parts, plan.sums, plan.quarters = panel_parts, row_parts, sums, cost


cdef void lay_out_weights_scratch(WeightsScratch* s, const Weights* w, const WeightsPlan* plan, const instruction_set* isa,
                                  workspace* memory) noexcept nogil:
    """The buffers of one thread."""
    s.lanes = <float*>take(memory, 4 * ceiling(plan.panels, plan.panel_parts) * panel_floats(plan, isa) + 64)
    s.sums = <float*>take(memory, 4 * own_levels(&plan.sums) * plan.sums.task_floats)
    s.block, s.codes = NULL, NULL
    s.rows = <Row*>take(memory, (plan.chunk + 1) * sizeof(Row))
    s.runs = <tile_run*>take(memory, (plan.chunk + 1) * sizeof(tile_run))
    if plan.packed:
        s.codes = take(memory, plan.code_bytes + 64)
        s.block = <float*>take(memory, 4 * plan.rows * plan.steps + 64)
        s.masks = <float*>take(memory, 4 * plan.chunk * isa.vectors * isa.width if plan.padded and plan.pairs == NULL else 0)
    elif plan.framed:
        s.block = <float*>take(memory, 4 * plan.channel_floats * min(w.C, plan.channels * isa.rows) + 64)
    s.smallest_large = s.smallest_small = 0xffff
    s.met_unbounded = False


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


cdef void join_axes(Weights* w, int outer) noexcept nogil:
    """Make one line of axis `outer` and the innermost, where a single tap meets all of both and both sides allow it."""
    if (w.K[outer] == 1 and w.K[2] == 1 and w.s[outer] == 1 and w.s[2] == 1 and w.b[outer] == 0 and w.b[2] == 0
            and w.X[outer] == w.Y[outer] and w.X[2] == w.Y[2]
            and w.large.x[outer] == w.X[2] * w.large.x[2] and w.small.x[outer] == w.Y[2] * w.small.x[2]):
        w.X[2] = w.Y[2] = w.Y[2] * w.Y[outer]
        w.X[outer] = w.Y[outer] = 1


cdef void join_lines(Weights* w) noexcept nogil:
    """Positions in as few lines as possible, but for sums in chains, which go by lines."""
    if w.cut.chains > 1 or w.large.format == NUMBER_FLOAT64:
        return
    join_axes(w, 1)
    if w.Y[1] == 1:
        join_axes(w, 0)


cdef inline bint pairs_pay(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    """Whether products in pairs save more than it costs to lay out rows whose positions are apart."""
    cdef int64_t step = 1 if laid_out_wide(w, plan) else magnitude(w.s[2] * w.large.x[2])
    return w.M >= PAIR_LANES * (min(step, 3) - 1)


cdef bint fits_weights(Problem* q) noexcept nogil:
    cdef WeightsPlan* plan = &q.weights_plan
    cdef Weights* w = q.weights
    cdef int64_t waiting
    if w == NULL or w.large.format == NUMBER_FLOAT64 or w.cut.chains > 1:
        return False
    make_plan(w, q.isa, q.pairs, q.threads, plan)
    if q.pairs != NULL and not pairs_pay(w, plan):
        return False
    plan.groups_at_once, plan.row_parts_at_once, plan.waiting_bytes = w.G, plan.row_parts, 0
    if not plan.sums.at_once:
        waiting = 4 * plan.sums.blocks * plan.panel_parts * plan.sums.task_floats  # bytes for a row part
        plan.row_parts_at_once = min(plan.row_parts, max(1, <int64_t>PARTIAL_BYTES // waiting))
        plan.groups_at_once = min(w.G, max(1, <int64_t>PARTIAL_BYTES // (waiting * plan.row_parts)))
        plan.waiting_bytes = plan.groups_at_once * plan.row_parts_at_once * waiting
    return True


cdef double weights_cycles(const Problem* q) noexcept nogil:
    return q.weights_plan.quarters / 4 * q.weights.G * q.weights_plan.positions


cdef void lay_out_weights(Problem* q, workspace* memory) noexcept nogil:
    cdef WeightsPlan* plan = &q.weights_plan
    cdef WeightsScratch counted
    cdef int worker
    plan.scratch = <WeightsScratch*>take(memory, q.threads * sizeof(WeightsScratch))
    for worker in range(q.threads):
        lay_out_weights_scratch(&plan.scratch[worker] if memory.base != NULL else &counted, q.weights, plan, q.isa, memory)
    plan.tap_offsets = <int64_t*>take(memory, plan.taps * sizeof(int64_t))
    plan.waiting = <float*>take(memory, plan.waiting_bytes)


cdef bint run_weights(Problem* q, workspace* memory) noexcept nogil:
    """Returns false where pairs do not do, as in `run_product_plan`."""
    cdef WeightsPlan* plan = &q.weights_plan
    cdef const Weights* w = q.weights
    cdef WeightsScratch* scratch = plan.scratch
    cdef WeightsPass some
    cdef bint unbounded = False
    cdef uint16_t smallest_large = 0xffff, smallest_small = 0xffff
    cdef int64_t t[3]
    cdef int64_t tap
    cdef int worker
    for tap in range(plan.taps):
        tap_at(w, tap, t)
        plan.tap_offsets[tap] = t[0] * w.taps_stride[3] + t[1] * w.taps_stride[4] + t[2] * w.taps_stride[5]
    some.sums = plan.waiting
    some.first_group = 0
    while some.first_group < w.G:
        some.groups = min(plan.groups_at_once, w.G - some.first_group)
        some.first_row_part = 0
        while some.first_row_part < plan.row_parts:
            some.row_parts = min(plan.row_parts_at_once, plan.row_parts - some.first_row_part)
            run_pass(w, plan, &some, q.isa, q.threads, scratch)
            some.first_row_part += some.row_parts
        some.first_group += some.groups
    for worker in range(q.threads):
        smallest_large = min(smallest_large, scratch[worker].smallest_large)
        smallest_small = min(smallest_small, scratch[worker].smallest_small)
        unbounded = unbounded or scratch[worker].met_unbounded
    return q.pairs == NULL or not unbounded and never_subnormal(smallest_large, smallest_small)
