/* Finished sums of positions side by side, a few channels each: included by simd/tile.h after simd/store.h. */

/* 16 positions of 4, 8 or 16 channels as lines of the channels. */
INLINE void segment_lines(__m512i *line, const float *sums, int lanes)
{
    if (lanes == 16) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            line[i] = _mm512_loadu_si512(sums + 16 * i);
        transpose_vectors(line);
    } else if (lanes == 8) { /* positions i and i + 4 of either half share a vector */
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const float *first = sums + 8 * (i / 4 * 8 + i % 4);
            line[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)first)),
                                         _mm256_loadu_si256((const __m256i *)(first + 32)), 1);
        }
        transpose_four(line);
        transpose_four(line + 4);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m512i low = line[i], high = line[4 + i];
            line[i] = _mm512_shuffle_i32x4(low, high, 0x88);
            line[4 + i] = _mm512_shuffle_i32x4(low, high, 0xdd);
        }
    } else { /* positions i, i + 4, i + 8 and i + 12 share a vector */
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const float *first = sums + 4 * i;
            __m512i row = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)first));
            row = _mm512_inserti32x4(row, _mm_loadu_si128((const __m128i *)(first + 16)), 1);
            row = _mm512_inserti32x4(row, _mm_loadu_si128((const __m128i *)(first + 32)), 2);
            line[i] = _mm512_inserti32x4(row, _mm_loadu_si128((const __m128i *)(first + 48)), 3);
        }
        transpose_four(line);
    }
}

INLINE void store_segments_of(int lanes, void *target, int format, int64_t channel_step, const float *sums, int64_t count, int64_t channels,
                              const float *bias)
{
    for (int64_t i = 0; i < count; i += 16) {
        __m512i line[16];
        int64_t n = count - i < 16 ? count - i : 16;
        segment_lines(line, sums + i * lanes, lanes);
#pragma GCC unroll 16
        for (int c = 0; c < lanes; c++) {
            if (c >= channels)
                break;
            vector done = (vector)line[c] + BROADCAST(0.0f);
            if (bias)
                done += BROADCAST(bias[c]);
            store_codes((void *)at(target, format, c * channel_step + i), code_size(format), n, codes_of(done, format));
        }
    }
}

INLINE void store_segments_format(int lanes, void *target, int format, int64_t channel_step, const float *sums, int64_t count,
                                  int64_t channels, const float *bias)
{
    if (lanes == 16)
        store_segments_of(16, target, format, channel_step, sums, count, channels, bias);
    else if (lanes == 8)
        store_segments_of(8, target, format, channel_step, sums, count, channels, bias);
    else
        store_segments_of(4, target, format, channel_step, sums, count, channels, bias);
}

static void store_segments(int lanes, void *target, int format, int64_t channel_step, const float *sums, int64_t count, int64_t channels,
                           const float *bias)
{
    BY_FORMAT(format, store_segments_format, lanes, target, known_format, channel_step, sums, count, channels, bias)
}
