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
            if layouts[i].chosen and (shared or not (masked and p.padded)):
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


cdef int64_t lay_out_product(ProductScratch* s, const instruction_set* isa, int64_t rows, int64_t runs, int64_t places,
                             int64_t block_floats, int64_t next_block_floats, char* space) noexcept nogil:
    """Divide one thread's workspace, for so many runs of a planar block and places of a stacked tile; returns its size."""
    cdef char* start = space
    cdef int64_t lane_floats = STEPS * isa.vectors * isa.width + isa.width
    s.lanes = <float*>take(&space, 4 * BLOCK * lane_floats + 64)
    s.masks = <float*>take(&space, 4 * BLOCK * lane_floats + 64)
    s.sums = <float*>take(&space, max(SUM_BYTES, 4 * BLOCK * rows * isa.vectors * isa.width) + 64)
    s.fragments = <Fragment*>take(&space, BLOCK * TILE_LANES * sizeof(Fragment))
    s.fragment_count = <int64_t*>take(&space, BLOCK * sizeof(int64_t))
    s.spans = <lane_span*>take(&space, 3 * TILE_LANES * sizeof(lane_span))
    s.pieces = <Piece*>take(&space, STEPS * sizeof(Piece))
    s.runs = <tile_run*>take(&space, max(max(runs, places), STEPS) * sizeof(tile_run))
    s.near_runs = <tile_run*>take(&space, STEPS * sizeof(tile_run))
    s.stretches = <Stretch*>take(&space, max(MOST_ENTRIES // 2 * places, STEPS) * sizeof(Stretch))  # every other entry may be apart
    s.halves = <half_run*>take(&space, places * sizeof(half_run))
    s.block = <float*>take(&space, block_floats * 4 + 64)
    s.next_block = <float*>take(&space, next_block_floats * 4 + 64)
    s.moves = <copy_move*>take(&space, (COPY_MOVES + COPY_CHANNELS) * sizeof(copy_move) if block_floats else 0)
    return space - start


cdef int run_products(Product* products, int64_t count, int64_t columns, int threads, int64_t* report) except -1 nogil:
    """Compute products that share groups, rows and channels; in bfloat16 pairs where that gives the same bits. `columns`
    of them, one after the other, take turns along the innermost axis. With `report`, only write there how many bytes of
    workspace that takes. Returns true where the results are not those of the definition: `run_doubles`."""
    cdef const instruction_set* isa = current
    cdef const pair_functions* pairs = isa.pairs
    if products.input.format == NUMBER_FLOAT64:
        return run_doubles(products, count, threads, report)
    if fits_depthwise_nxc(products, count, isa):
        return run_depthwise_nxc(products, count, isa, threads, report)
    if try_depthwise_ncx(products, count, columns, isa, threads, report):
        return 0
    if sums_in_blocks(products.D, products.R, products.input.format, products.weights.format) and isa.matrix != NULL:
        pairs = isa.matrix
    if pairs != NULL and products.D > 1 and within_bfloat16(products.input.format) and within_bfloat16(products.weights.format):
        if try_products(products, count, columns, isa, pairs, threads, report):
            return 0
    try_products(products, count, columns, isa, NULL, threads, report)
    return 0


cdef inline bint never_subnormal(uint16_t first, uint16_t second) noexcept nogil:
    """Whether no operand, product or sum of products can be subnormal, from the smallest magnitudes of both operands, as
    bfloat16 codes less one: every sum is a multiple of the last places' product, 2**(e1 - 134) * 2**(e2 - 134)."""
    cdef int e1 = (first + 1) >> 7, e2 = (second + 1) >> 7
    return e1 > 0 and e2 > 0 and e1 + e2 >= 2 * 134 - 126


cdef int try_products(Product* products, int64_t count, int64_t columns, const instruction_set* isa, const pair_functions* pairs,
                      int threads, int64_t* report) except -1 nogil:
    """Returns false where pairs do not do: something is infinite or NaN and must stay out of the padding, or so small
    that a sum might become subnormal, which the pair instruction flushes."""
    cdef int64_t i, items, item_floats, item_bytes, chunk, size, jobs_size, tap, runs = 0, places = 0, passes = 1, number, kept = 0
    cdef int64_t first_item = 0, end_item, together
    cdef int64_t bytes_needed, block_floats = 0, next_block_floats, class_count = 0
    cdef double work = 0
    cdef Layout* layouts = <Layout*>malloc(count * sizeof(Layout))
    cdef int worker
    cdef bint masked = False, shared, padded = False, laid_out = False, two_blocks = False
    cdef uint16_t smallest_weight = 0x7fff, smallest = 0x7fff
    cdef Product* p
    cdef Stack stack
    cdef Strip* strips = NULL
    cdef ProductScratch layout
    cdef ProductScratch* scratch
    cdef Job* jobs
    cdef PositionClass* position_classes
    cdef float* sums
    cdef char* space
    cdef char* aligned
    if layouts == NULL:
        with gil:
            raise MemoryError
    for i in range(count):
        p = &products[i]
        p.columns = p.N * p.Q[0] * p.Q[1] * p.Q[2]
        p.pairs, p.kept = pairs, NULL
        p.blocks = sums_in_blocks(p.D, p.R, p.input.format, p.weights.format)
        p.block = 1 if not p.blocks else SUM_BLOCK if pairs == NULL else HALF_BLOCK
        p.S = steps_of(pairs, p.D)
        p.rows = isa.rows if pairs == NULL else pairs.panel_rows
        take_taps(p, isa, 1, 0)
        work += <double>p.columns * p.G * p.R * p.D * p.tap_count
        p.class_count = cut_position_classes(p, isa, False, NULL)
        p.panels = ceiling(ceiling(p.columns, isa.width), isa.vectors)
        class_count += p.class_count
        kept += kept_floats(p, isa)
    shared = count > 1 and plan_shared(products, count, isa, layouts)
    for i in range(count):
        if not shared:
            plan_laid_out(&products[i], isa, UNALIGNED, lines_to_stack(products, count, isa), &layouts[i])
        if layouts[i].chosen:
            laid_out = True
            two_blocks = two_blocks or not layouts[i].rolls and copies_meanwhile(&products[i], &layouts[i], isa)
            for tap in range(products[i].tap_count):
                products[i].taps[tap].shift = tap_shift(&products[i], &layouts[i], &products[i].taps[tap])
            runs = max(runs, laid_out_runs(&products[i]))
            block_floats = max(block_floats, layouts[i].plane * products.S + (isa.vectors + 1) * isa.width)
        padded = padded or products[i].padded
    stack.chosen, stack.floats = False, 0
    if (shared or count == 1 and laid_out) and not products.blocks and can_stack(products, isa):
        strips = <Strip*>malloc(count * sizeof(Strip) + most_places(products, count, isa) * sizeof(Place))
        if strips == NULL:
            free(layouts)
            with gil:
                raise MemoryError
        plan_stack(products, count, columns, layouts, isa, strips, <Place*>(strips + count), &stack)
        if stack.chosen:
            places = longest_strip(&stack)
            block_floats += stack.lines * layouts.u[2]
        else:
            stack.floats = 0
    threads = team_for(work, threads)
    if pairs == NULL and not laid_out and rows_are_positions_pay(products, count, isa, threads):
        free(layouts)
        return run_rows_are_positions(products, count, isa, threads, report)
    if count == 1 and pairs == NULL and not laid_out and few_columns_pay(products, isa, threads):
        free(layouts)
        return run_few_columns(products, isa, threads, report)
    items = products.G * row_panels(products)
    item_floats = packed_floats(products, count, isa, 1) + stack.floats
    if 4 * items * item_floats > ROW_BYTES * threads and not laid_out:
        passes = count_passes(products, count, isa, items, kept, threads)
        item_floats = packed_floats(products, count, isa, passes)
    together = items  # through all passes
    if passes == 1:
        kept = 0
    else:
        together = min(items, max(1, MOST_KEPT_BYTES // (4 * kept)))
    next_block_floats = block_floats if two_blocks else 0
    size = lay_out_product(&layout, isa, products.rows, runs, places, block_floats, next_block_floats, NULL)
    item_bytes = 4 * item_floats + ceiling(count * sizeof(Job), row_panels(products))
    chunk = max(1, min(ROW_BYTES, THREAD_BYTES - size) * threads // item_bytes)
    if passes > 1 and 4 * items * item_floats <= ROW_BYTES * threads:
        chunk = items
    chunk = ceiling(together, ceiling(together, chunk))
    jobs_size = count * (chunk // row_panels(products) + 2) * sizeof(Job)
    bytes_needed = (4 * (chunk * item_floats + together * kept) + threads * size + threads * sizeof(ProductScratch) + jobs_size
                    + class_count * sizeof(PositionClass) + 384)
    if report != NULL:
        report[0] = max(report[0], bytes_needed)
        free(strips)
        free(layouts)
        return pairs == NULL
    space = take_workspace(bytes_needed)
    if space == NULL:
        free(strips)
        free(layouts)
        with gil:
            raise MemoryError
    aligned = space
    scratch = <ProductScratch*>take(&aligned, threads * sizeof(ProductScratch))
    for worker in range(threads):
        aligned += lay_out_product(&scratch[worker], isa, products.rows, runs, places, block_floats, next_block_floats, aligned)
        scratch[worker].smallest = scratch[worker].smallest_weight = 0xffff
    jobs = <Job*>take(&aligned, jobs_size)
    position_classes = <PositionClass*>take(&aligned, class_count * sizeof(PositionClass))
    sums = <float*>take(&aligned, 4 * together * kept)
    for i in range(count):
        p = &products[i]
        take_taps(p, isa, 1, 0)
        p.position_classes = position_classes
        position_classes += cut_position_classes(p, isa, False, position_classes)
    while first_item < items and (pairs == NULL or not masked):
        end_item = min(items, first_item + together)
        keep_sums(products, count, isa, passes, first_item, together, sums)
        for number in range(passes):
            for i in range(count):
                take_taps(&products[i], isa, passes, number)
            if not run_product_pass(products, count, isa, layouts, shared, padded, &stack, first_item, end_item, chunk, threads,
                                    <float*>aligned, jobs, scratch, &masked):
                break
        first_item = end_item
    for worker in range(threads):
        smallest = min(smallest, scratch[worker].smallest)
        smallest_weight = min(smallest_weight, scratch[worker].smallest_weight)
    return_workspace(space)
    free(strips)
    free(layouts)
    return pairs == NULL or not masked and never_subnormal(smallest, smallest_weight)


cdef bint run_product_pass(const Product* products, int64_t count, const instruction_set* isa, const Layout* layouts,
                           bint shared, bint padded, const Stack* stack, int64_t first_item, int64_t items, int64_t chunk, int threads,
                           float* packed, Job* jobs, ProductScratch* scratch, bint* masked) noexcept nogil:
    """Pack some row panels, run all columns against them, and go on with the next, before `items`; false where pairs meet something
    infinite."""
    cdef int64_t end_item, tasks, task, width, i
    cdef int worker
    cdef Jobs all
    cdef float* stacked
    while first_item < items:
        end_item = min(items, first_item + chunk)
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
        if stack.chosen and not (masked[0] and padded):
            width = end_item - first_item
            stacked = packed
            for i in range(count):
                stacked += width * products[i].panel_size
            for i in range(width):
                pack_stacked(products, stack, isa, packed, width, i, stacked)
        all.job, all.threads, all.scratch = jobs, threads, scratch
        plan_jobs(products, layouts, shared and not (masked[0] and padded), masked[0], count, isa, first_item, end_item, packed,
                  stack, stacked, threads, &all)
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
