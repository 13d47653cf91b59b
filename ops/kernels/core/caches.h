/* Sizes of the processor's caches. */
#ifndef CONVREG_CACHES_H
#define CONVREG_CACHES_H

#include <stdint.h>

#ifdef __linux__
#include <unistd.h>
#endif

enum { USUAL_NEAREST_CACHE = 32 << 10, USUAL_MIDDLE_CACHE = 1 << 20 };

/* Bytes of a core's nearest cache of data and of its middle cache, or what is usual where the system does not tell. Slow: asks the
 * processor. */
static inline int64_t nearest_cache_bytes(void)
{
    int64_t bytes = 0;
#ifdef _SC_LEVEL1_DCACHE_SIZE
    bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
#endif
    return bytes > 0 ? bytes : USUAL_NEAREST_CACHE;
}

static inline int64_t middle_cache_bytes(void)
{
    int64_t bytes = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return bytes > 0 ? bytes : USUAL_MIDDLE_CACHE;
}

#endif
