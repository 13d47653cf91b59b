"""Algorithm `depthwise_ncx`: groups of few channels whose positions, not channels, lie side by side.

A task is some images of one group, and where these are few a part of their blocks. Nothing is laid out beforehand, but for
input that is not stored as floats side by side: that is decoded image by image. `depthwise_ncx_plan.pxi` has the order in
which rows of input are loaded.

uses: engine/algorithms.pxi (Problem), engine/product/depthwise_ncx_plan.pxi, engine/product/product.pxi (Product)
gives: decode_image, fits_depthwise_ncx, lay_out_depthwise_ncx, run_depthwise_ncx
"""

cdef enum:
    NCX_AHEAD = 1 << 11         # bytes: short lines of several images are no pattern that the processor foresees
    NCX_PLAN_BYTES = 8 << 20    # of all products' plans, at most
    NCX_THREAD_BYTES = 4 << 20  # of a thread's workspace, at most
    NCX_NEAR = 1 << 15          # bytes of images that are computed in turns: they stay in the nearest cache
    NCX_FINISHED = 1 << 13      # floats of images that are finished before they are rounded: they stay in the nearest cache


cdef inline float number_at(const void* data, int format, int64_t offset) noexcept nogil:
    if format == NUMBER_FLOAT32:
        return (<const float*>data)[offset]
    if element_size(format) == 2:
        return decode16((<const uint16_t*>data)[offset], format)
    return code_values[format - NUMBER_FLOAT8_E4M3FN][(<const uint8_t*>data)[offset]]


cdef void pack_ncx(const NcxPlan* s, int64_t g, int64_t r, float* weights) noexcept nogil:
    cdef const Product* p = s.product
    cdef int64_t i, start = g * p.weights.g + r * p.weights.n
    check_room(b"pack_ncx", weights, 4 * s.weights)
    if p.weights.format == NUMBER_FLOAT32:
        for i in range(s.weights):
            weights[i] = (<const float*>p.weights.data)[start + s.taken[i]]
    else:
        for i in range(s.weights):
            weights[i] = number_at(p.weights.data, p.weights.format, start + s.taken[i])


cdef void decode_image(const NcxPlan* s, const instruction_set* isa, int64_t n, int64_t g, int64_t first_plane, int64_t end_plane,
                       int64_t first, int64_t end, float* image) noexcept nogil:
    """Lines [first, end) of some planes, those of each residue modulo the innermost step side by side."""
    cdef const Product* p = s.product
    cdef int64_t d, phase, x0, count, lines = end - first, width = s.pitch[1], size = element_size(p.input.format)
    cdef const char* source
    cdef float* place
    check_room(b"decode_image", image + first * s.pitch[1], 4 * (s.image - first * s.pitch[1]))
    if s.phases == 1 and p.input.x[1] == p.I[2] * p.input.x[2]:
        lines, width = 1, width * lines
    for d in range(p.D):
        for x0 in range(first_plane, end_plane):
            source = <const char*>p.input.data + (n * p.input.n + g * p.input.g + d * p.input.c + x0 * p.input.x[0]
                                                  + first * p.input.x[1]) * size
            place = image + d * s.channel + x0 * s.pitch[0] + first * s.pitch[1]
            if s.whole > 0:
                split_by_phases(s, isa, lines, source, image + s.image - s.whole * (p.I[2] + s.lanes), place)
                continue
            for phase in range(s.phases):
                count = width if s.phases == 1 else ceiling(p.I[2] - phase, s.phases)
                isa.frame(place + phase * s.pitch[2], width, lines, count, 0, count, source + phase * p.input.x[2] * size,
                          p.input.format, p.input.x[1], s.phases * p.input.x[2], (end - first) * p.input.x[1])


cdef void split_by_phases(const NcxPlan* s, const instruction_set* isa, int64_t lines, const char* source, float* whole,
                      float* place) noexcept nogil:
    """Decode lines once each, and only then split them by phases."""
    cdef const Product* p = s.product
    cdef int64_t line = 0, some, phase, count, bytes = p.input.x[1] * element_size(p.input.format), pitch = p.I[2] + s.lanes
    while line < lines:
        some = min(s.whole, lines - line)
        isa.frame(whole, pitch, some, p.I[2], 0, p.I[2], source + line * bytes, p.input.format, p.input.x[1], 1, some * p.input.x[1])
        for phase in range(s.phases):
            count = ceiling(p.I[2] - phase, s.phases)
            isa.frame(place + phase * s.pitch[2] + line * s.pitch[1], s.pitch[1], some, count, 0, count, <const char*>(whole + phase),
                      NUMBER_FLOAT32, pitch, s.phases, 0)
        line += some


cdef int64_t most_slots(const instruction_set* isa) noexcept nogil:
    """Vectors that are computed together."""
    cdef int64_t slots = NCX_SLOTS
    while isa.depthwise_ncx[slots - 1] == NULL:
        slots -= 1
    return slots


cdef void plan_runs(const NcxPlan* s, const instruction_set* isa, int64_t images, NcxScratch* scratch) noexcept nogil:
    """Slots share masks: columns over an edge run image beside image, all others in any company."""
    cdef int64_t pass_, column, image, slots = most_slots(isa)
    cdef int kept
    cdef bint edge
    cdef NcxRun* run
    scratch.planned, scratch.images_planned, scratch.run_count = s, images, 0
    check_room(b"plan_runs", scratch.runs, images * s.columns * sizeof(NcxRun))
    for pass_ in range(2):
        run = NULL
        for column in range(s.columns):
            kept = 0xffff
            if not s.vectors and s.fold * s.product.Q[2] - column_start(s, column) < s.lanes:
                kept = (1 << s.fold * s.product.Q[2] - column_start(s, column)) - 1
            edge = not s.vectors and (s.edges[column] or kept != 0xffff)
            if edge != (pass_ == 1):
                continue
            for image in range(images):
                if run == NULL or run.slots == slots or (edge and image == 0):
                    run = &scratch.runs[scratch.run_count]
                    scratch.run_count += 1
                    run.slots, run.kept = 0, kept
                    run.masked = edge and s.edges[column]
                    run.masks = s.masks + (column * s.steps if run.masked else 0)
                run.image[run.slots], run.column[run.slots] = image, 0 if s.vectors else column_start(s, column)
                run.slots += 1


cdef struct NcxImages:  # of a task, each with its source and its result
    int64_t count
    const float* sources[NCX_SLOTS]
    char* results[NCX_SLOTS]
    int format               # of the results
    int64_t plane            # bytes between their planes
    int64_t line             # ... lines
    int64_t step             # elements between their columns


cdef void run_ncx(const NcxCall* call, const NcxPlan* s, const instruction_set* isa, const NcxImages* images, int64_t part,
                  float bias, const NcxScratch* scratch) noexcept nogil:
    """All slots of one product."""
    cdef const Product* p = s.product
    cdef const NcxBlock* block
    cdef const NcxRun* run
    cdef const float* places[NCX_SLOTS]
    cdef char* targets[NCX_SLOTS]
    cdef uint16_t kept[NCX_ROWS]
    cdef int64_t i, r, at, down, number, column_bytes = images.step * element_size(images.format)
    cdef int64_t first = share(s.block_count, call.parts, part), end = share(s.block_count, call.parts, part + 1)
    cdef int64_t width = row_width(s)
    cdef int64_t in_lines = 0, out_lines = 0, blocks = max(1, s.block_count)
    if s.direct:
        in_lines = ceiling(p.I[0] * p.I[1] * p.I[2], 16 * blocks)
    if not call.woven and column_bytes <= NCX_AHEAD:  # else no line holds two columns, and what lies between is endless
        out_lines = ceiling(p.Q[0] * p.Q[1] * p.Q[2] * column_bytes, 64 * blocks)
    down = s.down * (s.lanes * column_bytes if s.vectors else images.line)
    for number in range(first, end):
        block = &s.blocks[s.block_count - 1 - number if s.down < 0 else number]  # as they lie in memory
        at = block.q2 * column_bytes
        if call.woven:
            at += (block.q0 * p.Q[1] + block.q1) * images.line
        else:
            at += block.q1 * images.line + block.q0 * images.plane
        for i in range(images.count):
            prefetch_lines(<const char*>images.sources[i] + NCX_AHEAD + 64 * number * in_lines, in_lines, False)
            prefetch_lines(images.results[i] + NCX_AHEAD + 64 * number * out_lines, out_lines, True)
        for r in range(scratch.run_count):
            run = &scratch.runs[r]
            for i in range(block.height):
                kept[i] = run.kept & block.kept[i]
            for i in range(run.slots):
                places[i] = images.sources[run.image[i]] + run.column[i]
                if call.staged:
                    targets[i] = <char*>(staged_rows(s, block, scratch, run.image[i]) + run.column[i])
                else:
                    targets[i] = images.results[run.image[i]] + at + run.column[i] * column_bytes
            isa.depthwise_ncx[run.slots - 1](s.rows + block.first_row, block.row_count, block.height, run.masked, places,
                                             <const uint16_t*>s.masks if s.vectors else run.masks, s.places, scratch.weights, s.weight_step, bias,
                                             targets, kept, (-4 if s.down < 0 else 4) * width if call.staged else down)
        if call.staged:
            for i in range(images.count):
                store_staged(s, block, isa, images, scratch, i, images.results[i] + at, down)


cdef inline int64_t row_width(const NcxPlan* s) noexcept nogil:
    """Numbers of a row."""
    return s.lanes if s.vectors else s.fold * s.product.Q[2]


cdef inline float* staged_rows(const NcxPlan* s, const NcxBlock* block, const NcxScratch* scratch, int64_t image) noexcept nogil:
    """Row 0 of a block, where its rows wait in the order of memory."""
    return scratch.staged + (image * NCX_ROWS + (block.height - 1 if s.down < 0 else 0)) * row_width(s)


cdef void store_staged(const NcxPlan* s, const NcxBlock* block, const instruction_set* isa, const NcxImages* images,
                       const NcxScratch* scratch, int64_t image, char* target, int64_t down) noexcept nogil:
    """The rows of one image, those that touch in memory together; `target` is row 0's place, the next rows are `down` bytes further."""
    cdef const float* source = staged_rows(s, block, scratch, image)
    cdef int64_t width = row_width(s), touching = width * images.step * element_size(images.format), j, last = block.height - 1, count
    if last > 0 and down == (-touching if s.down < 0 else touching):  # lines may also descend in memory
        count = last * width + numbers_of_row(s, block, 0 if s.down < 0 else last)
        if s.down < 0:
            source, target = source - last * width, target + last * down
        isa.weave(target, images.format, images.step, 1, source, 0, count, NULL)
        return
    for j in range(block.height):
        isa.weave(target + j * down, images.format, images.step, 1, source + (-j if s.down < 0 else j) * width, 0,
                  numbers_of_row(s, block, j), NULL)


cdef inline int64_t numbers_of_row(const NcxPlan* s, const NcxBlock* block, int64_t j) noexcept nogil:
    """Numbers of row j: the last of a line or plane may have fewer."""
    if s.vectors:
        return min(s.lanes, s.product.Q[2] - block.q2 - j * s.down * s.lanes)
    return min(s.fold, s.product.Q[1] - (block.q1 + j * s.down) * s.fold) * s.product.Q[2]


cdef void run_ncx_task(const NcxCall* call, const instruction_set* isa, int64_t task, NcxScratch* scratch) noexcept nogil:
    cdef const Product* p = call.plans.product
    cdef const NcxPlan* s = call.plans
    cdef int64_t part = task % call.parts, g = task // call.parts % p.G, chunk = task // call.parts // p.G
    cdef int64_t first = share(p.N, call.chunks, chunk), count = share(p.N, call.chunks, chunk + 1) - first
    cdef int64_t n, r, i, size = element_size(p.output.format), step
    cdef NcxImages images
    cdef char* results[NCX_SLOTS]
    cdef float bias
    images.count = count
    for n in range(count):
        if s.direct:
            images.sources[n] = <const float*>p.input.data + (first + n) * p.input.n + g * p.input.g
        else:
            images.sources[n] = scratch.decoded + n * s.image
            decode_image(s, isa, first + n, g, 0, p.I[0], 0, p.I[1], scratch.decoded + n * s.image)
    for r in range(p.R):
        bias = 0 if p.bias == NULL else p.bias[g * p.R + r]
        for i in range(call.count):
            s = &call.plans[i]
            p = s.product
            pack_ncx(s, g, r, scratch.weights)
            if scratch.planned != s or scratch.images_planned != count:
                plan_runs(s, isa, count, scratch)
            if not call.woven:
                for n in range(count):
                    results[n] = <char*>p.output.data + ((first + n) * p.output.n + g * p.output.g + r * p.output.c) * size
                    images.results[n] = <char*>(scratch.finished + n * image_numbers(p)) if call.images else results[n]
                images.format, images.step = p.output.format, p.output.x[2]
                images.plane, images.line = p.output.x[0] * size, s.fold * p.output.x[1] * size
                if call.images:
                    images.format, images.step = NUMBER_FLOAT32, 1
                    images.plane, images.line = 4 * p.Q[1] * p.Q[2], 4 * s.fold * p.Q[2]
                run_ncx(call, s, isa, &images, part, bias, scratch)
                if call.images:
                    for n in range(count):
                        isa.weave(results[n], p.output.format, p.output.x[2], 1, <const float*>images.results[n], 0, image_numbers(p),
                                  NULL)
                continue
            step = p.Q[0] * p.Q[1] * call.pitch
            check_room(b"run_ncx_task", scratch.finished, 4 * call.columns * count * step)
            for n in range(count):
                images.results[n] = <char*>(scratch.finished + (i % call.columns * count + n) * step)
            images.format, images.line, images.step = NUMBER_FLOAT32, 4 * call.pitch, 1
            run_ncx(call, s, isa, &images, part, bias, scratch)
            if i % call.columns == call.columns - 1:
                for n in range(count):
                    weave_image(call, i - call.columns + 1, isa, count, n,
                                (first + n) * p.output.n + g * p.output.g + r * p.output.c, scratch.finished)


cdef void weave_image(const NcxCall* call, int64_t first, const instruction_set* isa, int64_t images, int64_t n,
                      int64_t offset, const float* finished) noexcept nogil:
    """Products from `first` on, whose columns take turns."""
    cdef const Product* p = call.plans[first].product
    cdef int64_t q0, q1, i, count = 0, lines = p.Q[0] * p.Q[1]
    for i in range(call.columns):
        count += call.plans[first + i].product.Q[2]
    for q0 in range(p.Q[0]):
        for q1 in range(p.Q[1]):
            isa.weave(<char*>p.output.data + (offset + q0 * p.output.x[0] + q1 * p.output.x[1])
                      * element_size(p.output.format), p.output.format, call.apart, call.columns,
                      finished + (n * lines + q0 * p.Q[1] + q1) * call.pitch, images * lines * call.pitch, count, NULL)


cdef void lay_out_ncx_scratch(NcxScratch* s, const NcxCall* call, workspace* memory) noexcept nogil:
    """The buffers of one thread."""
    cdef const NcxPlan* first = call.plans
    cdef int64_t i, weights = 0, slots = 0, width = 0
    for i in range(call.count):
        width = max(width, row_width(&call.plans[i]))
        slots = max(slots, call.plans[i].columns)
        weights = max(weights, call.plans[i].weights)
    s.decoded = <float*>take(memory, 4 * call.together * first.image)
    s.finished = <float*>take(memory, 4 * (finished_floats(call) * call.together + call.plans.lanes))
    s.staged = <float*>take(memory, 4 * (call.together * NCX_ROWS * width + call.plans.lanes) if call.staged else 0)
    s.weights = <float*>take(memory, 4 * weights)
    s.runs = <NcxRun*>take(memory, call.together * slots * sizeof(NcxRun))
    s.planned = NULL


cdef inline int64_t image_numbers(const Product* p) noexcept nogil:
    return p.Q[0] * p.Q[1] * p.Q[2]


cdef int64_t finished_floats(const NcxCall* call) noexcept nogil:
    """Of one image."""
    cdef const Product* p = call.plans.product
    if call.images:
        return image_numbers(p)
    return p.Q[0] * p.Q[1] * call.pitch * call.columns if call.woven else 0


cdef inline bint is_dense(const Product* p) noexcept nogil:
    """Whether the results of a channel are equally far apart."""
    return ((p.Q[1] == 1 or p.output.x[1] == p.Q[2] * p.output.x[2])
            and (p.Q[0] == 1 or p.output.x[0] == p.Q[1] * p.Q[2] * p.output.x[2]))


cdef bint fits_depthwise_ncx(Problem* q) noexcept nogil:
    cdef const Product* products = q.products
    cdef NcxCall* call = &q.ncx
    cdef NcxPlan* s = q.ncx_plans
    cdef int64_t i, image, tasks
    cdef NcxScratch counted
    cdef workspace memory = workspace(NULL, 0, 0, 0)
    if (q.weights != NULL or products.input.format == NUMBER_FLOAT64 or q.isa.depthwise_ncx[0] == NULL
            or not few_channels_in_groups(products)):
        return False
    for i in range(q.count):
        if not plan_ncx(&products[i], q.isa, lines_to_fold(products, q.isa) if q.count == 1 else 1, NUMBER_FLOAT32, &s[i]):
            return False
        lay_out_ncx(&s[i], &memory)
        if memory.used > NCX_PLAN_BYTES:
            return False
    call.plans, call.count, call.columns, call.woven = s, q.count, q.columns, q.columns > 1
    call.staged = not call.woven and (products.output.format != NUMBER_FLOAT32 or products.output.x[2] != 1)
    call.images = (call.staged and q.count == 1 and is_dense(products)
                   and min(products.N, NCX_SLOTS) * image_numbers(products) <= NCX_FINISHED)
    call.staged = call.staged and not call.images
    call.pitch = ceiling(products.Q[2], s.lanes) * s.lanes
    if call.woven:
        call.apart = (<char*>products[1].output.data - <char*>products.output.data) // element_size(products.output.format)
        for i in range(q.count):
            if s[i].vectors != s.vectors:
                return False
    image = s.image + finished_floats(call)
    if image > NCX_FLOATS:
        return False
    call.together = min(products.N, NCX_SLOTS)
    if s.vectors or 4 * 4 * NCX_SLOTS * NCX_ROWS * products.Q[2] * q.columns > NCX_NEAR:  # input and output, of this block and of the next
        call.together = min(products.N, most_slots(q.isa))
    if image > 0:
        call.together = max(1, min(call.together, NCX_FLOATS // image))
    memory.used = 0
    lay_out_ncx_scratch(&counted, call, &memory)
    if memory.used > NCX_THREAD_BYTES:
        return False
    call.chunks = ceiling(products.N, call.together)
    tasks = call.chunks * products.G
    call.parts = 1
    if s.direct and not call.woven and not call.images and tasks < 4 * q.threads:
        call.parts = ceiling(4 * q.threads, tasks)
    return True


cdef void lay_out_depthwise_ncx(Problem* q, workspace* memory) noexcept nogil:
    cdef NcxScratch counted
    cdef int64_t i
    cdef int worker
    for i in range(q.count):
        lay_out_ncx(&q.ncx.plans[i], memory)
    q.ncx.scratch = <NcxScratch*>take(memory, q.threads * sizeof(NcxScratch))
    for worker in range(q.threads):
        lay_out_ncx_scratch(&q.ncx.scratch[worker] if memory.base != NULL else &counted, &q.ncx, memory)


cdef bint run_depthwise_ncx(Problem* q, workspace* memory) noexcept nogil:
    cdef const NcxCall* call = &q.ncx
    cdef NcxScratch* scratch = call.scratch
    cdef int64_t i, task, tasks = call.chunks * call.parts * q.products.G
    for i in range(call.count):
        fill_ncx(&call.plans[i])
    if q.threads == 1:
        for task in range(tasks):
            run_ncx_task(call, q.isa, task, scratch)
    else:
        for task in prange(tasks, schedule="dynamic", chunksize=max(1, tasks // (32 * q.threads)), num_threads=q.threads):
            run_ncx_task(call, q.isa, task, &scratch[thread_number()])
    return True
