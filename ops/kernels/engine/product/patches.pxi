"""Algorithm `patches`: data gradients whose taps do not overlap, as those of patch embeddings, where the kernel is the stride.

Each stride class has one tap, and all meet the same input positions.  So the classes of all output channels are the lanes of one
product, and rows are positions of a line.  Lanes follow one another in the weights and, for a line of taps, in the result: nothing
is interleaved, and no lane is lost where planes are small.

A task packs the positions of some lines and the weights of one panel of lanes, unless its thread has them from the task before.

uses: core/problem.pxi (Operand), engine/algorithms.pxi (Problem), engine/costs.pxi (LEAST_ROWS, LINE_ROWS_STORED,
    NUMBER_MOVED, PATCHES_BIAS, PATCHES_MANY, VECTORS_A_CYCLE), engine/product/pack.pxi (add_span),
    engine/product/pairs.pxi (gather_steps, never_subnormal, on_matrix, tile_of), engine/product/product.pxi (Product,
    biases)
gives: Patches, fits_patches, lay_out_patches, patches_cycles, run_patches
"""

cdef enum:
    PATCHES_ROWS_BYTES = 1 << 20    # packed positions of a task ...
    PATCHES_LANES_BYTES = 1 << 21   # ... packed weights, and a line's positions at most
    PATCHES_RUN = 8                 # lanes that follow one another in the result, at least: shorter ones cost more than classes
    PATCHES_TASKS = 4               # of a thread, at least, where there is something to divide


cdef struct PatchesScratch:  # of one thread
    float* rows            # [line][tile][step][position]
    int64_t rows_of        # the chunk that lies there, of all groups'
    float* lanes           # [step][lane]
    int64_t lanes_of       # the panel, of all groups'
    float* sums
    float* biases          # of the lanes
    lane_span* spans       # of the result
    lane_span* sources     # of the weights
    int64_t span_count
    uint16_t smallest         # magnitude of a bfloat16 met in the input, less one
    uint16_t smallest_weight


cdef struct Patches:
    int64_t lanes          # of all output channels and classes
    int64_t panels
    int64_t lines          # of all images
    int64_t chunks         # of lines
    int64_t tiles          # of a line
    int64_t tile_floats    # packed positions of a tile
    PatchesScratch* scratch


cdef bint fits_patches(Problem* q) noexcept nogil:
    cdef const Product* first = q.products
    cdef const Product* p
    cdef Patches* s = &q.patches
    cdef int64_t i, most, runs = 0
    cdef int axis
    if (q.weights != NULL or q.count < 2 or on_matrix(q.pairs) or first.input.format == NUMBER_FLOAT64
            or first.S == 0 or first.R == 0):
        return False
    for i in range(q.count):
        p = &q.products[i]
        if p.tap_count != 1:
            return False
        runs += i == 0 or <char*>p.output.data - <char*>q.products[i - 1].output.data != element_size(p.output.format)
        for axis in range(3):
            if p.taps.offset[axis] != 0 or p.step[axis] != 1 or p.Q[axis] != first.Q[axis] or p.Q[axis] > p.I[axis]:
                return False
    if q.count < PATCHES_RUN * runs:
        return False
    s.lanes = first.R * q.count
    s.panels = ceiling(ceiling(s.lanes, q.isa.width), q.isa.vectors)
    s.lines, s.tiles = first.N * first.Q[0] * first.Q[1], ceiling(first.Q[2], first.rows)
    s.tile_floats = first.S * first.rows + q.isa.width
    if (s.lines * s.tiles == 0 or 4.0 * s.tiles * s.tile_floats > PATCHES_LANES_BYTES
            or 4.0 * first.S * q.isa.vectors * q.isa.width > PATCHES_LANES_BYTES):
        return False
    most = max(1, PATCHES_ROWS_BYTES // (4 * s.tiles * s.tile_floats))
    s.chunks = ceiling(s.lines, most)
    if q.threads > 1 and first.G * s.panels * s.chunks < PATCHES_TASKS * q.threads:
        s.chunks = min(s.lines, max(s.chunks, ceiling(PATCHES_TASKS * q.threads, first.G * s.panels)))
    return True


cdef double patches_cycles(const Problem* q) noexcept nogil:
    """Of products, packed operands and stored results."""
    cdef const Product* p = q.products
    cdef const Patches* s = &q.patches
    cdef double positions = <double>s.lines * p.Q[2], rows = <double>s.lines * s.tiles * max(LEAST_ROWS, ceiling(p.Q[2], s.tiles))
    return (PATCHES_BIAS if p.R <= 16 else PATCHES_MANY) * p.G * (p.S * rows * s.panels * q.isa.vectors / VECTORS_A_CYCLE + NUMBER_MOVED * p.S * (positions + <double>s.lanes * s.chunks)
                                 + LINE_ROWS_STORED * positions * s.lanes)


cdef void lay_out_patches(Problem* q, workspace* memory) noexcept nogil:
    cdef Patches* s = &q.patches
    cdef PatchesScratch counted
    cdef PatchesScratch* scratch
    cdef int64_t pitch = q.isa.vectors * q.isa.width
    cdef int worker
    s.scratch = <PatchesScratch*>take(memory, q.threads * sizeof(PatchesScratch))
    for worker in range(q.threads):
        scratch = &s.scratch[worker] if memory.base != NULL else &counted
        scratch.rows = <float*>take(memory, 4 * ceiling(s.lines, s.chunks) * s.tiles * s.tile_floats)
        scratch.lanes = <float*>take(memory, 4 * (q.products.S * pitch + q.isa.width))
        scratch.sums = <float*>take(memory, 4 * q.products.rows * pitch)
        scratch.biases = <float*>take(memory, 4 * pitch)
        scratch.spans = <lane_span*>take(memory, (pitch + 1) * sizeof(lane_span))
        scratch.sources = <lane_span*>take(memory, (pitch + 1) * sizeof(lane_span))
        scratch.rows_of = scratch.lanes_of = -1
        scratch.smallest = scratch.smallest_weight = 0xffff


cdef inline int64_t patch_lane(const Patches* s, const instruction_set* isa, int64_t panel) noexcept nogil:
    """The first lane of a panel."""
    return min(s.lanes, share(ceiling(s.lanes, isa.width), s.panels, panel) * isa.width)


cdef void pack_patch_lanes(const Problem* q, int64_t g, int64_t panel, PatchesScratch* scratch) noexcept nogil:
    """The weights of a panel, and where its lanes lie in the result from the place of a position of the first class on."""
    cdef const Product* first = q.products
    cdef const Product* p
    cdef const Patches* s = &q.patches
    cdef int64_t lane = patch_lane(s, q.isa, panel), end = patch_lane(s, q.isa, panel + 1), low = lane, sources = 0, rest
    cdef int64_t pitch = q.isa.vectors * q.isa.width
    scratch.span_count = 0
    check_room(b"pack_patch_lanes", scratch.biases, 4 * (end - low))
    check_room(b"pack_patch_lanes", scratch.spans, (end - low) * sizeof(lane_span))
    check_room(b"pack_patch_lanes", scratch.sources, (end - low + 1) * sizeof(lane_span))
    while lane < end:
        p = &q.products[lane % q.count]
        add_span(scratch.spans, &scratch.span_count, lane - low, 1, lane // q.count * first.output.c
                 + (<char*>p.output.data - <char*>first.output.data) // element_size(first.output.format), 1)
        scratch.biases[lane - low] = 0 if p.bias == NULL else p.bias[g * p.R + lane // q.count]
        add_span(scratch.sources, &sources, lane - low, 1, lane // q.count * first.weights.n + p.tap_offsets[0], 1)
        lane += 1
    rest = ceiling(end - low, q.isa.width) * q.isa.width - (end - low)
    if rest > 0:
        add_span(scratch.sources, &sources, end - low, rest, NO_ELEMENT, 1)
    check_room(b"pack_patch_lanes", scratch.lanes, 4 * (first.S * pitch + q.isa.width))
    gather_steps(q.isa, q.pairs, scratch.lanes, pitch, first.D,
                 <const char*>first.weights.data + g * first.weights.g * element_size(first.weights.format), first.weights.format,
                 first.weights.c, scratch.sources, sources, &scratch.smallest_weight)


cdef inline int64_t patch_line(const Product* p, const Operand* operand, int64_t g, int64_t line) noexcept nogil:
    """Where a line of all images begins."""
    return (line // (p.Q[0] * p.Q[1]) * operand.n + g * operand.g + line // p.Q[1] % p.Q[0] * operand.x[0] + line % p.Q[1] * operand.x[1])


cdef void pack_patch_rows(const Problem* q, int64_t g, int64_t chunk, PatchesScratch* scratch) noexcept nogil:
    cdef const Product* p = q.products
    cdef const Patches* s = &q.patches
    cdef int64_t line, tile, position
    cdef float* place = scratch.rows
    cdef lane_span span = lane_span(0, 0, 0, p.input.x[2])
    for line in range(share(s.lines, s.chunks, chunk), share(s.lines, s.chunks, chunk + 1)):
        for tile in range(s.tiles):
            position = share(p.Q[2], s.tiles, tile)
            span.count, span.offset = share(p.Q[2], s.tiles, tile + 1) - position, patch_line(p, &p.input, g, line) + position * p.input.x[2]
            check_room(b"pack_patch_rows", place, 4 * s.tile_floats)
            gather_steps(q.isa, q.pairs, place, p.rows, p.D, p.input.data, p.input.format, p.input.c, &span, 1, &scratch.smallest)
            place += s.tile_floats


cdef void add_patch_biases(PatchesScratch* scratch, int64_t rows, int64_t pitch, int64_t lanes) noexcept nogil:
    """To finished sums: the +0 that they are stored with changes nothing after it."""
    cdef int64_t i, lane
    check_room(b"add_patch_biases", scratch.sums, 4 * rows * pitch)
    for i in range(rows):
        for lane in range(lanes):
            scratch.sums[i * pitch + lane] = scratch.sums[i * pitch + lane] + <float>0 + scratch.biases[lane]


cdef void run_patches_task(const Problem* q, int64_t task, PatchesScratch* scratch) noexcept nogil:
    """One panel of lanes against the positions of a chunk of lines."""
    cdef const Product* p = q.products
    cdef const Patches* s = &q.patches
    cdef int64_t panel = task % s.panels, chunk = task // s.panels % s.chunks, g = task // s.panels // s.chunks, line, tile, first, rows
    cdef int64_t vectors = share(ceiling(s.lanes, q.isa.width), s.panels, panel + 1) - share(ceiling(s.lanes, q.isa.width), s.panels, panel)
    cdef int64_t size = element_size(p.output.format), pitch = q.isa.vectors * q.isa.width
    cdef int64_t lanes = patch_lane(s, q.isa, panel + 1) - patch_lane(s, q.isa, panel)
    cdef const float* packed = scratch.rows
    cdef tile_run run = tile_run(0, 0, p.S)
    if scratch.lanes_of != g * s.panels + panel:
        pack_patch_lanes(q, g, panel, scratch)
        scratch.lanes_of = g * s.panels + panel
    if scratch.rows_of != g * s.chunks + chunk:
        pack_patch_rows(q, g, chunk, scratch)
        scratch.rows_of = g * s.chunks + chunk
    for line in range(share(s.lines, s.chunks, chunk), share(s.lines, s.chunks, chunk + 1)):
        for tile in range(s.tiles):
            first = share(p.Q[2], s.tiles, tile)
            rows = share(p.Q[2], s.tiles, tile + 1) - first
            check_room(b"run_patches_task", scratch.sums, 4 * rows * pitch)
            tile_of(q.isa, q.pairs, p.blocks, rows, vectors)(
                &run, 1, packed, 0, scratch.lanes, pitch, scratch.sums, False, NULL, NULL)
            if p.bias != NULL:
                add_patch_biases(scratch, rows, pitch, lanes)
            q.isa.scatter(scratch.sums, pitch, rows,
                          <char*>p.output.data + size * (patch_line(p, &p.output, g, line) + first * p.output.x[2]), p.output.format,
                          p.output.x[2], scratch.spans, scratch.span_count, NULL)
            packed += s.tile_floats


cdef bint run_patches(Problem* q, workspace* memory) noexcept nogil:
    """Returns false where pairs do not do: something is so small that a sum might become subnormal."""
    cdef const Patches* s = &q.patches
    cdef PatchesScratch* scratch = s.scratch
    cdef int64_t tasks = q.products.G * s.chunks * s.panels, task
    cdef uint16_t smallest = 0xffff, smallest_weight = 0xffff
    cdef int worker
    if q.threads == 1:
        for task in range(tasks):
            run_patches_task(q, task, scratch)
    else:
        for task in prange(tasks, schedule="dynamic", num_threads=q.threads):
            run_patches_task(q, task, &scratch[thread_number()])
    for worker in range(q.threads):
        smallest = min(smallest, scratch[worker].smallest)
        smallest_weight = min(smallest_weight, scratch[worker].smallest_weight)
    return q.pairs == NULL or never_subnormal(smallest, smallest_weight)
