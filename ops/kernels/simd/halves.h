/* Tiles of two halves, each with its own steps: included by simd/tile.h.  Sums stay in registers while runs serve both or one. */
INLINE void halves_body(int rows, int vectors, const half_run *runs, ptrdiff_t run_count, const float *row_panel,
                        const float *lane_panel, ptrdiff_t lane_pitch, float *c, copying *meanwhile)
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
            run_steps(rows, vectors, sum, row, a, ROWS, 0, b, lane_pitch, NULL, k, meanwhile, 0);
        else if (runs[r].halves == 1)
            run_steps(half, vectors, sum, row, a, ROWS, 0, b, lane_pitch, NULL, k, meanwhile, 0);
        else
            run_steps(half, vectors, sum + half, row + half, a, ROWS, 0, b, lane_pitch, NULL, k, meanwhile, 0);
    }
    store_sums(rows, vectors, sum, c, VECTORS);
}

#define HALF_TILE(rows, vectors)                                                                                         \
    static void SUFFIX(halves_##rows##_##vectors)(const half_run *runs, ptrdiff_t run_count, const float *row_panel,     \
                                                  const float *lane_panel, ptrdiff_t lane_pitch, float *c,               \
                                                  copying *meanwhile)                                                    \
    {                                                                                                                    \
        if (COPIES && meanwhile->left)                                                                                   \
            halves_body(rows, vectors, runs, run_count, row_panel, lane_panel, lane_pitch, c, meanwhile);                \
        else                                                                                                             \
            halves_body(rows, vectors, runs, run_count, row_panel, lane_panel, lane_pitch, c, NULL);                     \
    }
#define HALF_TILES(rows) HALF_TILE(rows, 1) HALF_TILE(rows, 2) HALF_TILE(rows, 3)
#define HALF_ENTRIES(rows) {SUFFIX(halves_##rows##_1), SUFFIX(halves_##rows##_2), SUFFIX(halves_##rows##_3)}
HALF_TILES(2) HALF_TILES(4)
#if ROWS == 8
HALF_TILES(6) HALF_TILES(8)
#define HALVES {HALF_ENTRIES(2), HALF_ENTRIES(4), HALF_ENTRIES(6), HALF_ENTRIES(8)}
#else
#define HALVES {HALF_ENTRIES(2), HALF_ENTRIES(4)}
#endif
