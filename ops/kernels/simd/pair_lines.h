/* Lines of bfloat16 codes that run backwards: any 32 bits of them are a pair as dot products take it, the earlier number in the upper
 * half.  Included by simd/pairs.h. */

/* Word i in the place of word 31 - i. */
INLINE __m512i reversed_words(void)
{
    const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i twice = _mm512_slli_epi32(step, 1);
    return _mm512_or_si512(_mm512_sub_epi32(_mm512_set1_epi32(31), twice),
                           _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(30), twice), 16));
}

enum { PICKED_STEP = 12 }; /* of numbers farther apart a gather takes less time than all vectors between them */

/* The first n <= 32 numbers at p, `step` <= PICKED_STEP apart, from the vectors that lie there one after the other. */
INLINE __m512i pick_words(const void *p, int format, int64_t n, int64_t step)
{
    const __m512i place = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_set1_epi16(31), reversed_words()), _mm512_set1_epi16((int16_t)step));
    const __m512i vector_number = _mm512_srli_epi16(place, 5);
    __m512i words = _mm512_setzero_si512();
    int64_t left = (n - 1) * step + 1;
    for (int64_t first = 0; first < left; first += 32) {
        const __mmask32 here = _mm512_cmpeq_epi16_mask(vector_number, _mm512_set1_epi16((int16_t)(first / 32)));
        words = _mm512_mask_permutexvar_epi16(words, here, place,
                                              load_words(at(p, format, first), format, left - first < 32 ? left - first : 32));
    }
    return words;
}

/* The same of bfloat16 numbers 8 apart: the first of each quarter of a vector. */
INLINE __m512i pick_eighths(const void *p, int64_t n)
{
    const __m512i number = _mm512_sub_epi16(_mm512_set1_epi16(31), reversed_words());
    const __m512i place = _mm512_or_si512(_mm512_slli_epi16(_mm512_and_si512(number, _mm512_set1_epi16(3)), 3), _mm512_srli_epi16(number, 2));
    const int64_t end = (n - 1) * 8 + 1;
    __m512i each[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        each[i] = 32 * i < end ? load_words(at(p, NUMBER_BFLOAT16, 32 * i), NUMBER_BFLOAT16, end - 32 * i < 32 ? end - 32 * i : 32)
                               : _mm512_setzero_si512();
    for (int i = 0; i < 8; i += 2)
        each[i] = _mm512_unpacklo_epi16(each[i], each[i + 1]);
    each[0] = _mm512_unpacklo_epi64(_mm512_unpacklo_epi32(each[0], each[2]), _mm512_unpacklo_epi32(each[4], each[6]));
    return _mm512_permutexvar_epi16(place, each[0]);
}

/* What is loaded of numbers [low, high) of those 4 apart. */
INLINE unsigned __int128 loaded_fourths(int64_t low, int64_t high)
{
    const unsigned __int128 one = 1;
    return low < high ? (one << (4 * high - 3)) - (one << 4 * low) : 0;
}

/* Those of 32 numbers 4 apart that are `loaded`, as 16 bits each; zeros in the places of the others. */
INLINE __m512i pick_fourths(const void *p, int format, unsigned __int128 loaded)
{
    const __m512i number = _mm512_sub_epi16(_mm512_set1_epi16(31), reversed_words());
    if (format != NUMBER_BFLOAT16) {
        const __m512i code = _mm512_set1_epi32(0xff);
        const __m512i place = _mm512_or_si512(_mm512_slli_epi16(_mm512_and_si512(number, _mm512_set1_epi16(15)), 1), _mm512_srli_epi16(number, 4));
        __m512i low = _mm512_and_si512(_mm512_maskz_loadu_epi8((__mmask64)loaded, p), code);
        __m512i high = _mm512_and_si512(_mm512_maskz_loadu_epi8((__mmask64)(loaded >> 64), at(p, format, 64)), code);
        return _mm512_permutexvar_epi16(place, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
    /* the first of each word of 64 bits */
    const __m512i place = _mm512_or_si512(_mm512_slli_epi16(_mm512_and_si512(number, _mm512_set1_epi16(7)), 2), _mm512_srli_epi16(number, 3));
    __m512i each[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        each[i] = _mm512_maskz_loadu_epi16((__mmask32)(loaded >> 32 * i), at(p, format, 32 * i));
    each[0] = _mm512_mask_blend_epi16(0xaaaaaaaau, each[0], _mm512_slli_epi32(each[1], 16));
    each[2] = _mm512_mask_blend_epi16(0xaaaaaaaau, each[2], _mm512_slli_epi32(each[3], 16));
    each[0] = _mm512_mask_blend_epi32(0xaaaau, each[0], _mm512_slli_epi64(each[2], 32));
    return _mm512_permutexvar_epi16(place, each[0]);
}

/* Bits of every other number, of numbers [low, high) with high > 0. */
INLINE uint64_t every_other_bit(int64_t low, int64_t high)
{
    return ~(uint64_t)0 >> (65 - 2 * high) & ~(uint64_t)0 << 2 * low;
}

/* Every other number at p, 32 of them, as 16 bits each; zeros in the places of those not `taken`. */
INLINE __m512i load_every_other_word(const void *p, int format, uint64_t taken)
{
    if (format != NUMBER_BFLOAT16)
        return _mm512_and_si512(_mm512_maskz_loadu_epi8(taken, p), _mm512_set1_epi16(0xff));
    const __m512i even = _mm512_xor_si512(_mm512_set1_epi16(62), _mm512_slli_epi16(reversed_words(), 1));
    __m512i second = taken >> 32 ? _mm512_maskz_loadu_epi16((__mmask32)(taken >> 32), at(p, format, 32)) : _mm512_setzero_si512();
    return _mm512_permutex2var_epi16(_mm512_maskz_loadu_epi16((__mmask32)taken, p), even, second);
}

/* The first n <= 32 numbers at p, `step` apart, but not side by side, as 16 bits each; zeros after them. */
INLINE __m512i load_words_apart(const void *p, int format, int64_t n, int64_t step)
{
    if (step == 2)
        return load_every_other_word(p, format, every_other_bit(0, n));
    if (step == 4)
        return pick_fourths(p, format, loaded_fourths(0, n));
    if (step == 8 && format == NUMBER_BFLOAT16)
        return pick_eighths(p, n);
    if (step > 2 && step <= PICKED_STEP)
        return pick_words(p, format, n, step);
    __m256i low = _mm512_cvtepi32_epi16(load_scattered(p, format, n < 16 ? n : 16, step)), high = _mm256_setzero_si256();
    if (n > 16)
        high = _mm512_cvtepi32_epi16(load_scattered(at(p, format, 16 * step), format, n - 16, step));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* Which of LINE_PIECE numbers at the source of a piece are loaded. */
INLINE uint32_t loaded_of(const line_piece *piece, int64_t step)
{
    if (step == 1 || piece->high <= piece->low)
        return piece->mask;
    /* As `short_line_mask`, whose checks for 64 numbers cost 2 % of layers with short lines. */
    return (uint32_t)(((uint64_t)2 << (piece->high - 1) * step) - ((uint64_t)1 << piece->low * step));
}

/* The lines of a piece side by side; `places`: element i*step in the place of word i. */
INLINE __m512i load_lines_of(const line_piece *piece, const void *start, int format, int64_t step, __m512i places)
{
    const uint32_t loaded = loaded_of(piece, step);
    const __m512i each = _mm512_set1_epi16((int16_t)(piece->each * step));
    const void *source = at(start, format, piece->source);
    __m512i words = _mm512_setzero_si512();
    for (int i = 0; i < piece->count; i += piece->each) {
        words = _mm512_mask_permutexvar_epi16(words, piece->mask << i, places, load_words_masked(source, format, loaded));
        places = _mm512_sub_epi16(places, each);
        source = at(source, format, piece->further);
    }
    return words;
}

INLINE void lay_pairs_format(char *first, ptrdiff_t pitch, int64_t lines, const line_piece *pieces, int64_t piece_count,
                             const void *source, int format, int64_t line_stride, int64_t step, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    const __m512i order = reversed_words();
    const __m512i places = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_set1_epi16(31), order), _mm512_set1_epi16((int16_t)step));
    magnitudes met = none_met;
    for (int64_t line = 0; line < lines; line++) {
        const void *start = at(source, format, line * line_stride);
        for (const line_piece *piece = pieces; piece < pieces + piece_count; piece++) {
            uint16_t *place = (uint16_t *)(first + line * pitch) - piece->place - 31;
            __m512i words = _mm512_setzero_si512();
            if (piece->each > 0)
                words = load_lines_of(piece, start, format, step, places);
            else if (step == 1)
                words = load_words_masked(at(start, format, piece->source), format, piece->mask);
            else if (step == 2)
                words = load_every_other_word(at(start, format, piece->source), format,
                                              piece->high > 0 ? every_other_bit(piece->low, piece->high) : 0);
            else {
                if (piece->low > 0)
                    _mm512_storeu_si512(place, words);
                place -= piece->low;
                if (piece->high > piece->low)
                    words = load_words_apart(at(start, format, piece->source + piece->low * step), format, piece->high - piece->low, step);
            }
            words = decode_words(&d, format, words);
            note(&met, words);
            _mm512_storeu_si512(place, _mm512_permutexvar_epi16(order, words));
            for (int64_t i = 1; step == 1 && i <= piece->more; i++) {
                words = decode_words(&d, format, load_words(at(start, format, piece->source + 32 * i), format, 32));
                note(&met, words);
                _mm512_storeu_si512(place - 32 * i, _mm512_permutexvar_epi16(order, words));
            }
        }
    }
    note_smallest(smallest, &met);
}

static void SUFFIX(lay_pairs)(char *first, ptrdiff_t pitch, int64_t lines, const line_piece *pieces, int64_t piece_count,
                              const void *source, int format, int64_t line_stride, int64_t step, uint16_t *smallest)
{
    if (format == NUMBER_BFLOAT16 && step == 1)
        lay_pairs_format(first, pitch, lines, pieces, piece_count, source, NUMBER_BFLOAT16, line_stride, 1, smallest);
    else if (format == NUMBER_BFLOAT16 && step == 2)
        lay_pairs_format(first, pitch, lines, pieces, piece_count, source, NUMBER_BFLOAT16, line_stride, 2, smallest);
    else if (format == NUMBER_BFLOAT16)
        lay_pairs_format(first, pitch, lines, pieces, piece_count, source, NUMBER_BFLOAT16, line_stride, step, smallest);
    else
        lay_pairs_format(first, pitch, lines, pieces, piece_count, source, format, line_stride, step, smallest);
}

static void SUFFIX(patch_pairs)(char *first, ptrdiff_t pitch, int64_t lines, int64_t to, int64_t before, int64_t after, int64_t met)
{
    const __mmask32 earlier = (__mmask32)(~(uint64_t)0 << (32 - met));
    for (int64_t line = 0; line < lines; line++) {
        uint16_t *place = (uint16_t *)(first + line * pitch) - 31;
        __m512i words = _mm512_loadu_si512(place - after);
        _mm512_storeu_si512(place - to, _mm512_mask_loadu_epi16(words, earlier, place - before));
    }
}

/* Numbers [low, high) of a line, zeros before and after them up to `count`; number 0 at `place`. */
INLINE void lay_line(uint16_t *place, int64_t count, int64_t low, int64_t high, const void *source, int format, int64_t step,
                     const decoder *d, magnitudes *met, __m512i order)
{
    for (int64_t i = 0; i < low; i += 32)
        _mm512_storeu_si512(place - i - 31, _mm512_setzero_si512());
    for (int64_t i = low; i < high; i += 32) {
        int64_t n = high - i < 32 ? high - i : 32;
        const void *from = at(source, format, (i - low) * step);
        __m512i words = decode_words(d, format, step == 1 ? load_words(from, format, n) : load_words_apart(from, format, n, step));
        note(met, words);
        _mm512_storeu_si512(place - i - 31, _mm512_permutexvar_epi16(order, words));
    }
    for (int64_t i = high; i < count; i += 32)
        _mm512_storeu_si512(place - i - 31, _mm512_setzero_si512());
}

enum { PARTS_LINE = 64 }; /* numbers of lines that are laid out part by part: of longer ones the next part is nearer than the next line */

/* Of the lines of a plane at most 32 numbers each, number 0 of the first at `from`; what is stored after them is stored again later. */
INLINE void lay_short_lines(uint16_t *place, int64_t count, int64_t lines, int64_t low, int64_t high, const void *from, int64_t line_step,
                            int format, int64_t step, const decoder *d, magnitudes *met, __m512i order)
{
    const uint32_t inside = (uint32_t)short_line_mask(low, high);
    const uint64_t taken = step == 2 && low < high ? every_other_bit(low, high) : 0;
    const unsigned __int128 fourths = step == 4 ? loaded_fourths(low, high) : 0;
    for (int64_t line = 0; line < lines; line++) {
        __m512i words = step == 1   ? load_words_masked(from, format, inside)
                        : step == 2 ? load_every_other_word(from, format, taken)
                                    : pick_fourths(from, format, fourths);
        words = decode_words(d, format, words);
        note(met, words);
        _mm512_storeu_si512(place - 31, _mm512_permutexvar_epi16(order, words));
        place -= count;
        from = at(from, format, line_step);
    }
}

/* A bound of numbers, counted from the beginning of a part, as a bound of the `most` numbers of the part. */
INLINE int64_t within_part(int64_t number, int64_t most)
{
    return number < 0 ? 0 : number > most ? most : number;
}

INLINE void lay_plane_format(uint16_t *place, const plane_lines *all, const void *source, int format, int64_t step, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    const __m512i order = reversed_words();
    magnitudes met = none_met;
    int64_t numbers = all->lines * all->count, first = all->first * all->count, end = all->end * all->count;
    memset(place - first + 1, 0, 2 * first);
    if ((step == 1 || step == 2 || step == 4) && all->count <= PARTS_LINE)
        for (int64_t part = (all->count - 1) / 32 * 32; part >= 0; part -= 32)
            lay_short_lines(place - first - part, all->count, all->end - all->first, within_part(all->low - part, 32),
                            within_part(all->high - part, 32), at(source, format, (part - all->low) * step), all->line_step, format, step,
                            &d, &met, order);
    else
        for (int64_t k = first; k < end; k += all->count) {
            lay_line(place - k, all->count, all->low, all->high, source, format, step, &d, &met, order);
            source = at(source, format, all->line_step);
        }
    memset(place - numbers + 1, 0, 2 * (numbers - end));
    note_smallest(smallest, &met);
}

INLINE void lay_plane_steps(uint16_t *place, const plane_lines *all, const void *source, int format, uint16_t *smallest)
{
    switch (all->step) {
#define LAY_PLANE(step)                                               \
    case step:                                                        \
        lay_plane_format(place, all, source, format, step, smallest); \
        break;
        LAY_PLANE(1) LAY_PLANE(2) LAY_PLANE(4)
#undef LAY_PLANE
    default:
        lay_plane_format(place, all, source, format, all->step, smallest);
    }
}

static void SUFFIX(lay_plane_pairs)(char *place, const plane_lines *all, const void *source, int format, uint16_t *smallest)
{
    if (format == NUMBER_BFLOAT16)
        lay_plane_steps((uint16_t *)place, all, source, NUMBER_BFLOAT16, smallest);
    else
        lay_plane_steps((uint16_t *)place, all, source, format, smallest);
}

/* Sixteen numbers of sixteen taps, from y on: those of a position lie side by side, those of a tap are stored so. */
INLINE void turn_plane_taps(uint16_t *place, ptrdiff_t pitch, int64_t taps, int64_t y, int64_t first_tap, const plane_lines *all,
                      const void *source, int format, const decoder *d, magnitudes *met)
{
    const int64_t numbers = all->count - y < 16 ? all->count - y : 16, some = taps - first_tap < 16 ? taps - first_tap : 16;
    __m512i row[16];
    for (int64_t i = 0; i < 16; i++) {
        int64_t x = (y + i) * all->step + first_tap;
        int64_t low = within_part(all->low - x, 16), high = i < numbers ? within_part(all->high - x, some) : 0;
        const __mmask16 inside = (__mmask16)(((1u << high) - 1) & ~((1u << low) - 1));
        const void *from = at(source, format, x);
        row[15 - i] = load_masked_codes(from, format, inside);
    }
    transpose_vectors(row);
    for (int64_t t = 0; t < some; t++) {
        __m512i words = decode_words(d, format, _mm512_zextsi256_si512(_mm512_cvtepi32_epi16(row[t])));
        note(met, words);
        _mm256_storeu_si256((__m256i *)(place + (first_tap + t) * pitch - y - 15), _mm512_castsi512_si256(words));
    }
}

static void SUFFIX(lay_planes_pairs)(char *place, ptrdiff_t pitch, int64_t taps, const plane_lines *all, const void *source, int format,
                                     uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    magnitudes met = none_met;
    uint16_t *first = (uint16_t *)place;
    int64_t before = all->first * all->count, after = (all->lines - all->end) * all->count;
    for (int64_t t = 0; t < taps; t++)
        memset(first + t * pitch / 2 - before + 1, 0, 2 * before);
    for (int64_t line = all->first; line < all->end; line++) {
        for (int64_t i = 0; line + 1 < all->end && i < all->high; i += 64 / code_size(format)) /* too short to be foreseen */
            __builtin_prefetch(at(source, format, all->line_step + i));
        for (int64_t y = 0; y < all->count; y += 16)
            for (int64_t t = 0; t < taps; t += 16)
                if (format == NUMBER_BFLOAT16)
                    turn_plane_taps(first - line * all->count, pitch / 2, taps, y, t, all, source, NUMBER_BFLOAT16, &d, &met);
                else
                    turn_plane_taps(first - line * all->count, pitch / 2, taps, y, t, all, source, format, &d, &met);
        source = at(source, format, all->line_step);
    }
    for (int64_t t = 0; t < taps; t++)
        memset(first + t * pitch / 2 - all->lines * all->count + 1, 0, 2 * after);
    note_smallest(smallest, &met);
}

#include "simd/line_blocks.h"
