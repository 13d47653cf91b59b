/* Depthwise sums, channels first: the input is read where it lies.  A row of it is loaded once and added to all output
 * rows whose taps meet it.  simd/tile.h includes this where an instruction set loads under a mask. */

enum { ALL_LANES = (1 << WIDTH) - 1 };

INLINE void ncx_steps(int slots, int first, int last, int masked, vector (*sum)[NCX_SLOTS], const ncx_row *row,
                      const float *const *places, const uint16_t *masks, const int64_t *columns,
                      const float *weights, ptrdiff_t weight_step)
{
    const float *weight = weights + row->weights + row->first_step * weight_step;
    const int64_t *column = columns + row->first_step;
    for (int64_t k = 0; k < row->steps; k++) {
        vector lanes[NCX_SLOTS];
        lane_mask taken = LANE_MASK(masked ? masks[row->masks + row->first_step + k] : ALL_LANES);
        ptrdiff_t place = row->place + column[k];
        if (masked)
            KEEP_MASK(taken); /* one mask for all that use it */
#pragma GCC unroll 4
        for (int s = 0; s < slots; s++) {
            lanes[s] = masked ? LOAD_MASKED(places[s] + place, taken) : *(const vector *)(places[s] + place);
            KEEP(lanes[s]);
        }
#pragma GCC unroll 6
        for (int j = first; j <= last; j++) {
            vector factor = BROADCAST(weight[j - first]);
            if (masked)
                factor = MASKED_FACTOR(factor, taken);
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

/* Sums of `slots` vectors for each of `height` rows; `whole` where all lanes are kept. */
INLINE void store_ncx(int slots, int height, vector (*sum)[NCX_SLOTS], float bias, char *const *targets,
                      const uint16_t *kept, int whole, int64_t line)
{
    vector start = BROADCAST(bias);
    KEEP(start);
#pragma GCC unroll 6
    for (int j = 0; j < NCX_ROWS; j++)
        if (j < height)
#pragma GCC unroll 4
            for (int s = 0; s < slots; s++) {
                vector done = sum[j][s] + BROADCAST(0.0f) + start;
                if (whole)
                    *(vector *)(targets[s] + j * line) = done;
                else
                    STORE_KEPT((float *)(targets[s] + j * line), kept[j], done);
            }
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
                     int64_t line)
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
        whole &= (kept[j] & ALL_LANES) == ALL_LANES;
    if (whole)
        store_ncx(slots, height, sum, bias, targets, kept, 1, line);
    else
        store_ncx(slots, height, sum, bias, targets, kept, 0, line);
}

#define NCX(slots)                                                                                                     \
    static void SUFFIX(ncx_##slots)(const ncx_row *rows, int64_t row_count, int height, int masked,                    \
                                    const float *const *places, const uint16_t *masks, const int64_t *columns,         \
                                    const float *weights, ptrdiff_t weight_step, float bias, char *const *targets,     \
                                    const uint16_t *kept, int64_t line)                                                \
    {                                                                                                                  \
        ncx_body(slots, rows, row_count, height, masked, places, masks, columns, weights, weight_step, bias, targets,  \
                 kept, line);                                                                                          \
    }
NCX(1) NCX(2)
#if WIDTH == 16
NCX(3) NCX(4)
#define ALL_NCX {SUFFIX(ncx_1), SUFFIX(ncx_2), SUFFIX(ncx_3), SUFFIX(ncx_4)}
#else /* registers for so many */
#define ALL_NCX {SUFFIX(ncx_1), SUFFIX(ncx_2)}
#endif

/* The first n of a vector of finished floats, or all. */
INLINE void store_floats(void *place, int format, int64_t n, vector values)
{
    store_vector(place, format, n < WIDTH ? n : WIDTH, values);
}

INLINE void weave_format(void *target, int format, int64_t step, int64_t ways, const float *source, ptrdiff_t between,
                         int64_t count, const float *bias)
{
    if (ways == 2 && step == 1) {
        for (int64_t i = 0; i < count; i += 2 * WIDTH) {
            vector low, high;
            interleave(finished_vector(source + i / 2, (count - i + 1) / 2, bias, 0),
                       finished_vector(source + between + i / 2, (count - i) / 2, bias, 0), &low, &high);
            if (count - i >= 2 * WIDTH) {
                store_two_vectors((void *)at(target, format, i), format, low, high);
                continue;
            }
            store_floats((void *)at(target, format, i), format, count - i, low);
            if (count - i > WIDTH)
                store_floats((void *)at(target, format, i + WIDTH), format, count - i - WIDTH, high);
        }
        return;
    }
    for (int64_t way = 0; way < ways; way++) /* numbers of a way lie ways * step apart */
        store_line((void *)at(target, format, way * step), format, ways * step, source + way * between,
                   (count - way + ways - 1) / ways, bias, 0);
}

static void SUFFIX(weave)(void *target, int format, int64_t step, int64_t ways, const float *source, ptrdiff_t between,
                          int64_t count, const float *bias)
{
    BY_FORMAT(format, weave_format, target, known_format, step, ways, source, between, count, bias)
}

#include "simd/depthwise_ncx_weights.h"
