/* Finished sums whose rows lie side by side in memory, transposed: simd/store.h includes this. */

#if WIDTH == 16
/* 16 rows of 16 floats, transposed. */
INLINE void transpose_floats(__m512i *line, const vector *row)
{
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        line[i] = (__m512i)row[i];
    transpose_vectors(line);
}

/* Four rows of 32 bits, of codes that lie side by side in memory, the first `bytes` of them: 16 places, `step` bytes apart. */
INLINE void store_chunks(char *place, int64_t step, int64_t height, int64_t bytes, __m512i *row)
{
    __mmask16 mask = (__mmask16)(0xffffu >> (16 - bytes));
    transpose_four(row);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            if (4 * j + i < height) {
                __m128i codes = part_of(row[i], j);
                char *line = place + (4 * j + i) * step;
                if (bytes == 16)
                    _mm_storeu_si128((__m128i *)line, codes);
                else if (bytes == 8)
                    _mm_storel_epi64((__m128i *)line, codes);
                else
                    _mm_mask_storeu_epi8(line, mask, codes);
            }
}

/* 16 rows of 16 finished numbers in a format of 16 bits: `height` lines of 16 codes. */
INLINE void store_code_lines(uint16_t *target, int format, int64_t step, int64_t height, const vector *row)
{
    __m512i words[8];
#pragma GCC unroll 8
    for (int w = 0; w < 8; w++)
        words[w] = codes_in_pairs(format, row[2 * w], row[2 * w + 1]);
    transpose_four(words);
    transpose_four(words + 4);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            if (4 * j + i < height) {
                __m256i line = _mm256_inserti128_si256(_mm256_castsi128_si256(part_of(words[i], j)), part_of(words[4 + i], j), 1);
                _mm256_storeu_si256((__m256i *)(target + (4 * j + i) * step), line);
            }
}

/* n <= 16 rows of 16 finished numbers, transposed in registers: `height` lines of n numbers, `step` apart in the target. */
INLINE void store_position_rows(void *target, int format, int64_t step, int64_t height, int64_t n, const vector *row)
{
    if (format == NUMBER_FLOAT32) {
        __m512i line[16];
        transpose_floats(line, row);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            if (i < height)
                store_codes((float *)target + i * step, 4, n, (vector_uint)line[i]);
        return;
    }
    int size = is_wide(format) ? 2 : 1, together = 4 / size; /* codes that fill 32 bits */
    if (n == 16 && size == 2) {
        store_code_lines((uint16_t *)target, format, step, height, row);
        return;
    }
    for (int64_t first = 0; first < n; first += 4 * together) {
        __m512i words[4];
        for (int w = 0; w < 4; w++) {
            const int64_t left = n - first - w * together;
            const vector *own = row + first + w * together;
            words[w] = left > 0 ? codes_in_pairs(format, own[0], own[together / 2]) : _mm512_setzero_si512();
            if (size == 1 && left > 1)
                words[w] = _mm512_or_si512(words[w], _mm512_slli_epi32(codes_in_pairs(format, own[1], own[3]), 8));
        }
        store_chunks((char *)target + first * size, step * size, height, (n - first < 4 * together ? n - first : 4 * together) * size,
                     words);
    }
}
#elif WIDTH == 8
/* n <= 16 rows of 8 finished numbers, transposed in registers: `height` lines of n numbers, `step` apart in the target. */
INLINE void store_position_rows(void *target, int format, int64_t step, int64_t height, int64_t n, const vector *row)
{
    if (code_size(format) == 1) {
        __m256i words[4];
#pragma GCC unroll 4
        for (int w = 0; w < 4; w++)
            words[w] = 4 * w < n ? lane_words(format, row + 4 * w) : _mm256_setzero_si256();
        store_four_words(target, step, 0, height, n, words);
        return;
    }
    const int together = 4 / code_size(format); /* codes that fill 32 bits */
    for (int64_t first = 0; first < n; first += 8 * together) {
        int64_t bytes = (n - first < 8 * together ? n - first : 8 * together) * code_size(format);
        __m256i words[8];
#pragma GCC unroll 8
        for (int w = 0; w < 8; w++)
            words[w] = lane_words(format, row + first + w * together);
        transpose_vectors(words);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            if (i < height)
                store_bits((void *)at(target, format, first + i * step), bytes, words[i]);
    }
}
#endif

#if WIDTH > 4
/* Rows that lie side by side. */
INLINE void store_rows_together(void *target, int format, int64_t step, const float *sums, ptrdiff_t pitch, int64_t rows,
                                int64_t count, const float *bias)
{
    for (int64_t i = 0; i < count; i += WIDTH)
        for (int64_t first = 0; first < rows; first += 16) {
            vector row[16];
            int64_t n = rows - first < 16 ? rows - first : 16;
#pragma GCC unroll 16
            for (int r = 0; r < 16; r++)
                row[r] = r < n ? finished_vector(sums + (first + r) * pitch + i, count - i, bias, first + r) : (vector){0};
            store_position_rows((void *)at(target, format, i * step + first), format, step, count - i < WIDTH ? count - i : WIDTH, n, row);
        }
}

/* Rows and their taps side by side in memory. */
INLINE void store_taps_together(void *target, int format, int64_t step, const float *tiles, ptrdiff_t tile_step, ptrdiff_t pitch,
                                int64_t rows, int64_t count, int64_t tap_count)
{
    int64_t entries = rows * tap_count;
    for (int64_t lane = 0; lane < count; lane += WIDTH) {
        int64_t t = 0, r = 0;
        for (int64_t e = 0; e < entries; e += 16) {
            int64_t n = entries - e < 16 ? entries - e : 16;
            vector row[16];
            for (int i = 0; i < 16; i++) {
                row[i] = (vector){0};
                if (i >= n)
                    continue;
                row[i] = finished_vector(tiles + t * tile_step + r * pitch + lane, WIDTH, NULL, 0);
                if (++t == tap_count) {
                    t = 0;
                    r++;
                }
            }
            for (int64_t later = lane + WIDTH; later < lane + 2 * WIDTH && later < count; later++) /* another core may own them */
                __builtin_prefetch(at(target, format, later * step + e), 1);
            store_position_rows((void *)at(target, format, lane * step + e), format, step, count - lane < WIDTH ? count - lane : WIDTH, n, row);
        }
    }
}
#else
/* Rows that lie side by side. */
INLINE void store_rows_together(void *target, int format, int64_t step, const float *sums, ptrdiff_t pitch, int64_t rows,
                                int64_t count, const float *bias)
{
    enum { ROWS_TOGETHER = 16 };
    int64_t size = code_size(format);
    for (int64_t i = 0; i < count; i += WIDTH)
        for (int64_t first = 0; first < rows; first += ROWS_TOGETHER) {
            char codes[ROWS_TOGETHER * 4 * WIDTH], *place = (char *)at(target, format, i * step + first);
            int64_t n = rows - first < ROWS_TOGETHER ? rows - first : ROWS_TOGETHER, left = count - i < WIDTH ? count - i : WIDTH;
            for (int64_t r = 0; r < n; r++)
                store_codes(codes + r * WIDTH * size, size, WIDTH,
                            codes_of(finished_vector(sums + (first + r) * pitch + i, left, bias, first + r), format));
            for (int64_t j = 0; j < left; j++)
                for (int64_t r = 0; r < n; r++)
                    copy_code(place + (j * step + r) * size, size, codes + (r * WIDTH + j) * size);
        }
}
#endif
