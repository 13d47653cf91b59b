/* Squares of numbers of 32 bits, transposed in registers: simd/pack.h includes this. */

INLINE void transpose_quads(quad *row)
{
    quad ab = SHUFFLE(row[0], row[1], 0, 4, 1, 5), AB = SHUFFLE(row[0], row[1], 2, 6, 3, 7);
    quad cd = SHUFFLE(row[2], row[3], 0, 4, 1, 5), CD = SHUFFLE(row[2], row[3], 2, 6, 3, 7);
    row[0] = SHUFFLE(ab, cd, 0, 1, 4, 5);
    row[1] = SHUFFLE(ab, cd, 2, 3, 6, 7);
    row[2] = SHUFFLE(AB, CD, 0, 1, 4, 5);
    row[3] = SHUFFLE(AB, CD, 2, 3, 6, 7);
}

#if WIDTH == 16
typedef __m512i vector_bits;

/* Four numbers each at four places. */
INLINE vector four_quads(const void *a, const void *b, const void *c, const void *d)
{
    __m512 all = _mm512_castps128_ps512(_mm_loadu_ps(a));
    all = _mm512_insertf32x4(all, _mm_loadu_ps(b), 1);
    all = _mm512_insertf32x4(all, _mm_loadu_ps(c), 2);
    return (vector)_mm512_insertf32x4(all, _mm_loadu_ps(d), 3);
}

/* Four rows of four times four 32-bit numbers: every square of 4 x 4 is transposed. */
INLINE void transpose_four(__m512i *row)
{
    __m512i ab = _mm512_unpacklo_epi32(row[0], row[1]), AB = _mm512_unpackhi_epi32(row[0], row[1]);
    __m512i cd = _mm512_unpacklo_epi32(row[2], row[3]), CD = _mm512_unpackhi_epi32(row[2], row[3]);
    row[0] = _mm512_unpacklo_epi64(ab, cd);
    row[1] = _mm512_unpackhi_epi64(ab, cd);
    row[2] = _mm512_unpacklo_epi64(AB, CD);
    row[3] = _mm512_unpackhi_epi64(AB, CD);
}

/* 16 lanes x 16 bytes from `step` on: row r holds lanes r, 4 + r, 8 + r, 12 + r; becomes bytes 4 * r to 4 * r + 3 of all lanes. */
INLINE void transpose_sixteen(__m512i *row, const void *source, int format, const int64_t *offset, int64_t step)
{
    const void *start = at(source, format, step);
    for (int i = 0; i < 4; i++)
        row[i] = (__m512i)four_quads(at(start, format, offset[i]), at(start, format, offset[4 + i]), at(start, format, offset[8 + i]),
                                     at(start, format, offset[12 + i]));
    transpose_four(row);
}

/* Four steps of float16, of which either vector holds two: 32 bits of a lane, the first in the lower half. */
INLINE void put_halves(float *panel, ptrdiff_t pitch, __m512i first, __m512i second)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i words = _mm512_add_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32(4 << 16 | 4)), _mm512_set1_epi32(2 << 16));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m512i step = _mm512_permutex2var_epi16(first, _mm512_add_epi16(words, _mm512_set1_epi16((int16_t)i)), second);
        _mm512_storeu_ps(panel + i * pitch, _mm512_cvtph_ps(_mm512_castsi512_si256(step)));
        _mm512_storeu_ps(panel + (2 + i) * pitch, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(step, 1)));
    }
}

/* Two steps, `apart` from each other, of upper halves of floats in the lower and upper words of each lane. */
INLINE void put_words(float *place, ptrdiff_t apart, __m512i words)
{
    floats_of_words(words, (vector *)place, (vector *)(place + apart));
}

/* The steps of 16 bytes of each lane, as `transpose_sixteen` leaves them. */
INLINE void put_steps(float *panel, ptrdiff_t pitch, const __m512i *row, int format, const decoder *d)
{
    if (format == NUMBER_FLOAT16) {
        put_halves(panel, pitch, row[0], row[1]);
        put_halves(panel + 4 * pitch, pitch, row[2], row[3]);
        return;
    }
    for (int i = 0; i < 4; i++) {
        if (format == NUMBER_FLOAT32) {
            _mm512_storeu_si512(panel + i * pitch, row[i]);
        } else if (format == NUMBER_BFLOAT16) {
            put_words(panel + 2 * i * pitch, pitch, row[i]);
        } else {
            float *place = panel + 4 * i * pitch;
            put_words(place, 2 * pitch, decode_words(d, format, _mm512_and_si512(row[i], _mm512_set1_epi16(0xff))));
            put_words(place + pitch, 2 * pitch, decode_words(d, format, _mm512_srli_epi16(row[i], 8)));
        }
    }
}

/* 16 x 16 numbers of 32 bits. */
INLINE void transpose_vectors(__m512i *row)
{
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
        transpose_four(row + i);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* and the squares among themselves */
        __m512i ab = _mm512_shuffle_i32x4(row[i], row[4 + i], 0x44), AB = _mm512_shuffle_i32x4(row[i], row[4 + i], 0xee);
        __m512i cd = _mm512_shuffle_i32x4(row[8 + i], row[12 + i], 0x44), CD = _mm512_shuffle_i32x4(row[8 + i], row[12 + i], 0xee);
        row[i] = _mm512_shuffle_i32x4(ab, cd, 0x88);
        row[4 + i] = _mm512_shuffle_i32x4(ab, cd, 0xdd);
        row[8 + i] = _mm512_shuffle_i32x4(AB, CD, 0x88);
        row[12 + i] = _mm512_shuffle_i32x4(AB, CD, 0xdd);
    }
}

/* 16 bytes of a vector. Clang takes constants only. */
INLINE __m128i part_of(__m512i row, int number)
{
    return number == 0   ? _mm512_castsi512_si128(row)
           : number == 1 ? _mm512_extracti32x4_epi32(row, 1)
           : number == 2 ? _mm512_extracti32x4_epi32(row, 2)
                         : _mm512_extracti32x4_epi32(row, 3);
}
#elif WIDTH == 8
typedef __m256i vector_bits;

/* Four rows of twice four 32-bit numbers: every square of 4 x 4 is transposed. */
INLINE void transpose_four(__m256i *row)
{
    __m256i ab = _mm256_unpacklo_epi32(row[0], row[1]), AB = _mm256_unpackhi_epi32(row[0], row[1]);
    __m256i cd = _mm256_unpacklo_epi32(row[2], row[3]), CD = _mm256_unpackhi_epi32(row[2], row[3]);
    row[0] = _mm256_unpacklo_epi64(ab, cd);
    row[1] = _mm256_unpackhi_epi64(ab, cd);
    row[2] = _mm256_unpacklo_epi64(AB, CD);
    row[3] = _mm256_unpackhi_epi64(AB, CD);
}

/* 8 x 8 numbers of 32 bits. */
INLINE void transpose_vectors(__m256i *row)
{
    transpose_four(row);
    transpose_four(row + 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256i low = row[i], high = row[4 + i];
        row[i] = _mm256_permute2x128_si256(low, high, 0x20);
        row[4 + i] = _mm256_permute2x128_si256(low, high, 0x31);
    }
}

/* Every square of 4 x 4 bytes. */
INLINE __m256i transpose_bytes(__m256i word)
{
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm256_shuffle_epi8(word, _mm256_broadcastsi128_si256(order));
}

/* 16 bytes of a vector. */
INLINE __m128i part_of(__m256i row, int number)
{
    return number == 0 ? _mm256_castsi256_si128(row) : _mm256_extracti128_si256(row, 1);
}
#endif
