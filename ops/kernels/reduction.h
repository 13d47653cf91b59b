/* How the sums over batch and space (backward_weights, bias_sum) are cut: the one definition, for every kernel.
 *
 * The R = N*Y0*Y1*Y2 positions, in the order n, y0, y1, y2 (last fastest), are cut into P pieces of L positions; piece p
 * covers [p*L, min(R, (p+1)*L)).  Each piece is one chain of fused multiply-adds that starts at +0 (a piece may be
 * empty: +0).  The partial sums are then added in a fixed tree,
 *
 *     for step = 1, 2, 4, ... < P:  for i = 0, 2*step, 4*step, ... with i + step < P:  part[i] += part[i + step]
 *
 * and part[0] is rounded to the result's format.  P and L depend on the shape alone, never on threads or instruction set.
 */
#ifndef CONVREG_REDUCTION_H
#define CONVREG_REDUCTION_H

#include <stdint.h>

#define REDUCTION_POSITIONS 4096            /* a piece is about this long ... */
#define REDUCTION_PARTIALS ((int64_t)1 << 23) /* ... unless this many partial sums in all would not hold them */
#define REDUCTION_LEVELS 24                 /* P <= 2**23: a tree of at most 24 levels */

typedef struct {
    int64_t pieces; /* P >= 1 */
    int64_t length; /* L, 0 where there are no positions */
} reduction_cut;

/* sums: how many sums share the cut: G*M*C*K0*K1*K2 in backward_weights, G*M in bias_sum. */
static inline reduction_cut cut_reduction(int64_t positions, int64_t sums)
{
    int64_t wanted = positions / REDUCTION_POSITIONS + (positions % REDUCTION_POSITIONS != 0);
    int64_t allowed = sums > 0 ? REDUCTION_PARTIALS / sums : REDUCTION_PARTIALS;
    int64_t pieces = wanted < allowed ? wanted : allowed;
    reduction_cut cut;
    cut.pieces = pieces > 1 ? pieces : 1;
    cut.length = positions / cut.pieces + (positions % cut.pieces != 0);
    return cut;
}

#endif
