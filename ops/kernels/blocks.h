/* Sums in blocks (reduction.h): a half of a block is a chain of its own in registers, one after the other, and their sum joins
 * the tile in memory. */
#include "reduction.h"

/* A half to `first`, or where c is not NULL, which asks for the other: c += first + this one. The rest as for `tile_body`. */
typedef void (*half_function)(const tile_run *runs, ptrdiff_t run_count, const float *rows, ptrdiff_t next, const int64_t *offsets,
                              ptrdiff_t row_step, const float *lanes, ptrdiff_t lane_pitch, float *first, float *c,
                              const float *masks, asking *asks);

INLINE void half_body(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const float *row_panel, ptrdiff_t next,
                      const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel, ptrdiff_t lane_pitch, float *first,
                      float *c, int pitch, const float *masks, asking *asks, int to_write, int pairs)
{
    vector sum[ROWS][VECTORS];
    const float *row[ROWS];
    load_sums(rows, vectors, sum, first, vectors, 0);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = row_panel + (offsets ? offsets[i] : i);
    for (ptrdiff_t r = 0; r < run_count; r++)
        one_run(rows, vectors, sum, row, runs + r, row_step, next, lane_panel, lane_pitch, masks, asks, to_write, NULL, pairs);
    if (!c) {
        store_sums(rows, vectors, sum, first, vectors);
        return;
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            *(vector *)(c + (i * pitch + j) * WIDTH) += *(const vector *)(first + (i * vectors + j) * WIDTH) + sum[i][j];
}

/* Functions of their own: among several such loops in one the compiler keeps some sums in memory. */
#define HALF(name, rows, vectors, next, offsets, row_step, pitch, masks, to_write, pairs)                                \
    static __attribute__((noinline)) void SUFFIX(name##_half_##rows##_##vectors)(                                        \
        const tile_run *runs, ptrdiff_t run_count, const float *row_panel, ptrdiff_t next_panel, const int64_t *offset,  \
        ptrdiff_t step, const float *lane_panel, ptrdiff_t lane_pitch, float *first, float *c, const float *mask,        \
        asking *asks)                                                                                                    \
    {                                                                                                                    \
        (void)next_panel, (void)offset, (void)step, (void)mask;                                                          \
        half_body(rows, vectors, runs, run_count, row_panel, next, offsets, row_step, lane_panel, lane_pitch, first, c,  \
                  pitch, masks, asks, to_write, pairs);                                                                  \
    }

/* Rows from a panel, along runs that begin with a block. */
INLINE void blocks_body(int rows, int vectors, half_function half, const tile_run *runs, ptrdiff_t run_count, const float *row_panel,
                        ptrdiff_t next, const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume, const float *masks,
                        const tile_result *result, int pairs)
{
    const ptrdiff_t most = (pairs ? HALF_BLOCK : SUM_BLOCK) / 2;
    float first[ROWS * VECTORS * WIDTH] __attribute__((aligned(64)));
    asking asks = begin_asking(result ? &result->wish : NULL);
    if (!resume)
        for (int i = 0; i < rows; i++)
            memset(c + i * VECTORS * WIDTH, 0, vectors * WIDTH * sizeof(float));
    for (ptrdiff_t r = 0; r < run_count; r++) {
        tile_run part = runs[r];
        int second = 0;
        for (ptrdiff_t left = runs[r].steps; left > 0 || second; second = !second) {
            part.steps = left < most ? left : most;
            half(&part, 1, row_panel, next, NULL, ROWS, lane_panel, lane_pitch, first, second ? c : NULL, masks, &asks);
            left -= part.steps;
            part.rows += part.steps * ROWS;
            part.lanes += part.steps * lane_pitch;
        }
    }
    if (result && result->direct) {
        vector sum[ROWS][VECTORS];
        load_sums(rows, vectors, sum, c, VECTORS, 1);
        store_result(rows, vectors, sum, result);
    }
}

#define BLOCKS_TILE(name, rows, vectors, pairs)                                                                          \
    HALF(name, rows, vectors, next_panel, NULL, ROWS, VECTORS, NULL, 1, pairs)                                           \
    static void SUFFIX(name##_##rows##_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,     \
                                                  ptrdiff_t next, const float *lane_panel, ptrdiff_t lane_pitch,         \
                                                  float *c, int resume, copying *meanwhile, const tile_result *result)   \
    {                                                                                                                    \
        (void)meanwhile;                                                                                                 \
        blocks_body(rows, vectors, SUFFIX(name##_half_##rows##_##vectors), runs, run_count, row_panel, next, lane_panel, \
                    lane_pitch, c, resume, NULL, result, pairs);                                                         \
    }

#define MASKED_BLOCKS(vectors)                                                                                           \
    HALF(masked_blocks, 1, vectors, 0, NULL, ROWS, VECTORS, mask, 0, 0)                                                  \
    static void SUFFIX(masked_blocks_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,       \
                                                const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume,     \
                                                const float *masks)                                                      \
    {                                                                                                                    \
        blocks_body(1, vectors, SUFFIX(masked_blocks_half_1_##vectors), runs, run_count, row_panel, 0, lane_panel,       \
                    lane_pitch, c, resume, masks, NULL, 0);                                                              \
    }
MASKED_BLOCKS(1)
MASKED_BLOCKS(2)
MASKED_BLOCKS(3)

/* Rows that lie anywhere, along runs of which none goes beyond half a block. */
INLINE void strided_blocks_body(int rows, int vectors, half_function half, const tile_run *runs, ptrdiff_t run_count,
                                const float *start, const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel,
                                ptrdiff_t lane_pitch, float *c, int resume, const tile_wish *wish, int pairs)
{
    const ptrdiff_t length = (pairs ? HALF_BLOCK / 2 : HALF_BLOCK) * lane_pitch;
    float first[ROWS * VECTORS * WIDTH] __attribute__((aligned(64)));
    asking asks = begin_asking(wish);
    ptrdiff_t r = 0, end = length;
    if (!resume)
        memset(c, 0, rows * vectors * WIDTH * sizeof(float));
    for (int second = 0; r < run_count || second; second = !second, end += length) {
        ptrdiff_t begin = r;
        while (r < run_count && runs[r].lanes < end)
            r++;
        half(runs + begin, r - begin, start, 0, offsets, row_step, lane_panel, lane_pitch, first, second ? c : NULL, NULL, &asks);
    }
}

#define STRIDED_BLOCKS(name, rows, vectors, pairs)                                                                       \
    HALF(name, rows, vectors, 0, offset, step, vectors, NULL, 0, pairs)                                                  \
    static void SUFFIX(name##_##rows##_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *start,         \
                                                  const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel,   \
                                                  ptrdiff_t lane_pitch, float *c, int resume, const tile_wish *wish)     \
    {                                                                                                                    \
        strided_blocks_body(rows, vectors, SUFFIX(name##_half_##rows##_##vectors), runs, run_count, start, offsets,      \
                            row_step, lane_panel, lane_pitch, c, resume, wish, pairs);                                   \
    }

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
ALL_BLOCKS(BLOCKS_TILE, blocks, 0)
ALL_BLOCKS(STRIDED_BLOCKS, strided_blocks, 0)
