"""The threads of all kernels: `core/team.h`, compiled once, because each module that includes it would have teams of its own.
And the arithmetic of a thread, for what NumPy computes."""

from arithmetic cimport arithmetic_state, begin_arithmetic, end_arithmetic
from libc.stdint cimport uintptr_t

cdef extern from *:
    """
    #ifdef _OPENMP
    #define BUILT_WITH_OPENMP 1
    #else
    #define BUILT_WITH_OPENMP 0
    #endif
    """
    enum:
        BUILT_WITH_OPENMP

cdef extern from "core/team.h" nogil:
    int grant_team(int threads)
    int team_for(double products, int threads)

OPENMP = bool(BUILT_WITH_OPENMP)  # whether more than one thread ever runs


def team_addresses() -> tuple[int, int]:
    """Addresses of `team_for` and `grant_team`, for modules whose parallel regions have these teams."""
    return <uintptr_t>&team_for, <uintptr_t>&grant_team


cdef class Arithmetic:
    """A block in which the thread computes as kernels do (`core/arithmetic.h`), whatever it was set to before."""
    cdef arithmetic_state before

    def __enter__(self):
        self.before = begin_arithmetic()

    def __exit__(self, *error):
        end_arithmetic(self.before)
