"""Algorithm `weights_product`: `backward_weights` as a product over batch and space, the general case.

    taps[g,m,c,t] = SUM over n, y   large[n,g,c,y*s - b + t*d] * small[n,g,m,y]

Lanes of the product are the channels m of the small side, rows are (t, c), its reduction is (n, y), cut into pieces by
`core/reduction.h`.  A task takes some lanes and rows of one piece.  It packs a few hundred positions of the small side into
lane panels, [position][m], and runs all its row tiles over them.  The rows need no packing where the large side holds
floats: each tap walks the large side where it lies, along those runs of positions that it meets inside.  Stored numbers
other than floats are converted to rings first (engine/weights/kept.pxi). Tiles that mix taps (few channels), and rows for which
rings would be too large, go through a block of the large side, decoded and framed with zeros, that is laid out beforehand.

uses: engine/ahead.pxi (ask_ahead), engine/algorithms.pxi (Problem), engine/costs.pxi (BLOCKS_IN_PLACE, BLOCKS_PACKED,
    QUARTERS, narrow_panels), engine/product/pairs.pxi (never_subnormal, on_matrix, strided_of), engine/trials.pxi
    (trying), engine/weights/blocks.pxi (laid_out_wide), engine/weights/frames.pxi (frame_block, tap_offset),
    engine/weights/gradient.pxi (LineReach, Reach, Row, Weights, next_tap, tap_at), engine/weights/jobs.pxi
    (WeightsPass, run_pass), engine/weights/kept.pxi (keep_numbers), engine/weights/line_runs.pxi (keeps_runs),
    engine/weights/make_plan.pxi (make_plan), engine/weights/next_numbers.pxi (ask_for_chunk, next_wish),
    engine/weights/plan.pxi, engine/weights/positions.pxi, engine/weights/shared_chunks.pxi (lay_out_chunks,
    meet_chunk, share_chunks, shared_runs), engine/weights/sums.pxi (store_strands, strands_together, sums_from,
    tile_sums), engine/weights/windows.pxi (begin_windows, find_window_rows)
gives: fits_weights, lay_out_weights, pack_lanes, run_weights, run_weights_piece, weights_cycles
"""

cdef void pack_lanes(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t first_panel,
                     int64_t end_panel, const Row* rows, int64_t row_count, float* lanes) noexcept nogil:
    """Panels [position][m] of the small side."""
    cdef int64_t r, panel, offset = 0, next_offset = 0, start = 0, count = 0, m, lane_count
    cdef lane_span span
    cdef const Row* row = rows
    cdef float* place
    check_room(b"pack_lanes", lanes, 4 * (end_panel - first_panel) * panel_floats(plan, isa))
    for r in range(row_count + 1):
        # Rows that go on where the last one ended are packed as one.
        if r < row_count:
            row = &rows[r]
            offset = small_offset(w, g, row)
            if count > 0 and offset == next_offset:
                count += row.count
                next_offset += row.count * w.small.x[2]
                continue
        if count > 0:
            for panel in range(first_panel, end_panel):
                m = first_lane(plan, isa, panel)
                lane_count = min(w.M, first_lane(plan, isa, panel + 1)) - m
                span = lane_span(0, lane_count, next_offset - count * w.small.x[2] + m * w.small.c, w.small.c)
                place = lanes + (panel - first_panel) * panel_floats(plan, isa) + start * isa.vectors * isa.width
                isa.gather(place, isa.vectors * isa.width, count, w.small.data, w.small.format, w.small.x[2], &span, 1)
        if r < row_count:
            start, count, next_offset = row.first, row.count, offset + row.count * w.small.x[2]


cdef void row_offsets(const Weights* w, const WeightsPlan* plan, int64_t first, int64_t rows, int64_t* offsets) noexcept nogil:
    """Where rows first, first + 1, ... of (t, c) lie in a framed block, relative to tap 0 of channel 0."""
    cdef int64_t i, tap = first // w.C, c = first % w.C, start
    cdef int64_t t[3]
    tap_at(w, tap, t)
    start = tap_offset(w, plan, tap, t)
    for i in range(rows):
        if c == w.C:
            c = 0
            tap += 1
            next_tap(w, t)
            start = tap_offset(w, plan, tap, t)
        offsets[i] = start + c * plan.channel_floats
        c += 1


cdef void run_panels(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t tile, int64_t row,
                     int64_t rows, const int64_t* offsets, const tile_run* runs, int64_t run_count, bint resume, float* sums,
                     WeightsScratch* s) noexcept nogil:
    """Some rows of a tile, from `row` on, against all lane panels of a task. Of more than TILE_ROWS, which are equally far apart, `offsets`
    has the first two."""
    cdef int64_t panel, vectors, step = large_step(w, plan)
    cdef const float* source = s.block if plan.framed else <const float*>w.large.data + part.g * w.large.g
    cdef float* c
    cdef strided_function run_it
    for panel in range(part.first_panel, part.end_panel):
        vectors = panel_vectors(plan, panel)
        c = tile_sums(plan, sums, tile, panel) + row * vectors * isa.width
        check_room(b"run_panels", c, 4 * rows * vectors * isa.width)
        if plan.tall:
            ask_ahead(&s.ahead)
        if rows > TILE_ROWS:
            isa.tall[rows - TILE_ROWS - 1](runs, run_count, source + offsets[0], offsets[1] - offsets[0], step, s.lanes, isa.vectors * isa.width,
                                           c, resume)
            continue
        run_it = strided_of(isa, plan.blocks, rows, vectors)
        run_it(
            runs, run_count, source, offsets, step, s.lanes + (panel - part.first_panel) * panel_floats(plan, isa),
            isa.vectors * isa.width, c, resume, next_wish(s))


cdef void run_row_tile(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t tile,
                       Chunk* chunk, bint one_by_one, float* sums, WeightsScratch* s) noexcept nogil:
    """A row tile that mixes taps; `one_by_one`: each row along the runs of its own tap."""
    cdef int64_t first = tile_start(w, plan, tile), rows = tile_rows(plan, tile), i, run_count
    cdef int64_t offsets[TILE_ROWS]
    cdef LineReach lines
    cdef Reach reach
    row_offsets(w, plan, first, rows, offsets)
    if not one_by_one:
        lines = reach_of_taps(w, first // w.C, (first + rows - 1) // w.C, &chunk.outer)
        if chunk.run_count < 0 or memcmp(&lines, &chunk.reach, sizeof(LineReach)) != 0:
            chunk.reach = lines
            chunk.run_count = tap_runs(w, plan, isa, NULL, &lines, s.rows, chunk.row_count, s.runs)
        if chunk.run_count > 0 or not chunk.resume:
            run_panels(w, plan, isa, part, tile, 0, rows, offsets, chunk.runs, chunk.run_count, chunk.resume, sums, s)
        return
    for i in range(rows):
        reach_of(w, (first + i) // w.C, &reach)
        run_count = tap_runs(w, plan, isa, &reach, NULL, s.rows, chunk.row_count, s.runs)
        run_panels(w, plan, isa, part, tile, i, 1, offsets + i, s.runs, run_count, chunk.resume, sums, s)


cdef void run_strands(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t first_strand,
                      int64_t end_strand, int64_t tap, int64_t channel, const Chunk* chunk, float* sums, WeightsScratch* s) noexcept nogil:
    """The row tiles of one tap in some strands; in a framed block `channel` lies first."""
    cdef int64_t strand, c, rows, i, start, step = plan.channel_floats if plan.framed else w.large.c
    cdef int64_t offsets[TILE_ROWS]
    cdef int64_t t[3]
    tap_at(w, tap, t)
    start = tap_offset(w, plan, tap, t)
    for strand in range(first_strand, end_strand):
        c = plan.tile_firsts[strand]
        rows = plan.tile_firsts[strand + 1] - c
        for i in range(min(rows, TILE_ROWS)):
            offsets[i] = start + (c + i - channel) * step
        run_panels(w, plan, isa, part, strand * plan.taps + tap, 0, rows, offsets, chunk.runs, chunk.run_count, chunk.resume, sums, s)


cdef bint all_sums_finite(const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t first_tile,
                          int64_t end_tile, float* sums) noexcept nogil:
    cdef int64_t tile, panel
    for tile in range(first_tile, end_tile):
        for panel in range(part.first_panel, part.end_panel):
            if not isa.finite(tile_sums(plan, sums, tile, panel), tile_rows(plan, tile) * panel_vectors(plan, panel) * isa.width):
                return False
    return True


cdef void run_weights_piece(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part,
                            int64_t piece, float* space, WeightsScratch* s) noexcept nogil:
    """A part of one piece, into the sums at `space`, or into the result.

    Where sums of a framed block are not finite, something infinite may have met a zero of the frame: they are computed again."""
    if not sum_weights_piece(w, plan, isa, part, piece, False, space, s):
        sum_weights_piece(w, plan, isa, part, piece, True, space, s)


cdef bint sum_weights_piece(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part,
                            int64_t piece, bint one_by_one, float* space, WeightsScratch* s) noexcept nogil:
    """Returns false where rows must be taken `one_by_one`, each along the runs of its own tap."""
    cdef int64_t first = piece_start(&plan.cut, piece, plan.positions), end, tap, tile, channel = 0, channels
    cdef int64_t piece_end = piece_start(&plan.cut, piece + 1, plan.positions), c0, c1, together
    cdef int64_t first_panel = part.first_panel, end_panel = part.end_panel, first_kept, end_kept, number = piece * plan.piece_chunks
    cdef int64_t most = shared_runs(w, plan)
    cdef bint kept_runs = not plan.mixed and keeps_runs(plan)
    cdef float* sums = sums_from(plan, space, part.first_strand, first_panel)
    cdef Reach reach
    cdef Chunk chunk = Chunk(0, 0, s.runs, 0, False, -1)
    cdef bint last
    if not plan.shared:
        memset(s.lanes, 0, 4 * (end_panel - first_panel) * panel_floats(plan, isa))
    while True:
        end = min(piece_end, first + plan.chunk)
        last = end >= piece_end
        chunk.count = end - first
        if plan.shared:
            meet_chunk(plan, isa, part, number, last, &chunk, s)
            number += 1
        else:
            check_room(b"run_weights_piece", s.rows, most_rows(w, end - first) * sizeof(Row))
            chunk.row_count = cut_rows(w, first, end, s.rows)
            pack_lanes(w, plan, isa, part.g, first_panel, end_panel, s.rows, chunk.row_count, s.lanes)
            ask_for_chunk(w, plan, isa, part, end, min(piece_end, end + plan.chunk), s)
            if kept_runs:
                cut_tap_runs(w, plan, isa, s.rows, chunk.row_count, most, s.met_runs, s.met_counts)
        if plan.mixed:
            frame_block(w, plan, isa, part.g, 0, w.C, tile_start(w, plan, part.first_strand) // w.C,
                        ceiling(tile_start(w, plan, part.end_strand), w.C), s.rows, chunk.row_count, s.block)
            chunk.outer = outer_reach(w, s.rows, chunk.row_count)
            chunk.run_count = -1
        together = strands_together(plan, plan.channels if plan.framed and not plan.mixed else plan.strands, last)
        c0 = part.first_strand
        while c0 < part.end_strand:
            c1 = min(part.end_strand, c0 + together)
            if plan.kept:
                first_kept = c0 - (c0 - part.first_strand) % plan.channels
                end_kept = min(part.end_strand, first_kept + plan.channels)
                c1 = min(c1, end_kept)
            if not chunk.resume and last and plan.sums.together > 0:
                sums = sums_from(plan, space, c0, first_panel)
            if plan.mixed:
                for tile in range(c0, c1):
                    run_row_tile(w, plan, isa, part, tile, &chunk, one_by_one, sums, s)
                if last and plan.padded and not one_by_one and not all_sums_finite(plan, isa, part, c0, c1, sums):
                    return False
            else:
                if plan.kept:
                    channel = plan.tile_firsts[first_kept]
                    channels = plan.tile_firsts[end_kept] - channel
                    keep_numbers(w, plan, isa, part.g, channel, channels, s.rows, chunk.row_count, s)
                elif plan.framed:
                    channel = plan.tile_firsts[c0]
                    channels = plan.tile_firsts[c1] - channel
                    frame_block(w, plan, isa, part.g, channel, channels, 0, plan.taps, s.rows, chunk.row_count, s.block)
                for tap in range(plan.taps):
                    if kept_runs:
                        chunk.runs, chunk.run_count = s.met_runs + tap * most, s.met_counts[tap]
                    else:
                        reach_of(w, tap, &reach)
                        chunk.run_count = tap_runs(w, plan, isa, &reach, NULL, s.rows, chunk.row_count, s.runs)
                    if chunk.run_count > 0 or not chunk.resume:
                        run_strands(w, plan, isa, part, c0, c1, tap, channel, &chunk, sums, s)
            if last and plan.sums.together > 0:
                store_strands(w, plan, isa, part, c0, c1, sums)
            c0 = c1
        first = end
        chunk.resume = True
        if last:
            return True


cdef inline bint pairs_pay(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    """Whether products in pairs save more than it costs to lay out rows whose positions are apart."""
    cdef int64_t step = 1 if laid_out_wide(w, plan) or plan.windows else magnitude(w.s[2] * w.large.x[2])
    if plan.lines and plan.mixed and not plan.windows:
        return False
    return trying or w.M >= PAIR_LANES * (min(step, 3) - 1)


cdef bint fits_weights(Problem* q) noexcept nogil:
    cdef WeightsPlan* plan = &q.weights_plan
    cdef Weights* w = q.weights
    cdef int64_t waiting
    if w == NULL or w.large.format == NUMBER_FLOAT64 or w.cut.chains > 1:
        return False
    make_plan(w, q.isa, q.pairs, q.threads, plan)
    if q.pairs != NULL and not pairs_pay(w, plan):
        return False
    plan.groups_at_once, plan.row_parts_at_once, plan.waiting_bytes = w.G, plan.row_parts, 0
    if not plan.sums.at_once:
        waiting = 4 * plan.sums.blocks * plan.panel_parts * plan.sums.task_floats  # bytes for a row part
        plan.row_parts_at_once = min(plan.row_parts, max(1, <int64_t>PARTIAL_BYTES // waiting))
        plan.groups_at_once = min(w.G, max(1, <int64_t>PARTIAL_BYTES // (waiting * plan.row_parts)))
        plan.waiting_bytes = plan.groups_at_once * plan.row_parts_at_once * waiting
        if plan.row_parts_at_once < plan.row_parts:
            plan.sums.whole = 0
    return True


cdef double weights_cycles(const Problem* q) noexcept nogil:
    """Narrow panels wait for the rows; lanes beyond the channels are computed too."""
    cdef const WeightsPlan* plan = &q.weights_plan
    cdef double factor = plan.vectors * q.isa.width / <double>q.weights.M
    if q.pairs == NULL or on_matrix(q.pairs):
        factor *= narrow_panels(plan.vectors, q.isa)
    if plan.blocks and not on_matrix(q.pairs):
        factor *= BLOCKS_IN_PLACE if q.pairs == NULL else BLOCKS_PACKED
    return plan.quarters / QUARTERS * factor * q.weights.G * plan.positions


cdef void lay_out_weights(Problem* q, workspace* memory) noexcept nogil:
    cdef WeightsPlan* plan = &q.weights_plan
    cdef WeightsScratch counted
    cdef int worker
    plan.scratch = <WeightsScratch*>take(memory, q.threads * sizeof(WeightsScratch))
    for worker in range(q.threads):
        lay_out_weights_scratch(&plan.scratch[worker] if memory.base != NULL else &counted, q.weights, plan, q.isa, memory)
    plan.tap_offsets = <int64_t*>take(memory, plan.taps * sizeof(int64_t))
    plan.first_vectors = <int64_t*>take(memory, (plan.panels + 1) * sizeof(int64_t))
    plan.tile_firsts = <int64_t*>take(memory, (plan.strands + 1) * sizeof(int64_t))
    plan.waiting = <float*>take(memory, plan.waiting_bytes)
    lay_out_chunks(q.weights, plan, q.isa, memory)
    plan.window_rows = <WindowRow*>take(memory, q.weights.C * plan.taps * sizeof(WindowRow) if plan.windows else 0)


cdef bint run_weights(Problem* q, workspace* memory) noexcept nogil:
    """Returns false where pairs do not do, as in `run_product_plan`."""
    cdef WeightsPlan* plan = &q.weights_plan
    cdef const Weights* w = q.weights
    cdef WeightsScratch* scratch = plan.scratch
    cdef WeightsPass some
    cdef bint unbounded = False
    cdef uint16_t smallest_large = 0xffff, smallest_small = 0xffff
    cdef int64_t t[3]
    cdef int64_t tap
    cdef int worker
    check_room(b"run_weights", plan.tap_offsets, plan.taps * sizeof(int64_t))
    for tap in range(plan.taps):
        tap_at(w, tap, t)
        plan.tap_offsets[tap] = t[0] * w.taps_stride[3] + t[1] * w.taps_stride[4] + t[2] * w.taps_stride[5]
    note_shares(w, q.isa, plan)
    if plan.windows:
        find_window_rows(&plan.windowed, plan)
        for worker in range(q.threads):
            begin_windows(plan, &scratch[worker])
    if plan.shared:
        share_chunks(w, plan, q.isa, q.threads, scratch)
        for worker in range(q.threads):
            if scratch[worker].met_unbounded:
                return False
    some.sums = plan.waiting
    some.first_group = 0
    while some.first_group < w.G:
        some.groups = min(plan.groups_at_once, w.G - some.first_group)
        some.first_row_part = 0
        while some.first_row_part < plan.row_parts:
            some.row_parts = min(plan.row_parts_at_once, plan.row_parts - some.first_row_part)
            run_pass(w, plan, &some, q.isa, q.threads, scratch)
            some.first_row_part += some.row_parts
        some.first_group += some.groups
    for worker in range(q.threads):
        smallest_large = min(smallest_large, scratch[worker].smallest_large)
        smallest_small = min(smallest_small, scratch[worker].smallest_small)
        unbounded = unbounded or scratch[worker].met_unbounded
    return q.pairs == NULL or not unbounded and never_subnormal(smallest_large, smallest_small)
