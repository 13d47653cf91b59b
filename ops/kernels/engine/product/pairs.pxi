"""Products in steps of pairs of bfloat16 terms: which channels a step takes, and which tile computes them.

A dot product of pairs takes adjacent channels; a matrix unit takes channels half a block of sums apart (`core/reduction.h`), sixteen
steps and rows at a time, and lanes from cache lines of their own.

uses: engine/costs.pxi (stores_wait), engine/product/product.pxi (Product, ProductScratch)
gives: are_finite, begin_tiles, bring_near, end_tiles, first_channel, gather_steps, never_subnormal, on_matrix,
    steps_of, strided_of, tile_of, whole_of
"""

cdef inline int64_t first_channel(const Product* p, int64_t step) noexcept nogil:
    """Of a step of the reduction."""
    return step if p.pairs == NULL else pair_channel(step, p.pairs.apart)


cdef inline int64_t steps_of(const pair_functions* pairs, int64_t count) noexcept nogil:
    """Of so many terms of a sum."""
    return count if pairs == NULL else pair_steps(count, pairs.apart)


cdef inline bint on_matrix(const pair_functions* pairs) noexcept nogil:
    """Whether tiles are those of a matrix unit."""
    return pairs != NULL and pairs.turn != NULL


cdef inline void begin_tiles(const pair_functions* pairs) noexcept nogil:
    """Before a thread's first tile."""
    if on_matrix(pairs):
        pairs.begin()


cdef inline void end_tiles(const pair_functions* pairs) noexcept nogil:
    """After its last."""
    if on_matrix(pairs):
        pairs.end()


cdef inline void gather_steps(const instruction_set* isa, const pair_functions* pairs, float* panel, Py_ssize_t pitch, int64_t count,
                              const void* source, int format, int64_t stride, const lane_span* spans, int64_t span_count,
                              uint16_t* smallest) noexcept nogil:
    """A panel of steps of one term or a pair."""
    if pairs == NULL:
        isa.gather(panel, pitch, count, source, format, stride, spans, span_count)
    else:
        pairs.gather(panel, pitch, count, source, format, stride, spans, span_count, smallest)


cdef inline bint are_finite(const instruction_set* isa, const pair_functions* pairs, const float* values, int64_t count) noexcept nogil:
    return isa.finite(values, count) if pairs == NULL else pairs.finite(values, count)


cdef inline tile_function tile_of(const instruction_set* isa, const pair_functions* pairs, bint blocks, int64_t rows,
                                  int64_t vectors) noexcept nogil:
    """The tile whose rows are a panel."""
    if on_matrix(pairs):
        return pairs.blocks[0][vectors - 1]
    if not blocks:
        return isa.tile[rows - 1][vectors - 1] if pairs == NULL else pairs.tile[rows - 1][vectors - 1]
    if stores_wait():
        return isa.blocks_by_vector[rows - 1][vectors - 1] if pairs == NULL else pairs.blocks_by_vector[rows - 1][vectors - 1]
    return isa.blocks[rows - 1][vectors - 1] if pairs == NULL else pairs.blocks[rows - 1][vectors - 1]


cdef inline strided_function strided_of(const instruction_set* isa, bint blocks, int64_t rows, int64_t vectors) noexcept nogil:
    """The tile whose rows lie anywhere; where sums are taken in blocks, no run goes beyond half of one."""
    if not blocks:
        return isa.strided[rows - 1][vectors - 1]
    return isa.strided_by_vector[rows - 1][vectors - 1] if stores_wait() else isa.strided_blocks[rows - 1][vectors - 1]


cdef inline strided_function whole_of(const instruction_set* isa, const pair_functions* pairs, bint blocks, bint by_vector,
                                      int64_t rows, int64_t vectors) noexcept nogil:
    """The same; where sums are taken in blocks, as those of pairs are, each run begins with one. `by_vector`: the one with fewer loads of
    lanes and more of rows."""
    if pairs == NULL and not blocks:
        return isa.strided[rows - 1][vectors - 1]
    if by_vector:
        return isa.whole_by_vector[rows - 1][vectors - 1] if pairs == NULL else pairs.whole_by_vector[rows - 1][vectors - 1]
    return isa.whole_blocks[rows - 1][vectors - 1] if pairs == NULL else pairs.whole_blocks[rows - 1][vectors - 1]


cdef void bring_near(const instruction_set* isa, const float* lanes, const tile_run* runs, int64_t run_count, int64_t pitch,
                     int64_t width, ProductScratch* s) noexcept nogil:
    """Copy the lanes of runs, STEPS steps at most, to a panel."""
    cdef int64_t i, place = 0
    cdef lane_span span
    check_room(b"bring_near", s.near_runs, run_count * sizeof(tile_run))
    for i in range(run_count):
        check_room(b"bring_near", s.lanes + place, 4 * runs[i].steps * isa.vectors * isa.width)
        span = lane_span(0, width, runs[i].lanes, 1)
        isa.gather(s.lanes + place, isa.vectors * isa.width, runs[i].steps, lanes, NUMBER_FLOAT32, pitch, &span, 1)
        s.near_runs[i] = tile_run(runs[i].rows, place, runs[i].steps)
        place += runs[i].steps * isa.vectors * isa.width


cdef inline bint never_subnormal(uint16_t first, uint16_t second) noexcept nogil:
    """Whether no operand, product or sum of products can be subnormal, from the smallest magnitudes of both operands, as
    bfloat16 codes less one: every sum is a multiple of the last places' product, 2**(e1 - 134) * 2**(e2 - 134)."""
    cdef int e1 = (first + 1) >> 7, e2 = (second + 1) >> 7
    return e1 > 0 and e2 > 0 and e1 + e2 >= 2 * 134 - 126
