"""Products in passes over their taps, where packed weights of all taps would be too large: sums wait from pass to pass.

uses: engine/product/product.pxi (Product, ROW_BYTES, staggered)
gives: MOST_KEPT_BYTES, count_passes, keep_sums, kept_floats, packed_floats, take_taps
"""

cdef enum:
    KEPT_BYTES = 3 << 20        # per thread, of sums that wait where passes only save laying out the input again
    MOST_KEPT_BYTES = 24 << 20  # in all, where a row panel of all taps would be too large


cdef void take_taps(Product* p, const instruction_set* isa, int64_t passes, int64_t number) noexcept nogil:
    """Make a product its pass `number` of `passes`: some of its taps, the sums kept from pass to pass."""
    cdef int64_t first = share(p.all_count, passes, number)
    p.taps, p.tap_offsets = p.all_taps + first, p.all_offsets + first
    p.tap_count = share(p.all_count, passes, number + 1) - first
    p.started, p.unfinished = number > 0, number + 1 < passes
    p.tap_floats = staggered(p.S * p.rows)
    p.panel_size = p.tap_count * p.tap_floats + isa.width


cdef inline int64_t kept_floats(const Product* p, const instruction_set* isa) noexcept nogil:
    """Sums of a row panel that wait from pass to pass: the tiles of all columns."""
    return p.panels * p.rows * isa.vectors * isa.width


cdef void keep_sums(Product* products, int64_t count, const instruction_set* isa, int64_t passes, int64_t first_item, int64_t items,
                    float* sums) noexcept nogil:
    """Give all products room for the sums of row panels from `first_item` on, where there are several passes."""
    cdef int64_t i
    for i in range(count):
        products[i].kept = sums - first_item * kept_floats(&products[i], isa) if passes > 1 else NULL
        sums += items * kept_floats(&products[i], isa)


cdef int64_t packed_floats(Product* products, int64_t count, const instruction_set* isa, int64_t passes) noexcept nogil:
    """Packed weights of one row panel of all products, in the first pass, which is the largest."""
    cdef int64_t i, floats = 0
    for i in range(count):
        take_taps(&products[i], isa, passes, 0)
        floats += products[i].panel_size
    return floats


cdef int64_t count_passes(Product* products, int64_t count, const instruction_set* isa, int64_t items, int64_t kept,
                          int threads) noexcept nogil:
    """In how many passes over the taps the packed weights of all rows fit, 1 where passes do not pay: where sums, of `kept`
    floats for a row panel, which wait from pass to pass, are too many, or where reading all weights once more in every pass (their taps
    lie side by side) costs more than laying out the input once more for every part of the rows. Where one row panel would be too
    large, in as many as that takes."""
    cdef int64_t passes, most = 0, i
    for i in range(count):
        most = max(most, products[i].all_count)
    if 4 * packed_floats(products, count, isa, 1) > ROW_BYTES and 4 * kept <= MOST_KEPT_BYTES:
        for passes in range(2, most):
            if 4 * packed_floats(products, count, isa, passes) <= ROW_BYTES:
                return passes
        return most
    if 4 * items * kept > KEPT_BYTES * threads or products.columns < 2 * products.R:
        return 1
    for passes in range(2, most + 1):
        if 4 * items * (packed_floats(products, count, isa, passes) + kept) <= ROW_BYTES * threads:
            return passes
    return 1
