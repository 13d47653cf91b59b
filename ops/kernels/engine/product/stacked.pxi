"""Laid-out products of few rows, stacked so that lanes loaded once serve several outputs.

A product of one to four rows uses each vector of input that often, and waits for the cache.  But neighbours use the
same vectors at other taps: the stride classes of a data gradient, or lines of the result one above the other.  Here they
become rows of one tile.  Its reduction takes the places of input that any of them meets, in the order of their sums; at
each place the rows take part that have a tap there, so every sum is what it was.

uses: engine/product/jobs.pxi (Job), engine/product/laid_out_plan.pxi (Filled, Layout, laid_out_spans, tap_lanes,
    tap_meets, tap_shift), engine/product/product.pxi (Product, ProductScratch, Stretch, Tap, biases)
gives: MOST_ENTRIES, Place, Stack, Strip, can_stack, lines_to_stack, longest_strip, most_places, pack_stacked,
    plan_stack, run_stacked, stackable
"""

cdef enum:
    STACKED_ROWS = 4       # of a product, at most
    STACKED_STEPS = 16     # of a tap, at least: below, tiles are loaded and stored too often
    STACKED_LINES = 4      # of a result that one tile takes, at most
    MOST_ENTRIES = 8       # of a tile: the tallest has as many rows
    MOST_PLACES = 1 << 13  # of a tile: what a thread notes of them stays small


cdef struct Entry:  # rows of a tile: those of one product, some lines further down
    int64_t product
    int64_t line


cdef struct Place:  # of the input, that some entries meet at a tap
    Tap tap            # as of a single product
    uint32_t entries   # a bit for each


cdef struct Strip:  # a stacked tile
    int64_t count
    Entry entries[MOST_ENTRIES]
    Place* places      # in the order of the sums
    int64_t place_count
    int64_t packed     # floats before its weights


cdef struct Stack:
    bint chosen
    int64_t columns    # products, one after the other, that take turns along the innermost axis
    int64_t Q[3]       # output positions, those of the largest product
    int64_t lines      # of the result that a tile takes at once
    int64_t strip_count
    Strip* strips
    int64_t floats     # packed weights of one group


cdef bint comes_before(const int64_t* a, const int64_t* b, bint descending) noexcept nogil:
    """The order of a sum among offsets; false for equal ones."""
    cdef int axis
    for axis in range(3):
        if a[axis] != b[axis]:
            return (a[axis] > b[axis]) == descending
    return False


cdef bint descends(const Product* products, int64_t count) noexcept nogil:
    """Whether taps meet the input from its end to its beginning."""
    cdef int64_t i
    for i in range(count):
        if products[i].tap_count > 1:
            return comes_before(products[i].taps[0].offset, products[i].taps[products[i].tap_count - 1].offset, True)
    return False


cdef void offset_of(const Product* products, const Entry* entry, int64_t tap, int64_t* offset) noexcept nogil:
    """What an entry's tap adds to the position of a lane."""
    cdef const Product* p = &products[entry.product]
    offset[0], offset[1], offset[2] = p.taps[tap].offset[0], p.taps[tap].offset[1], p.taps[tap].offset[2]
    offset[1] += entry.line * p.step[1]


cdef void find_places(const Product* products, const Layout* l, bint descending, Strip* s) noexcept nogil:
    """Stack the taps of all entries, each in its order."""
    cdef int64_t done[MOST_ENTRIES]
    cdef int64_t offset[3]
    cdef int64_t e
    cdef Place* place
    memset(done, 0, sizeof(done))
    s.place_count = 0
    while True:
        place = &s.places[s.place_count]
        place.entries = 0
        for e in range(s.count):
            if done[e] == products[s.entries[e].product].tap_count:
                continue
            offset_of(products, &s.entries[e], done[e], offset)
            if place.entries == 0 or comes_before(offset, place.tap.offset, descending):
                place.tap.offset[0], place.tap.offset[1], place.tap.offset[2] = offset[0], offset[1], offset[2]
                place.entries = 0
            if not comes_before(place.tap.offset, offset, descending):
                place.entries |= <uint32_t>1 << e
        if place.entries == 0:
            return
        for e in range(s.count):
            done[e] += place.entries >> e & 1
        place.tap.shift = tap_shift(products, l, &place.tap)
        s.place_count += 1


cdef int64_t lines_to_stack(const Product* products, int64_t count, const instruction_set* isa) noexcept nogil:
    """How many lines of the result a tile takes, of every stride class."""
    return max(1, min(min(isa.rows // (products.R * count), STACKED_LINES), products.Q[1])) if can_stack(products, isa) else 1


cdef int64_t most_places(const Product* products, int64_t count) noexcept nogil:
    """Room for all places."""
    cdef int64_t total = 0, i
    for i in range(count):
        total += products[i].all_count + 1
    return total * STACKED_LINES


cdef bint can_stack(const Product* products, const instruction_set* isa) noexcept nogil:
    return stackable(products, products.S, isa)


cdef inline bint stackable(const Product* products, int64_t steps, const instruction_set* isa) noexcept nogil:
    """Whether products of so many steps for a tap are stacked."""
    return products.R <= min(STACKED_ROWS, isa.rows // 2) and steps >= STACKED_STEPS


cdef void plan_stack(const Product* products, int64_t count, int64_t columns, const Layout* l, const instruction_set* isa,
                     Strip* strips, Place* places, Stack* m) noexcept nogil:
    """Form tiles of neighbours; chosen where they share enough. `columns` products, one after the other, take turns along
    the innermost axis. There is room for as many strips as products, and for `most_places`."""
    cdef int64_t entries, number, e, i, line, taps = 0, shared = 0
    cdef int axis
    cdef bint descending = descends(products, count)
    cdef Strip* s
    m.lines, m.strips, m.floats, m.columns = lines_to_stack(products, count, isa), strips, 0, columns
    for axis in range(3):
        m.Q[axis] = 0
        for i in range(count):
            m.Q[axis] = max(m.Q[axis], products[i].Q[axis])
    entries = count * m.lines
    m.strip_count = ceiling(entries, isa.rows // products.R)
    for number in range(m.strip_count):
        s = &strips[number]
        s.count = share(entries, m.strip_count, number + 1) - share(entries, m.strip_count, number)
        for e in range(s.count):
            i = share(entries, m.strip_count, number) + e
            # To and fro, so that those that meet a place tend to be neighbours.
            line, i = i // count, i % count
            s.entries[e] = Entry(i - i % columns + (columns - 1 - i % columns if i // columns % 2 else i % columns), line)
            taps += products[s.entries[e].product].tap_count
        s.places, s.packed = places, m.floats
        find_places(products, l, descending, s)
        places += s.place_count + 1
        shared += s.place_count
        m.floats += s.place_count * products.S * isa.rows + isa.width
    m.chosen = 4 * shared <= 3 * taps and longest_strip(m) <= MOST_PLACES


cdef int64_t longest_strip(const Stack* m) noexcept nogil:
    cdef int64_t number, places = 0
    for number in range(m.strip_count):
        places = max(places, m.strips[number].place_count)
    return places


cdef void pack_stacked(const Product* products, const Stack* m, const instruction_set* isa, const float* panels, int64_t items,
                       int64_t item, float* packed) noexcept nogil:
    """Weights of tile `item`, those of the entries side by side, from the row panels of its products, `items` each."""
    cdef const float* source[MOST_ENTRIES]
    cdef int64_t strip, number, e, i, k, r, R = products.R, S = products.S
    cdef const Strip* s
    cdef float* target
    packed += item * m.floats
    check_room(b"pack_stacked", packed, 4 * m.floats)
    memset(packed, 0, m.floats * sizeof(float))
    for strip in range(m.strip_count):
        s = &m.strips[strip]
        for e in range(s.count):
            source[e] = panels
            for i in range(s.entries[e].product):
                source[e] += items * products[i].panel_size
            source[e] += item * products[s.entries[e].product].panel_size
        for number in range(s.place_count):
            for e in range(s.count):
                if not s.places[number].entries >> e & 1:
                    continue
                target = packed + s.packed + number * S * isa.rows + e * R
                for k in range(S):
                    for r in range(R):
                        target[k * isa.rows + r] = source[e][k * isa.rows + r]
                source[e] += products[s.entries[e].product].tap_floats


cdef inline bint has_halves(const Strip* s) noexcept nogil:
    """Whether one tile takes the runs of a strip, whichever entries they are of."""
    return s.count == 2


cdef int64_t stacked_stretches(const Product* p, const Layout* l, const Strip* s, const instruction_set* isa, const Filled* at,
                               ProductScratch* scratch) noexcept nogil:
    """The runs of a strip over a block, but for places that nothing there meets, and stretches of them for entries [low, high)."""
    cdef int64_t number, runs = 0, count = 0, begin, e, low
    cdef uint32_t entries = 0
    cdef const Place* place
    check_room(b"stacked_stretches", scratch.runs, s.place_count * sizeof(tile_run))
    check_room(b"stacked_stretches", scratch.stretches, s.place_count * ceiling(s.count, 2) * sizeof(Stretch))
    for number in range(s.place_count):
        place = &s.places[number]
        if not tap_meets(p, &place.tap, at.first, at.end):
            continue
        scratch.runs[runs] = tile_run(s.packed + number * p.S * isa.rows, tap_lanes(l, &place.tap, at.first), p.S)
        if place.entries == entries:
            begin = scratch.stretches[count - 1].first_run
            e = count
            while e > 0 and scratch.stretches[e - 1].first_run == begin:
                e -= 1
                scratch.stretches[e].end_run = runs + 1
        else:
            entries = place.entries
            low = 0
            while low < s.count:
                e = low
                while e < s.count and entries >> e & 1:
                    e += 1
                if e > low:
                    scratch.stretches[count] = Stretch(runs, runs + 1, low, e)
                    count += 1
                low = e + 1
        runs += 1
    return count


cdef int64_t stacked_halves(const Product* p, const Layout* l, const Strip* s, const instruction_set* isa, const Filled* at,
                            ProductScratch* scratch) noexcept nogil:
    """The runs of a strip of two entries."""
    cdef int64_t number, runs = 0
    cdef const Place* place
    check_room(b"stacked_halves", scratch.halves, s.place_count * sizeof(half_run))
    for number in range(s.place_count):
        place = &s.places[number]
        if tap_meets(p, &place.tap, at.first, at.end):
            scratch.halves[runs].run = tile_run(s.packed + number * p.S * isa.rows, tap_lanes(l, &place.tap, at.first), p.S)
            scratch.halves[runs].halves = place.entries
            runs += 1
    return runs


cdef void run_stacked(const Job* job, const instruction_set* isa, Filled* at, ProductScratch* s) noexcept nogil:
    """Output positions from `at.first` on, of all products of a job, from the block laid out for them."""
    cdef const Product* products = job.product
    cdef const Layout* l = job.layout
    cdef const Stack* m = job.stack
    cdef int64_t number, stretches, q0, q1
    cdef int axis
    cdef const Strip* strip
    for axis in range(3):
        at.end[axis] = min(m.Q[axis], at.first[axis] + l.block[axis])
    for number in range(m.strip_count):
        strip = &m.strips[number]
        if has_halves(strip):
            stretches = stacked_halves(products, l, strip, isa, at, s)
        else:
            stretches = stacked_stretches(products, l, strip, isa, at, s)
        for q0 in range(at.first[0], at.end[0]):
            if m.lines == 1:
                run_strip(job, isa, at, strip, stretches, q0, at.first[1],
                          (at.end[1] - at.first[1] - 1) * l.u[2] + at.end[2] - at.first[2], s)
                continue
            q1 = at.first[1]
            while q1 < at.end[1]:
                run_strip(job, isa, at, strip, stretches, q0, q1, at.end[2] - at.first[2], s)
                q1 += m.lines


cdef void run_strip(const Job* job, const instruction_set* isa, const Filled* at, const Strip* strip, int64_t stretches,
                    int64_t q0, int64_t q1, int64_t lanes, ProductScratch* scratch) noexcept nogil:
    """`lanes` positions from line q1 of plane q0 on."""
    cdef const Product* products = job.product
    cdef const Layout* l = job.layout
    cdef const float* packed = job.stacked
    cdef int64_t vectors = ceiling(lanes, isa.width), panels = ceiling(vectors, isa.vectors), pitch = isa.vectors * isa.width
    cdef int64_t panel, lane, count, width, i, e, span_count, R = products.R
    cdef const Stretch* some
    cdef const Product* p
    cdef tile_function run_tile
    cdef halves_function run_halves
    cdef const float* block = scratch.block + ((q0 - at.first[0]) * l.u[1] + q1 - at.first[1]) * l.u[2]
    for panel in range(panels):
        lane = share(vectors, panels, panel) * isa.width
        width = share(vectors, panels, panel + 1) - share(vectors, panels, panel)
        count = min(lanes - lane, width * isa.width)
        if has_halves(strip):
            run_halves = isa.halves[R - 1][width - 1] if products.pairs == NULL else products.pairs.halves[R - 1][width - 1]
            run_halves(scratch.halves, stretches, packed, block + lane, l.lane_pitch, scratch.sums, &scratch.meanwhile)
        else:
            memset(scratch.sums, 0, strip.count * R * pitch * sizeof(float))
            for i in range(stretches):
                some = &scratch.stretches[i]
                run_tile = isa.tile[(some.high - some.low) * R - 1][width - 1]
                if products.pairs != NULL:
                    run_tile = products.pairs.tile[(some.high - some.low) * R - 1][width - 1]
                run_tile(scratch.runs + some.first_run, some.end_run - some.first_run, packed + some.low * R, 0, block + lane,
                         l.lane_pitch, scratch.sums + some.low * R * pitch, True, &scratch.meanwhile, NULL)
        e = 0
        while e < strip.count:
            if results_alternate(job, isa, strip, e):
                store_two_entries(job, isa, at, strip, e, q0, q1, lane, count, scratch)
                e += 2
                continue
            p = &products[strip.entries[e].product]
            span_count = entry_spans(job, at, &strip.entries[e], q0, q1, lane, count, scratch.spans)
            if span_count > 0:
                isa.scatter(scratch.sums + e * R * pitch, pitch, R, p.output.data, p.output.format, p.output.c, scratch.spans,
                            span_count, biases(p, at.g, 0))
            e += 1


cdef inline int64_t entry_spans(const Job* job, const Filled* at, const Entry* entry, int64_t q0, int64_t q1, int64_t lane,
                                int64_t count, lane_span* spans) noexcept nogil:
    """Where `count` lanes of an entry go, the first of them `lane` lanes after the beginning of line q1 of plane q0."""
    return laid_out_spans(&job.product[entry.product], job.layout, at, q0, q1 + entry.line,
                          job.layout.block[1] if job.stack.lines == 1 else 1, lane, count, spans)


cdef inline bint results_alternate(const Job* job, const instruction_set* isa, const Strip* strip, int64_t e) noexcept nogil:
    """Whether results of entries e and e + 1 alternate in memory."""
    cdef const Entry* one = &strip.entries[e]
    cdef const Entry* other = &strip.entries[e + 1]
    return (e + 1 < strip.count and job.stack.columns == 2 and isa.weave != NULL and job.product.output.x[2] == 2
            and one.line == other.line and one.product // 2 == other.product // 2)


cdef void store_two_entries(const Job* job, const instruction_set* isa, const Filled* at, const Strip* strip, int64_t e, int64_t q0,
                            int64_t q1, int64_t lane, int64_t count, ProductScratch* scratch) noexcept nogil:
    """The results of entries e and e + 1, which alternate in memory; `low` has the first one."""
    cdef int64_t low = e if strip.entries[e].product < strip.entries[e + 1].product else e + 1, high = 2 * e + 1 - low
    cdef const Product* p = &job.product[strip.entries[low].product]
    cdef lane_span* spans = scratch.spans
    cdef lane_span* others = scratch.spans + TILE_LANES
    cdef int64_t number = entry_spans(job, at, &strip.entries[low], q0, q1, lane, count, spans)
    cdef int64_t other_number = entry_spans(job, at, &strip.entries[high], q0, q1, lane, count, others)
    cdef int64_t i, r, results, found = 0, pitch = isa.vectors * isa.width
    for i in range(number):
        results = spans[i].count
        if found < other_number and others[found].lane == spans[i].lane:  # a line of odd length ends with a result of `low`
            results += others[found].count
            found += 1
        for r in range(p.R):
            isa.weave(<char*>p.output.data + (spans[i].offset + r * p.output.c) * element_size(p.output.format), p.output.format, 1, 2,
                      scratch.sums + (low * p.R + r) * pitch + spans[i].lane, (high - low) * p.R * pitch, results,
                      biases(p, at.g, r))
