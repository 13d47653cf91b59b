/* Finished sums of products with a stride, with what lies between them: included by simd/store.h. */

#define SCATTER_CELLS SUFFIX(scatter_cells)

/* Two vectors whose numbers take turns. */
INLINE void interleave(vector a, vector b, vector *low, vector *high)
{
#if WIDTH == 16
    const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *low = (vector)_mm512_permutex2var_ps((__m512)a, order, (__m512)b);
    *high = (vector)_mm512_permutex2var_ps((__m512)a, _mm512_add_epi32(order, _mm512_set1_epi32(8)), (__m512)b);
#else
    __m256 even = _mm256_unpacklo_ps((__m256)a, (__m256)b), odd = _mm256_unpackhi_ps((__m256)a, (__m256)b);
    *low = (vector)_mm256_permute2f128_ps(even, odd, 0x20);
    *high = (vector)_mm256_permute2f128_ps(even, odd, 0x31);
#endif
}

/* Sums and the one number between each two of them, whose code is `between`, at `place`: number `own` of a cell is the sum. */
INLINE void store_every_other(void *place, int format, const float *sums, int64_t count, const float *bias, int64_t row,
                              vector_uint between, int64_t own)
{
    if (format == NUMBER_FLOAT32) {
        const vector empty = (vector)between;
        for (int64_t i = 0; i < count; i += WIDTH) {
            int64_t n = count - i < WIDTH ? count - i : WIDTH;
            vector done = finished_vector(sums + i, n, bias, row), low, high;
            interleave(own ? empty : done, own ? done : empty, &low, &high);
            store_vector((float *)place + 2 * i, format, 2 * n < WIDTH ? 2 * n : WIDTH, low);
            if (2 * n > WIDTH)
                store_vector((float *)place + 2 * i + WIDTH, format, 2 * n - WIDTH, high);
        }
        return;
    }
#if WIDTH == 8
    if (code_size(format) == 1) {
        const __m128i byte = _mm_set1_epi8((char)between[0]);
        for (int64_t i = 0; i < count; i += 16) {
            int64_t n = count - i < 16 ? count - i : 16;
            vector first = finished_vector(sums + i, n, bias, row);
            __m128i codes = bytes_of_two(format, first, n > 8 ? finished_vector(sums + i + 8, n - 8, bias, row) : first);
            __m128i left = own ? byte : codes, right = own ? codes : byte;
            store_half_bits((void *)at(place, format, 2 * i), n < 8 ? 2 * n : 16, _mm_unpacklo_epi8(left, right));
            if (n > 8)
                store_half_bits((void *)at(place, format, 2 * i + 16), 2 * n - 16, _mm_unpackhi_epi8(left, right));
        }
        return;
    }
#endif
    const int bits = 8 * (int)code_size(format);
    for (int64_t i = 0; i < count; i += WIDTH) {
        int64_t n = count - i < WIDTH ? count - i : WIDTH;
        vector_uint codes = codes_of(finished_vector(sums + i, n, bias, row), format);
        store_codes((void *)at(place, format, 2 * i), 2 * code_size(format), n, own ? between | codes << bits : codes | between << bits);
    }
}

/* `count` sums, or none, from position `own` of the first cell on, and numbers of code `between` at all other positions. */
INLINE void store_cells(void *line, int format, const float *sums, int64_t count, const float *bias, int64_t row, vector_uint between,
                        int64_t ways, int64_t own)
{
    if (sums && ways == 2) {
        store_every_other(line, format, sums, count, bias, row, between, own);
        return;
    }
    for (int64_t i = 0, width = count * ways; i < width; i += WIDTH)
        store_codes((void *)at(line, format, i), code_size(format), width - i < WIDTH ? width - i : WIDTH, between);
    if (sums)
        store_line((void *)at(line, format, own), format, ways, sums, count, bias, row);
}

INLINE void scatter_cells_format(const float *tile, ptrdiff_t pitch, int64_t rows, void *target, int format, int64_t stride,
                                 const lane_span *spans, int64_t span_count, const float *bias, const result_cell *cell)
{
    int64_t first = cell->own[0] * cell->line[0] + cell->own[1] * cell->line[1] + cell->own[2];
    for (int64_t r = 0; r < rows; r++) {
        const vector_uint between = codes_of(BROADCAST(0.0f) + BROADCAST(bias ? bias[r] : 0.0f), format);
        for (int64_t s = 0; s < span_count; s++)
            for (int64_t y0 = 0; y0 < cell->extent[0]; y0++)
                for (int64_t y1 = 0; y1 < cell->extent[1]; y1++)
                    store_cells((void *)at(target, format, r * stride + spans[s].offset - first + y0 * cell->line[0] + y1 * cell->line[1]),
                                format, y0 == cell->own[0] && y1 == cell->own[1] ? tile + r * pitch + spans[s].lane : NULL,
                                spans[s].count, bias, r, between, cell->extent[2], cell->own[2]);
    }
}

static void SUFFIX(scatter_cells)(const float *tile, ptrdiff_t pitch, int64_t rows, void *target, int format, int64_t stride,
                                  const lane_span *spans, int64_t span_count, const float *bias, const result_cell *cell)
{
    BY_FORMAT(format, scatter_cells_format, tile, pitch, rows, target, known_format, stride, spans, span_count, bias, cell)
}
