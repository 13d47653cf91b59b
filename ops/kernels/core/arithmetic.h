/* The arithmetic that kernels compute in: rounding to nearest even, subnormal numbers kept, no traps.
 *
 * A thread that calls them may be set otherwise: by another library that flushes subnormal numbers, or by `fesetround`.
 */
#ifndef CONVREG_ARITHMETIC_H
#define CONVREG_ARITHMETIC_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>

typedef uint32_t arithmetic_state;

/* Set the calling thread's arithmetic; returns what `end_arithmetic` sets it back to. */
static inline arithmetic_state begin_arithmetic(void)
{
    const uint32_t flags = 0x3f, usual = 0x1f80; /* of exceptions that have occurred; all of them masked, nothing else */
    uint32_t before = _mm_getcsr();
    if ((before & ~flags) != usual)
        _mm_setcsr(usual);
    return before;
}

static inline void end_arithmetic(arithmetic_state before)
{
    if (_mm_getcsr() != before)
        _mm_setcsr(before);
}
#elif defined(__aarch64__)
typedef uint64_t arithmetic_state;

static inline arithmetic_state begin_arithmetic(void)
{
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before) : : "memory");
    if (before != 0)
        __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return before;
}

static inline void end_arithmetic(arithmetic_state before)
{
    if (before != 0)
        __asm__ volatile("msr fpcr, %0" : : "r"(before) : "memory");
}
#else
#include <fenv.h>

typedef fenv_t arithmetic_state;

static inline arithmetic_state begin_arithmetic(void)
{
    fenv_t before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    return before;
}

static inline void end_arithmetic(arithmetic_state before)
{
    fesetenv(&before);
}
#endif

#endif
