"""Algorithm `weights_depthwise_planes`: `backward_weights` for groups of one channel on either side whose positions, not channels,
lie side by side; lanes are groups.

Lines of both sides of 8 or 16 groups are transposed to one vector for each position, as many at a time as stay near. The chains of a
position's number along its line advance by themselves, with the taps of a row in registers.

uses: engine/algorithms.pxi (Problem), engine/costs.pxi (PLANES_SHARE, PLANES_WASTE, loads_wait, peak_cycles),
    engine/product/depthwise_planes_plan.pxi (PLANE_WEIGHTS, dense_planes, group_of_block),
    engine/weights/depthwise_ncx.pxi (read_in_place), engine/weights/gradient.pxi (Weights), engine/weights/sums.pxi
    (join_pieces)
gives: PlanesWeights, depthwise_planes_weights_cycles, fits_depthwise_planes_weights,
    lay_out_depthwise_planes_weights, run_depthwise_planes_weights
"""

cdef enum:
    MANY_TAPS = 5  # of a row: each number of a line that is read in place serves so many
    WEIGHTS_BAND = 1 << 16           # bytes of lines of both sides, unless one line takes more
    WEIGHTS_BAND_MOST = 1 << 20
    WEIGHTS_IMAGES = 1 << 15         # bytes of whole images that are taken together: sums stay in registers through them


cdef struct PlanesWeightsScratch:
    float* large         # [position][lane]
    float* small
    float* sums          # [tap][chain][lane]


cdef struct PlanesWeights:
    int64_t chains       # that have positions
    int64_t band         # lines of the small side that are taken at a time, of all planes
    int64_t images       # whole ones that are taken together, at most
    int64_t parts        # a row of taps is divided into, since registers hold the sums of so many
    int64_t large        # floats
    int64_t small
    int64_t taps
    PlanesWeightsScratch* scratch
    float* partials      # [block of groups][piece][tap][lane]


cdef inline void lines_of_large(const Weights* w, int64_t first, int64_t end, int64_t* low, int64_t* high) noexcept nogil:
    """Lines [low, high) of the large side, counted through all planes, that lines [first, end) of the small side meet."""
    cdef int64_t y0 = first // w.Y[1], last = (end - 1) // w.Y[1]
    low[0] = max(0, y0 * w.s[0] - w.b[0]) * w.X[1]
    high[0] = min(w.X[0], last * w.s[0] - w.b[0] + (w.K[0] - 1) * w.d[0] + 1) * w.X[1]
    if w.X[0] == 1 and y0 == last:
        low[0] = max(0, (first - y0 * w.Y[1]) * w.s[1] - w.b[1])
        high[0] = min(w.X[1], (end - 1 - y0 * w.Y[1]) * w.s[1] - w.b[1] + (w.K[1] - 1) * w.d[1] + 1)
    high[0] = max(low[0], high[0])


cdef int64_t most_lines_of_large(const Weights* w, int64_t band) noexcept nogil:
    """The most that a band of lines of the small side meets."""
    if w.X[0] == 1 and w.Y[0] == 1:
        return min(w.X[1], (band - 1) * w.s[1] + (w.K[1] - 1) * w.d[1] + 1)
    return min(w.X[0], (ceiling(band - 1, w.Y[1])) * w.s[0] + (w.K[0] - 1) * w.d[0] + 1) * w.X[1]


cdef bint fits_depthwise_planes_weights(Problem* q) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef PlanesWeights* p = &q.planes_weights
    cdef int64_t width = q.isa.width
    if w == NULL or q.isa.planes.load == NULL or w.large.format == NUMBER_FLOAT64 or w.cut.chains == 1:
        return False
    p.taps = w.K[0] * w.K[1] * w.K[2]
    if (w.C != 1 or w.M != 1 or w.G < width or w.s[2] > 2 or (w.K[2] > 1 and w.d[2] != 1)
            or p.taps == 0 or p.taps > PLANE_WEIGHTS or w.N * w.Y[0] * w.Y[1] * w.Y[2] == 0 or w.X[0] * w.X[1] * w.X[2] == 0
            or not dense_planes(&w.large, w.X) or not dense_planes(&w.small, w.Y)):
        return False
    p.chains, p.parts = min(DOT_LANES, w.Y[2]), ceiling(w.K[2], PLANE_TAPS)
    p.band = w.Y[0] * w.Y[1]
    while True:
        p.large, p.small = most_lines_of_large(w, p.band) * w.X[2] * width, p.band * w.Y[2] * width
        if 4 * (p.large + p.small) <= WEIGHTS_BAND or p.band == 1 or w.Y[0] > 1 or w.X[0] > 1:
            break
        p.band = ceiling(p.band, 2)
    p.images = 1
    if p.band == w.Y[0] * w.Y[1]:
        p.images = max(1, min(w.N, WEIGHTS_IMAGES // (4 * (p.large + p.small))))
    return 4 * (p.large + p.small) <= WEIGHTS_BAND_MOST


cdef int64_t longest_line(const Weights* w, const instruction_set* isa) noexcept nogil:
    """Positions of a line of several, up to which this algorithm is faster than one that reads lines in place: of more, few of the
    lanes that are read there lie outside."""
    cdef bint decoded = w.large.format != NUMBER_FLOAT32 or w.small.format != NUMBER_FLOAT32
    cdef bint small_loads = loads_wait() and isa.width >= DOT_LANES
    if w.s[2] != 1:
        return w.Y[2] if not small_loads else 2 * DOT_LANES if decoded else DOT_LANES + DOT_LANES // 2
    if small_loads and w.K[2] >= MANY_TAPS and element_size(w.large.format) > 1:
        return DOT_LANES // 2
    if small_loads and decoded and w.Y[0] == 1:
        return DOT_LANES + DOT_LANES // 4
    if w.K[2] <= 3 and read_in_place(w, isa) != NUMBER_FLOAT32:
        return DOT_LANES + DOT_LANES // 2
    return 2 * DOT_LANES if decoded or isa.width < DOT_LANES else DOT_LANES


cdef double depthwise_planes_weights_cycles(const Problem* q) noexcept nogil:
    """Less than `weights_depthwise_ncx` names, unless some threads would have nothing to do, or lines are long."""
    cdef const Weights* w = q.weights
    if ceiling(w.G, q.isa.width) * w.cut.pieces < 2 * q.threads or w.Y[0] * w.Y[1] > 1 and w.Y[2] > longest_line(w, q.isa):
        return peak_cycles(q) * PLANES_WASTE
    return peak_cycles(q) * PLANES_SHARE


cdef void lay_out_depthwise_planes_weights(Problem* q, workspace* memory) noexcept nogil:
    cdef PlanesWeights* p = &q.planes_weights
    cdef PlanesWeightsScratch counted
    cdef PlanesWeightsScratch* s
    cdef int64_t vector = 4 * q.isa.width
    cdef int worker
    p.scratch = <PlanesWeightsScratch*>take(memory, q.threads * sizeof(PlanesWeightsScratch))
    for worker in range(q.threads):
        s = &p.scratch[worker] if memory.base != NULL else &counted
        s.large = <float*>take(memory, 4 * p.images * p.large)
        s.small = <float*>take(memory, 4 * p.images * p.small)
        s.sums = <float*>take(memory, vector * p.taps * p.chains)
    p.partials = <float*>take(memory, vector * ceiling(q.weights.G, q.isa.width) * q.weights.cut.pieces * p.taps)


cdef inline int64_t chains_together(const instruction_set* isa, int64_t stride, int64_t taps) noexcept nogil:
    """As many as the registers hold sums of so many taps."""
    cdef int64_t chains = PLANE_TAPS
    while isa.planes.weights[stride - 1][taps - 1][chains - 1] == NULL:
        chains -= 1
    return chains


cdef void add_chains(const Weights* w, const PlanesWeights* p, const instruction_set* isa, int64_t first, int64_t end, int64_t blocks,
                     const float* large, const float* small, int64_t images, int64_t lines, float* sums) noexcept nogil:
    """Chains [first, end), each with positions in so many blocks, of one row of taps and some lines of a plane."""
    cdef int64_t part, run, runs, tap, taps, j, count, x, width = isa.width
    for part in range(p.parts):
        tap = share(w.K[2], p.parts, part)
        taps = share(w.K[2], p.parts, part + 1) - tap
        runs = ceiling(end - first, chains_together(isa, w.s[2], taps))
        for run in range(runs):
            j = first + share(end - first, runs, run)
            count = first + share(end - first, runs, run + 1) - j
            x = j * w.s[2] + tap - w.b[2]
            isa.planes.weights[w.s[2] - 1][taps - 1][count - 1](
                sums + (tap * p.chains + j) * width, p.chains * width, large + x * width, w.s[1] * w.X[2] * width, p.large,
                small + j * width, w.Y[2] * width, p.small, images, lines, blocks, -x, w.X[2] - x)


cdef void add_lines(const Weights* w, const PlanesWeights* p, const instruction_set* isa, int64_t images, int64_t y0, int64_t first,
                    int64_t end, const float* large, const float* small, float* sums) noexcept nogil:
    """Lines [first, end) of plane y0 of the small side of some images. Both sides are given as if they were there from position 0 on."""
    cdef int64_t t0, t1, x0, x1, low, high, row = p.chains * w.K[2] * isa.width
    cdef int64_t blocks = w.Y[2] // DOT_LANES, rest = w.Y[2] % DOT_LANES
    cdef const float* line
    cdef const float* own
    for t0 in range(w.K[0]):
        x0 = y0 * w.s[0] - w.b[0] + t0 * w.d[0]
        if x0 < 0 or x0 >= w.X[0]:
            continue
        for t1 in range(w.K[1]):
            meet_inside(first * w.s[1] - w.b[1] + t1 * w.d[1], w.s[1], w.X[1], end - first, &low, &high)
            if low == high:
                continue
            x1 = (first + low) * w.s[1] - w.b[1] + t1 * w.d[1]
            line = large + (x0 * w.X[1] + x1) * w.X[2] * isa.width
            own = small + (y0 * w.Y[1] + first + low) * w.Y[2] * isa.width
            if rest > 0:
                add_chains(w, p, isa, 0, rest, blocks + 1, line, own, images, high - low, sums + (t0 * w.K[1] + t1) * row)
            if blocks > 0:
                add_chains(w, p, isa, rest, DOT_LANES, blocks, line, own, images, high - low, sums + (t0 * w.K[1] + t1) * row)


cdef void run_band(const Weights* w, const PlanesWeights* p, const instruction_set* isa, int64_t n, int64_t images, int64_t g, int64_t first,
                   int64_t end, PlanesWeightsScratch* s) noexcept nogil:
    """Lines [first, end) of the small side, counted through the planes of an image, of images from n on."""
    cdef int64_t low, high, y0, i, line = first, stop, large_size = element_size(w.large.format), small_size = element_size(w.small.format)
    cdef bint whole = end - first == w.Y[0] * w.Y[1]  # the next are those of the next image
    lines_of_large(w, first, end, &low, &high)
    check_room(b"run_band", s.large, 4 * ((images - 1) * p.large + (high - low) * w.X[2] * isa.width))
    check_room(b"run_band", s.small, 4 * ((images - 1) * p.small + (end - first) * w.Y[2] * isa.width))
    for i in range(images):
        if high > low:
            isa.planes.load(s.large + i * p.large, (high - low) * w.X[2],
                            <const char*>w.large.data + ((n + i) * w.large.n + g * w.large.g + low * w.X[2]) * large_size,
                            w.large.format, w.large.g, (w.large.n if whole else (high - low) * w.X[2]) * large_size)
        isa.planes.load(s.small + i * p.small, (end - first) * w.Y[2],
                        <const char*>w.small.data + ((n + i) * w.small.n + g * w.small.g + first * w.Y[2]) * small_size,
                        w.small.format, w.small.g, (w.small.n if whole else (end - first) * w.Y[2]) * small_size)
    while line < end:
        y0 = line // w.Y[1]
        stop = min(end, (y0 + 1) * w.Y[1])
        add_lines(w, p, isa, images, y0, line - y0 * w.Y[1], stop - y0 * w.Y[1], s.large - low * w.X[2] * isa.width,
                  s.small - first * w.Y[2] * isa.width, s.sums)
        line = stop


cdef void run_planes_weights_task(const Problem* q, int64_t task, PlanesWeightsScratch* s) noexcept nogil:
    """One piece of as many groups as lanes."""
    cdef const Weights* w = q.weights
    cdef const PlanesWeights* p = &q.planes_weights
    cdef const instruction_set* isa = q.isa
    cdef int64_t piece = task % w.cut.pieces, g = group_of_block(isa, w.G, task // w.cut.pieces), width = isa.width
    cdef int64_t image = w.Y[0] * w.Y[1], positions = w.N * image * w.Y[2], tap, half, i, n, end, images
    cdef int64_t line = piece_start(&w.cut, piece, positions) // w.Y[2], lines_end = piece_start(&w.cut, piece + 1, positions) // w.Y[2]
    cdef float* sums
    check_room(b"run_planes_weights_task", s.sums, 4 * width * p.taps * p.chains)
    memset(s.sums, 0, 4 * width * p.taps * p.chains)
    while line < lines_end:
        n = line // image
        end = min(min(lines_end, line + p.band), (n + 1) * image)
        images = 1
        if w.Y[0] == 1 and end - line == image:
            images = min(p.images, (lines_end - line) // image)
        run_band(w, p, isa, n, images, g, line - n * image, end - n * image, s)
        line = end + (images - 1) * image
    check_room(b"run_planes_weights_task", p.partials + task * p.taps * width, 4 * p.taps * width)
    for tap in range(p.taps):
        sums = s.sums + tap * p.chains * width
        half = DOT_LANES // 2
        while half > 0:  # a chain without positions is +0, which changes no bit of a result
            for i in range(min(half, max(0, p.chains - half)) * width):
                sums[i] = sums[i] + sums[half * width + i]
            half //= 2
        memcpy(p.partials + (task * p.taps + tap) * width, sums, 4 * width)


cdef void store_planes_weights(const Problem* q, int64_t block) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef const PlanesWeights* p = &q.planes_weights
    cdef int64_t width = q.isa.width, g = group_of_block(q.isa, w.G, block)
    cdef int64_t kept = block * width - g, tap
    cdef float* partials = p.partials + block * w.cut.pieces * p.taps * width
    cdef lane_span span
    join_pieces(partials, w.cut.pieces, p.taps * width, p.taps * width)
    if w.taps_stride[5] != 1 or w.taps_stride[4] != w.K[2] or w.taps_stride[3] != w.K[1] * w.K[2]:
        for tap in range(p.taps):
            span = lane_span(0, width - kept, (g + kept) * w.taps_stride[0] + q.relation.tap_offsets[tap], w.taps_stride[0])
            q.isa.scatter(partials + tap * width + kept, width, 1, w.taps, w.taps_format, 0, &span, 1, NULL)
        return
    q.isa.planes.store(<char*>w.taps + g * w.taps_stride[0] * element_size(w.taps_format), w.taps_format, w.taps_stride[0],
                       kept, partials, p.taps, NULL)


cdef bint run_depthwise_planes_weights(Problem* q, workspace* memory) noexcept nogil:
    cdef int64_t blocks = ceiling(q.weights.G, q.isa.width), tasks = blocks * q.weights.cut.pieces, task
    cdef int threads = q.threads
    if threads == 1:
        for task in range(tasks):
            run_planes_weights_task(q, task, q.planes_weights.scratch)
    else:
        for task in prange(tasks, schedule="dynamic", num_threads=threads):
            run_planes_weights_task(q, task, &q.planes_weights.scratch[thread_number()])
    for task in range(blocks):
        store_planes_weights(q, task)
    return True
