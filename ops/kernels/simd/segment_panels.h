/* Tiles whose rows are positions side by side in a line and whose lanes are two panels of 16 output channels: included by
 * simd/segments.h.  They load 9 vectors for 14 multiply-adds, where tiles of one panel (simd/segment_tiles.h) load 16 and wait for
 * them on processors that begin as many multiply-adds as loads in a cycle. */
enum { PANEL_STEPS_AHEAD = 8 }; /* each step reads a line of another channel, which is asked for so many steps before */

INLINE void clear_panels(int length, vector (*sum)[2])
{
#pragma GCC unroll 14
    for (int i = 0; i < length; i++)
        sum[i][0] = sum[i][1] = BROADCAST(0.0f);
}

INLINE void panel_steps(int length, vector (*sum)[2], const float *a, ptrdiff_t pitch, const float *b, ptrdiff_t apart, ptrdiff_t steps)
{
    for (; steps > 0; steps--) {
        vector first = *(const vector *)b, second = *(const vector *)(b + apart);
        KEEP(first);
        KEEP(second);
        __builtin_prefetch(a + PANEL_STEPS_AHEAD * pitch);
#pragma GCC unroll 14
        for (int i = 0; i < length; i++) {
            vector all = BROADCAST(a[i]);
            KEEP(all);
#ifdef SEGMENT_PAIRS
            sum[i][0] = MULTIPLY_ADD_PAIRS(all, first, sum[i][0]);
            sum[i][1] = MULTIPLY_ADD_PAIRS(all, second, sum[i][1]);
#else
            sum[i][0] = MULTIPLY_ADD(all, first, sum[i][0]);
            sum[i][1] = MULTIPLY_ADD(all, second, sum[i][1]);
#endif
        }
        a += pitch;
        b += 16;
    }
}

/* A run that is a block of two halves at a time: the sums of the first half wait in memory. */
INLINE void panel_blocks(int length, vector (*sum)[2], const float *a, ptrdiff_t pitch, const float *b, ptrdiff_t apart, ptrdiff_t steps)
{
    vector half[SEGMENT_LENGTH][2], waiting[SEGMENT_LENGTH][2] __attribute__((aligned(64)));
    for (; steps > 0; steps -= 2 * SEGMENT_HALF) {
        clear_panels(length, half);
        if (steps < SEGMENT_HALF)
            panel_steps(length, half, a, pitch, b, apart, steps);
        else
            panel_steps(length, half, a, pitch, b, apart, SEGMENT_HALF);
#pragma GCC unroll 14
        for (int i = 0; i < length; i++) {
            waiting[i][0] = half[i][0];
            waiting[i][1] = half[i][1];
        }
        __asm__ volatile("" : : "r"(waiting) : "memory"); /* otherwise the compiler would choose which sums leave the registers */
        a += SEGMENT_HALF * pitch;
        b += SEGMENT_HALF * 16;
        clear_panels(length, half);
        if (steps < 2 * SEGMENT_HALF)
            panel_steps(length, half, a, pitch, b, apart, steps - SEGMENT_HALF);
        else
            panel_steps(length, half, a, pitch, b, apart, SEGMENT_HALF);
        a += SEGMENT_HALF * pitch;
        b += SEGMENT_HALF * 16;
#pragma GCC unroll 14
        for (int i = 0; i < length; i++) {
            sum[i][0] += waiting[i][0] + half[i][0];
            sum[i][1] += waiting[i][1] + half[i][1];
        }
    }
}

INLINE void panel_tile(int kind, int length, const tile_run *runs, ptrdiff_t run_count, const float *rows, ptrdiff_t apart,
                       ptrdiff_t pitch, const float *lanes, float *c, ptrdiff_t c_apart, ptrdiff_t c_step)
{
    vector sum[SEGMENT_LENGTH][2], half[SEGMENT_LENGTH][2];
    clear_panels(length, sum);
    for (ptrdiff_t r = 0; r < run_count; r++) {
        const float *a = rows + runs[r].rows, *b = lanes + runs[r].lanes;
        if (kind == SEGMENT_CHAIN)
            panel_steps(length, sum, a, pitch, b, apart, runs[r].steps);
        else if (kind == SEGMENT_BLOCKS)
            panel_blocks(length, sum, a, pitch, b, apart, runs[r].steps);
        else {
            clear_panels(length, half);
            panel_steps(length, half, a, pitch, b, apart, runs[r].steps);
#pragma GCC unroll 14
            for (int i = 0; i < length; i++) {
                sum[i][0] += half[i][0];
                sum[i][1] += half[i][1];
            }
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < length; i++) {
        *(vector *)(c + i * c_step) = sum[i][0];
        *(vector *)(c + c_apart + i * c_step) = sum[i][1];
    }
}

#define PANELS_TILE(name, kind, length)                                                                                     \
    static void name##_1_##length##_32(const tile_run *runs, ptrdiff_t run_count, const float *rows, ptrdiff_t apart,      \
                                       ptrdiff_t pitch, const float *lanes, float *c, ptrdiff_t c_apart, ptrdiff_t c_step) \
    {                                                                                                                      \
        panel_tile(kind, length, runs, run_count, rows, apart, pitch, lanes, c, c_apart, c_step);                          \
    }
#define PANELS_SEVEN(name, kind)                                                                                            \
    PANELS_TILE(name, kind, 1) PANELS_TILE(name, kind, 2) PANELS_TILE(name, kind, 3) PANELS_TILE(name, kind, 4)                \
    PANELS_TILE(name, kind, 5) PANELS_TILE(name, kind, 6) PANELS_TILE(name, kind, 7)
PANELS_SEVEN(segment_chain, SEGMENT_CHAIN)
PANELS_TILE(segment_chain, SEGMENT_CHAIN, 8) PANELS_TILE(segment_chain, SEGMENT_CHAIN, 9) PANELS_TILE(segment_chain, SEGMENT_CHAIN, 10)
PANELS_TILE(segment_chain, SEGMENT_CHAIN, 11) PANELS_TILE(segment_chain, SEGMENT_CHAIN, 12) PANELS_TILE(segment_chain, SEGMENT_CHAIN, 13)
PANELS_TILE(segment_chain, SEGMENT_CHAIN, 14)
PANELS_SEVEN(segment_half, SEGMENT_ONE_HALF)
PANELS_SEVEN(segment_blocks, SEGMENT_BLOCKS)
