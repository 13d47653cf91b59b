"""The operands of a call: 6-D views of stored numbers, in one axis order, and the relation of their positions.

uses: nothing
gives: Call, Operand, View, close_call, element_count, open_call, operand_of
"""

cdef struct Operand:  # a strided tensor: addresses in elements
    void* data
    int format
    int64_t n
    int64_t g
    int64_t c          # its channel axis
    int64_t x[3]       # its positions


cdef struct View:  # a 6-D operand
    Py_buffer buffer
    int format
    int64_t shape[6]
    int64_t stride[6]  # in elements


cdef int open_view(View* view, object array, str format, bint writable) except -1:
    cdef int axis
    view.format = FORMATS[format]
    PyObject_GetBuffer(array, &view.buffer, PyBUF_STRIDES | (PyBUF_WRITABLE if writable else 0))
    for axis in range(6):
        view.shape[axis] = view.buffer.shape[axis]
        view.stride[axis] = view.buffer.strides[axis] // view.buffer.itemsize
    return 0


cdef Operand operand_of(const View* view) noexcept nogil:
    """Positions and channels of large or small: (n, g, channel, x0, x1, x2)."""
    cdef Operand o
    cdef int axis
    o.data, o.format = view.buffer.buf, view.format
    o.n, o.g, o.c = view.stride[0], view.stride[1], view.stride[2]
    for axis in range(3):
        o.x[axis] = view.stride[3 + axis]
    return o


cdef struct Call:
    View large
    View small
    View taps
    int64_t s[3]
    int64_t d[3]
    int64_t b[3]
    bint is_subtree
    int64_t offset         # of a subtree of a larger sum: core/reduction.h ...
    int64_t pieces
    int64_t length         # ... of a piece


cdef int open_call(Call* c, large, small, taps, formats, stride, dilation, begin, int written, subtree) except -1:
    """Open the operands; `written` is the index of the result. To be closed whether that succeeds or not."""
    cdef int axis
    memset(c, 0, sizeof(Call))  # what is not opened is not closed
    open_view(&c.large, large, formats[0], written == 0)
    open_view(&c.small, small, formats[1], written == 1)
    open_view(&c.taps, taps, formats[2], written == 2)
    for axis in range(3):
        c.s[axis], c.d[axis], c.b[axis] = stride[axis], dilation[axis], begin[axis]
    if subtree is not None:
        c.is_subtree = True
        c.offset, c.pieces, c.length = subtree
    return 0


cdef void close_call(Call* c):
    PyBuffer_Release(&c.large.buffer)
    PyBuffer_Release(&c.small.buffer)
    PyBuffer_Release(&c.taps.buffer)


cdef inline int64_t element_count(const View* view) noexcept nogil:
    cdef int64_t total = 1
    cdef int axis
    for axis in range(6):
        total *= view.shape[axis]
    return total


