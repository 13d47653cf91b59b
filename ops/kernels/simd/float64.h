/* Sums in float64: the register tile and dot products, on vectors of half as many lanes; simd/tile.h includes it. */
#include <math.h>

#define DOUBLES (WIDTH / 2) /* lanes of a vector */

typedef double vector_double __attribute__((vector_size(8 * DOUBLES), aligned(8), may_alias));

INLINE void tile64_body(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const double *row_panel,
                        const int64_t *offsets, ptrdiff_t row_step, const double *lane_panel, double *c)
{
    vector_double sum[ROWS][VECTORS];
    const double *row[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        row[i] = row_panel + offsets[i];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sum[i][j] = *(const vector_double *)(c + (i * VECTORS + j) * DOUBLES);
    }
    for (const tile_run *run = runs; run < runs + run_count; run++) {
        const double *b = lane_panel + run->lanes;
        ptrdiff_t a = run->rows;
        for (ptrdiff_t k = run->steps; k > 0; k--) {
            vector_double lanes[VECTORS];
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) {
                lanes[j] = *(const vector_double *)(b + j * DOUBLES);
                if (rows > 1)
                    KEEP(lanes[j]);
            }
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
                for (int j = 0; j < vectors; j++)
                    sum[i][j] = MULTIPLY_ADD_DOUBLE(BROADCAST_DOUBLE(row[i][a]), lanes[j], sum[i][j]);
            a += row_step;
            b += VECTORS * DOUBLES;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            *(vector_double *)(c + (i * VECTORS + j) * DOUBLES) = sum[i][j];
}

#define TILE64(rows, vectors)                                                                                           \
    static void SUFFIX(tile64_##rows##_##vectors)(const tile_run *runs, ptrdiff_t run_count, const double *row_panel,   \
                                                  const int64_t *offsets, ptrdiff_t row_step, const double *lane_panel, \
                                                  double *c)                                                            \
    {                                                                                                                   \
        tile64_body(rows, vectors, runs, run_count, row_panel, offsets, row_step, lane_panel, c);                       \
    }
#define TILES64(rows) TILE64(rows, 1) TILE64(rows, 2) TILE64(rows, 3)
TILES64(1) TILES64(2) TILES64(3) TILES64(4)
#if ROWS == 8
TILES64(5) TILES64(6) TILES64(7) TILES64(8)
#endif

/* Numbers side by side are loaded as vectors. */
static void SUFFIX(line64)(double *sums, const double *numbers, ptrdiff_t step, double weight, int64_t count)
{
    int64_t i = 0;
    if (step == 1) {
        const vector_double factor = BROADCAST_DOUBLE(weight);
        for (; i + DOUBLES <= count; i += DOUBLES) {
            vector_double *sum = (vector_double *)(sums + i);
            *sum = MULTIPLY_ADD_DOUBLE(*(const vector_double *)(numbers + i), factor, *sum);
        }
    }
    for (; i < count; i++)
        sums[i] = fma(numbers[i * step], weight, sums[i]);
}

INLINE void dot64_body(int rows, double *sums, const double *large, const double *small, ptrdiff_t pitch, ptrdiff_t count)
{
    for (int part = 0; part < REDUCTION_CHAINS; part += DOUBLES) { /* vectors of chains, one after the other */
        vector_double sum[REDUCTION_FEW];
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            sum[i] = *(const vector_double *)(sums + i * REDUCTION_CHAINS + part);
        for (ptrdiff_t k = part; k < count; k += REDUCTION_CHAINS) {
            vector_double lanes = *(const vector_double *)(large + k);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                sum[i] = MULTIPLY_ADD_DOUBLE(*(const vector_double *)(small + i * pitch + k), lanes, sum[i]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            *(vector_double *)(sums + i * REDUCTION_CHAINS + part) = sum[i];
    }
}

#define DOT64(rows)                                                                                                      \
    static void SUFFIX(dot64_##rows)(double *sums, const double *large, const double *small, ptrdiff_t pitch,            \
                                     ptrdiff_t count)                                                                    \
    {                                                                                                                    \
        dot64_body(rows, sums, large, small, pitch, count);                                                              \
    }
DOT64(1) DOT64(2) DOT64(3) DOT64(4) DOT64(5) DOT64(6) DOT64(7) DOT64(8)
