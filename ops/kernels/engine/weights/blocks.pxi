"""The pieces of `weights_product` whose rows are packed: operands within bfloat16, whose sums are taken in blocks of positions
(`core/reduction.h`).

Rows are packed for matrix units and dot products, which take both operands in pairs, and where lines framed for all taps would
not fit.

Lanes are the channels m of the small side, rows are (t, c) of the large side, zeros where a tap lies outside; both are packed in
the order of the sum.  Codes are laid out line by line in a buffer first, so that a block may go on in the next line or image. Rows
that are lines (engine/weights/lines.pxi) are multiplied as they lie.

uses: core/caches.pxi (nearest_cache), engine/ahead.pxi (begin_ahead), engine/product/pairs.pxi,
    engine/weights/gradient.pxi (Reach, Row, Weights, large_at), engine/weights/line_runs.pxi (keep_runs, line_runs),
    engine/weights/lines.pxi (keep_pieces, run_line_strands, shared_taps), engine/weights/make_plan.pxi (whole_units),
    engine/weights/matrix_rows.pxi (MATRIX_POSITIONS, plan_matrix_rows, run_matrix_strands),
    engine/weights/next_numbers.pxi (small_positions), engine/weights/plan.pxi, engine/weights/positions.pxi
    (cut_rows, inside_of, most_rows, reach_of, small_offset), engine/weights/product.pxi (pack_lanes),
    engine/weights/shared_chunks.pxi (meet_chunk), engine/weights/sums.pxi (store_strands, strands_together,
    sums_from, tile_sums), engine/weights/windows.pxi (run_window_tiles, window_for, window_runs)
gives: PAIRS_CACHE, laid_out_wide, lay_out_codes, pack_small, plan_blocks, run_blocks_piece
"""

cdef enum:
    BLOCKS_POSITIONS = 256  # packed in pairs at a time, at most
    PAIRS_CACHE = 48 << 10  # bytes of a nearest cache that holds LANE_FLOATS of pairs and the lines that meet them
    PART_POSITIONS = 64     # of a part of the small side that is packed where it lies


cdef void plan_blocks(const Weights* w, const instruction_set* isa, WeightsPlan* plan) noexcept nogil:
    """How much of the reduction is packed at a time."""
    cdef int64_t lane_width = min(isa.vectors, plan.vectors) * isa.width, most = BLOCKS_POSITIONS
    if plan.lines:
        most = LANE_FLOATS // lane_width
        if plan.vectors == 1 or plan.vectors == 2 and not plan.mixed:  # few lanes serve all rows: they may come from the middle cache
            most *= 3
        elif nearest_cache >= PAIRS_CACHE and not plan.mixed:  # pairs are half as many as positions
            most *= 2
    elif on_matrix(plan.pairs):
        most = MATRIX_POSITIONS
    elif plan.pairs == NULL:
        most = LANE_FLOATS // lane_width
    plan.chunk = whole_units(plan, most, SUM_BLOCK)
    plan.steps = steps_of(plan.pairs, plan.chunk)
    plan.code_bytes = max(plan.rows, TILE_LANES) * plan.chunk * element_size(max_format(w))
    if on_matrix(plan.pairs):
        plan_matrix_rows(w, plan)


cdef inline int max_format(const Weights* w) noexcept nogil:
    """Of the two operands the one whose codes are longer."""
    return w.large.format if element_size(w.large.format) > element_size(w.small.format) else w.small.format


cdef int64_t small_part_end(const Weights* w, int64_t g, const Row* rows, int64_t first, int64_t row_count) noexcept nogil:
    """The first row after those that follow row `first` in memory."""
    cdef int64_t next_offset = small_offset(w, g, &rows[first]) + rows[first].count, r = first + 1
    if w.small.x[2] != 1:
        return r
    while r < row_count and small_offset(w, g, &rows[r]) == next_offset:
        next_offset += rows[r].count
        r += 1
    return r


cdef bint parts_are_blocks(const Weights* w, const WeightsPlan* plan, int64_t g, const Row* rows, int64_t row_count, int64_t count) noexcept nogil:
    """Whether each part that lies side by side begins with a pair (of matrix units: a block), and there are few."""
    cdef int64_t unit = SUM_BLOCK if on_matrix(plan.pairs) else 2, first = 0, parts = 0
    while first < row_count:
        if rows[first].first % unit != 0:
            return False
        first = small_part_end(w, g, rows, first, row_count)
        parts += 1
    return w.small.x[2] == 1 and (parts == 1 or parts * PART_POSITIONS <= count)


cdef void pack_small(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t panel, int64_t row_count,
                     int64_t count, float* place, WeightsScratch* s) noexcept nogil:
    """A lane panel of the positions of a chunk."""
    cdef int64_t m = first_lane(plan, isa, panel), lanes = min(w.M, first_lane(plan, isa, panel + 1)) - m, i, first = 0, end, some, offset
    cdef int64_t size = element_size(w.small.format), pitch = isa.vectors * isa.width, line = plan.chunk, begin
    cdef const char* source = <const char*>w.small.data + size * m * w.small.c
    cdef bint wide = w.small.c == 1 and w.small.x[2] != 1, direct = parts_are_blocks(w, plan, g, s.rows, row_count, count)
    cdef lane_span span = lane_span(0, lanes, 0, w.small.c)
    check_room(b"pack_small", place, 4 * panel_floats(plan, isa))
    check_room(b"pack_small", s.codes, size * lanes * (count if wide else line))
    while first < row_count:
        end = small_part_end(w, g, s.rows, first, row_count)
        begin, offset = s.rows[first].first, small_offset(w, g, &s.rows[first])
        some = (s.rows[end].first if end < row_count else count) - begin
        if direct:
            gather_steps(isa, plan.pairs, place + steps_of(plan.pairs, begin) * pitch, pitch, some, source + size * offset, w.small.format,
                         1, &span, 1, &s.smallest_small)
        elif wide:
            for i in range(some):
                copy_codes(<char*>s.codes + size * (begin + i) * lanes, source + size * (offset + i * w.small.x[2]), lanes, 1, size)
        else:
            for i in range(lanes):
                copy_codes(<char*>s.codes + size * (i * line + begin), source + size * (offset + i * w.small.c), some, w.small.x[2], size)
        first = end
    if direct:
        return
    span.step = 1 if wide else line
    gather_steps(isa, plan.pairs, place, pitch, count, s.codes, w.small.format, lanes if wide else 1, &span, 1, &s.smallest_small)


cdef inline bint laid_out_wide(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    return w.large.c == 1 and w.large.x[2] != 1 and not plan.mixed


cdef void lay_out_codes(const Weights* w, const Reach* reach, int64_t g, int64_t c, int64_t channels, int64_t row_count, int64_t line, bint wide,
                        char* codes, const Row* rows) noexcept nogil:
    """What a tap meets in some channels at the positions of a chunk: [channel][position], or if `wide` the other way round."""
    cdef int64_t r, i, low, high, offset, size = element_size(w.large.format), step = w.s[2] * w.large.x[2]
    cdef int64_t x[3]
    cdef const Row* row
    check_room(b"lay_out_codes", codes, size * channels * line)
    for r in range(row_count):
        row = &rows[r]
        if not inside_of(w, reach, row, &low, &high, x):
            continue
        offset = (row.n * w.large.n + g * w.large.g + c * w.large.c + x[0] * w.large.x[0] + x[1] * w.large.x[1] + x[2] * w.large.x[2])
        if wide:
            for i in range(high - low):
                copy_codes(codes + size * (row.first + low + i) * channels, large_at(w, offset + i * step), channels, 1, size)
        else:
            for i in range(channels):
                copy_codes(codes + size * (i * line + row.first + low), large_at(w, offset + i * w.large.c), high - low, step, size)


cdef void run_blocks_tile(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t tile,
                          const Chunk* chunk, float* sums, WeightsScratch* s) noexcept nogil:
    """A row tile of a chunk against all lane panels of the task."""
    cdef int64_t first = tile_start(w, plan, tile), rows = tile_rows(plan, tile), i, panel, vectors, line = plan.chunk
    cdef int64_t size = element_size(w.large.format), pitch = isa.vectors * isa.width
    cdef Reach reach
    cdef int64_t offsets[TILE_ROWS]
    cdef tile_run whole = tile_run(0, 0, steps_of(plan.pairs, chunk.count))
    cdef lane_span span
    cdef bint wide = laid_out_wide(w, plan)
    cdef const float* lanes
    cdef float* c
    check_room(b"run_blocks_tile", s.block, 4 * plan.rows * whole.steps)
    if plan.padded:
        memset(s.codes, 0, size * rows * line)
    for i in range(rows if plan.mixed else 1):
        reach_of(w, (first + i) // w.C, &reach)
        lay_out_codes(w, &reach, part.g, (first + i) % w.C, 1 if plan.mixed else rows, chunk.row_count, line, wide,
                      <char*>s.codes + size * i * line, s.rows)
    span = lane_span(0, rows, 0, 1 if wide else line)
    gather_steps(isa, plan.pairs, s.block, plan.rows, chunk.count, s.codes, w.large.format, rows if wide else 1, &span, 1, &s.smallest_large)
    for i in range(min(rows, TILE_ROWS)):
        offsets[i] = i
    for panel in range(part.first_panel, part.end_panel):
        vectors = panel_vectors(plan, panel)
        lanes = s.lanes + (panel - part.first_panel) * panel_floats(plan, isa)
        c = tile_sums(plan, sums, tile, panel)
        check_room(b"run_blocks_tile", c, 4 * rows * vectors * isa.width)
        if s.unbounded:
            run_masked_rows(w, isa, chunk, first, rows, vectors, lanes, c, s)
        else:
            whole_of(isa, plan.pairs, True, False, rows, vectors)(&whole, 1, s.block, offsets, plan.rows, lanes, pitch, c, chunk.resume, NULL)


cdef void run_masked_rows(const Weights* w, const instruction_set* isa, const Chunk* chunk, int64_t first, int64_t rows,
                          int64_t vectors, const float* lanes, float* c, WeightsScratch* s) noexcept nogil:
    """Rows one by one, each at the positions that its tap meets inside: something infinite must not meet their zeros."""
    cdef int64_t i, r, low, high, pitch = isa.vectors * isa.width
    cdef tile_run whole = tile_run(0, 0, chunk.count)
    cdef Reach reach
    cdef int64_t x[3]
    for i in range(rows):
        reach_of(w, (first + i) // w.C, &reach)
        check_room(b"run_masked_rows", s.masks, 4 * chunk.count * pitch)
        memset(s.masks, 0, chunk.count * pitch * sizeof(float))
        for r in range(chunk.row_count):
            if inside_of(w, &reach, &s.rows[r], &low, &high, x):
                memset(s.masks + (s.rows[r].first + low) * pitch, 0xff, (high - low) * pitch * sizeof(float))
        isa.masked_blocks[vectors - 1](&whole, 1, s.block + i, lanes, pitch, c + i * vectors * isa.width, chunk.resume, s.masks)


cdef bint pack_chunk(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t first,
                     int64_t piece_end, Chunk* chunk, WeightsScratch* s) noexcept nogil:
    """The positions of a piece from `first` on for one task. Returns false where the call must be repeated without pairs."""
    cdef int64_t end = first + chunk.count, panel, count, start = 0, m
    check_room(b"pack_chunk", s.rows, most_rows(w, chunk.count) * sizeof(Row))
    chunk.row_count = cut_rows(w, first, end, s.rows)
    if plan.pairs == NULL:
        pack_lanes(w, plan, isa, part.g, part.first_panel, part.end_panel, s.rows, chunk.row_count, s.lanes)
    else:
        for panel in range(part.first_panel, part.end_panel):
            pack_small(w, plan, isa, part.g, panel, chunk.row_count, chunk.count,
                       s.lanes + (panel - part.first_panel) * panel_floats(plan, isa), s)
    s.unbounded = plan.padded and not are_finite(isa, plan.pairs, s.lanes, (part.end_panel - part.first_panel) * panel_floats(plan, isa))
    s.met_unbounded = s.met_unbounded or s.unbounded
    if s.unbounded and plan.pairs != NULL:
        return False
    if not plan.windows and plan.lines and (s.kept_chunk[0] != first or s.kept_chunk[1] != end):
        s.shared = shared_taps(w, plan, chunk, s)
        keep_pieces(w, isa, chunk, &s.shared, s)
        keep_runs(w, plan, isa, chunk, &s.shared, s)
        s.kept_chunk[0], s.kept_chunk[1] = first, end  # for other groups and parts of the result
    if plan.lines:
        count = small_positions(w, part.g, end, min(piece_end, end + plan.chunk), &start)
        m = first_lane(plan, isa, part.first_panel)
        s.ahead = begin_ahead(&w.small, 1, min(w.M, first_lane(plan, isa, part.end_panel)) - m, start + m * w.small.c, count,
                              (part.end_strand - part.first_strand) * strand_tiles(plan), False)
    return True


cdef void run_blocks_piece(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part,
                           int64_t piece, float* space, WeightsScratch* s) noexcept nogil:
    """As `run_weights_piece`."""
    cdef int64_t first = piece_start(&plan.cut, piece, plan.positions), end, tile, c0, c1, number = piece * plan.piece_chunks
    cdef int64_t piece_end = piece_start(&plan.cut, piece + 1, plan.positions), together, tiles = strand_tiles(plan)
    cdef float* sums = sums_from(plan, space, part.first_strand, part.first_panel)
    cdef Chunk chunk = Chunk(0, 0, s.runs, 0, False, -1)
    cdef bint last, in_place = False
    if not plan.shared:
        memset(s.lanes, 0, 4 * (part.end_panel - part.first_panel) * panel_floats(plan, isa))
    begin_tiles(plan.pairs)
    while True:
        end = min(piece_end, first + plan.chunk)
        last = end >= piece_end
        chunk.count, chunk.gap = end - first, -1
        if plan.shared:
            meet_chunk(plan, isa, part, number, last, &chunk, s)
            number += 1
        elif not pack_chunk(w, plan, isa, part, first, piece_end, &chunk, s):
            break
        if plan.windows:
            window_for(&plan.windowed, plan, part.g, first, end, piece_end, s)
            chunk.run_count = window_runs(&plan.windowed, plan, isa, first, chunk.count, s)
            in_place = chunk.run_count > 0
            if not in_place:
                chunk.run_count = line_runs(isa, &chunk, &s.shared, 0, s)
        together = strands_together(plan, plan.strands, last)
        c0 = part.first_strand
        while c0 < part.end_strand:
            c1 = min(part.end_strand, c0 + together)
            if not chunk.resume and last and plan.sums.together > 0:
                sums = sums_from(plan, space, c0, part.first_panel)
            if plan.windows:
                run_window_tiles(&plan.windowed, plan, isa, part, c0, c1, &chunk, first, in_place, sums, s)
            elif plan.lines:
                run_line_strands(w, plan, isa, part, c0, c1, &chunk, &s.shared, sums, s)
            elif on_matrix(plan.pairs):
                run_matrix_strands(w, plan, isa, part, c0, c1, &chunk, sums, s)
            else:
                for tile in range(c0 * tiles, c1 * tiles):
                    run_blocks_tile(w, plan, isa, part, tile, &chunk, sums, s)
            if last and plan.sums.together > 0:
                store_strands(w, plan, isa, part, c0, c1, sums)
            c0 = c1
        first = end
        chunk.resume = True
        if last:
            break
    end_tiles(plan.pairs)
