/* AMX: a tile register holds 16 rows of 64 bytes; one instruction takes 32 steps of the reduction in the order of core/reduction.h. */
#include "simd/matrix.h"

#ifdef HAVE_MATRIX
#include <cpuid.h>
#include <immintrin.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TARGET "amx-tile,amx-bf16"

enum { ROWS = 16, LANES = 16, PITCH = 48, STEPS = 16, TILES = 7 };
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
/* Tiles 0 to 2 hold sums, 3 rows of weights, 4 to 6 lanes. */
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
#include "simd/end_target.h"
#endif
