/* Tiles of sums in blocks (core/reduction.h) along runs that each begin with a block, one half of it after the other: included by
 * simd/blocks.h. */

/* The beginning of a block.  This is a function of its own: beside whole blocks the compiler would keep some sums in memory. */
INLINE void part_of_block_body(int rows, int vectors, const float *start, const int64_t *offsets, ptrdiff_t a, ptrdiff_t row_step,
                               const float *b, ptrdiff_t lane_pitch, float *c, int pitch, ptrdiff_t steps, int pairs)
{
    const ptrdiff_t half = pairs ? HALF_BLOCK / 2 : HALF_BLOCK;
    vector sum[ROWS][VECTORS];
    float first[ROWS * VECTORS * WIDTH] __attribute__((aligned(64)));
    const float *row[ROWS];
    ptrdiff_t rest = steps;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + (offsets ? offsets[i] : i);
    if (steps >= half) {
        half_sums(rows, vectors, sum, row, a, row_step, 0, b, lane_pitch, half, pairs);
        if (steps == half) {
            add_to_totals(rows, vectors, c, pitch, NULL, sum);
            return;
        }
        store_sums(rows, vectors, sum, first, vectors);
        __asm__ volatile("" : : "r"(first) : "memory");
        a += half * row_step;
        b += half * lane_pitch;
        rest -= half;
    }
    half_sums(rows, vectors, sum, row, a, row_step, 0, b, lane_pitch, rest, pairs);
    if (steps > half) {
        __asm__ volatile("" : : : "memory"); /* otherwise totals, of which both branches need all, would be loaded before them */
        add_to_totals(rows, vectors, c, pitch, first, sum);
    } else
        add_to_totals(rows, vectors, c, pitch, NULL, sum);
}

typedef void (*block_part_function)(const float *start, const int64_t *offsets, ptrdiff_t a, ptrdiff_t row_step, const float *b,
                                    ptrdiff_t lane_pitch, float *c, int pitch, ptrdiff_t steps);

#define PART_OF_BLOCK(name, r, v, pairs)                                                                                   \
    static __attribute__((noinline)) void SUFFIX(part_of_##name##_##r##_##v)(                                              \
        const float *start, const int64_t *offsets, ptrdiff_t a, ptrdiff_t row_step, const float *b, ptrdiff_t lane_pitch, \
        float *c, int pitch, ptrdiff_t steps)                                                                              \
    {                                                                                                                      \
        part_of_block_body(r, v, start, offsets, a, row_step, b, lane_pitch, c, pitch, steps, pairs);                      \
    }
#define PART(r, v, name) SUFFIX(part_of_##name##_##r##_##v)

#if ROWS < 8
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
#define ASK_FOR_SUMS(result) \
    if (result)              \
        SUFFIX(ask_for_sums)(result)
#else
#define ASK_FOR_SUMS(result) ((void)0) /* tiles of single taps are a tenth slower with it */
#endif

/* Runs that each begin with a block, against rows as `strided_function` takes them; where `offsets` is NULL, rows of a panel. */
INLINE void block_runs_body(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const float *start,
                            const int64_t *offsets, ptrdiff_t row_step, ptrdiff_t next, const float *lane_panel, ptrdiff_t lane_pitch,
                            float *c, int pitch, int resume, block_part_function part, int pairs)
{
    const ptrdiff_t block = pairs ? HALF_BLOCK : SUM_BLOCK;
    const float *row[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + (offsets ? offsets[i] : i);
    if (!resume)
        clear_sums(rows, vectors, c, pitch);
    for (const tile_run *run = runs; run < runs + run_count; run++) {
        const float *b = lane_panel + run->lanes;
        ptrdiff_t a = run->rows, left = run->steps;
        for (; left >= block; left -= block, a += block * row_step, b += block * lane_pitch)
            whole_block(rows, vectors, row, a, a + block / 2 * row_step, row_step, next, b, lane_pitch, c, pitch, pairs);
        if (left > 0)
            part(start, offsets, a, row_step, b, lane_pitch, c, pitch, left);
    }
}

#define BLOCKS_TILE(name, r, v, pairs)                                                                                     \
    static void SUFFIX(name##_##r##_##v)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel, ptrdiff_t next,\
                                         const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume,              \
                                         copying *meanwhile, const tile_result *result)                                    \
    {                                                                                                                      \
        (void)meanwhile;                                                                                                   \
        ASK_FOR_SUMS(result);                                                                                              \
        IN_ONE_PART(name, r, v)                                                                                            \
        if (r == ROWS && next)                                                                                             \
            block_runs_body(r, v, runs, run_count, row_panel, NULL, ROWS, next, lane_panel, lane_pitch, c, VECTORS, resume,\
                            PART(r, v, name), pairs);                                                                      \
        else                                                                                                               \
            block_runs_body(r, v, runs, run_count, row_panel, NULL, ROWS, 0, lane_panel, lane_pitch, c, VECTORS, resume,   \
                            PART(r, v, name), pairs);                                                                      \
        finish_blocks(r, v, c, result);                                                                                    \
    }

#if ROWS < 8
#define WHOLE_BLOCKS(name, r, v, pairs)                                                                                    \
    static __attribute__((noinline)) void SUFFIX(whole_##name##_strided_##r##_##v)(                                        \
        const tile_run *runs, ptrdiff_t run_count, const float *start, const int64_t *offsets, ptrdiff_t row_step,         \
        const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume)                                               \
    {                                                                                                                      \
        block_runs_body(r, v, runs, run_count, start, offsets, row_step, 0, lane_panel, lane_pitch, c, v, resume,          \
                        PART(r, v, name), pairs);                                                                          \
    }                                                                                                                      \
    static void SUFFIX(whole_##name##_##r##_##v)(const tile_run *runs, ptrdiff_t run_count, const float *start,            \
                                                 const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel,      \
                                                 ptrdiff_t lane_pitch, float *c, int resume, const tile_wish *wish)        \
    {                                                                                                                      \
        (void)wish;                                                                                                        \
        if (row_step == 1)                                                                                                 \
            block_runs_body(r, v, runs, run_count, start, offsets, 1, 0, lane_panel, lane_pitch, c, v, resume,             \
                            PART(r, v, name), pairs);                                                                      \
        else                                                                                                               \
            SUFFIX(whole_##name##_strided_##r##_##v)(runs, run_count, start, offsets, row_step, lane_panel, lane_pitch, c, \
                                                     resume);                                                              \
    }
#endif
