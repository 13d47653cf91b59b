/* What an instruction set offers for depthwise layers: included by core/isa.h. */
#ifndef CONVREG_ISA_DEPTHWISE_H
#define CONVREG_ISA_DEPTHWISE_H

#include <stddef.h>
#include <stdint.h>

enum {
    NCX_ROWS = 6,      /* output rows that depthwise_ncx computes together, at most */
    NCX_SLOTS = 4,     /* vectors of each, at most */
    NCX_COLUMNS = 5,   /* rows and columns of taps whose dot products depthwise_ncx_weights advances together, at most */
    PLANE_TAPS = 7,    /* of a row whose factors are in registers, at most; chains of weights gradients likewise */
    PLANE_OUTPUTS = 14, /* of a line of planes that are computed together, at most */
    PLANE_WIDTHS = 7,  /* choices of their number */
};

/* A row of input and the output rows first, ..., last that it is added to: steps first_step, ... of the reduction. */
typedef struct {
    int64_t kind;       /* (masked*NCX_ROWS + first)*NCX_ROWS + last; masked: some of its lanes lie outside */
    int64_t masks;      /* where its masks begin */
    int64_t place;      /* where the row begins */
    int64_t weights;    /* of output row `first` at the first step; those of the next output rows follow */
    int64_t first_step;
    int64_t steps;
} ncx_row;

/* `height` rows of outputs in several slots, a vector each, that differ in where they read (`places`) and write: row j of a
 * slot is stored from its target + j*line bytes on, as floats, the first lanes, those of the mask kept[j].  Step k of an input
 * row reads lanes from its place + columns[k], where `masked` or the row says so under mask masks[k], and the factors
 * weights[k*weight_step]. */
typedef void (*ncx_function)(const ncx_row *rows, int64_t row_count, int height, int masked, const float *const *places,
                             const uint16_t *masks, const int64_t *columns, const float *weights, ptrdiff_t weight_step,
                             float bias, char *const *targets, const uint16_t *kept, int64_t line);

/* Of a block of DOT_LANES positions of a line: what lies inside for each column of taps, and for all of them; and where columns are
 * side by side, which numbers of the large side from where the first one begins. */
typedef struct {
    uint16_t inside[NCX_COLUMNS];
    uint16_t all;
    uint16_t loaded;
} ncx_masks;

/* sums[u*sum_row + t*DOT_LANES + lane] += products along lines, for the `rows` x `columns` taps (u, t) that the function is
 * for: line y = line - u*apart of the small side, where first <= y < end, meets line `line` of the large side, shifted by
 * places[t] (if `joined`, each 1 after the one before), for line <= its number < lines_end.  A line is `vectors` blocks of DOT_LANES
 * positions; of the last one those in mask `last` exist.  Lane j takes the positions j, j + DOT_LANES, ... of every line.  There
 * are masks of each block, and of one more.  Both sides have the format: float32, or one of 16 bits on 16 lanes. */
typedef void (*ncx_weights_function)(int format, float *sums, ptrdiff_t sum_row, const void *large, ptrdiff_t large_line,
                                     const int64_t *places, int joined, const void *small, ptrdiff_t small_line, int64_t line,
                                     int64_t lines_end, int64_t first, int64_t end, int64_t apart, const ncx_masks *masks,
                                     int64_t vectors, unsigned last);

/* Element i*step of `target` = source[i % ways * between + i / ways] for i < count, as a sum that is finished: a +0 and the bias,
 * if there is one, are added, and the result is rounded to `format`. */
typedef void (*weave_function)(void *target, int format, int64_t step, int64_t ways, const float *source, ptrdiff_t between,
                               int64_t count, const float *bias);

/* block[p*width + lane] for p < count, lane < width: number p of plane `lane`, which begins `apart` elements after the one before.
 * Asks for what lies `ahead` bytes further. */
typedef void (*load_planes_function)(float *block, int64_t count, const void *source, int format, int64_t apart, int64_t ahead);

/* The same backwards for planes from `first_plane` on: block[p*width + lane] + 0 + bias[lane] (which may be NULL), rounded. */
typedef void (*store_planes_function)(void *target, int format, int64_t apart, int64_t first_plane, const float *block,
                                      int64_t count, const float *bias);

/* Taps of one row, which meet positions of a line: tap 0 meets first + the output's position. */
typedef struct {
    int64_t line;    /* position where the line begins */
    int64_t first;
    int64_t weights; /* vectors before theirs */
    int64_t taps;    /* at most PLANE_TAPS */
} plane_row;

/* target[j*target_step + lane] for as many outputs j as the function is for: the sum over rows and their taps t of the products of
 * weights and input. Output j has position at + j*direction (1 or -1), at which tap t meets position first + at + (j + t)*direction
 * of a line, if that is at least 0 and below `extent`. */
typedef void (*planes_function)(const plane_row *rows, int64_t row_count, const float *input, int64_t extent, int64_t at,
                                int direction, const float *weights, float *target, ptrdiff_t target_step);

/* The same of dilated taps: output j has position at + j, at which tap t meets position first + at + j + t*dilation, of either sign. */
typedef void (*dilated_planes_function)(const plane_row *rows, int64_t row_count, const float *input, int64_t extent, int64_t at,
                                        int64_t dilation, const float *weights, float *target, ptrdiff_t target_step);

/* sums[t*tap_step + j*width + lane] += products of small[n*small_image + line*small_line + (j + 16*b)*width + lane] with
 * large[n*large_image + line*large_line + i*width + lane], i = t + (j + 16*b)*stride, low <= i < high, for b < blocks,
 * line < lines, n < images: for as many taps t and chains j as the function is for. */
typedef void (*planes_weights_function)(float *sums, ptrdiff_t tap_step, const float *large, ptrdiff_t large_line,
                                        ptrdiff_t large_image, const float *small, ptrdiff_t small_line, ptrdiff_t small_image,
                                        int64_t images, int64_t lines, int64_t blocks, int64_t low, int64_t high);

/* Of depthwise layers whose channels are far apart in memory, with channels as lanes; all NULL, or none that registers allow. */
typedef struct {
    load_planes_function load;
    store_planes_function store;
    planes_function sums[PLANE_WIDTHS];                            /* of 1, 2, 3, 4, 7, 8 and PLANE_OUTPUTS outputs */
    dilated_planes_function dilated[PLANE_WIDTHS];
    planes_weights_function weights[2][PLANE_TAPS][PLANE_TAPS];    /* [stride - 1][taps - 1][chains - 1] */
} plane_functions;

/* The same of planes for dot products: block[(l*(extent + 1) + x + 1)*width + lane] = the numbers x and x + 1 of line l of a plane,
 * zeros outside, for l < lines, -1 <= x < extent; the one that `direction` meets first in the upper half.  At least 16 numbers.
 * Lowers `smallest`, magnitudes less one, and raises `largest` to what is met, as bfloat16 codes. */
typedef void (*load_plane_pairs_function)(float *block, int64_t lines, int64_t extent, int direction, const void *source, int format,
                                          int64_t apart, int64_t ahead, uint16_t *smallest, uint16_t *largest);

/* The weights of `rows` rows of taps as pairs, one behind the other: tap t of a row and tap t + 1, t even, the first in the upper half,
 * beside nothing where a row ends.  taps[offsets[row*count + t]*width + lane] is a bfloat16 number.  Lowers `smallest` and raises
 * `largest` as above. */
typedef void (*pair_plane_taps_function)(float *pairs, const float *taps, const int64_t *offsets, int64_t rows, int64_t count,
                                         uint16_t *smallest, uint16_t *largest);

/* A row's taps are pairs then: tap t and those weights stand for 2*t, in the upper half, and 2*t + 1.  No sum is subnormal or -0,
 * and `bias` is NULL. */
typedef struct {
    load_plane_pairs_function load;
    pair_plane_taps_function pair_taps;
    store_planes_function store;
    planes_function sums[PLANE_WIDTHS];
} plane_pair_functions;

/* Lanes are channels: target[p*target_pitch + c] for p < positions, c < channels is the sum over taps of element
 * offsets[tap] + p*position_step + c of `source` times weights[taps[tap]*weight_pitch + c], + 0, + bias[c] (which may be
 * NULL).  Weights may be read to the end of a last, partial vector; the source may not. */
typedef void (*nxc_function)(float *target, ptrdiff_t target_pitch, int64_t positions, int64_t channels,
                             const void *source, int format, int64_t position_step, const int64_t *offsets,
                             const int64_t *taps, int64_t tap_count, const float *weights,
                             ptrdiff_t weight_pitch, const float *bias);

/* block[c/width*vector_pitch + p*width + c%width] = element p*step + c of `source`, for p < positions, c < channels; zeros
 * fill the last vector. */
typedef void (*nxc_pack_function)(float *block, ptrdiff_t vector_pitch, int64_t positions, int64_t channels,
                                  const void *source, int format, int64_t step);

/* For `vectors` vectors of channels, v of them: sums[v*sum_pitch + (taps[t]*DOT_LANES + j)*width + c] += products of
 * large[line*large_line + p*large_step + offsets[t] + v*width + c] with small[line*small_line + p*small_step + v*width + c],
 * p < positions, line < lines: position p belongs to chain j = (first + p) modulo DOT_LANES.  A chain takes the lines one after
 * the other. */
typedef void (*nxc_weights_function)(float *sums, ptrdiff_t sum_pitch, int64_t vectors, const float *large, ptrdiff_t large_line,
                                     ptrdiff_t large_step, const int64_t *offsets, const int64_t *taps, int64_t tap_count,
                                     const float *small, ptrdiff_t small_line, ptrdiff_t small_step, int64_t first,
                                     int64_t positions, int64_t lines);

#endif
