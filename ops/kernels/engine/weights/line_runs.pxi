"""Runs of the lines of a weights gradient (engine/weights/lines.pxi): which blocks of a chunk a tap meets, and where their pairs lie.

Where taps share lines, a block goes on behind a gap where a segment ends. The pairs of such a block are laid out once more, side by
side, for each tap: where a run is shorter than half a block, a tile takes all rows one half after the other, which is slower.

uses: engine/weights/gradient.pxi (Reach, Row, Weights, tap_at), engine/weights/lines.pxi (KEPT_TAPS, LINE_GAPS,
    gap_after, in_one_segment, row_start, taps_after), engine/weights/plan.pxi (Chunk, LinePatch, MOST_PATCHES,
    SharedTaps, WeightsPlan, WeightsScratch), engine/weights/positions.pxi (inside_of, reach_of)
gives: find_patches, keep_runs, keeps_runs, line_runs, most_line_runs, patch_lines, runs_of_tap
"""

cdef inline bint keeps_runs(const WeightsPlan* plan) noexcept nogil:
    """Whether the runs of all taps of a chunk are kept."""
    return plan.taps <= KEPT_TAPS


cdef inline int64_t most_line_runs(const WeightsPlan* plan) noexcept nogil:
    """Of a chunk: taps share lines in segments of at least one block."""
    return ceiling(plan.chunk, HALF_BLOCK) + plan.chunk // SUM_BLOCK + 3


cdef inline int64_t last_of_segment(const Row* rows, int64_t row_count, int64_t r, const SharedTaps* shared) noexcept nogil:
    """The last row of those in a segment that begin with row r."""
    while r + 1 < row_count and in_one_segment(&rows[r + 1], &rows[r], shared):
        r += 1
    return r


cdef bint find_patches(const Weights* w, const WeightsPlan* plan, const Chunk* chunk, const Row* rows, int64_t segments,
                       SharedTaps* shared) noexcept nogil:
    """The whole blocks in which a segment ends, as far as there is room for them behind the lines. Returns whether they have all pairs
    that reach beyond a segment."""
    cdef int64_t segment, r = 0, first, end, room, taps = taps_after(w, shared, 0) + 1, odd = 0  # patches that have such pairs
    shared.patch_count = 0
    for segment in range(segments - 1):
        r = last_of_segment(rows, chunk.row_count, r, shared) + 1
        end = rows[r].first
        first = end // SUM_BLOCK * SUM_BLOCK
        if first < end and first + SUM_BLOCK <= chunk.count and shared.patch_count < MOST_PATCHES:
            shared.patches[shared.patch_count] = LinePatch(first, end - first, segment)
            shared.patch_count += 1
            odd = shared.patch_count if end % 2 == 1 else odd
        elif end % 2 == 1:
            return False
    shared.patch_place = chunk.count + segments * gap_after(w, shared, 0)
    room = (LINE_GAPS + 1) * plan.chunk - shared.patch_place
    shared.patch_count = min(shared.patch_count, max(0, room) // (SUM_BLOCK * taps))
    return odd <= shared.patch_count


cdef inline int64_t patch_number(const SharedTaps* shared, int64_t later, int64_t patch) noexcept nogil:
    """Where a patch begins in a line, for the tap that is number `later` of those that share it."""
    return shared.patch_place + (later * shared.patch_count + patch) * SUM_BLOCK


cdef void patch_lines(const Weights* w, const WeightsPlan* plan, const SharedTaps* shared, int64_t tap, int64_t row, int64_t rows,
                      WeightsScratch* s) noexcept nogil:
    """Patches of lines, from row number `row` on, for tap `tap` of the axis and those that share the lines with it."""
    cdef int64_t later, i, before, to, gap = gap_after(w, shared, tap)
    if gap == 0:
        return
    for later in range(taps_after(w, shared, tap) + 1):
        for i in range(shared.patch_count):
            before = shared.patches[i].place + shared.patches[i].segment * gap + later * shared.apart
            to = patch_number(shared, later, i)
            check_room(b"patch_lines", row_start(plan, s, row) - 2 * (to + SUM_BLOCK - 1), (rows - 1) * plan.line_bytes + 2 * SUM_BLOCK)
            plan.pairs.patch_lines(row_start(plan, s, row), plan.line_bytes, rows, to, before, before + gap, shared.patches[i].met)


cdef int64_t line_runs(const instruction_set* isa, const Chunk* chunk, const SharedTaps* shared, int64_t gap,
                       WeightsScratch* s) noexcept nogil:
    """Runs of a chunk: halves of blocks. Of those in which a segment ends some are patched: their `rows` is positive, and
    `place_patches` makes it the place of a tap's patch. The others are cut."""
    cdef int64_t number = 0, k = 0, r = 0, end = chunk.count, skipped = 0, next_k, pitch = isa.vectors * isa.width
    cdef int64_t patch = 0, patches = shared.patch_count if gap > 0 else 0, half
    cdef tile_run* run
    while k < chunk.count:
        if gap > 0 and (k == 0 or k >= end):
            end = chunk.count
            if k > 0:
                skipped += gap
            r = last_of_segment(s.rows, chunk.row_count, r, shared) + 1
            if r < chunk.row_count:
                end = s.rows[r].first
        run = &s.runs[number]
        if patch < patches and k == shared.patches[patch].place:
            check_room(b"line_runs", run, 2 * sizeof(tile_run))
            for half in range(2):
                run[half] = tile_run(1 + patch * SUM_BLOCK + half * HALF_BLOCK, (k + half * HALF_BLOCK) // 2 * pitch, HALF_BLOCK // 2)
            number += 2
            patch += 1
            k += SUM_BLOCK
            continue
        next_k = min(end, (k // HALF_BLOCK + 1) * HALF_BLOCK)
        check_room(b"line_runs", run, sizeof(tile_run))
        run[0] = tile_run(-2 * (k + skipped), k // 2 * pitch, ceiling(next_k - k, 2))
        number += 1
        k = next_k
    return number


cdef inline void place_patches(const SharedTaps* shared, int64_t later, tile_run* runs, int64_t count) noexcept nogil:
    """The places of patched runs, for a tile whose offsets already lie `later` times `apart` numbers further."""
    cdef int64_t i
    for i in range(count):
        if runs[i].rows > 0:
            runs[i].rows = -2 * (patch_number(shared, later, 0) - later * shared.apart + runs[i].rows - 1)


cdef inline void blocks_met(const Row* row, int64_t low, int64_t high, int64_t block_lanes, int64_t* first, int64_t* end) noexcept nogil:
    """Lanes of the blocks that have positions [low, high) of a row."""
    first[0] = (row.first + low) // SUM_BLOCK * block_lanes
    end[0] = ((row.first + high - 1) // SUM_BLOCK + 1) * block_lanes


cdef bint meets_every_block(const Weights* w, const Reach* reach, const Chunk* chunk, const Row* rows, int64_t block_lanes) noexcept nogil:
    """Whether a tap meets the large side in every block of a chunk."""
    cdef int64_t r, low, high, first, end, met = 0
    cdef int64_t x[3]
    for r in range(chunk.row_count):
        if inside_of(w, reach, &rows[r], &low, &high, x):
            blocks_met(&rows[r], low, high, block_lanes, &first, &end)
            if first > met:
                return False
            met = end
    return chunk.runs[chunk.run_count - 1].lanes < met


cdef int64_t runs_inside(const Weights* w, const instruction_set* isa, int64_t tap, const Chunk* chunk, const WeightsScratch* s,
                         tile_run* met_runs) noexcept nogil:
    """Of the runs of a chunk those of blocks in which a tap meets the large side, to `met_runs`: the others would add zeros.  Returns
    their number."""
    cdef int64_t r, low, high, i = 0, number = 0, block_lanes = SUM_BLOCK // 2 * isa.vectors * isa.width, first, end
    cdef int64_t x[3]
    cdef Reach reach
    reach_of(w, tap, &reach)
    check_room(b"runs_inside", met_runs, chunk.run_count * sizeof(tile_run))
    if meets_every_block(w, &reach, chunk, s.rows, block_lanes):
        memcpy(met_runs, chunk.runs, chunk.run_count * sizeof(tile_run))
        return chunk.run_count
    for r in range(chunk.row_count):
        if not inside_of(w, &reach, &s.rows[r], &low, &high, x):
            continue
        blocks_met(&s.rows[r], low, high, block_lanes, &first, &end)
        while i < chunk.run_count and chunk.runs[i].lanes < first:
            i += 1
        while i < chunk.run_count and chunk.runs[i].lanes < end:
            met_runs[number] = chunk.runs[i]
            number += 1
            i += 1
    return number


cdef int64_t runs_of_tap(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t tap, Chunk* chunk,
                         const SharedTaps* shared, WeightsScratch* s, tile_run* runs) noexcept nogil:
    """The runs of a chunk that a tap needs; returns their number. The chunk's own are cut again where the tap's gap is another."""
    cdef int64_t t[3]
    cdef int64_t gap, number
    tap_at(w, tap, t)
    gap = gap_after(w, shared, t[shared.axis] % shared.period)
    if gap != chunk.gap:
        chunk.run_count, chunk.gap = line_runs(isa, chunk, shared, gap, s), gap
    if plan.padded:
        number = runs_inside(w, isa, tap, chunk, s, runs)
    else:
        check_room(b"runs_of_tap", runs, chunk.run_count * sizeof(tile_run))
        memcpy(runs, chunk.runs, chunk.run_count * sizeof(tile_run))
        number = chunk.run_count
    place_patches(shared, t[shared.axis] // shared.period, runs, number)
    return number


cdef void keep_runs(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, Chunk* chunk, const SharedTaps* shared,
                    WeightsScratch* s) noexcept nogil:
    """The runs of all taps, where there is room: all strands have the same."""
    cdef int64_t tap, most = most_line_runs(plan)
    for tap in range(plan.taps if keeps_runs(plan) else 0):
        s.met_counts[tap] = runs_of_tap(w, plan, isa, tap, chunk, shared, s, s.met_runs + tap * most)


