"""How products are computed from gathered panels or from blocks that are laid out, within a workspace of bounded size.

uses: engine/algorithms.pxi (Problem), engine/product/jobs.pxi (Job), engine/product/laid_out_plan.pxi (COPY_CHANNELS,
    COPY_MOVES, Layout), engine/product/pairs.pxi (steps_of), engine/product/passes.pxi (MOST_KEPT_BYTES, count_passes,
    kept_floats, packed_floats, take_taps), engine/product/position_classes.pxi (cut_position_classes),
    engine/product/product.pxi, engine/product/stacked.pxi (MOST_ENTRIES, Stack)
gives: ProductPlan, lay_out_products, plan_passes, prepare_products
"""

cdef enum:
    THREAD_BYTES = 8 << 20  # of workspace: where a thread's own is large, fewer weights are packed


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
        p.class_count = cut_position_classes(p, q.isa, NULL)
        p.panels = ceiling(ceiling(p.columns, q.isa.width), q.isa.vectors)


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
