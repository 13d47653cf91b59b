"""The problem of `backward_data`: one product for each class of large positions modulo the stride, a dense convolution over
the taps that hit it.

Classes that are computed together share laid out input and stacked tiles.  Where they are so many that their packed weights would
not stay near, as those of patches, some are computed after others.

uses: core/extents.pxi (check_extents), core/isa.pxi (current), core/problem.pxi (Call, operand_of),
    engine/algorithms.pxi (Inquiry), engine/product/product.pxi (Product, Tap), engine/product/sums.pxi (AxisTaps,
    build_product, run_sums)
gives: run_backward_data
"""

cdef extern from *:
    """
    static inline int64_t times_modulo(int64_t a, int64_t b, int64_t modulus)
    {
        return (int64_t)((__int128)a * b % modulus);
    }
    """
    int64_t times_modulo(int64_t a, int64_t b, int64_t modulus) nogil


cdef enum:
    CLASSES_BYTES = 4 << 20  # per thread, packed weights of one row panel of classes that are computed together, and their products


cdef inline int64_t classes_along(const Call* c, int axis) noexcept nogil:
    return min(c.s[axis], c.large.shape[3 + axis])


cdef int64_t inverse(int64_t a, int64_t modulus) noexcept nogil:
    """Of a number that has no divisor in common with the modulus."""
    cdef int64_t rest = modulus, x = 1, y = 0
    while a > 1:
        x, y = y - rest // a * x, x
        a, rest = rest % a, a
    return (x % modulus + modulus) % modulus


cdef AxisTaps class_taps(const Call* c, int axis, int64_t residue) noexcept nogil:
    """The taps t of an axis of which residue + b - t*d is a multiple of s, s/gcd(s, d) apart; offset is that multiple."""
    cdef AxisTaps a = AxisTaps(0, 0, 1, 0, 0)
    cdef int64_t s = c.s[axis], d = c.d[axis], K = c.taps.shape[3 + axis], at = residue + c.b[axis], divisor = common_divisor(s, d), t
    a.step = s // divisor
    if at % divisor != 0:
        return a
    t = times_modulo((at // divisor % a.step + a.step) % a.step, inverse(d // divisor % a.step, a.step), a.step)
    if t < K:
        a.count, a.first, a.offset, a.offset_step = (K - 1 - t) // a.step + 1, t, (at - t * d) // s, -(d // divisor)
    return a


cdef int64_t only_reached(const Call* c, result_cell* cell) noexcept nogil:
    """The one class that taps reach, if it can store the others too, else -1."""
    cdef int64_t number = 0, residue, reached
    cdef int axis
    if (c.s[0] == c.s[1] == c.s[2] == 1 or current.scatter_cells == NULL or c.large.format == NUMBER_FLOAT64 or c.large.stride[5] != 1
            or c.taps.shape[2] < current.rows):
        return -1
    for axis in range(3):
        if c.large.shape[3 + axis] % c.s[axis] != 0:
            return -1
        reached = 0
        for residue in range(c.s[axis]):
            if class_taps(c, axis, residue).count > 0:
                reached += 1
                cell.own[axis] = residue
        if reached != 1:
            return -1
        cell.extent[axis] = c.s[axis]
        number = number * c.s[axis] + cell.own[axis]
    cell.line[0], cell.line[1] = c.large.stride[3], c.large.stride[4]
    return number


cdef void build_class(Product* p, const Call* c, const float* bias, int64_t number, Tap* taps, int64_t* offsets) noexcept nogil:
    """The product of one class; its taps go to `taps`, where their weights begin to `offsets`."""
    cdef int64_t residue
    cdef int axis
    cdef AxisTaps axes[3]
    p.N, p.G, p.R, p.D = c.large.shape[0], c.taps.shape[0], c.taps.shape[2], c.taps.shape[1]
    p.input, p.output, p.bias = operand_of(&c.small), operand_of(&c.large), bias
    for axis in range(2, -1, -1):
        residue = number % classes_along(c, axis)
        number //= classes_along(c, axis)
        p.Q[axis] = (c.large.shape[3 + axis] - residue + c.s[axis] - 1) // c.s[axis]
        p.I[axis], p.step[axis] = c.small.shape[3 + axis], 1
        axes[axis] = class_taps(c, axis, residue)
        p.output.data = <char*>p.output.data + residue * p.output.x[axis] * c.large.buffer.itemsize
        p.output.x[axis] *= c.s[axis]
    p.weights.data, p.weights.format = c.taps.buffer.buf, c.taps.format
    p.weights.g, p.weights.n, p.weights.c = c.taps.stride[0], c.taps.stride[2], c.taps.stride[1]
    build_product(p, axes, &c.taps, taps, offsets)


cdef int64_t class_bytes(int64_t channels, int64_t taps) noexcept nogil:
    """What a class adds to those computed together, about."""
    return 4 * taps * channels * current.rows + sizeof(Product)


cdef int run_backward_data(const Call* c, const float* bias, int threads, Inquiry* inquiry) except -1 nogil:
    """All classes, or as many at a time as come out even."""
    cdef int64_t columns, classes, tap_count, first = 0, count, used, bytes_used, most, parts
    cdef int64_t channels = c.taps.shape[1], limit = <int64_t>CLASSES_BYTES * threads
    cdef result_cell cell
    cdef Product* products
    cdef Tap* taps
    cdef int64_t* offsets
    check_extents(c)
    columns = classes_along(c, 2)
    classes = classes_along(c, 0) * classes_along(c, 1) * columns
    tap_count = c.taps.shape[3] * c.taps.shape[4] * c.taps.shape[5]
    most = class_bytes(channels, tap_count) + (classes - 1) * class_bytes(channels, 0)
    parts = ceiling(most, limit)
    if parts > 1:  # and what is left over of lines of classes
        most = min(limit, most // parts + columns * (most // classes))
    products = <Product*>malloc(min(classes, most // <int64_t>sizeof(Product) + 1) * sizeof(Product))
    taps = <Tap*>malloc((tap_count + 1) * (sizeof(Tap) + sizeof(int64_t)))
    offsets = <int64_t*>(taps + tap_count + 1)
    try:
        if products == NULL or taps == NULL:
            with gil:
                raise MemoryError
        first = only_reached(c, &cell)
        if first >= 0:
            build_class(products, c, bias, first, taps, offsets)
            products.cell = &cell
            return run_sums(products, 1, 1, threads, inquiry)
        first = 0
        while first < classes:
            count = used = bytes_used = 0
            while first + count < classes:
                build_class(&products[count], c, bias, first + count, taps + used, offsets + used)
                bytes_used += class_bytes(channels, products[count].all_count)
                if count > 0 and bytes_used > most:
                    break
                used += products[count].all_count
                count += 1
            if first + count < classes and count > columns:
                count -= count % columns
            if run_sums(products, count, columns if first % columns == 0 and count % columns == 0 else 1, threads, inquiry):
                return 1
            first += count
    finally:
        free(products)
        free(taps)
    return 0
