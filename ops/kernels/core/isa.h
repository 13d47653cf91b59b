/* What an instruction set offers the engine: a register tile, panel packing and tile storing, all of one shape.
 *
 * A tile is a block of outputs, `rows` x (`vectors` * `width`) lanes; one vector lane is one output, never a part of one.
 * Its reduction walks runs of packed panels: at each step `rows` numbers are broadcast against `lanes` numbers, one fused
 * multiply-add per output, strictly in order.  A tile resumed from memory continues the same chain, so the way a
 * reduction is cut into runs and calls does not show in the bits.
 */
#ifndef CONVREG_ISA_H
#define CONVREG_ISA_H

#include <stddef.h>
#include <stdint.h>

#include "core/isa_depthwise.h"
#include "core/reduction.h"
#include "numbers/conversion.h"

enum {
    TILE_ROWS = 8,     /* the tallest tile of any instruction set */
    TILE_VECTORS = 3,  /* the widest tile of any instruction set, in vectors */
    TILE_LANES = 48,   /* ... and in lanes */
    TALL_ROWS = 16,    /* of a tile of one vector whose rows are equally far apart, at most */
    DOT_LANES = 16,    /* chains of a dot product */
    DOT_TAPS = 12,     /* dot products side by side, at most */
    LINE_PIECE = 32,   /* numbers that are laid out together, at most */
    DOT_TILE = 4,      /* channels of the small side whose dot products advance together, at most ... */
    DOT_LARGE = 8,     /* ... and of the large side */
    LINE_TILE_ROWS = 9,  /* rows of a tile that are lines, at most */
    SEGMENT_WIDTHS = 4,  /* vectors of 4, 8 and 16 lanes, and two of 16 */
    SEGMENT_COUNT = 2,   /* segments of lines in a tile, at most */
    SEGMENT_LENGTH = 14, /* positions of one, at most */
    SEGMENT_BLOCK_LENGTH = 10, /* ... where sums are taken in blocks of two halves */
    SEGMENT_PANELS_LENGTH = 7, /* ... or in blocks of two vectors of lanes */
};

/* `steps` steps of a reduction; addresses are offsets, in floats, from the panels a call names. */
typedef struct {
    ptrdiff_t rows;
    ptrdiff_t lanes;
    ptrdiff_t steps;
} tile_run;

/* A run of the first half of a tile's rows (1), of the second (2), or of both (3). */
typedef struct {
    tile_run run;
    int64_t halves;
} half_run;

/* A vector that is copied: the numbers at byte `source` in the lanes of `mask`, zeros in the others. */
typedef struct {
    int64_t source;
    int32_t place;
    uint16_t mask;
} copy_move;

/* Copies of float32 or float16 numbers, as floats, that tiles make on their way, some with every step, so that memory is waited for
 * while sums go on. */
typedef struct {
    const copy_move *moves; /* of some channels */
    int64_t move_count;
    int64_t done;           /* of these */
    int64_t left;           /* of all channels */
    const char *source;
    float *place;
    ptrdiff_t source_step;  /* bytes, from these channels to the next */
    ptrdiff_t place_step;   /* floats */
    ptrdiff_t ahead;        /* bytes, from what is copied to what is asked for */
    int format;
    float rate;             /* moves for a step of a tile */
    float credit;           /* that steps brought and no move took */
} copying;

/* Memory that is asked for while a tile computes, with every step one part of a row, about a cache line of it: what lies at
 * place + row*row_step + offsets[part] + reach, in bytes. */
typedef struct {
    char *place;
    ptrdiff_t row_step;
    int64_t rows;
    int64_t parts;
    ptrdiff_t reach;
    int64_t offsets[TILE_LANES];
} tile_wish;

/* Where a tile's sums end up: of vector v the lanes masks[part], first[v] <= part < first[v + 1], from place + row*row_step +
 * offsets[part] on, + 0, + bias[row] (which may be NULL). Where `direct`, the tile stores them there as float32. Where
 * `together`, numbers of a part lie `apart` from each other: 1, or 2, and then masks[part] has those of lanes 0 to 7 in its even
 * bits, or those of lanes 8 to 15 in its odd bits. */
typedef struct {
    tile_wish wish;
    int direct;
    int together;
    int apart;
    const float *bias;
    int64_t first[TILE_VECTORS + 1];
    uint16_t masks[TILE_LANES];
} tile_result;

/* c[rows][vectors*width] (contiguous) = sum, or c += sum where `resume`.  The row operand advances by the set's
 * `rows` a step, the lane operand by `lane_pitch`.  Where `next` is not 0, the row panel so many floats from
 * this one, which is far away, is asked for meanwhile.  `meanwhile` is NULL or has copies to make.
 * Where `result` is not NULL its memory is asked for meanwhile, and where it is direct, sums are finished and stored there, not
 * in c. */
typedef void (*tile_function)(const tile_run *runs, ptrdiff_t run_count, const float *rows, ptrdiff_t next, const float *lanes,
                              ptrdiff_t lane_pitch, float *c, int resume, copying *meanwhile, const tile_result *result);

/* c = sum, where halves of the rows have runs of their own. */
typedef void (*halves_function)(const half_run *runs, ptrdiff_t run_count, const float *rows, const float *lanes, ptrdiff_t lane_pitch,
                                float *c, copying *meanwhile);

/* Makes the copies that are left. */
typedef void (*copy_function)(copying *all);

/* The same with a row operand that is no panel: row i at step k of a run is rows[offsets[i] + run->rows + k*row_step].  `wish`
 * may be NULL; what it names is asked for. */
typedef void (*strided_function)(const tile_run *runs, ptrdiff_t run_count, const float *rows, const int64_t *offsets,
                                 ptrdiff_t row_step, const float *lanes, ptrdiff_t lane_pitch, float *c, int resume,
                                 const tile_wish *wish);

/* The same of one vector, with more rows than TILE_ROWS: row i is rows[i*apart + run->rows + k*row_step]. */
typedef void (*tall_function)(const tile_run *runs, ptrdiff_t run_count, const float *rows, ptrdiff_t apart, ptrdiff_t row_step,
                              const float *lanes, ptrdiff_t lane_pitch, float *c, int resume);

/* c[row*pitch + lane] += sum, of rows as `strided_function` takes them.  Where sums are taken in `blocks`, the first half of one
 * ends with a run of `halves` 1, one of two halves with 2, one of a single half with 3. */
typedef void (*tap_lanes_function)(const half_run *runs, ptrdiff_t run_count, const float *rows, const int64_t *offsets,
                                   ptrdiff_t row_step, const float *lanes, ptrdiff_t lane_pitch, float *c, ptrdiff_t pitch, int blocks,
                                   const tile_wish *wish);

/* sums[tap][DOT_LANES] += products along lines: lane j takes the positions j, j + DOT_LANES, ... of every line.  The line at
 * y of `large` begins at large + shifts[tap] + y*large_pitch; `masks`, laid out like it, is NULL or all ones where a
 * position takes part.  `large` may be read to the end of a last, partial block of lanes; `small` may not. */
typedef void (*dot_function)(float *sums, const float *large, const int64_t *shifts, ptrdiff_t large_pitch,
                             const float *small, ptrdiff_t small_pitch, int64_t lines, int64_t count, const float *masks);

/* Sums in blocks (core/reduction.h) of rows that are lines of pairs, which run backwards: the pair of row i at step k of a run lies
 * offsets[i] + run->rows - 4*k bytes from `lines` on.  No run goes beyond half a block. */
typedef void (*line_blocks_function)(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const char *lines,
                                     const int64_t *offsets, const float *lanes, ptrdiff_t lane_pitch, float *c, int resume);

/* A piece of a line: `count` <= LINE_PIECE numbers from number `place` on, zeros but for those whose bit of `mask` is set, where element
 * source + i*step of the line stands.  Where step is not 1, or nothing is loaded under a mask, these are low <= i < high; elsewhere
 * `more` pieces of LINE_PIECE elements follow, each from where the one before ends.  Where `each` is not 0, `count` numbers are several
 * lines of so many, whose sources are `further` elements apart; `mask`, `low` and `high` are those of each line. */
typedef struct {
    int64_t source;
    int64_t further;
    int32_t place;
    int32_t count;
    int32_t low;
    int32_t high;
    uint32_t mask;
    int32_t more;
    int32_t each;
} line_piece;

/* `lines` lines of the same pieces, as `line_blocks_function` takes them, `pitch` bytes apart, bfloat16 codes of `format`; number 0 of the
 * first is at `first`.  Elements of a line begin line_stride after those of the line before.  Pieces are laid out in their order and
 * may be overrun by less than a vector. */
typedef void (*lay_lines_function)(char *first, ptrdiff_t pitch, int64_t lines, const line_piece *pieces, int64_t piece_count,
                                   const void *source, int format, int64_t line_stride, int64_t step, uint16_t *smallest);

/* Of lines as `lay_lines_function` lays them out, the numbers from `to` on of a block of two halves: `met` numbers from number `before`
 * on, and after them what follows as many numbers behind `after`. */
typedef void (*patch_lines_function)(char *first, ptrdiff_t pitch, int64_t lines, int64_t to, int64_t before, int64_t after, int64_t met);

/* Lines of a plane side by side, `count` numbers each, `low` <= i < `high` of lines first <= line < end inside; zeros are the others. */
typedef struct {
    int64_t lines;
    int64_t first;
    int64_t end;
    int64_t count;
    int64_t low;
    int64_t high;
    int64_t line_step; /* elements from a line to the next */
    int64_t step;      /* ... from a number to the next */
} plane_lines;

/* All numbers of the lines, as `line_blocks_function` takes them, bfloat16 codes of `format`; number 0 is at `place`.  `source` is
 * number `low` of line `first`.  May overrun by less than a vector. */
typedef void (*lay_plane_function)(char *place, const plane_lines *all, const void *source, int format, uint16_t *smallest);

/* The same for `taps` taps at once, each `pitch` bytes after the one before and one element further.  Here `low` and `high` are elements
 * of a line, and `source` is element 0. */
typedef void (*lay_planes_function)(char *place, ptrdiff_t pitch, int64_t taps, const plane_lines *all, const void *source, int format,
                                    uint16_t *smallest);
/* The same of several channels of either side: sums[m*row_sums + c*column_sums + lane] += products of channel m of `small` with
 * channel c of `large`, at one tap.  Neither side is read beyond its lines. `format`: of `large`, with 16 or 32 bits. */
typedef void (*dot_tile_function)(float *sums, ptrdiff_t row_sums, ptrdiff_t column_sums, const void *large, int format,
                                  ptrdiff_t large_channel, ptrdiff_t large_pitch, const float *small, ptrdiff_t small_channel,
                                  ptrdiff_t small_pitch, int64_t lines, int64_t count);

/* In float64, of vectors of half as many lanes: c[rows][the set's vectors*width/2] += sum, from rows as `strided_function` takes
 * them and a lane panel that advances like a row of c. */
typedef void (*tile64_function)(const tile_run *runs, ptrdiff_t run_count, const double *rows, const int64_t *offsets,
                                ptrdiff_t row_step, const double *lanes, double *c);

/* sums[i] = fma(numbers[i*step], weight, sums[i]) */
typedef void (*line64_function)(double *sums, const double *numbers, ptrdiff_t step, double weight, int64_t count);

/* sums[row][REDUCTION_CHAINS] += products of `large` and of the rows of `small`, `pitch` apart: chain j takes the numbers j modulo
 * REDUCTION_CHAINS.  `count` is a multiple of that. */
typedef void (*dot64_function)(double *sums, const double *large, const double *small, ptrdiff_t pitch, ptrdiff_t count);

/* One row of outputs along whole lines, with no lanes between them: target[line*target_pitch + i] for i < count is the sum of
 * a tile's row over lanes[run->lanes + k*lane_pitch + line*line_pitch + i], + 0, + bias. */
typedef void (*line_function)(const tile_run *runs, ptrdiff_t run_count, const float *rows, const float *lanes, ptrdiff_t lane_pitch,
                              ptrdiff_t line_pitch, int64_t lines, int64_t count, float *target, ptrdiff_t target_pitch, float bias);

/* block[line*pitch + i] for i < width: zeros but for low <= i < high, where element line*line_stride + (i - low)*step of
 * `source` stands, stored in `format`.  May overrun a line by less than a vector. */
typedef void (*frame_function)(float *block, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high,
                               const void *source, int format, int64_t line_stride, int64_t step, int64_t next);

/* Frames of numbers that take turns `ways` ways, 4, 8 or 16: block[way*between + line*pitch + i] for i < width is number
 * first + i*ways + way of the `count` of a line, zero outside. */
typedef void (*split_function)(float *block, ptrdiff_t between, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t ways,
                               const void *source, int format, int64_t line_stride, int64_t first, int64_t count, int64_t next);

/* One row of a tile whose lanes take a step only where `masks`, laid out as the lane panel, is all ones: for panels that
 * hold zeros in place of positions outside, met by numbers whose product with zero is not zero. */
typedef void (*masked_function)(const tile_run *runs, ptrdiff_t run_count, const float *rows, const float *lanes,
                                ptrdiff_t lane_pitch, float *c, int resume, const float *masks);

/* Lanes [lane, lane + count) of a panel or tile: elements offset, offset + step, ... of a tensor, or zeros where
 * offset is NO_ELEMENT. */
#define NO_ELEMENT INT64_MIN
typedef struct {
    int64_t lane;
    int64_t count;
    int64_t offset;
    int64_t step;
} lane_span;

/* panel[k*pitch + lane] for k < steps: element offset(lane) + k*stride of `source`, stored in `format`.  Spans cover all
 * lanes in ascending order; the panel has room for one vector after its last lane. */
typedef void (*gather_function)(float *panel, ptrdiff_t pitch, int64_t steps, const void *source, int format, int64_t stride,
                                const lane_span *spans, int64_t span_count);

/* panel[tap*tap_step + channel*pitch + row], at most TILE_LANES rows: element taps[tap] + channel*channel_stride +
 * row*row_stride of `source`. */
typedef void (*gather_taps_function)(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels,
                                     const void *source, int format, int64_t row_stride, int64_t channel_stride,
                                     const int64_t *taps, int64_t tap_count);

/* sums[i]: the sum of chains[i][REDUCTION_CHAINS]. */
typedef void (*sum_chains_function)(float *sums, const float *chains, int64_t count);

/* Whether none of the values is infinite or NaN. */
typedef int (*finite_function)(const float *values, int64_t count);

/* Element offset(lane) + row*stride of `target` = the tile's finished sum + bias[row], rounded to `format`. */
typedef void (*scatter_function)(const float *tile, ptrdiff_t pitch, int64_t rows, void *target, int format, int64_t stride,
                                 const lane_span *spans, int64_t span_count, const float *bias);

/* The sums of a tile, `pitch` floats from row to row, to where `result` says, rounded to `format`; its parts are `together`. */
typedef void (*scatter_parts_function)(const float *tile, ptrdiff_t pitch, int64_t rows, const tile_result *result, int format);

/* Neighbours of a sum in a result, of which it is number `own`: positions that no tap reaches. */
typedef struct {
    int64_t extent[3];
    int64_t own[3];
    int64_t line[2]; /* elements from plane to plane, from line to line */
} result_cell;

/* The same for sums that stand extent[2] apart, the lanes of a span, with their cells: a finished 0 + bias[row] at all other
 * positions. */
typedef void (*scatter_cells_function)(const float *tile, ptrdiff_t pitch, int64_t rows, void *target, int format, int64_t stride,
                                       const lane_span *spans, int64_t span_count, const float *bias, const result_cell *cell);

/* The same as `scatter` for tiles of several taps, `tile_step` floats apart, whose rows are channels: element
 * lane*lane_stride + row*row_stride + taps[t].  Walks the taps of one place in memory before the next. */
typedef void (*scatter_taps_function)(const float *tiles, ptrdiff_t tile_step, ptrdiff_t pitch, int64_t rows, int64_t lanes,
                                      void *target, int format, int64_t lane_stride, int64_t row_stride, const int64_t *taps,
                                      int64_t tap_count);

/* Element i*step + c*channel_step of `target` = the finished sum sums[rows[i] + c] + bias[c] (which may be NULL), rounded to
 * `format`, for i < count, c < channels. */
typedef void (*store_positions_function)(void *target, int format, int64_t step, int64_t channel_step, const float *sums,
                                         const int64_t *rows, int64_t count, int64_t channels, const float *bias);

/* The first channel of a step that pairs it with another `apart` from it, and the steps that so many channels take; of channels
 * half a block of sums apart these are whole blocks. */
static inline int64_t pair_channel(int64_t step, int apart)
{
    return step / apart * apart + step;
}

static inline int64_t pair_steps(int64_t channels, int apart)
{
    return (channels + 2 * apart - 1) / (2 * apart) * apart;
}

/* For sets that multiply bfloat16 pairs: a step of the reduction is two, channel k in the upper and k + `apart` in the
 * lower half of 32 bits (the order in which a dot product adds), zero where channels run out.  `smallest` sinks to the
 * smallest magnitude met, zeros apart, as a bfloat16 code less one: the instruction flushes subnormals. */
typedef void (*gather_pairs_function)(float *panel, ptrdiff_t pitch, int64_t channels, const void *source, int format,
                                      int64_t stride, const lane_span *spans, int64_t span_count, uint16_t *smallest);
typedef void (*gather_taps_pairs_function)(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels,
                                           const void *source, int format, int64_t row_stride, int64_t channel_stride,
                                           const int64_t *taps, int64_t tap_count, uint16_t *smallest);
/* rows[p*pitch + k] for p < count: the pair k of the channels of position p, `step` from the one before.  Overruns a row by less
 * than a vector. */
typedef void (*gather_positions_function)(float *rows, ptrdiff_t pitch, int64_t count, int64_t channels, const void *source,
                                          int format, int64_t step, int64_t channel_stride, uint16_t *smallest);
typedef void (*frame_pairs_function)(float *block, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t low, int64_t high,
                                     const void *first, const void *second, int format, int64_t line_stride, int64_t step,
                                     int64_t next, uint16_t *smallest);
typedef void (*split_pairs_function)(float *block, ptrdiff_t between, ptrdiff_t pitch, int64_t lines, int64_t width, int64_t ways,
                                     const void *first, const void *second, int format, int64_t line_stride, int64_t start,
                                     int64_t count, int64_t next, uint16_t *smallest);

/* How the sums of segments are taken: as chains, or in blocks (core/reduction.h), of which each run is one with a single half, or
 * begins with one. */
enum { SEGMENT_CHAIN, SEGMENT_ONE_HALF, SEGMENT_BLOCKS, SEGMENT_KINDS };

/* Lanes are channels, and rows are positions side by side, in segments `apart` floats apart: sums[s*sums_apart + i*sums_step + lane] is the
 * sum over runs of rows[run->rows + s*apart + i + k*pitch] times lanes[run->lanes + k*(lanes of a vector) + lane].  Of two vectors, both
 * meet the same segment: sums[v*sums_apart + i*sums_step + lane] sums rows[run->rows + i + k*pitch] times
 * lanes[run->lanes + v*apart + 16*k + lane]. */
typedef void (*segment_function)(const tile_run *runs, ptrdiff_t run_count, const float *rows, ptrdiff_t apart, ptrdiff_t pitch,
                                 const float *lanes, float *sums, ptrdiff_t sums_apart, ptrdiff_t sums_step);

typedef struct {
    segment_function tile[SEGMENT_KINDS][SEGMENT_WIDTHS][SEGMENT_COUNT][SEGMENT_LENGTH]; /* [segments - 1][positions - 1], or NULL */
} segment_tiles;

/* Element i + c*channel_step of `target` = the finished sum sums[i*lanes + c] + bias[c] (which may be NULL), rounded to `format`, for
 * i < count, c < channels <= lanes. Reads the sums of whole vectors of positions. */
typedef void (*store_segments_function)(int lanes, void *target, int format, int64_t channel_step, const float *sums, int64_t count,
                                        int64_t channels, const float *bias);

#include "core/isa_pairs.h"
#include "core/isa_matrix.h"

typedef struct {
    int panel_rows;                               /* numbers of a step in a row panel */
    int apart;                                    /* channels of a pair: adjacent, or HALF_BLOCK within a block of sums */
    tile_function tile[TILE_ROWS][TILE_VECTORS];  /* NULL where pairs are not adjacent, as `lines` and `whole_blocks` */
    halves_function halves[TILE_ROWS / 2][TILE_VECTORS]; /* likewise; [rows/2 - 1][vectors - 1] */
    tile_function blocks[TILE_ROWS][TILE_VECTORS]; /* of a matrix unit the first, for any rows */
    tile_function blocks_by_vector[TILE_ROWS][TILE_VECTORS]; /* likewise, with fewer stores and more loads; NULL of a matrix unit */
    unit_function begin;                          /* before a thread's first tile, and after its last; or NULL */
    unit_function end;
    turn_function turn;                           /* or NULL: row panels are used as they are packed */
    block_rows_function block_rows;               /* of a matrix unit alone, as the next three */
    block_rows_function frame_rows;               /* ... with the pairs of the 16 positions that follow behind those of a block */
    patch_rows_function patch_rows;               /* blocks that lie in several places of a frame */
    row_panels_function row_panels[TILE_VECTORS]; /* [vectors - 1] */
    strided_function whole_blocks[TILE_ROWS][TILE_VECTORS];
    strided_function whole_by_vector[TILE_ROWS][TILE_VECTORS]; /* ... with fewer loads of lanes and more of rows */
    line_blocks_function line_blocks;
    lay_lines_function lay_lines;
    patch_lines_function patch_lines;
    lay_plane_function lay_plane;
    lay_planes_function lay_planes;
    line_function lines;
    const segment_tiles *segments; /* NULL where pairs are not adjacent */
    gather_pairs_function gather;
    gather_taps_pairs_function gather_taps;
    gather_positions_function gather_positions; /* NULL where pairs are not adjacent */
    frame_pairs_function frame;
    split_pairs_function split;
    finite_function finite;
    lay_chains_function lay_chains; /* NULL where pairs are not adjacent, as those that follow */
    chain_tile_function chain_tile[DOT_TILE][DOT_LARGE]; /* [channels of small - 1][channels of large - 1], or NULL */
    chain_taps_function chain_taps[NCX_COLUMNS][NCX_COLUMNS]; /* [rows of taps - 1][columns - 1] */
    chain_rows_function chain_rows[NCX_COLUMNS][NCX_COLUMNS];
    lay_tap_pairs_function lay_tap_pairs;
    join_tap_pairs_function join_tap_pairs;
    lay_row_pairs_function lay_row_pairs;
    tap_pairs_function tap_pairs[TILE_ROWS][TILE_VECTORS]; /* [rows - 1][vectors - 1], or NULL */
    plane_pair_functions planes; /* all NULL where pairs are not adjacent */
} pair_functions;

typedef struct {
    const char *name;
    int (*usable)(void);
    int (*preferred)(void); /* whether a usable one is faster than the next, by measured rates; NULL: it is */
    int rows;
    int vectors;
    int width;
    tile_function tile[TILE_ROWS][TILE_VECTORS]; /* [rows - 1][vectors - 1] */
    halves_function halves[TILE_ROWS / 2][TILE_VECTORS]; /* [rows/2 - 1][vectors - 1] */
    strided_function strided[TILE_ROWS][TILE_VECTORS];
    tall_function tall[TALL_ROWS - TILE_ROWS]; /* of TILE_ROWS + 1 rows and more, or NULL */
    strided_function strided_blocks[TILE_ROWS][TILE_VECTORS]; /* sums in blocks: no run goes beyond half a block */
    strided_function strided_by_vector[TILE_ROWS][TILE_VECTORS]; /* ... with fewer stores and more loads if there are registers for it */
    strided_function whole_blocks[TILE_ROWS][TILE_VECTORS];   /* likewise: a run begins with a block and has any length */
    strided_function whole_by_vector[TILE_ROWS][TILE_VECTORS]; /* ... with fewer loads of lanes and more of rows */
    tap_lanes_function tap_tile[TILE_ROWS][TILE_VECTORS];
    masked_function masked[TILE_VECTORS];        /* [vectors - 1] */
    tile_function blocks[TILE_ROWS][TILE_VECTORS]; /* of sums in blocks (core/reduction.h), whose runs begin with a block */
    tile_function blocks_by_vector[TILE_ROWS][TILE_VECTORS]; /* likewise, with fewer stores and more loads if there are registers for it */
    masked_function masked_blocks[TILE_VECTORS];
    line_function lines;
    ncx_function depthwise_ncx[NCX_SLOTS];           /* [slots - 1]; NULL beyond the registers, and where nothing is loaded under a mask */
    ncx_weights_function depthwise_ncx_weights[NCX_COLUMNS][NCX_COLUMNS]; /* [rows - 1][columns - 1]; likewise */
    weave_function weave;                        /* or NULL, likewise */
    plane_functions planes;
    nxc_function depthwise_nxc;
    nxc_pack_function nxc_pack;
    nxc_weights_function depthwise_nxc_weights;
    frame_function frame;
    copy_function copy;                          /* or NULL: tiles copy nothing */
    split_function split;                        /* or NULL */
    dot_function dot[DOT_TAPS];                  /* [taps - 1] */
    int dot_columns[DOT_TILE];                   /* channels of large, at most, for [channels of small - 1], in dot and chain tiles */
    dot_tile_function dot_tile[DOT_TILE][DOT_LARGE]; /* [channels of small - 1][channels of large - 1], or NULL */
    tile64_function tile64[TILE_ROWS][TILE_VECTORS];
    line64_function line64;
    dot64_function dot64[REDUCTION_FEW];         /* [rows - 1] */
    gather_function gather;
    gather_taps_function gather_taps;
    sum_chains_function sum_chains;
    finite_function finite;
    scatter_function scatter;
    scatter_parts_function scatter_parts; /* or NULL */
    scatter_cells_function scatter_cells; /* or NULL */
    scatter_taps_function scatter_taps;
    conversion_functions conversions;
    store_positions_function store_positions;
    const segment_tiles *segments;           /* or NULL */
    store_segments_function store_segments;  /* likewise */
    const pair_functions *pairs;                  /* or NULL */
    const pair_functions *matrix;                 /* likewise, of sums in blocks only, faster than those */
} instruction_set;

/* Best first, `generic` last; `count` of them were compiled. */
const instruction_set *const *instruction_sets(int *count);

/* Whether vectors look up tables of 128 bytes, and shift two numbers as one (AVX-512 VBMI and VBMI2): if that is wanted, and the
 * processor can. */
extern int byte_look_ups;
void want_byte_look_ups(int wanted);

/* Products of numbers in a nanosecond that one thread takes on registers, with 512-bit instructions. */
typedef struct {
    double multiply_adds; /* in float32 */
    double dot_products;  /* of bfloat16 numbers in pairs */
    double cycles;        /* of the core in a nanosecond */
} product_rates;

/* Dot products are preferred if they take at least this many times the products of multiply-adds: pairs halve the panels, but
 * are packed with a look at subnormals. */
#define DOT_PRODUCTS_PAY 0.85

/* Measured by the first call in a process, in about 0.1 ms; NULL where there are no dot products. */
const product_rates *measured_rates(void);

#endif
