/* Sums in blocks of positions (core/reduction.h) whose rows are lines of pairs that run backwards: included by simd/pair_lines.h.
 *
 * Blocks that lie side by side are taken in parts of the rows, as simd/block_parts.h does.  All rows of a tile take other blocks
 * together, one half after the other: a part has too few chains to take the steps of a half without waiting. */

enum { STRETCH_BLOCKS = 3 }; /* fewer whole blocks are taken as others: each part would load and store its totals for them */

typedef float __attribute__((aligned(2), may_alias)) any_pair;

/* One step: the pairs at row[i] + a. */
INLINE void line_step(int rows, int vectors, vector (*sum)[VECTORS], const char *const *row, ptrdiff_t a, const float *b)
{
    vector lanes[VECTORS];
    load_lanes(vectors, lanes, b, 1);
#pragma GCC unroll 9
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

/* Blocks of two whole halves whose numbers follow one another, as far as such blocks do.  The halves take steps in turns: twice as many
 * chains hide the time that a step takes. */
INLINE const tile_run *whole_blocks_body(int rows, int vectors, const tile_run *run, const tile_run *last, const char *start,
                                         const int64_t *offsets, const float *lane_panel, ptrdiff_t lane_pitch, float *c)
{
    const ptrdiff_t steps = HALF_BLOCK / 2, advance = -4;
    vector total[ROWS][VECTORS], first[ROWS][VECTORS], second[ROWS][VECTORS];
    const tile_run *begin = run;
    const char *row[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + offsets[i];
    load_sums(rows, vectors, total, c, vectors, 1);
    for (; last - run >= 2 && run[0].steps == steps && run[1].steps == steps && run[1].rows - run[0].rows == steps * advance; run += 2) {
        const float *b = lane_panel + run->lanes;
        ptrdiff_t a = run->rows;
        load_sums(rows, vectors, first, NULL, 0, 0);
        load_sums(rows, vectors, second, NULL, 0, 0);
        for (ptrdiff_t k = 0; k < steps; k++) {
            ONE_PLACE(vectors, 1, a);
            line_step(rows, vectors, first, row, a, b);
            line_step(rows, vectors, second, row, a + steps * advance, b + steps * lane_pitch);
            a += advance;
            b += lane_pitch;
        }
        add_halves(rows, vectors, total, first, second);
    }
    if (run > begin)
        store_sums(rows, vectors, total, c, vectors);
    return run;
}

/* The steps of one half of a block, which lies before `end`; returns the first run after it. */
INLINE const tile_run *half_of_lines(int rows, int vectors, vector (*sum)[VECTORS], const tile_run *run, const tile_run *last,
                                     ptrdiff_t end, const char *const *row, const float *lane_panel, ptrdiff_t lane_pitch)
{
    for (; run < last && run->lanes < end; run++) {
        const float *b = lane_panel + run->lanes;
        ptrdiff_t a = run->rows;
#pragma GCC unroll 1
        for (ptrdiff_t k = run->steps; k > 0; k--, a -= 4, b += lane_pitch) {
            ONE_PLACE(vectors, 1, a);
            line_step(rows, vectors, sum, row, a, b);
        }
    }
    return run;
}

/* Whether the next blocks, from a run on, lie side by side each. */
INLINE int is_stretch(const tile_run *run, const tile_run *last)
{
    const ptrdiff_t steps = HALF_BLOCK / 2;
    if (last - run < 2 * STRETCH_BLOCKS)
        return 0;
    for (int block = 0; block < STRETCH_BLOCKS; block++, run += 2)
        if (run[0].steps != steps || run[1].steps != steps || run[1].rows != run[0].rows - 4 * steps)
            return 0;
    return 1;
}

/* One half of a block after the other, from the block on whose lanes begin at `place`, up to a stretch of blocks side by side.
 * Returns the first run after them. */
INLINE const tile_run *cut_lines_body(int rows, int vectors, const tile_run *run, const tile_run *last, ptrdiff_t place,
                                      const char *start, const int64_t *offsets, const float *lane_panel, ptrdiff_t lane_pitch,
                                      float *c)
{
    const ptrdiff_t half_lanes = HALF_BLOCK / 2 * lane_pitch;
    float first[LINE_TILE_ROWS * VECTORS * WIDTH] __attribute__((aligned(64)));
    const char *row[LINE_TILE_ROWS];
#pragma GCC unroll 9
    for (int i = 0; i < rows; i++)
        row[i] = start + offsets[i];
    do {
        vector sum[LINE_TILE_ROWS][VECTORS];
        while (place + 2 * half_lanes <= run->lanes)
            place += 2 * half_lanes;
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            place += half_lanes;
            load_sums(rows, vectors, sum, NULL, 0, 0);
            run = half_of_lines(rows, vectors, sum, run, last, place, row, lane_panel, lane_pitch);
            if (half == 0)
                store_sums(rows, vectors, sum, first, vectors);
            __asm__ volatile("" : : "r"(first) : "memory"); /* they stay there */
        }
        add_to_totals(rows, vectors, c, vectors, first, sum);
    } while (run < last && !is_stretch(run, last));
    return run;
}

/* Functions of their own: in one function the compiler would keep some sums in memory. */
#define WHOLE_LINES(r, v, name)                                                                                        \
    static __attribute__((noinline)) const tile_run *SUFFIX(name##_##r##_##v)(                                         \
        const tile_run *run, const tile_run *last, const char *start, const int64_t *offsets, const float *lane_panel, \
        ptrdiff_t lane_pitch, float *c)                                                                                \
    {                                                                                                                  \
        return whole_blocks_body(r, v, run, last, start, offsets, lane_panel, lane_pitch, c);                          \
    }
#define LINES_ENTRY(rows, vectors, name) SUFFIX(name##_##rows##_##vectors)
PART_SIZES(WHOLE_LINES, whole_lines)

#define CUT_LINES(r, v, name)                                                                                          \
    static __attribute__((noinline)) const tile_run *SUFFIX(name##_##r##_##v)(                                         \
        const tile_run *run, const tile_run *last, ptrdiff_t place, const char *start, const int64_t *offsets,         \
        const float *lane_panel, ptrdiff_t lane_pitch, float *c)                                                       \
    {                                                                                                                  \
        return cut_lines_body(r, v, run, last, place, start, offsets, lane_panel, lane_pitch, c);                      \
    }
#define LINE_ROWS(kind, v, name)                                                                                       \
    kind(1, v, name) kind(2, v, name) kind(3, v, name) kind(4, v, name) kind(5, v, name) kind(6, v, name)              \
    kind(7, v, name) kind(8, v, name) kind(9, v, name)
#define CUT_ENTRY(rows, vectors, name) SUFFIX(name##_##rows##_##vectors),
LINE_ROWS(CUT_LINES, 1, cut_lines)
LINE_ROWS(CUT_LINES, 2, cut_lines)
LINE_ROWS(CUT_LINES, 3, cut_lines)

typedef const tile_run *(*whole_lines_function)(const tile_run *run, const tile_run *last, const char *start, const int64_t *offsets,
                                                const float *lane_panel, ptrdiff_t lane_pitch, float *c);
typedef const tile_run *(*cut_lines_function)(const tile_run *run, const tile_run *last, ptrdiff_t place, const char *start,
                                              const int64_t *offsets, const float *lane_panel, ptrdiff_t lane_pitch, float *c);

static void SUFFIX(line_pairs)(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const char *start,
                               const int64_t *offsets, const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume)
{
    static const whole_lines_function whole_of[ROWS][VECTORS] = PART_ENTRIES(LINES_ENTRY, whole_lines);
    static const cut_lines_function cut_of[VECTORS][LINE_TILE_ROWS] = {
        {LINE_ROWS(CUT_ENTRY, 1, cut_lines)}, {LINE_ROWS(CUT_ENTRY, 2, cut_lines)}, {LINE_ROWS(CUT_ENTRY, 3, cut_lines)}};
    const ptrdiff_t block = HALF_BLOCK * lane_pitch;
    const tile_run *last = runs + run_count;
    const int parts = parts_of(rows, vectors);
    if (!resume)
        memset(c, 0, rows * vectors * WIDTH * sizeof(float));
    for (const tile_run *run = runs, *done; run < last; run = done) {
        if (is_stretch(run, last))
            for (int part = 0; part < parts; part++) {
                int low = part_start(rows, parts, part), some = part_start(rows, parts, part + 1) - low;
                done = whole_of[some - 1][vectors - 1](run, last, start, offsets + low, lane_panel, lane_pitch,
                                                       c + low * vectors * WIDTH);
            }
        else
            done = cut_of[vectors - 1][rows - 1](run, last, run->lanes / block * block, start, offsets, lane_panel, lane_pitch, c);
    }
}
