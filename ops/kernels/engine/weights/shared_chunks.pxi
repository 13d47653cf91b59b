"""What tasks of a weights gradient need of a chunk of positions, and would each compute: lane panels of the small side, runs of taps,
pieces of lines. Where the result is cut into parts of rows and all chunks are small enough, all threads compute it once, before
tasks begin.

uses: core/problem.pxi (Operand), engine/ahead.pxi (begin_ahead), engine/product/pairs.pxi (are_finite),
    engine/product/product.pxi (LINE_BYTES), engine/weights/blocks.pxi (pack_small), engine/weights/gradient.pxi (Row,
    Weights), engine/weights/line_runs.pxi (keep_runs, keeps_runs, most_line_runs), engine/weights/lines.pxi
    (KEPT_PIECES, KEPT_TAPS, keep_pieces, shared_taps), engine/weights/plan.pxi, engine/weights/positions.pxi
    (cut_rows, cut_tap_runs, most_rows), engine/weights/product.pxi (pack_lanes)
gives: can_share_chunks, lay_out_chunks, meet_chunk, share_chunks, shared_runs
"""

cdef enum:
    SHARED_CHUNKS = 32      # at most ...
    SHARED_BYTES = 5 << 20  # ... and bytes of all that they share: more would come from far away for every task


cdef inline int64_t shared_runs(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    """Of a tap in a chunk, at most: lines, of which halves of blocks and the end of a ring cut some."""
    return most_line_runs(plan) if plan.lines else most_rows(w, plan.chunk) + plan.chunk // HALF_BLOCK + 3


cdef inline int64_t shared_pieces(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    """Of the lines of a chunk, as many as there is room for."""
    return min(<int64_t>KEPT_PIECES, plan.taps * (plan.chunk // LINE_PIECE + most_rows(w, plan.chunk) + 2))


cdef bint can_share_chunks(const Weights* w, const instruction_set* isa, WeightsPlan* plan) noexcept nogil:
    """Notes how many chunks pieces have."""
    cdef double chunk = 4.0 * w.G * plan.panels * panel_floats(plan, isa) + plan.taps * shared_runs(w, plan) * sizeof(tile_run)
    if plan.lines:
        chunk += shared_pieces(w, plan) * sizeof(line_piece)
    plan.piece_chunks = ceiling(plan.cut.length, plan.chunk)
    return ((plan.lines and not plan.windows or not plan.packed and not plan.mixed) and keeps_runs(plan)
            and plan.cut.pieces * plan.piece_chunks <= SHARED_CHUNKS
            and plan.cut.pieces * plan.piece_chunks * chunk <= SHARED_BYTES)


cdef void lay_out_chunks(const Weights* w, WeightsPlan* plan, const instruction_set* isa, workspace* memory) noexcept nogil:
    cdef int64_t chunks = plan.cut.pieces * plan.piece_chunks if plan.shared else 0, i
    cdef SharedChunk counted
    cdef SharedChunk* k
    plan.chunks = <SharedChunk*>take(memory, chunks * sizeof(SharedChunk))
    for i in range(chunks):
        k = &plan.chunks[i] if memory.base != NULL else &counted
        k.rows = <Row*>take(memory, most_rows(w, plan.chunk) * sizeof(Row))
        k.pieces = <line_piece*>take(memory, shared_pieces(w, plan) * sizeof(line_piece) if plan.lines else 0)
        k.first_piece = <int64_t*>take(memory, (KEPT_TAPS + 1) * sizeof(int64_t) if plan.lines else 0)
        k.met_runs = <tile_run*>take(memory, plan.taps * shared_runs(w, plan) * sizeof(tile_run))
        k.met_counts = <int64_t*>take(memory, plan.taps * sizeof(int64_t))
        k.lanes = <float*>take(memory, 4 * w.G * plan.panels * panel_floats(plan, isa) + 64)


cdef inline float* chunk_lanes(const WeightsPlan* plan, const instruction_set* isa, const SharedChunk* k, int64_t g, int64_t panel) noexcept nogil:
    return k.lanes + (g * plan.panels + panel) * panel_floats(plan, isa)


cdef void share_runs(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, Chunk* chunk, SharedChunk* k,
                     WeightsScratch* s) noexcept nogil:
    """What all groups and panels need of the rows in `s`."""
    cdef WeightsScratch of_chunk = s[0]
    check_room(b"share_runs", k.rows, chunk.row_count * sizeof(Row))
    memcpy(k.rows, s.rows, chunk.row_count * sizeof(Row))
    k.row_count = chunk.row_count
    if not plan.lines:
        cut_tap_runs(w, plan, isa, k.rows, k.row_count, shared_runs(w, plan), k.met_runs, k.met_counts)
        return
    of_chunk.rows, of_chunk.pieces, of_chunk.first_piece = k.rows, k.pieces, k.first_piece
    of_chunk.piece_room, of_chunk.met_runs, of_chunk.met_counts = shared_pieces(w, plan), k.met_runs, k.met_counts
    k.shared = shared_taps(w, plan, chunk, &of_chunk)
    keep_pieces(w, isa, chunk, &k.shared, &of_chunk)
    keep_runs(w, plan, isa, chunk, &k.shared, &of_chunk)


cdef void share_chunk(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t number, int64_t g, int64_t panel,
                      WeightsScratch* s) noexcept nogil:
    """A lane panel of a chunk; with the first panel, what chunks have once."""
    cdef int64_t piece = number // plan.piece_chunks, end = piece_start(&plan.cut, piece + 1, plan.positions)
    cdef int64_t first = piece_start(&plan.cut, piece, plan.positions) + number % plan.piece_chunks * plan.chunk
    cdef SharedChunk* k = &plan.chunks[number]
    cdef float* lanes = chunk_lanes(plan, isa, k, g, panel)
    cdef Chunk chunk = Chunk(0, 0, s.runs, 0, False, -1)
    if first >= end:
        return
    end = min(end, first + plan.chunk)
    check_room(b"share_chunk", s.rows, most_rows(w, end - first) * sizeof(Row))
    chunk.count, chunk.row_count = end - first, cut_rows(w, first, end, s.rows)
    memset(lanes, 0, 4 * panel_floats(plan, isa))
    if plan.lines:
        pack_small(w, plan, isa, g, panel, chunk.row_count, chunk.count, lanes, s)
        s.unbounded = plan.padded and not are_finite(isa, plan.pairs, lanes, panel_floats(plan, isa))
        s.met_unbounded = s.met_unbounded or s.unbounded
    else:
        pack_lanes(w, plan, isa, g, panel, panel + 1, s.rows, chunk.row_count, lanes)
    if g == 0 and panel == 0:
        share_runs(w, plan, isa, &chunk, k, s)


cdef void share_chunks(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int threads, WeightsScratch* scratch) noexcept nogil:
    cdef int64_t panels = w.G * plan.panels, tasks = plan.cut.pieces * plan.piece_chunks * panels, task
    if threads == 1:
        for task in range(tasks):
            share_chunk(w, plan, isa, task // panels, task % panels // plan.panels, task % plan.panels, scratch)
    else:
        for task in prange(tasks, schedule="dynamic", num_threads=threads):
            share_chunk(w, plan, isa, task // panels, task % panels // plan.panels, task % plan.panels, &scratch[thread_number()])


cdef void ask_for_lanes(const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t number, WeightsScratch* s) noexcept nogil:
    """Tiles ask for the lanes of a chunk: those of lines, and tall ones, by `ask_ahead`, others in their wishes."""
    cdef int64_t panels = part.end_panel - part.first_panel, tiles = (part.end_strand - part.first_strand) * strand_tiles(plan)
    cdef float* place = chunk_lanes(plan, isa, &plan.chunks[number], part.g, part.first_panel)
    cdef NextLines* next = &s.next_lines[0]
    cdef Operand lanes
    if plan.lines or plan.tall:
        lanes.data, lanes.format, lanes.c, lanes.n = place, NUMBER_FLOAT32, panel_floats(plan, isa), 0
        s.ahead = begin_ahead(&lanes, 1, panels, 0, lanes.c, tiles, False)
        return
    next.channels = 4 * panels * panel_floats(plan, isa) // LINE_BYTES
    next.at_once = ceiling(next.channels, tiles * panels)
    next.wish.parts, next.wish.reach, next.wish.row_step, next.wish.place = 1, 0, LINE_BYTES, <char*>place
    next.wish.offsets[0] = 0


cdef void meet_chunk(const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t number, bint last, Chunk* chunk,
                     WeightsScratch* s) noexcept nogil:
    """What a task needs of a chunk; tiles ask for the lanes of the next one, unless it is the last of its piece."""
    cdef const SharedChunk* k = &plan.chunks[number]
    s.rows, s.shared, s.met_runs, s.met_counts = k.rows, k.shared, k.met_runs, k.met_counts
    s.lanes = chunk_lanes(plan, isa, k, part.g, part.first_panel)
    chunk.row_count = k.row_count
    s.ahead.left = s.next_lines[0].channel = s.next_lines[0].channels = s.next_lines[1].channel = s.next_lines[1].channels = 0
    if not last:
        ask_for_lanes(plan, isa, part, number + 1, s)
