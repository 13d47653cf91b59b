"""Products over an input block that is laid out once for all taps.

A block of the input, framed with zeros, is copied to [channel][phase][u0][u1][u2]: positions of one residue modulo the
step lie side by side, so that every tap finds the lanes of a column panel contiguous, at its own shift.  Columns run over
(q1, q2) with the pitch of the block's rows; those between two rows are computed and not stored.  Against gathered panels,
which copy the input once per tap, this trades copies for idle columns: it wins where rows are few or lines are long.

In volumes the block of a plane of results is that of the plane before it, but for one plane of input, which takes the place of
one that is no longer met.
"""

cdef enum:
    LAID_OUT_BYTES = 3 << 17   # of a block: stays in the middle cache
    MANY_BLOCKS = 16         # of a call: most are laid out while others are computed
    COPY_MOVES = 4096        # of a list, at most
    COPY_CHANNELS = 128      # moves from which on a list holds no further channel
    HUGE_BLOCK = 1 << 30     # floats of a channel, more than any block that is laid out
    ROLLED_ROOM = 32         # a rolling block takes at most so many times what it lays out
    VOLUME_STEPS = 16        # channels of a volume from which on blocks are small, and a larger one pays: planes are copied for each
    ALONE_BYTES = 1 << 20    # of a block where there are no two of them
    MOST_BLOCKS_BYTES = 2 << 20  # of a thread, what lies between channels included
    MOST_RUNS = 1 << 17      # of a block


# Cycles for a number: of a step and row on a matrix unit, of pairs that are laid out, of pairs copied from there to a panel.
cdef double MATRIX_NUMBER = 0.0075, PAIRS_MOVED = 0.45, PANEL_MOVED = 0.08
cdef double UNALIGNED = 1.06  # what products cost whose lanes lie across cache lines


cdef struct Layout:  # how blocks of one product are laid out
    bint possible
    bint chosen          # ... and costs less than gathering
    double cycles        # for one output position
    double gathered      # ... of gathered panels
    int64_t block[3]     # output positions of a block
    int64_t blocks[3]    # how many
    int64_t low[3]       # smallest offset of a tap
    int64_t phases[3]    # residues that taps meet
    int64_t u[3]         # extents
    bint rolls           # from a block to the next along axis 0, plane by plane: only the new plane is laid out
    int64_t slots        # planes of a channel that are held; where blocks roll, position x0 in slot x0 % slots
    int64_t slot         # floats from one of them to the next
    int64_t cell         # slots*slot
    int64_t plane        # floats of one channel
    int64_t lane_pitch   # from one step of the reduction to the next


cdef inline double number_cycles(const Product* p, const instruction_set* isa) noexcept nogil:
    """Of one step and row."""
    return MATRIX_NUMBER if on_matrix(p.pairs) else 1.0 / (2 * isa.width)


cdef inline double moved_cycles(const Product* p) noexcept nogil:
    """Of one number that is copied."""
    return PAIRS_MOVED if on_matrix(p.pairs) else 0.15


cdef inline int64_t phase_of(int64_t offset, int64_t step, int64_t low, int64_t phases) noexcept nogil:
    """Which of the residues met: all of them in order, or the only one."""
    return (offset - low) % step if phases > 1 else 0


cdef int64_t tap_shift(const Product* p, const Layout* l, const Tap* tap) noexcept nogil:
    """Where the lanes of a tap begin, relative to the block."""
    cdef int64_t phase = 0
    cdef int64_t place[3]
    cdef int axis
    for axis in range(3):
        phase = phase * l.phases[axis] + phase_of(tap.offset[axis], p.step[axis], l.low[axis], l.phases[axis])
        place[axis] = (tap.offset[axis] - l.low[axis]) // p.step[axis]
    return phase * l.cell + place[0] * l.slot + place[1] * l.u[2] + place[2]


cdef inline int64_t plane_place(const Layout* l, const int64_t* first, int64_t u0) noexcept nogil:
    """Where plane u0 of the block of output positions from `first` on lies."""
    return ((first[0] + u0) % l.slots if l.rolls else u0) * l.slot


cdef inline int64_t tap_lanes(const Layout* l, const Tap* tap, const int64_t* first) noexcept nogil:
    """Where the lanes of a tap begin in the block of output positions from `first` on."""
    cdef int64_t u0 = tap.offset[0] - l.low[0]
    return tap.shift + plane_place(l, first, u0) - u0 * l.slot if l.rolls else tap.shift


cdef int64_t pitch_of(const Product* p, const Layout* l) noexcept nogil:
    """Between the lanes of two steps: two channels, or where there is only one, two taps."""
    if p.S == 1 and p.tap_count > 1:
        return tap_shift(p, l, &p.taps[1]) - tap_shift(p, l, &p.taps[0])
    return l.plane


cdef inline int64_t laid_out_runs(const Product* p) noexcept nogil:
    """Of all taps over a block, at most."""
    return p.tap_count * ceiling(p.S, STEPS)


cdef inline bint blocks_fit(const Product* p, const Layout* l, const instruction_set* isa) noexcept nogil:
    return (4 * l.plane * p.S * (2 if not l.rolls and copies_meanwhile(p, l, isa) else 1) <= MOST_BLOCKS_BYTES
            and laid_out_runs(p) <= MOST_RUNS)


cdef bint plan_shared(const Product* products, int64_t count, const instruction_set* isa, Layout* layouts) noexcept nogil:
    """One layout for all stride classes, which read the same input: their taps lie one after the other."""
    cdef Product all = products[0]
    cdef int64_t i
    cdef int axis
    for i in range(1, count):
        all.tap_count += products[i].tap_count
        for axis in range(3):
            all.Q[axis] = max(all.Q[axis], products[i].Q[axis])
    # Lanes across cache lines cost nothing here: results of all classes, which lie in the same lines, are stored together.
    plan_laid_out(&all, isa, 1.0, lines_to_stack(products, count, isa), layouts)
    for i in range(1, count):
        layouts[i] = layouts[0]
    for i in range(count):
        layouts[i].lane_pitch = pitch_of(&products[i], &layouts[i])
    return layouts.chosen


cdef void plan_laid_out(const Product* p, const instruction_set* isa, double unaligned, int64_t lines, Layout* l) noexcept nogil:
    """Choose the blocks, and whether this way costs less than gathering, from the shape alone. `unaligned` is 1
    where something else makes up for lanes across cache lines; a tile takes so many `lines` of a block at once."""
    cdef int64_t high[3]
    cdef int64_t t, lanes, wide, floats, twice
    cdef int axis
    cdef double work, copied, far, moved = moved_cycles(p), number = number_cycles(p, isa)
    cdef bint volume, aligned = True
    l.possible = l.chosen = False
    l.cycles = l.gathered = 0
    if p.tap_count == 0 or p.D == 0:
        return
    for axis in range(3):
        l.low[axis] = high[axis] = p.taps[0].offset[axis]
        for t in range(p.tap_count):
            l.low[axis] = min(l.low[axis], p.taps[t].offset[axis])
            high[axis] = max(high[axis], p.taps[t].offset[axis])
        l.phases[axis] = 1
        for t in range(p.tap_count):
            if (p.taps[t].offset[axis] - l.low[axis]) % p.step[axis] != 0:
                l.phases[axis] = min(p.step[axis], high[axis] - l.low[axis] + 1)
        l.block[axis] = p.Q[axis]
    l.block[2] = min(l.block[2], 1024)
    volume = high[0] > l.low[0] and p.S >= VOLUME_STEPS
    l.rolls = volume and p.Q[0] > 1 and p.step[0] * p.step[1] * p.step[2] == 1
    if l.rolls:
        l.block[0] = 1
    while True:
        floats = measure_block(p, l, high)
        if floats * p.S * 4 <= (ALONE_BYTES if l.rolls else 2 * LAID_OUT_BYTES if volume else LAID_OUT_BYTES):
            break
        # Halve the outermost axis that has something to halve; in a volume the one that copies less twice.
        axis = 0 if l.block[0] > 1 else 1 if l.block[1] > 1 else 2
        if (volume and l.block[0] > 1 and l.block[1] > 1
                and <double>l.block[1] * (high[0] - l.low[0]) > <double>l.block[0] * (high[1] - l.low[1])):
            axis = 1
        if l.block[axis] <= (1 if axis < 2 else 64):
            return
        l.block[axis] = (l.block[axis] + 1) // 2
    # Lines that would be laid out twice.
    twice = l.u[1] - l.block[1]
    if not copies_meanwhile(p, l, isa):
        while l.block[1] < min(4 * twice, p.Q[1]) and floats // l.u[1] * (l.block[1] + 1 + twice) * p.S * 4 <= ALONE_BYTES:
            l.block[1] += 1
    elif twice >= l.block[1] and floats // l.u[1] * (l.u[1] + l.block[1]) * p.S * 4 <= 2 * LAID_OUT_BYTES:
        l.block[1] = min(2 * l.block[1], p.Q[1])
    for axis in range(3):
        l.blocks[axis] = ceiling(p.Q[axis], l.block[axis])
        l.block[axis] = ceiling(p.Q[axis], l.blocks[axis])
        if axis == 1 and l.blocks[1] > 1 and l.block[1] > lines:  # no tile of several lines is cut
            l.block[1] -= l.block[1] % lines
            l.blocks[1] = ceiling(p.Q[1], l.block[1])
    floats = measure_block(p, l, high)
    l.plane = (ceiling(floats + isa.width, 16) | 1) * 16  # an odd number of cache lines
    l.lane_pitch = pitch_of(p, l)
    # Cycles for one output position, all rows: products, copies of the input, and far weights read once more for every block.
    lanes = (l.block[1] - 1) * l.u[2] + l.block[2]
    wide = ceiling(lanes, isa.width) * isa.width * l.block[0]
    for t in range(p.tap_count):
        aligned = aligned and tap_shift(p, l, &p.taps[t]) % isa.width == 0
    if aligned and copies_meanwhile(p, l, isa) and p.N * l.blocks[0] * l.blocks[1] * l.blocks[2] >= MANY_BLOCKS:
        unaligned = 1
    if on_matrix(p.pairs):
        unaligned = 1
    work = number * p.tap_count * p.S * (ceiling(p.R, p.rows) * p.rows if on_matrix(p.pairs) else max(p.R, 3))
    copied = moved if p.step[2] == 1 or l.phases[2] == 1 else 0.6
    l.gathered = work * p.met + p.tap_count * p.S * (moved + 8.0 / min(p.Q[2], 48) + (0.5 if p.step[2] > 1 else 0))
    far = p.tap_count * p.S * p.R / 6.0 if are_far(row_panels(p) * p.rows * p.tap_count * p.S) else 0
    l.gathered += far / (BLOCK * TILE_LANES)
    if on_matrix(p.pairs):
        work += PANEL_MOVED * p.tap_count * p.S
    l.cycles = (work * wide * unaligned + copied * (l.slot if l.rolls else floats) * p.S + far) / (l.block[0] * l.block[1] * l.block[2])
    l.possible = blocks_fit(p, l, isa)
    l.chosen = l.possible and l.cycles < l.gathered


cdef int64_t measure_block(const Product* p, Layout* l, const int64_t* high) noexcept nogil:
    """Set the extents of a block with taps up to offset `high`; returns the floats of one channel."""
    cdef int axis
    for axis in range(3):
        l.u[axis] = l.block[axis] + (high[axis] - l.low[axis]) // p.step[axis]
    return measure_cells(l)


cdef int64_t measure_cells(Layout* l) noexcept nogil:
    """The floats of one channel of a block whose extents are set."""
    cdef int axis
    cdef double floats = 1
    for axis in range(3):
        floats *= <double>l.u[axis] * l.phases[axis]
    if floats * ROLLED_ROOM > HUGE_BLOCK:  # taps so far apart that the product of extents might overflow
        return HUGE_BLOCK
    l.slots, l.slot = l.u[0], l.u[1] * l.u[2]
    if l.rolls:
        # Whole vectors are stored: what overruns a plane must not reach the next, which may be in use.
        l.slots, l.slot = l.u[0] + 1, ceiling(l.slot + 15, 16) * 16
    l.cell = l.slots * l.slot
    return l.cell * l.phases[0] * l.phases[1] * l.phases[2]


cdef bint copies_meanwhile(const Product* p, const Layout* l, const instruction_set* isa) noexcept nogil:
    """Whether tiles can lay out a block while they compute another."""
    return (isa.copy != NULL and p.pairs == NULL and not p.blocks and p.input.format == NUMBER_FLOAT32
            and p.input.x[2] == 1 and p.step[2] == 1 and not channels_innermost(&p.input, p.D)
            and l.phases[0] * l.phases[1] * l.u[0] * l.u[1] * ceiling(l.u[2], isa.width) <= COPY_MOVES)


cdef bint tap_meets(const Product* p, const Tap* tap, const int64_t* first, const int64_t* end) noexcept nogil:
    """Whether a tap meets the input from some output position of a block."""
    cdef int axis
    for axis in range(3):
        if (end[axis] - 1) * p.step[axis] + tap.offset[axis] < 0 or first[axis] * p.step[axis] + tap.offset[axis] >= p.I[axis]:
            return False
    return True


cdef int64_t laid_out_spans(const Product* p, const Layout* l, int64_t g, int64_t n, const int64_t* first, int64_t q0, int64_t q1,
                          int64_t lines, int64_t lane, int64_t count, lane_span* spans) noexcept nogil:
    """Where `count` lanes go, the first of them `lane` lanes after the beginning of line q1 of plane q0; those outside the
    result or the block, or more than `lines` lines further, go nowhere."""
    cdef int64_t number = 0, line, low, high, width = min(p.Q[2] - first[2], l.block[2])
    if q0 >= p.Q[0]:
        return 0
    for line in range(lane // l.u[2], min(lines, min(p.Q[1], first[1] + l.block[1]) - q1)):
        if line * l.u[2] >= lane + count:
            break
        low = max(lane, line * l.u[2])
        high = min(lane + count, line * l.u[2] + width)
        if high > low:
            add_span(spans, &number, low - lane, high - low,
                     n * p.output.n + g * p.output.g + q0 * p.output.x[0] + (q1 + line) * p.output.x[1]
                     + (first[2] + low - line * l.u[2]) * p.output.x[2], p.output.x[2])
    return number


cdef inline int64_t block_at(const Layout* l, int64_t number, int64_t* first) noexcept nogil:
    """The first output position of a block; returns its image."""
    cdef int axis, i
    for i in range(3):
        axis = i if l.rolls else 2 - i  # a rolling block goes along axis 0 first
        first[axis] = number % l.blocks[axis] * l.block[axis]
        number //= l.blocks[axis]
    return number


cdef void run_laid_out(const Product* products, const Layout* layouts, int64_t count, const instruction_set* isa, int64_t g,
                     int64_t number, int64_t first_row_panel, int64_t end_row_panel, const float* packed, int64_t items,
                     int64_t item, const Stack* stack, const float* stacked, ProductScratch* s) noexcept nogil:
    """Block `number`, which has been laid out, against row panels [first_row_panel, end_row_panel), number `item` of `items`
    packed ones for each product. Products that share a layout share the block, and where `stacked` holds their weights a tile."""
    cdef int64_t first[3]
    cdef int64_t end[3]
    cdef int64_t n = block_at(layouts, number, first), i
    cdef int axis
    cdef bint some
    if stacked != NULL:
        run_stacked(products, layouts, stack, isa, g, n, first, stacked, s)
        return
    for i in range(count):
        some = True
        for axis in range(3):
            end[axis] = min(products[i].Q[axis], first[axis] + layouts.block[axis])
            some = some and end[axis] > first[axis]
        if some:
            run_filled(&products[i], &layouts[i], isa, g, n, first, end, first_row_panel, end_row_panel,
                       packed + item * products[i].panel_size, s)
        packed += items * products[i].panel_size


cdef void run_filled(const Product* p, const Layout* l, const instruction_set* isa, int64_t g, int64_t n, const int64_t* first,
                     const int64_t* end, int64_t first_row_panel, int64_t end_row_panel, const float* packed,
                     ProductScratch* s) noexcept nogil:
    """Output positions [first, end) from the block laid out for them."""
    cdef int64_t t, run_count = 0, q0, lanes, vectors, panels, j, lane, count, r, row, rows, done, steps, next_run, width
    cdef int64_t all_rows = row_panels(p), span_count, shift, vector_count, pitch
    cdef tile_run* run
    cdef float* tile
    cdef float* block = s.block
    cdef const tile_result* result
    cdef int64_t next = next_panel(p, end_row_panel - first_row_panel)
    cdef bint single = end_row_panel - first_row_panel == 1, near = on_matrix(p.pairs) and not single
    cdef const float* lanes_from
    cdef const tile_run* runs
    for t in range(p.tap_count):
        if p.padded and not tap_meets(p, &p.taps[t], first, end):
            continue
        done = 0
        while done < p.S:
            steps = p.S if single else min(STEPS, p.S - done)
            row, shift = t * p.tap_floats + done * p.rows, tap_lanes(l, &p.taps[t], first) + done * l.lane_pitch
            run = &s.runs[run_count - 1]
            if (run_count > 0 and run.rows + run.steps * p.rows == row and run.lanes + run.steps * l.lane_pitch == shift
                    and run.steps % p.block == 0 and (single or run.steps + steps <= STEPS)):
                run.steps += steps
            else:
                s.runs[run_count] = tile_run(row, shift, steps)
                run_count += 1
            done += steps
    if p.R == 1:
        run_lines(p, l, isa, g, n, first, end, run_count, packed, s)
        return
    lanes = (end[1] - first[1] - 1) * l.u[2] + end[2] - first[2]
    vectors = ceiling(lanes, isa.width)
    panels = ceiling(vectors, isa.vectors)
    for q0 in range(end[0] - first[0]):
        for j in range(panels):
            lane = share(vectors, panels, j) * isa.width
            width = share(vectors, panels, j + 1) * isa.width - lane
            count = min(lanes, lane + width) - lane
            vector_count = width // isa.width
            span_count = laid_out_spans(p, l, g, n, first, first[0] + q0, first[1], l.block[1], lane, count, s.spans)
            find_result(p, isa, s.spans, span_count, &s.result)
            done = 0
            while True:
                # Several row panels take the steps in turns, so that the lanes stay near; one takes all at once.
                next_run = done
                steps = 0
                while next_run < run_count and (single or steps == 0 or steps + s.runs[next_run].steps <= STEPS):
                    steps += s.runs[next_run].steps
                    next_run += 1
                lanes_from, runs, pitch = block + q0 * l.u[1] * l.u[2] + lane, s.runs + done, l.lane_pitch
                if near:
                    bring_near(isa, lanes_from, runs, next_run - done, pitch, width, s)
                    lanes_from, runs, pitch = s.lanes, s.near_runs, isa.vectors * isa.width
                for r in range(first_row_panel, end_row_panel):
                    row = share(p.R, all_rows, r)
                    rows = share(p.R, all_rows, r + 1) - row
                    tile = s.sums + (r - first_row_panel) * p.rows * isa.vectors * isa.width
                    result = result_rows(p, g, row, rows, &s.result) if next_run == run_count else NULL
                    tile_of(isa, p.pairs, p.blocks, rows, vector_count)(
                        runs, next_run - done, packed + (r - first_row_panel) * p.panel_size, next, lanes_from, pitch, tile,
                        done > 0, &s.meanwhile, result)
                    if result != NULL and not result.direct:
                        store_tile(p, isa, tile, rows, result, s.spans, span_count)
                done = next_run
                if done == run_count:
                    break


cdef void run_lines(const Product* p, const Layout* l, const instruction_set* isa, int64_t g, int64_t n, const int64_t* first,
                    const int64_t* end, int64_t run_count, const float* packed, ProductScratch* s) noexcept nogil:
    """A block of the only row, line by line."""
    cdef int64_t q0, q1, lines, count = end[2] - first[2], at
    cdef float bias = 0 if p.bias == NULL else p.bias[g]
    cdef lane_span span
    cdef line_function run = isa.lines if p.pairs == NULL else p.pairs.lines
    for q0 in range(first[0], end[0]):
        at = (n * p.output.n + g * p.output.g + q0 * p.output.x[0] + first[1] * p.output.x[1] + first[2] * p.output.x[2])
        lines = end[1] - first[1]
        if p.output.format == NUMBER_FLOAT32 and p.output.x[2] == 1:
            run(s.runs, run_count, packed, s.block + (q0 - first[0]) * l.u[1] * l.u[2], l.lane_pitch, l.u[2], lines, count,
                      <float*>p.output.data + at, p.output.x[1], bias)
            continue
        q1 = 0
        while q1 < end[1] - first[1]:
            lines = min(end[1] - first[1] - q1, max(1, SUM_BYTES // (4 * (count + isa.width))))
            run(s.runs, run_count, packed, s.block + ((q0 - first[0]) * l.u[1] + q1) * l.u[2], l.lane_pitch, l.u[2], lines,
                      count, s.sums, count, bias)
            span = lane_span(0, count, at + q1 * p.output.x[1], p.output.x[2])
            isa.scatter(s.sums, count, lines, p.output.data, p.output.format, p.output.x[1], &span, 1, NULL)
            q1 += lines
