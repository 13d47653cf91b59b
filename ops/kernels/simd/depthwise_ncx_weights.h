/* Depthwise weights gradients, channels first: dot products along lines that are read where they are stored, under masks that
 * leave out what lies outside.  A line of the large side is loaded once and meets the lines of the small side of all its tap
 * rows.  simd/depthwise_ncx.h includes this. */

/* One after the other: all loads first would need a register each. */
#define IN_TURN(value) __asm__ volatile("" : "+v"(value))

INLINE void ncx_weights_block(int rows, int columns, int masked, vector (*sum)[NCX_COLUMNS], const float *large,
                              const int64_t *places, const float *small, ptrdiff_t small_line, int64_t line, int64_t first,
                              int64_t end, int64_t apart, const uint16_t *masks, int part, unsigned kept)
{
    vector lanes[NCX_COLUMNS];
    lane_mask taken[NCX_COLUMNS];
#pragma GCC unroll 5
    for (int t = 0; t < columns; t++) {
        taken[t] = LANE_MASK(masked ? masks[t] >> part : ALL_LANES);
        if (masked)
            KEEP_MASK(taken[t]);
        lanes[t] = masked ? LOAD_MASKED(large + places[t], taken[t]) : *(const vector *)(large + places[t]);
        IN_TURN(lanes[t]);
    }
#pragma GCC unroll 5
    for (int u = 0; u < rows; u++) {
        int64_t y = line - u * apart;
        if (y < first || y >= end)
            continue;
        vector factor = masked ? LOAD_MASKED(small + y * small_line, LANE_MASK(kept >> part))
                               : *(const vector *)(small + y * small_line);
        IN_TURN(factor);
#pragma GCC unroll 5
        for (int t = 0; t < columns; t++)
            sum[u][t] = masked ? MULTIPLY_ADD_MASKED(MASKED_FACTOR(factor, taken[t]), lanes[t], sum[u][t], taken[t])
                               : MULTIPLY_ADD(factor, lanes[t], sum[u][t]);
    }
}

INLINE void ncx_weights_body(int rows, int columns, float *sums, ptrdiff_t sum_row, const float *large, ptrdiff_t large_line,
                             const int64_t *places, const float *small, ptrdiff_t small_line, int64_t line, int64_t lines_end,
                             int64_t first, int64_t end, int64_t apart, const uint16_t *masks, int64_t vectors, unsigned last)
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
                const float *place = large + at_line * large_line + block;
                if ((taken[NCX_COLUMNS] >> part & ALL_LANES) == ALL_LANES)
                    ncx_weights_block(rows, columns, 0, sum, place, places, small + block, small_line, at_line, first, end,
                                      apart, taken, part, ALL_LANES);
                else if (v + 1 < vectors || last >> part)
                    ncx_weights_block(rows, columns, 1, sum, place, places, small + block, small_line, at_line, first, end,
                                      apart, taken, part, v + 1 < vectors ? 0xffff : last);
            }
        }
#pragma GCC unroll 5
        for (int u = 0; u < rows; u++)
#pragma GCC unroll 5
            for (int t = 0; t < columns; t++)
                *(vector *)(sums + u * sum_row + t * DOT_LANES + part) = sum[u][t];
    }
}

#define NCX_WEIGHTS(rows, columns)                                                                                       \
    static void SUFFIX(ncx_weights_##rows##_##columns)(                                                                  \
        float *sums, ptrdiff_t sum_row, const float *large, ptrdiff_t large_line, const int64_t *places,                 \
        const float *small, ptrdiff_t small_line, int64_t line, int64_t lines_end, int64_t first, int64_t end,           \
        int64_t apart, const uint16_t *masks, int64_t vectors, unsigned last)                                            \
    {                                                                                                                    \
        ncx_weights_body(rows, columns, sums, sum_row, large, large_line, places, small, small_line, line, lines_end,    \
                       first, end, apart, masks, vectors, last);                                                         \
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
