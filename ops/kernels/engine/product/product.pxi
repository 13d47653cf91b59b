"""The problem of `forward` and of each stride class of `backward_data`: a product, and what its algorithms share.

    out[n,g,r,q] = SUM over tap, d   in[n,g,d,q*step + offset(tap)] * weights[g,r,d,tap]

Rows of the product are output channels r, columns are (n, q) flattened, its reduction is (tap, d) in the order of the
definition.

uses: core/problem.pxi (Operand)
gives: BLOCK, Fragment, LINE_BYTES, Piece, PositionClass, Product, ProductScratch, ROW_BYTES, STEPS, SUM_BYTES, Stretch,
    Tap, are_far, biases, next_panel, row_panels, staggered
"""

cdef enum:
    STEPS = 128              # reduction steps of a lane panel: 128 x 48 floats and a row panel fit the nearest cache
    ROW_BYTES = 6 << 20      # packed weights per thread, and sums kept from pass to pass
    SUM_BYTES = 1 << 19      # scratch sums of a task
    NEAR_BYTES = 1 << 19     # packed weights that stay in the middle cache while one column panel after another uses them
    BLOCK = 4                # column panels of a task, at most
    LINE_BYTES = 64          # of a cache


cdef struct Tap:
    int64_t offset[3]  # input position = output position * step + offset
    int64_t shift      # of its lanes in a laid-out block, where there is one


cdef struct PositionClass:  # output positions that meet the same taps, a box (engine/product/position_classes.pxi)
    int64_t column      # the first
    int64_t q[3]        # its position
    int64_t extent[3]


cdef struct Product:  # out[n,g,r,q] = SUM over tap, d   in[n,g,d,q*step + offset] * weights[g,r,d,tap]
    int64_t N
    int64_t G
    int64_t R
    int64_t D
    int64_t Q[3]             # output positions
    int64_t I[3]             # input positions
    int64_t step[3]
    int64_t all_count
    Tap* all_taps            # in the order of the sum
    int64_t* all_offsets     # where their weights begin
    bint padded              # some tap meets a position outside
    const pair_functions* pairs  # whose steps of the reduction are pairs of bfloat16 channels, or NULL
    bint blocks              # sums are taken in blocks (core/reduction.h)
    int64_t block            # steps of one, or 1
    int64_t S                # steps of a tap
    int64_t rows             # of a row panel, at most
    Operand input
    Operand output
    Operand weights          # n: between rows, g: between groups, c: between channels d
    const float* bias        # of G*R rows, or NULL; doubles where the product is in float64
    const result_cell* cell  # neighbours of every output, or NULL where others store them
    # plan
    int64_t tap_count        # of the pass
    Tap* taps
    int64_t* tap_offsets
    PositionClass* position_classes  # in the order of the columns
    int64_t class_count
    int64_t pieces           # classes that a line is cut into
    double met               # share of the pairs (position, tap) that is computed: classes leave out the others
    int64_t columns
    int64_t panels
    int64_t tasks            # in float64
    int64_t tap_floats       # packed weights of one row panel from a tap to the next
    int64_t panel_size       # ... of all taps
    bint started             # its sums were begun with earlier taps and wait in `kept`
    bint unfinished          # ... or wait there for later ones
    float* kept              # tiles [group][row panel][column panel], or NULL where one pass takes all taps


cdef struct Fragment:  # lanes of a column panel whose positions differ in the innermost axis only
    int64_t lane
    int64_t count
    int64_t n
    int64_t q[3]


cdef struct Piece:  # steps of the reduction: channels [first, end) of one tap
    int64_t tap
    int64_t first
    int64_t end


cdef struct Stretch:  # runs [first_run, end_run) of a column panel, of which vectors [low, high) meet the input
    int64_t first_run
    int64_t end_run
    int64_t low
    int64_t high


cdef struct ProductScratch:  # of one thread
    float* block       # laid out (engine/product/laid_out.pxi)
    int64_t filled     # the task whose block that is
    int64_t ran        # the task that it served last
    float* next_block  # the next block
    copy_move* moves
    copying meanwhile  # what tiles lay out there
    tile_result result
    float* lanes
    float* masks       # of the lanes
    float* sums
    Fragment* fragments
    int64_t* fragment_count
    lane_span* spans
    Piece* pieces
    tile_run* runs
    tile_run* near_runs
    Stretch* stretches
    half_run* halves
    uint16_t smallest  # magnitude of a bfloat16 met in the input, less one
    uint16_t smallest_weight


cdef inline int64_t row_panels(const Product* p) noexcept nogil:
    return ceiling(p.R, p.rows)


cdef inline bint are_far(int64_t floats) noexcept nogil:
    """Whether so many packed weights do not stay in the middle cache."""
    return 4 * floats > NEAR_BYTES


cdef inline int64_t next_panel(const Product* p, int64_t panels) noexcept nogil:
    """How far the next of so many packed row panels is from the last where it must be asked for, else 0."""
    return p.panel_size if are_far(panels * p.panel_size) else 0


cdef inline const float* biases(const Product* p, int64_t g, int64_t row) noexcept nogil:
    """The biases of the rows of a group from `row` on, or NULL."""
    if p.bias == NULL:
        return NULL
    return p.bias + g * p.R + row


cdef inline int64_t staggered(int64_t floats) noexcept nogil:
    """The distance between panels of so many floats: never one at which all of them fall into one set of the cache."""
    return floats + 16 if floats % 1024 == 0 else floats
