"""Rows of `weights_product` for a matrix unit, straight from the lines of the large side; several row tiles meet the lanes together.

A block of the sum goes on from line to line of the small side.  What a tap meets of it in one line of the large side is a part, so a
row of a block is the numbers of its parts, and zeros where the tap lies outside.  All channels have the parts of their tap.  Taps that
meet the same numbers share a frame (engine/weights/matrix_frames.pxi), others pack their rows.  Channels last, and numbers
far apart, are laid out in a buffer first.

uses: engine/costs.pxi (MATRIX_COPIED, MATRIX_CUT, MATRIX_PART, MATRIX_ROW, ROW_PACKED), engine/product/pairs.pxi
    (gather_steps, steps_of), engine/weights/blocks.pxi (laid_out_wide, lay_out_codes), engine/weights/gradient.pxi
    (Reach, Row, Weights, large_at), engine/weights/lines.pxi (number_step), engine/weights/matrix_frames.pxi
    (plan_frame, run_frames), engine/weights/plan.pxi, engine/weights/positions.pxi (inside_of, most_rows, reach_of),
    engine/weights/sums.pxi (tile_sums)
gives: MATRIX_POSITIONS, add_part_of_block, cut_parts, lay_out_matrix_scratch, matrix_row_quarters, packed_quarters,
    plan_matrix_rows, run_matrix_strands, run_row_panels
"""

cdef enum:
    MATRIX_POSITIONS = 512  # packed at a time, at most
    PART_ROWS = 8           # channels from which on numbers farther apart than FRAME_STEPS are not copied to a buffer
    PANELS_TOGETHER = 4     # row tiles whose rows stay near while they meet all lanes


cdef inline bint in_parts(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    """Whether rows are taken from lines as they lie."""
    return not laid_out_wide(w, plan) and 1 <= number_step(w) <= (PART_STEPS if w.C >= PART_ROWS else FRAME_STEPS)


cdef inline double packed_quarters(const Weights* w) noexcept nogil:
    """Quarters of a cycle to pack a number of a row from the parts of lines."""
    return MATRIX_ROW + (MATRIX_PART * number_step(w) + MATRIX_CUT / w.C) / min(<int64_t>SUM_BLOCK, w.Y[2])


cdef double matrix_row_quarters(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    """Quarters of a cycle to pack a number of a row, or to frame it."""
    if not in_parts(w, plan):
        return ROW_PACKED if laid_out_wide(w, plan) else MATRIX_COPIED
    return packed_quarters(w) * (plan.matrix.share if plan.matrix.framed else 1)


cdef void plan_matrix_rows(const Weights* w, WeightsPlan* plan) noexcept nogil:
    """Room for row tiles that are packed together, or for a frame."""
    cdef MatrixRows* m = &plan.matrix
    m.panels = min(plan.row_tiles if plan.mixed else plan.taps, <int64_t>PANELS_TOGETHER)
    m.floats = m.panels * plan.rows * plan.steps
    m.parts = PANELS_TOGETHER * (most_rows(w, plan.chunk) + plan.chunk // SUM_BLOCK + 1)
    m.rows = m.row_floats = 0
    m.framed = in_parts(w, plan) and number_step(w) <= FRAME_STEPS and not plan.mixed and plan_frame(w, plan, m)


cdef void lay_out_matrix_scratch(WeightsScratch* s, const Weights* w, const WeightsPlan* plan, workspace* memory) noexcept nogil:
    cdef const MatrixRows* m = &plan.matrix
    s.parts = <line_part*>take(memory, m.parts * sizeof(line_part))
    s.offsets = <int64_t*>take(memory, m.panels * ceiling(plan.chunk, SUM_BLOCK) * sizeof(int64_t))
    s.framed_positions = <Row*>take(memory, m.rows * sizeof(Row))
    s.row_starts = <int64_t*>take(memory, (most_rows(w, plan.chunk) if m.framed else 0) * sizeof(int64_t))


cdef inline void add_part_of_block(line_part* parts, int64_t first, int64_t* number, int64_t offset, uint32_t inside) noexcept nogil:
    """One more part of the block that begins with part `first`; what goes on where the part before ends belongs to that."""
    cdef line_part* part = &parts[number[0]]
    if number[0] > first and parts[number[0] - 1].offset == offset:
        parts[number[0] - 1].inside |= inside
        return
    check_room(b"add_part_of_block", part, sizeof(line_part))
    part.offset, part.inside, part.last = offset, inside, False
    number[0] += 1


cdef int64_t cut_parts(const Weights* w, const Reach* reach, const Row* rows, int64_t row_count, int64_t first_block, int64_t end_block,
                       line_part* parts) noexcept nogil:
    """The parts of blocks [first_block, end_block) of some rows of positions, from channel 0 of group 0 on; returns how many."""
    cdef int64_t r, low, high, offset = 0, i, some, number = 0, first = 0, block = first_block, before, step = number_step(w)
    cdef int64_t x[3]
    cdef const Row* row
    for r in range(row_count + 1):
        low = high = SUM_BLOCK * end_block
        if r < row_count:
            row = &rows[r]
            if not inside_of(w, reach, row, &low, &high, x):
                continue
            before = max(0, SUM_BLOCK * first_block - row.first - low)
            offset = row.n * w.large.n + x[0] * w.large.x[0] + x[1] * w.large.x[1] + x[2] * w.large.x[2] + before * step
            low, high = row.first + low + before, min(row.first + high, SUM_BLOCK * end_block)
            if low >= high:
                continue
        while True:
            while block < low // SUM_BLOCK:  # the next position lies behind this block
                if number == first:
                    add_part_of_block(parts, first, &number, 0, 0)
                parts[number - 1].last = True
                first = number
                block += 1
            if low >= high:
                break
            i = low % SUM_BLOCK
            some = min(high - low, SUM_BLOCK - i)
            add_part_of_block(parts, first, &number, offset - i * step, (<uint32_t>0xffffffff >> (SUM_BLOCK - some)) << i)
            low += some
            offset += some * step
    return number


cdef void cut_buffer(int64_t count, line_part* parts) noexcept nogil:
    """The parts of lines that were laid out one behind the other."""
    cdef int64_t block
    for block in range(ceiling(count, SUM_BLOCK)):
        check_room(b"cut_buffer", &parts[block], sizeof(line_part))
        parts[block] = line_part(block * SUM_BLOCK, <uint32_t>0xffffffff >> max(0, SUM_BLOCK * (block + 1) - count), True)


cdef void pack_matrix_rows(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t tap, int64_t c,
                           int64_t rows, line_part* parts, const Chunk* chunk, float* place, WeightsScratch* s) noexcept nogil:
    """Some channels of a tap whose parts are cut, or not yet where lines are laid out first."""
    cdef int64_t blocks = ceiling(chunk.count, SUM_BLOCK), size = element_size(w.large.format), line = plan.chunk
    cdef int64_t block_floats = HALF_BLOCK * plan.rows
    cdef bint wide = laid_out_wide(w, plan)
    cdef lane_span span
    cdef Reach reach
    check_room(b"pack_matrix_rows", place, 4 * (block_floats * (blocks - 1) + HALF_BLOCK * rows))
    if in_parts(w, plan):
        plan.pairs.block_rows(place, HALF_BLOCK, block_floats, rows, blocks, parts, number_step(w), large_at(w, g * w.large.g + c * w.large.c),
                              w.large.format, w.large.c, &s.smallest_large)
        return
    if plan.padded:
        memset(s.codes, 0, size * rows * line)
    reach_of(w, tap, &reach)
    lay_out_codes(w, &reach, g, c, rows, chunk.row_count, line, wide, <char*>s.codes, s.rows)
    if not wide:
        cut_buffer(chunk.count, parts)
        plan.pairs.block_rows(place, HALF_BLOCK, block_floats, rows, blocks, parts, 1, s.codes, w.large.format, line, &s.smallest_large)
        return
    span = lane_span(0, rows, 0, 1)
    gather_steps(isa, plan.pairs, place, plan.rows, chunk.count, s.codes, w.large.format, rows, &span, 1, &s.smallest_large)
    plan.pairs.turn(place, 0, 1, steps_of(plan.pairs, chunk.count))


cdef void run_row_panels(const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t tile, int64_t tile_step,
                         int64_t count, int64_t row_pitch, const Chunk* chunk, float* sums, WeightsScratch* s) noexcept nogil:
    """Row tiles that are `tile_step` apart against all lane panels of the task."""
    cdef int64_t panel, blocks = ceiling(chunk.count, SUM_BLOCK)
    for panel in range(part.first_panel, part.end_panel):
        check_room(b"run_row_panels", tile_sums(plan, sums, tile + (count - 1) * tile_step, panel), 4 * plan.tile_floats)
        plan.pairs.row_panels[panel_vectors(plan, panel) - 1](
            count, blocks, s.block, s.offsets, row_pitch, s.lanes + (panel - part.first_panel) * panel_floats(plan, isa),
            isa.vectors * isa.width, tile_sums(plan, sums, tile, panel), tile_step * plan.sums.panels * plan.tile_floats, chunk.resume)


cdef void run_mixed_panels(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t tile,
                           int64_t count, const Chunk* chunk, float* sums, WeightsScratch* s) noexcept nogil:
    """Row tiles that follow one another, whose rows are of several taps."""
    cdef int64_t i, done, row, rows, tap, c, some
    cdef float* place
    cdef Reach reach
    for i in range(count):
        row, rows, done = tile_start(w, plan, tile + i), tile_rows(plan, tile + i), 0
        place = s.block + i * plan.rows * plan.steps
        while done < rows:
            tap, c = (row + done) // w.C, (row + done) % w.C
            some = min(rows - done, w.C - c)
            if in_parts(w, plan):
                reach_of(w, tap, &reach)
                cut_parts(w, &reach, s.rows, chunk.row_count, 0, ceiling(chunk.count, SUM_BLOCK), s.parts)
            pack_matrix_rows(w, plan, isa, part.g, tap, c, some, s.parts, chunk, place + done * HALF_BLOCK, s)
            done += some
    run_row_panels(plan, isa, part, tile, 1, count, HALF_BLOCK, chunk, sums, s)


cdef void run_packed_panels(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t first_strand,
                            int64_t end_strand, int64_t tap, int64_t count, const Chunk* chunk, float* sums, WeightsScratch* s) noexcept nogil:
    """Row tiles of taps that follow one another, for the channels of some strands."""
    cdef int64_t i, strand, c, room = plan.matrix.parts // PANELS_TOGETHER
    cdef Reach reach
    for i in range(count if in_parts(w, plan) else 0):
        reach_of(w, tap + i, &reach)
        cut_parts(w, &reach, s.rows, chunk.row_count, 0, ceiling(chunk.count, SUM_BLOCK), s.parts + i * room)
    for strand in range(first_strand, end_strand):
        c = plan.tile_firsts[strand]
        for i in range(count):
            pack_matrix_rows(w, plan, isa, part.g, tap + i, c, plan.tile_firsts[strand + 1] - c, s.parts + i * room, chunk,
                             s.block + i * plan.rows * plan.steps, s)
        run_row_panels(plan, isa, part, strand * plan.taps + tap, 1, count, HALF_BLOCK, chunk, sums, s)


cdef void run_matrix_strands(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t first_strand,
                             int64_t end_strand, const Chunk* chunk, float* sums, WeightsScratch* s) noexcept nogil:
    """The row tiles of some strands against all lane panels of the task."""
    cdef int64_t i, k, first = 0, blocks = ceiling(chunk.count, SUM_BLOCK), most = plan.matrix.panels
    if plan.matrix.framed:
        run_frames(w, plan, isa, part, first_strand, end_strand, chunk, sums, s)
        return
    for i in range(most):
        for k in range(blocks):
            s.offsets[i * blocks + k] = i * plan.rows * plan.steps + k * HALF_BLOCK * plan.rows
    if plan.mixed:
        first = first_strand
        while first < end_strand:
            run_mixed_panels(w, plan, isa, part, first, min(most, end_strand - first), chunk, sums, s)
            first += most
        return
    while first < plan.taps:
        run_packed_panels(w, plan, isa, part, first_strand, end_strand, first, min(most, plan.taps - first), chunk, sums, s)
        first += most
