/* Finished floats to stored numbers of 8 bits, two vectors of eight at a time, to the formats' usual roundings: in words of 16
 * bits, where each step serves twice as many as in `numbers/encode.h`, which stays the definition.  simd/store.h includes this. */

/* As `encode_ordinary` with E + M = 7, to nearest even, but for signs and NaN.  An addition rounds: its second operand is the
 * power of two whose last bit is a step of the format. */
INLINE __m256i ordinary_magnitudes(vector values, int E, int M, int top)
{
    const int lowest = 129 - (1 << (E - 1));
    const __m256i above = _mm256_set1_epi32(((top >> M) + lowest - 1) << 23 | (top & ((1 << M) - 1)) << (23 - M));
    __m256i magnitude = _mm256_and_si256((__m256i)values, _mm256_set1_epi32(0x7fffffff));
    magnitude = _mm256_min_epi32(magnitude, above);
    __m256i grid = _mm256_and_si256(magnitude, _mm256_set1_epi32(0x7f800000));
    grid = _mm256_max_epi32(grid, _mm256_set1_epi32(lowest << 23));
    __m256i power = _mm256_add_epi32(grid, _mm256_set1_epi32((23 - M) << 23));
    __m256i sum = _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_castsi256_ps(power)));
    return _mm256_add_epi32(_mm256_sub_epi32(sum, power), _mm256_srli_epi32(grid, 23 - M));
}

/* The codes in words of 16 bits: four of either vector in each half of a register. */
INLINE __m256i ordinary_words(vector first, vector second, int E, int M, int top, int nan)
{
    const int lowest = 129 - (1 << (E - 1));
    __m256i codes = _mm256_packs_epi32(ordinary_magnitudes(first, E, M, top), ordinary_magnitudes(second, E, M, top));
    codes = _mm256_sub_epi16(codes, _mm256_set1_epi16((short)(lowest << M)));
    __m256i sign = _mm256_packs_epi32(_mm256_srai_epi32((__m256i)first, 16), _mm256_srai_epi32((__m256i)second, 16));
    __m256i is_nan = _mm256_cmpeq_epi16(codes, _mm256_set1_epi16((short)nan));
    if (top != nan)
        is_nan = _mm256_cmpgt_epi16(_mm256_and_si256(sign, _mm256_set1_epi16(0x7fff)), _mm256_set1_epi16(0x7f80));
    codes = _mm256_or_si256(codes, _mm256_and_si256(_mm256_srli_epi16(sign, 8), _mm256_set1_epi16(0x80)));
    return _mm256_blendv_epi8(codes, _mm256_set1_epi16((short)nan), is_nan);
}

/* As `encode_hifloat8`, ties away from zero.  The numbers of the format in their order are ranks, 0 to 127 from zero to infinity.
 * The rank is the magnitude in steps, rounded, with another step in every part of the range: on lines of which those of large
 * numbers take the least, those of small ones the largest.  Eight ranks whose upper bits agree are the codes of such a group. */
INLINE __m256i hifloat8_words(vector first, vector second)
{
    const __m256i group = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 118, 102, 68, 116, 16, 0, 32, 72, 88, 112, 112, 32, 32, 16, 16));
    __m256i halves = _mm256_packs_epi32(_mm256_srai_epi32((__m256i)first, 16), _mm256_srai_epi32((__m256i)second, 16));
    __m256i magnitude = _mm256_and_si256(halves, WORDS(0x7fff));
    __m256i place = _mm256_sub_epi16(_mm256_max_epi16(magnitude, WORDS(0x3480)), WORDS(119 << 7));
    __m256i rank = _mm256_mulhrs_epi16(place, WORDS(1 << 11)); /* in steps of 1/8 of a power of two, rounded */
    __m256i quarters = _mm256_mulhrs_epi16(place, WORDS(1 << 10));
    __m256i twos = _mm256_mulhrs_epi16(place, WORDS(1 << 9));
    __m256i ones = _mm256_mulhrs_epi16(place, WORDS(1 << 8));
    rank = _mm256_min_epi16(rank, _mm256_add_epi16(quarters, WORDS(48)));
    rank = _mm256_min_epi16(rank, _mm256_add_epi16(twos, WORDS(80)));
    rank = _mm256_max_epi16(rank, _mm256_add_epi16(quarters, WORDS(20)));
    rank = _mm256_max_epi16(rank, _mm256_add_epi16(twos, WORDS(22)));
    rank = _mm256_max_epi16(rank, _mm256_add_epi16(ones, WORDS(15)));
    rank = _mm256_min_epi16(rank, WORDS(127));
    __m256i codes = _mm256_xor_si256(rank, _mm256_shuffle_epi8(group, _mm256_srli_epi16(rank, 3)));
    codes = _mm256_or_si256(codes, _mm256_and_si256(_mm256_srli_epi16(halves, 8), WORDS(0x80)));
    codes = _mm256_and_si256(codes, _mm256_cmpgt_epi16(magnitude, WORDS(0x33ff))); /* below 2**-23 */
    __m256i is_nan = _mm256_cmpgt_epi16(magnitude, WORDS(0x7f80)); /* a sum that is NaN is a quiet one */
    return _mm256_blendv_epi8(codes, WORDS(0x80), is_nan);
}

/* Codes of 8 bits in words of 16: four of either vector in each half of a register. */
INLINE __m256i words_of_two(int format, vector first, vector second)
{
    return format == NUMBER_HIFLOAT8        ? hifloat8_words(first, second)
           : format == NUMBER_FLOAT8_E4M3FN ? ordinary_words(first, second, 4, 3, 0x7f, 0x7f)
                                            : ordinary_words(first, second, 5, 2, 0x7c, 0x7e);
}

/* Codes of one, two or four vectors of finished floats: those of a lane in its word of 32 bits. */
INLINE __m256i lane_words(int format, const vector *row)
{
    if (format == NUMBER_FLOAT32)
        return (__m256i)row[0];
    if (code_size(format) == 2)
        return _mm256_or_si256((__m256i)codes_of(row[0], format), _mm256_slli_epi32((__m256i)codes_of(row[1], format), 16));
    return transpose_bytes(_mm256_packus_epi16(words_of_two(format, row[0], row[1]), words_of_two(format, row[2], row[3])));
}

/* Four words of each lane: the first `bytes` <= 16 of lanes `first` to `end`, whose places are `step` bytes apart. */
INLINE void store_four_words(char *place, int64_t step, int64_t first, int64_t end, int64_t bytes, __m256i *word)
{
    transpose_four(word);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        if (i >= first && i < end)
            store_half_bits(place + i * step, bytes, part_of(word[i % 4], i / 4));
}

/* The codes of the first vector, then those of the second. */
INLINE __m128i bytes_of_two(int format, vector first, vector second)
{
    __m256i words = words_of_two(format, first, second);
    words = _mm256_packus_epi16(words, words);
    return _mm_unpacklo_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

/* Two vectors of finished floats, side by side. */
INLINE void store_two_vectors(void *place, int format, vector first, vector second)
{
    if (code_size(format) == 1) {
        _mm_storeu_si128(place, bytes_of_two(format, first, second));
        return;
    }
    store_vector(place, format, WIDTH, first);
    store_vector((void *)at(place, format, WIDTH), format, WIDTH, second);
}

/* Whether two lines at a time take less than one after the other. */
INLINE int pairs_codes(int format)
{
    return format != NUMBER_FLOAT32;
}

/* n <= 8 codes of each of two vectors of finished floats, side by side at either place. */
INLINE void store_two(void *place, void *other, int format, int64_t n, vector first, vector second)
{
    if (code_size(format) != 1) { /* side by side they take 0.85 to 0.95 of the time of one after the other */
        store_vector(place, format, n, first);
        store_vector(other, format, n, second);
        return;
    }
    __m128i codes = bytes_of_two(format, first, second);
    if (n == 8) {
        _mm_storel_epi64(place, codes);
        _mm_storel_epi64(other, _mm_unpackhi_epi64(codes, codes));
        return;
    }
    store_half_bits(place, n, codes);
    store_half_bits(other, n, _mm_srli_si128(codes, 8));
}
