/* Lanes of `numbers/encode.h` for the vectors of an instruction set: finished floats to codes, codes to memory.  simd/tile.h
 * includes this. */

typedef uint64_t vector_ulong __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

#define LANE vector_uint
#define LANE_INLINE INLINE
#define LANES(name) SUFFIX(name##_lanes)

#if WIDTH == 16
#define LANE_TEST __mmask16
#define ALL(x) ((vector_uint)_mm512_set1_epi32((int)(x)))
#define LEFT(a, n) ((vector_uint)_mm512_sllv_epi32((__m512i)(a), (__m512i)(n)))
#define RIGHT(a, n) ((vector_uint)_mm512_srlv_epi32((__m512i)(a), (__m512i)(n)))
#define LARGER(a, b) ((vector_uint)_mm512_max_epu32((__m512i)(a), (__m512i)(b)))
#define SMALLER(a, b) ((vector_uint)_mm512_min_epu32((__m512i)(a), (__m512i)(b)))
#define ABOVE(a, b) _mm512_cmpgt_epu32_mask((__m512i)(a), (__m512i)(b))
#define ABOVE_UNSIGNED ABOVE
#define CHOOSE(test, a, b) ((vector_uint)_mm512_mask_mov_epi32((__m512i)(b), test, (__m512i)(a)))
#define ADD_WHERE(test, a) add_where(test, a)
#define KEEP_FROM(least, a, value) \
    ((vector_uint)_mm512_maskz_mov_epi32(_mm512_cmpge_epu32_mask((__m512i)(a), (__m512i)(least)), (__m512i)(value)))
#define BLEND_BITS(mask, a, b) \
    ((vector_uint)_mm512_ternarylogic_epi32(_mm512_set1_epi32(mask), (__m512i)(a), (__m512i)(b), 0xca))
#define LOOK_UP(table, field) look_up(turned_##table, field)
#define TO_HALF(bits) to_half(bits)
#define TO_BFLOAT16(bits) to_bfloat16(bits)
#define WIDE vector_ulong
#define WIDE_ALL(x) ((vector_ulong)_mm512_set1_epi64((int64_t)(x)))
#define WIDE_LEFT(a, n) ((vector_ulong)_mm512_sllv_epi64((__m512i)(a), (__m512i)(n)))
#define WIDE_RIGHT(a, n) ((vector_ulong)_mm512_srlv_epi64((__m512i)(a), (__m512i)(n)))
#define WIDE_ABOVE(a, b) _mm512_cmpgt_epu64_mask((__m512i)(a), (__m512i)(b))
#define WIDE_CHOOSE(test, a, b) ((vector_ulong)_mm512_mask_mov_epi64((__m512i)(b), test, (__m512i)(a)))
#define WIDE_PRODUCT(a, factor) ((vector_ulong)_mm512_mul_epu32((__m512i)(a), _mm512_set1_epi64(factor)))

/* The entries from field 128 on, then those from field 105 = 3 * 32 + 9 on. */
#define TURNED(field) {HIFLOAT8_FROM_1(field) HIFLOAT8_TO_0(field)}
static const uint32_t turned_HIFLOAT8_CUTS[32] = TURNED(HIFLOAT8_CUT), turned_HIFLOAT8_BASES[32] = TURNED(HIFLOAT8_BASE);

INLINE vector_uint add_where(__mmask16 test, vector_uint a)
{
    return (vector_uint)_mm512_mask_add_epi32((__m512i)a, test, (__m512i)a, _mm512_set1_epi32(1));
}

/* Entries in the order of the lowest five bits of their fields, which are the index. */
INLINE vector_uint look_up(const uint32_t *table, vector_uint field)
{
    __m512i low = _mm512_loadu_si512(table), high = _mm512_loadu_si512(table + 16);
    return (vector_uint)_mm512_permutex2var_epi32(low, (__m512i)field, high);
}

INLINE vector_uint to_half(vector_uint bits)
{
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)bits, (__m512)bits, _CMP_UNORD_Q);
    __m512i codes = _mm512_cvtepu16_epi32(_mm512_cvtps_ph((__m512)bits, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return (vector_uint)_mm512_mask_and_epi32(codes, nan, codes, _mm512_set1_epi32(0xfe00));
}

INLINE vector_uint to_bfloat16(vector_uint bits)
{
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)bits, (__m512)bits, _CMP_UNORD_Q);
    const __m512i kept = _mm512_set1_epi32((int)0xff800000u), quiet = _mm512_set1_epi32(0x00400000);
    bits = (vector_uint)_mm512_mask_ternarylogic_epi32((__m512i)bits, nan, kept, quiet, 0xea);
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

#else /* a comparison has all bits of a lane */
#define LANE_TEST vector_int
#define CHOOSE(test, a, b) choose_bits(test, a, b)
#define ADD_WHERE(test, a) ((a) - (vector_uint)(test))
#define BLEND_BITS(mask, a, b) (((a) & (mask)) | ((b) & ~(mask)))

#if WIDTH == 8
#define ALL(x) ((vector_uint)_mm256_set1_epi32((int)(x)))
#define LEFT(a, n) ((vector_uint)_mm256_sllv_epi32((__m256i)(a), (__m256i)(n)))
#define RIGHT(a, n) ((vector_uint)_mm256_srlv_epi32((__m256i)(a), (__m256i)(n)))
#define LARGER(a, b) ((vector_uint)_mm256_max_epu32((__m256i)(a), (__m256i)(b)))
#define SMALLER(a, b) ((vector_uint)_mm256_min_epu32((__m256i)(a), (__m256i)(b)))
#define ABOVE(a, b) ((vector_int)_mm256_cmpgt_epi32((__m256i)(a), (__m256i)(b)))
#define ABOVE_UNSIGNED(a, b) ABOVE((a) ^ 0x80000000u, (b) ^ 0x80000000u)
#define KEEP_FROM(least, a, value) ((vector_uint)ABOVE(a, (least) - 1u) & (value))
#define LOOK_UP(table, field) look_up(table, field)
#define TO_HALF(bits) to_half(bits)
#define TO_BFLOAT16(bits) to_bfloat16(bits)
#define WIDE vector_ulong
#define WIDE_ALL(x) ((vector_ulong)_mm256_set1_epi64x((int64_t)(x)))
#define WIDE_LEFT(a, n) ((vector_ulong)_mm256_sllv_epi64((__m256i)(a), (__m256i)(n)))
#define WIDE_RIGHT(a, n) ((vector_ulong)_mm256_srlv_epi64((__m256i)(a), (__m256i)(n)))
#define WIDE_ABOVE(a, b) _mm256_cmpgt_epi64((__m256i)(a), (__m256i)(b))
#define WIDE_CHOOSE(test, a, b) ((vector_ulong)_mm256_blendv_epi8((__m256i)(b), (__m256i)(a), test))
#define WIDE_PRODUCT(a, factor) ((vector_ulong)_mm256_mul_epu32((__m256i)(a), _mm256_set1_epi64x(factor)))

INLINE vector_uint choose_bits(vector_int test, vector_uint a, vector_uint b)
{
    return (vector_uint)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)test);
}

/* Bytes are looked up where the upper bit of their index is zero: in the lowest byte of a lane, in one of both halves. */
INLINE vector_uint look_up(const uint8_t *table, vector_uint field)
{
    __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(table + 16)));
    vector_uint in_low = field + (0x80808070u - 105u), in_high = field + (0x81818100u - 105u - 16u);
    return (vector_uint)_mm256_or_si256(_mm256_shuffle_epi8(low, (__m256i)in_low), _mm256_shuffle_epi8(high, (__m256i)in_high));
}

INLINE vector_uint to_half(vector_uint bits)
{
    __m256 nan = _mm256_cmp_ps((__m256)bits, (__m256)bits, _CMP_UNORD_Q);
    __m256i codes = _mm256_cvtepu16_epi32(_mm256_cvtps_ph((__m256)bits, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return (vector_uint)_mm256_andnot_si256(_mm256_and_si256((__m256i)nan, _mm256_set1_epi32(0x1ff)), codes);
}

INLINE vector_uint to_bfloat16(vector_uint bits)
{
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps((__m256)bits, (__m256)bits, _CMP_UNORD_Q));
    vector_uint quiet = (bits & 0xff800000u) | 0x00400000u;
    bits = (vector_uint)_mm256_blendv_epi8((__m256i)bits, (__m256i)quiet, nan);
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

#else
#define ALL(x) ((vector_uint){x, x, x, x})
#define KEEP_FROM(least, a, value) (~(vector_uint)ABOVE(least, a) & (value))
#define LOOK_UP(table, field) look_up(table, field)

INLINE vector_uint choose_bits(vector_int test, vector_uint a, vector_uint b)
{
    return ((vector_uint)test & a) | (~(vector_uint)test & b);
}

#define LEFT(a, n) (((a) << ((n) & 31u)) & (vector_uint)ABOVE_UNSIGNED(ALL(32u), n))
#define RIGHT(a, n) (((a) >> ((n) & 31u)) & (vector_uint)ABOVE_UNSIGNED(ALL(32u), n))
#define LARGER(a, b) choose_bits(ABOVE_UNSIGNED(a, b), a, b)
#define SMALLER(a, b) choose_bits(ABOVE_UNSIGNED(b, a), a, b)
#define ABOVE(a, b) ((vector_int)((vector_int)(a) > (vector_int)(b)))
#define ABOVE_UNSIGNED(a, b) ((vector_int)((vector_uint)(a) > (vector_uint)(b)))

INLINE vector_uint look_up(const uint8_t *table, vector_uint field)
{
#ifdef __aarch64__
    uint8x16x2_t entries = {{vld1q_u8(table), vld1q_u8(table + 16)}};
    return (vector_uint)vqtbl2q_u8(entries, (uint8x16_t)((field - 105u) | 0xffffff00u));
#else
    vector_uint entry;
    for (int i = 0; i < WIDTH; i++)
        entry[i] = table[field[i] - 105u];
    return entry;
#endif
}
#endif
#endif

#include "numbers/encode.h"
#if WIDTH > 4
#include "numbers/narrow.h"
#endif
#include "numbers/end_lanes.h"

/* Codes of finished floats, each in the low bits of a lane. */
INLINE vector_uint codes_of(vector values, int format)
{
    if (format == NUMBER_FLOAT32)
        return (vector_uint)values;
    return SUFFIX(encode_lanes)((vector_uint)values, (vector_uint){0}, format, usual_rounding(format), 0, NUMBER_FLOAT32);
}

#if WIDTH == 16
/* Codes of `size` bytes in the lanes of a mask. */
INLINE void store_masked_codes(void *place, int64_t size, __mmask16 mask, vector_uint codes)
{
    if (size == 4 && mask == 0xffff)
        _mm512_storeu_si512(place, (__m512i)codes);
    else if (size == 4)
        _mm512_mask_storeu_epi32(place, mask, (__m512i)codes);
    else if (size == 2 && mask == 0xffff)
        _mm256_storeu_si256(place, _mm512_cvtepi32_epi16((__m512i)codes));
    else if (size == 2)
        _mm256_mask_storeu_epi16(place, mask, _mm512_cvtepi32_epi16((__m512i)codes));
    else if (mask == 0xffff)
        _mm_storeu_si128(place, _mm512_cvtepi32_epi8((__m512i)codes));
    else
        _mm_mask_storeu_epi8(place, mask, _mm512_cvtepi32_epi8((__m512i)codes));
}
#endif

/* The first n <= WIDTH codes of `size` bytes, side by side. */
INLINE void store_codes(void *place, int64_t size, int64_t n, vector_uint codes)
{
#if WIDTH == 16
    store_masked_codes(place, size, (__mmask16)(0xffffu >> (16 - n)), codes);
#elif WIDTH == 8
    if (size == 4)
        store_bits(place, 4 * n, (__m256i)codes);
    else {
        __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128((__m256i)codes), _mm256_extracti128_si256((__m256i)codes, 1));
        store_half_bits(place, size * n, size == 2 ? halves : _mm_packus_epi16(halves, halves));
    }
#else
    if (size == 4)
        store_part(place, n, (vector)codes);
    else if (size == 2 && n == WIDTH)
        *(vector_half *)place = __builtin_convertvector(codes, vector_half);
    else if (size == 2)
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)place)[i] = (uint16_t)codes[i];
    else
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)place)[i] = (uint8_t)codes[i];
#endif
}

/* The first n <= WIDTH of a vector of finished floats to `place` in `format`, side by side. */
INLINE void store_vector(void *place, int format, int64_t n, vector values)
{
    store_codes(place, code_size(format), n, codes_of(values, format));
}
