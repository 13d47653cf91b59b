"""What `depthwise_planes` computes at a time: bands of lines or planes, the places of results, whether taps are taken in pairs.

uses: core/caches.pxi (COLLIDING_BYTES), core/problem.pxi (Operand), engine/algorithms.pxi (Problem), engine/costs.pxi
    (PLANES_LINE, PLANES_SHARE, PLANES_WASTE, loads_wait, peak_cycles), engine/product/depthwise_ncx_plan.pxi
    (NcxAxis, axis_taps), engine/product/product.pxi (Product)
gives: PLANE_WEIGHTS, PlaneProduct, Planes, PlanesScratch, dense_planes, depthwise_planes_cycles,
    fits_depthwise_planes, group_of_block, input_lines, lay_out_depthwise_planes, positions_of_line, results_until,
    steps_of_row
"""

cdef enum:
    PLANES_PRODUCTS = 8         # stride classes, at most
    PLANE_WEIGHTS = 128         # taps of a layer, at most
    PLANES_BAND = 1 << 17       # bytes of input and results of the lines of a block of planes that are computed before the next ones
    PLANES_BYTES = 1 << 20      # ... of lines that cannot be divided further, at most
    PLANES_ROWS = 1024          # rows of taps of all lines of an image that are kept from one to the next, at most
    PAIR_POSITIONS = 16         # that are loaded as pairs at a time, at least
    FILLED_WIDTH = 4            # outputs: the sums of fewer wait for one another


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
    cdef int64_t[PLANE_WIDTHS] widths = [1, 2, 3, 4, 7, 8, PLANE_OUTPUTS]
    cdef int64_t least = 0, cost
    cdef int axis, i
    for axis in range(3):
        s.axes[axis] = axis_taps(p, axis) if p.all_count > 0 else NcxAxis(0, 0, 1)
    if p.step[2] != 1 or p.Q[0] == 0 or p.Q[1] == 0 or p.Q[2] < widths[0]:
        return False
    for i in range(PLANE_WIDTHS):
        cost = ceiling(p.Q[2], widths[i]) * (widths[i] + 1)
        if widths[i] <= p.Q[2] and not widths[i] < FILLED_WIDTH <= p.Q[2] and (least == 0 or cost <= least):
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
            if magnitude(s.plans[i].axes[2].apart) != 1:
                return False
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
    """Less than `depthwise_ncx` names, unless some threads would have nothing to do, results lie apart, planes collide in the nearest
    cache, or `depthwise_ncx` reads the input where it lies and taps are dilated or lines long."""
    cdef const Product* p = q.products
    cdef bint pays = q.planes.joined and ceiling(p.G, q.isa.width) * p.N >= 2 * q.threads
    cdef int64_t i
    pays = pays and p.input.g * element_size(p.input.format) % COLLIDING_BYTES != 0
    if p.input.format == NUMBER_FLOAT32:
        for i in range(q.count):
            pays = pays and magnitude(q.planes.plans[i].axes[2].apart) == 1
    if element_size(p.input.format) != 2:
        pays = pays and not (p.Q[1] > 1 and p.Q[2] > PLANES_LINE and p.tap_count <= 9 and loads_wait())
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
