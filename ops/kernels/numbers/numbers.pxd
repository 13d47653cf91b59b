"""Stored numbers and their values: `load` decodes one exactly, `store` rounds once."""

from libc.stdint cimport uint8_t, uint16_t

cdef extern from "numbers/numbers.h" nogil:
    enum:
        NUMBER_FLOAT32
        NUMBER_FLOAT64
        NUMBER_FLOAT16
        NUMBER_BFLOAT16
        NUMBER_FLOAT8_E4M3FN
        NUMBER_FLOAT8_E5M2
        NUMBER_HIFLOAT8
    bint within_bfloat16(int format)
    float decode16(uint16_t code, int format)
    float decode8(uint8_t code, int format)

cdef extern from "numbers/rounding.h" nogil:
    uint16_t encode16(float value, int format)
    uint8_t encode8(float value, int format)

# How a number is stored: 32 and 64 bits as themselves, every other format as its bit pattern.
ctypedef fused operand:
    float
    double
    uint16_t
    uint8_t

ctypedef fused result:
    float
    double
    uint16_t
    uint8_t

# What a sum is carried in.
ctypedef fused real:
    float
    double


cdef inline double load(operand stored, int format) noexcept nogil:
    """The value, which is exact in float32 unless `stored` is a double."""
    if operand is uint16_t:
        return decode16(stored, format)
    elif operand is uint8_t:
        return decode8(stored, format)
    else:
        return stored


cdef inline void store(result* place, int format, real value) noexcept nogil:
    if result is uint16_t:
        place[0] = encode16(<float>value, format)
    elif result is uint8_t:
        place[0] = encode8(<float>value, format)
    else:
        place[0] = <result>value
