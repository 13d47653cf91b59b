/* Tiles whose lanes are channels at several taps: included by simd/tile.h.  Sums lie in a matrix, and runs tell where halves of
 * blocks of sums end (core/reduction.h). */
INLINE void tap_lanes_body(int rows, int vectors, const half_run *runs, ptrdiff_t run_count, const float *start, const int64_t *offsets,
                           ptrdiff_t row_step, const float *lanes, ptrdiff_t lane_pitch, float *c, ptrdiff_t pitch, int blocks,
                           const tile_wish *wish)
{
    vector sum[ROWS][VECTORS], first[ROWS][VECTORS];
    const float *row[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + offsets[i];
    asking asks = begin_asking(wish);
    if (!blocks) {
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                sum[i][j] = *(const vector *)(c + i * pitch + j * WIDTH);
        for (ptrdiff_t r = 0; r < run_count; r++)
            one_run(rows, vectors, sum, row, &runs[r].run, row_step, 0, lanes, lane_pitch, NULL, &asks, 0, NULL, 0);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                *(vector *)(c + i * pitch + j * WIDTH) = sum[i][j];
        return;
    }
    load_sums(rows, vectors, first, c, VECTORS, 0);
    for (ptrdiff_t r = 0; r < run_count;) {
        load_sums(rows, vectors, sum, c, VECTORS, 0);
        do
            one_run(rows, vectors, sum, row, &runs[r].run, row_step, 0, lanes, lane_pitch, NULL, &asks, 0, NULL, 0);
        while (!runs[r++].halves);
        int64_t halves = runs[r - 1].halves;
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) {
                vector *place = (vector *)(c + i * pitch + j * WIDTH);
                if (halves == 1)
                    first[i][j] = sum[i][j];
                else if (halves == 2)
                    *place += first[i][j] + sum[i][j];
                else
                    *place += sum[i][j];
            }
    }
}

#define TAP_LANES(rows, vectors)                                                                                           \
    static void SUFFIX(tap_lanes_##rows##_##vectors)(                                                                      \
        const half_run *runs, ptrdiff_t run_count, const float *start, const int64_t *offsets, ptrdiff_t row_step,         \
        const float *lanes, ptrdiff_t lane_pitch, float *c, ptrdiff_t pitch, int blocks, const tile_wish *wish)            \
    {                                                                                                                      \
        if (blocks)                                                                                                        \
            tap_lanes_body(rows, vectors, runs, run_count, start, offsets, row_step, lanes, lane_pitch, c, pitch, 1, wish); \
        else                                                                                                               \
            tap_lanes_body(rows, vectors, runs, run_count, start, offsets, row_step, lanes, lane_pitch, c, pitch, 0, wish); \
    }
#define TAP_LANES_ROWS(rows) TAP_LANES(rows, 1) TAP_LANES(rows, 2) TAP_LANES(rows, 3)
TAP_LANES_ROWS(1) TAP_LANES_ROWS(2) TAP_LANES_ROWS(3) TAP_LANES_ROWS(4)
#if ROWS == 8
TAP_LANES_ROWS(5) TAP_LANES_ROWS(6) TAP_LANES_ROWS(7) TAP_LANES_ROWS(8)
#endif
