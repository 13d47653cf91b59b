"""Products cut into tasks for threads, with a workspace of bounded size."""

cdef enum:
    ROLLED_PARTS = 16  # of all tasks for a thread, about
    THREAD_BYTES = 8 << 20  # of workspace: where a thread's own is large, fewer weights are packed


cdef struct Job:  # row panels [first_row_panel, end_row_panel) of one group of one product
    const Product* product
    int64_t g
    int64_t first_row_panel
    int64_t end_row_panel
    const float* packed
    int64_t row_parts
    int64_t blocks       # of column panels, or of a planar layout
    const Layout* layout  # or NULL: gathered
    int64_t together     # products that share the block
    int64_t items        # packed row panels of each product
    int64_t item         # ... the job's first among them
    const Stack* stack
    const float* stacked  # weights of tiles that the products share, or NULL
    int64_t first_task


cdef struct Jobs:  # one after the other, for all threads
    Job* job
    int64_t count
    int64_t tasks
    int64_t some     # tasks that a thread takes at a time
    int64_t next     # that no thread has taken
    int threads
    ProductScratch* scratch


cdef struct ProductPlan:  # how products are computed from gathered panels or from blocks that are laid out
    bint laid_out          # some from blocks
    bint shared            # ... all from the same blocks
    bint two_blocks        # ... one of which is laid out while the other is in use
    bint padded
    Layout* layouts        # of each product
    Stack stack            # tiles in which products share lanes
    int64_t runs           # of a block
    int64_t places         # of a stacked tile
    int64_t block_floats
    int64_t next_block_floats
    int64_t class_count    # of all products' positions
    int64_t item_floats    # packed weights of a row panel of all products
    int64_t chunk          # row panels that are packed at a time
    int64_t passes         # over the taps
    int64_t together       # row panels that go through all passes before the next
    int64_t kept           # floats of the sums of a row panel, which wait from pass to pass
    int64_t jobs_bytes
    # the buffers
    ProductScratch* scratch
    Job* jobs
    PositionClass* position_classes
    float* sums
    float* packed


cdef inline const Job* job_of(const Jobs* all, int64_t task) noexcept nogil:
    cdef int64_t low = 0, high = all.count, middle
    while high - low > 1:
        middle = (low + high) // 2
        if all.job[middle].first_task <= task:
            low = middle
        else:
            high = middle
    return &all.job[low]


cdef void run_product_task(const Jobs* all, const instruction_set* isa, int64_t task, int64_t following, bint masked,
                           ProductScratch* scratch) noexcept nogil:
    """Task `task`, and the beginning of `following` if there is one."""
    cdef const Job* job = job_of(all, task)
    cdef int64_t height = job.end_row_panel - job.first_row_panel, part = (task - job.first_task) % job.row_parts
    cdef int64_t first = share(height, job.row_parts, part), end = share(height, job.row_parts, part + 1)
    if job.layout != NULL:
        run_laid_out_task(all, job, isa, task, following, first, end, scratch)
        return
    task = (task - job.first_task) // job.row_parts
    run_block(job.product, isa, job.g, share(job.product.panels, job.blocks, task), share(job.product.panels, job.blocks, task + 1),
              job.first_row_panel + first, job.first_row_panel + end, job.packed + first * job.product.panel_size,
              masked and job.product.padded, scratch)


cdef int64_t rolled_at_once(const Layout* l, int64_t tasks, int threads) noexcept nogil:
    """Tasks that a thread takes at a time where blocks roll: even parts of an axis, several planes more than it lays out at first."""
    cdef int64_t parts = ceiling(ROLLED_PARTS * threads * l.blocks[0], tasks)
    return min(max(ceiling(l.blocks[0], parts), min(l.blocks[0], 3 * l.u[0])), ceiling(tasks, threads))


cdef void plan_jobs(const Product* products, const Layout* layouts, bint shared, bint masked, int64_t count,
                    const instruction_set* isa, int64_t first_item, int64_t end_item, const float* packed, const Stack* stack,
                    const float* stacked, int threads, Jobs* all) noexcept nogil:
    """Cut items [first_item, end_item), row panels of all groups, into jobs. `stacked` are the weights of stacked tiles, or NULL."""
    cdef int64_t tasks = 0, number = 0, i, item, tile_bytes = 4 * products.rows * isa.vectors * isa.width, height, block, panels
    cdef int64_t wanted = 4 * threads, segments = 0, all_products = count
    cdef const Product* p
    cdef Job* job
    panels = row_panels(products)
    segments = (end_item - 1) // panels - first_item // panels + 1
    if shared:
        count = 1
    for i in range(count):
        p = &products[i]
        item = first_item
        while item < end_item:
            job = &all.job[number]
            number += 1
            job.product = p
            job.g = item // panels
            job.first_row_panel = item % panels
            job.end_row_panel = min(panels, job.first_row_panel + end_item - item)
            height = job.end_row_panel - job.first_row_panel
            job.packed = packed + (item - first_item) * p.panel_size
            block = 1  # column panels of a task
            if are_far(height * p.panel_size):
                block = max(1, min(BLOCK, SUM_BYTES // (height * tile_bytes)))
            if threads > 1:
                block = max(1, min(block, p.panels * segments * count // wanted))
            job.blocks = min(p.panels, ceiling(ceiling(p.panels, block), threads) * threads)
            job.layout = NULL
            job.stack, job.stacked = stack, NULL
            if layouts != NULL and layouts[i].chosen and (shared or not (masked and p.padded)):
                job.layout = &layouts[i]
                if stacked != NULL:
                    job.stacked = stacked + (item - first_item) * stack.floats
                job.together, job.items, job.item = all_products if shared else 1, end_item - first_item, item - first_item
                block = 1
                job.blocks = p.N * layouts[i].blocks[0] * layouts[i].blocks[1] * layouts[i].blocks[2]
            job.row_parts = ceiling(height, max(1, SUM_BYTES // (tile_bytes * block)))
            while (job.row_parts < height and job.blocks * job.row_parts * segments * count < wanted
                   and job.blocks * job.row_parts * segments % threads != 0):
                job.row_parts += 1  # each part lays out the input anew: as few as occupy all threads
            job.row_parts = min(job.row_parts, height)
            job.first_task = tasks
            tasks += job.blocks * job.row_parts
            item += height
        packed += (end_item - first_item) * p.panel_size
    all.count, all.tasks, all.some, all.next = number, tasks, max(1, tasks // (32 * threads)), 0
    for i in range(number):
        if all.job[i].layout != NULL and all.job[i].layout.rolls:
            all.some = max(all.some, rolled_at_once(all.job[i].layout, tasks, threads))


cdef void lay_out_scratch(ProductScratch* s, const instruction_set* isa, int64_t rows, const ProductPlan* plan, workspace* memory) noexcept nogil:
    """The buffers of one thread."""
    cdef int64_t lane_floats = STEPS * isa.vectors * isa.width + isa.width
    s.lanes = <float*>take(memory, 4 * BLOCK * lane_floats + 64)
    s.masks = <float*>take(memory, 4 * BLOCK * lane_floats + 64)
    s.sums = <float*>take(memory, max(SUM_BYTES, 4 * BLOCK * rows * isa.vectors * isa.width) + 64)
    s.fragments = <Fragment*>take(memory, BLOCK * TILE_LANES * sizeof(Fragment))
    s.fragment_count = <int64_t*>take(memory, BLOCK * sizeof(int64_t))
    s.spans = <lane_span*>take(memory, 3 * TILE_LANES * sizeof(lane_span))
    s.pieces = <Piece*>take(memory, STEPS * sizeof(Piece))
    s.runs = <tile_run*>take(memory, max(max(plan.runs, plan.places), STEPS) * sizeof(tile_run))
    s.near_runs = <tile_run*>take(memory, STEPS * sizeof(tile_run))
    s.stretches = <Stretch*>take(memory, max(MOST_ENTRIES // 2 * plan.places, STEPS) * sizeof(Stretch))  # every other entry may be apart
    s.halves = <half_run*>take(memory, plan.places * sizeof(half_run))
    s.block = <float*>take(memory, plan.block_floats * 4 + 64)
    s.next_block = <float*>take(memory, plan.next_block_floats * 4 + 64)
    s.moves = <copy_move*>take(memory, (COPY_MOVES + COPY_CHANNELS) * sizeof(copy_move) if plan.block_floats else 0)
    s.smallest = s.smallest_weight = 0xffff


cdef void lay_out_products(const Problem* q, ProductPlan* plan, workspace* memory) noexcept nogil:
    """All buffers of a call."""
    cdef ProductScratch counted
    cdef int worker
    plan.scratch = <ProductScratch*>take(memory, q.threads * sizeof(ProductScratch))
    for worker in range(q.threads):
        lay_out_scratch(&plan.scratch[worker] if memory.base != NULL else &counted, q.isa, q.products.rows, plan, memory)
    plan.jobs = <Job*>take(memory, plan.jobs_bytes)
    plan.position_classes = <PositionClass*>take(memory, plan.class_count * sizeof(PositionClass))
    plan.sums = <float*>take(memory, 4 * plan.together * plan.kept)
    plan.packed = <float*>take(memory, 4 * plan.chunk * plan.item_floats)


cdef void prepare_products(Problem* q) noexcept nogil:
    """Tiles and panels, of pairs where the problem names some."""
    cdef int64_t i
    cdef Product* p
    for i in range(q.count):
        p = &q.products[i]
        p.columns = p.N * p.Q[0] * p.Q[1] * p.Q[2]
        p.pairs, p.kept = q.pairs, NULL
        p.blocks = sums_in_blocks(p.D, p.R, p.input.format, p.weights.format)
        p.block = 1 if not p.blocks else SUM_BLOCK if q.pairs == NULL else HALF_BLOCK
        p.S = steps_of(q.pairs, p.D)
        p.rows = q.isa.rows if q.pairs == NULL else q.pairs.panel_rows
        take_taps(p, q.isa, 1, 0)
        p.class_count = cut_position_classes(p, q.isa, False, NULL)
        p.panels = ceiling(ceiling(p.columns, q.isa.width), q.isa.vectors)


cdef void plan_layouts(const Problem* q, ProductPlan* plan) noexcept nogil:
    """The blocks of the products that are chosen to be laid out."""
    cdef int64_t i, tap, count = q.count
    cdef Product* products = q.products
    cdef Layout* l
    for i in range(count):
        l = &plan.layouts[i]
        if not l.chosen:
            continue
        plan.laid_out = True
        plan.two_blocks = plan.two_blocks or not l.rolls and copies_meanwhile(&products[i], l, q.isa)
        for tap in range(products[i].tap_count):
            products[i].taps[tap].shift = tap_shift(&products[i], l, &products[i].taps[tap])
        plan.runs = max(plan.runs, laid_out_runs(&products[i]))
        plan.block_floats = max(plan.block_floats, l.plane * products.S + (q.isa.vectors + 1) * q.isa.width)
    if (plan.shared or count == 1 and plan.laid_out) and not products.blocks and can_stack(products, q.isa):
        plan_stack(products, count, q.columns, plan.layouts, q.isa, q.strips, q.places, &plan.stack)
        if plan.stack.chosen:
            plan.places = longest_strip(&plan.stack)
            plan.block_floats += plan.stack.lines * plan.layouts.u[2]
        else:
            plan.stack.floats = 0
    plan.next_block_floats = plan.block_floats if plan.two_blocks else 0


cdef void plan_passes(const Problem* q, ProductPlan* plan) noexcept nogil:
    """How many row panels are packed at a time, and how many taps."""
    cdef Product* products = q.products
    cdef int64_t count = q.count, items = products.G * row_panels(products), item_bytes, i
    cdef ProductScratch counted
    cdef workspace memory = workspace(NULL, 0, 0, 0)
    plan.kept = plan.class_count = 0
    plan.padded = False
    for i in range(count):
        plan.kept += kept_floats(&products[i], q.isa)
        plan.class_count += products[i].class_count
        plan.padded = plan.padded or products[i].padded
    plan.passes, plan.together = 1, items
    plan.item_floats = packed_floats(products, count, q.isa, 1) + plan.stack.floats
    if 4 * items * plan.item_floats > ROW_BYTES * q.threads and not plan.laid_out:
        plan.passes = count_passes(products, count, q.isa, items, plan.kept, q.threads)
        plan.item_floats = packed_floats(products, count, q.isa, plan.passes)
    if plan.passes == 1:
        plan.kept = 0
    else:
        plan.together = min(items, max(1, MOST_KEPT_BYTES // (4 * plan.kept)))
    lay_out_scratch(&counted, q.isa, products.rows, plan, &memory)
    item_bytes = 4 * plan.item_floats + ceiling(count * sizeof(Job), row_panels(products))
    plan.chunk = max(1, min(ROW_BYTES, THREAD_BYTES - memory.used) * q.threads // item_bytes)
    if plan.passes > 1 and 4 * items * plan.item_floats <= ROW_BYTES * q.threads:
        plan.chunk = items
    plan.chunk = ceiling(plan.together, ceiling(plan.together, plan.chunk))
    plan.jobs_bytes = count * (plan.chunk // row_panels(products) + 2) * sizeof(Job)
    for i in range(count):
        take_taps(&products[i], q.isa, 1, 0)


cdef bint fits_gathered(Problem* q) noexcept nogil:
    cdef ProductPlan* plan = &q.gathered
    if q.weights != NULL or q.products.input.format == NUMBER_FLOAT64:
        return False
    memset(plan, 0, sizeof(ProductPlan))
    plan_passes(q, plan)
    return True


cdef double gathered_cycles(const Problem* q) noexcept nogil:
    """Of products, copies of the input to panels, packed weights and those that are far from the cores."""
    cdef double cycles = 0, work, pieces
    cdef int64_t i
    cdef const Product* p
    for i in range(q.count):
        p = &q.products[i]
        pieces = FRAGMENT_CYCLES * max(p.pieces / max(1.0, <double>p.Q[2]), 1.0 / 48)
        if p.step[2] > 1:
            pieces = 2 * pieces + 0.5
        if p.input.format != NUMBER_FLOAT32:
            pieces += 0.25  # decoded for every tap
        work = p.columns * <double>p.tap_count * number_cycles(p, q.isa)
        cycles += p.S * p.G * (work * max(p.R, 3) * p.met + p.columns * <double>p.tap_count * (moved_cycles(p) + pieces)
                               + PACK_CYCLES * <double>p.tap_count * p.R)
        if are_far(row_panels(p) * p.panel_size):
            cycles += p.S * p.G * (p.columns * <double>p.tap_count * p.R / (6.0 * BLOCK * TILE_LANES))
    return cycles


cdef void lay_out_gathered(Problem* q, workspace* memory) noexcept nogil:
    lay_out_products(q, &q.gathered, memory)


cdef bint run_gathered(Problem* q, workspace* memory) noexcept nogil:
    return run_product_plan(q, &q.gathered)


cdef bint fits_laid_out(Problem* q) noexcept nogil:
    cdef ProductPlan* plan = &q.laid_out
    cdef bint some = False, possible = False
    cdef int64_t i
    if q.weights != NULL or q.products.input.format == NUMBER_FLOAT64:
        return False
    memset(plan, 0, sizeof(ProductPlan))
    plan.layouts = q.layouts
    plan.shared = q.count > 1 and plan_shared(q.products, q.count, q.isa, plan.layouts)
    for i in range(q.count):
        if not plan.shared:
            plan_laid_out(&q.products[i], q.isa, UNALIGNED, lines_to_stack(q.products, q.count, q.isa), &plan.layouts[i])
        some = some or plan.layouts[i].chosen
        possible = possible or plan.layouts[i].possible
    if not some:
        if not (possible and q.thorough):
            return False
        for i in range(q.count):
            plan.layouts[i].chosen = plan.layouts[i].possible
    plan_layouts(q, plan)
    plan_passes(q, plan)
    return True


cdef double laid_out_cycles(const Problem* q) noexcept nogil:
    """What gathering costs, less what blocks save."""
    cdef double cycles = gathered_cycles(q), laid_out = 0, gathered = 0
    cdef int64_t i
    cdef const Product* p
    cdef const Layout* l
    for i in range(q.count):
        p, l = &q.products[i], &q.laid_out.layouts[i]
        gathered += p.columns * l.gathered
        laid_out += p.columns * (l.cycles if l.chosen else l.gathered)
    return cycles * laid_out / gathered if gathered > 0 else cycles


cdef void lay_out_laid_out(Problem* q, workspace* memory) noexcept nogil:
    lay_out_products(q, &q.laid_out, memory)


cdef bint run_laid_out_products(Problem* q, workspace* memory) noexcept nogil:
    return run_product_plan(q, &q.laid_out)


cdef inline bint never_subnormal(uint16_t first, uint16_t second) noexcept nogil:
    """Whether no operand, product or sum of products can be subnormal, from the smallest magnitudes of both operands, as
    bfloat16 codes less one: every sum is a multiple of the last places' product, 2**(e1 - 134) * 2**(e2 - 134)."""
    cdef int e1 = (first + 1) >> 7, e2 = (second + 1) >> 7
    return e1 > 0 and e2 > 0 and e1 + e2 >= 2 * 134 - 126


cdef bint run_product_plan(Problem* q, ProductPlan* plan) noexcept nogil:
    """Returns false where pairs do not do: something is infinite or NaN and must stay out of the padding, or so small
    that a sum might become subnormal, which the pair instruction flushes."""
    cdef Product* products = q.products
    cdef int64_t i, number, first_item = 0, end_item, items = products.G * row_panels(products)
    cdef PositionClass* position_classes = plan.position_classes
    cdef uint16_t smallest_weight = 0x7fff, smallest = 0x7fff
    cdef bint masked = False
    cdef int worker
    for i in range(q.count):
        take_taps(&products[i], q.isa, 1, 0)
        products[i].position_classes = position_classes
        position_classes += cut_position_classes(&products[i], q.isa, False, position_classes)
    while first_item < items and (q.pairs == NULL or not masked):
        end_item = min(items, first_item + plan.together)
        keep_sums(products, q.count, q.isa, plan.passes, first_item, plan.together, plan.sums)
        for number in range(plan.passes):
            for i in range(q.count):
                take_taps(&products[i], q.isa, plan.passes, number)
            if not run_product_pass(q, plan, first_item, end_item, &masked):
                break
        first_item = end_item
    for worker in range(q.threads):
        smallest = min(smallest, plan.scratch[worker].smallest)
        smallest_weight = min(smallest_weight, plan.scratch[worker].smallest_weight)
    return q.pairs == NULL or not masked and never_subnormal(smallest, smallest_weight)


cdef bint run_product_pass(const Problem* q, const ProductPlan* plan, int64_t first_item, int64_t items, bint* masked) noexcept nogil:
    """Pack some row panels, run all columns against them, and go on with the next, before `items`; false where pairs meet something
    infinite."""
    cdef const Product* products = q.products
    cdef const instruction_set* isa = q.isa
    cdef int64_t end_item, tasks, task, width, i, count = q.count
    cdef int worker, threads = q.threads
    cdef ProductScratch* scratch = plan.scratch
    cdef float* packed = plan.packed
    cdef float* stacked
    cdef Jobs all
    while first_item < items:
        end_item = min(items, first_item + plan.chunk)
        tasks = (end_item - first_item) * count
        if threads == 1:
            for task in range(tasks):
                pack_item(products, count, isa, first_item, end_item, task, packed, masked, &scratch.smallest_weight)
        else:
            for task in prange(tasks, schedule="static", num_threads=threads):
                pack_item(products, count, isa, first_item, end_item, task, packed, masked,
                          &scratch[thread_number()].smallest_weight)
        if products.pairs != NULL and masked[0]:
            return False
        stacked = NULL
        if plan.stack.chosen and not (masked[0] and plan.padded):
            width = end_item - first_item
            stacked = packed
            for i in range(count):
                stacked += width * products[i].panel_size
            for i in range(width):
                pack_stacked(products, &plan.stack, isa, packed, width, i, stacked)
        all.job, all.threads, all.scratch = plan.jobs, threads, scratch
        plan_jobs(products, plan.layouts, plan.shared and not (masked[0] and plan.padded), masked[0], count, isa, first_item, end_item,
                  packed, &plan.stack, stacked, threads, &all)
        for worker in range(threads):
            scratch[worker].filled = scratch[worker].taken = scratch[worker].ran = NO_TASK
        if threads == 1:
            run_tasks(&all, isa, masked[0], 0)
        else:
            for worker in prange(threads, schedule="static", chunksize=1, num_threads=threads):
                run_tasks(&all, isa, masked[0], worker)
        first_item = end_item
    return True


cdef void run_tasks(Jobs* all, const instruction_set* isa, bint masked, int worker) noexcept nogil:
    """One thread's part of the tasks."""
    cdef const pair_functions* pairs = all.job.product.pairs
    begin_tiles(pairs)
    take_tasks(all, isa, masked, worker)
    end_tiles(pairs)


cdef void take_tasks(Jobs* all, const instruction_set* isa, bint masked, int worker) noexcept nogil:
    """A few neighbours at a time, then those that others only took."""
    cdef ProductScratch* scratch = &all.scratch[worker]
    cdef int64_t task = claim(&all.next, all.some), end = task + all.some, following
    cdef int other
    while task < all.tasks:
        following = task + 1
        if following == end:
            following = claim(&all.next, all.some)
            end = following + all.some
        if following >= all.tasks:
            following = NO_TASK
        offer(&scratch.taken, following)
        run_product_task(all, isa, task, following, masked, scratch)
        task = withdraw(&scratch.taken)
        if task == NO_TASK:  # there was none, or another thread took it: then none are left but neighbours of that one
            task = all.tasks if following == NO_TASK or following + 1 == end else following + 1
    for other in range(all.threads):
        task = withdraw(&all.scratch[other].taken)
        if task != NO_TASK:
            run_product_task(all, isa, task, NO_TASK, masked, scratch)


cdef void pack_item(const Product* products, int64_t count, const instruction_set* isa, int64_t first_item, int64_t end_item,
                    int64_t task, float* packed, bint* unbounded, uint16_t* smallest) noexcept nogil:
    cdef int64_t i, width = end_item - first_item, panels = row_panels(products), item = first_item + task % width
    for i in range(task // width):
        packed += width * products[i].panel_size
    i = task // width
    if pack_rows(&products[i], isa, item // panels, item % panels, packed + (item - first_item) * products[i].panel_size,
                 smallest):
        unbounded[0] = True
