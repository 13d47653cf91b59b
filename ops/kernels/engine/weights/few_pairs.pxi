"""Algorithm `weights_few_pairs`: the sums of `weights_few_channels` as dot products of pairs.

Terms that follow one another in a chain (`core/reduction.h`) are a pair: positions DOT_LANES apart in a line, or of two lines, where
a line has no more.  A unit holds a pair of each of the chains.  Both sides of a block of lines are laid out as units, so that every
tap finds those of the large side in vectors, as `simd/chain_pairs.h` says.  Several channels of either side share what they load;
where there are not enough of them, several taps of one channel do (`simd/chain_taps.h`).  If those are nearly all and lie side by
side, the large side is not laid out: each of its lines is decoded when it is met (`simd/chain_rows.h`).

Zeros outside are terms here.  They change no sum, unless they meet something infinite or NaN: then a sum is NaN, and the call is
repeated without pairs.

uses: core/problem.pxi (Operand), engine/ahead.pxi (Ahead, ask_ahead, begin_ahead), engine/algorithms.pxi (Problem),
    engine/costs.pxi, engine/product/pairs.pxi (never_subnormal, on_matrix), engine/weights/few_channels.pxi
    (in_dot_tiles, large_tiles, store_few_channels), engine/weights/gradient.pxi (Weights, share_tap_rows,
    tap_row_parts, tap_rows_of), engine/weights/positions.pxi (large_step)
gives: FewPairs, few_pairs_cycles, fits_few_pairs, lay_out_few_pairs, near_steps, run_few_pairs
"""

cdef enum:
    PAIRS_BYTES = 1 << 17        # of a block of both sides
    PAIRS_NEAR = 3 << 11         # floats of both sides, while all taps meet them
    PAIRS_NEAR_BYTES = 4 * PAIRS_NEAR
    PAIRS_WIDTH = 256            # pairs of a unit, at most
    PAIRS_TAPS = 256
    PAIRS_PASSES = 2             # through lines that are decoded as they are met, at most
    PAIRS_SUMS_BYTES = 1 << 15   # of channels that are computed together ...
    PAIRS_CHANNELS = 16          # ... at least so many, since each part lays out the small side


cdef struct FewPairsScratch:  # of one thread
    float* large             # [c][line][unit][way][pair]
    float* small             # [m][line][unit][DOT_LANES]
    float* sums              # [m][c][tap][DOT_LANES]
    bint unbounded           # some sum is infinite or NaN
    uint16_t smallest_large
    uint16_t smallest_small


cdef struct FewPairs:
    bint by_lines            # pairs are of two lines
    bint taps_together       # of one channel, not channels
    bint in_place            # the large side is decoded as its lines are met
    chain_units large        # of a line
    chain_units small
    int64_t large_line       # floats of a line, or two ...
    int64_t small_line
    int64_t large_channel    # ... of a channel
    int64_t small_channel
    int64_t block            # lines of the small side, at most ...
    int64_t images           # ... or so many images
    int64_t large_image      # floats of one
    int64_t small_image
    int64_t parts            # of the channels of the large side, each a task: their sums stay near, and threads have enough of them
    int64_t taps
    int64_t rows             # tiles of the channels of the small side, or of the rows of taps ...
    int64_t columns          # ... and of the large side, or of the columns of taps
    int64_t rows_step        # tap rows that share lines of the large side are so far apart
    int64_t apart            # ... and meet lines of the small side so far apart
    int64_t* places          # of the tap columns in a unit
    reduction_cut cut
    FewPairsScratch* scratch
    float* partials          # [group][piece][m][c][tap]


cdef struct PairsBlock:
    int64_t g
    int64_t n
    int64_t y                # the first line
    int64_t lines            # of each image
    int64_t images


cdef inline int64_t met_lines(const Weights* w, const FewPairs* p, int64_t lines) noexcept nogil:
    """Of the large side, which so many of the small side meet."""
    return ((ceiling(lines, 2) * 2 - 2 if p.by_lines else lines - 1) * w.s[1] + (w.K[1] - 1) * w.d[1] + 1)


cdef void measure_few_pairs(const Weights* w, FewPairs* p) noexcept nogil:
    p.large_image = met_lines(w, p, p.block) * p.large_line
    p.small_image = ceiling(p.block, 2 if p.by_lines else 1) * p.small_line
    p.large_channel = 0 if p.in_place else (ceiling(p.images * p.large_image, DOT_LANES) | 1) * DOT_LANES
    p.small_channel = (p.images * p.small_image // DOT_LANES | 1) * DOT_LANES


cdef bint read_pairs_in_place(const Weights* w, const FewPairs* p) noexcept nogil:
    """Taps side by side meet what a line has in two vectors; codes of 8 bits are looked up. Lines that many taps meet one after the
    other would be decoded too often."""
    return (p.taps_together and w.s[2] == 1 and (w.d[2] == 1 or w.K[2] == 1) and w.M * p.rows * p.columns <= PAIRS_PASSES
            and (element_size(w.large.format) == 2 or byte_look_ups))


cdef inline double pairs_bytes(const Weights* w, const FewPairs* p) noexcept nogil:
    return 4.0 * (w.C * <double>p.large_channel + w.M * <double>p.small_channel)


cdef inline bint one_step(const Weights* w, const FewPairs* p) noexcept nogil:
    """Whether all units of an image lie equally far apart."""
    return p.large.units == 1 or w.s[1] == 1


cdef Weights channels_of_part(const Weights* w, const FewPairs* p, int64_t part) noexcept nogil:
    """The gradient of the channels of a part; the first has the most."""
    cdef Weights some = w[0]
    cdef int64_t first = share(w.C, p.parts, part)
    some.C = share(w.C, p.parts, part + 1) - first
    some.large.data = <char*>w.large.data + first * w.large.c * element_size(w.large.format)
    return some


cdef bint plan_channels(const Weights* w, const instruction_set* isa, int threads, FewPairs* p) noexcept nogil:
    cdef Weights some
    cdef int64_t near
    p.parts = 1
    if in_dot_tiles(w):
        near = ceiling(4 * DOT_LANES * w.M * w.C * w.K[1] * w.K[2], PAIRS_SUMS_BYTES)
        p.parts = max(1, min(w.C // PAIRS_CHANNELS, max(near, ceiling(threads, max(1, w.G * w.cut.pieces)))))
    some = channels_of_part(w, p, 0)
    return plan_few_pairs(&some, isa, p)


cdef bint plan_few_pairs(const Weights* w, const instruction_set* isa, FewPairs* p) noexcept nogil:
    cdef int64_t units = ceiling(w.Y[2], 2 * DOT_LANES), ways = 2 if w.s[2] == 2 and w.K[2] > 1 and w.d[2] % 2 else 1
    cdef int64_t apart, span, most = PAIRS_BYTES, fewest = 2
    cdef double reach = (w.K[2] - 1) * <double>w.d[2]
    if (w.N * w.Y[1] * w.Y[2] == 0 or w.X[1] * w.X[2] == 0 or w.K[0] != 1 or w.Y[0] != 1 or w.X[0] != 1 or w.b[0] != 0
            or w.s[2] < 1 or w.s[2] > 2 or w.large.x[2] != 1 or w.small.x[2] != 1 or reach > PAIRS_WIDTH - DOT_LANES
            or (w.K[1] - 1) * <double>w.d[1] > PAIRS_BYTES or w.s[1] > PAIRS_BYTES or w.K[1] * w.K[2] > PAIRS_TAPS):
        return False
    p.cut, p.taps, p.by_lines = w.cut, w.K[1] * w.K[2], w.Y[2] <= DOT_LANES
    span = <int64_t>reach // w.s[2]
    p.taps_together = not in_dot_tiles(w)
    if p.taps_together:
        if p.by_lines or span > DOT_LANES:
            return False
        share_tap_rows(w, &p.rows_step, &p.apart)
        p.rows, p.columns = tap_row_parts(w, p.rows_step, NCX_COLUMNS), ceiling(w.K[2], NCX_COLUMNS)
        most, fewest = PAIRS_NEAR_BYTES, 4 * ((w.K[1] - 1) * w.d[1] // w.s[1] + 1)  # each block begins with lines of the one before
    else:
        p.rows, p.columns = ceiling(w.M, DOT_TILE), large_tiles(w, isa, w.C)
    p.in_place = read_pairs_in_place(w, p)
    apart = 0 if p.by_lines else DOT_LANES
    p.small = chain_units(units=units, width=DOT_LANES, past=0, reach=2 * DOT_LANES, step=1, ways=1, whole=not p.by_lines)
    p.large = chain_units(units=units, width=max(DOT_LANES, min(DOT_LANES, w.Y[2]) + span), past=span, reach=2 * DOT_LANES, step=w.s[2],
                          ways=ways, whole=not p.by_lines)
    p.small.low[0], p.small.low[1], p.small.high[0], p.small.high[1] = 0, -apart, w.Y[2], w.Y[2] - apart
    p.large.low[0], p.large.low[1] = w.b[2], w.b[2] - apart * w.s[2]
    p.large.high[0], p.large.high[1] = w.b[2] + w.X[2], w.b[2] + w.X[2] - apart * w.s[2]
    p.large_line, p.small_line = units * ways * p.large.width, units * DOT_LANES
    p.block, p.images = w.Y[1] + (w.Y[1] % 2 if p.by_lines else 0), 1
    measure_few_pairs(w, p)
    while pairs_bytes(w, p) > most and p.block > fewest:
        p.block = ceiling(p.block, 4) * 2
        measure_few_pairs(w, p)
    if p.block >= w.Y[1] and one_step(w, p):  # small images, together
        p.images = max(1, min(w.N, <int64_t>(most / (pairs_bytes(w, p) + 1))))
        measure_few_pairs(w, p)
    return pairs_bytes(w, p) <= 4 * PAIRS_BYTES


cdef void lay_side(const Operand* o, const FewPairs* p, const pair_functions* pairs, const chain_units* u, float* place, chain_lines* l,
                   int64_t start, int64_t line, int64_t stride, int64_t apart, int64_t extent, uint16_t* smallest) noexcept nogil:
    """Lines `line`, `line` + stride, ... of some channels and images, the first at element `start` if it were inside; the others of their
    pairs lie `apart` lines further, or if that is 0, in the same line."""
    check_room(b"lay_side", place, 4 * ((l.channels - 1) * l.channel_pitch + (l.images - 1) * l.image_pitch + l.lines * l.pitch + u.past))
    meet_inside(line, stride, extent, l.lines, &l.first[0], &l.end[0])
    meet_inside(line + apart, stride, extent, l.lines, &l.first[1], &l.end[1])
    l.partner = apart * o.x[1] if p.by_lines else DOT_LANES * u.step
    l.line_stride, l.image_stride, l.channel_stride = stride * o.x[1], o.n, o.c
    pairs.lay_chains(place, u, l, <const char*>o.data + element_size(o.format) * start, o.format, smallest)


cdef void lay_out_pairs_block(const Weights* w, const FewPairs* p, const pair_functions* pairs, const PairsBlock* block,
                              FewPairsScratch* s) noexcept nogil:
    cdef int64_t line = block.y * w.s[1] - w.b[1], apart = 1 if p.by_lines else 0
    cdef chain_lines l
    l.images = block.images
    if not p.in_place:
        l.lines, l.channels = met_lines(w, p, block.lines), w.C
        l.pitch, l.image_pitch, l.channel_pitch = p.large_line, p.large_image, p.large_channel
        lay_side(&w.large, p, pairs, &p.large, s.large, &l,
                 block.n * w.large.n + block.g * w.large.g + line * w.large.x[1] - w.b[2], line, 1, apart * w.s[1], w.X[1],
                 &s.smallest_large)
    l.lines, l.channels = ceiling(block.lines, 1 + apart), w.M
    l.pitch, l.image_pitch, l.channel_pitch = p.small_line, p.small_image, p.small_channel
    lay_side(&w.small, p, pairs, &p.small, s.small, &l, block.n * w.small.n + block.g * w.small.g + block.y * w.small.x[1], 0, 1 + apart,
             apart, block.lines, &s.smallest_small)


cdef PairsBlock pairs_block(const Weights* w, const FewPairs* p, int64_t task, int64_t line) noexcept nogil:
    """From line `line` of a piece on, or none."""
    cdef int64_t positions = w.N * w.Y[1] * w.Y[2], piece = task // p.parts % p.cut.pieces
    cdef int64_t first = piece_start(&p.cut, piece, positions) // w.Y[2] + line
    cdef int64_t end = piece_start(&p.cut, piece + 1, positions) // w.Y[2]
    cdef int64_t images = min(p.images, (end - first) // w.Y[1]) if first % w.Y[1] == 0 else 1
    return PairsBlock(task // p.parts // p.cut.pieces, first // w.Y[1], first % w.Y[1],
                      max(0, min(end - first, min(p.block, w.Y[1] - first % w.Y[1]))), max(1, images))


cdef inline int64_t steps_of_block(const FewPairs* p, const PairsBlock* block) noexcept nogil:
    """Lines, or two, or images."""
    return block.images if p.images > 1 else ceiling(block.lines, 2) if p.by_lines else block.lines


cdef inline int64_t near_steps(const Weights* w, const FewPairs* p) noexcept nogil:
    """So many of them are met by all taps before the next."""
    cdef int64_t small = p.small_line, large = w.s[1] * p.large_line * (2 if p.by_lines else 1)
    if p.images > 1:
        small, large = p.small_image, p.large_image
    return max(1, PAIRS_NEAR // (ceiling(w.M, p.rows) * small + ceiling(w.C, p.columns) * large))


cdef void add_units(const Weights* w, const FewPairs* p, const pair_functions* pairs, const PairsBlock* block, Ahead* large,
                    Ahead* small, FewPairsScratch* s) noexcept nogil:
    """Several channels of either side together, some lines or images at a time, which stay near while all taps meet them."""
    cdef int64_t steps = steps_of_block(p, block), near = near_steps(w, p), first = 0, count, lines, units, line_step
    cdef int64_t step = w.s[1] * p.large_line * (2 if p.by_lines else 1), unit = p.large.ways * p.large.width
    cdef int64_t row, column, t1, t2, m, c, m_end, c_end, reach
    cdef int64_t large_step = p.large_image if p.images > 1 else step, small_step = p.small_image if p.images > 1 else p.small_line
    if p.large.units == 1:
        unit = step
    while first < steps:
        count = min(near, steps - first)
        lines, units, line_step = count, p.small.units, step
        if p.images > 1:
            units, line_step = p.small_image // DOT_LANES, large_step
            if count == 1:
                units = p.small.units * (ceiling(block.lines, 2) if p.by_lines else block.lines)
        elif one_step(w, p):
            lines, units = 1, count * units
        for row in range(p.rows):
            m, m_end = share(w.M, p.rows, row), share(w.M, p.rows, row + 1)
            for column in range(p.columns):
                c, c_end = share(w.C, p.columns, column), share(w.C, p.columns, column + 1)
                for t1 in range(w.K[1]):
                    for t2 in range(w.K[2]):
                        ask_ahead(large)
                        ask_ahead(small)
                        reach = t2 * w.d[2]
                        pairs.chain_tile[m_end - m - 1][c_end - c - 1](
                            s.sums + ((m * w.C + c) * p.taps + t1 * w.K[2] + t2) * DOT_LANES, w.C * p.taps * DOT_LANES,
                            p.taps * DOT_LANES,
                            s.large + c * p.large_channel + first * large_step + t1 * w.d[1] * p.large_line
                            + reach % w.s[2] * p.large.width + reach // w.s[2],
                            p.large_channel, line_step, unit, s.small + m * p.small_channel + first * small_step, p.small_channel,
                            lines, units)
        first += count


cdef void rows_in_place(const Weights* w, const FewPairs* p, const PairsBlock* block, int64_t image, int64_t c, int64_t row,
                        int64_t rows, int64_t column, chain_rows* met) noexcept nogil:
    """Where the lines of a channel of an image lie that some rows of taps meet, from `row` and `column` on."""
    cdef int64_t line = block.y * w.s[1] - w.b[1] + row * w.d[1], number = column - w.b[2]
    cdef int64_t start = (block.n + image) * w.large.n + block.g * w.large.g + c * w.large.c + line * w.large.x[1] + number
    met.numbers, met.format = <const char*>w.large.data + element_size(w.large.format) * start, w.large.format
    met.line_stride, met.low, met.high = w.s[1] * w.large.x[1], -number, w.X[2] - number
    meet_inside(line, w.s[1], w.X[1], block.lines + (rows - 1) * p.apart, &met.first, &met.end)


cdef void add_taps(const Weights* w, const FewPairs* p, const pair_functions* pairs, const PairsBlock* block, Ahead* large,
                   Ahead* small, FewPairsScratch* s) noexcept nogil:
    """Several taps of a channel of either side together."""
    cdef int64_t image, m, c, part, row = 0, rows, run, column, columns, sum_row = p.rows_step * w.K[2] * DOT_LANES
    cdef const float* lines
    cdef float* sums
    cdef chain_rows met
    for image in range(block.images):
        for m in range(w.M):
            lines = s.small + m * p.small_channel + image * p.small_image
            for c in range(w.C):
                for part in range(p.rows):
                    rows = tap_rows_of(w, p.rows_step, NCX_COLUMNS, part, &row)
                    for run in range(p.columns):
                        column = share(w.K[2], p.columns, run)
                        columns = share(w.K[2], p.columns, run + 1) - column
                        sums = s.sums + ((m * w.C + c) * p.taps + row * w.K[2] + column) * DOT_LANES
                        ask_ahead(large)
                        ask_ahead(small)
                        if p.in_place:
                            rows_in_place(w, p, block, image, c, row, rows, column, &met)
                            pairs.chain_rows[rows - 1][columns - 1](sums, sum_row, &met, lines, p.small_line, block.lines, p.apart,
                                                                    p.small.units, &s.smallest_large)
                        else:
                            pairs.chain_taps[rows - 1][columns - 1](
                                sums, sum_row, s.large + c * p.large_channel + image * p.large_image + row * w.d[1] * p.large_line,
                                w.s[1] * p.large_line, p.large.ways * p.large.width, p.places + column, lines, p.small_line,
                                block.lines, p.apart, p.small.units)


cdef inline int64_t calls_of_block(const Weights* w, const FewPairs* p, const PairsBlock* block) noexcept nogil:
    """How often the next block is asked for while this one is computed."""
    if p.taps_together:
        return p.rows * p.columns * block.images * w.M * w.C
    return p.rows * p.columns * p.taps * max(1, steps_of_block(p, block) // near_steps(w, p))


cdef Ahead next_pairs(const Weights* w, const FewPairs* p, const PairsBlock* block, bint large) noexcept nogil:
    """What a thread is likely to lay out next, of one side."""
    cdef int64_t first = max(0, block.y * w.s[1] - w.b[1]), end, calls = calls_of_block(w, p, block)
    if not large:
        return begin_ahead(&w.small, block.images if block.lines > 0 else 0, w.M,
                           block.n * w.small.n + block.g * w.small.g + block.y * w.small.x[1], block.lines * w.small.x[1], calls, False)
    end = min(w.X[1], block.y * w.s[1] - w.b[1] + met_lines(w, p, block.lines))
    return begin_ahead(&w.large, block.images if block.lines > 0 and end > first else 0, w.C,
                       block.n * w.large.n + block.g * w.large.g + first * w.large.x[1], (end - first) * w.large.x[1], calls, False)


cdef void run_few_pairs_piece(const Weights* all, const FewPairs* p, const Problem* q, int64_t task, int64_t tasks,
                              FewPairsScratch* s) noexcept nogil:
    """A part of the channels of one piece of one group."""
    cdef Weights w = channels_of_part(all, p, task % p.parts), further = channels_of_part(all, p, (task + 1) % p.parts)
    cdef int64_t line = 0, count = w.M * w.C * p.taps, m, pitch = all.C * p.taps
    cdef float* partial = p.partials + task // p.parts * all.M * pitch + share(all.C, p.parts, task % p.parts) * p.taps
    cdef PairsBlock block = pairs_block(&w, p, task, 0), following
    cdef const Weights* next_channels
    cdef Ahead large, small
    check_room(b"run_few_pairs_piece", s.sums, 4 * count * DOT_LANES)
    check_room(b"run_few_pairs_piece", partial, 4 * ((w.M - 1) * pitch + w.C * p.taps))
    memset(s.sums, 0, count * DOT_LANES * sizeof(float))
    while block.lines > 0:
        lay_out_pairs_block(&w, p, q.pairs, &block, s)
        line += block.lines * block.images
        following, next_channels = pairs_block(&w, p, task, line), &w
        if following.lines == 0 and task + 1 < tasks:
            following, next_channels = pairs_block(&w, p, task + 1, 0), &further
        large, small = next_pairs(next_channels, p, &following, True), next_pairs(next_channels, p, &following, False)
        if p.taps_together:
            add_taps(&w, p, q.pairs, &block, &large, &small, s)
        else:
            add_units(&w, p, q.pairs, &block, &large, &small, s)
        block = pairs_block(&w, p, task, line)
    s.unbounded = s.unbounded or not q.isa.finite(s.sums, count * DOT_LANES)
    for m in range(w.M):
        q.isa.sum_chains(partial + m * pitch, s.sums + m * w.C * p.taps * DOT_LANES, w.C * p.taps)


cdef bint fits_few_pairs(Problem* q) noexcept nogil:
    if (q.weights == NULL or q.pairs == NULL or on_matrix(q.pairs) or q.weights.cut.chains == 1):
        return False
    return plan_channels(q.weights, q.isa, q.threads, &q.few_pairs)


cdef inline double rows_decoded(const Operand* o, int64_t units) noexcept nogil:
    """Cycles for a line of a side that is decoded as it is met, or just before."""
    return CHAIN_ROWS_BYTES * ceiling(units, 2) if element_size(o.format) == 1 else CHAIN_ROWS_UNIT * units


cdef double few_pairs_cycles(const Problem* q) noexcept nogil:
    """Of products with whole vectors, and of units that are laid out."""
    cdef const Weights* w = q.weights
    cdef const FewPairs* p = &q.few_pairs
    cdef double lines = <double>w.N * w.Y[1] * w.G, decoded = 0, taps = p.taps, factor = 1
    cdef double units = p.small.units * (ceiling(w.Y[1], 2) / <double>w.Y[1] if p.by_lines else 1)
    if p.taps_together:
        if p.taps < CHAIN_TAPS_LEAST:
            taps = CHAIN_TAPS_LOADS if loads_wait() else CHAIN_TAPS_LEAST
        if w.s[2] > 1 and loads_wait():
            factor = CHAIN_TAPS_STRIDED
        if p.in_place:
            if p.small.units == 1 and element_size(w.large.format) == 1:
                factor = CHAIN_ROWS_SHORT
            return factor * lines * (CHAIN_ROWS_LINE + CHAIN_TAPS * units * w.M * w.C * taps
                                     + w.C * rows_decoded(&w.large, p.small.units) + w.M * rows_decoded(&w.small, p.small.units))
        if element_size(w.large.format) == 1:
            decoded = w.C * w.s[1] * (units + 1)
        if element_size(w.small.format) == 1:
            decoded += w.M * units
        return factor * lines * (CHAIN_TAPS * units * w.M * w.C * taps + CHAIN_DECODED * decoded * 2 * DOT_LANES
                                  + CHAIN_TAPS_MOVED * (w.C * w.s[1] * p.large_line + w.M * units * DOT_LANES))
    return (lines * (CHAIN_PAIRS * units * w.M * w.C * p.taps
                     + CHAIN_MOVED * (w.C * w.s[1] * p.large_line + p.parts * w.M * units * DOT_LANES))
            + CHAIN_SUMS * w.G * p.cut.pieces * w.M * w.C * p.taps)


cdef void lay_out_few_pairs(Problem* q, workspace* memory) noexcept nogil:
    cdef const Weights* w = q.weights
    cdef FewPairs* p = &q.few_pairs
    cdef FewPairsScratch counted
    cdef FewPairsScratch* s
    cdef int64_t channels = channels_of_part(w, p, 0).C
    cdef int worker
    p.scratch = <FewPairsScratch*>take(memory, q.threads * sizeof(FewPairsScratch))
    for worker in range(q.threads):
        s = &p.scratch[worker] if memory.base != NULL else &counted
        s.large = <float*>take(memory, 4 * (channels * p.large_channel + PAIRS_WIDTH))
        s.small = <float*>take(memory, 4 * w.M * p.small_channel)
        s.sums = <float*>take(memory, 4 * w.M * channels * p.taps * DOT_LANES)
        s.unbounded, s.smallest_large, s.smallest_small = False, 0xffff, 0xffff
    p.places = <int64_t*>take(memory, 8 * w.K[2])
    p.partials = <float*>take(memory, 4 * w.G * p.cut.pieces * w.M * w.C * p.taps)


cdef bint run_few_pairs(Problem* q, workspace* memory) noexcept nogil:
    """Returns false where pairs do not do."""
    cdef const Weights* w = q.weights
    cdef const FewPairs* p = &q.few_pairs
    cdef FewPairsScratch* scratch = p.scratch
    cdef int64_t count = w.M * w.C * p.taps, tasks = w.G * p.cut.pieces * p.parts, task, t
    cdef uint16_t smallest_large = 0xffff, smallest_small = 0xffff
    cdef bint unbounded = False
    cdef int threads = q.threads, worker
    for t in range(w.K[2]):
        p.places[t] = t * w.d[2] % w.s[2] * p.large.width + t * w.d[2] // w.s[2]
    if threads == 1:
        for task in range(tasks):
            run_few_pairs_piece(w, p, q, task, tasks, scratch)
    else:
        for task in prange(tasks, schedule="dynamic", chunksize=max(1, tasks // (16 * threads)), num_threads=threads):
            run_few_pairs_piece(w, p, q, task, tasks, &scratch[thread_number()])
    for worker in range(threads):
        smallest_large = min(smallest_large, scratch[worker].smallest_large)
        smallest_small = min(smallest_small, scratch[worker].smallest_small)
        unbounded = unbounded or scratch[worker].unbounded
    if unbounded or not never_subnormal(smallest_large, smallest_small):
        return False
    for task in prange(w.G, schedule="static", num_threads=threads):
        store_few_channels(w, p.taps, p.cut.pieces, q.isa, task, 0, w.C, p.partials + task * p.cut.pieces * count)
    return True
