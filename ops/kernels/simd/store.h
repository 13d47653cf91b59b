/* Finished sums to stored numbers: included by simd/tile.h after simd/pack.h. */

/* Adding +0 makes a zero sum +0 whatever its terms underflowed to, and however much padding they crossed. */
INLINE float finished(float sum, const float *bias, int64_t row)
{
    return bias ? (sum + 0.0f) + bias[row] : sum + 0.0f;
}

INLINE void store_number(void *target, int format, int64_t offset, float value)
{
    void *place = (void *)at(target, format, offset);
    if (format == NUMBER_FLOAT32)
        *(float *)place = value;
    else if (is_wide(format))
        *(uint16_t *)place = encode16(value, format);
    else
        *(uint8_t *)place = encode8(value, format);
}

#if WIDTH == 16
INLINE vector finished_vector(const float *sums, int64_t n, const float *bias, int64_t row)
{
    vector done = load_vector(sums, NUMBER_FLOAT32, n) + BROADCAST(0.0f);
    if (bias)
        done += BROADCAST(bias[row]);
    return done;
}

/* Every other float: what lies between belongs to others, perhaps in another thread. */
INLINE void store_every_other(float *target, const float *sums, int64_t count, const float *bias, int64_t row)
{
    const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i high = _mm512_or_si512(low, _mm512_set1_epi32(8));
    for (int64_t i = 0; i < count; i += 16) {
        uint32_t taken = count - i < 16 ? 0x55555555u & ((1u << 2 * (count - i)) - 1) : 0x55555555u;
        __m512 done = (__m512)finished_vector(sums + i, count - i, bias, row);
        _mm512_mask_storeu_ps(target + 2 * i, (__mmask16)taken, _mm512_permutexvar_ps(low, done));
        if (taken >> 16)
            _mm512_mask_storeu_ps(target + 2 * i + 16, (__mmask16)(taken >> 16), _mm512_permutexvar_ps(high, done));
    }
}

/* Floats, as bits, rounded to bfloat16 codes of 32 bits each. */
INLINE __m512i rounded_codes(__m512i bits)
{
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    __m512i nan = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x8000)), _mm512_set1_epi32(0x7fc0));
    __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    return _mm512_mask_mov_epi32(rounded, _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000)), nan);
}

/* A line of bfloat16 codes, side by side or every other. */
INLINE void store_codes(uint16_t *target, int64_t step, const float *sums, int64_t count, const float *bias, int64_t row)
{
    for (int64_t i = 0; i < count; i += 16) {
        __m512i codes = rounded_codes((__m512i)finished_vector(sums + i, count - i, bias, row));
        __mmask16 mask = (__mmask16)(count - i < 16 ? (1u << (count - i)) - 1 : 0xffffu);
        if (step == 1)
            _mm256_mask_storeu_epi16(target + i, mask, _mm512_cvtepi32_epi16(codes));
        else
            _mm512_mask_storeu_epi16(target + 2 * i, 0x55555555u & (0xffffffffu >> (count - i < 16 ? 32 - 2 * (count - i) : 0)), codes);
    }
}

INLINE void store_numbers(void *target, int format, int64_t offset, int64_t n, __m512i bits)
{
    __mmask16 mask = (__mmask16)(0xffffu >> (16 - n));
    void *place = (void *)at(target, format, offset);
    if (format == NUMBER_FLOAT32)
        _mm512_mask_storeu_epi32(place, mask, bits);
    else if (format == NUMBER_BFLOAT16)
        _mm256_mask_storeu_epi16(place, mask, _mm512_cvtepi32_epi16(rounded_codes(bits)));
    else {
        float values[16];
        _mm512_storeu_si512(values, bits);
        for (int64_t i = 0; i < n; i++)
            store_number(place, format, i, values[i]);
    }
}

/* Up to 16 rows of 16 numbers, transposed in registers: `height` lines of n numbers, `step` apart in the target. */
INLINE void store_position_rows(void *target, int format, int64_t step, int64_t height, int64_t n, __m512i *row)
{
    transpose_vectors(row);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        if (i < height)
            store_numbers(target, format, i * step, n, row[i]);
}

/* At most 16 rows that lie side by side. */
INLINE void store_rows_together(void *target, int format, int64_t step, const float *sums, ptrdiff_t pitch, int64_t rows,
                                int64_t count, const float *bias)
{
    for (int64_t i = 0; i < count; i += 16) {
        __m512i row[16];
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++)
            row[r] = r < rows ? (__m512i)finished_vector(sums + r * pitch + i, count - i, bias, r) : _mm512_setzero_si512();
        store_position_rows((void *)at(target, format, i * step), format, step, count - i < 16 ? count - i : 16, rows, row);
    }
}

/* Rows and their taps side by side in memory. */
INLINE void store_taps_together(void *target, int format, int64_t step, const float *tiles, ptrdiff_t tile_step, ptrdiff_t pitch,
                                int64_t rows, int64_t count, int64_t tap_count)
{
    int64_t entries = rows * tap_count;
    for (int64_t lane = 0; lane < count; lane += 16) {
        int64_t t = 0, r = 0;
        for (int64_t e = 0; e < entries; e += 16) {
            int64_t n = entries - e < 16 ? entries - e : 16;
            __m512i row[16];
            for (int i = 0; i < 16; i++) {
                row[i] = _mm512_setzero_si512();
                if (i >= n)
                    continue;
                row[i] = (__m512i)finished_vector(tiles + t * tile_step + r * pitch + lane, WIDTH, NULL, 0);
                if (++t == tap_count) {
                    t = 0;
                    r++;
                }
            }
            for (int64_t later = lane + 16; later < lane + 32 && later < count; later++) /* another core may own them */
                __builtin_prefetch(at(target, format, later * step + e), 1);
            store_position_rows((void *)at(target, format, lane * step + e), format, step, count - lane < 16 ? count - lane : 16, n, row);
        }
    }
}
#endif

INLINE void scatter_format(const float *tile, ptrdiff_t pitch, int64_t rows, void *target, int format, int64_t stride,
                           const lane_span *spans, int64_t span_count, const float *bias)
{
#if WIDTH == 16
    if (stride == 1 && rows > 1 && rows <= 16) {
        for (int64_t s = 0; s < span_count; s++)
            store_rows_together((void *)at(target, format, spans[s].offset), format, spans[s].step, tile + spans[s].lane, pitch, rows,
                                spans[s].count, bias);
        return;
    }
#endif
    for (int64_t r = 0; r < rows; r++)
        for (int64_t s = 0; s < span_count; s++) {
            const float *sums = tile + r * pitch + spans[s].lane;
            int64_t step = spans[s].step;
            int64_t offset = spans[s].offset + r * stride;
#if WIDTH == 16
            if (format == NUMBER_FLOAT32 && step == 2) {
                store_every_other((float *)target + offset, sums, spans[s].count, bias, r);
                continue;
            }
            if (format == NUMBER_BFLOAT16 && (step == 1 || step == 2)) {
                store_codes((uint16_t *)target + offset, step, sums, spans[s].count, bias, r);
                continue;
            }
#endif
            for (int64_t i = 0; i < spans[s].count; i++)
                store_number(target, format, offset + i * step, finished(sums[i], bias, r));
        }
}

static void SUFFIX(scatter)(const float *tile, ptrdiff_t pitch, int64_t rows, void *target, int format, int64_t stride,
                            const lane_span *spans, int64_t span_count, const float *bias)
{
    BY_FORMAT(format, scatter_format, tile, pitch, rows, target, known_format, stride, spans, span_count, bias)
}

#if WIDTH == 16
#define SCATTER_CELLS SUFFIX(scatter_cells)

/* `count` sums and what lies between them, from position `own` of the first cell on. */
INLINE void store_cells(float *line, const float *sums, int64_t count, const float *bias, int64_t row, int64_t ways, int64_t own)
{
    __m512 fill = (__m512)(BROADCAST(0.0f) + BROADCAST(bias ? bias[row] : 0.0f));
    const __m512i half = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    int64_t width = count * ways;
    for (int64_t i = 0; i < width; i += 16) {
        __mmask16 kept = (__mmask16)(width - i < 16 ? (1u << (width - i)) - 1 : 0xffffu);
        __m512 values = fill;
        if (sums && ways == 2)
            values = _mm512_mask_permutexvar_ps(fill, (__mmask16)(0x5555u << own), half,
                                                (__m512)finished_vector(sums + i / 2, count - i / 2 < 8 ? count - i / 2 : 8, bias, row));
        _mm512_mask_storeu_ps(line + i, kept, values);
    }
    if (sums && ways != 2)
        for (int64_t i = 0; i < count; i++)
            line[i * ways + own] = finished(sums[i], bias, row);
}

static void SUFFIX(scatter_cells)(const float *tile, ptrdiff_t pitch, int64_t rows, float *target, int64_t stride,
                                  const lane_span *spans, int64_t span_count, const float *bias, const result_cell *cell)
{
    int64_t first = cell->own[0] * cell->line[0] + cell->own[1] * cell->line[1] + cell->own[2];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t s = 0; s < span_count; s++)
            for (int64_t y0 = 0; y0 < cell->extent[0]; y0++)
                for (int64_t y1 = 0; y1 < cell->extent[1]; y1++)
                    store_cells(target + r * stride + spans[s].offset - first + y0 * cell->line[0] + y1 * cell->line[1],
                                y0 == cell->own[0] && y1 == cell->own[1] ? tile + r * pitch + spans[s].lane : NULL, spans[s].count,
                                bias, r, cell->extent[2], cell->own[2]);
}
#else
#define SCATTER_CELLS NULL
#endif

INLINE int fits_depthwise_nxc(int64_t row_stride, const int64_t *taps, int64_t tap_count)
{
    int all = row_stride == tap_count;
    for (int64_t t = 0; t < tap_count; t++)
        all &= taps[t] == t;
    return all;
}

INLINE void scatter_taps_format(const float *tiles, ptrdiff_t tile_step, ptrdiff_t pitch, int64_t rows, int64_t lanes,
                                void *target, int format, int64_t lane_stride, int64_t row_stride, const int64_t *taps,
                                int64_t tap_count)
{
#if WIDTH == 16
    if (fits_depthwise_nxc(row_stride, taps, tap_count)) {
        store_taps_together(target, format, lane_stride, tiles, tile_step, pitch, rows, lanes, tap_count);
        return;
    }
#endif
    for (int64_t lane = 0; lane < lanes; lane++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t t = 0; t < tap_count; t++)
                store_number(target, format, lane * lane_stride + r * row_stride + taps[t],
                             finished(tiles[t * tile_step + r * pitch + lane], NULL, 0));
}

static void SUFFIX(scatter_taps)(const float *tiles, ptrdiff_t tile_step, ptrdiff_t pitch, int64_t rows, int64_t lanes,
                                 void *target, int format, int64_t lane_stride, int64_t row_stride, const int64_t *taps,
                                 int64_t tap_count)
{
    BY_FORMAT(format, scatter_taps_format, tiles, tile_step, pitch, rows, lanes, target, known_format, lane_stride, row_stride,
              taps, tap_count)
}
