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

/* A thread's next task, which until it withdraws it any thread may withdraw. */
static inline void offer(int64_t *place, int64_t task)
{
    __atomic_store_n(place, task, __ATOMIC_RELAXED);
}

/* What was offered, once; then NO_TASK. */
static inline int64_t withdraw(int64_t *place)
{
    return __atomic_exchange_n(place, NO_TASK, __ATOMIC_RELAXED);
}

#endif
