"""Algorithm `weights_depthwise_nxc`: `backward_weights` for groups of one channel on either side whose channels lie side by side
in memory; lanes are groups.

Some vectors of channels of some lines are packed, [vector][position][channel], unless they are floats and positions lie near
each other: where they lie a large power of two apart, few of them stay in the nearest cache.  Every chain of every tap takes
its positions from there.

uses: core/problem.pxi (Operand), engine/algorithms.pxi (Problem), engine/product/depthwise_nxc.pxi (NxcScratch,
    lay_out_nxc, meet_taps), engine/product/product.pxi (Product, ROW_BYTES), engine/weights/gradient.pxi (Weights),
    engine/weights/sums.pxi (join_pieces)
gives: NxcWeights, fits_depthwise_nxc_weights, lay_out_depthwise_nxc_weights, run_depthwise_nxc_weights
"""

cdef enum:
    CHAIN_BYTES = 1 << 18    # sums of a task of the weights' gradient
    PACKED_BYTES = 3 << 14   # of one vector: stays in the nearest cache
    BLOCK_BYTES = 1 << 18    # of all vectors of a task
    NEAR_POSITIONS = 64      # floats from one position to the next that need no packing, at most
    MOST_PACKED = 1 << 21    # where one position's taps lie too far apart for the former


cdef struct NxcWeights:
    bint direct         # nothing is packed
    int64_t lines       # taken at a time
    int64_t positions   # ... of each
    int64_t extent[3]   # positions of the large side that these meet
    int64_t large       # floats of a vector of the large side
    int64_t small       # ... of the small side
    int64_t sums        # ... of its chains
    int64_t vectors     # of a task
    Product relation    # forward's, in what is packed
    NxcScratch* scratch
    float* partials     # [piece][tap][group]


cdef void pack_extent(const Weights* w, const instruction_set* isa, NxcWeights* p) noexcept nogil:
    p.extent[0] = min(w.X[0], (w.K[0] - 1) * w.d[0] + 1)
    p.extent[1] = min(w.X[1], (p.lines - 1) * w.s[1] + (w.K[1] - 1) * w.d[1] + 1)
    p.extent[2] = min(w.X[2], (p.positions - 1) * w.s[2] + (w.K[2] - 1) * w.d[2] + 1)
    p.large = p.extent[0] * p.extent[1] * p.extent[2] * isa.width
    p.small = p.lines * p.positions * isa.width


cdef void plan_nxc_weights(const Weights* w, const instruction_set* isa, NxcWeights* p) noexcept nogil:
    p.lines, p.positions = w.Y[1], w.Y[2]
    p.direct = (w.large.format == NUMBER_FLOAT32 and w.small.format == NUMBER_FLOAT32 and w.G % isa.width == 0
                and 0 < w.large.x[2] <= NEAR_POSITIONS and 0 < w.small.x[2] <= NEAR_POSITIONS)
    pack_extent(w, isa, p)
    while not p.direct and 4 * (p.large + p.small) > PACKED_BYTES:
        if p.lines > 1:
            p.lines = (p.lines + 1) // 2
        elif p.positions > 4 * DOT_LANES:
            p.positions = ceiling(p.positions // 2, DOT_LANES) * DOT_LANES
        else:
            break
        pack_extent(w, isa, p)
    p.sums = w.K[0] * w.K[1] * w.K[2] * DOT_LANES * isa.width
    if p.direct:
        p.large = p.small = 0
    p.vectors = max(1, min(CHAIN_BYTES // (4 * p.sums), BLOCK_BYTES // max(1, 4 * (p.large + p.small))))


cdef bint fits_depthwise_nxc_weights(Problem* q) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef const instruction_set* isa = q.isa
    cdef NxcWeights* p = &q.nxc_weights
    if w == NULL or w.large.format == NUMBER_FLOAT64 or w.cut.chains == 1:
        return False
    if w.C != 1 or w.M != 1 or w.large.g != 1 or w.small.g != 1 or w.G < isa.width:
        return False
    plan_nxc_weights(w, isa, p)
    if 4 * p.sums > ROW_BYTES // 4 or 4 * (p.large + p.small) > MOST_PACKED:
        return False
    p.vectors = min(p.vectors, ceiling(w.G, isa.width))
    if q.threads > 1 and w.cut.pieces < 4 * q.threads:
        p.vectors = min(p.vectors, ceiling(ceiling(w.G, isa.width), ceiling(4 * q.threads, w.cut.pieces)))
    p.relation = q.relation
    if not p.direct:
        p.relation.input.x[0] = p.extent[1] * p.extent[2] * isa.width
        p.relation.input.x[1], p.relation.input.x[2] = p.extent[2] * isa.width, isa.width
    return True


cdef void lay_out_depthwise_nxc_weights(Problem* q, workspace* memory) noexcept nogil:
    cdef NxcWeights* p = &q.nxc_weights
    cdef NxcScratch counted
    cdef NxcScratch* s
    cdef int worker
    p.scratch = <NxcScratch*>take(memory, q.threads * sizeof(NxcScratch))
    for worker in range(q.threads):
        s = &p.scratch[worker] if memory.base != NULL else &counted
        lay_out_nxc(s, p.relation.tap_count, p.vectors * p.sums, memory)
        s.large = <float*>take(memory, 4 * p.vectors * p.large)
        s.small = <float*>take(memory, 4 * p.vectors * p.small)
    p.partials = <float*>take(memory, 4 * q.weights.cut.pieces * p.relation.tap_count * q.weights.G)


cdef void pack_channels(const Operand* operand, const instruction_set* isa, int64_t g, int64_t groups, int64_t n, const int64_t* first,
                        const int64_t* end, const int64_t* extent, int64_t pitch, float* block) noexcept nogil:
    """Positions [first, end) of some groups, in a block of `extent`."""
    cdef int64_t x0, x1, size = element_size(operand.format)
    for x0 in range(first[0], end[0]):
        for x1 in range(first[1], end[1]):
            if end[2] > first[2]:
                isa.nxc_pack(block + ((x0 - first[0]) * extent[1] + x1 - first[1]) * extent[2] * isa.width, pitch,
                             end[2] - first[2], groups,
                             <const char*>operand.data + size * (n * operand.n + x0 * operand.x[0] + x1 * operand.x[1]
                                                                      + first[2] * operand.x[2] + g),
                             operand.format, operand.x[2])


cdef void run_nxc_weights_block(const Weights* w, const Product* r, const NxcWeights* p, const instruction_set* isa, int64_t n,
                                const int64_t* y, const int64_t* y_end, int64_t g, int64_t groups, NxcScratch* s) noexcept nogil:
    """Add positions [y, y_end) of one plane to the sums."""
    cdef int64_t first[3]
    cdef int64_t end[3]
    cdef int64_t extent[3]
    cdef int64_t y1, y2, lines, met, i, v, stop, origin = 0, line, step
    cdef int64_t vectors = ceiling(groups, isa.width), together = 1  # packed, each vector is by itself
    cdef int axis
    cdef const float* large = s.large
    cdef const float* small = s.small
    if p.direct:
        large = <const float*>w.large.data + n * w.large.n + g
        small = (<const float*>w.small.data + n * w.small.n + y[0] * w.small.x[0] + y[1] * w.small.x[1] + y[2] * w.small.x[2] + g)
        together = vectors
        line, step = w.small.x[1], w.small.x[2]
    else:
        for axis in range(3):
            first[axis] = max(0, y[axis] * w.s[axis] - w.b[axis])
            end[axis] = min(w.X[axis], (y_end[axis] - 1) * w.s[axis] - w.b[axis] + (w.K[axis] - 1) * w.d[axis] + 1)
            origin += first[axis] * r.input.x[axis]
            extent[axis] = y_end[axis] - y[axis]
        check_room(b"run_nxc_weights_block", s.large, 4 * vectors * p.large)
        check_room(b"run_nxc_weights_block", s.small, 4 * vectors * p.small)
        pack_channels(&w.large, isa, g, groups, n, first, end, p.extent, p.large, s.large)
        pack_channels(&w.small, isa, g, groups, n, y, y_end, extent, p.small, s.small)
        line, step = extent[2] * isa.width, isa.width
    y1 = y[1]
    while y1 < y_end[1]:
        lines = 1
        if w.Y[2] <= DOT_LANES:  # a chain has one position of each line: lines that meet the same taps go together
            while y1 + lines < y_end[1] and meets_all(w, y1) and meets_all(w, y1 + lines):
                lines += 1
        y2 = y[2]
        while y2 < y_end[2]:
            stop = y_end[2]
            met = meet_taps(r, y[0], y1, y2, &stop, s)
            for i in range(met):
                s.offsets[i] -= origin
            v = 0
            while v < vectors:
                isa.depthwise_nxc_weights(s.sums + v * p.sums, p.sums, together, large + v * p.large, w.s[1] * r.input.x[1],
                                          w.s[2] * r.input.x[2], s.offsets, s.taps, met,
                                          small + v * p.small + (y1 - y[1]) * line + (y2 - y[2]) * step, line, step, y2, stop - y2, lines)
                v += together
            y2 = stop
        y1 += lines


cdef inline bint meets_all(const Weights* w, int64_t y1) noexcept nogil:
    """Whether a line meets all taps of its axis."""
    cdef int64_t x1 = y1 * w.s[1] - w.b[1]
    return x1 >= 0 and x1 + (w.K[1] - 1) * w.d[1] < w.X[1]


cdef void run_nxc_weights_piece(const Weights* w, const Product* r, const NxcWeights* p, const instruction_set* isa,
                                const reduction_cut* cut, int64_t piece, int64_t g, int64_t groups, float* partial, int64_t pitch,
                                NxcScratch* s) noexcept nogil:
    """One piece of some groups: partial[tap][g]."""
    cdef int64_t y[3]
    cdef int64_t y_end[3]
    cdef int64_t y2_count = max(1, w.Y[2]), positions = w.N * w.Y[0] * w.Y[1] * w.Y[2], tap, half, i, v, width = isa.width
    cdef int64_t line = piece_start(cut, piece, positions) // y2_count, lines_end = piece_start(cut, piece + 1, positions) // y2_count
    cdef float* sums
    check_room(b"run_nxc_weights_piece", s.sums, 4 * ceiling(groups, width) * p.sums)
    check_room(b"run_nxc_weights_piece", partial + g, 4 * ((r.tap_count - 1) * pitch + groups))
    memset(s.sums, 0, ceiling(groups, width) * p.sums * sizeof(float))
    while line < lines_end:
        y[1] = line % w.Y[1]
        y[0] = line // w.Y[1] % w.Y[0]
        y_end[0], y_end[1] = y[0] + 1, y[1] + min(p.lines, min(w.Y[1] - y[1], lines_end - line))
        y[2] = 0
        while y[2] < w.Y[2]:
            y_end[2] = min(w.Y[2], y[2] + p.positions)
            run_nxc_weights_block(w, r, p, isa, line // w.Y[1] // w.Y[0], y, y_end, g, groups, s)
            y[2] = y_end[2]
        line += y_end[1] - y[1]
    for v in range(ceiling(groups, width)):
        for tap in range(r.tap_count):
            sums = s.sums + v * p.sums + tap * DOT_LANES * width
            half = DOT_LANES // 2
            while half > 0:
                for i in range(half * width):
                    sums[i] = sums[i] + sums[half * width + i]
                half //= 2
            for i in range(min(width, groups - v * width)):
                partial[tap * pitch + g + v * width + i] = sums[i]


cdef bint run_depthwise_nxc_weights(Problem* q, workspace* memory) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef const NxcWeights* p = &q.nxc_weights
    cdef NxcScratch* scratch = p.scratch
    cdef int64_t block = p.vectors * q.isa.width, blocks = ceiling(w.G, block), taps = p.relation.tap_count, pitch = w.G
    cdef int64_t tasks = blocks * w.cut.pieces, task, i
    cdef lane_span span
    if q.threads == 1:
        for task in range(tasks):
            run_nxc_weights_piece(w, &p.relation, p, q.isa, &w.cut, task // blocks, task % blocks * block,
                                  min(block, w.G - task % blocks * block), p.partials + task // blocks * taps * pitch, pitch, scratch)
    else:
        for task in prange(tasks, schedule="dynamic", num_threads=q.threads):
            run_nxc_weights_piece(w, &p.relation, p, q.isa, &w.cut, task // blocks, task % blocks * block,
                                  min(block, w.G - task % blocks * block), p.partials + task // blocks * taps * pitch, pitch,
                                  &scratch[thread_number()])
    join_pieces(p.partials, w.cut.pieces, taps * pitch, taps * pitch)
    for i in range(taps):
        span = lane_span(0, w.G, p.relation.tap_offsets[i], w.taps_stride[0])
        q.isa.scatter(p.partials + i * pitch, pitch, 1, w.taps, w.taps_format, 0, &span, 1, NULL)
    return True
