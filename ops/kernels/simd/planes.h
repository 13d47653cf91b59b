/* Depthwise sums of planes that are stored channels first, with channels as lanes: as many planes as lanes are transposed to one
 * vector for each position, and results back.  No position lies beside a vector's end, so nothing is masked, and a tap outside is no
 * term.  simd/tile.h includes this after simd/store.h; of 8 and 16 lanes. */
#include "simd/plane_words.h"

/* What is asked for beside position p, of so many at a time, `ahead` bytes further: a cache line of a quarter of the planes, `step`
 * bytes apart, so that each is asked for once. */
INLINE const char *later_planes(const void *source, int64_t p, int64_t together, int64_t size, int64_t step, int64_t ahead)
{
    return (const char *)source + p * size / 64 * 64 + p / together % 4 * (WIDTH / 4) * step + ahead;
}

INLINE void load_planes_format(float *block, int64_t count, const void *source, int format, int64_t apart, int64_t ahead)
{
    const int codes = codes_of_word(format);
    const int64_t size = 4 / codes, step = apart * size, together = 4 * codes;
    const decoder d = decoder_of(codes == 4 ? format : NUMBER_BFLOAT16);
    for (int64_t p = 0; p < count; p += together) {
        int64_t first = p + together <= count ? p : count - together; /* the last ones overlap */
        vector_bits word[WIDTH];
        if (count < together) {
            first = 0;
            load_few_words(word, source, step, count * size);
        } else
            load_plane_words(word, (const char *)source + first * size, step);
        const char *later = later_planes(source, p, together, size, step, ahead);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            vector number[4];
            if (k < WIDTH / 4)
                __builtin_prefetch(later + k * step);
            if (codes == 4 && first + (k + 1) * codes <= p) /* these are there already */
                continue;
            decode_word(&d, format, word[k], number);
#pragma GCC unroll 4
            for (int j = 0; j < codes; j++)
                if (count >= together || k * codes + j < count)
                    *(vector *)(block + (first + k * codes + j) * WIDTH) = number[j];
        }
    }
}

static void SUFFIX(load_planes)(float *block, int64_t count, const void *source, int format, int64_t apart, int64_t ahead)
{
    BY_FORMAT(format, load_planes_format, block, count, source, known_format, apart, ahead)
}

/* The next `words` words of the planes, of finished sums; numbers from `count` on are 0.  If they are `normal`, none is subnormal or
 * -0, and there is no bias. */
INLINE void encode_words(vector_bits *word, int words, int format, const float *block, int64_t count, vector bias, int normal)
{
    const int codes = codes_of_word(format);
#pragma GCC unroll 16
    for (int k = 0; k < words; k++) {
        vector done[4];
#pragma GCC unroll 4
        for (int j = 0; j < codes; j++)
            if (k * codes + j < count)
                done[j] = *(const vector *)(block + (k * codes + j) * WIDTH);
            else
                done[j] = (vector){0};
        if (!normal)
#pragma GCC unroll 4
            for (int j = 0; j < codes; j++)
                done[j] = done[j] + BROADCAST(0.0f) + bias;
        word[k] = word_of(format, done, normal);
    }
}

#if WIDTH == 16
/* Numbers that fill at most 16 words, in rows of the planes under a mask. */
INLINE void store_some_words(vector_bits *word, char *place, int64_t step, int64_t first_plane, int format, const float *block,
                             int64_t count, vector bias, int normal)
{
    const int codes = codes_of_word(format);
    const int64_t whole = count / codes;
    for (int64_t k = 0; k < whole; k++)
        encode_words(word + k, 1, format, block + k * codes * WIDTH, codes, bias, normal);
    if (whole * codes < count)
        encode_words(word + whole, 1, format, block + whole * codes * WIDTH, count - whole * codes, bias, normal);
    transpose_vectors(word);
    for (int64_t i = first_plane; i < WIDTH; i++)
        _mm512_mask_storeu_epi8(place + i * step, first_bytes(count * (4 / codes)), word[i]);
}
#endif

INLINE void store_planes_format(void *target, int format, int64_t apart, int64_t first_plane, const float *block, int64_t count,
                                const float *bias, int normal)
{
    const int codes = codes_of_word(format), few = 4 * codes, many = WIDTH * codes;
    const int64_t size = 4 / codes, step = apart * size;
    vector start = bias ? *(const vector *)bias : (vector){0};
    vector_bits word[WIDTH];
    int64_t p = 0;
    for (; p + many <= count; p += many) {
        char *place = (char *)target + p * size;
        encode_words(word, WIDTH, format, block + p * WIDTH, many, start, normal);
        transpose_vectors(word);
#pragma GCC unroll 16
        for (int i = 0; i < WIDTH; i++)
            if (i >= first_plane)
                memcpy(place + i * step, &word[i], 4 * WIDTH);
    }
#if WIDTH == 16
    if (count - p > few || count < few) {
        store_some_words(word, (char *)target + p * size, step, first_plane, format, block + p * WIDTH, count - p, start, normal);
        return;
    }
#endif
    for (; p < count && count >= few; p += few) { /* the last ones overlap */
        int64_t first = p + few <= count ? p : count - few;
        char *place = (char *)target + first * size;
        encode_words(word, 4, format, block + first * WIDTH, few, start, normal);
        transpose_four(word);
#pragma GCC unroll 16
        for (int i = 0; i < WIDTH; i++)
            if (i >= first_plane)
                _mm_storeu_si128((__m128i *)(place + i * step), part_of(word[i % 4], i / 4));
    }
#if WIDTH == 8
    if (count < few) {
        encode_words(word, 4, format, block, count, start, normal);
        store_four_words(target, step, first_plane, WIDTH, count * size, word);
    }
#endif
}

static void SUFFIX(store_planes)(void *target, int format, int64_t apart, int64_t first_plane, const float *block, int64_t count,
                                 const float *bias)
{
    BY_FORMAT(format, store_planes_format, target, known_format, apart, first_plane, block, count, bias, 0)
}

/* Sums and factors that registers hold beside the number that they meet; of more, factors are operands in memory. */
enum { PLANE_REGISTERS = WIDTH == 16 ? 32 : 16 };

/* One row of taps, or of pairs of them, which meet every other position: an input is loaded once and added to all outputs whose
 * taps meet it. */
INLINE void plane_steps(int outputs, int taps, vector *sum, const float *input, ptrdiff_t step, const float *weights, int64_t low,
                        int64_t high, int pairs)
{
    const int apart = pairs ? 2 : 1;
    vector weight[PLANE_TAPS];
#pragma GCC unroll 7
    for (int t = 0; t < taps; t++) {
        weight[t] = *(const vector *)(weights + t * WIDTH);
        if (outputs + taps < PLANE_REGISTERS)
            KEEP(weight[t]);
    }
#pragma GCC unroll 26
    for (int i = 0; i < outputs + (taps - 1) * apart; i++) {
        if (i >= low && i < high) {
            vector lanes = *(const vector *)input;
            KEEP(lanes);
#pragma GCC unroll 7
            for (int t = 0; t < taps; t++) {
                const int j = i - t * apart;
                if (j >= 0 && j < outputs)
                    sum[j] = pairs ? MULTIPLY_ADD_PAIRS(weight[t], lanes, sum[j]) : MULTIPLY_ADD(weight[t], lanes, sum[j]);
            }
        }
        input += step;
    }
}

/* A line of pairs begins one position before its first number: `simd/plane_pairs.h`. */
INLINE void planes_body(int outputs, const plane_row *rows, int64_t row_count, const float *input, int64_t extent, int64_t at,
                        int direction, const float *weights, float *target, ptrdiff_t target_step, int pairs)
{
    vector sum[PLANE_OUTPUTS];
#pragma GCC unroll 14
    for (int j = 0; j < outputs; j++)
        sum[j] = (vector){0};
    for (int64_t r = 0; r < row_count; r++) {
        int64_t x = rows[r].first + at, high = direction > 0 ? extent - x : x + 1;
        int64_t low = (direction > 0 ? -x : x - extent + 1) - pairs;
        const float *place = input + (rows[r].line + x + (pairs && direction > 0)) * WIDTH, *factors = weights + rows[r].weights * WIDTH;
        switch (rows[r].taps) {
#define PLANE_STEPS(taps)                                                                       \
    case taps:                                                                                  \
        plane_steps(outputs, taps, sum, place, direction * WIDTH, factors, low, high, pairs);   \
        break;
            PLANE_STEPS(1) PLANE_STEPS(2) PLANE_STEPS(3) PLANE_STEPS(4) PLANE_STEPS(5) PLANE_STEPS(6) PLANE_STEPS(7)
#undef PLANE_STEPS
        }
    }
#pragma GCC unroll 14
    for (int j = 0; j < outputs; j++)
        *(vector *)(target + j * target_step) = sum[j];
}

#define PLANES(outputs)                                                                                                           \
    static void SUFFIX(planes_##outputs)(const plane_row *rows, int64_t row_count, const float *input, int64_t extent, int64_t at, \
                                         int direction, const float *weights, float *target, ptrdiff_t target_step)                \
    {                                                                                                                             \
        planes_body(outputs, rows, row_count, input, extent, at, direction, weights, target, target_step, 0);                     \
    }
PLANES(1) PLANES(2) PLANES(3) PLANES(4) PLANES(7) PLANES(8) PLANES(14)

/* Neighbouring outputs share no input here: each number is an operand in memory. */
INLINE void dilated_planes_body(int outputs, const plane_row *rows, int64_t row_count, const float *input, int64_t extent, int64_t at,
                                int64_t dilation, const float *weights, float *target, ptrdiff_t target_step)
{
    vector sum[PLANE_OUTPUTS];
#pragma GCC unroll 14
    for (int j = 0; j < outputs; j++)
        sum[j] = (vector){0};
    for (int64_t r = 0; r < row_count; r++) {
        const vector *weight = (const vector *)(weights + rows[r].weights * WIDTH);
        for (int64_t t = 0; t < rows[r].taps; t++) {
            const int64_t x = rows[r].first + at + t * dilation;
            if (x + outputs <= 0 || x >= extent)
                continue;
            const float *place = input + (rows[r].line + x) * WIDTH;
            if (x >= 0 && x + outputs <= extent) {
#pragma GCC unroll 14
                for (int j = 0; j < outputs; j++)
                    sum[j] = MULTIPLY_ADD(weight[t], *(const vector *)(place + j * WIDTH), sum[j]);
            } else
#pragma GCC unroll 14
                for (int j = 0; j < outputs; j++)
                    if (x + j >= 0 && x + j < extent)
                        sum[j] = MULTIPLY_ADD(weight[t], *(const vector *)(place + j * WIDTH), sum[j]);
        }
    }
#pragma GCC unroll 14
    for (int j = 0; j < outputs; j++)
        *(vector *)(target + j * target_step) = sum[j];
}

#define DILATED_PLANES(outputs)                                                                                                   \
    static void SUFFIX(dilated_planes_##outputs)(const plane_row *rows, int64_t row_count, const float *input, int64_t extent,     \
                                                 int64_t at, int64_t dilation, const float *weights, float *target,                \
                                                 ptrdiff_t target_step)                                                            \
    {                                                                                                                             \
        dilated_planes_body(outputs, rows, row_count, input, extent, at, dilation, weights, target, target_step);                  \
    }
DILATED_PLANES(1) DILATED_PLANES(2) DILATED_PLANES(3) DILATED_PLANES(4) DILATED_PLANES(7) DILATED_PLANES(8) DILATED_PLANES(14)

/* Sums of `taps` taps of one row for `count` chains, along lines of which every 16th position belongs to a chain. */
INLINE void planes_weights_body(int taps, int count, int stride, float *sums, ptrdiff_t tap_step, const float *large,
                                ptrdiff_t large_line, ptrdiff_t large_image, const float *small, ptrdiff_t small_line,
                                ptrdiff_t small_image, int64_t images, int64_t lines, int64_t blocks, int64_t low, int64_t high)
{
    vector sum[PLANE_TAPS][PLANE_TAPS];
    int64_t left = lines;
#pragma GCC unroll 7
    for (int t = 0; t < taps; t++)
#pragma GCC unroll 7
        for (int j = 0; j < count; j++)
            sum[t][j] = *(const vector *)(sums + t * tap_step + j * WIDTH);
    for (int64_t line = 0; line < images * lines; line++) {
        const float *far = large, *near = small;
        int64_t first = low, end = high;
        large += large_line;
        small += small_line;
        if (--left == 0) {
            left = lines;
            large += large_image - lines * large_line;
            small += small_image - lines * small_line;
        }
        for (int64_t block = 0; block < blocks; block++) {
            vector own[PLANE_TAPS];
#pragma GCC unroll 7
            for (int j = 0; j < count; j++) {
                own[j] = *(const vector *)(near + j * WIDTH);
                if ((taps + 1) * count < PLANE_REGISTERS)
                    KEEP(own[j]);
            }
#pragma GCC unroll 20
            for (int i = 0; i < (count - 1) * stride + taps; i++)
                if (i >= first && i < end) {
                    vector lanes = *(const vector *)(far + i * WIDTH);
                    KEEP(lanes);
#pragma GCC unroll 7
                    for (int j = 0; j < count; j++)
                        if (i - j * stride >= 0 && i - j * stride < taps)
                            sum[i - j * stride][j] = MULTIPLY_ADD(lanes, own[j], sum[i - j * stride][j]);
                }
            far += DOT_LANES * stride * WIDTH;
            near += DOT_LANES * WIDTH;
            first -= DOT_LANES * stride;
            end -= DOT_LANES * stride;
        }
    }
#pragma GCC unroll 7
    for (int t = 0; t < taps; t++)
#pragma GCC unroll 7
        for (int j = 0; j < count; j++)
            *(vector *)(sums + t * tap_step + j * WIDTH) = sum[t][j];
}

#define PLANES_WEIGHTS(stride, taps, count)                                                                                   \
    static void SUFFIX(planes_weights_##stride##_##taps##_##count)(                                                           \
        float *sums, ptrdiff_t tap_step, const float *large, ptrdiff_t large_line, ptrdiff_t large_image, const float *small, \
        ptrdiff_t small_line, ptrdiff_t small_image, int64_t images, int64_t lines, int64_t blocks, int64_t low,              \
        int64_t high)                                                                                                         \
    {                                                                                                                         \
        planes_weights_body(taps, count, stride, sums, tap_step, large, large_line, large_image, small, small_line,           \
                            small_image, images, lines, blocks, low, high);                                                   \
    }
/* As many chains as the registers hold sums beside the numbers of the small side. */
#define PLANES_WEIGHTS_2(stride, taps) PLANES_WEIGHTS(stride, taps, 1) PLANES_WEIGHTS(stride, taps, 2)
#define PLANES_WEIGHTS_3(stride, taps) PLANES_WEIGHTS_2(stride, taps) PLANES_WEIGHTS(stride, taps, 3)
#define PLANES_WEIGHTS_4(stride, taps) PLANES_WEIGHTS_3(stride, taps) PLANES_WEIGHTS(stride, taps, 4)
#define PLANES_WEIGHTS_5(stride, taps) PLANES_WEIGHTS_4(stride, taps) PLANES_WEIGHTS(stride, taps, 5)
#define PLANES_WEIGHTS_7(stride, taps) \
    PLANES_WEIGHTS_5(stride, taps) PLANES_WEIGHTS(stride, taps, 6) PLANES_WEIGHTS(stride, taps, 7)
#if WIDTH == 16
#define PLANES_WEIGHTS_STRIDE(stride)                                                                         \
    PLANES_WEIGHTS_7(stride, 1) PLANES_WEIGHTS_7(stride, 2) PLANES_WEIGHTS_7(stride, 3) PLANES_WEIGHTS_5(stride, 4) \
    PLANES_WEIGHTS_4(stride, 5) PLANES_WEIGHTS_4(stride, 6) PLANES_WEIGHTS_3(stride, 7)
#else
#define PLANES_WEIGHTS_STRIDE(stride)                                                                         \
    PLANES_WEIGHTS_7(stride, 1) PLANES_WEIGHTS_7(stride, 2) PLANES_WEIGHTS_4(stride, 3) PLANES_WEIGHTS_3(stride, 4) \
    PLANES_WEIGHTS_2(stride, 5) PLANES_WEIGHTS_2(stride, 6) PLANES_WEIGHTS_2(stride, 7)
#endif
PLANES_WEIGHTS_STRIDE(1) PLANES_WEIGHTS_STRIDE(2)

#define PLANES_ENTRY(stride, taps, count) SUFFIX(planes_weights_##stride##_##taps##_##count)
#define PLANES_2(stride, taps) PLANES_ENTRY(stride, taps, 1), PLANES_ENTRY(stride, taps, 2)
#define PLANES_3(stride, taps) PLANES_2(stride, taps), PLANES_ENTRY(stride, taps, 3)
#define PLANES_4(stride, taps) PLANES_3(stride, taps), PLANES_ENTRY(stride, taps, 4)
#define PLANES_5(stride, taps) PLANES_4(stride, taps), PLANES_ENTRY(stride, taps, 5)
#define PLANES_7(stride, taps) PLANES_5(stride, taps), PLANES_ENTRY(stride, taps, 6), PLANES_ENTRY(stride, taps, 7)
#if WIDTH == 16
#define PLANES_STRIDE(stride)                                                                                            \
    {{PLANES_7(stride, 1)}, {PLANES_7(stride, 2)}, {PLANES_7(stride, 3)}, {PLANES_5(stride, 4)}, {PLANES_4(stride, 5)}, \
     {PLANES_4(stride, 6)}, {PLANES_3(stride, 7)}}
#else
#define PLANES_STRIDE(stride)                                                                                            \
    {{PLANES_7(stride, 1)}, {PLANES_7(stride, 2)}, {PLANES_4(stride, 3)}, {PLANES_3(stride, 4)}, {PLANES_2(stride, 5)}, \
     {PLANES_2(stride, 6)}, {PLANES_2(stride, 7)}}
#endif
#define ALL_PLANES {SUFFIX(load_planes), SUFFIX(store_planes), \
    {SUFFIX(planes_1), SUFFIX(planes_2), SUFFIX(planes_3), SUFFIX(planes_4), SUFFIX(planes_7), SUFFIX(planes_8), \
     SUFFIX(planes_14)}, \
    {SUFFIX(dilated_planes_1), SUFFIX(dilated_planes_2), SUFFIX(dilated_planes_3), SUFFIX(dilated_planes_4), \
     SUFFIX(dilated_planes_7), SUFFIX(dilated_planes_8), SUFFIX(dilated_planes_14)}, \
    {PLANES_STRIDE(1), PLANES_STRIDE(2)}}
