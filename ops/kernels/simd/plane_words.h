/* Words of 32 bits of planes, one plane in a lane: codes to vectors of floats and back.  simd/planes.h includes this. */

/* How many codes a lane of 32 bits holds. */
INLINE int codes_of_word(int format)
{
    return format == NUMBER_FLOAT32 ? 1 : is_wide(format) ? 2 : 4;
}

#if WIDTH == 16
/* Number j of every lane, of words that hold `codes_of_word` codes each. */
INLINE void decode_word(const decoder *d, int format, __m512i word, vector *number)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    if (format == NUMBER_FLOAT32)
        number[0] = (vector)word;
    else if (format == NUMBER_FLOAT16) {
        const __m512i order = _mm512_or_si512( /* lower halves first */
            _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29),
            _mm512_setr_epi32(2 << 16, 6 << 16, 10 << 16, 14 << 16, 18 << 16, 22 << 16, 26 << 16, 30 << 16, 3 << 16, 7 << 16,
                              11 << 16, 15 << 16, 19 << 16, 23 << 16, 27 << 16, 31 << 16));
        word = _mm512_permutexvar_epi16(order, word);
        number[0] = (vector)_mm512_cvtph_ps(_mm512_castsi512_si256(word));
        number[1] = (vector)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(word, 1));
    } else if (format == NUMBER_BFLOAT16) {
        number[0] = (vector)_mm512_slli_epi32(word, 16);
        number[1] = (vector)_mm512_and_si512(word, upper);
    } else {
        __m512i even = decode_words(d, format, _mm512_and_si512(word, _mm512_set1_epi16(0xff)));
        __m512i odd = decode_words(d, format, _mm512_srli_epi16(word, 8));
        number[0] = (vector)_mm512_slli_epi32(even, 16);
        number[1] = (vector)_mm512_slli_epi32(odd, 16);
        number[2] = (vector)_mm512_and_si512(even, upper);
        number[3] = (vector)_mm512_and_si512(odd, upper);
    }
}

INLINE __mmask64 first_bytes(int64_t count)
{
    return count >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << count) - 1;
}

/* Words 0 to 3 of 16 planes, as vectors of one word each. */
INLINE void load_plane_words(__m512i *word, const char *place, int64_t step)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        word[i] = (__m512i)four_quads(place + i * step, place + (4 + i) * step, place + (8 + i) * step, place + (12 + i) * step);
    transpose_four(word);
}

/* The same of fewer bytes, zeros after them. */
INLINE void load_few_words(__m512i *word, const char *place, int64_t step, int64_t bytes)
{
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        word[i] = _mm512_maskz_loadu_epi8(first_bytes(bytes), place + i * step);
    transpose_vectors(word);
}

#ifndef NORMAL_HALVES
#define NORMAL_HALVES(low, high) codes_in_pairs(NUMBER_BFLOAT16, low, high)
#endif

/* A word of finished sums; if they are `normal`, none is subnormal or -0. */
INLINE __m512i word_of(int format, const vector *done, int normal)
{
    const int codes = codes_of_word(format);
    return codes == 1                            ? (__m512i)done[0]
           : normal && format == NUMBER_BFLOAT16 ? NORMAL_HALVES(done[0], done[1])
           : codes == 2                          ? codes_in_pairs(format, done[0], done[1])
                                                 : _mm512_or_si512(codes_in_pairs(format, done[0], done[2]),
                                                                   _mm512_slli_epi32(codes_in_pairs(format, done[1], done[3]), 8));
}

#else
typedef char decoder; /* nothing is kept in registers */
#define decoder_of(format) ((decoder)0)

INLINE void decode_word(const decoder *d, int format, __m256i word, vector *number)
{
    (void)d;
    if (format == NUMBER_FLOAT32)
        number[0] = (vector)word;
    else if (format == NUMBER_BFLOAT16) {
        number[0] = (vector)_mm256_slli_epi32(word, 16);
        number[1] = (vector)_mm256_and_si256(word, _mm256_set1_epi32((int)0xffff0000u));
    } else if (format == NUMBER_FLOAT16) {
        __m256i low = _mm256_and_si256(word, _mm256_set1_epi32(0xffff)), high = _mm256_srli_epi32(word, 16);
        __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
        number[0] = (vector)_mm256_cvtph_ps(_mm256_castsi256_si128(halves));
        number[1] = (vector)_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    } else {
        word = _mm256_permutevar8x32_epi32(transpose_bytes(word), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        decode_four(word, format, number);
    }
}

/* Words 0 to 3 of 8 planes, as vectors of one word each. */
INLINE void load_plane_words(__m256i *word, const char *place, int64_t step)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        word[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(place + i * step))),
                                          _mm_loadu_si128((const __m128i *)(place + (4 + i) * step)), 1);
    transpose_four(word);
}

/* The same of fewer bytes, zeros after them. */
INLINE void load_few_words(__m256i *word, const char *place, int64_t step, int64_t bytes)
{
    char padded[8][16] = {{0}};
    for (int i = 0; i < 8; i++)
        for (int64_t j = 0; j < bytes; j++)
            padded[i][j] = place[i * step + j];
    load_plane_words(word, padded[0], 16);
}

/* A word of finished sums. */
INLINE __m256i word_of(int format, const vector *done, int normal)
{
    (void)normal;
    return lane_words(format, done);
}
#endif
