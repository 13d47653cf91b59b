/* Lines of stored numbers to floats, whole vectors at a time: included by simd/pack.h. */

/* A whole vector: without masks, and without a conversion of vectors that GCC makes of their halves. */
INLINE vector decode_vector(const void *p, int format)
{
#if WIDTH == 16
    if (format == NUMBER_BFLOAT16)
        return (vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16);
    if (format == NUMBER_FLOAT16)
        return (vector)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
    if (format == NUMBER_FLOAT8_E5M2) /* the upper half of a float16 */
        return (vector)_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p)), 8));
#elif WIDTH == 8
    if (format == NUMBER_BFLOAT16)
        return (vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16);
#endif
    return load_vector(p, format, WIDTH);
}

/* The first `count` numbers of a line. What the last vector of the line overruns is filled with zeros. Asks for what lies at
 * `later` and following. */
INLINE void decode_line(float *target, const void *source, int format, int64_t count, const void *later)
{
    int64_t i = 0;
#if WIDTH == 16
    if (code_size(format) == 1 && byte_look_ups && count > WIDTH) {
        const decoder d = decoder_of(format);
        __m512i floats[4];
        for (; i + 64 <= count; i += 64) {
            __builtin_prefetch(at(later, format, i));
            decode_64(&d, format, at(source, format, i), ~(uint64_t)0, floats);
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++)
                _mm512_storeu_si512(target + i + 16 * k, floats[k]);
        }
        if (i < count) {
            __builtin_prefetch(at(later, format, i));
            decode_64(&d, format, at(source, format, i), ~(uint64_t)0 >> (64 - (count - i)), floats);
            for (int k = 0; k < 4; k++)
                if (i + 16 * k < count)
                    _mm512_storeu_si512(target + i + 16 * k, floats[k]);
        }
        return;
    }
    if (format == NUMBER_FLOAT8_E4M3FN || format == NUMBER_HIFLOAT8) {
        const decoder d = decoder_of(format);
        for (; i + 32 <= count; i += 32) {
            __builtin_prefetch(at(later, format, i));
            __m512i words = decode_words(&d, format, _mm512_cvtepu8_epi16(_mm256_loadu_si256(at(source, format, i))));
            _mm512_storeu_si512(target + i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(words)), 16));
            _mm512_storeu_si512(target + i + 16, _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(words, 1)), 16));
        }
    }
#elif WIDTH == 8
    if (code_size(format) == 1) {
        for (; i + 32 <= count; i += 32) {
            vector floats[4];
            __builtin_prefetch(at(later, format, i));
            decode_four(_mm256_loadu_si256(at(source, format, i)), format, floats);
            for (int k = 0; k < 4; k++)
                *(vector *)(target + i + 8 * k) = floats[k];
        }
        for (; i + 16 <= count; i += 16) {
            __builtin_prefetch(at(later, format, i));
            decode_two(_mm_loadu_si128(at(source, format, i)), format, (vector *)(target + i), (vector *)(target + i + 8));
        }
    }
#endif
    for (; i + WIDTH <= count; i += WIDTH) {
        __builtin_prefetch(at(later, format, i));
        *(vector *)(target + i) = decode_vector(at(source, format, i), format);
    }
    if (i < count) {
        __builtin_prefetch(at(later, format, i));
        *(vector *)(target + i) = load_vector(at(source, format, i), format, count - i);
    }
}
