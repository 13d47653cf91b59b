"""What the next chunk of a weights gradient takes from memory: tiles ask for it meanwhile, a cache line with each of their steps.

uses: core/problem.pxi (Operand), engine/ahead.pxi (begin_ahead), engine/product/product.pxi (LINE_BYTES),
    engine/weights/gradient.pxi (Row, Weights), engine/weights/kept.pxi (Reached, all_met, asks_for_numbers,
    last_step, reached_by), engine/weights/plan.pxi (NextLines, WeightsPart, WeightsPlan, WeightsScratch, first_lane),
    engine/weights/positions.pxi (cut_rows, small_offset)
gives: ask_for_chunk, next_wish, small_positions, wish_for
"""

cdef int64_t small_positions(const Weights* w, int64_t g, int64_t first, int64_t end, int64_t* start) noexcept nogil:
    """How many positions from `first` on lie side by side on the small side, before `end`; they begin at element `start` of channel 0."""
    cdef Row at
    start[0] = 0
    if first >= end or w.small.x[2] != 1:
        return 0
    cut_rows(w, first, first + 1, &at)
    start[0] = small_offset(w, g, &at)
    if w.small.x[1] == w.Y[2]:
        return min(end - first, w.Y[2] - at.y[2] + (w.Y[1] - 1 - at.y[1]) * w.Y[2])
    return min(end - first, w.Y[2] - at.y[2])


cdef void begin_next_lines(NextLines* lines, const Operand* operand, int64_t start, int64_t channels) noexcept nogil:
    """No lines yet, of channels the first of which begins at element `start`."""
    cdef int64_t size = element_size(operand.format)
    lines.channel, lines.channels = 0, channels
    lines.wish.place = <char*>operand.data + size * start
    lines.wish.row_step = size * operand.c
    lines.wish.parts = lines.wish.reach = 0


cdef void wish_for(tile_wish* wish, int64_t begin, int64_t bytes) noexcept nogil:
    """Of each channel the cache lines of so many bytes from byte `begin` on, as far as there is room."""
    cdef int64_t i
    for i in range(min(ceiling(bytes, LINE_BYTES), TILE_LANES - wish.parts)):
        wish.offsets[wish.parts] = begin + i * LINE_BYTES
        wish.parts += 1


cdef Reached reached_from(const Weights* w, int64_t first, int64_t end) noexcept nogil:
    """By positions [first, end)."""
    cdef Row ends[2]
    cut_rows(w, first, first + 1, &ends[0])
    cut_rows(w, end - 1, end, &ends[1])
    return reached_by(w, ends, 2)


cdef inline bint in_one_piece(const Weights* w) noexcept nogil:
    """Whether the numbers of a channel's image follow one another in memory."""
    return (w.large.x[2] == 1 and (w.X[1] == 1 or w.large.x[1] == w.X[2])
            and (w.X[0] == 1 or w.large.x[0] == w.X[1] * w.X[2]))


cdef void add_numbers(const Weights* w, int64_t first, int64_t end, tile_wish* wish) noexcept nogil:
    """Of each channel what positions [first, end) meet of the large side and the one before them does not."""
    cdef int64_t image = w.X[0] * w.X[1] * w.X[2], size = element_size(w.large.format), number, lines, last
    cdef int64_t apart = w.s[1] * w.X[2]
    cdef Reached reached = reached_from(w, first, end)
    number = reached.first
    if first > 0:
        number = max(number, reached_from(w, first - 1, first).end)
    while number < reached.end and wish.parts < TILE_LANES:
        last = min(reached.end, (number // image + 1) * image)
        lines = last - number
        if not all_met(w, 1) and apart * size > 2 * LINE_BYTES:  # whole lines of the large side are met by nothing
            lines = min(lines, (last_step(w, 1) + 1) * w.X[2])
            last = min(last, number + apart)
        wish_for(wish, (number // image * w.large.n + number % image) * size, lines * size)
        number = last


cdef void ask_for_chunk(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part, int64_t first,
                        int64_t end, WeightsScratch* s) noexcept nogil:
    """Of the chunk of positions [first, end) lines of the small side, as far as they follow one another, and where frames of the large
    side are filled, what they take from there."""
    cdef NextLines* small = &s.next_lines[0]
    cdef NextLines* large = &s.next_lines[1]
    cdef int64_t lane = first_lane(plan, isa, part.first_panel), channel = 0, channels = w.C, calls, start, at_once
    cdef int64_t count = small_positions(w, part.g, first, end, &start), lanes = min(w.M, first_lane(plan, isa, part.end_panel)) - lane
    calls = (part.end_strand - part.first_strand) * (1 if plan.mixed else plan.taps) * (part.end_panel - part.first_panel)
    s.ahead.left = 0
    begin_next_lines(small, &w.small, start + lane * w.small.c, 0 if plan.tall else lanes)
    if plan.tall:
        s.ahead = begin_ahead(&w.small, 1, lanes, start + lane * w.small.c, count, calls, False)
    else:
        wish_for(&small.wish, 0, count * element_size(w.small.format))
    if not plan.mixed:
        channel = plan.tile_firsts[part.first_strand]
        channels = plan.tile_firsts[part.end_strand] - channel
    begin_next_lines(large, &w.large, part.g * w.large.g + channel * w.large.c, channels)
    if asks_for_numbers(w, plan) and first < end and in_one_piece(w):
        add_numbers(w, first, end, &large.wish)
    at_once = ceiling(2 * (small.channels * small.wish.parts + large.channels * large.wish.parts), calls)
    small.at_once, large.at_once = ceiling(at_once, max(1, small.wish.parts)), ceiling(at_once, max(1, large.wish.parts))


cdef inline const tile_wish* next_wish(WeightsScratch* s) noexcept nogil:
    """What the next tile asks for, or NULL."""
    cdef NextLines* lines = &s.next_lines[0]
    if lines.channel >= lines.channels or lines.wish.parts == 0:
        lines = &s.next_lines[1]
        if lines.channel >= lines.channels or lines.wish.parts == 0:
            return NULL
    if lines.channel > 0:
        lines.wish.place += lines.at_once * lines.wish.row_step
    lines.wish.rows = min(lines.at_once, lines.channels - lines.channel)
    lines.channel += lines.at_once
    return &lines.wish
