"""From the operands of a call to the sums of a problem: forward is one product, backward_data has one for each stride class.

uses: core/extents.pxi (check_extents), core/problem.pxi (Call, View, operand_of), engine/algorithms.pxi (Inquiry,
    Problem, begin_sums, compute, end_problem), engine/product/product.pxi (Product, Tap)
gives: AxisTaps, build_product, run_forward, run_sums
"""

cdef struct AxisTaps:  # the taps of one axis that meet one residue class of output positions
    int64_t count
    int64_t first      # tap
    int64_t step       # between taps
    int64_t offset     # of the first tap
    int64_t offset_step


cdef void build_product(Product* p, const AxisTaps* axes, const View* taps, Tap* store,
                        int64_t* offsets) noexcept nogil:
    """Fill in the taps of a product, in the order of the definition."""
    cdef int64_t i0, i1, i2, number = 0, x
    cdef int axis
    cdef Tap* tap
    p.all_taps = p.taps = store
    p.all_offsets = p.tap_offsets = offsets
    p.all_count = p.tap_count = axes[0].count * axes[1].count * axes[2].count
    if p.D == 0 or p.I[0] == 0 or p.I[1] == 0 or p.I[2] == 0:
        p.all_count = p.tap_count = 0
    for i0 in range(axes[0].count):
        for i1 in range(axes[1].count):
            for i2 in range(axes[2].count):
                tap = &store[number]
                number += 1
                tap.offset[0] = axes[0].offset + i0 * axes[0].offset_step
                tap.offset[1] = axes[1].offset + i1 * axes[1].offset_step
                tap.offset[2] = axes[2].offset + i2 * axes[2].offset_step
                offsets[number - 1] = ((axes[0].first + i0 * axes[0].step) * taps.stride[3]
                                       + (axes[1].first + i1 * axes[1].step) * taps.stride[4]
                                       + (axes[2].first + i2 * axes[2].step) * taps.stride[5])
    p.cell = NULL
    p.padded = False
    for axis in range(3):
        for i0 in range(axes[axis].count):
            x = axes[axis].offset + i0 * axes[axis].offset_step
            if x < 0 or (p.Q[axis] - 1) * p.step[axis] + x >= p.I[axis]:
                p.padded = True


cdef int run_sums(Product* products, int64_t count, int64_t columns, int threads, Inquiry* inquiry) except -1 nogil:
    """Products that share groups, rows and channels. Returns true where the results are not those of the definition."""
    cdef Problem q
    try:
        begin_sums(&q, products, count, columns, threads, inquiry)
        return compute(&q)
    finally:
        end_problem(&q)


cdef int run_forward(Call* c, const float* bias, int threads, Inquiry* inquiry) except -1 nogil:
    cdef Product p
    cdef AxisTaps axes[3]
    cdef int axis
    cdef int64_t tap_count
    cdef Tap* taps
    cdef int64_t* offsets
    check_extents(c)
    tap_count = c.taps.shape[3] * c.taps.shape[4] * c.taps.shape[5]
    taps = <Tap*>malloc((tap_count + 1) * (sizeof(Tap) + sizeof(int64_t)))
    if taps == NULL:
        with gil:
            raise MemoryError
    offsets = <int64_t*>(taps + tap_count + 1)
    p.N, p.G, p.R, p.D = c.large.shape[0], c.taps.shape[0], c.taps.shape[1], c.taps.shape[2]
    for axis in range(3):
        p.Q[axis], p.I[axis], p.step[axis] = c.small.shape[3 + axis], c.large.shape[3 + axis], c.s[axis]
        axes[axis] = AxisTaps(c.taps.shape[3 + axis], 0, 1, -c.b[axis], c.d[axis])
    p.input, p.output, p.bias = operand_of(&c.large), operand_of(&c.small), bias
    p.weights.data, p.weights.format = c.taps.buffer.buf, c.taps.format
    p.weights.g, p.weights.n, p.weights.c = c.taps.stride[0], c.taps.stride[1], c.taps.stride[2]
    build_product(&p, axes, &c.taps, taps, offsets)
    try:
        return run_sums(&p, 1, 1, threads, inquiry)
    finally:
        free(taps)
