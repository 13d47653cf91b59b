"""How many threads a parallel region runs on: functions of `core/team.h`, whose addresses come from `core/teams.pyx`.
Of these the engine uses one, the plain loops and conversions the other.

uses:
gives: team_for
"""

ctypedef int (*team_function)(double products, int threads) noexcept nogil
ctypedef int (*grant_function)(int threads) noexcept nogil

cdef team_function team_for = <team_function><uintptr_t>teams.team_addresses()[0]
cdef grant_function grant_team = <grant_function><uintptr_t>teams.team_addresses()[1]
