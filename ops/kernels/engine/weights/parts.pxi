"""backward_weights in parts, where all of it would take too much workspace: groups, channels or taps.

Sums of different groups, channels and taps do not meet, and a part's are cut as those of the whole: its bits are the same.
"""

cdef enum:
    WEIGHTS_BYTES = 8 << 20         # of all threads ...
    WEIGHTS_THREAD_BYTES = 4 << 20  # ... and of each, above which a gradient is divided
    DIVISIBLE = 6                   # axes of the result: g, m, c, taps


cdef inline bint takes_too_much(const Weights* w, int64_t bytes_needed, int threads) noexcept nogil:
    return bytes_needed > WEIGHTS_BYTES + <int64_t>threads * WEIGHTS_THREAD_BYTES and not w.indivisible


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


cdef int run_weights_part(const Weights* w, int threads, int64_t* report) except -1 nogil:
    """Returns false, with nothing computed, where it must be divided."""
    cdef Weights lines
    if fits_depthwise_nxc_weights(w, current):
        return run_depthwise_nxc_weights(w, threads, report)
    if w.cut.chains > 1:
        return run_few_weights(w, threads, report)
    lines = w[0]
    return run_weights(&lines, threads, report)


cdef int run_weights_parts(const Weights* w, int threads, int64_t* report) except -1 nogil:
    """All at once, or the halves along the axis where that saves most."""
    cdef Weights first, second, whole
    cdef int64_t needed = 0, least = 0
    cdef int axis, best = -1
    if run_weights_part(w, threads, report):
        return 0
    whole = w[0]
    whole.indivisible = True
    run_weights_part(&whole, threads, &least)
    for axis in range(DIVISIBLE):
        if halve(&whole, axis, &first, &second):
            needed = 0
            run_weights_part(&first, threads, &needed)
            if needed < least:
                best, least = axis, needed
    if best < 0:
        run_weights_part(&whole, threads, report)
        return 0
    halve(w, best, &first, &second)
    run_weights_parts(&first, threads, report)
    run_weights_parts(&second, threads, report)
    return 0
