"""The problem of `backward_weights`, in parts where all of it would take too much workspace: groups, channels or taps.

Sums of different groups, channels and taps do not meet, and a part's are cut as those of the whole: its bits are the same.

uses: core/extents.pxi (check_extents), core/problem.pxi (Call, View, element_count, operand_of),
    engine/algorithms.pxi (Inquiry, Problem, begin_weights, chosen_bytes, compute, end_problem),
    engine/weights/gradient.pxi (Weights), engine/weights/make_plan.pxi (HUGE_FRAME)
gives: WEIGHTS_BYTES, WEIGHTS_THREAD_BYTES, run_backward_weights
"""

cdef enum:
    WEIGHTS_BYTES = 8 << 20         # of all threads ...
    WEIGHTS_THREAD_BYTES = 4 << 20  # ... and of each, above which a gradient is divided
    DIVISIBLE = 6                   # axes of the result: g, m, c, taps


cdef bint halve(const Weights* w, int axis, Weights* first, Weights* second) noexcept nogil:
    """Divide along an axis of the result, where that is possible."""
    cdef int64_t* extents[DIVISIBLE]
    cdef int64_t extent, half, unit = 1
    first[0] = second[0] = w[0]
    extents[0], extents[1], extents[2] = &first.G, &first.M, &first.C
    extents[3], extents[4], extents[5] = &first.K[0], &first.K[1], &first.K[2]
    extent = extents[axis][0]
    if extent < 2:
        return False
    if axis == 1 and extent > TILE_LANES:
        unit = TILE_LANES
    elif axis == 2 and extent > TILE_ROWS:
        unit = TILE_ROWS
    half = ceiling(ceiling(extent, 2), unit) * unit
    extents[axis][0] = half
    extents[0], extents[1], extents[2] = &second.G, &second.M, &second.C
    extents[3], extents[4], extents[5] = &second.K[0], &second.K[1], &second.K[2]
    extents[axis][0] = extent - half
    second.taps = <char*>w.taps + half * w.taps_stride[axis] * element_size(w.taps_format)
    if axis > 2:
        second.b[axis - 3] -= half * w.d[axis - 3]
    if axis == 0 or axis == 1:
        second.small.data = <char*>w.small.data + half * (w.small.g if axis == 0 else w.small.c) * element_size(w.small.format)
    if axis == 0 or axis == 2:
        second.large.data = <char*>w.large.data + half * (w.large.g if axis == 0 else w.large.c) * element_size(w.large.format)
    return True


cdef int run_weights_parts(const Weights* w, int threads, Inquiry* inquiry) except -1 nogil:
    """All at once, or the halves along the axis where that saves most. Returns true where the results are not those of the
    definition."""
    cdef Weights first, second
    cdef Problem q
    cdef int64_t needed, least
    cdef int axis, best = -1
    cdef bint outcome
    begin_weights(&q, w, threads, inquiry)
    try:
        least = chosen_bytes(&q, False)
        if w.large.format != NUMBER_FLOAT64 and least > WEIGHTS_BYTES + <int64_t>q.threads * WEIGHTS_THREAD_BYTES:
            for axis in range(DIVISIBLE):
                if halve(w, axis, &first, &second):
                    needed = part_bytes(&first, threads)
                    if needed < least:
                        best, least = axis, needed
            if best < 0 and least > <int64_t>4 * HUGE_FRAME:  # frames too large to be told apart: those of fewer taps
                for axis in range(3, DIVISIBLE):
                    if halve(w, axis, &first, &second):
                        best = axis
        if best < 0:
            return compute(&q)
    finally:
        end_problem(&q)
    halve(w, best, &first, &second)
    outcome = run_weights_parts(&first, threads, inquiry)
    if run_weights_parts(&second, threads, inquiry):
        outcome = True
    return outcome


cdef int64_t part_bytes(const Weights* w, int threads) except -1 nogil:
    """Of the workspace that a part would take undivided."""
    cdef Problem q
    begin_weights(&q, w, threads, NULL)
    try:
        return chosen_bytes(&q, False)
    finally:
        end_problem(&q)


cdef void write_zeros(const View* view) noexcept nogil:
    """To every element: of all formats the zero is code 0."""
    cdef int64_t number, rest, offset
    cdef int axis
    for number in range(element_count(view)):
        rest, offset = number, 0
        for axis in range(5, -1, -1):
            offset += rest % view.shape[axis] * view.stride[axis]
            rest //= view.shape[axis]
        memset(<char*>view.buffer.buf + offset * view.buffer.itemsize, 0, view.buffer.itemsize)


cdef int run_backward_weights(Call* c, int threads, Inquiry* inquiry) except -1 nogil:
    cdef Weights w
    cdef int64_t left
    cdef int axis
    if element_count(&c.small) == 0 or element_count(&c.large) == 0:
        if inquiry == NULL or not inquiry.asked:
            write_zeros(&c.taps)
        return 0
    check_extents(c)
    w.N, w.G, w.C, w.M = c.small.shape[0], c.taps.shape[0], c.taps.shape[2], c.taps.shape[1]
    w.large, w.small = operand_of(&c.large), operand_of(&c.small)
    w.taps, w.taps_format = c.taps.buffer.buf, c.taps.format
    for axis in range(3):
        w.X[axis], w.Y[axis], w.K[axis] = c.large.shape[3 + axis], c.small.shape[3 + axis], c.taps.shape[3 + axis]
        w.s[axis], w.d[axis], w.b[axis] = c.s[axis], c.d[axis], c.b[axis]
    for axis in range(6):
        w.taps_stride[axis] = c.taps.stride[axis]
    w.cut = cut_reduction(w.N * w.Y[0] * w.Y[1] * w.Y[2], w.Y[2], w.M, w.G * w.M * w.C * w.K[0] * w.K[1] * w.K[2])
    if c.is_subtree:
        w.cut.offset, w.cut.pieces, w.cut.length = c.offset, c.pieces, c.length
    left = w.N * w.Y[0] * w.Y[1] * w.Y[2] - w.cut.offset
    if left <= 0:
        if inquiry == NULL or not inquiry.asked:
            write_zeros(&c.taps)
        return 0
    w.cut.pieces = min(w.cut.pieces, ceiling(left, w.cut.length))  # the last ones may be empty: they add +0
    return run_weights_parts(&w, threads, inquiry)
