"""How pieces, panels and rows of a weights gradient are cut into tasks, and where their sums wait.

uses: core/caches.pxi (middle_cache), engine/costs.pxi, engine/product/pairs.pxi (on_matrix),
    engine/weights/gradient.pxi (Weights), engine/weights/kept.pxi (met_numbers), engine/weights/make_plan.pxi
    (plan_rings), engine/weights/matrix_rows.pxi (matrix_row_quarters), engine/weights/plan.pxi,
    engine/weights/shared_chunks.pxi (can_share_chunks), engine/weights/windows.pxi (window_moved)
gives: own_floats, own_levels, share_work, strand_floats
"""

cdef inline int64_t block_positions(const WeightsPlan* plan, int64_t levels) noexcept nogil:
    """Of a block of 2**levels pieces, at most."""
    return min(plan.positions, plan.cut.length << levels)


cdef double numbers_kept(const Weights* w, const instruction_set* isa, WeightsPlan* plan, int64_t levels, int64_t panel_parts, int64_t row_parts) noexcept nogil:
    """How many numbers are converted for a position, if rings are as large as they may be; and plan them so."""
    cdef int64_t tiles = ceiling(plan.strands, row_parts), channels = min(w.C, tiles * plan.rows)
    cdef int64_t met = met_numbers(w, min(plan.chunk, plan.positions)), whole = met_numbers(w, block_positions(plan, levels))
    cdef double once = <double>whole * w.C / max(1, block_positions(plan, levels))
    if 4 * channels * (whole + 3 * isa.width) <= RING_BYTES:
        plan_rings(isa, plan, whole, tiles)
        return once
    plan_rings(isa, plan, met, tiles)
    if 4 * channels * plan.channel_floats <= RINGS_BYTES:
        return once * panel_parts
    plan.channels = max(1, FRAME_BYTES // (4 * plan.channel_floats * plan.rows))
    return <double>met * w.C / max(1, min(plan.chunk, plan.positions)) * panel_parts


cdef inline bint in_chunks(const WeightsPlan* plan) noexcept nogil:
    """Whether the sums of a task are met more than once, as far as is known before."""
    return plan.cut.length > plan.chunk


cdef void plan_sums(const WeightsPlan* plan, int64_t levels, int64_t panel_parts, int64_t row_parts, WaitingSums* sums) noexcept nogil:
    """Where sums wait with blocks of 2**levels pieces."""
    cdef int64_t floats, kept
    sums.levels = levels
    sums.blocks = ceiling(plan.cut.pieces, 1 << levels)
    sums.at_once = sums.blocks == 1
    sums.panels = ceiling(plan.panels, panel_parts)
    floats = strand_floats(plan, sums)
    sums.whole = 0
    sums.together = max(1, STORED_BYTES // (4 * floats)) if plan.cut.pieces == 1 else 0
    kept = ceiling(plan.strands, row_parts)
    if sums.together > 0 and not in_chunks(plan):
        kept = min(kept, sums.together)
    sums.task_floats = kept * floats
    if levels == 0 and 4 * sums.task_floats > LEVELS_BYTES:
        sums.at_once = False
        sums.together = 0
        sums.task_floats = ceiling(plan.strands, row_parts) * floats


cdef inline int64_t strand_floats(const WeightsPlan* plan, const WaitingSums* sums) noexcept nogil:
    return strand_tiles(plan) * sums.panels * plan.tile_floats


cdef inline int64_t own_floats(const WeightsPlan* plan, const WaitingSums* sums) noexcept nogil:
    """Of the largest task."""
    return sums.task_floats if sums.whole == 0 else plan.strands * strand_floats(plan, sums)


cdef inline int64_t own_levels(const WaitingSums* sums) noexcept nogil:
    return sums.levels + (1 if sums.at_once else 0)


cdef inline double busiest_share(int64_t tasks, int64_t shorter, double length, int threads) noexcept nogil:
    """What the busiest thread gets of tasks of length 1 and then shorter ones."""
    cdef int64_t rounds = ceiling(tasks, threads)
    return rounds + length * ceiling(max(0, shorter - (rounds * threads - tasks)), threads)


cdef double tasks_cost(const Weights* w, const instruction_set* isa, const WeightsPlan* plan, const WaitingSums* sums, int64_t panel_parts, int64_t row_parts,
                       bint shared, int threads) noexcept nogil:
    """Quarters of a cycle for a position, of products, packed lanes and sums that wait."""
    cdef int64_t full = plan.cut.pieces >> sums.levels, rest = plan.cut.pieces - (full << sums.levels), parts = panel_parts * row_parts
    cdef double lanes = <double>w.M, products = lanes * w.C * plan.taps * number_quarters(plan.pairs) / isa.width
    cdef double busy = (sums.whole * parts // threads + busiest_share(
        w.G * (full - sums.whole) * parts, (w.G if rest > 0 else 0) * parts, <double>rest / (1 << sums.levels), threads)) * (1 << sums.levels)
    cdef double largest = ceiling(plan.vectors * ceiling(plan.panels, panel_parts), plan.panels) * ceiling(plan.strands, row_parts)
    cdef double cost = products * busy * largest * threads / (<double>w.G * plan.cut.pieces * plan.vectors * plan.strands)
    cost += lanes * (1 + (LANES_SHARED if shared else 1) * (row_parts - 1) * (sums.blocks - sums.whole) / <double>sums.blocks)
    if shared:
        cost += QUARTERS * REGION_CYCLES * (threads if threads > 1 else 0) / max(1, plan.positions)
    if not sums.at_once:
        cost += WAITING_COST * lanes * w.C * plan.taps * sums.blocks / max(1, plan.positions)
    return cost


cdef inline double far_sums(int64_t bytes) noexcept nogil:
    """Factor of products whose sums do not stay near."""
    return 1 + SUMS_FAR * log2(max(1.0, bytes / <double>FAR_SUMS_BYTES))


cdef void share_work(const Weights* w, const instruction_set* isa, int threads, WeightsPlan* plan) noexcept nogil:
    """Cut pieces, panels and strands into tasks: work that comes out even, sums that stay near, and the least packed twice."""
    cdef int64_t panel_parts, least_panels, row_parts, least_rows, levels, largest, full, whole, own
    cdef double cost, least = -1, frames  # quarters of a cycle for a position
    cdef WaitingSums sums
    cdef bint can_share = can_share_chunks(w, isa, plan), shared
    plan.shared = False
    if plan.windows:
        frames = window_moved(&plan.windowed, plan)
    elif plan.packed and on_matrix(plan.pairs):
        frames = matrix_row_quarters(w, plan) * w.C * plan.taps
    elif plan.packed:
        frames = <double>w.C * plan.taps * (ROW_LINE if plan.lines else ROW_PACKED)
    elif plan.framed:
        frames = <double>w.C * w.K[0] * w.K[1] * w.s[2]
    else:
        frames = ROW_IN_PLACE * w.C
    least_panels = max(1, ceiling(4 * plan.panels * panel_floats(plan, isa), min(<int64_t>LANES_BYTES, middle_cache // 2)))
    least_panels = min(least_panels, plan.panels)
    plan.panel_parts, plan.row_parts, plan.quarters = 1, 1, 0
    plan_sums(plan, 0, 1, 1, &plan.sums)
    for levels in range(MOST_LEVELS + 1):
        full = plan.cut.pieces >> levels
        if levels > 0 and full == 0 and plan.cut.pieces <= 1 << (levels - 1):
            break
        panel_parts = least_panels
        while panel_parts <= plan.panels:
            least_rows = 1
            if in_chunks(plan):
                largest = 4 * plan.row_tiles * ceiling(plan.panels, panel_parts) * plan.tile_floats
                least_rows = max(1, min(plan.strands, ceiling(largest, NEAR_SUMS_BYTES)))
            for row_parts in range(least_rows, min(plan.strands, least_rows + 4 * threads) + 1):
                plan_sums(plan, levels, panel_parts, row_parts, &sums)
                whole = full - full % threads if w.G == 1 and row_parts > 1 and least_rows == 1 else 0
                while True:  # with rows of all blocks in parts, or only of those that do not come out even
                    # As many tasks as threads would wait for one another, and pack no less in the end.
                    shared = can_share and sums.whole == 0 and row_parts > 1 and w.G * row_parts * sums.blocks > threads
                    cost = tasks_cost(w, isa, plan, &sums, panel_parts, row_parts, shared, threads)
                    cost += (numbers_kept(w, isa, plan, levels, panel_parts, row_parts if sums.whole == 0 else 1) if plan.kept
                             else frames * panel_parts)
                    own = 4 * own_levels(&sums) * own_floats(plan, &sums)
                    if can_share and in_chunks(plan):
                        cost *= far_sums(own)
                    if ((levels == 0 or own <= LEVELS_BYTES)
                            and (least < 0 or cost < least)):
                        least = cost
                        plan.panel_parts, plan.row_parts, plan.sums, plan.quarters = panel_parts, row_parts, sums, cost
                        plan.shared = shared
                    if sums.whole == whole or sums.at_once:
                        break
                    sums.whole = whole
            panel_parts += 1 + panel_parts // DISTINCT_PARTS
    if plan.kept:
        numbers_kept(w, isa, plan, plan.sums.levels, plan.panel_parts, plan.row_parts if plan.sums.whole == 0 else 1)
