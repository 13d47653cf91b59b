/* Panels for a matrix unit: pairs of channels half a block of sums apart.  Included by simd/pairs.h. */
#include "simd/matrix.h"

#ifdef HAVE_MATRIX
GATHER_PAIRS(gather_matrix, HALF_BLOCK)

enum { MATRIX_ROWS = 16 };

static void SUFFIX(gather_taps_matrix)(float *panel, ptrdiff_t tap_step, ptrdiff_t pitch, int rows, int64_t channels,
                                       const void *source, int format, int64_t row_stride, int64_t channel_stride,
                                       const int64_t *taps, int64_t tap_count, uint16_t *smallest)
{
    for (int done = 0; done < rows; done += ROWS)
        gather_taps_apart(panel + done, tap_step, pitch, rows - done < ROWS ? rows - done : ROWS, channels,
                          at(source, format, done * row_stride), format, row_stride, channel_stride, taps, tap_count, smallest,
                          HALF_BLOCK);
}

static void SUFFIX(turn_rows)(float *panel, ptrdiff_t tap_step, int64_t tap_count, int64_t steps)
{
    for (int64_t t = 0; t < tap_count; t++)
        for (int64_t step = 0; step < steps; step += HALF_BLOCK) {
            float *place = panel + t * tap_step + step * MATRIX_ROWS;
            __m512i row[HALF_BLOCK];
#pragma GCC unroll 16
            for (int i = 0; i < HALF_BLOCK; i++)
                row[i] = _mm512_loadu_si512(place + i * MATRIX_ROWS);
            transpose_vectors(row);
#pragma GCC unroll 16
            for (int i = 0; i < HALF_BLOCK; i++)
                _mm512_storeu_si512(place + i * HALF_BLOCK, row[i]);
        }
}

/* Bit i moves to bit 2*i. */
INLINE uint64_t every_other(uint32_t bits)
{
    uint64_t x = bits;
    x = (x | x << 16) & 0x0000ffff0000ffff;
    x = (x | x << 8) & 0x00ff00ff00ff00ff;
    x = (x | x << 4) & 0x0f0f0f0f0f0f0f0f;
    x = (x | x << 2) & 0x3333333333333333;
    return (x | x << 1) & 0x5555555555555555;
}

/* Words i*step of two vectors, for i < 32. */
INLINE __m512i words_apart(int64_t step)
{
    const __m512i two = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i each = _mm512_or_si512(two, _mm512_slli_epi32(_mm512_add_epi32(two, _mm512_set1_epi32(1)), 16));
    return _mm512_mullo_epi16(each, _mm512_set1_epi16((short)step));
}

/* The codes of a part, as 16 bits each; zeros beside it. */
INLINE __m512i load_part(const void *source, int format, int64_t step, const line_part *part)
{
    const void *p = at(source, format, part->offset);
    if (step == 1)
        return load_words_masked(p, format, part->inside);
    uint64_t inside = every_other(part->inside);
    if (format != NUMBER_BFLOAT16) /* bytes that are not loaded are the upper ones of words */
        return _mm512_maskz_loadu_epi8(inside, p);
    __m512i low = _mm512_maskz_loadu_epi16((uint32_t)inside, p);
    __m512i high = _mm512_maskz_loadu_epi16((uint32_t)(inside >> 32), at(p, format, SUM_BLOCK));
    return _mm512_permutex2var_epi16(low, words_apart(2), high);
}

INLINE void near_rows_format(float *place, ptrdiff_t row_pitch, ptrdiff_t block_pitch, int64_t rows, int64_t blocks, const line_part *parts,
                              int64_t step, const void *source, int format, int64_t row_stride, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    const __m512i order = halves_order();
    magnitudes met = none_met;
    for (int64_t b = 0; b < blocks; b++, place += block_pitch) {
        const line_part *first = parts, *last = parts;
        while (!last->last)
            last++;
        parts = last + 1;
        if (last - first > 1) { /* a part of all rows, then the next */
            __m512i codes[MATRIX_ROWS] = {0};
            for (const line_part *part = first; part <= last; part++)
                for (int64_t r = 0; r < rows; r++)
                    codes[r] = _mm512_or_si512(codes[r], load_part(at(source, format, r * row_stride), format, step, part));
            for (int64_t r = 0; r < rows; r++)
                put_pairs(place + r * row_pitch, _mm512_permutexvar_epi16(order, codes[r]), &d, format, &met);
            continue;
        }
        for (int64_t r = 0; r < rows; r++) {
            const void *row = at(source, format, r * row_stride);
            __m512i codes = load_part(row, format, step, first);
            if (last > first)
                codes = _mm512_or_si512(codes, load_part(row, format, step, last));
            put_pairs(place + r * row_pitch, _mm512_permutexvar_epi16(order, codes), &d, format, &met);
        }
    }
    note_smallest(smallest, &met);
}

/* Blocks of numbers that lie farther apart: those of a part from `step` stretches of 32 elements. */
INLINE void far_rows_format(float *place, ptrdiff_t row_pitch, ptrdiff_t block_pitch, int64_t rows, int64_t blocks, const line_part *parts,
                            int64_t step, const void *source, int format, int64_t row_stride, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    const __m512i order = halves_order();
    const __m512i from = words_apart(step); /* of one vector: modulo 32 */
    magnitudes met = none_met;
    for (int64_t b = 0; b < blocks; b++, place += block_pitch) {
        __m512i codes[MATRIX_ROWS] = {0};
        for (int last = 0; !last; parts++) {
            last = parts->last;
            for (int64_t start = 0; start < SUM_BLOCK * step; start += SUM_BLOCK) {
                int64_t first = (start + step - 1) / step, end = (start + SUM_BLOCK + step - 1) / step; /* terms from this stretch */
                uint32_t taken = parts->inside & (uint32_t)(((uint64_t)1 << end) - ((uint64_t)1 << first));
                if (!taken)
                    continue;
                int64_t low = __builtin_ctz(taken) * step - start, high = (31 - __builtin_clz(taken)) * step - start;
                uint32_t loaded = (uint32_t)(((uint64_t)2 << high) - ((uint64_t)1 << low));
                const void *p = at(source, format, parts->offset + start);
                for (int64_t r = 0; r < rows; r++)
                    codes[r] = _mm512_mask_permutexvar_epi16(codes[r], taken, from,
                                                             load_words_masked(at(p, format, r * row_stride), format, loaded));
            }
        }
        for (int64_t r = 0; r < rows; r++)
            put_pairs(place + r * row_pitch, _mm512_permutexvar_epi16(order, codes[r]), &d, format, &met);
    }
    note_smallest(smallest, &met);
}

/* The numbers of a block, decoded and noted; goes on to the next one's parts. */
INLINE __m512i next_block(const line_part **parts, const void *row, int format, int64_t step, const decoder *d, magnitudes *met)
{
    __m512i codes = load_part(row, format, step, *parts);
    while (!(*parts)->last)
        codes = _mm512_or_si512(codes, load_part(row, format, step, ++*parts));
    ++*parts;
    __m512i words = decode_words(d, format, codes);
    note(met, words);
    return words;
}

INLINE void frame_rows_format(float *place, ptrdiff_t row_pitch, ptrdiff_t block_pitch, int64_t rows, int64_t blocks, const line_part *parts,
                              int64_t step, const void *source, int format, int64_t row_stride, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    const __m512i order = halves_order();
    magnitudes met = none_met;
    for (int64_t r = 0; r < rows; r++) {
        const void *row = at(source, format, r * row_stride);
        const line_part *part = parts;
        __m512i words = next_block(&part, row, format, step, &d, &met);
        for (int64_t b = 0; b < blocks; b++) {
            float *pairs = place + r * row_pitch + b * block_pitch;
            __m512i next = b + 1 < blocks ? next_block(&part, row, format, step, &d, &met) : _mm512_setzero_si512();
            _mm512_storeu_si512(pairs, _mm512_permutexvar_epi16(order, words));
            _mm512_storeu_si512(pairs + HALF_BLOCK, _mm512_permutexvar_epi16(order, _mm512_alignr_epi64(next, words, 4)));
            words = next;
        }
    }
    note_smallest(smallest, &met);
}

#define BLOCK_ROWS(name)                                                                                                 \
    static void SUFFIX(name)(float *place, ptrdiff_t row_pitch, ptrdiff_t block_pitch, int64_t rows, int64_t blocks,     \
                             const line_part *parts, int64_t step, const void *source, int format, int64_t row_stride,   \
                             uint16_t *smallest)                                                                         \
    {                                                                                                                    \
        if (format != NUMBER_BFLOAT16)                                                                                   \
            name##_format(place, row_pitch, block_pitch, rows, blocks, parts, step, source, format, row_stride, smallest); \
        else if (step == 1)                                                                                              \
            name##_format(place, row_pitch, block_pitch, rows, blocks, parts, 1, source, NUMBER_BFLOAT16, row_stride,    \
                          smallest);                                                                                     \
        else                                                                                                             \
            name##_format(place, row_pitch, block_pitch, rows, blocks, parts, 2, source, NUMBER_BFLOAT16, row_stride,    \
                          smallest);                                                                                     \
    }
BLOCK_ROWS(near_rows)
BLOCK_ROWS(frame_rows)

static void SUFFIX(block_rows)(float *place, ptrdiff_t row_pitch, ptrdiff_t block_pitch, int64_t rows, int64_t blocks, const line_part *parts,
                               int64_t step, const void *source, int format, int64_t row_stride, uint16_t *smallest)
{
    if (step <= FRAME_STEPS)
        SUFFIX(near_rows)(place, row_pitch, block_pitch, rows, blocks, parts, step, source, format, row_stride, smallest);
    else if (format == NUMBER_BFLOAT16)
        far_rows_format(place, row_pitch, block_pitch, rows, blocks, parts, step, source, NUMBER_BFLOAT16, row_stride, smallest);
    else
        far_rows_format(place, row_pitch, block_pitch, rows, blocks, parts, step, source, format, row_stride, smallest);
}

static void SUFFIX(patch_rows)(float *place, const float *frame, ptrdiff_t row_pitch, int64_t rows, int64_t blocks, const line_part *parts,
                               int64_t taps, const int64_t *shifts)
{
    for (int64_t k = 0; k < blocks; k++, place += HALF_BLOCK) {
        int64_t offset[SUM_BLOCK];
        __mmask32 inside[SUM_BLOCK];
        int count = 0;
        for (int last = 0; !last; parts++, count++) { /* the first terms of pairs are upper words */
            last = parts->last;
            offset[count] = parts->offset;
            inside[count] = (__mmask32)(every_other(parts->inside >> 16) | every_other(parts->inside & 0xffff) << 1);
        }
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < taps; i++) {
                const float *row = frame + r * row_pitch + shifts[i];
                __m512i pairs = _mm512_maskz_loadu_epi16(inside[0], row + offset[0]);
                for (int p = 1; p < count; p++)
                    pairs = _mm512_mask_loadu_epi16(pairs, inside[p], row + offset[p]);
                _mm512_storeu_si512(place + r * row_pitch + i * blocks * HALF_BLOCK, pairs);
            }
    }
}

const pair_functions SUFFIX(matrix) = {
    .panel_rows = MATRIX_ROWS,
    .apart = HALF_BLOCK,
    .blocks = {{matrix_blocks_1, matrix_blocks_2, matrix_blocks_3}},
    .begin = matrix_begin,
    .end = matrix_end,
    .turn = SUFFIX(turn_rows),
    .block_rows = SUFFIX(block_rows),
    .frame_rows = SUFFIX(frame_rows),
    .patch_rows = SUFFIX(patch_rows),
    .row_panels = {matrix_panels_1, matrix_panels_2, matrix_panels_3},
    .gather = SUFFIX(gather_matrix),
    .gather_taps = SUFFIX(gather_taps_matrix),
    .frame = SUFFIX(frame_pairs),
    .split = SUFFIX(split_pairs),
    .finite = SUFFIX(finite_pairs),
};
#endif
