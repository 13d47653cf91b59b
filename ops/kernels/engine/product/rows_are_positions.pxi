"""Algorithm `rows_are_positions`: products whose rows are positions and whose lanes are output channels.

The input is transposed once, channels innermost, so that any tap reads a position's channels one after the other where they
lie; for dot products, pairs of adjacent channels.  Output positions are cut into boxes of whole lines, and a box into classes of positions that meet the same taps.  A tile
takes some positions of a class and a panel of output channels through all taps whose packed weights stay in the middle cache
together.  Nothing is gathered for a tap, and no product meets the padding.  Where the packed weights of all panels are few,
they are shared, and a box meets all panels while its input is near; otherwise a task packs the panel that it uses for all
boxes.  Against gathered panels this wins where lines are short or weights far; where the input has few taps to meet,
transposing it costs more.

uses: core/problem.pxi (Operand), engine/algorithms.pxi (Problem), engine/costs.pxi, engine/product/pack.pxi
    (gather_all_taps), engine/product/pairs.pxi (never_subnormal, on_matrix, whole_of),
    engine/product/position_classes.pxi (CUTS_EVERYWHERE, cut_axis), engine/product/product.pxi,
    engine/product/transposed.pxi, engine/weights/few_pairs.pxi (near_steps)
gives: PositionRowsScratch, fits_rows_are_positions, lay_out_rows_are_positions, rows_are_positions_cycles,
    run_rows_are_positions
"""

cdef enum:
    NEAR_WEIGHTS = 1 << 16        # packed weights that stay in the middle cache while all columns of a range meet them
    RANGE_FLOATS = 1 << 17        # of the input that a range of columns meets: stays in the middle cache from tap to tap
    POSITION_ROWS_COLUMNS = 1024  # of a range, at most
    LEAST_COLUMNS = 64            # ... and at least
    MOST_CLASSES = 4096           # of positions
    LEAST_CHANNELS = 32
    PANEL_BYTES = 8 << 20         # packed weights of a task, at most
    NEAR_PANEL = 3 << 19          # ... that stay in the middle cache
    ALL_PANELS_BYTES = 1 << 20    # packed weights of all panels, where every box meets all of them
    NEAR_INPUT = 1 << 20          # ... that stays near while one panel after another meets it
    NEAR_IMAGES = 2 << 20         # bytes of transposed images that stay near until they are met, where all panels are packed together


cdef struct PositionRowsScratch:  # of one thread
    float* packed         # weights of panel `item`
    int64_t item
    float* sums           # [column][lane]
    int64_t* order        # sums of positions in the order of the result
    int64_t* bases        # where the input of a column begins, before any tap
    PositionClass* classes
    tile_run* runs        # of the taps that a class of positions meets
    uint16_t smallest         # magnitude of a bfloat16 met in the input, less one
    uint16_t smallest_weight


cdef struct Box:  # images and output positions that are computed together, class by class
    int64_t first[4]
    int64_t end[4]
    int64_t ranges[3]  # classes along each axis
    int64_t columns


cdef struct PositionRows:
    int64_t vectors       # of the lanes
    int64_t panels
    int64_t items         # panels of all groups
    int64_t pitch         # packed weights of a step of the reduction
    int64_t tap_floats    # ... of a panel from a tap to the next
    int64_t item_floats   # ... of all taps
    int64_t near_taps     # whose weights stay near together
    int64_t near_steps    # ... steps of a tap
    int64_t extent[4]     # images and output positions
    int64_t cut[4]        # ... in so many parts each
    int64_t boxes         # in all
    int64_t most_columns  # positions of a box
    int64_t borders[3][CUTS_EVERYWHERE + 1]  # between ranges of positions that meet the same taps
    int64_t ranges[3]     # how many
    double met            # share of the pairs (position, tap) that lies inside
    bint together         # all panels are packed first: a task is a box, which meets all of them while its input is near
    int64_t whole         # otherwise: panels whose columns one thread takes all
    int64_t tasks         # ... and one for each box of the others, of which all threads pack the weights
    double busiest        # of the packing, what the busiest thread does, times the threads


cdef void cut_boxes(PositionRows* plan, int64_t columns) noexcept nogil:
    """As many whole lines, planes and images as so many columns hold, or parts of a line."""
    cdef int i
    plan.boxes = plan.most_columns = 1
    for i in range(3, -1, -1):
        plan.cut[i] = ceiling(plan.extent[i], max(1, columns // plan.most_columns))
        plan.most_columns *= ceiling(plan.extent[i], plan.cut[i])
        plan.boxes *= plan.cut[i]


cdef void plan_position_rows(const Product* p, const instruction_set* isa, int threads, PositionRows* plan) noexcept nogil:
    cdef double numbers = max(<double>p.N * p.I[0] * p.I[1] * p.I[2], <double>p.columns) * p.S
    cdef int64_t columns = max(LEAST_COLUMNS, min(POSITION_ROWS_COLUMNS, <int64_t>(p.columns * (RANGE_FLOATS / numbers))))
    cdef double missed = 0
    cdef int64_t near
    cdef int axis
    plan.vectors = ceiling(p.R, isa.width)
    plan.panels = ceiling(plan.vectors, isa.vectors)
    plan.items = p.G * plan.panels
    plan.pitch = ceiling(plan.vectors, plan.panels) * isa.width
    plan.tap_floats = staggered(p.S * plan.pitch)
    near = STEPS if p.blocks else max(1, NEAR_WEIGHTS // plan.pitch)  # tiles add each block to sums in memory: more saves nothing
    plan.near_taps = max(1, min(p.tap_count, near // p.S))
    plan.near_taps = ceiling(p.tap_count, ceiling(p.tap_count, plan.near_taps))
    plan.near_steps = ceiling(ceiling(p.S, ceiling(p.S, near)), p.block) * p.block
    plan.item_floats = p.tap_count * plan.tap_floats + isa.width
    plan.met = 1
    plan.extent[0] = p.N
    for axis in range(3):
        plan.extent[axis + 1] = p.Q[axis]
        plan.ranges[axis] = cut_axis(p, axis, CUTS_EVERYWHERE, plan.borders[axis], &missed)
        plan.met *= 1 - missed
    cut_boxes(plan, columns)
    while plan.boxes % threads != 0 and columns > 4 * isa.rows:
        columns -= columns // 4
        cut_boxes(plan, columns)
    plan.together = 4 * plan.items * plan.item_floats <= ALL_PANELS_BYTES and plan.boxes >= threads
    if plan.together:
        plan.whole, plan.tasks, plan.busiest = 0, p.G * plan.boxes, 1
        return
    plan.whole = plan.items - plan.items % threads
    plan.tasks = plan.whole + plan.items % threads * plan.boxes
    plan.busiest = (plan.whole // threads + plan.items % threads) * threads / <double>plan.items


cdef float* lay_out_boxes(PositionRowsScratch* scratch, const PositionRows* plan, int threads, workspace* memory) noexcept nogil:
    """The buffers of all threads, whose number `scratch` has, or NULL to count; returns the packed weights of all panels, or NULL."""
    cdef PositionRowsScratch counted
    cdef float* packed = NULL
    cdef int worker
    if plan.together:
        packed = <float*>take(memory, 4 * plan.items * plan.item_floats)
    for worker in range(threads):
        lay_out_position_rows(&counted if scratch == NULL else &scratch[worker], plan, memory)
    return packed


cdef void lay_out_position_rows(PositionRowsScratch* s, const PositionRows* plan, workspace* memory) noexcept nogil:
    """The buffers of one thread."""
    s.packed = <float*>take(memory, 0 if plan.together else 4 * plan.item_floats)
    s.item = -1
    s.sums = <float*>take(memory, 4 * plan.most_columns * plan.pitch)
    s.bases = <int64_t*>take(memory, plan.most_columns * sizeof(int64_t))
    s.order = <int64_t*>take(memory, plan.most_columns * sizeof(int64_t))
    s.classes = <PositionClass*>take(memory, plan.ranges[0] * plan.ranges[1] * plan.ranges[2] * sizeof(PositionClass))
    s.runs = <tile_run*>take(memory, plan.near_taps * sizeof(tile_run))


cdef inline int64_t lane_channel(const PositionRows* plan, const instruction_set* isa, int64_t panel) noexcept nogil:
    return share(plan.vectors, plan.panels, panel) * isa.width


cdef void pack_position_rows(const Product* p, const PositionRows* plan, const instruction_set* isa, int64_t item, float* packed,
                             uint16_t* smallest) noexcept nogil:
    """The weights of one panel, [tap][step][channel]."""
    cdef int64_t panel = item % plan.panels, row = lane_channel(plan, isa, panel), pitch = plan.pitch
    cdef int64_t rows = min(p.R, lane_channel(plan, isa, panel + 1)) - row
    cdef const char* start = (<const char*>p.weights.data
                              + (item // plan.panels * p.weights.g + row * p.weights.n) * element_size(p.weights.format))
    check_room(b"pack_position_rows", packed, 4 * plan.item_floats)
    if rows % isa.width:
        memset(packed, 0, plan.item_floats * sizeof(float))
    gather_all_taps(p, isa, packed, plan.tap_floats, pitch, rows, start, smallest)


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


cdef void cut_classes(const PositionRows* plan, int64_t number, Box* box, PositionClass* classes) noexcept nogil:
    """Box `number` and its classes, along each axis as many as there are ranges that it meets."""
    cdef int64_t low[3][CUTS_EVERYWHERE]
    cdef int64_t high[3][CUTS_EVERYWHERE]
    cdef int64_t i, i0, i1, i2, first, end, images
    cdef int axis
    cdef PositionClass* positions = classes
    for axis in range(3, -1, -1):
        i = number % plan.cut[axis]
        number //= plan.cut[axis]
        box.first[axis] = share(plan.extent[axis], plan.cut[axis], i)
        box.end[axis] = share(plan.extent[axis], plan.cut[axis], i + 1)
    for axis in range(3):
        box.ranges[axis] = 0
        for i in range(plan.ranges[axis]):
            first, end = max(box.first[axis + 1], plan.borders[axis][i]), min(box.end[axis + 1], plan.borders[axis][i + 1])
            if first < end:
                low[axis][box.ranges[axis]], high[axis][box.ranges[axis]] = first, end
                box.ranges[axis] += 1
    check_room(b"cut_classes", classes, box.ranges[0] * box.ranges[1] * box.ranges[2] * sizeof(PositionClass))
    box.columns, images = 0, box.end[0] - box.first[0]
    for i0 in range(box.ranges[0]):
        for i1 in range(box.ranges[1]):
            for i2 in range(box.ranges[2]):
                positions.column = box.columns
                positions.q[0], positions.q[1], positions.q[2] = low[0][i0], low[1][i1], low[2][i2]
                positions.extent[0] = high[0][i0] - low[0][i0]
                positions.extent[1] = high[1][i1] - low[1][i1]
                positions.extent[2] = high[2][i2] - low[2][i2]
                box.columns += images * positions.extent[0] * positions.extent[1] * positions.extent[2]
                positions += 1


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


cdef void run_position_rows_task(const Product* p, const PositionRows* plan, const instruction_set* isa, int64_t task,
                                 const float* packed, PositionRowsScratch* s) noexcept nogil:
    """A task, with the packed weights of all panels, or NULL."""
    cdef int64_t item = task if task < plan.whole else plan.whole + (task - plan.whole) // plan.boxes, box, panel
    if plan.together:
        for panel in range(plan.panels):
            item = task // plan.boxes * plan.panels + panel
            run_box(p, plan, isa, item, task % plan.boxes, packed + item * plan.item_floats, s)
        return
    if s.item != item:
        pack_position_rows(p, plan, isa, item, s.packed, &s.smallest_weight)
        s.item = item
    for box in range(plan.boxes):
        if task < plan.whole or box == (task - plan.whole) % plan.boxes:
            run_box(p, plan, isa, item, box, s.packed, s)


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
    for tap_part in range(ceiling(p.tap_count, plan.near_taps)):
        for step_part in range(ceiling(p.S, plan.near_steps)):
            t, d = tap_part * plan.near_taps, step_part * plan.near_steps
            for i in range(box.ranges[0] * box.ranges[1] * box.ranges[2]):
                positions = &s.classes[i]
                run_count = class_runs(p, plan, positions, t, d, s.runs)
                run_class(p, isa, vectors, s.runs, run_count, packed + t * plan.tap_floats + d * plan.pitch, plan.pitch, positions.column,
                          (box.end[0] - box.first[0]) * positions.extent[0] * positions.extent[1] * positions.extent[2],
                          t > 0 or d > 0, s)
    store_box(p, isa, g, lane_channel(plan, isa, panel), vectors * isa.width, &box, s)


cdef void run_class(const Product* p, const instruction_set* isa, int64_t vectors, const tile_run* runs, int64_t run_count,
                    const float* packed, int64_t pitch, int64_t first, int64_t count, bint resume, PositionRowsScratch* s) noexcept nogil:
    """Columns from `first` on, which meet the same taps, in tiles of about the same height."""
    cdef int64_t tiles = ceiling(count, isa.rows), tile, low, rows, width = vectors * isa.width
    if run_count == 0:
        if not resume:
            memset(s.sums + first * width, 0, 4 * count * width)
        return
    for tile in range(tiles):
        low = first + share(count, tiles, tile)
        rows = first + share(count, tiles, tile + 1) - low
        whole_of(isa, p.pairs, p.blocks, rows, vectors)(runs, run_count, <const float*>p.input.data, s.bases + low, p.input.c, packed,
                                                       pitch, s.sums + low * width, resume, NULL)


cdef void store_box(const Product* p, const instruction_set* isa, int64_t g, int64_t row, int64_t width, const Box* box,
                    PositionRowsScratch* s) noexcept nogil:
    """The sums of channels from `row` on, in the order of the result: of a line, or of lines that follow one another."""
    cdef int64_t n, q0, q1, i0, i1, i2, j, column, count, place, line = box.end[3] - box.first[3]
    cdef bint joined = p.output.x[1] == line * p.output.x[2]
    cdef const PositionClass* of_plane
    cdef const PositionClass* positions
    check_room(b"store_box", s.order, (box.end[2] - box.first[2]) * line * sizeof(int64_t))
    for n in range(box.end[0] - box.first[0]):
        i0 = 0
        for q0 in range(box.first[1], box.end[1]):
            of_plane = s.classes + i0 * box.ranges[1] * box.ranges[2]
            if q0 >= of_plane.q[0] + of_plane.extent[0]:
                i0 += 1
                of_plane += box.ranges[1] * box.ranges[2]
            i1 = count = 0
            place = ((box.first[0] + n) * p.output.n + g * p.output.g + row * p.output.c + q0 * p.output.x[0]
                     + box.first[2] * p.output.x[1] + box.first[3] * p.output.x[2])
            for q1 in range(box.first[2], box.end[2]):
                positions = of_plane + i1 * box.ranges[2]
                if q1 >= positions.q[1] + positions.extent[1]:
                    i1 += 1
                    positions += box.ranges[2]
                for i2 in range(box.ranges[2]):
                    column = positions.column + (((n * positions.extent[0] + q0 - positions.q[0]) * positions.extent[1]
                                                  + q1 - positions.q[1]) * positions.extent[2])
                    for j in range(positions.extent[2]):
                        s.order[count + j] = (column + j) * width
                    count += positions.extent[2]
                    positions += 1
                if not joined or q1 + 1 == box.end[2]:
                    isa.store_positions(<char*>p.output.data + place * element_size(p.output.format), p.output.format, p.output.x[2],
                                        p.output.c, s.sums, s.order, count, min(width, p.R - row), biases(p, g, row))
                    place += p.output.x[1]
                    count = 0


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
        plan_position_rows(&some, q.isa, q.threads, &plan)
        if not plan.together:
            return -1
        packed += 4 * plan.items * plan.item_floats
    return packed


cdef bint fits_rows_are_positions(Problem* q) noexcept nogil:
    cdef const Product* p = q.products
    cdef Product some
    cdef int64_t i
    cdef PositionRows plan
    if q.weights != NULL or on_matrix(q.pairs) or p.input.format == NUMBER_FLOAT64 or p.cell != NULL or p.N == 0:
        return False
    if p.R < LEAST_CHANNELS or p.D < LEAST_CHANNELS // 2 or 4 * input_positions(p) / p.N * p.G * position_pitch(p) > TRANSPOSED_BYTES:
        return False
    for i in range(q.count):
        if q.products[i].columns == 0 or q.products[i].tap_count == 0:
            return False
    q.transposed_images = images_together(q)
    for i in range(q.count):
        some = of_images(&q.products[i], 0, q.transposed_images)
        plan_position_rows(&some, q.isa, q.threads, &plan)
        if 4 * plan.item_floats > PANEL_BYTES or not 0 < plan.ranges[0] * plan.ranges[1] * plan.ranges[2] <= MOST_CLASSES:
            return False
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
        some = of_images(p, 0, q.transposed_images)
        plan_position_rows(&some, q.isa, q.threads, &plan)
        cycles += (p.columns * <double>p.tap_count / (VECTORS_A_CYCLE * q.isa.width) * plan.met * plan.vectors * q.isa.width
                   * (1 + TILE_STEPS / min(p.tap_count * p.S, plan.near_taps * plan.near_steps)))
        cycles += PACK_WHOLE * p.tap_count * p.R * plan.busiest
        if p.columns < FAR_COLUMNS and are_far(p.tap_count * p.S * p.R):
            cycles += FAR_AND_BACK * p.tap_count * p.R
        fetched = p.columns / <double>some.columns * plan.boxes
        if plan.together or 4 * plan.item_floats > NEAR_PANEL:
            cycles += FAR_PANEL * (fetched - 1) * p.tap_count * plan.vectors * q.isa.width
        if not plan.together and 4 * inputs * p.G * position_pitch(p) > NEAR_INPUT:
            cycles += inputs * p.R / FAR_INPUT
    if not lies_transposed(q.products):
        cycles += (TRANSPOSE_CYCLES if q.pairs == NULL else TRANSPOSE_PAIRS) * inputs
    if q.pairs != NULL and q.products.blocks:
        cycles *= POSITION_ROWS_PAIRS * (POSITION_ROWS_LOADS if loads_wait() else 1)
    return POSITION_ROWS_BIAS * cycles * q.products.S * q.products.G


cdef void lay_out_rows_are_positions(Problem* q, workspace* memory) noexcept nogil:
    """The copied input of as many images as are computed at a time, and for one product after the other the buffers of all threads."""
    cdef const Product* p = q.products
    cdef int64_t i, most = 0, images = q.transposed_images
    cdef PositionRows plan
    cdef Product some
    cdef workspace rest
    q.transposed = NULL
    if not lies_transposed(p):
        q.transposed = <float*>take(memory, 4 * (p.G * images * p.I[0] * p.I[1] * p.I[2] * position_pitch(p) + q.isa.width))
    q.position_rows = <PositionRowsScratch*>take(memory, q.threads * sizeof(PositionRowsScratch))
    if memory.base == NULL:
        for i in range(q.count):
            rest = memory[0]
            some = of_images(&q.products[i], 0, images)
            plan_position_rows(&some, q.isa, q.threads, &plan)
            lay_out_boxes(NULL, &plan, q.threads, &rest)
            most = max(most, rest.used)
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
    """Some images, transposed together; false if a buffer was overrun.  Panels of a single product stay packed from the first
    images on."""
    cdef int64_t i, task, packing
    cdef int worker
    cdef PositionRows plan
    cdef Product some = of_images(q.products, first, count)
    cdef Operand input = some.input
    cdef PositionRowsScratch* scratch = q.position_rows
    cdef float* packed
    cdef workspace rest
    if q.transposed != NULL:
        input = transposed_input(&some, q.transposed)
        if q.threads == 1:
            for task in range(transposing_tasks(&some)):
                transpose_some(&some, q.isa, &input, task, &scratch.smallest)
        else:
            for task in prange(transposing_tasks(&some), schedule="dynamic", num_threads=q.threads):
                transpose_some(&some, q.isa, &input, task, &scratch[thread_number()].smallest)
    for i in range(q.count):
        some = of_images(&q.products[i], first, count)
        some.input = input
        plan_position_rows(&some, q.isa, q.threads, &plan)
        rest = memory[0]
        packed = lay_out_boxes(scratch, &plan, q.threads, &rest)
        extend_workspace(&rest)
        packing = plan.items if plan.together and (first == 0 or q.count > 1) else 0
        if q.threads == 1:
            for task in range(packing):
                pack_position_rows(&some, &plan, q.isa, task, packed + task * plan.item_floats, &scratch.smallest_weight)
            for task in range(plan.tasks):
                run_position_rows_task(&some, &plan, q.isa, task, packed, scratch)
        else:
            for task in prange(packing, schedule="dynamic", num_threads=q.threads):
                pack_position_rows(&some, &plan, q.isa, task, packed + task * plan.item_floats,
                                   &scratch[thread_number()].smallest_weight)
            for task in prange(plan.tasks, schedule="dynamic", num_threads=q.threads):
                run_position_rows_task(&some, &plan, q.isa, task, packed, &scratch[thread_number()])
        if workspace_overrun(&rest):
            memory.last = rest.last
            return False
    return True
