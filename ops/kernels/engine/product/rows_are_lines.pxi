"""Algorithm `rows_are_lines`: products whose lanes are output channels and whose rows are positions side by side in a line.

The input of a task, all channels of a group, is laid out once with zeros outside, [step][image][plane][line][position], as numbers or
as pairs of channels. In volumes an image is a plane of results, with all planes of the input that it meets. Tiles broadcast it from
there, and no lane is lost where planes are small. A panel of 16 channels is a vector of 16 lanes, one of 8 or 4 channels a shorter
vector. Tiles take two panels of 16 together, since loads would else hold multiply-adds up; of pairs only where a core begins two
multiply-adds in a cycle.

All stride classes of a data gradient take the same laid-out input. Their sums lie interleaved, [image][line][position][channel],
until they are transposed and stored line by line. Where a weight is infinite or NaN, a zero outside is no term: each position by
itself takes the taps that it meets.

uses: engine/ahead.pxi (Ahead, ask_ahead, begin_ahead), engine/algorithms.pxi (Problem), engine/costs.pxi,
    engine/product/pack.pxi (gather_all_taps), engine/product/pairs.pxi (are_finite, first_channel, never_subnormal,
    on_matrix), engine/product/product.pxi (Product, Tap, biases), engine/product/rows_are_lines_plan.pxi
gives: fits_rows_are_lines, lay_out_rows_are_lines, rows_are_lines_cycles, run_rows_are_lines
"""

cdef struct LineRowsBlock:  # what a task computes
    int64_t g
    int64_t first[3]  # plane, line, position of a class
    int64_t end[3]


cdef struct LineRowsPanels:  # that a tile takes together
    int64_t lanes          # of each
    int64_t together
    bint special           # some weight is infinite or NaN
    const float* packed
    int64_t packed_apart   # floats from a panel's weights to the next panel's
    int64_t sums_apart     # ... and from its sums


cdef void pack_line_rows(const Problem* q, const LineRows* s, int64_t item, LineRowsScratch* scratch) noexcept nogil:
    """The weights of one panel, all classes."""
    cdef int64_t g = item // s.panels, channel = 0, lanes, rows, i, floats
    cdef const Product* p = q.products
    cdef const char* start
    cdef float* packed
    cdef bint special = False
    for i in range(item % s.panels):
        channel += line_rows_lanes(p, channel)
    lanes = line_rows_lanes(p, channel)
    rows = min(lanes, p.R - channel)
    start = <const char*>p.weights.data + (g * p.weights.g + channel * p.weights.n) * element_size(p.weights.format)
    floats = line_rows_tap(p, lanes)
    packed = s.packed + line_rows_weights(p, s, g, item % s.panels, channel)
    check_room(b"pack_line_rows", packed, 4 * s.taps * floats)
    memset(packed, 0, 4 * s.taps * floats)
    for i in range(q.count):
        p = &q.products[i]
        gather_all_taps(p, q.isa, packed, floats, lanes, rows, start, &scratch.smallest_weight)
        special = special or p.padded and not are_finite(q.isa, p.pairs, packed, p.tap_count * floats)
        packed += p.tap_count * floats
    check_room(b"pack_line_rows", s.special + item, 1)
    s.special[item] = special


cdef LineRowsBlock line_rows_block(const LineRows* s, int64_t task) noexcept nogil:
    """Tasks of a group, which use the same weights, follow one another."""
    cdef LineRowsBlock block
    cdef int i
    for i in range(2, -1, -1):
        block.first[i] = share(s.extent[i], s.cut[i], task % s.cut[i])
        block.end[i] = share(s.extent[i], s.cut[i], task % s.cut[i] + 1)
        task //= s.cut[i]
    block.g = task
    return block


cdef void lay_out_line_rows_block(const Product* p, const LineRows* s, const instruction_set* isa, const LineRowsBlock* block,
                               LineRowsScratch* scratch) noexcept nogil:
    """All channels in the order of memory, since lines are overrun."""
    cdef int64_t x1 = block.first[1] * p.step[1] + s.low[1], x2 = block.first[2] + s.low[2], x0, step, d, n, plane, start, low, high
    cdef int64_t lines = (block.end[1] - block.first[1] - 1) * p.step[1] + s.span[1] + 1, width = block.end[2] - block.first[2] + s.span[2]
    cdef int64_t first, end, image
    cdef int64_t size = element_size(p.input.format)
    cdef const char* source
    cdef float* place
    meet_inside(x1, 1, p.I[1], lines, &first, &end)
    meet_inside(x2, 1, p.I[2], width, &low, &high)
    if end <= first or high <= low:
        first = end = 0
    for step in range(p.S):
        d = first_channel(p, step)
        for n in range((block.end[0] - block.first[0]) * (s.span[0] + 1)):
            plane, image = n % (s.span[0] + 1), block.first[0] + n // (s.span[0] + 1)
            x0 = image % p.Q[0] * p.step[0] + s.low[0] + plane
            place = scratch.block + step * s.channel + n * s.plane
            check_room(b"lay_out_line_rows_block", place, 4 * (lines * s.line + isa.width))
            if end <= first or x0 < 0 or x0 >= p.I[0]:
                memset(place, 0, 4 * lines * s.line)
                continue
            memset(place, 0, 4 * first * s.line)
            start = (image // p.Q[0] * p.input.n + block.g * p.input.g + d * p.input.c + x0 * p.input.x[0] + (x1 + first) * p.input.x[1]
                     + x2 + low)
            source = <const char*>p.input.data + start * size
            if p.pairs == NULL:
                isa.frame(place + first * s.line, s.line, end - first, width, low, high, source, p.input.format, p.input.x[1], 1,
                          p.input.c)
            else:
                p.pairs.frame(place + first * s.line, s.line, end - first, width, low, high, source,
                              source + p.input.c * size if d + 1 < p.D else NULL, p.input.format, p.input.x[1], 1, 2 * p.input.c,
                              &scratch.smallest)
            memset(place + end * s.line, 0, 4 * (lines - end) * s.line)


cdef int64_t line_rows_runs(const Product* p, const LineRows* s, int64_t plane, int64_t line, int64_t position, int64_t lanes,
                            tile_run* runs) noexcept nogil:
    """The taps that meet the input in a line, of all positions, or where `position` is not negative, at that one."""
    cdef int64_t t, number = 0, x0, x1, x2
    cdef const Tap* tap
    check_room(b"line_rows_runs", runs, p.tap_count * sizeof(tile_run))
    for t in range(p.tap_count):
        tap = &p.taps[t]
        x0, x1, x2 = plane * p.step[0] + tap.offset[0], line * p.step[1] + tap.offset[1], position + tap.offset[2]
        if s.volume and (x0 < 0 or x0 >= p.I[0]) or x1 < 0 or x1 >= p.I[1] or position >= 0 and (x2 < 0 or x2 >= p.I[2]):
            continue
        runs[number] = tile_run((tap.offset[0] - s.low[0]) * s.plane + tap.offset[2] - s.low[2] + (tap.offset[1] - s.low[1]) * s.line,
                                t * line_rows_tap(p, lanes), p.S)
        number += 1
    return number


cdef inline void next_segment(int64_t segments, int64_t* segment, int64_t* image) noexcept nogil:
    segment[0] += 1
    if segment[0] == segments:
        segment[0] = 0
        image[0] += 1


cdef void run_line_rows_line(const Product* p, const LineRows* s, const instruction_set* isa, const LineRowsBlock* block, int64_t line,
                             int64_t count, const LineRowsPanels* panels, float* sums, int64_t image_sums, int64_t position_sums,
                             LineRowsScratch* scratch) noexcept nogil:
    """`count` positions of a line of a class, in all images of a block."""
    cdef int64_t segments = count if panels.special else line_segments(count, line_rows_length(s.kind, panels.together))
    cdef int64_t images = block.end[0] - block.first[0], image = 0, segment = 0, place = 0, together, apart, sums_apart
    cdef int64_t length = ceiling(count, segments), lanes = panels.lanes, x1 = line * p.step[1] + s.low[1]
    cdef bint inside = x1 >= 0 and x1 + s.span[1] < p.I[1]
    cdef const segment_function* tiles = &(isa.segments if p.pairs == NULL else p.pairs.segments).tile[s.kind][
        line_rows_width(lanes, panels.together)][0][0]
    cdef const float* line_input = scratch.block + (line - block.first[1]) * p.step[1] * s.line
    cdef const float* input
    cdef float* result
    if not panels.special and not (inside and scratch.inside):
        scratch.run_count = line_rows_runs(p, s, block.first[0] % p.Q[0], line, -1, lanes, scratch.runs)
        scratch.inside = inside
    while image < images:
        if panels.special:
            scratch.run_count = line_rows_runs(p, s, block.first[0] % p.Q[0], line, block.first[2] + place, lanes, scratch.runs)
        input, result = line_input + image * s.image + place, sums + image * image_sums + place * position_sums
        next_segment(segments, &segment, &image)
        together = 2 if not panels.special and image < images and tiles[SEGMENT_LENGTH + length - 1] != NULL else 1
        place = min(segment * length, count - length)
        if panels.together == 2:
            apart, sums_apart = panels.packed_apart, panels.sums_apart
        else:
            apart = line_input + image * s.image + place - input
            sums_apart = sums + image * image_sums + place * position_sums - result
        check_room(b"run_line_rows_line", result + (panels.together - 1) * panels.sums_apart, 4 * ((length - 1) * position_sums + lanes))
        tiles[(together - 1) * SEGMENT_LENGTH + length - 1](scratch.runs, scratch.run_count, input, apart, s.channel, panels.packed, result,
                                                            sums_apart, position_sums)
        if together == 2:
            next_segment(segments, &segment, &image)
            place = min(segment * length, count - length)


cdef void store_line_rows(const Problem* q, const LineRows* s, const LineRowsBlock* block, int64_t first_line, int64_t lines, int64_t width,
                       int64_t channel, int64_t lanes, const float* sums, int64_t image_sums, LineRowsScratch* scratch) noexcept nogil:
    """Lines of the result, which are stored as one where they follow one another."""
    cdef const Product* p = q.products
    cdef int64_t unit = s.unit[0], step = s.unit[1], n, line, i
    cdef int64_t size = element_size(p.output.format), place, together = lines if step == 1 and unit == width else 1
    cdef const float* start
    check_room(b"store_line_rows", scratch.order, width * sizeof(int64_t))
    for i in range(width if step != 1 else 0):
        scratch.order[i] = i * lanes
    for n in range(block.end[0] - block.first[0]):
        line = 0
        while line < lines:
            place = size * (line_rows_place(&p.output, p.Q[0], block.first[0] + n) + block.g * p.output.g + channel * p.output.c
                            + (first_line + line) * unit + block.first[2] * p.output.x[2])
            start = sums + n * image_sums + line * width * lanes
            if step == 1:
                q.isa.store_segments(<int>lanes, <char*>p.output.data + place, p.output.format, p.output.c, start, together * width,
                                     min(lanes, p.R - channel), biases(p, block.g, channel))
            else:
                q.isa.store_positions(<char*>p.output.data + place, p.output.format, step, p.output.c, start, scratch.order, width,
                                      min(lanes, p.R - channel), biases(p, block.g, channel))
            line += together


cdef Ahead next_input(const Problem* q, const LineRows* s, int64_t task, int64_t calls) noexcept nogil:
    """What a thread is likely to lay out next."""
    cdef const Product* p = q.products
    cdef LineRowsBlock block
    cdef int64_t first, end, low, plane
    task += q.threads
    if task >= p.G * s.cut[0] * s.cut[1] * s.cut[2]:
        return begin_ahead(&p.input, 0, 0, 0, 0, 1, False)
    block = line_rows_block(s, task)
    low = block.first[1] * p.step[1] + s.low[1]
    first, end = max(0, low), min(p.I[1], low + (block.end[1] - block.first[1] - 1) * p.step[1] + s.span[1] + 1)
    plane = block.first[0] % p.Q[0] * p.step[0] + s.low[0] + s.span[0]  # the others were met before
    if plane < 0 or plane >= p.I[0]:
        end = first
    return begin_ahead(&p.input, block.end[0] - block.first[0] if end > first else 0, p.D,
                       block.first[0] // p.Q[0] * p.input.n + block.g * p.input.g + plane * p.input.x[0] + first * p.input.x[1]
                       + max(0, block.first[2] + s.low[2]),
                       (end - first - 1) * p.input.x[1] + min(p.I[2], s.most[2] + s.span[2]), calls, False)


cdef LineRowsPanels line_rows_panels(const Product* p, const LineRows* s, int64_t g, int64_t panel, int64_t channel) noexcept nogil:
    """From panel number `panel` on, which begins with channel `channel`. Panels with special weights are taken alone."""
    cdef LineRowsPanels panels
    cdef const uint8_t* special = s.special + g * s.panels + panel
    panels.lanes = line_rows_lanes(p, channel)
    panels.together = min(s.together, line_rows_together(p, channel))
    if panels.together == 2 and (special[0] or special[1]):
        panels.together = 1
    panels.special = special[0]
    panels.packed = s.packed + line_rows_weights(p, s, g, panel, channel)
    panels.packed_apart = s.taps * line_rows_tap(p, panels.lanes)
    panels.sums_apart = line_rows_sums(s)
    return panels


cdef void run_line_rows_task(const Problem* q, const LineRows* s, int64_t task, LineRowsScratch* scratch) noexcept nogil:
    cdef LineRowsBlock block = line_rows_block(s, task)
    cdef const Product* p = q.products
    cdef int64_t width = min(block.end[2] * s.ways[1], s.result[1]) - block.first[2] * s.ways[1]
    cdef int64_t first, end, line, lines, channel, panel, i, image_sums
    cdef LineRowsPanels panels
    cdef Ahead results, inputs = next_input(q, s, task, (block.end[1] - block.first[1]) * q.count * ceiling(s.panels, s.together))
    lay_out_line_rows_block(p, s, q.isa, &block, scratch)
    first = block.first[1]
    while first < block.end[1]:
        end = min(block.end[1], first + s.chunk)
        lines = min(end * s.ways[0], s.result[0]) - first * s.ways[0]
        channel = 0
        results = begin_ahead(&p.output, block.end[0] - block.first[0], p.R,
                              line_rows_place(&p.output, p.Q[0], block.first[0]) + block.g * p.output.g
                              + first * p.output.x[1] + block.first[2] * p.output.x[2],
                              (lines - 1) * s.unit[0] + width, (end - first) * q.count, True)
        panel = 0
        while panel < s.panels:
            panels = line_rows_panels(p, s, block.g, panel, channel)
            image_sums = lines * width * panels.lanes
            for i in range(q.count):
                scratch.inside = False
                for line in range(first, min(end, q.products[i].Q[1])):
                    ask_ahead(&inputs)
                    ask_ahead(&results)
                    run_line_rows_line(
                        &q.products[i], s, q.isa, &block, line, min(block.end[2], q.products[i].Q[2]) - block.first[2], &panels,
                        scratch.sums + (((line - first) * s.ways[0] + i // s.ways[1]) * width + i % s.ways[1]) * panels.lanes,
                        image_sums, s.ways[1] * panels.lanes, scratch)
                panels.packed += q.products[i].tap_count * line_rows_tap(p, panels.lanes)
            for i in range(panels.together):
                store_line_rows(q, s, &block, first * s.ways[0], lines, width, channel, panels.lanes,
                                scratch.sums + i * panels.sums_apart, image_sums, scratch)
                channel += panels.lanes
            panel += panels.together
        first = end


cdef bint fits_rows_are_lines(Problem* q) noexcept nogil:
    cdef const Product* p = q.products
    if q.weights != NULL or q.isa.segments == NULL or on_matrix(q.pairs) or p.input.format == NUMBER_FLOAT64 or p.cell != NULL:
        return False
    if not (p.R > 0 and p.D > 0) or p.pairs != NULL and p.pairs.segments == NULL:
        return False
    return plan_rows_are_lines(q, &q.line_rows)


cdef double line_rows_bias(const Problem* q, bint waits) noexcept nogil:
    """Measured over modelled cost, beside algorithms that cost more than their estimate; `waits`: multiply-adds wait for loads."""
    cdef const LineRows* s = &q.line_rows
    cdef const Product* p = q.products
    cdef int64_t long_line = LINE_LANES if p.R < 32 else 2 * LINE_LANES, half = HALF_BLOCK if p.pairs == NULL else HALF_BLOCK // 2
    cdef double bias
    if q.count > 1:
        return LINE_ROWS_CLASSES * (LINE_ROWS_FAR_INPUT if waits and p.pairs != NULL and p.D >= FAR_CHANNELS else 1)
    if p.tap_count == 1 and p.R > 16:
        bias = LINE_ROWS_POINTS
    elif s.kind != SEGMENT_CHAIN:
        bias = LINE_ROWS_BLOCKS * max(1, LINE_ROWS_LEAST / <double>s.extent[2]) * (LINE_ROWS_FEW_TAPS if p.tap_count <= FEW_TAPS else 1)
        if waits:  # a half of a block takes as long as a whole one
            bias *= ceiling(p.S, half) * half / <double>p.S
            bias *= LINE_ROWS_TWO_PANELS if 16 < p.R <= 32 else LINE_ROWS_ONE_PANEL if p.R <= 16 else 1
    elif s.extent[2] > long_line and <double>p.tap_count * p.S < LINE_ROWS_STEPS:
        bias = LINE_ROWS_LONG
    elif p.R <= 16:
        bias = LINE_ROWS_SHORT_LOADS if waits and s.extent[2] > SEGMENT_LENGTH else LINE_ROWS_SHORT
    else:
        bias = LINE_ROWS_CHAINS
    if p.tap_count > 1 and s.span[2] == 0:
        bias *= LINE_ROWS_COLUMN
    if p.pairs != NULL and p.tap_count <= FEW_TAPS and not waits:
        bias *= LINE_ROWS_PAIRS
    if p.R > 8 and waits:
        bias *= LINE_ROWS_LOADS * (LINE_ROWS_DECODED if element_size(p.input.format) == 1 else 1)
    return bias


cdef double rows_are_lines_cycles(const Problem* q) noexcept nogil:
    """Of products, the laid-out input, packed weights and stored results."""
    cdef const LineRows* s = &q.line_rows
    cdef const Product* p = q.products
    cdef bint waits = loads_wait()
    cdef double products = 0, lanes = 0, bias = line_rows_bias(q, waits)
    cdef int64_t i, channel = 0, width
    for i in range(s.panels):
        width = line_rows_lanes(p, channel)
        lanes += 16 if waits else width if width > 4 else LINE_ROWS_FOUR
        channel += width
    for i in range(q.count):
        p = &q.products[i]
        width = line_segments(p.Q[2], line_rows_length(s.kind, s.together))
        products += <double>p.tap_count * (p.met if s.volume else 1) * p.Q[1] * width * ceiling(p.Q[2], width)
    if s.unit[1] != 1:
        bias *= LINE_ROWS_LONG  # results are stored one by one
    return bias * p.G * (s.extent[0] * (products * p.S * lanes / (VECTORS_A_CYCLE * q.isa.width)
                                + LINE_ROWS_MOVED * p.S * <double>s.cut[1] * s.cut[2] * s.image
                                + LINE_ROWS_STORED * p.R * <double>s.result[0] * s.result[1])
                         + PACK_CYCLES * s.taps * p.S * p.R)


cdef void lay_out_rows_are_lines(Problem* q, workspace* memory) noexcept nogil:
    cdef LineRows* s = &q.line_rows
    cdef const Product* p = q.products
    cdef LineRowsScratch counted
    cdef LineRowsScratch* scratch
    cdef int worker
    s.scratch = <LineRowsScratch*>take(memory, q.threads * sizeof(LineRowsScratch))
    for worker in range(q.threads):
        scratch = &s.scratch[worker] if memory.base != NULL else &counted
        scratch.block = <float*>take(memory, 4 * (p.S * s.channel + q.isa.width))
        # Whole vectors of positions are read.
        scratch.sums = <float*>take(memory, 4 * (s.together * line_rows_sums(s) + 16 * min(16, s.lanes)))
        scratch.order = <int64_t*>take(memory, s.most[2] * s.ways[1] * sizeof(int64_t))
        scratch.runs = <tile_run*>take(memory, s.most_taps * sizeof(tile_run))
        scratch.smallest = scratch.smallest_weight = 0xffff
    s.packed = <float*>take(memory, 4 * line_rows_weights(p, s, p.G, 0, 0))
    s.special = <uint8_t*>take(memory, p.G * s.panels)


cdef bint run_rows_are_lines(Problem* q, workspace* memory) noexcept nogil:
    """Returns false where pairs do not do: something is so small that a sum might become subnormal."""
    cdef const LineRows* s = &q.line_rows
    cdef LineRowsScratch* scratch = s.scratch
    cdef int64_t items = q.products.G * s.panels, tasks = q.products.G * s.cut[0] * s.cut[1] * s.cut[2], task
    cdef uint16_t smallest = 0x7fff, smallest_weight = 0x7fff
    cdef int worker
    if q.threads == 1:
        for task in range(items):
            pack_line_rows(q, s, task, scratch)
        for task in range(tasks):
            run_line_rows_task(q, s, task, scratch)
    else:
        for task in prange(items, schedule="dynamic", num_threads=q.threads):
            pack_line_rows(q, s, task, &scratch[thread_number()])
        for task in prange(tasks, schedule="dynamic", num_threads=q.threads):
            run_line_rows_task(q, s, task, &scratch[thread_number()])
    for worker in range(q.threads):
        smallest = min(smallest, scratch[worker].smallest)
        smallest_weight = min(smallest_weight, scratch[worker].smallest_weight)
    return q.pairs == NULL or never_subnormal(smallest, smallest_weight)
