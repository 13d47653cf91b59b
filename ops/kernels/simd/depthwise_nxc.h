/* Depthwise sums, channels last: groups of one channel lie side by side in memory, and lanes are groups.  simd/tile.h includes this. */

INLINE void nxc_points(int points, float *target, ptrdiff_t target_pitch, int64_t channels, const void *source, int format,
                       int64_t position_step, const int64_t *offsets, const int64_t *taps, int64_t tap_count,
                       const float *weights, ptrdiff_t weight_pitch, const float *bias)
{
    for (int64_t c = 0; c < channels; c += WIDTH) {
        int64_t left = channels - c;
        vector sum[4], start = bias ? load_vector(bias + c, NUMBER_FLOAT32, left) : (vector){0};
        for (int s = 0; s < points; s++)
            sum[s] = (vector){0};
        if (left >= WIDTH)
            for (int64_t t = 0; t < tap_count; t++) {
                vector weight = *(const vector *)(weights + taps[t] * weight_pitch + c);
                const void *place = at(source, format, offsets[t] + c);
#pragma GCC unroll 4
                for (int s = 0; s < points; s++)
                    sum[s] = MULTIPLY_ADD(load_vector(at(place, format, s * position_step), format, WIDTH), weight, sum[s]);
            }
        else
            for (int64_t t = 0; t < tap_count; t++) {
                vector weight = *(const vector *)(weights + taps[t] * weight_pitch + c);
                const void *place = at(source, format, offsets[t] + c);
#pragma GCC unroll 4
                for (int s = 0; s < points; s++)
                    sum[s] = MULTIPLY_ADD(load_vector(at(place, format, s * position_step), format, left), weight, sum[s]);
            }
#pragma GCC unroll 4
        for (int s = 0; s < points; s++) {
            vector done = sum[s] + BROADCAST(0.0f) + start;
            if (left >= WIDTH)
                *(vector *)(target + s * target_pitch + c) = done;
            else
                STORE_PART(target + s * target_pitch + c, left, done);
        }
    }
}

INLINE void nxc_format(float *target, ptrdiff_t target_pitch, int64_t positions, int64_t channels, const void *source,
                       int format, int64_t position_step, const int64_t *offsets, const int64_t *taps,
                       int64_t tap_count, const float *weights, ptrdiff_t weight_pitch, const float *bias)
{
    int64_t p = 0;
    for (; p + 4 <= positions; p += 4)
        nxc_points(4, target + p * target_pitch, target_pitch, channels, at(source, format, p * position_step), format,
                   position_step, offsets, taps, tap_count, weights, weight_pitch, bias);
    for (; p < positions; p++)
        nxc_points(1, target + p * target_pitch, target_pitch, channels, at(source, format, p * position_step), format,
                   position_step, offsets, taps, tap_count, weights, weight_pitch, bias);
}

static void SUFFIX(depthwise_nxc)(float *target, ptrdiff_t target_pitch, int64_t positions, int64_t channels, const void *source,
                                  int format, int64_t position_step, const int64_t *offsets, const int64_t *taps,
                                  int64_t tap_count, const float *weights, ptrdiff_t weight_pitch, const float *bias)
{
    BY_FORMAT(format, nxc_format, target, target_pitch, positions, channels, source, known_format, position_step, offsets,
              taps, tap_count, weights, weight_pitch, bias)
}

/* Some taps of one vector of channels and one chain: every DOT_LANES-th position. */
INLINE void nxc_weights_chain(int count, float *sums, const float *large, ptrdiff_t large_line, ptrdiff_t large_step,
                              const int64_t *offsets, const int64_t *taps, const float *small, ptrdiff_t small_line,
                              ptrdiff_t small_step, int64_t positions, int64_t lines)
{
    vector sum[DOT_TAPS];
#pragma GCC unroll 12
    for (int t = 0; t < count; t++)
        sum[t] = *(const vector *)(sums + taps[t] * DOT_LANES * WIDTH);
    for (int64_t line = 0; line < lines; line++)
        for (int64_t p = 0; p < positions; p += DOT_LANES) {
            vector lanes = *(const vector *)(small + line * small_line + p * small_step);
            const float *place = large + line * large_line + p * large_step;
#pragma GCC unroll 12
            for (int t = 0; t < count; t++)
                sum[t] = MULTIPLY_ADD(*(const vector *)(place + offsets[t]), lanes, sum[t]);
        }
#pragma GCC unroll 12
    for (int t = 0; t < count; t++)
        *(vector *)(sums + taps[t] * DOT_LANES * WIDTH) = sum[t];
}

static void SUFFIX(depthwise_nxc_weights)(float *sums, ptrdiff_t sum_pitch, int64_t vectors, const float *large, ptrdiff_t large_line,
                                          ptrdiff_t large_step, const int64_t *offsets, const int64_t *taps, int64_t tap_count,
                                          const float *small, ptrdiff_t small_line, ptrdiff_t small_step, int64_t first,
                                          int64_t positions, int64_t lines)
{
    int64_t parts = (tap_count + DOT_TAPS - 1) / DOT_TAPS;
    for (int64_t p = 0; parts > 0 && p < positions && p < DOT_LANES; p++)
        for (int64_t v = 0; v < vectors; v++) {
            float *chain = sums + v * sum_pitch + (first + p) % DOT_LANES * WIDTH;
            const float *far = large + p * large_step + v * WIDTH, *near = small + p * small_step + v * WIDTH;
            __builtin_prefetch(near + positions * small_step); /* the next line, most often */
            __builtin_prefetch(far + positions * large_step + offsets[tap_count - 1]);
            for (int64_t part = 0, t = 0; part < parts; part++) {
                int64_t count = tap_count / parts + (part < tap_count % parts);
                switch (count) {
#define CHAIN(count)                                                                                                      \
    case count:                                                                                                           \
        nxc_weights_chain(count, chain, far, large_line, large_step, offsets + t, taps + t, near, small_line, small_step, \
                       positions - p, lines);                                                                             \
        break;
                    CHAIN(1) CHAIN(2) CHAIN(3) CHAIN(4) CHAIN(5) CHAIN(6) CHAIN(7) CHAIN(8) CHAIN(9) CHAIN(10) CHAIN(11) CHAIN(12)
#undef CHAIN
                }
                t += count;
            }
        }
}

INLINE void nxc_pack_format(float *block, ptrdiff_t vector_pitch, int64_t positions, int64_t channels, const void *source,
                            int format, int64_t step)
{
    for (int64_t p = 0; p < positions; p++)
        for (int64_t c = 0; c < channels; c += WIDTH) {
            const void *place = at(source, format, p * step + c);
            __builtin_prefetch(at(place, format, 8 * step));
            *(vector *)(block + c / WIDTH * vector_pitch + p * WIDTH)
                = load_vector(place, format, channels - c < WIDTH ? channels - c : WIDTH);
        }
}

static void SUFFIX(nxc_pack)(float *block, ptrdiff_t vector_pitch, int64_t positions, int64_t channels, const void *source,
                             int format, int64_t step)
{
    BY_FORMAT(format, nxc_pack_format, block, vector_pitch, positions, channels, source, known_format, step)
}
