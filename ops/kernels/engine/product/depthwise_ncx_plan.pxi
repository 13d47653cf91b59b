"""Which rows of input depthwise products load, channels first, and which output rows take each.

Vectors of outputs are columns of the innermost axis; a block is up to NCX_ROWS rows of them.  The rows of the input are loaded
once, in the order of the taps, each under a mask that leaves out what lies outside.  A row is added to every output row of the
block whose taps meet it, so it is loaded once per tap column rather than once per tap.  Where there is but one line, its
vectors are the rows: taps a vector apart meet the same loads.

Several images, which share the weights, and several columns are the slots of one block.  Lines that fill less than half a vector
and follow one another are folded: a row is several of them.

uses: engine/product/product.pxi (Product)
gives: NCX_FLOATS, NCX_PLAN, NcxAxis, NcxBlock, NcxCall, NcxPlan, NcxRun, NcxScratch, axis_taps, column_start, few_channels_in_groups,
    fill_ncx, lay_out_ncx, lines_to_fold, plan_ncx
"""

cdef enum:
    MASKED_LANES = 16        # of vectors that are stored under a mask
    NCX_CHANNELS = 4         # rows times channels of a group, at most: with more a tile of several rows is as fast
    NCX_PLAN = 1 << 16       # rows of input in a plan, at most
    NCX_FOLD = 8             # lines of a row, at most
    NCX_WHOLE = 1 << 12      # floats of lines that are decoded at a time
    NCX_FLOATS = 1 << 17     # of decoded planes, of finished planes that are still to be interleaved


cdef struct NcxAxis:   # taps of one axis: input position = output position * step + first + i * apart
    int64_t count
    int64_t first
    int64_t apart


cdef struct NcxBlock:
    int64_t first_row        # of the input rows that it meets
    int64_t row_count
    int height
    int64_t q0               # of output row 0, the next ones `down` further
    int64_t q1
    int64_t q2
    uint16_t kept[NCX_ROWS]  # lanes of its rows


cdef struct NcxPlan:
    const Product* product
    int64_t lanes        # of a vector
    NcxAxis axes[3]
    bint vectors         # of one line are the rows
    int64_t fold         # lines of a row
    int64_t row_step     # lines of the input from an output row to the next
    int64_t partial[NCX_FOLD * NCX_FOLD]  # masks of rows of input of which only lines [first, last] lie inside, or none yet
    int64_t reach        # T: taps of a row of input
    int64_t tap_rows     # K1: rows of input that meet an output row, for each tap of the outermost axis
    int64_t down         # from one output row to the next
    int64_t shared       # sj: tap rows between two output rows that share a row of input
    int64_t steps        # of a row of input: tap, then channel
    int64_t weight_step  # floats
    int64_t weights      # floats of an output row
    int64_t* taken       # elements: where each of them comes from
    int64_t columns      # slots of a line
    ncx_row* rows
    int64_t row_count
    NcxBlock* blocks
    int64_t block_count
    int64_t* places      # of the steps
    uint16_t* masks      # [column or edge][step]
    bint* edges          # whether a column has lanes outside
    int64_t mask_count
    # the input of one image
    bint direct
    int64_t pitch[3]     # from row to row, from phase to phase
    int64_t phases
    int64_t channel
    int64_t whole        # lines of 8-bit numbers that are decoded whole behind the image before they are split by phases, or 0
    int64_t image        # floats, where it is decoded


cdef struct NcxRun:      # slots that are computed together
    int64_t slots
    int image[4]
    int64_t column[4]
    const uint16_t* masks
    bint masked
    int kept


cdef struct NcxScratch:
    float* decoded
    float* finished      # [product][image][line][q2]
    float* staged        # rows of a block of each image, which are rounded together
    float* weights
    NcxRun* runs         # of `images_planned` images by the plan `planned`
    int64_t run_count
    int64_t images_planned
    const NcxPlan* planned


cdef struct NcxCall:
    NcxPlan* plans    # of each product
    int64_t count
    int64_t columns   # products, one after the other, that take turns along the innermost axis of the output
    int64_t together  # images of a task
    int64_t chunks    # of images
    int64_t parts     # of the blocks
    bint woven        # ... after their results were finished as floats
    bint staged       # results are no floats side by side: the rows of a block are finished as floats first ...
    bint images       # ... or all rows of an image
    int64_t apart     # elements, from one of them to the next
    int64_t pitch     # floats, between lines that are finished
    NcxScratch* scratch


cdef NcxAxis axis_taps(const Product* p, int axis) noexcept nogil:
    """The taps of an axis again, from the list of all."""
    cdef NcxAxis a = NcxAxis(1, p.taps[0].offset[axis], 1)
    cdef int64_t stride = 1, other
    cdef int i
    for i in range(2, axis, -1):
        stride *= axis_taps(p, i).count
    other = stride
    while other < p.tap_count and p.taps[other].offset[axis] != a.first:
        if a.count == 1:
            a.apart = p.taps[other].offset[axis] - a.first
        a.count += 1
        other += stride
    return a


cdef int64_t lines_to_fold(const Product* p, const instruction_set* isa) noexcept nogil:
    """How many lines make a row: as many as fit, where input and output lie alike."""
    if (p.Q[2] == 0 or p.I[2] != p.Q[2] or p.step[1] != 1 or p.step[2] != 1
            or p.output.x[1] != p.Q[2] * p.output.x[2] or p.input.x[1] != p.Q[2] * p.input.x[2]):
        return 1
    return max(1, min(min(isa.width // p.Q[2], NCX_FOLD), p.Q[1]))


cdef bint plan_ncx(const Product* p, const instruction_set* isa, int64_t fold, int in_place, NcxPlan* s) noexcept nogil:
    """Plan a product whose input is read in place in format `in_place`; tells whether depthwise_ncx can compute it."""
    cdef int axis
    cdef int64_t apart, divisor
    s.product, s.lanes, s.whole = p, isa.width, 0
    for axis in range(3):
        s.axes[axis] = axis_taps(p, axis) if p.tap_count > 0 else NcxAxis(0, 0, 1)
    apart = s.axes[2].apart
    s.vectors = (p.Q[0] == 1 and p.Q[1] == 1 and s.axes[0].count <= 1 and s.axes[1].count <= 1 and p.step[2] == 1)
    s.reach, s.tap_rows, s.down, s.shared = s.axes[2].count, s.axes[1].count, 1, 1
    s.fold = 1 if s.vectors else fold
    s.row_step = p.step[1] * s.fold
    if s.vectors:
        s.down = -1 if apart < 0 else 1
        if s.lanes % apart == 0 and s.lanes // magnitude(apart) < s.reach:
            s.reach = s.lanes // magnitude(apart)
        s.tap_rows = ceiling(s.axes[2].count, s.reach) if s.reach > 0 else 0
        s.columns = 1
    else:
        apart = s.axes[1].apart
        s.down = -1 if apart < 0 else 1
        divisor = common_divisor(s.row_step, magnitude(apart))
        s.shared = s.row_step // divisor
        if s.shared < s.tap_rows:
            s.down *= magnitude(apart) // divisor
        else:
            s.shared = 1  # nothing is
        s.columns = ceiling(p.Q[2], s.lanes)
    s.steps = s.reach * p.D
    s.weight_step = s.shared * ceiling(s.tap_rows, s.shared)
    s.weights = max(1, s.axes[0].count) * s.steps * s.weight_step
    s.direct = p.input.format == in_place and p.input.x[2] == 1 and p.step[2] == 1
    if s.direct:
        s.pitch[0], s.pitch[1], s.pitch[2], s.channel, s.phases, s.image = p.input.x[0], p.input.x[1], 0, p.input.c, 1, 0
    else:
        s.phases = p.step[2]
        s.pitch[1] = ceiling(p.I[2], s.phases)
        s.pitch[0] = s.pitch[1] * p.I[1]
        s.pitch[2] = s.pitch[0] * p.I[0] + s.lanes  # the last line of a phase may be overrun
        s.channel = s.pitch[2] * s.phases
        if s.phases > 1 and element_size(p.input.format) == 1 and p.input.x[2] == 1:
            s.whole = max(1, NCX_WHOLE // max(1, p.I[2]))
        s.image = s.channel * p.D + s.lanes + s.whole * (p.I[2] + s.lanes)
    return (s.image <= NCX_FLOATS and s.phases <= 4 and ncx_rows_bound(s) <= NCX_PLAN
            and ncx_blocks_bound(s) <= NCX_PLAN and ncx_masks_bound(s) * s.steps <= NCX_PLAN)


cdef double ncx_rows_bound(const NcxPlan* s) noexcept nogil:
    if s.vectors:
        return 2.0 * s.tap_rows * ceiling(s.product.Q[2], s.lanes)
    return <double>s.axes[0].count * s.axes[1].count * s.product.Q[0] * s.product.Q[1]


cdef double ncx_blocks_bound(const NcxPlan* s) noexcept nogil:
    return ceiling(s.product.Q[2], s.lanes) if s.vectors else <double>s.product.Q[0] * s.product.Q[1]


cdef double ncx_masks_bound(const NcxPlan* s) noexcept nogil:
    if s.vectors:
        return 2.0 * (s.axes[2].count * magnitude(s.axes[2].apart) // s.lanes + 4) * (s.tap_rows // 2 + 3)
    return s.columns if s.fold == 1 else 1 + s.fold * s.fold


cdef void lay_out_ncx(NcxPlan* s, workspace* memory) noexcept nogil:
    """What a plan consists of."""
    s.rows = <ncx_row*>take(memory, <int64_t>ncx_rows_bound(s) * sizeof(ncx_row))
    s.blocks = <NcxBlock*>take(memory, <int64_t>ncx_blocks_bound(s) * sizeof(NcxBlock))
    s.taken = <int64_t*>take(memory, s.weights * sizeof(int64_t))
    s.places = <int64_t*>take(memory, s.steps * sizeof(int64_t))
    s.masks = <uint16_t*>take(memory, <int64_t>ncx_masks_bound(s) * s.steps * sizeof(uint16_t))
    s.edges = <bint*>take(memory, s.columns * sizeof(bint))


cdef inline int64_t folded_mask(const NcxPlan* s, int64_t line) noexcept nogil:
    """The lanes of a row, from those of each line."""
    cdef int64_t i, bits = 0, width = s.product.Q[2]
    for i in range(s.fold):
        bits |= (line & ((1 << width) - 1)) << i * width
    return bits


cdef int64_t partial_masks(NcxPlan* s, int64_t x1) noexcept nogil:
    """Where the masks begin of a row of input from line x1 on."""
    cdef int64_t first = max(0, -x1), last = min(s.fold, s.product.I[1] - x1) - 1, width = s.product.Q[2], t
    cdef int64_t* number = &s.partial[first * NCX_FOLD + last]
    if last - first == s.fold - 1:
        return 0
    if number[0] < 0:
        check_room(b"partial_masks", s.masks + s.mask_count * s.steps, s.steps * sizeof(uint16_t))
        number[0] = s.mask_count
        for t in range(s.steps):
            s.masks[s.mask_count * s.steps + t] = s.masks[t] & ((1 << (last + 1) * width) - (1 << first * width))
        s.mask_count += 1
    return number[0] * s.steps


cdef bint add_masks(NcxPlan* s, int64_t position) noexcept nogil:
    """Which lanes each step finds inside, where lane 0 is at output position `position`; whether some are not."""
    cdef const Product* p = s.product
    cdef uint16_t* masks = s.masks + s.mask_count * s.steps
    cdef int64_t t, d, x, low, high, bits
    cdef bint outside = False
    check_room(b"add_masks", masks, s.steps * sizeof(uint16_t))
    for t in range(s.reach):
        x = position * p.step[2] + s.axes[2].first + t * s.axes[2].apart
        meet_inside(x, p.step[2], p.I[2], s.lanes, &low, &high)
        outside = outside or low > 0 or high < s.lanes
        bits = ((1 << high) - 1) & ~((1 << low) - 1)
        if s.fold > 1:
            bits = folded_mask(s, bits)
        for d in range(p.D):
            masks[t * p.D + d] = bits
    s.mask_count += 1
    return outside


cdef inline void add_ncx_row(NcxPlan* s, int64_t first, int64_t last, int64_t tap_row, int64_t place, int64_t first_step,
                             int64_t end_step) noexcept nogil:
    """`tap_row`: of the first output row, counted through the outermost axis."""
    cdef ncx_row* row = &s.rows[s.row_count]
    cdef int64_t outer = tap_row // max(1, s.tap_rows), rest = tap_row % max(1, s.tap_rows)
    check_room(b"add_ncx_row", row, sizeof(ncx_row))
    row.kind, row.masks, row.place = first * NCX_ROWS + last, 0, place
    row.weights = (outer * s.steps * s.weight_step
                   + rest % s.shared * (s.weight_step // s.shared) + s.weight_step // s.shared - 1 - rest // s.shared)
    row.first_step, row.steps = first_step, end_step - first_step
    s.row_count += 1


cdef void add_row_blocks(NcxPlan* s, NcxBlock* block) noexcept nogil:
    """The rows of input that a block of rows meets: those of tap rows in ascending order for each output row."""
    cdef const Product* p = s.product
    cdef int64_t t0, x0, x1, start, number, i, j, rest, first, last = 0, sign = -1 if s.axes[1].apart < 0 else 1
    cdef int64_t apart = magnitude(s.axes[1].apart), down = magnitude(s.down) * s.row_step
    start = block.q1 * s.row_step + s.axes[1].first
    number = (block.height - 1) * down + (s.tap_rows - 1) * apart + 1
    for t0 in range(s.axes[0].count):
        x0 = block.q0 * p.step[0] + s.axes[0].first + t0 * s.axes[0].apart
        if x0 < 0 or x0 >= p.I[0]:
            continue
        for i in range(max(0, 1 - s.fold - start if sign > 0 else start - p.I[1] + 1),
                       min(number, p.I[1] - start if sign > 0 else start + s.fold)):
            x1 = start + sign * i
            first = -1
            for j in range(block.height):
                rest = i - j * down
                if rest >= 0 and rest % apart == 0 and rest // apart < s.tap_rows:
                    if first < 0:
                        first = j
                    last = j
            if first >= 0:
                add_ncx_row(s, first, last, t0 * s.tap_rows + (i - first * down) // apart,
                            x0 * s.pitch[0] + x1 * s.pitch[1], 0, s.steps)
                if s.fold > 1:
                    s.rows[s.row_count - 1].masks = partial_masks(s, x1)


cdef void add_vector_blocks(NcxPlan* s, NcxBlock* block) noexcept nogil:
    """The vectors of input that a block of vectors of the only line meets."""
    cdef const Product* p = s.product
    cdef int64_t v, x, first, last, full, rest, lowest, highest, number, begin
    cdef int64_t span = (s.reach - 1) * s.axes[2].apart, x0 = s.axes[0].first, x1 = s.axes[1].first
    cdef int64_t line = x0 * s.pitch[0] + x1 * s.pitch[1]
    cdef bint inside
    if x0 < 0 or x0 >= p.I[0] or x1 < 0 or x1 >= p.I[1]:
        return
    full = s.axes[2].count // max(1, s.reach)
    rest = s.axes[2].count % max(1, s.reach)  # taps of the last tap row, where that has fewer
    for v in range(block.height + s.tap_rows - 1):
        x = block.q2 + s.lanes * s.down * v + s.axes[2].first
        lowest, highest = min(x, x + span), max(x, x + span) + s.lanes
        if highest <= 0 or lowest >= p.I[2]:
            continue
        inside = lowest >= 0 and highest <= p.I[2]
        number = s.mask_count
        if not inside:
            add_masks(s, block.q2 + s.lanes * s.down * v)
        begin = s.row_count
        last = min(v, block.height - 1)
        first = max(0, v - s.tap_rows + 1)
        if rest:
            add_ncx_row(s, first, last, v - first, line + x, 0, rest * p.D)
            first = max(0, v - full + 1)
        if first <= last:
            add_ncx_row(s, first, last, v - first, line + x, rest * p.D, s.steps)
        if not inside:
            while begin < s.row_count:
                s.rows[begin].kind += NCX_ROWS * NCX_ROWS
                s.rows[begin].masks = number * s.steps
                begin += 1


cdef void add_ncx_block(NcxPlan* s, int64_t height, int64_t q0, int64_t q1, int64_t q2, int kept) noexcept nogil:
    cdef NcxBlock* block = &s.blocks[s.block_count]
    cdef int64_t j
    check_room(b"add_ncx_block", block, sizeof(NcxBlock))
    block.first_row, block.height, block.q0, block.q1, block.q2 = s.row_count, height, q0, q1, q2
    for j in range(height):
        block.kept[j] = kept
        if not s.vectors and (q1 + j * s.down + 1) * s.fold > s.product.Q[1]:
            block.kept[j] = (1 << s.product.Q[1] % s.fold * s.product.Q[2]) - 1
    if s.vectors:
        add_vector_blocks(s, block)
    else:
        add_row_blocks(s, block)
    block.row_count = s.row_count - block.first_row
    s.block_count += 1


cdef void add_ncx_blocks(NcxPlan* s, int64_t count, int64_t start, int64_t q0) noexcept nogil:
    """`count` rows, `s.down` apart from `start` on."""
    cdef int64_t parts = ceiling(count, NCX_ROWS), part, row, height
    for part in range(parts):
        row = share(count, parts, part)
        height = share(count, parts, part + 1) - row
        if s.vectors:
            add_ncx_block(s, height, 0, 0, (start + row * s.down) * s.lanes, 0xffff)
        else:
            add_ncx_block(s, height, q0, start + row * s.down, 0, 0xffff)


cdef void order_weights(NcxPlan* s) noexcept nogil:
    """[t0][t2][channel][tap rows as the output rows of an input row take them]"""
    cdef const Product* p = s.product
    cdef int64_t t0, t1, t2, d, t, place, width = s.weight_step // s.shared
    check_room(b"order_weights", s.taken, s.weights * sizeof(int64_t))
    memset(s.taken, 0, s.weights * sizeof(int64_t))
    for t0 in range(1 if s.vectors else s.axes[0].count):
        for t1 in range(s.tap_rows):
            place = t0 * s.steps * s.weight_step + t1 % s.shared * width + width - 1 - t1 // s.shared
            for t2 in range(min(s.reach, s.axes[2].count - t1 * s.reach) if s.vectors else s.reach):
                t = t1 * s.reach + t2 if s.vectors else (t0 * s.tap_rows + t1) * s.reach + t2
                for d in range(p.D):
                    s.taken[place] = p.tap_offsets[t] + d * p.weights.c
                    place += s.weight_step


cdef void fill_ncx(NcxPlan* s) noexcept nogil:
    cdef const Product* p = s.product
    cdef int64_t t, d, x, phase, whole, q0, residue, rows, apart = magnitude(s.down)
    s.row_count = s.block_count = s.mask_count = 0
    check_room(b"fill_ncx", s.places, s.steps * sizeof(int64_t))
    check_room(b"fill_ncx", s.edges, s.columns * sizeof(bint))
    order_weights(s)
    for t in range(s.reach):
        x = t * s.axes[2].apart + (0 if s.vectors else s.axes[2].first)
        phase = x - floor_divided(x, s.phases) * s.phases
        for d in range(p.D):
            s.places[t * p.D + d] = phase * s.pitch[2] + floor_divided(x, s.phases) + d * s.channel
    if s.vectors:
        whole = p.Q[2] // s.lanes
        add_ncx_blocks(s, whole, whole - 1 if s.down < 0 else 0, 0)
        if p.Q[2] % s.lanes:
            add_ncx_block(s, 1, 0, 0, whole * s.lanes, (1 << p.Q[2] % s.lanes) - 1)
        return
    for t in range(s.columns):
        s.edges[t] = add_masks(s, column_start(s, t)) or s.fold > 1
    for t in range(NCX_FOLD * NCX_FOLD):
        s.partial[t] = -1
    whole = ceiling(p.Q[1], s.fold)
    for q0 in range(p.Q[0]):
        for residue in range(min(apart, whole)):
            rows = (whole - residue + apart - 1) // apart
            add_ncx_blocks(s, rows, residue + (rows - 1) * apart if s.down < 0 else residue, q0)


cdef inline int64_t column_start(const NcxPlan* s, int64_t column) noexcept nogil:
    """The position of its first lane: the last column overlaps the one before where that makes it whole, and a part of a vector is not
    stored as fast as all of it."""
    cdef int64_t width = s.product.Q[2]
    return min(column * s.lanes, width - s.lanes) if width >= s.lanes and s.lanes < MASKED_LANES else column * s.lanes


cdef inline bint few_channels_in_groups(const Product* p) noexcept nogil:
    return p.D * p.R <= NCX_CHANNELS and p.G > 1
