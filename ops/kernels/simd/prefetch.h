/* What tiles do beside sums: included by simd/tile.h. */

typedef struct {
    const tile_wish *wish;
    ptrdiff_t left; /* parts */
    int64_t part;
    int64_t row;
} asking;

INLINE asking begin_asking(const tile_wish *wish)
{
    asking begun = {wish, wish ? wish->parts * wish->rows : 0, 0, 0};
    return begun;
}

/* Asks for the next part, to be written to or not. */
INLINE void ask(asking *a, int written)
{
    const char *place = a->wish->place + a->row * a->wish->row_step + a->wish->offsets[a->part] + a->wish->reach;
    if (written)
        __builtin_prefetch(place, 1);
    else
        __builtin_prefetch(place, 0);
    if (++a->row == a->wish->rows) {
        a->row = 0;
        a->part++;
    }
}

/* Copies on the way. */
#ifdef STORE_MASKED
#define COPIES 1
#define COPY SUFFIX(copy)

INLINE void make_move(const copy_move *move, int format, const char *source, float *place, ptrdiff_t ahead)
{
    const char *from = source + move->source;
    if (format == NUMBER_FLOAT16)
        *(vector *)(place + move->place) = (vector)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(move->mask, from));
    else
        *(vector *)(place + move->place) = LOAD_MASKED(from, move->mask);
    __builtin_prefetch(from + ahead);
}

/* How many moves the next steps of a tile make, at most one each. */
INLINE ptrdiff_t due_moves(copying *c, ptrdiff_t steps)
{
    float credit = c->credit + c->rate * steps;
    ptrdiff_t most = credit;
    most = most < steps ? most : steps;
    most = most < c->left ? most : c->left;
    c->credit = credit - most;
    return most;
}

/* After `count` more moves. */
INLINE void count_moves(copying *c, ptrdiff_t count)
{
    c->left -= count;
    c->done += count;
    if (c->done == c->move_count) {
        c->done = 0;
        c->source += c->source_step;
        c->place += c->place_step;
    }
}

static void SUFFIX(copy)(copying *c)
{
    while (c->left) {
        ptrdiff_t count = c->move_count - c->done < c->left ? c->move_count - c->done : c->left;
        for (ptrdiff_t i = 0; i < count; i++)
            make_move(c->moves + c->done + i, c->format, c->source, c->place, c->ahead);
        count_moves(c, count);
    }
}
#else
#define COPIES 0
#define COPY NULL
#define make_move(move, format, source, place, ahead) ((void)(move), (void)(format), (void)(source), (void)(place), (void)(ahead))
#define due_moves(c, steps) ((void)(c), 0)
#define count_moves(c, count) ((void)(c), (void)(count))
#endif

#ifdef STORE_MASKED
#define STORE_RESULT(p, m, v) STORE_MASKED(p, m, v)
#else /* whole vectors alone */
#define STORE_RESULT(p, m, v) ((void)(m), *(vector *)(p) = (v))
#endif

/* Finished sums to their places: a row's parts one after the other, since neighbours share a cache line. */
INLINE void store_result(int rows, int vectors, vector (*sum)[VECTORS], const tile_result *result)
{
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            sum[i][j] += BROADCAST(0.0f);
            if (result->bias)
                sum[i][j] += BROADCAST(result->bias[i]);
        }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        char *place = result->wish.place + i * result->wish.row_step;
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            for (int64_t part = result->first[j]; part < result->first[j + 1]; part++)
                STORE_RESULT((float *)(place + result->wish.offsets[part]), result->masks[part], sum[i][j]);
    }
}
