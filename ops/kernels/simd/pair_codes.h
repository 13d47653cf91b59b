/* Codes of pairs of bfloat16 steps, 32 at a time, as bfloat16 (`decode_words` of simd/load.h).  Included by simd/pairs.h. */

typedef struct {
    __m512i smallest; /* magnitude less one, so that zero is the largest */
} magnitudes;

static const magnitudes none_met = {{-1, -1, -1, -1, -1, -1, -1, -1}};

INLINE void note(magnitudes *met, __m512i words)
{
    __m512i magnitude = _mm512_and_si512(words, _mm512_set1_epi16(0x7fff));
    met->smallest = _mm512_min_epu16(met->smallest, _mm512_sub_epi16(magnitude, _mm512_set1_epi16(1)));
}

/* Of magnitudes and those of more words the larger. */
INLINE __m512i larger_magnitudes(__m512i most, __m512i words)
{
    return _mm512_max_epu16(most, _mm512_and_si512(words, _mm512_set1_epi16(0x7fff)));
}

INLINE void note_smallest(uint16_t *smallest, const magnitudes *met)
{
    __m256i half = _mm256_min_epu16(_mm512_castsi512_si256(met->smallest), _mm512_extracti64x4_epi64(met->smallest, 1));
    __m128i quarter = _mm_min_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    uint16_t found = (uint16_t)_mm_extract_epi16(_mm_minpos_epu16(quarter), 0);
    if (found < *smallest)
        *smallest = found;
}

enum { SMALLEST_BYTE = 0x3480 - 1 }; /* of HiFloat8, 2**-22, as bfloat16 code less one: other formats of 8 bits have no smaller one */

/* No magnitude of 8-bit codes is noted one by one: their products are far from subnormal. */
INLINE void note_bytes(uint16_t *smallest)
{
    if (SMALLEST_BYTE < *smallest)
        *smallest = SMALLEST_BYTE;
}

INLINE uint32_t load_code(const void *p, int format, int64_t offset)
{
    return format == NUMBER_BFLOAT16 ? ((const uint16_t *)p)[offset] : ((const uint8_t *)p)[offset];
}

/* Lanes of pairs, decoded, to the panel. */
INLINE void put_pairs(float *place, __m512i codes, const decoder *d, int format, magnitudes *met)
{
    __m512i pairs = decode_words(d, format, codes);
    note(met, pairs);
    _mm512_storeu_si512(place, pairs);
}

INLINE __m128i load_line_part(const void *p, int format, int64_t n)
{
    if (format == NUMBER_BFLOAT16)
        return _mm_maskz_loadu_epi16((__mmask8)(0xffu >> (8 - n)), p);
    return _mm_maskz_loadu_epi8((__mmask16)(0xffffu >> (16 - n)), p);
}

INLINE __m512i load_line(const void *p, int format, int64_t n)
{
    if (format == NUMBER_BFLOAT16)
        return n == 32 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16(0xffffffffu >> (32 - n), p);
    return n == 64 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(~(__mmask64)0 >> (64 - n), p);
}

/* Four 8-bit codes of each lane as two pairs: `order` has the places of the bytes of the first pair of lane 0, those of upper bytes from
 * 0x40 on. */
INLINE void byte_pairs(const decoder *d, int format, int order, __m512i codes, __m512i *pair)
{
    const __m512i lane = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
    const __m512i place = _mm512_add_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32(0x01010101)), _mm512_set1_epi32(order));
    __m512i lower, upper;
    decode_bytes(d, format, codes, &lower, &upper);
    pair[0] = look_up_bytes(place, lower, upper);
    pair[1] = look_up_bytes(_mm512_add_epi32(place, _mm512_set1_epi32(0x02020202)), lower, upper);
}

/* 32 bits of a line in each lane: one pair of bfloat16 codes, two of 8-bit codes. */
INLINE void put_line_bits(float *place, ptrdiff_t pitch, int64_t steps, __m512i bits, const decoder *d, int format,
                          magnitudes *met)
{
    if (format == NUMBER_BFLOAT16) {
        put_pairs(place, _mm512_rol_epi32(bits, 16), d, format, met);
        return;
    }
    if (byte_look_ups) {
        __m512i pair[2];
        byte_pairs(d, format, 0x40004101, bits, pair);
        for (int i = 0; i < 2 && i < steps; i++) {
            note(met, pair[i]);
            _mm512_storeu_si512(place + i * pitch, pair[i]);
        }
        return;
    }
    const __m512i byte = _mm512_set1_epi32(0xff);
    put_pairs(place, _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(bits, byte), 16),
                                     _mm512_and_si512(_mm512_srli_epi32(bits, 8), byte)), d, format, met);
    if (steps > 1)
        put_pairs(place + pitch, _mm512_or_si512(_mm512_and_si512(bits, _mm512_slli_epi32(byte, 16)),
                                                 _mm512_srli_epi32(bits, 24)), d, format, met);
}

/* Steps of the reduction lie side by side; lanes at `offset`, zero where that is NO_ELEMENT.  Whole vectors of lanes. */
INLINE void gather_lines(float *panel, ptrdiff_t pitch, int64_t count, const void *source, int format, const int64_t *offset,
                         int64_t lanes, const decoder *d, magnitudes *met)
{
    int64_t each = format == NUMBER_BFLOAT16 ? 32 : 64, per = each / 32; /* codes of a vector; pairs of 32 bits */
    for (int64_t l = 0; l < lanes; l += 16) {
        const void *line[16];
        int there[16];
        for (int i = 0; i < 16; i++) {
            there[i] = l + i < lanes && offset[l + i] != NO_ELEMENT;
            line[i] = at(source, format, there[i] ? offset[l + i] : 0);
        }
        const ptrdiff_t ahead = there[1] ? 16 * ((const char *)line[1] - (const char *)line[0]) : 0; /* to where the next lines begin */
        for (int64_t k = 0; k < count;) {
            int64_t n = count - k < each ? count - k : each;
            __m512i row[16];
            if (n <= each / 4) {
                for (int i = 0; i < 4; i++) {
                    __m128i part[4];
                    for (int j = 0; j < 4; j++)
                        part[j] = there[4 * j + i] ? load_line_part(at(line[4 * j + i], format, k), format, n) : _mm_setzero_si128();
                    row[i] = _mm512_inserti32x4(_mm512_castsi128_si512(part[0]), part[1], 1);
                    row[i] = _mm512_inserti32x4(_mm512_inserti32x4(row[i], part[2], 2), part[3], 3);
                }
                transpose_four(row);
                for (int i = 0; i * 2 * per < n; i++)
                    put_line_bits(panel + (k / 2 + i * per) * pitch + l, pitch, (n + 1) / 2 - i * per, row[i], d, format, met);
            } else {
                for (int i = 0; i < 16; i++) {
                    __builtin_prefetch((const char *)at(line[i], format, k) + ahead);
                    row[i] = there[i] ? load_line(at(line[i], format, k), format, n) : _mm512_setzero_si512();
                }
                transpose_vectors(row);
                for (int i = 0; i * 2 * per < n; i++)
                    put_line_bits(panel + (k / 2 + i * per) * pitch + l, pitch, (n + 1) / 2 - i * per, row[i], d, format, met);
            }
            k += n;
        }
    }
}
