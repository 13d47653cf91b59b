/* Rows of pairs for `rows_are_positions`: positions whose pairs of channels lie side by side, and lanes of many weights.  Included by
 * simd/pairs.h. */

/* Channels lie side by side. */
INLINE void turn_words(float *rows, ptrdiff_t pitch, int64_t count, int64_t channels, const void *source, int format, int64_t step,
                       const decoder *d, magnitudes *met)
{
    for (int64_t p = 0; p < count; p++)
        for (int64_t k = 0; k < channels; k += 32) {
            int64_t n = channels - k < 32 ? channels - k : 32;
            __m512i words = load_words(at(source, format, p * step + k), format, n);
            put_pairs(rows + p * pitch + k / 2, _mm512_rol_epi32(words, 16), d, format, met);
        }
}

/* Channels lie apart: 16 pairs of 16 positions are transposed. */
INLINE void turn_channels(float *rows, ptrdiff_t pitch, int64_t count, int64_t channels, const void *source, int format, int64_t step,
                          int64_t channel_stride, const decoder *d, magnitudes *met)
{
    for (int64_t k = 0; k < channels; k += 32)
        for (int64_t p = 0; p < count; p += 16) {
            const void *start = at(source, format, k * channel_stride + p * step);
            int64_t n = count - p < 16 ? count - p : 16;
            __m512i row[16];
            for (int i = 0; i < 16; i++) {
                row[i] = _mm512_setzero_si512();
                if (k + 2 * i < channels)
                    row[i] = _mm512_slli_epi32(load_scattered(at(start, format, 2 * i * channel_stride), format, n, step), 16);
                if (k + 2 * i + 1 < channels)
                    row[i] = _mm512_or_si512(row[i], load_scattered(at(start, format, (2 * i + 1) * channel_stride), format, n, step));
                row[i] = decode_words(d, format, row[i]);
                note(met, row[i]);
            }
            transpose_vectors(row);
            for (int i = 0; i < n; i++)
                _mm512_storeu_si512(rows + (p + i) * pitch + k / 2, row[i]);
        }
}

INLINE void gather_positions_format(float *rows, ptrdiff_t pitch, int64_t count, int64_t channels, const void *source, int format,
                                    int64_t step, int64_t channel_stride, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    magnitudes met = none_met;
    if (channel_stride == 1)
        turn_words(rows, pitch, count, channels, source, format, step, &d, &met);
    else if (step == 1)
        turn_channels(rows, pitch, count, channels, source, format, 1, channel_stride, &d, &met);
    else
        turn_channels(rows, pitch, count, channels, source, format, step, channel_stride, &d, &met);
    note_smallest(smallest, &met);
}

static void SUFFIX(gather_positions)(float *rows, ptrdiff_t pitch, int64_t count, int64_t channels, const void *source, int format,
                                     int64_t step, int64_t channel_stride, uint16_t *smallest)
{
    if (format == NUMBER_BFLOAT16)
        gather_positions_format(rows, pitch, count, channels, source, NUMBER_BFLOAT16, step, channel_stride, smallest);
    else
        gather_positions_format(rows, pitch, count, channels, source, format, step, channel_stride, smallest);
}

/* 16 rows of a group, of one channel and of the next, or NULL. */
INLINE void turn_wide_pairs(float *place, ptrdiff_t tap_step, const void *first, const void *next, int format, int64_t row_stride,
                            const wide_group *group, const decoder *d, magnitudes *met)
{
    __m512i row[16];
    if (group->taps < LEAST_TURNED) {
        for (int64_t i = 0; i < group->numbers; i++)
            if (group->tap_of[i] >= 0)
                put_scattered(place + group->tap_of[i] * tap_step, at(first, format, group->low + i),
                              next ? at(next, format, group->low + i) : NULL, format, 16, row_stride, d, met);
        return;
    }
    for (int i = 0; i < 16; i++) {
        int64_t offset = group->low + i * row_stride;
        __m512i codes = _mm512_slli_epi32(load_codes(at(first, format, offset), format, group->numbers, 1), 16);
        if (next)
            codes = _mm512_or_si512(codes, load_codes(at(next, format, offset), format, group->numbers, 1));
        row[i] = decode_words(d, format, codes);
        note(met, row[i]);
    }
    store_wide_rows(place, tap_step, row, group->tap_of);
}

/* As `turn_sixteens`. */
static int SUFFIX(gather_wide_taps)(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels, const void *source,
                                    int format, int64_t row_stride, int64_t channel_stride, const int64_t *taps, int64_t tap_count,
                                    uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    magnitudes met = none_met;
    int wide = sixteens(rows, row_stride, channel_stride, taps, tap_count);
    int64_t ahead = channels_ahead(source, wide, format, row_stride);
    wide_groups all;
    for (int64_t from = INT64_MIN; wide > 0 && find_wide_groups(&all, taps, tap_count, from); from = all.low + all.numbers)
        for (int64_t c = 0; c < channels; c += 2)
            for (int r = 0; r < wide; r += 16) {
                const void *first = at(source, format, c * channel_stride + r * row_stride);
                for (int i = 0; i < 2; i++)
                    prefetch_rows(at(first, format, all.low + (ahead + i) * channel_stride), 16, all.numbers, format, row_stride);
                for (const wide_group *group = all.group; group < all.group + all.count; group++)
                    turn_wide_pairs(panel + c / 2 * pitch + r, tap_step, first,
                                    c + 1 < channels ? at(first, format, channel_stride) : NULL, format, row_stride, group, &d, &met);
            }
    note_smallest(smallest, &met);
    return wide;
}
