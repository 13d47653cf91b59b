/* AMX: a tile register holds 16 rows of 64 bytes; one instruction takes 32 steps of the reduction in the order of core/reduction.h. */
#include "simd/matrix.h"

#ifdef HAVE_MATRIX
#include <cpuid.h>
#include <immintrin.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TARGET "amx-tile,amx-bf16"

enum { ROWS = 16, LANES = 16, PITCH = 48, STEPS = 16, TILES = 8 };
enum { PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */

int matrix_usable(void)
{
    static int answer = -1;
    unsigned a, b, c, d = 0;
    if (answer < 0)
        answer = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 22) && (d & 1u << 24) &&
                 syscall(SYS_arch_prctl, PERMISSION, TILE_DATA) == 0;
    return answer;
}

typedef struct {
    uint8_t palette;
    uint8_t start;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

#include "simd/begin_target.h"
void matrix_begin(void)
{
    tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < TILES; i++) {
        shapes.rows[i] = 16;
        shapes.row_bytes[i] = 64;
    }
    __asm__ volatile("" : : "r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
}

void matrix_end(void)
{
    _tile_release();
}

/* Tiles 0 to 2 hold sums, 3 rows, 4 to 6 lanes. */
#define FOR_VECTORS(action) action(0, 4) if (vectors > 1) { action(1, 5) } if (vectors > 2) { action(2, 6) }
#define BEGIN(v, lane_tile)                                                                                              \
    if (resume)                                                                                                          \
        _tile_loadd(v, c + LANES * v, 4 * PITCH);                                                                        \
    else                                                                                                                 \
        _tile_zero(v);
#define MULTIPLY(v, lane_tile)                                                                                           \
    _tile_loadd(lane_tile, b + LANES * v, 4 * lane_pitch);                                                               \
    _tile_dpbf16ps(v, 3, lane_tile);
#define FINISH(v, lane_tile) _tile_stored(v, c + LANES * v, 4 * PITCH);

static inline __attribute__((always_inline)) void blocks_body(int vectors, const tile_run *runs, ptrdiff_t run_count,
                                                              const float *rows, ptrdiff_t next, const float *lanes,
                                                              ptrdiff_t lane_pitch, float *c, int resume)
{
    const float *ahead = c + ROWS * PITCH; /* the sums of the next row panel */
    FOR_VECTORS(BEGIN)
    for (ptrdiff_t r = 0; r < run_count; r++) {
        const float *a = rows + runs[r].rows, *b = lanes + runs[r].lanes;
        for (ptrdiff_t k = runs[r].steps; k > 0; k -= STEPS) {
            for (int i = 0; next && i < 4 * STEPS; i += 4)
                __builtin_prefetch(a + next + 4 * i);
            for (int i = 0; i < 6; i++, ahead += 16)
                __builtin_prefetch(ahead);
            _tile_loadd(3, a, 64);
            FOR_VECTORS(MULTIPLY)
            a += STEPS * ROWS;
            b += STEPS * lane_pitch;
        }
    }
    FOR_VECTORS(FINISH)
    __asm__ volatile("" : : : "memory");
}
#define MATRIX_BLOCKS(vectors)                                                                                           \
    void matrix_blocks_##vectors(const tile_run *runs, ptrdiff_t run_count, const float *rows, ptrdiff_t next,           \
                                 const float *lanes, ptrdiff_t lane_pitch, float *c, int resume, copying *meanwhile,     \
                                 const tile_result *result)                                                              \
    {                                                                                                                    \
        (void)meanwhile, (void)result;                                                                                   \
        blocks_body(vectors, runs, run_count, rows, next, lanes, lane_pitch, c, resume);                                 \
    }
MATRIX_BLOCKS(1)
MATRIX_BLOCKS(2)
MATRIX_BLOCKS(3)

/* Several row panels at once: the lanes that are loaded serve all of them, and few sums wait for one another.
 * SUMS: register, row panel, vector. */
#define SUMS_1_1(do) do(0, 0, 0)
#define SUMS_1_2(do) do(0, 0, 0) do(1, 0, 1)
#define SUMS_1_3(do) do(0, 0, 0) do(1, 0, 1) do(2, 0, 2)
#define SUMS_4_1(do) do(0, 0, 0) do(1, 1, 0) do(2, 2, 0) do(3, 3, 0)
#define SUMS_2_2(do) do(0, 0, 0) do(1, 0, 1) do(2, 1, 0) do(3, 1, 1)
#define SUMS_2_3(do) do(0, 0, 0) do(1, 0, 1) do(2, 0, 2) do(3, 1, 0) do(4, 1, 1) do(5, 1, 2)
#define CLEAR(sum, panel, v) _tile_zero(sum);
#define RESUME(sum, panel, v) _tile_loadd(sum, c + (panel) * c_pitch + LANES * (v), 4 * PITCH);
#define STORE(sum, panel, v) _tile_stored(sum, c + (panel) * c_pitch + LANES * (v), 4 * PITCH);

#define ROW(tile, panel) _tile_loadd(tile, rows + offsets[(panel) * blocks + k], 4 * row_pitch);
#define LANE(tile, v) _tile_loadd(tile, lanes + k * STEPS * lane_pitch + LANES * (v), 4 * lane_pitch);
#define STEP_1_1 LANE(4, 0) ROW(5, 0) _tile_dpbf16ps(0, 5, 4);
#define STEP_4_1                                                                                                         \
    STEP_1_1 ROW(6, 1) _tile_dpbf16ps(1, 6, 4); ROW(7, 2) _tile_dpbf16ps(2, 7, 4); ROW(5, 3) _tile_dpbf16ps(3, 5, 4);
#define STEP_1_2 ROW(4, 0) LANE(6, 0) _tile_dpbf16ps(0, 4, 6); LANE(7, 1) _tile_dpbf16ps(1, 4, 7);
#define STEP_2_2 STEP_1_2 ROW(5, 1) _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);
#define STEP_1_3                                                                                                         \
    ROW(6, 0) LANE(7, 0) _tile_dpbf16ps(0, 6, 7); LANE(7, 1) _tile_dpbf16ps(1, 6, 7); LANE(7, 2) _tile_dpbf16ps(2, 6, 7);
#define STEP_2_3                                                                                                         \
    STEP_1_3 ROW(6, 1) _tile_dpbf16ps(5, 6, 7); LANE(7, 0) _tile_dpbf16ps(3, 6, 7); LANE(7, 1) _tile_dpbf16ps(4, 6, 7);

/* Sums are asked for while those before them are computed: SUM_ROWS rows of each row panel in a step, until all of them are near. */
enum { SUM_ROWS = 2 };
static inline __attribute__((always_inline)) void ask_for_sums(const float *ahead, ptrdiff_t c_pitch, int panels, int vectors, int64_t k)
{
    if (SUM_ROWS * k < ROWS)
        for (int p = 0; p < panels; p++)
            for (int i = 0; i < SUM_ROWS; i++)
                for (int v = 0; v < vectors; v++)
                    __builtin_prefetch(ahead + p * c_pitch + (SUM_ROWS * k + i) * PITCH + LANES * v, 1);
}

#define SOME_PANELS(panels, vectors)                                                                                     \
    static inline __attribute__((always_inline)) void panels_##panels##_##vectors(                                       \
        int64_t blocks, const float *rows, const int64_t *offsets, ptrdiff_t row_pitch, const float *lanes,              \
        ptrdiff_t lane_pitch, float *c, ptrdiff_t c_pitch, int resume, const float *ahead)                               \
    {                                                                                                                    \
        if (resume) {                                                                                                    \
            SUMS_##panels##_##vectors(RESUME)                                                                            \
        } else {                                                                                                         \
            SUMS_##panels##_##vectors(CLEAR)                                                                             \
        }                                                                                                                \
        for (int64_t k = 0; k < blocks; k++) {                                                                           \
            ask_for_sums(ahead, c_pitch, panels, vectors, k);                                                            \
            STEP_##panels##_##vectors                                                                                    \
        }                                                                                                                \
        SUMS_##panels##_##vectors(STORE)                                                                                 \
    }
#define MATRIX_PANELS(together, vectors)                                                                                 \
    SOME_PANELS(1, vectors)                                                                                              \
    SOME_PANELS(together, vectors)                                                                                       \
    void matrix_panels_##vectors(int64_t count, int64_t blocks, const float *rows, const int64_t *offsets,               \
                                 ptrdiff_t row_pitch, const float *lanes, ptrdiff_t lane_pitch, float *c,                \
                                 ptrdiff_t c_pitch, int resume)                                                          \
    {                                                                                                                    \
        const float *next = c + ROWS * PITCH; /* of the next lane panel */                                               \
        __asm__ volatile("" : : : "memory");                                                                             \
        for (; count >= together; count -= together, offsets += together * blocks, c += together * c_pitch)              \
            panels_##together##_##vectors(blocks, rows, offsets, row_pitch, lanes, lane_pitch, c, c_pitch, resume,       \
                                          count > together ? c + together * c_pitch : next);                             \
        for (; count > 0; count--, offsets += blocks, c += c_pitch)                                                      \
            panels_1_##vectors(blocks, rows, offsets, row_pitch, lanes, lane_pitch, c, c_pitch, resume,                  \
                               count > 1 ? c + c_pitch : next);                                                          \
        __asm__ volatile("" : : : "memory");                                                                             \
    }
MATRIX_PANELS(4, 1)
MATRIX_PANELS(2, 2)
MATRIX_PANELS(2, 3)
#include "simd/end_target.h"
#endif
