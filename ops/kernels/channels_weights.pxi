"""backward_weights for groups of one channel on either side whose channels lie side by side: lanes are groups."""

cdef enum:
    CHAIN_BYTES = 1 << 18   # sums of a task of the weights' gradient


cdef bint weights_side_by_side(const Weights* w, const instruction_set* isa) noexcept nogil:
    return (w.C == 1 and w.M == 1 and w.large.g == 1 and w.small.g == 1 and w.G >= isa.width
            and w.large.format == w.small.format
            and w.K[0] * w.K[1] * w.K[2] * DOT_LANES * isa.width * 4 <= ROW_BYTES // 4)


cdef void run_channels_piece(const Weights* w, const Product* r, const instruction_set* isa, const reduction_cut* cut,
                             int64_t piece, int64_t first_group, int64_t groups, float* partial, int64_t pitch,
                             ChannelsScratch* s) noexcept nogil:
    """One piece of some groups: partial[tap][g]."""
    cdef int64_t y2_count = max(1, w.Y[2]), line = piece * cut.length // y2_count
    cdef int64_t lines_end = min(w.N * w.Y[0] * w.Y[1] * w.Y[2], (piece + 1) * cut.length) // y2_count
    cdef int64_t width = ceiling(groups, isa.width) * isa.width, tap_pitch = DOT_LANES * width, tap, half, i
    cdef int64_t n, y0, y1, y2, end, met, size = element_size(w.large.format)
    cdef float* sums
    memset(s.sums, 0, r.tap_count * tap_pitch * sizeof(float))
    while line < lines_end:
        y1 = line % w.Y[1]
        y0 = line // w.Y[1] % w.Y[0]
        n = line // w.Y[1] // w.Y[0]
        y2 = 0
        while y2 < w.Y[2]:
            end = w.Y[2]
            met = meet_taps(r, y0, y1, y2, &end, s)
            isa.channels_dot(s.sums, tap_pitch, width, groups,
                             <const char*>w.large.data + (n * w.large.n + first_group) * size, w.s[2] * w.large.x[2],
                             s.offsets, s.taps, met,
                             <const char*>w.small.data + (n * w.small.n + y0 * w.small.x[0] + y1 * w.small.x[1]
                                                          + y2 * w.small.x[2] + first_group) * size,
                             w.small.x[2], y2, end - y2, w.small.format)
            y2 = end
        line += 1
    for tap in range(r.tap_count):
        sums = s.sums + tap * tap_pitch
        half = DOT_LANES // 2
        while half > 0:
            for i in range(half * width):
                sums[i] = sums[i] + sums[half * width + i]
            half //= 2
        for i in range(groups):
            partial[tap * pitch + first_group + i] = sums[i]


cdef int run_channels_weights(const Weights* w, int threads, int64_t* report) except -1 nogil:
    cdef const instruction_set* isa = current
    cdef Product r
    cdef ChannelsScratch* scratch
    cdef int64_t needed, block, blocks, tasks, task, taps, pitch = w.G, sum_floats, i
    cdef reduction_cut cut
    cdef float* partials
    cdef char* space
    cdef char* free_space
    cdef lane_span span
    cdef int worker
    relate(w, &r)
    taps = r.tap_count
    cut = cut_reduction(w.N * w.Y[0] * w.Y[1] * w.Y[2], w.Y[2], w.M, w.G * taps)
    threads = team_for(<double>w.N * w.Y[0] * w.Y[1] * w.Y[2] * w.G * taps, threads)
    block = max(1, CHAIN_BYTES // (4 * taps * DOT_LANES * isa.width)) * isa.width
    if threads > 1 and cut.pieces < 4 * threads:
        block = min(block, ceiling(ceiling(w.G, isa.width), ceiling(4 * threads, cut.pieces)) * isa.width)
    blocks = ceiling(w.G, block)
    sum_floats = taps * DOT_LANES * min(block, ceiling(w.G, isa.width) * isa.width)
    tasks = blocks * cut.pieces
    needed = 4 * cut.pieces * taps * pitch + threads * (sizeof(ChannelsScratch) + 16 * taps + 4 * sum_floats + 256) + 256
    if report != NULL:
        report[0] = needed
        free(r.taps)
        return 0
    space = take_workspace(needed)
    if space == NULL:
        free(r.taps)
        with gil:
            raise MemoryError
    free_space = space
    scratch = <ChannelsScratch*>take(&free_space, threads * sizeof(ChannelsScratch))
    for worker in range(threads):
        lay_out_channels(&scratch[worker], taps, sum_floats, &free_space)
    partials = <float*>free_space
    if threads == 1:
        for task in range(tasks):
            run_channels_piece(w, &r, isa, &cut, task // blocks, task % blocks * block, min(block, w.G - task % blocks * block),
                               partials + task // blocks * taps * pitch, pitch, scratch)
    else:
        for task in prange(tasks, schedule="dynamic", num_threads=threads):
            run_channels_piece(w, &r, isa, &cut, task // blocks, task % blocks * block, min(block, w.G - task % blocks * block),
                               partials + task // blocks * taps * pitch, pitch, &scratch[thread_number()])
    join_pieces(partials, cut.pieces, taps * pitch)
    for i in range(taps):
        span = lane_span(0, w.G, r.tap_offsets[i], w.taps_stride[0])
        isa.scatter(partials + i * pitch, pitch, 1, w.taps, w.taps_format, 0, &span, 1, NULL)
    return_workspace(space)
    free(r.taps)
    return 0
