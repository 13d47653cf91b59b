"""Algorithm `weights_depthwise_ncx`: `backward_weights` where the small side has few channels in a group, on instruction sets
with masked loads.

The sums are those of `engine/weights/few_channels.pxi`, but the large side is read in place.  A line of it meets the lines of
the small side of several tap rows; up to NCX_COLUMNS rows and columns of taps advance together.

uses: engine/algorithms.pxi (Problem), engine/product/depthwise_ncx.pxi (decode_image),
    engine/product/depthwise_ncx_plan.pxi (NCX_FLOATS, NCX_PLAN, NcxPlan, plan_ncx), engine/product/product.pxi
    (Product), engine/weights/few_channels.pxi (in_dot_tiles, store_few_channels), engine/weights/gradient.pxi (Weights,
    share_tap_rows, tap_row_parts, tap_rows_of)
gives: NcxWeights, fits_depthwise_ncx_weights, lay_out_depthwise_ncx_weights, read_in_place, run_depthwise_ncx_weights
"""

cdef enum:
    NCX_PLANE_LINES = 256   # cache lines of planes so small that the processor does not foresee the next
    NCX_SUMS = 6 << 10      # floats of sums that stay in the nearest cache
    NCX_DECODED = 1 << 12   # floats of both sides that are decoded at a time: they stay there too
    NCX_PASSES = 16         # through numbers of 16 bits that are read in place, at most: more decode them too often


cdef struct NcxWeightsScratch:
    float* large
    float* small
    float* sums              # [m][c][tap][DOT_LANES]


cdef struct NcxWeights:
    const Product* relation  # forward's: where each tap meets the large side
    NcxPlan plan             # how the large side is read
    ncx_masks* masks         # [run of columns][vector, and one more]
    bint joined              # columns of taps meet numbers side by side
    int64_t* places          # of the tap columns
    int64_t vectors          # of a line
    int64_t runs             # of tap columns
    int64_t rows_step        # tap rows that share lines of the large side are so far apart
    int64_t apart            # ... and meet lines of the small side so far apart
    bint direct              # the small side too is read in place
    int in_place             # the format of what is read: that of both sides, or float32
    int64_t group_block      # groups that take turns
    int64_t band             # lines of a plane that are decoded at a time
    reduction_cut cut
    NcxWeightsScratch* scratch
    float* partials          # [group][piece][m][c][tap]


cdef inline int read_in_place(const Weights* w, const instruction_set* isa) noexcept nogil:
    """The format in which both sides can be read where they lie, or float32."""
    if (isa.width == DOT_LANES and w.large.format == w.small.format and element_size(w.large.format) == 2 and w.large.x[2] == 1
            and w.small.x[2] == 1 and w.s[2] == 1 and ceiling(w.K[1], NCX_COLUMNS) * ceiling(w.K[2], NCX_COLUMNS) <= NCX_PASSES):
        return w.large.format
    return NUMBER_FLOAT32


cdef bint plan_ncx_weights(const Weights* w, const Product* r, const instruction_set* isa, NcxWeights* s) noexcept nogil:
    """How the lines of the large side are read where they lie; tells whether they can be."""
    s.relation, s.in_place = r, read_in_place(w, isa)
    if (isa.depthwise_ncx_weights[0][0] == NULL or w.G == 1 or in_dot_tiles(w) or w.C > REDUCTION_FEW or r.tap_count == 0
            or w.Y[0] * w.Y[1] <= 1 or w.Y[2] == 0 or not plan_ncx(r, isa, 1, s.in_place, &s.plan)):
        return False
    share_tap_rows(w, &s.rows_step, &s.apart)
    s.vectors = ceiling(w.Y[2], DOT_LANES)
    s.runs = ceiling(w.K[2], NCX_COLUMNS)
    s.direct = w.small.format == s.in_place and w.small.x[2] == 1
    s.cut = w.cut
    s.band = w.Y[0] * w.Y[1]
    if w.Y[0] == 1 and not s.plan.direct and not s.direct:  # each band begins with lines of the one before
        s.band = max(4 * w.K[1] * w.d[1], NCX_DECODED // max(1, w.s[1] * w.X[2] + w.Y[2]))
    if w.K[2] > 3 and isa.depthwise_ncx_weights[NCX_COLUMNS - 1][NCX_COLUMNS - 1] == NULL:
        return False  # others have more sums in as many registers
    s.joined = w.s[2] == 1 and w.d[2] == 1
    return (s.runs * (s.vectors + 1) <= NCX_PLAN // (NCX_COLUMNS + 1)
            and (s.direct or w.M * w.Y[0] * w.Y[1] * w.Y[2] <= NCX_FLOATS))


cdef void fill_ncx_weights(NcxWeights* s, const Weights* w) noexcept nogil:
    cdef int64_t run, v, t, x, first, lanes, low, high, phase
    cdef ncx_masks* masks = s.masks
    check_room(b"fill_ncx_weights", s.places, w.K[2] * sizeof(int64_t))
    check_room(b"fill_ncx_weights", masks, s.runs * (s.vectors + 1) * sizeof(ncx_masks))
    for t in range(w.K[2]):
        x = t * w.d[2] - w.b[2]
        phase = x - floor_divided(x, s.plan.phases) * s.plan.phases
        s.places[t] = phase * s.plan.pitch[2] + floor_divided(x, s.plan.phases)
    for run in range(s.runs):
        first = share(w.K[2], s.runs, run)
        for v in range(s.vectors + 1):
            lanes = max(0, min(DOT_LANES, w.Y[2] - v * DOT_LANES))
            meet_inside(v * DOT_LANES + first * w.d[2] - w.b[2], 1, w.X[2], DOT_LANES, &low, &high)
            masks.loaded, masks.all = bits_from(low, high), 0xffff
            for t in range(first, share(w.K[2], s.runs, run + 1)):
                x = v * DOT_LANES * w.s[2] + t * w.d[2] - w.b[2]
                meet_inside(x, w.s[2], w.X[2], lanes, &low, &high)
                masks.inside[t - first] = bits_from(low, high)
                masks.all &= masks.inside[t - first]
            masks += 1


cdef inline int64_t rows_together(const Weights* w, const NcxWeights* s, const instruction_set* isa) noexcept nogil:
    """Tap rows that advance together: as many as the registers hold sums beside those of their columns."""
    cdef int64_t rows = NCX_COLUMNS, columns = ceiling(w.K[2], s.runs)
    while isa.depthwise_ncx_weights[rows - 1][columns - 1] == NULL:
        rows -= 1
    return rows


cdef void ncx_plane(const Weights* w, const NcxWeights* s, const instruction_set* isa, int64_t y0, int64_t first, int64_t end,
                    const char* large, const char* small, float* sums) noexcept nogil:
    """Lines [first, end) of one plane of the small side against the planes of one channel that they meet."""
    cdef int64_t t0, x0, part, row = 0, rows, x1, line, lines_end, run, column
    cdef int64_t most = rows_together(w, s, isa), parts = tap_row_parts(w, s.rows_step, most)
    cdef int64_t small_line = w.small.x[1] if s.direct else w.Y[2], size = element_size(s.in_place)
    cdef unsigned last = (1 << (w.Y[2] - (s.vectors - 1) * DOT_LANES)) - 1
    small += y0 * (w.small.x[0] if s.direct else w.Y[1] * w.Y[2]) * size
    for t0 in range(w.K[0]):
        x0 = y0 * w.s[0] + t0 * w.d[0] - w.b[0]
        if x0 < 0 or x0 >= w.X[0]:
            continue
        for part in range(parts):
            rows = tap_rows_of(w, s.rows_step, most, part, &row)
            x1 = row * w.d[1] - w.b[1]  # where line 0 of the small side meets the first of these tap rows
            line = max(first, ceiling(-x1, w.s[1]) if x1 < 0 else 0)
            lines_end = min(end + (rows - 1) * s.apart, ceiling(w.X[1] - x1, w.s[1]) if x1 < w.X[1] else 0)
            for run in range(s.runs):
                column = share(w.K[2], s.runs, run)
                isa.depthwise_ncx_weights[rows - 1][share(w.K[2], s.runs, run + 1) - column - 1](
                    s.in_place, sums + ((t0 * w.K[1] + row) * w.K[2] + column) * DOT_LANES, s.rows_step * w.K[2] * DOT_LANES,
                    large + (x0 * s.plan.pitch[0] + x1 * s.plan.pitch[1]) * size, w.s[1] * s.plan.pitch[1], s.places + column,
                    s.joined, small, small_line, line, lines_end, first, end, s.apart,
                    s.masks + run * (s.vectors + 1), s.vectors, last)


cdef void run_ncx_weights_task(const Weights* w, const NcxWeights* s, const instruction_set* isa, int64_t first_group, int64_t end_group,
                               int64_t piece, float* partials, NcxWeightsScratch* scratch) noexcept nogil:
    """One piece of some groups, whose planes lie one after the other: partials[group][piece][m][c][tap]."""
    cdef int64_t image = w.Y[0] * w.Y[1], positions = w.N * image * w.Y[2], n, g, end
    cdef int64_t line = piece_start(&s.cut, piece, positions) // w.Y[2], lines_end = piece_start(&s.cut, piece + 1, positions) // w.Y[2]
    cdef int64_t sum_count = w.M * w.C * s.relation.tap_count
    cdef float* sums
    cdef float* partial
    check_room(b"run_ncx_weights_task", scratch.sums, 4 * (end_group - first_group) * sum_count * DOT_LANES)
    memset(scratch.sums, 0, (end_group - first_group) * sum_count * DOT_LANES * sizeof(float))
    while line < lines_end:
        n = line // image
        end = min(min(lines_end, line + s.band), (n + 1) * image)
        for g in range(first_group, end_group):
            ncx_image(w, s, isa, g, n, line - n * image, end - n * image, scratch.sums + (g - first_group) * sum_count * DOT_LANES, scratch)
        line = end
    for g in range(first_group, end_group):
        sums = scratch.sums + (g - first_group) * sum_count * DOT_LANES
        partial = partials + (g * s.cut.pieces + piece) * sum_count
        check_room(b"run_ncx_weights_task", partial, 4 * sum_count)
        isa.sum_chains(partial, sums, sum_count)


cdef void ncx_image(const Weights* w, const NcxWeights* s, const instruction_set* isa, int64_t g, int64_t n, int64_t line,
                    int64_t lines_end, float* sums, NcxWeightsScratch* scratch) noexcept nogil:
    """Lines [line, lines_end) of the small side, counted through all planes of image n and group g."""
    cdef int64_t low = 0, high = w.X[1], first = 0, end = w.Y[1], m, c, y0
    cdef int64_t plane = line // w.Y[1], last = (lines_end - 1) // w.Y[1]
    cdef int64_t small_channel = w.small.c if s.direct else w.Y[0] * w.Y[1] * w.Y[2]
    cdef int64_t size = element_size(s.in_place)
    cdef const char* large = <const char*>scratch.large
    cdef const char* small = <const char*>scratch.small
    if w.Y[0] == 1:  # a piece may be a small part of a plane
        first, end = line, lines_end
        low = min(w.X[1], max(0, first * w.s[1] - w.b[1]))
        high = max(low, min(w.X[1], (end - 1) * w.s[1] - w.b[1] + (w.K[1] - 1) * w.d[1] + 1))
    if s.plan.direct:
        large = <const char*>w.large.data + (n * w.large.n + g * w.large.g) * size
    elif high > low:
        if w.Y[0] == 1 and s.plan.whole == 0:  # every band at the same place, which is in the nearest cache
            large -= 4 * low * s.plan.pitch[1]
        decode_image(&s.plan, isa, n, g, max(0, plane * w.s[0] - w.b[0]),
                     min(w.X[0], last * w.s[0] - w.b[0] + (w.K[0] - 1) * w.d[0] + 1), low, high, <float*>large)
    if s.direct:
        small = <const char*>w.small.data + (n * w.small.n + g * w.small.g) * size
    else:
        if w.Y[0] == 1:
            small -= 4 * first * w.Y[2]
        decode_small(w, isa, n, g, plane, last + 1, first, end, <float*>small)
    while line < lines_end:
        y0 = line // w.Y[1]
        first = line - y0 * w.Y[1]
        end = min(w.Y[1], first + lines_end - line)
        for m in range(w.M):
            for c in range(w.C):
                ncx_plane(w, s, isa, y0, first, end, large + c * s.plan.channel * size, small + m * small_channel * size,
                          sums + (m * w.C + c) * s.relation.tap_count * DOT_LANES)
        line += end - first


cdef void decode_small(const Weights* w, const instruction_set* isa, int64_t n, int64_t g, int64_t first_plane, int64_t end_plane,
                       int64_t first, int64_t end, float* small) noexcept nogil:
    """Lines [first, end) of some planes."""
    cdef int64_t m, y0, count = end - first, width = w.Y[2]
    cdef float* lines
    check_room(b"decode_small", small + first * width, 4 * (w.M * w.Y[0] * w.Y[1] - first) * width)
    if w.small.x[1] == w.Y[2] * w.small.x[2]:
        count, width = 1, width * count
    for m in range(w.M):
        for y0 in range(first_plane, end_plane):
            lines = small + (m * w.Y[0] + y0) * w.Y[1] * w.Y[2]
            isa.frame(lines + first * w.Y[2], width, count, width, 0, width,
                      <const char*>w.small.data + (n * w.small.n + g * w.small.g + m * w.small.c + y0 * w.small.x[0]
                                                   + first * w.small.x[1]) * element_size(w.small.format),
                      w.small.format, w.small.x[1], w.small.x[2], (end - first) * w.small.x[1])


cdef int64_t groups_together(const Weights* w, const NcxWeights* s, int threads) noexcept nogil:
    """How many groups take turns plane by plane, so that small planes are read in the order in which they lie."""
    cdef int64_t plane = w.X[0] * w.X[1] * w.X[2] * w.C + w.Y[0] * w.Y[1] * w.Y[2] * w.M
    cdef int64_t most = NCX_SUMS // (w.M * w.C * s.relation.tap_count * DOT_LANES)
    if w.Y[0] != 1 or plane > 16 * NCX_PLANE_LINES:
        return 1
    return max(1, min(most, w.G * s.cut.pieces // (8 * threads)))


cdef bint fits_depthwise_ncx_weights(Problem* q) noexcept nogil:
    if q.weights == NULL or q.weights.large.format == NUMBER_FLOAT64 or q.weights.cut.chains == 1:
        return False
    if not plan_ncx_weights(q.weights, &q.relation, q.isa, &q.ncx_weights):
        return False
    q.ncx_weights.group_block = groups_together(q.weights, &q.ncx_weights, q.threads)
    return True


cdef void lay_out_depthwise_ncx_weights(Problem* q, workspace* memory) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef NcxWeights* p = &q.ncx_weights
    cdef int64_t count = w.M * w.C * q.relation.tap_count
    cdef NcxWeightsScratch counted
    cdef NcxWeightsScratch* s
    cdef int worker
    p.places = <int64_t*>take(memory, w.K[2] * sizeof(int64_t))
    p.masks = <ncx_masks*>take(memory, p.runs * (p.vectors + 1) * sizeof(ncx_masks))
    p.scratch = <NcxWeightsScratch*>take(memory, q.threads * sizeof(NcxWeightsScratch))
    for worker in range(q.threads):
        s = &p.scratch[worker] if memory.base != NULL else &counted
        s.large = <float*>take(memory, 4 * p.plan.image)
        s.small = <float*>take(memory, 0 if p.direct else 4 * (w.M * w.Y[0] * w.Y[1] * w.Y[2] + DOT_LANES))
        s.sums = <float*>take(memory, 4 * p.group_block * count * DOT_LANES)
    p.partials = <float*>take(memory, 4 * w.G * p.cut.pieces * count)


cdef bint run_depthwise_ncx_weights(Problem* q, workspace* memory) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef NcxWeights* s = &q.ncx_weights
    cdef NcxWeightsScratch* scratch = s.scratch
    cdef int64_t count = w.M * w.C * q.relation.tap_count, blocks = ceiling(w.G, s.group_block), tasks = blocks * s.cut.pieces, task
    cdef int threads = q.threads
    fill_ncx_weights(s, w)
    if threads == 1:
        for task in range(tasks):
            run_ncx_weights_task(w, s, q.isa, share(w.G, blocks, task // s.cut.pieces), share(w.G, blocks, task // s.cut.pieces + 1),
                                 task % s.cut.pieces, s.partials, scratch)
    else:
        for task in prange(tasks, schedule="dynamic", chunksize=max(1, tasks // (32 * threads)), num_threads=threads):
            run_ncx_weights_task(w, s, q.isa, share(w.G, blocks, task // s.cut.pieces), share(w.G, blocks, task // s.cut.pieces + 1),
                                 task % s.cut.pieces, s.partials, &scratch[thread_number()])
    for task in prange(w.G, schedule="static", num_threads=threads):
        store_few_channels(w, q.relation.tap_count, s.cut.pieces, q.isa, task, 0, w.C, s.partials + task * s.cut.pieces * count)
    return True
