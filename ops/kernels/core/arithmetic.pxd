cdef extern from "core/arithmetic.h" nogil:
    ctypedef unsigned long long arithmetic_state
    arithmetic_state begin_arithmetic()
    void end_arithmetic(arithmetic_state before)
