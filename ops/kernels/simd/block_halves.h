/* Halves of blocks of sums (core/reduction.h), and tiles along runs of which none goes beyond half a block: included by simd/blocks.h.
 *
 * The chains of one half are in registers, as those of a plain tile are.  The sums of the first half and the totals are in memory:
 * their loads, stores and additions run beside multiply-adds.  Where a tile has few chains, both halves take steps in turns, since
 * a half alone would wait for the time that a multiply-add takes.
 *
 * Loops over the steps of whole halves have a constant count and are not unrolled: GCC 12 would keep some sums in memory. */

/* Place `a` stays one register. GCC would take a pointer for each row, which short loops must set up; with three vectors that is faster,
 * but not for rows of any step, where it keeps sums in memory. */
#define ONE_PLACE(vectors, row_step, a)                                                                                    \
    do {                                                                                                                   \
        if ((vectors) < 3 || !__builtin_constant_p(row_step))                                                              \
            __asm__("" : "+r"(a));                                                                                         \
    } while (0)

/* Whether both halves take steps in turns. */
INLINE int in_turns(int rows, int vectors)
{
    return 2 * rows * vectors <= ROWS * VECTORS;
}

/* The first step of a half.  A chain of products that begins with one, not with +0, can differ in the sign of a zero: no total
 * does, since it begins with +0. */
INLINE void first_step(int rows, int vectors, vector (*sum)[VECTORS], const float *const *row, ptrdiff_t a, const float *b, int pairs)
{
    if (pairs) {
        load_sums(rows, vectors, sum, NULL, 0, 0);
        tile_step(rows, vectors, sum, row, a, b, NULL, 1);
        return;
    }
    vector lanes[VECTORS];
    load_lanes(vectors, lanes, b, rows > 1);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sum[i][j] = BROADCAST(row[i][a]) * lanes[j];
}

/* `steps` >= 1 of one half. */
INLINE void half_sums(int rows, int vectors, vector (*sum)[VECTORS], const float *const *row, ptrdiff_t a, ptrdiff_t row_step,
                      ptrdiff_t next, const float *b, ptrdiff_t lane_pitch, ptrdiff_t steps, int pairs)
{
    if (next)
        __builtin_prefetch(row[0] + a + next);
    first_step(rows, vectors, sum, row, a, b, pairs);
#pragma GCC unroll 1
    for (ptrdiff_t k = 1; k < steps; k++) {
        a += row_step;
        b += lane_pitch;
        ONE_PLACE(vectors, row_step, a);
        if (next)
            __builtin_prefetch(row[0] + a + next);
        tile_step(rows, vectors, sum, row, a, b, NULL, pairs);
    }
}

/* c += first + sum, or c += sum where there is no first. */
INLINE void add_to_totals(int rows, int vectors, float *c, int pitch, const float *first, vector (*sum)[VECTORS])
{
#pragma GCC unroll 9
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            if (first)
                sum[i][j] += *(const vector *)(first + (i * vectors + j) * WIDTH);
            *(vector *)(c + (i * pitch + j) * WIDTH) += sum[i][j];
        }
}

INLINE void add_two_halves(int rows, int vectors, float *c, int pitch, vector (*first)[VECTORS], vector (*second)[VECTORS])
{
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            *(vector *)(c + (i * pitch + j) * WIDTH) += first[i][j] + second[i][j];
}

/* Both halves of a whole block, from places a0 and a1 of every row on, whose steps take turns. */
INLINE void two_halves(int rows, int vectors, vector (*first)[VECTORS], vector (*second)[VECTORS], const float *const *row, ptrdiff_t a0,
                       ptrdiff_t a1, ptrdiff_t row_step, ptrdiff_t next, const float *b, ptrdiff_t lane_pitch, int pairs)
{
    const ptrdiff_t half = pairs ? HALF_BLOCK / 2 : HALF_BLOCK;
    first_step(rows, vectors, first, row, a0, b, pairs);
    first_step(rows, vectors, second, row, a1, b + half * lane_pitch, pairs);
#pragma GCC unroll 1
    for (ptrdiff_t k = 1; k < half; k++) {
        if (next) {
            __builtin_prefetch(row[0] + a0 + next);
            __builtin_prefetch(row[0] + a1 + next);
        }
        a0 += row_step;
        a1 += row_step;
        b += lane_pitch;
        ONE_PLACE(vectors, row_step, a0);
        ONE_PLACE(vectors, row_step, a1);
        tile_step(rows, vectors, first, row, a0, b, NULL, pairs);
        tile_step(rows, vectors, second, row, a1, b + half * lane_pitch, NULL, pairs);
    }
}

/* The lines that the steps of a block ask for. */
INLINE void ask_in_block(asking *asks)
{
    for (int count = SUM_BLOCK; asks->left && count > 0; asks->left--, count--)
        ask(asks, 0);
}

/* A whole block, its halves from places a0 and a1 of every row on. */
INLINE void whole_block(int rows, int vectors, const float *const *row, ptrdiff_t a0, ptrdiff_t a1, ptrdiff_t row_step, ptrdiff_t next,
                        const float *b, ptrdiff_t lane_pitch, float *c, int pitch, int pairs)
{
    const ptrdiff_t half = pairs ? HALF_BLOCK / 2 : HALF_BLOCK;
    vector sum[ROWS][VECTORS];
    float first[ROWS * VECTORS * WIDTH] __attribute__((aligned(64)));
    if (in_turns(rows, vectors)) {
        vector second[ROWS][VECTORS];
        two_halves(rows, vectors, sum, second, row, a0, a1, row_step, next, b, lane_pitch, pairs);
        add_two_halves(rows, vectors, c, pitch, sum, second);
        return;
    }
    half_sums(rows, vectors, sum, row, a0, row_step, next, b, lane_pitch, half, pairs);
    store_sums(rows, vectors, sum, first, vectors);
    __asm__ volatile("" : : "r"(first) : "memory"); /* they stay there */
    half_sums(rows, vectors, sum, row, a1, row_step, next, b + half * lane_pitch, lane_pitch, half, pairs);
    add_to_totals(rows, vectors, c, pitch, first, sum);
    __asm__ volatile("" : : : "memory");
}

INLINE void clear_sums(int rows, int vectors, float *c, int pitch)
{
    vector none[ROWS][VECTORS];
    load_sums(rows, vectors, none, NULL, 0, 0);
    store_sums(rows, vectors, none, c, pitch);
}

/* Whether two runs are the block whose lanes begin at `place`. */
INLINE int are_block(const tile_run *run, const tile_run *last, ptrdiff_t place, ptrdiff_t lane_pitch)
{
    return last - run >= 2 && run[0].steps == HALF_BLOCK && run[1].steps == HALF_BLOCK && run[0].lanes == place
           && run[1].lanes == place + HALF_BLOCK * lane_pitch;
}

/* The runs of one half, which lies before `end`; returns the first run after it. */
INLINE const tile_run *half_of_runs(int rows, int vectors, vector (*sum)[VECTORS], const tile_run *run, const tile_run *last,
                                    ptrdiff_t end, const float *const *row, ptrdiff_t row_step, const float *lane_panel,
                                    ptrdiff_t lane_pitch)
{
    if (run == last || run->lanes >= end) {
        load_sums(rows, vectors, sum, NULL, 0, 0);
        return run;
    }
    half_sums(rows, vectors, sum, row, run->rows, row_step, 0, lane_panel + run->lanes, lane_pitch, run->steps, 0);
    for (run++; run < last && run->lanes < end; run++) {
        const float *b = lane_panel + run->lanes;
        ptrdiff_t a = run->rows;
#pragma GCC unroll 1
        for (ptrdiff_t k = run->steps; k > 0; k--, a += row_step, b += lane_pitch) {
            ONE_PLACE(vectors, row_step, a);
            tile_step(rows, vectors, sum, row, a, b, NULL, 0);
        }
    }
    return run;
}

/* Rows that lie anywhere, along runs of which none goes beyond half a block. */
INLINE void cut_blocks_body(int rows, int vectors, const tile_run *run, const tile_run *last, const float *start,
                            const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel, ptrdiff_t lane_pitch, float *c,
                            asking *asks)
{
    const ptrdiff_t half = HALF_BLOCK * lane_pitch;
    const float *row[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + offsets[i];
    for (ptrdiff_t place = 0; run < last; place += 2 * half) {
        vector sum[ROWS][VECTORS];
        float first[ROWS * VECTORS * WIDTH] __attribute__((aligned(64)));
        ask_in_block(asks);
        if (in_turns(rows, vectors) && row_step == 1 && are_block(run, last, place, lane_pitch)) {
            whole_block(rows, vectors, row, run[0].rows, run[1].rows, 1, 0, lane_panel + place, lane_pitch, c, vectors, 0);
            run += 2;
            continue;
        }
        run = half_of_runs(rows, vectors, sum, run, last, place + half, row, row_step, lane_panel, lane_pitch);
        store_sums(rows, vectors, sum, first, vectors);
        __asm__ volatile("" : : "r"(first) : "memory");
        run = half_of_runs(rows, vectors, sum, run, last, place + 2 * half, row, row_step, lane_panel, lane_pitch);
        add_to_totals(rows, vectors, c, vectors, first, sum);
        __asm__ volatile("" : : : "memory");
    }
}

#define STRIDED_BLOCKS(name, r, v, pairs)                                                                                  \
    static __attribute__((noinline)) void SUFFIX(name##_apart_##r##_##v)(                                                  \
        const tile_run *run, const tile_run *last, const float *start, const int64_t *offsets, ptrdiff_t row_step,         \
        const float *lane_panel, ptrdiff_t lane_pitch, float *c, asking *asks)                                             \
    {                                                                                                                      \
        cut_blocks_body(r, v, run, last, start, offsets, row_step, lane_panel, lane_pitch, c, asks);                       \
    }                                                                                                                      \
    static void SUFFIX(name##_##r##_##v)(const tile_run *runs, ptrdiff_t run_count, const float *start,                    \
                                         const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel,              \
                                         ptrdiff_t lane_pitch, float *c, int resume, const tile_wish *wish)                \
    {                                                                                                                      \
        asking asks = begin_asking(wish);                                                                                  \
        if (!resume)                                                                                                       \
            clear_sums(r, v, c, v);                                                                                        \
        if (row_step == 1)                                                                                                 \
            cut_blocks_body(r, v, runs, runs + run_count, start, offsets, 1, lane_panel, lane_pitch, c, &asks);            \
        else                                                                                                               \
            SUFFIX(name##_apart_##r##_##v)(runs, runs + run_count, start, offsets, row_step, lane_panel, lane_pitch, c,    \
                                           &asks);                                                                         \
    }
