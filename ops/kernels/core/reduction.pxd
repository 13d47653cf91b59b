"""The cuts of long sums and their tree, for Cython; `core/reduction.h` states the rules."""

from libc.stdint cimport int64_t

from numbers cimport real

cdef extern from "core/reduction.h" nogil:
    enum:
        REDUCTION_CHAINS
        REDUCTION_FEW
        REDUCTION_LEVELS
        SUM_BLOCK
        HALF_BLOCK
    bint positions_in_blocks(int64_t chains, int first_format, int second_format)
    bint sums_in_blocks(int64_t channels, int64_t rows, int first_format, int second_format)
    ctypedef struct reduction_cut:
        int64_t pieces
        int64_t length
        int64_t chains
        int64_t offset
    reduction_cut cut_reduction(int64_t positions, int64_t line, int64_t channels, int64_t sums)
    int64_t piece_start(const reduction_cut* cut, int64_t piece, int64_t positions)
    int64_t subtree_end(int64_t first, int64_t end, int64_t pieces)
    bint subtrees_join(int64_t first, int64_t middle, int64_t end, int64_t pieces)


cdef inline int push_partial(real* stack, int depth, int64_t piece, real partial) noexcept nogil:
    """Enter the sum of piece 0, 1, 2, ... into the tree; returns the new depth of `stack`, whose entries are the
    finished subtrees, largest first. Piece p finishes as many subtrees as p has trailing one bits."""
    while piece & 1:
        depth -= 1
        partial = stack[depth] + partial
        piece >>= 1
    stack[depth] = partial
    return depth + 1


cdef inline real tree_sum(real* stack, int depth) noexcept nogil:
    """The root: what is left over joins from the right, the smallest subtree first."""
    while depth > 1:
        depth -= 1
        stack[depth - 1] = stack[depth - 1] + stack[depth]
    return stack[0]


cdef inline real chain_sum(real* chains, int64_t count) noexcept nogil:
    """Add the chains of a piece, halving their number."""
    cdef int64_t j
    while count > 1:
        count = count // 2
        for j in range(count):
            chains[j] = chains[j] + chains[j + count]
    return chains[0]
