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
/* The beginning of a block.  This is a function of its own: beside whole blocks the compiler would keep some sums in memory. */
INLINE void part_of_block_body(int rows, int vectors, const float *start, const int64_t *offsets, ptrdiff_t a, ptrdiff_t row_step,
                               const float *b, ptrdiff_t lane_pitch, float *c, int pitch, ptrdiff_t steps)
{
    vector sum[ROWS][VECTORS];
    float first[ROWS * VECTORS * WIDTH] __attribute__((aligned(64)));
    const float *row[ROWS];
    ptrdiff_t rest = steps;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + (offsets ? offsets[i] : i);
    if (steps >= HALF_BLOCK) {
        half_sums(rows, vectors, sum, row, a, row_step, 0, b, lane_pitch, HALF_BLOCK);
        if (steps == HALF_BLOCK) {
            add_to_totals(rows, vectors, c, pitch, NULL, sum);
            return;
        }
        store_sums(rows, vectors, sum, first, vectors);
        __asm__ volatile("" : : "r"(first) : "memory");
        a += HALF_BLOCK * row_step;
        b += HALF_BLOCK * lane_pitch;
        rest -= HALF_BLOCK;
    }
    half_sums(rows, vectors, sum, row, a, row_step, 0, b, lane_pitch, rest);
    if (steps > HALF_BLOCK) {
        __asm__ volatile("" : : : "memory"); /* otherwise totals, of which both branches need all, would be loaded before them */
        add_to_totals(rows, vectors, c, pitch, first, sum);
    } else
        add_to_totals(rows, vectors, c, pitch, NULL, sum);
}

typedef void (*block_part_function)(const float *start, const int64_t *offsets, ptrdiff_t a, ptrdiff_t row_step, const float *b,
                                    ptrdiff_t lane_pitch, float *c, int pitch, ptrdiff_t steps);

#define PART_OF_BLOCK(name, r, v, pairs)                                                                                   \
    static __attribute__((noinline)) void SUFFIX(name##_##r##_##v)(                                                        \
        const float *start, const int64_t *offsets, ptrdiff_t a, ptrdiff_t row_step, const float *b, ptrdiff_t lane_pitch, \
        float *c, int pitch, ptrdiff_t steps)                                                                              \
    {                                                                                                                      \
        part_of_block_body(r, v, start, offsets, a, row_step, b, lane_pitch, c, pitch, steps);                             \
    }
#define PART(r, v) SUFFIX(part_of_block_##r##_##v)

/* Where `scatter` stores codes, a request for the last part of each row: more of them cost more than they save. */
static __attribute__((noinline)) void SUFFIX(ask_for_sums)(const tile_result *result)
{
    asking asks = begin_asking(&result->wish);
    if (!result->direct && asks.left) {
        asks.part = result->wish.parts - 1;
        asks.left = result->wish.rows;
    }
    for (; asks.left; asks.left--)
        ask(&asks, 1);
}

/* Runs that each begin with a block, against rows as `strided_function` takes them; where `offsets` is NULL, rows of a panel. */
INLINE void block_runs_body(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const float *start,
                            const int64_t *offsets, ptrdiff_t row_step, ptrdiff_t next, const float *lane_panel, ptrdiff_t lane_pitch,
                            float *c, int pitch, int resume, block_part_function part)
{
    const float *row[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + (offsets ? offsets[i] : i);
    if (!resume)
        clear_sums(rows, vectors, c, pitch);
    for (const tile_run *run = runs; run < runs + run_count; run++) {
        const float *b = lane_panel + run->lanes;
        ptrdiff_t a = run->rows, left = run->steps;
        for (; left >= SUM_BLOCK; left -= SUM_BLOCK, a += SUM_BLOCK * row_step, b += SUM_BLOCK * lane_pitch)
            whole_block(rows, vectors, row, a, a + HALF_BLOCK * row_step, row_step, next, b, lane_pitch, c, pitch);
        if (left > 0)
            part(start, offsets, a, row_step, b, lane_pitch, c, pitch, left);
    }
}

#define BLOCKS_TILE(name, r, v, pairs)                                                                                     \
    static void SUFFIX(name##_##r##_##v)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel, ptrdiff_t next, \
                                         const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume,              \
                                         copying *meanwhile, const tile_result *result)                                    \
    {                                                                                                                      \
        (void)meanwhile;                                                                                                   \
        if (result)                                                                                                        \
            SUFFIX(ask_for_sums)(result);                                                                                  \
        if (r == ROWS && next)                                                                                             \
            block_runs_body(r, v, runs, run_count, row_panel, NULL, ROWS, next, lane_panel, lane_pitch, c, VECTORS, resume,\
                            PART(r, v));                                                                                   \
        else                                                                                                               \
            block_runs_body(r, v, runs, run_count, row_panel, NULL, ROWS, 0, lane_panel, lane_pitch, c, VECTORS, resume,   \
                            PART(r, v));                                                                                   \
        finish_blocks(r, v, c, result);                                                                                    \
    }
#define WHOLE_BLOCKS(name, r, v, pairs)                                                                                    \
    static __attribute__((noinline)) void SUFFIX(whole_##name##_strided_##r##_##v)(                                        \
        const tile_run *runs, ptrdiff_t run_count, const float *start, const int64_t *offsets, ptrdiff_t row_step,         \
        const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume)                                               \
    {                                                                                                                      \
        block_runs_body(r, v, runs, run_count, start, offsets, row_step, 0, lane_panel, lane_pitch, c, v, resume,          \
                        PART(r, v));                                                                                       \
    }                                                                                                                      \
    static void SUFFIX(whole_##name##_##r##_##v)(const tile_run *runs, ptrdiff_t run_count, const float *start,            \
                                                 const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel,      \
                                                 ptrdiff_t lane_pitch, float *c, int resume, const tile_wish *wish)        \
    {                                                                                                                      \
        (void)wish;                                                                                                        \
        if (row_step == 1)                                                                                                 \
            block_runs_body(r, v, runs, run_count, start, offsets, 1, 0, lane_panel, lane_pitch, c, v, resume, PART(r, v));\
        else                                                                                                               \
            SUFFIX(whole_##name##_strided_##r##_##v)(runs, run_count, start, offsets, row_step, lane_panel, lane_pitch, c, \
                                                     resume);                                                              \
    }
#endif

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
#if ROWS < 8
ALL_BLOCKS(PART_OF_BLOCK, part_of_block, 0)
#endif
ALL_BLOCKS(BLOCKS_TILE, blocks, 0)
ALL_BLOCKS(STRIDED_BLOCKS, strided_blocks, 0)
ALL_BLOCKS(WHOLE_BLOCKS, blocks, 0)
