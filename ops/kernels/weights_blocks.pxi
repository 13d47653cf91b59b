"""backward_weights of operands within bfloat16, whose sums are taken in blocks of positions (`reduction.h`).

Both operands are packed in the order of the sum: lanes are the channels m of the small side, rows are (t, c) of the large side,
zeros where a tap lies outside.  Rows are packed tap by tap, which costs little beside many lanes; matrix units and dot products
take both in pairs.  Codes are laid out line by line in a buffer first, so that a block may go on in the next line or image.
"""

cdef enum:
    BLOCKS_POSITIONS = 256  # packed at a time, at most


cdef void plan_blocks(const Weights* w, const instruction_set* isa, WeightsPlan* plan) noexcept nogil:
    """How much of the reduction is packed at a time."""
    cdef int64_t lane_width = ceiling(plan.vectors, plan.panels) * isa.width, most = BLOCKS_POSITIONS
    if plan.pairs == NULL:
        most = LANE_FLOATS // lane_width // SUM_BLOCK * SUM_BLOCK
    plan.chunk = max(SUM_BLOCK, min(most, ceiling(plan.cut.length, SUM_BLOCK) * SUM_BLOCK))
    plan.steps = plan.chunk if plan.pairs == NULL else pair_steps(plan.chunk, plan.pairs.apart)
    plan.code_bytes = max(plan.rows, TILE_LANES) * plan.chunk * element_size(max_format(w))


cdef inline int max_format(const Weights* w) noexcept nogil:
    """Of the two operands the one whose codes are longer."""
    return w.large.format if element_size(w.large.format) > element_size(w.small.format) else w.small.format


cdef void pack_block(const WeightsPlan* plan, const instruction_set* isa, const void* codes, int format, int64_t lane_step,
                     int64_t position_step, int64_t lanes, int64_t pitch, int64_t count, float* panel,
                     uint16_t* smallest) noexcept nogil:
    """A panel of `count` positions of several lanes."""
    cdef lane_span span = lane_span(0, lanes, 0, lane_step)
    if plan.pairs == NULL:
        isa.gather(panel, pitch, count, codes, format, position_step, &span, 1)
    else:
        plan.pairs.gather(panel, pitch, count, codes, format, position_step, &span, 1, smallest)


cdef void pack_small(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t panel, int64_t row_count,
                     int64_t count, float* place, WeightsScratch* s) noexcept nogil:
    """A lane panel of the positions of a chunk."""
    cdef int64_t m = first_lane(plan, isa, panel), lanes = min(w.M, first_lane(plan, isa, panel + 1)) - m, r, i, next_offset
    cdef int64_t size = element_size(w.small.format), pitch = isa.vectors * isa.width, offset = small_offset(w, g, s.rows)
    cdef int64_t line = plan.chunk
    cdef const char* source = <const char*>w.small.data + size * m * w.small.c
    cdef bint wide = w.small.c == 1 and w.small.x[2] != 1, together = w.small.x[2] == 1
    next_offset = offset + s.rows.count
    for r in range(1, row_count):
        together = together and small_offset(w, g, &s.rows[r]) == next_offset
        next_offset += s.rows[r].count
    if together:
        pack_block(plan, isa, source + size * offset, w.small.format, w.small.c, 1, lanes, pitch, count, place, &s.smallest_small)
        return
    for r in range(row_count):
        offset = small_offset(w, g, &s.rows[r])
        if wide:
            for i in range(s.rows[r].count):
                copy_codes(<char*>s.codes + size * (s.rows[r].first + i) * lanes, source + size * (offset + i * w.small.x[2]), lanes, 1,
                           size)
        else:
            for i in range(lanes):
                copy_codes(<char*>s.codes + size * (i * line + s.rows[r].first), source + size * (offset + i * w.small.c),
                           s.rows[r].count, w.small.x[2], size)
    pack_block(plan, isa, s.codes, w.small.format, 1 if wide else line, lanes if wide else 1, lanes, pitch, count, place,
               &s.smallest_small)


cdef bint inside_of(const Weights* w, const int64_t* t, const Row* row, int64_t* low, int64_t* high, int64_t* x) noexcept nogil:
    """The positions [low, high) of a row from which a tap meets the large side, the first of them at x."""
    cdef int axis
    for axis in range(3):
        x[axis] = row.y[axis] * w.s[axis] - w.b[axis] + t[axis] * w.d[axis]
        if axis < 2 and (x[axis] < 0 or x[axis] >= w.X[axis]):
            return False
    meet_inside(x[2], w.s[2], w.X[2], row.count, low, high)
    x[2] += low[0] * w.s[2]
    return low[0] < high[0]


cdef void lay_out(const Weights* w, const WeightsPlan* plan, const int64_t* t, int64_t g, int64_t c, int64_t channels, int64_t row_count,
                  int64_t line, bint wide, char* codes, const WeightsScratch* s) noexcept nogil:
    """What a tap meets in some channels at the positions of a chunk: [channel][position], or if `wide` the other way round."""
    cdef int64_t r, i, low, high, offset, size = element_size(w.large.format), step = w.s[2] * w.large.x[2]
    cdef int64_t x[3]
    cdef const Row* row
    for r in range(row_count):
        row = &s.rows[r]
        if not inside_of(w, t, row, &low, &high, x):
            continue
        offset = (row.n * w.large.n + g * w.large.g + c * w.large.c + x[0] * w.large.x[0] + x[1] * w.large.x[1] + x[2] * w.large.x[2])
        if wide:
            for i in range(high - low):
                copy_codes(codes + size * (row.first + low + i) * channels, large_at(w, offset + i * step), channels, 1, size)
        else:
            for i in range(channels):
                copy_codes(codes + size * (i * line + row.first + low), large_at(w, offset + i * w.large.c), high - low, step, size)


cdef void run_blocks_tile(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t tile,
                          int64_t count, int64_t row_count, float* sums, bint resume, WeightsScratch* s) noexcept nogil:
    """A row tile of a chunk against all lane panels of the task."""
    cdef int64_t first = tile_start(w, plan, tile), rows = tile_rows(w, plan, tile), i, panel, vectors
    cdef int64_t t[3]
    cdef tile_run run = tile_run(0, 0, count if plan.pairs == NULL else pair_steps(count, plan.pairs.apart))
    cdef tile_function run_tile
    cdef bint wide = w.large.c == 1 and w.large.x[2] != 1 and not plan.mixed
    cdef int64_t size = element_size(w.large.format), line = plan.chunk
    if plan.padded:
        memset(s.codes, 0, size * rows * line)
    for i in range(rows if plan.mixed else 1):
        tap_at(w, (first + i) // w.C, t)
        lay_out(w, plan, t, part.g, (first + i) % w.C, 1 if plan.mixed else rows, row_count, line, wide,
                <char*>s.codes + size * i * line, s)
    if plan.pairs != NULL and plan.pairs.turn != NULL and not wide:
        plan.pairs.line_rows(s.block, rows, count, s.codes, w.large.format, line, &s.smallest_large)
    else:
        pack_block(plan, isa, s.codes, w.large.format, 1 if wide else line, rows if wide else 1, rows, plan.rows, count, s.block,
                   &s.smallest_large)
        if plan.pairs != NULL and plan.pairs.turn != NULL:
            plan.pairs.turn(s.block, 0, 1, run.steps)
    for panel in range(part.first_panel, part.end_panel):
        vectors = panel_vectors(plan, panel)
        run_tile = isa.blocks[vectors - 1] if plan.pairs == NULL else plan.pairs.blocks[vectors - 1]
        if s.unbounded:
            run_masked_rows(w, plan, isa, part, first, rows, count, row_count, panel, vectors, &run,
                            tile_sums(plan, sums, tile, panel), resume, s)
        else:
            run_tile(&run, 1, s.block, 0, s.lanes + (panel - part.first_panel) * panel_floats(plan, isa), isa.vectors * isa.width,
                     tile_sums(plan, sums, tile, panel), resume, NULL, NULL)


cdef void run_masked_rows(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t first,
                          int64_t rows, int64_t count, int64_t row_count, int64_t panel, int64_t vectors, const tile_run* run,
                          float* sums, bint resume, WeightsScratch* s) noexcept nogil:
    """Rows one by one, each at the positions that its tap meets inside: something infinite must not meet their zeros."""
    cdef int64_t i, r, low, high, pitch = isa.vectors * isa.width
    cdef int64_t t[3]
    cdef int64_t x[3]
    for i in range(rows):
        tap_at(w, (first + i) // w.C, t)
        memset(s.masks, 0, count * pitch * sizeof(float))
        for r in range(row_count):
            if inside_of(w, t, &s.rows[r], &low, &high, x):
                memset(s.masks + (s.rows[r].first + low) * pitch, 0xff, (high - low) * pitch * sizeof(float))
        isa.masked_blocks[vectors - 1](run, 1, s.block + i, s.lanes + (panel - part.first_panel) * panel_floats(plan, isa), pitch,
                                       sums + i * pitch, resume, s.masks)


cdef void run_blocks_piece(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part,
                           int64_t piece, float* space, WeightsScratch* s) noexcept nogil:
    """As `run_weights_piece`."""
    cdef int64_t first = min(plan.positions, piece * plan.cut.length), end, row_count, tile, c0, c1, panel, tiles = strand_tiles(plan)
    cdef int64_t piece_end = min(plan.positions, (piece + 1) * plan.cut.length), together
    cdef float* sums = sums_from(plan, space, part.first_strand, part.first_panel)
    cdef float* lanes
    cdef bint resume = False, last
    memset(s.lanes, 0, 4 * (part.end_panel - part.first_panel) * panel_floats(plan, isa))
    if plan.pairs != NULL and plan.pairs.begin != NULL:
        plan.pairs.begin()
    while True:
        end = min(piece_end, first + plan.chunk)
        last = end >= piece_end
        row_count = cut_rows(w, first, end, s.rows)
        s.unbounded = False
        for panel in range(part.first_panel, part.end_panel):
            lanes = s.lanes + (panel - part.first_panel) * panel_floats(plan, isa)
            pack_small(w, plan, isa, part.g, panel, row_count, end - first, lanes, s)
            if plan.padded and not all_finite(plan, isa, panel_vectors(plan, panel) * isa.width, end - first, lanes):
                s.unbounded = s.met_unbounded = True
        if s.unbounded and plan.pairs != NULL:
            break  # the call is repeated without pairs
        together = strands_together(plan, plan.strands, last)
        c0 = part.first_strand
        while c0 < part.end_strand:
            c1 = min(part.end_strand, c0 + together)
            if not resume and last and plan.sums.together > 0:
                sums = sums_from(plan, space, c0, part.first_panel)
            for tile in range(c0 * tiles, c1 * tiles):
                run_blocks_tile(w, plan, isa, part, tile, end - first, row_count, sums, resume, s)
            if last and plan.sums.together > 0:
                store_strands(w, plan, isa, part, c0, c1, sums)
            c0 = c1
        first = end
        resume = True
        if last:
            break
    if plan.pairs != NULL and plan.pairs.end != NULL:
        plan.pairs.end()


cdef bint all_finite(const WeightsPlan* plan, const instruction_set* isa, int64_t width, int64_t count, const float* lanes) noexcept nogil:
    cdef int64_t k, pitch = isa.vectors * isa.width
    for k in range(count if plan.pairs == NULL else pair_steps(count, plan.pairs.apart)):
        if not (isa.finite if plan.pairs == NULL else plan.pairs.finite)(lanes + k * pitch, width):
            return False
    return True
