/* Number formats as C sees them: a small code for each, exact decoding to float, one rounding to encode.
 *
 * Only integer work and operations that no "flush subnormals" mode of the processor changes, so that the same bits
 * come out whatever another library set.  Every function is branch-light straight code: compilers vectorise loops of it.
 */
#ifndef CONVREG_NUMBERS_H
#define CONVREG_NUMBERS_H

#include <stdint.h>
#include <string.h>

enum number_format {
    NUMBER_FLOAT32 = 0,
    NUMBER_FLOAT64 = 1,
    NUMBER_FLOAT16 = 2,
    NUMBER_BFLOAT16 = 3,
};

static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bfloat16 is the upper half of a float. */
static inline float decode_bfloat16(uint16_t code)
{
    return bits_float((uint32_t)code << 16);
}

/* Round to nearest, ties to even: add just under half, or half where the kept part is odd, and cut. */
static inline uint16_t encode_bfloat16(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    uint32_t quiet_nan = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

/* float16: 1 sign, 5 exponent (bias 15), 10 mantissa bits. */
static inline float decode_float16(uint16_t code)
{
    uint32_t sign = (uint32_t)(code & 0x8000u) << 16;
    uint32_t exponent = code >> 10 & 31u;
    uint32_t mantissa = code & 1023u;
    uint32_t subnormal = float_bits((float)(int32_t)mantissa * 0x1p-24f); /* exact, and normal as a float */
    uint32_t normal = (exponent + 112u) << 23 | mantissa << 13;           /* 112 = 127 - 15 */
    uint32_t special = 0x7f800000u | mantissa << 13;
    return bits_float(sign | (exponent == 0 ? subnormal : exponent == 31 ? special : normal));
}

static inline uint16_t encode_float16(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    /* Below 2**-14 the step is 2**-24, which is the step of floats in [0.5, 1): the addition itself rounds. */
    uint32_t subnormal = float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
    uint32_t quiet_nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    uint32_t code = magnitude > 0x7f800000u    ? quiet_nan
                    : magnitude >= 0x47800000u ? 0x7c00u /* 2**16 and above; the rounding takes 65520 and above there */
                    : magnitude < 0x38800000u  ? subnormal
                                               : normal;
    return (uint16_t)(sign | code);
}

static inline float decode16(uint16_t code, int format)
{
    return format == NUMBER_FLOAT16 ? decode_float16(code) : decode_bfloat16(code);
}

static inline uint16_t encode16(float value, int format)
{
    return format == NUMBER_FLOAT16 ? encode_float16(value) : encode_bfloat16(value);
}

#endif
