"""A weights gradient as a product, cut into tasks for threads.

A task sums a part of the result over one block of pieces. Where blocks of several tasks wait, a second set of tasks joins and
stores them. Where the sums of all tasks would take too much memory, groups or parts of rows take turns.

uses: engine/weights/gradient.pxi (Weights), engine/weights/plan.pxi (WeightsPart, WeightsPlan, WeightsScratch),
    engine/weights/share_work.pxi (strand_floats), engine/weights/sums.pxi (run_part, store_strand, sums_from)
gives: WeightsPass, run_pass
"""

cdef struct WeightsPass:  # some groups, or some row parts of one group, whose sums fit the workspace
    int64_t first_group
    int64_t groups
    int64_t first_row_part
    int64_t row_parts
    float* sums          # [group][block][panel part][strand of these row parts]


cdef inline WeightsPart part_of(const WeightsPlan* plan, int64_t g, int64_t row_part, int64_t panel_part) noexcept nogil:
    return WeightsPart(
        g, share(plan.strands, plan.row_parts, row_part), share(plan.strands, plan.row_parts, row_part + 1),
        share(plan.panels, plan.panel_parts, panel_part), share(plan.panels, plan.panel_parts, panel_part + 1))


cdef inline float* waiting_sums(const WeightsPlan* plan, const WeightsPass* some, int64_t block, int64_t panel_part, int64_t strand) noexcept nogil:
    """Where the sums of a strand and of the panels of a part wait; blocks of all groups follow one another."""
    return (some.sums + (block * plan.panel_parts + panel_part) * some.row_parts * plan.sums.task_floats
            + (strand - share(plan.strands, plan.row_parts, some.first_row_part)) * strand_floats(plan, &plan.sums))


cdef void run_pass_task(const Weights* w, const WeightsPlan* plan, const WeightsPass* some, const instruction_set* isa,
                        int64_t task, WeightsScratch* s) noexcept nogil:
    """A block of pieces, with all rows or a part of them."""
    cdef int64_t panel_part = task % plan.panel_parts, number = task // plan.panel_parts, block = number, row_part = some.first_row_part
    cdef WeightsPart part
    if number >= plan.sums.whole:
        number -= plan.sums.whole
        block, row_part = plan.sums.whole + number // some.row_parts, row_part + number % some.row_parts
    part = part_of(plan, some.first_group + block // plan.sums.blocks, row_part, panel_part)
    if block < plan.sums.whole:
        part.end_strand = plan.strands
    run_part(w, plan, isa, &part, block % plan.sums.blocks, waiting_sums(plan, some, block, panel_part, part.first_strand), s)


cdef void store_pass_task(const Weights* w, const WeightsPlan* plan, const WeightsPass* some, const instruction_set* isa,
                          int64_t task) noexcept nogil:
    """A strand of a part, where it has so many."""
    cdef int64_t strands = ceiling(plan.strands, plan.row_parts), parts = some.row_parts * plan.panel_parts, panel
    cdef int64_t group = task // strands // parts, rest = task // strands % parts, strand
    cdef float* sums
    cdef WeightsPart part = part_of(plan, some.first_group + group, some.first_row_part + rest // plan.panel_parts,
                                    rest % plan.panel_parts)
    strand = part.first_strand + task % strands
    if strand < part.end_strand:
        sums = waiting_sums(plan, some, group * plan.sums.blocks, rest % plan.panel_parts, strand)
        for panel in range(part.first_panel, part.end_panel):
            store_strand(w, plan, isa, part.g, strand, panel, sums_from(plan, sums, strand, part.first_panel),
                         parts * plan.sums.task_floats)


cdef void run_pass_tasks(const Weights* w, const WeightsPlan* plan, const WeightsPass* some, const instruction_set* isa, int64_t first, int64_t end,
                         int64_t together, int threads, WeightsScratch* scratch) noexcept nogil:
    cdef int64_t task
    for task in prange(first, end, schedule="dynamic", chunksize=together, num_threads=threads):
        run_pass_task(w, plan, some, isa, task, &scratch[thread_number()])


cdef void run_pass(const Weights* w, const WeightsPlan* plan, const WeightsPass* some, const instruction_set* isa, int threads,
                   WeightsScratch* scratch) noexcept nogil:
    cdef int64_t parts = some.groups * some.row_parts * plan.panel_parts, task, longer = plan.sums.whole * plan.panel_parts
    cdef int64_t tasks = longer + parts * (plan.sums.blocks - plan.sums.whole)
    cdef int64_t stores = 0 if plan.sums.at_once else parts * ceiling(plan.strands, plan.row_parts)
    if threads == 1:
        for task in range(tasks):
            run_pass_task(w, plan, some, isa, task, scratch)
        for task in range(stores):
            store_pass_task(w, plan, some, isa, task)
    else:
        if plan.kept and plan.panel_parts > 1:  # the panels of a block follow one another in a thread: it finds the numbers in its rings
            if longer > 0:
                run_pass_tasks(w, plan, some, isa, 0, longer, ceiling(longer, threads), threads, scratch)
            run_pass_tasks(w, plan, some, isa, longer, tasks, max(1, ceiling(tasks - longer, threads)), threads, scratch)
        else:
            run_pass_tasks(w, plan, some, isa, 0, tasks, 1, threads, scratch)
        for task in prange(stores, schedule="dynamic", num_threads=threads):
            store_pass_task(w, plan, some, isa, task)
