/* Sizes of the processor's caches. */
#ifndef CONVREG_CACHES_H
#define CONVREG_CACHES_H

#include <stdint.h>

#ifdef __linux__
#include <unistd.h>
#endif

enum { USUAL_NEAREST_CACHE = 32 << 10, USUAL_MIDDLE_CACHE = 1 << 20 };

#ifdef _SC_LEVEL2_CACHE_SIZE
#define TOLD_BYTES(level) sysconf(level)
#else
#define TOLD_BYTES(level) 0
#endif

static inline int64_t told_or_usual(int64_t told, int64_t usual)
{
    return told > 0 ? told : usual;
}

/* Bytes of a core's nearest cache of data and of its middle cache, or what is usual where the system does not tell. Slow: asks the
 * processor. */
static inline int64_t nearest_cache_bytes(void)
{
    return told_or_usual(TOLD_BYTES(_SC_LEVEL1_DCACHE_SIZE), USUAL_NEAREST_CACHE);
}

static inline int64_t middle_cache_bytes(void)
{
    return told_or_usual(TOLD_BYTES(_SC_LEVEL2_CACHE_SIZE), USUAL_MIDDLE_CACHE);
}

#endif
