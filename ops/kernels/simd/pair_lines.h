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

/* The first n <= 32 numbers at p, `step` > 1 apart, as 16 bits each; zeros after them. */
INLINE __m512i load_words_apart(const void *p, int format, int64_t n, int64_t step)
{
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

INLINE void lay_pairs_format(char *first, ptrdiff_t pitch, int64_t lines, const line_piece *pieces, int64_t piece_count,
                             const void *source, int format, int64_t line_stride, int64_t step, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    const __m512i order = reversed_words();
    magnitudes met = none_met;
    for (int64_t line = 0; line < lines; line++) {
        const void *start = at(source, format, line * line_stride);
        for (const line_piece *piece = pieces; piece < pieces + piece_count; piece++) {
            uint16_t *place = (uint16_t *)(first + line * pitch) - piece->place - 31;
            __m512i words = _mm512_setzero_si512();
            if (step == 1)
                words = load_words_masked(at(start, format, piece->source), format, piece->mask);
            else {
                _mm512_storeu_si512(place, words);
                place -= piece->low;
                if (piece->high > piece->low)
                    words = load_words_apart(at(start, format, piece->source + piece->low * step), format, piece->high - piece->low, step);
            }
            words = decode_words(&d, format, words);
            note(&met, words);
            _mm512_storeu_si512(place, _mm512_permutexvar_epi16(order, words));
            for (int64_t i = 1; step == 1 && i <= piece->more; i++) {
                words = decode_words(&d, format, load_words(at(start, format, piece->source + 32 * i), format, 32));
                note(&met, words);
                _mm512_storeu_si512(place - 32 * i, _mm512_permutexvar_epi16(order, words));
            }
        }
    }
    note_smallest(smallest, &met);
}

static void SUFFIX(lay_pairs)(char *first, ptrdiff_t pitch, int64_t lines, const line_piece *pieces, int64_t piece_count,
                              const void *source, int format, int64_t line_stride, int64_t step, uint16_t *smallest)
{
    if (format == NUMBER_BFLOAT16 && step == 1)
        lay_pairs_format(first, pitch, lines, pieces, piece_count, source, NUMBER_BFLOAT16, line_stride, 1, smallest);
    else if (format == NUMBER_BFLOAT16)
        lay_pairs_format(first, pitch, lines, pieces, piece_count, source, NUMBER_BFLOAT16, line_stride, step, smallest);
    else
        lay_pairs_format(first, pitch, lines, pieces, piece_count, source, format, line_stride, step, smallest);
}

#include "simd/line_blocks.h"
