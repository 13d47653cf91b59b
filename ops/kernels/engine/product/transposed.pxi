"""The input with channels, or pairs of them, innermost, of some images at a time.

uses: core/problem.pxi (Operand), engine/product/product.pxi (Product)
gives: TRANSPOSED_BYTES, images_at_once, input_positions, lies_transposed, of_images, position_pitch, transpose_some,
    transposed_input, transposing_tasks
"""

cdef enum:
    TRANSPOSED_AT_ONCE = 64      # positions of the input
    TRANSPOSED_BYTES = 32 << 20  # of as many images as are transposed at a time, at most


cdef inline bint lies_transposed(const Product* p) noexcept nogil:
    """Whether the rows can be read from the input itself."""
    return p.pairs == NULL and p.input.c == 1 and p.input.format == NUMBER_FLOAT32 and p.input.x[2] != 1


cdef inline int64_t position_pitch(const Product* p) noexcept nogil:
    """Floats from a position of the copied input to the next: an odd number of cache lines."""
    return (ceiling(p.S, 16) | 1) * 16


cdef inline double input_positions(const Product* p) noexcept nogil:
    return <double>p.N * p.I[0] * p.I[1] * p.I[2]


cdef Operand transposed_input(const Product* p, float* copy) noexcept nogil:
    """The input as floats or pairs, channels innermost."""
    cdef Operand o
    o.data, o.format, o.c = copy, NUMBER_FLOAT32, 1
    o.x[2] = position_pitch(p)
    o.x[1] = p.I[2] * o.x[2]
    o.x[0] = p.I[1] * o.x[1]
    o.n = p.I[0] * o.x[0]
    o.g = p.N * o.n
    return o


cdef inline bint one_line(const Operand* input, const int64_t* extent) noexcept nogil:
    """Whether the lines of a plane follow one another."""
    return input.x[1] == extent[2] * input.x[2]


cdef int64_t transposing_tasks(const Product* p) noexcept nogil:
    cdef int64_t planes = p.G * p.N * p.I[0]
    return planes * (ceiling(p.I[1] * p.I[2], TRANSPOSED_AT_ONCE) if one_line(&p.input, p.I) else p.I[1] * ceiling(p.I[2], TRANSPOSED_AT_ONCE))


cdef void transpose_some(const Product* p, const instruction_set* isa, const Operand* transposed, int64_t task,
                        uint16_t* smallest) noexcept nogil:
    """Some positions of a line, all channels."""
    cdef int64_t count = p.I[1] * p.I[2] if one_line(&p.input, p.I) else p.I[2], x1 = 0, pieces = ceiling(count, TRANSPOSED_AT_ONCE)
    cdef int64_t first = share(count, pieces, task % pieces), end = share(count, pieces, task % pieces + 1), rest = task // pieces, d, x0, n, g, start
    cdef lane_span span
    cdef float* place
    if not one_line(&p.input, p.I):
        x1 = rest % p.I[1]
        rest //= p.I[1]
    x0 = rest % p.I[0]
    rest //= p.I[0]
    n, g = rest % p.N, rest // p.N
    place = <float*>transposed.data + n * transposed.n + g * transposed.g + x0 * transposed.x[0] + x1 * transposed.x[1] + first * transposed.x[2]
    start = n * p.input.n + g * p.input.g + x0 * p.input.x[0] + x1 * p.input.x[1] + first * p.input.x[2]
    check_room(b"transpose_some", place, 4 * ((end - first - 1) * transposed.x[2] + p.S))
    if p.pairs != NULL:
        p.pairs.gather_positions(place, transposed.x[2], end - first, p.D,
                                 <const char*>p.input.data + start * element_size(p.input.format), p.input.format, p.input.x[2],
                                 p.input.c, smallest)
        return
    for d in range(ceiling(p.D, TILE_LANES)):
        span = lane_span(0, min(TILE_LANES, p.D - d * TILE_LANES), start + d * TILE_LANES * p.input.c, p.input.c)
        isa.gather(place + d * TILE_LANES, transposed.x[2], end - first, p.input.data, p.input.format, p.input.x[2], &span, 1)


cdef int64_t images_at_once(const Product* p, int64_t most) noexcept nogil:
    """As many as are transposed at a time to at most so many bytes, of which a whole number of times makes all."""
    cdef double image = 4.0 * p.G * p.I[0] * p.I[1] * p.I[2] * position_pitch(p)
    cdef int64_t times = 1
    if not lies_transposed(p):
        while times < p.N and (p.N % times != 0 or p.N // times * image > most):
            times += 1
    return p.N // times


cdef Product of_images(const Product* p, int64_t first, int64_t count) noexcept nogil:
    """The product of some images."""
    cdef Product some = p[0]
    some.N, some.columns = count, p.columns // p.N * count
    some.input.data = <char*>p.input.data + first * p.input.n * element_size(p.input.format)
    some.output.data = <char*>p.output.data + first * p.output.n * element_size(p.output.format)
    return some
