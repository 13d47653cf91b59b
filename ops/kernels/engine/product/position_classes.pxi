"""Output positions sorted by the taps that they meet.

Near the edges of the input some taps meet nothing.  Columns that lie in one panel take every tap that one of them meets.  So
where such positions are many (dilations as wide as the plane, small planes, full padding), the positions are numbered class by
class: a class is a box of positions that all meet the same taps.  Only the order in which outputs are computed changes, no sum.

uses: engine/costs.pxi (CLASS_SHARE, FRAGMENT_CYCLES, VECTORS_A_CYCLE), engine/product/product.pxi (Fragment,
    PositionClass, Product)
gives: CUTS_EVERYWHERE, cut_axis, cut_fragments, cut_position_classes
"""

cdef enum:
    CUTS = 16             # ranges along one axis, at most
    CUTS_EVERYWHERE = 64  # ... where every range is computed by itself


cdef int64_t cut_axis(const Product* p, int axis, int64_t most, int64_t* cuts, double* missed) noexcept nogil:
    """Borders between ranges of positions that meet the same taps along an axis; returns the number of ranges, 0 where they are
    more than `most`. `missed` is the share of (position, tap) that lies outside."""
    cdef int64_t number = 1, t, i, j, border, met = 0, low, high
    cdef int side
    cuts[0] = 0
    for t in range(p.tap_count):
        meet_inside(p.taps[t].offset[axis], p.step[axis], p.I[axis], p.Q[axis], &low, &high)
        met += high - low
        for side in range(2):
            border = high if side else low
            if border <= 0 or border >= p.Q[axis]:
                continue
            i = 0
            while i < number and cuts[i] < border:
                i += 1
            if i < number and cuts[i] == border:
                continue
            if number == most:
                return 0
            for j in range(number, i, -1):
                cuts[j] = cuts[j - 1]
            cuts[i] = border
            number += 1
    cuts[number] = p.Q[axis]
    missed[0] = 1 - met / (<double>p.Q[axis] * p.tap_count) if p.tap_count > 0 else 0
    return number


cdef int64_t cut_position_classes(Product* p, const instruction_set* isa, PositionClass* position_classes) noexcept nogil:
    """Cut the output positions of a product into classes, along the axes where that saves more products than it costs copies,
    and return their number. `position_classes` has room for them, or is NULL to count."""
    cdef int64_t cuts[3][CUTS + 1]
    cdef int64_t count[3]
    cdef int64_t number = 0, column = 0, i0, i1, i2, j1, j2
    cdef double missed = 0, copies, products = p.R / <double>(VECTORS_A_CYCLE * isa.width)  # cycles for one number of the input
    cdef int axis
    cdef PositionClass* positions
    p.met = 1
    for axis in range(3):
        cuts[axis][0] = 0
        count[axis] = 1
        if p.padded:
            count[axis] = cut_axis(p, axis, CUTS, cuts[axis], &missed)
        copies = FRAGMENT_CYCLES * (count[axis] - 1) / p.Q[2] if axis == 2 else CLASS_SHARE * products
        if count[axis] > 1 and products * missed > copies:
            p.met *= 1 - missed
        else:
            count[axis] = 1
        cuts[axis][count[axis]] = p.Q[axis]
    p.pieces = count[2]
    if position_classes == NULL:
        return count[0] * count[1] * count[2]
    check_room(b"cut_position_classes", position_classes, count[0] * count[1] * count[2] * sizeof(PositionClass))
    for i0 in range(count[0]):
        for j1 in range(count[1]):  # to and fro: classes that share a panel are neighbours
            i1 = count[1] - 1 - j1 if i0 % 2 else j1
            for j2 in range(count[2]):
                i2 = count[2] - 1 - j2 if number // count[2] % 2 else j2
                positions = &position_classes[number]
                number += 1
                positions.column = column
                positions.q[0], positions.q[1], positions.q[2] = cuts[0][i0], cuts[1][i1], cuts[2][i2]
                positions.extent[0] = cuts[0][i0 + 1] - cuts[0][i0]
                positions.extent[1] = cuts[1][i1 + 1] - cuts[1][i1]
                positions.extent[2] = cuts[2][i2 + 1] - cuts[2][i2]
                column += p.N * positions.extent[0] * positions.extent[1] * positions.extent[2]
    return number


cdef int64_t cut_fragments(const Product* p, int64_t column, int64_t count, Fragment* fragments) noexcept nogil:
    """Columns [column, column + count) as fragments."""
    cdef int64_t lane = 0, number = 0, q2, rest, run, low = 0, high = p.class_count, middle
    cdef const PositionClass* positions
    cdef Fragment* f
    check_room(b"cut_fragments", fragments, count * sizeof(Fragment))
    while high - low > 1:
        middle = (low + high) // 2
        if p.position_classes[middle].column <= column:
            low = middle
        else:
            high = middle
    while lane < count:
        if low + 1 < p.class_count and p.position_classes[low + 1].column <= column + lane:
            low += 1
        positions = &p.position_classes[low]
        rest = column + lane - positions.column
        q2 = rest % positions.extent[2]
        rest = rest // positions.extent[2]
        run = min(count - lane, positions.extent[2] - q2)
        f = &fragments[number]
        f.lane, f.count = lane, run
        f.q[2] = positions.q[2] + q2
        f.q[1] = positions.q[1] + rest % positions.extent[1]
        rest //= positions.extent[1]
        f.q[0] = positions.q[0] + rest % positions.extent[0]
        f.n = rest // positions.extent[0]
        number += 1
        lane += run
    return number
