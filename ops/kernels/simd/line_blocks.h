/* Sums in blocks of positions (core/reduction.h) whose rows are lines of pairs that run backwards: included by simd/pair_lines.h.  The
 * rows of a tile are taken in parts, as simd/block_parts.h does. */

typedef float __attribute__((aligned(2), may_alias)) any_pair;

/* One step: the pairs at row[i] + a. */
INLINE void line_step(int rows, int vectors, vector (*sum)[VECTORS], const char *const *row, ptrdiff_t a, const float *b)
{
    vector lanes[VECTORS];
    load_lanes(vectors, lanes, b, 1);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        const any_pair *pair = (const any_pair *)(row[i] + a);
        if (vectors == 1) { /* nothing shares the broadcast */
            MULTIPLY_ADD_PAIR("16", pair, lanes[0], sum[i][0]);
            continue;
        }
        vector all = BROADCAST(*pair);
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sum[i][j] = MULTIPLY_ADD_PAIRS(all, lanes[j], sum[i][j]);
    }
}

/* The runs of one half of a block; returns the first run after it. */
INLINE const tile_run *half_of_lines(int rows, int vectors, vector (*sum)[VECTORS], const tile_run *run, const tile_run *last,
                                     ptrdiff_t end, const char *const *row, const float *lane_panel, ptrdiff_t lane_pitch)
{
    load_sums(rows, vectors, sum, NULL, 0, 0);
    for (; run < last && run->lanes < end; run++)
        for (ptrdiff_t k = 0; k < run->steps; k++)
            line_step(rows, vectors, sum, row, run->rows - 4 * k, lane_panel + run->lanes + k * lane_pitch);
    return run;
}

/* Blocks of two whole halves whose numbers follow one another, as far as such blocks do.  The halves take steps in turns: twice as many
 * chains hide the time that a step takes. */
INLINE const tile_run *whole_blocks_body(int rows, int vectors, const tile_run *run, const tile_run *last, const char *start,
                                         const int64_t *offsets, const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume)
{
    const ptrdiff_t steps = HALF_BLOCK / 2, advance = -4;
    vector total[ROWS][VECTORS], first[ROWS][VECTORS], second[ROWS][VECTORS];
    const tile_run *begin = run;
    load_sums(rows, vectors, total, c, vectors, resume);
    for (; last - run >= 2 && run[0].steps == steps && run[1].steps == steps && run[1].rows - run[0].rows == steps * advance; run += 2) {
        const float *b = lane_panel + run->lanes;
        const char *row[ROWS];
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            row[i] = start + offsets[i] + run->rows;
        load_sums(rows, vectors, first, NULL, 0, 0);
        load_sums(rows, vectors, second, NULL, 0, 0);
        for (ptrdiff_t k = 0; k < steps; k++) {
            line_step(rows, vectors, first, row, 0, b);
            line_step(rows, vectors, second, row, steps * advance, b + steps * lane_pitch);
            b += lane_pitch;
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                row[i] += advance;
        }
        add_halves(rows, vectors, total, first, second);
    }
    if (run > begin)
        store_sums(rows, vectors, total, c, vectors);
    return run;
}

/* Any one block, whose second half ends before `end`. */
INLINE const tile_run *one_block_body(int rows, int vectors, const tile_run *run, const tile_run *last, ptrdiff_t end,
                                      const char *start, const int64_t *offsets, const float *lane_panel, ptrdiff_t lane_pitch,
                                      float *c, int resume)
{
    vector total[ROWS][VECTORS], first[ROWS][VECTORS], second[ROWS][VECTORS];
    const char *row[ROWS];
    load_sums(rows, vectors, total, c, vectors, resume);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + offsets[i];
    run = half_of_lines(rows, vectors, first, run, last, end - HALF_BLOCK / 2 * lane_pitch, row, lane_panel, lane_pitch);
    run = half_of_lines(rows, vectors, second, run, last, end, row, lane_panel, lane_pitch);
    add_halves(rows, vectors, total, first, second);
    store_sums(rows, vectors, total, c, vectors);
    return run;
}

/* Functions of their own: in one function the compiler would keep some sums in memory. */
#define SOME_LINES(r, v, name)                                                                                             \
    static __attribute__((noinline)) const tile_run *SUFFIX(name##_whole_##r##_##v)(                               \
        const tile_run *run, const tile_run *last, const char *start, const int64_t *offsets, const float *lane_panel, \
        ptrdiff_t lane_pitch, float *c, int resume)                                                                    \
    {                                                                                                                  \
        return whole_blocks_body(r, v, run, last, start, offsets, lane_panel, lane_pitch, c, resume);                  \
    }                                                                                                                  \
    static __attribute__((noinline)) const tile_run *SUFFIX(name##_one_##r##_##v)(                                 \
        const tile_run *run, const tile_run *last, ptrdiff_t end, const char *start, const int64_t *offsets,           \
        const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume)                                           \
    {                                                                                                                  \
        return one_block_body(r, v, run, last, end, start, offsets, lane_panel, lane_pitch, c, resume);                \
    }

#define LINES_ENTRY(rows, vectors, name) {SUFFIX(name##_whole_##rows##_##vectors), SUFFIX(name##_one_##rows##_##vectors)}
PART_SIZES(SOME_LINES, pair_lines)

typedef struct {
    const tile_run *(*whole)(const tile_run *, const tile_run *, const char *, const int64_t *, const float *, ptrdiff_t, float *, int);
    const tile_run *(*one)(const tile_run *, const tile_run *, ptrdiff_t, const char *, const int64_t *, const float *, ptrdiff_t,
                           float *, int);
} lines_functions;

static void SUFFIX(line_pairs)(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const char *start,
                               const int64_t *offsets, const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume)
{
    static const lines_functions of[ROWS][VECTORS] = PART_ENTRIES(LINES_ENTRY, pair_lines);
    const ptrdiff_t block = HALF_BLOCK * lane_pitch;
    const tile_run *last = runs + run_count;
    const int parts = parts_of(rows, vectors);
    if (!resume && run_count == 0)
        memset(c, 0, rows * vectors * WIDTH * sizeof(float));
    for (int part = 0; part < parts; part++) {
        int low = rows * part / parts, some = rows * (part + 1) / parts - low, more = resume;
        const lines_functions *those = &of[some - 1][vectors - 1];
        float *sums = c + low * vectors * WIDTH;
        for (const tile_run *run = runs, *done; run < last; run = done, more = 1) {
            done = those->whole(run, last, start, offsets + low, lane_panel, lane_pitch, sums, more);
            if (done == run)
                done = those->one(run, last, (run->lanes / block + 1) * block, start, offsets + low, lane_panel, lane_pitch, sums, more);
        }
    }
}
