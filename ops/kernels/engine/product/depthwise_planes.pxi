"""Algorithm `depthwise_planes`: groups of one channel on either side whose positions, not channels, lie side by side; lanes are groups.

The planes of 8 or 16 groups of an image, or some lines or planes of large ones, are transposed to one vector for each position. All
products, one for each stride class, take their input from there. Their results are transposed back together. So a call in any
format multiplies whole vectors, only terms that exist, and decodes and rounds every number once.

Bfloat16 and 8-bit operands are transposed to pairs of neighbours of a line, of which dot products take two taps at a time.

uses: engine/algorithms.pxi (Problem), engine/product/depthwise_planes_plan.pxi, engine/product/pairs.pxi
    (never_subnormal), engine/product/product.pxi (Product, biases)
gives: run_depthwise_planes
"""

cdef int64_t rows_of_taps(const Problem* q, int64_t i, int64_t first, int64_t q0, int64_t q1, bint pairs, plane_row* rows) noexcept nogil:
    """Those that output line (q0, q1) of product i meets inside; `first`: of its weights. Returns their number."""
    cdef const Product* p = &q.products[i]
    cdef const PlaneProduct* s = &q.planes.plans[i]
    cdef int64_t t0, t1, x0, x1, line, part, step, end, count = 0, ring = q.planes.ring, pitch = positions_of_line(q, pairs)
    cdef int64_t steps = steps_of_row(s, pairs), parts = 1 if steps <= PLANE_TAPS else ceiling(steps, PLANE_TAPS)
    cdef plane_row* row
    for t0 in range(s.axes[0].count):
        x0 = q0 * p.step[0] + s.axes[0].first + t0 * s.axes[0].apart
        if x0 < 0 or x0 >= p.I[0]:
            continue
        for t1 in range(s.axes[1].count):
            x1 = q1 * p.step[1] + s.axes[1].first + t1 * s.axes[1].apart
            if x1 < 0 or x1 >= p.I[1]:
                continue
            line = x0 * p.I[1] + x1
            if line >= ring:
                line %= ring
            for part in range(parts):
                step, end = 0, steps
                if parts > 1:
                    step, end = share(steps, parts, part), share(steps, parts, part + 1)
                row = &rows[count]
                row.line = line * pitch
                row.first = s.axes[2].first + step * s.axes[2].apart * (2 if pairs else 1)
                row.weights = first + (t0 * s.axes[1].count + t1) * steps + step
                row.taps = end - step
                count += 1
    return count


cdef inline int64_t find_rows(const Problem* q, int64_t i, int64_t number, int64_t first, int64_t q0, int64_t q1, PlanesScratch* scratch,
                              plane_row** rows) noexcept nogil:
    """Those that output line (q0, q1) of product i meets, line `number` of all products. Returns their number."""
    rows[0] = scratch.rows
    if q.planes.kept_lines == 0:
        return rows_of_taps(q, i, first, q0, q1, scratch.pairs != NULL, rows[0])
    rows[0] += number * q.planes.rows
    if not scratch.listed:
        check_room(b"find_rows", rows[0], q.planes.rows * sizeof(plane_row))
        check_room(b"find_rows", scratch.row_counts + number, sizeof(int64_t))
        scratch.row_counts[number] = rows_of_taps(q, i, first, q0, q1, scratch.pairs != NULL, rows[0])
    return scratch.row_counts[number]


cdef void run_plane_product(const Problem* q, int64_t i, int64_t number, int64_t first, int64_t begin, int64_t end, float* results,
                            PlanesScratch* scratch) noexcept nogil:
    """Numbers [begin, end) of the axis of product i; `number`, `first`: of its lines and its weights. The results are given as if they were there from
    position 0 on."""
    cdef const Product* p = &q.products[i]
    cdef const PlaneProduct* s = &q.planes.plans[i]
    cdef const instruction_set* isa = q.isa
    cdef int64_t q0, q1, column, count, q2, width = isa.width
    cdef int64_t[2] low = [0, 0], high = [p.Q[0], p.Q[1]]
    cdef int direction = q.planes.direction if scratch.pairs != NULL else 1 if s.axes[2].apart > 0 else -1
    cdef int64_t dilation = s.axes[2].apart
    cdef planes_function sums = isa.planes.sums[s.kind] if scratch.pairs == NULL else scratch.pairs.sums[s.kind]
    cdef plane_row* rows
    cdef float* line
    low[q.planes.axis], high[q.planes.axis] = begin, min(end, high[q.planes.axis])
    for q0 in range(low[0], high[0]):
        for q1 in range(low[1], high[1]):
            count = find_rows(q, i, number + q0 * p.Q[1] + q1, first, q0, q1, scratch, &rows)
            line = results + (s.target + q0 * s.x[0] + q1 * s.x[1]) * width
            for column in range(s.columns):
                q2 = min(column * s.width, p.Q[2] - s.width)
                if magnitude(dilation) != 1:
                    isa.planes.dilated[s.kind](rows, count, scratch.input, p.I[2], q2, dilation, scratch.weights,
                                               line + q2 * s.x[2] * width, s.x[2] * width)
                    continue
                if direction < 0:
                    q2 += s.width - 1
                sums(rows, count, scratch.input, p.I[2], q2, direction, scratch.weights, line + q2 * s.x[2] * width,
                     direction * s.x[2] * width)


cdef void load_lines(const Problem* q, int64_t n, int64_t g, int64_t low, int64_t high, int64_t ahead,
                     PlanesScratch* scratch) noexcept nogil:
    """Lines [low, high) of the input of a block of groups of an image, to their places in the ring."""
    cdef const Product* p = q.products
    cdef int64_t place, some, size = element_size(p.input.format), pitch = positions_of_line(q, scratch.pairs != NULL)
    cdef const char* source
    cdef float* block
    while low < high:
        place = low % q.planes.ring
        some = min(high - low, q.planes.ring - place)
        block = scratch.input + place * pitch * q.isa.width
        source = <const char*>p.input.data + (n * p.input.n + g * p.input.g + low * p.I[2]) * size
        check_room(b"load_lines", block, 4 * q.isa.width * some * pitch)
        if scratch.pairs == NULL:
            q.isa.planes.load(block, some * p.I[2], source, p.input.format, p.input.g, ahead * size)
        else:
            scratch.pairs.load(block, some, p.I[2], q.planes.direction, source, p.input.format, p.input.g, ahead * size,
                               &scratch.smallest, &scratch.largest)
        low += some


cdef int64_t run_planes_band(const Problem* q, int64_t n, int64_t g, int64_t kept, int64_t begin, int64_t held, int64_t ahead,
                             PlanesScratch* scratch) noexcept nogil:
    """Some numbers of the axis from `begin` on, of a block of groups of an image, of which those from `kept` on are stored. Lines of the
    input before `held` are there already; returns what is then. The next image's first is `ahead` elements after this one's."""
    cdef const Planes* s = &q.planes
    cdef const Product* p = q.products
    cdef const instruction_set* isa = q.isa
    cdef int64_t i, low, high, taps = 0, lines = 0, end = min(begin + s.band, s.lines), start = results_until(s, begin)
    cdef store_planes_function store
    input_lines(q, begin, end, &low, &high)
    check_room(b"run_planes_band", scratch.results, 4 * isa.width * (results_until(s, end) - start))
    low = max(low, held)
    load_lines(q, n, g, low, high, ahead - low * p.I[2] if end == s.lines else (high - low) * p.I[2], scratch)
    for i in range(q.count):
        run_plane_product(q, i, lines, taps, begin, end, scratch.results - start * isa.width, scratch)
        lines += q.products[i].Q[0] * q.products[i].Q[1]
        taps += (s.plans[i].axes[0].count * s.plans[i].axes[1].count
                 * steps_of_row(&s.plans[i], scratch.pairs != NULL) if q.products[i].all_count > 0 else 0)
    if s.joined:
        store = scratch.pairs.store if scratch.pairs != NULL and p.bias == NULL else isa.planes.store
        store(<char*>p.output.data + (n * p.output.n + g * p.output.g + start) * element_size(p.output.format), p.output.format,
              p.output.g, kept, scratch.results, results_until(s, end) - start, biases(p, g, 0))
    else:
        scatter_results(q, n, g, kept, scratch.results)
    return max(held, high)


cdef void scatter_results(const Problem* q, int64_t n, int64_t g, int64_t kept, float* results) noexcept nogil:
    """The results of an image, which lie apart in memory."""
    cdef const Planes* s = &q.planes
    cdef const Product* p = q.products
    cdef int64_t i, q0, q1, lane, width = q.isa.width
    cdef lane_span span
    if p.bias != NULL:
        for i in range(s.plane):
            for lane in range(width):
                results[i * width + lane] = results[i * width + lane] + <float>0 + p.bias[g + lane]
    for i in range(q.count):
        p = &q.products[i]
        for q0 in range(p.Q[0]):
            for q1 in range(p.Q[1]):
                span = lane_span(0, width - kept, n * p.output.n + (g + kept) * p.output.g + q0 * p.output.x[0] + q1 * p.output.x[1],
                                 p.output.g)
                q.isa.scatter(results + (s.plans[i].target + q0 * s.plans[i].x[0] + q1 * s.plans[i].x[1]) * width + kept, width,
                              p.Q[2], p.output.data, p.output.format, p.output.x[2], &span, 1, NULL)


cdef void order_plane_weights(const Problem* q, PlanesScratch* scratch) noexcept nogil:
    """The weights of all products in the order of the sums."""
    cdef int64_t i, t, first = 0, width = q.isa.width
    for i in range(q.count):
        for t in range(q.products[i].all_count):
            memcpy(scratch.weights + (first + t) * width, scratch.taps + q.products[i].all_offsets[t] * width, 4 * width)
        first += q.products[i].all_count


cdef bint pair_plane_weights(const Problem* q, PlanesScratch* scratch, uint16_t* smallest) noexcept nogil:
    """The same, in pairs of taps of a row, the first in the upper half. Tells whether all are finite; finds the smallest magnitude,
    less one."""
    cdef const Product* p
    cdef int64_t i, rows, first = 0
    cdef uint16_t largest = 0
    cdef const PlaneProduct* s
    smallest[0] = 0xffff
    for i in range(q.count):
        p = &q.products[i]
        s = &q.planes.plans[i]
        if p.all_count == 0:
            continue
        rows = s.axes[0].count * s.axes[1].count
        scratch.pairs.pair_taps(scratch.weights + first * q.isa.width, scratch.taps, p.all_offsets, rows, s.axes[2].count, smallest, &largest)
        first += rows * steps_of_row(s, True)
    return largest < 0x7f80


cdef void run_planes_images(const Problem* q, int64_t task, PlanesScratch* scratch) noexcept nogil:
    """Some images of a block of groups."""
    cdef const Planes* s = &q.planes
    cdef const Product* p = q.products
    cdef const instruction_set* isa = q.isa
    cdef int64_t block = task // s.chunks, chunk = task % s.chunks, g = group_of_block(isa, p.G, block)
    cdef int64_t n, line, held, ahead
    cdef int64_t begin = share(p.N, s.chunks, chunk), end = share(p.N, s.chunks, chunk + 1)
    scratch.listed = scratch.listed and scratch.listed_pairs == (scratch.pairs != NULL)
    scratch.listed_pairs = scratch.pairs != NULL
    for n in range(begin, end):
        ahead = p.input.n if n + 1 < end else (begin - n) * p.input.n + isa.width * p.input.g
        line = held = 0
        while line < s.lines:
            held = run_planes_band(q, n, g, block * isa.width - g, line, held, ahead, scratch)
            line += s.band
        scratch.listed = True


cdef void run_planes_task(const Problem* q, int64_t task, PlanesScratch* scratch) noexcept nogil:
    """In pairs, and again without if the results in pairs may not be those of the definition."""
    cdef const Planes* s = &q.planes
    cdef const Product* p = q.products
    cdef const instruction_set* isa = q.isa
    cdef int64_t g = group_of_block(isa, p.G, task // s.chunks)
    cdef uint16_t smallest
    check_room(b"run_planes_task", scratch.taps, 4 * isa.width * s.taps)
    check_room(b"run_planes_task", scratch.weights, 4 * isa.width * s.weights)
    isa.planes.load(scratch.taps, s.taps, <const char*>p.weights.data + g * p.weights.g * element_size(p.weights.format),
                    p.weights.format, p.weights.g, 0)
    scratch.pairs, scratch.smallest, scratch.largest = s.pairs, 0xffff, 0
    if s.pairs != NULL and pair_plane_weights(q, scratch, &smallest):
        run_planes_images(q, task, scratch)
        if scratch.largest < 0x7f80 and never_subnormal(scratch.smallest, smallest):
            return
    scratch.pairs = NULL
    order_plane_weights(q, scratch)
    run_planes_images(q, task, scratch)


cdef bint run_depthwise_planes(Problem* q, workspace* memory) noexcept nogil:
    cdef int64_t task, tasks = ceiling(q.products.G, q.isa.width) * q.planes.chunks
    cdef int threads = q.threads
    if threads == 1:
        for task in range(tasks):
            run_planes_task(q, task, q.planes.scratch)
    else:
        for task in prange(tasks, schedule="dynamic", num_threads=threads):
            run_planes_task(q, task, &q.planes.scratch[thread_number()])
    return True
