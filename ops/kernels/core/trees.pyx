"""Long sums taken apart: how many pieces they have, and which subtrees the tree of `core/reduction.h` adds."""

from libc.stdint cimport int64_t

from reduction cimport cut_reduction, reduction_cut, subtree_end, subtrees_join


def pieces_of(int64_t batch, small_shape, int64_t sums) -> tuple[int, int]:
    """The number of pieces and their length in positions, for `sums` sums over a batch and the positions of a small side."""
    cdef int64_t positions = batch * small_shape[3] * small_shape[4] * small_shape[5]
    cdef reduction_cut cut = cut_reduction(positions, small_shape[5], small_shape[2], sums)
    return cut.pieces, cut.length


def subtrees_of(int64_t first, int64_t end, int64_t pieces) -> list[tuple[int, int]]:
    """The largest subtrees that pieces [first, end) of a sum divide into, each as its first piece and its end."""
    cdef int64_t middle
    found = []
    while first < end:
        middle = subtree_end(first, end, pieces)
        found.append((first, middle))
        first = middle
    return found


def adds(int64_t first, int64_t middle, int64_t end, int64_t pieces) -> bool:
    """Whether the tree adds the sums of pieces [first, middle) and [middle, end), two subtrees."""
    return subtrees_join(first, middle, end, pieces)
