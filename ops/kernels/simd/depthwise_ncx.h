/* Depthwise sums, channels first: the input is read where it lies.  A row of it is loaded once and added to all output
 * rows whose taps meet it.  simd/tile.h includes this where an instruction set loads and adds under a mask. */

typedef uint16_t lane_mask;

INLINE void ncx_steps(int slots, int first, int last, int masked, vector (*sum)[NCX_SLOTS], const ncx_row *row,
                      const float *const *places, const uint16_t *masks, const int64_t *columns,
                      const float *weights, ptrdiff_t weight_step)
{
    const float *weight = weights + row->weights + row->first_step * weight_step;
    const int64_t *column = columns + row->first_step;
    for (int64_t k = 0; k < row->steps; k++) {
        vector lanes[NCX_SLOTS];
        __mmask16 taken = masked ? masks[row->masks + row->first_step + k] : 0xffff;
        ptrdiff_t place = row->place + column[k];
        if (masked)
            __asm__("" : "+Yk"(taken)); /* one mask for all that use it */
#pragma GCC unroll 4
        for (int s = 0; s < slots; s++) {
            lanes[s] = masked ? LOAD_MASKED(places[s] + place, taken) : *(const vector *)(places[s] + place);
            KEEP(lanes[s]);
        }
#pragma GCC unroll 6
        for (int j = first; j <= last; j++) {
            vector factor = BROADCAST(weight[j - first]);
            if (slots > 1)
                KEEP(factor);
#pragma GCC unroll 4
            for (int s = 0; s < slots; s++)
                sum[j][s] = masked ? MULTIPLY_ADD_MASKED(factor, lanes[s], sum[j][s], taken)
                                   : MULTIPLY_ADD(factor, lanes[s], sum[j][s]);
        }
        weight += weight_step;
    }
}

/* Lanes of a mask, `step` apart. */
INLINE void store_lanes(void *target, int format, int64_t step, lane_mask kept, vector values)
{
    if (step == 1 && kept == 0xffff)
        store_vector(target, format, WIDTH, values);
    else if (step == 1)
        store_kept(target, format, kept, values);
    else {
        char codes[4 * WIDTH];
        int64_t size = code_size(format);
        store_vector(codes, format, WIDTH, values);
        for (int64_t i = 0; i < WIDTH && kept >> i; i++)
            if (kept >> i & 1)
                copy_code((char *)target + i * step * size, size, codes + i * size);
    }
}

/* Sums of `slots` vectors for each of `height` rows; `whole` where all lanes are kept. */
INLINE void store_ncx(int slots, int height, const vector (*sum)[NCX_SLOTS], float bias, char *const *targets,
                      const uint16_t *kept, int whole, int format, int64_t line, int64_t step)
{
    vector start = BROADCAST(bias);
    KEEP(start);
#pragma GCC unroll 6
    for (int j = 0; j < NCX_ROWS; j++)
        if (j < height)
#pragma GCC unroll 4
            for (int s = 0; s < slots; s++)
                store_lanes(targets[s] + j * line, format, step, whole ? 0xffff : kept[j], sum[j][s] + BROADCAST(0.0f) + start);
}

/* The same from memory, for formats that take many instructions. */
INLINE void store_ncx_format(int slots, int height, const vector (*sum)[NCX_SLOTS], float bias, char *const *targets,
                             const uint16_t *kept, int format, int64_t line, int64_t step)
{
    for (int j = 0; j < height; j++)
        for (int s = 0; s < slots; s++)
            store_lanes(targets[s] + j * line, format, step, kept[j], sum[j][s] + BROADCAST(0.0f) + BROADCAST(bias));
}

static __attribute__((noinline)) void SUFFIX(store_ncx_codes)(int slots, int height, const vector (*sum)[NCX_SLOTS], float bias,
                                                              char *const *targets, const uint16_t *kept, int format,
                                                              int64_t line, int64_t step)
{
    BY_FORMAT(format, store_ncx_format, slots, height, sum, bias, targets, kept, known_format, line, step)
}

#define NCX_CASE(masked, first, last)                                                                                  \
    case (masked * NCX_ROWS + first) * NCX_ROWS + last:                                                                \
        ncx_steps(slots, first, last, masked, sum, rows + r, places, masks, columns, weights, weight_step);            \
        break;
#define NCX_FROM_5(m) NCX_CASE(m, 5, 5)
#define NCX_FROM_4(m) NCX_CASE(m, 4, 4) NCX_CASE(m, 4, 5)
#define NCX_FROM_3(m) NCX_CASE(m, 3, 3) NCX_CASE(m, 3, 4) NCX_CASE(m, 3, 5)
#define NCX_FROM_2(m) NCX_CASE(m, 2, 2) NCX_CASE(m, 2, 3) NCX_CASE(m, 2, 4) NCX_CASE(m, 2, 5)
#define NCX_FROM_1(m)                                                                                                  \
    NCX_CASE(m, 1, 1) NCX_CASE(m, 1, 2) NCX_CASE(m, 1, 3) NCX_CASE(m, 1, 4) NCX_CASE(m, 1, 5)
#define NCX_FROM_0(m)                                                                                           \
    NCX_CASE(m, 0, 0) NCX_CASE(m, 0, 1) NCX_CASE(m, 0, 2) NCX_CASE(m, 0, 3) NCX_CASE(m, 0, 4)                   \
    NCX_CASE(m, 0, 5)
#define NCX_CASES(m)                                                                                                   \
    NCX_FROM_0(m) NCX_FROM_1(m) NCX_FROM_2(m) NCX_FROM_3(m) NCX_FROM_4(m) NCX_FROM_5(m)

INLINE void ncx_body(int slots, const ncx_row *rows, int64_t row_count, int height, int masked,
                     const float *const *places, const uint16_t *masks, const int64_t *columns,
                     const float *weights, ptrdiff_t weight_step, float bias, char *const *targets, const uint16_t *kept,
                     int format, int64_t line, int64_t step)
{
    vector sum[NCX_ROWS][NCX_SLOTS];
#pragma GCC unroll 6
    for (int j = 0; j < NCX_ROWS; j++)
#pragma GCC unroll 4
        for (int s = 0; s < slots; s++)
            sum[j][s] = (vector){0};
    int64_t masked_kind = masked ? NCX_ROWS * NCX_ROWS : 0;
    for (int64_t r = 0; r < row_count; r++)
        switch (rows[r].kind + masked_kind) {
            NCX_CASES(0)
            NCX_CASES(1)
        }
    int whole = 1;
    for (int j = 0; j < height; j++)
        whole &= kept[j] == 0xffff;
    if (format == NUMBER_FLOAT32 && step == 1 && whole)
        store_ncx(slots, height, (const vector (*)[NCX_SLOTS])sum, bias, targets, kept, 1, NUMBER_FLOAT32, line, 1);
    else if (format == NUMBER_FLOAT32 && step == 1)
        store_ncx(slots, height, (const vector (*)[NCX_SLOTS])sum, bias, targets, kept, 0, NUMBER_FLOAT32, line, 1);
    else {
        vector sums[NCX_ROWS][NCX_SLOTS];
#pragma GCC unroll 6
        for (int j = 0; j < NCX_ROWS; j++)
#pragma GCC unroll 4
            for (int s = 0; s < slots; s++)
                sums[j][s] = sum[j][s];
        SUFFIX(store_ncx_codes)(slots, height, (const vector (*)[NCX_SLOTS])sums, bias, targets, kept, format, line, step);
    }
}

#define NCX(slots)                                                                                                     \
    static void SUFFIX(ncx_##slots)(const ncx_row *rows, int64_t row_count, int height, int masked,                    \
                                      const float *const *places, const uint16_t *masks, const int64_t *columns,       \
                                      const float *weights, ptrdiff_t weight_step, float bias, char *const *targets,   \
                                      const uint16_t *kept, int format, int64_t line, int64_t step)                    \
    {                                                                                                                  \
        ncx_body(slots, rows, row_count, height, masked, places, masks, columns, weights, weight_step, bias, targets,  \
                   kept, format, line, step);                                                                          \
    }
NCX(1) NCX(2) NCX(3) NCX(4)

INLINE void weave_pairs(void *target, int format, const float *source, ptrdiff_t between, int64_t count)
{
    for (int64_t i = 0; i < count; i += 2 * WIDTH) {
        __m512 a = _mm512_loadu_ps(source + i / 2), b = _mm512_loadu_ps(source + between + i / 2);
        int64_t left = count - i;
        for (int part = 0; part < 2 && left > 0; part++, left -= WIDTH) {
            __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            __m512i order = part ? _mm512_add_epi32(low, _mm512_set1_epi32(8)) : low;
            store_vector((void *)at(target, format, i + part * WIDTH), format, left < WIDTH ? left : WIDTH,
                         (vector)_mm512_permutex2var_ps(a, order, b));
        }
    }
}

INLINE void weave_format(void *target, int format, int64_t step, int64_t ways, const float *source, ptrdiff_t between,
                         int64_t count)
{
    if (ways == 2 && step == 1) {
        weave_pairs(target, format, source, between, count);
        return;
    }
    int64_t size = code_size(format);
    for (int64_t way = 0; way < ways; way++) /* numbers of a way lie ways * step apart */
        for (int64_t i = 0, all = (count - way + ways - 1) / ways; i < all; i += WIDTH) {
            char codes[4 * WIDTH], *place = (char *)at(target, format, (way + i * ways) * step);
            int64_t n = all - i < WIDTH ? all - i : WIDTH;
            store_vector(codes, format, WIDTH, load_vector(source + way * between + i, NUMBER_FLOAT32, n));
            for (int64_t j = 0; j < n; j++)
                copy_code(place + j * ways * step * size, size, codes + j * size);
        }
}

static void SUFFIX(weave)(void *target, int format, int64_t step, int64_t ways, const float *source, ptrdiff_t between,
                          int64_t count)
{
    BY_FORMAT(format, weave_format, target, known_format, step, ways, source, between, count)
}

#include "simd/depthwise_ncx_weights.h"
