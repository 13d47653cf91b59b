/* What tile.h has for floats, for pairs of bfloat16 steps: included after it where MULTIPLY_ADD_PAIRS is defined. */

#define PAIR_TILE(rows, vectors)                                                                                         \
    static void SUFFIX(pairs_##rows##_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,       \
                                                 const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume)    \
    {                                                                                                                    \
        tile_body(rows, vectors, runs, run_count, row_panel, NULL, ROWS, lane_panel, lane_pitch, c, resume, NULL, 1);     \
    }                                                                                                                    \
    static void SUFFIX(strided_pairs_##rows##_##vectors)(const tile_run *runs, ptrdiff_t run_count,                       \
                                                         const float *row_panel, const int64_t *offsets,                 \
                                                         ptrdiff_t row_step, const float *lane_panel,                    \
                                                         ptrdiff_t lane_pitch, float *c, int resume)                     \
    {                                                                                                                    \
        tile_body(rows, vectors, runs, run_count, row_panel, offsets, row_step, lane_panel, lane_pitch, c, resume, NULL,  \
                  1);                                                                                                    \
    }
#define PAIR_TILES(rows) PAIR_TILE(rows, 1) PAIR_TILE(rows, 2) PAIR_TILE(rows, 3)
PAIR_TILES(1) PAIR_TILES(2) PAIR_TILES(3) PAIR_TILES(4) PAIR_TILES(5) PAIR_TILES(6) PAIR_TILES(7) PAIR_TILES(8)

static void SUFFIX(pair_lines)(const tile_run *runs, ptrdiff_t run_count, const float *rows, const float *lanes,
                               ptrdiff_t lane_pitch, ptrdiff_t line_pitch, int64_t lines, int64_t count, float *target,
                               ptrdiff_t target_pitch, float bias)
{
    lines_body(runs, run_count, rows, lanes, lane_pitch, line_pitch, lines, count, target, target_pitch, bias, 1);
}

/* Magnitudes of both halves, less one so that zero is the largest. */
INLINE __m512i smaller(__m512i smallest, vector_uint pairs)
{
    __m512i magnitude = _mm512_and_si512((__m512i)pairs, _mm512_set1_epi16(0x7fff));
    return _mm512_min_epu16(smallest, _mm512_sub_epi16(magnitude, _mm512_set1_epi16(1)));
}

INLINE void note_smallest(uint16_t *smallest, __m512i found)
{
    uint16_t all[32];
    memcpy(all, &found, sizeof all);
    for (int i = 0; i < 32; i++)
        if (all[i] < *smallest)
            *smallest = all[i];
}

/* n bfloat16 codes as the upper halves of floats. */
INLINE vector_uint upper_halves(const void *p, int format, int64_t n, int64_t step)
{
    return (vector_uint)(step == 1 ? load_vector(p, format, n) : load_every_other(p, format, n));
}

INLINE vector_uint load_pair_lanes(const void *first, const void *second, int format, int64_t n, int64_t step)
{
    vector_uint pairs = upper_halves(first, format, n, step);
    if (second)
        pairs |= upper_halves(second, format, n, step) >> 16;
    return pairs;
}

INLINE uint32_t load_pair(const void *first, const void *second, int format, int64_t offset)
{
    uint32_t upper = float_bits(load_number(first, format, offset));
    return second ? upper | float_bits(load_number(second, format, offset)) >> 16 : upper;
}

INLINE void gather_pairs_format(float *panel, ptrdiff_t pitch, int64_t channels, const void *source, int format, int64_t stride,
                                const lane_span *spans, int64_t span_count, uint16_t *smallest)
{
    __m512i found = _mm512_set1_epi16(-1);
    const lane_span *last = spans + span_count - 1;
    int short_runs = last->step != 1 || span_count * 8 > last->lane + last->count;
    int64_t offset[TILE_LANES], done = 0;
    if (stride == 1 && channels >= 4 && short_runs && format == NUMBER_BFLOAT16) {
        /* Channels lie side by side: squares of 4 lanes x 4 pairs, halves swapped. */
        int64_t lanes = lane_offsets(offset, spans, span_count);
        done = channels;
        int64_t l = 0;
        for (; channels % 8 == 0 && l + 16 <= lanes && all_elements(offset + l, 16); l += 16)
            for (int64_t k = 0; k < channels; k += 8) {
                vector rows[4];
                transpose_sixteen(rows, source, offset + l, k, 2);
                for (int i = 0; i < 4; i++) {
                    vector_uint pairs = (vector_uint)_mm512_rol_epi32((__m512i)rows[i], 16);
                    found = smaller(found, pairs);
                    *(vector_uint *)(panel + (k / 2 + i) * pitch + l) = pairs;
                }
            }
        for (; l < lanes; l += 4)
            for (int64_t k = 0; k < channels; k += 8) {
                int64_t left = channels - k < 8 ? channels - k : 8;
                quad square[4];
                for (int i = 0; i < 4; i++) {
                    square[i] = (quad){0};
                    if (l + i < lanes && offset[l + i] != NO_ELEMENT)
                        square[i] = (quad)_mm_maskz_loadu_epi16((__mmask8)((1u << left) - 1),
                                                                (const uint16_t *)source + offset[l + i] + k);
                }
                transpose_quads(square);
                for (int i = 0; i < (left + 1) / 2; i++) {
                    __m128i pairs = (__m128i)square[i];
                    pairs = _mm_rol_epi32(pairs, 16);
                    found = smaller(found, (vector_uint)_mm512_broadcast_i32x4(pairs));
                    *(quad *)(panel + (k / 2 + i) * pitch + l) = (quad)pairs;
                }
            }
    }
    vector_move moves[MOVES];
    int64_t move_count = plan_moves(moves, spans, span_count);
    for (int64_t k = done; k < channels; k += 2) {
        const void *row = at(source, format, k * stride), *next = k + 1 < channels ? at(source, format, (k + 1) * stride) : NULL;
        float *place = panel + k / 2 * pitch;
        if (move_count) {
            __builtin_prefetch(at(row, format, moves[0].offset + 8 * stride));
            __builtin_prefetch(at(row, format, moves[0].offset + 9 * stride));
            for (int64_t i = 0; i < move_count; i++) {
                vector_uint pairs = load_pair_lanes(at(row, format, moves[i].offset), next ? at(next, format, moves[i].offset) : NULL,
                                                    format, moves[i].count, 1);
                found = smaller(found, pairs);
                *(vector_uint *)(place + moves[i].lane) = pairs;
            }
            continue;
        }
        for (int64_t s = 0; s < span_count; s++) {
            float *lanes = place + spans[s].lane;
            int64_t count = spans[s].count, step = spans[s].step, start = spans[s].offset;
            if (start == NO_ELEMENT)
                for (int64_t i = 0; i < count; i += WIDTH)
                    *(vector *)(lanes + i) = (vector){0};
            else if (step == 2)
                for (int64_t i = 0; i < count; i += WIDTH) {
                    vector_uint pairs = load_pair_lanes(at(row, format, start + 2 * i),
                                                        next ? at(next, format, start + 2 * i) : NULL, format, count - i, 2);
                    found = smaller(found, pairs);
                    *(vector_uint *)(lanes + i) = pairs;
                }
            else
                for (int64_t i = 0; i < count; i++) {
                    uint32_t pair = load_pair(row, next, format, start + i * step);
                    found = smaller(found, (vector_uint)_mm512_set1_epi32((int)pair));
                    memcpy(lanes + i, &pair, sizeof pair);
                }
        }
    }
    note_smallest(smallest, found);
}

static void SUFFIX(gather_pairs)(float *panel, ptrdiff_t pitch, int64_t channels, const void *source, int format, int64_t stride,
                                 const lane_span *spans, int64_t span_count, uint16_t *smallest)
{
    if (format == NUMBER_BFLOAT16)
        gather_pairs_format(panel, pitch, channels, source, NUMBER_BFLOAT16, stride, spans, span_count, smallest);
    else
        gather_pairs_format(panel, pitch, channels, source, format, stride, spans, span_count, smallest);
}

static void SUFFIX(gather_taps_pairs)(float *panel, int rows, int64_t channels, const void *source, int format,
                                      int64_t row_stride, int64_t channel_stride, const int64_t *taps, int64_t tap_count,
                                      uint16_t *smallest)
{
    __m512i found = _mm512_set1_epi16(-1);
    for (int64_t c = 0; c < channels; c += 2) {
        const void *first = at(source, format, c * channel_stride);
        const void *second = c + 1 < channels ? at(source, format, (c + 1) * channel_stride) : NULL;
        for (int64_t t = 0; t < tap_count; t++) {
            uint32_t pairs[WIDTH] = {0};
            for (int i = 0; i < rows; i++)
                pairs[i] = load_pair(first, second, format, taps[t] + i * row_stride);
            found = smaller(found, *(const vector_uint *)pairs);
            memcpy(panel + (t * ((channels + 1) / 2) + c / 2) * ROWS, pairs, ROWS * sizeof *pairs);
        }
    }
    note_smallest(smallest, found);
}

static void SUFFIX(frame_pairs)(float *block, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high,
                                const void *first, const void *second, int format, int64_t line_stride, int64_t step,
                                uint16_t *smallest)
{
    for (int64_t line = 0; line < lines; line++) {
        float *place = block + line * pitch;
        lane_span spans[3] = {{0, low, NO_ELEMENT, 0}, {low, high - low, line * line_stride, step}, {high, width - high, NO_ELEMENT, 0}};
        /* Two channels whose distance in memory is the stride. */
        int64_t size = format == NUMBER_BFLOAT16 ? 2 : 1;
        int64_t stride = second ? ((const char *)second - (const char *)first) / size : 0;
        SUFFIX(gather_pairs)(place, 0, second ? 2 : 1, first, format, stride, spans, 3, smallest);
    }
}

/* Numbers at positions first, first + 1, ... of a framed line, as upper halves. */
INLINE vector_uint framed(const void *source, int format, int64_t first, int64_t low, int64_t high)
{
    int64_t skip = low > first ? low - first : 0, end = high - first < WIDTH ? high - first : WIDTH;
    if (format != NUMBER_BFLOAT16) {
        float values[WIDTH] = {0};
        for (int64_t i = skip; i < end; i++)
            values[i] = load_number(source, format, first + i - low);
        return *(const vector_uint *)values;
    }
    __mmask16 mask = skip < end ? (__mmask16)(((1u << end) - 1) & ~((1u << skip) - 1)) : 0;
    __m256i codes = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)source + first - low);
    return (vector_uint)_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16);
}

INLINE float framed_number(const void *source, int format, int64_t position, int64_t low, int64_t high, int64_t offset, int64_t step)
{
    return position >= low && position < high ? load_number(source, format, offset + (position - low) * step) : 0.0f;
}

static void SUFFIX(frame_steps)(float *block, ptrdiff_t pitch, int64_t channels, int64_t width, int64_t low, int64_t high,
                                int64_t distance, const void *source, int format, int64_t channel_stride, int64_t step,
                                uint16_t *smallest)
{
    __m512i found = _mm512_set1_epi16(-1);
    for (int64_t c = 0; c < channels; c++) {
        if (step == 1) {
            const void *line = at(source, format, c * channel_stride);
            for (int64_t u = 0; u < width; u += WIDTH) {
                vector_uint pairs = framed(line, format, u, low, high) | framed(line, format, u + distance, low, high) >> 16;
                found = smaller(found, pairs);
                *(vector_uint *)(block + c * pitch + u) = pairs;
            }
            continue;
        }
        if (channel_stride == 1 && format == NUMBER_BFLOAT16 && c + 4 <= channels) {
            for (int64_t u = 0; u < width; u += 4) {
                quad square[4];
                for (int i = 0; i < 4; i++) {
                    __m128i upper = _mm_setzero_si128(), lower = _mm_setzero_si128();
                    int64_t first = u + i, second = u + i + distance;
                    if (first >= low && first < high)
                        upper = _mm_cvtepu16_epi32(_mm_loadu_si64((const uint16_t *)source + c + (first - low) * step));
                    if (second >= low && second < high)
                        lower = _mm_cvtepu16_epi32(_mm_loadu_si64((const uint16_t *)source + c + (second - low) * step));
                    square[i] = (quad)_mm_or_si128(_mm_slli_epi32(upper, 16), lower);
                    found = smaller(found, (vector_uint)_mm512_broadcast_i32x4((__m128i)square[i]));
                }
                transpose_quads(square);
                for (int i = 0; i < 4; i++)
                    *(quad *)(block + (c + i) * pitch + u) = square[i];
            }
            c += 3;
            continue;
        }
        for (int64_t u = 0; u < width; u++) {
            uint32_t pair = float_bits(framed_number(source, format, u, low, high, c * channel_stride, step)) |
                            float_bits(framed_number(source, format, u + distance, low, high, c * channel_stride, step)) >> 16;
            found = smaller(found, (vector_uint)_mm512_set1_epi32((int)pair));
            memcpy(block + c * pitch + u, &pair, sizeof pair);
        }
    }
    note_smallest(smallest, found);
}

static int SUFFIX(finite_pairs)(const float *pairs, int64_t count)
{
    int special = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t pair = float_bits(pairs[i]);
        special |= ((pair & 0x7f800000u) == 0x7f800000u) | ((pair & 0x7f80u) == 0x7f80u);
    }
    return !special;
}

static const pair_functions SUFFIX(pairs) = {
    .tile = ALL_ENTRIES(pairs),
    .strided = ALL_ENTRIES(strided_pairs),
    .frame_steps = SUFFIX(frame_steps),
    .lines = SUFFIX(pair_lines),
    .gather = SUFFIX(gather_pairs),
    .gather_taps = SUFFIX(gather_taps_pairs),
    .frame = SUFFIX(frame_pairs),
    .finite = SUFFIX(finite_pairs),
};
