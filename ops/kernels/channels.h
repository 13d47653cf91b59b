/* Groups of one channel that lie side by side in memory: lanes are groups.  tile.h includes this. */

INLINE void channels_points(int points, float *target, ptrdiff_t target_pitch, int64_t channels, const void *source, int format,
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

INLINE void channels_format(float *target, ptrdiff_t target_pitch, int64_t positions, int64_t channels, const void *source,
                            int format, int64_t position_step, const int64_t *offsets, const int64_t *taps,
                            int64_t tap_count, const float *weights, ptrdiff_t weight_pitch, const float *bias)
{
    int64_t p = 0;
    for (; p + 4 <= positions; p += 4)
        channels_points(4, target + p * target_pitch, target_pitch, channels, at(source, format, p * position_step), format,
                        position_step, offsets, taps, tap_count, weights, weight_pitch, bias);
    for (; p < positions; p++)
        channels_points(1, target + p * target_pitch, target_pitch, channels, at(source, format, p * position_step), format,
                        position_step, offsets, taps, tap_count, weights, weight_pitch, bias);
}

static void SUFFIX(channels)(float *target, ptrdiff_t target_pitch, int64_t positions, int64_t channels, const void *source,
                             int format, int64_t position_step, const int64_t *offsets, const int64_t *taps,
                             int64_t tap_count, const float *weights, ptrdiff_t weight_pitch, const float *bias)
{
    BY_FORMAT(format, channels_format, target, target_pitch, positions, channels, source, known_format, position_step, offsets,
              taps, tap_count, weights, weight_pitch, bias)
}

/* Some taps of one vector of channels and one chain: every DOT_LANES-th position. */
INLINE void channels_chain(int count, float *sums, ptrdiff_t tap_pitch, int64_t left, const void *large, int64_t large_step,
                           const int64_t *offsets, const int64_t *taps, const void *small, int64_t small_step,
                           int64_t positions, int format)
{
    vector sum[9];
#pragma GCC unroll 9
    for (int t = 0; t < count; t++)
        sum[t] = *(const vector *)(sums + taps[t] * tap_pitch);
    for (int64_t p = 0; p < positions; p += DOT_LANES) {
        vector lanes = load_vector(at(small, format, p * small_step), format, left);
        const void *place = at(large, format, p * large_step);
#pragma GCC unroll 9
        for (int t = 0; t < count; t++)
            sum[t] = MULTIPLY_ADD(load_vector(at(place, format, offsets[t]), format, left), lanes, sum[t]);
    }
#pragma GCC unroll 9
    for (int t = 0; t < count; t++)
        *(vector *)(sums + taps[t] * tap_pitch) = sum[t];
}

INLINE void channels_taps(float *sums, ptrdiff_t tap_pitch, int64_t left, const void *large, int64_t large_step,
                          const int64_t *offsets, const int64_t *taps, int64_t tap_count, const void *small,
                          int64_t small_step, int64_t positions, int format)
{
    int64_t t = 0;
    for (; t + 9 <= tap_count; t += 9)
        channels_chain(9, sums, tap_pitch, left, large, large_step, offsets + t, taps + t, small, small_step, positions, format);
    for (; t + 3 <= tap_count; t += 3)
        channels_chain(3, sums, tap_pitch, left, large, large_step, offsets + t, taps + t, small, small_step, positions, format);
    for (; t < tap_count; t++)
        channels_chain(1, sums, tap_pitch, left, large, large_step, offsets + t, taps + t, small, small_step, positions, format);
}

INLINE void channels_dot_format(float *sums, ptrdiff_t tap_pitch, ptrdiff_t chain_pitch, int64_t channels, const void *large,
                                int64_t large_step, const int64_t *offsets, const int64_t *taps, int64_t tap_count,
                                const void *small, int64_t small_step, int64_t first, int64_t positions, int format)
{
    if (tap_count == 0)
        return;
    for (int64_t p = 0; p < positions && p < DOT_LANES; p++) {
        float *chain = sums + (first + p) % DOT_LANES * chain_pitch;
        const void *far = at(large, format, p * large_step), *near = at(small, format, p * small_step);
        for (int64_t c = 0; c < channels; c += WIDTH) {
            const void *far_lanes = at(far, format, c), *near_lanes = at(near, format, c);
            __builtin_prefetch(at(near_lanes, format, positions * small_step)); /* the next line, most often */
            __builtin_prefetch(at(far_lanes, format, offsets[tap_count - 1] + positions * large_step));
            if (c + WIDTH <= channels)
                channels_taps(chain + c, tap_pitch, WIDTH, far_lanes, large_step, offsets, taps, tap_count, near_lanes,
                              small_step, positions - p, format);
            else
                channels_taps(chain + c, tap_pitch, channels - c, far_lanes, large_step, offsets, taps, tap_count, near_lanes,
                              small_step, positions - p, format);
        }
    }
}

static void SUFFIX(channels_dot)(float *sums, ptrdiff_t tap_pitch, ptrdiff_t chain_pitch, int64_t channels, const void *large,
                                 int64_t large_step, const int64_t *offsets, const int64_t *taps, int64_t tap_count,
                                 const void *small, int64_t small_step, int64_t first, int64_t positions, int format)
{
    BY_FORMAT(format, channels_dot_format, sums, tap_pitch, chain_pitch, channels, large, large_step, offsets, taps, tap_count,
              small, small_step, first, positions, known_format)
}
