"""How `weights_tap_lanes` divides a problem: taps of a line as lanes, positions that are laid out together, row tiles in parts.

uses: engine/weights/gradient.pxi (Row, Weights, reaches_outside), engine/weights/make_plan.pxi (EVEN_TILES),
    engine/weights/positions.pxi (most_rows)
gives: PADDED_STEPS, TAP_CHANNELS, TAP_LINES, TAP_SUMS_BYTES, TAP_WASTE, TRANSPOSED_STEPS, TapLanes, TapLanesScratch,
    block_bytes, block_lines, first_column, met_columns, most_tap_runs, plan_tap_lanes, row_columns
"""

cdef enum:
    TAP_BLOCK_BYTES = 1 << 18  # of the large side: stays in the middle cache
    TAP_SUMS_BYTES = 3 << 20   # of a thread, all pieces
    TAP_LINES = 128            # of taps, at most
    TAP_CHANNELS = 4           # fewer are stored one by one: first layers of sound alone have them
    TAP_WASTE = 2              # of one group: channels beside which `weights_product` computes one lane in vain, at most
    TRANSPOSED_STEPS = 4       # from which on `gather` transposes, and stores no more than it is asked for
    PADDED_STEPS = 16
    TILE_CHUNK = 512           # positions of rows that are decoded for a tile: they stay in the nearest cache


cdef struct TapLanesScratch:  # of one thread
    float* block        # [plane][t0][line][x2][c]
    float* small        # [m][position], where it is decoded
    float* sums         # [piece][tap line][m][tap][c]
    float* exact        # of a tile and one tap
    float* stored       # [c][tap] of one m
    float* padded       # some positions of the large side, in whole vectors
    Row* rows           # of the chunk ...
    int64_t* places     # ... where the large side's line of tap (0, 0) begins in the block
    int64_t* planes     # ... and how far it is to that of the next t0
    half_run* runs
    lane_span* spans


cdef struct TapLanes:
    bint blocks         # sums are taken in blocks of positions
    bint decoded        # the small side is ...
    bint by_tiles       # ... for a row tile at a time, which meets a single tap line
    bint framed         # some tap meets a position outside along the innermost axis
    bint windows        # a chunk is shorter than a line: what each of its rows meets is laid out by itself
    int64_t taps        # of a tap line, side by side
    int64_t tap_lines
    int64_t lanes       # of a tap line
    int64_t pitch       # floats from one m to the next
    int64_t line        # floats of one that is laid out
    int64_t positions
    int64_t chunk       # positions laid out at a time
    int64_t small_pitch
    int64_t row_tiles
    int64_t parts       # of the row tiles
    int64_t sums        # floats of a piece of a task
    TapLanesScratch* scratch


cdef inline double met_columns(const Weights* w, int64_t positions) noexcept nogil:
    """Of a line of the large side, by so many positions, of which a line may have fewer."""
    return (min(positions, w.Y[2]) - 1) * <double>w.s[2] + (w.K[2] - 1) * <double>w.d[2] + 1


cdef double block_lines(const Weights* w, int64_t chunk) noexcept nogil:
    """Of so many positions, at most."""
    cdef double rows = <double>chunk / w.Y[2] + 2, planes = min(rows, rows / w.Y[1] + 2), taps = (w.K[1] - 1) * <double>w.d[1] + 1
    return w.K[0] * (2 * taps if chunk < w.Y[2] else rows * w.s[1] + planes * taps)


cdef inline double block_bytes(const Weights* w, int64_t chunk) noexcept nogil:
    return 4 * met_columns(w, chunk) * w.C * block_lines(w, chunk)


cdef inline int64_t first_column(const Weights* w, const TapLanes* p, const Row* row) noexcept nogil:
    """That is laid out of the lines which a row of a chunk meets."""
    return row.y[2] * w.s[2] if p.windows else 0


cdef inline int64_t row_columns(const Weights* w, const TapLanes* p, const Row* row) noexcept nogil:
    """So many are laid out of them."""
    return <int64_t>met_columns(w, row.count if p.windows else w.Y[2])


cdef inline int64_t most_tap_runs(const Weights* w, const TapLanes* p) noexcept nogil:
    return most_rows(w, p.chunk) + (p.chunk // HALF_BLOCK + 1 if p.blocks else 0)


cdef bint plan_tap_lanes(const Weights* w, const instruction_set* isa, int threads, TapLanes* p) noexcept nogil:
    cdef int64_t unit
    cdef double sum_bytes
    p.positions = w.N * w.Y[0] * w.Y[1] * w.Y[2]
    if p.positions == 0 or w.X[0] * w.X[1] * w.X[2] == 0:
        return False
    p.blocks = positions_in_blocks(w.cut.chains, w.large.format, w.small.format)
    p.decoded = w.small.format != NUMBER_FLOAT32 or w.small.x[2] != 1
    p.framed = reaches_outside(w, 2)
    p.taps = w.K[2] if w.d[2] == 1 else 1
    p.lanes = p.taps * w.C
    p.pitch = ceiling(p.lanes, isa.width) * isa.width
    sum_bytes = 4.0 * w.K[0] * w.K[1] * (w.K[2] // p.taps) * w.M * p.pitch * w.cut.pieces
    if <double>w.K[0] * w.K[1] * w.K[2] > TAP_LINES or sum_bytes > TAP_SUMS_BYTES:
        return False
    p.tap_lines = w.K[0] * w.K[1] * (w.K[2] // p.taps)
    p.by_tiles = p.decoded and p.tap_lines == 1
    unit = SUM_BLOCK if p.blocks else 1
    p.chunk = ceiling(min(p.positions, w.cut.length), unit) * unit
    if p.by_tiles:
        p.chunk = min(p.chunk, TILE_CHUNK)
    while block_bytes(w, p.chunk) > TAP_BLOCK_BYTES and p.chunk > unit:
        p.chunk = ceiling(p.chunk, 2 * unit) * unit
    if block_bytes(w, p.chunk) > 4 * TAP_BLOCK_BYTES or p.chunk < min(p.positions, <int64_t>SUM_BLOCK):
        return False
    p.windows = p.chunk < w.Y[2]
    p.line = <int64_t>met_columns(w, p.chunk) * w.C
    p.small_pitch = p.chunk + isa.width
    p.row_tiles, p.parts = ceiling(w.M, isa.rows), 1
    if w.G * p.row_tiles < EVEN_TILES * threads:
        p.row_tiles = min(w.M, ceiling(p.row_tiles, threads) * threads)
    if threads > 1:  # each part lays out the taps: two tiles of a thread share them
        p.parts = threads if w.G == 1 and p.row_tiles == 2 * threads else min(p.row_tiles, ceiling(2 * threads, w.G))
    p.sums = p.tap_lines * min(w.M, ceiling(p.row_tiles, p.parts) * isa.rows) * p.pitch
    return True
