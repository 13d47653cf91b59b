/* How many threads a parallel region may have: an OpenMP runtime ends the process when it cannot start one.
 *
 * Before the team of a calling thread grows, as many plain threads are started and joined, all alive at the same time and with
 * stacks as large as OpenMP's.  The team is then started at once by an empty region.  It keeps its threads, so later regions of
 * that size start none.  What else in the process takes threads or memory between the two steps may still end the process.
 */
#ifndef CONVREG_TEAM_H
#define CONVREG_TEAM_H

#include "core/arithmetic.h"

#if defined(_OPENMP) && (defined(__unix__) || defined(__APPLE__))
#include <ctype.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <errno.h>
#include <sys/syscall.h>
#endif

enum {
    TEAM_MARGIN = 64 << 20,     /* bytes that must be left beside the threads' stacks: for the runtime, and for the call itself */
    TEAM_DENIED_SECONDS = 1,    /* for which a number of threads that was denied is not tried again */
    TEAM_END_TRIES = 1 << 14    /* to find that a joined thread no longer counts against limits */
};

static _Thread_local int team_size = 1;    /* of the calling thread's last team */
static _Thread_local int team_denied = 0;  /* so many threads could not be started ... */
static _Thread_local time_t team_denied_at; /* ... at this time */

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    int open;
} team_gate;

typedef struct {
    team_gate *gate;
    pthread_t thread;
    long number; /* of the thread, as the system counts */
} team_member;

static void *wait_at_gate(void *argument)
{
    team_member *member = argument;
#ifdef __linux__
    member->number = syscall(SYS_gettid);
#endif
    pthread_mutex_lock(&member->gate->lock);
    while (!member->gate->open)
        pthread_cond_wait(&member->gate->opened, &member->gate->lock);
    pthread_mutex_unlock(&member->gate->lock);
    return NULL;
}

/* The stack size that the environment names for OpenMP's threads, or 0: the system's default. */
static size_t team_stack_size(void)
{
    static const char *const names[] = {"OMP_STACKSIZE", "GOMP_STACKSIZE", "KMP_STACKSIZE"};
    size_t largest = 0;
    for (int i = 0; i < 3; i++) {
        const char *text = getenv(names[i]);
        char *end;
        unsigned long long size, unit = 1024;
        if (!text)
            continue;
        size = strtoull(text, &end, 10);
        while (isspace((unsigned char)*end))
            end++;
        switch (tolower((unsigned char)*end)) {
        case 'b': unit = 1; break;
        case 'm': unit = 1024 * 1024; break;
        case 'g': unit = 1024 * 1024 * 1024; break;
        }
        if (size && size <= SIZE_MAX / unit && size * unit > largest)
            largest = size * unit;
    }
    return largest;
}

/* A joined thread counts against the limits of a user or group of processes until the system has removed it. */
static void wait_for_end(const team_member *member)
{
#ifdef __linux__
    for (int i = 0; i < TEAM_END_TRIES; i++) {
        if (syscall(SYS_tgkill, getpid(), member->number, 0) != 0 && errno == ESRCH)
            return;
        sched_yield();
    }
#else
    (void)member;
#endif
}

/* How many of `count` threads can live beside the calling one. */
static int count_startable(int count)
{
    team_gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    team_member *members = malloc(count * sizeof *members);
    size_t stack_size = team_stack_size();
    int started = 0;
    void *margin = malloc(TEAM_MARGIN);
    pthread_attr_t attributes;
    if (!members || !margin || pthread_attr_init(&attributes) != 0) {
        free(members);
        free(margin);
        return 0;
    }
    if (stack_size)
        pthread_attr_setstacksize(&attributes, stack_size); /* a size that is refused leaves the default, as in the runtime */
    for (; started < count; started++) {
        members[started].gate = &gate;
        if (pthread_create(&members[started].thread, &attributes, wait_at_gate, &members[started]) != 0)
            break;
    }
    pthread_mutex_lock(&gate.lock);
    gate.open = 1;
    pthread_cond_broadcast(&gate.opened);
    pthread_mutex_unlock(&gate.lock);
    for (int i = 0; i < started; i++)
        pthread_join(members[i].thread, NULL);
    for (int i = 0; i < started; i++)
        wait_for_end(&members[i]);
    pthread_attr_destroy(&attributes);
    free(members);
    free(margin);
    return started;
}

static int seconds_since(time_t then)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - then > TEAM_DENIED_SECONDS ? TEAM_DENIED_SECONDS : (int)(now.tv_sec - then);
}

/* Make the team of the calling thread larger. */
static int grow_team(int threads)
{
    int granted;
    if (team_denied && threads >= team_denied && seconds_since(team_denied_at) < TEAM_DENIED_SECONDS)
        threads = team_denied - 1;
    if (threads <= team_size)
        return threads;
    granted = team_size + count_startable(threads - team_size);
    team_denied = 0;
    if (granted < threads) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        team_denied = granted + 1;
        team_denied_at = now.tv_sec;
    }
    if (granted > 1) {
#pragma omp parallel num_threads(granted)
        if (omp_get_thread_num() > 0) /* the calling thread sets its own for as long as a call lasts */
            begin_arithmetic();
    }
    return granted;
}

/* How many of so many threads the next parallel region of the calling thread may ask for. */
static int grant_team(int threads)
{
    if (threads > team_size)
        threads = grow_team(threads);
    if (threads > 1)
        team_size = threads; /* the runtime ends the threads that a smaller team leaves over */
    return threads;
}
#else
static int grant_team(int threads)
{
    return threads;
}
#endif

/* The same for a call of so many products.  Waking a team costs several microseconds, and milliseconds where other programs hold
 * the processors: calls of some ten microseconds stay on the caller's thread. */
static int team_for(double products, int threads)
{
    return products > 1000000 && threads > 1 ? grant_team(threads) : 1;
}

#endif
