/* Parts of vectors in memory, where an instruction set has no masks: simd/tile.h includes this. */

#if WIDTH == 8
/* The first `bytes` of 16 or of 32, in pieces whose sizes are powers of two. */
INLINE void store_half_bits(void *place, int64_t bytes, __m128i bits)
{
    char *p = place;
    if (bytes == 16) {
        _mm_storeu_si128(place, bits);
        return;
    }
    uint64_t piece = (uint64_t)_mm_cvtsi128_si64(bits);
    if (bytes & 8) {
        memcpy(p, &piece, 8);
        piece = (uint64_t)_mm_extract_epi64(bits, 1);
        p += 8;
    }
    if (bytes & 4) {
        memcpy(p, &piece, 4);
        piece >>= 32;
        p += 4;
    }
    if (bytes & 2) {
        memcpy(p, &piece, 2);
        piece >>= 16;
        p += 2;
    }
    if (bytes & 1)
        *p = (char)piece;
}

INLINE void store_bits(void *place, int64_t bytes, __m256i bits)
{
    if (bytes == 32)
        _mm256_storeu_si256(place, bits);
    else if (bytes & 16) {
        _mm_storeu_si128(place, _mm256_castsi256_si128(bits));
        store_half_bits((char *)place + 16, bytes - 16, _mm256_extracti128_si256(bits, 1));
    } else
        store_half_bits(place, bytes, _mm256_castsi256_si128(bits));
}

/* The first `bytes` < 8 at p, zeros after them. */
INLINE uint64_t load_few_bytes(const void *p, int64_t bytes)
{
    const char *place = p;
    uint32_t four = 0;
    uint16_t two = 0;
    uint64_t value = 0, shift = 0;
    if (bytes & 4) {
        memcpy(&four, place, 4);
        value = four;
        place += 4;
        shift = 32;
    }
    if (bytes & 2) {
        memcpy(&two, place, 2);
        value |= (uint64_t)two << shift;
        place += 2;
        shift += 16;
    }
    if (bytes & 1)
        value |= (uint64_t)*(const uint8_t *)place << shift;
    return value;
}

/* The first n <= 8 codes of 16 bits at p. */
INLINE vector_half load_halves(const uint16_t *p, int64_t n)
{
    uint64_t low = 0;
    if (n == 8)
        return *(const vector_half *)p;
    if (n < 4)
        return (vector_half)_mm_cvtsi64_si128((int64_t)load_few_bytes(p, 2 * n));
    memcpy(&low, p, 8);
    return (vector_half)_mm_set_epi64x((int64_t)load_few_bytes(p + 4, 2 * (n - 4)), (int64_t)low);
}
#define LOAD_HALVES(p, n) load_halves(p, n)
#define STORE_PART(p, n, v) store_bits(p, 4 * (n), (__m256i)(v))
#elif WIDTH == 4
INLINE vector load_part(const float *p, int64_t n)
{
    vector part = {0};
    for (int64_t i = 0; i < n; i++)
        part[i] = p[i];
    return part;
}
#define LOAD_PART(p, n) load_part(p, n)

INLINE vector_half load_halves(const uint16_t *p, int64_t n)
{
    if (n == WIDTH)
        return *(const vector_half *)p;
    vector_half part = {0};
    for (int64_t i = 0; i < n; i++)
        part[i] = p[i];
    return part;
}
#define LOAD_HALVES(p, n) load_halves(p, n)

INLINE void store_part(float *p, int64_t n, vector values)
{
    if (n == WIDTH)
        *(vector *)p = values;
    else
        for (int64_t i = 0; i < n; i++)
            p[i] = values[i];
}
#define STORE_PART(p, n, v) store_part(p, n, v)
#endif
