"""A node at work: read the inputs, find or make the program for their shapes, run it."""

cdef struct Node:
    Api api
    const Record* record
    PyObject* planner  # a `convreg.onnx.runtime_ort.nodes.Node`
    bint named[MOST_PORTS]
    int programs
    int oldest
    Program* program[MOST_PROGRAMS]


cdef struct Tensors:  # of one call: inputs, then outputs
    int64_t key[KEY_LENGTH]  # per input: element type (0 = absent), rank, extents; a stated shape's values
    int key_length  # 0: longer than any legal call's
    char* data[2 * MOST_PORTS]
    int element[MOST_PORTS]
    int rank[MOST_PORTS]
    int64_t dims[MOST_PORTS][MOST_RANK]


cdef inline void remember(Tensors* tensors, int64_t value) noexcept nogil:
    if tensors.key_length >= 0 and tensors.key_length < KEY_LENGTH:
        tensors.key[tensors.key_length] = value
        tensors.key_length += 1
    else:
        tensors.key_length = -1


cdef Status read_input(const Node* node, const void* context, int index, size_t present, Tensors* tensors) noexcept nogil:
    cdef Api api = node.api
    cdef const void* value = NULL
    cdef void* described = NULL
    cdef size_t rank
    cdef int64_t i, count
    cdef Status status = NULL
    tensors.element[index] = 0
    if <size_t>index < present:
        status = (<get_input>api[INPUT])(context, index, &value)
    if status != NULL or value == NULL:
        remember(tensors, 0)
        return status
    status = (<get_pointer>api[TYPE_AND_SHAPE])(value, &described)
    if status != NULL:
        return status
    status = (<get_element>api[ELEMENT_TYPE])(described, &tensors.element[index])
    if status == NULL:
        status = (<get_count>api[DIMENSION_COUNT])(described, &rank)
    if status == NULL and rank > MOST_RANK:
        status = refusal(api, INVALID_ARGUMENT, b"convreg: a tensor has more than eight axes")
    if status == NULL:
        tensors.rank[index] = <int>rank
        status = (<get_dimensions>api[DIMENSIONS])(described, tensors.dims[index], rank)
    (<release>api[RELEASE_TYPE_AND_SHAPE])(described)
    if status == NULL:
        status = (<get_pointer>api[TENSOR_DATA])(value, <void**>&tensors.data[index])
    if status != NULL:
        return status
    remember(tensors, tensors.element[index])
    remember(tensors, rank)
    count = 1
    for i in range(<int64_t>rank):
        remember(tensors, tensors.dims[index][i])
        count *= tensors.dims[index][i]
    if node.record.states_shape[index]:
        if tensors.element[index] == 6 or tensors.element[index] == 7:
            for i in range(min(count, KEY_LENGTH)):
                remember(tensors, (<int32_t*>tensors.data[index])[i] if tensors.element[index] == 6
                         else (<int64_t*>tensors.data[index])[i])
        if count > KEY_LENGTH:
            tensors.key_length = -1
    return NULL


cdef cython.pymutex programs_lock  # guards the lists of programs of all nodes, for a few instructions at a time


cdef Program* find_program(Node* node, const Tensors* tensors) noexcept nogil:
    """The program for these inputs, borrowed until `give_back`, or NULL."""
    cdef int i
    cdef Program* program
    cdef Program* found = NULL
    with programs_lock:
        for i in range(node.programs):
            program = node.program[i]
            if program.key_length == tensors.key_length and memcmp(
                    program.key, tensors.key, tensors.key_length * sizeof(int64_t)) == 0:
                program.users += 1
                found = program
                break
    return found


cdef void keep_program(Node* node, Program* program) noexcept nogil:
    """Enter a program, which stays borrowed; the oldest one makes room."""
    cdef Program* replaced = NULL
    program.users = 1
    with programs_lock:
        if node.programs < MOST_PROGRAMS:
            node.program[node.programs] = program
            node.programs += 1
        else:
            replaced = node.program[node.oldest]
            node.program[node.oldest] = program
            node.oldest = (node.oldest + 1) % MOST_PROGRAMS
            replaced.retired = True
            if replaced.users > 0:
                replaced = NULL  # its last user frees it
    if replaced != NULL:
        with gil:
            free_program(replaced)


cdef void give_back(Program* program) noexcept nogil:
    cdef bint last
    with programs_lock:
        program.users -= 1
        last = program.retired and program.users == 0
    if last:
        with gil:
            free_program(program)


cdef list described_tensors(const Node* node, const Tensors* tensors):
    """(address, element type, shape) of every input, None where absent."""
    cdef int i, axis
    described = []
    for i in range(node.record.inputs):
        if tensors.element[i] == 0:
            described.append(None)
        else:
            described.append((<uintptr_t>tensors.data[i], tensors.element[i],
                              tuple([tensors.dims[i][axis] for axis in range(tensors.rank[i])])))
    return described


cdef Program* make_program(const Node* node, const Tensors* tensors, Status* status) noexcept nogil:
    cdef Program* program = NULL
    with gil:
        try:
            made = (<object>node.planner).program(described_tensors(node, tensors))
            program = new_program(made, node.record.outputs)
            if tensors.key_length > 0:
                program.key_length = tensors.key_length
                memcpy(program.key, tensors.key, tensors.key_length * sizeof(int64_t))
        except BaseException as error:
            status[0] = status_of(node.api, error)
    return program


cdef Status open_outputs(const Node* node, void* context, const Program* program, Tensors* tensors) noexcept nogil:
    cdef int i
    cdef void* value
    cdef Status status = NULL
    for i in range(node.record.outputs):
        tensors.data[node.record.inputs + i] = NULL
        if not node.named[i]:
            continue
        value = NULL
        status = (<get_output>node.api[OUTPUT])(context, i, program.dims[i], program.rank[i], &value)
        if status == NULL and value != NULL:
            status = (<get_pointer>node.api[TENSOR_DATA])(value, <void**>&tensors.data[node.record.inputs + i])
        if status != NULL:
            return status
    return NULL


cdef object operand_memory(const Operand* operand, char* const* data, bint writable):
    cdef Memory memory = Memory.__new__(Memory)
    cdef int axis
    if operand.tensor < 0:
        memory.data = <void*><uintptr_t>operand.offset
    else:
        memory.data = data[operand.tensor] + operand.offset
    memory.rank, memory.writable, memory.itemsize = operand.rank, writable, operand.itemsize
    memory.format = letter(operand.itemsize)
    for axis in range(operand.rank):
        memory.shape[axis], memory.strides[axis] = operand.shape[axis], operand.strides[axis]
    return memory


cdef bint is_aligned(const Step* step, char* const* data) noexcept nogil:
    """Whether all operands but the bias, for which kernels look themselves, lie at multiples of their size."""
    cdef int i
    cdef const Operand* operand
    cdef uintptr_t address
    for i in range(3):
        operand = &step.operands[i]
        address = <uintptr_t>operand.offset
        if operand.tensor >= 0:
            address += <uintptr_t>data[operand.tensor]
        if address % <uintptr_t>operand.itemsize != 0:
            return False
    return True


cdef object run_misaligned(object kernel, tuple operands, dict settings):
    from numpy import asarray  # both seldom

    from convreg.ops.kernels import run_anywhere

    run_anywhere(kernel, tuple(map(asarray, operands)), 0, settings)


cdef Status run_program(const Node* node, const Program* program, const Tensors* tensors) noexcept nogil:
    """Fill the outputs. Here the GIL could go, once the kernels can be called without Python objects."""
    cdef int i
    cdef const Step* step
    cdef Status status = NULL
    with gil:
        try:
            if program.by_python:
                outputs = [<uintptr_t>tensors.data[node.record.inputs + i] for i in range(node.record.outputs)]
                (<object>program.made).run(described_tensors(node, tensors), outputs)
            for i in range(program.step_count):
                step = &program.steps[i]
                settings = <dict>step.settings
                if step.biased:
                    settings = {**settings, "bias": operand_memory(&step.operands[3], tensors.data, False)}
                operands = (operand_memory(&step.operands[0], tensors.data, False),
                            operand_memory(&step.operands[1], tensors.data, False),
                            operand_memory(&step.operands[2], tensors.data, True))
                kernel = <object>step.kernel
                if is_aligned(step, tensors.data):
                    run_kernel(kernel, operands, 0, settings)
                else:
                    run_misaligned(kernel, operands, settings)
        except BaseException as error:
            status = status_of(node.api, error)
    return status


cdef Status compute(void* kernel, void* context) noexcept nogil:
    cdef Node* node = <Node*>kernel
    cdef Tensors tensors
    cdef Program* program
    cdef size_t present = 0
    cdef int i
    cdef Status status = (<get_count>node.api[INPUT_COUNT])(context, &present)
    tensors.key_length = 0
    for i in range(node.record.inputs):
        if status == NULL:
            status = read_input(node, context, i, present, &tensors)
    if status != NULL:
        return status
    program = find_program(node, &tensors)
    if program == NULL:
        program = make_program(node, &tensors, &status)
        if program == NULL:
            return status
        if program.key_length > 0:
            keep_program(node, program)
        else:
            program.users, program.retired = 1, True
    status = open_outputs(node, context, program, &tensors)
    if status == NULL:
        status = run_program(node, program, &tensors)
    give_back(program)
    return status
