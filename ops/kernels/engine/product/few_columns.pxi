"""Algorithm `few_columns`: products of few columns and many weights, as of fully connected layers and of the smallest planes
of single images.

Weights, which are read but once, are what such a product waits for.  So the input of all columns and taps is gathered
beforehand, by all threads, and every task packs the row panel that it uses: packed weights never leave the middle cache.

uses: engine/algorithms.pxi (Problem), engine/costs.pxi (FAR_AND_BACK),
    engine/product/gathered.pxi (panel_cycles), engine/product/pack.pxi (input_spans, pack_rows), engine/product/pairs.pxi (tile_of),
    engine/product/position_classes.pxi (cut_fragments, cut_position_classes), engine/product/product.pxi,
    engine/product/store.pxi (find_result, output_spans, result_rows, store_tile)
gives: FewColumns, few_columns_cycles, fits_few_columns, lay_out_few_columns, run_few_columns
"""

cdef enum:
    FEW_COLUMNS_BYTES = 1 << 20   # of the gathered input, and of one packed row panel
    FEW_COLUMNS_CHANNELS = 64     # of a part


cdef struct FewColumnsScratch:   # of one thread
    float* packed
    float* sums
    lane_span* spans
    tile_result result


cdef struct FewColumns:
    int64_t panels           # of columns
    float* lanes[BLOCK]      # of each: [tap][part][channel][lane]
    int64_t pitch[BLOCK]     # from a channel to the next
    int64_t part[BLOCK]      # from a part of the channels to the next: whole vectors are stored, which overrun it
    int64_t parts
    Fragment* fragments      # TILE_LANES of each
    int64_t fragment_count[BLOCK]
    tile_run* runs           # of each, those of all parts
    int64_t* tap_offsets     # of the input
    bint single              # every lane is an image
    FewColumnsScratch* scratch


cdef inline int64_t padded_columns(const Product* p, const instruction_set* isa) noexcept nogil:
    return ceiling(p.columns, isa.width) * isa.width


cdef bint fits_few_columns(Problem* q) noexcept nogil:
    cdef const Product* p = q.products
    return (q.weights == NULL and q.pairs == NULL and q.count == 1 and p.input.format != NUMBER_FLOAT64
            and p.G == 1 and not p.padded and p.cell == NULL and p.tap_count > 0 and p.D > 0
            and 0 < p.columns <= BLOCK * q.isa.vectors * q.isa.width
            and 4 * p.tap_count * p.S * padded_columns(p, q.isa) <= FEW_COLUMNS_BYTES and 4 * p.panel_size <= FEW_COLUMNS_BYTES)


cdef double few_columns_cycles(const Problem* q) noexcept nogil:
    """What gathering costs, less the way of far weights to memory and back; more where a task's weights lie transposed or tasks are
    too few to come out even."""
    cdef const Product* p = q.products
    cdef double weights = <double>p.R * p.D * p.tap_count
    cdef bint pays = p.weights.n != 1 and are_far(row_panels(p) * p.panel_size) and row_panels(p) >= 2 * q.threads
    return panel_cycles(q, True, False) + (-FAR_AND_BACK if pays else FAR_AND_BACK) * weights


cdef void lay_out_shared_columns(const Product* p, const instruction_set* isa, FewColumns* s, workspace* memory) noexcept nogil:
    """What all threads share."""
    cdef int64_t j, vectors = ceiling(p.columns, isa.width)
    s.panels, s.parts = ceiling(vectors, isa.vectors), ceiling(p.D, FEW_COLUMNS_CHANNELS)
    for j in range(s.panels):
        s.pitch[j] = (share(vectors, s.panels, j + 1) - share(vectors, s.panels, j)) * isa.width
        s.part[j] = min(FEW_COLUMNS_CHANNELS, p.D) * s.pitch[j] + isa.width
        s.lanes[j] = <float*>take(memory, 4 * p.tap_count * s.parts * s.part[j])
    s.fragments = <Fragment*>take(memory, s.panels * TILE_LANES * sizeof(Fragment))
    s.runs = <tile_run*>take(memory, s.panels * p.tap_count * s.parts * sizeof(tile_run))
    s.tap_offsets = <int64_t*>take(memory, p.tap_count * sizeof(int64_t))
    s.single = p.Q[0] * p.Q[1] * p.Q[2] == 1 and p.input.c != 1


cdef void lay_out_few_columns(Problem* q, workspace* memory) noexcept nogil:
    cdef const Product* p = q.products
    cdef FewColumnsScratch counted
    cdef FewColumnsScratch* s
    cdef int worker
    q.few_columns.scratch = <FewColumnsScratch*>take(memory, q.threads * sizeof(FewColumnsScratch))
    for worker in range(q.threads):
        s = &q.few_columns.scratch[worker] if memory.base != NULL else &counted
        s.packed = <float*>take(memory, 4 * p.panel_size)
        s.sums = <float*>take(memory, 4 * q.isa.rows * q.isa.vectors * q.isa.width)
        s.spans = <lane_span*>take(memory, 3 * TILE_LANES * sizeof(lane_span))
    q.position_classes = <PositionClass*>take(memory, p.class_count * sizeof(PositionClass))
    lay_out_shared_columns(p, q.isa, &q.few_columns, memory)


cdef void begin_few_columns(const Product* p, const instruction_set* isa, FewColumns* s) noexcept nogil:
    cdef int64_t j, t, part, column = 0
    cdef const Tap* tap
    cdef tile_run* run = s.runs
    check_room(b"begin_few_columns", s.tap_offsets, p.tap_count * sizeof(int64_t))
    check_room(b"begin_few_columns", s.runs, s.panels * p.tap_count * s.parts * sizeof(tile_run))
    for t in range(p.tap_count):
        tap = &p.taps[t]
        s.tap_offsets[t] = (tap.offset[0] * p.input.x[0] + tap.offset[1] * p.input.x[1] + tap.offset[2] * p.input.x[2])
    for j in range(s.panels):
        s.fragment_count[j] = cut_fragments(p, column, min(s.pitch[j], p.columns - column), s.fragments + j * TILE_LANES)
        column += s.pitch[j]
        for t in range(p.tap_count):
            for part in range(s.parts):
                run[0] = tile_run(t * p.tap_floats + part * FEW_COLUMNS_CHANNELS * isa.rows, (t * s.parts + part) * s.part[j],
                                  min(FEW_COLUMNS_CHANNELS, p.D - part * FEW_COLUMNS_CHANNELS))
                run += 1


cdef void gather_few_columns(const Product* p, const instruction_set* isa, const FewColumns* s, int64_t task, lane_span* spans) noexcept nogil:
    """One part of one column panel."""
    cdef int64_t j = task // s.parts, part = task % s.parts, pitch = s.pitch[j], t, number
    cdef int64_t column = share(ceiling(p.columns, isa.width), s.panels, j) * isa.width, count = min(pitch, p.columns - column)
    cdef int64_t first = part * FEW_COLUMNS_CHANNELS, channels = min(FEW_COLUMNS_CHANNELS, p.D - first), step = s.parts * s.part[j]
    cdef float* lanes = s.lanes[j] + part * s.part[j]
    cdef const Fragment* fragments = s.fragments + j * TILE_LANES
    cdef const char* source = <const char*>p.input.data + first * p.input.c * element_size(p.input.format)
    check_room(b"gather_few_columns", lanes, 4 * ((p.tap_count - 1) * step + channels * pitch))
    if s.single:
        for t in range(p.tap_count if count < pitch else 0):
            memset(lanes + t * step, 0, channels * pitch * sizeof(float))
        isa.gather_taps(lanes, step, pitch, <int>count, channels, source + column * p.input.n * element_size(p.input.format),
                        p.input.format, p.input.n, p.input.c, s.tap_offsets, p.tap_count)
        return
    for t in range(p.tap_count):
        number = input_spans(p, &p.taps[t], 0, fragments, s.fragment_count[j], spans)
        isa.gather(lanes + t * step, pitch, channels, source, p.input.format, p.input.c, spans, number)


cdef void run_few_columns_task(const Product* p, const instruction_set* isa, const FewColumns* all, int64_t task, FewColumnsScratch* s) noexcept nogil:
    """One row panel."""
    cdef int64_t panels = row_panels(p), row = share(p.R, panels, task), rows = share(p.R, panels, task + 1) - row, j, span_count
    cdef int64_t run_count = p.tap_count * all.parts
    cdef uint16_t smallest
    cdef const tile_result* result
    check_room(b"run_few_columns_task", s.sums, 4 * rows * isa.vectors * isa.width)
    pack_rows(p, isa, 0, task, s.packed, &smallest)
    for j in range(all.panels):
        span_count = output_spans(p, 0, all.fragments + j * TILE_LANES, all.fragment_count[j], s.spans)
        find_result(p, isa, s.spans, span_count, &s.result)
        result = result_rows(p, 0, row, rows, &s.result)
        tile_of(isa, p.pairs, p.blocks, rows, all.pitch[j] // isa.width)(
            all.runs + j * run_count, run_count, s.packed, 0, all.lanes[j], all.pitch[j], s.sums, False, NULL, result)
        if not result.direct:
            store_tile(p, isa, s.sums, rows, result, s.spans, span_count)


cdef bint run_few_columns(Problem* q, workspace* memory) noexcept nogil:
    cdef Product* p = q.products
    cdef FewColumns* all = &q.few_columns
    cdef FewColumnsScratch* scratch = all.scratch
    cdef int64_t task
    p.position_classes = q.position_classes
    cut_position_classes(p, q.isa, p.position_classes)
    begin_few_columns(p, q.isa, all)
    if q.threads == 1:
        for task in range(all.panels * all.parts):
            gather_few_columns(p, q.isa, all, task, scratch.spans)
        for task in range(row_panels(p)):
            run_few_columns_task(p, q.isa, all, task, scratch)
    else:
        for task in prange(all.panels * all.parts, schedule="dynamic", num_threads=q.threads):
            gather_few_columns(p, q.isa, all, task, scratch[thread_number()].spans)
        for task in prange(row_panels(p), schedule="dynamic", num_threads=q.threads):
            run_few_columns_task(p, q.isa, all, task, &scratch[thread_number()])
    return True
