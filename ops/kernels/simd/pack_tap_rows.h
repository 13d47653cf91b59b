/* Row panels of weights whose taps lie side by side: vectors of taps, one for each of 8 rows, become for each tap 8 rows. */
#if WIDTH == 16 && ROWS == 8
enum { AHEAD = 16 /* channels */, LEAST_TURNED = 3 /* taps of a group; fewer are as fast number by number */ };

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

INLINE int worth_turning(const tap_group *group)
{
    return group->end - group->first >= LEAST_TURNED;
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

/* `numbers` of some rows of a channel to come, which lies too far away to be foreseen: all lines between them where they are few. */
INLINE void prefetch_rows(const void *rows, int count, int64_t numbers, int format, int64_t row_stride)
{
    ptrdiff_t row = (const char *)at(rows, format, row_stride) - (const char *)rows;
    ptrdiff_t size = (const char *)at(rows, format, numbers) - (const char *)rows;
    if (row <= size + 64)
        for (ptrdiff_t i = 0; i < (count - 1) * row + size; i += 64)
            __builtin_prefetch((const char *)rows + i);
    else
        for (int r = 0; r < count; r++)
            for (ptrdiff_t i = 0; i < size; i += 64)
                __builtin_prefetch((const char *)rows + r * row + i);
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
            prefetch_rows(at(rows, format, (AHEAD + i) * channel_stride), 8, group->numbers, format, row_stride);
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
        prefetch_rows(at(source, format, group.low + (c + AHEAD) * channel_stride), 8, group.numbers, format, row_stride);
        for (int i = 0; i < 8; i++)
            row[i] = i < rows ? (__m512i)load_vector(at(source, format, group.low + c * channel_stride + i * row_stride), format,
                                                     group.numbers)
                              : _mm512_setzero_si512();
        store_tap_rows(panel + c * pitch, tap_step, row, taps, &group);
    }
    return group.end;
}

typedef struct { /* taps of which all weights lie among `numbers` <= 16 from `low` on, wherever they stand in the sum */
    int64_t low;
    int64_t numbers;
    int64_t taps; /* at different places */
    int64_t tap_of[16]; /* which tap each number is the weight of, or -1 */
} wide_group;

/* The lowest taps at `from` or above; false if there are none. */
INLINE int find_wide_group(wide_group *group, const int64_t *taps, int64_t tap_count, int64_t from)
{
    *group = (wide_group){.low = INT64_MAX};
    for (int64_t t = 0; t < tap_count; t++)
        if (taps[t] >= from && taps[t] < group->low)
            group->low = taps[t];
    for (int i = 0; i < 16; i++)
        group->tap_of[i] = -1;
    for (int64_t t = 0; t < tap_count; t++)
        if (taps[t] >= group->low && taps[t] - group->low < 16) {
            int64_t number = taps[t] - group->low;
            group->taps += group->tap_of[number] < 0;
            group->tap_of[number] = t;
            group->numbers = number + 1 > group->numbers ? number + 1 : group->numbers;
        }
    return group->taps > 0;
}

/* Groups that are turned one after the other while their channel is near. */
enum { WIDE_GROUPS = 8, WIDE_AHEAD = 1 << 14 /* bytes */ };

typedef struct {
    int count;
    int64_t low; /* the first number of all */
    int64_t numbers;
    wide_group group[WIDE_GROUPS];
} wide_groups;

/* The groups from `from` on; false if there are none. */
INLINE int find_wide_groups(wide_groups *all, const int64_t *taps, int64_t tap_count, int64_t from)
{
    for (all->count = 0; all->count < WIDE_GROUPS; all->count++) {
        wide_group *group = &all->group[all->count];
        if (!find_wide_group(group, taps, tap_count, from))
            break;
        from = group->low + group->numbers;
    }
    all->low = all->group[0].low;
    all->numbers = from - all->low;
    return all->count > 0;
}

/* How many channels ahead 16 of `wide` rows are prefetched: as many as some bytes hold. */
INLINE int64_t channels_ahead(const void *source, int wide, int format, int64_t row_stride)
{
    int64_t bytes = (const char *)at(source, format, wide * row_stride) - (const char *)source;
    return bytes <= WIDE_AHEAD / AHEAD ? AHEAD : bytes >= WIDE_AHEAD ? 1 : WIDE_AHEAD / bytes;
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

/* The same for 16 rows at a time, `wide` in all; groups of few taps number by number. */
INLINE void turn_wide(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int wide, int64_t channels, const void *source, int format,
                      int64_t row_stride, int64_t channel_stride, const wide_groups *all)
{
    int64_t ahead = channels_ahead(source, wide, format, row_stride);
    for (int64_t c = 0; c < channels; c++)
        for (int r = 0; r < wide; r += 16) {
            const void *rows = at(source, format, c * channel_stride + r * row_stride);
            float *place = panel + c * pitch + r;
            prefetch_rows(at(rows, format, all->low + ahead * channel_stride), 16, all->numbers, format, row_stride);
            for (const wide_group *group = all->group; group < all->group + all->count; group++) {
                __m512i row[16];
                if (group->taps < LEAST_TURNED) {
                    for (int64_t number = 0; number < group->numbers; number++)
                        for (int i = 0; i < 16 && group->tap_of[number] >= 0; i++)
                            place[group->tap_of[number] * tap_step + i] =
                                load_number(rows, format, group->low + number + i * row_stride);
                    continue;
                }
#pragma GCC unroll 16
                for (int i = 0; i < 16; i++)
                    row[i] = (__m512i)load_vector(at(rows, format, group->low + i * row_stride), format, group->numbers);
                store_wide_rows(place, tap_step, row, group->tap_of);
            }
        }
}

/* How many rows are turned in sixteens: whole ones, if they are near one another and so share cache lines, or if the first of their
 * taps fill one; none where taps lie at one place, as those of a view with a stride of 0 do. */
INLINE int sixteens(int rows, int64_t row_stride, int64_t channel_stride, const int64_t *taps, int64_t tap_count)
{
    wide_group group;
    int64_t found = 0, turned = 0;
    for (int64_t from = INT64_MIN; rows >= 16 && find_wide_group(&group, taps, tap_count, from); from = group.low + group.numbers) {
        if (row_stride >= channel_stride && found + group.taps < 16)
            return 0;
        found += group.taps;
        turned += group.taps < LEAST_TURNED ? 0 : group.taps;
    }
    return found == tap_count && 2 * turned > found ? rows - rows % 16 : 0;
}

/* Those rows; returns their number. */
INLINE int turn_sixteens(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels, const void *source, int format,
                         int64_t row_stride, int64_t channel_stride, const int64_t *taps, int64_t tap_count)
{
    int wide = sixteens(rows, row_stride, channel_stride, taps, tap_count);
    wide_groups all;
    for (int64_t from = INT64_MIN; wide > 0 && find_wide_groups(&all, taps, tap_count, from); from = all.low + all.numbers)
        turn_wide(panel, tap_step, pitch, wide, channels, source, format, row_stride, channel_stride, &all);
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
