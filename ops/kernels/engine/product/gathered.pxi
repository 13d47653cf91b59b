"""Sums over taps and channels as products of packed panels: forward, and each stride class of backward_data.

    out[n,g,r,q] = SUM over tap, d   in[n,g,d,q*step + offset(tap)] * weights[g,r,d,tap]

Rows of the product are output channels r, columns are (n, q) flattened, its reduction is (tap, d) in the order of the
definition.  The weights are packed once, a panel for every few rows; a task is a block of columns: it gathers the
input of some steps of the reduction into lane panels small enough for the nearest cache, runs every row panel over
them, and goes on with the next steps, the sums waiting in a scratch block.  The last steps store.
"""

cdef enum:
    SHORT_RUN = 32           # steps of a tap below which vectors outside are not worth a run of their own
    STEPS = 128              # reduction steps of a lane panel: 128 x 48 floats and a row panel fit the nearest cache
    ROW_BYTES = 6 << 20      # packed weights per thread, and sums kept from pass to pass
    SUM_BYTES = 1 << 19      # scratch sums of a task
    NEAR_BYTES = 1 << 19     # packed weights that stay in the middle cache while one column panel after another uses them
    BLOCK = 4                # column panels of a task, at most
    LINE_BYTES = 64          # of a cache


cdef struct Tap:
    int64_t offset[3]  # input position = output position * step + offset
    int64_t shift      # of its lanes in a planar block, where there are some


cdef struct PositionClass:  # output positions numbered one after the other, see engine/product/position_classes.pxi
    int64_t column      # the first
    int64_t q[3]        # its position
    int64_t extent[3]


cdef struct Product:  # out[n,g,r,q] = SUM over tap, d   in[n,g,d,q*step + offset] * weights[g,r,d,tap]
    int64_t N
    int64_t G
    int64_t R
    int64_t D
    int64_t Q[3]       # output positions
    int64_t I[3]       # input positions
    int64_t step[3]
    int64_t all_count
    Tap* all_taps      # in the order of the sum
    int64_t* all_offsets  # where their weights begin
    bint padded        # some tap meets a position outside
    const pair_functions* pairs  # whose steps of the reduction are pairs of bfloat16 channels, or NULL
    bint blocks        # sums are taken in blocks (core/reduction.h)
    int64_t block      # steps of one, or 1
    int64_t S          # steps of a tap
    int64_t rows       # of a row panel, at most
    Operand input
    Operand output
    Operand weights    # n: between rows, g: between groups, c: between channels d
    const float* bias  # of G*R rows, or NULL; doubles in engine/product/float64.pxi
    const result_cell* cell  # neighbours of every output, or NULL where others store them
    # plan
    int64_t tap_count  # of the pass
    Tap* taps
    int64_t* tap_offsets
    PositionClass* position_classes         # in the order of the columns
    int64_t class_count
    int64_t pieces     # position_classes that a line is cut into
    double met         # share of (position, tap) that is left where position_classes cut off the rest
    int64_t columns
    int64_t panels
    int64_t tasks      # in float64
    int64_t tap_floats   # packed weights of one row panel from a tap to the next
    int64_t panel_size   # ... of all taps
    bint started       # its sums were begun with earlier taps and wait in `kept`
    bint unfinished    # ... or wait there for later ones
    float* kept        # tiles [group][row panel][column panel], or NULL where one pass takes all taps


cdef struct Fragment:  # lanes of a column panel whose positions differ in the innermost axis only
    int64_t lane
    int64_t count
    int64_t n
    int64_t q[3]


cdef struct Piece:  # steps of the reduction: channels [first, end) of one tap
    int64_t tap
    int64_t first
    int64_t end


cdef struct Stretch:  # runs [first_run, end_run) of a column panel, of which vectors [low, high) meet the input
    int64_t first_run
    int64_t end_run
    int64_t low
    int64_t high


cdef struct ProductScratch:  # of one thread
    float* block      # of engine/product/laid_out.pxi
    int64_t filled    # the task whose block that is
    int64_t ran       # the task that it served last
    int64_t taken     # the task that comes next, unless another thread takes it
    float* next_block     # the next block
    copy_move* moves
    copying meanwhile # what tiles lay out there
    tile_result result
    float* lanes
    float* masks      # of the lanes
    float* sums
    Fragment* fragments
    int64_t* fragment_count
    lane_span* spans
    Piece* pieces
    tile_run* runs
    tile_run* near_runs
    Stretch* stretches
    half_run* halves
    uint16_t smallest # magnitude of a bfloat16 met in the input, less one
    uint16_t smallest_weight


cdef inline int64_t row_panels(const Product* p) noexcept nogil:
    return ceiling(p.R, p.rows)


cdef inline bint are_far(int64_t floats) noexcept nogil:
    """Whether so many packed weights do not stay in the middle cache."""
    return 4 * floats > NEAR_BYTES


cdef inline int64_t next_panel(const Product* p, int64_t panels) noexcept nogil:
    """How far the next of so many packed row panels is from the last where it must be asked for, else 0."""
    return p.panel_size if are_far(panels * p.panel_size) else 0


cdef inline const float* biases(const Product* p, int64_t g, int64_t row) noexcept nogil:
    """The biases of the rows of a group from `row` on, or NULL."""
    if p.bias == NULL:
        return NULL
    return p.bias + g * p.R + row


# ---------------------------------------------------------------------------------------------------------------------
# Weights


cdef inline int64_t apart(int64_t floats) noexcept nogil:
    """What lies `floats` apart is written side by side: never at a distance at which all of it falls into one set of the cache."""
    return floats + 16 if floats % 1024 == 0 else floats


cdef bint pack_rows(const Product* p, const instruction_set* isa, int64_t g, int64_t panel, float* packed,
                    uint16_t* smallest) noexcept nogil:
    """The weights of one row panel: steps (tap, d), each `p.rows` numbers. Tells whether some are not finite."""
    cdef int64_t panels = row_panels(p), row = share(p.R, panels, panel), t
    cdef lane_span rows = lane_span(0, share(p.R, panels, panel + 1) - row, 0, p.weights.n)
    cdef const char* start = (<const char*>p.weights.data
                              + (g * p.weights.g + row * p.weights.n) * element_size(p.weights.format))
    if rows.count < p.rows or on_matrix(p.pairs) and p.D % SUM_BLOCK != 0:
        memset(packed, 0, p.panel_size * sizeof(float))
    if p.weights.n != 1 and p.weights.c != 1:
        if p.pairs != NULL:
            p.pairs.gather_taps(packed, p.tap_floats, rows.count, p.D, start, p.weights.format, p.weights.n, p.weights.c, p.tap_offsets,
                                p.tap_count, smallest)
        else:
            isa.gather_taps(packed, p.tap_floats, p.rows, rows.count, p.D, start, p.weights.format, p.weights.n, p.weights.c, p.tap_offsets,
                            p.tap_count)
    else:
        for t in range(p.tap_count):
            rows.offset = p.tap_offsets[t]
            gather_steps(isa, p.pairs, packed + t * p.tap_floats, p.rows, p.D, start, p.weights.format, p.weights.c, &rows, 1, smallest)
    if on_matrix(p.pairs):
        p.pairs.turn(packed, p.tap_floats, p.tap_count, p.S)
    if not p.padded:
        return False
    for t in range(p.tap_count):
        if not are_finite(isa, p.pairs, packed + t * p.tap_floats, p.S * p.rows):
            return True
    return False


# ---------------------------------------------------------------------------------------------------------------------
# Columns


cdef inline void add_span(lane_span* spans, int64_t* number, int64_t lane, int64_t count, int64_t offset,
                          int64_t step) noexcept nogil:
    """Append a span, or lengthen the last where it goes on."""
    cdef lane_span* last
    if number[0] > 0 and spans[number[0] - 1].lane + spans[number[0] - 1].count == lane:
        last = &spans[number[0] - 1]
        if last.offset == NO_ELEMENT:
            if offset == NO_ELEMENT:
                last.count += count
                return
        elif offset != NO_ELEMENT and last.step == step and offset == last.offset + last.count * step:
            last.count += count
            return
    spans[number[0]] = lane_span(lane, count, offset, step)
    number[0] += 1


cdef int64_t input_spans(const Product* p, const Tap* tap, int64_t g, const Fragment* fragments, int64_t fragment_count,
                         lane_span* spans) noexcept nogil:
    """Where the lanes of a column panel find their input at a tap."""
    cdef int64_t number = 0, i, x0, x1, x2, step = p.step[2], low, high
    cdef const Fragment* f
    for i in range(fragment_count):
        f = &fragments[i]
        x0 = f.q[0] * p.step[0] + tap.offset[0]
        x1 = f.q[1] * p.step[1] + tap.offset[1]
        x2 = f.q[2] * step + tap.offset[2]
        low = 0
        high = f.count
        if p.padded:
            if x0 < 0 or x0 >= p.I[0] or x1 < 0 or x1 >= p.I[1]:
                high = 0
            else:
                meet_inside(x2, step, p.I[2], f.count, &low, &high)
            if high == low:
                low = high = 0
        if low > 0:
            add_span(spans, &number, f.lane, low, NO_ELEMENT, 0)
        if high > low:
            add_span(spans, &number, f.lane + low, high - low,
                     f.n * p.input.n + g * p.input.g + x0 * p.input.x[0] + x1 * p.input.x[1]
                     + (x2 + low * step) * p.input.x[2], step * p.input.x[2])
        if high < f.count:
            add_span(spans, &number, f.lane + high, f.count - high, NO_ELEMENT, 0)
    return number


cdef uint32_t TAKEN = 0xFFFFFFFF


cdef void mask_spans(lane_span* spans, int64_t number) noexcept nogil:
    """Turn the spans of an input into those of its mask: TAKEN everywhere but outside."""
    cdef int64_t i
    for i in range(number):
        if spans[i].offset != NO_ELEMENT:
            spans[i].offset = spans[i].step = 0


cdef inline bint channels_innermost(const Operand* operand, int64_t channels) noexcept nogil:
    """Whether channels lie side by side, enough of them to be gathered position by position."""
    return operand.c == 1 and channels >= 4 and operand.x[2] != 1


cdef void gather_line(const Operand* operand, const instruction_set* isa, const pair_functions* pairs, float* place, int64_t pitch,
                      int64_t channels, int64_t offset, int64_t step, int64_t count, uint16_t* smallest) noexcept nogil:
    """place[d*pitch + i] for i < count: channel d of elements offset + i*step; channels lie side by side."""
    cdef int64_t i = 0
    cdef lane_span span
    while i < count:
        span = lane_span(0, min(count - i, TILE_LANES), offset + i * step, step)
        gather_steps(isa, pairs, place + i, pitch, channels, operand.data, operand.format, 1, &span, 1, smallest)
        i += span.count


# ---------------------------------------------------------------------------------------------------------------------
# One block of columns


cdef void gather_piece(const Product* p, const instruction_set* isa, const Piece* piece, bint masked, float* lanes, float* masks,
                       int64_t span_count, ProductScratch* s) noexcept nogil:
    """Channels [first, end) of one tap (pairs of channels) for one column panel."""
    cdef int64_t pitch = isa.vectors * isa.width, first = first_channel(p, piece.first), end = min(p.D, first_channel(p, piece.end))
    cdef const char* source = <const char*>p.input.data + first * p.input.c * element_size(p.input.format)
    gather_steps(isa, p.pairs, lanes, pitch, end - first, source, p.input.format, p.input.c, s.spans, span_count, &s.smallest)
    if masked:
        mask_spans(s.spans, span_count)
        isa.gather(masks, pitch, piece.end - piece.first, &TAKEN, NUMBER_FLOAT32, 0, s.spans, span_count)


cdef int64_t gather_pieces(const Product* p, const instruction_set* isa, int64_t g, int64_t panel, int64_t vectors,
                           int64_t piece_count, bint masked, ProductScratch* s) noexcept nogil:
    """The next steps of one column panel, but for taps that meet no input there; returns the number of stretches."""
    cdef int64_t pitch = isa.vectors * isa.width, start = panel * (STEPS * pitch + isa.width), steps = 0, run_count = 0, i
    cdef int64_t span_count, row, number = 0, low, high
    cdef Piece* piece
    cdef Stretch* last
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
    """One row panel along the gathered steps of a column panel; `next` as for a tile, and `result`, which wants a last
    stretch of all vectors."""
    cdef int64_t i, pitch = isa.vectors * isa.width
    cdef const Stretch* some
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
                    for i in range(rows):
                        run_masked(s.runs, run_count, panel + i, s.lanes, pitch, tile + i * pitch, resume, s.masks)
                else:
                    run_stretches(p, isa, stretch_count, rows, width // isa.width, panel, next, tile, resume, result, s)
                if finish and not result.direct:
                    store_tile(p, isa, tile, rows, result, s.spans, span_count)
        if last:
            return
        resume = True
