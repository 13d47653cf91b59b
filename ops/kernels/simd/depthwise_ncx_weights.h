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

/* The numbers of the large side that the columns meet, from where they lie. */
INLINE void ncx_columns(int columns, int masked, int format, const void *large, const int64_t *places, const lane_mask *taken,
                        vector *lanes)
{
#pragma GCC unroll 5
    for (int t = 0; t < columns; t++) {
        lanes[t] = ncx_lanes(at(large, format, places[t]), format, masked, taken[t]);
        IN_TURN(lanes[t]);
    }
}

#if WIDTH == 16
/* The same of columns side by side, from two vectors that lie one after the other. */
INLINE void ncx_neighbours(int columns, vector here, vector next, vector *lanes)
{
#define NEIGHBOUR(t)                                                                                                     \
    if (columns > t) {                                                                                                   \
        lanes[t] = (vector)_mm512_alignr_epi32((__m512i)next, (__m512i)here, t);                                         \
        IN_TURN(lanes[t]);                                                                                               \
    }
    lanes[0] = here;
    NEIGHBOUR(1) NEIGHBOUR(2) NEIGHBOUR(3) NEIGHBOUR(4)
#undef NEIGHBOUR
}
#else
INLINE void ncx_neighbours(int columns, vector here, vector next, vector *lanes)
{
    (void)columns, (void)here, (void)next, (void)lanes;
}
#endif

/* Those of a mask, which most often has all lanes. */
INLINE vector ncx_next(const void *p, int format, unsigned loaded)
{
    return (loaded & ALL_LANES) == ALL_LANES ? ncx_lanes(p, format, 0, LANE_MASK(0)) : ncx_lanes(p, format, 1, LANE_MASK(loaded));
}

/* A line of the large side against lines of the small side, of which `inside` says that there is one for each row. */
INLINE void ncx_weights_block(int rows, int columns, int masked, int inside, int format, vector (*sum)[NCX_COLUMNS], const vector *lanes,
                              const lane_mask *taken, const void *small, ptrdiff_t small_line, int64_t line, int64_t first,
                              int64_t end, int64_t apart, unsigned kept)
{
#pragma GCC unroll 5
    for (int u = 0; u < rows; u++) {
        int64_t y = line - u * apart;
        if (!inside && (y < first || y >= end))
            continue;
        vector factor = ncx_lanes(at(small, format, y * small_line), format, masked, LANE_MASK(kept));
        IN_TURN(factor);
#pragma GCC unroll 5
        for (int t = 0; t < columns; t++)
            sum[u][t] = masked ? MULTIPLY_ADD_MASKED(MASKED_FACTOR(factor, taken[t]), lanes[t], sum[u][t], taken[t])
                               : MULTIPLY_ADD(factor, lanes[t], sum[u][t]);
    }
}

/* One such line, the vectors `part` of its blocks.  `joined`: the columns are side by side, and a vector is loaded once for all. */
INLINE void ncx_weights_line(int rows, int columns, int joined, int inside, int format, vector (*sum)[NCX_COLUMNS], const void *large,
                             const int64_t *places, const void *small, ptrdiff_t small_line, int64_t line, int64_t first, int64_t end,
                             int64_t apart, const ncx_masks *masks, int64_t vectors, unsigned last, int part)
{
    vector next = {0}, lanes[NCX_COLUMNS];
    lane_mask taken[NCX_COLUMNS];
    large = at(large, format, part);
    small = at(small, format, part);
    if (joined)
        next = ncx_next(at(large, format, places[0]), format, masks[0].loaded);
    for (int64_t v = 0; v < vectors; v++, masks++, large = at(large, format, DOT_LANES), small = at(small, format, DOT_LANES)) {
        const int masked = (masks->all >> part & ALL_LANES) != ALL_LANES;
        const unsigned kept = (v + 1 < vectors ? 0xffff : last) >> part;
        vector here = next;
        if (joined) {
            next = ncx_next(at(large, format, places[0] + DOT_LANES), format, masks[1].loaded);
            ncx_neighbours(columns, here, next, lanes);
        }
        if (!masked) {
            if (!joined)
                ncx_columns(columns, 0, format, large, places, taken, lanes);
            ncx_weights_block(rows, columns, 0, inside, format, sum, lanes, taken, small, small_line, line, first, end, apart, ALL_LANES);
        } else if (kept != 0) {
#pragma GCC unroll 5
            for (int t = 0; t < columns; t++) {
                taken[t] = LANE_MASK(masks->inside[t] >> part);
                KEEP_MASK(taken[t]);
            }
            if (!joined)
                ncx_columns(columns, 1, format, large, places, taken, lanes);
            ncx_weights_block(rows, columns, 1, inside, format, sum, lanes, taken, small, small_line, line, first, end, apart, kept);
        }
    }
}

INLINE void ncx_weights_body(int rows, int columns, int joined, int format, float *sums, ptrdiff_t sum_row, const void *large,
                             ptrdiff_t large_line, const int64_t *places, const void *small, ptrdiff_t small_line, int64_t line,
                             int64_t lines_end, int64_t first, int64_t end, int64_t apart, const ncx_masks *masks, int64_t vectors,
                             unsigned last)
{
    const int64_t before = (rows - 1) * apart;
    for (int part = 0; part < DOT_LANES; part += WIDTH) { /* vectors of a block of lanes, one after the other */
        vector sum[NCX_COLUMNS][NCX_COLUMNS];
#pragma GCC unroll 5
        for (int u = 0; u < rows; u++)
#pragma GCC unroll 5
            for (int t = 0; t < columns; t++)
                sum[u][t] = *(const vector *)(sums + u * sum_row + t * DOT_LANES + part);
        for (int64_t y = line; y < lines_end; y++) {
            const void *start = at(large, format, y * large_line);
            if (WIDTH == 16 && y - before >= first && y < end)
                ncx_weights_line(rows, columns, joined, 1, format, sum, start, places, small, small_line, y, first, end, apart, masks,
                                 vectors, last, part);
            else
                ncx_weights_line(rows, columns, joined, 0, format, sum, start, places, small, small_line, y, first, end, apart, masks,
                                 vectors, last, part);
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
        int joined, const void *small, ptrdiff_t small_line, int64_t line, int64_t lines_end, int64_t first, int64_t end, \
        int64_t apart, const ncx_masks *masks, int64_t vectors, unsigned last)                                           \
    {                                                                                                                    \
        if (WIDTH == 16 && columns > 1 && joined)                                                                        \
            NCX_WEIGHTS_FORMATS(format, ncx_weights_body, rows, columns, 1, known_format, sums, sum_row, large,          \
                                large_line, places, small, small_line, line, lines_end, first, end, apart, masks,        \
                                vectors, last)                                                                           \
        else                                                                                                             \
            NCX_WEIGHTS_FORMATS(format, ncx_weights_body, rows, columns, 0, known_format, sums, sum_row, large,          \
                                large_line, places, small, small_line, line, lines_end, first, end, apart, masks,        \
                                vectors, last)                                                                           \
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
