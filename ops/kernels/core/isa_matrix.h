/* What packs rows for a matrix unit and multiplies them by lanes: included by core/isa.h. */
#ifndef CONVREG_ISA_MATRIX_H
#define CONVREG_ISA_MATRIX_H

#include <stddef.h>
#include <stdint.h>

/* Sets up or releases what a unit needs besides ordinary registers. */
typedef void (*unit_function)(void);

/* A row panel of pairs, 16 steps of 16 rows at a time, to 16 rows of steps. */
typedef void (*turn_function)(float *panel, ptrdiff_t tap_step, int64_t tap_count, int64_t steps);

/* Elements from one term of a part to the next, at most; and of one that is framed. */
enum { PART_STEPS = 8, FRAME_STEPS = 2 };

/* Terms of a block of sums that lie `step` apart in a line. */
typedef struct {
    int64_t offset;  /* of the block's first term, as if the line had it */
    uint32_t inside; /* bit i: the line has term i of the block */
    int32_t last;    /* of the block */
} line_part;

/* The pairs of blocks of rows: each block has one part or more, row r those of row 0 at r*row_stride elements, and zeros elsewhere. The 16
 * pairs of a block of row r lie at r*row_pitch, those of the next block at block_pitch from there. `step`: 1 to PART_STEPS, in frames to
 * FRAME_STEPS. */
typedef void (*block_rows_function)(float *place, ptrdiff_t row_pitch, ptrdiff_t block_pitch, int64_t rows, int64_t blocks,
                                    const line_part *parts, int64_t step, const void *source, int format, int64_t row_stride,
                                    uint16_t *smallest);

/* Rows of blocks whose words lie in a frame, 16 words of each part from element `offset` of a row on, for taps that lie `shifts` further:
 * those of block k of tap i at place + (i*blocks + k)*16. */
typedef void (*patch_rows_function)(float *place, const float *frame, ptrdiff_t row_pitch, int64_t rows, int64_t blocks,
                                    const line_part *parts, int64_t taps, const int64_t *shifts);

/* Row panels of blocks against a panel of lanes: row r of block k of panel p lies at rows + offsets[p*blocks + k] + r*row_pitch. Sums of a
 * panel lie c_pitch from those of the panel before. */
typedef void (*row_panels_function)(int64_t count, int64_t blocks, const float *rows, const int64_t *offsets, ptrdiff_t row_pitch,
                                    const float *lanes, ptrdiff_t lane_pitch, float *c, ptrdiff_t c_pitch, int resume);

#endif
