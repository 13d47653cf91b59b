"""Algorithm `depthwise_planes`: groups of one channel on either side whose positions, not channels, lie side by side; lanes are groups.

The planes of 16 groups of an image, or some lines of large ones, are transposed to one vector for each position. All products, one
for each stride class, take their input from there. Their results are transposed back together. So a call in any format
multiplies whole vectors, only terms that exist, and decodes and rounds every number once.

uses: core/problem.pxi (Operand), engine/algorithms.pxi (Problem), engine/costs.pxi (PLANES_SHARE, PLANES_WASTE,
    peak_cycles), engine/product/depthwise_ncx_plan.pxi (NcxAxis, axis_taps), engine/product/pairs.pxi
    (never_subnormal), engine/product/product.pxi (Product, biases)
gives: PLANE_WEIGHTS, Planes, dense_planes, depthwise_planes_cycles, fits_depthwise_planes, group_of_block,
    lay_out_depthwise_planes, run_depthwise_planes
"""

cdef enum:
    PLANES_PRODUCTS = 8         # stride classes, at most
    PLANE_WEIGHTS = 128         # taps of a layer, at most
    PLANES_BAND = 1 << 17       # bytes of input and results of the lines of 16 planes that are computed before the next ones
    PLANES_BYTES = 1 << 20      # ... of lines that cannot be divided further, at most
    PLANES_ROWS = 1024          # rows of taps of all lines of an image that are kept from one to the next, at most
    PAIR_POSITIONS = 16         # that are loaded as pairs at a time, at least


cdef struct PlaneProduct:
    NcxAxis axes[3]
    int64_t kind         # of the function
    int64_t width        # outputs that it computes
    int64_t columns      # its calls for a line; the last may overlap the one before
    int64_t target       # position of its first result
    int64_t x[3]         # positions between its results


cdef struct PlanesScratch:
    float* input         # [position][lane]
    float* results
    float* taps          # as they are stored, [tap][lane]
    float* weights       # in the order of the sum
    plane_row* rows      # of a line, or [line of all products][row]
    int64_t* row_counts  # of each line, where rows are kept
    bint listed          # rows are there ...
    bint listed_pairs    # ... of pairs
    const plane_pair_functions* pairs  # which the task at hand takes, or NULL
    uint16_t smallest    # magnitudes of the input that was loaded, less one, as bfloat16 codes
    uint16_t largest


cdef struct Planes:
    PlaneProduct plans[PLANES_PRODUCTS]
    int axis             # along which bands follow one another: lines of the only plane, or planes
    int64_t unit         # lines of the input that a number of this axis has
    int64_t ring         # lines of the input that are held: line i is at place i modulo `ring`
    int64_t results      # positions of the results of a band, at most
    bint joined          # the results of all products are one plane without gaps
    int64_t plane        # positions of the results
    int64_t lines        # numbers of the axis, of the product that has most
    int64_t band         # ... that are computed together
    int64_t band_step    # positions of the results from one of them to the next
    int64_t taps         # that are stored, with those between them
    int64_t weights      # that are summed, of all products
    int64_t rows         # of a line, at most
    int64_t kept_lines   # whose rows are kept: all lines of all products, or none
    int64_t chunks       # of images
    const plane_pair_functions* pairs  # that take two taps of a row at a time, or NULL
    int direction        # in which taps meet the positions of a line
    PlanesScratch* scratch


cdef inline bint dense_planes(const Operand* operand, const int64_t* extent) noexcept nogil:
    """Whether the numbers of a plane lie side by side."""
    return (operand.x[2] == 1 and (extent[1] == 1 or operand.x[1] == extent[2])
            and (extent[0] == 1 or operand.x[0] == extent[1] * extent[2]))


cdef inline int64_t group_of_block(const instruction_set* isa, int64_t groups, int64_t block) noexcept nogil:
    """Of a block of as many as lanes: the last overlaps the one before where groups do not come out even."""
    return min(block * isa.width, groups - isa.width)


cdef bint plan_plane_product(const Product* p, PlaneProduct* s) noexcept nogil:
    cdef int64_t[4] widths = [4, 7, 8, PLANE_OUTPUTS]
    cdef int64_t least = 0, cost
    cdef int axis, i
    for axis in range(3):
        s.axes[axis] = axis_taps(p, axis) if p.all_count > 0 else NcxAxis(0, 0, 1)
    if p.step[2] != 1 or magnitude(s.axes[2].apart) != 1 or p.Q[0] == 0 or p.Q[1] == 0 or p.Q[2] < widths[0]:
        return False
    for i in range(PLANE_WIDTHS):
        cost = ceiling(p.Q[2], widths[i]) * (widths[i] + 1)
        if p.Q[2] >= widths[i] and (least == 0 or cost <= least):
            s.kind, s.width, s.columns, least = i, widths[i], ceiling(p.Q[2], widths[i]), cost
    return True


cdef inline int64_t steps_of_row(const PlaneProduct* s, bint pairs) noexcept nogil:
    """Taps of a row of the kernel, or pairs of them."""
    return ceiling(s.axes[2].count, 2) if pairs else s.axes[2].count


cdef inline int64_t positions_of_line(const Problem* q, bint pairs) noexcept nogil:
    """Of the input: a line of pairs begins with its first number beside nothing."""
    return q.products.I[2] + (1 if pairs else 0)


cdef bint plan_plane_pairs(Problem* q) noexcept nogil:
    """Whether dot products take the taps in pairs. Decides the direction of products with one tap in a row, which is free."""
    cdef Planes* s = &q.planes
    cdef const Product* p = q.products
    cdef int64_t i
    cdef bint paired = False
    s.direction = 1
    for i in range(q.count):
        if s.plans[i].axes[2].count > 1:
            if paired and s.direction != s.plans[i].axes[2].apart:
                return False
            paired, s.direction = True, s.plans[i].axes[2].apart
    return (paired and q.isa.pairs != NULL and q.isa.pairs.planes.load != NULL and within_bfloat16(p.input.format)
            and within_bfloat16(p.weights.format) and p.I[0] * p.I[1] * p.I[2] >= PAIR_POSITIONS)


cdef void place_results(Problem* q) noexcept nogil:
    """Where the results of the products are computed: as they lie in memory if that leaves no gaps, else one after the other."""
    cdef Planes* s = &q.planes
    cdef const Product* p
    cdef int64_t i, last, numbers = 0
    cdef int axis
    s.joined, s.plane, s.band_step = True, 0, q.products.output.x[s.axis]
    for i in range(q.count):
        p = &q.products[i]
        last = ((<const char*>p.output.data - <const char*>q.products.output.data) // element_size(p.output.format))
        s.joined = s.joined and last >= 0
        s.plans[i].target = last
        for axis in range(3):
            s.joined = s.joined and p.output.x[axis] > 0
            s.plans[i].x[axis] = p.output.x[axis]
            last += (p.Q[axis] - 1) * p.output.x[axis]
        s.plane = max(s.plane, last + 1)
        numbers += p.Q[0] * p.Q[1] * p.Q[2]
    s.joined = s.joined and numbers == s.plane
    if s.joined:
        return
    s.plane = 0
    for i in range(q.count):
        p = &q.products[i]
        s.plans[i].target = s.plane
        s.plans[i].x[0], s.plans[i].x[1], s.plans[i].x[2] = p.Q[1] * p.Q[2], p.Q[2], 1
        s.plane += p.Q[0] * p.Q[1] * p.Q[2]


cdef bint in_bands(const Problem* q) noexcept nogil:
    """Whether a part of the axis can be computed at a time: the results of all products lie in its order."""
    cdef int64_t i
    if not q.planes.joined:
        return False
    for i in range(q.count):
        if q.products[i].output.x[q.planes.axis] != q.planes.band_step or q.planes.plans[i].target >= q.planes.band_step:
            return False
    return True


cdef void input_lines(const Problem* q, int64_t first, int64_t end, int64_t* low, int64_t* high) noexcept nogil:
    """Lines [low, high) of the input, counted through all planes, that numbers [first, end) of the products' axis meet."""
    cdef const Planes* s = &q.planes
    cdef const NcxAxis* axis
    cdef int64_t i, span, step = q.products.step[s.axis], extent = q.products.I[s.axis]
    low[0] = 0 if s.band == s.lines else extent
    high[0] = extent if s.band == s.lines else 0
    for i in range(q.count):
        axis = &s.plans[i].axes[s.axis]
        span = (axis.count - 1) * axis.apart
        if s.band < s.lines and q.products[i].all_count > 0:
            low[0] = min(low[0], max(0, first * step + axis.first + min(0, span)))
            high[0] = max(high[0], min(extent, (min(end, q.products[i].Q[s.axis]) - 1) * step + axis.first + max(0, span) + 1))
    low[0] *= s.unit
    high[0] = max(low[0], high[0] * s.unit)


cdef inline int64_t results_until(const Planes* s, int64_t line) noexcept nogil:
    """Positions of the results before a number of the axis."""
    return s.plane if line >= s.lines else line * s.band_step


cdef void measure_band(Problem* q) noexcept nogil:
    """Lines of the input and positions of the results of a band."""
    cdef Planes* s = &q.planes
    cdef int64_t line = 0, end, low, high
    s.ring = s.results = 0
    while line < s.lines:
        end = min(line + s.band, s.lines)
        input_lines(q, line, end, &low, &high)
        s.ring = max(s.ring, high - low)
        s.results = max(s.results, results_until(s, end) - results_until(s, line))
        line = end


cdef bint fits_depthwise_planes(Problem* q) noexcept nogil:
    cdef const Product* p = q.products
    cdef Planes* s = &q.planes
    cdef int64_t i, t
    if (q.weights != NULL or q.isa.planes.load == NULL or p.input.format == NUMBER_FLOAT64 or p.D != 1 or p.R != 1
            or p.G < q.isa.width or q.count > PLANES_PRODUCTS or not dense_planes(&p.input, p.I) or p.N == 0):
        return False
    s.lines, s.taps, s.weights, s.rows, s.axis = 0, 1, 1, 1, 1
    for i in range(q.count):
        if q.products[i].I[0] > 1 or q.products[i].Q[0] > 1:
            s.axis = 0
    s.unit = q.products.I[1] if s.axis == 0 else 1
    for i in range(q.count):
        p = &q.products[i]
        if not plan_plane_product(p, &s.plans[i]):
            return False
        s.lines = max(s.lines, p.Q[s.axis])
        s.weights += p.all_count
        s.rows = max(s.rows, s.plans[i].axes[0].count * s.plans[i].axes[1].count * ceiling(s.plans[i].axes[2].count, PLANE_TAPS))
        for t in range(p.all_count):
            if p.all_offsets[t] < 0 or p.all_offsets[t] >= PLANE_WEIGHTS:
                return False
            s.taps = max(s.taps, p.all_offsets[t] + 1)
    if q.products.I[0] * q.products.I[1] * q.products.I[2] == 0:
        return False
    s.pairs = &q.isa.pairs.planes if plan_plane_pairs(q) else NULL
    place_results(q)
    s.band = s.lines
    while True:
        measure_band(q)
        if 4 * q.isa.width * (s.ring * positions_of_line(q, s.pairs != NULL) + s.results) <= PLANES_BAND or s.band == 1 or not in_bands(q):
            break
        s.band = ceiling(s.band, 2)
    if s.band < s.lines and s.unit * q.products.I[2] < PAIR_POSITIONS:
        s.pairs = NULL
    if 4 * q.isa.width * (s.ring * positions_of_line(q, s.pairs != NULL) + s.results) > PLANES_BYTES:
        return False
    s.kept_lines = 0
    for i in range(q.count):
        s.kept_lines += q.products[i].Q[0] * q.products[i].Q[1]
    if s.kept_lines * s.rows > PLANES_ROWS:
        s.kept_lines = 0
    s.chunks = min(p.N, ceiling(8 * q.threads, ceiling(p.G, q.isa.width)))
    return True


cdef double depthwise_planes_cycles(const Problem* q) noexcept nogil:
    """Less than `depthwise_ncx` names, unless some threads would have nothing to do, results lie apart, or float32 lines nearly fill
    a vector each, so that reading them in place wastes few lanes."""
    cdef const Product* p = q.products
    cdef int64_t width = q.isa.width
    cdef bint filled = (q.count == 1 and p.input.format == NUMBER_FLOAT32 and p.output.format == NUMBER_FLOAT32
                        and 4 * p.Q[2] >= 3 * width and p.Q[2] <= width)
    cdef bint pays = q.planes.joined and not filled and ceiling(p.G, width) * p.N >= 2 * q.threads
    return peak_cycles(q) * (PLANES_SHARE if pays else PLANES_WASTE)


cdef void lay_out_depthwise_planes(Problem* q, workspace* memory) noexcept nogil:
    cdef Planes* p = &q.planes
    cdef PlanesScratch counted
    cdef PlanesScratch* s
    cdef int64_t vector = 4 * q.isa.width
    cdef int worker
    p.scratch = <PlanesScratch*>take(memory, q.threads * sizeof(PlanesScratch))
    for worker in range(q.threads):
        s = &p.scratch[worker] if memory.base != NULL else &counted
        s.input = <float*>take(memory, vector * p.ring * positions_of_line(q, p.pairs != NULL))
        s.results = <float*>take(memory, vector * p.results)
        s.taps = <float*>take(memory, vector * p.taps)
        s.weights = <float*>take(memory, vector * p.weights)
        s.rows = <plane_row*>take(memory, max(1, p.kept_lines) * p.rows * sizeof(plane_row))
        s.row_counts = <int64_t*>take(memory, p.kept_lines * sizeof(int64_t))
        s.listed = False


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
                if direction < 0:
                    q2 += s.width - 1
                sums(rows, count, scratch.input, p.I[2], q2, direction, scratch.weights, line + q2 * s.x[2] * width,
                     direction * s.x[2] * width)


cdef void load_lines(const Problem* q, int64_t n, int64_t g, int64_t low, int64_t high, int64_t ahead,
                     PlanesScratch* scratch) noexcept nogil:
    """Lines [low, high) of the input of 16 groups of an image, to their places in the ring."""
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
    """Some numbers of the axis from `begin` on, of 16 groups of an image, of which those from `kept` on are stored. Lines of the
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
    cdef int64_t i, t, lane, in_row, width = q.isa.width
    cdef uint32_t* pair = <uint32_t*>scratch.weights
    cdef const uint32_t* tap
    cdef uint32_t least = 0xffff, most = 0, magnitude
    for i in range(q.count):
        p = &q.products[i]
        in_row = q.planes.plans[i].axes[2].count
        for t in range(p.all_count):
            tap = <const uint32_t*>scratch.taps + p.all_offsets[t] * width
            for lane in range(width):
                magnitude = tap[lane] >> 16 & 0x7fff
                most = max(most, magnitude)
                least = min(least, magnitude - 1 & 0xffff)
                if t % in_row % 2 == 0:
                    pair[lane] = tap[lane]
                else:
                    pair[lane] |= tap[lane] >> 16
            if t % in_row % 2 == 1 or t % in_row == in_row - 1:
                pair += width
    smallest[0] = least
    return most < 0x7f80


cdef void run_planes_images(const Problem* q, int64_t task, PlanesScratch* scratch) noexcept nogil:
    """Some images of 16 groups."""
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
