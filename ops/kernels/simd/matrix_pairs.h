/* Panels for a matrix unit: pairs of channels half a block of sums apart.  Included by simd/pairs.h. */
#include "simd/matrix.h"

#ifdef HAVE_MATRIX
GATHER_PAIRS(gather_matrix, HALF_BLOCK)

enum { MATRIX_ROWS = 16 };

static void SUFFIX(gather_taps_matrix)(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels,
                                       const void *source, int format, int64_t row_stride, int64_t channel_stride,
                                       const int64_t *taps, int64_t tap_count, uint16_t *smallest)
{
    for (int done = 0; done < rows; done += ROWS)
        gather_taps_apart(panel + done, tap_step, pitch, rows - done < ROWS ? rows - done : ROWS, channels,
                          at(source, format, done * row_stride), format, row_stride, channel_stride, taps, tap_count, smallest,
                          HALF_BLOCK);
}

static void SUFFIX(turn_rows)(float *panel, ptrdiff_t tap_step, int64_t tap_count, int64_t steps)
{
    for (int64_t t = 0; t < tap_count; t++)
        for (int64_t step = 0; step < steps; step += HALF_BLOCK) {
            float *place = panel + t * tap_step + step * MATRIX_ROWS;
            __m512i row[HALF_BLOCK];
#pragma GCC unroll 16
            for (int i = 0; i < HALF_BLOCK; i++)
                row[i] = _mm512_loadu_si512(place + i * MATRIX_ROWS);
            transpose_vectors(row);
#pragma GCC unroll 16
            for (int i = 0; i < HALF_BLOCK; i++)
                _mm512_storeu_si512(place + i * HALF_BLOCK, row[i]);
        }
}

INLINE void line_rows_format(float *panel, int64_t rows, int64_t count, const void *source, int format, int64_t line, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    const __m512i order = halves_order();
    magnitudes met = none_met;
    for (int64_t r = 0; r < MATRIX_ROWS; r++)
        for (int64_t k = 0; k < count; k += SUM_BLOCK) {
            float *place = panel + k / 2 * MATRIX_ROWS + r * HALF_BLOCK;
            if (r >= rows) {
                *(vector *)place = (vector){0};
                continue;
            }
            __m512i codes = load_words(at(source, format, r * line + k), format, count - k < SUM_BLOCK ? count - k : SUM_BLOCK);
            put_pairs(place, _mm512_permutexvar_epi16(order, codes), &d, format, &met);
        }
    note_smallest(smallest, &met);
}

static void SUFFIX(line_rows)(float *panel, int64_t rows, int64_t count, const void *source, int format, int64_t line,
                              uint16_t *smallest)
{
    if (format == NUMBER_BFLOAT16)
        line_rows_format(panel, rows, count, source, NUMBER_BFLOAT16, line, smallest);
    else
        line_rows_format(panel, rows, count, source, format, line, smallest);
}

const pair_functions SUFFIX(matrix) = {
    .panel_rows = MATRIX_ROWS,
    .apart = HALF_BLOCK,
    .blocks = {{matrix_blocks_1, matrix_blocks_2, matrix_blocks_3}},
    .begin = matrix_begin,
    .end = matrix_end,
    .turn = SUFFIX(turn_rows),
    .line_rows = SUFFIX(line_rows),
    .gather = SUFFIX(gather_matrix),
    .gather_taps = SUFFIX(gather_taps_matrix),
    .frame = SUFFIX(frame_pairs),
    .split = SUFFIX(split_pairs),
    .finite = SUFFIX(finite_pairs),
};
#endif
