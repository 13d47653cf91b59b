"""How `rows_are_positions` divides its products: panels of channels, boxes of positions, classes that meet the same taps.

uses: core/caches.pxi (middle_cache), engine/algorithms.pxi (Problem), engine/costs.pxi (stores_wait),
    engine/product/position_classes.pxi (CUTS_EVERYWHERE, cut_axis), engine/product/product.pxi (PositionClass, Product, STEPS, staggered),
    engine/weights/few_pairs.pxi (near_steps)
gives: Box, PositionRows, cut_classes, plan_position_rows
"""

cdef enum:
    NEAR_WEIGHTS = 1 << 16        # packed weights that stay in the middle cache while all columns of a range meet them
    RANGE_FLOATS = 1 << 18        # of the input that a range of columns meets, if the middle cache has room for them
    POSITION_ROWS_COLUMNS = 1024  # of a range, at most
    LEAST_COLUMNS = 64            # ... and at least
    FEW_OF_A_CLASS = 2            # tiles, on the average of all classes of a box: fewer have few rows
    ALL_PANELS_BYTES = 1 << 20    # packed weights of all panels, where every box meets all of them
    JOINED_BYTES = 1 << 19        # packed weights of a panel of all stride classes: as many lanes as this holds, or one vector


cdef struct Box:  # images and output positions that are computed together, class by class
    int64_t first[4]
    int64_t end[4]
    int64_t ranges[3]  # classes along each axis
    int64_t columns


cdef struct PositionRows:
    int64_t vectors       # of the lanes
    int64_t panels
    int64_t items         # panels of all groups
    int64_t pitch         # packed weights of a step of the reduction
    int64_t tap_floats    # ... of a panel from a tap to the next
    int64_t item_floats   # ... of all taps
    int64_t near_taps     # whose weights stay near together
    int64_t near_steps    # ... steps of a tap
    int64_t extent[4]     # images and output positions
    int64_t cut[4]        # ... in so many parts each
    int64_t boxes         # in all
    int64_t most_columns  # positions of a box
    int64_t borders[3][CUTS_EVERYWHERE + 1]  # between ranges of positions that meet the same taps
    int64_t ranges[3]     # how many
    double met            # share of the pairs (position, tap) that lies inside
    bint together         # all panels are packed first: a task is a box, which meets all of them while its input is near
    int64_t whole         # otherwise: panels that one thread packs, and computes all columns of
    int64_t pieces        # ... in so many of which all threads pack each of the others
    int64_t tasks         # one for each of those panels, and one for each box of each other one


cdef void cut_boxes(PositionRows* plan, int64_t columns, int images_after) noexcept nogil:
    """As many whole lines, planes and images as so many columns hold, or parts of a line. All images come after so many axes: 3, or 2
    for planes of all images, or 1 for lines."""
    cdef int axis, i
    plan.boxes = plan.most_columns = 1
    for i in range(4):
        axis = 0 if i == images_after else 3 - i if i < images_after else 4 - i
        plan.cut[axis] = ceiling(plan.extent[axis], max(1, columns // plan.most_columns))
        plan.most_columns *= ceiling(plan.extent[axis], plan.cut[axis])
        plan.boxes *= plan.cut[axis]


cdef void divide_columns(PositionRows* plan, const instruction_set* isa, int64_t columns, int threads) noexcept nogil:
    """Boxes of so many columns at most, of which so many threads get as many.  Of a few images each class has a few positions: then boxes
    are planes of all images, or lines."""
    cdef int64_t most = columns, lines = ceiling(plan.extent[2], 2 * threads), images = plan.extent[0] * plan.extent[3]
    cut_boxes(plan, columns, 3)
    while plan.boxes % threads != 0 and columns > 4 * isa.rows:
        columns -= columns // 4
        cut_boxes(plan, columns, 3)
    if threads == 1 or plan.cut[0] == 1 or most_columns_of_class(plan) >= FEW_OF_A_CLASS * isa.rows:
        return
    if plan.extent[1] >= threads and images * plan.extent[2] <= most:
        cut_boxes(plan, images * plan.extent[2], 2)
    elif plan.extent[1] == 1 and lines > 1 and images * lines <= most:
        cut_boxes(plan, images * lines, 1)


cdef inline int64_t most_columns_of_class(const PositionRows* plan) noexcept nogil:
    """On the average of the classes of a box."""
    return plan.most_columns // max(1, plan.ranges[0] * plan.ranges[1] * plan.ranges[2])


cdef void plan_position_rows(const Problem* q, const Product* p, PositionRows* plan) noexcept nogil:
    """Panels hold `joined_taps` of all products of the problem, or those of this one, of some images, if that is 0."""
    cdef const instruction_set* isa = q.isa
    cdef int threads = q.threads
    cdef double numbers = max(<double>p.N * p.I[0] * p.I[1] * p.I[2], <double>p.columns) * p.S
    cdef double missed = 0, range_floats = min(<int64_t>RANGE_FLOATS, middle_cache // 4)
    cdef int64_t near, shared
    cdef bint few
    cdef int axis
    plan.vectors = ceiling(p.R, isa.width)
    plan.panels = ceiling(plan.vectors, isa.vectors)
    if q.joined_taps > 0:
        plan.panels = max(plan.panels, ceiling(plan.vectors, max(1, JOINED_BYTES // (4 * q.joined_taps * p.S * isa.width))))
    plan.items = p.G * plan.panels
    plan.pitch = ceiling(plan.vectors, plan.panels) * isa.width
    plan.tap_floats = staggered(p.S * plan.pitch)
    near = max(1, NEAR_WEIGHTS // plan.pitch)
    if p.blocks and (isa.width < DOT_LANES or not stores_wait()):
        near = STEPS  # tiles add each block to sums in memory, or load lanes several times: more steps save nothing
    plan.near_taps = max(1, min(p.tap_count, near // p.S))
    if p.tap_count > 0:
        plan.near_taps = ceiling(p.tap_count, ceiling(p.tap_count, plan.near_taps))
    plan.near_steps = ceiling(ceiling(p.S, ceiling(p.S, near)), p.block) * p.block
    plan.item_floats = max(q.joined_taps, p.tap_count) * plan.tap_floats + isa.width
    plan.met = 1
    plan.extent[0] = p.N
    for axis in range(3):
        plan.extent[axis + 1] = p.Q[axis]
        plan.ranges[axis] = cut_axis(p, axis, CUTS_EVERYWHERE, plan.borders[axis], &missed)
        plan.met *= 1 - missed
    few = 4 * plan.items * plan.item_floats <= ALL_PANELS_BYTES and q.joined_taps == 0
    shared = plan.items % threads
    if shared == 0 and plan.vectors % plan.panels != 0 and threads > 1:  # the last thread would get narrower panels
        shared = threads
    divide_columns(plan, isa, max(LEAST_COLUMNS, min(POSITION_ROWS_COLUMNS, <int64_t>(p.columns * (range_floats / numbers)))),
                   threads if few or shared > 0 else 1)
    plan.together = few and plan.boxes >= threads
    plan.whole = 0 if plan.together else plan.items - shared
    plan.tasks = p.G * plan.boxes if plan.together else plan.whole + (plan.items - plan.whole) * plan.boxes
    plan.pieces = max(1, min(p.S // p.block, ceiling(threads, max(1, plan.items - plan.whole))))

cdef void cut_classes(const PositionRows* plan, int64_t number, Box* box, PositionClass* classes) noexcept nogil:
    """Box `number` and its classes, along each axis as many as there are ranges that it meets."""
    cdef int64_t low[3][CUTS_EVERYWHERE]
    cdef int64_t high[3][CUTS_EVERYWHERE]
    cdef int64_t i, i0, i1, i2, first, end, images
    cdef int axis
    cdef PositionClass* positions = classes
    for axis in range(3, -1, -1):
        i = number % plan.cut[axis]
        number //= plan.cut[axis]
        box.first[axis] = share(plan.extent[axis], plan.cut[axis], i)
        box.end[axis] = share(plan.extent[axis], plan.cut[axis], i + 1)
    for axis in range(3):
        box.ranges[axis] = 0
        for i in range(plan.ranges[axis]):
            first, end = max(box.first[axis + 1], plan.borders[axis][i]), min(box.end[axis + 1], plan.borders[axis][i + 1])
            if first < end:
                low[axis][box.ranges[axis]], high[axis][box.ranges[axis]] = first, end
                box.ranges[axis] += 1
    check_room(b"cut_classes", classes, box.ranges[0] * box.ranges[1] * box.ranges[2] * sizeof(PositionClass))
    box.columns, images = 0, box.end[0] - box.first[0]
    for i0 in range(box.ranges[0]):
        for i1 in range(box.ranges[1]):
            for i2 in range(box.ranges[2]):
                positions.column = box.columns
                positions.q[0], positions.q[1], positions.q[2] = low[0][i0], low[1][i1], low[2][i2]
                positions.extent[0] = high[0][i0] - low[0][i0]
                positions.extent[1] = high[1][i1] - low[1][i1]
                positions.extent[2] = high[2][i2] - low[2][i2]
                box.columns += images * positions.extent[0] * positions.extent[1] * positions.extent[2]
                positions += 1
