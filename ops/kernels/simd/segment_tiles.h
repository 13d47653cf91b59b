/* Tiles whose rows are positions side by side in a line and whose lanes are SEGMENT_LANES output channels of a group: included by
 * simd/segments.h for vectors of 4, 8 and 16 lanes.  Sums never leave the registers.
 *
 * A broadcast in the operand of a multiply-add costs a load and nothing else, and vectors of 8 and 4 lanes begin twice as often as those of
 * 16 where the units are 256 bits wide.  So groups of 8 channels lose nothing, and groups of 4 half. */
#if SEGMENT_LANES == 16
#define SEGMENT(name) name##_16
typedef __m512 segment_16;
#define LOAD_SEGMENT(p) _mm512_loadu_ps(p)
#define STORE_SEGMENT(p, v) _mm512_storeu_ps(p, v)
#define ZERO_SEGMENT _mm512_setzero_ps()
#define ADD_SEGMENTS(a, b) _mm512_add_ps(a, b)
#define SEGMENT_PAIRS_IN "16"
#define MULTIPLY_SEGMENT(sum, p, w) _mm512_fmadd_ps(_mm512_set1_ps(*(p)), w, sum)
#elif SEGMENT_LANES == 8
#define SEGMENT(name) name##_8
typedef __m256 segment_8;
#define LOAD_SEGMENT(p) _mm256_loadu_ps(p)
#define STORE_SEGMENT(p, v) _mm256_storeu_ps(p, v)
#define ZERO_SEGMENT _mm256_setzero_ps()
#define ADD_SEGMENTS(a, b) _mm256_add_ps(a, b)
#define SEGMENT_PAIRS_IN "8"
#define MULTIPLY_SEGMENT(sum, p, w) _mm256_fmadd_ps(_mm256_set1_ps(*(p)), w, sum)
#else
#define SEGMENT(name) name##_4
typedef __m128 segment_4;
#define LOAD_SEGMENT(p) _mm_loadu_ps(p)
#define STORE_SEGMENT(p, v) _mm_storeu_ps(p, v)
#define ZERO_SEGMENT _mm_setzero_ps()
#define ADD_SEGMENTS(a, b) _mm_add_ps(a, b)
#define SEGMENT_PAIRS_IN "4"
#define MULTIPLY_SEGMENT(sum, p, w) _mm_fmadd_ps(_mm_set1_ps(*(p)), w, sum)
#endif

INLINE SEGMENT(segment) SEGMENT(segment_multiply)(SEGMENT(segment) sum, const float *p, SEGMENT(segment) w)
{
#ifdef SEGMENT_PAIRS
    MULTIPLY_ADD_PAIR(SEGMENT_PAIRS_IN, p, w, sum);
    return sum;
#else
    return MULTIPLY_SEGMENT(sum, p, w);
#endif
}

/* Steps of a run, of which `count` segments of `length` positions take part in chains of their own. */
INLINE void SEGMENT(segment_steps)(int count, int length, SEGMENT(segment) (*sum)[SEGMENT_LENGTH], const float *a, ptrdiff_t apart,
                                   ptrdiff_t pitch, const float *b, ptrdiff_t steps)
{
    const float *place[SEGMENT_COUNT] = {a, a + apart};
    for (; steps > 0; steps--) {
        SEGMENT(segment) weights = LOAD_SEGMENT(b);
        KEEP(weights);
        if (count > 1) /* otherwise GCC 12 takes a register for the address of each position */
            __asm__("" : "+r"(place[1]));
#pragma GCC unroll 2
        for (int s = 0; s < count; s++)
#pragma GCC unroll 14
            for (int i = 0; i < length; i++)
                sum[s][i] = SEGMENT(segment_multiply)(sum[s][i], place[s] + i, weights);
        place[0] += pitch;
        place[1] += pitch;
        b += SEGMENT_LANES;
    }
}

INLINE void SEGMENT(clear_segments)(int count, int length, SEGMENT(segment) (*sum)[SEGMENT_LENGTH])
{
#pragma GCC unroll 2
    for (int s = 0; s < count; s++)
#pragma GCC unroll 14
        for (int i = 0; i < length; i++)
            sum[s][i] = ZERO_SEGMENT;
}

INLINE void SEGMENT(add_segments)(int count, int length, SEGMENT(segment) (*sum)[SEGMENT_LENGTH],
                                  SEGMENT(segment) (*more)[SEGMENT_LENGTH])
{
#pragma GCC unroll 2
    for (int s = 0; s < count; s++)
#pragma GCC unroll 14
        for (int i = 0; i < length; i++)
            sum[s][i] = ADD_SEGMENTS(sum[s][i], more[s][i]);
}

/* A run that is a block of two halves at a time (core/reduction.h), both halves of a whole block side by side. */
INLINE void SEGMENT(segment_blocks)(int length, SEGMENT(segment) (*sum)[SEGMENT_LENGTH], const float *a, ptrdiff_t pitch, const float *b,
                                    ptrdiff_t steps)
{
    SEGMENT(segment) first[1][SEGMENT_LENGTH], second[1][SEGMENT_LENGTH];
    for (; steps > 0; steps -= 2 * SEGMENT_HALF) {
        SEGMENT(clear_segments)(1, length, first);
        SEGMENT(clear_segments)(1, length, second);
        if (steps >= 2 * SEGMENT_HALF) {
            for (int k = 0; k < SEGMENT_HALF; k++) {
                SEGMENT(segment_steps)(1, length, first, a, 0, pitch, b, 1);
                SEGMENT(segment_steps)(1, length, second, a + SEGMENT_HALF * pitch, 0, pitch, b + SEGMENT_HALF * SEGMENT_LANES, 1);
                a += pitch;
                b += SEGMENT_LANES;
            }
            a += SEGMENT_HALF * pitch;
            b += SEGMENT_HALF * SEGMENT_LANES;
        } else {
            ptrdiff_t low = steps < SEGMENT_HALF ? steps : SEGMENT_HALF;
            SEGMENT(segment_steps)(1, length, first, a, 0, pitch, b, low);
            SEGMENT(segment_steps)(1, length, second, a + low * pitch, 0, pitch, b + low * SEGMENT_LANES, steps - low);
        }
        SEGMENT(add_segments)(1, length, first, second);
        SEGMENT(add_segments)(1, length, sum, first);
    }
}

INLINE void SEGMENT(segment_tile)(int kind, int count, int length, const tile_run *runs, ptrdiff_t run_count, const float *rows,
                                  ptrdiff_t apart, ptrdiff_t pitch, const float *lanes, float *c, ptrdiff_t c_apart, ptrdiff_t c_step)
{
    SEGMENT(segment) sum[SEGMENT_COUNT][SEGMENT_LENGTH], half[SEGMENT_COUNT][SEGMENT_LENGTH];
    SEGMENT(clear_segments)(count, length, sum);
    for (ptrdiff_t r = 0; r < run_count; r++) {
        const float *a = rows + runs[r].rows, *b = lanes + runs[r].lanes;
        if (kind == SEGMENT_CHAIN)
            SEGMENT(segment_steps)(count, length, sum, a, apart, pitch, b, runs[r].steps);
        else if (kind == SEGMENT_BLOCKS)
            SEGMENT(segment_blocks)(length, sum, a, pitch, b, runs[r].steps);
        else { /* the one half that there is, which has as many steps in nearly all layers */
            SEGMENT(clear_segments)(count, length, half);
            if (runs[r].steps == SEGMENT_HALF)
                SEGMENT(segment_steps)(count, length, half, a, apart, pitch, b, SEGMENT_HALF);
            else
                SEGMENT(segment_steps)(count, length, half, a, apart, pitch, b, runs[r].steps);
            SEGMENT(add_segments)(count, length, sum, half);
        }
    }
#pragma GCC unroll 2
    for (int s = 0; s < count; s++)
#pragma GCC unroll 14
        for (int i = 0; i < length; i++)
            STORE_SEGMENT(c + s * c_apart + i * c_step, sum[s][i]);
}

#define SEGMENT_TILE(name, kind, count, length)                                                                            \
    static void SEGMENT(name##_##count##_##length)(const tile_run *runs, ptrdiff_t run_count, const float *rows,           \
                                                   ptrdiff_t apart, ptrdiff_t pitch, const float *lanes, float *c,         \
                                                   ptrdiff_t c_apart, ptrdiff_t c_step)                                    \
    {                                                                                                                      \
        SEGMENT(segment_tile)(kind, count, length, runs, run_count, rows, apart, pitch, lanes, c, c_apart, c_step);        \
    }
#define SEGMENT_CHAINS(count, length) SEGMENT_TILE(segment_chain, SEGMENT_CHAIN, count, length)
#define SEGMENT_HALVES(count, length) SEGMENT_TILE(segment_half, SEGMENT_ONE_HALF, count, length)
#define SEGMENT_BLOCKED(count, length) SEGMENT_TILE(segment_blocks, SEGMENT_BLOCKS, count, length)
#define SEGMENT_SEVEN(tile, count) \
    tile(count, 1) tile(count, 2) tile(count, 3) tile(count, 4) tile(count, 5) tile(count, 6) tile(count, 7)
#define SEGMENT_MORE(tile, count) \
    tile(count, 8) tile(count, 9) tile(count, 10) tile(count, 11) tile(count, 12) tile(count, 13) tile(count, 14)
SEGMENT_SEVEN(SEGMENT_CHAINS, 1) SEGMENT_MORE(SEGMENT_CHAINS, 1) SEGMENT_SEVEN(SEGMENT_CHAINS, 2) SEGMENT_MORE(SEGMENT_CHAINS, 2)
#if SEGMENT_LANES > 4 /* sums of fewer channels are not taken in blocks */
SEGMENT_SEVEN(SEGMENT_HALVES, 1) SEGMENT_MORE(SEGMENT_HALVES, 1) SEGMENT_SEVEN(SEGMENT_HALVES, 2)
SEGMENT_SEVEN(SEGMENT_BLOCKED, 1) SEGMENT_BLOCKED(1, 8) SEGMENT_BLOCKED(1, 9) SEGMENT_BLOCKED(1, 10)
#endif

#undef SEGMENT
#undef LOAD_SEGMENT
#undef STORE_SEGMENT
#undef ZERO_SEGMENT
#undef ADD_SEGMENTS
#undef SEGMENT_PAIRS_IN
#undef MULTIPLY_SEGMENT
#undef SEGMENT_TILE
#undef SEGMENT_CHAINS
#undef SEGMENT_HALVES
#undef SEGMENT_BLOCKED
#undef SEGMENT_SEVEN
#undef SEGMENT_MORE
#undef SEGMENT_LANES
