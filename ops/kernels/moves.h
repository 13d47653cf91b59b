/* Copies that tiles make on their way: included by tile.h. */
#ifdef LOAD_MASKED
#define COPIES 1
#define COPY SUFFIX(copy)

INLINE void make_move(const copy_move *move, const float *source, float *place, ptrdiff_t ahead)
{
    *(vector *)(place + move->place) = LOAD_MASKED(source + move->source, move->mask);
    __builtin_prefetch(source + move->source + ahead);
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
            make_move(c->moves + c->done + i, c->source, c->place, c->ahead);
        count_moves(c, count);
    }
}
#else
#define COPIES 0
#define COPY NULL
#define make_move(move, source, place, ahead) ((void)(move), (void)(source), (void)(place), (void)(ahead))
#define due_moves(c, steps) ((void)(c), 0)
#define count_moves(c, count) ((void)(c), (void)(count))
#endif
