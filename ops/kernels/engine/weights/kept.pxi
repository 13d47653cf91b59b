"""The large side of a weights gradient as floats, each number converted once while a task needs it.

A chunk of positions meets some lines of the large side, most of which the chunk before has met, too. So the numbers of some channels
lie in rings, [channel][number], in the order of memory without gaps: a chunk adds what it is the first to meet. The task of other
lane panels finds all of them where a ring holds what a block of pieces meets.

uses: engine/product/pack.pxi (channels_innermost, gather_line), engine/weights/gradient.pxi (Row, Weights, large_at, reaches_outside),
    engine/weights/plan.pxi (WeightsPlan, WeightsScratch)
gives: Reached, all_met, asks_for_numbers, can_keep, keep_numbers, last_step, met_numbers, number_of, reached_by
"""

cdef struct Reached:  # numbers of a channel, counted in the order n, x0, x1, x2: what some positions meet lies between
    int64_t first
    int64_t end


cdef inline int64_t number_of(const Weights* w, int64_t n, int64_t x0, int64_t x1, int64_t x2) noexcept nogil:
    return ((n * w.X[0] + x0) * w.X[1] + x1) * w.X[2] + x2


cdef inline int64_t last_step(const Weights* w, int axis) noexcept nogil:
    """From the first tap to the last."""
    return (w.K[axis] - 1) * w.d[axis]


cdef bint can_keep(const Weights* w) noexcept nogil:
    """Whether the first tap of all positions lies before the end of the large side, and the last one behind its beginning: then
    a chunk never meets more than `met_numbers`."""
    cdef int axis
    for axis in range(3):
        if (w.Y[axis] - 1) * w.s[axis] - w.b[axis] >= w.X[axis] or last_step(w, axis) < w.b[axis]:
            return False
    return True


cdef inline bint one_inside(const Weights* w, int axis) noexcept nogil:
    return w.K[axis] == 1 and not reaches_outside(w, axis)


cdef int64_t met_numbers(const Weights* w, int64_t positions) noexcept nogil:
    """The most that so many positions, which follow one another, lie apart on the large side."""
    cdef int64_t plane = w.X[1] * w.X[2], steps = positions - 1, planes, lines, line_step = w.s[1], plane_step = w.s[0], met
    planes = min((steps + w.Y[1] * w.Y[2] - 1) // (w.Y[1] * w.Y[2]), w.N * w.Y[0] - 1)
    lines = min((steps + w.Y[2] - 1) // w.Y[2], w.N * w.Y[0] * w.Y[1] - 1)
    if w.N > 1:
        plane_step = max(plane_step, w.X[0] - (w.Y[0] - 1) * w.s[0])
    if planes > 0:
        line_step = max(line_step, plane_step * w.X[1] - (w.Y[1] - 1) * w.s[1])
    if planes > 0 and not one_inside(w, 0):
        met = (last_step(w, 0) + planes * plane_step + 1) * plane
    elif lines > 0 and not one_inside(w, 1):
        met = last_step(w, 0) * plane + (last_step(w, 1) + lines * line_step + 1) * w.X[2]
    else:
        met = (last_step(w, 0) * plane + last_step(w, 1) * w.X[2] + last_step(w, 2) + 1 + steps * w.s[2]
               + lines * max(0, line_step * w.X[2] - w.Y[2] * w.s[2]))
    return min(met, w.N * w.X[0] * plane)


cdef Reached reached_by(const Weights* w, const Row* rows, int64_t row_count) noexcept nogil:
    """Of the rows of a chunk. Whole planes, or lines, where those of several meet the same."""
    cdef const Row* last = &rows[row_count - 1]
    cdef bint alone = row_count == 1 or rows.n == last.n and rows.y[0] == last.y[0] or one_inside(w, 0), alone_in_line
    cdef int64_t x0 = max(0, rows.y[0] * w.s[0] - w.b[0]), x1 = 0, x2 = 0
    cdef int64_t e0 = min(w.X[0] - 1, last.y[0] * w.s[0] - w.b[0] + last_step(w, 0)), e1 = w.X[1] - 1, e2 = w.X[2] - 1
    alone_in_line = row_count == 1 or alone and one_inside(w, 1)
    if alone:
        x1 = max(0, rows.y[1] * w.s[1] - w.b[1])
        e1 = min(e1, last.y[1] * w.s[1] - w.b[1] + last_step(w, 1))
    if alone_in_line:
        x2 = max(0, rows.y[2] * w.s[2] - w.b[2])
        e2 = min(e2, (last.y[2] + last.count - 1) * w.s[2] - w.b[2] + last_step(w, 2))
    return Reached(number_of(w, rows.n, x0, x1, x2), number_of(w, last.n, e0, e1, e2) + 1)


cdef inline bint is_met(const Weights* w, int axis, int64_t x) noexcept nogil:
    """Whether some tap meets index x of an axis, as far as strides tell."""
    cdef int64_t t
    if w.s[axis] == 1:
        return True
    for t in range(min(w.K[axis], w.s[axis])):
        if (x + w.b[axis] - t * w.d[axis]) % w.s[axis] == 0:
            return True
    return False


cdef inline bint asks_for_numbers(const Weights* w, const WeightsPlan* plan) noexcept nogil:
    """Whether tiles ask for what the next chunk converts. Numbers of 8 bits are too few to be waited for."""
    return plan.framed and not plan.tall and not plan.shared and element_size(w.large.format) == 2


cdef void convert_numbers(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t start, int64_t channels, int64_t first,
                          int64_t count, float* place) noexcept nogil:
    """Numbers of one line, or of lines that follow one another in memory; `start`: of the first channel in the large side."""
    cdef int64_t x2 = first % w.X[2], line = first // w.X[2], x1 = line % w.X[1], x0 = line // w.X[1] % w.X[0], n = line // w.X[1] // w.X[0]
    cdef int64_t offset = start + n * w.large.n + x0 * w.large.x[0] + x1 * w.large.x[1] + x2 * w.large.x[2]
    check_room(b"convert_numbers", place, 4 * ((channels - 1) * plan.channel_floats + count))
    if channels_innermost(&w.large, channels):
        gather_line(&w.large, isa, NULL, place, plan.channel_floats, channels, offset, w.large.x[2], count, NULL)
    else:
        isa.frame(place, plan.channel_floats, channels, count, 0, count, large_at(w, offset), w.large.format, w.large.c, w.large.x[2],
                  0 if asks_for_numbers(w, plan) else count * w.large.x[2])


cdef inline bint all_met(const Weights* w, int axis) noexcept nogil:
    """Whether taps meet every index of an axis, as far as strides tell."""
    return w.K[axis] >= w.s[axis] and common_divisor(w.d[axis], w.s[axis]) == 1


cdef int64_t whole_lines(const Weights* w) noexcept nogil:
    """Numbers that follow one another in memory and are all met: of a line, a plane or an image."""
    if not all_met(w, 1) or w.X[1] > 1 and w.large.x[1] != w.X[2] * w.large.x[2]:
        return w.X[2]
    if not all_met(w, 0) or w.X[0] > 1 and w.large.x[0] != w.X[1] * w.large.x[1]:
        return w.X[1] * w.X[2]
    return w.X[0] * w.X[1] * w.X[2]


cdef void keep_numbers(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t channel, int64_t channels,
                       const Row* rows, int64_t row_count, WeightsScratch* s) noexcept nogil:
    """Convert what a chunk is the first to meet in some channels."""
    cdef Reached reached = reached_by(w, rows, row_count)
    cdef int64_t together = whole_lines(w), first, end, start = g * w.large.g + channel * w.large.c
    if s.kept_start != start or s.kept_channels != channels or reached.first < s.kept_first or reached.first > s.kept_end:
        s.kept_start, s.kept_channels, s.kept_first, s.kept_end = start, channels, reached.first, reached.first
    first = s.kept_end
    while first < reached.end:
        end = min(reached.end, (first // together + 1) * together, (first // plan.ring + 1) * plan.ring)
        if is_met(w, 1, first // w.X[2] % w.X[1]) and is_met(w, 0, first // w.X[2] // w.X[1] % w.X[0]):
            convert_numbers(w, plan, isa, start, channels, first, end - first, s.block + first % plan.ring)
        first = end
    s.kept_end = max(s.kept_end, reached.end)
    s.kept_first = max(s.kept_first, s.kept_end - plan.ring + isa.width)
