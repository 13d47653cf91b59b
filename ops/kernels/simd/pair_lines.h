/* Lines of bfloat16 codes that run backwards: any 32 bits of them are a pair as dot products take it, the earlier number in the upper
 * half.  Included by simd/pairs.h. */

/* Word i in the place of word 31 - i. */
INLINE __m512i reversed_words(void)
{
    const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i twice = _mm512_slli_epi32(step, 1);
    return _mm512_or_si512(_mm512_sub_epi32(_mm512_set1_epi32(31), twice),
                           _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(30), twice), 16));
}

/* The first n <= 32 numbers at p, `step` apart, as 16 bits each; zeros after them. */
INLINE __m512i load_words_apart(const void *p, int format, int64_t n, int64_t step)
{
    if (step == 1)
        return load_words(p, format, n);
    if (step == 2 && format != NUMBER_BFLOAT16)
        return _mm512_and_si512(_mm512_maskz_loadu_epi8(~(__mmask64)0 >> (65 - 2 * n), p), _mm512_set1_epi16(0xff));
    if (step == 2) {
        const __m512i even = _mm512_xor_si512(_mm512_set1_epi16(62), _mm512_slli_epi16(reversed_words(), 1));
        __m512i second = n > 16 ? load_words(at(p, format, 32), format, 2 * n - 33) : _mm512_setzero_si512();
        return _mm512_permutex2var_epi16(load_words(p, format, n > 16 ? 32 : 2 * n - 1), even, second);
    }
    uint16_t words[32] = {0};
    for (int64_t i = 0; i < n; i++)
        words[i] = (uint16_t)load_code(p, format, i * step);
    return _mm512_loadu_si512(words);
}

INLINE void line_frame_format(uint16_t *first, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high,
                              const void *source, int format, int64_t line_stride, int64_t step, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    const __m512i order = reversed_words();
    magnitudes met = none_met;
    for (int64_t line = 0; line < lines; line++) {
        uint16_t *place = first + line * pitch - 31;
        const void *start = at(source, format, line * line_stride);
        for (int64_t i = 0; i < low; i += 32)
            _mm512_storeu_si512(place - i, _mm512_setzero_si512());
        for (int64_t i = low; i < high; i += 32) {
            __m512i words = load_words_apart(at(start, format, (i - low) * step), format, high - i < 32 ? high - i : 32, step);
            words = decode_words(&d, format, words);
            note(&met, words);
            _mm512_storeu_si512(place - i, _mm512_permutexvar_epi16(order, words));
        }
        for (int64_t i = high; i < width; i += 32)
            _mm512_storeu_si512(place - i, _mm512_setzero_si512());
    }
    note_smallest(smallest, &met);
}

static void SUFFIX(line_frame)(uint16_t *first, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high,
                               const void *source, int format, int64_t line_stride, int64_t step, uint16_t *smallest)
{
    if (format == NUMBER_BFLOAT16)
        line_frame_format(first, pitch, lines, width, low, high, source, NUMBER_BFLOAT16, line_stride, step, smallest);
    else
        line_frame_format(first, pitch, lines, width, low, high, source, format, line_stride, step, smallest);
}

LINE_BLOCKS(line_pairs, pair_lines, 1)
