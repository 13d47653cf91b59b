/* Sums in chains of one channel of either side, of several taps that advance together: included by simd/pairs.h after
 * simd/chain_pairs.h, which lays the pairs out.  It is to those pairs what simd/depthwise_ncx_weights.h is to floats: a line of the large
 * side is loaded once and meets the lines of the small side of all its tap rows. */

/* What some columns of taps meet of a line of the large side, against the lines of the small side of all rows of taps.  `line` may lie
 * outside the small side for some of the rows, unless it is told not to. */
INLINE void add_tap_rows(int rows, int columns, int inside, vector (*sum)[NCX_COLUMNS], const vector *lanes, const float *small,
                         ptrdiff_t small_line, int64_t line, int64_t lines, int64_t apart)
{
#pragma GCC unroll 5
    for (int u = 0; u < rows; u++) {
        const int64_t y = line - u * apart;
        if (!inside && (y < 0 || y >= lines))
            continue;
        vector factor = *(const vector *)(small + y * small_line);
        IN_TURN(factor);
#pragma GCC unroll 5
        for (int t = 0; t < columns; t++)
            sum[u][t] = MULTIPLY_ADD_PAIRS(lanes[t], factor, sum[u][t]);
    }
}

INLINE void load_tap_sums(int rows, int columns, vector (*sum)[NCX_COLUMNS], const float *sums, ptrdiff_t sum_row)
{
#pragma GCC unroll 5
    for (int u = 0; u < rows; u++)
#pragma GCC unroll 5
        for (int t = 0; t < columns; t++)
            sum[u][t] = *(const vector *)(sums + u * sum_row + t * WIDTH);
}

INLINE void store_tap_sums(int rows, int columns, vector (*sum)[NCX_COLUMNS], float *sums, ptrdiff_t sum_row)
{
#pragma GCC unroll 5
    for (int u = 0; u < rows; u++)
#pragma GCC unroll 5
        for (int t = 0; t < columns; t++)
            *(vector *)(sums + u * sum_row + t * WIDTH) = sum[u][t];
}

INLINE void chain_taps_line(int rows, int columns, int inside, vector (*sum)[NCX_COLUMNS], const float *large, ptrdiff_t large_unit,
                            const int64_t *places, const float *small, ptrdiff_t small_line, int64_t line, int64_t lines, int64_t apart,
                            int64_t units)
{
    for (int64_t unit = 0; unit < units; unit++, large += large_unit, small += WIDTH) {
        vector lanes[NCX_COLUMNS];
#pragma GCC unroll 5
        for (int t = 0; t < columns; t++) {
            lanes[t] = *(const vector *)(large + places[t]);
            IN_TURN(lanes[t]);
        }
        add_tap_rows(rows, columns, inside, sum, lanes, small, small_line, line, lines, apart);
    }
}

INLINE void chain_taps_body(int rows, int columns, float *sums, ptrdiff_t sum_row, const float *large, ptrdiff_t large_line,
                            ptrdiff_t large_unit, const int64_t *places, const float *small, ptrdiff_t small_line, int64_t lines,
                            int64_t apart, int64_t units)
{
    const int64_t before = (rows - 1) * apart;
    vector sum[NCX_COLUMNS][NCX_COLUMNS];
    load_tap_sums(rows, columns, sum, sums, sum_row);
    for (int64_t line = 0; line < lines + before; line++, large += large_line)
        if (line >= before && line < lines)
            chain_taps_line(rows, columns, 1, sum, large, large_unit, places, small, small_line, line, lines, apart, units);
        else
            chain_taps_line(rows, columns, 0, sum, large, large_unit, places, small, small_line, line, lines, apart, units);
    store_tap_sums(rows, columns, sum, sums, sum_row);
}

#define CHAIN_TAPS(rows, columns)                                                                                             \
    static void SUFFIX(chain_taps_##rows##_##columns)(                                                                        \
        float *sums, ptrdiff_t sum_row, const float *large, ptrdiff_t large_line, ptrdiff_t large_unit, const int64_t *places, \
        const float *small, ptrdiff_t small_line, int64_t lines, int64_t apart, int64_t units)                                \
    {                                                                                                                         \
        chain_taps_body(rows, columns, sums, sum_row, large, large_line, large_unit, places, small, small_line, lines, apart, \
                        units);                                                                                               \
    }
/* Functions of up to NCX_COLUMNS rows and columns of taps, and their table. */
#define TAP_SIZES_OF(define, rows) define(rows, 1) define(rows, 2) define(rows, 3) define(rows, 4) define(rows, 5)
#define TAP_SIZES(define) \
    TAP_SIZES_OF(define, 1) TAP_SIZES_OF(define, 2) TAP_SIZES_OF(define, 3) TAP_SIZES_OF(define, 4) TAP_SIZES_OF(define, 5)
#define TAP_ENTRY(name, rows, columns) SUFFIX(name##_##rows##_##columns)
#define TAP_ENTRIES(name, rows)                                                                                               \
    {TAP_ENTRY(name, rows, 1), TAP_ENTRY(name, rows, 2), TAP_ENTRY(name, rows, 3), TAP_ENTRY(name, rows, 4),                  \
     TAP_ENTRY(name, rows, 5)}
#define TAP_TABLE(name) \
    {TAP_ENTRIES(name, 1), TAP_ENTRIES(name, 2), TAP_ENTRIES(name, 3), TAP_ENTRIES(name, 4), TAP_ENTRIES(name, 5)}
TAP_SIZES(CHAIN_TAPS)
