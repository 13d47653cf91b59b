"""Algorithm `depthwise_nxc`: groups of one channel on either side whose channels lie side by side in memory; lanes are groups.

Nothing is packed but the weights, [tap][g]: every position of a line reads the input where it lies, and only the taps
that it meets inside.

uses: engine/algorithms.pxi (Problem), engine/product/product.pxi (Product, ROW_BYTES)
gives: NxcPlan, NxcScratch, fits_depthwise_nxc, lay_out_depthwise_nxc, lay_out_nxc, meet_taps, run_depthwise_nxc
"""

cdef enum:
    POSITIONS = 16   # rounded at a time where results are not floats side by side


cdef struct NxcScratch:
    int64_t* offsets   # of the taps some positions meet
    int64_t* taps      # ... and their numbers
    float* sums
    float* large       # packed, for weights gradients (engine/weights/depthwise_nxc.pxi)
    float* small


cdef void lay_out_nxc(NxcScratch* s, int64_t taps, int64_t sum_floats, workspace* memory) noexcept nogil:
    """The buffers of one thread."""
    s.offsets = <int64_t*>take(memory, taps * sizeof(int64_t))
    s.taps = <int64_t*>take(memory, taps * sizeof(int64_t))
    s.sums = <float*>take(memory, sum_floats * sizeof(float))


cdef struct NxcPlan:
    int64_t taps       # of the product that has most
    int64_t pitch      # floats of the weights of a tap
    NxcScratch* scratch
    float* packed


cdef bint fits_depthwise_nxc(Problem* q) noexcept nogil:
    cdef int64_t i, taps = 0
    cdef const Product* p = q.products
    if q.weights != NULL or p.input.format == NUMBER_FLOAT64:
        return False
    for i in range(q.count):
        taps = max(taps, q.products[i].all_count)
    q.nxc.taps, q.nxc.pitch = taps, ceiling(p.G, q.isa.width) * q.isa.width
    return (p.D == 1 and p.R == 1 and p.input.g == 1 and p.G >= q.isa.width
            and taps * (p.G + q.isa.width) * 4 <= ROW_BYTES and POSITIONS * p.G * 4 <= ROW_BYTES // 8)


cdef void lay_out_depthwise_nxc(Problem* q, workspace* memory) noexcept nogil:
    cdef NxcScratch counted
    cdef int worker
    q.nxc.scratch = <NxcScratch*>take(memory, q.threads * sizeof(NxcScratch))
    for worker in range(q.threads):
        lay_out_nxc(&q.nxc.scratch[worker] if memory.base != NULL else &counted, q.nxc.taps, POSITIONS * q.nxc.pitch, memory)
    q.nxc.packed = <float*>take(memory, 4 * (q.nxc.taps + 1) * q.nxc.pitch)


cdef int64_t meet_taps(const Product* p, int64_t q0, int64_t q1, int64_t q2, int64_t* end, NxcScratch* s) noexcept nogil:
    """The taps that position (q0, q1, q2) meets inside; `end` sinks to the first after q2 that meets others."""
    cdef int64_t met = 0, t, x0, x1, x2, step = p.step[2]
    check_room(b"meet_taps", s.offsets, p.tap_count * sizeof(int64_t))
    check_room(b"meet_taps", s.taps, p.tap_count * sizeof(int64_t))
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
            check_room(b"run_nxc_line", s.sums, 4 * (end - q2) * pitch)
            isa.depthwise_nxc(s.sums, pitch, end - q2, p.G, source, p.input.format, step * p.input.x[2], s.offsets, s.taps, met,
                              packed, pitch, p.bias)
            span = lane_span(0, p.G, at, p.output.g)
            isa.scatter(s.sums, pitch, end - q2, p.output.data, p.output.format, p.output.x[2], &span, 1, NULL)
        q2 = end


cdef bint run_depthwise_nxc(Problem* q, workspace* memory) noexcept nogil:
    """Products that differ in taps and output positions only."""
    cdef const instruction_set* isa = q.isa
    cdef int64_t pitch = q.nxc.pitch, i, t, line, lines
    cdef int threads = q.threads
    cdef const Product* p
    cdef NxcScratch* scratch = q.nxc.scratch
    cdef float* packed = q.nxc.packed
    cdef lane_span span
    for i in range(q.count):
        p = &q.products[i]
        check_room(b"run_depthwise_nxc", packed, 4 * p.tap_count * pitch)
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
    return True
