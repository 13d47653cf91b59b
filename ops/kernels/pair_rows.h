/* backward_weights in pairs of positions: its register tile, whose rows are codes laid out backwards or pairs laid out
 * channel by channel, and what packs both operands.  Included by pairs.h. */

/* A pair, wherever it stands. */
typedef uint32_t loose_bits __attribute__((aligned(2), may_alias));

INLINE void pair_rows_body(int rows, int vectors, const pair_run *runs, ptrdiff_t run_count, const uint16_t *row_codes,
                           const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel, ptrdiff_t lane_pitch, float *c,
                           int resume)
{
    vector sum[ROWS][VECTORS];
    load_sums(rows, vectors, sum, c, vectors, resume);
    for (ptrdiff_t r = 0; r < run_count; r++) {
        const uint16_t *row[ROWS];
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            row[i] = row_codes + runs[r].rows + offsets[i];
        const float *b = lane_panel + runs[r].lanes;
        ptrdiff_t line = 0;
        for (ptrdiff_t l = runs[r].lines; l > 0; l--) {
            ptrdiff_t a = line;
            for (ptrdiff_t k = runs[r].steps; k > 0; k--) {
                vector lanes[VECTORS];
#pragma GCC unroll 4
                for (int j = 0; j < vectors; j++)
                    lanes[j] = *(const vector *)(b + j * WIDTH);
#pragma GCC unroll 8
                for (int i = 0; i < rows; i++) {
                    vector pair = (vector)_mm512_set1_epi32((int)*(const loose_bits *)(row[i] + a));
#pragma GCC unroll 4
                    for (int j = 0; j < vectors; j++)
                        sum[i][j] = MULTIPLY_ADD_PAIRS(pair, lanes[j], sum[i][j]);
                }
                a += row_step;
                b += lane_pitch;
            }
            line += runs[r].line_step;
        }
    }
    store_sums(rows, vectors, sum, c, vectors);
}

#define PAIR_ROW(rows, vectors)                                                                                          \
    static void SUFFIX(pair_rows_##rows##_##vectors)(const pair_run *runs, ptrdiff_t run_count, const uint16_t *row_codes, \
                                                     const int64_t *offsets, ptrdiff_t row_step,                         \
                                                     const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume) \
    {                                                                                                                    \
        pair_rows_body(rows, vectors, runs, run_count, row_codes, offsets, row_step, lane_panel, lane_pitch, c, resume);  \
    }
#define PAIR_ROWS(rows) PAIR_ROW(rows, 1) PAIR_ROW(rows, 2) PAIR_ROW(rows, 3)
PAIR_ROWS(1) PAIR_ROWS(2) PAIR_ROWS(3) PAIR_ROWS(4) PAIR_ROWS(5) PAIR_ROWS(6) PAIR_ROWS(7) PAIR_ROWS(8)

#define COUNTED_WORDS                                                                                                    \
    _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, \
                     2, 1, 0)
#define EVERY_OTHER_WORD _mm512_slli_epi16(COUNTED_WORDS, 1)

/* The first n <= 32 of every `step`-th (1 or 2) code at p, as 16 bits each; zeros after them. */
INLINE __m512i load_words(const void *p, int format, int64_t n, int64_t step)
{
    __mmask32 mask = 0xffffffffu >> (32 - n);
    if (step == 1) {
        if (format == NUMBER_BFLOAT16)
            return _mm512_maskz_loadu_epi16(mask, p);
        return _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, p));
    }
    __mmask64 wide = ~(__mmask64)0 >> (65 - 2 * n);
    if (format != NUMBER_BFLOAT16)
        return _mm512_and_si512(_mm512_maskz_loadu_epi8(wide, p), _mm512_set1_epi16(0xff));
    return _mm512_permutex2var_epi16(_mm512_maskz_loadu_epi16((__mmask32)wide, p), EVERY_OTHER_WORD,
                                     _mm512_maskz_loadu_epi16((__mmask32)(wide >> 32), (const uint16_t *)p + 32));
}

INLINE void line_pairs_format(float *panel, ptrdiff_t pitch, int64_t lanes, int64_t count, int64_t advance, const void *source,
                              int format, int64_t stride, int64_t lane_stride, code_range *range)
{
    const decoder d = decoder_of(format);
    magnitudes met = none_met;
    if (stride == 1 && advance == 2 && lanes <= TILE_LANES) {
        int64_t offset[TILE_LANES];
        for (int64_t l = 0; l < lanes; l++)
            offset[l] = l * lane_stride;
        gather_lines(panel, pitch, count, source, format, offset, lanes, &d, &met);
    } else if (lane_stride == 1) {
        /* words i of both: the first operand's in the lower half, the second's in the upper */
        const __m512i low = _mm512_mask_add_epi16(_mm512_srli_epi16(COUNTED_WORDS, 1), 0xaaaaaaaau, _mm512_srli_epi16(COUNTED_WORDS, 1), _mm512_set1_epi16(32)), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
        for (int64_t k = 0; k < count; k += advance) {
            const void *first = at(source, format, k * stride), *second = at(source, format, (k + 1) * stride);
            float *place = panel + k / advance * pitch;
            __builtin_prefetch(at(source, format, (k + 8) * stride));
            for (int64_t l = 0; l < lanes; l += 32) {
                int64_t n = lanes - l < 32 ? lanes - l : 32;
                __m512i a = decode_words(&d, format, load_words(at(first, format, l), format, n, 1)), b = _mm512_setzero_si512();
                note(&met, a);
                if (k + 1 < count) {
                    b = decode_words(&d, format, load_words(at(second, format, l), format, n, 1));
                    if (advance == 2)
                        note(&met, b);
                }
                _mm512_storeu_si512(place + l, _mm512_permutex2var_epi16(b, low, a));
                if (n > 16)
                    _mm512_storeu_si512(place + l + 16, _mm512_permutex2var_epi16(b, high, a));
            }
        }
    } else {
        for (int64_t k = 0; k < count; k += advance)
            put_scattered(panel + k / advance * pitch, at(source, format, k * stride),
                          k + 1 < count ? at(source, format, (k + 1) * stride) : NULL, format, lanes, lane_stride, &d, &met);
    }
    note_range(range, &met);
}

static void SUFFIX(line_pairs)(float *panel, ptrdiff_t pitch, int64_t lanes, int64_t count, int64_t advance, const void *source,
                               int format, int64_t stride, int64_t lane_stride, code_range *range)
{
    if (format == NUMBER_BFLOAT16)
        line_pairs_format(panel, pitch, lanes, count, advance, source, NUMBER_BFLOAT16, stride, lane_stride, range);
    else
        line_pairs_format(panel, pitch, lanes, count, advance, source, format, stride, lane_stride, range);
}

/* 32 numbers of a line backwards, of which `room` or more belong to it; where lines are apart, no more are stored. */
INLINE void put_backwards(uint16_t *last, int64_t room, int apart, __m512i words)
{
    if (apart && room < 32)
        _mm512_mask_storeu_epi16(last, 0xffffffffu << (32 - room), words);
    else
        _mm512_storeu_si512(last, words);
}

INLINE void frame_codes_format(uint16_t *origin, ptrdiff_t pitch, int64_t channels, int64_t lines, ptrdiff_t line_pitch, int64_t width,
                               int64_t low, int64_t high, const void *source, int format, int64_t channel_stride,
                               int64_t line_stride, int64_t step, code_range *range)
{
    const decoder d = decoder_of(format);
    const __m512i backwards = _mm512_sub_epi16(_mm512_set1_epi16(31), COUNTED_WORDS);
    const int apart = line_pitch != width;
    magnitudes met = none_met;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t line = 0; line < lines; line++) {
            uint16_t *last = origin + c * pitch - line * line_pitch - 31;
            const void *start = at(source, format, c * channel_stride + line * line_stride);
            for (int64_t u = 0; u < low; u += 32)
                put_backwards(last - u, width - u, apart, _mm512_setzero_si512());
            for (int64_t u = low; u < high; u += 32) {
                int64_t n = high - u < 32 ? high - u : 32;
                __m512i words;
                if (step == 1 || step == 2)
                    words = load_words(at(start, format, (u - low) * step), format, n, step);
                else {
                    uint16_t codes[32] = {0};
                    for (int64_t i = 0; i < n; i++)
                        codes[i] = (uint16_t)load_code(start, format, (u - low + i) * step);
                    words = _mm512_loadu_si512(codes);
                }
                words = decode_words(&d, format, words);
                note(&met, words);
                put_backwards(last - u, width - u, apart, _mm512_permutexvar_epi16(backwards, words));
            }
            for (int64_t u = high; u < width; u += 32)
                put_backwards(last - u, width - u, apart, _mm512_setzero_si512());
        }
    note_range(range, &met);
}

static void SUFFIX(frame_codes)(uint16_t *origin, ptrdiff_t pitch, int64_t channels, int64_t lines, ptrdiff_t line_pitch, int64_t width,
                                int64_t low, int64_t high, const void *source, int format, int64_t channel_stride,
                                int64_t line_stride, int64_t step, code_range *range)
{
    if (format == NUMBER_BFLOAT16)
        frame_codes_format(origin, pitch, channels, lines, line_pitch, width, low, high, source, NUMBER_BFLOAT16, channel_stride,
                           line_stride, step, range);
    else
        frame_codes_format(origin, pitch, channels, lines, line_pitch, width, low, high, source, format, channel_stride,
                           line_stride, step, range);
}
