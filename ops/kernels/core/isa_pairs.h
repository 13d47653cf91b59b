/* What weights gradients of narrow groups need of sets that multiply bfloat16 pairs: included by core/isa.h. */
#ifndef CONVREG_ISA_PAIRS_H
#define CONVREG_ISA_PAIRS_H

#include <stddef.h>
#include <stdint.h>

/* Units of pairs of terms of chains (simd/chain_pairs.h): pair i of unit u has numbers (u*reach + i)*step of both operands, those
 * outside [low, high) zero; with a step of 2 and two ways, the numbers after these stand `width` further on. */
typedef struct {
    int64_t units; /* of a line */
    int64_t width; /* pairs of a unit, at least a vector of them */
    int64_t past;  /* pairs after the last unit that are read, but meet zeros */
    int64_t reach;
    int64_t step; /* 1 or 2 */
    int64_t ways;
    int64_t whole; /* the second operand of a pair is REDUCTION_CHAINS pairs further in the same line */
    int64_t low[2];
    int64_t high[2];
} chain_units;

/* The lines of some channels and images, and where they are laid out; strides in numbers, pitches in floats.  The second operand of a
 * pair is `partner` numbers from the first; those of lines outside [first, end) are zero. */
typedef struct {
    int64_t lines;
    int64_t images;
    int64_t channels;
    int64_t partner;
    int64_t first[2];
    int64_t end[2];
    int64_t line_stride;
    int64_t image_stride;
    int64_t channel_stride;
    int64_t pitch;
    int64_t image_pitch;
    int64_t channel_pitch;
} chain_lines;

/* block[channel*channel_pitch + image*image_pitch + line*pitch + (unit*ways + way)*width + i]; `source` is number 0 of line 0. */
typedef void (*lay_chains_function)(float *block, const chain_units *u, const chain_lines *lines, const void *source, int format,
                                    uint16_t *smallest);

/* Chains of several channels of either side, as `dot_tile_function` takes them, of units. */
typedef void (*chain_tile_function)(float *sums, ptrdiff_t row_sums, ptrdiff_t column_sums, const float *large, ptrdiff_t large_channel,
                                    ptrdiff_t large_line, ptrdiff_t large_unit, const float *small, ptrdiff_t small_channel,
                                    int64_t lines, int64_t units);

/* Chains of one channel of either side and some taps: sums[u*sum_row + t*REDUCTION_CHAINS + j].  Line y of the small side meets line
 * y + u*apart of the large side at the taps of row u, and unit places[t] further on at those of column t. */
typedef void (*chain_taps_function)(float *sums, ptrdiff_t sum_row, const float *large, ptrdiff_t large_line, ptrdiff_t large_unit,
                                    const int64_t *places, const float *small, ptrdiff_t small_line, int64_t lines, int64_t apart,
                                    int64_t units);

/* The large side of such chains where it lies, which columns of taps side by side meet: numbers [low, high) of lines [first, end). */
typedef struct {
    const void *numbers;  /* what number 0 of line 0 of the small side meets at the first tap, if it were inside */
    int64_t line_stride;  /* numbers to what the next line meets */
    int format;
    int64_t low;
    int64_t high;
    int64_t first;
    int64_t end;
} chain_rows;

/* As `chain_taps_function`, of pairs within lines. */
typedef void (*chain_rows_function)(float *sums, ptrdiff_t sum_row, const chain_rows *large, const float *small, ptrdiff_t small_line,
                                    int64_t lines, int64_t apart, int64_t units, uint16_t *smallest);

/* Lanes are (tap, channel), laid out by lay_tap_pairs (simd/tap_pairs.h): block[line*pitch + x*channels + c] is the pair of the numbers x and
 * x + step of a channel, those outside [low, high) zero; `step` is 4 at most, `source` where number 0 would be. */
typedef void (*lay_tap_pairs_function)(float *block, ptrdiff_t pitch, int64_t lines, int64_t columns, int64_t channels, const void *source,
                                       int format, int64_t line_stride, int64_t channel_stride, int64_t low, int64_t high, int64_t step,
                                       uint16_t *smallest);

/* Upper halves of `first`, and upper halves of `second` below them; NULL: zeros. Writes whole vectors. */
typedef void (*join_tap_pairs_function)(float *place, const float *first, const float *second, int64_t lanes);

/* rows[r*pitch + k]: numbers 2*k and 2*k + 1 of a row, of which those from `first` on are told: `count` of them, then zeros up to a
 * vector. Numbers before are kept. */
typedef void (*lay_row_pairs_function)(float *rows, ptrdiff_t pitch, int64_t row_count, int64_t first, const void *source, int format,
                                       int64_t row_stride, int64_t count, uint16_t *smallest);

/* Where a step finds its pairs: of row 0, and lanes. */
typedef struct {
    int32_t row;
    int32_t lanes;
} tap_pair;

/* c[row*c_pitch + lane] += blocks of sums (core/reduction.h), of which each half takes as many steps as `halves` says. */
typedef void (*tap_pairs_function)(const tap_pair *steps, const int32_t *halves, int64_t blocks, const float *row_pairs, ptrdiff_t pitch,
                                   const float *lanes, float *c, ptrdiff_t c_pitch);

#endif
