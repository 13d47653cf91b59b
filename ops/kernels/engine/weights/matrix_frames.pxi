"""Frames of `weights_product` for a matrix unit: taps along an axis meet the same numbers, so these are laid out once for all of them.

A frame has for each channel what the first of the taps meets at the positions of a chunk, and behind them what the last one meets.
Its numbers are pairs, each with the number HALF_BLOCK positions behind it: from there on HALF_BLOCK pairs are a row of a block, at
any position, and thus for any tap.  Positions of another plane (or line, along the innermost axis) do not follow in the frame: they
are a segment of their own, and a block of two segments is packed for each tap, as is the last one if it is not whole.

uses: engine/costs.pxi (FRAME_LOADS, FRAME_PAIRS), engine/weights/gradient.pxi (Reach, Row, Weights, large_at),
    engine/weights/lines.pxi (number_step), engine/weights/matrix_rows.pxi (cut_parts, run_row_panels),
    engine/weights/plan.pxi (Chunk, FrameSegment, MatrixRows, WeightsPart, WeightsPlan, WeightsScratch),
    engine/weights/positions.pxi (in_one_plane, most_rows, reach_of)
gives: plan_frame, run_frames
"""

cdef enum:
    MATRIX_FRAME_FLOATS = 6144  # of a channel, at most
    MOST_PATCHES = 32           # blocks of a chunk that are packed for each tap


cdef bint plan_frame(const Weights* w, const WeightsPlan* plan, MatrixRows* m) noexcept nogil:
    """Whether frames take less than to pack the rows of all taps; if so, plans them."""
    cdef int64_t axis = 2 if w.Y[1] == 1 and w.K[1] == 1 else 1, divisor = common_divisor(w.s[axis], w.d[axis])
    cdef int64_t period = w.s[axis] // divisor, apart = w.d[axis] // divisor * (w.Y[2] if axis == 1 else 1)
    cdef int64_t taps = ceiling(w.K[axis], period), halo, plane, segments, positions, row_floats
    cdef double often, framed
    if taps < 2 or (taps - 1) * <double>apart > MATRIX_FRAME_FLOATS or ceiling(plan.chunk, SUM_BLOCK) > MOST_PATCHES:
        return False
    halo = (taps - 1) * apart
    plane = w.Y[2] * (w.Y[1] if axis == 1 else 1)
    segments = min(most_rows(w, plan.chunk), plan.chunk // plane + 2)  # each ends in a block that is packed, at most
    positions = plan.chunk + segments * (halo + SUM_BLOCK)
    row_floats = (ceiling(positions, SUM_BLOCK) * SUM_BLOCK + segments * taps * HALF_BLOCK) | HALF_BLOCK
    often = max(1.0, plan.chunk / <double>plane)
    framed = FRAME_PAIRS * (plan.chunk + often * (halo + HALF_BLOCK)) + SUM_BLOCK * often * taps
    if apart % HALF_BLOCK != 0:
        framed += FRAME_LOADS * plan.panels * taps * plan.chunk
    if framed > taps * <double>plan.chunk or row_floats > MATRIX_FRAME_FLOATS:
        return False
    m.axis, m.period, m.apart, m.halo, m.segments, m.row_floats = axis, period, apart, halo, segments, row_floats
    m.panels, m.floats = taps, plan.rows * row_floats
    m.rows = most_rows(w, plan.chunk) + segments * (halo // w.Y[2] + 2)
    m.parts = m.rows + positions // SUM_BLOCK + 2 + segments * taps * (min(<int64_t>SUM_BLOCK, SUM_BLOCK // w.Y[2] + 2) + 1)
    return True


cdef int64_t cut_segments(const Weights* w, const WeightsPlan* plan, const Chunk* chunk, WeightsScratch* s) noexcept nogil:
    """The segments of a chunk, each with the rows of its positions and of the halo behind them; returns how many rows."""
    cdef const MatrixRows* m = &plan.matrix
    cdef int64_t r = 0, end, number = 0, rows = 0, start = 0, left
    cdef Row row
    cdef FrameSegment* segment
    while r < chunk.row_count:
        end = r + 1
        while m.axis == 1 and end < chunk.row_count and in_one_plane(&s.rows[end], &s.rows[r]):
            end += 1
        segment = &s.frame_segments[number]
        check_room(b"cut_segments", segment, sizeof(FrameSegment))
        segment.first, segment.start = s.rows[r].first, start
        segment.end = s.rows[end - 1].first + s.rows[end - 1].count
        left = segment.end - segment.first + m.halo
        row = s.rows[r]
        row.first = start
        start += ceiling(left, SUM_BLOCK) * SUM_BLOCK
        while left > 0:
            row.count = min(left, w.Y[2] - row.y[2]) if m.axis == 1 else left
            check_room(b"cut_segments", &s.framed_positions[rows], sizeof(Row))
            s.framed_positions[rows] = row
            rows += 1
            row.first += row.count
            left -= row.count
            row.y[2] = 0
            row.y[1] += 1
        number += 1
        r = end
    return rows


cdef int64_t place_blocks(const WeightsPlan* plan, int64_t count, int64_t taps, int64_t patches_at, const FrameSegment* segment,
                          int64_t* patches, int64_t* offsets) noexcept nogil:
    """Where the rows of each tap's blocks begin; notes the blocks that are packed, and returns how many."""
    cdef const MatrixRows* m = &plan.matrix
    cdef int64_t k, i, blocks = ceiling(count, SUM_BLOCK), first, number = 0
    for k in range(blocks):
        first = k * SUM_BLOCK
        while first >= segment.end:
            segment += 1
        if first + SUM_BLOCK <= segment.end:
            for i in range(taps):
                offsets[i * blocks + k] = segment.start + first - segment.first + i * m.apart
        else:
            patches[number] = k
            number += 1
    for k in range(number):
        for i in range(taps):
            offsets[i * blocks + patches[k]] = patches_at + (i * number + k) * HALF_BLOCK
    return number


cdef void run_frame_taps(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t first_strand,
                         int64_t end_strand, int64_t tap, int64_t taps, int64_t rows, const Chunk* chunk, float* sums,
                         WeightsScratch* s) noexcept nogil:
    """Taps that meet the same numbers, from `tap` on, for the channels of some strands; the rows of the frame are cut."""
    cdef const MatrixRows* m = &plan.matrix
    cdef int64_t step = m.period * (w.K[2] if m.axis == 1 else 1), i, k, number, patches, strand, c, channels
    cdef int64_t frame_blocks = ceiling(s.framed_positions[rows - 1].first + s.framed_positions[rows - 1].count, SUM_BLOCK)
    cdef int64_t packed[MOST_PATCHES]
    cdef Reach reach
    cdef line_part* parts
    patches = place_blocks(plan, chunk.count, taps, frame_blocks * SUM_BLOCK, s.frame_segments, packed, s.offsets)
    reach_of(w, tap, &reach)
    if m.axis == 2:
        meet_inside(reach.start[2], w.s[2], w.X[2], w.Y[2] + m.halo, &reach.low, &reach.high)
    parts = s.parts + cut_parts(w, &reach, s.framed_positions, rows, 0, frame_blocks, s.parts)
    number = 0
    for i in range(taps if patches > 0 else 0):
        reach_of(w, tap + i * step, &reach)
        for k in range(patches):
            number += cut_parts(w, &reach, s.rows, chunk.row_count, packed[k], packed[k] + 1, parts + number)
    for strand in range(first_strand, end_strand):
        c = plan.tile_firsts[strand]
        channels = plan.tile_firsts[strand + 1] - c
        check_room(b"run_frame_taps", s.block + (channels - 1) * m.row_floats, 4 * (frame_blocks * SUM_BLOCK + taps * patches * HALF_BLOCK))
        plan.pairs.frame_rows(s.block, m.row_floats, SUM_BLOCK, channels, frame_blocks, s.parts, number_step(w),
                              large_at(w, part.g * w.large.g + c * w.large.c), w.large.format, w.large.c, &s.smallest_large)
        plan.pairs.block_rows(s.block + frame_blocks * SUM_BLOCK, m.row_floats, HALF_BLOCK, channels, taps * patches, parts, number_step(w),
                              large_at(w, part.g * w.large.g + c * w.large.c), w.large.format, w.large.c, &s.smallest_large)
        run_row_panels(plan, isa, part, strand * plan.taps + tap, step, taps, m.row_floats, chunk, sums, s)


cdef void run_frames(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t first_strand,
                     int64_t end_strand, const Chunk* chunk, float* sums, WeightsScratch* s) noexcept nogil:
    """All taps of some strands."""
    cdef const MatrixRows* m = &plan.matrix
    cdef int64_t rows = cut_segments(w, plan, chunk, s), tap, t
    for tap in range(plan.taps):
        t = tap // w.K[2] % w.K[1] if m.axis == 1 else tap % w.K[2]
        if t < m.period:  # the first of those that share a frame
            run_frame_taps(w, plan, isa, part, first_strand, end_strand, tap, ceiling(w.K[m.axis] - t, m.period), rows, chunk, sums, s)
