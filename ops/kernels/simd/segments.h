/* Tiles of segments of lines, and the store of their sums: included by simd/tile.h with floats and by simd/pairs.h, where
 * SEGMENT_PAIRS is defined, with pairs.  A broadcast in the operand of a multiply-add needs AVX-512. */
#ifdef SEGMENT_PAIRS
#define SEGMENT_HALF (HALF_BLOCK / 2) /* steps */
#else
#define SEGMENT_HALF HALF_BLOCK
#endif

#define SEGMENT_LANES 4
#include "simd/segment_tiles.h"
#define SEGMENT_LANES 8
#include "simd/segment_tiles.h"
#define SEGMENT_LANES 16
#include "simd/segment_tiles.h"
#include "simd/segment_panels.h"

#define SEGMENT_ENTRIES_TO_7(name, lanes)                                                                                \
    name##_1_##lanes, name##_2_##lanes, name##_3_##lanes, name##_4_##lanes, name##_5_##lanes, name##_6_##lanes, name##_7_##lanes
#define SEGMENT_ENTRIES_TO_10(name, lanes) \
    SEGMENT_ENTRIES_TO_7(name, lanes), name##_8_##lanes, name##_9_##lanes, name##_10_##lanes
#define SEGMENT_ENTRIES_TO_14(name, lanes) \
    SEGMENT_ENTRIES_TO_10(name, lanes), name##_11_##lanes, name##_12_##lanes, name##_13_##lanes, name##_14_##lanes
#define SEGMENT_CHAIN_ENTRIES(lanes) \
    {{SEGMENT_ENTRIES_TO_14(segment_chain_1, lanes)}, {SEGMENT_ENTRIES_TO_14(segment_chain_2, lanes)}}
#define SEGMENT_HALF_ENTRIES(lanes) \
    {{SEGMENT_ENTRIES_TO_14(segment_half_1, lanes)}, {SEGMENT_ENTRIES_TO_7(segment_half_2, lanes)}}
#define SEGMENT_BLOCK_ENTRIES(lanes) {{SEGMENT_ENTRIES_TO_10(segment_blocks_1, lanes)}}

static const segment_tiles segments_of_lines = {{
    {SEGMENT_CHAIN_ENTRIES(4), SEGMENT_CHAIN_ENTRIES(8), SEGMENT_CHAIN_ENTRIES(16), {{SEGMENT_ENTRIES_TO_14(segment_chain_1, 32)}}},
    {{{NULL}}, SEGMENT_HALF_ENTRIES(8), SEGMENT_HALF_ENTRIES(16), {{SEGMENT_ENTRIES_TO_7(segment_half_1, 32)}}},
    {{{NULL}}, SEGMENT_BLOCK_ENTRIES(8), SEGMENT_BLOCK_ENTRIES(16), {{SEGMENT_ENTRIES_TO_7(segment_blocks_1, 32)}}},
}};
