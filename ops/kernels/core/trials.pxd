"""Times of the algorithms on problems that come again, for Cython; `core/trials.h` states the rules."""

from libc.stdint cimport int64_t, uint64_t

cdef extern from "core/trials.h" nogil:
    enum:
        NOT_SETTLED
    const float TRIAL_FAILED
    uint64_t trial_key(uint64_t key, int64_t number)
    double trial_clock()
    int settled_trial(uint64_t key)
    int call_settled(uint64_t key)
    double trial_seconds(uint64_t key, int algorithm)
    int next_trial(uint64_t key, const double* cycles, int count)
    void note_trial(uint64_t key, int algorithm, double seconds)
    void forget_trials()
