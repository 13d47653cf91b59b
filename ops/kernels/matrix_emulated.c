/* In place of matrix.c where CONVREG_MATRIX=emulated builds it: the same tiles in plain loops, so that all that surrounds a matrix
 * unit can be tested without one. */
#include "matrix.h"

#ifdef HAVE_MATRIX
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* The bfloat16 number in one half of a pair. */
static float half_of(const float *pair, int upper)
{
    uint32_t bits;
    float value;
    memcpy(&bits, pair, sizeof bits);
    bits = upper ? bits & 0xffff0000u : bits << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float chain(const float *a, const float *b, ptrdiff_t lane_pitch, int upper)
{
    float sum = 0;
    for (int k = 0; k < STEPS; k++)
        sum = fmaf(half_of(a + k, upper), half_of(b + k * lane_pitch, upper), sum);
    return sum;
}

static void blocks_body(int vectors, const tile_run *runs, ptrdiff_t run_count, const float *rows, const float *lanes,
                        ptrdiff_t lane_pitch, float *c, int resume)
{
    if (!begun)
        abort(); /* a matrix unit that is not set up would raise a signal */
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < vectors * LANES; j++) {
            float *sum = c + i * PITCH + j;
            if (!resume)
                *sum = 0;
            for (ptrdiff_t r = 0; r < run_count; r++)
                for (ptrdiff_t k = 0; k < runs[r].steps; k += STEPS) {
                    const float *a = rows + runs[r].rows + k * ROWS + i * STEPS, *b = lanes + runs[r].lanes + k * lane_pitch + j;
                    float first = chain(a, b, lane_pitch, 1), second = chain(a, b, lane_pitch, 0);
                    *sum += first + second;
                }
        }
}

#define MATRIX_BLOCKS(vectors)                                                                                           \
    void matrix_blocks_##vectors(const tile_run *runs, ptrdiff_t run_count, const float *rows, ptrdiff_t next,           \
                                 const float *lanes, ptrdiff_t lane_pitch, float *c, int resume, copying *meanwhile,     \
                                 const tile_result *result)                                                              \
    {                                                                                                                    \
        (void)next, (void)meanwhile, (void)result;                                                                       \
        blocks_body(vectors, runs, run_count, rows, lanes, lane_pitch, c, resume);                                       \
    }
MATRIX_BLOCKS(1)
MATRIX_BLOCKS(2)
MATRIX_BLOCKS(3)
#endif
