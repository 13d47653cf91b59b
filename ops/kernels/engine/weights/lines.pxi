"""Rows of blocks that are lines: the tiles of a weights gradient whose rows are numbers of the large side one after the other, as
a tap meets them at the positions of a chunk, zeros outside.

Taps that differ in their row alone meet the same lines of the large side, some lines apart, where the step from line to line
allows it. Such taps share what is laid out: it goes on beyond the positions of the chunk, and each tap begins some lines later.
Where a plane is one line, taps share it in the same way, some positions apart; of small volumes, those that differ in their plane
alone share planes.
A segment is a part of the chunk whose lines follow one another, that is, a plane or a part of it, or of volumes that share planes
an image or a part of it; what is laid out for it is longer than the segment by a gap.

Lines are bfloat16 codes that run backwards, of which dot products take pairs at any position.  Tiles that mix taps have windows
instead (engine/weights/windows.pxi).

uses: core/caches.pxi (nearest_cache), engine/ahead.pxi (ask_ahead), engine/product/pairs.pxi (on_matrix),
    engine/product/product.pxi (LINE_BYTES), engine/weights/blocks.pxi (PAIRS_CACHE, laid_out_wide),
    engine/weights/gradient.pxi (Row, Weights, large_at), engine/weights/line_runs.pxi (find_patches, keeps_runs,
    most_line_runs, patch_lines, runs_of_tap), engine/weights/plan.pxi, engine/weights/positions.pxi (in_one_plane),
    engine/weights/sums.pxi (tile_sums)
gives: KEPT_PIECES, KEPT_TAPS, LINE_GAPS, LINE_PART, LINE_TILES, gap_after, has_lines, in_one_segment, keep_pieces,
    number_step, parts_pay, plan_lines, row_pair, row_start, run_line_strands, run_line_tile, shared_taps, taps_after
"""

cdef enum:
    LINE_TILES = 16         # row tiles that are ready together, of taps and channels, for one lane panel after another ...
    LINES_BYTES = 14 << 10  # ... whose lines stay in the nearest cache beside a panel, twice as many beside one of PAIRS_CACHE
    LINE_GAPS = 3           # lines of at most so many more chunks are laid out for taps that share them
    SHARED_BLOCKS = 3       # blocks of a plane, at least, whose taps share lines: where a segment ends a block is patched or cut
    LINE_PART = 3           # rows of a part of a tile with three vectors of lanes: of fewer, dot products wait for one another
    KEPT_PIECES = 1 << 12   # of lines, of all taps ...
    KEPT_TAPS = 1 << 7      # ... of which there may be so many; and of the runs of taps


cdef inline bint has_lines(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    """Whether rows are lines: of pairs, but for matrix units, and not where channels lie side by side."""
    return plan.blocks and plan.pairs != NULL and not on_matrix(plan.pairs) and not laid_out_wide(w, plan)


cdef inline bint parts_pay(const Weights* w, const WeightsPlan* plan, const instruction_set* isa) noexcept nogil:
    """Whether nearly all rows lie in whole parts of LINE_PART, and meet three vectors of lanes."""
    return not plan.mixed and w.C > TILE_ROWS and plan.vectors >= isa.vectors


cdef inline int64_t shared_axis(const Weights* w) noexcept nogil:
    """Without a stride along lines, laying a line out costs less than blocks that are cut where an image ends."""
    return 2 if w.Y[1] == 1 and w.K[1] == 1 and w.s[2] > 1 else 1


cdef inline int64_t group_count(const Weights* w, const SharedTaps* shared) noexcept nogil:
    """Of taps that share lines."""
    return w.K[0] * w.K[1] * w.K[2] // w.K[shared.axis] * shared.period


cdef void plan_lines(const Weights* w, WeightsPlan* plan) noexcept nogil:
    """The bytes of a line: an odd number of cache lines, one of them for what a copy overruns. And how many tiles have lines."""
    cdef int64_t numbers = plan.chunk + 2
    if max(w.K[0], w.K[shared_axis(w)]) > 1:
        numbers += LINE_GAPS * plan.chunk
    plan.line_bytes = (ceiling(2 * numbers, LINE_BYTES) + 1 | 1) * LINE_BYTES
    plan.line_groups = max(1, min(LINE_TILES, LINES_BYTES * (2 if nearest_cache >= PAIRS_CACHE else 1) // (2 * plan.chunk * plan.rows)))


cdef inline int64_t number_step(const Weights* w) noexcept nogil:
    """From a number of a line to the next that a tap meets."""
    return w.s[2] * w.large.x[2]


cdef inline bint in_one_segment(const Row* a, const Row* b, const SharedTaps* shared) noexcept nogil:
    return a.n == b.n if shared.axis == 0 else in_one_plane(a, b)


cdef int64_t segments_of(const Row* rows, int64_t row_count, const SharedTaps* shared) noexcept nogil:
    """How many segments a chunk has."""
    cdef int64_t r, segments = 1
    for r in range(1, row_count):
        if not in_one_segment(&rows[r], &rows[r - 1], shared):
            segments += 1
    return segments


cdef void share_along(const Weights* w, const WeightsPlan* plan, const Chunk* chunk, const Row* rows, int64_t axis, SharedTaps* best,
                      int64_t* least) noexcept nogil:
    """Let taps along an axis share lines, where that lays out fewer numbers for all of them than `least`."""
    cdef int64_t divisor = common_divisor(w.s[axis], w.d[axis]), first, segments, laid_out = 0, most = LINE_GAPS * plan.chunk
    cdef int64_t unit = w.Y[1] * w.Y[2] if axis == 0 else w.Y[2] if axis == 1 else 1  # positions from an index of the axis to the next
    cdef int64_t positions = w.Y[0] * unit if axis == 0 else w.Y[1] * w.Y[2]       # of a whole segment
    cdef SharedTaps shared = best[0]
    shared.axis, shared.period = axis, w.s[axis] // divisor
    if (shared.period >= w.K[axis] or positions < SHARED_BLOCKS * SUM_BLOCK and positions % SUM_BLOCK != 0
            or chunk.count % 2 == 1 or unit > most or w.d[axis] // divisor > most):  # the gap would be longer than lines have room for
        return
    shared.apart = w.d[axis] // divisor * unit
    segments = segments_of(rows, chunk.row_count, &shared)
    if (gap_after(w, &shared, 0) > most or segments * gap_after(w, &shared, 0) > most
            or not find_patches(w, plan, chunk, rows, segments, &shared)):
        return
    for first in range(shared.period):
        laid_out += chunk.count + segments * gap_after(w, &shared, first)
    laid_out *= w.K[0] * w.K[1] * w.K[2] // w.K[axis]
    if laid_out < least[0]:
        best[0], least[0] = shared, laid_out


cdef SharedTaps shared_taps(const Weights* w, const WeightsPlan* plan, const Chunk* chunk, const WeightsScratch* s) noexcept nogil:
    """Taps share lines where that lays out less, and no pair that is not patched reaches beyond a segment."""
    cdef int64_t axis = shared_axis(w), least = chunk.count * w.K[0] * w.K[1] * w.K[2]
    cdef SharedTaps best
    best.axis, best.period, best.apart, best.patch_count = axis, w.K[axis], 0, 0
    best.pieces, best.first_piece = NULL, NULL
    if not s.unbounded:
        share_along(w, plan, chunk, s.rows, axis, &best, &least)
        share_along(w, plan, chunk, s.rows, 0, &best, &least)
    return best


cdef inline int64_t row_pair(const WeightsPlan* plan, int64_t row) noexcept nogil:
    """The first pair of a row that is a line, in bytes from the first line on."""
    return (row + 1) * plan.line_bytes - 4


cdef inline char* row_start(const WeightsPlan* plan, WeightsScratch* s, int64_t row) noexcept nogil:
    """Where the line of a row begins: at the upper number of its first pair."""
    return <char*>s.block + row_pair(plan, row) + 2


cdef int64_t add_pieces(const Weights* w, const Row* part, const int64_t* t, int64_t place, bint joined, line_piece* pieces,
                        int64_t number) noexcept nogil:
    """What tap t meets at positions of one line, from channel 0 of group 0 on; returns the number of pieces. If `joined`, a line goes
    on in the last piece of the line before where it lies as in memory."""
    cdef int64_t x0 = part.y[0] * w.s[0] - w.b[0] + t[0] * w.d[0], x1 = part.y[1] * w.s[1] - w.b[1] + t[1] * w.d[1]
    cdef int64_t x2 = part.y[2] * w.s[2] - w.b[2] + t[2] * w.d[2], low = 0, high = 0, done = 0, some, source, first, step
    cdef line_piece* piece
    if 0 <= x0 < w.X[0] and 0 <= x1 < w.X[1]:
        meet_inside(x2, w.s[2], w.X[2], part.count, &low, &high)
    source = part.n * w.large.n + x0 * w.large.x[0] + x1 * w.large.x[1] + x2 * w.large.x[2]
    step = number_step(w)
    while done < part.count:
        piece = &pieces[number - 1]
        if not (joined and number > 0 and piece.count < LINE_PIECE and piece.source - piece.place == source - place):
            check_room(b"add_pieces", &pieces[number], sizeof(line_piece))
            pieces[number] = line_piece(source + done * step, 0, <int32_t>(place + done), 0, 0, 0, 0, 0, 0)
            piece = &pieces[number]
            number += 1
        first = piece.count
        if joined and first == 0 and low <= done and min(high, part.count) >= done + 2 * LINE_PIECE:
            piece.more = <int32_t>((min(high, part.count) - done) // LINE_PIECE - 1)
            piece.count, piece.high, piece.mask = LINE_PIECE, LINE_PIECE, bits_from(0, LINE_PIECE)
            done += (piece.more + 1) * LINE_PIECE
            continue
        some = min(LINE_PIECE - first, part.count - done)
        piece.low, piece.high = <int32_t>(max(low - done, 0)), <int32_t>(min(high - done, some))
        piece.low = min(piece.low, piece.high) if piece.high > 0 else 0
        piece.high = max(piece.high, 0)
        piece.mask |= bits_from(first + piece.low, first + piece.high)
        piece.count += <int32_t>some
        done += some
    return number


cdef inline bint is_whole_image(const Weights* w, const Row* rows, int64_t row_count, int64_t r) noexcept nogil:
    """Whether an image begins with row r, all of which a chunk has."""
    cdef int64_t last = r + w.Y[0] * w.Y[1] - 1
    return rows[r].y[0] == rows[r].y[1] == rows[r].y[2] == 0 and last < row_count and rows[last].count == w.Y[2]


cdef int64_t repeat_pieces(line_piece* pieces, int64_t number, int64_t count, int64_t further, int64_t apart) noexcept nogil:
    """The last `count` pieces once more, from `further` elements on and `apart` places later; returns the number of pieces."""
    cdef int64_t i
    check_room(b"repeat_pieces", &pieces[number], count * sizeof(line_piece))
    for i in range(number, number + count):
        pieces[i] = pieces[i - count]
        pieces[i].source += further
        pieces[i].place += <int32_t>apart
    return number + count


cdef int64_t merge_pieces(int64_t step, line_piece* pieces, int64_t number) noexcept nogil:
    """Short lines that are equally far apart as one piece, where a vector holds what is loaded of each; returns the number of pieces."""
    cdef int64_t i, kept = 0, each, lines
    cdef line_piece* piece = pieces
    cdef const line_piece* next_piece
    if not 1 <= step <= LINE_PIECE:
        return number
    for i in range(1, number):
        next_piece = &pieces[i]
        each = piece.each if piece.each > 0 else piece.count
        lines = piece.count // each
        if (next_piece.count == each and (lines + 1) * each <= LINE_PIECE and (each - 1) * step < LINE_PIECE and next_piece.place == piece.place + piece.count
                and next_piece.mask == piece.mask and piece.more == next_piece.more == 0
                and (lines == 1 or next_piece.source == piece.source + lines * piece.further)):
            if lines == 1:
                piece.each, piece.further = <int32_t>each, next_piece.source - piece.source
            piece.count += <int32_t>each
            continue
        kept += 1
        piece = &pieces[kept]
        piece[0] = next_piece[0]
    return min(number, kept + 1)


cdef int64_t cut_pieces(const Weights* w, const Chunk* chunk, const SharedTaps* shared, const Row* rows, const int64_t* t, bint joined,
                        line_piece* pieces) noexcept nogil:
    """What tap t, and others after it, meet at the positions of a chunk; returns the number of pieces. Whole images have the same,
    `w.large.n` apart, and so have, unless `joined`, whole lines of a plane inside, or outside."""
    cdef int64_t r = 0, place = 0, left, number = 0, gap = gap_after(w, shared, t[shared.axis]), x1
    cdef int64_t image = 0, image_place = 0  # the first piece and the place of the last image ...
    cdef int64_t count, apart                # ... and how many it has of either
    cdef int64_t line = 0                    # the first piece of the last line
    cdef bint repeats = False, inside, whole, last_inside = False, last_whole = False
    cdef Row part, last
    last = rows[0]
    while r < chunk.row_count:
        if is_whole_image(w, rows, chunk.row_count, r):
            count, apart = number - image, place - image_place
            image, image_place = number, place
            if repeats:
                number = repeat_pieces(pieces, number, count, w.large.n, apart)
                place += apart
                r += w.Y[0] * w.Y[1]
                last_whole = False
                continue
            repeats = True
        part = rows[r]
        left = part.count
        r += 1
        if gap > 0:
            while r < chunk.row_count and in_one_segment(&rows[r], &part, shared):
                left += rows[r].count
                r += 1
            left += gap
        while left > 0:
            part.count = left if shared.axis == 2 else min(left, w.Y[2] - part.y[2])
            x1 = part.y[1] * w.s[1] - w.b[1] + t[1] * w.d[1]
            inside, whole = 0 <= x1 < w.X[1], part.count == w.Y[2] and not joined
            if (last_whole and whole and inside == last_inside and in_one_plane(&part, &last)
                    and part.y[1] == last.y[1] + 1):
                count = number - line
                line = number
                number = repeat_pieces(pieces, number, count, w.s[1] * w.large.x[1], part.count)
            else:
                line = number
                number = image + add_pieces(w, &part, t, place, joined, pieces + image, number - image)
            last, last_inside, last_whole = part, inside, whole
            place += part.count
            left -= part.count
            part.y[1] += 1
            part.y[2] = 0
            if shared.axis == 0 and part.y[1] == w.Y[1]:
                part.y[0] += 1
                part.y[1] = 0
    return merge_pieces(number_step(w), pieces, number)


cdef inline bint pieces_joined(const Weights* w, const instruction_set* isa) noexcept nogil:
    """Whether pieces are loaded under a mask."""
    return isa.copy != NULL and number_step(w) == 1


cdef inline int64_t taps_after(const Weights* w, const SharedTaps* shared, int64_t tap) noexcept nogil:
    """How many taps after tap `tap` of the axis share lines with it."""
    return (w.K[shared.axis] - 1 - tap) // shared.period


cdef inline int64_t gap_after(const Weights* w, const SharedTaps* shared, int64_t tap) noexcept nogil:
    """Positions that these taps meet beyond a segment."""
    return taps_after(w, shared, tap) * shared.apart


cdef inline void first_of_group(const Weights* w, const SharedTaps* shared, int64_t group, int64_t* t) noexcept nogil:
    """The first tap of a group. Groups of one residue follow one another: with a stride along lines they meet the same cache lines."""
    cdef int64_t inner = 1 if shared.axis == 2 else 2, others = w.K[inner]
    t[inner], t[shared.axis] = group % others, group // others % shared.period
    t[3 - shared.axis - inner] = group // others // shared.period


cdef void keep_pieces(const Weights* w, const instruction_set* isa, const Chunk* chunk, SharedTaps* shared,
                      WeightsScratch* s) noexcept nogil:
    """The pieces of all taps, of those that share lines once, where there is room: each strand lays out the same."""
    cdef int64_t t[3]
    cdef int64_t number = 0, groups = group_count(w, shared), group, gap = gap_after(w, shared, 0), most
    cdef bint joined = pieces_joined(w, isa)
    most = gap // LINE_PIECE + 1 if shared.axis == 2 else gap // w.Y[2] * (1 + w.Y[2] // LINE_PIECE)
    most = chunk.count // LINE_PIECE + chunk.row_count + segments_of(s.rows, chunk.row_count, shared) * (most + 1)
    if groups > KEPT_TAPS:
        return
    for group in range(groups):
        if number + most > s.piece_room:
            return
        first_of_group(w, shared, group, t)
        s.first_piece[group] = number
        number += cut_pieces(w, chunk, shared, s.rows, t, joined, s.pieces + number)
    s.first_piece[groups] = number
    shared.pieces, shared.first_piece = s.pieces, s.first_piece


cdef void lay_out_lines(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const Chunk* chunk, const SharedTaps* shared,
                        int64_t group, const int64_t* t, int64_t start, int64_t channels, int64_t row, WeightsScratch* s) noexcept nogil:
    """What a group of taps, the first of which is t, meets at the positions of a chunk, in some channels, the first of which begins at
    element `start`; from row number `row` on."""
    cdef int64_t i, number
    cdef char* first = row_start(plan, s, row)
    cdef const line_piece* pieces = s.pieces
    cdef const line_piece* last
    cdef bint joined = pieces_joined(w, isa)
    check_room(b"lay_out_lines", <char*>s.block + row * plan.line_bytes, channels * plan.line_bytes)
    if shared.pieces != NULL:
        pieces = shared.pieces + shared.first_piece[group]
        number = shared.first_piece[group + 1] - shared.first_piece[group]
    else:
        number = cut_pieces(w, chunk, shared, s.rows, t, joined, s.pieces)
    last = &pieces[number - 1]
    # No line reaches into the one before, as the first would begin before the block.
    check_room(b"lay_out_lines", <char*>s.block + plan.line_bytes - 2 * (last.place + last.count + last.more * LINE_PIECE), plan.line_bytes)
    plan.pairs.lay_lines(
        first, plan.line_bytes, channels, pieces, number, large_at(w, start), w.large.format, w.large.c, number_step(w), &s.smallest_large)
    if chunk.count % 2 == 1:
        for i in range(channels):  # the other number of the last pair
            (<uint16_t*>(first + i * plan.line_bytes) - chunk.count)[0] = 0


cdef void run_line_panel(const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t tile,
                         int64_t rows, int64_t panel, int64_t vectors, const tile_run* runs, int64_t run_count, bint resume,
                         const char* base, const int64_t* offsets, float* sums, WeightsScratch* s) noexcept nogil:
    """A row tile against a lane panel; each row's first pair lies `offsets` bytes after `base`."""
    cdef float* c = tile_sums(plan, sums, tile, panel)
    if panel == part.first_panel:
        ask_ahead(&s.ahead)
    check_room(b"run_line_panel", c, 4 * rows * vectors * isa.width)
    plan.pairs.line_blocks(rows, vectors, runs, run_count, base, offsets, s.lanes + (panel - part.first_panel) * panel_floats(plan, isa),
                           isa.vectors * isa.width, c, resume)


cdef void run_line_tile(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t tile,
                        const Chunk* chunk, const char* base, const int64_t* offsets, float* sums, WeightsScratch* s) noexcept nogil:
    """A row tile against all lane panels of a task, as `run_line_panel`."""
    cdef int64_t panel, rows = tile_rows(plan, tile)
    for panel in range(part.first_panel, part.end_panel):
        run_line_panel(plan, isa, part, tile, rows, panel, panel_vectors(plan, panel), chunk.runs, chunk.run_count, chunk.resume, base,
                       offsets, sums, s)


cdef void run_line_tiles(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t count,
                         bint resume, float* sums, WeightsScratch* s) noexcept nogil:
    """The first row tiles that are ready. All of them meet a lane panel while it is in the nearest cache."""
    cdef int64_t panel, i, vectors
    cdef const LineTile* those
    for panel in range(part.first_panel, part.end_panel):
        vectors = panel_vectors(plan, panel)
        for i in range(count):
            those = &s.line_tiles[i]
            run_line_panel(plan, isa, part, those.tile, those.rows, panel, vectors, those.runs, those.run_count, resume,
                           <const char*>s.block, those.offsets, sums, s)


cdef void run_line_strands(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part,
                           int64_t first_strand, int64_t end_strand, Chunk* chunk, const SharedTaps* shared, float* sums,
                           WeightsScratch* s) noexcept nogil:
    """The row tiles of all taps of some channels against all lane panels of a task."""
    cdef int64_t tile, group, groups = group_count(w, shared), later, laid_out = 0, count = 0, strand, tap, rows, row
    cdef int64_t most = most_line_runs(plan)
    cdef bint kept = keeps_runs(plan)
    cdef int64_t t[3]
    cdef LineTile* ready
    for strand in range(first_strand, end_strand):
        tile = strand * plan.taps
        rows = tile_rows(plan, tile)
        for group in range(groups):
            if laid_out == plan.line_groups:
                run_line_tiles(w, plan, isa, part, count, chunk.resume, sums, s)
                laid_out = count = 0
            first_of_group(w, shared, group, t)
            lay_out_lines(w, plan, isa, chunk, shared, group, t, part.g * w.large.g + tile_start(w, plan, tile) * w.large.c,
                          rows, laid_out * plan.rows, s)
            patch_lines(w, plan, shared, t[shared.axis], laid_out * plan.rows, rows, s)
            for later in range(taps_after(w, shared, t[shared.axis]) + 1):
                if count == LINE_TILES:
                    run_line_tiles(w, plan, isa, part, count, chunk.resume, sums, s)
                    count = 0
                tap = (t[0] * w.K[1] + t[1]) * w.K[2] + t[2]
                ready = &s.line_tiles[count]
                ready.tile, ready.rows = tile + tap, rows
                for row in range(rows):
                    ready.offsets[row] = row_pair(plan, laid_out * plan.rows + row) - 2 * later * shared.apart
                ready.runs = s.met_runs + (tap if kept else count) * most
                ready.run_count = s.met_counts[tap] if kept else runs_of_tap(w, plan, isa, tap, chunk, shared, s, ready.runs)
                count += 1
                t[shared.axis] += shared.period
            laid_out += 1
    run_line_tiles(w, plan, isa, part, count, chunk.resume, sums, s)
