/* The chains of sums, added as core/reduction.h says: included by simd/tile.h after simd/pack.h. */

static void SUFFIX(sum_chains)(float *sums, const float *chains, int64_t count)
{
#if WIDTH == REDUCTION_CHAINS
    for (int64_t i = 0; i < count; i += WIDTH) {
        int64_t n = count - i < WIDTH ? count - i : WIDTH;
        __m512i lane[WIDTH];
        vector part[WIDTH];
        for (int k = 0; k < WIDTH; k++)
            lane[k] = _mm512_loadu_si512(chains + (i + (k < n ? k : 0)) * WIDTH);
        transpose_vectors(lane);
        for (int k = 0; k < WIDTH; k++)
            part[k] = (vector)lane[k];
        for (int half = WIDTH / 2; half > 0; half /= 2)
            for (int k = 0; k < half; k++)
                part[k] += part[k + half];
        _mm512_mask_storeu_ps(sums + i, (__mmask16)(0xffffu >> (WIDTH - n)), (__m512)part[0]);
    }
#else
    for (int64_t i = 0; i < count; i++, chains += REDUCTION_CHAINS) {
        float part[REDUCTION_CHAINS / 2];
        for (int k = 0; k < REDUCTION_CHAINS / 2; k++)
            part[k] = chains[k] + chains[k + REDUCTION_CHAINS / 2];
        for (int half = REDUCTION_CHAINS / 4; half > 0; half /= 2)
            for (int k = 0; k < half; k++)
                part[k] += part[k + half];
        sums[i] = part[0];
    }
#endif
}
