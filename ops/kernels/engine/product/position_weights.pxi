"""Weights of `rows_are_positions`: panels of some output channels, packed for its tiles, and asked for before they are packed.

uses: core/problem.pxi (Operand), engine/ahead.pxi (Wishes, begin_wishes), engine/product/pack.pxi (gather_all_taps),
    engine/product/pairs.pxi (first_channel), engine/product/product.pxi (PositionClass, Product),
    engine/product/rows_are_positions_plan.pxi (PositionRows)
gives: PositionRowsJob, PositionRowsScratch, ask_for_panel, lane_channel, pack_position_rows, panel_bytes
"""

cdef enum:
    ASKED_COLUMNS = 1024  # of a product, at most, whose tiles ask: of more, packing is a small part
    NEAR_SPAN = 2         # numbers between the first and the last weight of an output channel, for each of them


cdef struct PositionRowsJob:  # one of the products, of some images
    Product product
    PositionRows plan
    float* packed         # weights of the panels that all threads pack
    int64_t packing       # tasks that pack them
    int64_t packs         # products whose weights its panels hold: its own and those of the products after it, for which this is 0
    int64_t before        # packed weights of a panel before its own


cdef struct PositionRowsScratch:  # of one thread
    float* packed         # weights of a panel that it packs by itself
    float* sums           # [column][lane]
    int64_t* order        # sums of positions in the order of the result
    int64_t* bases        # where the input of a column begins, before any tap
    PositionClass* classes
    tile_run* runs        # of the taps that a class of positions meets
    float* cells          # sums of a line, [channel][position], where they are stored with what lies between them
    Wishes ahead          # weights of the panel that it probably packs next
    uint16_t smallest         # magnitude of a bfloat16 met in the input, less one
    uint16_t smallest_weight


cdef inline int64_t panel_bytes(const PositionRows* plan) noexcept nogil:
    """Of the panels that all threads pack."""
    return 4 * (plan.items - plan.whole) * plan.item_floats


cdef inline int64_t lane_channel(const PositionRows* plan, const instruction_set* isa, int64_t panel) noexcept nogil:
    return share(plan.vectors, plan.panels, panel) * isa.width


cdef void pack_position_rows(const PositionRowsJob* job, const instruction_set* isa, int64_t item, int64_t first, int64_t end,
                             float* packed, uint16_t* smallest) noexcept nogil:
    """Steps [first, end) of each tap, of the weights of one panel: packed[tap][step][channel]."""
    cdef const Product* p = &job.product
    cdef const PositionRows* plan = &job.plan
    cdef int64_t panel = item % plan.panels, row = lane_channel(plan, isa, panel), pitch = plan.pitch, t
    cdef int64_t rows = min(p.R, lane_channel(plan, isa, panel + 1)) - row, d = first_channel(p, first)
    cdef const char* start = (<const char*>p.weights.data + (item // plan.panels * p.weights.g + row * p.weights.n + d * p.weights.c)
                              * element_size(p.weights.format))
    cdef Product some = p[0]
    some.D = (p.D if end == p.S else first_channel(p, end)) - d
    for t in range(1, job.packs):
        some.tap_count += job[t].product.tap_count  # their offsets follow
    check_room(b"pack_position_rows", packed, 4 * plan.item_floats)
    if rows % isa.width:
        for t in range(some.tap_count):
            memset(packed + t * plan.tap_floats + first * pitch, 0, 4 * (end - first) * pitch)
    gather_all_taps(&some, isa, packed + first * pitch, plan.tap_floats, pitch, rows, start, smallest)


cdef void ask_for_panel(const PositionRowsJob* job, const instruction_set* isa, int64_t item, Wishes* ahead) noexcept nogil:
    """Tiles that meet a panel ask for the weights of the panel `item`, where the weights of each output channel lie together, far
    from those of the next.  Where those of several channels do, asking saves nothing.  Tiles of blocks do not ask."""
    cdef const Product* p = &job.product
    cdef const PositionRows* plan = &job.plan
    cdef const Operand* w = &p.weights
    cdef int64_t row, rows, size = element_size(w.format), low, high, t, taps = 0, calls = 0, numbers
    ahead.left = 0
    if item >= plan.whole or p.columns > ASKED_COLUMNS or p.blocks or not 0 < w.c < w.n:
        return
    for t in range(job.packs):
        taps += job[t].product.tap_count
        calls += (ceiling(job[t].product.columns, isa.rows) * ceiling(job[t].product.tap_count, job[t].plan.near_taps)
                  * ceiling(p.S, job[t].plan.near_steps))
    if taps == 0:
        return
    low = high = p.tap_offsets[0]
    for t in range(1, taps):
        low, high = min(low, p.tap_offsets[t]), max(high, p.tap_offsets[t])
    numbers = (p.D - 1) * w.c + high - low + 1
    if numbers > NEAR_SPAN * p.D * taps:
        return
    row = lane_channel(plan, isa, item % plan.panels)
    rows = min(p.R, lane_channel(plan, isa, item % plan.panels + 1)) - row
    begin_wishes(ahead, <const char*>w.data + (item // plan.panels * w.g + row * w.n + low) * size, w.n * size, rows, numbers * size, calls)
