"""The algorithms of the engine, one record each, and the choice among them. `../README.md` says when each is taken.

A problem is a group of sums that share their input (`forward`, or stride classes of `backward_data`) or a part of a weights
gradient.  An algorithm tells whether it fits a problem, how many cycles it would take, and where its buffers lie; the one
with the fewest cycles runs, until times of those near it tell which is the fastest (`engine/trials.pxi`).  Cycles are estimates
for all threads together, from shape, strides, formats, instruction set and threads; they decide nothing but the choice.  All
algorithms give the same bits.

uses: core/isa.pxi (current), core/team.pxi (team_for), engine/costs.pxi (peak_cycles),
    engine/product/depthwise_ncx.pxi (fits_depthwise_ncx, lay_out_depthwise_ncx, run_depthwise_ncx),
    engine/product/depthwise_ncx_plan.pxi (NcxCall, NcxPlan, few_channels_in_groups), engine/product/depthwise_nxc.pxi
    (NxcPlan, fits_depthwise_nxc, lay_out_depthwise_nxc, run_depthwise_nxc), engine/product/depthwise_planes.pxi
    (run_depthwise_planes), engine/product/depthwise_planes_plan.pxi (Planes, depthwise_planes_cycles,
    fits_depthwise_planes, lay_out_depthwise_planes), engine/product/few_columns.pxi (FewColumns, few_columns_cycles,
    fits_few_columns, lay_out_few_columns, run_few_columns), engine/product/float64.pxi (DoubleTasks, doubles_cycles,
    fits_doubles, lay_out_all_doubles, run_doubles), engine/product/float64_lines.pxi (DoubleLines, fits_double_lines,
    lay_out_double_lines, run_double_lines), engine/product/gathered.pxi (fits_gathered, gathered_cycles,
    lay_out_gathered, run_gathered), engine/product/laid_out.pxi (fits_laid_out, laid_out_cycles, lay_out_laid_out,
    run_laid_out_products), engine/product/laid_out_plan.pxi (Layout), engine/product/pairs.pxi (on_matrix),
    engine/product/patches.pxi (Patches, fits_patches, lay_out_patches, patches_cycles, run_patches),
    engine/product/plan.pxi (ProductPlan, prepare_products), engine/product/position_weights.pxi (PositionRowsJob,
    PositionRowsScratch), engine/product/product.pxi (PositionClass, Product), engine/product/rows_are_lines.pxi
    (fits_rows_are_lines, lay_out_rows_are_lines, rows_are_lines_cycles, run_rows_are_lines),
    engine/product/rows_are_lines_plan.pxi (LineRows), engine/product/rows_are_positions.pxi (fits_rows_are_positions,
    lay_out_rows_are_positions, rows_are_positions_cycles, run_rows_are_positions), engine/product/stacked.pxi (Place,
    Strip, most_places, stackable), engine/trials.pxi, engine/weights/chain_lanes.pxi (ChainLanes, chain_lanes_cycles,
    fits_chain_lanes, lay_out_chain_lanes, run_chain_lanes), engine/weights/depthwise_ncx.pxi (NcxWeights,
    fits_depthwise_ncx_weights, lay_out_depthwise_ncx_weights, run_depthwise_ncx_weights),
    engine/weights/depthwise_nxc.pxi (NxcWeights, fits_depthwise_nxc_weights, lay_out_depthwise_nxc_weights,
    run_depthwise_nxc_weights), engine/weights/depthwise_planes.pxi (PlanesWeights, depthwise_planes_weights_cycles,
    fits_depthwise_planes_weights, lay_out_depthwise_planes_weights, run_depthwise_planes_weights),
    engine/weights/few_channels.pxi (FewChannels, few_channels_cycles, fits_few_channels, lay_out_few_channels,
    run_few_channels), engine/weights/few_pairs.pxi (FewPairs, few_pairs_cycles, fits_few_pairs, lay_out_few_pairs,
    run_few_pairs), engine/weights/float64.pxi (DoublesPlan, fits_double_weights, lay_out_double_weights,
    run_double_weights), engine/weights/gradient.pxi (Weights, join_lines, relate_weights), engine/weights/plan.pxi
    (WeightsPlan), engine/weights/product.pxi (fits_weights, lay_out_weights, run_weights, weights_cycles),
    engine/weights/tap_lanes.pxi (fits_tap_lanes, lay_out_tap_lanes, run_tap_lanes, tap_lanes_cycles),
    engine/weights/tap_lanes_plan.pxi (TapLanes), engine/weights/tap_pairs.pxi (TapPairs, fits_tap_pairs,
    lay_out_tap_pairs, run_tap_pairs, tap_pairs_cycles)
gives: ALGORITHMS, Algorithm, CHOICES, Inquiry, Problem, algorithms, begin_sums, begin_weights, bytes_of, choose,
    chosen_bytes, compute, end_problem
"""

cdef struct Problem:
    const instruction_set* isa
    const pair_functions* pairs  # in which products of bfloat16 are taken, or NULL
    int threads
    double work                  # products of numbers
    Inquiry* inquiry             # or NULL
    bint thorough                # algorithms that do not pay are planned too
    # the sums
    Product* products
    int64_t count
    int64_t columns              # of them, one after the other, take turns along the innermost axis
    # or the weights gradient
    Weights* weights             # or NULL
    Weights lines                # ... of positions in as few lines as possible
    Product relation             # forward's, where sums are taken in chains
    int64_t* shifts              # room for one of each tap
    # the plans, one for each algorithm
    void* heap                   # what their lists need
    Layout* layouts
    NcxPlan* ncx_plans
    Strip* strips
    Place* places
    ProductPlan gathered
    ProductPlan laid_out
    FewColumns few_columns
    LineRows line_rows
    Patches patches
    NxcPlan nxc
    NcxCall ncx
    Planes planes
    DoubleTasks doubles
    DoubleLines double_lines
    WeightsPlan weights_plan
    FewChannels few_channels
    FewPairs few_pairs
    NcxWeights ncx_weights
    PlanesWeights planes_weights
    NxcWeights nxc_weights
    TapLanes weights_lanes
    ChainLanes chain_lanes
    TapPairs tap_pairs
    DoublesPlan double_weights
    PositionRowsScratch* position_rows
    PositionRowsJob* position_jobs
    int64_t products_together    # by positions as rows
    int64_t joined_taps          # ... of all products, whose weights are packed together, or 0
    int64_t transposed_images    # at a time
    float* transposed
    PositionClass* position_classes


cdef struct Algorithm:
    const char* name
    const char* source                                    # its file
    bint in_pairs                                         # takes products in the pairs that a problem names
    bint (*fits)(Problem*) noexcept nogil                 # plans it
    double (*cycles)(const Problem*) noexcept nogil       # of what was planned
    void (*lay_out)(Problem*, workspace*) noexcept nogil  # the one statement of its buffers: counts them, or takes them
    bint (*run)(Problem*, workspace*) noexcept nogil      # false: these are not the results of the definition


cdef struct Inquiry:  # what a caller wants to know or decides
    const Algorithm* forced  # or NULL
    bint asked               # nothing is computed
    int64_t bytes_needed     # of workspace, at most
    void* findings           # a list, or NULL


cdef enum:
    ALGORITHMS = 21
    CHOICES = 2 * ALGORITHMS  # of trials: in pairs where a problem names some, then without; core/trials.h has room for TRIAL_ALGORITHMS
    NO_MEMORY = 2             # instead of whether an algorithm has run

cdef Algorithm algorithms[ALGORITHMS]
algorithms[:] = [
    Algorithm(b"depthwise_nxc", b"product/depthwise_nxc.pxi", False, fits_depthwise_nxc, peak_cycles,
              lay_out_depthwise_nxc, run_depthwise_nxc),
    Algorithm(b"depthwise_planes", b"product/depthwise_planes.pxi", False, fits_depthwise_planes, depthwise_planes_cycles,
              lay_out_depthwise_planes, run_depthwise_planes),
    Algorithm(b"depthwise_ncx", b"product/depthwise_ncx.pxi", False, fits_depthwise_ncx, peak_cycles,
              lay_out_depthwise_ncx, run_depthwise_ncx),
    Algorithm(b"gathered", b"product/gathered.pxi", True, fits_gathered, gathered_cycles, lay_out_gathered, run_gathered),
    Algorithm(b"laid_out", b"product/laid_out.pxi", True, fits_laid_out, laid_out_cycles, lay_out_laid_out,
              run_laid_out_products),
    Algorithm(b"rows_are_positions", b"product/rows_are_positions.pxi", True, fits_rows_are_positions,
              rows_are_positions_cycles, lay_out_rows_are_positions, run_rows_are_positions),
    Algorithm(b"rows_are_lines", b"product/rows_are_lines.pxi", True, fits_rows_are_lines, rows_are_lines_cycles, lay_out_rows_are_lines,
              run_rows_are_lines),
    Algorithm(b"patches", b"product/patches.pxi", True, fits_patches, patches_cycles, lay_out_patches, run_patches),
    Algorithm(b"few_columns", b"product/few_columns.pxi", False, fits_few_columns, few_columns_cycles,
              lay_out_few_columns, run_few_columns),
    Algorithm(b"float64_lines", b"product/float64_lines.pxi", False, fits_double_lines, peak_cycles, lay_out_double_lines,
              run_double_lines),
    Algorithm(b"float64", b"product/float64.pxi", False, fits_doubles, doubles_cycles, lay_out_all_doubles, run_doubles),
    Algorithm(b"weights_depthwise_nxc", b"weights/depthwise_nxc.pxi", False, fits_depthwise_nxc_weights, peak_cycles,
              lay_out_depthwise_nxc_weights, run_depthwise_nxc_weights),
    Algorithm(b"weights_depthwise_planes", b"weights/depthwise_planes.pxi", False, fits_depthwise_planes_weights,
              depthwise_planes_weights_cycles, lay_out_depthwise_planes_weights, run_depthwise_planes_weights),
    Algorithm(b"weights_few_pairs", b"weights/few_pairs.pxi", True, fits_few_pairs, few_pairs_cycles, lay_out_few_pairs,
              run_few_pairs),
    Algorithm(b"weights_depthwise_ncx", b"weights/depthwise_ncx.pxi", False, fits_depthwise_ncx_weights, peak_cycles,
              lay_out_depthwise_ncx_weights, run_depthwise_ncx_weights),
    Algorithm(b"weights_few_channels", b"weights/few_channels.pxi", False, fits_few_channels, few_channels_cycles,
              lay_out_few_channels, run_few_channels),
    Algorithm(b"weights_chain_lanes", b"weights/chain_lanes.pxi", False, fits_chain_lanes, chain_lanes_cycles, lay_out_chain_lanes,
              run_chain_lanes),
    Algorithm(b"weights_product", b"weights/product.pxi", True, fits_weights, weights_cycles, lay_out_weights, run_weights),
    Algorithm(b"weights_tap_lanes", b"weights/tap_lanes.pxi", False, fits_tap_lanes, tap_lanes_cycles, lay_out_tap_lanes,
              run_tap_lanes),
    Algorithm(b"weights_tap_pairs", b"weights/tap_pairs.pxi", True, fits_tap_pairs, tap_pairs_cycles, lay_out_tap_pairs,
              run_tap_pairs),
    Algorithm(b"weights_float64", b"weights/float64.pxi", False, fits_double_weights, doubles_cycles,
              lay_out_double_weights, run_double_weights),
]


cdef const Algorithm* choose(Problem* q, double* cycles) noexcept nogil:
    """The algorithm that fits and takes the fewest cycles, or NULL; and the estimates of all that fit, up to the first whose estimate
    is the products alone, or 0."""
    cdef const Algorithm* best = NULL
    cdef int i
    memset(cycles, 0, ALGORITHMS * sizeof(double))
    if q.weights == NULL:
        prepare_products(q)
    for i in range(ALGORITHMS):
        if q.inquiry != NULL and q.inquiry.forced != NULL and q.inquiry.forced != &algorithms[i]:
            continue
        if not algorithms[i].fits(q):
            continue
        cycles[i] = algorithms[i].cycles(q)
        if best == NULL or cycles[i] < cycles[best - algorithms]:
            best = &algorithms[i]
        if algorithms[i].cycles == peak_cycles:
            break
    return best


cdef int64_t bytes_of(const Algorithm* algorithm, Problem* q) noexcept nogil:
    """Of its workspace."""
    cdef workspace memory = workspace(NULL, 0, 0, 0)
    algorithm.lay_out(q, &memory)
    return memory.used


cdef int64_t chosen_bytes(Problem* q, bint tried) noexcept nogil:
    """Of the largest workspace that the least estimates take, in products in pairs and, where these do not do, without; or of those
    that `compute` tries, too."""
    cdef const pair_functions* pairs = q.pairs
    cdef const Algorithm* algorithm
    cdef double cycles[ALGORITHMS]
    cdef int64_t needed = 0
    cdef int i
    while True:
        algorithm = choose(q, cycles)
        if algorithm != NULL:
            needed = max(needed, bytes_of(algorithm, q))
            if tried and trying and keep_near(algorithm, cycles) > 1 and keep_small(q, trial_room(algorithm, q), cycles) > 1:
                for i in range(ALGORITHMS):
                    if cycles[i] > 0:
                        needed = max(needed, bytes_of(&algorithms[i], q))
        if q.pairs == NULL or algorithm != NULL and not algorithm.in_pairs and not (tried and trying):
            break
        q.pairs = NULL
    q.pairs = pairs
    return needed


cdef int compute(Problem* q) except -1 nogil:
    """Run the algorithm of choice; without pairs if the results in pairs are not those of the definition. Returns true where none are."""
    cdef const Algorithm* algorithm
    cdef const Algorithm* best
    cdef const pair_functions* pairs
    cdef double cycles[CHOICES]
    cdef bint tried = False
    cdef Trial trial
    cdef int outcome
    if q.inquiry != NULL and q.inquiry.asked:
        return answer(q)
    while True:
        algorithm = choose(q, cycles)
        if algorithm == NULL and tried:  # the algorithm that is named fits in pairs only: values do not decide what is refused
            q.inquiry = NULL
            algorithm = choose(q, cycles)
        if algorithm != NULL:
            tried = True
            best, pairs = algorithm, q.pairs
            algorithm = begin_trial(q, best, cycles, &trial)
            outcome = run_algorithm(algorithm, q)
            end_trial(&trial, outcome == 1)
            if outcome == NO_MEMORY and (algorithm != best or q.pairs != pairs):
                q.pairs = pairs
                algorithm = choose(q, cycles)
                outcome = run_algorithm(algorithm, q)
            if outcome == NO_MEMORY:
                with gil:
                    raise MemoryError
            if outcome:
                return 0
            if not algorithm.in_pairs:
                return 1
        if q.pairs == NULL:
            return 1 if algorithm != NULL else refuse(q)
        q.pairs = NULL


cdef int run_algorithm(const Algorithm* algorithm, Problem* q) except -1 nogil:
    """Returns whether the results are those of the definition, or NO_MEMORY."""
    cdef workspace memory = workspace(NULL, 0, bytes_of(algorithm, q), 0)
    cdef bint done, overrun
    memory.base = take_workspace(memory.capacity)
    if memory.base == NULL:
        return NO_MEMORY
    algorithm.lay_out(q, &memory)
    enter_workspace(&memory)
    done = algorithm.run(q, &memory)
    leave_workspace()
    overrun = workspace_guarded and workspace_overrun(&memory)
    return_workspace(memory.base)
    if overrun:
        with gil:
            raise RuntimeError(f"algorithm {algorithm.name.decode()} wrote beyond a buffer of its workspace")
    return done


# ---------------------------------------------------------------------------------------------------------------------
# Inquiries


cdef int refuse(Problem* q) except -1 nogil:
    """The algorithm that a caller names does not fit."""
    cdef const Algorithm* forced = q.inquiry.forced
    cdef int i
    q.inquiry.forced = NULL
    with gil:
        fitting = ", ".join([algorithms[i].name.decode() for i in range(ALGORITHMS) if algorithms[i].fits(q)])
        raise OverflowError(f"a call that the algorithm {forced.name.decode()!r} does not fit",
                            f"the algorithms that fit it: {fitting}")


cdef int answer(Problem* q) except -1 nogil:
    """Add to the inquiry what would be computed."""
    cdef const Algorithm* chosen
    cdef const pair_functions* pairs
    cdef double cycles[ALGORITHMS]
    while True:
        chosen = choose(q, cycles)
        if chosen != NULL or q.pairs == NULL:
            break
        q.pairs = NULL
    if chosen == NULL:
        return refuse(q)
    pairs = q.pairs
    if q.inquiry.findings != NULL:
        if q.inquiry.forced == NULL:
            chosen = measured_algorithm(q, chosen, cycles)
        with gil:
            unit = unit_of(q, chosen)
            q.pairs = pairs
            candidates = []
            add_candidates(q, candidates)
            (<list>q.inquiry.findings).append((chosen.name.decode(), unit, q.threads, q.work, candidates))
        q.pairs = pairs
    q.inquiry.bytes_needed = max(q.inquiry.bytes_needed, chosen_bytes(q, q.inquiry.forced == NULL))
    return 0


cdef str unit_of(const Problem* q, const Algorithm* algorithm):
    """What multiplies in an algorithm that is planned."""
    if algorithm.run == run_depthwise_planes and q.planes.pairs != NULL:
        return "dot products"
    if not algorithm.in_pairs or q.pairs == NULL:
        return "multiply-adds"
    return "matrix unit" if on_matrix(q.pairs) else "dot products"


cdef int add_candidates(Problem* q, list found) except -1:
    """The algorithms that fit, in the pairs of a problem and without: name, file, unit, cycles, bytes of workspace, shortest time."""
    cdef const Algorithm* a
    cdef uint64_t key = problem_key(q)
    cdef bint again
    cdef int i
    for again in range(2 if q.pairs != NULL else 1):
        if again:
            q.pairs = NULL
        if q.weights == NULL:
            prepare_products(q)
        for i in range(ALGORITHMS):
            a = &algorithms[i]
            if (a.in_pairs or not again) and a.fits(q):
                found.append((a.name.decode(), a.source.decode(), unit_of(q, a), a.cycles(q), bytes_of(a, q),
                              trial_seconds(key, again * ALGORITHMS + i) or None))
    return 0


# ---------------------------------------------------------------------------------------------------------------------
# The life of a problem


cdef void begin_problem(Problem* q, double work, int threads, Inquiry* inquiry) noexcept nogil:
    q.isa, q.pairs, q.heap, q.weights, q.work = current, NULL, NULL, NULL, work
    q.threads, q.inquiry = team_for(work, threads), inquiry
    q.thorough = inquiry != NULL and (inquiry.forced != NULL or inquiry.findings != NULL)


cdef int begin_sums(Problem* q, Product* products, int64_t count, int64_t columns, int threads, Inquiry* inquiry) except -1 nogil:
    """Sums that share groups, rows, channels and the input."""
    cdef double work = 0
    cdef int64_t i, plans, strips, places
    cdef const Product* p
    cdef bint within = within_bfloat16(products.input.format) and within_bfloat16(products.weights.format)
    for i in range(count):
        p = &products[i]
        work += <double>p.N * p.Q[0] * p.Q[1] * p.Q[2] * p.G * p.R * p.D * p.all_count
    begin_problem(q, work, threads, inquiry)
    q.products, q.count, q.columns = products, count, columns
    if within and products.D > 1:
        q.pairs = q.isa.pairs
        if sums_in_blocks(products.D, products.R, products.input.format, products.weights.format) and q.isa.matrix != NULL:
            q.pairs = q.isa.matrix
    plans = count if few_channels_in_groups(products) else 0
    strips = count if stackable(products, products.D, q.isa) else 0
    places = most_places(products, count) if strips else 0
    q.heap = malloc(count * sizeof(Layout) + plans * sizeof(NcxPlan) + strips * sizeof(Strip) + places * sizeof(Place))
    if q.heap == NULL:
        with gil:
            raise MemoryError
    q.layouts = <Layout*>q.heap
    q.ncx_plans = <NcxPlan*>(q.layouts + count)
    q.strips = <Strip*>(q.ncx_plans + plans)
    q.places = <Place*>(q.strips + strips)
    return 0


cdef int begin_weights(Problem* q, const Weights* w, int threads, Inquiry* inquiry) except -1 nogil:
    """A weights gradient or a part of one."""
    begin_problem(q, <double>w.N * w.Y[0] * w.Y[1] * w.Y[2] * w.G * w.M * w.C * w.K[0] * w.K[1] * w.K[2], threads, inquiry)
    q.lines = w[0]
    q.weights = &q.lines
    join_lines(q.weights, q.isa)
    if within_bfloat16(w.large.format) and within_bfloat16(w.small.format):
        q.pairs = q.isa.pairs if q.isa.matrix == NULL else q.isa.matrix
    return relate_weights(q)


cdef void end_problem(Problem* q) noexcept nogil:
    free(q.heap)
