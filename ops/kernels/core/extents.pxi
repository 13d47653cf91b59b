"""How large a call may be.

Arrays of zero strides may have any extents, so sizes that are computed from extents would overflow.  Each call is checked once,
before anything is planned: within these limits every size that the engine computes fits 64 bits with room to spare.

uses: core/problem.pxi (Call, View)
gives: check_extents
"""

cdef enum:
    MOST_TAPS = 1 << 26      # of a window: a call notes 40 bytes for each
    MOST_CHANNELS = 1 << 30  # of a group, on either side

cdef int64_t MOST_ELEMENTS = <int64_t>1 << 48  # of an operand
cdef double MOST_REACH = <double>(<int64_t>1 << 60)     # from the first position that some tap meets along an axis to the last
cdef double MOST_PRODUCTS = <double>(<int64_t>1 << 62)  # of a call


cdef double elements(const View* view) noexcept nogil:
    """Elements of an operand; an extent of 0 counts as 1."""
    cdef double total = 1
    cdef int axis
    for axis in range(6):
        total *= max(1, view.shape[axis])
    return total


cdef double furthest_reach(const Call* c) noexcept nogil:
    """The longest way along an axis, padding and what lies between positions included."""
    cdef double longest = 0
    cdef int axis
    for axis in range(3):
        longest = max(longest, <double>c.small.shape[3 + axis] * c.s[axis] + <double>c.taps.shape[3 + axis] * c.d[axis]
                      + abs(<double>c.b[axis]) + c.large.shape[3 + axis])
    return longest


cdef int check_extents(const Call* c) except -1 nogil:
    """Refuse a call that is too large: an OverflowError of what it has and of what is allowed."""
    cdef double taps = elements(&c.taps) / max(1, c.taps.shape[0]) / max(1, c.taps.shape[1]) / max(1, c.taps.shape[2])
    cdef double sides = max(elements(&c.large) * c.taps.shape[1], elements(&c.small) * c.taps.shape[2])
    cdef double largest = max(max(elements(&c.large), elements(&c.small)), elements(&c.taps))
    cdef double channels = max(c.taps.shape[1], c.taps.shape[2]), reach = furthest_reach(c)
    if taps > MOST_TAPS:
        with gil:
            raise OverflowError(f"a window of {taps:.3g} taps", f"at most {MOST_TAPS} taps")
    if channels > MOST_CHANNELS:
        with gil:
            raise OverflowError(f"{channels:.3g} channels in a group", f"at most {MOST_CHANNELS} channels")
    if largest > MOST_ELEMENTS:
        with gil:
            raise OverflowError(f"a tensor of {largest:.3g} elements", f"at most {MOST_ELEMENTS} elements")
    if reach > MOST_REACH:
        with gil:
            raise OverflowError(f"windows that reach over {reach:.3g} positions of an axis", f"at most {MOST_REACH:.3g} positions")
    if sides * taps > MOST_PRODUCTS:
        with gil:
            raise OverflowError(f"{sides * taps:.3g} products of numbers", f"at most {MOST_PRODUCTS:.3g} products")
    return 0
