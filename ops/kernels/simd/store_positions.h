/* Finished sums of rows that are positions: included by simd/tile.h after simd/store.h. */

/* The lanes of `n` channels of a position. */
INLINE vector finished_lanes(const float *sums, int64_t n, const float *bias)
{
    vector done = load_vector(sums, NUMBER_FLOAT32, n) + BROADCAST(0.0f);
    if (bias)
        done += load_vector(bias, NUMBER_FLOAT32, n);
    return done;
}

#if WIDTH > 4
/* Up to WIDTH channels, each of which is a line, written in the order of memory. */
INLINE void store_channel_lines(void *target, int format, int64_t step, int64_t channel_step, const float *sums, const int64_t *rows,
                                int64_t count, int64_t channels, const float *bias)
{
    for (int64_t i = 0; i < count; i += 16) {
        int64_t n = count - i < 16 ? count - i : 16;
        vector row[16];
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++)
            row[r] = finished_lanes(sums + rows[i + r < count ? i + r : count - 1], channels, bias);
        if (step == 1) {
            store_position_rows((void *)at(target, format, i), format, channel_step, channels, n, row);
            continue;
        }
        for (int64_t first = 0; first < n; first += WIDTH) {
            vector_bits line[WIDTH];
#pragma GCC unroll 16
            for (int r = 0; r < WIDTH; r++)
                line[r] = (vector_bits)row[first + r];
            transpose_vectors(line);
            for (int64_t c = 0; c < channels; c++)
                store_apart((void *)at(target, format, c * channel_step + (i + first) * step), format, step,
                            n - first < WIDTH ? n - first : WIDTH, (vector)line[c]);
        }
    }
}
#endif

INLINE void store_positions_format(void *target, int format, int64_t step, int64_t channel_step, const float *sums, const int64_t *rows,
                                   int64_t count, int64_t channels, const float *bias)
{
#if WIDTH > 4
    for (; channel_step != 1 && channels > 0; channels -= WIDTH) {
        store_channel_lines(target, format, step, channel_step, sums, rows, count, channels < WIDTH ? channels : WIDTH, bias);
        target = (void *)at(target, format, WIDTH * channel_step);
        sums += WIDTH;
        bias = bias ? bias + WIDTH : NULL;
    }
#endif
    for (int64_t i = 0; i < count; i++)
        for (int64_t first = 0; first < channels; first += WIDTH) {
            int64_t n = channels - first < WIDTH ? channels - first : WIDTH;
            store_apart((void *)at(target, format, i * step + first * channel_step), format, channel_step, n,
                                finished_lanes(sums + rows[i] + first, n, bias ? bias + first : NULL));
        }
}

static void SUFFIX(store_positions)(void *target, int format, int64_t step, int64_t channel_step, const float *sums,
                                    const int64_t *rows, int64_t count, int64_t channels, const float *bias)
{
    BY_FORMAT(format, store_positions_format, target, known_format, step, channel_step, sums, rows, count, channels, bias)
}
