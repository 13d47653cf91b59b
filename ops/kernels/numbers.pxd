"""Stored numbers and their values: `load` decodes one element exactly, `store` rounds once, to nearest even."""

from libc.stdint cimport uint16_t

cdef extern from "numbers.h" nogil:
    enum:
        NUMBER_FLOAT32
        NUMBER_FLOAT64
        NUMBER_FLOAT16
        NUMBER_BFLOAT16
    float decode16(uint16_t code, int format)
    uint16_t encode16(float value, int format)

# Floats are stored as themselves, every other format as its bit pattern.
ctypedef fused operand:
    float
    double
    uint16_t

ctypedef fused result:
    float
    double
    uint16_t

# The type a sum is carried in.
ctypedef fused real:
    float
    double


cdef inline real load(operand stored, int format, real like) noexcept nogil:
    """The value of `stored`; `like` only names the type wanted."""
    if operand is uint16_t:
        return decode16(stored, format)
    else:
        return stored


cdef inline void store(result* place, int format, real value) noexcept nogil:
    if result is uint16_t:
        place[0] = encode16(<float>value, format)
    else:
        place[0] = <result>value
