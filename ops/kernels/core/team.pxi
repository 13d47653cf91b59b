"""How many threads a call runs on: `team_for` of `core/team.h`, the same function that the plain loops call."""

ctypedef int (*team_function)(double products, int threads) noexcept nogil

cdef team_function team_for = <team_function><uintptr_t>reference.team_addresses()[0]
