"""Algorithm `rows_are_positions`: products whose rows are positions and whose lanes are output channels.

The input is transposed once, channels innermost, so that any tap reads a position's channels one after the other where they
lie; for dot products, pairs of adjacent channels.  Output positions are cut into boxes, and a box into classes of positions that
meet the same taps (`rows_are_positions_plan.pxi`).  A tile takes some positions of a class and a panel of output channels through
all taps whose packed weights stay in the middle cache together.  Nothing is gathered for a tap, and no product meets the padding.
Where the packed weights of all panels are few, all threads pack them first, and a box meets all panels while its input is near;
otherwise a task packs the panel that it uses for all boxes, and all threads pack only the panels that are left over when each has as
many.  Stride classes of few positions have panels that hold the weights of all classes, which are read once, and as few lanes as
keep a panel near.  Against gathered panels this wins where lines are short or weights far; where the input has few taps to meet,
transposing it costs more.

uses: core/problem.pxi (Operand), engine/ahead.pxi (next_rows), engine/algorithms.pxi (Problem), engine/costs.pxi,
    engine/product/pairs.pxi (never_subnormal, on_matrix, whole_of), engine/product/position_store.pxi (store_box,
    store_cells_of_box), engine/product/position_weights.pxi (PositionRowsJob, PositionRowsScratch, ask_for_panel,
    lane_channel, pack_position_rows, panel_bytes), engine/product/product.pxi (PositionClass, Product, Tap, are_far),
    engine/product/rows_are_positions_plan.pxi (Box, PositionRows, cut_classes, plan_position_rows),
    engine/product/transposed.pxi
gives: fits_rows_are_positions, lay_out_rows_are_positions, rows_are_positions_cycles, run_rows_are_positions
"""

cdef enum:
    MOST_CLASSES = 4096           # of positions
    LEAST_CHANNELS = 16
    PANEL_BYTES = 8 << 20         # packed weights of a task, at most
    PRODUCTS_BYTES = 4 << 20      # ... that all threads pack, of products that are computed together
    MOST_TOGETHER = 64            # that are, at most
    JOINED_COLUMNS = 512          # of each product, at most, where panels hold the weights of all: of more, packing is a small part
    JOINED_PANEL = 4 << 20        # ... bytes of a panel of one vector of lanes, at most
    NEAR_PANEL = 3 << 19          # ... that stay in the middle cache
    NEAR_INPUT = 1 << 20          # ... of the input that stays near while one panel after another meets it
    NEAR_IMAGES = 2 << 20         # bytes of transposed images that stay near until they are met, where all panels are packed together


cdef void lay_out_jobs(const Problem* q, int64_t first_product, int64_t first, int64_t count, PositionRowsJob* jobs,
                       PositionRowsScratch* scratch, workspace* memory) noexcept nogil:
    """The products that are computed together, from `first_product` on, of some images, and the buffers of all threads; or NULL to
    count."""
    cdef PositionRowsJob counted
    cdef PositionRowsScratch counted_scratch
    cdef PositionRowsJob* job
    cdef PositionRowsScratch* s
    cdef int64_t i, item_floats = 0, sums = 0, columns = 0, classes = 0, runs = 0, cells = 0, before = 0
    cdef float* packed = NULL
    cdef int worker
    for i in range(q.products_together):
        job = &counted if jobs == NULL else &jobs[i]
        job.product = of_images(&q.products[first_product + i], first, count)
        plan_position_rows(q, &job.product, &job.plan)
        job.packs = 1 if q.joined_taps == 0 else q.count if i == 0 else 0
        if job.packs > 0:
            packed = <float*>take(memory, panel_bytes(&job.plan))
            before = 0
        job.before = before
        before += job.product.tap_count * job.plan.tap_floats
        job.packed = packed + job.before
        job.packing = (job.plan.items - job.plan.whole) * job.plan.pieces if job.packs > 0 else 0
        if job.plan.whole > 0:
            item_floats = max(item_floats, job.plan.item_floats)
        sums = max(sums, job.plan.most_columns * job.plan.pitch)
        columns = max(columns, job.plan.most_columns)
        classes = max(classes, job.plan.ranges[0] * job.plan.ranges[1] * job.plan.ranges[2])
        runs = max(runs, job.plan.near_taps)
        if job.product.cell != NULL:
            cells = job.plan.pitch * TILE_LANES
    for worker in range(q.threads):
        s = &counted_scratch if scratch == NULL else &scratch[worker]
        s.packed = <float*>take(memory, 4 * item_floats)
        s.ahead.left = 0
        s.sums = <float*>take(memory, 4 * sums)
        s.bases = <int64_t*>take(memory, columns * sizeof(int64_t))
        s.order = <int64_t*>take(memory, columns * sizeof(int64_t))
        s.classes = <PositionClass*>take(memory, classes * sizeof(PositionClass))
        s.runs = <tile_run*>take(memory, runs * sizeof(tile_run))
        s.cells = <float*>take(memory, 4 * cells)


cdef void prepare_position_rows(const Problem* q, const Product* some, const Operand* input, int64_t transposing, int64_t task,
                                PositionRowsScratch* s) noexcept nogil:
    """What comes before products: some positions of the `input`, transposed from that of `some` images, or a piece of a panel that all
    threads pack."""
    cdef const PositionRowsJob* job = q.position_jobs
    cdef const Product* p
    cdef int64_t piece, blocks, first, end
    if task < transposing:
        transpose_some(some, q.isa, input, task, &s.smallest)
        return
    task -= transposing
    while task >= job.packing:
        task -= job.packing
        job += 1
    p = &job.product
    piece, task = task % job.plan.pieces, task // job.plan.pieces
    blocks = p.S // p.block
    first = share(blocks, job.plan.pieces, piece) * p.block
    end = p.S if piece + 1 == job.plan.pieces else share(blocks, job.plan.pieces, piece + 1) * p.block
    pack_position_rows(job, q.isa, job.plan.whole + task, first, end, job.packed + task * job.plan.item_floats, &s.smallest_weight)


cdef int64_t class_runs(const Product* p, const PositionRows* plan, const PositionClass* positions, int64_t first_tap, int64_t d,
                        tile_run* runs) noexcept nogil:
    """The near weights from a tap and its step d on, of the taps that a class of positions meets: a run of each; returns their
    number."""
    cdef int64_t number = 0, t, x
    cdef const Tap* tap
    cdef bint meets
    cdef int axis
    for t in range(first_tap, min(p.tap_count, first_tap + plan.near_taps)):
        tap = &p.taps[t]
        meets = True
        for axis in range(3):
            x = positions.q[axis] * p.step[axis] + tap.offset[axis]
            meets = meets and 0 <= x < p.I[axis]
        if not meets:
            continue
        x = tap.offset[0] * p.input.x[0] + tap.offset[1] * p.input.x[1] + tap.offset[2] * p.input.x[2]
        runs[number] = tile_run(x + d * p.input.c, (t - first_tap) * plan.tap_floats, min(plan.near_steps, p.S - d))
        number += 1
    return number


cdef void find_bases(const Product* p, int64_t g, const Box* box, const PositionClass* positions, int64_t* bases) noexcept nogil:
    """Where the input of a class begins."""
    cdef int64_t n, q0, q1, q2, line, number = 0
    for n in range(box.first[0], box.end[0]):
        for q0 in range(positions.q[0], positions.q[0] + positions.extent[0]):
            for q1 in range(positions.q[1], positions.q[1] + positions.extent[1]):
                line = (n * p.input.n + g * p.input.g + q0 * p.step[0] * p.input.x[0] + q1 * p.step[1] * p.input.x[1]
                        + positions.q[2] * p.step[2] * p.input.x[2])
                for q2 in range(positions.extent[2]):
                    bases[number + q2] = line + q2 * p.step[2] * p.input.x[2]
                number += positions.extent[2]


cdef inline int64_t position_rows_tasks(const PositionRowsJob* job) noexcept nogil:
    """Panels that a thread packs by itself are tasks of the product that they are packed for."""
    return job.plan.tasks if job.packs > 0 else job.plan.tasks - job.plan.whole


cdef void run_position_rows_task(const PositionRowsJob* job, const instruction_set* isa, int threads, int64_t task,
                                 PositionRowsScratch* s) noexcept nogil:
    """A task of the first of these products, or of one that follows."""
    cdef const Product* p
    cdef const PositionRows* plan
    cdef int64_t item, box, panel, i
    while task >= position_rows_tasks(job):
        task -= position_rows_tasks(job)
        job += 1
    p, plan = &job.product, &job.plan
    if job.packs == 0:
        task += plan.whole
    if plan.together:
        for panel in range(plan.panels):
            item = task // plan.boxes * plan.panels + panel
            run_box(p, plan, isa, item, task % plan.boxes, job.packed + item * plan.item_floats, s)
    elif task >= plan.whole:
        item = (task - plan.whole) // plan.boxes
        run_box(p, plan, isa, plan.whole + item, (task - plan.whole) % plan.boxes, job.packed + item * plan.item_floats, s)
    else:
        pack_position_rows(job, isa, task, 0, p.S, s.packed, &s.smallest_weight)
        ask_for_panel(job, isa, task + threads, &s.ahead)
        for i in range(job.packs):
            for box in range(job[i].plan.boxes):
                run_box(&job[i].product, &job[i].plan, isa, task, box, s.packed + job[i].before, s)


cdef void run_box(const Product* p, const PositionRows* plan, const instruction_set* isa, int64_t item, int64_t number,
                  const float* packed, PositionRowsScratch* s) noexcept nogil:
    """As many weights as stay near against all positions, class by class, and then the next weights."""
    cdef int64_t g = item // plan.panels, panel = item % plan.panels, i, t, d, tap_part, step_part, run_count
    cdef int64_t vectors = share(plan.vectors, plan.panels, panel + 1) - share(plan.vectors, plan.panels, panel)
    cdef Box box
    cdef const PositionClass* positions
    cut_classes(plan, number, &box, s.classes)
    check_room(b"run_box", s.bases, box.columns * sizeof(int64_t))
    check_room(b"run_box", s.sums, 4 * box.columns * vectors * isa.width)
    check_room(b"run_box", s.runs, plan.near_taps * sizeof(tile_run))
    for i in range(box.ranges[0] * box.ranges[1] * box.ranges[2]):
        find_bases(p, g, &box, &s.classes[i], s.bases + s.classes[i].column)
    for tap_part in range(max(1, ceiling(p.tap_count, plan.near_taps))):
        for step_part in range(ceiling(p.S, plan.near_steps)):
            t, d = tap_part * plan.near_taps, step_part * plan.near_steps
            for i in range(box.ranges[0] * box.ranges[1] * box.ranges[2]):
                positions = &s.classes[i]
                run_count = class_runs(p, plan, positions, t, d, s.runs)
                run_class(p, isa, vectors, s.runs, run_count, packed + t * plan.tap_floats + d * plan.pitch, plan.pitch, positions.column,
                          (box.end[0] - box.first[0]) * positions.extent[0] * positions.extent[1] * positions.extent[2],
                          positions.extent[2], t > 0 or d > 0, s)
    if p.cell == NULL:
        store_box(p, isa, g, lane_channel(plan, isa, panel), vectors * isa.width, &box, s)
    else:
        store_cells_of_box(p, isa, g, lane_channel(plan, isa, panel), vectors * isa.width, &box, s)


cdef void run_class(const Product* p, const instruction_set* isa, int64_t vectors, const tile_run* runs, int64_t run_count,
                    const float* packed, int64_t pitch, int64_t first, int64_t count, int64_t line, bint resume,
                    PositionRowsScratch* s) noexcept nogil:
    """Columns from `first` on, which meet the same taps, in tiles of about the same height: one line after the other if tall tiles fit a
    `line`, which do not wait."""
    cdef int64_t tiles, tile, low, rows, width = vectors * isa.width, end = first + count
    cdef bint tall = vectors == 1 and line > TILE_ROWS and isa.tall[0] != NULL and p.pairs == NULL and not p.blocks
    if run_count == 0:
        if not resume:
            memset(s.sums + first * width, 0, 4 * count * width)
        return
    if tall:
        count = line
    tiles = ceiling(count, TALL_ROWS if tall else isa.rows)
    while first < end:
        for tile in range(tiles):
            low = first + share(count, tiles, tile)
            rows = first + share(count, tiles, tile + 1) - low
            if tall and rows > TILE_ROWS:
                isa.tall[rows - TILE_ROWS - 1](runs, run_count, <const float*>p.input.data + s.bases[low], p.step[2] * p.input.x[2], p.input.c,
                                               packed, pitch, s.sums + low * width, resume)
                continue
            whole_of(isa, p.pairs, p.blocks, stores_wait(), rows, vectors)(
                runs, run_count, <const float*>p.input.data, s.bases + low, p.input.c, packed, pitch, s.sums + low * width, resume,
                next_rows(&s.ahead))
        first += count


cdef int64_t images_together(const Problem* q) noexcept nogil:
    """Images that are transposed at a time: few, where panels that are packed once meet them all, else as many as may be, since
    each time packs the weights again."""
    cdef int64_t images = images_at_once(q.products, TRANSPOSED_BYTES), packed = packed_together(q, images), few
    if packed < 0:
        return images
    few = images_at_once(q.products, max(<int64_t>NEAR_IMAGES, 4 * packed))
    return few if packed_together(q, few) >= 0 else images


cdef int64_t packed_together(const Problem* q, int64_t images) noexcept nogil:
    """Bytes of the panels, if those of all products are packed together for so many images, or -1."""
    cdef int64_t i, packed = 0
    cdef PositionRows plan
    cdef Product some
    for i in range(q.count):
        some = of_images(&q.products[i], 0, images)
        plan_position_rows(q, &some, &plan)
        if not plan.together:
            return -1
        packed += panel_bytes(&plan)
    return packed


cdef int64_t taps_joined(const Problem* q) noexcept nogil:
    """Taps of all products, if a panel holds their weights together, which are then read once, or 0: stride classes use other
    numbers of the same cache lines."""
    cdef const Product* p = q.products
    cdef int64_t i, taps = 0
    for i in range(q.count):
        taps += p[i].tap_count
        if p[i].columns > JOINED_COLUMNS:
            return 0
    if q.count == 1 or q.count > MOST_TOGETHER or q.isa.width < DOT_LANES or p.weights.n == 1 or p.weights.c == 1:
        return 0
    return taps if 4 * taps * p.S * q.isa.width <= JOINED_PANEL else 0


cdef bint fits_rows_are_positions(Problem* q) noexcept nogil:
    cdef const Product* p = q.products
    cdef Product some
    cdef int64_t i, packed = 0
    cdef PositionRows plan
    if q.weights != NULL or on_matrix(q.pairs) or p.input.format == NUMBER_FLOAT64 or p.N == 0:
        return False
    if p.R < LEAST_CHANNELS or p.D < LEAST_CHANNELS or 4 * input_positions(p) / p.N * p.G * position_pitch(p) > TRANSPOSED_BYTES:
        return False
    for i in range(q.count):
        if q.products[i].columns == 0:
            return False
    q.joined_taps = taps_joined(q)
    q.transposed_images = images_together(q)
    for i in range(q.count):
        some = of_images(&q.products[i], 0, q.transposed_images)
        plan_position_rows(q, &some, &plan)
        if 4 * plan.item_floats > PANEL_BYTES or not 0 < plan.ranges[0] * plan.ranges[1] * plan.ranges[2] <= MOST_CLASSES:
            return False
        packed += panel_bytes(&plan)
    q.products_together = q.count if q.joined_taps > 0 or q.count <= MOST_TOGETHER and packed <= PRODUCTS_BYTES else 1
    return True


cdef double rows_are_positions_cycles(const Problem* q) noexcept nogil:
    """Of products, packed weights, those that are fetched again for every range, and the transposed input."""
    cdef double cycles = 0, inputs = input_positions(q.products), fetched
    cdef int64_t i
    cdef PositionRows plan
    cdef const Product* p
    cdef Product some
    for i in range(q.count):
        p = &q.products[i]
        if p.tap_count == 0:
            continue
        some = of_images(p, 0, q.transposed_images)
        plan_position_rows(q, &some, &plan)
        cycles += (p.columns * <double>p.tap_count / (VECTORS_A_CYCLE * q.isa.width) * plan.met * plan.vectors * q.isa.width
                   * (1 + TILE_STEPS / min(p.tap_count * p.S, plan.near_taps * plan.near_steps)))
        cycles += PACK_WHOLE * p.tap_count * p.R
        if q.joined_taps == 0 and p.columns < FAR_COLUMNS and are_far(p.tap_count * p.S * p.R):
            cycles += FAR_AND_BACK * p.tap_count * p.R
        fetched = p.columns / <double>some.columns * plan.boxes
        if plan.together or 4 * plan.item_floats > NEAR_PANEL:
            cycles += FAR_PANEL * (fetched - 1) * p.tap_count * plan.vectors * q.isa.width
        if not plan.together and 4 * inputs * p.G * position_pitch(p) > NEAR_INPUT:
            cycles += inputs * p.R / FAR_INPUT
    if not lies_transposed(q.products):
        cycles += (TRANSPOSE_CYCLES if q.pairs == NULL else TRANSPOSE_PAIRS) * inputs
    if q.pairs != NULL and q.products.blocks:
        cycles *= POSITION_ROWS_PAIRS * (POSITION_ROWS_LOADS if loads_wait() else POSITION_ROWS_STORES if stores_wait() else 1)
    return POSITION_ROWS_BIAS * cycles * q.products.S * q.products.G + (far_results(q) if q.pairs != NULL else 0)


cdef void lay_out_rows_are_positions(Problem* q, workspace* memory) noexcept nogil:
    """The copied input of as many images as are computed at a time, and what products need that are computed together."""
    cdef const Product* p = q.products
    cdef int64_t first_product = 0, most = 0, images = q.transposed_images
    cdef workspace rest
    q.transposed = NULL
    if not lies_transposed(p):
        q.transposed = <float*>take(memory, 4 * (p.G * images * p.I[0] * p.I[1] * p.I[2] * position_pitch(p) + q.isa.width))
    q.position_rows = <PositionRowsScratch*>take(memory, q.threads * sizeof(PositionRowsScratch))
    q.position_jobs = <PositionRowsJob*>take(memory, q.products_together * sizeof(PositionRowsJob))
    if memory.base == NULL:
        while first_product < q.count:
            rest = memory[0]
            lay_out_jobs(q, first_product, 0, images, NULL, NULL, &rest)
            most = max(most, rest.used)
            first_product += q.products_together
        memory.used = most


cdef bint run_rows_are_positions(Problem* q, workspace* memory) noexcept nogil:
    """Returns false where pairs do not do: something is so small that a sum might become subnormal."""
    cdef int64_t first = 0, images = q.transposed_images
    cdef uint16_t smallest = 0x7fff, smallest_weight = 0x7fff
    cdef int worker
    for worker in range(q.threads):
        q.position_rows[worker].smallest = q.position_rows[worker].smallest_weight = 0xffff
    while first < q.products.N and run_images(q, first, images, memory):
        first += images
    for worker in range(q.threads):
        smallest = min(smallest, q.position_rows[worker].smallest)
        smallest_weight = min(smallest_weight, q.position_rows[worker].smallest_weight)
    return q.pairs == NULL or never_subnormal(smallest, smallest_weight)


cdef bint run_images(Problem* q, int64_t first, int64_t count, workspace* memory) noexcept nogil:
    """Some images, transposed together; false if a buffer was overrun.  Panels stay packed from the first images on where all products
    are computed together."""
    cdef int64_t first_product = 0, i, task, transposing, packing, tasks
    cdef Product some = of_images(q.products, first, count)
    cdef Operand input = some.input
    cdef PositionRowsJob* jobs = q.position_jobs
    cdef PositionRowsScratch* scratch = q.position_rows
    cdef workspace rest
    if q.transposed != NULL:
        input = transposed_input(&some, q.transposed)
    while first_product < q.count:
        rest = memory[0]
        lay_out_jobs(q, first_product, first, count, jobs, scratch, &rest)
        extend_workspace(&rest)
        transposing = transposing_tasks(&some) if q.transposed != NULL and first_product == 0 else 0
        packing = tasks = 0
        for i in range(q.products_together):
            jobs[i].product.input = input
            packing += jobs[i].packing
            tasks += position_rows_tasks(&jobs[i])
        if first > 0 and q.products_together == q.count:
            packing = 0
        if q.threads == 1:
            for task in range(transposing + packing):
                prepare_position_rows(q, &some, &input, transposing, task, scratch)
            for task in range(tasks):
                run_position_rows_task(jobs, q.isa, q.threads, task, scratch)
        else:
            for task in prange(transposing + packing, schedule="dynamic", num_threads=q.threads):
                prepare_position_rows(q, &some, &input, transposing, task, &scratch[thread_number()])
            for task in prange(tasks, schedule="dynamic", num_threads=q.threads):
                run_position_rows_task(jobs, q.isa, q.threads, task, &scratch[thread_number()])
        if workspace_overrun(&rest):
            memory.last = rest.last
            return False
        first_product += q.products_together
    return True
