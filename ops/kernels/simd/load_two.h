/* Stored numbers of 8 bits to floats, two or four vectors of eight at a time: 16 codes fill a register in words of 16 bits, 32 in
 * bytes, so that each step serves more of them than in words of 32.  simd/load.h includes this. */

/* A constant in every word, loaded: where registers are few the compiler would make it in three instructions each time. */
#define WORDS(x)                                                                                                         \
    ({                                                                                                                   \
        static const int16_t words_[16] __attribute__((aligned(32))) = {x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; \
        __m256i all_;                                                                                                    \
        __asm__("vmovdqa %1, %0" : "=x"(all_) : "m"(words_));                                                            \
        all_;                                                                                                            \
    })

/* As float16 numbers the codes, moved, are 2**8 times smaller. */
INLINE void decode_two_e4m3fn(__m128i codes, vector *first, vector *second)
{
    __m256i words = _mm256_cvtepu8_epi16(codes), last = _mm256_set1_epi16(0x7f);
    __m256i magnitude = _mm256_and_si256(words, last), sign = _mm256_andnot_si256(last, words);
    __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, last), _mm256_set1_epi16(0x7c00));
    __m256i halves = _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi16(magnitude, 7), _mm256_slli_epi16(sign, 8)), nan);
    const __m256 scale = _mm256_set1_ps(256.0f);
    *first = (vector)_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), scale);
    *second = (vector)_mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), scale);
}

/* To the upper 16 bits of floats.  Eight codes whose upper bits agree go on by equal steps, which `step` and `flip` give, from a
 * power of two.  Its exponent times 128 and the steps times their size are added in pairs; both factors are negative, since 128 is no
 * number of 8 bits with a sign. */
INLINE void decode_four_hifloat8(__m256i codes, vector *floats)
{
    const __m256i start = _mm256_broadcastsi128_si256(_mm_setr_epi8(104, 127, (char)128, 126, (char)129, (char)130, 125, 124,
                                                                    (char)131, (char)133, 122, 120, (char)135, (char)139, 116, 112));
    const __m256i step = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-128, -16, -16, -16, -16, -16, -16, -16, -32, -32, -32, -32, -64, -64, -64, -64));
    const __m256i flip = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 0, 0, 6, 6));
    const __m256i zero = _mm256_setzero_si256(), lowest = _mm256_set1_epi8(-128);
    /* four codes of each vector in either half of a register */
    codes = _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    __m256i part = _mm256_srli_epi16(_mm256_and_si256(codes, _mm256_set1_epi8(0x78)), 3);
    __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi8(0x7f));
    __m256i infinite = _mm256_cmpeq_epi8(magnitude, _mm256_set1_epi8(0x6f)), nan = _mm256_cmpeq_epi8(codes, lowest);
    __m256i powers = _mm256_andnot_si256(_mm256_cmpeq_epi8(magnitude, zero), _mm256_shuffle_epi8(start, part));
    powers = _mm256_or_si256(_mm256_or_si256(powers, infinite), nan);
    __m256i steps = _mm256_xor_si256(_mm256_and_si256(codes, _mm256_set1_epi8(7)), _mm256_shuffle_epi8(flip, part));
    steps = _mm256_andnot_si256(infinite, steps);
    __m256i size = _mm256_shuffle_epi8(step, part);
    __m256i sign = _mm256_and_si256(codes, lowest), quiet = _mm256_and_si256(nan, _mm256_set1_epi8(0x40));
    __m256i low = _mm256_maddubs_epi16(_mm256_unpacklo_epi8(powers, steps), _mm256_unpacklo_epi8(lowest, size));
    __m256i high = _mm256_maddubs_epi16(_mm256_unpackhi_epi8(powers, steps), _mm256_unpackhi_epi8(lowest, size));
    low = _mm256_sub_epi16(_mm256_unpacklo_epi8(quiet, sign), low);
    high = _mm256_sub_epi16(_mm256_unpackhi_epi8(quiet, sign), high);
    floats[0] = (vector)_mm256_unpacklo_epi16(zero, low);
    floats[1] = (vector)_mm256_unpackhi_epi16(zero, low);
    floats[2] = (vector)_mm256_unpacklo_epi16(zero, high);
    floats[3] = (vector)_mm256_unpackhi_epi16(zero, high);
}

INLINE void decode_two(__m128i codes, int format, vector *first, vector *second)
{
    const __m128i zero = _mm_setzero_si128();
    if (format == NUMBER_HIFLOAT8) {
        vector floats[4]; /* the other two are not computed */
        decode_four_hifloat8(_mm256_castsi128_si256(codes), floats);
        *first = floats[0];
        *second = floats[1];
    } else if (format == NUMBER_FLOAT8_E5M2) { /* the upper half of a float16 */
        *first = (vector)_mm256_cvtph_ps(_mm_unpacklo_epi8(zero, codes));
        *second = (vector)_mm256_cvtph_ps(_mm_unpackhi_epi8(zero, codes));
    } else
        decode_two_e4m3fn(codes, first, second);
}

INLINE void decode_four(__m256i codes, int format, vector *floats)
{
    if (format == NUMBER_HIFLOAT8)
        decode_four_hifloat8(codes, floats);
    else {
        decode_two(_mm256_castsi256_si128(codes), format, floats, floats + 1);
        decode_two(_mm256_extracti128_si256(codes, 1), format, floats + 2, floats + 3);
    }
}
