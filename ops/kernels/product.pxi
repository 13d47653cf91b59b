"""Sums over taps and channels as products of packed panels: forward, and each stride class of backward_data.

    out[n,g,r,q] = SUM over tap, d   in[n,g,d,q*step + offset(tap)] * weights[g,r,d,tap]

Rows of the product are output channels r, columns are (n, q) flattened, its reduction is (tap, d) in the order of the
definition.  The weights are packed once, a panel for every few rows; a task is a block of columns: it gathers the
input of some steps of the reduction into lane panels small enough for the nearest cache, runs every row panel over
them, and goes on with the next steps, the sums waiting in a scratch block.  The last steps store.
"""

cdef enum:
    STEPS = 192              # reduction steps of a lane panel: 192 x 48 floats fit the nearest cache
    ROW_BYTES = 6 << 20      # packed weights per thread
    SUM_BYTES = 1 << 19      # scratch sums of a task
    NEAR_BYTES = 1 << 19     # packed weights that stay in the middle cache while one column panel after another uses them
    BLOCK = 4                # column panels of a task, at most


cdef struct Operand:  # a strided tensor: addresses in elements
    void* data
    int format
    int64_t n
    int64_t g
    int64_t c          # its channel axis
    int64_t x[3]       # its positions


cdef struct Tap:
    int64_t offset[3]  # input position = output position * step + offset
    int64_t weight     # its elements' offset in the weights


cdef struct Product:  # out[n,g,r,q] = SUM over tap, d   in[n,g,d,q*step + offset] * weights[g,r,d,tap]
    int64_t N
    int64_t G
    int64_t R
    int64_t D
    int64_t Q[3]       # output positions
    int64_t I[3]       # input positions
    int64_t step[3]
    int64_t tap_count
    Tap* taps          # in the order of the sum
    bint padded        # some tap meets a position outside
    Operand input
    Operand output
    Operand weights    # n: between rows, g: between groups, c: between channels d
    const float* bias  # of G*R rows, or NULL
    # plan
    int64_t columns
    int64_t panels
    int64_t first_task
    int64_t tasks
    int64_t panel_size   # floats of the packed weights of one row panel


cdef struct Fragment:  # lanes of a column panel whose positions differ in the innermost axis only
    int64_t lane
    int64_t count
    int64_t n
    int64_t q[3]


cdef struct Piece:  # steps of the reduction: channels [first, end) of one tap
    int64_t tap
    int64_t first
    int64_t end


cdef struct ProductScratch:  # of one thread
    float* lanes
    float* masks      # of the lanes
    float* sums
    Fragment* fragments
    int64_t* fragment_count
    lane_span* spans
    Piece* pieces
    tile_run* runs
    char* used        # taps that meet the input


cdef inline int64_t row_panels(const Product* p, const instruction_set* isa) noexcept nogil:
    return ceiling(p.R, isa.rows)


# ---------------------------------------------------------------------------------------------------------------------
# Weights


cdef bint pack_rows(const Product* p, const instruction_set* isa, int64_t g, int64_t panel, float* packed) noexcept nogil:
    """The weights of one row panel: steps (tap, d), each `isa.rows` numbers. Tells whether some are not finite."""
    cdef int64_t panels = row_panels(p, isa), row = share(p.R, panels, panel), t
    cdef lane_span rows = lane_span(0, share(p.R, panels, panel + 1) - row, 0, p.weights.n)
    for t in range(p.tap_count):
        rows.offset = g * p.weights.g + row * p.weights.n + p.taps[t].weight
        isa.gather(packed + t * p.D * isa.rows, isa.rows, p.D, p.weights.data, p.weights.format, p.weights.c, &rows, 1)
    return p.padded and not all_finite(packed, isa.rows, rows.count, p.tap_count * p.D)


# ---------------------------------------------------------------------------------------------------------------------
# Columns


cdef int64_t cut_fragments(const Product* p, int64_t column, int64_t count, Fragment* fragments) noexcept nogil:
    cdef int64_t lane = 0, number = 0, q2, rest, run
    cdef Fragment* f
    while lane < count:
        q2 = (column + lane) % p.Q[2]
        rest = (column + lane) // p.Q[2]
        run = min(count - lane, p.Q[2] - q2)
        f = &fragments[number]
        f.lane, f.count = lane, run
        f.q[2] = q2
        f.q[1] = rest % p.Q[1]
        rest //= p.Q[1]
        f.q[0] = rest % p.Q[0]
        f.n = rest // p.Q[0]
        number += 1
        lane += run
    return number


cdef inline void add_span(lane_span* spans, int64_t* number, int64_t lane, int64_t count, int64_t offset,
                          int64_t step) noexcept nogil:
    """Append a span, or lengthen the last where it goes on."""
    cdef lane_span* last
    if number[0] > 0:
        last = &spans[number[0] - 1]
        if last.offset == NO_ELEMENT:
            if offset == NO_ELEMENT:
                last.count += count
                return
        elif offset != NO_ELEMENT and last.step == step and offset == last.offset + last.count * step:
            last.count += count
            return
    spans[number[0]] = lane_span(lane, count, offset, step)
    number[0] += 1


cdef int64_t input_spans(const Product* p, const Tap* tap, int64_t g, const Fragment* fragments, int64_t fragment_count,
                         lane_span* spans) noexcept nogil:
    """Where the lanes of a column panel find their input at a tap."""
    cdef int64_t number = 0, i, x0, x1, x2, step = p.step[2], low, high
    cdef const Fragment* f
    for i in range(fragment_count):
        f = &fragments[i]
        x0 = f.q[0] * p.step[0] + tap.offset[0]
        x1 = f.q[1] * p.step[1] + tap.offset[1]
        x2 = f.q[2] * step + tap.offset[2]
        low = 0
        high = f.count
        if p.padded:
            if x0 < 0 or x0 >= p.I[0] or x1 < 0 or x1 >= p.I[1] or x2 >= p.I[2]:
                high = 0
            else:
                low = min(high, ceiling(-x2, step) if x2 < 0 else 0)
                high = max(low, min(high, (p.I[2] - 1 - x2) // step + 1))
            if high == low:
                low = high = 0
        if low > 0:
            add_span(spans, &number, f.lane, low, NO_ELEMENT, 0)
        if high > low:
            add_span(spans, &number, f.lane + low, high - low,
                     f.n * p.input.n + g * p.input.g + x0 * p.input.x[0] + x1 * p.input.x[1]
                     + (x2 + low * step) * p.input.x[2], step * p.input.x[2])
        if high < f.count:
            add_span(spans, &number, f.lane + high, f.count - high, NO_ELEMENT, 0)
    return number


cdef uint32_t TAKEN = 0xFFFFFFFF


cdef void mask_spans(lane_span* spans, int64_t number) noexcept nogil:
    """Turn the spans of an input into those of its mask: TAKEN everywhere but outside."""
    cdef int64_t i
    for i in range(number):
        if spans[i].offset != NO_ELEMENT:
            spans[i].offset = spans[i].step = 0


cdef int64_t output_spans(const Product* p, int64_t g, const Fragment* fragments, int64_t fragment_count,
                          lane_span* spans) noexcept nogil:
    cdef int64_t number = 0, i
    cdef const Fragment* f
    for i in range(fragment_count):
        f = &fragments[i]
        add_span(spans, &number, f.lane, f.count,
                 f.n * p.output.n + g * p.output.g + f.q[0] * p.output.x[0] + f.q[1] * p.output.x[1]
                 + f.q[2] * p.output.x[2], p.output.x[2])
    return number


# ---------------------------------------------------------------------------------------------------------------------
# One block of columns


cdef void run_block(const Product* p, const instruction_set* isa, int64_t g, int64_t first_panel, int64_t end_panel,
                    int64_t first_row_panel, int64_t end_row_panel, const float* packed, bint masked, ProductScratch* s) noexcept nogil:
    """Column panels [first_panel, end_panel) against row panels [first_row_panel, end_row_panel), packed from `packed`."""
    cdef int64_t vectors = ceiling(p.columns, isa.width), all_rows = row_panels(p, isa)
    cdef int64_t panel_floats = STEPS * isa.vectors * isa.width + isa.width, tile_floats = isa.rows * isa.vectors * isa.width
    cdef int64_t j, t, i, r, k, first, column, steps, tap = 0, channel = 0, piece_count, run_count, span_count, row, rows, nv
    cdef bint resume = False, last
    cdef Piece* piece
    cdef tile_run* run
    cdef float* tile
    cdef int64_t blocks = end_panel - first_panel
    for j in range(blocks):
        column = share(vectors, p.panels, first_panel + j) * isa.width
        s.fragment_count[j] = cut_fragments(p, column, min(p.columns, share(vectors, p.panels, first_panel + j + 1)
                                                           * isa.width) - column, s.fragments + j * TILE_LANES)
    if p.padded:
        for t in range(p.tap_count):
            s.used[t] = False
            for j in range(blocks):
                span_count = input_spans(p, &p.taps[t], g, s.fragments + j * TILE_LANES, s.fragment_count[j], s.spans)
                if span_count > 1 or s.spans[0].offset != NO_ELEMENT:
                    s.used[t] = True
                    break
    while True:
        # The next steps: as many as fit, of taps that meet the input.
        piece_count = run_count = steps = 0
        while tap < p.tap_count and steps < STEPS:
            if channel == p.D or (p.padded and not s.used[tap]):
                tap += 1
                channel = 0
                continue
            piece = &s.pieces[piece_count]
            piece.tap, piece.first, piece.end = tap, channel, min(p.D, channel + STEPS - steps)
            piece_count += 1
            run = &s.runs[run_count - 1]
            if run_count > 0 and run.rows + run.steps * isa.rows == (tap * p.D + channel) * isa.rows:
                run.steps += piece.end - channel
            else:
                s.runs[run_count] = tile_run((tap * p.D + channel) * isa.rows, steps * isa.vectors * isa.width,
                                             piece.end - channel)
                run_count += 1
            steps += piece.end - channel
            channel = piece.end
        while tap < p.tap_count and (channel == p.D or (p.padded and not s.used[tap])):
            tap += 1
            channel = 0
        last = tap == p.tap_count
        for j in range(blocks):
            nv = share(vectors, p.panels, first_panel + j + 1) - share(vectors, p.panels, first_panel + j)
            k = 0
            for i in range(piece_count):
                piece = &s.pieces[i]
                span_count = input_spans(p, &p.taps[piece.tap], g, s.fragments + j * TILE_LANES, s.fragment_count[j], s.spans)
                isa.gather(s.lanes + j * panel_floats + k * isa.vectors * isa.width, isa.vectors * isa.width,
                           piece.end - piece.first,
                           <const char*>p.input.data + piece.first * p.input.c * element_size(p.input.format),
                           p.input.format, p.input.c, s.spans, span_count)
                if masked:
                    mask_spans(s.spans, span_count)
                    isa.gather(s.masks + j * panel_floats + k * isa.vectors * isa.width, isa.vectors * isa.width,
                               piece.end - piece.first, &TAKEN, NUMBER_FLOAT32, 0, s.spans, span_count)
                k += piece.end - piece.first
            if last:
                span_count = output_spans(p, g, s.fragments + j * TILE_LANES, s.fragment_count[j], s.spans)
            for r in range(first_row_panel, end_row_panel):
                row = share(p.R, all_rows, r)
                rows = share(p.R, all_rows, r + 1) - row
                tile = s.sums + (j * (end_row_panel - first_row_panel) + r - first_row_panel) * tile_floats
                if masked:
                    for i in range(rows):
                        isa.masked[nv - 1](s.runs, run_count, packed + (r - first_row_panel) * p.panel_size + i,
                                           s.lanes + j * panel_floats, isa.vectors * isa.width, tile + i * nv * isa.width,
                                           resume, s.masks + j * panel_floats)
                else:
                    isa.tile[rows - 1][nv - 1](s.runs, run_count, packed + (r - first_row_panel) * p.panel_size,
                                               s.lanes + j * panel_floats, isa.vectors * isa.width, tile, resume)
                if last:
                    isa.scatter(tile, nv * isa.width, rows,
                                <char*>p.output.data + row * p.output.c * element_size(p.output.format),
                                p.output.format, p.output.c, s.spans, span_count,
                                NULL if p.bias == NULL else p.bias + g * p.R + row)
        if last:
            return
        resume = True


# ---------------------------------------------------------------------------------------------------------------------
# The whole


cdef struct Job:  # row panels [first_row_panel, end_row_panel) of one group of one product
    const Product* product
    int64_t g
    int64_t first_row_panel
    int64_t end_row_panel
    const float* packed
    int64_t row_parts
    int64_t block        # column panels of a task
    int64_t first_task


cdef void run_product_task(const Job* jobs, int64_t job_count, const instruction_set* isa, int64_t task, bint masked,
                   ProductScratch* scratch) noexcept nogil:
    cdef int64_t low = 0, high = job_count, middle, first, end, height
    while high - low > 1:
        middle = (low + high) // 2
        if jobs[middle].first_task <= task:
            low = middle
        else:
            high = middle
    cdef const Job* job = &jobs[low]
    task -= job.first_task
    height = job.end_row_panel - job.first_row_panel
    first = share(height, job.row_parts, task % job.row_parts)
    end = share(height, job.row_parts, task % job.row_parts + 1)
    task //= job.row_parts
    run_block(job.product, isa, job.g, task * job.block, min(job.product.panels, (task + 1) * job.block),
              job.first_row_panel + first, job.first_row_panel + end, job.packed + first * job.product.panel_size,
              masked and job.product.padded, scratch)


cdef int64_t plan_jobs(Product* products, int64_t count, const instruction_set* isa, int64_t first_item, int64_t end_item,
                       const float* packed, int threads, Job* jobs, int64_t* job_count) noexcept nogil:
    """Cut items [first_item, end_item), row panels of all groups, into jobs; returns the number of tasks."""
    cdef int64_t tasks = 0, number = 0, i, item, tile_bytes = 4 * isa.rows * isa.vectors * isa.width, height, blocks, panels
    cdef int64_t wanted = 4 * threads, segments = 0
    cdef Product* p
    cdef Job* job
    panels = row_panels(products, isa)
    segments = (end_item - 1) // panels - first_item // panels + 1
    for i in range(count):
        p = &products[i]
        item = first_item
        while item < end_item:
            job = &jobs[number]
            number += 1
            job.product = p
            job.g = item // panels
            job.first_row_panel = item % panels
            job.end_row_panel = min(panels, job.first_row_panel + end_item - item)
            height = job.end_row_panel - job.first_row_panel
            job.packed = packed + (item - first_item) * p.panel_size
            item += height
            job.block = 1
            if height * p.panel_size * 4 > NEAR_BYTES:
                job.block = max(1, min(BLOCK, SUM_BYTES // (height * tile_bytes)))
            if threads > 1:
                job.block = max(1, min(job.block, p.panels * segments * count // wanted))
            blocks = ceiling(p.panels, job.block)
            job.row_parts = max(1, ceiling(height * tile_bytes * job.block, SUM_BYTES))
            if threads > 1 and blocks * segments * count < wanted:
                job.row_parts = max(job.row_parts, ceiling(wanted, blocks * segments * count))
            job.row_parts = min(job.row_parts, height)
            job.first_task = tasks
            tasks += blocks * job.row_parts
        packed += (end_item - first_item) * p.panel_size
    job_count[0] = number
    return tasks


cdef int64_t lay_out_product(ProductScratch* s, const instruction_set* isa, int64_t taps, char* space) noexcept nogil:
    """Divide one thread's workspace; returns its size."""
    cdef char* start = space
    cdef int64_t lane_floats = STEPS * isa.vectors * isa.width + isa.width
    s.lanes = <float*>take(&space, 4 * BLOCK * lane_floats + 64)
    s.masks = <float*>take(&space, 4 * BLOCK * lane_floats + 64)
    s.sums = <float*>take(&space, max(SUM_BYTES, 4 * BLOCK * isa.rows * isa.vectors * isa.width) + 64)
    s.fragments = <Fragment*>take(&space, BLOCK * TILE_LANES * sizeof(Fragment))
    s.fragment_count = <int64_t*>take(&space, BLOCK * sizeof(int64_t))
    s.spans = <lane_span*>take(&space, 3 * TILE_LANES * sizeof(lane_span))
    s.pieces = <Piece*>take(&space, STEPS * sizeof(Piece))
    s.runs = <tile_run*>take(&space, STEPS * sizeof(tile_run))
    s.used = <char*>take(&space, taps)
    return space - start


cdef int run_products(Product* products, int64_t count, int threads) except -1 nogil:
    """Compute products that share groups, rows and channels."""
    cdef const instruction_set* isa = current
    cdef int64_t i, items, item_floats = 0, chunk, first_item, end_item, tasks, task, job_count = 0, taps = 1, size, jobs_size
    cdef int64_t part, work = 0
    cdef int worker
    cdef bint masked = False
    cdef Product* p
    cdef ProductScratch layout
    cdef ProductScratch* scratch
    cdef Job* jobs
    cdef float* packed
    cdef char* space
    cdef char* aligned
    for i in range(count):
        p = &products[i]
        p.columns = p.N * p.Q[0] * p.Q[1] * p.Q[2]
        p.panels = ceiling(ceiling(p.columns, isa.width), isa.vectors)
        p.panel_size = p.tap_count * p.D * isa.rows + isa.width
        item_floats += p.panel_size
        taps = max(taps, p.tap_count)
        work += p.columns * p.G * p.R * p.D * p.tap_count
    if work < 100000:
        threads = 1
    items = products.G * row_panels(products, isa)
    chunk = min(items, max(1, <int64_t>ROW_BYTES * threads // (4 * item_floats)))
    size = lay_out_product(&layout, isa, taps, NULL)
    jobs_size = count * (chunk // row_panels(products, isa) + 2) * sizeof(Job)
    space = <char*>malloc(4 * chunk * item_floats + threads * size + threads * sizeof(ProductScratch) + jobs_size + 256)
    if space == NULL:
        with gil:
            raise MemoryError
    aligned = space + (64 - <size_t>space % 64) % 64
    scratch = <ProductScratch*>take(&aligned, threads * sizeof(ProductScratch))
    for worker in range(threads):
        aligned += lay_out_product(&scratch[worker], isa, taps, aligned)
    jobs = <Job*>take(&aligned, jobs_size)
    packed = <float*>aligned
    first_item = 0
    while first_item < items:
        end_item = min(items, first_item + chunk)
        tasks = (end_item - first_item) * count
        if threads == 1:
            for task in range(tasks):
                pack_item(products, count, isa, first_item, end_item, task, packed, &masked)
        else:
            for task in prange(tasks, schedule="static", num_threads=threads):
                pack_item(products, count, isa, first_item, end_item, task, packed, &masked)
        tasks = plan_jobs(products, count, isa, first_item, end_item, packed, threads, jobs, &job_count)
        if threads == 1:
            for task in range(tasks):
                run_product_task(jobs, job_count, isa, task, masked, scratch)
        else:
            for task in prange(tasks, schedule="dynamic", num_threads=threads):
                run_product_task(jobs, job_count, isa, task, masked, &scratch[thread_number()])
        first_item = end_item
    free(space)
    return 0


cdef void pack_item(const Product* products, int64_t count, const instruction_set* isa, int64_t first_item, int64_t end_item,
                    int64_t task, float* packed, bint* unbounded) noexcept nogil:
    cdef int64_t i, width = end_item - first_item, panels = row_panels(products, isa), item = first_item + task % width
    for i in range(task // width):
        packed += width * products[i].panel_size
    i = task // width
    if pack_rows(&products[i], isa, item // panels, item % panels, packed + (item - first_item) * products[i].panel_size):
        unbounded[0] = True
