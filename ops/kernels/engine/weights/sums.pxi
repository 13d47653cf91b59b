"""Where the sums of a weights gradient wait, how pieces are joined, the store.

A task sums a part of the result, some strands (row tiles of all taps of some channels; single tiles where they are mixed)
and lane panels, over a block of pieces that follow one another.  A block is a power of two, so that its pieces are a
subtree of the tree in `core/reduction.h`; those that wait for their neighbours lie in a few levels.  A task of all pieces
stores what it has summed, of a single piece while the sums are still near; otherwise the blocks of all tasks wait in
memory and are joined at the end.

uses: engine/product/pairs.pxi (on_matrix), engine/weights/blocks.pxi (run_blocks_piece), engine/weights/gradient.pxi
    (Weights), engine/weights/plan.pxi, engine/weights/product.pxi (run_weights_piece), engine/weights/share_work.pxi
    (own_floats)
gives: add_sums, join_pieces, run_part, store_strand, store_strands, strands_together, sums_from, tile_sums
"""

cdef enum:
    TAPS_TOGETHER = 64  # of a channel that are stored together, at most


cdef inline float* sums_from(const WeightsPlan* plan, float* space, int64_t first_strand, int64_t first_panel) noexcept nogil:
    """Where the sums of tile 0 and panel 0 would lie if these are the first."""
    return space - (first_strand * strand_tiles(plan) * plan.sums.panels + first_panel) * plan.tile_floats


cdef inline float* tile_sums(const WeightsPlan* plan, float* sums, int64_t tile, int64_t panel) noexcept nogil:
    return sums + (tile * plan.sums.panels + panel) * plan.tile_floats


cdef inline int64_t sums_pitch(const WeightsPlan* plan, const instruction_set* isa, int64_t panel) noexcept nogil:
    """Between the rows of a tile."""
    return (isa.vectors if on_matrix(plan.pairs) else panel_vectors(plan, panel)) * isa.width


cdef inline int64_t strands_together(const WeightsPlan* plan, int64_t framed, bint last) noexcept nogil:
    """How many go through a chunk of the reduction before the next: those framed together, in the last one those stored together."""
    return min(framed, plan.sums.together) if last and plan.sums.together > 0 else framed


cdef void run_part(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t block,
                   float* space, WeightsScratch* s) noexcept nogil:
    """A part of one block of pieces: the sums to `space`, or at once to the result."""
    cdef int64_t first = block << plan.sums.levels, pieces = min(1 << plan.sums.levels, plan.cut.pieces - first), i, depth = 0, rest
    cdef float* level[MOST_LEVELS + 1]
    for i in range(MOST_LEVELS + 1):
        level[i] = s.sums + (i if plan.sums.at_once else i - 1) * own_floats(plan, &plan.sums)
    if not plan.sums.at_once:
        level[0] = space
    for i in range(pieces):
        (run_blocks_piece if plan.packed else run_weights_piece)(w, plan, isa, part, first + i, level[depth], s)
        rest = i
        while rest & 1:
            add_part(plan, isa, part, level[depth - 1], level[depth])
            depth -= 1
            rest >>= 1
        depth += 1
    while depth > 1:
        depth -= 1
        add_part(plan, isa, part, level[depth - 1], level[depth])
    if plan.sums.at_once and plan.sums.together == 0:
        store_strands(w, plan, isa, part, part.first_strand, part.end_strand, sums_from(plan, level[0], part.first_strand, part.first_panel))


cdef inline void add_sums(real* left, const real* right, int64_t count) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        left[i] = left[i] + right[i]


cdef void add_part(const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, float* left,
                   const float* right) noexcept nogil:
    cdef int64_t tile, panel, tiles = strand_tiles(plan)
    for tile in range(part.first_strand * tiles, part.end_strand * tiles):
        for panel in range(part.first_panel, part.end_panel):
            add_sums(left + (panel - part.first_panel) * plan.tile_floats, right + (panel - part.first_panel) * plan.tile_floats,
                     tile_rows(plan, tile) * sums_pitch(plan, isa, panel))
        left += plan.sums.panels * plan.tile_floats
        right += plan.sums.panels * plan.tile_floats


cdef void join_pieces(real* partials, int64_t pieces, int64_t stride, int64_t count) noexcept nogil:
    """The fixed tree over `count` sums of pieces, or of blocks of them, `stride` numbers apart, into the first."""
    cdef int64_t step = 1, i
    check_room(b"join_pieces", partials, ((pieces - 1) * stride + count) * sizeof(real))
    while step < pieces:
        i = 0
        while i + step < pieces:
            add_sums(partials + i * stride, partials + (i + step) * stride, count)
            i += 2 * step
        step *= 2


cdef void store_rows(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t first_tile, int64_t end_tile,
                     int64_t panel, const float* sums) noexcept nogil:
    """One lane panel of row tiles that mix taps, channel by channel, since the taps of a channel are neighbours in the result."""
    cdef int64_t m = first_lane(plan, isa, panel), lanes = min(w.M, first_lane(plan, isa, panel + 1)) - m, size = element_size(w.taps_format)
    cdef int64_t c, t, tile, row, count, step, pitch = sums_pitch(plan, isa, panel), end = tile_start(w, plan, end_tile)
    cdef int64_t order[TAPS_TOGETHER]
    cdef char* target
    for c in range(w.C):
        t, tile = max(0, ceiling(tile_start(w, plan, first_tile) - c, w.C)), first_tile
        row = t * w.C + c
        while row < end:
            target = <char*>w.taps + (g * w.taps_stride[0] + m * w.taps_stride[1] + c * w.taps_stride[2] + plan.tap_offsets[t]) * size
            count, step = 0, 1
            while row < end and count < TAPS_TOGETHER:
                if count == 1:
                    step = plan.tap_offsets[t] - plan.tap_offsets[t - 1]
                elif count > 1 and plan.tap_offsets[t] - plan.tap_offsets[t - 1] != step:
                    break
                while row >= tile_start(w, plan, tile + 1):
                    tile += 1
                order[count] = (tile * plan.sums.panels + panel) * plan.tile_floats + (row - tile_start(w, plan, tile)) * pitch
                count += 1
                t += 1
                row += w.C
            isa.store_positions(target, w.taps_format, step, w.taps_stride[1], sums, order, count, lanes, NULL)


cdef void store_channels(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t first_strand,
                         int64_t end_strand, int64_t panel, const float* sums) noexcept nogil:
    """One lane panel of strands of a single tap: as many channels together as a cache line holds, and more."""
    cdef int64_t m = first_lane(plan, isa, panel), lanes = min(w.M, first_lane(plan, isa, panel + 1)) - m, size = element_size(w.taps_format)
    cdef int64_t strand = first_strand, row = 0, count, first, pitch = sums_pitch(plan, isa, panel)
    cdef int64_t order[TAPS_TOGETHER]
    while strand < end_strand:
        first, count = plan.tile_firsts[strand] + row, 0
        while strand < end_strand and count < TAPS_TOGETHER:
            order[count] = (strand * plan.sums.panels + panel) * plan.tile_floats + row * pitch
            count += 1
            row += 1
            if row == tile_rows(plan, strand):
                strand, row = strand + 1, 0
        isa.store_positions(
            <char*>w.taps + (g * w.taps_stride[0] + m * w.taps_stride[1] + first * w.taps_stride[2]) * size, w.taps_format,
            w.taps_stride[2], w.taps_stride[1], sums, order, count, lanes, NULL)


cdef void store_strand(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t strand,
                       int64_t panel, float* sums, int64_t block_floats) noexcept nogil:
    """One lane panel of a strand. Unless mixed, it has neighbours in the result, the taps of some channels."""
    cdef int64_t m = first_lane(plan, isa, panel), lanes = min(w.M, first_lane(plan, isa, panel + 1)) - m
    cdef int64_t pitch = sums_pitch(plan, isa, panel), tile, first, rows, i
    cdef int64_t start = g * w.taps_stride[0] + m * w.taps_stride[1], step = plan.sums.panels * plan.tile_floats
    cdef char* target = <char*>w.taps
    cdef int64_t first_tile = strand * strand_tiles(plan)
    cdef float* c = tile_sums(plan, sums, first_tile, panel)
    cdef lane_span span = lane_span(0, lanes, 0, w.taps_stride[1])
    if plan.mixed:
        join_pieces(c, plan.sums.blocks, block_floats, tile_rows(plan, strand) * pitch)
        store_rows(w, plan, isa, g, strand, strand + 1, panel, sums)
        return
    if w.taps_stride[1] == 1:
        for tile in range(first_tile, first_tile + strand_tiles(plan)):
            first = tile_start(w, plan, tile)
            rows = tile_rows(plan, tile)
            c = tile_sums(plan, sums, tile, panel)
            join_pieces(c, plan.sums.blocks, block_floats, rows * pitch)
            span.offset = start + first % w.C * w.taps_stride[2] + plan.tap_offsets[first // w.C]
            isa.scatter(c, pitch, rows, target, w.taps_format, w.taps_stride[2], &span, 1, NULL)
        return
    first = tile_start(w, plan, first_tile)
    rows = tile_rows(plan, first_tile)
    for i in range(plan.taps):
        join_pieces(c + i * step, plan.sums.blocks, block_floats, rows * pitch)
    isa.scatter_taps(c, step, pitch, rows, span.count,
                     target + (start + first * w.taps_stride[2]) * element_size(w.taps_format), w.taps_format,
                     w.taps_stride[1], w.taps_stride[2], plan.tap_offsets, plan.taps)


cdef void store_strands(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part,
                        int64_t first_strand, int64_t end_strand, float* sums) noexcept nogil:
    """Some strands of a part whose pieces are all joined."""
    cdef int64_t strand, panel
    for panel in range(part.first_panel, part.end_panel):
        if plan.mixed:
            store_rows(w, plan, isa, part.g, first_strand, end_strand, panel, sums)
        elif plan.taps == 1 and w.taps_stride[2] == 1:
            store_channels(w, plan, isa, part.g, first_strand, end_strand, panel, sums)
        else:
            for strand in range(first_strand, end_strand):
                store_strand(w, plan, isa, part.g, strand, panel, sums, 0)
