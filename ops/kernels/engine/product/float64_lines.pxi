"""Algorithm `float64_lines`: products in float64 of groups with few channels, along lines where they lie.

A task is some lines of output positions of one image and one group.  Each tap adds its products to the sums of a part of a line,
from those positions on that meet the input: nothing is gathered, and nothing infinite meets a position outside.

uses: engine/algorithms.pxi (Problem), engine/product/float64.pxi (store_doubles), engine/product/product.pxi
    (Fragment, LINE_BYTES, Product), engine/product/store.pxi (output_spans)
gives: DoubleLines, fits_double_lines, lay_out_double_lines, run_double_lines
"""

cdef enum:
    LINE_PRODUCTS = 8    # rows times channels of a group, at most: of more, tiles share what they load
    LINE_DOUBLES = 1024  # positions whose sums are computed together, at most
    LINE_TASKS = 4       # for each thread, at least


cdef struct DoubleLines:
    int64_t parts   # of the lines of an image and a group, each a task
    int64_t room    # sums of a thread
    double* sums


cdef void run_double_line(const Product* p, const instruction_set* isa, int64_t g, int64_t r, const Fragment* line,
                          double* sums) noexcept nogil:
    """Row r of a group at some positions of a line. Spans of the input, as `input_spans` cuts them, would take a third longer."""
    cdef int64_t tap, d, x0, x1, x2, low, high
    cdef const double* weights
    cdef const double* numbers
    cdef lane_span span
    memset(sums, 0, line.count * sizeof(double))
    for tap in range(p.tap_count):
        x0, x1 = line.q[0] * p.step[0] + p.taps[tap].offset[0], line.q[1] * p.step[1] + p.taps[tap].offset[1]
        x2 = line.q[2] * p.step[2] + p.taps[tap].offset[2]
        if not (0 <= x0 < p.I[0] and 0 <= x1 < p.I[1]):
            continue
        meet_inside(x2, p.step[2], p.I[2], line.count, &low, &high)
        if low == high:
            continue
        weights = <const double*>p.weights.data + p.tap_offsets[tap] + g * p.weights.g + r * p.weights.n
        numbers = (<const double*>p.input.data + line.n * p.input.n + g * p.input.g + x0 * p.input.x[0] + x1 * p.input.x[1]
                   + (x2 + low * p.step[2]) * p.input.x[2])
        for d in range(p.D):
            isa.line64(sums + low, numbers + d * p.input.c, p.step[2] * p.input.x[2], weights[d * p.weights.c], high - low)
    store_doubles(p, g, r, 1, sums, 0, &span, output_spans(p, g, line, 1, &span))


cdef void run_double_lines_task(const Product* p, const instruction_set* isa, const DoubleLines* plan, int64_t task,
                                double* sums) noexcept nogil:
    """Task `task` of one product."""
    cdef int64_t part = task % plan.parts, g = task // plan.parts % p.G, lines = p.Q[0] * p.Q[1], number, r
    cdef Fragment line
    line.lane, line.n = 0, task // plan.parts // p.G
    check_room(b"run_double_lines_task", sums, plan.room * sizeof(double))
    for number in range(share(lines, plan.parts, part), share(lines, plan.parts, part + 1)):
        line.q[0], line.q[1], line.q[2] = number // p.Q[1], number % p.Q[1], 0
        while line.q[2] < p.Q[2]:
            line.count = min(<int64_t>LINE_DOUBLES, p.Q[2] - line.q[2])
            for r in range(p.R):
                run_double_line(p, isa, g, r, &line, sums)
            line.q[2] += LINE_DOUBLES


cdef bint fits_double_lines(Problem* q) noexcept nogil:
    cdef Product* products = q.products
    cdef DoubleLines* plan = &q.double_lines
    cdef int64_t i, most = 0, tasks
    if q.weights != NULL or products.input.format != NUMBER_FLOAT64 or products.R * <double>products.D > LINE_PRODUCTS:
        return False
    plan.room = 0
    for i in range(q.count):
        plan.room = max(plan.room, min(<int64_t>LINE_DOUBLES, products[i].Q[2]))
        most = max(most, products[i].Q[0] * products[i].Q[1])
    plan.room = ceiling(plan.room, LINE_BYTES // 8) * (LINE_BYTES // 8)  # no cache line is written by two threads
    tasks = max(1, products.N * products.G * q.count)
    plan.parts = max(1, min(most, ceiling(LINE_TASKS * q.threads, tasks)))
    return True


cdef void lay_out_double_lines(Problem* q, workspace* memory) noexcept nogil:
    q.double_lines.sums = <double*>take(memory, q.threads * q.double_lines.room * sizeof(double))


cdef bint run_double_lines(Problem* q, workspace* memory) noexcept nogil:
    cdef const DoubleLines* plan = &q.double_lines
    cdef int64_t each = q.products.N * q.products.G * plan.parts, task
    if q.threads == 1:
        for task in range(each * q.count):
            run_double_lines_task(&q.products[task // each], q.isa, plan, task % each, plan.sums)
    else:
        for task in prange(each * q.count, schedule="dynamic", num_threads=q.threads):
            run_double_lines_task(&q.products[task // each], q.isa, plan, task % each, plan.sums + thread_number() * plan.room)
    return True
