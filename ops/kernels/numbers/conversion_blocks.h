/* The loops of numbers/conversion.h, compiled once for each instruction set: the includer defines NAME and SUFFIX. */

static void SUFFIX(decode_block)(const void *restrict codes, int format, uint32_t *restrict values, int64_t count)
{
    const uint16_t *wide = codes;
    const uint8_t *narrow = codes;
    int64_t i;
#define DECODE(value)                                                                                                  \
    for (i = 0; i < count; i++)                                                                                        \
        values[i] = value
    switch (format) {
    case NUMBER_FLOAT32: memcpy(values, codes, (size_t)count * 4); break;
    case NUMBER_FLOAT16: DECODE(float_bits(decode_float16(wide[i]))); break;
    case NUMBER_BFLOAT16: DECODE(float_bits(decode_bfloat16(wide[i]))); break;
    default: DECODE(decoded[format - NUMBER_FLOAT8_E4M3FN][narrow[i]]);
    }
#undef DECODE
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

static void SUFFIX(encode_block)(const uint32_t *restrict values, const uint32_t *restrict random,
                                 void *restrict codes, int format, int rounding, int saturate, int source,
                                 int64_t count)
{
    uint32_t *words = codes;
    uint16_t *wide = codes;
    uint8_t *narrow = codes;
    int64_t i;
#define ENCODE(rule, drawn, to, sign, E, M, top, nan, shift)                                                           \
    case rule:                                                                                                         \
        for (i = 0; i < count; i++) {                                                                                  \
            uint32_t code = encode_ordinary_as(values[i], drawn, E, M, top, nan, rule, saturate);                      \
            uint32_t signed_code = values[i] >> 31 << (sign) | code << (shift);                                        \
            to[i] = (__typeof__(*to))choose((sign) == 7 && code == (nan), (nan), signed_code);                         \
        }                                                                                                              \
        break
#define ORDINARY(...)                                                                                                  \
    switch (rounding) {                                                                                                \
        ENCODE(NEAREST_EVEN, 0, __VA_ARGS__);                                                                          \
        ENCODE(HALF_AWAY, 0, __VA_ARGS__);                                                                             \
        ENCODE(TOWARD_ZERO, 0, __VA_ARGS__);                                                                           \
        ENCODE(STOCHASTIC, random[i], __VA_ARGS__);                                                                    \
    }                                                                                                                  \
    break
#define HIFLOAT8(rule, drawn, from)                                                                                    \
    for (i = 0; i < count; i++)                                                                                        \
        narrow[i] = encode_hifloat8_as(values[i], drawn, rule, saturate, from);                                        \
    break
    switch (format) {
    case NUMBER_FLOAT32:
        for (i = 0; i < count; i++)
            words[i] = values[i] - (uint32_t)(saturate && (values[i] & 0x7fffffffu) == 0x7f800000u);
        break;
    case NUMBER_FLOAT16: ORDINARY(wide, 15, 5, 10, 0x7c00, 0x7e00, 0);
    case NUMBER_BFLOAT16: ORDINARY(wide, 15, 8, 7, 0x7f80, 0x7fc0, 0);
    case NUMBER_FLOAT8_E4M3FN: ORDINARY(narrow, 7, 4, 3, 0x7f, 0x7f, 0);
    case NUMBER_FLOAT8_E5M2: ORDINARY(narrow, 7, 5, 2, 0x7c, 0x7e, 0);
    case ROUND_TO_HF32: ORDINARY(words, 31, 8, 11, 0x7f800, 0x7fc00, 12);
    case NUMBER_HIFLOAT8:
        switch (rounding) {
        case NEAREST_EVEN: HIFLOAT8(NEAREST_EVEN, 0, 0);
        case HALF_AWAY: HIFLOAT8(HALF_AWAY, 0, 0);
        case TOWARD_ZERO: HIFLOAT8(TOWARD_ZERO, 0, 0);
        case STOCHASTIC: HIFLOAT8(STOCHASTIC, random[i], 0);
        case HYBRID: HIFLOAT8(HYBRID, 0, source);
        }
    }
#undef HIFLOAT8
#undef ORDINARY
#undef ENCODE
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

static const conversion_set SUFFIX(conversion_set) = {
    NAME, SUFFIX(decode_block), SUFFIX(narrow_block), SUFFIX(encode_block), SUFFIX(draw_block),
};

#undef NAME
#undef SUFFIX
