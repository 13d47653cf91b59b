/* Codes of two vectors of finished floats at a time, to the formats' usual roundings, in halves of the lanes: the first vector's
 * in the lower, the second's in the upper 16 bits.  For bfloat16 and 8-bit formats that is half of the work of `numbers/encode.h`, which stays
 * the definition; simd/store.h includes this. */

/* Shifts to the right by a constant, as a multiplication: shifts share their ports with the shuffles around them. */
INLINE __m512i shifted_words(__m512i words, int count)
{
    return _mm512_mulhi_epu16(words, _mm512_set1_epi16((short)(1 << (16 - count))));
}

/* The upper 16 bits of floats, of which a rounding to at most 3 bits behind the first needs no more: the last of them is set if
 * what is cut off decides a tie to even. Ties away from zero need not know. */
INLINE __m512i upper_halves(vector low, vector high, int ties_away)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    __m512i a = (__m512i)low, b = (__m512i)high, halves = _mm512_ternarylogic_epi32(upper, b, _mm512_srli_epi32(a, 16), 0xea);
    if (ties_away)
        return halves;
    __m512i cut = _mm512_ternarylogic_epi32(upper, _mm512_slli_epi32(b, 16), a, 0xca);
    return _mm512_or_si512(halves, _mm512_min_epu16(cut, _mm512_set1_epi16(1)));
}

/* E exponent and M mantissa bits, E + M = 7: as in `encode_ordinary`, to nearest even. */
INLINE __m512i ordinary_halves(__m512i halves, int E, int M, int top, int nan)
{
    const int lowest = 129 - (1 << (E - 1));
    const __m512i one = _mm512_set1_epi16(1), infinity = _mm512_set1_epi16(0x7f80);
    __m512i magnitude = _mm512_and_si512(halves, _mm512_set1_epi16(0x7fff));
    __m512i grid = _mm512_min_epu16(_mm512_and_si512(magnitude, infinity), _mm512_set1_epi16((short)(lowest << 7)));
    __m512i number = _mm512_sub_epi16(_mm512_add_epi16(magnitude, _mm512_set1_epi16(0x80)), grid);
    __m512i cut = _mm512_sub_epi16(_mm512_set1_epi16((short)(7 - M + lowest)), shifted_words(grid, 7));
    __m512i odd = _mm512_and_si512(_mm512_srlv_epi16(number, cut), one);
    __m512i half = _mm512_add_epi16(_mm512_sllv_epi16(one, _mm512_sub_epi16(cut, one)), _mm512_sub_epi16(odd, one));
    __m512i code = _mm512_min_epu16(_mm512_srlv_epi16(_mm512_add_epi16(number, half), cut), _mm512_set1_epi16((short)top));
    __mmask32 is_nan = top == nan ? _mm512_cmpeq_epi16_mask(code, _mm512_set1_epi16((short)top))
                                  : _mm512_cmpgt_epu16_mask(magnitude, infinity);
    code = _mm512_ternarylogic_epi32(code, shifted_words(halves, 8), _mm512_set1_epi16(0x80), 0xf8);
    return _mm512_mask_mov_epi16(code, is_nan, _mm512_set1_epi16((short)nan));
}

/* For words, in the order of the lowest six bits of exponent fields from 105 to 143: half of a step, shifts to the right as factors,
 * and bases. */
#define HALF_STEP(cut, base) 1 << (cut - 17),
#define SHIFT_FACTOR(cut, base) 1 << (32 - cut),
#define FOUR_TIMES(x) x x x x
#define IN_WORDS(field) \
    {HIFLOAT8_FROM_1(field) FOUR_TIMES(FOUR_TIMES(field(22, 82))) FOUR_TIMES(FOUR_TIMES(field(22, 82))) HIFLOAT8_TO_0(field)}
static const uint16_t hifloat8_half_steps[64] = IN_WORDS(HALF_STEP), hifloat8_factors[64] = IN_WORDS(SHIFT_FACTOR);
static const uint16_t hifloat8_bases[64] = IN_WORDS(HIFLOAT8_BASE);

INLINE __m512i look_up_words(const uint16_t *table, __m512i field)
{
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(table), field, _mm512_loadu_si512(table + 32));
}

/* As `encode_hifloat8`, ties away from zero.  Of neighbouring binades one has at most one bit more, so that nothing remains of the
 * bits that are cut off where a number is rounded up into the next one. */
INLINE __m512i hifloat8_halves(__m512i halves)
{
    __m512i magnitude = _mm512_and_si512(halves, _mm512_set1_epi16(0x7fff));
    __m512i within = _mm512_min_epu16(_mm512_max_epu16(magnitude, _mm512_set1_epi16(0x3480)), _mm512_set1_epi16(0x4740));
    __m512i code = _mm512_add_epi16(within, look_up_words(hifloat8_half_steps, shifted_words(within, 7)));
    __m512i field = shifted_words(code, 7);
    code = _mm512_add_epi16(_mm512_mulhi_epu16(code, look_up_words(hifloat8_factors, field)), look_up_words(hifloat8_bases, field));
    code = _mm512_ternarylogic_epi32(_mm512_set1_epi16(0x7f), code, shifted_words(halves, 8), 0xca);
    code = _mm512_maskz_mov_epi16(_mm512_cmpge_epu16_mask(magnitude, _mm512_set1_epi16(0x3400)), code);
    return _mm512_mask_mov_epi16(code, _mm512_cmpgt_epu16_mask(magnitude, _mm512_set1_epi16(0x7f80)), _mm512_set1_epi16(0x80));
}

/* float16 codes; those of NaN have no payload. */
INLINE __m512i float16_halves(vector low, vector high)
{
    const __m512i numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i order = _mm512_or_si512(numbers, _mm512_slli_epi32(_mm512_or_si512(numbers, _mm512_set1_epi32(32)), 16));
    __m256i a = _mm512_cvtps_ph((__m512)low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256i b = _mm512_cvtps_ph((__m512)high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512i codes = _mm512_permutex2var_epi16(_mm512_castsi256_si512(a), order, _mm512_castsi256_si512(b));
    __mmask32 nan = _mm512_cmpgt_epu16_mask(_mm512_and_si512(codes, _mm512_set1_epi16(0x7fff)), _mm512_set1_epi16(0x7c00));
    const __m512i kept = _mm512_set1_epi16((short)0xfe00);
    return _mm512_mask_mov_epi16(codes, nan, _mm512_and_si512(codes, kept));
}

/* bfloat16 codes likewise: an upper half is one more where the lower half, and half of a step less what the upper one's last bit
 * decides, carry. */
INLINE __m512i bfloat16_halves(vector low, vector high)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u), one = _mm512_set1_epi16(1);
    __m512i a = (__m512i)low, b = (__m512i)high;
    __m512i kept = _mm512_ternarylogic_epi32(upper, b, _mm512_srli_epi32(a, 16), 0xea);
    __m512i cut = _mm512_ternarylogic_epi32(upper, _mm512_slli_epi32(b, 16), a, 0xca);
    __m512i sum = _mm512_add_epi16(cut, _mm512_add_epi16(_mm512_and_si512(kept, one), _mm512_set1_epi16(0x7fff)));
    __m512i codes = _mm512_mask_add_epi16(kept, _mm512_cmplt_epu16_mask(sum, cut), kept, one);
    __mmask16 a_nan = _mm512_cmp_ps_mask((__m512)low, (__m512)low, _CMP_UNORD_Q);
    __mmask16 b_nan = _mm512_cmp_ps_mask((__m512)high, (__m512)high, _CMP_UNORD_Q);
    if (a_nan | b_nan) {
        __m512i nan = _mm512_or_si512(_mm512_and_si512(kept, _mm512_set1_epi16((short)0xff80)), _mm512_set1_epi16(0x40));
        __m512i where = _mm512_or_si512(_mm512_maskz_set1_epi32(a_nan, 0xffff), _mm512_maskz_mov_epi32(b_nan, upper));
        codes = _mm512_ternarylogic_epi32(where, nan, codes, 0xca);
    }
    return codes;
}

INLINE __m512i codes_in_pairs(int format, vector low, vector high)
{
    if (format == NUMBER_FLOAT16)
        return float16_halves(low, high);
    if (format == NUMBER_BFLOAT16)
        return bfloat16_halves(low, high);
    if (format == NUMBER_FLOAT8_E4M3FN)
        return ordinary_halves(upper_halves(low, high, 0), 4, 3, 0x7f, 0x7f);
    if (format == NUMBER_FLOAT8_E5M2)
        return ordinary_halves(upper_halves(low, high, 0), 5, 2, 0x7c, 0x7e);
    return hifloat8_halves(upper_halves(low, high, 1));
}

/* The same in words of 16 bits, the first vector's before the second's. */
INLINE __m512i codes_in_order(int format, vector first, vector second)
{
    const __m512i order = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1,
                                           30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutexvar_epi16(order, codes_in_pairs(format, first, second));
}

/* Whether two vectors at a time take less than one after the other, where nothing needs them in pairs. */
INLINE int pairs_codes(int format)
{
    return format != NUMBER_FLOAT32 && format != NUMBER_FLOAT16;
}

/* Two vectors of finished floats, side by side. */
INLINE void store_two_vectors(void *place, int format, vector first, vector second)
{
    if (!pairs_codes(format)) {
        store_vector(place, format, WIDTH, first);
        store_vector((void *)at(place, format, WIDTH), format, WIDTH, second);
        return;
    }
    __m512i codes = codes_in_order(format, first, second);
    if (format == NUMBER_BFLOAT16)
        _mm512_storeu_si512(place, codes);
    else
        _mm256_storeu_si256(place, _mm512_cvtepi16_epi8(codes));
}

/* Codes of `size` bytes, in words, those in the mask. */
INLINE void store_words(void *place, int64_t size, __mmask16 mask, __m256i words)
{
    if (size == 2 && mask == 0xffff)
        _mm256_storeu_si256(place, words);
    else if (size == 2)
        _mm256_mask_storeu_epi16(place, mask, words);
    else if (mask == 0xffff)
        _mm_storeu_si128(place, _mm256_cvtepi16_epi8(words));
    else
        _mm_mask_storeu_epi8(place, mask, _mm256_cvtepi16_epi8(words));
}

/* The first n <= 16 of two vectors of finished floats, at either place. */
INLINE void store_two(void *place, void *other, int format, int64_t n, vector first, vector second)
{
    const __mmask16 mask = (__mmask16)(0xffffu >> (16 - n));
    __m512i codes = codes_in_order(format, first, second);
    store_words(place, code_size(format), mask, _mm512_castsi512_si256(codes));
    store_words(other, code_size(format), mask, _mm512_extracti64x4_epi64(codes, 1));
}
