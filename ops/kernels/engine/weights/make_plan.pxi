"""How a weights gradient is computed as a product: what is packed, and how much of it at a time.

uses: core/caches.pxi (COLLIDING_BYTES), engine/product/pack.pxi (channels_innermost), engine/weights/blocks.pxi
    (plan_blocks), engine/weights/gradient.pxi (Weights, reaches_outside), engine/weights/kept.pxi (can_keep,
    last_step, met_numbers), engine/weights/lines.pxi (LINE_PART, has_lines, parts_pay, plan_lines),
    engine/weights/plan.pxi (FRAME_BYTES, LANE_FLOATS, RINGS_BYTES, RING_BYTES, WeightsPlan),
    engine/weights/share_work.pxi (share_work), engine/weights/windows.pxi (plan_window)
gives: EVEN_TILES, HUGE_FRAME, make_plan, plan_rings, whole_units
"""

cdef enum:
    LAST_FLOATS = 11264        # channels last: of a lane panel and what its steps meet on the large side, in the nearest cache ...
    FEWEST_STEPS = 128         # ... unless so many do not fit
    HUGE_FRAME = 1 << 30       # floats of a line's taps, more than any that are framed
    PASSING_VECTORS = 16       # of lanes: for so many a single tap converts 16-bit numbers of a row tile when it meets them ...
    PASSING_POSITIONS = 128    # ... if there are so many
    FRAMED_LEAST = 27          # taps from which on channels that collide are framed for tall tiles
    EVEN_TILES = 4             # tiles for each thread: fewer come out even where there is nothing else to share
    FRAMED_TAPS = 1 << 11      # whose numbers lie side by side in a framed block, at most
    KEPT_TILES = 4             # whose rings go on from chunk to chunk, at least, if there are so many


cdef inline bint steps_collide(const Weights* w, int64_t positions) noexcept nogil:
    """Whether positions of the large side, channels last, lie so that few of them stay near."""
    return channels_innermost(&w.large, w.C) and 4 * w.s[2] * w.large.x[2] % COLLIDING_BYTES == 0 and positions >= FEWEST_STEPS


cdef void make_plan(const Weights* w, const instruction_set* isa, const pair_functions* pairs, int threads, WeightsPlan* plan) noexcept nogil:
    cdef int64_t axis, even_panels
    cdef bint few, collide = 4 * w.large.c % COLLIDING_BYTES == 0  # channels, so that many of them do not stay near
    plan.positions = w.N * w.Y[0] * w.Y[1] * w.Y[2]
    plan.taps = w.K[0] * w.K[1] * w.K[2]
    plan.cut = w.cut
    plan.blocks = positions_in_blocks(plan.cut.chains, w.large.format, w.small.format)
    plan.pairs, plan.rows = pairs, isa.rows if pairs == NULL else pairs.panel_rows
    plan.vectors = ceiling(w.M, isa.width)
    plan.panels = ceiling(plan.vectors, isa.vectors)
    # Tiles of one tap are one strand if they take all channels: there is nothing else for other threads where pieces are few.
    # Mixed tiles of pairs read windows, in which strided lines are laid out for all taps.
    few = w.G * plan.cut.pieces * plan.panels < threads
    plan.mixed = plan.taps > 1 and w.C < plan.rows + (few or pairs != NULL and w.s[2] > 1 and w.Y[1] > 1)
    plan.framed = plan.mixed or w.large.format != NUMBER_FLOAT32 or steps_collide(w, plan.positions)
    plan.padded = plan.kept = plan.by_taps = plan.joined = plan.windows = False
    for axis in range(3):
        if reaches_outside(w, axis):
            plan.padded = True
    plan.tall = (isa.tall[0] != NULL and pairs == NULL and not plan.blocks and not plan.mixed and plan.vectors == 1 and w.C > TILE_ROWS
                 and (plan.framed or not collide or plan.taps >= FRAMED_LEAST))
    if plan.tall:
        plan.rows, plan.framed = TALL_ROWS, plan.framed or collide
    plan.lines = has_lines(w, plan)
    plan.row_unit = 1
    if plan.lines and parts_pay(w, plan, isa):
        plan.rows, plan.row_unit = LINE_TILE_ROWS, LINE_PART
    plan.tap_tiles = ceiling(w.C, plan.rows)
    if few and plan.tap_tiles < EVEN_TILES * threads or plan.row_unit > 1:
        plan.tap_tiles = min(ceiling(plan.tap_tiles, threads) * threads, ceiling(w.C, plan.row_unit))
    plan.row_tiles = ceiling(w.C * plan.taps, plan.rows) if plan.mixed else plan.taps * plan.tap_tiles
    plan.strands = plan.row_tiles if plan.mixed else plan.tap_tiles
    even_panels = ceiling(plan.panels, threads) * threads  # of two vectors at least: tiles of one wait for the rows
    if w.G * plan.cut.pieces < threads and plan.strands < EVEN_TILES * threads and 2 * even_panels <= plan.vectors:
        plan.panels = even_panels
    plan.tile_floats = plan.rows * (1 if plan.tall else isa.vectors) * isa.width
    plan.packed = plan.lines or plan.blocks and pairs != NULL
    if not plan.packed:
        plan_chunk(w, isa, plan)
        plan.packed = plan.blocks and not plan.kept and not frames_fit(w, plan)
    if plan.packed:
        plan_blocks(w, isa, plan)
        plan_lines(w, plan)
        plan.windows = plan.lines and plan.mixed and plan_window(w, plan)
    share_work(w, isa, threads, plan)


cdef inline bint rings_pay(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    """Whether rings of a few tiles go on from chunk to chunk, or hold no more than frames would."""
    cdef int64_t lines = (plan.chunk // w.Y[2] + 2) * w.K[0] * w.K[1], extent = (min(plan.chunk, w.Y[2]) - 1) * w.s[2] + last_step(w, 2) + 1
    return (4 * plan.channel_floats * min(w.C, KEPT_TILES * plan.rows) <= RINGS_BYTES
            or 4 * plan.channel_floats * min(w.C, plan.rows) <= RING_BYTES and plan.ring <= lines * extent)


cdef inline bint frames_fit(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    return plan.channel_floats * 4 * min(w.C, plan.rows) <= 8 * FRAME_BYTES


cdef inline int64_t whole_units(const WeightsPlan* plan, int64_t most, int64_t unit) noexcept nogil:
    """Of the even parts of a piece, in units: as few parts as there are of hardly more than `most` positions."""
    cdef int64_t parts = max(1, ceiling(plan.cut.length, most + most // 8))
    return max(unit, ceiling(ceiling(plan.cut.length, parts), unit) * unit)


cdef void plan_frames(const Weights* w, const instruction_set* isa, WeightsPlan* plan) noexcept nogil:
    """What a chunk has in a framed block, at most."""
    cdef int64_t rows = plan.chunk // w.Y[2] + 2, planes = min(rows, rows // w.Y[1] + 2)
    cdef double plane
    plan.joined = plan.framed and w.d[1] == 1 and w.s[1] < w.K[1] and plan.chunk >= w.Y[2]
    plan.extent = (min(plan.chunk, w.Y[2]) - 1) * w.s[2] + (w.K[2] - 1) * w.d[2] + 1
    plane = plan.extent * ((min(rows, w.Y[1]) - 1) * <double>w.s[1] * plan.joined + w.K[1])
    plan.plane_floats = <int64_t>min(plane, <double>HUGE_FRAME)
    plan.row_floats = <int64_t>min(w.K[0] * plane, <double>HUGE_FRAME)
    plan.channel_floats = (planes if plan.joined else rows) * plan.row_floats + isa.width


cdef void plan_chunk(const Weights* w, const instruction_set* isa, WeightsPlan* plan) noexcept nogil:
    """How much of the reduction is packed at a time."""
    cdef int64_t lane_width = ceiling(plan.vectors, plan.panels) * isa.width
    cdef int64_t unit = SUM_BLOCK if plan.blocks else 1
    cdef bint passing
    plan.chunk = whole_units(plan, LANE_FLOATS // lane_width, unit)
    if not plan.framed and channels_innermost(&w.large, w.C) and FEWEST_STEPS * (w.C + lane_width) <= LAST_FLOATS:
        plan.chunk = min(plan.chunk, LAST_FLOATS // (w.C + lane_width))
    plan.by_taps = plan.framed and 1 < w.s[2] and w.K[2] <= w.s[2] and plan.taps <= FRAMED_TAPS
    if not plan.mixed:  # of several taps some numbers would be converted again, and of every fourth number whole lines are no slower
        plan.by_taps = plan.by_taps and plan.taps == 1 and w.s[2] == 2 and not channels_innermost(&w.large, w.C)
    passing = (plan.taps == 1 and not plan.by_taps and plan.vectors <= PASSING_VECTORS and plan.positions >= PASSING_POSITIONS
               and element_size(w.large.format) == 2)
    plan.kept = plan.framed and not plan.mixed and not plan.by_taps and not passing and can_keep(w)
    if plan.kept:
        plan_rings(isa, plan, met_numbers(w, plan.chunk), 1)
        plan.kept = rings_pay(w, plan)
    while not plan.kept:
        if plan.by_taps:
            plan.extent = (ceiling(plan.chunk, isa.width) + 1) * isa.width
            plan.channel_floats = plan.taps * plan.extent + isa.width
        else:
            plan_frames(w, isa, plan)
        if not plan.framed or plan.chunk == unit or frames_fit(w, plan):
            break
        plan.chunk = ceiling(plan.chunk, 2 * unit) * unit
    plan.steps = plan.chunk
    plan.channels = plan.tap_tiles  # in tiles
    if plan.framed and not plan.mixed:
        plan.channels = 1 if passing else max(1, FRAME_BYTES // (4 * plan.channel_floats * plan.rows))


cdef void plan_rings(const instruction_set* isa, WeightsPlan* plan, int64_t numbers, int64_t tiles) noexcept nogil:
    """Rings that hold so many numbers, of the channels of some tiles, an odd number of vectors apart."""
    plan.ring = numbers + isa.width
    plan.channel_floats = ((plan.ring - 1) // isa.width + 2 | 1) * isa.width
    plan.channels = tiles
