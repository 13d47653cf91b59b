"""Algorithm `weights_few_channels`: `backward_weights` where the small side has few channels in a group, as dot products along
the lines of both sides.

`core/reduction.h` cuts these sums into chains that run side by side in the lanes of vectors.  The large side is laid out in
blocks, as `engine/product/laid_out.pxi` does for `forward`, so that every tap finds a line's positions side by side.  A side that
is so in memory is read in place; tiles decode 16-bit numbers there if a single tap meets them.  The sums of all taps of one pair of
channels advance together, or those of several pairs of channels at one tap.

uses: core/caches.pxi (middle_cache), engine/algorithms.pxi (Problem), engine/costs.pxi (CHAIN_DECODED, HALF_OF_PEAK, peak_cycles),
    engine/product/laid_out_fill.pxi (fill_block), engine/product/laid_out_plan.pxi (Layout, measure_cells, tap_shift),
    engine/product/pack.pxi (TAKEN), engine/product/product.pxi (Product, Tap), engine/weights/gradient.pxi (Weights,
    large_at), engine/weights/sums.pxi (join_pieces)
gives: FewChannels, few_channels_cycles, fits_few_channels, in_dot_tiles, large_tiles, lay_out_few_channels,
    run_few_channels, store_few_channels
"""

cdef enum:
    FEW_CHANNELS_BYTES = 1 << 18   # of a block of the large side, and of the sums of its channels ...
    FEW_DECODED_BYTES = 1 << 19    # ... where numbers are decoded, of half of the middle cache at most: lines in parts are decoded again
    NEAR_FLOATS = 3 << 11          # of both sides, while all taps meet them: with their sums, in the nearest cache
    JOINED_AHEAD = 4               # channels whose lines are asked for before they are laid out as one
    PASSING_FLOATS = 1 << 12       # of the large side, where a single tap meets them
    TILED_CHANNELS = 3             # of either side from which on channels share loads; fewer leave more taps side by side


cdef struct FewChannelsScratch:
    float* block
    float* masks
    float* lines
    float* sums              # [m][c][tap][DOT_LANES], of the channels that go through a piece together
    float* stored            # [m][c][tap] of them, where there is one piece


cdef struct FewChannels:
    const Product* relation  # forward's: where each tap meets the large side
    Layout layout
    int64_t* shifts          # of the taps in a block
    bint tiled               # several channels of either side advance together
    bint in_place            # the large side is read where it lies
    bint joined              # ... or the lines of a channel that a block has are laid out as one
    int64_t channels         # of the large side that go through a piece together ...
    int64_t laid_out         # ... and of them those that are laid out together
    bint copied              # the small side needs decoding or has gaps: lines are copied
    int64_t line             # floats of a copied line
    reduction_cut cut
    FewChannelsScratch* scratch
    float* partials          # [group][piece][m][c][tap], where there are several pieces


cdef void plan_few_channels(const Weights* w, const Product* r, const instruction_set* isa, FewChannels* p) noexcept nogil:
    """Lay out lines whole, or where they are too long, in blocks of a line."""
    cdef int axis
    cdef int64_t span, floats, fewest = DOT_LARGE, most = FEW_CHANNELS_BYTES
    cdef bint passing, straight
    cdef Layout* l = &p.layout
    p.relation = r
    for axis in range(3):
        span = (w.K[axis] - 1) * w.d[axis]
        l.low[axis] = -w.b[axis]
        l.phases[axis] = 1
        if w.K[axis] > 1 and w.d[axis] % w.s[axis] != 0:
            l.phases[axis] = min(w.s[axis], span + 1)
        l.block[axis] = w.Y[axis] if axis > 0 else 1
    l.rolls = False
    p.copied = w.small.format != NUMBER_FLOAT32 or w.small.x[2] != 1
    p.tiled = in_dot_tiles(w) or r.tap_count == 1 and w.C >= TILED_CHANNELS
    straight = p.tiled and not r.padded and w.large.x[2] == 1 and w.s[2] == 1
    p.in_place = straight and (r.tap_count == 1 and element_size(w.large.format) == 2 if p.copied else w.large.format == NUMBER_FLOAT32)
    passing = p.tiled and r.tap_count == 1 and not p.in_place
    p.joined = straight and passing and w.large.x[1] == w.Y[2] and w.s[1] == 1
    if p.copied:  # again for the next channels
        fewest *= 4
    if w.large.format != NUMBER_FLOAT32:
        most = max(most, min(<int64_t>FEW_DECODED_BYTES, middle_cache // 2))
    p.channels = w.C
    while True:
        for axis in range(3):
            l.u[axis] = l.block[axis] + (w.K[axis] - 1) * w.d[axis] // w.s[axis]
        floats = measure_cells(l)
        if p.channels > fewest and 4.0 * p.channels * max(0 if p.in_place or passing else floats, w.M * r.tap_count * DOT_LANES) > most:
            p.channels = max(fewest, ceiling(p.channels, 2))
            continue
        p.laid_out = min(p.channels, <int64_t>DOT_LARGE) if passing else p.channels
        p.line = ceiling(l.block[2], DOT_LANES) * DOT_LANES
        if p.in_place:
            floats = w.M * l.block[1] * p.line if p.copied else 0
        if floats * (1 if p.in_place else p.laid_out) <= (PASSING_FLOATS if passing else most // 4):
            break
        # Positions keep their order: a line is divided only where lines come one by one.
        if l.block[1] > 1:
            l.block[1] = (l.block[1] + 1) // 2
        elif l.block[2] > 4 * DOT_LANES:
            l.block[2] = (l.block[2] // 2 + DOT_LANES - 1) // DOT_LANES * DOT_LANES
        else:
            break
    l.plane = (ceiling(floats + isa.width, 16) | 1) * 16
    p.cut = w.cut


cdef double decoded_cycles(const Weights* w, const FewChannels* p) noexcept nogil:
    """Of both sides, unless tiles decode the large one."""
    cdef double large = 0 if p.in_place else <double>w.C * w.X[0] * w.X[1] * w.X[2], small = <double>w.M * w.Y[0] * w.Y[1] * w.Y[2]
    return CHAIN_DECODED * w.N * w.G * (large * (4 // element_size(w.large.format) - 1) + small * (4 // element_size(w.small.format) - 1))


cdef inline bint in_dot_tiles(const Weights* w) noexcept nogil:
    return min(w.M, w.C) >= TILED_CHANNELS


cdef inline int64_t large_tiles(const Weights* w, const instruction_set* isa, int64_t channels) noexcept nogil:
    """Tiles of so many channels of the large side, beside those of the small side."""
    return ceiling(channels, isa.dot_columns[ceiling(w.M, ceiling(w.M, DOT_TILE)) - 1])


cdef struct SmallLines:  # of a block: all channels of the small side
    const float* data
    ptrdiff_t channel
    ptrdiff_t pitch
    int64_t lines
    int64_t count            # positions of each


cdef struct LargeLines:  # of a block: some channels of the large side
    const char* data
    int format
    ptrdiff_t channel
    ptrdiff_t pitch
    int64_t channels


cdef SmallLines lines_of_small(const Weights* w, const FewChannels* p, const instruction_set* isa, int64_t g, int64_t n,
                            const int64_t* first, int64_t lines, int64_t count, FewChannelsScratch* s) noexcept nogil:
    """The lines from `first` on where they lie, or copied."""
    cdef int64_t m, start
    start = (n * w.small.n + g * w.small.g + first[0] * w.small.x[0] + first[1] * w.small.x[1] + first[2] * w.small.x[2])
    if not p.copied:
        return SmallLines(<const float*>w.small.data + start, w.small.c, w.small.x[1], lines, count)
    check_room(b"lines_of_small", s.lines, 4 * w.M * lines * p.line)
    for m in range(w.M):
        isa.frame(s.lines + m * lines * p.line, p.line, lines, count, 0, count,
                  <const char*>w.small.data + (start + m * w.small.c) * element_size(w.small.format), w.small.format, w.small.x[1],
                  w.small.x[2], 0)
    return SmallLines(s.lines, lines * p.line, p.line, lines, count)


cdef LargeLines lay_out_large(const Weights* w, const FewChannels* p, const instruction_set* isa, int64_t g, int64_t n,
                               const int64_t* first, int64_t channel, int64_t channels, FewChannelsScratch* s) noexcept nogil:
    """What the lines from `first` on meet of some channels, where it lies, or laid out."""
    cdef const Layout* l = &p.layout
    cdef Product part
    cdef int64_t start, count
    if p.in_place or p.joined:
        start = (n * w.large.n + g * w.large.g + channel * w.large.c + (first[0] * w.s[0] - w.b[0]) * w.large.x[0]
                 + (first[1] * w.s[1] - w.b[1]) * w.large.x[1] + first[2] - w.b[2])
    if p.in_place:
        return LargeLines(large_at(w, start), w.large.format, w.large.c, w.s[1] * w.large.x[1], channels)
    if p.joined:
        count = min(l.u[1], w.Y[1] - first[1]) * min(l.u[2], w.Y[2] - first[2])
        isa.frame(s.block, l.plane, channels, count, 0, count, large_at(w, start), w.large.format, w.large.c, 1, JOINED_AHEAD * w.large.c)
    else:
        part = p.relation[0]
        part.D = part.S = channels
        part.input.data = <char*>part.input.data + channel * part.input.c * element_size(part.input.format)
        fill_block(&part, l, isa, g, n, first, 0, s.block, NULL)
    return LargeLines(<const char*>s.block, NUMBER_FLOAT32, l.plane, l.u[2], channels)


cdef int64_t large_shift(const Weights* w, const FewChannels* p, const Tap* tap) noexcept nogil:
    """Numbers from what a position meets at the first tap to what it meets at this one."""
    if p.in_place:
        return ((tap.offset[0] + w.b[0]) * w.large.x[0] + (tap.offset[1] + w.b[1]) * w.large.x[1] + tap.offset[2] + w.b[2])
    return tap_shift(p.relation, &p.layout, tap)


cdef bint all_finite(const Weights* w, const instruction_set* isa, const SmallLines* small) noexcept nogil:
    cdef int64_t m, i, together = small.lines if small.pitch == small.count else 1
    for m in range(w.M):
        for i in range(small.lines // together):
            if not isa.finite(small.data + m * small.channel + i * small.pitch, together * small.count):
                return False
    return True


cdef void add_dots(const Weights* w, const FewChannels* p, const instruction_set* isa, const LargeLines* large, const SmallLines* small,
                   const float* masks, float* sums, int64_t count) noexcept nogil:
    """All taps of one pair of channels after the other, to `sums` of `count` channels."""
    cdef int64_t m, c, tap, taps, taps_all = p.relation.tap_count, parts = ceiling(taps_all, DOT_TAPS)
    for m in range(w.M):
        for c in range(large.channels):
            tap = 0
            while tap < taps_all:
                taps = min(ceiling(taps_all, parts), taps_all - tap)
                isa.dot[taps - 1](sums + ((m * count + c) * taps_all + tap) * DOT_LANES,
                                  <const float*>large.data + c * large.channel, p.shifts + tap, large.pitch,
                                  small.data + m * small.channel, small.pitch, small.lines, small.count, masks)
                tap += taps


cdef void add_dot_tiles(const Weights* w, const FewChannels* p, const instruction_set* isa, const LargeLines* large,
                        const SmallLines* small, float* sums, int64_t count) noexcept nogil:
    """Several channels of either side together, some lines at a time, which stay near while all taps meet them."""
    cdef int64_t taps = p.relation.tap_count, rows = ceiling(w.M, DOT_TILE), columns = large_tiles(w, isa, large.channels)
    cdef int64_t near = max(1, NEAR_FLOATS // (ceiling(w.M, rows) * small.count + ceiling(large.channels, columns) * large.pitch))
    cdef int64_t line = 0, lines, row, column, tap, m, c, m_end, c_end
    while line < small.lines:
        lines = min(near, small.lines - line)
        for row in range(rows):
            m, m_end = share(w.M, rows, row), share(w.M, rows, row + 1)
            for column in range(columns):
                c, c_end = share(large.channels, columns, column), share(large.channels, columns, column + 1)
                for tap in range(taps):
                    isa.dot_tile[m_end - m - 1][c_end - c - 1](
                        sums + ((m * count + c) * taps + tap) * DOT_LANES, count * taps * DOT_LANES, taps * DOT_LANES,
                        large.data + element_size(large.format) * (c * large.channel + p.shifts[tap] + line * large.pitch), large.format,
                        large.channel, large.pitch,
                        small.data + m * small.channel + line * small.pitch, small.channel, small.pitch, lines, small.count)
        line += lines


cdef void run_few_channels_piece(const Weights* w, const FewChannels* p, const instruction_set* isa, int64_t g, int64_t piece,
                                 FewChannelsScratch* s) noexcept nogil:
    """One piece of one group, to the partial sums; or if there is no other, to the result."""
    cdef int64_t taps = p.relation.tap_count, channel = 0, channels, m, row = w.C * taps
    cdef float* partial
    while channel < w.C:
        channels = min(p.channels, w.C - channel)
        sum_channels(w, p, isa, g, piece, channel, channels, s)
        if p.cut.pieces == 1:
            partial, row = s.stored, channels * taps
        else:
            partial = p.partials + (g * p.cut.pieces + piece) * w.M * row + channel * taps
        check_room(b"run_few_channels_piece", partial, 4 * ((w.M - 1) * row + channels * taps))
        for m in range(w.M):
            isa.sum_chains(partial + m * row, s.sums + m * channels * taps * DOT_LANES, channels * taps)
        if p.cut.pieces == 1:
            store_few_channels(w, taps, 1, isa, g, channel, channels, partial)
        channel += channels


cdef void sum_channels(const Weights* w, const FewChannels* p, const instruction_set* isa, int64_t g, int64_t piece, int64_t channel,
                       int64_t channels, FewChannelsScratch* s) noexcept nogil:
    """The chains of some channels of the large side."""
    cdef int64_t positions = w.N * w.Y[0] * w.Y[1] * w.Y[2], lines_end = piece_start(&p.cut, piece + 1, positions) // max(1, w.Y[2])
    cdef int64_t line = piece_start(&p.cut, piece, positions) // max(1, w.Y[2]), count, lines, n, sum_count, c
    cdef float* sums
    cdef int64_t first[3]
    cdef const Layout* l = &p.layout
    cdef const Product* r = p.relation
    cdef SmallLines small
    cdef LargeLines large
    cdef bint masked
    sum_count = w.M * channels * r.tap_count
    check_room(b"sum_channels", s.sums, 4 * sum_count * DOT_LANES)
    memset(s.sums, 0, sum_count * DOT_LANES * sizeof(float))
    while line < lines_end:
        first[1] = line % w.Y[1]
        first[0] = line // w.Y[1] % w.Y[0]
        n = line // w.Y[1] // w.Y[0]
        lines = min(min(l.block[1], w.Y[1] - first[1]), lines_end - line)
        first[2] = 0
        while first[2] < w.Y[2]:
            count = min(l.block[2], w.Y[2] - first[2])
            small = lines_of_small(w, p, isa, g, n, first, lines, count, s)
            masked = r.padded and not all_finite(w, isa, &small)
            if masked:
                fill_masks(r, l, isa, first, s.masks)
            c = 0
            while c < channels:
                large = lay_out_large(w, p, isa, g, n, first, channel + c, min(channels - c, p.laid_out), s)
                sums = s.sums + c * r.tap_count * DOT_LANES
                if p.tiled and not masked:
                    add_dot_tiles(w, p, isa, &large, &small, sums, channels)
                else:
                    add_dots(w, p, isa, &large, &small, s.masks if masked else NULL, sums, channels)
                c += p.laid_out
            first[2] += count
        line += lines


cdef void fill_masks(const Product* r, const Layout* l, const instruction_set* isa, const int64_t* first, float* masks) noexcept nogil:
    """All ones where a block of one channel holds the input, zeros in its frame."""
    cdef Product ones = r[0]
    cdef int axis
    ones.D = ones.S = 1
    ones.input.data, ones.input.format = &TAKEN, NUMBER_FLOAT32
    ones.input.n = ones.input.g = ones.input.c = 0
    for axis in range(3):
        ones.input.x[axis] = 0
    fill_block(&ones, l, isa, 0, 0, first, 0, masks, NULL)


cdef void store_few_channels(const Weights* w, int64_t tap_count, int64_t pieces, const instruction_set* isa, int64_t g,
                             int64_t channel, int64_t channels, float* partials) noexcept nogil:
    """Add the pieces of some channels of one group, [piece][m][c][tap], and store, as many together as lie equally far apart."""
    cdef int64_t i, t0, t1, width = w.K[2], lines = w.K[1], planes = w.K[0], count = channels, step = w.taps_stride[5]
    cdef lane_span span
    join_pieces(partials, pieces, w.M * channels * tap_count, w.M * channels * tap_count)
    if w.taps_stride[4] == width * step:
        lines, width = 1, lines * width
    if lines == 1 and w.taps_stride[3] == width * step:
        planes, width = 1, planes * width
    if lines * planes == 1 and w.taps_stride[2] == width * step:
        count, width = 1, channels * width
    for i in range(w.M * count):
        for t0 in range(planes):
            for t1 in range(lines):
                span = lane_span(0, width, g * w.taps_stride[0] + i // count * w.taps_stride[1] + (channel + i % count) * w.taps_stride[2]
                                 + t0 * w.taps_stride[3] + t1 * w.taps_stride[4], step)
                isa.scatter(partials, 0, 1, w.taps, w.taps_format, 0, &span, 1, NULL)
                partials += width


cdef bint fits_few_channels(Problem* q) noexcept nogil:
    if q.weights == NULL or q.weights.large.format == NUMBER_FLOAT64 or q.weights.cut.chains == 1:
        return False
    plan_few_channels(q.weights, &q.relation, q.isa, &q.few_channels)
    q.few_channels.shifts = q.shifts
    return True


cdef double few_channels_cycles(const Problem* q) noexcept nogil:
    """Products take half of the time; the large side is laid out."""
    return HALF_OF_PEAK * peak_cycles(q) + decoded_cycles(q.weights, &q.few_channels)


cdef void lay_out_few_channels(Problem* q, workspace* memory) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef FewChannels* p = &q.few_channels
    cdef FewChannelsScratch counted
    cdef FewChannelsScratch* s
    cdef int worker
    p.scratch = <FewChannelsScratch*>take(memory, q.threads * sizeof(FewChannelsScratch))
    for worker in range(q.threads):
        s = &p.scratch[worker] if memory.base != NULL else &counted
        s.block = <float*>take(memory, 0 if p.in_place else 4 * (p.layout.plane * p.laid_out + 2 * DOT_LANES))
        s.masks = <float*>take(memory, 4 * (p.layout.plane + 2 * DOT_LANES) if q.relation.padded else 0)
        s.lines = <float*>take(memory, 4 * (w.M * p.line * p.layout.block[1] + 2 * DOT_LANES) if p.copied else 0)
        s.sums = <float*>take(memory, 4 * w.M * p.channels * q.relation.tap_count * DOT_LANES)
        s.stored = <float*>take(memory, 4 * w.M * p.channels * q.relation.tap_count if p.cut.pieces == 1 else 0)
    p.partials = <float*>take(memory, 4 * w.G * p.cut.pieces * w.M * w.C * q.relation.tap_count if p.cut.pieces > 1 else 0)


cdef bint run_few_channels(Problem* q, workspace* memory) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef const FewChannels* p = &q.few_channels
    cdef FewChannelsScratch* scratch = p.scratch
    cdef int64_t count = w.M * w.C * q.relation.tap_count, tasks = w.G * p.cut.pieces, task
    cdef int threads = q.threads
    for task in range(q.relation.tap_count):
        p.shifts[task] = large_shift(w, p, &q.relation.taps[task])
    if threads == 1:
        for task in range(tasks):
            run_few_channels_piece(w, p, q.isa, task // p.cut.pieces, task % p.cut.pieces, scratch)
    else:
        for task in prange(tasks, schedule="dynamic", chunksize=max(1, tasks // (32 * threads)), num_threads=threads):
            run_few_channels_piece(w, p, q.isa, task // p.cut.pieces, task % p.cut.pieces, &scratch[thread_number()])
    if p.cut.pieces > 1:
        for task in prange(w.G, schedule="static", num_threads=threads):
            store_few_channels(w, q.relation.tap_count, p.cut.pieces, q.isa, task, 0, w.C, p.partials + task * p.cut.pieces * count)
    return True
