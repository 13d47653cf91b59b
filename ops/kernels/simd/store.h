/* Finished sums to stored numbers: included by simd/tile.h after simd/lanes.h. */

/* Adding +0 makes a zero sum +0 whatever its terms underflowed to, and however much padding they crossed. */
INLINE vector finished_vector(const float *sums, int64_t n, const float *bias, int64_t row)
{
    vector done = load_vector(sums, NUMBER_FLOAT32, n) + BROADCAST(0.0f);
    if (bias)
        done += BROADCAST(bias[row]);
    return done;
}

INLINE void copy_code(char *place, int64_t size, const void *code)
{
    memcpy(place, code, size == 4 ? 4 : size == 2 ? 2 : 1);
}

/* n codes that lie side by side, to places `step` bytes apart. */
INLINE void copy_apart(char *place, int64_t step, int64_t size, int64_t n, const char *codes)
{
#pragma GCC unroll 16
    for (int64_t j = 0; j < n; j++)
        copy_code(place + j * step, size, codes + j * size);
}

/* The first n <= WIDTH of a vector of finished floats, `step` apart: what lies between belongs to others, perhaps in another thread. */
INLINE void store_apart(void *target, int format, int64_t step, int64_t n, vector values)
{
    const int64_t size = code_size(format);
    vector_uint codes = codes_of(values, format);
    if (step == 1) {
        store_codes(target, size, n, codes);
        return;
    }
#if WIDTH == 16
    if (step == 2) {
        const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        uint32_t taken = 0x55555555u & (0xffffffffu >> (32 - 2 * n));
        if (size == 2)
            _mm512_mask_storeu_epi16(target, taken, (__m512i)codes);
        else if (size == 1)
            _mm256_mask_storeu_epi8(target, taken, _mm512_cvtepi32_epi16((__m512i)codes));
        else {
            _mm512_mask_storeu_epi32(target, (__mmask16)taken, _mm512_permutexvar_epi32(low, (__m512i)codes));
            if (taken >> 16)
                _mm512_mask_storeu_epi32((float *)target + 16, (__mmask16)(taken >> 16),
                                         _mm512_permutexvar_epi32(_mm512_or_si512(low, _mm512_set1_epi32(8)), (__m512i)codes));
        }
        return;
    }
#endif
    char stored[4 * WIDTH];
    store_codes(stored, size, WIDTH, codes);
    copy_apart(target, step * size, size, n, stored);
}

#if WIDTH == 16
#include "simd/codes_in_pairs.h"
#elif WIDTH == 8
#include "simd/store_two.h"
#endif

#if WIDTH > 4
/* Two lines of sums, finished. */
INLINE void store_two_lines(void *target, void *other, int format, const float *sums, ptrdiff_t pitch, int64_t count,
                            const float *bias, int64_t row)
{
#define BOTH(i, n)                                                                                                       \
    store_two((void *)at(target, format, i), (void *)at(other, format, i), format, n,                                    \
              finished_vector(sums + (i), n, bias, row), finished_vector(sums + pitch + (i), n, bias, row + 1))
    int64_t i = 0;
#if WIDTH == 16
    for (; i + 2 * WIDTH <= count; i += 2 * WIDTH)
        for (int r = 0; r < 2; r++)
            store_two_vectors((void *)at(r ? other : target, format, i), format, finished_vector(sums + r * pitch + i, WIDTH, bias, row + r),
                              finished_vector(sums + r * pitch + i + WIDTH, WIDTH, bias, row + r));
#endif
    for (; i + WIDTH <= count; i += WIDTH)
        BOTH(i, WIDTH);
    if (i < count && count >= WIDTH && WIDTH == 8)
        BOTH(count - 8, 8); /* numbers twice cost less than a part of a vector */
    else if (i < count)
        BOTH(i, count - i);
#undef BOTH
}
#endif

#if WIDTH == 8
/* A line of sums, finished, `step` apart, in a format of 8 bits: two vectors are encoded together. */
INLINE void store_bytes_apart(char *place, int format, int64_t step, const float *sums, int64_t count, const float *bias, int64_t row)
{
    for (int64_t i = 0; i < count; i += 16) {
        int64_t n = count - i < 16 ? count - i : 16;
        vector first = finished_vector(sums + i, n, bias, row), second = n > 8 ? finished_vector(sums + i + 8, n - 8, bias, row) : first;
        char codes[16];
        _mm_storeu_si128((__m128i *)codes, bytes_of_two(format, first, second));
        __asm__ volatile("" : : "r"(codes) : "memory"); /* bytes are read from there: out of a vector each of them takes longer */
        if (n == 16)
            copy_apart(place + i * step, step, 1, 16, codes);
        else
            copy_apart(place + i * step, step, 1, n, codes);
    }
}
#endif

/* A line of sums, finished, side by side. */
INLINE void store_whole_line(void *target, int format, const float *sums, int64_t count, const float *bias, int64_t row)
{
    int64_t i = 0;
#define SOME(i, n) store_vector((void *)at(target, format, i), format, n, finished_vector(sums + (i), n, bias, row))
#if WIDTH > 4
    for (; i + 2 * WIDTH <= count; i += 2 * WIDTH)
        store_two_vectors((void *)at(target, format, i), format, finished_vector(sums + i, WIDTH, bias, row),
                          finished_vector(sums + i + WIDTH, WIDTH, bias, row));
#endif
#if WIDTH == 8
    for (; i + WIDTH <= count; i += WIDTH)
        SOME(i, WIDTH);
    if (i < count && count >= WIDTH)
        i = count - WIDTH; /* numbers twice cost less than a part of a vector */
#endif
    for (; i < count; i += WIDTH)
        SOME(i, count - i < WIDTH ? count - i : WIDTH);
#undef SOME
}

/* A line of sums, finished, `step` apart. */
INLINE void store_line(void *target, int format, int64_t step, const float *sums, int64_t count, const float *bias, int64_t row)
{
    if (step == 1)
        store_whole_line(target, format, sums, count, bias, row);
#if WIDTH == 8
    else if (code_size(format) == 1)
        store_bytes_apart(target, format, step, sums, count, bias, row);
#endif
    else
        for (int64_t i = 0; i < count; i += WIDTH) {
            int64_t n = count - i < WIDTH ? count - i : WIDTH;
            store_apart((void *)at(target, format, i * step), format, step, n, finished_vector(sums + i, n, bias, row));
        }
}

#include "simd/store_rows.h"

INLINE void scatter_format(const float *tile, ptrdiff_t pitch, int64_t rows, void *target, int format, int64_t stride,
                           const lane_span *spans, int64_t span_count, const float *bias)
{
    if (stride == 1 && rows > 1) {
        for (int64_t s = 0; s < span_count; s++)
            store_rows_together((void *)at(target, format, spans[s].offset), format, spans[s].step, tile + spans[s].lane, pitch, rows,
                                spans[s].count, bias);
        return;
    }
    int64_t r = 0;
#if WIDTH > 4
    int together = pairs_codes(format);
    for (int64_t s = 0; s < span_count; s++)
        together &= spans[s].step == 1;
    for (; together && r + 2 <= rows; r += 2)
        for (int64_t s = 0; s < span_count; s++) {
            int64_t offset = spans[s].offset + r * stride;
            store_two_lines((void *)at(target, format, offset), (void *)at(target, format, offset + stride), format,
                            tile + r * pitch + spans[s].lane, pitch, spans[s].count, bias, r);
        }
#endif
    for (; r < rows; r++)
        for (int64_t s = 0; s < span_count; s++)
            store_line((void *)at(target, format, spans[s].offset + r * stride), format, spans[s].step,
                       tile + r * pitch + spans[s].lane, spans[s].count, bias, r);
}

static void SUFFIX(scatter)(const float *tile, ptrdiff_t pitch, int64_t rows, void *target, int format, int64_t stride,
                            const lane_span *spans, int64_t span_count, const float *bias)
{
    BY_FORMAT(format, scatter_format, tile, pitch, rows, target, known_format, stride, spans, span_count, bias)
}

#if WIDTH == 16
#define SCATTER_PARTS SUFFIX(scatter_parts)

/* A part of a vector of 16 words; `apart` as in `tile_result`. */
INLINE void store_part_words(void *place, int64_t size, int apart, uint16_t mask, __m256i words)
{
    if (apart == 2) {
        const __m256i twice = _mm256_setr_epi16(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        int upper = (mask & 0xaaaa) != 0;
        words = _mm256_permutexvar_epi16(_mm256_add_epi16(twice, _mm256_set1_epi16((int16_t)(8 * upper))), words);
        mask = (uint16_t)(mask >> upper);
    }
    store_words(place, size, mask, words);
}

/* The same of codes in words of 32 bits. */
INLINE void store_part_codes(void *place, int64_t size, int apart, uint16_t mask, vector_uint codes)
{
    if (apart == 2) {
        const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        int upper = (mask & 0xaaaa) != 0;
        codes = (vector_uint)_mm512_permutexvar_epi32(_mm512_add_epi32(twice, _mm512_set1_epi32(8 * upper)), (__m512i)codes);
        mask = (uint16_t)(mask >> upper);
    }
    store_masked_codes(place, size, mask, codes);
}

/* Whole vectors are read, so that a load finds what one store wrote just before. */
INLINE void scatter_parts_format(const float *tile, ptrdiff_t pitch, int64_t rows, const tile_result *result, int apart, int format)
{
    const int64_t size = code_size(format), step = result->wish.row_step;
    char *place = result->wish.place;
    int64_t r = 0;
    for (; pairs_codes(format) && r + 2 <= rows; r += 2, place += 2 * step, tile += 2 * pitch) {
        int64_t part = 0;
        for (int v = 0; part < result->wish.parts; v++) {
            __m512i codes = codes_in_order(format, finished_vector(tile + v * WIDTH, WIDTH, result->bias, r),
                                           finished_vector(tile + pitch + v * WIDTH, WIDTH, result->bias, r + 1));
            for (; part < result->first[v + 1]; part++) {
                char *first = place + result->wish.offsets[part];
                store_part_words(first, size, apart, result->masks[part], _mm512_castsi512_si256(codes));
                store_part_words(first + step, size, apart, result->masks[part], _mm512_extracti64x4_epi64(codes, 1));
            }
        }
    }
    for (; r < rows; r++, place += step, tile += pitch) {
        int64_t part = 0;
        for (int v = 0; part < result->wish.parts; v++) {
            vector_uint codes = codes_of(finished_vector(tile + v * WIDTH, WIDTH, result->bias, r), format);
            for (; part < result->first[v + 1]; part++)
                store_part_codes(place + result->wish.offsets[part], size, apart, result->masks[part], codes);
        }
    }
}

static void SUFFIX(scatter_parts)(const float *tile, ptrdiff_t pitch, int64_t rows, const tile_result *result, int format)
{
    if (result->apart == 2)
        BY_FORMAT(format, scatter_parts_format, tile, pitch, rows, result, 2, known_format)
    else
        BY_FORMAT(format, scatter_parts_format, tile, pitch, rows, result, 1, known_format)
}
#else
#define SCATTER_PARTS NULL
#endif

#if WIDTH > 4
#include "simd/store_cells.h"
#else
#define SCATTER_CELLS NULL
#endif

#if WIDTH > 4
INLINE int side_by_side(int64_t row_stride, const int64_t *taps, int64_t tap_count)
{
    int all = row_stride == tap_count;
    for (int64_t t = 0; t < tap_count; t++)
        all &= taps[t] == t;
    return all;
}
#endif

/* Codes of some taps and rows wait for the lanes that they share, which lie far apart in memory. */
INLINE void scatter_taps_format(const float *tiles, ptrdiff_t tile_step, ptrdiff_t pitch, int64_t rows, int64_t lanes,
                                void *target, int format, int64_t lane_stride, int64_t row_stride, const int64_t *taps,
                                int64_t tap_count)
{
#if WIDTH > 4
    if (side_by_side(row_stride, taps, tap_count)) {
        store_taps_together(target, format, lane_stride, tiles, tile_step, pitch, rows, lanes, tap_count);
        return;
    }
#endif
    enum { WAITING = 64 };
    int64_t size = code_size(format), entries = rows * tap_count;
    for (int64_t lane = 0; lane < lanes; lane += WIDTH) {
        int64_t left = lanes - lane < WIDTH ? lanes - lane : WIDTH, t = 0, r = 0;
        for (int64_t first = 0; first < entries; first += WAITING) {
            char codes[WAITING * 4 * WIDTH], *place = (char *)at(target, format, lane * lane_stride);
            int64_t offsets[WAITING], n = entries - first < WAITING ? entries - first : WAITING;
            for (int64_t e = 0; e < n; e++) {
                offsets[e] = (r * row_stride + taps[t]) * size;
                store_codes(codes + e * WIDTH * size, size, WIDTH,
                            codes_of(finished_vector(tiles + t * tile_step + r * pitch + lane, left, NULL, 0), format));
                if (++t == tap_count) {
                    t = 0;
                    r++;
                }
            }
            for (int64_t j = 0; j < left; j++)
                for (int64_t e = 0; e < n; e++)
                    copy_code(place + j * lane_stride * size + offsets[e], size, codes + (e * WIDTH + j) * size);
        }
    }
}

static void SUFFIX(scatter_taps)(const float *tiles, ptrdiff_t tile_step, ptrdiff_t pitch, int64_t rows, int64_t lanes,
                                 void *target, int format, int64_t lane_stride, int64_t row_stride, const int64_t *taps,
                                 int64_t tap_count)
{
    BY_FORMAT(format, scatter_taps_format, tiles, tile_step, pitch, rows, lanes, target, known_format, lane_stride, row_stride,
              taps, tap_count)
}
