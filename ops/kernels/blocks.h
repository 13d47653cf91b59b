/* Sums in blocks (reduction.h): both halves of a block are chains of their own in registers, part of a tile's rows after the
 * other, and their sum joins the tile in memory. */
#include "reduction.h"

/* The steps of one block, `half` of them in its first half. */
INLINE void one_block(int rows, int vectors, ptrdiff_t steps, ptrdiff_t half, const float *row_panel, ptrdiff_t next, const float *b,
                      ptrdiff_t lane_pitch, float *c, const float *masks, int pairs)
{
    vector first[ROWS][VECTORS], second[ROWS][VECTORS];
    const float *row[ROWS];
    load_sums(rows, vectors, first, c, VECTORS, 0);
    load_sums(rows, vectors, second, c, VECTORS, 0);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = row_panel + i;
    for (ptrdiff_t k = 0; k < half && k < steps; k++) {
        if (next) {
            __builtin_prefetch(row[0] + k * ROWS + next);
            __builtin_prefetch(row[0] + (half + k) * ROWS + next);
        }
        tile_step(rows, vectors, first, row, k * ROWS, b + k * lane_pitch, masks ? masks + k * lane_pitch : NULL, pairs);
        if (half + k < steps)
            tile_step(rows, vectors, second, row, (half + k) * ROWS, b + (half + k) * lane_pitch,
                      masks ? masks + (half + k) * lane_pitch : NULL, pairs);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            *(vector *)(c + (i * VECTORS + j) * WIDTH) += first[i][j] + second[i][j];
}

INLINE void blocks_body(int rows, int part, int vectors, const tile_run *runs, ptrdiff_t run_count, const float *row_panel,
                        ptrdiff_t next, const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume, const float *masks, int pairs)
{
    const ptrdiff_t block = pairs ? HALF_BLOCK : SUM_BLOCK;
    if (!resume)
        for (int i = 0; i < rows; i++)
            memset(c + i * VECTORS * WIDTH, 0, vectors * WIDTH * sizeof(float));
    for (ptrdiff_t r = 0; r < run_count; r++)
        for (ptrdiff_t k = 0; k < runs[r].steps; k += block) {
            ptrdiff_t steps = runs[r].steps - k < block ? runs[r].steps - k : block, start = runs[r].lanes + k * lane_pitch;
            for (int i = 0; i < rows; i += part)
                one_block(part, vectors, steps, block / 2, row_panel + runs[r].rows + k * ROWS + i, i == 0 ? next : 0,
                          lane_panel + start, lane_pitch, c + i * VECTORS * WIDTH, masks ? masks + start : NULL, pairs);
        }
}

#define BLOCKS_TILE(name, vectors, pairs)                                                                                \
    static void SUFFIX(name##_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,              \
                                         ptrdiff_t next, const float *lane_panel, ptrdiff_t lane_pitch, float *c,        \
                                         int resume, copying *meanwhile, const tile_result *result)                      \
    {                                                                                                                    \
        (void)meanwhile, (void)result;                                                                                   \
        blocks_body(ROWS, ROWS / 2, vectors, runs, run_count, row_panel, next, lane_panel, lane_pitch, c, resume, NULL,   \
                    pairs);                                                                                              \
    }
#define BLOCKS_TILES(name, pairs) BLOCKS_TILE(name, 1, pairs) BLOCKS_TILE(name, 2, pairs) BLOCKS_TILE(name, 3, pairs)
#define BLOCKS_ENTRIES(name) {SUFFIX(name##_1), SUFFIX(name##_2), SUFFIX(name##_3)}
BLOCKS_TILES(blocks, 0)

#define MASKED_BLOCKS(vectors)                                                                                           \
    static void SUFFIX(masked_blocks_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,        \
                                                const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume,     \
                                                const float *masks)                                                      \
    {                                                                                                                    \
        blocks_body(1, 1, vectors, runs, run_count, row_panel, 0, lane_panel, lane_pitch, c, resume, masks, 0);               \
    }
MASKED_BLOCKS(1)
MASKED_BLOCKS(2)
MASKED_BLOCKS(3)

/* The same for rows that lie anywhere, along runs of which none goes beyond half a block: a half is one chain after the other. */
INLINE void strided_blocks_body(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const float *start,
                                const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel, ptrdiff_t lane_pitch, float *c,
                                int resume, const tile_wish *wish, int pairs)
{
    const ptrdiff_t half = (pairs ? HALF_BLOCK / 2 : HALF_BLOCK) * lane_pitch;
    vector sum[ROWS][VECTORS], first[ROWS][VECTORS];
    const float *row[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + offsets[i];
    if (!resume)
        memset(c, 0, rows * vectors * WIDTH * sizeof(float));
    asking asks = begin_asking(wish);
    ptrdiff_t r = 0, end = half;
    for (int second = 0; r < run_count || second; second = !second, end += half) {
        load_sums(rows, vectors, sum, c, vectors, 0);
        for (; r < run_count && runs[r].lanes < end; r++)
            one_run(rows, vectors, sum, row, runs + r, row_step, 0, lane_panel, lane_pitch, NULL, &asks, 0, NULL, pairs);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                if (second)
                    *(vector *)(c + (i * vectors + j) * WIDTH) += first[i][j] + sum[i][j];
                else
                    first[i][j] = sum[i][j];
    }
}

#define STRIDED_BLOCKS(name, rows, vectors, pairs)                                                                       \
    static void SUFFIX(name##_##rows##_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *start,          \
                                                  const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel,   \
                                                  ptrdiff_t lane_pitch, float *c, int resume, const tile_wish *wish)     \
    {                                                                                                                    \
        strided_blocks_body(rows, vectors, runs, run_count, start, offsets, row_step, lane_panel, lane_pitch, c, resume,  \
                            wish, pairs);                                                                                \
    }
#define ROW_BLOCKS(name, rows, pairs) \
    STRIDED_BLOCKS(name, rows, 1, pairs) STRIDED_BLOCKS(name, rows, 2, pairs) STRIDED_BLOCKS(name, rows, 3, pairs)
#define FOUR_BLOCKS(name, pairs) ROW_BLOCKS(name, 1, pairs) ROW_BLOCKS(name, 2, pairs) ROW_BLOCKS(name, 3, pairs) ROW_BLOCKS(name, 4, pairs)
#if ROWS == 8
#define ALL_STRIDED_BLOCKS(name, pairs) \
    FOUR_BLOCKS(name, pairs) ROW_BLOCKS(name, 5, pairs) ROW_BLOCKS(name, 6, pairs) ROW_BLOCKS(name, 7, pairs) ROW_BLOCKS(name, 8, pairs)
#else
#define ALL_STRIDED_BLOCKS(name, pairs) FOUR_BLOCKS(name, pairs)
#endif
ALL_STRIDED_BLOCKS(strided_blocks, 0)
