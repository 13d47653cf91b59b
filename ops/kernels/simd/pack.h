/* The memory side of simd/tile.h, which includes this: panels, frames and blocks from stored numbers. */

/* ------------------------------------------------------------------------------------------------------------------
 * Packing: stored numbers to panels of floats
 */

/* Calls `function` with the constant `known_format` in place of the number format: one loop, compiled for each. */
#define IF_FORMAT(f, function, ...)                                                                                      \
    case f: {                                                                                                            \
        enum { known_format = f };                                                                                       \
        function(__VA_ARGS__);                                                                                           \
        break;                                                                                                           \
    }
#define BY_FORMAT(format, ...)                                                                                           \
    switch (format) {                                                                                                    \
        IF_FORMAT(NUMBER_FLOAT32, __VA_ARGS__)                                                                           \
        IF_FORMAT(NUMBER_FLOAT16, __VA_ARGS__)                                                                           \
        IF_FORMAT(NUMBER_BFLOAT16, __VA_ARGS__)                                                                          \
        IF_FORMAT(NUMBER_FLOAT8_E4M3FN, __VA_ARGS__)                                                                     \
        IF_FORMAT(NUMBER_FLOAT8_E5M2, __VA_ARGS__)                                                                       \
        IF_FORMAT(NUMBER_HIFLOAT8, __VA_ARGS__)                                                                          \
    }

#include "simd/load.h"
#include "simd/pack_strided.h"
#include "simd/decode.h"

#include "simd/frames.h"
#include "simd/pack_joined.h"

enum { MOVES = 3 * TILE_LANES };

typedef struct { /* a vector of a panel: `count` numbers from `offset` on, zeros after them */
    int64_t offset;
    int64_t lane;
    int64_t count;
} vector_move;

/* Spans as moves of vectors; 0 where they are too many or not side by side.  Vectors are stored whole: what overruns a
 * span is overwritten by the next. */
INLINE int64_t plan_moves(vector_move *moves, const lane_span *spans, int64_t span_count)
{
    int64_t number = 0;
    for (int64_t s = 0; s < span_count; s++) {
        if (spans[s].offset != NO_ELEMENT && spans[s].step != 1 && spans[s].count > 1)
            return 0;
        for (int64_t i = 0; i < spans[s].count; i += WIDTH) {
            if (number == MOVES)
                return 0;
            int64_t left = spans[s].count - i;
            moves[number++] = spans[s].offset == NO_ELEMENT
                                  ? (vector_move){0, spans[s].lane + i, 0}
                                  : (vector_move){spans[s].offset + i, spans[s].lane + i, left < WIDTH ? left : WIDTH};
        }
    }
    return number;
}

#if WIDTH > 4
enum { ROWS_TOGETHER = WIDTH == 8 ? 4 : 2 };

/* A vector of 8-bit codes of each of ROWS_TOGETHER rows, as floats. */
INLINE void decode_rows(const void *const *row, int format, vector *floats)
{
#if WIDTH == 16
    const decoder d = decoder_of(format);
    __m512i codes = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(row[1])), 16);
    codes = decode_words(&d, format, _mm512_or_si512(codes, _mm512_cvtepu8_epi32(_mm_loadu_si128(row[0]))));
    floats_of_words(codes, floats, floats + 1);
#else
    __m128i low = _mm_unpacklo_epi64(_mm_loadl_epi64(row[0]), _mm_loadl_epi64(row[1]));
    __m128i high = _mm_unpacklo_epi64(_mm_loadl_epi64(row[2]), _mm_loadl_epi64(row[3]));
    decode_four(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1), format, floats);
#endif
}

/* Whole moves of ROWS_TOGETHER steps. */
INLINE void move_together(float *panel, ptrdiff_t pitch, const uint8_t *row, int format, int64_t stride, const vector_move *moves,
                          int64_t move_count)
{
    for (int k = 0; k < ROWS_TOGETHER; k++)
        __builtin_prefetch(row + moves[0].offset + (8 + k) * stride); /* as below */
    for (int64_t i = 0; i < move_count; i++) {
        const void *first[ROWS_TOGETHER];
        vector floats[ROWS_TOGETHER];
#pragma GCC unroll 4
        for (int k = 0; k < ROWS_TOGETHER; k++)
            first[k] = row + moves[i].offset + k * stride;
        decode_rows(first, format, floats);
#pragma GCC unroll 4
        for (int k = 0; k < ROWS_TOGETHER; k++)
            *(vector *)(panel + k * pitch + moves[i].lane) = floats[k];
    }
}

/* A vector of fewer numbers overruns its place, so that the next must be written after it. */
INLINE int whole_moves(const vector_move *moves, int64_t move_count)
{
    int whole = 1;
    for (int64_t i = 0; i < move_count; i++)
        whole &= moves[i].count == WIDTH;
    return whole;
}
#endif

enum { STEPS_AHEAD = 4 }; /* whose lines are asked for */

INLINE void gather_side_by_side(float *panel, ptrdiff_t pitch, int64_t steps, const void *source, int format, int64_t stride,
                                const lane_span *spans, int64_t span_count)
{
    if (format == NUMBER_FLOAT32 && gather_joined(panel, pitch, steps, source, stride, spans, span_count))
        return;
    vector_move moves[MOVES];
    int64_t move_count = plan_moves(moves, spans, span_count);
    if (move_count) {
        int64_t k = 0;
#if WIDTH > 4
        for (int whole = code_size(format) == 1 && whole_moves(moves, move_count); whole && k + ROWS_TOGETHER <= steps; k += ROWS_TOGETHER)
            move_together(panel + k * pitch, pitch, at(source, format, k * stride), format, stride, moves, move_count);
#endif
        for (; k < steps; k++) {
            const void *row = at(source, format, k * stride);
            __builtin_prefetch(at(row, format, moves[0].offset + 8 * stride)); /* channels are too far apart to be foreseen */
            for (int64_t i = 0; i < move_count; i++)
                *(vector *)(panel + k * pitch + moves[i].lane) =
                    load_vector(at(row, format, moves[i].offset), format, moves[i].count);
        }
        return;
    }
    for (int64_t k = 0; k < steps; k++)
        for (int64_t s = 0; s < span_count; s++) {
            float *lanes = panel + k * pitch + spans[s].lane;
            const int64_t count = spans[s].count, step = spans[s].step;
            if (spans[s].offset == NO_ELEMENT) {
                for (int64_t i = 0; i < count; i += WIDTH)
                    *(vector *)(lanes + i) = (vector){0};
                continue;
            }
            const int64_t offset = spans[s].offset + k * stride;
            if (step == 2)
                decode_every_other(lanes, at(source, format, offset), format, count, at(source, format, offset + STEPS_AHEAD * stride));
            else if (step > 2 && step <= APART)
                decode_apart(lanes, at(source, format, offset), format, step, count, at(source, format, offset + STEPS_AHEAD * stride));
            else
                for (int64_t i = 0; i < count; i++)
                    lanes[i] = load_number(source, format, offset + i * step);
        }
}

INLINE quad load_quad(const void *source, int format, int64_t offset)
{
    if (format == NUMBER_FLOAT32)
        return *(const quad *)((const float *)source + offset);
    if (format == NUMBER_BFLOAT16)
        return (quad)(__builtin_convertvector(*(const quad_half *)((const uint16_t *)source + offset), quad_uint) << 16);
#if WIDTH > 4
    if (format == NUMBER_FLOAT16)
        return (quad)_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)((const uint16_t *)source + offset)));
#endif
    return (quad){load_number(source, format, offset), load_number(source, format, offset + 1),
                  load_number(source, format, offset + 2), load_number(source, format, offset + 3)};
}

#include "simd/transpose.h"

INLINE int all_elements(const int64_t *offset, int64_t count)
{
    int all = 1;
    for (int64_t i = 0; i < count; i++)
        all &= offset[i] != NO_ELEMENT;
    return all;
}

/* Element at step 0 of every lane from `first` on, of TILE_LANES lanes at most; returns their number. */
INLINE int64_t lane_offsets_from(int64_t first, int64_t *offset, const lane_span *spans, int64_t span_count)
{
    int64_t lanes = 0, skipped = first;
    for (int64_t s = 0; s < span_count; s++) {
        int64_t i = skipped < spans[s].count ? skipped : spans[s].count;
        skipped -= i;
        for (; i < spans[s].count && lanes < TILE_LANES; i++)
            offset[lanes++] = spans[s].offset == NO_ELEMENT ? NO_ELEMENT : spans[s].offset + i * spans[s].step;
    }
    return lanes;
}

/* The same for a panel, which has no more lanes than that. */
INLINE int64_t lane_offsets(int64_t *offset, const lane_span *spans, int64_t span_count)
{
    return lane_offsets_from(0, offset, spans, span_count);
}

#if WIDTH > 4
/* n <= WIDTH numbers from `step` on of as many lines. */
INLINE void load_lines(vector_bits *row, const void *source, int format, const int64_t *offset, int64_t step, int64_t n)
{
#if WIDTH == 8
    if (code_size(format) == 1 && n == 8) {
        const void *first[8];
        for (int i = 0; i < 8; i++)
            first[i] = at(source, format, offset[i] + step);
        decode_rows(first, format, (vector *)row);
        decode_rows(first + 4, format, (vector *)row + 4);
        return;
    }
#endif
    for (int i = 0; i < WIDTH; i++)
        row[i] = (vector_bits)load_vector(at(source, format, offset[i] + step), format, n);
}
#endif

#if WIDTH == 16
/* 16 lanes at `offset`: of as many steps as 16 bytes hold the codes are transposed, and then decoded; returns how many are done. */
INLINE int64_t transpose_codes(float *panel, ptrdiff_t pitch, int64_t steps, const void *source, int format, const int64_t *offset)
{
    const int64_t together = 16 / code_size(format);
    const decoder d = code_size(format) == 1 ? decoder_of(format) : (decoder){0};
    int64_t k = 0;
    for (; k + together <= steps; k += together) {
        __m512i rows[4];
        transpose_sixteen(rows, source, format, offset, k);
        put_steps(panel + k * pitch, pitch, rows, format, &d);
    }
    return k;
}
#endif

/* Lanes at `offset`, whose steps lie side by side: squares are transposed in registers, of 16 lanes as codes of 16 bytes each, otherwise
 * WIDTH x WIDTH numbers, and what is left 4 x 4. */
INLINE void transpose_lanes(float *panel, ptrdiff_t pitch, int64_t steps, const void *source, int format, const int64_t *offset,
                            int64_t lanes)
{
    int64_t l = 0;
#if WIDTH > 4
    for (; l + WIDTH <= lanes && all_elements(offset + l, WIDTH); l += WIDTH) {
        int64_t k = 0;
        for (int64_t i = l + 2 * WIDTH; (WIDTH == 8 || format != NUMBER_FLOAT32) && i < l + 3 * WIDTH && i < lanes; i++)
            if (offset[i] != NO_ELEMENT) /* lines too short to be foreseen */
                __builtin_prefetch(at(source, format, offset[i]));
#if WIDTH == 16
        k = transpose_codes(panel + l, pitch, steps, source, format, offset + l);
        for (; format == NUMBER_FLOAT32 && k < steps; k++)
            for (int i = 0; i < 16; i++)
                panel[k * pitch + l + i] = load_number(source, format, offset[l + i] + k);
#endif
        for (; k < steps; k += WIDTH) {
            int64_t some = steps - k < WIDTH ? steps - k : WIDTH;
            vector_bits rows[WIDTH];
            load_lines(rows, source, format, offset + l, k, some);
            transpose_vectors(rows);
            for (int i = 0; i < some; i++)
                *(vector *)(panel + (k + i) * pitch + l) = (vector)rows[i];
        }
    }
#endif
    for (; l < lanes; l += 4) {
        int64_t k = 0;
        if (l + 4 <= lanes && all_elements(offset + l, 4))
            for (; k + 4 <= steps; k += 4) {
                quad square[4];
                for (int i = 0; i < 4; i++)
                    square[i] = load_quad(source, format, offset[l + i] + k);
                transpose_quads(square);
                for (int i = 0; i < 4; i++)
                    *(quad *)(panel + (k + i) * pitch + l) = square[i];
            }
        for (int64_t i = l; i < lanes && i < l + 4; i++)
            for (int64_t j = k; j < steps; j++)
                panel[j * pitch + i] = offset[i] == NO_ELEMENT ? 0.0f : load_number(source, format, offset[i] + j);
    }
}

/* Steps of the reduction lie side by side. A line may have any number of lanes. */
INLINE void gather_transposed(float *panel, ptrdiff_t pitch, int64_t steps, const void *source, int format,
                              const lane_span *spans, int64_t span_count)
{
    int64_t offset[TILE_LANES], all = spans[span_count - 1].lane + spans[span_count - 1].count;
    for (int64_t first = 0; first < all; first += TILE_LANES)
        transpose_lanes(panel + first, pitch, steps, source, format, offset, lane_offsets_from(first, offset, spans, span_count));
}

INLINE void gather_format(float *panel, ptrdiff_t pitch, int64_t steps, const void *source, int format, int64_t stride,
                          const lane_span *spans, int64_t span_count)
{
    const lane_span *last = spans + span_count - 1;
    int short_runs = last->step != 1 || span_count * 8 > last->lane + last->count;
    if (stride == 1 && steps >= 4 && short_runs)
        gather_transposed(panel, pitch, steps, source, format, spans, span_count);
    else
        gather_side_by_side(panel, pitch, steps, source, format, stride, spans, span_count);
}

static void SUFFIX(gather)(float *panel, ptrdiff_t pitch, int64_t steps, const void *source, int format, int64_t stride,
                           const lane_span *spans, int64_t span_count)
{
    BY_FORMAT(format, gather_format, panel, pitch, steps, source, known_format, stride, spans, span_count)
}

/* Rows and channels that are both far apart in memory have their taps near: walk the taps of one place before the next. */
#include "simd/pack_tap_rows.h"

static int SUFFIX(finite)(const float *values, int64_t count)
{
    int32_t largest = 0; /* magnitude: compilers take a maximum in vectors */
    for (int64_t i = 0; i < count; i++) {
        int32_t magnitude = (int32_t)(float_bits(values[i]) & 0x7fffffffu);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest < 0x7f800000;
}
