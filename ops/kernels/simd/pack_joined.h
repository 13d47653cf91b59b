/* Vectors of a panel put together in registers from the spans that meet in each, then stored whole: storing the parts one
 * after the other, across cache lines, costs more than loading them.  Sets with masked loads only. */
#if WIDTH == 16
enum { JOINED_STEPS = 16 }; /* steps of one vector before the next vector */

typedef struct {
    int64_t offset[TILE_VECTORS][WIDTH]; /* of lane 0; where numbers are transposed, of the first number */
    __mmask16 mask[TILE_VECTORS][WIDTH];
    int parts[TILE_VECTORS];             /* 0: zeros */
    int vectors;
    int transposed;                          /* some numbers lie a few elements apart: they are loaded together and then transposed */
    __mmask16 numbers[TILE_VECTORS][WIDTH];
    __m512i order[TILE_VECTORS][WIDTH];  /* which number a lane takes */
} joined_plan;

/* Lanes [low, high) of vector v, from `offset` on, `step` apart. */
INLINE void plan_part(joined_plan *plan, int v, int64_t low, int64_t high, int64_t offset, int64_t step)
{
    __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int64_t together = step == 1 || step == 0 ? WIDTH : step > 0 && step < WIDTH ? (WIDTH - 1) / step + 1 : 1;
    while (low < high) {
        int part = plan->parts[v]++;
        int64_t n = high - low < together ? high - low : together;
        plan->mask[v][part] = (__mmask16)(((1u << (low + n)) - 1) & ~((1u << low) - 1));
        plan->offset[v][part] = offset;
        if (step == 1 || n == 1) {
            plan->offset[v][part] -= low;
            plan->numbers[v][part] = plan->mask[v][part];
            plan->order[v][part] = lanes;
        } else {
            plan->numbers[v][part] = (__mmask16)((1u << ((n - 1) * step + 1)) - 1);
            plan->order[v][part] = _mm512_mullo_epi32(_mm512_sub_epi32(lanes, _mm512_set1_epi32((int)low)), _mm512_set1_epi32((int)step));
            plan->transposed = 1;
        }
        low += n;
        offset += n * step;
    }
}

/* False where there are more lanes than a panel's. */
INLINE int plan_joined(joined_plan *plan, const lane_span *spans, int64_t span_count)
{
    int64_t s = 0;
    plan->vectors = (int)((spans[span_count - 1].lane + spans[span_count - 1].count + WIDTH - 1) / WIDTH);
    plan->transposed = 0;
    if (plan->vectors > TILE_VECTORS)
        return 0;
    for (int v = 0; v < plan->vectors; v++) {
        int64_t first = v * WIDTH, end = first + WIDTH;
        plan->parts[v] = 0;
        for (; s < span_count && spans[s].lane < end; s++) {
            int64_t low = spans[s].lane < first ? 0 : spans[s].lane - first, stop = spans[s].lane + spans[s].count;
            if (spans[s].offset != NO_ELEMENT)
                plan_part(plan, v, low, stop > end ? WIDTH : stop - first,
                          spans[s].offset + (first + low - spans[s].lane) * spans[s].step, spans[s].step);
            if (stop > end)
                break;
        }
    }
    return 1;
}

INLINE void join_few(float *place, ptrdiff_t pitch, int64_t steps, const float *source, int64_t stride, const int64_t *offset,
                     const __mmask16 *mask, int parts)
{
    for (int64_t k = 0; k < steps; k++) {
        __m512 joined = _mm512_setzero_ps();
        if (parts) /* channels are too far apart to be foreseen */
            __builtin_prefetch(source + offset[0] + (k + 8) * stride);
        for (int part = 0; part < parts; part++)
            joined = _mm512_mask_loadu_ps(joined, mask[part], source + offset[part] + k * stride);
        *(vector *)(place + k * pitch) = (vector)joined;
    }
}

/* JOINED_STEPS steps of many parts, `steps` of which are wanted: they wait in registers, so that what a part needs is loaded once
 * for all of them.  `transposed`: numbers may have to be. */
INLINE void join_many(float *place, ptrdiff_t pitch, int64_t steps, const float *source, int64_t stride, const joined_plan *plan, int v,
                      int transposed)
{
    __m512 joined[JOINED_STEPS];
#pragma GCC unroll 16
    for (int k = 0; k < JOINED_STEPS; k++)
        joined[k] = _mm512_setzero_ps();
    for (int part = 0; part < plan->parts[v]; part++) {
        const float *from = source + plan->offset[v][part];
        __mmask16 numbers = plan->numbers[v][part], mask = plan->mask[v][part];
        __m512i order = plan->order[v][part];
#pragma GCC unroll 16
        for (int k = 0; k < JOINED_STEPS; k++) {
            const float *there = from + (k < steps ? k : 0) * stride;
            joined[k] = transposed ? _mm512_mask_permutexvar_ps(joined[k], mask, order, _mm512_maskz_loadu_ps(numbers, there))
                               : _mm512_mask_loadu_ps(joined[k], mask, there);
        }
    }
#pragma GCC unroll 16
    for (int k = 0; k < JOINED_STEPS; k++)
        if (k < steps)
            *(vector *)(place + k * pitch) = (vector)joined[k];
}

/* Vector v of at most JOINED_STEPS steps. */
INLINE void join(float *place, ptrdiff_t pitch, int64_t steps, const float *source, int64_t stride, const joined_plan *plan, int v)
{
    const int64_t *offset = plan->offset[v];
    const __mmask16 *mask = plan->mask[v];
    int parts = plan->parts[v], whole = steps == JOINED_STEPS;
    if (plan->transposed && whole)
        join_many(place, pitch, JOINED_STEPS, source, stride, plan, v, 1);
    else if (plan->transposed)
        join_many(place, pitch, steps, source, stride, plan, v, 1);
    else if (parts > 4 && whole)
        join_many(place, pitch, JOINED_STEPS, source, stride, plan, v, 0);
    else
        switch (parts) {
        case 0: join_few(place, pitch, steps, source, stride, offset, mask, 0); break;
        case 1: join_few(place, pitch, steps, source, stride, offset, mask, 1); break;
        case 2: join_few(place, pitch, steps, source, stride, offset, mask, 2); break;
        case 3: join_few(place, pitch, steps, source, stride, offset, mask, 3); break;
        case 4: join_few(place, pitch, steps, source, stride, offset, mask, 4); break;
        default: join_few(place, pitch, steps, source, stride, offset, mask, parts);
        }
}

/* False, and nothing written, where the plan does not hold them. */
INLINE int gather_joined(float *panel, ptrdiff_t pitch, int64_t steps, const float *source, int64_t stride, const lane_span *spans,
                         int64_t span_count)
{
    joined_plan plan;
    if (!plan_joined(&plan, spans, span_count))
        return 0;
    for (int64_t k = 0; k < steps; k += JOINED_STEPS)
        for (int v = 0; v < plan.vectors; v++) {
            float *place = panel + k * pitch + v * WIDTH;
            int64_t some = steps - k < JOINED_STEPS ? steps - k : JOINED_STEPS;
            join(place, pitch, some, source + k * stride, stride, &plan, v);
        }
    return 1;
}
#else
INLINE int gather_joined(float *panel, ptrdiff_t pitch, int64_t steps, const float *source, int64_t stride, const lane_span *spans,
                         int64_t span_count)
{
    (void)panel, (void)pitch, (void)steps, (void)source, (void)stride, (void)spans, (void)span_count;
    return 0;
}
#endif
