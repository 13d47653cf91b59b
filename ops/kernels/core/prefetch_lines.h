/* Prefetches of memory that is soon read or written, for the engine's own code. */
#ifndef CONVREG_PREFETCH_LINES_H
#define CONVREG_PREFETCH_LINES_H

#include <stdint.h>

/* `lines` cache lines from `place` on.  Lines that will be written are taken from the cores that have them.  The compiler
 * must be told that this instruction may be used; processors that do not know it ignore it. */
#ifdef __x86_64__
__attribute__((target("prfchw")))
#endif
static inline void prefetch_lines(const char *place, int64_t lines, int written)
{
    __asm__ volatile(""); /* GCC 12 takes a function of prefetches alone for one without effect, and drops its calls */
    for (int64_t i = 0; i < lines; i++)
        if (written)
            __builtin_prefetch(place + 64 * i, 1);
        else
            __builtin_prefetch(place + 64 * i, 0);
}

#endif
