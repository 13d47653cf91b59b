"""Algorithm `depthwise_planes`: groups of one channel on either side whose positions, not channels, lie side by side; lanes are groups.

The planes of 16 groups of an image are transposed to one vector for each position. All products, one for each stride class, take
their input from there. Their results are transposed back together. So a call in any format multiplies whole vectors, only terms
that exist, and decodes and rounds every number once.

uses: engine/algorithms.pxi (Problem), engine/product/depthwise_ncx_plan.pxi (NcxAxis, axis_taps), engine/product/product.pxi
    (Product)
gives: PLANE_TAPS_BYTES, Planes, dense_planes, fits_depthwise_planes, first_group, lay_out_depthwise_planes,
    run_depthwise_planes
"""

cdef enum:
    PLANES_PRODUCTS = 8         # stride classes, at most
    PLANE_WEIGHTS = 128         # taps of a layer, at most
    PLANES_BYTES = 1 << 18      # of input and results of 16 planes, at most: what the middle cache holds beside what comes next


cdef struct PlaneProduct:
    NcxAxis axes[3]
    int64_t parts        # rows of taps that a row of the kernel is divided into, since registers hold so many factors
    int64_t kind         # of the function
    int64_t width        # outputs that it computes
    int64_t columns      # its calls for a line; the last may overlap the one before
    int64_t target       # position of its first result in a plane


cdef struct PlanesScratch:
    float* input         # [position][lane]
    float* results
    float* taps          # as they are stored, [tap][lane]
    float* weights       # in the order of the sum
    plane_row* rows


cdef struct Planes:
    PlaneProduct plans[PLANES_PRODUCTS]
    int64_t inputs       # positions of a plane
    int64_t results
    int64_t taps
    int64_t rows         # of a position, at most
    int64_t chunks       # of images
    PlanesScratch* scratch


cdef inline bint dense_planes(const Operand* operand, const int64_t* extent) noexcept nogil:
    """Whether the numbers of a plane lie side by side."""
    return (operand.x[2] == 1 and (extent[1] == 1 or operand.x[1] == extent[2])
            and (extent[0] == 1 or operand.x[0] == extent[1] * extent[2]))


cdef inline int64_t first_group(const instruction_set* isa, int64_t groups, int64_t block) noexcept nogil:
    """Of a block of as many as lanes: the last overlaps the one before where groups do not come out even."""
    return min(block * isa.width, groups - isa.width)


cdef bint plan_plane_product(const Product* p, int64_t first, PlaneProduct* s) noexcept nogil:
    """`first`: the position of the first result."""
    cdef int64_t[4] widths = [4, 7, 8, PLANE_OUTPUTS]
    cdef int64_t least = 0, cost
    cdef int axis, i
    s.target = first
    for axis in range(3):
        s.axes[axis] = axis_taps(p, axis) if p.tap_count > 0 else NcxAxis(0, 0, 1)
    if first < 0 or p.step[2] != 1 or magnitude(s.axes[2].apart) != 1 or p.Q[2] < widths[0]:
        return False
    s.parts = ceiling(s.axes[2].count, PLANE_TAPS)
    for i in range(PLANE_WIDTHS):
        cost = ceiling(p.Q[2], widths[i]) * (widths[i] + 1)
        if p.Q[2] >= widths[i] and (least == 0 or cost <= least):
            s.kind, s.width, s.columns, least = i, widths[i], ceiling(p.Q[2], widths[i]), cost
    return True


cdef bint fits_depthwise_planes(Problem* q) noexcept nogil:
    cdef const Product* p = q.products
    cdef Planes* s = &q.planes
    cdef int64_t i, t, numbers = 0, last, tasks
    cdef int axis
    if (q.weights != NULL or q.isa.planes.load == NULL or p.input.format == NUMBER_FLOAT64 or p.D != 1 or p.R != 1
            or p.G < q.isa.width or q.count > PLANES_PRODUCTS or not dense_planes(&p.input, p.I) or p.N == 0):
        return False
    s.inputs, s.results, s.taps, s.rows = p.I[0] * p.I[1] * p.I[2], 0, 1, 1
    for i in range(q.count):
        p = &q.products[i]
        if not plan_plane_product(p, (<const char*>p.output.data - <const char*>q.products.output.data)
                                  // element_size(p.output.format), &s.plans[i]):
            return False
        numbers += p.Q[0] * p.Q[1] * p.Q[2]
        last = s.plans[i].target
        for axis in range(3):
            last += (p.Q[axis] - 1) * p.output.x[axis]
            if p.output.x[axis] < 0 or p.Q[axis] == 0:
                return False
        s.results = max(s.results, last + 1)
        s.rows = max(s.rows, s.plans[i].axes[0].count * s.plans[i].axes[1].count * s.plans[i].parts)
        for t in range(p.tap_count):
            if p.tap_offsets[t] < 0 or p.tap_offsets[t] >= PLANE_WEIGHTS:
                return False
            s.taps = max(s.taps, p.tap_offsets[t] + 1)
    if numbers != s.results or s.inputs == 0 or 4 * q.isa.width * (s.inputs + s.results) > PLANES_BYTES:
        return False
    tasks = ceiling(p.G, q.isa.width)
    if tasks * p.N < 2 * q.threads:
        return False
    s.chunks = min(p.N, ceiling(8 * q.threads, tasks))
    return True


cdef void lay_out_depthwise_planes(Problem* q, workspace* memory) noexcept nogil:
    cdef Planes* p = &q.planes
    cdef PlanesScratch counted
    cdef PlanesScratch* s
    cdef int64_t vector = 4 * q.isa.width
    cdef int worker
    p.scratch = <PlanesScratch*>take(memory, q.threads * sizeof(PlanesScratch))
    for worker in range(q.threads):
        s = &p.scratch[worker] if memory.base != NULL else &counted
        s.input = <float*>take(memory, vector * p.inputs)
        s.results = <float*>take(memory, vector * p.results)
        s.taps = <float*>take(memory, vector * p.taps)
        s.weights = <float*>take(memory, vector * p.taps)
        s.rows = <plane_row*>take(memory, p.rows * sizeof(plane_row))


cdef int64_t rows_of_taps(const Product* p, const PlaneProduct* s, int64_t first, int64_t q0, int64_t q1, plane_row* rows) noexcept nogil:
    """Those that output line (q0, q1) meets inside; `first`: of the product's weights. Returns their number."""
    cdef int64_t t0, t1, x0, x1, part, tap, count = 0
    cdef plane_row* row
    for t0 in range(s.axes[0].count):
        x0 = q0 * p.step[0] + s.axes[0].first + t0 * s.axes[0].apart
        if x0 < 0 or x0 >= p.I[0]:
            continue
        for t1 in range(s.axes[1].count):
            x1 = q1 * p.step[1] + s.axes[1].first + t1 * s.axes[1].apart
            if x1 < 0 or x1 >= p.I[1]:
                continue
            for part in range(s.parts):
                tap = share(s.axes[2].count, s.parts, part)
                row = &rows[count]
                row.line = (x0 * p.I[1] + x1) * p.I[2]
                row.first = s.axes[2].first + tap * s.axes[2].apart
                row.weights = first + (t0 * s.axes[1].count + t1) * s.axes[2].count + tap
                row.taps = share(s.axes[2].count, s.parts, part + 1) - tap
                count += 1
    return count


cdef void run_plane_product(const Product* p, const PlaneProduct* s, const instruction_set* isa, int64_t first,
                            const PlanesScratch* scratch) noexcept nogil:
    """One product of 16 planes; `first`: of its weights."""
    cdef int64_t q0, q1, column, count, q2, width = isa.width
    cdef int direction = 1 if s.axes[2].apart > 0 else -1
    cdef float* line
    for q0 in range(p.Q[0]):
        for q1 in range(p.Q[1]):
            count = rows_of_taps(p, s, first, q0, q1, scratch.rows)
            line = scratch.results + (s.target + q0 * p.output.x[0] + q1 * p.output.x[1]) * width
            for column in range(s.columns):
                q2 = min(column * s.width, p.Q[2] - s.width)
                if direction < 0:
                    q2 += s.width - 1
                isa.planes.sums[s.kind](scratch.rows, count, scratch.input, p.I[2], q2, direction, scratch.weights,
                                        line + q2 * p.output.x[2] * width, direction * p.output.x[2] * width)


cdef void run_planes_task(const Problem* q, int64_t task, PlanesScratch* scratch) noexcept nogil:
    """Some images of 16 groups."""
    cdef const Planes* s = &q.planes
    cdef const Product* p = q.products
    cdef const instruction_set* isa = q.isa
    cdef int64_t block = task // s.chunks, chunk = task % s.chunks, g = first_group(isa, p.G, block)
    cdef int64_t n, t, i, first, in_size = element_size(p.input.format), out_size = element_size(p.output.format), ahead
    cdef int64_t begin = share(p.N, s.chunks, chunk), end = share(p.N, s.chunks, chunk + 1)
    cdef char* target
    check_room(b"run_planes_task", scratch.input, 4 * isa.width * s.inputs)
    check_room(b"run_planes_task", scratch.results, 4 * isa.width * s.results)
    check_room(b"run_planes_task", scratch.weights, 4 * isa.width * s.taps)
    isa.planes.load(scratch.taps, s.taps, <const char*>p.weights.data + g * p.weights.g * element_size(p.weights.format),
                    p.weights.format, p.weights.g, 0)
    first = 0
    for i in range(q.count):
        for t in range(q.products[i].tap_count):
            memcpy(scratch.weights + (first + t) * isa.width, scratch.taps + q.products[i].tap_offsets[t] * isa.width, 4 * isa.width)
        first += q.products[i].tap_count
    for n in range(begin, end):
        ahead = p.input.n if n + 1 < end else (begin - n) * p.input.n + isa.width * p.input.g
        target = <char*>p.output.data + (n * p.output.n + g * p.output.g) * out_size
        isa.planes.load(scratch.input, s.inputs, <const char*>p.input.data + (n * p.input.n + g * p.input.g) * in_size,
                        p.input.format, p.input.g, ahead * in_size)
        first = 0
        for i in range(q.count):
            run_plane_product(&q.products[i], &s.plans[i], isa, first, scratch)
            first += q.products[i].tap_count
        isa.planes.store(target, p.output.format, p.output.g, block * isa.width - g, scratch.results, s.results,
                         NULL if p.bias == NULL else p.bias + g)


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
