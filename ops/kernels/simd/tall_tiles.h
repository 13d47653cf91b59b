/* Tiles of one vector whose rows are equally far apart: included by simd/tile.h for 16 lanes, whose registers hold sums of more rows than
 * TILE_ROWS.  Eight sums of one vector wait for one another, and each row that lies anywhere takes a register for its place. */
INLINE const float *tall_row(const char *const *four, ptrdiff_t apart, ptrdiff_t three, int row)
{
    const char *first = four[row / 4];
    return (const float *)(row % 4 == 0 ? first : row % 4 == 1 ? first + apart : row % 4 == 2 ? first + 2 * apart : first + three);
}

INLINE void tall_body(int rows, const tile_run *runs, ptrdiff_t run_count, const float *place, ptrdiff_t apart, ptrdiff_t row_step,
                      const float *lanes, ptrdiff_t lane_pitch, float *c, int resume)
{
    vector sum[TALL_ROWS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
        sum[i] = resume ? *(const vector *)(c + i * WIDTH) : BROADCAST(0.0f);
    ptrdiff_t bytes = 4 * apart, three = 3 * bytes;
    for (ptrdiff_t r = 0; r < run_count; r++) {
        const float *b = lanes + runs[r].lanes;
        const char *four[TALL_ROWS / 4];
#pragma GCC unroll 4
        for (int i = 0; 4 * i < rows; i++)
            four[i] = (const char *)(place + runs[r].rows) + 4 * i * bytes;
        for (ptrdiff_t k = runs[r].steps; k > 0; k--) {
            vector weights = *(const vector *)b;
            KEEP(weights);
            __asm__("" : "+r"(bytes), "+r"(three)); /* otherwise GCC takes a register for the place of each row */
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++)
                sum[i] = MULTIPLY_ADD(BROADCAST(*tall_row(four, bytes, three, i)), weights, sum[i]);
#pragma GCC unroll 4
            for (int i = 0; 4 * i < rows; i++)
                four[i] += 4 * row_step;
            b += lane_pitch;
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
        *(vector *)(c + i * WIDTH) = sum[i];
}

#define TALL_TILE(rows)                                                                                                         \
    static void SUFFIX(tall_##rows)(const tile_run *runs, ptrdiff_t run_count, const float *place, ptrdiff_t apart,             \
                                    ptrdiff_t row_step, const float *lanes, ptrdiff_t lane_pitch, float *c, int resume)         \
    {                                                                                                                           \
        tall_body(rows, runs, run_count, place, apart, row_step, lanes, lane_pitch, c, resume);                                 \
    }
TALL_TILE(9) TALL_TILE(10) TALL_TILE(11) TALL_TILE(12) TALL_TILE(13) TALL_TILE(14) TALL_TILE(15) TALL_TILE(16)
#define ALL_TALL                                                                                                                \
    {SUFFIX(tall_9), SUFFIX(tall_10), SUFFIX(tall_11), SUFFIX(tall_12), SUFFIX(tall_13), SUFFIX(tall_14), SUFFIX(tall_15),      \
     SUFFIX(tall_16)}
