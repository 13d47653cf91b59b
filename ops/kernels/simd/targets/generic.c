/* Any machine: NEON on aarch64, elsewhere four-lane vectors whose fused multiply-add is put together from doubles, and fma() for
 * doubles. */
#include <math.h>
#include <string.h>

#include "core/isa.h"
#include "numbers/numbers.h"

#define NAME "generic"
#define SUFFIX(name) name##_generic
#define WIDTH 4
#define VECTORS 3
#define BROADCAST(x) ((vector){x, x, x, x})
#define BROADCAST_DOUBLE(x) ((vector_double){x, x})

static int SUFFIX(usable)(void)
{
    return 1;
}

#ifdef __aarch64__
#include <arm_neon.h>
#define ROWS 8
#define MULTIPLY_ADD(a, b, c) ((vector)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define MULTIPLY_ADD_DOUBLE(a, b, c) ((vector_double)vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b)))
#else
#define ROWS 4
/* The product of two floats is exact as a double.  The sum with c is rounded to odd (the neighbour with an odd last bit
 * when inexact), which makes the final rounding to float see what the infinitely precise sum would: Boldo and
 * Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008. */
typedef float four __attribute__((vector_size(16)));
typedef double four_double __attribute__((vector_size(32)));
typedef int64_t four_long __attribute__((vector_size(32)));

static inline four multiply_add_four(four a, four b, four c)
{
    four_double product = __builtin_convertvector(a, four_double) * __builtin_convertvector(b, four_double);
    four_double addend = __builtin_convertvector(c, four_double);
    four_double sum = product + addend;
    four_double part = sum - product;
    four_double error = (product - (sum - part)) + (addend - part);
    four_long inexact = (error > 0) | (error < 0); /* not where it is NaN: the sum is infinite or NaN */
    four_long away = (error > 0) == (sum > 0);  /* the exact value is farther from zero than the sum */
    four_long bits = (four_long)sum;
    bits += (-2 * away - 1) & inexact & ((bits & 1) - 1); /* an even sum steps towards the exact value */
    return __builtin_convertvector((four_double)bits, four);
}
#define MULTIPLY_ADD(a, b, c) ((vector)multiply_add_four((four)(a), (four)(b), (four)(c)))

typedef double two_double __attribute__((vector_size(16)));

static inline two_double multiply_add_two(two_double a, two_double b, two_double c)
{
    return (two_double){fma(a[0], b[0], c[0]), fma(a[1], b[1], c[1])};
}
#define MULTIPLY_ADD_DOUBLE(a, b, c) ((vector_double)multiply_add_two((two_double)(a), (two_double)(b), (two_double)(c)))
#endif

#include "simd/tile.h"
