"""Groups of one channel on either side (depthwise) whose channels lie side by side in memory: lanes are groups.

Nothing is packed but the weights, [tap][g]: every position of a line reads the input where it lies, and only the taps
that it meets inside.
"""

cdef enum:
    POSITIONS = 16   # rounded at a time where results are not floats side by side


cdef struct NxcScratch:
    int64_t* offsets   # of the taps some positions meet
    int64_t* taps      # ... and their numbers
    float* sums
    float* large       # packed for engine/weights/depthwise_nxc.pxi
    float* small


cdef void lay_out_nxc(NxcScratch* s, int64_t taps, int64_t sum_floats, char** space) noexcept nogil:
    s.offsets = <int64_t*>take(space, taps * sizeof(int64_t))
    s.taps = <int64_t*>take(space, taps * sizeof(int64_t))
    s.sums = <float*>take(space, sum_floats * sizeof(float))


cdef bint fits_depthwise_nxc(const Product* products, int64_t count, const instruction_set* isa) noexcept nogil:
    cdef int64_t i, taps = 0
    cdef const Product* p = products
    for i in range(count):
        taps = max(taps, products[i].all_count)
    return (p.D == 1 and p.R == 1 and p.input.g == 1 and p.G >= isa.width
            and taps * (p.G + isa.width) * 4 <= ROW_BYTES and POSITIONS * p.G * 4 <= ROW_BYTES // 8)


cdef int64_t meet_taps(const Product* p, int64_t q0, int64_t q1, int64_t q2, int64_t* end, NxcScratch* s) noexcept nogil:
    """The taps that position (q0, q1, q2) meets inside; `end` sinks to the first after q2 that meets others."""
    cdef int64_t met = 0, t, x0, x1, x2, step = p.step[2]
    for t in range(p.tap_count):
        x0 = q0 * p.step[0] + p.taps[t].offset[0]
        x1 = q1 * p.step[1] + p.taps[t].offset[1]
        x2 = q2 * step + p.taps[t].offset[2]
        if x0 < 0 or x0 >= p.I[0] or x1 < 0 or x1 >= p.I[1] or x2 >= p.I[2]:
            continue
        if x2 < 0:
            end[0] = min(end[0], q2 + ceiling(-x2, step))
            continue
        end[0] = min(end[0], q2 + (p.I[2] - 1 - x2) // step + 1)
        s.offsets[met] = x0 * p.input.x[0] + x1 * p.input.x[1] + x2 * p.input.x[2]
        s.taps[met] = t
        met += 1
    return met


cdef void run_nxc_line(const Product* p, const instruction_set* isa, int64_t line, const float* packed, int64_t pitch,
                            NxcScratch* s) noexcept nogil:
    """All groups of one line of output positions (n, q0, q1)."""
    cdef int64_t n, q0, q1, q2 = 0, end, met, at, step = p.step[2], size = element_size(p.input.format)
    cdef const char* source
    cdef lane_span span
    cdef bint direct = p.output.format == NUMBER_FLOAT32 and p.output.g == 1
    q1 = line % p.Q[1]
    q0 = line // p.Q[1] % p.Q[0]
    n = line // p.Q[1] // p.Q[0]
    while q2 < p.Q[2]:
        # Positions [q2, end) meet the same taps.
        end = p.Q[2] if direct else min(p.Q[2], q2 + POSITIONS)
        met = meet_taps(p, q0, q1, q2, &end, s)
        source = <const char*>p.input.data + n * p.input.n * size
        at = n * p.output.n + q0 * p.output.x[0] + q1 * p.output.x[1] + q2 * p.output.x[2]
        if direct:
            isa.depthwise_nxc(<float*>p.output.data + at, p.output.x[2], end - q2, p.G, source, p.input.format,
                         step * p.input.x[2], s.offsets, s.taps, met, packed,
                         pitch, p.bias)
        else:
            isa.depthwise_nxc(s.sums, pitch, end - q2, p.G, source, p.input.format, step * p.input.x[2], s.offsets, s.taps, met,
                         packed, pitch, p.bias)
            span = lane_span(0, p.G, at, p.output.g)
            isa.scatter(s.sums, pitch, end - q2, p.output.data, p.output.format, p.output.x[2], &span, 1, NULL)
        q2 = end


cdef int run_depthwise_nxc(const Product* products, int64_t count, const instruction_set* isa, int threads,
                      int64_t* report) except -1 nogil:
    """Products that are `fits_depthwise_nxc`: they differ in taps and output positions only."""
    cdef int64_t pitch = ceiling(products.G, isa.width) * isa.width, taps = 0, i, t, line, lines, needed
    cdef const Product* p
    cdef NxcScratch* scratch
    cdef float* packed
    cdef char* space
    cdef char* free_space
    cdef double work = 0
    cdef lane_span span
    cdef int worker
    for i in range(count):
        p = &products[i]
        taps = max(taps, p.tap_count)
        work += <double>p.N * p.Q[0] * p.Q[1] * p.Q[2] * p.G * p.tap_count
    threads = team_for(work, threads)
    needed = 4 * (taps + 1) * pitch + threads * (sizeof(NxcScratch) + 16 * taps + 4 * POSITIONS * pitch + 256) + 256
    if report != NULL:
        report[0] = max(report[0], needed)
        return 0
    space = take_workspace(needed)
    if space == NULL:
        with gil:
            raise MemoryError
    free_space = space
    scratch = <NxcScratch*>take(&free_space, threads * sizeof(NxcScratch))
    for worker in range(threads):
        lay_out_nxc(&scratch[worker], taps, POSITIONS * pitch, &free_space)
    packed = <float*>free_space
    for i in range(count):
        p = &products[i]
        for t in range(p.tap_count):
            span = lane_span(0, p.G, p.tap_offsets[t], p.weights.g)
            isa.gather(packed + t * pitch, pitch, 1, p.weights.data, p.weights.format, 0, &span, 1)
        lines = p.N * p.Q[0] * p.Q[1]
        if threads == 1:
            for line in range(lines):
                run_nxc_line(p, isa, line, packed, pitch, scratch)
        else:
            for line in prange(lines, schedule="dynamic", chunksize=max(1, lines // (32 * threads)), num_threads=threads):
                run_nxc_line(p, isa, line, packed, pitch, &scratch[thread_number()])
    return_workspace(space)
    return 0
