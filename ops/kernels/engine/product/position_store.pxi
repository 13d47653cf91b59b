"""Results of `rows_are_positions`: finished sums of a box of positions, whose lanes are output channels.

uses: engine/product/position_weights.pxi (PositionRowsScratch), engine/product/product.pxi (PositionClass, Product,
    biases), engine/product/rows_are_positions_plan.pxi (Box)
gives: store_box, store_cells_of_box
"""

cdef void store_box(const Product* p, const instruction_set* isa, int64_t g, int64_t row, int64_t width, const Box* box,
                    PositionRowsScratch* s) noexcept nogil:
    """The sums of channels from `row` on, in the order of the result: of a line, or of lines that follow one another."""
    cdef int64_t n, q0, q1, i0, i1, i2, j, column, count, place, line = box.end[3] - box.first[3]
    cdef bint joined = p.output.x[1] == line * p.output.x[2]
    cdef const PositionClass* of_plane
    cdef const PositionClass* positions
    check_room(b"store_box", s.order, (box.end[2] - box.first[2]) * line * sizeof(int64_t))
    for n in range(box.end[0] - box.first[0]):
        i0 = 0
        for q0 in range(box.first[1], box.end[1]):
            of_plane = s.classes + i0 * box.ranges[1] * box.ranges[2]
            if q0 >= of_plane.q[0] + of_plane.extent[0]:
                i0 += 1
                of_plane += box.ranges[1] * box.ranges[2]
            i1 = count = 0
            place = ((box.first[0] + n) * p.output.n + g * p.output.g + row * p.output.c + q0 * p.output.x[0]
                     + box.first[2] * p.output.x[1] + box.first[3] * p.output.x[2])
            for q1 in range(box.first[2], box.end[2]):
                positions = of_plane + i1 * box.ranges[2]
                if q1 >= positions.q[1] + positions.extent[1]:
                    i1 += 1
                    positions += box.ranges[2]
                for i2 in range(box.ranges[2]):
                    column = positions.column + (((n * positions.extent[0] + q0 - positions.q[0]) * positions.extent[1]
                                                  + q1 - positions.q[1]) * positions.extent[2])
                    for j in range(positions.extent[2]):
                        s.order[count + j] = (column + j) * width
                    count += positions.extent[2]
                    positions += 1
                if not joined or q1 + 1 == box.end[2]:
                    isa.store_positions(<char*>p.output.data + place * element_size(p.output.format), p.output.format, p.output.x[2],
                                        p.output.c, s.sums, s.order, count, min(width, p.R - row), biases(p, g, row))
                    place += p.output.x[1]
                    count = 0


cdef void store_cells_of_box(const Product* p, const instruction_set* isa, int64_t g, int64_t row, int64_t width, const Box* box,
                             PositionRowsScratch* s) noexcept nogil:
    """The same where other classes of the stride meet no taps: sums of a line are turned, and stored with what lies between them."""
    cdef int64_t number, n, q0, q1, column, part, i, count, place, rows = min(width, p.R - row)
    cdef const PositionClass* positions
    cdef lane_span sums, result
    check_room(b"store_cells_of_box", s.cells, 4 * width * TILE_LANES)
    for number in range(box.ranges[0] * box.ranges[1] * box.ranges[2]):
        positions = s.classes + number
        column = positions.column
        for n in range(box.first[0], box.end[0]):
            for q0 in range(positions.q[0], positions.q[0] + positions.extent[0]):
                for q1 in range(positions.q[1], positions.q[1] + positions.extent[1]):
                    place = (n * p.output.n + g * p.output.g + row * p.output.c + q0 * p.output.x[0] + q1 * p.output.x[1]
                             + positions.q[2] * p.output.x[2])
                    for part in range(ceiling(positions.extent[2], TILE_LANES)):
                        i = part * TILE_LANES
                        count = min(<int64_t>TILE_LANES, positions.extent[2] - i)
                        sums = lane_span(0, count, (column + i) * width, width)
                        isa.gather(s.cells, TILE_LANES, rows, s.sums, NUMBER_FLOAT32, 1, &sums, 1)
                        result = lane_span(0, count, place + i * p.output.x[2], p.output.x[2])
                        isa.scatter_cells(s.cells, TILE_LANES, rows, p.output.data, p.output.format, p.output.c, &result, 1,
                                          biases(p, g, row), p.cell)
                    column += positions.extent[2]
