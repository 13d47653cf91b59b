"""backward_weights cut into tasks for threads, with a workspace of bounded size."""

cdef enum:
    COLLIDING = 1024      # floats between steps that share a set of the nearest cache, and each need a page
    LAST_FLOATS = 11264   # channels last: of a lane panel and what its steps meet on the large side, in the nearest cache ...
    FEWEST_STEPS = 128    # ... unless so many do not fit


cdef inline bint steps_collide(const Weights* w, int64_t positions) noexcept nogil:
    """Whether positions of the large side, channels last, lie so that few of them stay near."""
    return channels_innermost(&w.large, w.C) and w.s[2] * w.large.x[2] % COLLIDING == 0 and positions >= FEWEST_STEPS


cdef void make_plan(const Weights* w, const instruction_set* isa, bint pairs, int threads, WeightsPlan* plan) noexcept nogil:
    cdef int64_t axis, tasks
    plan.positions = w.N * w.Y[0] * w.Y[1] * w.Y[2]
    plan.taps = w.K[0] * w.K[1] * w.K[2]
    plan.cut = cut_reduction(plan.positions, w.Y[2], w.M, w.G * w.M * w.C * plan.taps)
    plan.mixed = w.C < isa.rows and plan.taps > 1
    plan.pairs = pairs
    plan.framed = plan.mixed or w.large.format != NUMBER_FLOAT32 or steps_collide(w, plan.positions)
    plan.padded = False
    for axis in range(3):
        if reaches_outside(w, axis):
            plan.padded = True
    plan.tap_tiles = ceiling(w.C, isa.rows)
    plan.row_tiles = ceiling(w.C * plan.taps, isa.rows) if plan.mixed else plan.taps * plan.tap_tiles
    plan.strands = plan.row_tiles if plan.mixed else plan.tap_tiles
    plan.vectors = ceiling(w.M, isa.width)
    plan.panels = ceiling(plan.vectors, isa.vectors)
    plan.tile_floats = isa.rows * isa.vectors * isa.width
    plan.at_once = plan.cut.pieces == 1
    if pairs:
        plan_pairs(w, isa, plan)
    else:
        plan_chunk(w, isa, plan)
    share_work(w, isa, threads, plan)
    plan.sum_panels = ceiling(plan.panels, plan.panel_parts) if plan.at_once else plan.panels
    plan.stored_strands = max(1, STORED_BYTES // (4 * strand_floats(plan)))


cdef void plan_chunk(const Weights* w, const instruction_set* isa, WeightsPlan* plan) noexcept nogil:
    """How much of the reduction is packed at a time."""
    cdef int64_t lane_width = ceiling(plan.vectors, plan.panels) * isa.width
    plan.chunk = max(1, min(plan.cut.length, LANE_FLOATS // lane_width))
    if not plan.framed and channels_innermost(&w.large, w.C) and FEWEST_STEPS * (w.C + lane_width) <= LAST_FLOATS:
        plan.chunk = min(plan.chunk, LAST_FLOATS // (w.C + lane_width))
    while True:
        plan.extent = (min(plan.chunk, w.Y[2]) - 1) * w.s[2] + (w.K[2] - 1) * w.d[2] + 1
        plan.row_floats = w.K[0] * w.K[1] * plan.extent
        plan.channel_floats = (plan.chunk // w.Y[2] + 2) * plan.row_floats + isa.width
        if not plan.framed or plan.chunk == 1 or plan.channel_floats * 4 * min(w.C, isa.rows) <= 8 * FRAME_BYTES:
            break
        plan.chunk = (plan.chunk + 1) // 2
    plan.steps = plan.chunk
    plan.channels = plan.tap_tiles  # in tiles
    if plan.framed and not plan.mixed:
        plan.channels = max(1, FRAME_BYTES // (4 * plan.channel_floats * isa.rows))


cdef inline int64_t strand_floats(const WeightsPlan* plan) noexcept nogil:
    """Sums of a piece."""
    return strand_tiles(plan) * plan.sum_panels * plan.tile_floats


cdef inline bint in_chunks(const WeightsPlan* plan) noexcept nogil:
    """Whether the sums of a task are met more than once, as far as is known before."""
    return plan.pairs or plan.cut.length > plan.steps


cdef void share_work(const Weights* w, const instruction_set* isa, int threads, WeightsPlan* plan) noexcept nogil:
    """Cut panels and strands into parts: work that comes out even, sums that stay near, and the least packed twice."""
    cdef int64_t pieces = w.G * plan.cut.pieces, panel_parts, row_parts, least_rows, tasks, largest
    cdef bint again = in_chunks(plan)
    cdef double cost, least = -1, lanes = <double>w.M, frames, products  # times 1/4 cycle a position
    products = lanes * w.C * plan.taps * (1 if plan.pairs else 2) / isa.width
    if plan.pairs:
        frames = <double>w.C * plan.frames.streams * (plan.frames.line if w.K[1] > 1 else 1)
    elif plan.framed:
        frames = <double>w.C * w.K[0] * w.K[1] * w.s[2]
    else:
        frames = 0.5 * w.C  # read where they lie
    for panel_parts in range(max(1, ceiling(4 * plan.panels * panel_floats(plan, isa), LANES_BYTES)), plan.panels + 1):
        least_rows = 1
        if again:
            largest = 4 * plan.row_tiles * ceiling(plan.panels, panel_parts) * plan.tile_floats
            least_rows = max(1, min(plan.strands, ceiling(largest, NEAR_SUMS_BYTES)))
        for row_parts in range(least_rows, min(plan.strands, least_rows + 4 * threads) + 1):
            tasks = pieces * panel_parts * row_parts
            largest = ceiling(plan.panels, panel_parts) * ceiling(plan.strands, row_parts)
            cost = (products * ceiling(tasks, threads) * largest * threads / (<double>pieces * plan.panels * plan.strands)
                    + lanes * row_parts + frames * panel_parts)
            if least < 0 or cost < least:
                least = cost
                plan.panel_parts, plan.row_parts = panel_parts, row_parts


cdef int64_t lay_out_weights(WeightsScratch* s, const Weights* w, const WeightsPlan* plan, const instruction_set* isa, char* space) noexcept nogil:
    cdef char* start = space
    s.lanes = <float*>take(&space, 4 * ceiling(plan.panels, plan.panel_parts) * panel_floats(plan, isa) + 64)
    if plan.at_once:
        s.sums = <float*>take(&space, 4 * strand_floats(plan) * (
            ceiling(plan.strands, plan.row_parts) if in_chunks(plan) else min(plan.stored_strands, plan.strands)))
    s.block, s.codes = NULL, NULL
    if plan.pairs:
        s.codes = <uint16_t*>take(&space, plan.code_bytes + 64)
        s.segments = <Segment*>take(&space, plan.segments * sizeof(Segment))
        s.pair_runs = <pair_run*>take(&space, plan.segments * sizeof(pair_run))
        return space - start
    if plan.framed:
        s.block = <float*>take(&space, 4 * plan.channel_floats * min(w.C, plan.channels * isa.rows) + 64)
    s.rows = <Row*>take(&space, (plan.chunk + 1) * sizeof(Row))
    s.runs = <tile_run*>take(&space, (plan.chunk + 1) * sizeof(tile_run))
    return space - start


cdef struct WeightsPass:  # some groups, and of each some strands, whose sums fit the workspace
    int64_t first_group
    int64_t groups
    int64_t first_strand
    int64_t strands
    int64_t piece_floats
    float* sums          # [group][piece][strand...]


cdef inline float* pass_sums(const WeightsPlan* plan, const WeightsPass* some, int64_t group, int64_t piece) noexcept nogil:
    """Where the sums of strand 0 would be."""
    return some.sums + (group * plan.cut.pieces + piece) * some.piece_floats - some.first_strand * strand_floats(plan)


cdef void run_pass_task(const Weights* w, const WeightsPlan* plan, const WeightsPass* some, const instruction_set* isa,
                        int64_t task, WeightsScratch* s) noexcept nogil:
    cdef int64_t rest = task, panel_part, row_part, row_parts = min(plan.row_parts, some.strands)
    panel_part = rest % plan.panel_parts
    rest = rest // plan.panel_parts
    row_part = rest % row_parts
    rest = rest // row_parts
    (run_pairs_task if plan.pairs else run_weights_task)(
        w, plan, isa, some.first_group + rest // plan.cut.pieces, rest % plan.cut.pieces,
        some.first_strand + share(some.strands, row_parts, row_part),
        some.first_strand + share(some.strands, row_parts, row_part + 1),
        share(plan.panels, plan.panel_parts, panel_part), share(plan.panels, plan.panel_parts, panel_part + 1),
        pass_sums(plan, some, rest // plan.cut.pieces, rest % plan.cut.pieces), s)


cdef void store_pass_task(const Weights* w, const WeightsPlan* plan, const WeightsPass* some, const instruction_set* isa,
                          int64_t task) noexcept nogil:
    cdef int64_t strand = task // plan.panels % some.strands, group = task // plan.panels // some.strands
    store_strand(w, plan, isa, some.first_group + group, some.first_strand + strand, task % plan.panels,
                 pass_sums(plan, some, group, 0), some.piece_floats)


cdef void run_pass(const Weights* w, const WeightsPlan* plan, const WeightsPass* some, const instruction_set* isa, int threads,
                   WeightsScratch* scratch) noexcept nogil:
    cdef int64_t tasks = some.groups * plan.cut.pieces * min(plan.row_parts, some.strands) * plan.panel_parts, task
    cdef int64_t stores = 0 if plan.at_once else some.groups * some.strands * plan.panels
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
    """In bfloat16 pairs where that gives the same bits; `report` as in `run_products`."""
    cdef const instruction_set* isa = current
    merge_axes(w, 1)
    if w.Y[1] == 1:
        merge_axes(w, 0)
    if isa.pairs != NULL and fits_pairs(w.large.format) and fits_pairs(w.small.format) and w.Y[2] >= 4:
        if try_weights(w, isa, True, threads, report):
            return 0
    try_weights(w, isa, False, threads, report)
    return 0


cdef int try_weights(Weights* w, const instruction_set* isa, bint pairs, int threads, int64_t* report) except -1 nogil:
    """Returns false where pairs do not do, as `try_products`."""
    cdef WeightsPlan plan
    cdef WeightsScratch layout
    cdef WeightsScratch* scratch
    cdef WeightsPass some
    cdef int64_t size_needed, size, groups, strands, pieces_floats, tap
    cdef int64_t t[3]
    cdef int worker
    cdef code_range large, small
    cdef char* space
    cdef char* aligned
    threads = team_for(<double>w.N * w.Y[0] * w.Y[1] * w.Y[2] * w.G * w.M * w.C * w.K[0] * w.K[1] * w.K[2], threads)
    make_plan(w, isa, pairs, threads, &plan)
    groups, strands, pieces_floats = w.G, plan.strands, 0
    if not plan.at_once:
        pieces_floats = plan.cut.pieces * strand_floats(&plan)
        strands = min(plan.strands, max(1, <int64_t>PARTIAL_BYTES // (4 * pieces_floats)))
        groups = min(w.G, max(1, <int64_t>PARTIAL_BYTES // (4 * pieces_floats * plan.strands)))
    size = lay_out_weights(&layout, w, &plan, isa, NULL)
    size_needed = (4 * groups * strands * pieces_floats + threads * size
                   + threads * sizeof(WeightsScratch) + 192 + plan.taps * sizeof(int64_t))
    if report != NULL:
        report[0] = max(report[0], size_needed)
        return not pairs
    space = take_workspace(size_needed)
    if space == NULL:
        with gil:
            raise MemoryError
    aligned = space
    scratch = <WeightsScratch*>take(&aligned, threads * sizeof(WeightsScratch))
    for worker in range(threads):
        aligned += lay_out_weights(&scratch[worker], w, &plan, isa, aligned)
        scratch[worker].large_range = scratch[worker].small_range = code_range(0x7fff, 0)
    plan.tap_offsets = <int64_t*>take(&aligned, plan.taps * sizeof(int64_t))
    for tap in range(plan.taps):
        tap_at(w, tap, t)
        plan.tap_offsets[tap] = t[0] * w.taps_stride[3] + t[1] * w.taps_stride[4] + t[2] * w.taps_stride[5]
    some.sums = <float*>aligned
    some.piece_floats = strands * pieces_floats // plan.cut.pieces
    some.first_group = 0
    while some.first_group < w.G:
        some.groups = min(groups, w.G - some.first_group)
        some.first_strand = 0
        while some.first_strand < plan.strands:
            some.strands = min(strands, plan.strands - some.first_strand)
            run_pass(w, &plan, &some, isa, threads, scratch)
            some.first_strand += some.strands
        some.first_group += some.groups
    large = small = code_range(0x7fff, 0)
    for worker in range(threads):
        widen(&large, &scratch[worker].large_range)
        widen(&small, &scratch[worker].small_range)
    return_workspace(space)
    return not pairs or (large.largest < INFINITE and small.largest < INFINITE
                         and never_subnormal(large.smallest, small.smallest))


cdef enum:
    INFINITE = 0x7f80  # the bfloat16 code; above it NaN: in padding and behind the ends of lines pairs meet zeros


cdef inline void widen(code_range* range, const code_range* other) noexcept nogil:
    range.smallest = min(range.smallest, other.smallest)
    range.largest = max(range.largest, other.largest)
