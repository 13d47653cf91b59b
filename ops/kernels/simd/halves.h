/* Tiles of two halves, each with its own steps: included by simd/tile.h.  Sums stay in registers while runs serve both or one. */
INLINE void halves_body(int rows, int vectors, const half_run *runs, ptrdiff_t run_count, const float *row_panel,
                        const float *lane_panel, ptrdiff_t lane_pitch, float *c, copying *meanwhile, int pairs)
{
    vector sum[ROWS][VECTORS];
    const float *row[ROWS];
    int half = rows / 2;
    load_sums(rows, vectors, sum, c, VECTORS, 0);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = row_panel + i;
    for (ptrdiff_t r = 0; r < run_count; r++) {
        const float *b = lane_panel + runs[r].run.lanes;
        ptrdiff_t a = runs[r].run.rows, k = runs[r].run.steps;
        if (runs[r].halves == 3)
            run_steps(rows, vectors, sum, row, a, ROWS, 0, b, lane_pitch, NULL, k, meanwhile, pairs);
        else if (runs[r].halves == 1)
            run_steps(half, vectors, sum, row, a, ROWS, 0, b, lane_pitch, NULL, k, meanwhile, pairs);
        else
            run_steps(half, vectors, sum + half, row + half, a, ROWS, 0, b, lane_pitch, NULL, k, meanwhile, pairs);
    }
    store_sums(rows, vectors, sum, c, VECTORS);
}

#define HALF_TILE(name, rows, vectors, pairs)                                                                            \
    static void SUFFIX(name##_##rows##_##vectors)(const half_run *runs, ptrdiff_t run_count, const float *row_panel,     \
                                                  const float *lane_panel, ptrdiff_t lane_pitch, float *c,               \
                                                  copying *meanwhile)                                                    \
    {                                                                                                                    \
        if (COPIES && meanwhile->left)                                                                                   \
            halves_body(rows, vectors, runs, run_count, row_panel, lane_panel, lane_pitch, c, meanwhile, pairs);         \
        else                                                                                                             \
            halves_body(rows, vectors, runs, run_count, row_panel, lane_panel, lane_pitch, c, NULL, pairs);              \
    }
#define HALF_ROWS(name, rows, pairs)                                                                                     \
    HALF_TILE(name, rows, 1, pairs) HALF_TILE(name, rows, 2, pairs) HALF_TILE(name, rows, 3, pairs)
#define HALF_ENTRIES(name, rows) {SUFFIX(name##_##rows##_1), SUFFIX(name##_##rows##_2), SUFFIX(name##_##rows##_3)}
#if ROWS == 8
#define HALF_TILES(name, pairs) \
    HALF_ROWS(name, 2, pairs) HALF_ROWS(name, 4, pairs) HALF_ROWS(name, 6, pairs) HALF_ROWS(name, 8, pairs)
#define HALVES(name) {HALF_ENTRIES(name, 2), HALF_ENTRIES(name, 4), HALF_ENTRIES(name, 6), HALF_ENTRIES(name, 8)}
#else
#define HALF_TILES(name, pairs) HALF_ROWS(name, 2, pairs) HALF_ROWS(name, 4, pairs)
#define HALVES(name) {HALF_ENTRIES(name, 2), HALF_ENTRIES(name, 4)}
#endif
HALF_TILES(halves, 0)
