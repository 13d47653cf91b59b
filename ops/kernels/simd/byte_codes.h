/* 8-bit codes, 64 of them at a time, to the bytes of bfloat16 codes, where `byte_look_ups` says that the processor looks up tables of 128
 * bytes (AVX-512 VBMI): a third of the instructions of `decode_words`.  simd/load.h includes this. */

/* bytes[i] of two vectors that lie one after the other, i in the lower 7 bits.  As text, since the target does not say VBMI. */
INLINE __m512i look_up_bytes(__m512i index, __m512i first, __m512i second)
{
    __asm__("vpermi2b %2, %1, %0" : "+v"(index) : "v"(first), "v"(second));
    return index;
}

INLINE void decode_bytes(const decoder *d, int format, __m512i codes, __m512i *lower, __m512i *upper)
{
    __m512i low = look_up_bytes(codes, d->lower[0], d->lower[1]), high = look_up_bytes(codes, d->upper[0], d->upper[1]);
    high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8((char)0x80), 0xf8);
    if (format == NUMBER_HIFLOAT8) { /* the code of -0 is NaN */
        __mmask64 nan = _mm512_cmpeq_epi8_mask(codes, _mm512_set1_epi8((char)0x80));
        low = _mm512_mask_mov_epi8(low, nan, _mm512_set1_epi8((char)0xc0));
        high = _mm512_mask_mov_epi8(high, nan, _mm512_set1_epi8(0x7f));
    }
    *lower = low;
    *upper = high;
}

/* Those of the 64 codes at p that the mask tells, as floats: zeros in the places of the others. */
INLINE void decode_64(const decoder *d, int format, const void *p, uint64_t mask, __m512i *floats)
{
    const __m512i quarters = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), zero = _mm512_setzero_si512();
    __m512i lower, upper;
    decode_bytes(d, format, _mm512_permutexvar_epi32(quarters, _mm512_maskz_loadu_epi8(mask, p)), &lower, &upper);
    __m512i first = _mm512_unpacklo_epi8(lower, upper), second = _mm512_unpackhi_epi8(lower, upper);
    floats[0] = _mm512_unpacklo_epi16(zero, first);
    floats[1] = _mm512_unpackhi_epi16(zero, first);
    floats[2] = _mm512_unpacklo_epi16(zero, second);
    floats[3] = _mm512_unpackhi_epi16(zero, second);
}
