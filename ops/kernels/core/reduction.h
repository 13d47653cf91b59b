/* How long sums are cut: the one definition, for every kernel.
 *
 * Over taps and channels (forward, backward_data) a sum is one chain of fused multiply-adds.  Where both operands' values are
 * bfloat16's, and a group has at least HALF_BLOCK channels to sum and SUM_BLOCK_ROWS to compute, the channels of a tap are taken
 * SUM_BLOCK at a time (the last time, what is left of them): the first half of a block is a chain that starts at +0, the second
 * half another (it may be empty: +0), and
 *
 *     sum += first + second
 *
 * That is the order of a matrix unit that multiplies pairs of bfloat16, terms i and i + HALF_BLOCK in one pair, and of dot
 * product instructions with adjacent terms in one pair.
 *
 * The sums over batch and space (backward_weights, bias_sum):
 *
 * The R = N*Y0*Y1*Y2 positions, in the order n, y0, y1, y2 (last fastest), are cut into P pieces of L positions; piece p
 * covers [p*L, min(R, (p+1)*L)).  A piece is one chain of fused multiply-adds that starts at +0 (it may be empty: +0); where both
 * operands' values are bfloat16's, its positions are taken in blocks as channels are above, from its first on, whether a tap
 * meets the large side there or not.
 * Where the small side has few channels in a group, which leaves nothing else to compute side by side, L is a multiple of
 * Y2 and a piece is REDUCTION_CHAINS chains: chain j takes the positions with y2 = j modulo REDUCTION_CHAINS, and
 *
 *     for half = REDUCTION_CHAINS/2, ..., 2, 1:  for j < half:  chain[j] += chain[j + half]
 *
 * leaves the piece's sum in chain[0].  The partial sums of the pieces are then added in a fixed tree,
 *
 *     for step = 1, 2, 4, ... < P:  for i = 0, 2*step, 4*step, ... with i + step < P:  part[i] += part[i + step]
 *
 * and part[0] is rounded to the result's format.  P and L depend on the shape alone, never on threads or instruction set.
 *
 * A subtree is the sum of pieces [i*S, min(P, (i+1)*S)), S a power of two.  Subtrees can be summed apart, from the part of the
 * batch that they meet: `offset` is then the place of their first piece among the positions of that part.
 */
#ifndef CONVREG_REDUCTION_H
#define CONVREG_REDUCTION_H

#include <stdint.h>

#include "numbers/numbers.h"

#define REDUCTION_POSITIONS 4096            /* a piece is about this long ... */
#define REDUCTION_PARTIALS ((int64_t)1 << 23) /* ... unless this many partial sums in all would not hold them */
#define REDUCTION_LEVELS 24                 /* P <= 2**23: a tree of at most 24 levels */

#define REDUCTION_CHAINS 16
#define REDUCTION_FEW 8 /* channels of the small side in a group */

#define SUM_BLOCK 32     /* channels or positions */
#define HALF_BLOCK (SUM_BLOCK / 2)
#define SUM_BLOCK_ROWS 8 /* channels of the result */

/* Whether sums over batch and space are taken in blocks, where they are cut so. */
static inline int positions_in_blocks(int64_t chains, int first_format, int second_format)
{
    return chains == 1 && within_bfloat16(first_format) && within_bfloat16(second_format);
}

/* Whether sums over `channels` channels for `rows` others are taken in blocks. */
static inline int sums_in_blocks(int64_t channels, int64_t rows, int first_format, int second_format)
{
    return channels >= HALF_BLOCK && rows >= SUM_BLOCK_ROWS && within_bfloat16(first_format) && within_bfloat16(second_format);
}

typedef struct {
    int64_t pieces; /* P >= 1 */
    int64_t length; /* L, 0 where there are no positions */
    int64_t chains; /* of a piece: 1 or REDUCTION_CHAINS */
    int64_t offset; /* the first position of piece 0, 0 unless the pieces are a subtree of a larger sum */
} reduction_cut;

/* The first of `positions` positions that lies in a piece, or after it if there are none; the next piece's is its end. */
static inline int64_t piece_start(const reduction_cut *cut, int64_t piece, int64_t positions)
{
    int64_t start = cut->offset + piece * cut->length;
    return start < positions ? start : positions;
}

/* The end of the largest subtree that begins at piece `first` and lies within [first, end), of `pieces` in all. */
static inline int64_t subtree_end(int64_t first, int64_t end, int64_t pieces)
{
    int64_t span = 1;
    while (first % (2 * span) == 0 && first + span < end && (first + 2 * span <= end || end == pieces))
        span *= 2;
    return first + span < end ? first + span : end;
}

/* Whether the sums of [first, middle) and [middle, end), both subtrees, are the two that the tree adds. */
static inline int subtrees_join(int64_t first, int64_t middle, int64_t end, int64_t pieces)
{
    int64_t span = middle - first;
    return (span & (span - 1)) == 0 && first % (2 * span) == 0 && end == (first + 2 * span < pieces ? first + 2 * span : pieces);
}

/* positions: R; line: Y2; channels: M, of the small side in a group; sums: how many share the cut, G*M*C*K0*K1*K2. */
static inline reduction_cut cut_reduction(int64_t positions, int64_t line, int64_t channels, int64_t sums)
{
    int64_t wanted = positions / REDUCTION_POSITIONS + (positions % REDUCTION_POSITIONS != 0);
    int64_t allowed = sums > 0 ? REDUCTION_PARTIALS / sums : REDUCTION_PARTIALS;
    int64_t pieces = wanted < allowed ? wanted : allowed;
    int few = channels <= REDUCTION_FEW;
    int64_t unit = few && line > 1 ? line : 1;
    int64_t units = positions / unit;
    reduction_cut cut;
    cut.pieces = pieces > units ? units : pieces;
    cut.pieces = cut.pieces > 1 ? cut.pieces : 1;
    cut.length = (units / cut.pieces + (units % cut.pieces != 0)) * unit;
    cut.chains = few ? REDUCTION_CHAINS : 1;
    cut.offset = 0;
    return cut;
}

#endif
