/* Vectors of a panel put together in registers from the spans that meet in each, then stored whole: storing the parts one
 * after the other, across cache lines, costs more than loading them.  Sets with masked loads only. */
#if WIDTH == 16
enum { JOINED_STEPS = 16 }; /* steps of one vector before the next vector */

typedef struct {
    int64_t offset[TILE_VECTORS][WIDTH]; /* of lane 0 */
    __mmask16 mask[TILE_VECTORS][WIDTH];
    int parts[TILE_VECTORS];             /* 0: zeros */
    int vectors;
} joined_plan;

/* False where there are more lanes than a panel's or the numbers of a span do not lie side by side. */
INLINE int plan_joined(joined_plan *plan, const lane_span *spans, int64_t span_count)
{
    int64_t s = 0;
    plan->vectors = (int)((spans[span_count - 1].lane + spans[span_count - 1].count + WIDTH - 1) / WIDTH);
    if (plan->vectors > TILE_VECTORS)
        return 0;
    for (int v = 0; v < plan->vectors; v++) {
        int64_t first = v * WIDTH, end = first + WIDTH;
        int parts = 0;
        for (; s < span_count && spans[s].lane < end; s++) {
            int64_t low = spans[s].lane < first ? 0 : spans[s].lane - first, stop = spans[s].lane + spans[s].count;
            int64_t high = stop > end ? WIDTH : stop - first;
            if (spans[s].offset != NO_ELEMENT && high > low) {
                if (spans[s].step != 1 && spans[s].count > 1)
                    return 0;
                plan->offset[v][parts] = spans[s].offset + first - spans[s].lane;
                plan->mask[v][parts++] = (__mmask16)(((1u << high) - 1) & ~((1u << low) - 1));
            }
            if (stop > end)
                break;
        }
        plan->parts[v] = parts;
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

/* JOINED_STEPS steps of many parts: they wait in registers, so that each mask is loaded once for all of them. */
INLINE void join_many(float *place, ptrdiff_t pitch, const float *source, int64_t stride, const int64_t *offset,
                      const __mmask16 *mask, int parts)
{
    __m512 joined[JOINED_STEPS];
#pragma GCC unroll 16
    for (int k = 0; k < JOINED_STEPS; k++)
        joined[k] = _mm512_setzero_ps();
    for (int part = 0; part < parts; part++) {
        __mmask16 taken = mask[part];
#pragma GCC unroll 16
        for (int k = 0; k < JOINED_STEPS; k++)
            joined[k] = _mm512_mask_loadu_ps(joined[k], taken, source + offset[part] + k * stride);
    }
#pragma GCC unroll 16
    for (int k = 0; k < JOINED_STEPS; k++)
        *(vector *)(place + k * pitch) = (vector)joined[k];
}

INLINE void join(float *place, ptrdiff_t pitch, int64_t steps, const float *source, int64_t stride, const int64_t *offset,
                 const __mmask16 *mask, int parts)
{
    switch (parts) {
    case 0: join_few(place, pitch, steps, source, stride, offset, mask, 0); break;
    case 1: join_few(place, pitch, steps, source, stride, offset, mask, 1); break;
    case 2: join_few(place, pitch, steps, source, stride, offset, mask, 2); break;
    case 3: join_few(place, pitch, steps, source, stride, offset, mask, 3); break;
    case 4: join_few(place, pitch, steps, source, stride, offset, mask, 4); break;
    default:
        if (steps == JOINED_STEPS)
            join_many(place, pitch, source, stride, offset, mask, parts);
        else
            join_few(place, pitch, steps, source, stride, offset, mask, parts);
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
        for (int v = 0; v < plan.vectors; v++)
            join(panel + k * pitch + v * WIDTH, pitch, steps - k < JOINED_STEPS ? steps - k : JOINED_STEPS, source + k * stride,
                 stride, plan.offset[v], plan.mask[v], plan.parts[v]);
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
