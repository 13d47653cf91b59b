/* What simd/tile.h has for floats, for pairs of bfloat16 steps: included after it where MULTIPLY_ADD_PAIRS is defined.
 * Tiles come first, then panels and frames of pairs of channels, adjacent or half a block of sums apart. */
#include "numbers/codes.h"

#define PAIR_TILES(rows) PANEL_TILE(pairs, rows, 1, 1) PANEL_TILE(pairs, rows, 2, 1) PANEL_TILE(pairs, rows, 3, 1)
PAIR_TILES(1) PAIR_TILES(2) PAIR_TILES(3) PAIR_TILES(4) PAIR_TILES(5) PAIR_TILES(6) PAIR_TILES(7) PAIR_TILES(8)
HALF_TILES(pair_halves, 1)
BLOCK_PARTS(pair_blocks, 1)
ALL_BLOCKS(PART_OF_BLOCK, pair_blocks, 1)
ALL_BLOCKS(BLOCKS_TILE, pair_blocks, 1)
ALL_BLOCKS(BLOCKS_BY_VECTOR, pair_blocks, 1)
ALL_BLOCKS(WHOLE_BY_VECTOR, pair_blocks, 1)
ALL_BLOCKS(WHOLE_BLOCKS, pair_blocks, 1)

static void SUFFIX(lines_of_pairs)(const tile_run *runs, ptrdiff_t run_count, const float *rows, const float *lanes,
                               ptrdiff_t lane_pitch, ptrdiff_t line_pitch, int64_t lines, int64_t count, float *target,
                               ptrdiff_t target_pitch, float bias)
{
    lines_body(runs, run_count, rows, lanes, lane_pitch, line_pitch, lines, count, target, target_pitch, bias, 1);
}

#include "simd/pair_codes.h"

/* Code i beside code HALF_BLOCK + i. */
INLINE __m512i halves_order(void)
{
    const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_or_si512(_mm512_add_epi32(step, _mm512_set1_epi32(HALF_BLOCK)), _mm512_slli_epi32(step, 16));
}

/* Of 32 numbers at p those in the mask, as 16 bits each, zeros in the places of the others. */
INLINE __m512i load_words_masked(const void *p, int format, uint32_t mask)
{
    return format == NUMBER_BFLOAT16 ? _mm512_maskz_loadu_epi16(mask, p) : _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, p));
}

/* The first n <= 32 codes at p, as 16 bits each; zeros after them. */
INLINE __m512i load_words(const void *p, int format, int64_t n)
{
    return load_words_masked(p, format, 0xffffffffu >> (32 - n));
}

/* As `gather_lines`, for pairs half a block apart. */
INLINE void gather_halves(float *panel, ptrdiff_t pitch, int64_t count, const void *source, int format, const int64_t *offset,
                          int64_t lanes, const decoder *d, magnitudes *met)
{
    const __m512i order = halves_order();
    for (int64_t l = 0; l < lanes; l += 16)
        for (int64_t k = 0; k < count; k += SUM_BLOCK) {
            int64_t n = count - k < SUM_BLOCK ? count - k : SUM_BLOCK;
            __m512i row[16];
            for (int i = 0; i < 16; i++)
                row[i] = l + i < lanes && offset[l + i] != NO_ELEMENT
                             ? _mm512_permutexvar_epi16(order, load_words(at(source, format, offset[l + i] + k), format, n))
                             : _mm512_setzero_si512();
            transpose_vectors(row);
            for (int i = 0; i < HALF_BLOCK; i++)
                put_pairs(panel + (k / 2 + i) * pitch + l, row[i], d, format, met);
        }
}

/* n lanes, `step` apart, of two channels. */
INLINE void put_channels(float *place, const void *first, const void *second, int format, int64_t n, int64_t step,
                         const decoder *d, magnitudes *met)
{
    __m512i codes = _mm512_slli_epi32(load_codes(first, format, n, step), 16);
    if (second)
        codes = _mm512_or_si512(codes, load_codes(second, format, n, step));
    put_pairs(place, codes, d, format, met);
}

/* n <= 16 codes, `step` apart, as 32 bits each; zeros after them. */
INLINE __m512i load_scattered(const void *p, int format, int64_t n, int64_t step)
{
    if (step == 1 || step == 2)
        return load_codes(p, format, n, step);
    if (step == 3 || step == 4)
        return load_near(p, format, n, step);
    if (step > 4 && step < 1 << 24) { /* 32 bits are loaded for each, but for the last, behind which may be nothing */
        const __m512i place = places_apart(step);
        const __m512i none = _mm512_setzero_si512();
        __mmask16 but_last = (__mmask16)((1u << (n - 1)) - 1);
        __m512i last = _mm512_maskz_set1_epi32((__mmask16)(1u << (n - 1)), (int)load_code(p, format, (n - 1) * step));
        if (format == NUMBER_BFLOAT16)
            return _mm512_or_si512(last, _mm512_and_si512(_mm512_mask_i32gather_epi32(none, but_last, place, p, 2), _mm512_set1_epi32(0xffff)));
        return _mm512_or_si512(last, _mm512_and_si512(_mm512_mask_i32gather_epi32(none, but_last, place, p, 1), _mm512_set1_epi32(0xff)));
    }
    uint32_t codes[WIDTH] = {0};
    for (int64_t i = 0; i < n; i++)
        codes[i] = load_code(p, format, i * step);
    return _mm512_loadu_si512(codes);
}

/* The same for any step. */
INLINE void put_scattered(float *place, const void *first, const void *second, int format, int64_t n, int64_t step,
                          const decoder *d, magnitudes *met)
{
    for (int64_t start = 0; start < n; start += WIDTH) {
        int64_t count = n - start < WIDTH ? n - start : WIDTH;
        __m512i codes = _mm512_slli_epi32(load_scattered(at(first, format, start * step), format, count, step), 16);
        if (second)
            codes = _mm512_or_si512(codes, load_scattered(at(second, format, start * step), format, count, step));
        __m512i pairs = decode_words(d, format, codes);
        note(met, pairs);
        _mm512_mask_storeu_epi32(place + start, (__mmask16)(0xffffu >> (16 - count)), pairs);
    }
}

/* The codes of a vector of lanes, of a channel at `row`, as 16 bits each; zeros in lanes of no part. */
INLINE __m256i join_codes(const void *row, int format, const int64_t *offset, const __mmask16 *mask, int parts)
{
    __m256i words = _mm256_setzero_si256();
    __m128i bytes = _mm_setzero_si128();
#pragma GCC unroll 4
    for (int part = 0; part < parts; part++)
        if (format == NUMBER_BFLOAT16)
            words = _mm256_mask_loadu_epi16(words, mask[part], at(row, format, offset[part]));
        else
            bytes = _mm_mask_loadu_epi8(bytes, mask[part], at(row, format, offset[part]));
    return format == NUMBER_BFLOAT16 ? words : _mm256_cvtepu8_epi16(bytes);
}

/* Steps [first, end) of one vector.  Lanes are as many as channels of half a block, so one order serves both. */
INLINE void join_pairs(float *place, ptrdiff_t pitch, int64_t first, int64_t end, int64_t channels, const void *source, int format,
                       int64_t stride, const int64_t *offset, const __mmask16 *mask, int parts, const decoder *d, magnitudes *met,
                       int apart)
{
    const __m512i order = halves_order();
    for (int64_t step = first; step < end; step++, place += pitch) {
        int64_t k = pair_channel(step, apart);
        if (k >= channels || !parts) {
            *(vector *)place = (vector){0};
            continue;
        }
        const void *row = at(source, format, k * stride);
        __m256i upper = join_codes(row, format, offset, mask, parts), lower = _mm256_setzero_si256();
        __builtin_prefetch(at(row, format, offset[0] + 8 * stride)); /* channels are too far apart to be foreseen */
        __builtin_prefetch(at(row, format, offset[0] + (8 + apart) * stride));
        if (k + apart < channels)
            lower = join_codes(at(row, format, apart * stride), format, offset, mask, parts);
        __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(upper), lower, 1);
        put_pairs(place, _mm512_permutexvar_epi16(order, both), d, format, met);
    }
}

/* As `gather_joined`, of spans whose numbers lie side by side. */
INLINE void gather_joined_pairs(float *panel, ptrdiff_t pitch, int64_t channels, const void *source, int format, int64_t stride,
                                const joined_plan *plan, const decoder *d, magnitudes *met, int apart)
{
    const int64_t steps = pair_steps(channels, apart);
    for (int64_t k = 0; k < steps; k += JOINED_STEPS)
        for (int v = 0; v < plan->vectors; v++) {
            float *place = panel + k * pitch + v * WIDTH;
            int64_t end = k + JOINED_STEPS < steps ? k + JOINED_STEPS : steps;
            switch (plan->parts[v]) {
#define JOIN_PAIRS(parts)                                                                                                \
    join_pairs(place, pitch, k, end, channels, source, format, stride, plan->offset[v], plan->mask[v], parts, d, met, apart)
            case 1: JOIN_PAIRS(1); break;
            case 2: JOIN_PAIRS(2); break;
            case 3: JOIN_PAIRS(3); break;
            case 4: JOIN_PAIRS(4); break;
            default: JOIN_PAIRS(plan->parts[v]);
#undef JOIN_PAIRS
            }
        }
}

INLINE void gather_pairs_format(float *panel, ptrdiff_t pitch, int64_t channels, const void *source, int format, int64_t stride,
                                const lane_span *spans, int64_t span_count, uint16_t *smallest, int apart)
{
    const decoder d = decoder_of(format);
    magnitudes met = none_met;
    const lane_span *last = spans + span_count - 1;
    int short_runs = last->step != 1 || span_count * 8 > last->lane + last->count;
    if (stride == 1 && channels >= 4 && short_runs) {
        int64_t offset[TILE_LANES], lanes = lane_offsets(offset, spans, span_count);
        if (apart == 1)
            gather_lines(panel, pitch, channels, source, format, offset, lanes, &d, &met);
        else
            gather_halves(panel, pitch, channels, source, format, offset, lanes, &d, &met);
        note_smallest(smallest, &met);
        return;
    }
    joined_plan plan;
    if (plan_joined(&plan, spans, span_count) && !plan.transposed) {
        gather_joined_pairs(panel, pitch, channels, source, format, stride, &plan, &d, &met, apart);
        note_smallest(smallest, &met);
        return;
    }
    for (int64_t step = 0; step < pair_steps(channels, apart); step++) {
        int64_t k = pair_channel(step, apart);
        const void *row = at(source, format, k * stride);
        const void *next = k + apart < channels ? at(source, format, (k + apart) * stride) : NULL;
        float *place = panel + step * pitch;
        if (k >= channels) {
            for (int64_t lane = 0; lane < last->lane + last->count; lane += WIDTH)
                *(vector *)(place + lane) = (vector){0};
            continue;
        }
        for (int64_t s = 0; s < span_count; s++) {
            float *lanes = place + spans[s].lane;
            int64_t count = spans[s].count, step = spans[s].step, start = spans[s].offset;
            if (start == NO_ELEMENT)
                for (int64_t i = 0; i < count; i += WIDTH)
                    *(vector *)(lanes + i) = (vector){0};
            else if (step == 1 || step == 2)
                for (int64_t i = 0; i < count; i += WIDTH)
                    put_channels(lanes + i, at(row, format, start + step * i), next ? at(next, format, start + step * i) : NULL, format,
                                 count - i, step, &d, &met);
            else
                put_scattered(lanes, at(row, format, start), next ? at(next, format, start) : NULL, format, count, step, &d, &met);
        }
    }
    note_smallest(smallest, &met);
}

#define GATHER_PAIRS(name, apart)                                                                                        \
    static void SUFFIX(name)(float *panel, ptrdiff_t pitch, int64_t channels, const void *source, int format,            \
                             int64_t stride, const lane_span *spans, int64_t span_count, uint16_t *smallest)             \
    {                                                                                                                    \
        if (format == NUMBER_BFLOAT16)                                                                                   \
            gather_pairs_format(panel, pitch, channels, source, NUMBER_BFLOAT16, stride, spans, span_count, smallest,    \
                                apart);                                                                                  \
        else                                                                                                             \
            gather_pairs_format(panel, pitch, channels, source, format, stride, spans, span_count, smallest, apart);     \
    }
GATHER_PAIRS(gather_pairs, 1)

#include "simd/pair_rows.h"

INLINE void gather_taps_apart(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels, const void *source, int format,
                              int64_t row_stride, int64_t channel_stride, const int64_t *taps, int64_t tap_count,
                              uint16_t *smallest, int apart)
{
    const decoder d = decoder_of(format);
    magnitudes met = none_met;
    for (int64_t t = 0, end; t < tap_count; t = end) {
        tap_group group = group_taps(taps, tap_count, t);
        int turn = worth_turning(&group);
        end = turn ? group.end : t + 1;
        for (int64_t step = 0; step < pair_steps(channels, apart); step++) {
            float *place = panel + step * pitch;
            int64_t c = pair_channel(step, apart);
            if (c >= channels)
                break;
            int64_t offset = turn ? group.low : taps[t];
            const void *first = at(source, format, c * channel_stride + offset);
            const void *second = c + apart < channels ? at(first, format, apart * channel_stride) : NULL;
            if (!turn) {
                put_scattered(place + t * tap_step, first, second, format, rows, row_stride, &d, &met);
                continue;
            }
            prefetch_rows(at(first, format, AHEAD * channel_stride), 8, group.numbers, format, row_stride);
            prefetch_rows(at(first, format, (AHEAD + apart) * channel_stride), 8, group.numbers, format, row_stride);
            __m512i row[8];
            for (int i = 0; i < 8; i++) {
                __m512i codes = _mm512_setzero_si512();
                if (i < rows) {
                    codes = _mm512_slli_epi32(load_codes(at(first, format, i * row_stride), format, group.numbers, 1), 16);
                    if (second)
                        codes = _mm512_or_si512(codes, load_codes(at(second, format, i * row_stride), format, group.numbers, 1));
                }
                row[i] = decode_words(&d, format, codes);
                note(&met, row[i]);
            }
            store_tap_rows(place, tap_step, row, taps, &group);
        }
    }
    note_smallest(smallest, &met);
}

static void SUFFIX(gather_taps_pairs)(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels,
                                      const void *source, int format, int64_t row_stride, int64_t channel_stride,
                                      const int64_t *taps, int64_t tap_count, uint16_t *smallest)
{
    int done = SUFFIX(gather_wide_taps)(panel, tap_step, pitch, rows, channels, source, format, row_stride, channel_stride, taps, tap_count,
                                smallest);
    for (; done < rows; done += ROWS)
        gather_taps_apart(panel + done, tap_step, pitch, rows - done < ROWS ? rows - done : ROWS, channels,
                          at(source, format, done * row_stride), format, row_stride, channel_stride, taps, tap_count, smallest, 1);
}

#include "simd/frame_pairs.h"

static int SUFFIX(finite_pairs)(const float *pairs, int64_t count)
{
    __m512i most[4]; /* one alone takes three times as long */
    for (int k = 0; k < 4; k++)
        most[k] = _mm512_setzero_si512();
    int64_t i = 0;
    for (; i + 4 * WIDTH <= count; i += 4 * WIDTH)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            most[k] = larger_magnitudes(most[k], _mm512_loadu_si512(pairs + i + k * WIDTH));
    for (; i < count; i += WIDTH)
        most[0] = larger_magnitudes(most[0], _mm512_maskz_loadu_epi32((__mmask16)(0xffffu >> (i + 16 > count ? i + 16 - count : 0)), pairs + i));
    most[0] = _mm512_max_epu16(_mm512_max_epu16(most[0], most[1]), _mm512_max_epu16(most[2], most[3]));
    return _mm512_cmpge_epu16_mask(most[0], _mm512_set1_epi16(0x7f80)) == 0;
}

#include "simd/split_pairs.h"
#include "simd/pair_lines.h"
#include "simd/chain_pairs.h"
#include "simd/chain_taps.h"
#include "simd/chain_rows.h"
#include "simd/tap_pairs.h"

#define SEGMENT_PAIRS
#include "simd/segments.h"
#include "simd/plane_pairs.h"

const pair_functions SUFFIX(pairs) = {
    .panel_rows = ROWS,
    .apart = 1,
    .tile = ALL_ENTRIES(pairs),
    .halves = HALVES(pair_halves),
    .blocks = ALL_ENTRIES(pair_blocks),
    .blocks_by_vector = ALL_ENTRIES(pair_blocks_by_vector),
    .whole_blocks = ALL_ENTRIES(whole_pair_blocks),
    .whole_by_vector = ALL_ENTRIES(whole_pair_blocks_by_vector),
    .line_blocks = SUFFIX(line_pairs),
    .lay_lines = SUFFIX(lay_pairs),
    .patch_lines = SUFFIX(patch_pairs),
    .lay_plane = SUFFIX(lay_plane_pairs),
    .lay_planes = SUFFIX(lay_planes_pairs),
    .lines = SUFFIX(lines_of_pairs),
    .segments = &segments_of_lines,
    .gather = SUFFIX(gather_pairs),
    .gather_taps = SUFFIX(gather_taps_pairs),
    .gather_positions = SUFFIX(gather_positions),
    .frame = SUFFIX(frame_pairs),
    .split = SUFFIX(split_pairs),
    .finite = SUFFIX(finite_pairs),
    .lay_chains = SUFFIX(lay_chains),
    .chain_tile = DOT_TABLE(chain_tile),
    .chain_taps = TAP_TABLE(chain_taps),
    .chain_rows = TAP_TABLE(chain_rows),
    .lay_tap_pairs = SUFFIX(lay_tap_pairs),
    .join_tap_pairs = SUFFIX(join_tap_pairs),
    .lay_row_pairs = SUFFIX(lay_row_pairs),
    .tap_pairs = TAP_PAIR_ENTRIES,
    .planes = {SUFFIX(load_plane_pairs), SUFFIX(pair_plane_taps), SUFFIX(store_plane_pairs),
               {SUFFIX(plane_pairs_1), SUFFIX(plane_pairs_2), SUFFIX(plane_pairs_3), SUFFIX(plane_pairs_4), SUFFIX(plane_pairs_7),
                SUFFIX(plane_pairs_8), SUFFIX(plane_pairs_14)}},
};

#include "simd/matrix_pairs.h"
