"""backward_weights in pairs of bfloat16 positions, for instruction sets with a dot product of them.

A pair is two neighbours of a line of the small side.  Lanes are packed as in `weights.pxi`, a step for each pair.  The rows
come from frames of the large side, each of its lines laid out once for all taps: as codes, backwards, which any tap reads
at its own shift, or where channels lie side by side in memory as pairs of every two neighbours, [position][channel].
"""

cdef enum:
    PAIR_FLOATS = 9984          # of a lane panel
    PAIR_FRAME_BYTES = 1 << 18  # of the frames
    NO_LINE = -1


cdef struct Frames:  # how taps find their numbers in the frame of a segment
    bint wide            # [position][channel], pairs
    bint apart           # lines of each tap of axis 1 for itself
    int64_t line_stride  # of the large side, between lines of a frame
    int64_t line         # lines of the frame, between lines of the small side
    int64_t tap          # ... between taps of axis 1
    bint streams_apart   # positions of each tap of axis 2 for itself
    int64_t streams      # residues of positions modulo the stride that taps meet, or taps
    int64_t stream_step  # between their first positions
    int64_t reach        # of the last tap of axis 2, in steps of the stride


cdef struct Segment:  # lines of the small side that follow one another
    int64_t n
    int64_t y[3]         # of the first position
    int64_t lines
    int64_t count        # positions of a line
    int64_t first        # step
    int64_t frame        # its first position
    int64_t depth        # lines of its frame, for each tap of axis 0
    int64_t width        # positions of a stream of a line


cdef int64_t common_divisor(int64_t a, int64_t b) noexcept nogil:
    while b != 0:
        a, b = b, a % b
    return a


cdef void plan_frames(const Weights* w, int64_t lines, int64_t count, Frames* f) noexcept nogil:
    """For segments of about so many lines and positions: what taps share is laid out once, if that is less."""
    cdef int64_t shared
    f.wide = w.large.c == 1 and w.large.x[2] != 1 and w.C > 1
    f.line_stride = w.s[1] if w.K[1] == 1 else common_divisor(w.s[1], w.d[1])
    shared = ((lines - 1) * w.s[1] + (w.K[1] - 1) * w.d[1]) // f.line_stride + 1
    f.apart = w.K[1] * lines < shared
    if f.apart:
        f.line_stride = w.s[1]
        f.line, f.tap = 1, 0
    else:
        f.line, f.tap = w.s[1] // f.line_stride, w.d[1] // f.line_stride
    f.stream_step = w.s[2] if w.K[2] == 1 else common_divisor(w.s[2], w.d[2])
    f.streams = w.s[2] // f.stream_step
    f.reach = (w.K[2] - 1) * w.d[2] // f.stream_step // f.streams
    f.streams_apart = w.K[2] * count < f.streams * (count + f.reach)
    if f.streams_apart:
        f.streams, f.stream_step, f.reach = w.K[2], w.d[2], 0


cdef inline int64_t frame_depth(const Weights* w, const Frames* f, int64_t lines) noexcept nogil:
    return lines * w.K[1] if f.apart else (lines - 1) * f.line + (w.K[1] - 1) * f.tap + 1


cdef inline int64_t frame_size(const Weights* w, const Frames* f, int64_t lines, int64_t count) noexcept nogil:
    """Positions of one channel."""
    return w.K[0] * frame_depth(w, f, lines) * f.streams * (count + f.reach)


cdef inline int64_t tap_place(const Weights* w, const Frames* f, const Segment* some, const int64_t* t) noexcept nogil:
    """Position of the first pair of a tap."""
    cdef int64_t line = t[0] * some.depth + t[1] * (some.lines if f.apart else f.tap)
    cdef int64_t i = t[2] * w.d[2] // f.stream_step
    if f.streams_apart:
        return some.frame + (line * f.streams + t[2]) * some.width
    return some.frame + (line * f.streams + i % f.streams) * some.width + i // f.streams


cdef int64_t cut_segments(const Weights* w, const WeightsPlan* plan, int64_t first, int64_t end, Segment* segments, int64_t* count,
                          int64_t* positions) noexcept nogil:
    """As many positions from `first` on as lanes and frames have room for; returns where they end."""
    cdef const Frames* f = &plan.frames
    cdef int64_t k = first, rest, steps = 0, line_steps = (w.Y[2] + 1) // 2, room
    cdef Segment* some
    count[0] = positions[0] = 0
    while k < end and count[0] < plan.segments:
        some = &segments[count[0]]
        some.y[2] = k % w.Y[2]
        rest = k // w.Y[2]
        some.y[1] = rest % w.Y[1]
        rest = rest // w.Y[1]
        some.y[0] = rest % w.Y[0]
        some.n = rest // w.Y[0]
        some.lines, some.count = 1, min(end - k, w.Y[2] - some.y[2])
        if some.count == w.Y[2]:
            some.lines = min(w.Y[1] - some.y[1], min((end - k) // w.Y[2], (plan.steps - steps) // line_steps))
            room = (plan.positions_at_once - positions[0]) // (w.K[0] * f.streams * (some.count + f.reach))  # in lines of frames
            room = room // w.K[1] if f.apart else (room - 1 - (w.K[1] - 1) * f.tap) // f.line + 1 if room > (w.K[1] - 1) * f.tap else 0
            some.lines = min(some.lines, room)
        elif ((some.count + 1) // 2 > plan.steps - steps
              or frame_size(w, f, 1, some.count) > plan.positions_at_once - positions[0]):
            some.lines = 0
        if some.lines == 0:
            if count[0] > 0:
                break
            some.lines = 1  # a line too long: parts of it, about equal
            some.count = min(ceiling(ceiling(some.count, ceiling(some.count, plan.longest)), 32) * 32, min(some.count, plan.longest))
        some.first, some.frame = steps, positions[0]
        some.depth, some.width = frame_depth(w, f, some.lines), some.count + f.reach
        steps += some.lines * ((some.count + 1) // 2)
        positions[0] += frame_size(w, f, some.lines, some.count)
        k += some.lines * some.count
        count[0] += 1
    return k


cdef void pack_segments(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t first_panel,
                        int64_t end_panel, int64_t segment_count, WeightsScratch* s) noexcept nogil:
    """Panels [pair][m] of the small side."""
    cdef int64_t i, panel, m, lane_count, line, lines, count, pitch = isa.vectors * isa.width
    cdef const Segment* some
    cdef float* place
    cdef const char* source
    for i in range(segment_count):
        some = &s.segments[i]
        lines, count = some.lines, some.count
        if count % 2 == 0 and w.small.x[1] == w.small.x[2] * w.Y[2]:  # one long line
            lines, count = 1, count * lines
        source = <const char*>w.small.data + element_size(w.small.format) * (
            some.n * w.small.n + g * w.small.g + some.y[0] * w.small.x[0] + some.y[1] * w.small.x[1] + some.y[2] * w.small.x[2])
        for panel in range(first_panel, end_panel):
            m = first_lane(plan, isa, panel)
            lane_count = min(w.M, first_lane(plan, isa, panel + 1)) - m
            place = s.lanes + (panel - first_panel) * panel_floats(plan, isa) + some.first * pitch
            for line in range(lines):
                isa.pairs.line_pairs(
                    place + line * ((count + 1) // 2) * pitch, pitch, lane_count, count, 2,
                    source + (m * w.small.c + line * w.small.x[1]) * element_size(w.small.format), w.small.format,
                    w.small.x[2], w.small.c, &s.small_range)


cdef inline int64_t code_pitch(const WeightsPlan* plan, int64_t positions) noexcept nogil:
    """Codes of one channel of frames laid out backwards: an odd number of cache lines."""
    return (ceiling(positions + 32, 32) | 1) * 32


cdef inline int64_t wide_pitch(int64_t channels) noexcept nogil:
    """Codes of one position of wide frames."""
    return 2 * ceiling(channels, 16) * 16


cdef void frame_segments(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t g, int64_t channel,
                         int64_t channels, int64_t segment_count, int64_t positions, WeightsScratch* s) noexcept nogil:
    cdef const Frames* f = &plan.frames
    cdef const Segment* some
    cdef int64_t i, t0, t1, x0, stream, x2, low, high, lines, place
    cdef int64_t pitch = wide_pitch(channels) if f.wide else code_pitch(plan, positions)
    for i in range(segment_count):
        some = &s.segments[i]
        for t0 in range(w.K[0]):
            x0 = some.y[0] * w.s[0] - w.b[0] + t0 * w.d[0]
            for stream in range(f.streams):
                x2 = some.y[2] * w.s[2] - w.b[2] + stream * f.stream_step
                meet_inside(x2, w.s[2], w.X[2], some.width, &low, &high)
                for t1 in range(w.K[1] if f.apart else 1):
                    lines = some.lines if f.apart else some.depth
                    place = some.frame + ((t0 * some.depth + t1 * lines) * f.streams + stream) * some.width
                    frame_some(w, f, isa, channels, pitch, positions, some, x0,
                               some.y[1] * w.s[1] - w.b[1] + t1 * w.d[1] if f.apart else some.y[1] * w.s[1] - w.b[1], lines,
                               x2 + low * w.s[2], low, high, place,
                               (<const char*>w.large.data
                                + element_size(w.large.format) * (some.n * w.large.n + g * w.large.g + channel * w.large.c)),
                               s)
    # What the last pairs read beyond the frames.
    if f.wide:
        memset(s.codes + positions * pitch, 0, 2 * pitch)
    else:
        for i in range(channels):
            memset(s.codes + (i + 1) * pitch - positions - 32, 0, 64)


cdef void frame_some(const Weights* w, const Frames* f, const instruction_set* isa, int64_t channels, int64_t pitch, int64_t positions,
                     const Segment* some, int64_t x0, int64_t x1, int64_t lines, int64_t x2, int64_t low, int64_t high,
                     int64_t place, const char* source, WeightsScratch* s) noexcept nogil:
    """One stream of consecutive lines, zeros where they lie outside."""
    cdef int64_t first = 0, end = 0, line, size = element_size(w.large.format), j
    cdef uint16_t* codes
    if 0 <= x0 < w.X[0] and high > low:
        meet_inside(x1, f.line_stride, w.X[1], lines, &first, &end)
    source += size * (x0 * w.large.x[0] + (x1 + first * f.line_stride) * w.large.x[1] + x2 * w.large.x[2])
    if not f.wide:
        codes = s.codes + pitch - 1 - place
        line = f.streams * some.width
        if first > 0:
            isa.pairs.frame_codes(codes, pitch, channels, first, line, some.width, some.width, some.width, source,
                                  w.large.format, 0, 0, 1, &s.large_range)
        if end > first:
            isa.pairs.frame_codes(codes - first * line, pitch, channels, end - first, line, some.width, low, high, source,
                                  w.large.format, w.large.c, f.line_stride * w.large.x[1], w.s[2] * w.large.x[2], &s.large_range)
        if lines > end:
            isa.pairs.frame_codes(codes - end * line, pitch, channels, lines - end, line, some.width, some.width, some.width,
                                  source, w.large.format, 0, 0, 1, &s.large_range)
        return
    for line in range(lines):
        codes = s.codes + (place + line * f.streams * some.width) * pitch
        if line < first or line >= end:
            memset(codes, 0, some.width * pitch * 2)
            continue
        memset(codes, 0, low * pitch * 2)
        memset(codes + high * pitch, 0, (some.width - high) * pitch * 2)
        isa.pairs.line_pairs(<float*>(codes + low * pitch), pitch // 2, channels, high - low, 1,
                             source + size * (line - first) * f.line_stride * w.large.x[1], w.large.format,
                             w.s[2] * w.large.x[2], w.large.c, &s.large_range)
        if low > 0:  # the pair of the last zero and the first number
            for j in range(channels):
                codes[(low - 1) * pitch + 2 * j] = codes[low * pitch + 2 * j + 1]


cdef int64_t pair_runs(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const int64_t* t, int64_t first_segment,
                       int64_t end_segment, int64_t pitch, WeightsScratch* s) noexcept nogil:
    """Runs of the lines that tap `t` meets inside (NULL: tap 0, and all)."""
    cdef const Frames* f = &plan.frames
    cdef int64_t number = 0, i, x0, x1, low, high, place, line
    cdef int64_t zero[3]
    cdef const Segment* some
    zero[0] = zero[1] = zero[2] = 0
    for i in range(first_segment, end_segment):
        some = &s.segments[i]
        low = 0
        high = some.lines
        if t != NULL:
            x0 = some.y[0] * w.s[0] - w.b[0] + t[0] * w.d[0]
            x1 = some.y[1] * w.s[1] - w.b[1] + t[1] * w.d[1]
            if x0 < 0 or x0 >= w.X[0]:
                continue
            meet_inside(x1, w.s[1], w.X[1], some.lines, &low, &high)
            if low == high:
                continue
        line = (f.line * f.streams) * some.width
        place = tap_place(w, f, some, t if t != NULL else zero) + low * line
        s.pair_runs[number] = pair_run(
            place * pitch if f.wide else -place - 1, line * pitch if f.wide else -line, high - low, (some.count + 1) // 2,
            (some.first + low * ((some.count + 1) // 2)) * isa.vectors * isa.width)
        number += 1
    return number


cdef void run_pair_tile(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, int64_t tile, int64_t first_panel,
                        int64_t panel, int64_t channel, int64_t pitch, int64_t first_run, int64_t run_count, WeightsScratch* s,
                        float* sums, bint resume) noexcept nogil:
    cdef int64_t first = tile_start(w, plan, tile), rows = tile_rows(w, plan, tile), i, c
    cdef int64_t vectors = panel_vectors(plan, panel)
    cdef int64_t offsets[TILE_ROWS]
    cdef int64_t t[3]
    cdef int64_t zero[3]
    zero[0] = zero[1] = zero[2] = 0
    for i in range(rows):
        c = (first + i) % w.C - channel
        offsets[i] = 2 * c if plan.frames.wide else (c + 1) * pitch - 1
        if plan.mixed and run_count > 0:  # one run, of tap 0
            tap_at(w, (first + i) // w.C, t)
            c = tap_place(w, &plan.frames, &s.segments[first_run], t) - tap_place(w, &plan.frames, &s.segments[first_run], zero)
            offsets[i] += c * pitch if plan.frames.wide else -c
    isa.pairs.rows[rows - 1][vectors - 1](
        s.pair_runs + (first_run if plan.mixed else 0), run_count, s.codes, offsets, 2 * pitch if plan.frames.wide else -2,
        s.lanes + (panel - first_panel) * panel_floats(plan, isa), isa.vectors * isa.width,
        tile_sums(plan, sums, tile, panel), resume)


cdef void run_pairs_piece(const Weights* w, const WeightsPlan* plan, const instruction_set* isa, const WeightsPart* part,
                          int64_t piece, float* space, WeightsScratch* s) noexcept nogil:
    """As `run_weights_piece`."""
    cdef int64_t first = min(plan.positions, piece * plan.cut.length), piece_end = min(plan.positions, (piece + 1) * plan.cut.length)
    cdef int64_t segment_count, positions, pitch = 0, channel = 0, channels, panel, tap, tile, run_count, i, c0, c1, together
    cdef int64_t g = part.g, first_panel = part.first_panel, end_panel = part.end_panel
    cdef float* sums = sums_from(plan, space, part.first_strand, first_panel)
    cdef int64_t t[3]
    cdef bint resume = False, last
    while True:
        first = cut_segments(w, plan, first, piece_end, s.segments, &segment_count, &positions)
        last = first >= piece_end
        pack_segments(w, plan, isa, g, first_panel, end_panel, segment_count, s)
        if plan.mixed:
            frame_segments(w, plan, isa, g, 0, w.C, segment_count, positions, s)
            pitch = wide_pitch(w.C) if plan.frames.wide else code_pitch(plan, positions)
            pair_runs(w, plan, isa, NULL, 0, segment_count, pitch, s)
            together = plan.strands
        else:
            together = max(1, PAIR_FRAME_BYTES // ((4 if plan.frames.wide else 2) * code_pitch(plan, positions) * isa.rows))
        together = strands_together(plan, together, last)
        c0 = part.first_strand
        while c0 < part.end_strand:
            c1 = min(part.end_strand, c0 + together)
            if not plan.mixed:
                channel = share(w.C, plan.tap_tiles, c0)
                channels = share(w.C, plan.tap_tiles, c1) - channel
                frame_segments(w, plan, isa, g, channel, channels, segment_count, positions, s)
                pitch = wide_pitch(channels) if plan.frames.wide else code_pitch(plan, positions)
            for panel in range(first_panel, end_panel):
                if plan.mixed:
                    for tile in range(c0, c1):
                        for i in range(max(1, segment_count)):
                            run_pair_tile(w, plan, isa, tile, first_panel, panel, 0, pitch, i, min(1, segment_count), s, sums,
                                          resume or i > 0)
                    continue
                for tap in range(plan.taps):
                    tap_at(w, tap, t)
                    run_count = pair_runs(w, plan, isa, t, 0, segment_count, pitch, s)
                    if run_count > 0 or not resume:
                        for tile in range(c0, c1):
                            run_pair_tile(w, plan, isa, tile * plan.taps + tap, first_panel, panel, channel, pitch, 0, run_count,
                                          s, sums, resume)
            if last and plan.sums.together > 0:
                store_strands(w, plan, isa, part, c0, c1, sums)
            c0 = c1
        resume = True
        if last:
            return


cdef void plan_pairs(const Weights* w, const instruction_set* isa, WeightsPlan* plan) noexcept nogil:
    """How much of the reduction is packed at a time, where its steps are pairs."""
    cdef Frames* f = &plan.frames
    cdef int64_t lanes = ceiling(plan.vectors, plan.panels) * isa.width, channels = min(w.C, isa.rows), fit
    plan.steps = max(16, min(PAIR_FLOATS // lanes, (plan.cut.length + 1) // 2 + plan.cut.length // w.Y[2] + 2))
    plan_frames(w, max(1, min(w.Y[1], plan.steps * 2 // w.Y[2])), min(w.Y[2], 2 * plan.steps), f)
    fit = PAIR_FRAME_BYTES // ((4 if f.wide else 2) * channels)
    plan.longest = 2 * plan.steps
    while plan.longest > 32 and frame_size(w, f, 1, plan.longest) > fit:
        plan.longest = plan.longest // 2
    plan.positions_at_once = max(fit, frame_size(w, f, 1, plan.longest))
    plan.segments = plan.steps
    if f.wide:
        plan.code_bytes = 2 * (plan.positions_at_once + 1) * wide_pitch(channels)
    else:
        plan.code_bytes = 2 * code_pitch(plan, plan.positions_at_once) * channels
    plan.code_bytes = max(plan.code_bytes, 2 * PAIR_FRAME_BYTES)
