/* Dot products along lines, of several channels of either side with one another: included by simd/tile.h.  Every vector that is
 * loaded meets all channels of the other side, so that there are at most half as many loads as multiply-adds. */
#if WIDTH == 16
#define DOT_COLUMNS DOT_LARGE
#define DOT_MOST_COLUMNS {8, 8, 8, 6} /* sums and a vector of each channel of the small side fill the registers */
#else
#define DOT_COLUMNS 4
#define DOT_MOST_COLUMNS {4, 4, 3, 2}
#endif

INLINE void load_dot_sums(int rows, int columns, vector (*sum)[DOT_COLUMNS], const float *sums, ptrdiff_t row_sums, ptrdiff_t column_sums)
{
#pragma GCC unroll 4
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 8
        for (int c = 0; c < columns; c++)
            sum[m][c] = *(const vector *)(sums + m * row_sums + c * column_sums);
}

INLINE void store_dot_sums(int rows, int columns, vector (*sum)[DOT_COLUMNS], float *sums, ptrdiff_t row_sums, ptrdiff_t column_sums)
{
#pragma GCC unroll 4
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 8
        for (int c = 0; c < columns; c++)
            *(vector *)(sums + m * row_sums + c * column_sums) = sum[m][c];
}

INLINE void dot_tile_body(int rows, int columns, float *sums, ptrdiff_t row_sums, ptrdiff_t column_sums, const void *large, int format,
                          ptrdiff_t large_channel, ptrdiff_t large_pitch, const float *small, ptrdiff_t small_channel,
                          ptrdiff_t small_pitch, int64_t lines, int64_t count)
{
    for (int part = 0; part < DOT_LANES; part += WIDTH) {
        vector sum[DOT_TILE][DOT_COLUMNS];
        load_dot_sums(rows, columns, sum, sums + part, row_sums, column_sums);
        for (int64_t y = 0; y < lines; y++) {
            const float *a = small + y * small_pitch;
            const void *b = at(large, format, y * large_pitch);
            int64_t i = part;
            vector factor[DOT_TILE];
            for (; i + WIDTH <= count; i += DOT_LANES) {
#pragma GCC unroll 4
                for (int m = 0; m < rows; m++) {
                    factor[m] = *(const vector *)(a + m * small_channel + i);
                    KEEP(factor[m]);
                }
#pragma GCC unroll 8
                for (int c = 0; c < columns; c++) {
                    vector lanes = decode_vector(at(b, format, c * large_channel + i), format);
                    KEEP(lanes);
#pragma GCC unroll 4
                    for (int m = 0; m < rows; m++)
                        sum[m][c] = MULTIPLY_ADD(lanes, factor[m], sum[m][c]);
                }
            }
            if (i < count) { /* lanes beyond a line add zero times zero */
#pragma GCC unroll 4
                for (int m = 0; m < rows; m++)
                    factor[m] = LOAD_PART(a + m * small_channel + i, count - i);
#pragma GCC unroll 8
                for (int c = 0; c < columns; c++) {
                    vector lanes = load_vector(at(b, format, c * large_channel + i), format, count - i);
#pragma GCC unroll 4
                    for (int m = 0; m < rows; m++)
                        sum[m][c] = MULTIPLY_ADD(lanes, factor[m], sum[m][c]);
                }
            }
        }
        store_dot_sums(rows, columns, sum, sums + part, row_sums, column_sums);
    }
}

#define DOT_TILE_OF(rows, columns)                                                                                         \
    static void SUFFIX(dot_tile_##rows##_##columns)(                                                                       \
        float *sums, ptrdiff_t row_sums, ptrdiff_t column_sums, const void *large, int format, ptrdiff_t large_channel,    \
        ptrdiff_t large_pitch, const float *small, ptrdiff_t small_channel, ptrdiff_t small_pitch, int64_t lines,          \
        int64_t count)                                                                                                     \
    {                                                                                                                      \
        if (format == NUMBER_FLOAT32)                                                                                      \
            dot_tile_body(rows, columns, sums, row_sums, column_sums, large, NUMBER_FLOAT32, large_channel, large_pitch,   \
                          small, small_channel, small_pitch, lines, count);                                                \
        else if (format == NUMBER_BFLOAT16)                                                                                \
            dot_tile_body(rows, columns, sums, row_sums, column_sums, large, NUMBER_BFLOAT16, large_channel, large_pitch,  \
                          small, small_channel, small_pitch, lines, count);                                                \
        else                                                                                                               \
            dot_tile_body(rows, columns, sums, row_sums, column_sums, large, NUMBER_FLOAT16, large_channel, large_pitch,   \
                          small, small_channel, small_pitch, lines, count);                                                \
    }

/* Of tiles by rows and columns: definitions, and a table. */
#define DOT_SIZES_TO_2(define, rows) define(rows, 1) define(rows, 2)
#define DOT_SIZES_TO_3(define, rows) DOT_SIZES_TO_2(define, rows) define(rows, 3)
#define DOT_SIZES_TO_4(define, rows) DOT_SIZES_TO_3(define, rows) define(rows, 4)
#define DOT_SIZES_TO_6(define, rows) DOT_SIZES_TO_4(define, rows) define(rows, 5) define(rows, 6)
#define DOT_SIZES_TO_8(define, rows) DOT_SIZES_TO_6(define, rows) define(rows, 7) define(rows, 8)
#define DOT_NAMES_TO_2(name, rows) SUFFIX(name##_##rows##_1), SUFFIX(name##_##rows##_2)
#define DOT_NAMES_TO_3(name, rows) DOT_NAMES_TO_2(name, rows), SUFFIX(name##_##rows##_3)
#define DOT_NAMES_TO_4(name, rows) DOT_NAMES_TO_3(name, rows), SUFFIX(name##_##rows##_4)
#define DOT_NAMES_TO_6(name, rows) DOT_NAMES_TO_4(name, rows), SUFFIX(name##_##rows##_5), SUFFIX(name##_##rows##_6)
#define DOT_NAMES_TO_8(name, rows) DOT_NAMES_TO_6(name, rows), SUFFIX(name##_##rows##_7), SUFFIX(name##_##rows##_8)
#if WIDTH == 16
#define DOT_SIZES(define) \
    DOT_SIZES_TO_8(define, 1) DOT_SIZES_TO_8(define, 2) DOT_SIZES_TO_8(define, 3) DOT_SIZES_TO_6(define, 4)
#define DOT_TABLE(name) \
    {{DOT_NAMES_TO_8(name, 1)}, {DOT_NAMES_TO_8(name, 2)}, {DOT_NAMES_TO_8(name, 3)}, {DOT_NAMES_TO_6(name, 4)}}
#else
#define DOT_SIZES(define) \
    DOT_SIZES_TO_4(define, 1) DOT_SIZES_TO_4(define, 2) DOT_SIZES_TO_3(define, 3) DOT_SIZES_TO_2(define, 4)
#define DOT_TABLE(name) \
    {{DOT_NAMES_TO_4(name, 1)}, {DOT_NAMES_TO_4(name, 2)}, {DOT_NAMES_TO_3(name, 3)}, {DOT_NAMES_TO_2(name, 4)}}
#endif
DOT_SIZES(DOT_TILE_OF)
