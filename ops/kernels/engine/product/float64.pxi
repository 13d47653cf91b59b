"""Products in float64, whatever their geometry, from gathered panels.

A task is some column panels against some row panels of one group.  It takes the reduction in chunks: it packs the weights of
its rows, then gathers one column panel after the other and runs all its row panels over it; the sums wait in between.
Positions outside are zeros there, which is the same where the weights met by them are finite.
"""

cdef enum:
    DOUBLE_STEPS = 128        # of a chunk: a lane panel and a row panel fit the nearest cache
    DOUBLE_ROWS = 256         # rows of a task, at most
    DOUBLE_PANELS = 64        # column panels of a task, at most ...
    DOUBLE_SUMS = 98304       # ... and its sums


cdef struct DoubleScratch:  # of one thread
    double* packed         # row panels [step][row] of a chunk
    double* lanes
    double* sums           # tiles [column panel][row panel]
    Fragment* fragments
    lane_span* spans
    Piece* pieces
    tile_run* runs


cdef struct DoubleTasks:  # of all products, one after the other
    int64_t row_parts
    int64_t together       # column panels of a task, at most
    int64_t offsets[TILE_ROWS]  # of the rows of a packed panel
    bint unbounded         # infinite or NaN weights may meet a position outside


cdef inline bint not_finite(double value) noexcept nogil:
    return value - value != 0


cdef inline void copy_doubles(double* place, const double* source, int64_t count, int64_t step) noexcept nogil:
    cdef int64_t i
    if step == 1:
        memcpy(place, source, count * sizeof(double))
    else:
        for i in range(count):
            place[i] = source[i * step]


cdef inline int64_t double_pitch(const instruction_set* isa) noexcept nogil:
    """Lanes of a full tile."""
    return isa.vectors * isa.width // 2


cdef inline int64_t double_column(const Product* p, const instruction_set* isa, int64_t panel) noexcept nogil:
    """The first of a column panel."""
    return min(p.columns, share(ceiling(p.columns, isa.width // 2), p.panels, panel) * (isa.width // 2))


cdef bint pack_doubles(const Product* p, const Piece* pieces, int64_t piece_count, int64_t g, int64_t row, int64_t rows,
                       double* packed) noexcept nogil:
    """The weights of one row panel; tells whether some are not finite."""
    cdef int64_t i, piece, d, steps
    cdef const double* source
    cdef double* place
    cdef bint unbounded = False
    for piece in range(piece_count):
        steps = pieces[piece].end - pieces[piece].first
        for i in range(rows):
            source = (<const double*>p.weights.data + p.tap_offsets[pieces[piece].tap] + g * p.weights.g + (row + i) * p.weights.n
                      + pieces[piece].first * p.weights.c)
            place = packed + i
            for d in range(steps):
                place[d * p.rows] = source[d * p.weights.c]
                unbounded |= not_finite(source[d * p.weights.c])
        packed += steps * p.rows
    return unbounded


cdef void gather_doubles(const Product* p, const Piece* piece, const lane_span* spans, int64_t span_count, double* lanes,
                         int64_t pitch) noexcept nogil:
    """Channels [first, end) of one tap for one column panel."""
    cdef int64_t d, i, channels = piece.end - piece.first
    cdef lane_span span
    cdef const double* source
    cdef double* place
    for i in range(span_count):
        span = spans[i]
        source, place = <const double*>p.input.data + piece.first * p.input.c, lanes + span.lane
        if span.offset != NO_ELEMENT:
            source += span.offset
        for d in range(channels):
            if span.offset == NO_ELEMENT:
                memset(place, 0, span.count * sizeof(double))
            else:
                copy_doubles(place, source + d * p.input.c, span.count, span.step)
            place += pitch


cdef int64_t gather_double_pieces(const Product* p, const instruction_set* isa, int64_t g, int64_t fragment_count,
                                  int64_t piece_count, DoubleScratch* s) noexcept nogil:
    """The steps of a chunk for one column panel, but for taps that meet no input there; returns the number of runs."""
    cdef int64_t i, span_count, step = 0, steps, run_count = 0, pitch = double_pitch(isa)
    cdef const Piece* piece
    for i in range(piece_count):
        piece = &s.pieces[i]
        steps = piece.end - piece.first
        span_count = input_spans(p, &p.taps[piece.tap], g, s.fragments, fragment_count, s.spans)
        if span_count > 1 or s.spans[0].offset != NO_ELEMENT:
            gather_doubles(p, piece, s.spans, span_count, s.lanes + step * pitch, pitch)
            if run_count > 0 and s.runs[run_count - 1].rows + s.runs[run_count - 1].steps * p.rows == step * p.rows:
                s.runs[run_count - 1].steps += steps
            else:
                s.runs[run_count] = tile_run(step * p.rows, step * pitch, steps)
                run_count += 1
        step += steps
    return run_count


cdef void store_doubles(const Product* p, int64_t g, int64_t row, int64_t rows, const double* sums, int64_t pitch,
                        const lane_span* spans, int64_t span_count) noexcept nogil:
    cdef int64_t i, j, lane
    cdef double* place
    cdef const double* bias = <const double*>p.bias
    for i in range(rows):
        for j in range(span_count):
            place = <double*>p.output.data + (row + i) * p.output.c + spans[j].offset
            for lane in range(spans[j].count):
                place[lane * spans[j].step] = sums[i * pitch + spans[j].lane + lane] + 0.0
                if bias != NULL:
                    place[lane * spans[j].step] += bias[g * p.R + row + i]


cdef void run_double_task(const Product* p, const instruction_set* isa, DoubleTasks* all, int64_t task, DoubleScratch* s) noexcept nogil:
    """Task `task` of all products, of which `p` is the first."""
    while task >= p.tasks:
        task -= p.tasks
        p += 1
    cdef int64_t row_part = task % all.row_parts, parts = ceiling(p.panels, all.together), all_rows = row_panels(p)
    cdef int64_t part = task // all.row_parts % parts, g = task // all.row_parts // parts, pitch = double_pitch(isa)
    cdef int64_t first_row = share(all_rows, all.row_parts, row_part), end_row = share(all_rows, all.row_parts, row_part + 1)
    cdef int64_t first_panel = share(p.panels, parts, part), end_panel = share(p.panels, parts, part + 1)
    cdef int64_t tile = p.rows * pitch, tap = 0, channel = 0, r, panel, column, width, row, rows, steps
    cdef int64_t piece_count, fragment_count, span_count = 0, run_count
    cdef bint last
    cdef Piece* piece
    cdef double* c
    memset(s.sums, 0, (end_panel - first_panel) * (end_row - first_row) * tile * sizeof(double))
    while not all.unbounded:
        piece_count = steps = 0
        while tap < p.tap_count and steps < DOUBLE_STEPS:
            piece = &s.pieces[piece_count]
            piece.tap, piece.first, piece.end = tap, channel, min(p.D, channel + DOUBLE_STEPS - steps)
            piece_count += 1
            steps += piece.end - channel
            channel = piece.end
            if channel == p.D:
                tap += 1
                channel = 0
        last = tap == p.tap_count
        for r in range(first_row, end_row):
            row = share(p.R, all_rows, r)
            if pack_doubles(p, s.pieces, piece_count, g, row, share(p.R, all_rows, r + 1) - row,
                            s.packed + (r - first_row) * DOUBLE_STEPS * p.rows) and p.padded:
                all.unbounded = True
        for panel in range(first_panel, end_panel):
            column = double_column(p, isa, panel)
            width = double_column(p, isa, panel + 1) - column
            fragment_count = cut_fragments(p, column, width, s.fragments)
            run_count = gather_double_pieces(p, isa, g, fragment_count, piece_count, s)
            if last:
                span_count = output_spans(p, g, s.fragments, fragment_count, s.spans)
            for r in range(first_row, end_row):
                row = share(p.R, all_rows, r)
                rows = share(p.R, all_rows, r + 1) - row
                c = s.sums + ((panel - first_panel) * (end_row - first_row) + r - first_row) * tile
                if run_count > 0:
                    isa.tile64[rows - 1][ceiling(width, isa.width // 2) - 1](
                        s.runs, run_count, s.packed + (r - first_row) * DOUBLE_STEPS * p.rows, all.offsets, p.rows, s.lanes, c)
                if last:
                    store_doubles(p, g, row, rows, c, pitch, s.spans, span_count)
        if last:
            return


cdef int64_t count_double_tasks(Product* products, int64_t count, const DoubleTasks* all) noexcept nogil:
    cdef int64_t tasks = 0, i
    for i in range(count):
        products[i].tasks = products[i].G * all.row_parts * ceiling(products[i].panels, all.together)
        tasks += products[i].tasks
    return tasks


cdef int64_t lay_out_doubles(DoubleScratch* s, const Product* p, const instruction_set* isa, const DoubleTasks* all,
                             char* space) noexcept nogil:
    """Divide one thread's workspace; returns its size."""
    cdef char* start = space
    cdef int64_t height = ceiling(row_panels(p), all.row_parts), size = sizeof(double)
    s.packed = <double*>take(&space, size * height * DOUBLE_STEPS * p.rows)
    s.lanes = <double*>take(&space, size * DOUBLE_STEPS * double_pitch(isa))
    s.sums = <double*>take(&space, size * all.together * height * p.rows * double_pitch(isa))
    s.fragments = <Fragment*>take(&space, TILE_LANES * sizeof(Fragment))
    s.spans = <lane_span*>take(&space, 3 * TILE_LANES * sizeof(lane_span))
    s.pieces = <Piece*>take(&space, DOUBLE_STEPS * sizeof(Piece))
    s.runs = <tile_run*>take(&space, DOUBLE_STEPS * sizeof(tile_run))
    return space - start


cdef int run_doubles(Product* products, int64_t count, int threads, int64_t* report) except -1 nogil:
    """As `run_products`; returns true where infinite or NaN weights may have met a position outside."""
    cdef const instruction_set* isa = current
    cdef int64_t i, tasks, task, size, bytes_needed, class_count = 0, panels = 0, rows, tile = isa.rows * double_pitch(isa)
    cdef double work = 0
    cdef int worker
    cdef Product* p
    cdef DoubleTasks all
    cdef DoubleScratch layout
    cdef DoubleScratch* scratch
    cdef PositionClass* position_classes
    cdef char* space
    cdef char* aligned
    for i in range(count):
        p = &products[i]
        p.rows, p.columns = isa.rows, p.N * p.Q[0] * p.Q[1] * p.Q[2]
        p.panels = ceiling(ceiling(p.columns, isa.width // 2), isa.vectors)
        class_count += cut_position_classes(p, isa, False, NULL)
        panels = max(panels, p.panels)
        work += <double>p.columns * p.G * p.R * p.D * p.tap_count
    threads = team_for(work, threads)
    rows = row_panels(products)
    for i in range(isa.rows):
        all.offsets[i] = i
    all.unbounded = False
    all.row_parts = ceiling(rows, DOUBLE_ROWS // isa.rows)
    all.together = max(1, min(min(panels, DOUBLE_PANELS), DOUBLE_SUMS // (ceiling(rows, all.row_parts) * tile)))
    tasks = count_double_tasks(products, count, &all)
    while threads > 1 and tasks < 4 * threads and (all.together > 1 or all.row_parts < rows):
        # Parts of the columns pack all weights, parts of the rows gather all input: whichever is less.
        if all.together > 1 and (all.row_parts == rows or all.together * double_pitch(isa) * all.row_parts >= products.R):
            all.together = ceiling(all.together, 2)
        else:
            all.row_parts = min(rows, 2 * all.row_parts)
        tasks = count_double_tasks(products, count, &all)
    size = lay_out_doubles(&layout, products, isa, &all, NULL)
    bytes_needed = threads * (size + <int64_t>sizeof(DoubleScratch)) + class_count * sizeof(PositionClass) + 128
    if report != NULL:
        report[0] = max(report[0], bytes_needed)
        return False
    space = take_workspace(bytes_needed)
    if space == NULL:
        with gil:
            raise MemoryError
    aligned = space
    scratch = <DoubleScratch*>take(&aligned, threads * sizeof(DoubleScratch))
    position_classes = <PositionClass*>take(&aligned, class_count * sizeof(PositionClass))
    for worker in range(threads):
        aligned += lay_out_doubles(&scratch[worker], products, isa, &all, aligned)
    for i in range(count):
        products[i].position_classes = position_classes
        products[i].class_count = cut_position_classes(&products[i], isa, False, position_classes)
        position_classes += products[i].class_count
    if threads == 1:
        for task in range(tasks):
            run_double_task(products, isa, &all, task, scratch)
    else:
        for task in prange(tasks, schedule="dynamic", num_threads=threads):
            run_double_task(products, isa, &all, task, &scratch[thread_number()])
    return_workspace(space)
    return all.unbounded
