"""convreg inside onnxruntime: this module itself is the library that `register_custom_ops_library` loads.

onnxruntime calls the exported function `RegisterCustomOps`, gets one record per operator and combination of element
types, and calls back through them. Its interface is a table of functions in a fixed, append-only order, so that no
headers are needed, only positions in the table and the layout of the record, both as of version 17 of the interface.

    interface.pxi   what of onnxruntime's interface is used
    programs.pxi    programs, and the memory they work on
    nodes.pxi       a node at work

A node keeps a `Program` for each set of input shapes it has met: the shapes of the outputs, and the kernel calls with
their operands as places in the node's tensors. A repeated call looks its program up without Python, and takes the GIL
only around the kernels, which release it in turn. `convreg.onnx.runtime_ort.nodes` makes the programs.
"""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    bint Py_IsInitialized() noexcept nogil

include "interface.pxi"
include "programs.pxi"
include "nodes.pxi"

# ---------------------------------------------------------------------------------------------------------------------
# From the graph to nodes


cdef object read_attribute(Api api, const void* info, bytes name):
    """The value of a node's attribute, whatever its kind, or None.

    Lists come last: asked for one, onnxruntime gives an empty list for an attribute of any other kind. It shows lists
    of strings to nobody.
    """
    cdef int64_t number
    cdef float real
    cdef size_t size = 0
    cdef bytearray room
    if not failed(api, (<get_attribute>api[ATTRIBUTE_INT])(info, name, &number)):
        return number
    if not failed(api, (<get_attributes>api[ATTRIBUTE_STRING])(info, name, NULL, &size)):
        room = bytearray(size)
        if not failed(api, (<get_attributes>api[ATTRIBUTE_STRING])(info, name, <char*>room, &size)):
            return bytes(room[:size - 1]).decode("utf-8", "replace")
    if not failed(api, (<get_attribute>api[ATTRIBUTE_FLOAT])(info, name, &real)):
        return real
    size = 0
    if failed(api, (<get_attributes>api[ATTRIBUTE_INTS])(info, name, NULL, &size)):
        return None
    if size == 0:
        if not failed(api, (<get_attributes>api[ATTRIBUTE_FLOATS])(info, name, NULL, &size)) and size > 0:
            room = bytearray(size * sizeof(float))
            if not failed(api, (<get_attributes>api[ATTRIBUTE_FLOATS])(info, name, <char*>room, &size)):
                return list(memoryview(room).cast("f"))
        return []
    room = bytearray(size * sizeof(int64_t))
    if failed(api, (<get_attributes>api[ATTRIBUTE_INTS])(info, name, <char*>room, &size)):
        return None
    return list(memoryview(room).cast("q"))


cdef bint is_named(Api api, const void* info, int output) noexcept nogil:
    """Whether the node has a name for that output."""
    cdef size_t count = 0, size = 0
    if failed(api, (<get_count>api[NODE_OUTPUT_COUNT])(info, &count)) or <size_t>output >= count:
        return False
    return not failed(api, (<get_text>api[NODE_OUTPUT_NAME])(info, output, NULL, &size)) and size > 1


cdef Status create_2(const Record* record, Api api, const void* info, void** kernel) noexcept nogil:
    cdef int i
    cdef Status status = NULL
    cdef Node* node = <Node*>calloc(1, sizeof(Node))
    kernel[0] = NULL
    if node == NULL:
        return refusal(api, FAIL, b"convreg: out of memory")
    node.api, node.record = api, record
    for i in range(record.outputs):
        node.named[i] = is_named(api, info, i)
    with gil:
        try:
            operator = <object>record.operator
            attributes = {}
            for name in operator.attributes:
                value = read_attribute(api, info, (<str>name).encode())
                if value is not None:
                    attributes[name] = value
            planner = operator.node(attributes, tuple([bool(node.named[i]) for i in range(record.outputs)]),
                                    tuple([record.out_type[i] for i in range(record.outputs)]))
            Py_INCREF(planner)
            node.planner = <PyObject*>planner
        except BaseException as error:
            status = status_of(api, error)
    if status != NULL:
        free(node)
    else:
        kernel[0] = node
    return status


cdef void* create(const Record* record, Api api, const void* info) noexcept nogil:
    return NULL  # asked only by versions that `RegisterCustomOps` refuses


cdef void compute_1(void* kernel, void* context) noexcept nogil:
    pass  # as above


cdef void destroy(void* kernel) noexcept nogil:
    cdef Node* node = <Node*>kernel
    cdef int i
    if node == NULL:
        return
    if Py_IsInitialized():
        with gil:
            for i in range(node.programs):
                free_program(node.program[i])
            Py_DECREF(<object>node.planner)
    free(node)


# ---------------------------------------------------------------------------------------------------------------------
# Registration

cdef bint ready = False  # whether `install` has run
cdef object list_records, explain, run_kernel
cdef dict domains = {}  # (interface, identity of the records) -> addresses; sessions point to domains for ever
cdef list kept = []


def install(records, explainer, runner):
    """Take what `convreg.onnx.runtime_ort.nodes` provides: the records, the text of an exception, and the way to run a kernel.

    Parameters
    ----------
    records : callable
        ``records() -> tuple of Record``.
    explainer : callable
        ``explainer(exception) -> (code, text)``.
    runner : callable
        ``runner(kernel, operands, threads, settings)``, in this process and in those forked from it.
    """
    global ready, list_records, explain, run_kernel
    list_records, explain, run_kernel, ready = records, explainer, runner, True


def keep(value):
    """Keep an object until the process ends, also while the interpreter shuts down and clears its modules."""
    Py_INCREF(value)


cdef Record* new_record(described) except NULL:
    cdef int i
    cdef Record* record = <Record*>calloc(1, sizeof(Record))
    if record == NULL:
        raise MemoryError
    record.version = API_VERSION
    record.create, record.create_2, record.destroy = create, create_2, destroy
    record.compute, record.compute_2 = compute_1, compute
    record.name, record.provider = record_name, record_provider
    record.input_type, record.input_count, record.input_option = record_input_type, record_input_count, record_input_option
    record.output_type, record.output_count = record_output_type, record_output_count
    record.output_option, record.input_memory = record_output_option, record_input_memory
    record.input_least = record.input_alike = record.output_least = record.output_alike = record_one
    record.first_version, record.last_version = record_first_version, record_last_version
    label = described.name.encode()
    kept.append((label, described))
    record.label, record.since, record.operator = label, described.since, <PyObject*>described.operator
    record.inputs, record.outputs = len(described.inputs), len(described.outputs)
    if max(record.inputs, record.outputs) > MOST_PORTS:
        raise ValueError(f"{described.name} has more than {MOST_PORTS} inputs or outputs")
    for i in range(record.inputs):
        record.in_type[i], record.in_option[i], record.states_shape[i] = described.inputs[i]
    for i in range(record.outputs):
        record.out_type[i], record.out_option[i] = described.outputs[i]
    return record


cdef list make_domains(Api api, records):
    """Domains with their records, as addresses."""
    cdef void* domain
    cdef Record* record
    made = {}
    for described in records:
        if described.domain not in made:
            name = described.domain.encode()
            if failed(api, (<create_domain>api[CREATE_DOMAIN])(name, &domain)):
                raise MemoryError
            made[described.domain] = <uintptr_t>domain
        record = new_record(described)
        if failed(api, (<add>api[DOMAIN_ADD])(<void*><uintptr_t>made[described.domain], record)):
            raise MemoryError
    return list(made.values())


cdef public void* RegisterCustomOps(void* options, const void* api_base) noexcept nogil:
    """What onnxruntime calls with the options of a session."""
    cdef const ApiBase* base = <const ApiBase*>api_base
    cdef Api oldest = base.get(1)
    cdef Status status = NULL
    if oldest == NULL:
        return NULL  # no way even to say so; no onnxruntime is like that
    cdef Api api = base.get(API_VERSION)
    if not ready:
        return refusal(oldest, FAIL, b"convreg registers its operators from Python: import convreg and pass the path that "
                                     b"convreg.onnx.ort_library() returns")
    with gil:
        try:
            if api == NULL:
                text = (f"convreg needs an onnxruntime with version {API_VERSION} of its interface, as 1.{API_VERSION} and "
                        f"later have; this is onnxruntime {base.version().decode()}").encode()
                return refusal(oldest, FAIL, text)
            records = list_records()
            key = <uintptr_t>api, id(records)
            if key not in domains:
                kept.append(records)
                domains[key] = make_domains(api, records)
            for address in domains[key]:
                if status == NULL:
                    status = (<add>api[ADD_DOMAIN])(options, <void*><uintptr_t>address)
        except BaseException as error:
            status = status_of(oldest, error)
    return status
