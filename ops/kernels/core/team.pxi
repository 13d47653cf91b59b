"""How many threads a call runs on: `team_for` of `core/team.h`.

The plain loops call the same function. Its address comes from their module, because each module would have its own team.

uses:
gives: team_for
"""

ctypedef int (*team_function)(double products, int threads) noexcept nogil

cdef team_function team_for = <team_function><uintptr_t>reference.team_addresses()[0]
