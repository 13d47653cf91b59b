/* Finished sums of rows that are positions: included by simd/tile.h after simd/store.h. */

#if WIDTH == 16
/* The lanes of `n` channels of a position. */
INLINE __m512i finished_lanes(const float *sums, int64_t n, const float *bias)
{
    vector done = load_vector(sums, NUMBER_FLOAT32, n) + BROADCAST(0.0f);
    if (bias)
        done += load_vector(bias, NUMBER_FLOAT32, n);
    return (__m512i)done;
}

/* Up to 16 channels of positions that lie side by side: each channel is a line, written in the order of memory. */
INLINE void store_channel_lines(void *target, int format, int64_t channel_step, const float *sums, const int64_t *rows, int64_t count,
                                int64_t channels, const float *bias)
{
    for (int64_t i = 0; i < count; i += 16) {
        __m512i row[16];
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++)
            row[r] = finished_lanes(sums + rows[i + r < count ? i + r : count - 1], channels, bias);
        store_position_rows((void *)at(target, format, i), format, channel_step, channels, count - i < 16 ? count - i : 16, row);
    }
}
#endif

INLINE void store_positions_format(void *target, int format, int64_t step, int64_t channel_step, const float *sums, const int64_t *rows,
                                   int64_t count, int64_t channels, const float *bias)
{
    int64_t c = 0;
#if WIDTH == 16
    if (channel_step == 1) {
        for (int64_t i = 0; i < count; i++)
            for (int64_t first = 0; first < channels; first += 16) {
                int64_t n = channels - first < 16 ? channels - first : 16;
                store_numbers((void *)at(target, format, i * step + first), format, 0, n,
                              finished_lanes(sums + rows[i] + first, n, bias ? bias + first : NULL));
            }
        return;
    }
    for (; step == 1 && c < channels; c += 16)
        store_channel_lines((void *)at(target, format, c * channel_step), format, channel_step, sums + c, rows, count,
                            channels - c < 16 ? channels - c : 16, bias ? bias + c : NULL);
#endif
    for (; c < channels; c++)
        for (int64_t i = 0; i < count; i++)
            store_number(target, format, c * channel_step + i * step, finished(sums[rows[i] + c], bias, c));
}

static void SUFFIX(store_positions)(void *target, int format, int64_t step, int64_t channel_step, const float *sums,
                                    const int64_t *rows, int64_t count, int64_t channels, const float *bias)
{
    BY_FORMAT(format, store_positions_format, target, known_format, step, channel_step, sums, rows, count, channels, bias)
}
