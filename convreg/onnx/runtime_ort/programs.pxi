"""Memory that onnxruntime owns as Python sees it, and programs: what a node does for one set of input shapes."""

@cython.final
cdef class Memory:
    """A strided piece of memory for `memoryview`, NumPy and the kernels; `owner` is kept alive."""

    cdef void* data
    cdef int rank
    cdef bint writable
    cdef Py_ssize_t shape[6]
    cdef Py_ssize_t strides[6]
    cdef Py_ssize_t itemsize
    cdef const char* format
    cdef object owner

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        cdef int axis
        if flags & PyBUF_WRITABLE and not self.writable:
            raise BufferError("read-only memory")
        buffer.buf, buffer.obj, buffer.readonly = self.data, self, not self.writable
        buffer.itemsize, buffer.ndim, buffer.len = self.itemsize, self.rank, self.itemsize
        for axis in range(self.rank):
            buffer.len *= self.shape[axis]
        buffer.format = <char*>self.format if flags & PyBUF_FORMAT else NULL
        buffer.shape = self.shape if flags & PyBUF_ND else NULL
        buffer.strides = self.strides if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        buffer.suboffsets = buffer.internal = NULL

    def __len__(self):
        return self.shape[0]


cdef const char* letter(Py_ssize_t itemsize) noexcept nogil:
    """How numbers of a size are stored: as `Format.storage` says."""
    return b"B" if itemsize == 1 else b"H" if itemsize == 2 else b"f" if itemsize == 4 else b"d"


def bytes_at(address, Py_ssize_t size, bint writable=False, owner=None):
    """Return `size` bytes at an address as an object with a buffer; the caller vouches for them."""
    cdef Memory memory = Memory.__new__(Memory)
    memory.data, memory.rank, memory.writable, memory.owner = <void*><uintptr_t>address, 1, writable, owner
    memory.shape[0], memory.strides[0], memory.itemsize, memory.format = size, 1, 1, b"B"
    return memory


cdef struct Operand:
    int tensor  # the node's inputs, then its outputs; -1 = at the address `offset`
    int64_t offset  # in bytes
    int rank
    Py_ssize_t shape[6]
    Py_ssize_t strides[6]
    Py_ssize_t itemsize


cdef struct Step:
    PyObject* kernel
    PyObject* settings
    Operand operands[4]  # two read, one written, perhaps a bias
    bint biased


cdef struct Program:
    int key_length
    int64_t key[KEY_LENGTH]
    int users
    bint retired
    int rank[MOST_PORTS]  # of the outputs; not computed = no elements
    int64_t dims[MOST_PORTS][MOST_RANK]
    bint by_python
    int step_count
    Step* steps
    PyObject* made  # Python's side, which also runs what cannot be written down as steps


cdef void free_program(Program* program):
    cdef int i
    for i in range(program.step_count):
        Py_DECREF(<object>program.steps[i].kernel)
        Py_DECREF(<object>program.steps[i].settings)
    free(program.steps)
    if program.made != NULL:
        Py_DECREF(<object>program.made)
    free(program)


cdef int fill_operand(Operand* operand, described) except -1:
    cdef int axis
    operand.tensor, operand.offset, shape, strides, operand.itemsize = described
    operand.rank = len(shape)
    for axis in range(operand.rank):
        operand.shape[axis], operand.strides[axis] = shape[axis], strides[axis]
    return 0


cdef Program* new_program(object made, int outputs) except NULL:
    """From a `convreg.onnx.runtime_ort.nodes.Program`."""
    cdef int i, axis
    cdef Step* step
    cdef Program* program = <Program*>calloc(1, sizeof(Program))
    if program == NULL:
        raise MemoryError
    try:
        Py_INCREF(made)
        program.made, program.by_python = <PyObject*>made, made.written is None
        for i in range(outputs):
            program.rank[i] = len(made.shapes[i])
            for axis in range(program.rank[i]):
                program.dims[i][axis] = made.shapes[i][axis]
        steps = made.written.steps if made.written is not None else ()
        program.steps = <Step*>calloc(len(steps) + 1, sizeof(Step))
        if program.steps == NULL:
            raise MemoryError
        for kernel, settings, operands in steps:
            step = &program.steps[program.step_count]
            step.biased = len(operands) == 4
            for i in range(len(operands)):
                fill_operand(&step.operands[i], operands[i])
            Py_INCREF(kernel)
            Py_INCREF(settings)
            step.kernel, step.settings = <PyObject*>kernel, <PyObject*>settings
            program.step_count += 1
    except BaseException:
        free_program(program)
        raise
    return program
