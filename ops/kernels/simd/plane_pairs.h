/* Planes of bfloat16 and 8-bit codes, with channels as lanes, for dot products of two taps side by side: what simd/planes.h has for
 * floats.  Included by simd/pairs.h. */

/* Where the next pair goes: the numbers x and x + 1 of a line. */
typedef struct {
    __m512i *place;
    int64_t x;
} pair_place;

/* A pair whose second number begins a line is two: each number beside nothing. */
INLINE void put_plane_pair(pair_place *next, __m512i pair, __m512i first_half, int64_t extent)
{
    if (++next->x < extent)
        _mm512_storeu_si512(next->place++, pair);
    else {
        _mm512_storeu_si512(next->place, _mm512_and_si512(pair, first_half));
        _mm512_storeu_si512(next->place + 1, _mm512_andnot_si512(first_half, pair));
        next->place += 2;
        next->x = 0;
    }
}

/* Two numbers each of every plane, those of lower positions in the lower halves. */
INLINE void aligned_pairs(const decoder *d, int format, __m512i word, __m512i *pair)
{
    if (format == NUMBER_BFLOAT16) {
        pair[0] = word;
        return;
    }
    if (byte_look_ups) {
        byte_pairs(d, format, 0x41014000, word, pair);
        return;
    }
    __m512i even = decode_words(d, format, _mm512_and_si512(word, _mm512_set1_epi16(0xff)));
    __m512i odd = decode_words(d, format, _mm512_srli_epi16(word, 8));
    pair[0] = _mm512_mask_blend_epi16(0xaaaaaaaau, even, _mm512_slli_epi32(odd, 16));
    pair[1] = _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(even, 16), odd);
}

INLINE void note_largest(uint16_t *largest, __m512i most)
{
    magnitudes inverse = {_mm512_xor_si512(most, _mm512_set1_epi16(-1))};
    uint16_t found = (uint16_t)~*largest;
    note_smallest(&found, &inverse);
    *largest = (uint16_t)~found;
}

INLINE void load_plane_pairs_format(float *block, int64_t lines, int64_t extent, int direction, const void *source, int format,
                                    int64_t apart, int64_t ahead, uint16_t *smallest, uint16_t *largest)
{
    const int codes = format == NUMBER_BFLOAT16 ? 2 : 4;
    const int64_t size = 4 / codes, step = apart * size, together = 4 * codes, count = lines * extent;
    const __m512i lower = _mm512_set1_epi32(0xffff), first_half = direction > 0 ? _mm512_slli_epi32(lower, 16) : lower;
    const decoder d = decoder_of(format);
    magnitudes met = none_met;
    __m512i most = _mm512_setzero_si512(), before = most;
    pair_place next = {(__m512i *)block, -1};
    for (int64_t p = 0; p < count; p += together) {
        int64_t first = p;
        int overlap = p + together > count; /* the last ones: the pair before them is there already */
        __m512i word[4];
        if (overlap) {
            first = count - together;
            next = (pair_place){(__m512i *)block + first + first / extent + 1, first % extent};
        }
        load_plane_words(word, (const char *)source + first * size, step);
        const char *later = later_planes(source, p, together, size, step, ahead);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            __m512i pair[2];
            __builtin_prefetch(later + k * step);
            aligned_pairs(&d, format, word[k], pair);
#pragma GCC unroll 2
            for (int j = 0; j < codes / 2; j++) {
                __m512i turned = _mm512_mask_blend_epi16(0xaaaaaaaau, pair[j], before); /* the number before in the upper half */
                note(&met, pair[j]);
                most = larger_magnitudes(most, pair[j]);
                before = pair[j];
                if (direction < 0)
                    turned = _mm512_rol_epi32(turned, 16);
                if (!overlap || k + j > 0)
                    put_plane_pair(&next, turned, first_half, extent);
                put_plane_pair(&next, direction > 0 ? _mm512_rol_epi32(pair[j], 16) : pair[j], first_half, extent);
            }
        }
    }
    __m512i last = direction > 0 ? _mm512_andnot_si512(lower, before) : _mm512_srli_epi32(before, 16);
    _mm512_storeu_si512((__m512i *)block + count + lines - 1, last);
    note_smallest(smallest, &met);
    note_largest(largest, most);
}

static void SUFFIX(load_plane_pairs)(float *block, int64_t lines, int64_t extent, int direction, const void *source, int format,
                                     int64_t apart, int64_t ahead, uint16_t *smallest, uint16_t *largest)
{
    if (format == NUMBER_BFLOAT16)
        load_plane_pairs_format(block, lines, extent, direction, source, NUMBER_BFLOAT16, apart, ahead, smallest, largest);
    else
        load_plane_pairs_format(block, lines, extent, direction, source, format, apart, ahead, smallest, largest);
}

static void SUFFIX(pair_plane_taps)(float *pairs, const float *taps, const int64_t *offsets, int64_t rows, int64_t count,
                                    uint16_t *smallest, uint16_t *largest)
{
    magnitudes met = none_met;
    __m512i most = _mm512_setzero_si512();
    for (int64_t row = 0; row < rows; row++, offsets += count)
        for (int64_t t = 0; t < count; t += 2, pairs += WIDTH) {
            __m512i pair = _mm512_loadu_si512(taps + offsets[t] * WIDTH);
            if (t + 1 < count)
                pair = _mm512_or_si512(pair, _mm512_srli_epi32(_mm512_loadu_si512(taps + offsets[t + 1] * WIDTH), 16));
            note(&met, pair);
            most = larger_magnitudes(most, pair);
            _mm512_storeu_si512(pairs, pair);
        }
    note_smallest(smallest, &met);
    note_largest(largest, most);
}

static void SUFFIX(store_plane_pairs)(void *target, int format, int64_t apart, int64_t first_plane, const float *block, int64_t count,
                                      const float *bias)
{
    BY_FORMAT(format, store_planes_format, target, known_format, apart, first_plane, block, count, bias, 1)
}

#define PLANE_PAIRS(outputs)                                                                                                      \
    static void SUFFIX(plane_pairs_##outputs)(const plane_row *rows, int64_t row_count, const float *input, int64_t extent,        \
                                              int64_t at, int direction, const float *weights, float *target,                    \
                                              ptrdiff_t target_step)                                                             \
    {                                                                                                                             \
        planes_body(outputs, rows, row_count, input, extent, at, direction, weights, target, target_step, 1);                     \
    }
PLANE_PAIRS(1) PLANE_PAIRS(2) PLANE_PAIRS(3) PLANE_PAIRS(4) PLANE_PAIRS(7) PLANE_PAIRS(8) PLANE_PAIRS(14)
