/* Sums in blocks (core/reduction.h): the functions of tiles. */
#include "core/reduction.h"
#include "simd/block_halves.h"

/* A block, or its beginning, of one row under masks. */
INLINE void masked_block(int vectors, ptrdiff_t steps, const float *row, const float *b, ptrdiff_t lane_pitch, float *c, const float *masks)
{
    vector first[1][VECTORS], second[1][VECTORS];
    load_sums(1, vectors, first, c, VECTORS, 0);
    load_sums(1, vectors, second, c, VECTORS, 0);
    for (ptrdiff_t k = 0; k < HALF_BLOCK && k < steps; k++) {
        tile_step(1, vectors, first, &row, k * ROWS, b + k * lane_pitch, masks + k * lane_pitch, 0);
        if (HALF_BLOCK + k < steps)
            tile_step(1, vectors, second, &row, (HALF_BLOCK + k) * ROWS, b + (HALF_BLOCK + k) * lane_pitch,
                      masks + (HALF_BLOCK + k) * lane_pitch, 0);
    }
    add_two_halves(1, vectors, c, VECTORS, first, second);
}

INLINE void masked_blocks_body(int vectors, const tile_run *runs, ptrdiff_t run_count, const float *row_panel, const float *lane_panel,
                               ptrdiff_t lane_pitch, float *c, int resume, const float *masks)
{
    if (!resume)
        clear_sums(1, vectors, c, VECTORS);
    for (ptrdiff_t r = 0; r < run_count; r++)
        for (ptrdiff_t k = 0; k < runs[r].steps; k += SUM_BLOCK) {
            ptrdiff_t steps = runs[r].steps - k < SUM_BLOCK ? runs[r].steps - k : SUM_BLOCK, start = runs[r].lanes + k * lane_pitch;
            masked_block(vectors, steps, row_panel + runs[r].rows + k * ROWS, lane_panel + start, lane_pitch, c, masks + start);
        }
}

#define MASKED_BLOCKS(vectors)                                                                                           \
    static void SUFFIX(masked_blocks_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,       \
                                                const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume,     \
                                                const float *masks)                                                      \
    {                                                                                                                    \
        masked_blocks_body(vectors, runs, run_count, row_panel, lane_panel, lane_pitch, c, resume, masks);               \
    }
MASKED_BLOCKS(1)
MASKED_BLOCKS(2)
MASKED_BLOCKS(3)

INLINE void finish_blocks(int rows, int vectors, const float *c, const tile_result *result)
{
    vector sum[ROWS][VECTORS];
    if (result && result->direct) {
        load_sums(rows, vectors, sum, c, VECTORS, 1);
        store_result(rows, vectors, sum, result);
    }
}

#if ROWS == 8
#include "simd/block_parts.h"
BLOCK_PARTS(blocks, 0)
#else
#define IN_ONE_PART(name, r, v)
#endif
#include "simd/block_tiles.h"

#define ROW_BLOCKS(kind, name, rows, pairs) kind(name, rows, 1, pairs) kind(name, rows, 2, pairs) kind(name, rows, 3, pairs)
#define FOUR_BLOCKS(kind, name, pairs)                                                                                   \
    ROW_BLOCKS(kind, name, 1, pairs) ROW_BLOCKS(kind, name, 2, pairs)                                                    \
    ROW_BLOCKS(kind, name, 3, pairs) ROW_BLOCKS(kind, name, 4, pairs)
#if ROWS == 8
#define ALL_BLOCKS(kind, name, pairs)                                                                                    \
    FOUR_BLOCKS(kind, name, pairs)                                                                                       \
    ROW_BLOCKS(kind, name, 5, pairs) ROW_BLOCKS(kind, name, 6, pairs)                                                    \
    ROW_BLOCKS(kind, name, 7, pairs) ROW_BLOCKS(kind, name, 8, pairs)
#else
#define ALL_BLOCKS(kind, name, pairs) FOUR_BLOCKS(kind, name, pairs)
#endif
ALL_BLOCKS(PART_OF_BLOCK, blocks, 0)
ALL_BLOCKS(BLOCKS_TILE, blocks, 0)
ALL_BLOCKS(STRIDED_BLOCKS, strided_blocks, 0)
ALL_BLOCKS(WHOLE_BLOCKS, blocks, 0)
#if ROWS == 8
ALL_BLOCKS(BLOCKS_BY_VECTOR, blocks, 0)
ALL_BLOCKS(WHOLE_BY_VECTOR, blocks, 0)
ALL_BLOCKS(STRIDED_BY_VECTOR, strided_blocks, 0)
#define BY_VECTOR(kind) ALL_ENTRIES(kind##_by_vector)
#else
#define BY_VECTOR(kind) ALL_ENTRIES(kind)
#endif
