"""What the estimates of the algorithms are made of: every constant of cost, in one place.

An estimate counts the cycles of all threads together. It decides which algorithm runs and how work is divided, and no
bit of a result. Most constants were fitted to the layers of `tools/data/bench_shapes.json` on the machines that
`docs/performance.md` calls 1, 2, 3 and 5; where `docs/performance-log.md` has the measurement, the comment names its table.
A unit of "cycles" is of one core; a "number" is a float or a pair of bfloat16 numbers, unless the comment says otherwise.

uses: core/isa.pxi (vectors_a_cycle), engine/algorithms.pxi (Problem), engine/product/pairs.pxi (on_matrix),
    engine/product/product.pxi (Product)
gives: BLOCKS_IN_PLACE, BLOCKS_JOINED, BLOCKS_PACKED, CHAIN_DECODED, CHAIN_MOVED, CHAIN_PAIRS, CHAIN_ROWS_BYTES,
    CHAIN_ROWS_LINE, CHAIN_ROWS_SHORT, CHAIN_ROWS_UNIT, CHAIN_SUMS, CHAIN_TAPS, CHAIN_TAPS_LEAST, CHAIN_TAPS_LOADS,
    CHAIN_TAPS_MOVED, CHAIN_TAPS_STRIDED, CLASS_SHARE, COPY_HASTE, DECODED, FAR_AND_BACK, FAR_CHANNELS, FAR_COLUMNS,
    FAR_INPUT, FAR_PANEL, FAR_WEIGHTS, FEW_TAPS, FRAGMENT_CYCLES, FRAME_LOADS, FRAME_PAIRS, FRAME_PATCH,
    FRAME_PATCH_PART, HALF_OF_PEAK, LAID_OUT_BIAS, LAID_OUT_CLASSES, LAID_OUT_GROUPS, LAID_OUT_SHORT, LANES_SHARED,
    LEAST_GROUP, LEAST_ROWS, LINE_CYCLES, LINE_LANES, LINE_ROWS_BLOCKS, LINE_ROWS_CHAINS, LINE_ROWS_CLASSES,
    LINE_ROWS_COLUMN, LINE_ROWS_DECODED, LINE_ROWS_FAR_INPUT, LINE_ROWS_FEW_TAPS, LINE_ROWS_FOUR, LINE_ROWS_LEAST,
    LINE_ROWS_LOADS, LINE_ROWS_LONG, LINE_ROWS_MOVED, LINE_ROWS_ONE_PANEL, LINE_ROWS_PAIRS, LINE_ROWS_POINTS,
    LINE_ROWS_SHORT, LINE_ROWS_SHORT_LOADS, LINE_ROWS_STEPS, LINE_ROWS_STORED, LINE_ROWS_TWO_PANELS, MATRIX_COPIED,
    MATRIX_CUT, MATRIX_PART, MATRIX_ROW, NUMBER_MOVED, PACK_CYCLES, PACK_WHOLE, PANELS_STORES, PANEL_ENDS,
    PANEL_MOVED, PATCHES_BIAS, PATCHES_MANY, PLANES_LINE, PLANES_SHARE, PLANES_WASTE, POSITION_ROWS_BIAS,
    POSITION_ROWS_LOADS, POSITION_ROWS_PAIRS, POSITION_ROWS_STORES, QUARTERS, REGION_CYCLES, RESIDUE_MOVED,
    RESIDUE_PLANES, ROW_IN_PLACE, ROW_LINE, ROW_PACKED, STORED_CYCLES, STRIDED_PIECES, SUMS_FAR, TAP_MOVED,
    TAP_PAIRS_JOINED, TAP_PAIRS_LINE, TAP_PAIRS_MOVED, TILE_STEPS, TRANSPOSE_CYCLES, TRANSPOSE_PAIRS, UNALIGNED,
    VECTORS_A_CYCLE, WAITING_COST, far_results, loads_wait, moved_cycles, narrow_moved, narrow_panels, number_cycles,
    number_quarters, pack_cycles, peak_cycles, stores_wait, strided_moved, wait_found
"""

cdef enum:
    VECTORS_A_CYCLE = 2  # fused multiply-adds of vectors that a core begins in a cycle
    FAR_CHANNELS = 256   # of the input: of so many, blocks have few positions, or are far
    LEAST_GROUP = 8      # channels
    LEAST_ROWS = 3       # rows: a tile of fewer takes as long, since it waits for its loads
    LINE_LANES = 48      # positions: a line of more begins in every panel (TILE_LANES)
    QUARTERS = 4         # quarters of a cycle in a cycle
    FEW_TAPS = 3         # taps of products whose rows are lines: more are cheaper, each

cdef enum:  # what products beside them wait for, as measured rates tell
    NOT_ASKED
    NOTHING_KNOWN
    LOADS
    STORES

# Products

cdef double MATRIX_NUMBER = 0.0075     # cycles for one step of one row on a matrix unit (machine 2, which has one)
cdef double UNALIGNED = 1.06           # factor of products whose lanes lie across cache lines (machine 2, "Planar blocks")
cdef double HALF_OF_PEAK = 2           # factor of products in float64 (vectors have half as many lanes), and of dot products with
                                       # few channels (half of the time goes to layouts and loads)
cdef double TILE_STEPS = 8             # steps that begin and end a tile which takes its sums from memory
cdef double POSITION_ROWS_BIAS = 0.95  # factor: measured over modelled cost of positions as rows, for the layers where gathered
                                       # panels come near

cdef double POSITION_ROWS_PAIRS = 0.85 # factor: the same with dot products and sums in blocks, whose panels cost more (machine 1,
                                       # "Dot products at the full rate")
cdef double POSITION_ROWS_LOADS = 0.9 # ... of them where multiply-adds wait for loads: a panel's steps lie in the nearest cache (machine 5)

cdef double LAID_OUT_BIAS = 0.97       # factor: the same of blocks that are laid out, where positions as rows come near (DCGAN's
                                       # fourth layer forward, AVX-512)

cdef double LAID_OUT_GROUPS = 0.88     # ... of several groups of LEAST_GROUP channels and more, where loads are waited for (machine 5)
cdef double LAID_OUT_SHORT = 1.3       # ... of 17 to 32 channels there, of several taps and lines shorter than two vectors
cdef double LAID_OUT_CLASSES = 1.35    # ... of stride classes along three axes (machine 5)
cdef double PANEL_ENDS = 128           # steps that a tile of panels or blocks takes before and after its sums, in groups, where positions
                                       # as rows come near ("Formats beside float32, without dot products")

cdef double PANELS_STORES = 0.96       # factor of panels of pairs where stores wait ("One vector of lanes after the other")
cdef double POSITION_ROWS_STORES = 1.06 # ... of positions as rows
cdef double FAR_RESULTS = 0.4          # cycles for a result where all of them do not stay in the middle caches, unless rows are lines
cdef int64_t NEAR_RESULTS = 4 << 20    # bytes of results that do

cdef int wait_found = NOT_ASKED        # what `loads_wait` and `stores_wait` tell
cdef double LOADS_WAIT = 1.4           # multiply-adds of vectors in a cycle: of more, loads are too few

cdef double ONE_VECTOR = 1.5           # factor of products whose panels are one vector wide: they wait for rows
cdef double TWO_VECTORS = 1.15         # ... two vectors ("Depthwise and narrow groups")

cdef double PLANES_SHARE = 0.9         # factor of depthwise products that leave out what lies outside: less than others name
                                       # ("Depthwise layers with narrow formats")
cdef double PLANES_LINE = 96           # positions of a line, not in 16 bits, at most 9 taps: of more, those that read in place are faster
                                       # where multiply-adds wait for loads (machine 5)
cdef double PLANES_WASTE = 1.1         # ... where those that read in place are faster

# Copies of the input

cdef double NUMBER_MOVED = 0.15        # cycles for a number that is copied to a panel or a block
cdef double PAIRS_MOVED = 0.45         # ... for pairs that are laid out for a matrix unit
cdef double PANEL_MOVED = 0.08         # ... for pairs that are copied from a block to a panel of whole cache lines
cdef double RESIDUE_MOVED = 0.6        # ... for a number whose line is laid out by residues modulo the stride
cdef double RESIDUE_PLANES = 2         # ... times so much where planes are told apart too: what lies between them is too far to be foreseen
cdef double NARROW_MOVED = 1.5         # ... more for a number that is gathered to a panel of fewer lanes than TILE_LANES (machine 4): what is
                                       # met of a line is too short to be foreseen
cdef double STRIDED_MOVED = 0.5        # cycles more for a number of an input whose stride is 2
cdef double SCATTERED_MOVED = 1.5      # ... of a larger one, whose numbers are loaded one by one (machine 5)
cdef double DECODED = 0.25             # cycles more for a number that is not stored as float32
cdef double FRAGMENT_CYCLES = 3        # cycles for one more fragment of a line in a panel, of each channel ("General product", boxes)
cdef double STRIDED_PIECES = 2         # factor of FRAGMENT_CYCLES where the stride is not 1
cdef double LINE_CYCLES = 8            # cycles where a line begins in a panel, of each channel
cdef double CLASS_SHARE = 0.01         # of the products: what a cut along an outer axis costs
cdef double TRANSPOSE_CYCLES = 2       # cycles for a number of the transposed input
cdef double TRANSPOSE_PAIRS = 6.2      # ... for a pair
cdef double COPY_HASTE = 2             # factor of the rate at which tiles copy the next block: copies end while about half of the
                                       # tiles are still to come, since some run late and some are left out (machine 2,
                                       # "Planar blocks")

# Results

cdef double STORED_CYCLES = 0.3        # cycles for a result of a panel of pairs, whose tiles have half as many steps

# Lanes are output channels, rows are positions of a line; and patches

cdef double LINE_ROWS_MOVED = 0.2      # cycles for a number or pair that is laid out
cdef double LINE_ROWS_STORED = 0.4     # ... for a result that is transposed and stored

cdef double LINE_ROWS_FOUR = 14        # lanes as which a vector of 4 counts: half of the rate, and ends of short tiles
cdef double LINE_ROWS_CLASSES = 0.6    # factor where stride classes are stored together (machine 1, "Groups of 4 to 64 channels")
cdef double LINE_ROWS_LONG = 2         # ... of chains along lines that are long for blocks, which are cheaper than their estimate
cdef double LINE_ROWS_STEPS = 640      # ... unless a sum has so many steps
cdef double LINE_ROWS_SHORT = 0.9      # ... of few channels otherwise
cdef double LINE_ROWS_CHAINS = 0.95    # ... of more, for several taps
cdef double LINE_ROWS_POINTS = 1.1     # ... for one
cdef double LINE_ROWS_BLOCKS = 0.83    # ... of sums in blocks, beside algorithms that cost more than their estimate
cdef double LINE_ROWS_FEW_TAPS = 1.15  # ... for at most FEW_TAPS
cdef double LINE_ROWS_PAIRS = 0.87     # ... of pairs for at most FEW_TAPS, where multiply-adds do not wait (machine 1, "Stores beside products")
cdef double LINE_ROWS_COLUMN = 1.15    # ... where several taps all meet the same position of a line: none finds what another has loaded
cdef double LINE_ROWS_LOADS = 1.06     # ... of more than 8 channels where multiply-adds wait for loads (machine 5)
cdef double LINE_ROWS_SHORT_LOADS = 1.5    # ... of few channels there, instead of LINE_ROWS_SHORT, if a line is several segments
cdef double LINE_ROWS_TWO_PANELS = 1.3     # ... of sums in blocks there, of two panels
cdef double LINE_ROWS_ONE_PANEL = 0.9      # ... of one
cdef double LINE_ROWS_FAR_INPUT = 1.3      # ... of stride classes in pairs there, of FAR_CHANNELS channels and more
cdef double LINE_ROWS_DECODED = 1.15       # ... of an input in 8 bits there, which is decoded for every block
cdef double LINE_ROWS_LEAST = 4        # positions of a line: a tile of fewer takes as long, since it waits for its chains

cdef double PATCHES_BIAS = 0.5         # factor of patches of few channels, whose classes cost other algorithms twice their estimate
cdef double PATCHES_MANY = 1           # ... of more (machine 5)

# Packed weights

cdef double PACK_CYCLES = 2            # cycles for a packed weight
cdef double PACK_WHOLE = 0.3           # ... where all of them are packed once, in panels of lanes (machine 1)
cdef double PACK_PAIRS = 5             # ... for a pair of them in row panels for dot products, eight rows at a time (machine 1)
cdef double FAR_WEIGHTS = 6            # packed weights that come from beyond the middle cache in a cycle
cdef double FAR_PANEL = 0.15           # cycles for a packed weight that is fetched again for a range of columns
cdef double FAR_INPUT = 256            # numbers of a far transposed input, times panels' channels, that are fetched in a cycle
cdef double FAR_AND_BACK = 1           # cycles for a packed weight that goes to memory and back (machine 2,
                                       # "Positions as rows, streamed weights") ...
cdef double FAR_COLUMNS = 256          # columns, of positions as rows: more hide it

# Weights gradients, in quarters of a cycle

cdef double ROW_PACKED = 1.6           # quarters of a cycle for a number of a row that is packed in blocks
cdef double ROW_LINE = 0.8             # ... that is laid out in a line, maybe for several taps
cdef double ROW_IN_PLACE = 0.5         # ... for a number of a row that is read where it lies
cdef double WAITING_COST = 5           # ... for a sum of a block of pieces that waits in memory
cdef double FLOAT_QUARTERS = 2         # ... for a fused multiply-add of a vector of floats
cdef double PAIR_QUARTERS = 1          # ... for a dot product, per term
cdef double MATRIX_ROW = 0.8           # ... for a number of a row that is packed for a matrix unit (machine 2) ...
cdef double MATRIX_PART = 12           # ... and for each part of a line, times the step of its numbers ...
cdef double MATRIX_CUT = 100           # ... which is cut once for all channels
cdef double MATRIX_COPIED = 5          # ... for a number that is copied to a buffer first
cdef double FRAME_PAIRS = 1.4          # to frame a position for a matrix unit, beside what it takes to pack it (machine 2) ...
cdef double FRAME_LOADS = 0.36         # ... quarters of a cycle to load it for a lane panel, where rows cross cache lines
cdef double FRAME_PATCH = 0.35         # ... to patch it, where blocks go on in another line ...
cdef double FRAME_PATCH_PART = 0.3     # ... and for each line of such a block
cdef double MATRIX_QUARTERS = 0.15     # ... for a matrix unit, per term
cdef double REGION_CYCLES = 10000      # cycles of each thread, until all have begun a parallel region and ended it
cdef double LANES_SHARED = 0.5         # factor of a lane that another task packed, beside one that the task packs itself (machine 5)
cdef double SUMS_FAR = 0.03            # products take longer by so much for each doubling of sums that do not stay near (machine 5)

cdef double BLOCKS_IN_PLACE = 1.3      # factor of a weights gradient whose sums are taken in blocks of positions
cdef double BLOCKS_PACKED = 1.15       # ... with dot products, measured over modelled cost (machine 1)

# Weights gradients in chains, as dot products of pairs: less than in chains of floats, whose estimate is as low

cdef double CHAIN_PAIRS = 0.35         # cycles for a unit of 16 pairs, a tap and two channels
cdef double CHAIN_MOVED = 0.05         # ... for a pair that is laid out
cdef double CHAIN_SUMS = 2.5           # ... for a vector of sums, of a piece: cleared, carried through memory, added up (machine 1)
cdef double CHAIN_TAPS = 0.47          # cycles for a unit and a tap of taps together, beside products of floats in place, whose estimate
                                       # is as low (machine 1, "Depthwise weights in pairs") ...
cdef double CHAIN_TAPS_LEAST = 5       # taps as which fewer count: their sums wait for one another
cdef double CHAIN_TAPS_LOADS = 18      # ... where multiply-adds wait for loads (machine 5)
cdef double CHAIN_TAPS_STRIDED = 0.5   # factor of strided lines there, beside products of floats that take twice their estimate
cdef double CHAIN_TAPS_MOVED = 0.17    # ... for a pair that is laid out
cdef double CHAIN_ROWS_LINE = 3        # ... for a line, where the large side is decoded as it is met (machine 1)
cdef double CHAIN_ROWS_UNIT = 1        # ... for a unit there, of either side
cdef double CHAIN_ROWS_BYTES = 2.5     # ... for two units in 8 bits
cdef double CHAIN_ROWS_SHORT = 0.75    # factor of lines of one unit in 8 bits, of which two are decoded together
cdef double CHAIN_DECODED = 0.056      # ... for an 8-bit code that is decoded, or one of 16 bits to a float; one of 8 bits counts three times

# Weights gradients whose lanes are channels at several taps

cdef double BLOCKS_JOINED = 1.15       # factor of products whose sums are taken in blocks, which are joined in memory
cdef double TAP_MOVED = 0.6            # cycles for a number that is transposed to a block

cdef double TAP_PAIRS_JOINED = 0.64    # factor of products in pairs, half of the time beside estimates of the general product, which are
                                       # as low (machine 1, "Weights gradients of narrow groups")
cdef double TAP_PAIRS_MOVED = 0.4      # cycles for a number that is transposed to a block of pairs
cdef double TAP_PAIRS_LINE = 200       # ... for a line of the small side


cdef double peak_cycles(const Problem* q) noexcept nogil:
    """All products at the full rate of fused multiply-adds."""
    return q.work / (VECTORS_A_CYCLE * q.isa.width)


cdef inline double number_cycles(const Product* p, const instruction_set* isa) noexcept nogil:
    """Cycles for one step of the reduction and one row."""
    return MATRIX_NUMBER if on_matrix(p.pairs) else 1.0 / (VECTORS_A_CYCLE * isa.width)


cdef inline int what_waits() noexcept nogil:
    """LOADS, STORES or NOTHING_KNOWN; rates are looked at once."""
    global wait_found
    cdef const product_rates* measured
    if wait_found == NOT_ASKED:
        measured = measured_rates()
        wait_found = NOTHING_KNOWN if measured == NULL else LOADS if vectors_a_cycle(measured) > LOADS_WAIT else STORES
    return wait_found


cdef inline bint loads_wait() noexcept nogil:
    """Whether multiply-adds begin as fast as loads, as far as is known: tiles with a load for each of them wait."""
    return what_waits() == LOADS


cdef inline bint stores_wait() noexcept nogil:
    """Whether units are half as wide as a vector of 16 lanes, as far as is known: one product begins in a cycle, and a store takes the
    time of two."""
    return what_waits() == STORES


cdef double far_results(const Problem* q) noexcept nogil:
    """Cycles that results take which are stored in pieces of a line (machine 1)."""
    cdef double results = 0
    cdef int64_t i
    for i in range(q.count):
        results += <double>q.products[i].columns * q.products[i].G * q.products[i].R
    return FAR_RESULTS * results if stores_wait() and results * element_size(q.products.output.format) > NEAR_RESULTS else 0


cdef inline double narrow_panels(int64_t vectors, const instruction_set* isa) noexcept nogil:
    """A factor of products of so many vectors, in as few panels as possible."""
    cdef int64_t width = ceiling(vectors, ceiling(vectors, isa.vectors))
    return 1 if width >= isa.vectors else ONE_VECTOR if width == 1 else TWO_VECTORS


cdef inline double moved_cycles(const Product* p) noexcept nogil:
    """Cycles for one number that is copied."""
    return PAIRS_MOVED if on_matrix(p.pairs) else NUMBER_MOVED


cdef inline double narrow_moved(const instruction_set* isa) noexcept nogil:
    """Cycles that a number takes more to gather where panels are narrower than a block of lanes."""
    return NARROW_MOVED if isa.vectors * isa.width < TILE_LANES else 0


cdef inline double strided_moved(const Product* p) noexcept nogil:
    """Cycles that a number takes more to gather where a line has a stride."""
    return 0 if p.step[2] == 1 else STRIDED_MOVED if p.step[2] == 2 else SCATTERED_MOVED


cdef inline double pack_cycles(const Product* p) noexcept nogil:
    """Cycles for one packed weight of a row panel, or a pair of them."""
    return PACK_CYCLES if p.pairs == NULL or on_matrix(p.pairs) else PACK_PAIRS


cdef inline double number_quarters(const pair_functions* pairs) noexcept nogil:
    """Quarters of a cycle for one term of a vector of sums."""
    return FLOAT_QUARTERS if pairs == NULL else MATRIX_QUARTERS if on_matrix(pairs) else PAIR_QUARTERS
