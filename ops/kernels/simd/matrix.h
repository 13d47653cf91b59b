/* Tiles of sums in blocks on a matrix unit (AMX), which multiplies 16 rows by 16 lanes of pairs, 16 steps at a time. */
#ifndef CONVREG_MATRIX_H
#define CONVREG_MATRIX_H

#include "core/isa.h"

#if defined(__x86_64__) && defined(__linux__) && (defined(__clang__) || __GNUC__ >= 11)
#define HAVE_MATRIX 1

/* Whether the processor has one, and the system lets this process use it. */
int matrix_usable(void);

/* A thread's tile registers are set up before its first tile and released after its last. */
void matrix_begin(void);
void matrix_end(void);

/* As `tile_function`, for the row panels of `turn_function`. */
void matrix_blocks_1(const tile_run *runs, ptrdiff_t run_count, const float *rows, ptrdiff_t next, const float *lanes,
                     ptrdiff_t lane_pitch, float *c, int resume, copying *meanwhile, const tile_result *result);
void matrix_blocks_2(const tile_run *runs, ptrdiff_t run_count, const float *rows, ptrdiff_t next, const float *lanes,
                     ptrdiff_t lane_pitch, float *c, int resume, copying *meanwhile, const tile_result *result);
void matrix_blocks_3(const tile_run *runs, ptrdiff_t run_count, const float *rows, ptrdiff_t next, const float *lanes,
                     ptrdiff_t lane_pitch, float *c, int resume, copying *meanwhile, const tile_result *result);

/* As `row_panels_function`. */
void matrix_panels_1(int64_t count, int64_t blocks, const float *rows, const int64_t *offsets, ptrdiff_t row_pitch,
                     const float *lanes, ptrdiff_t lane_pitch, float *c, ptrdiff_t c_pitch, int resume);
void matrix_panels_2(int64_t count, int64_t blocks, const float *rows, const int64_t *offsets, ptrdiff_t row_pitch,
                     const float *lanes, ptrdiff_t lane_pitch, float *c, ptrdiff_t c_pitch, int resume);
void matrix_panels_3(int64_t count, int64_t blocks, const float *rows, const int64_t *offsets, ptrdiff_t row_pitch,
                     const float *lanes, ptrdiff_t lane_pitch, float *c, ptrdiff_t c_pitch, int resume);
#endif

#endif
