"""Algorithm `float64`: products in float64, whatever their geometry, from gathered panels.

A task is some column panels against some row panels of one group.  It takes the reduction in chunks: it packs the weights of
its rows, then gathers one column panel after the other and runs all its row panels over it; the sums wait in between.
Positions outside are zeros there, which is the same where the weights met by them are finite.

uses: engine/algorithms.pxi (Problem), engine/costs.pxi (HALF_OF_PEAK, peak_cycles), engine/product/pack.pxi
    (input_spans), engine/product/position_classes.pxi (cut_fragments, cut_position_classes),
    engine/product/product.pxi (Fragment, Piece, PositionClass, Product, row_panels), engine/product/store.pxi
    (output_spans)
gives: DOUBLE_STEPS, DoubleTasks, copy_doubles, double_pitch, doubles_cycles, fits_doubles, lay_out_all_doubles,
    not_finite, run_doubles, store_doubles
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
    int64_t together            # column panels of a task, at most
    int64_t offsets[TILE_ROWS]  # of the rows of a packed panel
    bint unbounded              # infinite or NaN weights may meet a position outside
    int64_t tasks
    DoubleScratch* scratch


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
        check_room(b"pack_doubles", packed, (pieces[piece].end - pieces[piece].first) * p.rows * sizeof(double))
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
    check_room(b"gather_doubles", lanes, channels * pitch * sizeof(double))
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
    check_room(b"gather_double_pieces", s.runs, piece_count * sizeof(tile_run))
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
    cdef int64_t i, j, lane, step
    cdef double* place
    cdef const double* source
    cdef const double* bias = <const double*>p.bias
    for i in range(rows):
        for j in range(span_count):
            place = <double*>p.output.data + (row + i) * p.output.c + spans[j].offset
            source, step = sums + i * pitch + spans[j].lane, spans[j].step
            for lane in range(spans[j].count):
                place[lane * step] = source[lane] + 0.0
            if bias != NULL:
                for lane in range(spans[j].count):
                    place[lane * step] += bias[g * p.R + row + i]


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
    check_room(b"run_double_task", s.sums, (end_panel - first_panel) * (end_row - first_row) * tile * sizeof(double))
    check_room(b"run_double_task", s.pieces, min(<int64_t>DOUBLE_STEPS, p.tap_count * p.D) * sizeof(Piece))
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


cdef void lay_out_doubles(DoubleScratch* s, const Problem* q, workspace* memory) noexcept nogil:
    """The buffers of one thread."""
    cdef const Product* p = q.products
    cdef int64_t height = ceiling(row_panels(p), q.doubles.row_parts), size = sizeof(double)
    s.packed = <double*>take(memory, size * height * DOUBLE_STEPS * p.rows)
    s.lanes = <double*>take(memory, size * DOUBLE_STEPS * double_pitch(q.isa))
    s.sums = <double*>take(memory, size * q.doubles.together * height * p.rows * double_pitch(q.isa))
    s.fragments = <Fragment*>take(memory, TILE_LANES * sizeof(Fragment))
    s.spans = <lane_span*>take(memory, 3 * TILE_LANES * sizeof(lane_span))
    s.pieces = <Piece*>take(memory, DOUBLE_STEPS * sizeof(Piece))
    s.runs = <tile_run*>take(memory, DOUBLE_STEPS * sizeof(tile_run))


cdef bint fits_doubles(Problem* q) noexcept nogil:
    cdef const instruction_set* isa = q.isa
    cdef Product* products = q.products
    cdef DoubleTasks* all = &q.doubles
    cdef int64_t i, tasks, panels = 0, rows, tile = isa.rows * double_pitch(isa)
    cdef Product* p
    if q.weights != NULL or products.input.format != NUMBER_FLOAT64:
        return False
    for i in range(q.count):
        p = &products[i]
        p.rows, p.columns = isa.rows, p.N * p.Q[0] * p.Q[1] * p.Q[2]
        p.panels = ceiling(ceiling(p.columns, isa.width // 2), isa.vectors)
        p.class_count = cut_position_classes(p, isa, NULL)
        panels = max(panels, p.panels)
    rows = row_panels(products)
    for i in range(isa.rows):
        all.offsets[i] = i
    all.unbounded = False
    all.row_parts = ceiling(rows, DOUBLE_ROWS // isa.rows)
    all.together = max(1, min(min(panels, DOUBLE_PANELS), DOUBLE_SUMS // (ceiling(rows, all.row_parts) * tile)))
    tasks = count_double_tasks(products, q.count, all)
    while q.threads > 1 and tasks < 4 * q.threads and (all.together > 1 or all.row_parts < rows):
        # Parts of the columns pack all weights, parts of the rows gather all input: whichever is less.
        if all.together > 1 and (all.row_parts == rows or all.together * double_pitch(isa) * all.row_parts >= products.R):
            all.together = ceiling(all.together, 2)
        else:
            all.row_parts = min(rows, 2 * all.row_parts)
        tasks = count_double_tasks(products, q.count, all)
    all.tasks = tasks
    return True


cdef double doubles_cycles(const Problem* q) noexcept nogil:
    """Vectors have half as many lanes."""
    return HALF_OF_PEAK * peak_cycles(q)


cdef void lay_out_all_doubles(Problem* q, workspace* memory) noexcept nogil:
    cdef DoubleScratch counted
    cdef int64_t i, class_count = 0
    cdef int worker
    q.doubles.scratch = <DoubleScratch*>take(memory, q.threads * sizeof(DoubleScratch))
    for worker in range(q.threads):
        lay_out_doubles(&q.doubles.scratch[worker] if memory.base != NULL else &counted, q, memory)
    for i in range(q.count):
        class_count += q.products[i].class_count
    q.position_classes = <PositionClass*>take(memory, class_count * sizeof(PositionClass))


cdef bint run_doubles(Problem* q, workspace* memory) noexcept nogil:
    """Returns false where infinite or NaN weights may have met a position outside."""
    cdef DoubleTasks* all = &q.doubles
    cdef DoubleScratch* scratch = all.scratch
    cdef PositionClass* position_classes = q.position_classes
    cdef int64_t i, task
    for i in range(q.count):
        q.products[i].position_classes = position_classes
        position_classes += cut_position_classes(&q.products[i], q.isa, position_classes)
    if q.threads == 1:
        for task in range(all.tasks):
            run_double_task(q.products, q.isa, all, task, scratch)
    else:
        for task in prange(all.tasks, schedule="dynamic", num_threads=q.threads):
            run_double_task(q.products, q.isa, all, task, &scratch[thread_number()])
    return not all.unbounded
