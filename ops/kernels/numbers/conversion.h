/* What an instruction set offers the conversions of arrays: loops over contiguous blocks. */
#ifndef CONVREG_CONVERSION_H
#define CONVREG_CONVERSION_H

#include <stdint.h>

typedef struct {
    /* values[i] = the float32 bits of number i of `codes`, exactly; any format but float64. */
    void (*decode)(const void *codes, int format, uint32_t *values, int64_t count);
    /* values[i] = the float32 bits of a float64, rounded; `doubles` are its bits too. */
    void (*narrow)(const uint64_t *doubles, const uint32_t *random, uint32_t *values, int rounding, int saturate,
                   int64_t count);
    /* scaled[i] = values[i] * factors[i*step], as float32; `step` is 0 or 1. */
    void (*scale)(const uint32_t *values, const float *factors, int64_t step, uint32_t *scaled, int64_t count);
    /* codes[i] = number i in `format`, rounded from float32 bits, which were decoded from format `source`. */
    void (*encode)(const uint32_t *values, const uint32_t *random, void *codes, int format, int rounding, int saturate,
                   int source, int64_t count);
    /* numbers[4*i .. 4*i + 3] = Philox4x32-10 of key `seed` and counter (first + i, stream). */
    void (*draw)(uint32_t *numbers, uint64_t seed, uint64_t first, uint32_t stream, int64_t groups);
} conversion_functions;

#endif
