"""Algorithm `rows_are_positions`: products whose rows are positions and whose lanes are output channels.

The input is transposed once, channels innermost, so that any tap reads a position's channels one after the other where they
lie.  A task takes a panel of output channels, packs its weights for itself and walks ranges of output positions: for each
tap those that meet it inside, a few at a time, some steps of the weights staying in the nearest cache.  Nothing is gathered
for a tap, no product meets the padding, and packed weights never leave the middle cache.  Against gathered panels this wins
where lines are short or weights far; where the input has few taps to meet, transposing it costs more.

uses: core/problem.pxi (Operand), engine/algorithms.pxi (Problem), engine/costs.pxi, engine/product/pairs.pxi
    (strided_of), engine/product/position_classes.pxi (cut_fragments, cut_position_classes), engine/product/product.pxi
    (Fragment, PositionClass, Product, Tap, staggered)
gives: PositionRowsScratch, fits_rows_are_positions, lay_out_rows_are_positions, rows_are_positions_cycles,
    run_rows_are_positions
"""

cdef enum:
    POSITION_ROWS_STEPS = 128     # of the weights that stay near
    POSITION_ROWS_HALVES = 8      # ... of blocks of sums
    RANGE_FLOATS = 1 << 17        # of the input that a range of columns meets: stays in the middle cache from tap to tap
    POSITION_ROWS_COLUMNS = 1024  # of a range, at most
    LEAST_COLUMNS = 64            # ... and at least
    TRANSPOSED_AT_ONCE = 64       # positions of the input
    LEAST_CHANNELS = 32
    PANEL_BYTES = 4 << 20         # packed weights of a task, at most
    NEAR_PANEL = 3 << 19          # ... that stay in the middle cache
    TRANSPOSED_BYTES = 32 << 20   # of the input, transposed, at most
    NEAR_INPUT = 1 << 20          # ... that stays near while one panel after another meets it


cdef struct Interval:  # of the columns of a task
    int64_t first
    int64_t end


cdef struct PositionRowsScratch:  # of one thread
    float* packed         # weights of panel `item`
    int64_t item
    float* sums           # [column][lane]
    int64_t* bases        # where the input of a column begins, before any tap
    Fragment* fragments
    Interval* inside


cdef struct PositionRows:
    int64_t vectors       # of the lanes
    int64_t panels
    int64_t items         # panels of all groups
    int64_t tap_floats    # packed weights of a panel from a tap to the next
    int64_t item_floats   # ... of all taps
    int64_t parts         # ranges of columns
    int64_t most_columns  # of a range
    int64_t whole         # panels whose columns one thread takes all
    int64_t tasks         # ... and one for each range of the others, of which all threads pack the weights
    double busiest        # of the packing, what the busiest thread does, times the threads


cdef inline bint lies_transposed(const Product* p) noexcept nogil:
    """Whether the rows can be read from the input itself."""
    return p.input.c == 1 and p.input.format == NUMBER_FLOAT32 and p.input.x[2] != 1


cdef inline int64_t position_pitch(const Product* p) noexcept nogil:
    """Floats from a position of the copied input to the next: an odd number of cache lines."""
    return (ceiling(p.D, 16) | 1) * 16


cdef void plan_position_rows(const Product* p, const instruction_set* isa, int threads, PositionRows* plan) noexcept nogil:
    cdef double numbers = max(<double>p.N * p.I[0] * p.I[1] * p.I[2], <double>p.columns) * p.D
    cdef int64_t most_parts = max(1, p.columns // (4 * isa.rows))
    plan.vectors = ceiling(p.R, isa.width)
    plan.panels = ceiling(plan.vectors, isa.vectors)
    plan.items = p.G * plan.panels
    plan.tap_floats = staggered(p.D * isa.vectors * isa.width)
    plan.item_floats = p.tap_count * plan.tap_floats + isa.width
    plan.parts = max(1, ceiling(p.columns, max(LEAST_COLUMNS, min(POSITION_ROWS_COLUMNS, <int64_t>(p.columns * (RANGE_FLOATS / numbers))))))
    while plan.parts < most_parts and plan.parts % threads != 0:
        plan.parts += 1
    plan.most_columns = ceiling(p.columns, plan.parts)
    plan.whole = plan.items - plan.items % threads
    plan.tasks = plan.whole + plan.items % threads * plan.parts
    plan.busiest = (plan.whole // threads + plan.items % threads) * threads / <double>plan.items


cdef void lay_out_position_rows(PositionRowsScratch* s, const PositionRows* plan, const instruction_set* isa, workspace* memory) noexcept nogil:
    """The buffers of one thread."""
    s.packed = <float*>take(memory, 4 * plan.item_floats)
    s.item = -1
    s.sums = <float*>take(memory, 4 * plan.most_columns * isa.vectors * isa.width)
    s.bases = <int64_t*>take(memory, plan.most_columns * sizeof(int64_t))
    s.fragments = <Fragment*>take(memory, plan.most_columns * sizeof(Fragment))
    s.inside = <Interval*>take(memory, plan.most_columns * sizeof(Interval))


cdef inline int64_t lane_channel(const PositionRows* plan, const instruction_set* isa, int64_t panel) noexcept nogil:
    return share(plan.vectors, plan.panels, panel) * isa.width


cdef void pack_position_rows(const Product* p, const PositionRows* plan, const instruction_set* isa, int64_t item, float* packed) noexcept nogil:
    """The weights of one panel, [tap][d][channel]."""
    cdef int64_t panel = item % plan.panels, row = lane_channel(plan, isa, panel), t, pitch = isa.vectors * isa.width
    cdef lane_span rows = lane_span(0, min(p.R, lane_channel(plan, isa, panel + 1)) - row, 0, p.weights.n)
    cdef const char* start = (<const char*>p.weights.data
                              + (item // plan.panels * p.weights.g + row * p.weights.n) * element_size(p.weights.format))
    check_room(b"pack_position_rows", packed, 4 * plan.item_floats)
    if rows.count % isa.width:
        memset(packed, 0, plan.item_floats * sizeof(float))
    if p.weights.n != 1 and p.weights.c != 1:
        isa.gather_taps(packed, plan.tap_floats, pitch, rows.count, p.D, start, p.weights.format, p.weights.n, p.weights.c,
                        p.tap_offsets, p.tap_count)
    else:
        for t in range(p.tap_count):
            rows.offset = p.tap_offsets[t]
            isa.gather(packed + t * plan.tap_floats, pitch, p.D, start, p.weights.format, p.weights.c, &rows, 1)


cdef int64_t meet_columns(const Product* p, const Tap* tap, const Fragment* fragments, int64_t fragment_count, Interval* inside) noexcept nogil:
    """Which columns a tap meets inside; returns the number of intervals."""
    cdef int64_t number = 0, i, x0, x1, low, high
    cdef const Fragment* f
    check_room(b"meet_columns", inside, fragment_count * sizeof(Interval))
    for i in range(fragment_count):
        f = &fragments[i]
        low, high = 0, f.count
        if p.padded:
            x0 = f.q[0] * p.step[0] + tap.offset[0]
            x1 = f.q[1] * p.step[1] + tap.offset[1]
            if x0 < 0 or x0 >= p.I[0] or x1 < 0 or x1 >= p.I[1]:
                continue
            meet_inside(f.q[2] * p.step[2] + tap.offset[2], p.step[2], p.I[2], f.count, &low, &high)
            if high <= low:
                continue
        if number > 0 and inside[number - 1].end == f.lane + low:
            inside[number - 1].end = f.lane + high
        else:
            inside[number] = Interval(f.lane + low, f.lane + high)
            number += 1
    return number


cdef int64_t position_rows_runs(const Product* p, const Tap* tap, int64_t d, int64_t pitch, tile_run* runs) noexcept nogil:
    """The channels from d on that stay near together: one run, or halves of blocks."""
    cdef int64_t rows = tap.offset[0] * p.input.x[0] + tap.offset[1] * p.input.x[1] + tap.offset[2] * p.input.x[2] + d * p.input.c
    cdef int64_t steps = min(POSITION_ROWS_STEPS, p.D - d), most = HALF_BLOCK if p.blocks else steps, i
    for i in range(ceiling(steps, most)):
        runs[i] = tile_run(rows + i * most * p.input.c, i * most * pitch, min(most, steps - i * most))
    return ceiling(steps, most)


cdef void run_position_rows_task(const Product* p, const PositionRows* plan, const instruction_set* isa, int64_t task,
                                 PositionRowsScratch* s) noexcept nogil:
    cdef int64_t item = task if task < plan.whole else plan.whole + (task - plan.whole) // plan.parts, part
    if s.item != item:
        pack_position_rows(p, plan, isa, item, s.packed)
        s.item = item
    for part in range(plan.parts):
        if task < plan.whole or part == (task - plan.whole) % plan.parts:
            run_position_rows_part(p, plan, isa, item, part, s.packed, s)


cdef void run_position_rows_part(const Product* p, const PositionRows* plan, const instruction_set* isa, int64_t item, int64_t part,
                                 const float* packed, PositionRowsScratch* s) noexcept nogil:
    cdef int64_t g = item // plan.panels, row = lane_channel(plan, isa, item % plan.panels), pitch = isa.vectors * isa.width
    cdef int64_t vectors = share(plan.vectors, plan.panels, item % plan.panels + 1) - share(plan.vectors, plan.panels, item % plan.panels)
    cdef int64_t first = share(p.columns, plan.parts, part), count = share(p.columns, plan.parts, part + 1) - first, width = vectors * isa.width
    cdef int64_t fragment_count = cut_fragments(p, first, count, s.fragments), inside_count, run_count, t, i, j, k, d, rows, end
    cdef tile_run runs[POSITION_ROWS_HALVES]
    cdef const Fragment* f
    cdef const Tap* tap
    cdef const float* lanes
    check_room(b"run_position_rows_part", s.bases, count * sizeof(int64_t))
    check_room(b"run_position_rows_part", s.sums, 4 * count * width)
    for i in range(fragment_count):
        f = &s.fragments[i]
        for j in range(f.count):
            s.bases[f.lane + j] = (f.n * p.input.n + g * p.input.g + f.q[0] * p.step[0] * p.input.x[0]
                                   + f.q[1] * p.step[1] * p.input.x[1] + (f.q[2] + j) * p.step[2] * p.input.x[2])
    memset(s.sums, 0, count * width * sizeof(float))
    for t in range(p.tap_count):
        tap = &p.taps[t]
        inside_count = meet_columns(p, tap, s.fragments, fragment_count, s.inside)
        for k in range(ceiling(p.D, POSITION_ROWS_STEPS)):
            d = k * POSITION_ROWS_STEPS
            run_count = position_rows_runs(p, tap, d, pitch, runs)
            lanes = packed + t * plan.tap_floats + d * pitch
            for j in range(inside_count):
                i, end = s.inside[j].first, s.inside[j].end
                while i < end:
                    rows = min(end - i, isa.rows - i % isa.rows)
                    strided_of(isa, NULL, p.blocks, rows, vectors)(runs, run_count, <const float*>p.input.data, s.bases + i, p.input.c,
                                                                   lanes, pitch, s.sums + i * width, True, NULL)
                    i += rows
    store_position_rows(p, isa, g, row, min(p.R - row, width), width, fragment_count, s)


cdef void store_position_rows(const Product* p, const instruction_set* isa, int64_t g, int64_t row, int64_t count, int64_t width,
                              int64_t fragment_count, PositionRowsScratch* s) noexcept nogil:
    cdef int64_t number, part, i, j, k, rows
    cdef lane_span span = lane_span(0, count, 0, p.output.c)
    cdef const Fragment* f
    cdef float* sums
    for number in range(fragment_count):
        f = &s.fragments[number]
        for part in range(ceiling(f.count, isa.rows)):
            j = part * isa.rows
            rows = min(isa.rows, f.count - j)
            sums = s.sums + (f.lane + j) * width
            if p.bias != NULL:  # after the +0 that finishes a sum: see simd/store.h
                for i in range(rows):
                    for k in range(count):
                        sums[i * width + k] = (sums[i * width + k] + <float>0.0) + p.bias[g * p.R + row + k]
            span.offset = (f.n * p.output.n + g * p.output.g + row * p.output.c + f.q[0] * p.output.x[0] + f.q[1] * p.output.x[1]
                           + (f.q[2] + j) * p.output.x[2])
            isa.scatter(sums, width, rows, p.output.data, p.output.format, p.output.x[2], &span, 1, NULL)


cdef Operand transposed_input(const Product* p, float* copy) noexcept nogil:
    """The input as floats, channels innermost."""
    cdef Operand o
    o.data, o.format, o.c = copy, NUMBER_FLOAT32, 1
    o.x[2] = position_pitch(p)
    o.x[1] = p.I[2] * o.x[2]
    o.x[0] = p.I[1] * o.x[1]
    o.n = p.I[0] * o.x[0]
    o.g = p.N * o.n
    return o


cdef inline bint one_line(const Operand* input, const int64_t* extent) noexcept nogil:
    """Whether the lines of a plane follow one another."""
    return input.x[1] == extent[2] * input.x[2]


cdef int64_t transposing_tasks(const Product* p) noexcept nogil:
    cdef int64_t planes = p.G * p.N * p.I[0]
    return planes * (ceiling(p.I[1] * p.I[2], TRANSPOSED_AT_ONCE) if one_line(&p.input, p.I) else p.I[1] * ceiling(p.I[2], TRANSPOSED_AT_ONCE))


cdef void transpose_some(const Product* p, const instruction_set* isa, const Operand* transposed, int64_t task) noexcept nogil:
    """Some positions of a line, all channels."""
    cdef int64_t count = p.I[1] * p.I[2] if one_line(&p.input, p.I) else p.I[2], x1 = 0, pieces = ceiling(count, TRANSPOSED_AT_ONCE)
    cdef int64_t first = share(count, pieces, task % pieces), end = share(count, pieces, task % pieces + 1), rest = task // pieces, d, x0, n, g
    cdef lane_span span
    cdef float* place
    if not one_line(&p.input, p.I):
        x1 = rest % p.I[1]
        rest //= p.I[1]
    x0 = rest % p.I[0]
    rest //= p.I[0]
    n, g = rest % p.N, rest // p.N
    place = <float*>transposed.data + n * transposed.n + g * transposed.g + x0 * transposed.x[0] + x1 * transposed.x[1] + first * transposed.x[2]
    check_room(b"transpose_some", place, 4 * ((end - first - 1) * transposed.x[2] + p.D))
    for d in range(ceiling(p.D, TILE_LANES)):
        span = lane_span(0, min(TILE_LANES, p.D - d * TILE_LANES),
                         n * p.input.n + g * p.input.g + x0 * p.input.x[0] + x1 * p.input.x[1] + first * p.input.x[2]
                         + d * TILE_LANES * p.input.c, p.input.c)
        isa.gather(place + d * TILE_LANES, transposed.x[2], end - first, p.input.data, p.input.format, p.input.x[2], &span, 1)


cdef bint fits_rows_are_positions(Problem* q) noexcept nogil:
    cdef const Product* p = q.products
    cdef int64_t i
    cdef PositionRows plan
    if q.weights != NULL or q.pairs != NULL or p.input.format == NUMBER_FLOAT64 or p.cell != NULL:
        return False
    if p.R < LEAST_CHANNELS or p.D < LEAST_CHANNELS // 2 or 4 * input_positions(p) * p.G * position_pitch(p) > TRANSPOSED_BYTES:
        return False
    for i in range(q.count):
        p = &q.products[i]
        if p.columns == 0 or p.tap_count == 0:
            return False
        plan_position_rows(p, q.isa, q.threads, &plan)
        if 4 * plan.item_floats > PANEL_BYTES:
            return False
    return True


cdef inline double input_positions(const Product* p) noexcept nogil:
    return <double>p.N * p.I[0] * p.I[1] * p.I[2]


cdef double rows_are_positions_cycles(const Problem* q) noexcept nogil:
    """Of products, packed weights, those that are fetched again for every range, and the transposed input."""
    cdef double cycles = 0, inputs = input_positions(q.products)
    cdef int64_t i
    cdef PositionRows plan
    cdef Product p
    for i in range(q.count):
        p = q.products[i]
        plan_position_rows(&p, q.isa, q.threads, &plan)
        cut_position_classes(&p, q.isa, True, NULL)
        cycles += (p.columns * <double>p.tap_count / (VECTORS_A_CYCLE * q.isa.width) * p.met * plan.vectors * q.isa.width
                   * (1 + TILE_STEPS / min(p.D, POSITION_ROWS_STEPS)))
        cycles += PACK_CYCLES * p.tap_count * p.R * plan.busiest
        if 4 * plan.item_floats > NEAR_PANEL:
            cycles += FAR_PANEL * (plan.parts - 1) * p.tap_count * plan.vectors * q.isa.width
    if not lies_transposed(q.products):
        cycles += TRANSPOSE_CYCLES * inputs
    if 4 * inputs * q.products.G * position_pitch(q.products) > NEAR_INPUT:
        cycles += inputs * q.products.R / FAR_INPUT * q.count
    return POSITION_ROWS_BIAS * cycles * q.products.D * q.products.G


cdef void lay_out_rows_are_positions(Problem* q, workspace* memory) noexcept nogil:
    """The copied input, and for one product after the other the buffers of all threads."""
    cdef const Product* p = q.products
    cdef int64_t i, class_count = 0, most = 0
    cdef PositionRowsScratch counted
    cdef PositionRows plan
    cdef Product cut
    cdef workspace rest
    cdef int worker
    q.transposed = NULL
    if not lies_transposed(p):
        q.transposed = <float*>take(memory, 4 * (p.G * p.N * p.I[0] * p.I[1] * p.I[2] * position_pitch(p) + q.isa.width))
    for i in range(q.count):
        cut = q.products[i]
        class_count += cut_position_classes(&cut, q.isa, True, NULL)
    q.position_classes = <PositionClass*>take(memory, class_count * sizeof(PositionClass))
    q.position_rows = <PositionRowsScratch*>take(memory, q.threads * sizeof(PositionRowsScratch))
    if memory.base == NULL:
        for i in range(q.count):
            rest = memory[0]
            plan_position_rows(&q.products[i], q.isa, q.threads, &plan)
            for worker in range(q.threads):
                lay_out_position_rows(&counted, &plan, q.isa, &rest)
            most = max(most, rest.used)
        memory.used = most


cdef bint run_rows_are_positions(Problem* q, workspace* memory) noexcept nogil:
    cdef int64_t i, task
    cdef int worker
    cdef PositionRows plan
    cdef Operand input = q.products.input
    cdef Product* p
    cdef PositionClass* position_classes = q.position_classes
    cdef PositionRowsScratch* scratch = q.position_rows
    cdef workspace rest
    if q.transposed != NULL:
        input = transposed_input(q.products, q.transposed)
        if q.threads == 1:
            for task in range(transposing_tasks(q.products)):
                transpose_some(q.products, q.isa, &input, task)
        else:
            for task in prange(transposing_tasks(q.products), schedule="dynamic", num_threads=q.threads):
                transpose_some(q.products, q.isa, &input, task)
    for i in range(q.count):
        p = &q.products[i]
        p.input, p.position_classes = input, position_classes
        p.class_count = cut_position_classes(p, q.isa, True, position_classes)
        position_classes += p.class_count
        plan_position_rows(p, q.isa, q.threads, &plan)
        rest = memory[0]
        for worker in range(q.threads):
            lay_out_position_rows(&scratch[worker], &plan, q.isa, &rest)
        extend_workspace(&rest)
        if q.threads == 1:
            for task in range(plan.tasks):
                run_position_rows_task(p, &plan, q.isa, task, scratch)
        else:
            for task in prange(plan.tasks, schedule="dynamic", num_threads=q.threads):
                run_position_rows_task(p, &plan, q.isa, task, &scratch[thread_number()])
        if workspace_overrun(&rest):
            memory.last = rest.last
            return True
    return True
