"""Calls that come again take the algorithm that was measured to be the fastest.

An estimate orders algorithms before any of them has run.  It cannot know every processor, and some algorithms cost twice
what it says.  The first calls of a problem therefore run in turn the algorithms whose estimates come near the least, and
later calls run the fastest (`core/trials.h`).  All algorithms give the same bits, so that a choice by time changes no result.

Products in pairs are tried beside those without: where little is computed of what is laid out, pairs may take longer.

uses: core/problem.pxi (Operand), engine/algorithms.pxi, engine/product/product.pxi (Product),
    engine/weights/gradient.pxi (Weights), engine/weights/parts.pxi (WEIGHTS_BYTES, WEIGHTS_THREAD_BYTES)
gives: Trial, begin_trial, end_trial, keep_near, keep_small, measured_algorithm, problem_key, trial_room, trying
"""

TRIALS = "CONVREG_TRIALS"


def trials_wanted() -> bool:
    """Whether the environment has nothing against trials."""
    value = os.environ.get(TRIALS, "").strip()
    if value not in ("", "0", "1"):
        warnings.warn(f"{TRIALS}={value[:100]!r} is neither 0 nor 1 and is ignored", RuntimeWarning, stacklevel=2)
    return value != "0"


cdef enum:
    LONG_CALL = 64000000       # cycles of all threads: of a longer call, few algorithms are tried

cdef double NEAR_ESTIMATE = 2  # times the least estimate, that of an algorithm that is tried, at most
cdef double NEAR_LONG = 1.25   # ... of a long call
cdef double NEAR_OTHER = 1.25  # times more, without pairs
cdef double OTHER_COUNTS = 1.1 # times the least estimate, as which that of the products without pairs counts

cdef bint trying = trials_wanted()


cdef struct Trial:  # of one run
    uint64_t key    # of the problem, or 0: the run is not timed
    int algorithm
    double began


cdef uint64_t operand_key(uint64_t key, const Operand* o) noexcept nogil:
    cdef int axis
    key = trial_key(trial_key(trial_key(trial_key(key, o.format), o.n), o.g), o.c)
    for axis in range(3):
        key = trial_key(key, o.x[axis])
    return key


cdef uint64_t sums_key(uint64_t key, const Problem* q) noexcept nogil:
    cdef const Product* p = q.products
    cdef int64_t i
    cdef int axis
    key = trial_key(trial_key(trial_key(trial_key(key, p.N), p.G), p.R), p.D)
    key = trial_key(trial_key(trial_key(trial_key(key, q.columns), p.blocks), p.bias != NULL), p.cell != NULL)
    key = operand_key(operand_key(operand_key(key, &p.input), &p.output), &p.weights)
    for i in range(q.count):
        p = &q.products[i]
        key = trial_key(key, p.all_count)
        for axis in range(3):
            key = trial_key(trial_key(trial_key(key, p.Q[axis]), p.I[axis]), p.step[axis])
            if p.all_count > 0:
                key = trial_key(trial_key(key, p.all_taps[0].offset[axis]), p.all_taps[p.all_count - 1].offset[axis])
    return key


cdef uint64_t weights_key(uint64_t key, const Weights* w) noexcept nogil:
    cdef int i
    key = trial_key(trial_key(trial_key(trial_key(key, w.N), w.G), w.C), w.M)
    key = trial_key(trial_key(trial_key(trial_key(key, w.taps_format), w.cut.pieces), w.cut.length), w.cut.chains)
    for i in range(3):
        key = trial_key(trial_key(trial_key(key, w.X[i]), w.Y[i]), w.K[i])
        key = trial_key(trial_key(trial_key(key, w.s[i]), w.d[i]), w.b[i])
    for i in range(6):
        key = trial_key(key, w.taps_stride[i])
    return operand_key(operand_key(key, &w.large), &w.small)


cdef uint64_t problem_key(const Problem* q) noexcept nogil:
    """Of all that decides how long an algorithm takes: shapes, strides, formats, the instruction set, threads; never 0."""
    cdef uint64_t key = trial_key(trial_key(trial_key(1, <int64_t>q.isa), <int64_t>q.pairs), q.threads)
    key = sums_key(key, q) if q.weights == NULL else weights_key(key, q.weights)
    return key if key != 0 else 1


cdef double most_cycles(double least) noexcept nogil:
    """Of an algorithm that is tried beside one with the least estimate."""
    return least * (NEAR_ESTIMATE if least < LONG_CALL else NEAR_LONG)


cdef int64_t trial_room(const Algorithm* best, Problem* q) noexcept nogil:
    """Bytes of workspace that an algorithm may take on trial: those of the least estimate, or what a part of a weights gradient may take."""
    return max(bytes_of(best, q), WEIGHTS_BYTES + <int64_t>q.threads * WEIGHTS_THREAD_BYTES)


cdef int keep_near(const Algorithm* best, double* cycles) noexcept nogil:
    """Put 0 for the estimates that are not near the best one; returns how many are left."""
    cdef double most = most_cycles(cycles[best - algorithms])
    cdef int i, near = 0
    for i in range(ALGORITHMS):
        if cycles[i] > most:
            cycles[i] = 0
        near += cycles[i] > 0
    return near


cdef int keep_small(Problem* q, int64_t room, double* cycles) noexcept nogil:
    """Put 0 for those whose workspace is larger than `room`; returns how many are left."""
    cdef int i, small = 0
    for i in range(ALGORITHMS):
        if cycles[i] > 0 and bytes_of(&algorithms[i], q) > room:
            cycles[i] = 0
        small += cycles[i] > 0
    return small


cdef void add_without_pairs(Problem* q, int64_t room, double least, double* cycles) noexcept nogil:
    """The least estimate of algorithms that take pairs for a problem without its pairs, to the second half of the choices. Estimates of
    the two do not compare well: where pairs are laid out in short pieces, the least in pairs, `least`, is too low."""
    cdef const pair_functions* pairs = q.pairs
    cdef int i, found = -1
    cdef double others[ALGORITHMS]
    memset(cycles + ALGORITHMS, 0, ALGORITHMS * sizeof(double))
    if pairs == NULL:
        return
    q.pairs = NULL
    choose(q, others)
    for i in range(ALGORITHMS):
        if algorithms[i].in_pairs and others[i] > 0 and (found < 0 or others[i] < others[found]):
            found = i
    if found >= 0 and others[found] <= NEAR_OTHER * most_cycles(least) and bytes_of(&algorithms[found], q) <= room:
        cycles[ALGORITHMS + found] = OTHER_COUNTS * least
    q.pairs = pairs
    choose(q, others)  # planned again


cdef const Algorithm* planned_choice(Problem* q, int choice, const Algorithm* best, double* cycles) noexcept nogil:
    """The algorithm of a choice, planned; or that of the best estimate where it does not fit."""
    if choice >= ALGORITHMS:
        q.pairs = NULL
        best = choose(q, cycles)
        choice -= ALGORITHMS
    return &algorithms[choice] if choice >= 0 and cycles[choice] > 0 else best


cdef const Algorithm* measured_algorithm(Problem* q, const Algorithm* best, double* cycles) noexcept nogil:
    """The one that runs once all have been tried, or that of the best estimate where they have not. Takes the pairs from a problem that
    is computed without."""
    return planned_choice(q, settled_trial(problem_key(q)) if trying else NOT_SETTLED, best, cycles)


cdef const Algorithm* begin_trial(Problem* q, const Algorithm* best, double* cycles, Trial* trial) noexcept nogil:
    """The algorithm that runs now: the fastest, or one that has not run often enough, which is timed. `cycles` has room for all choices.
    Takes the pairs from a problem that is computed without."""
    cdef uint64_t key
    cdef int64_t room
    cdef int i
    trial.key = 0
    if not trying or q.thorough or keep_near(best, cycles) <= 1 and q.pairs == NULL:
        return best
    key = problem_key(q)
    i = call_settled(key)
    if i < 0:
        room = trial_room(best, q)
        if keep_small(q, room, cycles) <= 1 and q.pairs == NULL:
            return best
        add_without_pairs(q, room, cycles[best - algorithms], cycles)
        i = next_trial(key, cycles, CHOICES)
        if i < 0:
            return best
        trial.key, trial.algorithm, trial.began = key, i, trial_clock()
    return planned_choice(q, i, best, cycles)


cdef void end_trial(const Trial* trial, bint done) noexcept nogil:
    if trial.key != 0:
        note_trial(trial.key, trial.algorithm, trial_clock() - trial.began if done else TRIAL_FAILED)
