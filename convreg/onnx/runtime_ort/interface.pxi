"""What of onnxruntime's C interface is used: positions in its table of functions, and the record of an operator."""

cdef enum:
    API_VERSION = 17
    FAIL = 1
    INVALID_ARGUMENT = 2
    OPTIONAL = 1
    # positions in the table of functions
    CREATE_STATUS = 0
    CREATE_DOMAIN = 26
    DOMAIN_ADD = 27
    ADD_DOMAIN = 28
    TENSOR_DATA = 51
    ELEMENT_TYPE = 60
    DIMENSION_COUNT = 61
    DIMENSIONS = 62
    TYPE_AND_SHAPE = 65
    ATTRIBUTE_FLOAT = 85
    ATTRIBUTE_INT = 86
    ATTRIBUTE_STRING = 87
    INPUT_COUNT = 88
    INPUT = 90
    OUTPUT = 91
    RELEASE_STATUS = 93
    RELEASE_TYPE_AND_SHAPE = 99
    ATTRIBUTE_FLOATS = 162
    ATTRIBUTE_INTS = 163
    NODE_OUTPUT_COUNT = 231
    NODE_OUTPUT_NAME = 233

ctypedef void* Status  # NULL = fine
ctypedef const void* const* Api

ctypedef struct ApiBase:
    Api (*get)(uint32_t) noexcept nogil
    const char* (*version)() noexcept nogil

ctypedef Status (*create_status)(int, const char*) noexcept nogil
ctypedef void (*release)(void*) noexcept nogil
ctypedef Status (*create_domain)(const char*, void**) noexcept nogil
ctypedef Status (*add)(void*, const void*) noexcept nogil
ctypedef Status (*get_pointer)(const void*, void**) noexcept nogil
ctypedef Status (*get_element)(const void*, int*) noexcept nogil
ctypedef Status (*get_count)(const void*, size_t*) noexcept nogil
ctypedef Status (*get_dimensions)(const void*, int64_t*, size_t) noexcept nogil
ctypedef Status (*get_input)(const void*, size_t, const void**) noexcept nogil
ctypedef Status (*get_output)(void*, size_t, const int64_t*, size_t, void**) noexcept nogil
ctypedef Status (*get_text)(const void*, size_t, char*, size_t*) noexcept nogil
ctypedef Status (*get_attribute)(const void*, const char*, void*) noexcept nogil
ctypedef Status (*get_attributes)(const void*, const char*, void*, size_t*) noexcept nogil


cdef enum:
    MOST_PORTS = 8
    MOST_RANK = 8
    KEY_LENGTH = 96
    MOST_PROGRAMS = 64


ctypedef struct Record:  # of one operator; onnxruntime reads the functions, the rest is ours
    uint32_t version
    void* (*create)(const Record*, Api, const void*) noexcept nogil
    const char* (*name)(const Record*) noexcept nogil
    const char* (*provider)(const Record*) noexcept nogil
    int (*input_type)(const Record*, size_t) noexcept nogil
    size_t (*input_count)(const Record*) noexcept nogil
    int (*output_type)(const Record*, size_t) noexcept nogil
    size_t (*output_count)(const Record*) noexcept nogil
    void (*compute)(void*, void*) noexcept nogil
    void (*destroy)(void*) noexcept nogil
    int (*input_option)(const Record*, size_t) noexcept nogil
    int (*output_option)(const Record*, size_t) noexcept nogil
    int (*input_memory)(const Record*, size_t) noexcept nogil
    int (*input_least)(const Record*) noexcept nogil
    int (*input_alike)(const Record*) noexcept nogil
    int (*output_least)(const Record*) noexcept nogil
    int (*output_alike)(const Record*) noexcept nogil
    Status (*create_2)(const Record*, Api, const void*, void**) noexcept nogil
    Status (*compute_2)(void*, void*) noexcept nogil
    Status (*infer)(const Record*, void*) noexcept nogil
    int (*first_version)(const Record*) noexcept nogil
    int (*last_version)(const Record*) noexcept nogil
    void* later[4]
    # ours
    const char* label
    int since
    int inputs
    int outputs
    int in_type[MOST_PORTS]  # 0 = any
    int out_type[MOST_PORTS]
    int in_option[MOST_PORTS]
    int out_option[MOST_PORTS]
    bint states_shape[MOST_PORTS]
    PyObject* operator


cdef const char* record_name(const Record* self) noexcept nogil:
    return self.label

cdef const char* record_provider(const Record* self) noexcept nogil:
    return NULL  # the processor

cdef int record_input_type(const Record* self, size_t index) noexcept nogil:
    return self.in_type[index]

cdef size_t record_input_count(const Record* self) noexcept nogil:
    return self.inputs

cdef int record_output_type(const Record* self, size_t index) noexcept nogil:
    return self.out_type[index]

cdef size_t record_output_count(const Record* self) noexcept nogil:
    return self.outputs

cdef int record_input_option(const Record* self, size_t index) noexcept nogil:
    return self.in_option[index]

cdef int record_output_option(const Record* self, size_t index) noexcept nogil:
    return self.out_option[index]

cdef int record_input_memory(const Record* self, size_t index) noexcept nogil:
    return 0  # the processor's

cdef int record_one(const Record* self) noexcept nogil:
    return 1

cdef int record_first_version(const Record* self) noexcept nogil:
    return self.since

cdef int record_last_version(const Record* self) noexcept nogil:
    return 0x7FFFFFFF


cdef inline Status refusal(Api api, int code, const char* text) noexcept nogil:
    return (<create_status>api[CREATE_STATUS])(code, text)


cdef inline bint failed(Api api, Status status) noexcept nogil:
    """Whether a call failed; the reason is dropped."""
    if status == NULL:
        return False
    (<release>api[RELEASE_STATUS])(status)
    return True


cdef Status status_of(Api api, object error) noexcept:
    """What onnxruntime shows of an exception."""
    try:
        code, text = explain(error)
        encoded = (<str>text).encode("utf-8", "replace")
        return refusal(api, code, encoded)
    except BaseException:
        return refusal(api, FAIL, b"convreg failed, and failed to say why")
