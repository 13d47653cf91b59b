/* Lines of two channels to lines of pairs, with zeros before and behind: included by simd/pairs.h. */

/* As `frame_vectors`, of two channels. */
INLINE void frame_pair_vectors(float *place, ptrdiff_t pitch, int64_t lines, int vectors, int64_t low, int64_t high, const void *first,
                               const void *second, int format, int64_t line_stride, int64_t next, const decoder *d, magnitudes *met)
{
    const uint64_t mask = short_line_mask(low, high), second_mask = second ? mask : 0;
    const void *upper = at(first, format, -low), *lower = second ? at(second, format, -low) : upper;
    for (int64_t line = 0; line < lines; line++) {
        __builtin_prefetch(at(upper, format, next));
        __builtin_prefetch(at(lower, format, next));
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) {
            __m512i codes = load_masked_codes(at(upper, format, 16 * i), format, (__mmask16)(mask >> 16 * i));
            __m512i others = load_masked_codes(at(lower, format, 16 * i), format, (__mmask16)(second_mask >> 16 * i));
            put_pairs(place + 16 * i, _mm512_or_si512(_mm512_slli_epi32(codes, 16), others), d, format, met);
        }
        place += pitch;
        upper = at(upper, format, line_stride);
        lower = at(lower, format, line_stride);
    }
}

INLINE void frame_short_pairs(float *block, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high, const void *first,
                              const void *second, int format, int64_t line_stride, int64_t next, const decoder *d, magnitudes *met)
{
    if (width <= 16)
        frame_pair_vectors(block, pitch, lines, 1, low, high, first, second, format, line_stride, next, d, met);
    else if (width <= 32)
        frame_pair_vectors(block, pitch, lines, 2, low, high, first, second, format, line_stride, next, d, met);
    else if (width <= 48)
        frame_pair_vectors(block, pitch, lines, 3, low, high, first, second, format, line_stride, next, d, met);
    else
        frame_pair_vectors(block, pitch, lines, 4, low, high, first, second, format, line_stride, next, d, met);
}

INLINE void frame_pairs_format(float *block, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high,
                               const void *first, const void *second, int format, int64_t line_stride, int64_t step,
                               int64_t next, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    magnitudes met = none_met;
    if (step == 1 && width <= SHORT_LINE) {
        frame_short_pairs(block, pitch, lines, width, low, high, first, second, format, line_stride, next, &d, &met);
        note_smallest(smallest, &met);
        return;
    }
    for (int64_t line = 0; line < lines; line++) {
        float *place = block + line * pitch;
        const void *upper = at(first, format, line * line_stride), *lower = second ? at(second, format, line * line_stride) : NULL;
        for (int64_t i = 0; i < low; i += WIDTH)
            *(vector *)(place + i) = (vector){0};
        if (step == 1 || step == 2)
            for (int64_t i = low; i < high; i += WIDTH) {
                __builtin_prefetch(at(upper, format, (i - low) * step + next));
                if (lower)
                    __builtin_prefetch(at(lower, format, (i - low) * step + next));
                put_channels(place + i, at(upper, format, (i - low) * step), lower ? at(lower, format, (i - low) * step) : NULL,
                             format, high - i, step, &d, &met);
            }
        else
            put_scattered(place + low, upper, lower, format, high - low, step, &d, &met);
        for (int64_t i = high; i < width; i += WIDTH)
            *(vector *)(place + i) = (vector){0};
    }
    note_smallest(smallest, &met);
}

static void SUFFIX(frame_pairs)(float *block, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high,
                                const void *first, const void *second, int format, int64_t line_stride, int64_t step,
                                int64_t next, uint16_t *smallest)
{
    if (format == NUMBER_BFLOAT16)
        frame_pairs_format(block, pitch, lines, width, low, high, first, second, NUMBER_BFLOAT16, line_stride, step, next,
                           smallest);
    else
        frame_pairs_format(block, pitch, lines, width, low, high, first, second, format, line_stride, step, next, smallest);
}
