/* The engine's register code, written once on vector extension types.  A file of simd/targets defines
 *
 *     SUFFIX(name)              the name of a function in this instruction set
 *     WIDTH, ROWS, VECTORS      lanes of a vector; the largest register tile
 *     BROADCAST(x)              a vector of x
 *     MULTIPLY_ADD(a, b, c)     a*b + c, rounded once
 *     BROADCAST_DOUBLE(x)       a vector of x in doubles, half as many
 *     MULTIPLY_ADD_DOUBLE(a, b, c)  a*b + c of those, rounded once
 *     LOAD_PART(p, n)           the first n < WIDTH floats at p, zeros after them; of 4 lanes simd/parts.h has it
 *     LOAD_HALVES(p, n)         of 16 lanes: the first n <= WIDTH 16-bit codes at p, zeros after them
 *     STORE_PART(p, n, v)       of 16 lanes: the first n < WIDTH floats of v to p
 *     lane_mask, LANE_MASK(bits), KEEP_MASK(m), LOAD_MASKED(p, m), MASKED_FACTOR(a, m), MULTIPLY_ADD_MASKED(a, b, c, m),
 *     STORE_KEPT(p, bits, v)    optional, all or none: numbers in lanes whose bit is set. What is loaded is zero in the others;
 *                               a product has a factor of MASKED_FACTOR and another that was loaded under the mask;
 *                               STORE_KEPT stores the first lanes
 *     STORE_MASKED(p, m, v)     optional, of 16 lanes: lanes of a mask
 *     MULTIPLY_ADD_PAIRS        optional: c plus the products of upper, then of lower bfloat16 halves; simd/pairs.h follows
 *     MULTIPLY_ADD_PAIR(lanes, p, b, c)  with it: the same to c, of vectors of "16", "8" or "4" lanes, of b and the pair at p
 *     TEMPLATES_ONLY            optional: no table of functions is defined, so that the compiler drops those that nothing names
 *
 * and includes this file inside its target region.
 */
#include <string.h>

#include "numbers/codes.h"
#include "core/isa.h"
#include "numbers/numbers.h"
#include "numbers/rounding.h"

typedef float vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t vector_int __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef uint32_t vector_uint __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef uint16_t vector_half __attribute__((vector_size(2 * WIDTH), aligned(2), may_alias));
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t quad_uint __attribute__((vector_size(16)));
typedef uint16_t quad_half __attribute__((vector_size(8), aligned(2), may_alias));

#define INLINE static inline __attribute__((always_inline))

#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t quad_int __attribute__((vector_size(16)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (quad_int){__VA_ARGS__})
#endif

#include "simd/parts.h"

#ifndef MULTIPLY_ADD_PAIRS
#define MULTIPLY_ADD_PAIRS MULTIPLY_ADD /* never called */
#define MULTIPLY_ADD_PAIR(lanes, p, b, c) ((void)0)
#endif

/* A value loaded once for several uses: GCC would load it again for each of them, as their operand in memory. */
#if defined(__x86_64__) && WIDTH > 4
#define KEEP(value) __asm__("" : "+v"(value))
#else
#define KEEP(value) ((void)0)
#endif

INLINE vector choose(vector_int mask, vector yes, vector no)
{
    return (vector)((mask & (vector_int)yes) | (~mask & (vector_int)no));
}

/* ------------------------------------------------------------------------------------------------------------------
 * The register tile
 */

#include "simd/prefetch.h"

/* A row of sums is `pitch` vectors after the one before. */
INLINE void load_sums(int rows, int vectors, vector (*sum)[VECTORS], const float *c, int pitch, int resume)
{
#pragma GCC unroll 9
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sum[i][j] = resume ? *(const vector *)(c + (i * pitch + j) * WIDTH) : (vector){0};
}

INLINE void store_sums(int rows, int vectors, vector (*sum)[VECTORS], float *c, int pitch)
{
#pragma GCC unroll 9
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            *(vector *)(c + (i * pitch + j) * WIDTH) = sum[i][j];
}

/* A step's lanes; with `keep` they are loaded before any is used, and once. */
INLINE void load_lanes(int vectors, vector *lanes, const float *b, int keep)
{
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) {
        lanes[j] = *(const vector *)(b + j * WIDTH);
        if (keep)
            KEEP(lanes[j]);
    }
}

INLINE void tile_step(int rows, int vectors, vector (*sum)[VECTORS], const float *const *row, ptrdiff_t a, const float *b,
                      const float *m, int pairs)
{
    vector lanes[VECTORS];
    load_lanes(vectors, lanes, b, rows > 1);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        if (pairs && vectors == 1 && !m) { /* nothing shares the broadcast */
            MULTIPLY_ADD_PAIR("16", row[i] + a, lanes[0], sum[i][0]);
            continue;
        }
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            vector next = pairs ? MULTIPLY_ADD_PAIRS(BROADCAST(row[i][a]), lanes[j], sum[i][j])
                                : MULTIPLY_ADD(BROADCAST(row[i][a]), lanes[j], sum[i][j]);
            if (m) {
                vector_int mask = *(const vector_int *)(m + j * WIDTH);
                next = choose(mask, next, sum[i][j]);
            }
            sum[i][j] = next;
        }
    }
}

/* The k steps of a run from a, b and m on, and copies with them, which masked tiles do not make. */
INLINE void run_steps(int rows, int vectors, vector (*sum)[VECTORS], const float *const *row, ptrdiff_t a, ptrdiff_t row_step,
                      ptrdiff_t next, const float *b, ptrdiff_t lane_pitch, const float *m, ptrdiff_t k, copying *meanwhile, int pairs)
{
    if (meanwhile) {
        ptrdiff_t most = due_moves(meanwhile, k);
        k -= most;
        while (most) {
            ptrdiff_t count = meanwhile->move_count - meanwhile->done;
            count = count < most ? count : most;
            const copy_move *move = meanwhile->moves + meanwhile->done;
            const char *source = meanwhile->source;
            float *place = meanwhile->place;
            int format = meanwhile->format;
            ptrdiff_t ahead = meanwhile->ahead;
            for (ptrdiff_t i = count; i > 0; i--) {
                make_move(move, format, source, place, ahead);
                move++;
                if (next)
                    __builtin_prefetch(row[0] + a + next);
                tile_step(rows, vectors, sum, row, a, b, NULL, pairs);
                a += row_step;
                b += lane_pitch;
            }
            count_moves(meanwhile, count);
            most -= count;
        }
    }
    for (; k > 0; k--) {
        if (next)
            __builtin_prefetch(row[0] + a + next);
        tile_step(rows, vectors, sum, row, a, b, m, pairs);
        a += row_step;
        b += lane_pitch;
        if (m)
            m += lane_pitch;
    }
}

/* A run of steps, of which the first ask for what `asks` still has to; masked tiles ask for nothing. */
INLINE void one_run(int rows, int vectors, vector (*sum)[VECTORS], const float *const *row, const tile_run *run, ptrdiff_t row_step,
                    ptrdiff_t next, const float *lane_panel, ptrdiff_t lane_pitch, const float *masks, asking *asks, int to_write,
                    copying *meanwhile, int pairs)
{
    const float *b = lane_panel + run->lanes;
    const float *m = masks ? masks + run->lanes : NULL;
    ptrdiff_t a = run->rows, k = run->steps;
    if (asks->left) {
        ptrdiff_t count = asks->left < k ? asks->left : k;
        asks->left -= count;
        k -= count;
        for (; count > 0; count--) {
            ask(asks, to_write);
            if (next)
                __builtin_prefetch(row[0] + a + next);
            tile_step(rows, vectors, sum, row, a, b, NULL, pairs);
            a += row_step;
            b += lane_pitch;
        }
    }
    run_steps(rows, vectors, sum, row, a, row_step, next, b, lane_pitch, m, k, meanwhile, pairs);
}

/* Rows come from a panel, or where `offsets` is given from wherever each of them lies. */
INLINE void tile_body(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const float *row_panel, ptrdiff_t next,
                      const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel, ptrdiff_t lane_pitch, float *c,
                      int pitch, int resume, const float *masks, copying *meanwhile, const tile_wish *wish,
                      const tile_result *result, int pairs)
{
    vector sum[ROWS][VECTORS];
    load_sums(rows, vectors, sum, c, pitch, resume);
    const float *row[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = row_panel + (offsets ? offsets[i] : i);
    asking asks = begin_asking(wish);
    for (ptrdiff_t r = 0; r < run_count; r++)
        one_run(rows, vectors, sum, row, runs + r, row_step, next, lane_panel, lane_pitch, masks, &asks, result != NULL, meanwhile,
                pairs);
    if (result && result->direct)
        store_result(rows, vectors, sum, result);
    else
        store_sums(rows, vectors, sum, c, pitch);
}

#define PANEL_TILE(name, rows, vectors, pairs)                                                                                   \
    static void SUFFIX(name##_##rows##_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,             \
                                                  ptrdiff_t next, const float *lane_panel, ptrdiff_t lane_pitch,                 \
                                                  float *c, int resume, copying *meanwhile, const tile_result *result)           \
    {                                                                                                                            \
        const tile_wish *wish = result ? &result->wish : NULL;                                                                   \
        if (COPIES && !pairs && meanwhile && meanwhile->left)                                                                    \
            tile_body(rows, vectors, runs, run_count, row_panel, rows == ROWS ? next : 0, NULL, ROWS, lane_panel, lane_pitch, c, \
                      VECTORS, resume, NULL, meanwhile, wish, result, pairs);                                                    \
        else if (rows == ROWS && next)                                                                                           \
            tile_body(rows, vectors, runs, run_count, row_panel, next, NULL, ROWS, lane_panel, lane_pitch, c, VECTORS, resume,   \
                      NULL, NULL, wish, result, pairs);                                                                          \
        else                                                                                                                     \
            tile_body(rows, vectors, runs, run_count, row_panel, 0, NULL, ROWS, lane_panel, lane_pitch, c, VECTORS, resume,      \
                      NULL, NULL, wish, result, pairs);                                                                          \
    }
#define TILE(rows, vectors)                                                                                             \
    PANEL_TILE(tile, rows, vectors, 0)                                                                                  \
    static void SUFFIX(strided_##rows##_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,   \
                                                   const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel, \
                                                   ptrdiff_t lane_pitch, float *c, int resume, const tile_wish *wish)   \
    {                                                                                                                   \
        tile_body(rows, vectors, runs, run_count, row_panel, 0, offsets, row_step, lane_panel, lane_pitch, c, vectors,  \
                  resume, NULL, NULL, wish, NULL, 0);                                                                   \
    }
#define TILES(rows) TILE(rows, 1) TILE(rows, 2) TILE(rows, 3)
TILES(1) TILES(2) TILES(3) TILES(4)
#if ROWS == 8
TILES(5) TILES(6) TILES(7) TILES(8)
#endif

#define MASKED(vectors)                                                                                                 \
    static void SUFFIX(masked_##vectors)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,             \
                                         const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume,           \
                                         const float *masks)                                                            \
    {                                                                                                                   \
        tile_body(1, vectors, runs, run_count, row_panel, 0, NULL, ROWS, lane_panel, lane_pitch, c, VECTORS, resume,    \
                  masks, NULL, NULL, NULL, 0);                                                                          \
    }
MASKED(1) MASKED(2) MASKED(3)

#if WIDTH == 16
#include "simd/tall_tiles.h"
#else
#define ALL_TALL {NULL}
#endif
#include "simd/blocks.h"
#include "simd/halves.h"
#include "simd/lines.h"
#include "simd/tap_lanes.h"

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
    static void SUFFIX(dot_##taps)(float *sums, const float *large, const int64_t *shifts, ptrdiff_t large_pitch,        \
                                   const float *small, ptrdiff_t small_pitch, int64_t lines, int64_t count,              \
                                   const float *masks)                                                                   \
    {                                                                                                                    \
        if (masks)                                                                                                       \
            dot_body(taps, sums, large, shifts, large_pitch, small, small_pitch, lines, count, masks);                   \
        else                                                                                                             \
            dot_body(taps, sums, large, shifts, large_pitch, small, small_pitch, lines, count, NULL);                    \
    }
DOT(1) DOT(2) DOT(3) DOT(4) DOT(5) DOT(6) DOT(7) DOT(8) DOT(9) DOT(10) DOT(11) DOT(12)

#include "simd/float64.h"
#include "simd/pack.h"
#include "simd/dot_tiles.h"
#include "simd/chains.h"
#include "simd/lanes.h"
#include "simd/store.h"
#include "simd/store_positions.h"
#include "simd/depthwise_nxc.h"
#if WIDTH > 4
#include "simd/planes.h"
#else /* registers for so many sums */
#define ALL_PLANES {NULL}
#endif
#ifdef LOAD_MASKED
#include "simd/depthwise_ncx.h"
#define WEAVE SUFFIX(weave)
#else
#define WEAVE NULL
#define ALL_NCX {NULL}
#define ALL_NCX_WEIGHTS {{NULL}}
#endif

/* ------------------------------------------------------------------------------------------------------------------ */

#define TILE_ENTRIES(kind, rows) {SUFFIX(kind##_##rows##_1), SUFFIX(kind##_##rows##_2), SUFFIX(kind##_##rows##_3)}
#if ROWS == 8
#define ALL_ENTRIES(kind)                                                                                                \
    {TILE_ENTRIES(kind, 1), TILE_ENTRIES(kind, 2), TILE_ENTRIES(kind, 3), TILE_ENTRIES(kind, 4),                         \
     TILE_ENTRIES(kind, 5), TILE_ENTRIES(kind, 6), TILE_ENTRIES(kind, 7), TILE_ENTRIES(kind, 8)}
#else
#define ALL_ENTRIES(kind) {TILE_ENTRIES(kind, 1), TILE_ENTRIES(kind, 2), TILE_ENTRIES(kind, 3), TILE_ENTRIES(kind, 4)}
#endif
#ifndef TEMPLATES_ONLY
#include "simd/conversions.h"
#if WIDTH == 16
#include "simd/segments.h"
#include "simd/store_segments.h"
#define SEGMENTS &segments_of_lines
#define STORE_SEGMENTS store_segments
#else
#define SEGMENTS NULL
#define STORE_SEGMENTS NULL
#endif

const instruction_set SUFFIX(instruction_set) = {
    .name = NAME,
    .usable = SUFFIX(usable),
    .rows = ROWS,
    .vectors = VECTORS,
    .width = WIDTH,
    .tile = ALL_ENTRIES(tile),
    .strided = ALL_ENTRIES(strided),
    .tall = ALL_TALL,
    .strided_blocks = ALL_ENTRIES(strided_blocks),
    .strided_by_vector = BY_VECTOR(strided_blocks),
    .whole_blocks = ALL_ENTRIES(whole_blocks),
    .whole_by_vector = BY_VECTOR(whole_blocks),
    .tap_tile = ALL_ENTRIES(tap_lanes),
    .masked = {SUFFIX(masked_1), SUFFIX(masked_2), SUFFIX(masked_3)},
    .blocks = ALL_ENTRIES(blocks),
    .blocks_by_vector = BY_VECTOR(blocks),
    .masked_blocks = {SUFFIX(masked_blocks_1), SUFFIX(masked_blocks_2), SUFFIX(masked_blocks_3)},
    .halves = HALVES(halves),
    .lines = SUFFIX(lines),
    .depthwise_ncx = ALL_NCX,
    .depthwise_ncx_weights = ALL_NCX_WEIGHTS,
    .weave = WEAVE,
    .planes = ALL_PLANES,
    .depthwise_nxc = SUFFIX(depthwise_nxc),
    .nxc_pack = SUFFIX(nxc_pack),
    .depthwise_nxc_weights = SUFFIX(depthwise_nxc_weights),
    .frame = SUFFIX(frame),
    .copy = COPY,
    .split = SPLIT,
    .dot = {SUFFIX(dot_1), SUFFIX(dot_2), SUFFIX(dot_3), SUFFIX(dot_4), SUFFIX(dot_5), SUFFIX(dot_6), SUFFIX(dot_7),
            SUFFIX(dot_8), SUFFIX(dot_9), SUFFIX(dot_10), SUFFIX(dot_11), SUFFIX(dot_12)},
    .dot_columns = DOT_MOST_COLUMNS,
    .dot_tile = DOT_TABLE(dot_tile),
    .tile64 = ALL_ENTRIES(tile64),
    .line64 = SUFFIX(line64),
    .dot64 = {SUFFIX(dot64_1), SUFFIX(dot64_2), SUFFIX(dot64_3), SUFFIX(dot64_4), SUFFIX(dot64_5), SUFFIX(dot64_6),
              SUFFIX(dot64_7), SUFFIX(dot64_8)},
    .gather = SUFFIX(gather),
    .gather_taps = SUFFIX(gather_taps),
    .sum_chains = SUFFIX(sum_chains),
    .finite = SUFFIX(finite),
    .scatter = SUFFIX(scatter),
    .scatter_parts = SCATTER_PARTS,
    .scatter_cells = SCATTER_CELLS,
    .scatter_taps = SUFFIX(scatter_taps),
    .conversions = {SUFFIX(decode_block), SUFFIX(narrow_block), SUFFIX(scale_block), SUFFIX(encode_block), SUFFIX(draw_block)},
    .store_positions = SUFFIX(store_positions),
    .segments = SEGMENTS,
    .store_segments = STORE_SEGMENTS,
};
#endif
