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

static void SUFFIX(narrow_block)(const uint64_t *restrict doubles, const uint32_t *restrict random,
                                 uint32_t *restrict values, int rounding, int saturate, int64_t count)
{
    int64_t i;
#define NARROW(rule, drawn)                                                                                            \
    case rule:                                                                                                         \
        for (i = 0; i < count; i++)                                                                                    \
            values[i] = narrow_as(doubles[i], drawn, rule, saturate);                                                  \
        break
    switch (rounding) {
        NARROW(NEAREST_EVEN, 0);
        NARROW(HALF_AWAY, 0);
        NARROW(TOWARD_ZERO, 0);
        NARROW(TO_ODD, 0);
        NARROW(STOCHASTIC, random[i]);
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

/* Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011. */
static void SUFFIX(draw_block)(uint32_t *numbers, uint64_t seed, uint64_t first, uint32_t stream, int64_t groups)
{
    int64_t i;
    int round;
    for (i = 0; i < groups; i++) {
        uint32_t a = (uint32_t)(first + (uint64_t)i), b = (uint32_t)((first + (uint64_t)i) >> 32), c = stream, d = 0;
        uint32_t low = (uint32_t)seed, high = (uint32_t)(seed >> 32);
        for (round = 0; round < 10; round++) {
            uint64_t p = (uint64_t)a * 0xD2511F53u, q = (uint64_t)c * 0xCD9E8D57u;
            a = (uint32_t)(q >> 32) ^ b ^ low;
            c = (uint32_t)(p >> 32) ^ d ^ high;
            b = (uint32_t)q;
            d = (uint32_t)p;
            low += 0x9E3779B9u;
            high += 0xBB67AE85u;
        }
        numbers[4 * i] = a;
        numbers[4 * i + 1] = b;
        numbers[4 * i + 2] = c;
        numbers[4 * i + 3] = d;
    }
}
