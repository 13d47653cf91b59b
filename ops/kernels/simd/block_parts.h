/* Sums in blocks (core/reduction.h) of a part of a tile's rows, for instruction sets with 32 registers: the chains of both halves and the
 * totals are in registers.  Included by simd/blocks.h.
 *
 * Loops over the steps of whole halves have a constant count, and each part is a function of its own: otherwise the compiler
 * keeps some sums in memory. */
INLINE int parts_of(int rows, int vectors)
{
    int most = vectors == 3 ? 3 : vectors == 2 ? 4 : 8;
    return (rows + most - 1) / most;
}

/* The first row of a part; of the one after the last, the rows. */
INLINE int part_start(int rows, int parts, int part)
{
    return rows * part / parts;
}

/* Of parts with one, two and three vectors: definitions, and a table by rows and vectors. */
#define PART_SIZES(define, ...)                                                                                          \
    define(1, 1, __VA_ARGS__) define(2, 1, __VA_ARGS__) define(3, 1, __VA_ARGS__) define(4, 1, __VA_ARGS__)              \
    define(5, 1, __VA_ARGS__) define(6, 1, __VA_ARGS__) define(7, 1, __VA_ARGS__) define(8, 1, __VA_ARGS__)              \
    define(1, 2, __VA_ARGS__) define(2, 2, __VA_ARGS__) define(3, 2, __VA_ARGS__) define(4, 2, __VA_ARGS__)              \
    define(1, 3, __VA_ARGS__) define(2, 3, __VA_ARGS__) define(3, 3, __VA_ARGS__)
#define PART_ENTRIES(entry, name)                                                                                        \
    {{entry(1, 1, name), entry(1, 2, name), entry(1, 3, name)}, {entry(2, 1, name), entry(2, 2, name), entry(2, 3, name)}, \
     {entry(3, 1, name), entry(3, 2, name), entry(3, 3, name)}, {entry(4, 1, name), entry(4, 2, name)},                  \
     {entry(5, 1, name)}, {entry(6, 1, name)}, {entry(7, 1, name)}, {entry(8, 1, name)}}

INLINE void add_halves(int rows, int vectors, vector (*total)[VECTORS], vector (*first)[VECTORS], vector (*second)[VECTORS])
{
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            total[i][j] += first[i][j] + second[i][j];
}

/* Runs that each begin with a block, against rows as `strided_function` takes them; where `offsets` is NULL, rows of a panel. */
INLINE void block_part(int rows, int vectors, const tile_run *runs, ptrdiff_t run_count, const float *start, const int64_t *offsets,
                       ptrdiff_t row_step, ptrdiff_t next, const float *lane_panel, ptrdiff_t lane_pitch, float *c, int pitch, int resume,
                       int pairs)
{
    const ptrdiff_t half = pairs ? HALF_BLOCK / 2 : HALF_BLOCK;
    vector total[ROWS][VECTORS], first[ROWS][VECTORS], second[ROWS][VECTORS];
    const float *row[ROWS];
    load_sums(rows, vectors, total, c, pitch, resume);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + (offsets ? offsets[i] : i);
    for (const tile_run *run = runs; run < runs + run_count; run++) {
        const float *b = lane_panel + run->lanes;
        ptrdiff_t a = run->rows, left = run->steps;
        for (; left >= 2 * half; left -= 2 * half) {
            load_sums(rows, vectors, first, NULL, 0, 0);
            load_sums(rows, vectors, second, NULL, 0, 0);
            for (ptrdiff_t k = 0; k < half; k++) {
                if (next) {
                    __builtin_prefetch(row[0] + a + next);
                    __builtin_prefetch(row[0] + a + half * row_step + next);
                }
                tile_step(rows, vectors, first, row, a, b, NULL, pairs);
                tile_step(rows, vectors, second, row, a + half * row_step, b + half * lane_pitch, NULL, pairs);
                a += row_step;
                b += lane_pitch;
            }
            a += half * row_step;
            b += half * lane_pitch;
            add_halves(rows, vectors, total, first, second);
        }
        if (left == 0)
            continue;
        load_sums(rows, vectors, first, NULL, 0, 0);
        load_sums(rows, vectors, second, NULL, 0, 0);
        if (left == half)
            for (ptrdiff_t k = 0; k < half; k++, a += row_step, b += lane_pitch)
                tile_step(rows, vectors, first, row, a, b, NULL, pairs);
        else {
            for (ptrdiff_t k = 0; k < half && k < left; k++, a += row_step, b += lane_pitch)
                tile_step(rows, vectors, first, row, a, b, NULL, pairs);
            for (ptrdiff_t k = half; k < left; k++, a += row_step, b += lane_pitch)
                tile_step(rows, vectors, second, row, a, b, NULL, pairs);
        }
        add_halves(rows, vectors, total, first, second);
    }
    store_sums(rows, vectors, total, c, pitch);
}

typedef void (*panel_part_function)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel, ptrdiff_t next,
                                    const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume);
typedef void (*rows_part_function)(const tile_run *runs, ptrdiff_t run_count, const float *start, const int64_t *offsets,
                                   ptrdiff_t row_step, const float *lane_panel, ptrdiff_t lane_pitch, float *c, int pitch, int resume);

/* With many rows a step that is not constant takes registers that their places need. */
#define BLOCK_PART(rows, vectors, name, pairs)                                                                           \
    static __attribute__((noinline)) void SUFFIX(name##_panel_##rows##_##vectors)(                                       \
        const tile_run *runs, ptrdiff_t run_count, const float *row_panel, ptrdiff_t next, const float *lane_panel,      \
        ptrdiff_t lane_pitch, float *c, int resume)                                                                      \
    {                                                                                                                    \
        block_part(rows, vectors, runs, run_count, row_panel, NULL, ROWS, next, lane_panel, lane_pitch, c, VECTORS,      \
                   resume, pairs);                                                                                       \
    }                                                                                                                    \
    static __attribute__((noinline)) void SUFFIX(name##_rows_##rows##_##vectors)(                                        \
        const tile_run *runs, ptrdiff_t run_count, const float *start, const int64_t *offsets, ptrdiff_t row_step,       \
        const float *lane_panel, ptrdiff_t lane_pitch, float *c, int pitch, int resume)                                  \
    {                                                                                                                    \
        if (vectors == 1 && row_step == 1)                                                                               \
            block_part(rows, vectors, runs, run_count, start, offsets, 1, 0, lane_panel, lane_pitch, c, pitch, resume,   \
                       pairs);                                                                                           \
        else                                                                                                             \
            block_part(rows, vectors, runs, run_count, start, offsets, row_step, 0, lane_panel, lane_pitch, c, pitch,    \
                       resume, pairs);                                                                                   \
    }
#define PANEL_PART(rows, vectors, name) SUFFIX(name##_panel_##rows##_##vectors)
#define ROWS_PART(rows, vectors, name) SUFFIX(name##_rows_##rows##_##vectors)
#define BLOCK_PARTS(name, pairs)                                                                                         \
    PART_SIZES(BLOCK_PART, name, pairs)                                                                                  \
    static const panel_part_function SUFFIX(name##_panel)[ROWS][VECTORS] = PART_ENTRIES(PANEL_PART, name);               \
    static const rows_part_function SUFFIX(name##_rows)[ROWS][VECTORS] = PART_ENTRIES(ROWS_PART, name);

INLINE void whole_of_parts(int rows, int vectors, const rows_part_function (*part_of)[VECTORS], const tile_run *runs, ptrdiff_t run_count,
                           const float *start, const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel, ptrdiff_t lane_pitch,
                           float *c, int resume)
{
    const int parts = parts_of(rows, vectors);
    for (int part = 0; part < parts; part++) {
        int low = part_start(rows, parts, part), some = part_start(rows, parts, part + 1) - low;
        part_of[some - 1][vectors - 1](runs, run_count, start, offsets + low, row_step, lane_panel, lane_pitch,
                                       c + low * vectors * WIDTH, vectors, resume);
    }
}

#define WHOLE_BLOCKS(name, r, v, pairs)                                                                                    \
    static void SUFFIX(whole_##name##_##r##_##v)(const tile_run *runs, ptrdiff_t run_count, const float *start,            \
                                                 const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel,      \
                                                 ptrdiff_t lane_pitch, float *c, int resume, const tile_wish *wish)        \
    {                                                                                                                      \
        (void)wish;                                                                                                        \
        whole_of_parts(r, v, SUFFIX(name##_rows), runs, run_count, start, offsets, row_step, lane_panel, lane_pitch, c,    \
                       resume);                                                                                            \
    }

/* How many vectors of lanes all rows of a tile take together: all if the rows are one part, or one after the other.  Lanes are then
 * loaded once, but each product loads its factor.  That is for processors that begin one product in a cycle. */
INLINE int vectors_together(int rows, int vectors)
{
    return parts_of(rows, vectors) == 1 ? vectors : 1;
}

#define WHOLE_BY_VECTOR(name, r, v, pairs)                                                                                 \
    static void SUFFIX(whole_##name##_by_vector_##r##_##v)(                                                                \
        const tile_run *runs, ptrdiff_t run_count, const float *start, const int64_t *offsets, ptrdiff_t row_step,         \
        const float *lane_panel, ptrdiff_t lane_pitch, float *c, int resume, const tile_wish *wish)                        \
    {                                                                                                                      \
        (void)wish;                                                                                                        \
        const int together = vectors_together(r, v);                                                                       \
        for (int j = 0; j < v; j += together)                                                                              \
            SUFFIX(name##_rows)[r - 1][together - 1](runs, run_count, start, offsets, row_step, lane_panel + j * WIDTH,    \
                                                     lane_pitch, c + j * WIDTH, v, resume);                                \
    }

/* Rows that lie anywhere, along runs of which none goes beyond half a block.  Where there are few chains, both halves of a whole block take
 * steps in turns; of more chains that is slower. */
INLINE void cut_part_body(int rows, int vectors, const tile_run *run, const tile_run *last, const float *start, const int64_t *offsets,
                          ptrdiff_t row_step, const float *lane_panel, ptrdiff_t lane_pitch, float *c, int pitch, int resume,
                          asking *asks)
{
    const ptrdiff_t half = HALF_BLOCK * lane_pitch;
    vector total[ROWS][VECTORS], first[ROWS][VECTORS], second[ROWS][VECTORS];
    const float *row[ROWS];
    load_sums(rows, vectors, total, c, pitch, resume);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        row[i] = start + offsets[i];
    for (ptrdiff_t place = 0; run < last; place += 2 * half) {
        ask_in_block(asks);
        if (rows * vectors < ROWS && are_block(run, last, place, lane_pitch)) {
            two_halves(rows, vectors, first, second, row, run[0].rows, run[1].rows, row_step, 0, lane_panel + place, lane_pitch, 0);
            run += 2;
        } else {
            run = half_of_runs(rows, vectors, first, run, last, place + half, row, row_step, lane_panel, lane_pitch);
            run = half_of_runs(rows, vectors, second, run, last, place + 2 * half, row, row_step, lane_panel, lane_pitch);
        }
        add_halves(rows, vectors, total, first, second);
    }
    store_sums(rows, vectors, total, c, pitch);
}

typedef void (*cut_part_function)(const tile_run *run, const tile_run *last, const float *start, const int64_t *offsets,
                                  ptrdiff_t row_step, const float *lane_panel, ptrdiff_t lane_pitch, float *c, int pitch, int resume,
                                  asking *asks);

#define CUT_PART(rows, vectors, name)                                                                                      \
    static __attribute__((noinline)) void SUFFIX(name##_##rows##_##vectors)(                                               \
        const tile_run *run, const tile_run *last, const float *start, const int64_t *offsets, ptrdiff_t row_step,         \
        const float *lane_panel, ptrdiff_t lane_pitch, float *c, int pitch, int resume, asking *asks)                      \
    {                                                                                                                      \
        if (row_step == 1)                                                                                                 \
            cut_part_body(rows, vectors, run, last, start, offsets, 1, lane_panel, lane_pitch, c, pitch, resume, asks);    \
        else                                                                                                               \
            cut_part_body(rows, vectors, run, last, start, offsets, row_step, lane_panel, lane_pitch, c, pitch, resume,    \
                          asks);                                                                                           \
    }
#define CUT_PART_ENTRY(rows, vectors, name) SUFFIX(name##_##rows##_##vectors)
PART_SIZES(CUT_PART, cut_part)
static const cut_part_function SUFFIX(cut_part)[ROWS][VECTORS] = PART_ENTRIES(CUT_PART_ENTRY, cut_part);

/* Rows with wide steps come from the next cache, and once more for each vector: those keep the tile that loads them once. */
#define WIDEST_STEP 4
#define STRIDED_BY_VECTOR(name, r, v, pairs)                                                                               \
    static void SUFFIX(name##_by_vector_##r##_##v)(const tile_run *runs, ptrdiff_t run_count, const float *start,          \
                                                   const int64_t *offsets, ptrdiff_t row_step, const float *lane_panel,    \
                                                   ptrdiff_t lane_pitch, float *c, int resume, const tile_wish *wish)      \
    {                                                                                                                      \
        const int together = vectors_together(r, v);                                                                       \
        if (row_step > WIDEST_STEP) {                                                                                      \
            SUFFIX(name##_##r##_##v)(runs, run_count, start, offsets, row_step, lane_panel, lane_pitch, c, resume, wish);  \
            return;                                                                                                        \
        }                                                                                                                  \
        asking asks = begin_asking(wish);                                                                                  \
        for (int j = 0; j < v; j += together)                                                                              \
            SUFFIX(cut_part)[r - 1][together - 1](runs, runs + run_count, start, offsets, row_step,                        \
                                                  lane_panel + j * WIDTH, lane_pitch, c + j * WIDTH, v, resume, &asks);    \
    }

/* Whole blocks with rows of a panel and sums as `tile_function` has them. */
#define BLOCKS_BY_VECTOR(name, r, v, pairs)                                                                                \
    static void SUFFIX(name##_by_vector_##r##_##v)(const tile_run *runs, ptrdiff_t run_count, const float *row_panel,      \
                                                   ptrdiff_t next, const float *lane_panel, ptrdiff_t lane_pitch, float *c,\
                                                   int resume, copying *meanwhile, const tile_result *result)              \
    {                                                                                                                      \
        (void)meanwhile;                                                                                                   \
        const int together = vectors_together(r, v);                                                                       \
        for (int j = 0; j < v; j += together)                                                                              \
            SUFFIX(name##_panel)[r - 1][together - 1](runs, run_count, row_panel, j == 0 ? next : 0,                       \
                                                      lane_panel + j * WIDTH, lane_pitch, c + j * WIDTH, resume);          \
        finish_blocks(r, v, c, result);                                                                                    \
    }

/* A tile whose rows are one part takes that; for others one half of a block after the other is faster where a core begins two products
 * in a cycle. */
#define IN_ONE_PART(name, r, v)                                                                                          \
    if (parts_of(r, v) == 1)                                                                                             \
        SUFFIX(name##_panel)[(r) - 1][(v) - 1](runs, run_count, row_panel, next, lane_panel, lane_pitch, c, resume);     \
    else
