"""How blocks of the input are laid out: their extents, where taps find their lanes, and what that costs.

uses: engine/algorithms.pxi (Problem), engine/costs.pxi, engine/product/pack.pxi (add_span, channels_innermost),
    engine/product/pairs.pxi (on_matrix), engine/product/plan.pxi (ProductPlan), engine/product/product.pxi (BLOCK,
    Product, STEPS, Tap, are_far, row_panels), engine/product/stacked.pxi (can_stack, lines_to_stack, longest_strip,
    plan_stack)
gives: COPY_CHANNELS, COPY_MOVES, Filled, Layout, copies_meanwhile, laid_out_spans, measure_cells, plan_laid_out,
    plan_layouts, plan_shared, plane_place, tap_lanes, tap_meets, tap_shift
"""

cdef enum:
    LAID_OUT_BYTES = 3 << 17     # of a block: stays in the middle cache
    MANY_BLOCKS = 16             # of a call: most are laid out while others are computed
    COPY_MOVES = 4096            # of a list, at most
    COPY_CHANNELS = 128          # moves from which on a list holds no further channel
    HUGE_BLOCK = 1 << 30         # floats of a channel, more than any block that is laid out
    ROLLED_ROOM = 32             # a rolling block takes at most so many times what it lays out
    VOLUME_STEPS = 16            # channels of a volume from which on blocks are small, and a larger one pays: planes are copied for each
    ALONE_BYTES = 1 << 20        # of a block where there are no two of them
    MOST_BLOCKS_BYTES = 2 << 20  # of a thread, what lies between channels included
    MOST_RUNS = 1 << 17          # of a block


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
    """Runs of all taps over a block, at most."""
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
    if not layouts.possible:
        return False
    for i in range(count):
        layouts[i].lane_pitch = pitch_of(&products[i], &layouts[i])
    return layouts.chosen


cdef void plan_laid_out(const Product* p, const instruction_set* isa, double unaligned, int64_t lines, Layout* l) noexcept nogil:
    """Choose the blocks, and estimate whether they cost less than gathering. `unaligned` is 1 where something else makes up
    for lanes across cache lines; a tile takes so many `lines` of a block at once."""
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
            if axis == 2 and floats * p.S * 4 <= ALONE_BYTES:
                break
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
    if aligned and (l.rolls or copies_meanwhile(p, l, isa)) and p.N * l.blocks[0] * l.blocks[1] * l.blocks[2] >= MANY_BLOCKS:
        unaligned = 1
    if on_matrix(p.pairs) or aligned and p.tap_count == 1 and p.D < FAR_CHANNELS and loads_wait():
        unaligned = 1
    work = number * p.tap_count * p.S * (ceiling(p.R, p.rows) * p.rows if on_matrix(p.pairs) else max(p.R, LEAST_ROWS))
    copied = moved if p.step[2] == 1 or l.phases[2] == 1 else RESIDUE_MOVED
    if volume and l.phases[0] > 1:
        copied *= RESIDUE_PLANES
    l.gathered = work * p.met + p.tap_count * p.S * (moved + narrow_moved(isa) + LINE_CYCLES / min(p.Q[2], LINE_LANES) + strided_moved(p))
    far = p.tap_count * p.S * p.R / FAR_WEIGHTS if are_far(row_panels(p) * p.rows * p.tap_count * p.S) else 0
    l.gathered += far / (BLOCK * TILE_LANES)
    if on_matrix(p.pairs):
        work += PANEL_MOVED * p.tap_count * p.S
    if not on_matrix(p.pairs) and p.R >= isa.rows:
        work *= narrow_panels(ceiling(lanes, isa.width), isa)
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
    return (isa.copy != NULL and p.pairs == NULL and not p.blocks and (p.input.format == NUMBER_FLOAT32 or p.input.format == NUMBER_FLOAT16)
            and p.input.x[2] == 1 and p.step[2] == 1 and not channels_innermost(&p.input, p.D)
            and l.phases[0] * l.phases[1] * l.u[0] * l.u[1] * ceiling(l.u[2], isa.width) <= COPY_MOVES)


cdef void plan_layouts(const Problem* q, ProductPlan* plan) noexcept nogil:
    """The blocks of the products that are chosen to be laid out."""
    cdef int64_t i, tap, count = q.count
    cdef Product* products = q.products
    cdef Layout* l
    for i in range(count):
        l = &plan.layouts[i]
        if not l.chosen:
            continue
        plan.laid_out = True
        plan.two_blocks = plan.two_blocks or not l.rolls and copies_meanwhile(&products[i], l, q.isa)
        for tap in range(products[i].tap_count):
            products[i].taps[tap].shift = tap_shift(&products[i], l, &products[i].taps[tap])
        plan.runs = max(plan.runs, laid_out_runs(&products[i]))
        plan.block_floats = max(plan.block_floats, l.plane * products.S + (q.isa.vectors + 1) * q.isa.width)
    if (plan.shared or count == 1 and plan.laid_out) and not products.blocks and can_stack(products, q.isa):
        plan_stack(products, count, q.columns, plan.layouts, q.isa, q.strips, q.places, &plan.stack)
        if plan.stack.chosen:
            plan.places = longest_strip(&plan.stack)
            plan.block_floats += plan.stack.lines * plan.layouts.u[2]
        else:
            plan.stack.floats = 0
    plan.next_block_floats = plan.block_floats if plan.two_blocks else 0


cdef bint tap_meets(const Product* p, const Tap* tap, const int64_t* first, const int64_t* end) noexcept nogil:
    """Whether a tap meets the input from some output position of a block."""
    cdef int axis
    for axis in range(3):
        if (end[axis] - 1) * p.step[axis] + tap.offset[axis] < 0 or first[axis] * p.step[axis] + tap.offset[axis] >= p.I[axis]:
            return False
    return True


cdef struct Filled:  # a block that has been laid out
    int64_t g
    int64_t n
    int64_t first[3]  # output positions
    int64_t end[3]


cdef int64_t laid_out_spans(const Product* p, const Layout* l, const Filled* at, int64_t q0, int64_t q1, int64_t lines,
                            int64_t lane, int64_t count, lane_span* spans) noexcept nogil:
    """Where `count` lanes go, the first of them `lane` lanes after the beginning of line q1 of plane q0; those outside the
    result or the block, or more than `lines` lines further, go nowhere."""
    cdef int64_t number = 0, line, low, high, width = min(p.Q[2] - at.first[2], l.block[2])
    if q0 >= p.Q[0]:
        return 0
    for line in range(lane // l.u[2], min(lines, min(p.Q[1], at.first[1] + l.block[1]) - q1)):
        if line * l.u[2] >= lane + count:
            break
        low = max(lane, line * l.u[2])
        high = min(lane + count, line * l.u[2] + width)
        if high > low:
            add_span(spans, &number, low - lane, high - low,
                     at.n * p.output.n + at.g * p.output.g + q0 * p.output.x[0] + (q1 + line) * p.output.x[1]
                     + (at.first[2] + low - line * l.u[2]) * p.output.x[2], p.output.x[2])
    return number
