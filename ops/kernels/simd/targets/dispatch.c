#include "core/isa.h"
#include "simd/matrix.h"

extern const instruction_set instruction_set_generic;
#ifdef __x86_64__
extern const instruction_set instruction_set_avx2, instruction_set_avx512;
extern const pair_functions pairs_avx512bf16;
int usable_avx512bf16(void);
int preferred_avx512bf16(void);
const product_rates *rates_avx512bf16(void);

/* Sets made from AVX-512 and pairs of bfloat16 numbers. */
static instruction_set instruction_set_avx512bf16;

static void make_avx512bf16(void)
{
    instruction_set_avx512bf16 = instruction_set_avx512;
    instruction_set_avx512bf16.name = "avx512bf16";
    instruction_set_avx512bf16.usable = usable_avx512bf16;
    instruction_set_avx512bf16.preferred = preferred_avx512bf16;
    instruction_set_avx512bf16.pairs = &pairs_avx512bf16;
}
#endif

#ifdef HAVE_MATRIX
extern const pair_functions matrix_avx512bf16;
static instruction_set instruction_set_amx;

static int amx_usable(void)
{
    return usable_avx512bf16() && matrix_usable();
}

/* Without dot products of pairs, which processors with a matrix unit have at half rate. */
static void make_amx(void)
{
    instruction_set_amx = instruction_set_avx512;
    instruction_set_amx.name = "amx";
    instruction_set_amx.usable = amx_usable;
    instruction_set_amx.matrix = &matrix_avx512bf16;
}
#endif

static const instruction_set *const best_first[] = {
#ifdef HAVE_MATRIX
    &instruction_set_amx,
#endif
#ifdef __x86_64__
    &instruction_set_avx512bf16,
    &instruction_set_avx512,
    &instruction_set_avx2,
#endif
    &instruction_set_generic,
};

int byte_look_ups;

void want_byte_look_ups(int wanted)
{
#ifdef __x86_64__
    byte_look_ups = wanted && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
#else
    (void)wanted;
#endif
}

const instruction_set *const *instruction_sets(int *count)
{
#ifdef __x86_64__
    if (!instruction_set_avx512bf16.name)
        make_avx512bf16();
#endif
#ifdef HAVE_MATRIX
    if (!instruction_set_amx.name)
        make_amx();
#endif
    *count = sizeof best_first / sizeof *best_first;
    return best_first;
}

const product_rates *measured_rates(void)
{
#ifdef __x86_64__
    if (usable_avx512bf16())
        return rates_avx512bf16();
#endif
    return NULL;
}
