"""What the plan of a weights gradient as a product holds, and the buffers of its threads.

uses: engine/ahead.pxi (Ahead), engine/product/pairs.pxi (on_matrix), engine/weights/gradient.pxi (LineReach, Row,
    Weights), engine/weights/line_runs.pxi (keeps_runs, most_line_runs), engine/weights/lines.pxi (KEPT_PIECES,
    KEPT_TAPS, LINE_GAPS, LINE_TILES), engine/weights/matrix_rows.pxi (lay_out_matrix_scratch),
    engine/weights/share_work.pxi (own_floats, own_levels), engine/weights/shared_chunks.pxi (shared_runs),
    engine/weights/windows.pxi (window_rows, window_segments)
gives: Chunk, DISTINCT_PARTS, FAR_SUMS_BYTES, FRAME_BYTES, LANES_BYTES, LANE_FLOATS, LEVELS_BYTES, LinePatch,
    LineTile, MOST_LEVELS, MOST_PATCHES, MatrixRows, NEAR_SUMS_BYTES, NextLines, PAIR_LANES, PARTIAL_BYTES,
    RINGS_BYTES, RING_BYTES, STORED_BYTES, Segment, SharedChunk, SharedTaps, WaitingSums, WeightsPart, WeightsPlan,
    WeightsScratch, Window, WindowRow, first_lane, lay_out_weights_scratch, note_shares, panel_floats, panel_vectors,
    strand_tiles, tile_rows, tile_start
"""

cdef enum:
    PAIR_LANES = 48            # whose products in pairs save what it takes to lay out a row of which every other position is met
    LANE_FLOATS = 9216         # of a lane panel: fits the nearest cache
    LANES_BYTES = 1 << 19      # all lane panels of a task, and at most half of the middle cache
    FRAME_BYTES = 1 << 18      # the framed block of the large side
    NEAR_SUMS_BYTES = 3 << 17  # of a task
    FAR_SUMS_BYTES = 3 << 16   # ... and of its pieces that wait for others, above which products take longer
    STORED_BYTES = 1 << 17     # stored together, of a single piece
    LEVELS_BYTES = 4 << 20     # of a task, while its pieces are joined
    RING_BYTES = 1 << 20       # rings of the channels of a tile; all of a task that keep what a block of pieces meets
    RINGS_BYTES = 1 << 19      # rings of a task that go on from chunk to chunk
    PARTIAL_BYTES = 48 << 20   # of all blocks that wait
    DISTINCT_PARTS = 16        # parts of panels, each number of which is weighed: of more, numbers a sixteenth apart
    MOST_PATCHES = 16          # of a line for each tap
    MOST_LEVELS = 4            # a block is at most so large a power of two


cdef struct WaitingSums:
    int64_t levels         # 2**levels pieces are a block
    int64_t blocks
    bint at_once           # a task has all pieces and stores
    int64_t panels         # of a row tile: sums lie [tile][panel] from the first of a task on
    int64_t task_floats    # of one task with a part of the rows
    int64_t whole          # blocks whose rows are one task each, so that lanes are packed once: as many as come out even; or 0
    int64_t together       # strands that are stored together while a single piece is summed, 0 if there are several


cdef struct WeightsPart:  # of the result
    int64_t g
    int64_t first_strand
    int64_t end_strand
    int64_t first_panel
    int64_t end_panel


cdef struct Chunk:  # positions of a piece that are packed together
    int64_t count
    int64_t row_count     # lines that they are cut into
    const tile_run* runs  # of them for a tile, where all its rows have the same
    int64_t run_count
    bint resume           # the sums were begun with earlier chunks
    int64_t gap           # lines: behind the segments that the runs are cut for, or -1
    LineReach outer       # mixed tiles: where a tap at 0 meets the large side, from the lowest and the highest of the positions
    LineReach reach       # ... of the tiles that have these runs


cdef struct NextLines:  # lines of an operand that the next chunk takes: tiles ask for them
    tile_wish wish       # of some channels
    int64_t channel      # the first that nothing has asked for, of the part's
    int64_t channels
    int64_t at_once


cdef struct LinePatch:  # a block of positions in which a segment ends
    int64_t place     # the first of them
    int64_t met       # so many lie in the segment
    int64_t segment   # which one


cdef struct SharedTaps:  # along an axis: taps t, t + period, ... meet the same numbers, each `apart` positions after the one before
    int64_t axis    # 1, of planes that are one line 2, of small volumes 0
    int64_t period  # K of the axis where none share
    int64_t apart
    line_piece* pieces    # of all taps, or NULL: each is cut when it is laid out ...
    int64_t* first_piece  # ... where those of each group of taps begin
    int64_t patch_count   # of blocks that are laid out once more for each tap: engine/weights/line_runs.pxi ...
    int64_t patch_place   # ... from this number of a line on
    LinePatch patches[MOST_PATCHES]


cdef struct WindowRow:  # where a row (t, c) lies in a window
    int64_t column
    int64_t offset          # of the pair at position 0, in bytes


cdef struct Segment:  # positions of a window in one plane: whole lines
    int64_t n
    int64_t y0
    int64_t y1
    int64_t lines
    int64_t first           # position of the first line
    int64_t start           # number of a column where it lies


cdef struct Window:  # of a thread: engine/weights/windows.pxi
    int64_t g
    int64_t first           # positions [first, end)
    int64_t end
    int64_t number          # of windows so far
    int64_t* laid_out       # the last window of which each column was laid out
    char* numbers
    Segment* segments
    int64_t segment_count


cdef struct LineTile:  # a row tile of one tap whose lines are laid out
    int64_t tile
    int64_t rows
    int64_t offsets[LINE_TILE_ROWS]  # of the first pair of each, in bytes
    tile_run* runs
    int64_t run_count


cdef struct SharedChunk:  # what tasks need of a chunk that all of them meet: engine/weights/shared_chunks.pxi
    Row* rows
    int64_t row_count
    SharedTaps shared
    line_piece* pieces
    int64_t* first_piece
    tile_run* met_runs
    int64_t* met_counts
    float* lanes           # [group][panel]


cdef struct MatrixRows:  # rows for a matrix unit: engine/weights/matrix_rows.pxi
    int64_t panels         # row tiles that meet the lanes together, at most
    int64_t floats         # of all of them, or of a frame
    int64_t parts          # of lines that are cut at a time, at most
    bint framed            # taps share frames: engine/weights/matrix_frames.pxi
    int64_t period[3]      # ... along axes 1 and 2 taps t, t + period, ...
    int64_t shared[3]      # ... so many of them, at most
    int64_t apart[3]       # ... whose numbers lie so many positions behind those of the tap before
    int64_t line           # positions of a line of a frame
    int64_t halo           # positions of the last tap beyond those of the first
    int64_t row_floats     # of a channel
    int64_t rows           # of positions, at most
    int64_t frame_parts    # of lines, at most
    double share           # of a frame and its patches in what it takes to pack the rows of all taps


cdef struct WeightsScratch:  # of one thread
    NextLines next_lines[2]  # of the small side and of the large one
    Ahead ahead            # lines of the small side that the next chunk packs, where tiles take no wish
    float* lanes
    float* sums            # of its task
    float* block
    Row* rows
    tile_run* runs
    tile_run* met_runs     # of a chunk those that each tap meets, or of lines those of row tiles ...
    int64_t* met_counts    # ... and how many of each tap
    LineTile* line_tiles
    float* masks
    SharedTaps shared      # of the chunk ...
    int64_t kept_chunk[2]  # ... whose first and last position these are
    line_piece* pieces     # of its lines ...
    int64_t piece_room     # ... so many of all taps, at most, are kept
    int64_t* first_piece   # of each tap
    Window window
    void* codes            # blocks
    line_part* parts       # on a matrix unit: of the lines that taps meet, in the blocks of a chunk ...
    int64_t* offsets       # ... where the rows of each block of a row tile begin
    Row* framed_positions  # ... and the positions of frames
    int64_t* row_starts    # ... where each row of the chunk begins
    bint unbounded         # the small side's numbers of a chunk, of which some meet the outside of the large side
    bint met_unbounded     # ... of any chunk
    int64_t kept_start     # what the rings hold: the first channel, as an element of the large side ...
    int64_t kept_channels  # ... how many
    int64_t kept_first     # ... numbers of each
    int64_t kept_end
    uint16_t smallest_large
    uint16_t smallest_small


cdef struct WeightsPlan:
    reduction_cut cut
    int64_t positions            # of the reduction
    bint framed                  # rows come from a block of floats
    bint by_taps                 # ... that has the numbers of a tap side by side: engine/weights/frames.pxi
    bint joined                  # ... or each line once for all rows of a plane that meet it
    bint kept                    # ... which are rings: engine/weights/kept.pxi
    bint mixed                   # row tiles mix taps
    bint blocks                  # sums are taken in blocks of positions
    bint packed                  # ... and rows are packed: engine/weights/blocks.pxi
    bint lines                   # ... as lines: engine/weights/lines.pxi
    bint windows                 # ... of a window: engine/weights/windows.pxi
    bint tall                    # row tiles of one vector, of up to TALL_ROWS channels of a tap
    int64_t window_positions     # that it holds, at most
    WindowRow* window_rows
    Weights windowed             # the gradient as windows see it
    int64_t columns
    int64_t column_bytes
    int64_t phases               # residues of t1*d1 modulo the stride
    int64_t overlap              # lines of a column beyond those of a plane's positions
    const pair_functions* pairs  # whose steps of the reduction are pairs of positions, or NULL
    int64_t rows                 # of a row tile, at most
    int64_t row_unit             # tiles of one tap begin at a multiple of so many channels
    int64_t steps                # of a chunk, at most
    bint padded                  # some tap meets a position outside
    int64_t taps
    int64_t tap_tiles            # row tiles of one tap, unless mixed
    int64_t row_tiles
    int64_t strands              # row tiles of all taps of some channels; mixed: row tiles
    int64_t vectors              # of the lanes
    int64_t panels
    int64_t chunk                # positions packed at a time
    int64_t row_parts
    int64_t panel_parts
    int64_t tile_floats
    WaitingSums sums
    int64_t extent               # of the framed block: x2, or positions of a tap ...
    int64_t plane_floats         # ... [line][x2] of one t0
    int64_t row_floats           # ... of all t0, of one row of a chunk, or if they are joined of all rows of a plane
    int64_t channel_floats       # ... of all its rows
    int64_t channels             # ... how many, in tiles
    int64_t ring                 # numbers that a ring holds
    int64_t* tap_offsets         # in the result
    int64_t* first_vectors       # of lane panels
    int64_t* tile_firsts         # channels with which the tiles of a tap begin; mixed: rows
    int64_t line_bytes           # of a row that is a line
    int64_t line_groups          # row tiles whose lines are laid out together, each for all taps that share them
    MatrixRows matrix            # on a matrix unit
    int64_t code_bytes           # of lines laid out before they are packed in blocks
    int64_t piece_chunks         # of a piece, at most
    bint shared                  # lanes and pieces of all chunks are there before tasks begin
    SharedChunk* chunks          # [piece][chunk]
    double quarters              # of cycles, for a position of a group
    int64_t groups_at_once       # whose sums wait together ...
    int64_t row_parts_at_once
    int64_t waiting_bytes
    WeightsScratch* scratch
    float* waiting               # ... here


cdef void lay_out_weights_scratch(WeightsScratch* s, const Weights* w, const WeightsPlan* plan, const instruction_set* isa,
                                  workspace* memory) noexcept nogil:
    """The buffers of one thread."""
    cdef int64_t masked
    s.lanes = <float*>take(memory, 0 if plan.shared else 4 * ceiling(plan.panels, plan.panel_parts) * panel_floats(plan, isa) + 64)
    s.sums = <float*>take(memory, 4 * own_levels(&plan.sums) * own_floats(plan, &plan.sums))
    s.block, s.codes = NULL, NULL
    s.rows = <Row*>take(memory, (plan.chunk + 1) * sizeof(Row))
    s.runs = <tile_run*>take(memory, (plan.chunk + 1) * sizeof(tile_run))
    if plan.lines and not plan.windows:
        s.met_runs = <tile_run*>take(memory, (plan.taps if keeps_runs(plan) else LINE_TILES) * most_line_runs(plan) * sizeof(tile_run))
        s.met_counts = <int64_t*>take(memory, KEPT_TAPS * sizeof(int64_t))
        s.line_tiles = <LineTile*>take(memory, LINE_TILES * sizeof(LineTile))
        s.piece_room = KEPT_PIECES
        s.pieces = <line_piece*>take(memory, max(s.piece_room, (LINE_GAPS + 2) * plan.chunk) * sizeof(line_piece))
        s.first_piece = <int64_t*>take(memory, (KEPT_TAPS + 1) * sizeof(int64_t))
    elif not plan.packed and not plan.mixed and not plan.shared and keeps_runs(plan):
        s.met_runs = <tile_run*>take(memory, plan.taps * shared_runs(w, plan) * sizeof(tile_run))
        s.met_counts = <int64_t*>take(memory, plan.taps * sizeof(int64_t))
    if plan.packed:
        s.codes = take(memory, plan.code_bytes + 64)
        s.block = <float*>take(memory, 64 + (4 * plan.matrix.floats if on_matrix(plan.pairs)
                                             else plan.rows * (plan.line_bytes * plan.line_groups if plan.lines else 4 * plan.steps)))
        if on_matrix(plan.pairs):
            lay_out_matrix_scratch(s, w, plan, memory)
        s.window.numbers = <char*>take(memory, plan.columns * plan.column_bytes if plan.windows else 0)
        s.window.laid_out = <int64_t*>take(memory, plan.columns * sizeof(int64_t) if plan.windows else 0)
        s.window.segments = <Segment*>take(memory, window_segments(w, plan.window_positions) * sizeof(Segment) if plan.windows else 0)
        masked = plan.chunk if plan.padded and plan.pairs == NULL else 0
        s.masks = <float*>take(memory, 4 * masked * isa.vectors * isa.width)
    elif plan.framed:
        s.block = <float*>take(memory, 4 * plan.channel_floats * min(w.C, plan.channels * plan.rows) + 64)
    s.smallest_large = s.smallest_small = 0xffff
    s.kept_start = s.kept_chunk[0] = -1
    s.met_unbounded = False


cdef inline int64_t panel_floats(const WeightsPlan* plan, const instruction_set* isa) noexcept nogil:
    return plan.steps * isa.vectors * isa.width + isa.width


cdef void note_shares(const Weights* w, const instruction_set* isa, WeightsPlan* plan) noexcept nogil:
    """Where lane panels and row tiles begin."""
    cdef int64_t i
    cdef bint full = plan.lines and plan.panel_parts == 1 and plan.panels == ceiling(plan.vectors, isa.vectors)
    check_room(b"note_shares", plan.first_vectors, (plan.panels + 1) * sizeof(int64_t))
    check_room(b"note_shares", plan.tile_firsts, (plan.strands + 1) * sizeof(int64_t))
    for i in range(plan.panels + 1):
        plan.first_vectors[i] = min(plan.vectors, i * isa.vectors) if full else share(plan.vectors, plan.panels, i)
    for i in range(plan.strands + 1):
        plan.tile_firsts[i] = (share(w.C * plan.taps, plan.row_tiles, i) if plan.mixed
                               else min(w.C, share(ceiling(w.C, plan.row_unit), plan.tap_tiles, i) * plan.row_unit))


cdef inline int64_t first_lane(const WeightsPlan* plan, const instruction_set* isa, int64_t panel) noexcept nogil:
    return plan.first_vectors[panel] * isa.width


cdef inline int64_t panel_vectors(const WeightsPlan* plan, int64_t panel) noexcept nogil:
    return plan.first_vectors[panel + 1] - plan.first_vectors[panel]


cdef inline int64_t strand_tiles(const WeightsPlan* plan) noexcept nogil:
    return 1 if plan.mixed else plan.taps


cdef inline int64_t tile_start(const Weights* w, const WeightsPlan* plan, int64_t tile) noexcept nogil:
    """The first row (t, c) of a row tile; unless mixed, tiles of all taps of some channels follow one another."""
    if plan.mixed:
        return plan.tile_firsts[tile]
    return tile % plan.taps * w.C + plan.tile_firsts[tile // plan.taps]


cdef inline int64_t tile_rows(const WeightsPlan* plan, int64_t tile) noexcept nogil:
    cdef int64_t strand = tile // strand_tiles(plan)
    return plan.tile_firsts[strand + 1] - plan.tile_firsts[strand]
