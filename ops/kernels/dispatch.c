#include "isa.h"

extern const instruction_set instruction_set_generic;
#ifdef __x86_64__
extern const instruction_set instruction_set_avx2, instruction_set_avx512, instruction_set_avx512bf16;
#endif

static const instruction_set *const best_first[] = {
#ifdef __x86_64__
    &instruction_set_avx512bf16,
    &instruction_set_avx512,
    &instruction_set_avx2,
#endif
    &instruction_set_generic,
};

const instruction_set *const *instruction_sets(int *count)
{
    *count = sizeof best_first / sizeof *best_first;
    return best_first;
}
