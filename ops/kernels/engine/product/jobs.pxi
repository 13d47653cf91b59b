"""Products from gathered panels or from blocks that are laid out, cut into jobs and tasks for threads.

uses: engine/algorithms.pxi (Problem), engine/product/gathered.pxi (run_block), engine/product/laid_out_ahead.pxi
    (run_laid_out_task), engine/product/laid_out_plan.pxi (Layout), engine/product/pack.pxi (pack_rows),
    engine/product/pairs.pxi (begin_tiles, end_tiles, never_subnormal), engine/product/passes.pxi (keep_sums,
    take_taps), engine/product/plan.pxi (ProductPlan), engine/product/position_classes.pxi (cut_position_classes),
    engine/product/product.pxi, engine/product/stacked.pxi (Stack, pack_stacked)
gives: Job, Jobs, job_of, run_product_plan
"""

cdef enum:
    ROLLED_PARTS = 16  # of all tasks for a thread, about
    PACKED_PARTS = 4   # of the row panels of a product, for a thread


cdef struct Job:  # row panels [first_row_panel, end_row_panel) of one group of one product
    const Product* product
    int64_t g
    int64_t first_row_panel
    int64_t end_row_panel
    const float* packed
    int64_t row_parts
    int64_t blocks        # of column panels, or of a layout
    const Layout* layout  # or NULL: gathered
    int64_t together      # products that share the block
    int64_t items         # packed row panels of each product
    int64_t item          # ... the job's first among them
    const Stack* stack
    const float* stacked  # weights of tiles that the products share, or NULL
    int64_t first_task


cdef struct Jobs:  # one after the other, for all threads
    Job* job
    int64_t count
    int64_t tasks
    int64_t some     # tasks that a thread takes at a time
    int64_t next     # that no thread has taken
    bint ahead       # a thread takes the next tasks before it runs its last: some are left for the other threads
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


cdef void plan_jobs(const Problem* q, const ProductPlan* plan, bint masked, int64_t first_item, int64_t end_item,
                    const float* stacked, Jobs* all) noexcept nogil:
    """Cut items [first_item, end_item), row panels of all groups, into jobs. `stacked` are the weights of stacked tiles, or NULL."""
    cdef const Product* products = q.products
    cdef const Layout* layouts = plan.layouts
    cdef const float* packed = plan.packed
    cdef int threads = q.threads
    cdef bint shared = plan.shared and not (masked and plan.padded)
    cdef int64_t tasks = 0, number = 0, i, item, tile_bytes = 4 * products.rows * q.isa.vectors * q.isa.width, height, block, panels
    cdef int64_t wanted = 4 * threads, segments = 0, count = q.count
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
            job.stack, job.stacked = &plan.stack, NULL
            if layouts != NULL and layouts[i].chosen and (shared or not (masked and p.padded)):
                job.layout = &layouts[i]
                if stacked != NULL:
                    job.stacked = stacked + (item - first_item) * plan.stack.floats
                job.together, job.items, job.item = q.count if shared else 1, end_item - first_item, item - first_item
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
    all.ahead = tasks > all.some * threads


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
        position_classes += cut_position_classes(&products[i], q.isa, position_classes)
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
                pack_item(products, isa, first_item, end_item, task, packed, masked, &scratch.smallest_weight)
        else:
            # Products have different numbers of taps, maybe none: each thread gets a part of every one.
            for task in prange(tasks, schedule="static", chunksize=ceiling(end_item - first_item, PACKED_PARTS * threads),
                               num_threads=threads):
                pack_item(products, isa, first_item, end_item, task, packed, masked,
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
        all.job, all.scratch = plan.jobs, scratch
        plan_jobs(q, plan, masked[0], first_item, end_item, stacked, &all)
        for worker in range(threads):
            scratch[worker].filled = scratch[worker].ran = NO_TASK
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


cdef inline int64_t take_some(Jobs* all, int64_t* end) noexcept nogil:
    """The first of a few neighbours that no other thread takes, and their end."""
    cdef int64_t first = claim(&all.next, all.some)
    end[0] = first + all.some
    return first


cdef void take_tasks(Jobs* all, const instruction_set* isa, bint masked, int worker) noexcept nogil:
    cdef int64_t end = 0, following
    cdef int64_t task = take_some(all, &end)
    while task < all.tasks:
        following = task + 1
        if following == end and all.ahead:
            following = take_some(all, &end)
        run_product_task(all, isa, task, following if following < min(end, all.tasks) else NO_TASK, masked, &all.scratch[worker])
        if following == end:
            following = take_some(all, &end)
        task = following


cdef void pack_item(const Product* products, const instruction_set* isa, int64_t first_item, int64_t end_item, int64_t task,
                    float* packed, bint* unbounded, uint16_t* smallest) noexcept nogil:
    cdef int64_t i, width = end_item - first_item, panels = row_panels(products), item = first_item + task % width
    for i in range(task // width):
        packed += width * products[i].panel_size
    i = task // width
    if pack_rows(&products[i], isa, item // panels, item % panels, packed + (item - first_item) * products[i].panel_size,
                 smallest):
        unbounded[0] = True
