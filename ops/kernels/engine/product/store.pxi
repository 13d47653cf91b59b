"""Where the sums of products end up: tiles ask for that memory while they compute, and store there themselves where numbers
lie side by side.

uses: engine/product/pack.pxi (add_span), engine/product/pairs.pxi (on_matrix), engine/product/product.pxi (Fragment,
    LINE_BYTES, Product, biases)
gives: find_result, output_spans, result_rows, store_tile
"""

cdef int64_t output_spans(const Product* p, int64_t g, const Fragment* fragments, int64_t fragment_count,
                          lane_span* spans) noexcept nogil:
    cdef int64_t number = 0, i
    cdef const Fragment* f
    for i in range(fragment_count):
        f = &fragments[i]
        add_span(spans, &number, f.lane, f.count,
                 f.n * p.output.n + g * p.output.g + f.q[0] * p.output.x[0] + f.q[1] * p.output.x[1]
                 + f.q[2] * p.output.x[2], p.output.x[2])
    return number


cdef void find_result(const Product* p, const instruction_set* isa, const lane_span* spans, int64_t span_count,
                      tile_result* result) noexcept nogil:
    """Where the lanes of a column panel end up, and whether tiles can store them there, which `scatter` does otherwise."""
    cdef int64_t i, lane, end, left, right, vector = -1, size = element_size(p.output.format)
    cdef int64_t near = max(1, isa.width // max(1, p.output.x[2]))  # lanes of a part
    cdef tile_wish* wish = &result.wish
    wish.parts, wish.row_step, wish.reach = 0, p.output.c * size, (near - 1) * p.output.x[2] * size
    result.direct = p.cell == NULL and p.output.x[2] == 1
    result.apart = 2 if p.output.x[2] == 2 else 1
    result.together = isa.scatter_parts != NULL and p.cell == NULL and p.output.x[2] == result.apart
    result.direct = result.direct and not on_matrix(p.pairs) and p.output.format == NUMBER_FLOAT32
    for i in range(span_count):
        lane, end = spans[i].lane, spans[i].lane + spans[i].count
        left = lane % near
        while lane < end:
            while lane >= (vector + 1) * isa.width:
                vector += 1
                result.first[vector] = wish.parts
            right = min(near, left + end - lane)
            if result.apart == 2:
                result.masks[wish.parts] = <uint16_t>(((1 << 2 * right) - (1 << 2 * left) & 0x5555) << (lane // near % 2))
            else:
                result.masks[wish.parts] = <uint16_t>((1 << right) - (1 << left))
            wish.offsets[wish.parts] = (spans[i].offset + (lane - left - spans[i].lane) * spans[i].step) * size
            wish.parts += 1
            if right - left < isa.width and not result.together:  # a part of a vector is stored under a mask
                result.direct = False
            lane += right - left
            left = 0
    while vector < TILE_VECTORS:
        vector += 1
        result.first[vector] = wish.parts
    if p.cell != NULL:
        ask_cells(p.cell, size, wish)


cdef void ask_cells(const result_cell* cell, int64_t size, tile_wish* wish) noexcept nogil:
    """The other lines of cells, as many as there is room for."""
    cdef int64_t y0, y1, i, parts = wish.parts
    for y0 in range(cell.extent[0]):
        for y1 in range(cell.extent[1]):
            if wish.parts + parts > TILE_LANES:
                return
            if y0 == cell.own[0] and y1 == cell.own[1]:
                continue
            for i in range(parts):
                wish.offsets[wish.parts] = (wish.offsets[i]
                                                + ((y0 - cell.own[0]) * cell.line[0] + (y1 - cell.own[1]) * cell.line[1]) * size)
                wish.parts += 1


cdef inline const tile_result* result_rows(const Product* p, int64_t g, int64_t row, int64_t rows, tile_result* result) noexcept nogil:
    """Where rows of a group from `row` on end up, lanes as `find_result` left them."""
    result.bias = biases(p, g, row)
    result.wish.place = <char*>p.output.data + row * result.wish.row_step
    result.wish.rows = 1 if -LINE_BYTES < result.wish.row_step < LINE_BYTES else rows
    return result


cdef inline void store_tile(const Product* p, const instruction_set* isa, const float* tile, int64_t rows, const tile_result* result,
                            const lane_span* spans, int64_t span_count) noexcept nogil:
    """Store what tiles could not; `result` as of `result_rows`."""
    cdef int64_t pitch = isa.vectors * isa.width
    if p.cell != NULL:
        isa.scatter_cells(tile, pitch, rows, result.wish.place, p.output.format, p.output.c, spans, span_count, result.bias, p.cell)
    elif result.together:
        isa.scatter_parts(tile, pitch, rows, result, p.output.format)
    else:
        isa.scatter(tile, pitch, rows, result.wish.place, p.output.format, p.output.c, spans, span_count, result.bias)
