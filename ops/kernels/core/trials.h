/* Times of the algorithms on problems that come again: which one runs next, and which one is the fastest.
 *
 * A problem is known by a key.  Its first calls run each candidate in turn, the cheapest estimate first; then those that came
 * near the fastest run again, since clocks change.  The cheapest estimate always runs again: most of the time it is right, and
 * other programs may have held it up.  A turn is two calls, of which the shorter counts: the first one may find cold caches,
 * fresh memory and sleeping threads.  That does not slow a long call by half, so that an algorithm which takes so long has no
 * second one.  After a turn of another one the fastest so far has a turn, unless it has had all of its own: a caller who makes
 * few calls pays for few slow ones.  From then on the fastest runs.  Of two that are about as fast, the one with the lower
 * estimate counts as faster: times are few, and other programs disturb them.  They may disturb all of them, so that the last
 * round is repeated after some calls, and again after four times as many.  The table has a fixed size: a problem that loses
 * its place begins anew.  Callers that meet in the table do not wait: one of them takes the estimate.
 */
#ifndef CONVREG_TRIALS_H
#define CONVREG_TRIALS_H

#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum {
    TRIAL_ALGORITHMS = 48, /* at most, with and without pairs */
    TRIAL_PROBLEMS = 1024, /* that are remembered */
    TRIAL_ROUNDS = 4,
    TRIAL_TURN = 2,        /* calls */
    TRIAL_CALLS = 16,      /* of the fastest, after which the last round is repeated for the first time */
    TRIAL_GROWTH = 4,      /* times as many calls until the next repetition */
    MANY_CALLS = 1 << 28,  /* the number grows no more */
    TRIAL_PLACES = 4,      /* of the table, in which a problem may lie */
    NOT_SETTLED = -1
};

/* Times of the fastest within which a candidate takes part in a round. */
static const double trial_margins[TRIAL_ROUNDS] = {0, 2, 1.3, 1.15};

/* A longer call, in seconds, is not tried again in its turn if it took so many times the fastest. */
static const double TRIAL_LONG = 2e-3, TRIAL_SLOW = 1.5;

/* Seconds of a run whose results are not those of the definition. */
static const float TRIAL_FAILED = 1e30f;

typedef struct {
    uint64_t key;                     /* 0: free */
    float seconds[TRIAL_ALGORITHMS];  /* the shortest time */
    uint8_t runs[TRIAL_ALGORITHMS];
    uint8_t settled;                  /* 1 more than the fastest, or 0 */
    uint8_t after_other;              /* the last turn was not of the fastest */
    uint32_t calls, calls_to_make;    /* of the fastest since it was found: of more, the last round is being repeated */
} trial_record;

static trial_record trial_table[TRIAL_PROBLEMS];
static int trial_lock;

static inline int lock_trials(void)
{
    return !__atomic_exchange_n(&trial_lock, 1, __ATOMIC_ACQUIRE);
}

static inline void unlock_trials(void)
{
    __atomic_store_n(&trial_lock, 0, __ATOMIC_RELEASE);
}

/* A key with one more number in it. */
static inline uint64_t trial_key(uint64_t key, int64_t number)
{
    key = (key ^ (uint64_t)number) * 0x9e3779b97f4a7c15u;
    return key ^ key >> 29;
}

static inline double trial_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

static inline trial_record *trial_place(uint64_t key, int place)
{
    return &trial_table[(key + place) % TRIAL_PROBLEMS];
}

/* The record of a problem, or NULL. */
static inline trial_record *find_trial(uint64_t key)
{
    for (int place = 0; place < TRIAL_PLACES; place++)
        if (trial_place(key, place)->key == key)
            return trial_place(key, place);
    return NULL;
}

/* The record of a problem; of a new one, in a free place or in that of another problem. */
static inline trial_record *take_trial(uint64_t key)
{
    trial_record *record = find_trial(key);
    for (int place = 0; place < TRIAL_PLACES && !record; place++)
        if (!trial_place(key, place)->key)
            record = trial_place(key, place);
    if (!record)
        record = trial_place(key, 0);
    if (record->key != key) {
        memset(record, 0, sizeof *record);
        record->key = key;
    }
    return record;
}

/* The algorithm that was found fastest for a problem, or NOT_SETTLED. */
static int settled_trial(uint64_t key)
{
    int found = NOT_SETTLED;
    if (lock_trials()) {
        const trial_record *record = find_trial(key);
        if (record)
            found = record->settled - 1;
        unlock_trials();
    }
    return found;
}

static inline int repeats_last_round(const trial_record *record)
{
    return record->calls > record->calls_to_make;
}

/* Those that took part in the last round run in it again. */
static inline void open_last_round(trial_record *record)
{
    for (int i = 0; i < TRIAL_ALGORITHMS; i++)
        if (record->runs[i] == TRIAL_ROUNDS * TRIAL_TURN)
            record->runs[i] -= TRIAL_TURN;
}

/* The last round has ended, for the first time or once more. */
static inline void settle_trial(trial_record *record, int fastest)
{
    if (!record->settled) {
        record->calls_to_make = TRIAL_CALLS;
    } else if (repeats_last_round(record)) {
        record->calls = 0;
        if (record->calls_to_make < MANY_CALLS)
            record->calls_to_make *= TRIAL_GROWTH;
    }
    record->settled = fastest + 1;
}

/* The algorithm that runs in a call without a trial; or NOT_SETTLED, and `next_trial` tells. */
static int call_settled(uint64_t key)
{
    int found = NOT_SETTLED;
    if (lock_trials()) {
        trial_record *record = find_trial(key);
        if (record && record->settled && !repeats_last_round(record)) {
            if (record->calls++ < record->calls_to_make)
                found = record->settled - 1;
            else
                open_last_round(record);
        }
        unlock_trials();
    }
    return found;
}

/* The shortest time of an algorithm on a problem in seconds, or 0. */
static double trial_seconds(uint64_t key, int algorithm)
{
    double seconds = 0;
    if (lock_trials()) {
        const trial_record *record = find_trial(key);
        if (record && record->runs[algorithm] && record->seconds[algorithm] < TRIAL_FAILED)
            seconds = record->seconds[algorithm];
        unlock_trials();
    }
    return seconds;
}

/* The time of an algorithm that has run, lengthened by the fourth root of its estimate. */
static inline double weighed_time(const trial_record *record, const double *cycles, int algorithm)
{
    return record->seconds[algorithm] * sqrt(sqrt(cycles[algorithm]));
}

/* The algorithm that runs next, of `count` whose estimates are `cycles`, 0 for those that are no candidates; or NOT_SETTLED. */
static int next_trial(uint64_t key, const double *cycles, int count)
{
    int next = NOT_SETTLED;
    if (!lock_trials())
        return next;
    trial_record *record = take_trial(key);
    int fastest = NOT_SETTLED, cheapest = NOT_SETTLED;
    double least = 0; /* the weighed time of the fastest */
    for (int i = 0; i < count; i++) {
        if (cycles[i] <= 0)
            continue;
        if (cheapest < 0 || cycles[i] < cycles[cheapest])
            cheapest = i;
        if (record->runs[i] && (fastest < 0 || weighed_time(record, cycles, i) < least)) {
            fastest = i;
            least = weighed_time(record, cycles, i);
        }
    }
    for (int i = 0; i < count; i++)
        if (cycles[i] > 0 && record->runs[i] % TRIAL_TURN) { /* in the middle of a turn */
            if (record->seconds[i] > TRIAL_LONG && weighed_time(record, cycles, i) > TRIAL_SLOW * least)
                record->runs[i]++;
            else
                next = i;
        }
    if (next < 0 && fastest >= 0 && record->after_other && record->runs[fastest] < TRIAL_ROUNDS * TRIAL_TURN)
        next = fastest;
    for (int round = 0; round < TRIAL_ROUNDS && next < 0; round++)
        for (int i = 0; i < count; i++)
            if (cycles[i] > 0 && record->runs[i] == round * TRIAL_TURN && (next < 0 || cycles[i] < cycles[next])
                && (round == 0 || i == cheapest || weighed_time(record, cycles, i) <= trial_margins[round] * least))
                next = i;
    if (next < 0) {
        next = fastest;
        settle_trial(record, fastest);
    }
    record->after_other = fastest >= 0 && next != fastest;
    unlock_trials();
    return next;
}

/* An algorithm ran in so many seconds, or TRIAL_FAILED: it did not give the results. */
static void note_trial(uint64_t key, int algorithm, double seconds)
{
    if (!lock_trials())
        return;
    trial_record *record = find_trial(key);
    if (record) {
        if (!record->runs[algorithm] || seconds < record->seconds[algorithm])
            record->seconds[algorithm] = (float)seconds;
        if (record->runs[algorithm] < TRIAL_ROUNDS * TRIAL_TURN)
            record->runs[algorithm]++;
    }
    unlock_trials();
}

/* Every problem begins anew.  A forked process may have inherited a lock that nobody returns: until this is called, it takes
 * estimates. */
static void forget_trials(void)
{
    for (int tries = 0; tries < 1000 && !lock_trials(); tries++)
        sched_yield();
    memset(trial_table, 0, sizeof trial_table);
    unlock_trials();
}

#endif
