"""Frames of `weights_product` for a matrix unit: taps of a plane meet the same numbers, so these are laid out once for all of them.

A frame has for each channel the lines that the first of the taps meets from the positions of a chunk, each with what the other taps
reach behind it, and the lines below that they reach.  Its numbers are pairs, each with the number HALF_BLOCK behind it: from
there on HALF_BLOCK pairs are a row of a block, at any position, and thus for any tap.  Where a block goes on in another line, its
row is patched from the pairs of both.

uses: engine/costs.pxi (FRAME_LOADS, FRAME_PAIRS, FRAME_PATCH, FRAME_PATCH_PART), engine/weights/gradient.pxi (Reach, Row, Weights,
    large_at), engine/weights/lines.pxi (number_step), engine/weights/matrix_rows.pxi (add_part_of_block, cut_parts,
    packed_quarters, run_row_panels), engine/weights/plan.pxi (Chunk, MatrixRows, WeightsPart, WeightsPlan, WeightsScratch),
    engine/weights/positions.pxi (in_one_plane, most_rows, reach_of)
gives: plan_frame, run_frames
"""

cdef enum:
    MATRIX_FRAME_FLOATS = 8192   # of a channel, at most
    FRAME_TAPS = 16              # of those that share a frame, so many meet the lanes together
    MOST_BLOCKS = 32             # of a chunk
    ALL_TERMS = 0xffffffff       # of a block


cdef double frame_share(const Weights* w, const WeightsPlan* plan, const MatrixRows* m) noexcept nogil:
    """What a frame takes beside packing the rows of all taps."""
    cdef int64_t frames = min(m.period[1], w.K[1]) * min(m.period[2], w.K[2]), follow = w.Y[2] if m.line > w.Y[2] else w.Y[1] * w.Y[2]
    cdef double positions = plan.chunk, lines = positions / w.Y[2], often = max(1.0, lines / w.Y[1]), patched = SUM_BLOCK / <double>follow
    cdef double framed = FRAME_PAIRS * (positions + lines * (m.line - w.Y[2]) + often * (m.halo + HALF_BLOCK)), beside = 0
    if follow % SUM_BLOCK != 0 or plan.cut.length % SUM_BLOCK != 0:
        beside += min(1.0, patched) * (FRAME_PATCH + FRAME_PATCH_PART * (1 + patched))
    if m.line % HALF_BLOCK != 0 or m.shared[2] > 1:
        beside += FRAME_LOADS * plan.panels
    return framed * frames / (w.K[1] * w.K[2] * positions) + beside / packed_quarters(w)


cdef bint measure_frame(const Weights* w, const WeightsPlan* plan, bint along_lines, MatrixRows* m) noexcept nogil:
    """A frame for the taps of a column, or of lines, too. Returns whether there is room for it."""
    cdef int64_t axis, divisor, segments, positions, patches, blocks = ceiling(plan.chunk, SUM_BLOCK)
    cdef double reach
    for axis in range(1, 3):
        divisor = common_divisor(w.s[axis], w.d[axis])
        m.period[axis], m.apart[axis] = w.s[axis] // divisor, w.d[axis] // divisor
    if not along_lines:
        m.period[2] = w.K[2]
    for axis in range(1, 3):
        m.shared[axis] = ceiling(w.K[axis], m.period[axis])
    reach = w.Y[2] + (m.shared[2] - 1) * <double>m.apart[2]
    reach += (m.shared[1] - 1) * <double>m.apart[1] * reach
    if m.shared[1] * m.shared[2] < 2 or reach > MATRIX_FRAME_FLOATS or blocks > MOST_BLOCKS:
        return False
    m.line = w.Y[2] + (m.shared[2] - 1) * m.apart[2]
    m.apart[1] *= m.line
    m.halo = (m.shared[1] - 1) * m.apart[1] + (m.shared[2] - 1) * m.apart[2]
    segments = min(most_rows(w, plan.chunk), plan.chunk // (w.Y[1] * w.Y[2]) + 2)
    positions = plan.chunk + most_rows(w, plan.chunk) * (m.line - w.Y[2]) + segments * (m.halo + SUM_BLOCK)
    patches = min(blocks, most_rows(w, plan.chunk) if m.line > w.Y[2] else segments)  # each line or segment ends in one, at most
    m.panels = min(<int64_t>FRAME_TAPS, m.shared[1] * m.shared[2])
    m.row_floats = (ceiling(positions, SUM_BLOCK) * SUM_BLOCK + m.panels * patches * HALF_BLOCK) | HALF_BLOCK
    m.floats = plan.rows * m.row_floats
    m.rows = most_rows(w, plan.chunk) + segments * (m.halo // m.line + 2)
    m.frame_parts = m.rows + positions // SUM_BLOCK + 2
    m.parts = m.frame_parts + most_rows(w, plan.chunk) + blocks
    m.share = frame_share(w, plan, m)
    return m.row_floats <= MATRIX_FRAME_FLOATS and m.share < 1


cdef bint plan_frame(const Weights* w, const WeightsPlan* plan, MatrixRows* m) noexcept nogil:
    """Whether frames take less than to pack the rows of all taps; if so, plans those that take the least."""
    cdef MatrixRows columns = m[0], lines = m[0]
    cdef bint by_columns = measure_frame(w, plan, False, &columns), by_lines = measure_frame(w, plan, True, &lines)
    if not by_columns and not by_lines:
        return False
    m[0] = lines if by_lines and (not by_columns or lines.share < columns.share) else columns
    return True


cdef int64_t cut_frame(const WeightsPlan* plan, const Chunk* chunk, WeightsScratch* s) noexcept nogil:
    """The lines of a frame, and where in it the rows of the chunk begin; returns how many lines."""
    cdef const MatrixRows* m = &plan.matrix
    cdef int64_t r = 0, first, rows = 0, start = 0, left
    cdef Row row
    check_room(b"cut_frame", s.row_starts, chunk.row_count * sizeof(int64_t))
    while r < chunk.row_count:
        first = r
        row = s.rows[r]
        while r < chunk.row_count and in_one_plane(&s.rows[r], &row):
            s.row_starts[r] = start + (s.rows[r].y[1] - row.y[1]) * m.line + s.rows[r].y[2] - row.y[2]
            r += 1
        left = s.row_starts[r - 1] + s.rows[r - 1].count - s.row_starts[first] + m.halo
        row.first = start
        start += ceiling(left, SUM_BLOCK) * SUM_BLOCK
        while left > 0:
            row.count = min(left, m.line - row.y[2])
            check_room(b"cut_frame", &s.framed_positions[rows], sizeof(Row))
            s.framed_positions[rows] = row
            rows += 1
            row.first += row.count
            left -= row.count
            row.y[2] = 0
            row.y[1] += 1
    return rows


cdef int64_t place_blocks(const Chunk* chunk, const WeightsScratch* s, line_part* parts, int64_t* starts) noexcept nogil:
    """Where the first tap's row of each block begins in the frame; of one in several places ~k, if it is the k-th of them, and its parts.
    Returns how many there are."""
    cdef int64_t r = 0, k, done = 0, some, i, first = 0, number = 0, patches = 0
    for k in range(ceiling(chunk.count, SUM_BLOCK)):
        i = 0
        while r < chunk.row_count and i < SUM_BLOCK:
            some = min(SUM_BLOCK - i, s.rows[r].count - done)
            add_part_of_block(parts, first, &number, s.row_starts[r] + done - i, (<uint32_t>ALL_TERMS >> (SUM_BLOCK - some)) << i)
            i += some
            done += some
            if done == s.rows[r].count:
                r += 1
                done = 0
        if parts[first].inside == ALL_TERMS:
            starts[k] = parts[first].offset
            number = first
        else:
            starts[k] = ~patches
            patches += 1
            parts[number - 1].last = True
            first = number
    return patches


cdef void run_frame_taps(const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t tile, int64_t tile_step,
                         int64_t count, const int64_t* shifts, int64_t rows, int64_t patch_start, int64_t patches,
                         const int64_t* starts, const Chunk* chunk, float* sums, WeightsScratch* s) noexcept nogil:
    """Row tiles of some taps, `tile_step` apart, whose numbers are framed."""
    cdef const MatrixRows* m = &plan.matrix
    cdef int64_t i, k, blocks = ceiling(chunk.count, SUM_BLOCK)
    check_room(b"run_frame_taps", s.block + (rows - 1) * m.row_floats + patch_start, 4 * count * patches * HALF_BLOCK)
    check_room(b"run_frame_taps", s.offsets, count * blocks * sizeof(int64_t))
    plan.pairs.patch_rows(s.block + patch_start, s.block, m.row_floats, rows, patches, s.parts + m.frame_parts, count, shifts)
    for i in range(count):
        for k in range(blocks):
            s.offsets[i * blocks + k] = (starts[k] + shifts[i] if starts[k] >= 0
                                         else patch_start + (i * patches + ~starts[k]) * HALF_BLOCK)
    run_row_panels(plan, isa, part, tile, tile_step, count, m.row_floats, chunk, sums, s)


cdef void run_frame(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t first_strand,
                    int64_t end_strand, int64_t tap, int64_t lines, int64_t columns, int64_t rows, int64_t patches, const int64_t* starts,
                    const Chunk* chunk, float* sums, WeightsScratch* s) noexcept nogil:
    """Taps that meet the same numbers, from `tap` on, for the channels of some strands; the lines of the frame are cut."""
    cdef const MatrixRows* m = &plan.matrix
    cdef const Row* last = &s.framed_positions[rows - 1]
    cdef int64_t blocks = ceiling(last.first + last.count, SUM_BLOCK), strand, c, channels, run, first, some, i, tile
    cdef int64_t step = m.period[2], runs = lines, count = columns  # taps that lie equally far apart
    cdef int64_t shifts[FRAME_TAPS]
    cdef Reach reach
    if columns == 1 or m.period[1] == 1 and m.period[2] == 1:
        step, runs, count = m.period[1] * w.K[2] if columns == 1 else 1, 1, lines * columns
    reach_of(w, tap, &reach)
    meet_inside(reach.start[2], w.s[2], w.X[2], m.line, &reach.low, &reach.high)
    cut_parts(w, &reach, s.framed_positions, rows, 0, blocks, s.parts)
    for strand in range(first_strand, end_strand):
        c = plan.tile_firsts[strand]
        channels = plan.tile_firsts[strand + 1] - c
        check_room(b"run_frame", s.block + (channels - 1) * m.row_floats, 4 * blocks * SUM_BLOCK)
        plan.pairs.frame_rows(s.block, m.row_floats, SUM_BLOCK, channels, blocks, s.parts, number_step(w),
                              large_at(w, part.g * w.large.g + c * w.large.c), w.large.format, w.large.c, &s.smallest_large)
        for run in range(runs):
            tile = strand * plan.taps + tap + run * m.period[1] * w.K[2]
            first = 0
            while first < count:
                some = min(count - first, m.panels)
                for i in range(some):
                    shifts[i] = ((run + (first + i) // columns) * m.apart[1] + (first + i) % columns * m.apart[2])
                run_frame_taps(plan, isa, part, tile + first * step, step, some, shifts, channels, blocks * SUM_BLOCK, patches, starts,
                               chunk, sums, s)
                first += some


cdef void run_frames(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t first_strand,
                     int64_t end_strand, const Chunk* chunk, float* sums, WeightsScratch* s) noexcept nogil:
    """All taps of some strands."""
    cdef const MatrixRows* m = &plan.matrix
    cdef int64_t starts[MOST_BLOCKS]
    cdef int64_t rows = cut_frame(plan, chunk, s), patches = place_blocks(chunk, s, s.parts + m.frame_parts, starts), tap, t1, t2
    for tap in range(plan.taps):
        t1, t2 = tap // w.K[2] % w.K[1], tap % w.K[2]
        if t1 < m.period[1] and t2 < m.period[2]:  # the first of those that share a frame
            run_frame(w, plan, isa, part, first_strand, end_strand, tap, ceiling(w.K[1] - t1, m.period[1]), ceiling(w.K[2] - t2, m.period[2]),
                      rows, patches, starts, chunk, sums, s)
