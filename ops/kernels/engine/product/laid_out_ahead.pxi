"""Blocks that are laid out while the block before them is computed.

A block is copied once and used by few tiles where taps or rows are few: then most of a call waits for memory.  Tiles have room
for that: with every step of a sum they can move one vector of what the thread computes next.

uses: engine/costs.pxi (COPY_HASTE), engine/product/jobs.pxi (Job, Jobs, job_of), engine/product/laid_out.pxi
    (block_at, run_laid_out), engine/product/laid_out_fill.pxi (Lines, clear_gaps, copied_ahead, fill_block),
    engine/product/laid_out_plan.pxi (COPY_CHANNELS, Layout, copies_meanwhile, plane_place),
    engine/product/product.pxi (Product, ProductScratch)
gives: run_laid_out_task
"""

cdef void add_moves(const Product* p, const Layout* l, const instruction_set* isa, const Lines* lines, int64_t place,
                    copy_move* moves, int64_t* number) noexcept nogil:
    """One channel's lines of a plane. What overruns a line is overwritten by the next."""
    cdef int64_t low, high, line, i, source, left, right, pitch = l.u[2], all_lines = l.u[1], size = element_size(p.input.format)
    meet_inside(lines.x[2], 1, p.I[2], pitch, &low, &high)
    if high - low == pitch and p.step[1] * p.input.x[1] == pitch and lines.first == 0 and lines.end == all_lines:
        pitch = high = pitch * all_lines  # one after the other: all are one line
        all_lines = 1
    check_room(b"add_moves", moves + number[0], all_lines * ceiling(pitch, isa.width) * sizeof(copy_move))
    for line in range(all_lines):
        source = lines.x[0] * p.input.x[0] + (lines.x[1] + line * p.step[1]) * p.input.x[1] + lines.x[2]
        i = 0
        while i < pitch:
            left, right = max(0, min(isa.width, low - i)), max(0, min(isa.width, high - i))
            if line < lines.first or line >= lines.end:
                right = left
            moves[number[0]].source = (source + i) * size
            moves[number[0]].place = place + i
            moves[number[0]].mask = <uint16_t>((1 << right) - (1 << left)) if right > left else 0
            number[0] += 1
            i += isa.width
        place += pitch


cdef void begin_copy(const Product* p, const Layout* l, const instruction_set* isa, int64_t g, int64_t n, const int64_t* first,
                     float* block, copy_move* moves, copying* c) noexcept nogil:
    """Prepare the copies that lay out the input of output positions from `first` on, the new plane of it where blocks roll."""
    cdef int64_t phase0, phase1, u0, place, number = 0, i, channels, d, size = element_size(p.input.format)
    cdef Lines lines
    lines.x[2] = first[2] + l.low[2]
    for phase0 in range(l.phases[0]):
        for phase1 in range(l.phases[1]):
            lines.x[1] = first[1] * p.step[1] + l.low[1] + phase1
            for u0 in range(l.u[0] - 1 if l.rolls else 0, l.u[0]):
                meet_inside(lines.x[1], p.step[1], p.I[1], l.u[1], &lines.first, &lines.end)
                lines.x[0] = (first[0] + u0) * p.step[0] + l.low[0] + phase0
                if not 0 <= lines.x[0] < p.I[0]:
                    lines.end = lines.first
                place = (phase0 * l.phases[1] + phase1) * l.cell + plane_place(l, first, u0)
                add_moves(p, l, isa, &lines, place, moves, &number)
    channels = min(p.S, max(1, COPY_CHANNELS // number))
    check_room(b"begin_copy", moves, channels * number * sizeof(copy_move))
    check_room(b"begin_copy", block, 4 * p.S * l.plane)
    clear_gaps(p, l, block)
    for d in range(1, channels):
        for i in range(number):
            moves[d * number + i].source = moves[i].source + d * p.input.c * size
            moves[d * number + i].place = <int32_t>(moves[i].place + d * l.plane)
            moves[d * number + i].mask = moves[i].mask
    c.moves, c.move_count, c.done, c.left = moves, channels * number, 0, p.S * number
    c.source = <const char*>p.input.data + (n * p.input.n + g * p.input.g) * size
    c.place, c.source_step, c.place_step = block, channels * p.input.c * size, channels * l.plane
    c.ahead, c.format = copied_ahead(p, l) * size, p.input.format


cdef int64_t laid_out_steps(const Job* job, const instruction_set* isa, int64_t height) noexcept nogil:
    """Steps of all tiles of a block, of `height` row panels, about."""
    cdef int64_t steps = 0, i, lanes
    cdef const Layout* l = job.layout
    lanes = (l.block[1] - 1) * l.u[2] + l.block[2]
    if job.stacked == NULL:
        for i in range(job.together):
            steps += job.product[i].tap_count * height
    else:
        for i in range(job.stack.strip_count):
            steps += job.stack.strips[i].place_count
        if job.stack.lines > 1:
            lanes = l.block[2]
            steps *= ceiling(l.block[1], job.stack.lines)
    return max(1, steps) * job.product.S * l.block[0] * ceiling(ceiling(lanes, isa.width), isa.vectors)


cdef inline bint rolls_on(const Job* job, int64_t task) noexcept nogil:
    """Whether the block of a task is that of the task before it, but for a plane."""
    return job.layout.rolls and job.row_parts == 1 and (task - job.first_task) % job.layout.blocks[0] > 0


cdef void run_laid_out_task(const Jobs* all, const Job* job, const instruction_set* isa, int64_t task, int64_t following,
                            int64_t first, int64_t end, ProductScratch* s) noexcept nogil:
    """Row panels [first, end) of a job's task, and where tiles can lay it out the block of the task that follows."""
    cdef int64_t origin[3]
    cdef int64_t number = (task - job.first_task) // job.row_parts, n
    cdef const Job* next
    cdef bint elsewhere = False
    if s.filled != task:
        n = block_at(job.layout, number, origin)
        fill_block(job.product, job.layout, isa, job.g, n, origin,
                   job.layout.u[0] - 1 if s.ran == task - 1 and rolls_on(job, task) else 0, s.block, &s.smallest)
    s.filled, s.meanwhile.left = NO_TASK, 0
    if following != NO_TASK and (job.product.R > 1 or job.stacked != NULL):
        next = job_of(all, following)
        if (next.layout != NULL and copies_meanwhile(next.product, next.layout, isa)
                and (not next.layout.rolls or following == task + 1 and rolls_on(next, following))):
            n = block_at(next.layout, (following - next.first_task) // next.row_parts, origin)
            elsewhere = not next.layout.rolls
            begin_copy(next.product, next.layout, isa, next.g, n, origin, s.next_block if elsewhere else s.block, s.moves, &s.meanwhile)
            s.meanwhile.rate = COPY_HASTE * s.meanwhile.left / laid_out_steps(job, isa, end - first)
            s.meanwhile.credit = 0
            s.filled = following
    run_laid_out(job, isa, number, first, end, s)
    s.ran = task
    if s.filled != NO_TASK:
        isa.copy(&s.meanwhile)
        if elsewhere:
            s.block, s.next_block = s.next_block, s.block
