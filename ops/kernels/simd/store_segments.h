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

/* The biases of the channels of `segment_row`. */
INLINE vector segment_biases(const float *bias, int64_t channels, int lanes)
{
    __m512 some = _mm512_maskz_loadu_ps((__mmask16)(0xffffu >> (16 - channels)), bias);
    return (vector)(lanes == 16 ? some : _mm512_castpd_ps(_mm512_broadcast_f64x4(_mm256_castps_pd(_mm512_castps512_ps256(some)))));
}

/* The sums of a position and of another `apart` from it in a vector of 16 lanes, or of one that fills it. */
INLINE vector segment_row(const float *sums, int lanes, int64_t apart, vector bias)
{
    if (lanes == 16)
        return *(const vector *)sums + BROADCAST(0.0f) + bias;
    __m512i row = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)sums));
    return (vector)_mm512_inserti64x4(row, _mm256_loadu_si256((const __m256i *)(sums + apart * lanes)), 1) + BROADCAST(0.0f) + bias;
}

INLINE void store_segment_line(uint16_t *line, int64_t n, __m256i codes)
{
    if (n == 16)
        _mm256_storeu_si256((__m256i *)line, codes);
    else
        _mm256_mask_storeu_epi16(line, (__mmask16)(0xffffu >> (16 - n)), codes);
}

/* Codes of 16 bits of n <= 16 positions: those of two positions share 32 bits, so that half as many vectors are transposed. */
INLINE void store_segment_halves(int lanes, uint16_t *target, int format, int64_t channel_step, const float *sums, int64_t n,
                                 int64_t channels, const float *bias)
{
    const __m512i order = lanes == 16 ? _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11) : _mm512_setr_epi64(0, 1, 4, 5, 2, 3, 6, 7);
    const __m512i next = _mm512_add_epi64(order, _mm512_set1_epi64(4));
    vector added = BROADCAST(0.0f); /* which changes no sum that another was added to */
    if (bias)
        added = segment_biases(bias, channels, lanes);
    __m512i words[8];
#pragma GCC unroll 8
    for (int k = 0; k < lanes / 2; k++) {
        vector even = segment_row(sums + 2 * k * lanes, lanes, 8, added);
        vector odd = segment_row(sums + (2 * k + 1) * lanes, lanes, 8, added);
        words[k] = codes_in_pairs(format, even, odd);
    }
    transpose_four(words);
    if (lanes == 16)
        transpose_four(words + 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
        for (int j = 0; j < lanes / 8; j++) { /* channels 8*j + i and 8*j + 4 + i */
            __m512i both = lanes == 16 ? _mm512_permutex2var_epi64(words[i], j ? next : order, words[4 + i])
                                       : _mm512_permutexvar_epi64(order, words[i]);
            if (8 * j + i < channels)
                store_segment_line(target + (8 * j + i) * channel_step, n, _mm512_castsi512_si256(both));
            if (8 * j + 4 + i < channels)
                store_segment_line(target + (8 * j + 4 + i) * channel_step, n, _mm512_extracti64x4_epi64(both, 1));
        }
}

INLINE void store_segments_of(int lanes, void *target, int format, int64_t channel_step, const float *sums, int64_t count, int64_t channels,
                              const float *bias)
{
    for (int64_t i = 0; i < count; i += 16) {
        __m512i line[16];
        int64_t n = count - i < 16 ? count - i : 16;
        if (is_wide(format) && lanes > 4) {
            store_segment_halves(lanes, (uint16_t *)target + i, format, channel_step, sums + i * lanes, n, channels, bias);
            continue;
        }
        segment_lines(line, sums + i * lanes, lanes);
#pragma GCC unroll 16
        for (int c = 0; c < lanes; c++)
            if (c < channels) {
                line[c] = (__m512i)((vector)line[c] + BROADCAST(0.0f));
                if (bias)
                    line[c] = (__m512i)((vector)line[c] + BROADCAST(bias[c]));
            }
        if (format == NUMBER_FLOAT32)
#pragma GCC unroll 16
            for (int c = 0; c < lanes; c++) {
                if (c < channels)
                    store_codes((float *)target + c * channel_step + i, 4, n, (vector_uint)line[c]);
            }
        else
#pragma GCC unroll 8
            for (int c = 0; c < lanes; c += 2) {
                void *place = (void *)at(target, format, c * channel_step + i);
                if (c >= channels)
                    break;
                __m512i codes = codes_in_pairs(format, (vector)line[c], (vector)line[c + 1]);
                store_codes(place, code_size(format), n, (vector_uint)codes);
                if (c + 1 < channels)
                    store_codes((void *)at(place, format, channel_step), code_size(format), n, (vector_uint)_mm512_srli_epi32(codes, 16));
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
