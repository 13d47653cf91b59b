/* Lines of stored numbers to lines of floats, with zeros before and behind: included by simd/pack.h. */

#if WIDTH == 16
/* Of 16 numbers at p those in the mask, zeros in the places of the others. */
INLINE vector load_masked(const void *p, int format, uint16_t mask)
{
    if (format == NUMBER_FLOAT32)
        return (vector)_mm512_maskz_loadu_ps(mask, p);
    if (format == NUMBER_FLOAT16)
        return (vector)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
    return decode_codes(format, load_masked_codes(p, format, mask));
}

enum { SHORT_LINE = 64 };

/* Numbers [low, high) of a short line. */
INLINE uint64_t short_line_mask(int64_t low, int64_t high)
{
    return (high < 64 ? (uint64_t)1 << high : 0) - (low < 64 ? (uint64_t)1 << low : 0);
}

/* As `frame_vectors`. */
INLINE void frame_codes(float *place, ptrdiff_t pitch, int64_t lines, int vectors, int64_t low, int64_t high, const void *source,
                        int format, int64_t line_stride, int64_t next)
{
    const decoder d = decoder_of(format);
    const uint64_t mask = short_line_mask(low, high);
    const void *start = at(source, format, -low);
    for (int64_t line = 0; line < lines; line++) {
        __m512i floats[4];
        __builtin_prefetch(at(start, format, next));
        decode_64(&d, format, start, mask, floats);
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++)
            _mm512_storeu_si512(place + 16 * i, floats[i]);
        place += pitch;
        start = at(start, format, line_stride);
    }
}

/* Lines of some vectors with zeros before and behind: masks cost less than edges of their own. */
INLINE void frame_vectors(float *place, ptrdiff_t pitch, int64_t lines, int vectors, int64_t low, int64_t high, const void *source,
                          int format, int64_t line_stride, int64_t next)
{
    uint64_t mask = short_line_mask(low, high);
    uint16_t masks[4] = {(uint16_t)mask, (uint16_t)(mask >> 16), (uint16_t)(mask >> 32), (uint16_t)(mask >> 48)};
    const void *start = at(source, format, -low);
    for (int64_t line = 0; line < lines; line++) {
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) {
            __builtin_prefetch(at(start, format, next + 16 * i));
            *(vector *)(place + 16 * i) = load_masked(at(start, format, 16 * i), format, masks[i]);
        }
        place += pitch;
        start = at(start, format, line_stride);
    }
}

INLINE void frame_short_lines(float *block, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high,
                              const void *source, int format, int64_t line_stride, int64_t next)
{
    const int bytes = code_size(format) == 1 && byte_look_ups;
    if (bytes && width > 48)
        frame_codes(block, pitch, lines, 4, low, high, source, format, line_stride, next);
    else if (bytes && width > 32)
        frame_codes(block, pitch, lines, 3, low, high, source, format, line_stride, next);
    else if (bytes && width > 16)
        frame_codes(block, pitch, lines, 2, low, high, source, format, line_stride, next);
    else if (width <= 16)
        frame_vectors(block, pitch, lines, 1, low, high, source, format, line_stride, next);
    else if (width <= 32)
        frame_vectors(block, pitch, lines, 2, low, high, source, format, line_stride, next);
    else if (width <= 48)
        frame_vectors(block, pitch, lines, 3, low, high, source, format, line_stride, next);
    else
        frame_vectors(block, pitch, lines, 4, low, high, source, format, line_stride, next);
}
#endif

/* At least one number. */
INLINE void zero_numbers(float *place, int64_t count)
{
    *(vector *)place = (vector){0}; /* by itself: of the loop alone the compiler makes a call of memset */
    for (int64_t i = WIDTH; i < count; i += WIDTH)
        *(vector *)(place + i) = (vector){0};
}

/* `next`: where the lines of a later call lie, relative to these. */
INLINE void frame_format(float *block, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high,
                         const void *source, int format, int64_t line_stride, int64_t step, int64_t next)
{
#if WIDTH == 16
    if (step == 1 && width <= SHORT_LINE) {
        frame_short_lines(block, pitch, lines, width, low, high, source, format, line_stride, next);
        return;
    }
#endif
    for (int64_t line = 0; line < lines; line++) {
        float *place = block + line * pitch;
        const void *start = at(source, format, line * line_stride), *later = at(start, format, next);
        if (low > 0)
            zero_numbers(place, low);
        if (step == 1)
            decode_line(place + low, start, format, high - low, later);
        else if (step == 2)
            decode_every_other(place + low, start, format, high - low, later);
        else if (step > 2 && step <= APART)
            decode_apart(place + low, start, format, step, high - low, NULL);
        else
            for (int64_t i = low; i < high; i++)
                place[i] = load_number(start, format, (i - low) * step);
        if (high < width)
            zero_numbers(place + high, width - high);
    }
}

static void SUFFIX(frame)(float *block, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high,
                          const void *source, int format, int64_t line_stride, int64_t step, int64_t next)
{
    BY_FORMAT(format, frame_format, block, pitch, lines, width, low, high, source, known_format, line_stride, step, next)
}
