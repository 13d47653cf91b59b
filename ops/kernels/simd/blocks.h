/* Sums in blocks (core/reduction.h), in registers half of one at a time or both, and then their sum joins the tile in memory. */
#include "core/reduction.h"

/* The steps of one block, `half` of them in its first half, from place `a` of every row on. */
INLINE void one_block(int rows, int vectors, ptrdiff_t steps, ptrdiff_t half, const float *const *row, ptrdiff_t a, ptrdiff_t row_step,
                      const float *b, ptrdiff_t lane_pitch, float *c, int pitch, const float *masks, int pairs)
{
    vector first[ROWS][VECTORS], second[ROWS][VECTORS];
    load_sums(rows, vectors, first, c, pitch, 0);
    load_sums(rows, vectors, second, c, pitch, 0);
    for (ptrdiff_t k = 0; k < half && k < steps; k++) {
        tile_step(rows, vectors, first, row, a + k * row_step, b + k * lane_pitch, masks ? masks + k * lane_pitch : NULL, pairs);
        if (half + k < steps)
            tile_step(rows, vectors, second, row, a + (half + k) * row_step, b + (half + k) * lane_pitch,
                      masks ? masks + (half + k) * lane_pitch : NULL, pairs);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            *(vector *)(c + (i * pitch + j) * WIDTH) += first[i][j] + second[i][j];
}

INLINE void finish_blocks(int rows, int vectors, const float *c, const tile_result *result)
{
    vector sum[ROWS][VECTORS];
    if (result && result->direct) {
        load_sums(rows, vectors, sum, c, VECTORS, 1);
        store_result(rows, vectors, sum, result);
    }
}

INLINE void begin_blocks(int rows, int vectors, float *c, int resume)
{
    if (!resume)
        for (int i = 0; i < rows; i++)
            memset(c + i * VECTORS * WIDTH, 0, vectors * WIDTH * sizeof(float));
}

/* One row under masks. */
INLINE void masked_blocks_body(int vectors, const tile_run *runs, ptrdiff_t run_count, const float *row_panel, const float *lane_panel,
                               ptrdiff_t lane_pitch, float *c, int resume, const float *masks)
{
    begin_blocks(1, vectors, c, resume);
    for (ptrdiff_t r = 0; r < run_count; r++)
        for (ptrdiff_t k = 0; k < runs[r].steps; k += SUM_BLOCK) {
            ptrdiff_t steps = runs[r].steps - k < SUM_BLOCK ? runs[r].steps - k : SUM_BLOCK, start = runs[r].lanes + k * lane_pitch;
            one_block(1, vectors, steps, HALF_BLOCK, &row_panel, runs[r].rows + k * ROWS, ROWS, lane_panel + start, lane_pitch, c,
                      VECTORS, masks + start, 0);
        }
}

#if ROWS == 8
#include "simd/block_parts.h"
BLOCK_PARTS(blocks, 0)
#else
/* `result` is asked for only where sums are stored there: a request costs more than it saves where `scatter` stores. */
INLINE asking asks_of(const tile_result *result)
{
    return begin_asking(result && result->direct ? &result->wish : NULL);
}

/* One half: to `first`, or where c is not NULL, which asks for the second, c += first + this one. */
INLINE void half_body(int rows, int vectors, const tile_run *run, const float *row_panel, ptrdiff_t next, const float *lane_panel,
                      ptrdiff_t lane_pitch, float *first, float *c, asking *asks, int pairs)
{
    vector sum[ROWS][VECTORS];
    const float *row[ROWS];
    load_sums(rows, vectors, sum, first, vectors, 0);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = row_panel + i;
    one_run(rows, vectors, sum, row, run, ROWS, next, lane_panel, lane_pitch, NULL, asks, 1, NULL, pairs);
    if (!c) {
        store_sums(rows, vectors, sum, first, vectors);
        return;
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            *(vector *)(c + (i * VECTORS + j) * WIDTH) += *(const vector *)(first + (i * vectors + j) * WIDTH) + sum[i][j];
}

/* A half in a function of its own: beside other loops the compiler keeps some of its sums in memory. */
#define BLOCKS_TILE(name, r, v, pairs)                                                                                   \
    static __attribute__((noinline)) void SUFFIX(name##_half_##r##_##v)(                                                 \
        const tile_run *run, const float *row_panel, ptrdiff_t next, const float *lane_panel, ptrdiff_t lane_pitch,      \
        float *first, float *c, asking *asks)                                                                            \
    {                                                                                                                    \
        half_body(r, v, run, row_panel, next, lane_panel, lane_pitch, first, c, asks, pairs);                            \
    }                                                                                                                    \
    static void SUFFIX(name##_##r##_##v)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,              \
                                                  ptrdiff_t next, const float *lane_panel, ptrdiff_t lane_pitch,         \
                                                  float *c, int resume, copying *meanwhile, const tile_result *result)   \
    {                                                                                                                    \
        const ptrdiff_t half = pairs ? HALF_BLOCK / 2 : HALF_BLOCK;                                                      \
        float first[r * v * WIDTH] __attribute__((aligned(64)));                                                         \
        asking asks = asks_of(result);                                                                                   \
        (void)meanwhile;                                                                                                 \
        begin_blocks(r, v, c, resume);                                                                                   \
        for (const tile_run *run = runs; run < runs + run_count; run++) {                                                \
            tile_run part = *run;                                                                                        \
            int second = 0;                                                                                              \
            for (ptrdiff_t left = run->steps; left > 0 || second; second = !second) {                                    \
                part.steps = left < half ? left : half;                                                                  \
                SUFFIX(name##_half_##r##_##v)(&part, row_panel, next, lane_panel, lane_pitch, first,                     \
                                                       second ? c : NULL, &asks);                                        \
                left -= part.steps;                                                                                      \
                part.rows += part.steps * ROWS;                                                                          \
                part.lanes += part.steps * lane_pitch;                                                                   \
            }                                                                                                            \
        }                                                                                                                \
        finish_blocks(r, v, c, result);                                                                                  \
    }

/* Rows that lie anywhere, some of them, along runs each of which begins with a block. */
INLINE void block_runs_body(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const float *start,
                              const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel, ptrdiff_t lane_pitch, float *c,
                              int pairs)
{
    const ptrdiff_t block = pairs ? HALF_BLOCK : SUM_BLOCK;
    const float *row[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + offsets[i];
    for (const tile_run *run = runs; run < runs + run_count; run++) {
        const float *b = lane_panel + run->lanes;
        ptrdiff_t a = run->rows, k = run->steps;
        for (; k >= block; k -= block, a += block * row_step, b += block * lane_pitch)
            one_block(rows, vectors, block, block / 2, row, a, row_step, b, lane_pitch, c, vectors, NULL, pairs);
        if (k > 0)
            one_block(rows, vectors, k, block / 2, row, a, row_step, b, lane_pitch, c, vectors, NULL, pairs);
    }
}

#define WHOLE_BLOCKS(name, rows, vectors, pairs)                                                                         \
    static void SUFFIX(whole_##name##_##rows##_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *start,   \
                                                  const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel,   \
                                                  ptrdiff_t lane_pitch, float *c, int resume, const tile_wish *wish)     \
    {                                                                                                                    \
        const int part = 2 * rows * vectors <= ROWS * VECTORS ? rows : (rows + 1) / 2; /* parts load the lanes once each */ \
        (void)wish;                                                                                                      \
        if (!resume)                                                                                                     \
            memset(c, 0, rows * vectors * WIDTH * sizeof(float));                                                        \
        block_runs_body(part, vectors, runs, run_count, start, offsets, row_step, lane_panel, lane_pitch, c, pairs);   \
        if (rows > part)                                                                                                 \
            block_runs_body(rows - part, vectors, runs, run_count, start, offsets + part, row_step, lane_panel,        \
                              lane_pitch, c + part * vectors * WIDTH, pairs);                                            \
    }
#endif

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

/* Half a block of rows whose numbers follow one another. */
INLINE void whole_half(int rows, int vectors, vector (*sum)[VECTORS], const float *const *row, ptrdiff_t a, const float *b,
                       ptrdiff_t lane_pitch)
{
    load_sums(rows, vectors, sum, NULL, 0, 0);
#pragma GCC unroll 4
    for (int k = 0; k < HALF_BLOCK; k++) {
        tile_step(rows, vectors, sum, row, a + k, b, NULL, 0);
        b += lane_pitch;
    }
}

/* Whether two runs are the block whose lanes begin at `place`. */
INLINE int are_block(const tile_run *run, const tile_run *last, ptrdiff_t place, ptrdiff_t lane_pitch)
{
    return last - run >= 2 && run[0].steps == HALF_BLOCK && run[1].steps == HALF_BLOCK && run[0].lanes == place
           && run[1].lanes == place + HALF_BLOCK * lane_pitch;
}

/* Whole blocks, as far as there are some, of rows whose numbers follow one another: loops of a constant number of steps. Returns the
 * first run after them. */
INLINE const tile_run *whole_blocks_of_runs(int rows, int vectors, const tile_run *run, const tile_run *last, const float *start,
                                            const int64_t *offsets, const float *lane_panel, ptrdiff_t lane_pitch, float *c)
{
    vector first[ROWS][VECTORS], second[ROWS][VECTORS];
    const float *row[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + offsets[i];
    for (ptrdiff_t place = run->lanes; are_block(run, last, place, lane_pitch); run += 2, place += SUM_BLOCK * lane_pitch) {
        const float *b = lane_panel + place;
        if (rows * vectors <= ROWS && run[1].rows == run[0].rows + HALF_BLOCK) {
            load_sums(rows, vectors, first, NULL, 0, 0);
            load_sums(rows, vectors, second, NULL, 0, 0);
#pragma GCC unroll 2
            for (int k = 0; k < HALF_BLOCK; k++) { /* a half alone has too few chains to hide the time that a step takes */
                tile_step(rows, vectors, first, row, run->rows + k, b, NULL, 0);
                tile_step(rows, vectors, second, row, run->rows + HALF_BLOCK + k, b + HALF_BLOCK * lane_pitch, NULL, 0);
                b += lane_pitch;
            }
        } else {
            whole_half(rows, vectors, first, row, run[0].rows, b, lane_pitch);
            whole_half(rows, vectors, second, row, run[1].rows, b + HALF_BLOCK * lane_pitch, lane_pitch);
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                *(vector *)(c + (i * vectors + j) * WIDTH) += first[i][j] + second[i][j];
    }
    return run;
}

typedef const tile_run *(*blocks_of_runs)(const tile_run *, const tile_run *, const float *, const int64_t *, const float *, ptrdiff_t,
                                          float *);

/* Rows that lie anywhere, along runs of which none goes beyond half a block: a half is one chain after the other. `whole`: whole
 * blocks in a function of its own, because in one function the compiler would keep some sums in memory. */
INLINE void strided_blocks_body(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const float *start,
                                const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel, ptrdiff_t lane_pitch, float *c,
                                int resume, const tile_wish *wish, int pairs, blocks_of_runs whole)
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
        if (!second && row_step == 1 && !asks.left && are_block(runs + r, runs + run_count, end - half, lane_pitch)) {
            ptrdiff_t begin = r;
            r = whole(runs + r, runs + run_count, start, offsets, lane_panel, lane_pitch, c) - runs;
            end += (r - begin) * half;
            if (r == run_count)
                break;
        }
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
    static __attribute__((noinline)) const tile_run *SUFFIX(name##_whole_##rows##_##vectors)(                            \
        const tile_run *run, const tile_run *last, const float *start, const int64_t *offsets, const float *lane_panel,  \
        ptrdiff_t lane_pitch, float *c)                                                                                  \
    {                                                                                                                    \
        return whole_blocks_of_runs(rows, vectors, run, last, start, offsets, lane_panel, lane_pitch, c);                \
    }                                                                                                                    \
    static void SUFFIX(name##_##rows##_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *start,         \
                                                  const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel,   \
                                                  ptrdiff_t lane_pitch, float *c, int resume, const tile_wish *wish)     \
    {                                                                                                                    \
        strided_blocks_body(rows, vectors, runs, run_count, start, offsets, row_step, lane_panel, lane_pitch, c, resume, \
                            wish, pairs, SUFFIX(name##_whole_##rows##_##vectors));                                                           \
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
ALL_BLOCKS(WHOLE_BLOCKS, blocks, 0)
