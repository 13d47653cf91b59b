"""Algorithm `gathered`: products of packed panels, the general case of `forward` and `backward_data`.

The weights are packed once, a panel for every few rows.  A task is a block of columns.  It gathers the input of some steps
of the reduction into lane panels small enough for the nearest cache, runs every row panel over them, and goes on with the
next steps; the sums wait in a scratch block.  The last steps store.

uses: engine/algorithms.pxi (Problem), engine/costs.pxi, engine/product/jobs.pxi (run_product_plan),
    engine/product/pack.pxi (TAKEN, input_spans, mask_spans), engine/product/pairs.pxi (first_channel, gather_steps,
    on_matrix, tile_of), engine/product/plan.pxi (ProductPlan, lay_out_products, plan_passes),
    engine/product/position_classes.pxi (cut_fragments), engine/product/product.pxi, engine/product/store.pxi
    (find_result, output_spans, result_rows, store_tile)
gives: fits_gathered, gathered_cycles, lay_out_gathered, panel_cycles, run_block, run_gathered
"""

cdef enum:
    SHORT_RUN = 32           # steps of a tap below which vectors outside are not worth a run of their own


cdef void gather_piece(const Product* p, const instruction_set* isa, const Piece* piece, bint masked, float* lanes, float* masks,
                       int64_t span_count, ProductScratch* s) noexcept nogil:
    """Channels [first, end) of one tap (pairs of channels) for one column panel."""
    cdef int64_t pitch = isa.vectors * isa.width, first = first_channel(p, piece.first), end = min(p.D, first_channel(p, piece.end))
    cdef const char* source = <const char*>p.input.data + first * p.input.c * element_size(p.input.format)
    check_room(b"gather_piece", lanes, 4 * pitch * (piece.end - piece.first))
    gather_steps(isa, p.pairs, lanes, pitch, end - first, source, p.input.format, p.input.c, s.spans, span_count, &s.smallest)
    if masked:
        check_room(b"gather_piece", masks, 4 * pitch * (piece.end - piece.first))
        mask_spans(s.spans, span_count)
        isa.gather(masks, pitch, piece.end - piece.first, &TAKEN, NUMBER_FLOAT32, 0, s.spans, span_count)


cdef int64_t gather_pieces(const Product* p, const instruction_set* isa, int64_t g, int64_t panel, int64_t vectors,
                           int64_t piece_count, bint masked, ProductScratch* s) noexcept nogil:
    """The next steps of one column panel, but for taps that meet no input there; returns the number of stretches."""
    cdef int64_t pitch = isa.vectors * isa.width, start = panel * (STEPS * pitch + isa.width), steps = 0, run_count = 0, i
    cdef int64_t span_count, row, number = 0, low, high
    cdef Piece* piece
    cdef Stretch* last
    check_room(b"gather_pieces", s.runs, piece_count * sizeof(tile_run))
    check_room(b"gather_pieces", s.stretches, piece_count * sizeof(Stretch))
    for i in range(piece_count):
        piece = &s.pieces[i]
        span_count = input_spans(p, &p.taps[piece.tap], g, s.fragments + panel * TILE_LANES, s.fragment_count[panel], s.spans)
        if span_count == 1 and s.spans[0].offset == NO_ELEMENT:
            continue
        low, high = 0, vectors
        if p.S >= SHORT_RUN:  # vectors at either end that lie outside take no part
            if s.spans[0].offset == NO_ELEMENT:
                low = s.spans[0].count // isa.width
            if s.spans[span_count - 1].offset == NO_ELEMENT:
                high = ceiling(s.spans[span_count - 1].lane, isa.width)
        gather_piece(p, isa, piece, masked, s.lanes + start + steps * pitch, s.masks + start + steps * pitch, span_count, s)
        row = piece.tap * p.tap_floats + piece.first * p.rows
        last = &s.stretches[number - 1]
        if number == 0 or last.low != low or last.high != high:
            s.stretches[number] = Stretch(run_count, run_count, low, high)
            last = &s.stretches[number]
            number += 1
        if (last.end_run > last.first_run and s.runs[run_count - 1].rows + s.runs[run_count - 1].steps * p.rows == row
                and s.runs[run_count - 1].steps % p.block == 0):
            s.runs[run_count - 1].steps += piece.end - piece.first
        else:
            s.runs[run_count] = tile_run(row, start + steps * pitch, piece.end - piece.first)
            run_count += 1
            last.end_run = run_count
        steps += piece.end - piece.first
    return number


cdef void run_stretches(const Product* p, const instruction_set* isa, int64_t stretch_count, int64_t rows, int64_t vectors,
                        const float* panel, int64_t next, float* tile, bint resume, const tile_result* result,
                        ProductScratch* s) noexcept nogil:
    """One row panel along the gathered steps of a column panel; `next` as for a tile, and `result`, which wants a
    last stretch of all vectors."""
    cdef int64_t i, pitch = isa.vectors * isa.width
    cdef const Stretch* some
    check_room(b"run_stretches", tile, 4 * rows * pitch)
    if not resume and not (stretch_count > 0 and s.stretches.high - s.stretches.low == vectors):
        memset(tile, 0, rows * pitch * sizeof(float))
        resume = True
    for i in range(stretch_count):
        some = &s.stretches[i]
        tile_of(isa, p.pairs, p.blocks, rows, some.high - some.low)(
            s.runs + some.first_run, some.end_run - some.first_run, panel, next, s.lanes + some.low * isa.width, pitch,
            tile + some.low * isa.width, resume, NULL, result if i == stretch_count - 1 else NULL)
        resume = True


cdef inline int64_t channel_end(const Product* p, int64_t first, int64_t most) noexcept nogil:
    """Where at most so many steps of a tap from `first` on end, if they cut no block of a sum."""
    if first + most >= p.S:
        return p.S
    return first + most // p.block * p.block


cdef void run_block(const Product* p, const instruction_set* isa, int64_t g, int64_t first_panel, int64_t end_panel,
                    int64_t first_row_panel, int64_t end_row_panel, const float* packed, bint masked, ProductScratch* s) noexcept nogil:
    """Column panels [first_panel, end_panel) against row panels [first_row_panel, end_row_panel), packed from `packed`."""
    cdef int64_t vectors = ceiling(p.columns, isa.width), all_rows = row_panels(p), blocks = end_panel - first_panel
    cdef int64_t tile_floats = p.rows * isa.vectors * isa.width, pitch = isa.vectors * isa.width
    cdef int64_t j, i, r, column, width, steps, tap = 0, channel = 0, piece_count, stretch_count, run_count, span_count, row, rows
    cdef int64_t next = next_panel(p, end_row_panel - first_row_panel)
    cdef bint resume = p.started, last, finish
    cdef masked_function run_masked
    cdef Piece* piece
    cdef const tile_result* result
    cdef float* tile
    cdef const float* panel
    check_room(b"run_block", s.fragment_count, blocks * sizeof(int64_t))
    check_room(b"run_block", s.pieces, min(STEPS, p.tap_count * p.S) * sizeof(Piece))
    for j in range(blocks):
        column = share(vectors, p.panels, first_panel + j) * isa.width
        s.fragment_count[j] = cut_fragments(p, column, min(p.columns, share(vectors, p.panels, first_panel + j + 1)
                                                           * isa.width) - column, s.fragments + j * TILE_LANES)
    while True:
        piece_count = steps = 0
        while tap < p.tap_count and steps < STEPS:
            piece = &s.pieces[piece_count]
            piece.tap, piece.first, piece.end = tap, channel, channel_end(p, channel, STEPS - steps)
            if piece.end == channel:
                break
            piece_count += 1
            steps += piece.end - channel
            channel = piece.end
            if channel == p.S:
                tap += 1
                channel = 0
        last = tap == p.tap_count
        finish = last and not p.unfinished
        for j in range(blocks):
            width = (share(vectors, p.panels, first_panel + j + 1) - share(vectors, p.panels, first_panel + j)) * isa.width
            stretch_count = gather_pieces(p, isa, g, j, width // isa.width, piece_count, masked, s)
            if stretch_count == 0 and resume and not finish:
                continue
            span_count = 0
            if finish:
                span_count = output_spans(p, g, s.fragments + j * TILE_LANES, s.fragment_count[j], s.spans)
                find_result(p, isa, s.spans, span_count, &s.result)
                s.result.direct = (s.result.direct and not masked and stretch_count > 0 and s.stretches[stretch_count - 1].low == 0
                                   and s.stretches[stretch_count - 1].high == width // isa.width)
            for r in range(first_row_panel, end_row_panel):
                row = share(p.R, all_rows, r)
                rows = share(p.R, all_rows, r + 1) - row
                if p.kept == NULL:
                    tile = s.sums + (j * (end_row_panel - first_row_panel) + r - first_row_panel) * tile_floats
                else:
                    tile = p.kept + ((g * all_rows + r) * p.panels + first_panel + j) * tile_floats
                panel = packed + (r - first_row_panel) * p.panel_size
                result = result_rows(p, g, row, rows, &s.result) if finish else NULL
                if masked:
                    run_masked = isa.masked_blocks[width // isa.width - 1] if p.blocks else isa.masked[width // isa.width - 1]
                    run_count = 0 if stretch_count == 0 else s.stretches[stretch_count - 1].end_run
                    check_room(b"run_block", tile, 4 * rows * pitch)
                    for i in range(rows):
                        run_masked(s.runs, run_count, panel + i, s.lanes, pitch, tile + i * pitch, resume, s.masks)
                else:
                    run_stretches(p, isa, stretch_count, rows, width // isa.width, panel, next, tile, resume, result, s)
                if finish and not result.direct:
                    store_tile(p, isa, tile, rows, result, s.spans, span_count)
        if last:
            return
        resume = True


cdef bint fits_gathered(Problem* q) noexcept nogil:
    cdef ProductPlan* plan = &q.gathered
    if q.weights != NULL or q.products.input.format == NUMBER_FLOAT64:
        return False
    memset(plan, 0, sizeof(ProductPlan))
    plan_passes(q, plan)
    return True


cdef double panel_cycles(const Problem* q, bint decoded, bint narrow) noexcept nogil:
    """Of products, copies of the input to panels, where stored numbers are `decoded` or not and panels `narrow` or not, packed weights
    and those that are far from the cores."""
    cdef double cycles = 0, work, pieces, moved = narrow_moved(q.isa) if narrow else 0
    cdef int64_t i
    cdef const Product* p
    for i in range(q.count):
        p = &q.products[i]
        pieces = FRAGMENT_CYCLES * max(p.pieces / max(1.0, <double>p.Q[2]), 1.0 / LINE_LANES)
        if p.step[2] > 1:
            pieces = STRIDED_PIECES * pieces + strided_moved(p)
        if decoded and p.input.format != NUMBER_FLOAT32:
            pieces += DECODED  # for every tap
        work = p.columns * <double>p.tap_count * number_cycles(p, q.isa)
        if p.G > 1 and p.tap_count > 1 and p.S > 0:
            work *= 1 + PANEL_ENDS / (<double>p.tap_count * p.S)
        if p.pairs != NULL and not on_matrix(p.pairs):
            cycles += STORED_CYCLES * p.columns * p.G * p.R
        cycles += p.S * p.G * (work * max(p.R, LEAST_ROWS) * p.met
                               + p.columns * <double>p.tap_count * (moved_cycles(p) + moved + pieces)
                               + pack_cycles(p) * <double>p.tap_count * p.R)
        if are_far(row_panels(p) * p.panel_size):
            cycles += p.S * p.G * (p.columns * <double>p.tap_count * p.R / (FAR_WEIGHTS * BLOCK * TILE_LANES))
    return cycles * PANELS_STORES if q.pairs != NULL and stores_wait() else cycles


cdef double gathered_cycles(const Problem* q) noexcept nogil:
    return panel_cycles(q, True, True) + far_results(q)


cdef void lay_out_gathered(Problem* q, workspace* memory) noexcept nogil:
    lay_out_products(q, &q.gathered, memory)


cdef bint run_gathered(Problem* q, workspace* memory) noexcept nogil:
    return run_product_plan(q, &q.gathered)
