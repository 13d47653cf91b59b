/* Depthwise weights gradients, channels first: dot products along lines that are read where they are stored, under masks that
 * leave out what lies outside.  A line of the large side is loaded once and meets the lines of the small side of all its tap
 * rows.  simd/depthwise_ncx.h includes this. */

/* One after the other: all loads first would need a register each. */
#define IN_TURN(value) __asm__ volatile("" : "+v"(value))

/* Numbers at p as floats, those of the mask if they are `masked`; in other formats than float32 where 16-bit numbers have masks. */
INLINE vector ncx_lanes(const void *p, int format, int masked, lane_mask taken)
{
#if WIDTH == 16
    if (format != NUMBER_FLOAT32)
        return masked ? load_masked(p, format, taken) : decode_vector(p, format);
#endif
    return masked ? LOAD_MASKED((const float *)p, taken) : *(const vector *)p;
}

INLINE void ncx_weights_block(int rows, int columns, int masked, int format, vector (*sum)[NCX_COLUMNS], const void *large,
                              const int64_t *places, const void *small, ptrdiff_t small_line, int64_t line, int64_t first,
                              int64_t end, int64_t apart, const uint16_t *masks, int part, unsigned kept)
{
    vector lanes[NCX_COLUMNS];
    lane_mask taken[NCX_COLUMNS];
#pragma GCC unroll 5
    for (int t = 0; t < columns; t++) {
        taken[t] = LANE_MASK(masked ? masks[t] >> part : ALL_LANES);
        if (masked)
            KEEP_MASK(taken[t]);
        lanes[t] = ncx_lanes(at(large, format, places[t]), format, masked, taken[t]);
        IN_TURN(lanes[t]);
    }
#pragma GCC unroll 5
    for (int u = 0; u < rows; u++) {
        int64_t y = line - u * apart;
        if (y < first || y >= end)
            continue;
        vector factor = ncx_lanes(at(small, format, y * small_line), format, masked, LANE_MASK(kept >> part));
        IN_TURN(factor);
#pragma GCC unroll 5
        for (int t = 0; t < columns; t++)
            sum[u][t] = masked ? MULTIPLY_ADD_MASKED(MASKED_FACTOR(factor, taken[t]), lanes[t], sum[u][t], taken[t])
                               : MULTIPLY_ADD(factor, lanes[t], sum[u][t]);
    }
}

INLINE void ncx_weights_body(int rows, int columns, int format, float *sums, ptrdiff_t sum_row, const void *large,
                             ptrdiff_t large_line, const int64_t *places, const void *small, ptrdiff_t small_line, int64_t line,
                             int64_t lines_end, int64_t first, int64_t end, int64_t apart, const uint16_t *masks, int64_t vectors,
                             unsigned last)
{
    for (int part = 0; part < DOT_LANES; part += WIDTH) { /* vectors of a block of lanes, one after the other */
        vector sum[NCX_COLUMNS][NCX_COLUMNS];
#pragma GCC unroll 5
        for (int u = 0; u < rows; u++)
#pragma GCC unroll 5
            for (int t = 0; t < columns; t++)
                sum[u][t] = *(const vector *)(sums + u * sum_row + t * DOT_LANES + part);
        for (int64_t at_line = line; at_line < lines_end; at_line++) {
            const uint16_t *taken = masks;
            for (int64_t v = 0; v < vectors; v++, taken += NCX_COLUMNS + 1) {
                ptrdiff_t block = v * DOT_LANES + part;
                const void *place = at(large, format, at_line * large_line + block), *other = at(small, format, block);
                if ((taken[NCX_COLUMNS] >> part & ALL_LANES) == ALL_LANES)
                    ncx_weights_block(rows, columns, 0, format, sum, place, places, other, small_line, at_line, first, end, apart,
                                      taken, part, ALL_LANES);
                else if (v + 1 < vectors || last >> part)
                    ncx_weights_block(rows, columns, 1, format, sum, place, places, other, small_line, at_line, first, end, apart,
                                      taken, part, v + 1 < vectors ? 0xffff : last);
            }
        }
#pragma GCC unroll 5
        for (int u = 0; u < rows; u++)
#pragma GCC unroll 5
            for (int t = 0; t < columns; t++)
                *(vector *)(sums + u * sum_row + t * DOT_LANES + part) = sum[u][t];
    }
}

#if WIDTH == 16
#define NCX_WEIGHTS_FORMATS(format, ...)                                                                                 \
    switch (format) {                                                                                                    \
        IF_FORMAT(NUMBER_FLOAT32, __VA_ARGS__)                                                                           \
        IF_FORMAT(NUMBER_FLOAT16, __VA_ARGS__)                                                                           \
        IF_FORMAT(NUMBER_BFLOAT16, __VA_ARGS__)                                                                          \
    }
#else
#define NCX_WEIGHTS_FORMATS(format, ...)                                                                                 \
    switch (format) {                                                                                                    \
        IF_FORMAT(NUMBER_FLOAT32, __VA_ARGS__)                                                                           \
    }
#endif
#define NCX_WEIGHTS(rows, columns)                                                                                       \
    static void SUFFIX(ncx_weights_##rows##_##columns)(                                                                  \
        int format, float *sums, ptrdiff_t sum_row, const void *large, ptrdiff_t large_line, const int64_t *places,      \
        const void *small, ptrdiff_t small_line, int64_t line, int64_t lines_end, int64_t first, int64_t end,            \
        int64_t apart, const uint16_t *masks, int64_t vectors, unsigned last)                                            \
    {                                                                                                                    \
        NCX_WEIGHTS_FORMATS(format, ncx_weights_body, rows, columns, known_format, sums, sum_row, large, large_line,     \
                            places, small, small_line, line, lines_end, first, end, apart, masks, vectors, last)         \
    }
#define NCX_WEIGHTS_ROWS(rows) NCX_WEIGHTS(rows, 1) NCX_WEIGHTS(rows, 2) NCX_WEIGHTS(rows, 3)
#define NCX_WEIGHTS_ENTRY(rows, columns) SUFFIX(ncx_weights_##rows##_##columns)
#define NCX_WEIGHTS_ENTRIES(rows) NCX_WEIGHTS_ENTRY(rows, 1), NCX_WEIGHTS_ENTRY(rows, 2), NCX_WEIGHTS_ENTRY(rows, 3)
#define NCX_WEIGHTS_ALL(rows) \
    {NCX_WEIGHTS_ENTRIES(rows), NCX_WEIGHTS_ENTRY(rows, 4), NCX_WEIGHTS_ENTRY(rows, 5)}
NCX_WEIGHTS_ROWS(1) NCX_WEIGHTS_ROWS(2) NCX_WEIGHTS_ROWS(3)
NCX_WEIGHTS(1, 4) NCX_WEIGHTS(1, 5) NCX_WEIGHTS(2, 4) NCX_WEIGHTS(2, 5)
#if WIDTH == 16
NCX_WEIGHTS(3, 4) NCX_WEIGHTS(3, 5)
NCX_WEIGHTS_ROWS(4) NCX_WEIGHTS(4, 4) NCX_WEIGHTS(4, 5)
NCX_WEIGHTS_ROWS(5) NCX_WEIGHTS(5, 4) NCX_WEIGHTS(5, 5)
#define ALL_NCX_WEIGHTS \
    {NCX_WEIGHTS_ALL(1), NCX_WEIGHTS_ALL(2), NCX_WEIGHTS_ALL(3), NCX_WEIGHTS_ALL(4), NCX_WEIGHTS_ALL(5)}
#else /* registers for so many */
#define ALL_NCX_WEIGHTS {NCX_WEIGHTS_ALL(1), NCX_WEIGHTS_ALL(2), {NCX_WEIGHTS_ENTRIES(3)}}
#endif
