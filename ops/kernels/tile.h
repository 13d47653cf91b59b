/* The engine's register code, written once on vector extension types.  An isa_*.c file defines
 *
 *     SUFFIX(name)              the name of a function in this instruction set
 *     WIDTH, ROWS, VECTORS      lanes of a vector; the largest register tile
 *     BROADCAST(x)              a vector of x
 *     MULTIPLY_ADD(a, b, c)     a*b + c, rounded once
 *     LOAD_PART(p, n)           optional: the first n < WIDTH floats at p, zeros after them
 *     LOAD_HALVES(p, n)         optional: the first n <= WIDTH 16-bit codes at p, zeros after them
 *     STORE_PART(p, n, v)       optional: the first n < WIDTH floats of v to p
 *     MULTIPLY_ADD_PAIRS        optional: c plus the products of upper, then of lower bfloat16 halves; pairs.h follows
 *
 * and includes this file inside its target region.
 */
#include <string.h>

#include "isa.h"
#include "numbers.h"

typedef float vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t vector_int __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef uint32_t vector_uint __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef uint16_t vector_half __attribute__((vector_size(2 * WIDTH), aligned(2), may_alias));
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t quad_int __attribute__((vector_size(16)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (quad_int){__VA_ARGS__})
#endif

#ifndef LOAD_PART
INLINE vector load_part(const float *p, int64_t n)
{
    vector part = {0};
    for (int64_t i = 0; i < n; i++)
        part[i] = p[i];
    return part;
}
#define LOAD_PART(p, n) load_part(p, n)
#endif

#ifndef LOAD_HALVES
INLINE vector_half load_halves(const uint16_t *p, int64_t n)
{
    if (n == WIDTH)
        return *(const vector_half *)p;
    vector_half part = {0};
    for (int64_t i = 0; i < n; i++)
        part[i] = p[i];
    return part;
}
#define LOAD_HALVES(p, n) load_halves(p, n)
#endif

#ifndef MULTIPLY_ADD_PAIRS
#define MULTIPLY_ADD_PAIRS MULTIPLY_ADD /* never called */
#define PAIRS NULL
#else
static const pair_functions SUFFIX(pairs);
#define PAIRS &SUFFIX(pairs)
#endif

#ifndef STORE_PART
INLINE void store_part(float *p, int64_t n, vector values)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = values[i];
}
#define STORE_PART(p, n, v) store_part(p, n, v)
#endif

INLINE vector choose(vector_int mask, vector yes, vector no)
{
    return (vector)((mask & (vector_int)yes) | (~mask & (vector_int)no));
}

/* ------------------------------------------------------------------------------------------------------------------
 * The register tile
 */

/* Rows come from a panel, or where `offsets` is given from wherever each of them lies. */
INLINE void tile_body(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const float *row_panel,
                      const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel, ptrdiff_t lane_pitch, float *c,
                      int resume, const float *masks, int pairs)
{
    vector sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sum[i][j] = resume ? *(const vector *)(c + (i * vectors + j) * WIDTH) : (vector){0};
    for (ptrdiff_t r = 0; r < run_count; r++) {
        const float *row[ROWS];
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            row[i] = row_panel + runs[r].rows + (offsets ? offsets[i] : i);
        const float *b = lane_panel + runs[r].lanes;
        const float *m = masks ? masks + runs[r].lanes : NULL;
        ptrdiff_t a = 0;
        for (ptrdiff_t k = runs[r].steps; k > 0; k--) {
            vector lanes[VECTORS];
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                lanes[j] = *(const vector *)(b + j * WIDTH);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
                for (int j = 0; j < vectors; j++) {
                    vector next = pairs ? MULTIPLY_ADD_PAIRS(BROADCAST(row[i][a]), lanes[j], sum[i][j])
                                        : MULTIPLY_ADD(BROADCAST(row[i][a]), lanes[j], sum[i][j]);
                    if (masks) {
                        vector_int mask = *(const vector_int *)(m + j * WIDTH);
                        next = choose(mask, next, sum[i][j]);
                    }
                    sum[i][j] = next;
                }
            a += row_step;
            b += lane_pitch;
            if (masks)
                m += lane_pitch;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            *(vector *)(c + (i * vectors + j) * WIDTH) = sum[i][j];
}

#define TILE(rows, vectors)                                                                                              \
    static void SUFFIX(tile_##rows##_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,        \
                                                const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume)     \
    {                                                                                                                    \
        tile_body(rows, vectors, runs, run_count, row_panel, NULL, ROWS, lane_panel, lane_pitch, c, resume, NULL, 0);     \
    }                                                                                                                    \
    static void SUFFIX(strided_##rows##_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,     \
                                                   const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel,  \
                                                   ptrdiff_t lane_pitch, float *c, int resume)                           \
    {                                                                                                                    \
        tile_body(rows, vectors, runs, run_count, row_panel, offsets, row_step, lane_panel, lane_pitch, c, resume, NULL,  \
                  0);                                                                                                    \
    }
#define TILES(rows) TILE(rows, 1) TILE(rows, 2) TILE(rows, 3)
TILES(1) TILES(2) TILES(3) TILES(4)
#if ROWS == 8
TILES(5) TILES(6) TILES(7) TILES(8)
#endif

#define MASKED(vectors)                                                                                                  \
    static void SUFFIX(masked_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,               \
                                         const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume,            \
                                         const float *masks)                                                             \
    {                                                                                                                    \
        tile_body(1, vectors, runs, run_count, row_panel, NULL, ROWS, lane_panel, lane_pitch, c, resume, masks, 0);                     \
    }
MASKED(1) MASKED(2) MASKED(3)

INLINE void lines_body(const tile_run *runs, ptrdiff_t run_count, const float *rows, const float *lanes, ptrdiff_t lane_pitch,
                       ptrdiff_t line_pitch, int64_t lines, int64_t count, float *target, ptrdiff_t target_pitch, float bias,
                       int pairs)
{
    /* ROWS vectors at a time, counted along a line and then down the lines; the last are repeated where they run out. */
    int64_t across = (count + WIDTH - 1) / WIDTH, total = lines * across;
    for (int64_t first = 0, y = 0, x = 0; first < total; first += ROWS) {
        const float *place[ROWS];
        float *result[ROWS];
        int64_t left[ROWS];
#pragma GCC unroll 8
        for (int s = 0; s < ROWS; s++) {
            place[s] = lanes + y * line_pitch + x * WIDTH;
            result[s] = target + y * target_pitch + x * WIDTH;
            left[s] = count - x * WIDTH;
            if (first + s + 1 < total && ++x == across) {
                x = 0;
                y++;
            }
        }
        vector sum[ROWS];
#pragma GCC unroll 8
        for (int s = 0; s < ROWS; s++)
            sum[s] = (vector){0};
        for (ptrdiff_t r = 0; r < run_count; r++) {
            const float *a = rows + runs[r].rows;
            ptrdiff_t b = runs[r].lanes;
            for (ptrdiff_t k = runs[r].steps; k > 0; k--) {
                vector weight = BROADCAST(*a);
#pragma GCC unroll 8
                for (int s = 0; s < ROWS; s++)
                    sum[s] = pairs ? MULTIPLY_ADD_PAIRS(weight, *(const vector *)(place[s] + b), sum[s])
                                   : MULTIPLY_ADD(weight, *(const vector *)(place[s] + b), sum[s]);
                a += ROWS;
                b += lane_pitch;
            }
        }
#pragma GCC unroll 8
        for (int s = 0; s < ROWS; s++) {
            vector done = sum[s] + BROADCAST(0.0f) + BROADCAST(bias);
            if (left[s] >= WIDTH)
                *(vector *)result[s] = done;
            else
                STORE_PART(result[s], left[s], done);
        }
    }
}

static void SUFFIX(lines)(const tile_run *runs, ptrdiff_t run_count, const float *rows, const float *lanes, ptrdiff_t lane_pitch,
                          ptrdiff_t line_pitch, int64_t lines, int64_t count, float *target, ptrdiff_t target_pitch, float bias)
{
    lines_body(runs, run_count, rows, lanes, lane_pitch, line_pitch, lines, count, target, target_pitch, bias, 0);
}

/* ------------------------------------------------------------------------------------------------------------------
 * Dot products along lines
 */

INLINE void dot_body(int taps, float *sums, const float *large, const int64_t *shifts, ptrdiff_t large_pitch, const float *small,
                     ptrdiff_t small_pitch, int64_t lines, int64_t count, const float *masks)
{
    for (int part = 0; part < DOT_LANES; part += WIDTH) { /* vectors of a block of lanes, one after the other */
        vector sum[DOT_TAPS];
        const float *line[DOT_TAPS];
#pragma GCC unroll 12
        for (int t = 0; t < taps; t++) {
            sum[t] = *(const vector *)(sums + t * DOT_LANES + part);
            line[t] = large + shifts[t];
        }
        for (int64_t y = 0; y < lines; y++) {
            ptrdiff_t start = y * large_pitch;
            const float *b = small + y * small_pitch;
            int64_t i = part;
            if (!masks)
                for (; i + WIDTH <= count; i += DOT_LANES) {
                    vector lanes = *(const vector *)(b + i);
#pragma GCC unroll 12
                    for (int t = 0; t < taps; t++)
                        sum[t] = MULTIPLY_ADD(*(const vector *)(line[t] + start + i), lanes, sum[t]);
                }
            for (; i < count; i += DOT_LANES) {
                vector lanes = count - i >= WIDTH ? *(const vector *)(b + i) : LOAD_PART(b + i, count - i);
                vector_int taken;
                for (int l = 0; l < WIDTH; l++)
                    taken[l] = l < count - i ? -1 : 0;
#pragma GCC unroll 12
                for (int t = 0; t < taps; t++) {
                    vector next = MULTIPLY_ADD(*(const vector *)(line[t] + start + i), lanes, sum[t]);
                    vector_int mask = taken;
                    if (masks)
                        mask &= *(const vector_int *)(masks + shifts[t] + start + i);
                    sum[t] = choose(mask, next, sum[t]);
                }
            }
        }
#pragma GCC unroll 12
        for (int t = 0; t < taps; t++)
            *(vector *)(sums + t * DOT_LANES + part) = sum[t];
    }
}

#define DOT(taps)                                                                                                        \
    static void SUFFIX(dot_##taps)(float *sums, const float *large, const int64_t *shifts, ptrdiff_t large_pitch,         \
                                   const float *small, ptrdiff_t small_pitch, int64_t lines, int64_t count,              \
                                   const float *masks)                                                                   \
    {                                                                                                                    \
        if (masks)                                                                                                       \
            dot_body(taps, sums, large, shifts, large_pitch, small, small_pitch, lines, count, masks);                    \
        else                                                                                                             \
            dot_body(taps, sums, large, shifts, large_pitch, small, small_pitch, lines, count, NULL);                     \
    }
DOT(1) DOT(2) DOT(3) DOT(4) DOT(5) DOT(6) DOT(7) DOT(8) DOT(9) DOT(10) DOT(11) DOT(12)

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

INLINE int is_wide(int format)
{
    return format == NUMBER_FLOAT16 || format == NUMBER_BFLOAT16;
}

INLINE const void *at(const void *source, int format, int64_t offset)
{
    return (const char *)source + offset * (format == NUMBER_FLOAT32 ? 4 : is_wide(format) ? 2 : 1);
}

INLINE float load_number(const void *source, int format, int64_t offset)
{
    const void *place = at(source, format, offset);
    return format == NUMBER_FLOAT32 ? *(const float *)place
           : is_wide(format)        ? decode16(*(const uint16_t *)place, format)
                                    : decode8(*(const uint8_t *)place, format);
}

/* The first n numbers at p (n >= WIDTH: a whole vector), zeros after them. */
INLINE vector load_vector(const void *p, int format, int64_t n)
{
    vector values = {0};
    if (format == NUMBER_FLOAT32)
        return n >= WIDTH ? *(const vector *)p : LOAD_PART((const float *)p, n);
    if (format == NUMBER_BFLOAT16)
        return (vector)(__builtin_convertvector(LOAD_HALVES((const uint16_t *)p, n >= WIDTH ? WIDTH : n), vector_uint) << 16);
    for (int i = 0; i < (n >= WIDTH ? WIDTH : n); i++)
        values[i] = load_number(p, format, i);
    return values;
}

#if WIDTH == 16
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#elif WIDTH == 8
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#else
#define EVEN 0, 2, 4, 6
#endif
#ifdef __clang__
#define EVEN_OF(a, b) __builtin_shufflevector(a, b, EVEN)
#else
#define EVEN_OF(a, b) __builtin_shuffle(a, b, (vector_int){EVEN})
#endif

/* Every other number from p on, n >= 1 of them, zeros after them. */
INLINE vector load_every_other(const void *p, int format, int64_t n)
{
    int64_t numbers = 2 * n - 1;
    vector second = {0};
    if (numbers > WIDTH)
        second = load_vector(at(p, format, WIDTH), format, numbers - WIDTH);
    return EVEN_OF(load_vector(p, format, numbers), second);
}

INLINE void frame_format(float *block, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high,
                         const void *source, int format, int64_t line_stride, int64_t step)
{
    for (int64_t line = 0; line < lines; line++) {
        float *place = block + line * pitch;
        const void *start = at(source, format, line * line_stride);
        for (int64_t i = 0; i < low; i += WIDTH)
            *(vector *)(place + i) = (vector){0};
        if (step == 1)
            for (int64_t i = low; i < high; i += WIDTH)
                *(vector *)(place + i) = load_vector(at(start, format, i - low), format, high - i);
        else if (step == 2)
            for (int64_t i = low; i < high; i += WIDTH)
                *(vector *)(place + i) = load_every_other(at(start, format, 2 * (i - low)), format, high - i);
        else
            for (int64_t i = low; i < high; i++)
                place[i] = load_number(start, format, (i - low) * step);
        for (int64_t i = high; i < width; i += WIDTH)
            *(vector *)(place + i) = (vector){0};
    }
}

static void SUFFIX(frame)(float *block, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high,
                          const void *source, int format, int64_t line_stride, int64_t step)
{
    BY_FORMAT(format, frame_format, block, pitch, lines, width, low, high, source, known_format, line_stride, step)
}

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

INLINE void gather_side_by_side(float *panel, ptrdiff_t pitch, int64_t steps, const void *source, int format, int64_t stride,
                                const lane_span *spans, int64_t span_count)
{
    vector_move moves[MOVES];
    int64_t move_count = plan_moves(moves, spans, span_count);
    if (move_count) {
        for (int64_t k = 0; k < steps; k++) {
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
            int64_t count = spans[s].count, step = spans[s].step, offset = spans[s].offset + k * stride;
            if (spans[s].offset == NO_ELEMENT)
                for (int64_t i = 0; i < count; i += WIDTH)
                    *(vector *)(lanes + i) = (vector){0};
            else if (step == 2)
                for (int64_t i = 0; i < count; i += WIDTH)
                    *(vector *)(lanes + i) = load_every_other(at(source, format, offset + 2 * i), format, count - i);
            else
                for (int64_t i = 0; i < count; i++)
                    lanes[i] = load_number(source, format, offset + i * step);
        }
}

INLINE quad load_quad(const void *source, int format, int64_t offset)
{
    if (format == NUMBER_FLOAT32)
        return *(const quad *)((const float *)source + offset);
    return (quad){load_number(source, format, offset), load_number(source, format, offset + 1),
                  load_number(source, format, offset + 2), load_number(source, format, offset + 3)};
}

INLINE void transpose_quads(quad *row)
{
    quad ab = SHUFFLE(row[0], row[1], 0, 4, 1, 5), AB = SHUFFLE(row[0], row[1], 2, 6, 3, 7);
    quad cd = SHUFFLE(row[2], row[3], 0, 4, 1, 5), CD = SHUFFLE(row[2], row[3], 2, 6, 3, 7);
    row[0] = SHUFFLE(ab, cd, 0, 1, 4, 5);
    row[1] = SHUFFLE(ab, cd, 2, 3, 6, 7);
    row[2] = SHUFFLE(AB, CD, 0, 1, 4, 5);
    row[3] = SHUFFLE(AB, CD, 2, 3, 6, 7);
}

#if WIDTH == 16
/* Four numbers each at four places. */
INLINE vector four_quads(const void *a, const void *b, const void *c, const void *d)
{
    __m512 all = _mm512_castps128_ps512(_mm_loadu_ps(a));
    all = _mm512_insertf32x4(all, _mm_loadu_ps(b), 1);
    all = _mm512_insertf32x4(all, _mm_loadu_ps(c), 2);
    return (vector)_mm512_insertf32x4(all, _mm_loadu_ps(d), 3);
}

/* 16 lanes x 4 steps, `size` bytes apart: row r holds lanes r, 4 + r, 8 + r, 12 + r; becomes step r of all lanes. */
INLINE void transpose_sixteen(vector *row, const void *source, const int64_t *offset, int64_t step, int size)
{
    __m512 r[4];
    for (int i = 0; i < 4; i++) {
        const char *start = (const char *)source + step * size;
        r[i] = (__m512)four_quads(start + offset[i] * size, start + offset[4 + i] * size, start + offset[8 + i] * size,
                                  start + offset[12 + i] * size);
    }
    __m512d ab = (__m512d)_mm512_unpacklo_ps(r[0], r[1]), AB = (__m512d)_mm512_unpackhi_ps(r[0], r[1]);
    __m512d cd = (__m512d)_mm512_unpacklo_ps(r[2], r[3]), CD = (__m512d)_mm512_unpackhi_ps(r[2], r[3]);
    row[0] = (vector)_mm512_unpacklo_pd(ab, cd);
    row[1] = (vector)_mm512_unpackhi_pd(ab, cd);
    row[2] = (vector)_mm512_unpacklo_pd(AB, CD);
    row[3] = (vector)_mm512_unpackhi_pd(AB, CD);
}
#endif

INLINE int all_elements(const int64_t *offset, int64_t count)
{
    int all = 1;
    for (int64_t i = 0; i < count; i++)
        all &= offset[i] != NO_ELEMENT;
    return all;
}

/* Element of every lane at step 0; returns the number of lanes. */
INLINE int64_t lane_offsets(int64_t *offset, const lane_span *spans, int64_t span_count)
{
    int64_t lanes = 0;
    for (int64_t s = 0; s < span_count; s++)
        for (int64_t i = 0; i < spans[s].count; i++)
            offset[lanes++] = spans[s].offset == NO_ELEMENT ? NO_ELEMENT : spans[s].offset + i * spans[s].step;
    return lanes;
}

/* Steps of the reduction lie side by side: squares of 4 lanes x 4 steps are transposed in registers. */
INLINE void gather_transposed(float *panel, ptrdiff_t pitch, int64_t steps, const void *source, int format,
                              const lane_span *spans, int64_t span_count)
{
    int64_t offset[TILE_LANES], lanes = lane_offsets(offset, spans, span_count), l = 0;
#if WIDTH == 16
    for (; format == NUMBER_FLOAT32 && l + 16 <= lanes && all_elements(offset + l, 16); l += 16) {
        int64_t k = 0;
        for (; k + 4 <= steps; k += 4) {
            vector rows[4];
            transpose_sixteen(rows, source, offset + l, k, 4);
            for (int i = 0; i < 4; i++)
                *(vector *)(panel + (k + i) * pitch + l) = rows[i];
        }
        for (; k < steps; k++)
            for (int i = 0; i < 16; i++)
                panel[k * pitch + l + i] = load_number(source, format, offset[l + i] + k);
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
INLINE void gather_taps_format(float *panel, int rows, int64_t channels, const void *source, int format, int64_t row_stride,
                               int64_t channel_stride, const int64_t *taps, int64_t tap_count)
{
    for (int64_t c = 0; c < channels; c++)
        for (int64_t t = 0; t < tap_count; t++)
            for (int i = 0; i < rows; i++)
                panel[(t * channels + c) * ROWS + i] =
                    load_number(source, format, taps[t] + c * channel_stride + i * row_stride);
}

static void SUFFIX(gather_taps)(float *panel, int rows, int64_t channels, const void *source, int format, int64_t row_stride,
                                int64_t channel_stride, const int64_t *taps, int64_t tap_count)
{
    if (format == NUMBER_FLOAT32 && rows == ROWS)
        gather_taps_format(panel, ROWS, channels, source, NUMBER_FLOAT32, row_stride, channel_stride, taps, tap_count);
    else
        gather_taps_format(panel, rows, channels, source, format, row_stride, channel_stride, taps, tap_count);
}

static int SUFFIX(finite)(const float *values, int64_t count)
{
    int special = 0;
    for (int64_t i = 0; i < count; i++)
        special |= (float_bits(values[i]) & 0x7f800000u) == 0x7f800000u;
    return !special;
}

/* ------------------------------------------------------------------------------------------------------------------
 * Storing: finished sums to stored numbers
 */

/* Adding +0 makes a zero sum +0 whatever its terms underflowed to, and however much padding they crossed. */
INLINE float finished(float sum, const float *bias, int64_t row)
{
    return bias ? (sum + 0.0f) + bias[row] : sum + 0.0f;
}

INLINE void store_number(void *target, int format, int64_t offset, float value)
{
    void *place = (void *)at(target, format, offset);
    if (format == NUMBER_FLOAT32)
        *(float *)place = value;
    else if (is_wide(format))
        *(uint16_t *)place = encode16(value, format);
    else
        *(uint8_t *)place = encode8(value, format);
}

INLINE void scatter_format(const float *tile, ptrdiff_t pitch, int64_t rows, void *target, int format, int64_t stride,
                           const lane_span *spans, int64_t span_count, const float *bias)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t s = 0; s < span_count; s++) {
            const float *sums = tile + r * pitch + spans[s].lane;
            int64_t step = spans[s].step;
            int64_t offset = spans[s].offset + r * stride;
            for (int64_t i = 0; i < spans[s].count; i++)
                store_number(target, format, offset + i * step, finished(sums[i], bias, r));
        }
}

static void SUFFIX(scatter)(const float *tile, ptrdiff_t pitch, int64_t rows, void *target, int format, int64_t stride,
                            const lane_span *spans, int64_t span_count, const float *bias)
{
    BY_FORMAT(format, scatter_format, tile, pitch, rows, target, known_format, stride, spans, span_count, bias)
}

INLINE void scatter_taps_format(const float *tiles, ptrdiff_t tile_step, ptrdiff_t pitch, int64_t rows, int64_t lanes,
                                void *target, int format, int64_t lane_stride, int64_t row_stride, const int64_t *taps,
                                int64_t tap_count)
{
    for (int64_t lane = 0; lane < lanes; lane++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t t = 0; t < tap_count; t++)
                store_number(target, format, lane * lane_stride + r * row_stride + taps[t],
                             finished(tiles[t * tile_step + r * pitch + lane], NULL, 0));
}

static void SUFFIX(scatter_taps)(const float *tiles, ptrdiff_t tile_step, ptrdiff_t pitch, int64_t rows, int64_t lanes,
                                 void *target, int format, int64_t lane_stride, int64_t row_stride, const int64_t *taps,
                                 int64_t tap_count)
{
    BY_FORMAT(format, scatter_taps_format, tiles, tile_step, pitch, rows, lanes, target, known_format, lane_stride, row_stride,
              taps, tap_count)
}

/* ------------------------------------------------------------------------------------------------------------------ */

#define TILE_ENTRIES(kind, rows) {SUFFIX(kind##_##rows##_1), SUFFIX(kind##_##rows##_2), SUFFIX(kind##_##rows##_3)}
#if ROWS == 8
#define ALL_ENTRIES(kind)                                                                                                \
    {TILE_ENTRIES(kind, 1), TILE_ENTRIES(kind, 2), TILE_ENTRIES(kind, 3), TILE_ENTRIES(kind, 4),                          \
     TILE_ENTRIES(kind, 5), TILE_ENTRIES(kind, 6), TILE_ENTRIES(kind, 7), TILE_ENTRIES(kind, 8)}
#else
#define ALL_ENTRIES(kind) {TILE_ENTRIES(kind, 1), TILE_ENTRIES(kind, 2), TILE_ENTRIES(kind, 3), TILE_ENTRIES(kind, 4)}
#endif
const instruction_set SUFFIX(instruction_set) = {
    .name = NAME,
    .usable = SUFFIX(usable),
    .rows = ROWS,
    .vectors = VECTORS,
    .width = WIDTH,
    .tile = ALL_ENTRIES(tile),
    .strided = ALL_ENTRIES(strided),
    .masked = {SUFFIX(masked_1), SUFFIX(masked_2), SUFFIX(masked_3)},
    .lines = SUFFIX(lines),
    .frame = SUFFIX(frame),
    .dot = {SUFFIX(dot_1), SUFFIX(dot_2), SUFFIX(dot_3), SUFFIX(dot_4), SUFFIX(dot_5), SUFFIX(dot_6), SUFFIX(dot_7),
            SUFFIX(dot_8), SUFFIX(dot_9), SUFFIX(dot_10), SUFFIX(dot_11), SUFFIX(dot_12)},
    .gather = SUFFIX(gather),
    .gather_taps = SUFFIX(gather_taps),
    .finite = SUFFIX(finite),
    .scatter = SUFFIX(scatter),
    .scatter_taps = SUFFIX(scatter_taps),
    .pairs = PAIRS,
};
