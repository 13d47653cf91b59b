"""The problem of `backward_weights`: a gradient or a part of one, and the relation of its positions.

    taps[g,m,c,t] = SUM over n, y   large[n,g,c,y*s - b + t*d] * small[n,g,m,y]

uses: core/problem.pxi (Operand), engine/algorithms.pxi (Problem), engine/product/product.pxi (Product, Tap)
gives: LineReach, Reach, Row, Weights, join_lines, large_at, next_tap, reaches_outside, relate_weights, share_tap_rows, tap_at,
    tap_row_parts, tap_rows_of
"""

cdef double LANES_PAY = 0.95  # of the lanes that are computed otherwise, at most: then the sides change places


cdef struct Weights:  # taps[g,m,c,t] = SUM over n, y  large[n,g,c,y*s - b + t*d] * small[n,g,m,y]
    int64_t N
    int64_t G
    int64_t C
    int64_t M
    int64_t X[3]
    int64_t Y[3]
    int64_t K[3]
    int64_t s[3]
    int64_t d[3]
    int64_t b[3]
    Operand large
    Operand small
    void* taps
    int taps_format
    int64_t taps_stride[6]   # g, m, c, t0, t1, t2
    reduction_cut cut        # of the call that this is a part of


cdef struct Row:  # positions of the small side that differ in the innermost axis only
    int64_t n
    int64_t y[3]
    int64_t count
    int64_t first          # its first step in the chunk


cdef struct Reach:  # of a tap on the large side
    int64_t start[3]       # from position 0
    int64_t low            # positions of a line that meet it: [low, high)
    int64_t high


cdef struct LineReach:  # of some taps on the outer axes of the large side, from position 0: all or some of [lowest, highest]
    int64_t lowest[2]
    int64_t highest[2]


cdef inline bint reaches_outside(const Weights* w, int axis) noexcept nogil:
    return w.b[axis] > 0 or (w.Y[axis] - 1) * w.s[axis] - w.b[axis] + (w.K[axis] - 1) * w.d[axis] >= w.X[axis] \
        or (w.Y[axis] - 1) * w.s[axis] - w.b[axis] >= w.X[axis] or -w.b[axis] + (w.K[axis] - 1) * w.d[axis] < 0


cdef void tap_at(const Weights* w, int64_t tap, int64_t* t) noexcept nogil:
    t[2] = tap % w.K[2]
    t[1] = tap // w.K[2] % w.K[1]
    t[0] = tap // (w.K[2] * w.K[1])


cdef inline void next_tap(const Weights* w, int64_t* t) noexcept nogil:
    """From a tap to the next, without divisions."""
    t[2] += 1
    if t[2] == w.K[2]:
        t[2] = 0
        t[1] += 1
        if t[1] == w.K[1]:
            t[1] = 0
            t[0] += 1


cdef void share_tap_rows(const Weights* w, int64_t* step, int64_t* apart) noexcept nogil:
    """How far apart tap rows are that meet the same lines of the large side, and the lines of the small side that meet them there."""
    cdef int64_t divisor = common_divisor(w.s[1], w.d[1])
    step[0], apart[0] = w.s[1] // divisor, w.d[1] // divisor


cdef int64_t tap_row_parts(const Weights* w, int64_t step, int64_t most) noexcept nogil:
    """Parts of the tap rows: rows `step` apart, at most so many."""
    cdef int64_t residue, parts = 0
    for residue in range(min(step, w.K[1])):
        parts += ceiling(ceiling(w.K[1] - residue, step), most)
    return parts


cdef int64_t tap_rows_of(const Weights* w, int64_t step, int64_t most, int64_t part, int64_t* first) noexcept nogil:
    """The number of rows of a part, and its first."""
    cdef int64_t residue = 0, count = ceiling(w.K[1], step), parts = ceiling(count, most)
    while part >= parts:
        part -= parts
        residue += 1
        count = ceiling(w.K[1] - residue, step)
        parts = ceiling(count, most)
    first[0] = residue + share(count, parts, part) * step
    return share(count, parts, part + 1) - share(count, parts, part)


cdef void join_axes(Weights* w, int outer) noexcept nogil:
    """Make one line of axis `outer` and the innermost, where a single tap meets all of both and both sides allow it."""
    if (w.K[outer] == 1 and w.K[2] == 1 and w.s[outer] == 1 and w.s[2] == 1 and w.b[outer] == 0 and w.b[2] == 0
            and w.X[outer] == w.Y[outer] and w.X[2] == w.Y[2]
            and w.large.x[outer] == w.X[2] * w.large.x[2] and w.small.x[outer] == w.Y[2] * w.small.x[2]):
        w.X[2] = w.Y[2] = w.Y[2] * w.Y[outer]
        w.X[outer] = w.Y[outer] = 1


cdef void exchange_sides(Weights* w) noexcept nogil:
    """Of a single tap that meets the same positions on both sides."""
    cdef Operand large = w.large
    cdef int64_t apart = w.taps_stride[2]
    w.large, w.small = w.small, large
    w.C, w.M = w.M, w.C
    w.taps_stride[2], w.taps_stride[1] = w.taps_stride[1], apart


cdef void join_taps(Weights* w) noexcept nogil:
    """Make channels of taps, where the small side has one position, at which each tap meets one number of the large side, and both the
    large side and the result hold a channel's numbers side by side.  The sides change places: lanes are what lies side by side."""
    cdef int64_t taps = w.K[0] * w.K[1] * w.K[2], place = 1
    cdef int axis
    for axis in range(2, -1, -1):
        if w.Y[axis] != 1 or w.b[axis] != 0 or w.K[axis] != w.X[axis]:
            return
        if w.K[axis] > 1 and (w.d[axis] != 1 or w.large.x[axis] != place or w.taps_stride[3 + axis] != place):
            return
        place *= w.K[axis]
    if taps == 1 or w.large.c != taps or w.taps_stride[2] != taps:
        return
    w.C *= taps
    w.large.c = w.taps_stride[2] = 1
    exchange_sides(w)
    for axis in range(3):
        w.K[axis] = w.X[axis] = 1
        w.large.x[axis], w.small.x[axis] = w.C, w.M  # of one position: not beside it


cdef void fill_lanes(Weights* w, int64_t width) noexcept nogil:
    """Make lanes, `width` of a vector, of the side that has more channels, where a single tap meets the same positions on both and
    fewer lanes are lost. Rows of float32 are multiplied where they lie: there it costs more to pack more lanes."""
    cdef int axis
    for axis in range(3):
        if w.K[axis] != 1 or w.s[axis] != 1 or w.b[axis] != 0 or w.X[axis] != w.Y[axis]:
            return
    if w.large.format != NUMBER_FLOAT32 and w.C > w.M and ceiling(w.M, width) * w.C * LANES_PAY > ceiling(w.C, width) * w.M:
        exchange_sides(w)


cdef void join_lines(Weights* w, const instruction_set* isa) noexcept nogil:
    """Positions in as few lines as possible, but for sums in chains, which go by lines."""
    if w.cut.chains > 1 or w.large.format == NUMBER_FLOAT64:
        return
    join_taps(w)
    join_axes(w, 1)
    if w.Y[1] == 1:
        join_axes(w, 0)
    if isa.matrix == NULL:
        fill_lanes(w, isa.width)


cdef int relate_weights(Problem* q) except -1 nogil:
    """Forward's relation of positions, for sums in chains."""
    cdef const Weights* w = q.weights
    cdef Product* r = &q.relation
    cdef int axis
    cdef int64_t number
    cdef int64_t t[3]
    if w.cut.chains == 1 or w.large.format == NUMBER_FLOAT64:
        return 0
    r.N, r.G, r.R, r.D, r.S, r.pairs, r.blocks, r.input = w.N, w.G, w.M, w.C, w.C, NULL, False, w.large
    r.tap_count = w.K[0] * w.K[1] * w.K[2]
    q.heap = malloc((r.tap_count + 1) * (sizeof(Tap) + 2 * sizeof(int64_t)))
    if q.heap == NULL:
        with gil:
            raise MemoryError
    r.taps = <Tap*>q.heap
    r.tap_offsets = <int64_t*>(r.taps + r.tap_count + 1)
    q.shifts = r.tap_offsets + r.tap_count + 1
    r.padded = False
    for axis in range(3):
        r.Q[axis], r.I[axis], r.step[axis] = w.Y[axis], w.X[axis], w.s[axis]
        r.padded = r.padded or reaches_outside(w, axis)
    for number in range(r.tap_count):
        tap_at(w, number, t)
        r.tap_offsets[number] = t[0] * w.taps_stride[3] + t[1] * w.taps_stride[4] + t[2] * w.taps_stride[5]
        for axis in range(3):
            r.taps[number].offset[axis] = t[axis] * w.d[axis] - w.b[axis]
    return 0


cdef inline const char* large_at(const Weights* w, int64_t offset) noexcept nogil:
    return <const char*>w.large.data + offset * element_size(w.large.format)
