/* Stored numbers as floats, one or a vector at a time, exactly: simd/pack.h includes this. */

INLINE int is_wide(int format)
{
    return format == NUMBER_FLOAT16 || format == NUMBER_BFLOAT16;
}

INLINE int64_t code_size(int format)
{
    return format == NUMBER_FLOAT32 ? 4 : is_wide(format) ? 2 : 1;
}

INLINE const void *at(const void *source, int format, int64_t offset)
{
    return (const char *)source + offset * code_size(format);
}

INLINE float load_half(uint16_t code)
{
#ifdef __x86_64__
#if WIDTH > 4
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(code)));
#endif
#endif
    return decode_float16(code);
}

INLINE float load_number(const void *source, int format, int64_t offset)
{
    const void *place = at(source, format, offset);
    return format == NUMBER_FLOAT32    ? *(const float *)place
           : format == NUMBER_FLOAT16  ? load_half(*(const uint16_t *)place)
           : format == NUMBER_BFLOAT16 ? decode_bfloat16(*(const uint16_t *)place)
                                       : code_values[format - NUMBER_FLOAT8_E4M3FN][*(const uint8_t *)place];
}

#if WIDTH == 16
/* 8-bit codes, 32 of them as 16 bits each, to bfloat16 codes. */
typedef struct {
    __m512i part[4];  /* magnitudes of the codes 0 to 127 */
    __m512i nan;      /* the code whose magnitude is another number's, or none */
    __m512i lower[2]; /* the bytes of these magnitudes */
    __m512i upper[2];
} decoder;

INLINE decoder decoder_of(int format)
{
    decoder d = {{{0}}, _mm512_set1_epi16(-1), {{0}}, {{0}}};
    if (format != NUMBER_BFLOAT16) {
        for (int i = 0; i < 4; i++)
            d.part[i] = _mm512_loadu_si512(code_magnitudes[format - NUMBER_FLOAT8_E4M3FN] + 32 * i);
        for (int i = 0; i < 2; i++) {
            d.lower[i] = _mm512_loadu_si512(code_bytes[format - NUMBER_FLOAT8_E4M3FN][0] + 64 * i);
            d.upper[i] = _mm512_loadu_si512(code_bytes[format - NUMBER_FLOAT8_E4M3FN][1] + 64 * i);
        }
        if (format == NUMBER_HIFLOAT8)
            d.nan = _mm512_set1_epi16(0x80);
    }
    return d;
}

INLINE __m512i decode_words(const decoder *d, int format, __m512i codes)
{
    if (format == NUMBER_BFLOAT16)
        return codes;
    __m512i low = _mm512_permutex2var_epi16(d->part[0], codes, d->part[1]);
    __m512i high = _mm512_permutex2var_epi16(d->part[2], codes, d->part[3]);
    __m512i value = _mm512_mask_mov_epi16(low, _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40)), high);
    value = _mm512_or_si512(value, _mm512_slli_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(0x80)), 8));
    return _mm512_mask_mov_epi16(value, _mm512_cmpeq_epi16_mask(codes, d->nan), _mm512_set1_epi16(0x7fc0));
}

/* Of 16 codes at p those in the mask, as 32 bits each; zeros in the places of the others. */
INLINE __m512i load_masked_codes(const void *p, int format, __mmask16 mask)
{
    if (format == NUMBER_BFLOAT16)
        return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, p));
}

/* 16 codes of 16 or 8 bits, as 32 bits each, to floats. */
INLINE vector decode_codes(int format, __m512i codes)
{
    if (format == NUMBER_FLOAT16)
        return (vector)_mm512_cvtph_ps(_mm512_cvtepi32_epi16(codes));
    const decoder d = decoder_of(format);
    return (vector)_mm512_slli_epi32(decode_words(&d, format, codes), 16);
}

/* Upper halves of floats in words of 16 bits: those in the lower words of 32 bits, and those in the upper ones. */
INLINE void floats_of_words(__m512i words, vector *lower, vector *upper)
{
    *lower = (vector)_mm512_slli_epi32(words, 16);
    *upper = (vector)_mm512_and_si512(words, _mm512_set1_epi32((int)0xffff0000u));
}

#include "simd/byte_codes.h"
#endif

#if WIDTH == 8
#include "simd/load_two.h"
#endif

/* The first n <= WIDTH numbers of an 8-bit format at p, zeros after them. */
INLINE vector load_bytes(const uint8_t *p, int format, int64_t n)
{
#if WIDTH == 16
    return decode_codes(format, load_masked_codes(p, format, (__mmask16)(0xffffu >> (16 - n))));
#elif WIDTH == 8
    __m128i codes = n == 8 ? _mm_loadl_epi64((const __m128i *)p) : _mm_cvtsi64_si128((int64_t)load_few_bytes(p, n));
    vector first, second;
    decode_two(codes, format, &first, &second);
    return first;
#else
    vector values = {0};
    for (int64_t i = 0; i < n; i++)
        values[i] = code_values[format - NUMBER_FLOAT8_E4M3FN][p[i]];
    return values;
#endif
}

INLINE vector decode_halves(vector_half codes)
{
#if WIDTH == 16
    return (vector)_mm512_cvtph_ps((__m256i)codes);
#elif WIDTH == 8
    return (vector)_mm256_cvtph_ps((__m128i)codes);
#elif defined(__aarch64__)
    return (vector)vcvt_f32_f16((float16x4_t)codes);
#else
    vector_uint wide = __builtin_convertvector(codes, vector_uint), magnitude = wide & 0x7fffu;
    vector subnormal = __builtin_convertvector((vector_int)magnitude, vector) * power_of_two(-24);
    vector_uint normal = (magnitude << 13) + (112u << 23), special = normal + (112u << 23);
    normal = (vector_uint)choose((vector_int)(magnitude > 0x7bffu), (vector)special, (vector)normal);
    vector value = choose((vector_int)(magnitude < 0x400u), subnormal, (vector)normal);
    return (vector)((vector_uint)value | (wide & 0x8000u) << 16);
#endif
}

/* The first n numbers at p (n >= WIDTH: a whole vector), zeros after them. */
INLINE vector load_vector(const void *p, int format, int64_t n)
{
    if (format == NUMBER_FLOAT32)
        return n >= WIDTH ? *(const vector *)p : LOAD_PART((const float *)p, n);
    if (!is_wide(format))
        return load_bytes(p, format, n >= WIDTH ? WIDTH : n);
    vector_half codes = LOAD_HALVES((const uint16_t *)p, n >= WIDTH ? WIDTH : n);
    if (format == NUMBER_BFLOAT16)
        return (vector)(__builtin_convertvector(codes, vector_uint) << 16);
    return decode_halves(codes);
}
