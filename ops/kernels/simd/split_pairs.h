/* Frames of pairs whose numbers take turns, all ways at once: simd/pairs.h includes this, to whose frames it is what `split` of
 * simd/pack_strided.h is to those of floats. */

/* Codes [first, first + 16) of the `count` that begin at p, as 32 bits each, zeros outside. */
INLINE __m512i codes_inside(const void *p, int format, int64_t first, int64_t count)
{
    const int64_t low = first < 0 ? -first : 0, high = count - first < WIDTH ? count - first : WIDTH;
    if (low >= high)
        return _mm512_setzero_si512();
    return load_masked_codes(at(p, format, first), format, (__mmask16)((1u << high) - (1u << low)));
}

INLINE void split_pair_lines(int ways, float *block, ptrdiff_t between, ptrdiff_t pitch, int64_t lines, int64_t width,
                             const void *upper, const void *lower, int format, int64_t line_stride, int64_t first, int64_t count,
                             int64_t next, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    magnitudes met = none_met;
    for (int64_t line = 0; line < lines; line++) {
        for (int64_t i = 0; i < width; i += WIDTH) {
            vector in[16];
#pragma GCC unroll 16
            for (int v = 0; v < ways; v++) {
                const int64_t place = first + i * ways + v * WIDTH;
                __builtin_prefetch(at(upper, format, place + next));
                __m512i codes = _mm512_slli_epi32(codes_inside(upper, format, place, count), 16);
                if (lower) {
                    __builtin_prefetch(at(lower, format, place + next));
                    codes = _mm512_or_si512(codes, codes_inside(lower, format, place, count));
                }
                codes = decode_words(&d, format, codes);
                note(&met, codes);
                in[v] = (vector)codes;
            }
            split_ways(ways, in);
            store_ways(ways, block + line * pitch + i, between, width - i, in);
        }
        upper = at(upper, format, line_stride);
        lower = lower ? at(lower, format, line_stride) : NULL;
    }
    note_smallest(smallest, &met);
}

#define SPLIT_PAIRS(ways, format)                                                                                        \
    split_pair_lines(ways, block, between, pitch, lines, width, first, second, format, line_stride, start, count, next, smallest)
#define SPLIT_ALL_PAIRS(ways)                                                                                            \
    if (format == NUMBER_BFLOAT16)                                                                                       \
        SPLIT_PAIRS(ways, NUMBER_BFLOAT16);                                                                              \
    else                                                                                                                 \
        SPLIT_PAIRS(ways, format);

static void SUFFIX(split_pairs)(float *block, ptrdiff_t between, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t ways,
                                const void *first, const void *second, int format, int64_t line_stride, int64_t start,
                                int64_t count, int64_t next, uint16_t *smallest)
{
    if (ways == 4) {
        SPLIT_ALL_PAIRS(4)
    } else if (ways == 8) {
        SPLIT_ALL_PAIRS(8)
    } else {
        SPLIT_ALL_PAIRS(16)
    }
}
