/* Finished sums of rows that are positions: included by simd/tile.h after simd/store.h. */

/* The lanes of `n` channels of a position. */
INLINE vector finished_lanes(const float *sums, int64_t n, const float *bias)
{
    vector done = load_vector(sums, NUMBER_FLOAT32, n) + BROADCAST(0.0f);
    if (bias)
        done += load_vector(bias, NUMBER_FLOAT32, n);
    return done;
}

#if WIDTH == 16
/* Up to 16 channels of positions that lie side by side: each channel is a line, written in the order of memory. */
INLINE void store_channel_lines(void *target, int format, int64_t channel_step, const float *sums, const int64_t *rows, int64_t count,
                                int64_t channels, const float *bias)
/* n numbers, `step` apart: what lies between belongs to others, perhaps in another thread. */
INLINE void store_apart(void *target, int format, int64_t step, int64_t n, __m512i bits)
{
    if (step == 1) {
        store_numbers(target, format, 0, n, bits);
        return;
    }
    if (format == NUMBER_FLOAT32 && step == 2) {
        const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        uint32_t taken = 0x55555555u >> (32 - 2 * n);
        _mm512_mask_storeu_epi32(target, (__mmask16)taken, _mm512_permutexvar_epi32(low, bits));
        if (taken >> 16)
            _mm512_mask_storeu_epi32((float *)target + 16, (__mmask16)(taken >> 16),
                                     _mm512_permutexvar_epi32(_mm512_or_si512(low, _mm512_set1_epi32(8)), bits));
        return;
    }
    float values[16];
    _mm512_storeu_si512(values, bits);
    for (int64_t i = 0; i < n; i++)
        store_number(target, format, i * step, values[i]);
}

/* Up to 16 channels, each of which is a line, written in the order of memory. */
INLINE void store_channel_lines(void *target, int format, int64_t step, int64_t channel_step, const float *sums, const int64_t *rows,
                                int64_t count, int64_t channels, const float *bias)
{
    for (int64_t i = 0; i < count; i += 16) {
        vector row[16];
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++)
            row[r] = finished_lanes(sums + rows[i + r < count ? i + r : count - 1], channels, bias);
        transpose_vectors(row);
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++)
            if (r < channels)
                store_apart((void *)at(target, format, i * step + r * channel_step), format, step, count - i < 16 ? count - i : 16, row[r]);
    }
}
#endif

INLINE void store_positions_format(void *target, int format, int64_t step, int64_t channel_step, const float *sums, const int64_t *rows,
                                   int64_t count, int64_t channels, const float *bias)
{
#if WIDTH == 16
    for (; step == 1 && channel_step != 1 && channels > 0; channels -= 16) {
        store_channel_lines(target, format, channel_step, sums, rows, count, channels < 16 ? channels : 16, bias);
        target = (void *)at(target, format, 16 * channel_step);
        sums += 16;
        bias = bias ? bias + 16 : NULL;
    }
#endif
    const int64_t size = code_size(format);
    for (int64_t i = 0; i < count; i++)
        for (int64_t first = 0; first < channels; first += WIDTH) {
            int64_t n = channels - first < WIDTH ? channels - first : WIDTH;
            vector done = finished_lanes(sums + rows[i] + first, n, bias ? bias + first : NULL);
            char codes[4 * WIDTH], *place = (char *)at(target, format, i * step + first * channel_step);
            if (channel_step == 1) {
                store_codes(place, size, n, codes_of(done, format));
                continue;
            }
            store_codes(codes, size, WIDTH, codes_of(done, format));
            for (int64_t j = 0; j < n; j++)
                copy_code(place + j * channel_step * size, size, codes + j * size);
        }
    for (int64_t c = 0; c < channels; c += 16)
        store_channel_lines((void *)at(target, format, c * channel_step), format, step, channel_step, sums + c, rows, count,
                            channels - c < 16 ? channels - c : 16, bias ? bias + c : NULL);
#else
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < count; i++)
            store_number(target, format, c * channel_step + i * step, finished(sums[rows[i] + c], bias, c));
}

static void SUFFIX(store_positions)(void *target, int format, int64_t step, int64_t channel_step, const float *sums,
                                    const int64_t *rows, int64_t count, int64_t channels, const float *bias)
{
    BY_FORMAT(format, store_positions_format, target, known_format, step, channel_step, sums, rows, count, channels, bias)
}
