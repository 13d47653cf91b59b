/* Conversions of blocks of numbers: `numbers/conversion.h`.  simd/tile.h includes this. */

INLINE void decode_format(const void *codes, int format, uint32_t *values, int64_t count)
{
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH)
        *(vector *)(values + i) = load_vector(at(codes, format, i), format, WIDTH);
    if (i < count)
        STORE_PART((float *)(values + i), count - i, load_vector(at(codes, format, i), format, count - i));
}

static void SUFFIX(decode_block)(const void *codes, int format, uint32_t *values, int64_t count)
{
    BY_FORMAT(format, decode_format, codes, known_format, values, count)
}

static void SUFFIX(scale_block)(const uint32_t *values, const float *factors, int64_t step, uint32_t *scaled, int64_t count)
{
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH)
        *(vector *)(scaled + i) = *(const vector *)(values + i) * (step ? *(const vector *)(factors + i) : BROADCAST(*factors));
    if (i < count) {
        int64_t n = count - i;
        vector factor = step ? load_vector(factors + i, NUMBER_FLOAT32, n) : BROADCAST(*factors);
        STORE_PART((float *)(scaled + i), n, load_vector(values + i, NUMBER_FLOAT32, n) * factor);
    }
}

/* Lanes of 64 bits: of four 32-bit lanes one number at a time, because 64-bit products and shifts by lanes are few there. */
#if WIDTH == 4
enum { WIDE_LANES = 1 };
typedef uint64_t wide_lanes;
#define WIDE_FUNCTION(name) name##_one
#else
enum { WIDE_LANES = WIDTH / 2 };
typedef vector_ulong wide_lanes;
#define WIDE_FUNCTION(name) SUFFIX(name##_lanes)
#endif

INLINE wide_lanes widened(const uint32_t *p)
{
#if WIDTH == 16
    return (vector_ulong)_mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)p));
#elif WIDTH == 8
    return (vector_ulong)_mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)p));
#else
    return *p;
#endif
}

INLINE void store_lower_halves(uint32_t *p, wide_lanes values)
{
#if WIDTH == 16
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi64_epi32((__m512i)values));
#elif WIDTH == 8
    const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(_mm256_permutevar8x32_epi32((__m256i)values, even)));
#else
    *p = (uint32_t)values;
#endif
}

INLINE void narrow_rule(const uint64_t *doubles, const uint32_t *random, uint32_t *values, int rounding, int saturate, int64_t count)
{
    int64_t i = 0;
    for (; i + WIDE_LANES <= count; i += WIDE_LANES) {
        wide_lanes bits, drawn = {0};
        memcpy(&bits, doubles + i, sizeof bits);
        if (rounding == STOCHASTIC)
            drawn = widened(random + i);
        store_lower_halves(values + i, WIDE_FUNCTION(narrow)(bits, drawn, rounding, saturate));
    }
    for (; i < count; i++)
        values[i] = (uint32_t)narrow_one(doubles[i], rounding == STOCHASTIC ? random[i] : 0, rounding, saturate);
}

static void SUFFIX(narrow_block)(const uint64_t *doubles, const uint32_t *random, uint32_t *values, int rounding, int saturate,
                                 int64_t count)
{
#define NARROW(rule)                                                                                                   \
    case rule:                                                                                                         \
        if (saturate)                                                                                                  \
            narrow_rule(doubles, random, values, rule, 1, count);                                                      \
        else                                                                                                           \
            narrow_rule(doubles, random, values, rule, 0, count);                                                      \
        break
    switch (rounding) {
        NARROW(NEAREST_EVEN);
        NARROW(HALF_AWAY);
        NARROW(TOWARD_ZERO);
        NARROW(TO_ODD);
        NARROW(STOCHASTIC);
    }
#undef NARROW
}

/* The first n <= WIDTH of 32 bits each. */
INLINE vector_uint load_words(const uint32_t *p, int64_t n)
{
    return (vector_uint)load_vector(p, NUMBER_FLOAT32, n);
}

INLINE void encode_rule(const uint32_t *values, const uint32_t *random, char *codes, int format, int rounding, int saturate,
                        int source, int64_t count)
{
    int64_t size = format == ROUND_TO_HF32 ? 4 : code_size(format);
    for (int64_t i = 0; i < count; i += WIDTH) {
        int64_t n = count - i < WIDTH ? count - i : WIDTH;
        vector_uint drawn = {0};
        if (rounding == STOCHASTIC)
            drawn = load_words(random + i, n);
        store_codes(codes + i * size, size, n,
                    SUFFIX(encode_lanes)(load_words(values + i, n), drawn, format, rounding, saturate, source));
    }
}

INLINE void encode_format(const uint32_t *values, const uint32_t *random, char *codes, int format, int rounding, int saturate,
                          int source, int64_t count)
{
#define RULE(number, rule, from)                                                                                       \
    case number:                                                                                                       \
        if (saturate)                                                                                                  \
            encode_rule(values, random, codes, format, rule, 1, from, count);                                          \
        else                                                                                                           \
            encode_rule(values, random, codes, format, rule, 0, from, count);                                          \
        break
    switch (rounding) {
        RULE(NEAREST_EVEN, NEAREST_EVEN, 0);
        RULE(HALF_AWAY, HALF_AWAY, 0);
        RULE(TOWARD_ZERO, TOWARD_ZERO, 0);
        RULE(STOCHASTIC, STOCHASTIC, 0);
    case HYBRID:
        if (format == NUMBER_HIFLOAT8)
            switch (source == NUMBER_FLOAT32 || source == NUMBER_BFLOAT16 ? source : NUMBER_FLOAT16) {
                RULE(NUMBER_FLOAT32, HYBRID, NUMBER_FLOAT32);
                RULE(NUMBER_BFLOAT16, HYBRID, NUMBER_BFLOAT16);
                RULE(NUMBER_FLOAT16, HYBRID, NUMBER_FLOAT16);
            }
    }
#undef RULE
}

static void SUFFIX(encode_block)(const uint32_t *values, const uint32_t *random, void *codes, int format, int rounding,
                                 int saturate, int source, int64_t count)
{
    if (format == ROUND_TO_HF32)
        encode_format(values, random, codes, ROUND_TO_HF32, rounding, saturate, source, count);
    else
        BY_FORMAT(format, encode_format, values, random, codes, known_format, rounding, saturate, source, count)
}

/* Four words of each lane, of one lane after the other. */
INLINE void store_drawn(uint32_t *numbers, const wide_lanes *word)
{
#if WIDTH == 16
    const __m512i low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    __m512i ab = _mm512_mask_mov_epi32((__m512i)word[0], 0xaaaa, (__m512i)(word[1] << 32));
    __m512i cd = _mm512_mask_mov_epi32((__m512i)word[2], 0xaaaa, (__m512i)(word[3] << 32));
    _mm512_storeu_si512(numbers, _mm512_permutex2var_epi64(ab, low, cd));
    _mm512_storeu_si512(numbers + 16, _mm512_permutex2var_epi64(ab, high, cd));
#elif WIDTH == 8
    __m256i ab = _mm256_blend_epi32((__m256i)word[0], (__m256i)(word[1] << 32), 0xaa);
    __m256i cd = _mm256_blend_epi32((__m256i)word[2], (__m256i)(word[3] << 32), 0xaa);
    __m256i even = _mm256_unpacklo_epi64(ab, cd), odd = _mm256_unpackhi_epi64(ab, cd);
    _mm256_storeu_si256((__m256i *)numbers, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((__m256i *)(numbers + 8), _mm256_permute2x128_si256(even, odd, 0x31));
#else
    for (int i = 0; i < 4; i++)
        numbers[i] = (uint32_t)word[i];
#endif
}

static void SUFFIX(draw_block)(uint32_t *numbers, uint64_t seed, uint64_t first, uint32_t stream, int64_t groups)
{
    uint64_t numbered[WIDE_LANES];
    wide_lanes lane;
    for (int l = 0; l < WIDE_LANES; l++)
        numbered[l] = (uint64_t)l;
    memcpy(&lane, numbered, sizeof lane);
    for (int64_t i = 0; i < groups; i += WIDE_LANES) {
        uint32_t last[4 * WIDE_LANES];
        wide_lanes word[4], start = lane + (first + (uint64_t)i);
        WIDE_FUNCTION(draw)(word, start, seed, stream);
        if (groups - i >= WIDE_LANES)
            store_drawn(numbers + 4 * i, word);
        else {
            store_drawn(last, word);
            memcpy(numbers + 4 * i, last, (size_t)(groups - i) * 16);
        }
    }
}
