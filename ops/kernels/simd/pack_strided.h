/* Numbers that lie a few elements apart, loaded a vector at a time; simd/pack.h includes this. */

#if WIDTH == 16
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#elif WIDTH == 8
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#else
#define EVEN 0, 2, 4, 6
#endif
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 /* of 16 lanes */
#ifdef __clang__
#define EVEN_OF(a, b) __builtin_shufflevector(a, b, EVEN)
#define ODD_OF(a, b) __builtin_shufflevector(a, b, ODD)
#else
#define ODD_OF(a, b) __builtin_shuffle(a, b, (vector_int){ODD})
#define EVEN_OF(a, b) __builtin_shuffle(a, b, (vector_int){EVEN})
#endif

#if WIDTH == 16
/* The first n of 16 codes at p, or of every other, as 32 bits each; zeros after them. */
INLINE __m512i load_codes(const void *p, int format, int64_t n, int64_t step)
{
    int64_t count = n < WIDTH ? n : WIDTH;
    if (step == 2) {
        __mmask32 mask = 0xffffffffu >> (33 - 2 * count);
        if (is_wide(format))
            return _mm512_and_si512(_mm512_maskz_loadu_epi16(mask, p), _mm512_set1_epi32(0xffff));
        return _mm512_cvtepu16_epi32(_mm256_and_si256(_mm256_maskz_loadu_epi8(mask, p), _mm256_set1_epi16(0xff)));
    }
    return load_masked_codes(p, format, (__mmask16)(0xffffu >> (16 - count)));
}

#endif

/* Every other number from p on, n >= 1 of them, zeros after them. */
INLINE vector load_every_other(const void *p, int format, int64_t n)
{
#if WIDTH == 16
    if (format != NUMBER_FLOAT32)
        return decode_codes(format, load_codes(p, format, n, 2)); /* picked before they are decoded */
#endif
    int64_t numbers = 2 * n - 1;
    vector second = {0};
    if (numbers > WIDTH)
        second = load_vector(at(p, format, WIDTH), format, numbers - WIDTH);
    return EVEN_OF(load_vector(p, format, numbers), second);
}

#if WIDTH == 8
/* The same of a whole vector; the number behind the last is read. Codes are picked before they are decoded. */
INLINE vector every_other_half(const void *p, int format)
{
    __m256i words = _mm256_loadu_si256(p);
    if (format == NUMBER_BFLOAT16)
        return (vector)_mm256_slli_epi32(words, 16);
    words = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
    return (vector)_mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

/* Of two whole vectors in a format of 8 bits. */
INLINE void every_other_byte(const void *p, int format, vector *first, vector *second)
{
    __m256i words = _mm256_and_si256(_mm256_loadu_si256(p), _mm256_set1_epi16(0xff));
    decode_two(_mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)), format, first, second);
}
#endif

/* Every other of the numbers from `source` on, `count` of them. What the last vector overruns is filled with zeros. Asks for what lies
 * at `later`, if anything, and following. */
INLINE void decode_every_other(float *target, const void *source, int format, int64_t count, const void *later)
{
    int64_t i = 0;
#if WIDTH == 8
    for (; code_size(format) == 1 && i + 16 < count; i += 16) {
        if (later)
            __builtin_prefetch(at(later, format, 2 * i));
        every_other_byte(at(source, format, 2 * i), format, (vector *)(target + i), (vector *)(target + i + 8));
    }
    for (; code_size(format) == 2 && i + 8 < count; i += 8) {
        if (later)
            __builtin_prefetch(at(later, format, 2 * i));
        *(vector *)(target + i) = every_other_half(at(source, format, 2 * i), format);
    }
#endif
    for (; i < count; i += WIDTH) {
        if (later) {
            __builtin_prefetch(at(later, format, 2 * i));
            __builtin_prefetch(at(later, format, 2 * i + WIDTH));
        }
        *(vector *)(target + i) = load_every_other(at(source, format, 2 * i), format, count - i);
    }
}

#if WIDTH == 16
enum { APART = 5 }; /* numbers so far apart at most are loaded together */

/* Where every `step`-th number is. */
INLINE __m512i places_apart(int64_t step)
{
    return _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32((int)step));
}

/* n <= 16 codes, 3 or 4 apart, as 32 bits each; zeros after them. */
INLINE __m512i load_near(const void *p, int format, int64_t n, int64_t step)
{
    const __m512i place = places_apart(step);
    const uint64_t taken = ~(uint64_t)0 >> (63 - (n - 1) * step);
    if (is_wide(format)) {
        __m512i low = _mm512_maskz_loadu_epi16((__mmask32)taken, p), high = _mm512_maskz_loadu_epi16((__mmask32)(taken >> 32), at(p, format, 32));
        return _mm512_and_si512(_mm512_permutex2var_epi16(low, place, high), _mm512_set1_epi32(0xffff));
    }
    __m512i words = _mm512_permutexvar_epi16(_mm512_srli_epi32(place, 1), _mm512_maskz_loadu_epi8(taken, p));
    words = _mm512_srlv_epi32(words, _mm512_slli_epi32(_mm512_and_si512(place, _mm512_set1_epi32(1)), 3));
    return _mm512_and_si512(words, _mm512_set1_epi32(0xff));
}

/* The first n numbers of which each lies `step` elements behind the one before, zeros after them. */
INLINE vector load_apart(const void *p, int format, int64_t step, int64_t n)
{
    const __m512i place = places_apart(step);
    const int64_t last = (n < WIDTH ? n - 1 : WIDTH - 1) * step;
    __m512 result = _mm512_setzero_ps();
    if (format != NUMBER_FLOAT32 && step <= 4)
        return decode_codes(format, load_near(p, format, n < WIDTH ? n : WIDTH, step));
    for (int64_t i = 0; i <= last; i += WIDTH) {
        __mmask16 here = _mm512_cmpeq_epi32_mask(_mm512_srli_epi32(place, 4), _mm512_set1_epi32((int)(i / WIDTH)));
        result = _mm512_mask_permutexvar_ps(result, here, place, (__m512)load_vector(at(p, format, i), format, last + 1 - i));
    }
    return (vector)result;
}

/* Numbers [first, first + 16) of `count` that begin at p, zeros outside. */
INLINE vector load_inside(const void *p, int format, int64_t first, int64_t count)
{
    if (first >= 0)
        return first < count ? load_vector(at(p, format, first), format, count - first) : (vector){0};
    int64_t n = count < WIDTH + first ? count : WIDTH + first;
    if (n <= 0)
        return (vector){0};
    return (vector)_mm512_maskz_expand_ps((__mmask16)(0xffffu << -first), (__m512)load_vector(p, format, n));
}

/* One round over parts of `part` vectors: numbers at even places before those at odd ones. */
INLINE void split_parts(int ways, int part, vector *in)
{
#pragma GCC unroll 16
    for (int start = 0; start < ways; start += part) {
        vector out[16];
#pragma GCC unroll 16
        for (int j = 0; j < part / 2; j++) {
            out[j] = EVEN_OF(in[start + 2 * j], in[start + 2 * j + 1]);
            out[part / 2 + j] = ODD_OF(in[start + 2 * j], in[start + 2 * j + 1]);
        }
#pragma GCC unroll 16
        for (int j = 0; j < part; j++)
            in[start + j] = out[j];
    }
}

/* Numbers that take turns, told apart; way w ends up where the bits of w are read backwards. */
INLINE void split_ways(int ways, vector *in)
{
    if (ways == 16)
        split_parts(16, 16, in);
    if (ways >= 8)
        split_parts(ways, 8, in);
    split_parts(ways, 4, in);
    split_parts(ways, 2, in);
}

INLINE int backwards(int ways, int number)
{
    int all = (number & 1) << 3 | (number & 2) << 1 | (number & 4) >> 1 | (number & 8) >> 3;
    return all * ways / 16;
}

/* The first `left` numbers of each way, `between` apart. */
INLINE void store_ways(int ways, float *place, ptrdiff_t between, int64_t left, const vector *in)
{
#pragma GCC unroll 16
    for (int v = 0; v < ways; v++) {
        float *target = place + backwards(ways, v) * between;
        if (left >= WIDTH)
            *(vector *)target = in[v];
        else
            STORE_PART(target, left, in[v]);
    }
}

INLINE void split_lines(int ways, float *block, ptrdiff_t between, ptrdiff_t pitch, int64_t lines, int64_t width, const void *source,
                        int format, int64_t line_stride, int64_t first, int64_t count, int64_t next)
{
    for (int64_t line = 0; line < lines; line++) {
        const void *start = at(source, format, line * line_stride), *later = at(start, format, next);
        for (int64_t i = 0; i < width; i += WIDTH) {
            vector in[16];
#pragma GCC unroll 16
            for (int v = 0; v < ways; v++) {
                in[v] = load_inside(start, format, first + i * ways + v * WIDTH, count);
                __builtin_prefetch(at(later, format, first + i * ways + v * WIDTH));
            }
            split_ways(ways, in);
            store_ways(ways, block + line * pitch + i, between, width - i, in);
        }
    }
}

INLINE void split_format(float *block, ptrdiff_t between, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t ways,
                         const void *source, int format, int64_t line_stride, int64_t first, int64_t count, int64_t next)
{
    if (ways == 4)
        split_lines(4, block, between, pitch, lines, width, source, format, line_stride, first, count, next);
    else if (ways == 8)
        split_lines(8, block, between, pitch, lines, width, source, format, line_stride, first, count, next);
    else
        split_lines(16, block, between, pitch, lines, width, source, format, line_stride, first, count, next);
}

static void SUFFIX(split)(float *block, ptrdiff_t between, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t ways,
                          const void *source, int format, int64_t line_stride, int64_t first, int64_t count, int64_t next)
{
    BY_FORMAT(format, split_format, block, between, pitch, lines, width, ways, source, known_format, line_stride, first, count, next)
}
#define SPLIT SUFFIX(split)
#else
enum { APART = 2 };
INLINE vector load_apart(const void *p, int format, int64_t step, int64_t n)
{
    (void)p, (void)format, (void)step, (void)n;
    return (vector){0};
}
#define SPLIT NULL
#endif

/* Every `step`-th of the numbers from `source` on, 2 < step <= APART, `count` of them. Asks for what lies at `later`, if anything, and
 * following. */
INLINE void decode_apart(float *target, const void *source, int format, int64_t step, int64_t count, const void *later)
{
    for (int64_t i = 0; i < count; i += WIDTH) {
        if (later) {
            __builtin_prefetch(at(later, format, i * step));
            __builtin_prefetch(at(later, format, (i + WIDTH / 2) * step));
        }
        vector numbers = load_apart(at(source, format, i * step), format, step, count - i);
        if (count - i < WIDTH)
            STORE_PART(target + i, count - i, numbers);
        else
            *(vector *)(target + i) = numbers;
    }
}
