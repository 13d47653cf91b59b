"""How `rows_are_lines` divides its products: panels of channels, blocks of positions, segments of lines.

uses: core/problem.pxi (Operand), engine/algorithms.pxi (Problem), engine/costs.pxi (loads_wait), engine/product/product.pxi (Product)
gives: LineRows, LineRowsScratch, line_rows_lanes, line_rows_length, line_rows_place, line_rows_sums, line_rows_tap,
    line_rows_together, line_rows_weights, line_rows_width, line_segments, plan_rows_are_lines
"""

cdef enum:
    LINE_ROWS_BLOCK_BYTES = 3 << 16     # of laid-out input: stays in the middle cache
    LINE_ROWS_SUMS_BYTES = 1 << 14      # of lines that are stored together, unless one line is longer
    LINE_ROWS_LINE_BYTES = 1 << 17      # of the sums of a line of all images and classes
    LINE_ROWS_TAPS = 1 << 10            # and classes: so few are computed together
    LINE_ROWS_PLANES = 1 << 16          # lines that a line of results meets, at most
    LINE_ROWS_FAR = 1 << 12             # between taps or lines: blocks would not fit
    LINE_ROWS_WEIGHTS_BYTES = 6 << 20   # of all packed weights
    LINE_ROWS_OVERRUN = 16              # floats
    LINE_ROWS_TASKS = 4                 # of a thread, at least, where there is something to divide


cdef struct LineRowsScratch:  # of one thread
    float* block
    float* sums
    int64_t* order            # sums of positions of a line
    tile_run* runs            # of the line that was computed last, counted from its first input
    int64_t run_count
    bint inside               # all taps meet the input there, and so in every other such line of the class and the panel
    uint16_t smallest         # magnitude of a bfloat16 met in the input, less one
    uint16_t smallest_weight


cdef struct LineRows:
    int kind               # of tiles
    int64_t together       # panels of a tile, at most
    int64_t ways[2]        # classes that take turns along the lines and in a line
    int64_t unit[2]        # elements of the result from a line, and from a position, to the next
    int64_t extent[3]      # planes of all images, and positions of the largest class
    bint volume            # a block has one plane of results, and several of the input
    int64_t result[2]      # lines of the result and their length
    int64_t low[3]         # smallest offset of a tap: plane, line, position
    int64_t span[3]        # ... from the largest
    int64_t most_taps      # of a class
    int64_t taps           # of all
    int64_t panels
    int64_t lanes          # of all panels
    int64_t cut[3]         # planes, lines and positions in so many parts
    int64_t most[3]        # ... each of at most so many
    int64_t line           # floats of a line that is laid out
    int64_t plane
    int64_t image          # ... of all planes that a plane of results meets
    int64_t channel
    int64_t chunk          # lines of a class whose sums wait
    float* packed          # [group][panel][class][tap][step][lane]
    uint8_t* special       # whether some weight of a panel is infinite or NaN
    LineRowsScratch* scratch


cdef inline int64_t line_rows_lanes(const Product* p, int64_t first) noexcept nogil:
    """Of the panel of channels from `first` on. Where multiply-adds wait for loads, two panels together are of 16."""
    cdef int64_t rest = p.R - first
    if rest > 8 or first % 32 == 16 and loads_wait():
        return 16
    return 4 if rest <= 4 and not p.blocks else 8


cdef inline int64_t line_rows_together(const Product* p, int64_t first) noexcept nogil:
    """How many panels, the first of which begins with channel `first`, a tile can take: two of 16 channels or one."""
    return 2 if first + 16 < p.R and line_rows_lanes(p, first + 16) == 16 else 1


cdef inline int line_rows_width(int64_t lanes, int64_t together) noexcept nogil:
    """The number of such panels among tiles of 4, 8 and 16 lanes, and of two panels of 16."""
    return 3 if together == 2 else 0 if lanes == 4 else 1 if lanes == 8 else 2


cdef inline int64_t line_rows_length(int kind, int64_t together) noexcept nogil:
    """Positions of a segment, at most, of tiles of so many panels."""
    if kind == SEGMENT_CHAIN:
        return SEGMENT_LENGTH
    return SEGMENT_PANELS_LENGTH if together == 2 else SEGMENT_BLOCK_LENGTH if kind == SEGMENT_BLOCKS else SEGMENT_LENGTH


cdef inline int64_t line_rows_tap(const Product* p, int64_t lanes) noexcept nogil:
    """Packed weights of a panel from a tap to the next: the last step may be overrun."""
    return p.S * lanes + LINE_ROWS_OVERRUN


cdef inline int64_t line_rows_weights(const Product* p, const LineRows* s, int64_t g, int64_t panel, int64_t channel) noexcept nogil:
    """Where those of the panel of channels from `channel` on begin."""
    return s.taps * ((g * s.lanes + channel) * p.S + (g * s.panels + panel) * LINE_ROWS_OVERRUN)


cdef inline int64_t line_segments(int64_t count, int64_t most) noexcept nogil:
    """Segments of so many positions, at most, that cover a line, overlapping as little as one more segment allows."""
    cdef int64_t segments = ceiling(count, most)
    return segments + 1 if (segments + 1) * ceiling(count, segments + 1) < segments * ceiling(count, segments) else segments


cdef inline int64_t line_rows_place(const Operand* operand, int64_t planes, int64_t plane) noexcept nogil:
    """Where plane number `plane` of all images begins, each of which has so many."""
    return plane // planes * operand.n + plane % planes * operand.x[0]


cdef inline int64_t line_rows_sums(const LineRows* s) noexcept nogil:
    """Of the lines that are stored together, one panel."""
    return s.most[0] * s.chunk * s.ways[0] * s.most[2] * s.ways[1] * min(16, s.lanes)


cdef void measure_line_rows(const Product* p, LineRows* s) noexcept nogil:
    """Extents of the blocks that the cuts leave."""
    cdef int i
    for i in range(3):
        s.most[i] = ceiling(s.extent[i], s.cut[i])
    s.line = s.most[2] + s.span[2]
    s.plane = ((s.most[1] - 1) * p.step[1] + s.span[1] + 1) * s.line
    s.image = (s.span[0] + 1) * s.plane
    s.channel = (ceiling(s.most[0] * s.image, 16) | 1) * 16  # an odd number of cache lines
    s.chunk = 1
    s.chunk = max(1, min(s.most[1], LINE_ROWS_SUMS_BYTES // (4 * s.together * line_rows_sums(s))))


cdef bint plan_rows_are_lines(const Problem* q, LineRows* s) noexcept nogil:
    cdef const Product* first = q.products
    cdef const Product* p
    cdef int64_t i, t, reached = 0
    cdef int64_t high[3]
    cdef int64_t size = element_size(first.output.format)
    cdef int axis
    cdef bint wide
    s.ways[1] = q.columns
    s.ways[0] = q.count // q.columns
    if s.ways[0] * s.ways[1] != q.count or first.input.x[2] != 1:
        return False
    for axis in range(2):
        s.unit[axis] = first.output.x[1 + axis]
        if s.ways[axis] > 1:
            s.unit[axis] = (<char*>q.products[1 if axis else s.ways[1]].output.data - <char*>first.output.data) // size
    s.extent[0], s.extent[1], s.extent[2] = first.N * first.Q[0], 0, 0
    s.result[0] = s.result[1] = s.taps = s.most_taps = high[0] = high[1] = high[2] = 0
    for i in range(q.count):
        p = &q.products[i]
        if (p.Q[0] != first.Q[0] or p.step[2] != 1
                or <char*>p.output.data != <char*>first.output.data + (i // s.ways[1] * s.unit[0] + i % s.ways[1] * s.unit[1]) * size):
            return False
        for t in range(p.tap_count):
            for axis in range(3):
                if s.taps + t == 0 or p.taps[t].offset[axis] < s.low[axis]:
                    s.low[axis] = p.taps[t].offset[axis]
                if s.taps + t == 0 or p.taps[t].offset[axis] > high[axis]:
                    high[axis] = p.taps[t].offset[axis]
        s.extent[1], s.extent[2] = max(s.extent[1], p.Q[1]), max(s.extent[2], p.Q[2])
        if i % s.ways[1] == 0:
            s.result[0] += p.Q[1]
        if i < s.ways[1]:
            s.result[1] += p.Q[2]
        s.most_taps = max(s.most_taps, p.tap_count)
        s.taps += p.tap_count
        reached += p.tap_count > 0
    for axis in range(2):  # fewer lines than classes have room for are one of each
        if s.extent[1 + axis] > 1 and first.output.x[1 + axis] != s.ways[axis] * s.unit[axis]:
            return False
    if s.taps > LINE_ROWS_TAPS or q.count > LINE_ROWS_TAPS or q.count > 1 and reached == 1:  # which may be cells, as its result lies
        return False
    if s.taps == 0 or s.extent[0] * s.extent[1] * s.extent[2] == 0:
        return False
    for axis in range(3):
        s.span[axis] = high[axis] - s.low[axis]
        if s.span[axis] > LINE_ROWS_FAR or first.step[axis] > LINE_ROWS_FAR:
            return False
    if s.ways[0] > LINE_ROWS_FAR or s.ways[1] > LINE_ROWS_FAR or (s.span[0] + 1.0) * (s.span[1] + 1) > LINE_ROWS_PLANES:
        return False
    s.volume = first.Q[0] > 1 or first.I[0] > 1 or s.low[0] != 0 or s.span[0] > 0
    s.kind = SEGMENT_CHAIN if not first.blocks else SEGMENT_ONE_HALF if first.D <= HALF_BLOCK else SEGMENT_BLOCKS
    s.together = line_rows_together(first, 0) if first.pairs == NULL or loads_wait() else 1
    s.panels = s.lanes = 0
    while s.lanes < first.R:
        s.lanes += line_rows_lanes(first, s.lanes)
        s.panels += 1
    # Images that fill tiles where a line is one segment; then as much as stays near, and enough for all threads.
    s.cut[0], s.cut[1], s.cut[2] = s.extent[0], 1, 1
    if not s.volume and s.together == 1 and line_segments(s.extent[2], line_rows_length(s.kind, 1)) % 2:
        s.cut[0] = ceiling(first.N, 2)
    measure_line_rows(first, s)
    while True:
        wide = 4 * line_rows_sums(s) > LINE_ROWS_LINE_BYTES * s.chunk
        if not wide and 4 * first.S * s.channel <= LINE_ROWS_BLOCK_BYTES:
            break
        axis = 0 if s.most[0] > 1 else 1 if s.most[1] > 1 and not wide else 2
        if s.most[axis] == 1:
            break
        s.cut[axis] = min(2 * s.cut[axis], s.extent[axis])
        measure_line_rows(first, s)
    while q.threads > 1 and s.cut[0] * s.cut[1] * s.cut[2] * first.G < LINE_ROWS_TASKS * q.threads and s.most[0] * s.most[1] > 1:
        axis = 0 if s.most[0] > 1 else 1
        s.cut[axis] = min(2 * s.cut[axis], s.extent[axis])
        measure_line_rows(first, s)
    return (not wide and 4 * first.S * s.channel <= 2 * LINE_ROWS_BLOCK_BYTES
            and 4.0 * first.G * s.taps * (s.lanes * first.S + s.panels * LINE_ROWS_OVERRUN) <= LINE_ROWS_WEIGHTS_BYTES)
