/* Row panels of weights whose taps lie side by side: vectors of taps, one for each of 8 rows, become for each tap 8 rows. */
#if WIDTH == 16 && ROWS == 8
enum { AHEAD = 16 }; /* channels */

typedef struct { /* taps [first, end), of which all weights lie among `numbers` <= 16 from `low` on */
    int64_t first;
    int64_t end;
    int64_t low;
    int64_t numbers;
} tap_group;

/* The group that begins with tap `first`. */
INLINE tap_group group_taps(const int64_t *taps, int64_t tap_count, int64_t first)
{
    int64_t low = taps[first], high = taps[first], end = first + 1;
    for (; end < tap_count; end++) {
        int64_t lower = taps[end] < low ? taps[end] : low, higher = taps[end] > high ? taps[end] : high;
        if (higher - lower >= 16)
            break;
        low = lower;
        high = higher;
    }
    return (tap_group){first, end, low, high - low + 1};
}

/* Groups of fewer taps are as fast number by number. */
INLINE int worth_turning(const tap_group *group)
{
    return group->end - group->first >= 3;
}

/* `row` holds the numbers of a group for 8 rows, and is lost; they go to place + tap*step. */
INLINE void store_tap_rows(float *place, int64_t step, __m512i *row, const int64_t *taps, const tap_group *group)
{
    float transposed[4][2][16]; /* [number % 4][rows 0 to 3, 4 to 7][4 * (number / 4) + row % 4] */
    for (int half = 0; half < 2; half++) {
        transpose_four(row + 4 * half);
        for (int i = 0; i < 4; i++)
            _mm512_storeu_si512(transposed[i][half], row[4 * half + i]);
    }
    for (int64_t t = group->first; t < group->end; t++) {
        int64_t number = taps[t] - group->low;
        const float *from = transposed[number % 4][0] + number / 4 * 4;
        _mm_storeu_ps(place + t * step, _mm_loadu_ps(from));
        _mm_storeu_ps(place + t * step + 4, _mm_loadu_ps(from + 16));
    }
}

/* Eight rows of a channel to come, which lies too far away to be foreseen: all lines where they are few. */
INLINE void prefetch_rows(const void *rows, int format, int64_t row_stride)
{
    ptrdiff_t row = (const char *)at(rows, format, row_stride) - (const char *)rows, step = row <= 128 ? 64 : row;
    for (ptrdiff_t i = 0; i < 8 * row; i += step)
        __builtin_prefetch((const char *)rows + i);
}

/* Two channels of 8 rows at a time, which lie side by side in a panel of 8 rows; returns how many channels are done. */
INLINE int64_t turn_pairs(float *panel, ptrdiff_t tap_step, int64_t channels, const void *source, int format, int64_t row_stride,
                          int64_t channel_stride, const int64_t *taps, const tap_group *group)
{
    int64_t c = 0;
    for (; c + 2 <= channels; c += 2) {
        const void *rows = at(source, format, group->low + c * channel_stride);
        __m512i row[16];
        float transposed[16][16];
        for (int i = 0; i < 2; i++)
            prefetch_rows(at(rows, format, (AHEAD + i) * channel_stride), format, row_stride);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            row[i] = (__m512i)load_vector(at(rows, format, i / 8 * channel_stride + i % 8 * row_stride), format, group->numbers);
        transpose_vectors(row);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            _mm512_storeu_si512(transposed[i], row[i]);
        for (int64_t t = group->first; t < group->end; t++)
            _mm512_storeu_ps(panel + t * tap_step + c * 8, _mm512_loadu_ps(transposed[taps[t] - group->low]));
    }
    return c;
}

INLINE int64_t turn_taps(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels, const void *source, int format, int64_t row_stride,
                         int64_t channel_stride, const int64_t *taps, int64_t tap_count, int64_t first)
{
    tap_group group = group_taps(taps, tap_count, first);
    int64_t c = 0;
    if (!worth_turning(&group))
        return first;
    if (rows == 8 && pitch == 8)
        c = turn_pairs(panel, tap_step, channels, source, format, row_stride, channel_stride, taps, &group);
    for (; c < channels; c++) {
        __m512i row[8];
        prefetch_rows(at(source, format, group.low + (c + AHEAD) * channel_stride), format, row_stride);
        for (int i = 0; i < 8; i++)
            row[i] = i < rows ? (__m512i)load_vector(at(source, format, group.low + c * channel_stride + i * row_stride), format,
                                                     group.numbers)
                              : _mm512_setzero_si512();
        store_tap_rows(panel + c * pitch, tap_step, row, taps, &group);
    }
    return group.end;
}

/* Whether no two taps of a group lie at one place, as those of a view with a stride of 0 do. */
INLINE int lie_apart(const int64_t *taps, const tap_group *group)
{
    uint32_t seen = 0, before;
    for (int64_t t = group->first; t < group->end; t++) {
        before = seen;
        seen |= 1u << (taps[t] - group->low);
        if (seen == before)
            return 0;
    }
    return 1;
}

/* Which tap each number of a group is the weight of, or -1. */
INLINE void find_taps(int64_t *tap_of, const int64_t *taps, const tap_group *group)
{
    for (int i = 0; i < 16; i++)
        tap_of[i] = -1;
    for (int64_t t = group->first; t < group->end; t++)
        tap_of[taps[t] - group->low] = t;
}

/* 16 rows of the numbers of a group, which leave as whole vectors. */
INLINE void store_wide_rows(float *place, ptrdiff_t tap_step, __m512i *row, const int64_t *tap_of)
{
    transpose_vectors(row);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        if (tap_of[i] >= 0)
            _mm512_storeu_si512(place + tap_of[i] * tap_step, row[i]);
}

/* The same for 16 rows at a time, `wide` in all. */
INLINE void turn_wide(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int wide, int64_t channels, const void *source, int format,
                      int64_t row_stride, int64_t channel_stride, const int64_t *taps, const tap_group *group)
{
    int64_t tap_of[16];
    find_taps(tap_of, taps, group);
    for (int64_t c = 0; c < channels; c++)
        for (int r = 0; r < wide; r += 16) {
            const void *rows = at(source, format, group->low + c * channel_stride + r * row_stride);
            __m512i row[16];
            for (int i = 0; i < 16; i += 8)
                prefetch_rows(at(rows, format, AHEAD * channel_stride + i * row_stride), format, row_stride);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                row[i] = (__m512i)load_vector(at(rows, format, i * row_stride), format, group->numbers);
            store_wide_rows(panel + c * pitch + r, tap_step, row, tap_of);
        }
}

/* How many rows are turned in sixteens: whole ones, if they are near one another and so share cache lines, or if taps fill whole
 * ones. */
INLINE int sixteens(int rows, int64_t row_stride, int64_t channel_stride, const int64_t *taps, int64_t tap_count)
{
    tap_group group;
    for (int64_t t = 0; t < tap_count && rows >= 16; t = group.end) {
        group = group_taps(taps, tap_count, t);
        if (!worth_turning(&group) || !lie_apart(taps, &group) || (row_stride >= channel_stride && group.end - group.first < 16))
            return 0;
    }
    return rows - rows % 16;
}

/* Those rows; returns their number. */
INLINE int turn_sixteens(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels, const void *source, int format,
                         int64_t row_stride, int64_t channel_stride, const int64_t *taps, int64_t tap_count)
{
    int wide = sixteens(rows, row_stride, channel_stride, taps, tap_count);
    tap_group group;
    if (wide == 0)
        return 0;
    for (int64_t t = 0; t < tap_count; t = group.end) {
        group = group_taps(taps, tap_count, t);
        turn_wide(panel, tap_step, pitch, wide, channels, source, format, row_stride, channel_stride, taps, &group);
    }
    return wide;
}
#else
INLINE int turn_sixteens(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels, const void *source, int format,
                         int64_t row_stride, int64_t channel_stride, const int64_t *taps, int64_t tap_count)
{
    (void)panel, (void)tap_step, (void)pitch, (void)rows, (void)channels, (void)source, (void)format, (void)row_stride;
    (void)channel_stride, (void)taps, (void)tap_count;
    return 0;
}

INLINE int64_t turn_taps(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels, const void *source, int format, int64_t row_stride,
                         int64_t channel_stride, const int64_t *taps, int64_t tap_count, int64_t first)
{
    (void)panel, (void)tap_step, (void)pitch, (void)rows, (void)channels, (void)source, (void)format, (void)row_stride, (void)channel_stride, (void)taps;
    (void)tap_count;
    return first;
}
#endif

INLINE void gather_taps_format(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels, const void *source, int format, int64_t row_stride,
                               int64_t channel_stride, const int64_t *taps, int64_t tap_count)
{
    for (int64_t t = 0, transposed; t < tap_count; t = transposed) {
        transposed = turn_taps(panel, tap_step, pitch, rows, channels, source, format, row_stride, channel_stride, taps, tap_count, t);
        if (transposed > t)
            continue;
        transposed = t + 1;
        for (int64_t c = 0; c < channels; c++)
            for (int i = 0; i < rows; i++)
                panel[t * tap_step + c * pitch + i] =
                    load_number(source, format, taps[t] + c * channel_stride + i * row_stride);
    }
}

static void SUFFIX(gather_few_rows)(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels, const void *source,
                                    int format, int64_t row_stride, int64_t channel_stride, const int64_t *taps, int64_t tap_count)
{
    if (format == NUMBER_FLOAT32 && rows == ROWS)
        gather_taps_format(panel, tap_step, pitch, ROWS, channels, source, NUMBER_FLOAT32, row_stride, channel_stride, taps, tap_count);
    else
        gather_taps_format(panel, tap_step, pitch, rows, channels, source, format, row_stride, channel_stride, taps, tap_count);
}

static void SUFFIX(gather_taps)(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels, const void *source,
                                int format, int64_t row_stride, int64_t channel_stride, const int64_t *taps, int64_t tap_count)
{
    int done = 0;
    if (rows > ROWS && format == NUMBER_FLOAT32)
        done = turn_sixteens(panel, tap_step, pitch, rows, channels, source, NUMBER_FLOAT32, row_stride, channel_stride, taps, tap_count);
    else if (rows > ROWS)
        done = turn_sixteens(panel, tap_step, pitch, rows, channels, source, format, row_stride, channel_stride, taps, tap_count);
    for (; done < rows; done += ROWS)
        SUFFIX(gather_few_rows)(panel + done, tap_step, pitch, rows - done < ROWS ? rows - done : ROWS, channels,
                                at(source, format, done * row_stride), format, row_stride, channel_stride, taps, tap_count);
}
