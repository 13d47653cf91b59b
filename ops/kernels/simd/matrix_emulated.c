/* In place of simd/matrix.c where CONVREG_MATRIX=emulated builds it: the same tiles in AVX-512, so that all that surrounds a matrix unit
 * can be tested without one, on processors with bfloat16 dot products. */
#include "simd/matrix.h"

#ifdef HAVE_MATRIX
#include <immintrin.h>
#include <stdlib.h>

#define TARGET "avx512f"

enum { ROWS = 16, LANES = 16, PITCH = 48, STEPS = 16 };

static __thread int begun;

int matrix_usable(void)
{
    return 1;
}

void matrix_begin(void)
{
    begun = 1;
}

void matrix_end(void)
{
    begun = 0;
}

#include "simd/begin_target.h"
static inline __m512 upper_half(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}

static inline __m512 lower_half(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

/* A row of sums and the 16 steps of a block. */
static inline __m512 add_block(__m512 sum, const float *row, const float *lanes, ptrdiff_t lane_pitch)
{
    __m512 first = _mm512_setzero_ps(), second = _mm512_setzero_ps();
    for (int k = 0; k < STEPS; k++) {
        __m512i a = _mm512_castps_si512(_mm512_set1_ps(row[k])), b = _mm512_castps_si512(_mm512_loadu_ps(lanes + k * lane_pitch));
        first = _mm512_fmadd_ps(upper_half(a), upper_half(b), first);
        second = _mm512_fmadd_ps(lower_half(a), lower_half(b), second);
    }
    return _mm512_add_ps(sum, _mm512_add_ps(first, second));
}

static void begin_sums(int vectors, float *c, int resume)
{
    if (!begun)
        abort(); /* a matrix unit that is not set up would raise a signal */
    for (int i = 0; i < ROWS && !resume; i++)
        for (int v = 0; v < vectors; v++)
            _mm512_storeu_ps(c + i * PITCH + v * LANES, _mm512_setzero_ps());
}

/* A block of 16 rows, row_pitch apart. */
static void add_rows(int vectors, const float *rows, ptrdiff_t row_pitch, const float *lanes, ptrdiff_t lane_pitch, float *c)
{
    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < vectors; v++) {
            float *place = c + i * PITCH + v * LANES;
            _mm512_storeu_ps(place, add_block(_mm512_loadu_ps(place), rows + i * row_pitch, lanes + v * LANES, lane_pitch));
        }
}

#define MATRIX_BLOCKS(vectors)                                                                                           \
    void matrix_blocks_##vectors(const tile_run *runs, ptrdiff_t run_count, const float *rows, ptrdiff_t next,           \
                                 const float *lanes, ptrdiff_t lane_pitch, float *c, int resume, copying *meanwhile,     \
                                 const tile_result *result)                                                              \
    {                                                                                                                    \
        (void)next, (void)meanwhile, (void)result;                                                                       \
        begin_sums(vectors, c, resume);                                                                                  \
        for (ptrdiff_t r = 0; r < run_count; r++)                                                                        \
            for (ptrdiff_t k = 0; k < runs[r].steps; k += STEPS)                                                         \
                add_rows(vectors, rows + runs[r].rows + k * ROWS, STEPS, lanes + runs[r].lanes + k * lane_pitch,         \
                         lane_pitch, c);                                                                                 \
    }
MATRIX_BLOCKS(1)
MATRIX_BLOCKS(2)
MATRIX_BLOCKS(3)

#define MATRIX_PANELS(vectors)                                                                                           \
    void matrix_panels_##vectors(int64_t count, int64_t blocks, const float *rows, const int64_t *offsets,               \
                                 ptrdiff_t row_pitch, const float *lanes, ptrdiff_t lane_pitch, float *c,                \
                                 ptrdiff_t c_pitch, int resume)                                                          \
    {                                                                                                                    \
        for (int64_t p = 0; p < count; p++, c += c_pitch) {                                                              \
            begin_sums(vectors, c, resume);                                                                              \
            for (int64_t k = 0; k < blocks; k++)                                                                         \
                add_rows(vectors, rows + offsets[p * blocks + k], row_pitch, lanes + k * STEPS * lane_pitch, lane_pitch, \
                         c);                                                                                             \
        }                                                                                                                \
    }
MATRIX_PANELS(1)
MATRIX_PANELS(2)
MATRIX_PANELS(3)
#include "simd/end_target.h"
#endif
