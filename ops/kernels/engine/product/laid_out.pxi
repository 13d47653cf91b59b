"""Algorithm `laid_out`: products over an input block that is laid out once for all taps.

A block of the input, framed with zeros, is copied to [channel][phase][u0][u1][u2]: positions of one residue modulo the
step lie side by side, so that every tap finds the lanes of a column panel contiguous, at its own shift.  Columns run over
(q1, q2) with the pitch of the block's rows; those between two rows are computed and not stored.  Against gathered panels,
which copy the input once per tap, this trades copies for idle columns: it wins where rows are few or lines are long.

In volumes the block of a plane of results is that of the plane before it, but for one plane of input, which takes the place of
one that is no longer met.

uses: engine/algorithms.pxi (Problem), engine/costs.pxi, engine/product/gathered.pxi (panel_cycles),
    engine/product/jobs.pxi (Job, run_product_plan), engine/product/laid_out_plan.pxi, engine/product/pairs.pxi
    (bring_near, on_matrix, tile_of), engine/product/plan.pxi (ProductPlan, lay_out_products, plan_passes),
    engine/product/product.pxi (Product, ProductScratch, STEPS, SUM_BYTES, next_panel, row_panels),
    engine/product/stacked.pxi (lines_to_stack, run_stacked), engine/product/store.pxi (find_result, result_rows,
    store_tile),
    engine/trials.pxi (trying)
gives: block_at, fits_laid_out, laid_out_cycles, lay_out_laid_out, run_laid_out, run_laid_out_products
"""

cdef inline int64_t block_at(const Layout* l, int64_t number, int64_t* first) noexcept nogil:
    """The first output position of a block; returns its image."""
    cdef int axis, i
    for i in range(3):
        axis = i if l.rolls else 2 - i  # a rolling block goes along axis 0 first
        first[axis] = number % l.blocks[axis] * l.block[axis]
        number //= l.blocks[axis]
    return number


cdef void run_laid_out(const Job* job, const instruction_set* isa, int64_t number, int64_t first, int64_t end,
                       ProductScratch* s) noexcept nogil:
    """Block `number`, which has been laid out, against row panels [first, end) of a job. Products that share a layout share the
    block, and where the job holds stacked weights a tile."""
    cdef Filled at
    cdef const Product* p = job.product
    cdef const float* packed = job.packed - job.item * p.panel_size  # item 0 of the first product
    cdef int64_t i
    cdef int axis
    cdef bint some
    at.g, at.n = job.g, block_at(job.layout, number, at.first)
    if job.stacked != NULL:
        run_stacked(job, isa, &at, s)
        return
    for i in range(job.together):
        p = &job.product[i]
        some = True
        for axis in range(3):
            at.end[axis] = min(p.Q[axis], at.first[axis] + job.layout.block[axis])
            some = some and at.end[axis] > at.first[axis]
        if some:
            run_filled(p, &job.layout[i], isa, &at, job.first_row_panel + first, job.first_row_panel + end,
                       packed + (job.item + first) * p.panel_size, s)
        packed += job.items * p.panel_size


cdef void run_filled(const Product* p, const Layout* l, const instruction_set* isa, const Filled* at, int64_t first_row_panel,
                     int64_t end_row_panel, const float* packed, ProductScratch* s) noexcept nogil:
    """The positions of a block that has been laid out, against row panels [first_row_panel, end_row_panel)."""
    cdef int64_t t, run_count = 0, q0, lanes, vectors, panels, j, lane, count, r, row, rows, done, steps, next_run, width
    cdef int64_t all_rows = row_panels(p), span_count, shift, vector_count, pitch
    cdef tile_run* run
    cdef float* tile
    cdef float* block = s.block
    cdef const tile_result* result
    cdef int64_t next = next_panel(p, end_row_panel - first_row_panel)
    cdef bint single = end_row_panel - first_row_panel == 1, near = on_matrix(p.pairs) and not single
    cdef const float* lanes_from
    cdef const tile_run* runs
    check_room(b"run_filled", s.runs, p.tap_count * (1 if single else ceiling(p.S, STEPS)) * sizeof(tile_run))
    for t in range(p.tap_count):
        if p.padded and not tap_meets(p, &p.taps[t], at.first, at.end):
            continue
        done = 0
        while done < p.S:
            steps = p.S if single else min(STEPS, p.S - done)
            row, shift = t * p.tap_floats + done * p.rows, tap_lanes(l, &p.taps[t], at.first) + done * l.lane_pitch
            run = &s.runs[run_count - 1]
            if (run_count > 0 and run.rows + run.steps * p.rows == row and run.lanes + run.steps * l.lane_pitch == shift
                    and run.steps % p.block == 0 and (single or run.steps + steps <= STEPS)):
                run.steps += steps
            else:
                s.runs[run_count] = tile_run(row, shift, steps)
                run_count += 1
            done += steps
    if p.R == 1:
        run_lines(p, l, isa, at, run_count, packed, s)
        return
    lanes = (at.end[1] - at.first[1] - 1) * l.u[2] + at.end[2] - at.first[2]
    vectors = ceiling(lanes, isa.width)
    panels = ceiling(vectors, isa.vectors)
    for q0 in range(at.end[0] - at.first[0]):
        for j in range(panels):
            lane = share(vectors, panels, j) * isa.width
            width = share(vectors, panels, j + 1) * isa.width - lane
            count = min(lanes, lane + width) - lane
            vector_count = width // isa.width
            span_count = laid_out_spans(p, l, at, at.first[0] + q0, at.first[1], l.block[1], lane, count, s.spans)
            find_result(p, isa, s.spans, span_count, &s.result)
            done = 0
            while True:
                # Several row panels take the steps in turns, so that the lanes stay near; one takes all at once.
                next_run = done
                steps = 0
                while next_run < run_count and (single or steps == 0 or steps + s.runs[next_run].steps <= STEPS):
                    steps += s.runs[next_run].steps
                    next_run += 1
                lanes_from, runs, pitch = block + q0 * l.u[1] * l.u[2] + lane, s.runs + done, l.lane_pitch
                if near:
                    bring_near(isa, lanes_from, runs, next_run - done, pitch, width, s)
                    lanes_from, runs, pitch = s.lanes, s.near_runs, isa.vectors * isa.width
                for r in range(first_row_panel, end_row_panel):
                    row = share(p.R, all_rows, r)
                    rows = share(p.R, all_rows, r + 1) - row
                    tile = s.sums + (r - first_row_panel) * p.rows * isa.vectors * isa.width
                    check_room(b"run_filled", tile, 4 * rows * isa.vectors * isa.width)
                    result = result_rows(p, at.g, row, rows, &s.result) if next_run == run_count else NULL
                    tile_of(isa, p.pairs, p.blocks, rows, vector_count)(
                        runs, next_run - done, packed + (r - first_row_panel) * p.panel_size, next, lanes_from, pitch, tile,
                        done > 0, &s.meanwhile, result)
                    if result != NULL and not result.direct:
                        store_tile(p, isa, tile, rows, result, s.spans, span_count)
                done = next_run
                if done == run_count:
                    break


cdef void run_lines(const Product* p, const Layout* l, const instruction_set* isa, const Filled* at, int64_t run_count,
                    const float* packed, ProductScratch* s) noexcept nogil:
    """A block of the only row, line by line."""
    cdef int64_t q0, q1, lines, count = at.end[2] - at.first[2], place
    cdef float bias = 0 if p.bias == NULL else p.bias[at.g]
    cdef lane_span span
    cdef line_function run = isa.lines if p.pairs == NULL else p.pairs.lines
    for q0 in range(at.first[0], at.end[0]):
        place = (at.n * p.output.n + at.g * p.output.g + q0 * p.output.x[0] + at.first[1] * p.output.x[1] + at.first[2] * p.output.x[2])
        lines = at.end[1] - at.first[1]
        if p.output.format == NUMBER_FLOAT32 and p.output.x[2] == 1:
            run(s.runs, run_count, packed, s.block + (q0 - at.first[0]) * l.u[1] * l.u[2], l.lane_pitch, l.u[2], lines, count,
                <float*>p.output.data + place, p.output.x[1], bias)
            continue
        q1 = 0
        while q1 < at.end[1] - at.first[1]:
            lines = min(at.end[1] - at.first[1] - q1, max(1, SUM_BYTES // (4 * (count + isa.width))))
            check_room(b"run_lines", s.sums, 4 * lines * count)
            run(s.runs, run_count, packed, s.block + ((q0 - at.first[0]) * l.u[1] + q1) * l.u[2], l.lane_pitch, l.u[2], lines,
                count, s.sums, count, bias)
            span = lane_span(0, count, place + q1 * p.output.x[1], p.output.x[2])
            isa.scatter(s.sums, count, lines, p.output.data, p.output.format, p.output.x[1], &span, 1, NULL)
            q1 += lines


cdef bint fits_laid_out(Problem* q) noexcept nogil:
    cdef ProductPlan* plan = &q.laid_out
    cdef bint some = False, possible = False
    cdef int64_t i
    if q.weights != NULL or q.products.input.format == NUMBER_FLOAT64:
        return False
    memset(plan, 0, sizeof(ProductPlan))
    plan.layouts = q.layouts
    plan.shared = q.count > 1 and plan_shared(q.products, q.count, q.isa, plan.layouts)
    for i in range(q.count):
        if not plan.shared:
            plan_laid_out(&q.products[i], q.isa, UNALIGNED, lines_to_stack(q.products, q.count, q.isa), &plan.layouts[i])
        some = some or plan.layouts[i].chosen
        possible = possible or plan.layouts[i].possible
    if not some:
        if not (possible and (q.thorough or trying)):
            return False
        for i in range(q.count):
            plan.layouts[i].chosen = plan.layouts[i].possible
    plan_layouts(q, plan)
    plan_passes(q, plan)
    return True


cdef double laid_out_cycles(const Problem* q) noexcept nogil:
    """What gathering costs, less what blocks save; where they pay, numbers are not decoded for every tap."""
    cdef bint pays = False
    cdef double laid_out = 0, gathered = 0, bias = 1
    cdef int64_t i
    cdef const Product* p
    cdef const Layout* l
    for i in range(q.count):
        p, l = &q.products[i], &q.laid_out.layouts[i]
        gathered += p.columns * l.gathered
        laid_out += p.columns * (l.cycles if l.chosen else l.gathered)
        pays = pays or l.chosen and l.cycles < l.gathered
    if pays:
        bias = LAID_OUT_BIAS
        if q.products.Q[0] > 1 and q.count >= 8:
            bias *= LAID_OUT_CLASSES
        if loads_wait():
            if q.products.G > 1 and q.products.R >= LEAST_GROUP:
                bias *= LAID_OUT_GROUPS
            elif q.count == 1 and 16 < q.products.R <= 32 and q.products.tap_count > FEW_TAPS and q.products.Q[2] < 2 * DOT_LANES:
                bias *= LAID_OUT_SHORT
    return (panel_cycles(q, not pays, True) * bias * (laid_out / gathered if gathered > 0 else 1)
            + (far_results(q) if q.pairs != NULL else 0))


cdef void lay_out_laid_out(Problem* q, workspace* memory) noexcept nogil:
    lay_out_products(q, &q.laid_out, memory)


cdef bint run_laid_out_products(Problem* q, workspace* memory) noexcept nogil:
    return run_product_plan(q, &q.laid_out)
