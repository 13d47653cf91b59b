/* Tasks handed out to threads, each once. */
#ifndef CONVREG_TASK_QUEUE_H
#define CONVREG_TASK_QUEUE_H

#include <stdint.h>

enum { NO_TASK = -1 };

/* The first of `count` tasks that nobody has claimed yet. */
static inline int64_t claim(int64_t *next, int64_t count)
{
    return __atomic_fetch_add(next, count, __ATOMIC_RELAXED);
}

#endif
