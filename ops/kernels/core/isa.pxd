"""What an instruction set offers the engine: `core/isa.h`, for Cython."""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t

cdef extern from "core/isa.h" nogil:
    enum:
        TILE_ROWS
        TALL_ROWS
        TILE_VECTORS
        TILE_LANES
        DOT_LANES
        DOT_TAPS
        LINE_PIECE
        DOT_TILE
        DOT_LARGE
        NCX_ROWS
        NCX_SLOTS
        NCX_COLUMNS
        LINE_TILE_ROWS
        SEGMENT_LENGTH
        SEGMENT_BLOCK_LENGTH
        SEGMENT_PANELS_LENGTH
        SEGMENT_CHAIN
        SEGMENT_ONE_HALF
        SEGMENT_BLOCKS
        PLANE_TAPS
        PLANE_OUTPUTS
        PLANE_WIDTHS
    int64_t NO_ELEMENT
    int64_t pair_channel(int64_t step, int apart)
    int64_t pair_steps(int64_t channels, int apart)
    ctypedef struct tile_run:
        Py_ssize_t rows
        Py_ssize_t lanes
        Py_ssize_t steps
    ctypedef struct lane_span:
        int64_t lane
        int64_t count
        int64_t offset
        int64_t step
    ctypedef struct half_run:
        tile_run run
        int64_t halves
    ctypedef struct copy_move:
        int64_t source
        int32_t place
        uint16_t mask
    ctypedef struct copying:
        const copy_move* moves
        int64_t move_count
        int64_t done
        int64_t left
        const char* source
        float* place
        Py_ssize_t source_step
        Py_ssize_t place_step
        Py_ssize_t ahead
        int format
        float rate
        float credit
    ctypedef struct tile_wish:
        char* place
        Py_ssize_t row_step
        int64_t rows
        int64_t parts
        Py_ssize_t reach
        int64_t offsets[48]  # TILE_LANES
    ctypedef struct tile_result:
        tile_wish wish
        bint direct
        bint together
        int apart
        const float* bias
        int64_t first[4]  # TILE_VECTORS + 1
        uint16_t masks[48]  # TILE_LANES
    ctypedef void (*tile_function)(
        const tile_run*, Py_ssize_t, const float*, Py_ssize_t, const float*, Py_ssize_t, float*, int, copying*,
        const tile_result*) noexcept
    ctypedef void (*halves_function)(
        const half_run*, Py_ssize_t, const float*, const float*, Py_ssize_t, float*, copying*) noexcept
    ctypedef void (*copy_function)(copying*) noexcept
    ctypedef void (*strided_function)(
        const tile_run*, Py_ssize_t, const float*, const int64_t*, Py_ssize_t, const float*, Py_ssize_t, float*, int,
        const tile_wish*) noexcept
    ctypedef void (*tall_function)(
        const tile_run*, Py_ssize_t, const float*, Py_ssize_t, Py_ssize_t, const float*, Py_ssize_t, float*, int) noexcept
    ctypedef void (*line_blocks_function)(
        int, int, const tile_run*, Py_ssize_t, const char*, const int64_t*, const float*, Py_ssize_t, float*, int) noexcept
    ctypedef struct plane_lines:
        int64_t lines
        int64_t first
        int64_t end
        int64_t count
        int64_t low
        int64_t high
        int64_t line_step
        int64_t step
    ctypedef struct line_piece:
        int64_t source
        int64_t further
        int32_t place
        int32_t count
        int32_t low
        int32_t high
        uint32_t mask
        int32_t more
        int32_t each
    ctypedef void (*lay_lines_function)(
        char*, Py_ssize_t, int64_t, const line_piece*, int64_t, const void*, int, int64_t, int64_t, uint16_t*) noexcept
    ctypedef void (*patch_lines_function)(char*, Py_ssize_t, int64_t, int64_t, int64_t, int64_t, int64_t) noexcept
    ctypedef void (*lay_plane_function)(char*, const plane_lines*, const void*, int, uint16_t*) noexcept
    ctypedef void (*lay_planes_function)(char*, Py_ssize_t, int64_t, const plane_lines*, const void*, int, uint16_t*) noexcept
    ctypedef void (*dot_function)(
        float*, const float*, const int64_t*, Py_ssize_t, const float*, Py_ssize_t, int64_t, int64_t, const float*) noexcept
    ctypedef void (*tap_lanes_function)(
        const half_run*, Py_ssize_t, const float*, const int64_t*, Py_ssize_t, const float*, Py_ssize_t, float*, Py_ssize_t,
        int, const tile_wish*) noexcept
    ctypedef void (*dot_tile_function)(
        float*, Py_ssize_t, Py_ssize_t, const void*, int, Py_ssize_t, Py_ssize_t, const float*, Py_ssize_t, Py_ssize_t, int64_t,
        int64_t) noexcept
    ctypedef void (*line64_function)(double*, const double*, Py_ssize_t, double, int64_t) noexcept
    ctypedef void (*tile64_function)(
        const tile_run*, Py_ssize_t, const double*, const int64_t*, Py_ssize_t, const double*, double*) noexcept
    ctypedef void (*dot64_function)(double*, const double*, const double*, Py_ssize_t, Py_ssize_t) noexcept
    ctypedef void (*line_function)(
        const tile_run*, Py_ssize_t, const float*, const float*, Py_ssize_t, Py_ssize_t, int64_t, int64_t, float*, Py_ssize_t,
        float) noexcept
    ctypedef struct ncx_row:
        int64_t kind
        int64_t masks
        int64_t place
        int64_t weights
        int64_t first_step
        int64_t steps
    ctypedef void (*ncx_function)(
        const ncx_row*, int64_t, int, int, const float* const*, const uint16_t*, const int64_t*, const float*, Py_ssize_t,
        float, char* const*, const uint16_t*, int64_t) noexcept
    ctypedef struct ncx_masks:
        uint16_t inside[5]  # NCX_COLUMNS
        uint16_t all
        uint16_t loaded
    ctypedef void (*ncx_weights_function)(
        int, float*, Py_ssize_t, const void*, Py_ssize_t, const int64_t*, int, const void*, Py_ssize_t, int64_t, int64_t, int64_t,
        int64_t, int64_t, const ncx_masks*, int64_t, unsigned) noexcept
    ctypedef void (*weave_function)(void*, int, int64_t, int64_t, const float*, Py_ssize_t, int64_t, const float*) noexcept
    ctypedef void (*load_planes_function)(float*, int64_t, const void*, int, int64_t, int64_t) noexcept
    ctypedef void (*store_planes_function)(void*, int, int64_t, int64_t, const float*, int64_t, const float*) noexcept
    ctypedef struct plane_row:
        int64_t line
        int64_t first
        int64_t weights
        int64_t taps
    ctypedef void (*planes_function)(
        const plane_row*, int64_t, const float*, int64_t, int64_t, int, const float*, float*, Py_ssize_t) noexcept
    ctypedef void (*dilated_planes_function)(
        const plane_row*, int64_t, const float*, int64_t, int64_t, int64_t, const float*, float*, Py_ssize_t) noexcept
    ctypedef void (*planes_weights_function)(
        float*, Py_ssize_t, const float*, Py_ssize_t, Py_ssize_t, const float*, Py_ssize_t, Py_ssize_t, int64_t, int64_t, int64_t,
        int64_t, int64_t) noexcept
    ctypedef struct plane_functions:
        load_planes_function load
        store_planes_function store
        planes_function sums[7]  # PLANE_WIDTHS
        dilated_planes_function dilated[7]
        planes_weights_function weights[2][7][7]  # PLANE_TAPS
    ctypedef void (*load_plane_pairs_function)(
        float*, int64_t, int64_t, int, const void*, int, int64_t, int64_t, uint16_t*, uint16_t*) noexcept
    ctypedef void (*pair_plane_taps_function)(
        float*, const float*, const int64_t*, int64_t, int64_t, uint16_t*, uint16_t*) noexcept
    ctypedef struct plane_pair_functions:
        load_plane_pairs_function load
        pair_plane_taps_function pair_taps
        store_planes_function store
        planes_function sums[7]  # PLANE_WIDTHS
    ctypedef void (*nxc_function)(
        float*, Py_ssize_t, int64_t, int64_t, const void*, int, int64_t, const int64_t*, const int64_t*, int64_t,
        const float*, Py_ssize_t, const float*) noexcept
    ctypedef void (*nxc_pack_function)(float*, Py_ssize_t, int64_t, int64_t, const void*, int, int64_t) noexcept
    ctypedef void (*nxc_weights_function)(
        float*, Py_ssize_t, int64_t, const float*, Py_ssize_t, Py_ssize_t, const int64_t*, const int64_t*, int64_t, const float*,
        Py_ssize_t, Py_ssize_t, int64_t, int64_t, int64_t) noexcept
    ctypedef void (*frame_function)(
        float*, Py_ssize_t, int64_t, int64_t, int64_t, int64_t, const void*, int, int64_t, int64_t, int64_t) noexcept
    ctypedef void (*split_function)(
        float*, Py_ssize_t, Py_ssize_t, int64_t, int64_t, int64_t, const void*, int, int64_t, int64_t, int64_t, int64_t) noexcept
    ctypedef void (*masked_function)(
        const tile_run*, Py_ssize_t, const float*, const float*, Py_ssize_t, float*, int, const float*) noexcept
    ctypedef void (*gather_function)(
        float*, Py_ssize_t, int64_t, const void*, int, int64_t, const lane_span*, int64_t) noexcept
    ctypedef void (*gather_taps_function)(
        float*, Py_ssize_t, Py_ssize_t, int, int64_t, const void*, int, int64_t, int64_t, const int64_t*, int64_t) noexcept
    ctypedef int (*finite_function)(const float*, int64_t) noexcept
    ctypedef void (*scatter_function)(
        const float*, Py_ssize_t, int64_t, void*, int, int64_t, const lane_span*, int64_t, const float*) noexcept
    ctypedef void (*scatter_parts_function)(const float*, Py_ssize_t, int64_t, const tile_result*, int) noexcept
    ctypedef struct result_cell:
        int64_t extent[3]
        int64_t own[3]
        int64_t line[2]
    ctypedef void (*scatter_cells_function)(
        const float*, Py_ssize_t, int64_t, void*, int, int64_t, const lane_span*, int64_t, const float*, const result_cell*) noexcept
    ctypedef void (*scatter_taps_function)(
        const float*, Py_ssize_t, Py_ssize_t, int64_t, int64_t, void*, int, int64_t, int64_t, const int64_t*, int64_t) noexcept
    ctypedef void (*store_positions_function)(
        void*, int, int64_t, int64_t, const float*, const int64_t*, int64_t, int64_t, const float*) noexcept
    ctypedef void (*gather_pairs_function)(
        float*, Py_ssize_t, int64_t, const void*, int, int64_t, const lane_span*, int64_t, uint16_t*) noexcept
    ctypedef void (*gather_taps_pairs_function)(
        float*, Py_ssize_t, Py_ssize_t, int, int64_t, const void*, int, int64_t, int64_t, const int64_t*, int64_t,
        uint16_t*) noexcept
    ctypedef void (*gather_positions_function)(
        float*, Py_ssize_t, int64_t, int64_t, const void*, int, int64_t, int64_t, uint16_t*) noexcept
    ctypedef void (*frame_pairs_function)(
        float*, Py_ssize_t, int64_t, int64_t, int64_t, int64_t, const void*, const void*, int, int64_t, int64_t, int64_t,
        uint16_t*) noexcept
    ctypedef void (*split_pairs_function)(
        float*, Py_ssize_t, Py_ssize_t, int64_t, int64_t, int64_t, const void*, const void*, int, int64_t, int64_t, int64_t, int64_t,
        uint16_t*) noexcept
    ctypedef void (*unit_function)() noexcept
    ctypedef void (*turn_function)(float*, Py_ssize_t, int64_t, int64_t) noexcept
    enum: PART_STEPS
    enum: FRAME_STEPS
    ctypedef struct line_part:
        int64_t offset
        uint32_t inside
        int32_t last
    ctypedef void (*block_rows_function)(
        float*, Py_ssize_t, Py_ssize_t, int64_t, int64_t, const line_part*, int64_t, const void*, int, int64_t, uint16_t*) noexcept
    ctypedef void (*patch_rows_function)(
        float*, const float*, Py_ssize_t, int64_t, int64_t, const line_part*, int64_t, const int64_t*) noexcept
    ctypedef void (*row_panels_function)(
        int64_t, int64_t, const float*, const int64_t*, Py_ssize_t, const float*, Py_ssize_t, float*, Py_ssize_t, int) noexcept
    ctypedef void (*segment_function)(
        const tile_run*, Py_ssize_t, const float*, Py_ssize_t, Py_ssize_t, const float*, float*, Py_ssize_t, Py_ssize_t) noexcept
    ctypedef struct segment_tiles:
        segment_function tile[3][4][2][14]  # SEGMENT_KINDS, SEGMENT_WIDTHS, SEGMENT_COUNT, SEGMENT_LENGTH
    ctypedef void (*store_segments_function)(
        int, void*, int, int64_t, const float*, int64_t, int64_t, const float*) noexcept
    ctypedef struct chain_units:
        int64_t units
        int64_t width
        int64_t past
        int64_t reach
        int64_t step
        int64_t ways
        int64_t whole
        int64_t low[2]
        int64_t high[2]
    ctypedef struct chain_lines:
        int64_t lines
        int64_t images
        int64_t channels
        int64_t partner
        int64_t first[2]
        int64_t end[2]
        int64_t line_stride
        int64_t image_stride
        int64_t channel_stride
        int64_t pitch
        int64_t image_pitch
        int64_t channel_pitch
    ctypedef void (*lay_chains_function)(float*, const chain_units*, const chain_lines*, const void*, int, uint16_t*) noexcept
    ctypedef void (*chain_tile_function)(
        float*, Py_ssize_t, Py_ssize_t, const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, const float*, Py_ssize_t, int64_t,
        int64_t) noexcept
    ctypedef void (*chain_taps_function)(
        float*, Py_ssize_t, const float*, Py_ssize_t, Py_ssize_t, const int64_t*, const float*, Py_ssize_t, int64_t, int64_t,
        int64_t) noexcept
    ctypedef struct chain_rows:
        const void* numbers
        int64_t line_stride
        int format
        int64_t low
        int64_t high
        int64_t first
        int64_t end
    ctypedef void (*chain_rows_function)(
        float*, Py_ssize_t, const chain_rows*, const float*, Py_ssize_t, int64_t, int64_t, int64_t, uint16_t*) noexcept
    ctypedef void (*sum_chains_function)(float*, const float*, int64_t) noexcept
    ctypedef void (*lay_tap_pairs_function)(
        float*, Py_ssize_t, int64_t, int64_t, int64_t, const void*, int, int64_t, int64_t, int64_t, int64_t, int64_t,
        uint16_t*) noexcept
    ctypedef void (*join_tap_pairs_function)(float*, const float*, const float*, int64_t) noexcept
    ctypedef void (*lay_row_pairs_function)(
        float*, Py_ssize_t, int64_t, int64_t, const void*, int, int64_t, int64_t, uint16_t*) noexcept
    ctypedef struct tap_pair:
        int32_t row
        int32_t lanes
    ctypedef void (*tap_pairs_function)(
        const tap_pair*, const int32_t*, int64_t, const float*, Py_ssize_t, const float*, float*, Py_ssize_t) noexcept
    ctypedef struct pair_functions:
        int panel_rows
        int apart
        unit_function begin
        unit_function end
        tile_function tile[8][3]
        halves_function halves[4][3]
        tile_function blocks[8][3]
        tile_function blocks_by_vector[8][3]
        turn_function turn
        block_rows_function block_rows
        block_rows_function frame_rows
        patch_rows_function patch_rows
        row_panels_function row_panels[3]
        strided_function whole_blocks[8][3]
        strided_function whole_by_vector[8][3]
        line_blocks_function line_blocks
        lay_lines_function lay_lines
        patch_lines_function patch_lines
        lay_plane_function lay_plane
        lay_planes_function lay_planes
        line_function lines
        const segment_tiles* segments
        gather_pairs_function gather
        gather_taps_pairs_function gather_taps
        gather_positions_function gather_positions
        frame_pairs_function frame
        split_pairs_function split
        finite_function finite
        lay_chains_function lay_chains
        chain_tile_function chain_tile[4][8]  # [DOT_TILE][DOT_LARGE]
        chain_taps_function chain_taps[5][5]  # [NCX_COLUMNS][NCX_COLUMNS]
        chain_rows_function chain_rows[5][5]
        lay_tap_pairs_function lay_tap_pairs
        join_tap_pairs_function join_tap_pairs
        lay_row_pairs_function lay_row_pairs
        tap_pairs_function tap_pairs[8][3]
        plane_pair_functions planes
    ctypedef struct conversion_functions:
        pass
    ctypedef struct instruction_set:
        const char* name
        int (*usable)() noexcept
        int (*preferred)() noexcept
        int rows
        int vectors
        int width
        tile_function tile[8][3]
        halves_function halves[4][3]
        strided_function strided[8][3]
        tall_function tall[8]  # TALL_ROWS - TILE_ROWS
        strided_function strided_blocks[8][3]
        strided_function strided_by_vector[8][3]
        strided_function whole_blocks[8][3]
        strided_function whole_by_vector[8][3]
        tap_lanes_function tap_tile[8][3]
        masked_function masked[3]
        tile_function blocks[8][3]
        tile_function blocks_by_vector[8][3]
        masked_function masked_blocks[3]
        line_function lines
        ncx_function depthwise_ncx[4]
        ncx_weights_function depthwise_ncx_weights[5][5]
        weave_function weave
        plane_functions planes
        nxc_function depthwise_nxc
        nxc_pack_function nxc_pack
        nxc_weights_function depthwise_nxc_weights
        frame_function frame
        copy_function copy
        split_function split
        dot_function dot[12]
        int dot_columns[4]
        dot_tile_function dot_tile[4][8]  # [DOT_TILE][DOT_LARGE]
        tile64_function tile64[8][3]
        line64_function line64
        dot64_function dot64[8]  # REDUCTION_FEW
        gather_function gather
        gather_taps_function gather_taps
        sum_chains_function sum_chains
        finite_function finite
        scatter_function scatter
        scatter_parts_function scatter_parts
        scatter_cells_function scatter_cells
        scatter_taps_function scatter_taps
        conversion_functions conversions
        store_positions_function store_positions
        const segment_tiles* segments
        store_segments_function store_segments
        const pair_functions* pairs
        const pair_functions* matrix
    const instruction_set* const* instruction_sets(int* count)
    int byte_look_ups
    void want_byte_look_ups(int wanted)
    ctypedef struct product_rates:
        double multiply_adds
        double dot_products
        double cycles
    double DOT_PRODUCTS_PAY
    const product_rates* measured_rates()

cdef extern from "numbers/codes.h" nogil:
    const float code_values[3][256]
    void prepare_codes()

cdef extern from "core/prefetch_lines.h" nogil:
    void prefetch_lines(const char* place, int64_t lines, int written)

cdef extern from "core/task_queue.h" nogil:
    enum:
        NO_TASK
    int64_t claim(int64_t*, int64_t)
