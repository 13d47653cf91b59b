/* The vector operations of simd/tile.h in AVX-512, for sets with it and without bfloat16 dot products. */
#define WIDTH 16
#define ROWS 8
#define VECTORS 3
#define BROADCAST(x) ((vector)_mm512_set1_ps(x))
#define MULTIPLY_ADD(a, b, c) ((vector)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define BROADCAST_DOUBLE(x) ((vector_double)_mm512_set1_pd(x))
#define MULTIPLY_ADD_DOUBLE(a, b, c) ((vector_double)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define LOAD_PART(p, n) ((vector)_mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), p))
#define LOAD_HALVES(p, n) ((vector_half)_mm256_maskz_loadu_epi16((__mmask16)((1u << (n)) - 1), p))
#define STORE_PART(p, n, v) _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1), (__m512)(v))
#define LANE_MASK(bits) ((__mmask16)(bits))
#define KEEP_MASK(mask) __asm__("" : "+Yk"(mask))
#define LOAD_MASKED(p, m) ((vector)_mm512_maskz_loadu_ps(m, p))
#define MASKED_FACTOR(a, m) (a)
#define MULTIPLY_ADD_MASKED(a, b, c, m) ((vector)_mm512_mask3_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c), m))
#define STORE_MASKED(p, m, v) _mm512_mask_storeu_ps(p, m, (__m512)(v))
#define STORE_KEPT(p, bits, v) STORE_MASKED(p, (__mmask16)(bits), v)
typedef __mmask16 lane_mask;
