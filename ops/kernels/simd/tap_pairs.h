/* Dot products whose lanes are (tap, channel) and whose rows are channels of the other side: included by simd/pairs.h.
 *
 * The large side lies [position][channel], each number with its partner in the upper and lower half of 32 bits: the numbers that a
 * tap meets at two positions of the small side that follow one another.  So the channels of all taps of a line are lanes side by side
 * from any position on. */

/* Numbers [first, first + 32) of 16 channels at most, decoded, and transposed: 16 positions, two numbers of a channel in each lane. */
INLINE void turn_numbers(__m512i *row, const char *source, int channels, int64_t first, int64_t low, int64_t high, int format,
                         int64_t channel_stride, const decoder *d, magnitudes *met)
{
    const uint32_t mask = chain_mask(low, high, first);
    for (int i = 0; i < 16; i++) {
        row[i] = _mm512_setzero_si512();
        if (i < channels) {
            row[i] = decode_words(d, format, load_words_masked(at(source, format, i * channel_stride + first), format, mask));
            note(met, row[i]);
        }
    }
    transpose_vectors(row);
}

INLINE void lay_tap_pairs_format(float *block, ptrdiff_t pitch, int64_t lines, int64_t columns, int64_t channels, const char *source,
                                 int format, int64_t line_stride, int64_t channel_stride, int64_t low, int64_t high, int64_t step,
                                 uint16_t *smallest)
{
    const int64_t turned = 32 - (step + 1) / 2 * 2; /* of 32 numbers: those whose partners are among them */
    const decoder d = decoder_of(format);
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    magnitudes met = none_met;
    __m512i row[16];
    const __m512i *partners = row + step / 2;
    for (int64_t line = 0; line < lines; line++)
        for (int64_t c = 0; c < channels; c += 16) {
            const int some = channels - c < 16 ? (int)(channels - c) : 16;
            const __mmask16 mask = (__mmask16)(0xffffu >> (16 - some));
            for (int64_t x = 0; x < columns; x += turned) {
                float *place = block + line * pitch + x * channels + c;
                turn_numbers(row, at(source, format, line * line_stride + c * channel_stride), some, x, low, high, format,
                             channel_stride, &d, &met);
                const int64_t end = columns - x < turned ? columns - x : turned;
                for (int64_t k = 0; 2 * k < end; k++) {
                    __m512i even, odd;
                    if (step % 2) {
                        even = _mm512_or_si512(_mm512_slli_epi32(row[k], 16), _mm512_srli_epi32(partners[k], 16));
                        odd = _mm512_or_si512(_mm512_and_si512(row[k], upper), _mm512_andnot_si512(upper, partners[k + 1]));
                    } else {
                        even = _mm512_or_si512(_mm512_slli_epi32(row[k], 16), _mm512_andnot_si512(upper, partners[k]));
                        odd = _mm512_or_si512(_mm512_and_si512(row[k], upper), _mm512_srli_epi32(partners[k], 16));
                    }
                    _mm512_mask_storeu_epi32(place + 2 * k * channels, mask, even);
                    if (2 * k + 1 < end)
                        _mm512_mask_storeu_epi32(place + (2 * k + 1) * channels, mask, odd);
                }
            }
        }
    note_smallest(smallest, &met);
}

static void SUFFIX(lay_tap_pairs)(float *block, ptrdiff_t pitch, int64_t lines, int64_t columns, int64_t channels, const void *source,
                                  int format, int64_t line_stride, int64_t channel_stride, int64_t low, int64_t high, int64_t step,
                                  uint16_t *smallest)
{
    if (format == NUMBER_BFLOAT16)
        lay_tap_pairs_format(block, pitch, lines, columns, channels, source, NUMBER_BFLOAT16, line_stride, channel_stride, low, high,
                             step, smallest);
    else
        lay_tap_pairs_format(block, pitch, lines, columns, channels, source, format, line_stride, channel_stride, low, high, step,
                             smallest);
}

/* Pairs of the last position of a line and the first of the next; NULL: zeros. */
static void SUFFIX(join_tap_pairs)(float *place, const float *first, const float *second, int64_t lanes)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000), none = _mm512_setzero_si512();
    for (int64_t i = 0; i < lanes; i += WIDTH)
        _mm512_storeu_si512(place + i, _mm512_or_si512(first ? _mm512_and_si512(upper, _mm512_loadu_si512(first + i)) : none,
                                                       second ? _mm512_srli_epi32(_mm512_loadu_si512(second + i), 16) : none));
}

typedef uint16_t __attribute__((may_alias)) any_code;

/* Numbers that follow one another in each of some rows, from position `first` on; zeros up to a vector after them. */
static void SUFFIX(lay_row_pairs)(float *rows, ptrdiff_t pitch, int64_t row_count, int64_t first, const void *source, int format,
                                  int64_t row_stride, int64_t count, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    magnitudes met = none_met;
    for (int64_t r = 0; r < row_count; r++) {
        const void *numbers = at(source, format, r * row_stride);
        any_code *place = (any_code *)(rows + r * pitch) + first;
        int64_t i = first % 2;
        if (i) { /* the lower half of a pair */
            __m512i word = decode_words(&d, format, load_words(numbers, format, 1));
            note(&met, word);
            place[-1] = (uint16_t)_mm_extract_epi16(_mm512_castsi512_si128(word), 0);
        }
        for (; i < count; i += 32) {
            __m512i words = decode_words(&d, format, load_words(at(numbers, format, i), format, count - i < 32 ? count - i : 32));
            note(&met, words);
            _mm512_storeu_si512(place + i, _mm512_rol_epi32(words, 16));
        }
    }
    note_smallest(smallest, &met);
}

INLINE void tap_pair_steps(int rows, int vectors, vector (*sum)[VECTORS], const tap_pair *step, ptrdiff_t count, const float *row_pairs,
                           ptrdiff_t pitch, const float *lanes)
{
    for (const tap_pair *end = step + count; step < end; step++) {
        const float *a = row_pairs + step->row, *b = lanes + step->lanes;
        vector lane[VECTORS];
        load_lanes(vectors, lane, b, 1);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            vector factor = BROADCAST(a[i * pitch]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                sum[i][j] = MULTIPLY_ADD_PAIRS(factor, lane[j], sum[i][j]);
        }
    }
}

INLINE void tap_pairs_body(int rows, int vectors, const tap_pair *step, const int32_t *halves, int64_t blocks, const float *row_pairs,
                           ptrdiff_t pitch, const float *lanes, float *c, ptrdiff_t c_pitch)
{
    for (int64_t block = 0; block < blocks; block++) {
        vector first[ROWS][VECTORS], second[ROWS][VECTORS];
        const int32_t count = halves[2 * block], more = halves[2 * block + 1];
        if (count + more == 0)
            continue;
        load_sums(rows, vectors, first, NULL, 0, 0);
        load_sums(rows, vectors, second, NULL, 0, 0);
        if (count == HALF_BLOCK / 2)
            tap_pair_steps(rows, vectors, first, step, HALF_BLOCK / 2, row_pairs, pitch, lanes);
        else
            tap_pair_steps(rows, vectors, first, step, count, row_pairs, pitch, lanes);
        step += count;
        if (more == HALF_BLOCK / 2)
            tap_pair_steps(rows, vectors, second, step, HALF_BLOCK / 2, row_pairs, pitch, lanes);
        else
            tap_pair_steps(rows, vectors, second, step, more, row_pairs, pitch, lanes);
        step += more;
        add_two_halves(rows, vectors, c, c_pitch / WIDTH, first, second);
    }
}

#define TAP_PAIRS(rows, vectors)                                                                                          \
    static void SUFFIX(tap_pairs_##rows##_##vectors)(const tap_pair *steps, const int32_t *halves, int64_t blocks,        \
                                                     const float *row_pairs, ptrdiff_t pitch, const float *lanes, float *c, \
                                                     ptrdiff_t c_pitch)                                                   \
    {                                                                                                                     \
        tap_pairs_body(rows, vectors, steps, halves, blocks, row_pairs, pitch, lanes, c, c_pitch);                        \
    }
TAP_PAIRS(1, 1) TAP_PAIRS(2, 1) TAP_PAIRS(3, 1) TAP_PAIRS(4, 1) TAP_PAIRS(5, 1) TAP_PAIRS(6, 1) TAP_PAIRS(7, 1) TAP_PAIRS(8, 1)
TAP_PAIRS(1, 2) TAP_PAIRS(2, 2) TAP_PAIRS(3, 2) TAP_PAIRS(4, 2) TAP_PAIRS(5, 2) TAP_PAIRS(6, 2)
TAP_PAIRS(1, 3) TAP_PAIRS(2, 3) TAP_PAIRS(3, 3) TAP_PAIRS(4, 3)
#define TAP_PAIR_ENTRY(rows, vectors) SUFFIX(tap_pairs_##rows##_##vectors)
#define TAP_PAIRS_OF(rows) {TAP_PAIR_ENTRY(rows, 1), TAP_PAIR_ENTRY(rows, 2), TAP_PAIR_ENTRY(rows, 3)}
#define TAP_PAIR_ENTRIES                                                                                                  \
    {TAP_PAIRS_OF(1), TAP_PAIRS_OF(2), TAP_PAIRS_OF(3), TAP_PAIRS_OF(4), {TAP_PAIR_ENTRY(5, 1), TAP_PAIR_ENTRY(5, 2)},    \
     {TAP_PAIR_ENTRY(6, 1), TAP_PAIR_ENTRY(6, 2)}, {TAP_PAIR_ENTRY(7, 1)}, {TAP_PAIR_ENTRY(8, 1)}}
