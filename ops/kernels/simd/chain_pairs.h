/* Sums in chains along lines (core/reduction.h) as dot products of pairs: included by simd/pairs.h.
 *
 * Chain j takes the positions j modulo REDUCTION_CHAINS of every line.  Terms that follow one another in a chain are a pair: numbers
 * REDUCTION_CHAINS apart in a line, or in two lines, where a line has no more.  A unit is a vector with a pair of each chain; on the
 * large side it is wider, by what taps reach. */

/* Which of 32 numbers from `first` on lie in [low, high). */
INLINE uint32_t chain_mask(int64_t low, int64_t high, int64_t first)
{
    low = low > first ? low - first : 0;
    high = high - first < 32 ? high - first : 32;
    return low < high ? 0xffffffffu >> (32 - (high - low)) << low : 0;
}

/* A vector of pairs of each of some lines: numbers from `number` on. */
INLINE void lay_vectors(int noted, float *place, const chain_units *u, const chain_lines *l, const char *source, int64_t number, int format,
                        const decoder *d, magnitudes *met)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000), order = halves_order();
    const uint32_t first_mask = chain_mask(u->low[0], u->high[0], number), second_mask = chain_mask(u->low[1], u->high[1], number);
    for (int64_t line = 0; line < l->lines; line++, place += l->pitch) {
        const char *first = at(source, format, line * l->line_stride + number), *second = at(first, format, l->partner);
        uint32_t taken = first_mask, partners = second_mask;
        if (line < l->first[0] || line >= l->end[0]) {
            first = source; /* nothing is loaded, but a place outside the memory would take time */
            taken = 0;
        }
        if (line < l->first[1] || line >= l->end[1]) {
            second = source;
            partners = 0;
        }
        __m512i pairs, more = _mm512_setzero_si512();
        if (u->step == 2) {
            __m512i upper = load_words_masked(first, format, taken), lower = load_words_masked(second, format, partners);
            pairs = _mm512_or_si512(_mm512_slli_epi32(upper, 16), _mm512_andnot_si512(high, lower));
            more = _mm512_or_si512(_mm512_and_si512(upper, high), _mm512_srli_epi32(lower, 16));
        } else if (u->whole)
            pairs = _mm512_permutexvar_epi16(order, load_words_masked(first, format, taken));
        else
            pairs = _mm512_or_si512(_mm512_slli_epi32(load_masked_codes(first, format, (__mmask16)taken), 16),
                                    load_masked_codes(second, format, (__mmask16)partners));
        pairs = decode_words(d, format, pairs);
        _mm512_storeu_si512(place, pairs);
        if (noted)
            note(met, pairs);
        if (u->step == 2 && u->ways > 1) {
            more = decode_words(d, format, more);
            _mm512_storeu_si512(place + u->width, more);
            if (noted)
                note(met, more);
        }
    }
}

enum { CHAIN_MASKS = 16 };

/* Which of the 64 numbers of units 2*two and 2*two + 1 of a line lie in [low, high); the first masks are kept. */
typedef struct {
    int64_t low;
    int64_t high;
    uint64_t kept[CHAIN_MASKS];
} two_unit_masks;

INLINE uint64_t find_two_unit_mask(const two_unit_masks *masks, int64_t two)
{
    const int64_t first = 2 * two * SUM_BLOCK;
    return (uint64_t)chain_mask(masks->low, masks->high, first + SUM_BLOCK) << SUM_BLOCK | chain_mask(masks->low, masks->high, first);
}

INLINE two_unit_masks begin_two_unit_masks(int64_t low, int64_t high, int64_t units)
{
    two_unit_masks masks = {.low = low, .high = high};
    for (int64_t two = 0; two < CHAIN_MASKS && 2 * two < units; two++)
        masks.kept[two] = find_two_unit_mask(&masks, two);
    return masks;
}

/* The pairs that begin where the lower halves of a unit do: those with the upper halves of the next.  One instruction has them where
 * codes are `looked_up` (AVX-512 VBMI2, `byte_look_ups`); as text, since the target does not say VBMI2. */
INLINE __m512i half_a_unit_further(int looked_up, __m512i unit, __m512i next)
{
    if (looked_up) {
        __m512i further;
        __asm__("vpshldd $16, %2, %1, %0" : "=v"(further) : "v"(unit), "v"(next));
        return further;
    }
    return _mm512_or_si512(_mm512_slli_epi32(unit, 16), _mm512_srli_epi32(next, 16));
}

/* Two units of 8-bit codes. */
INLINE void look_up_two_units(__m512i codes, int format, const decoder *d, __m512i *unit)
{
    const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i order = _mm512_add_epi32(_mm512_mullo_epi32(step, _mm512_set1_epi32(0x01010101)), _mm512_set1_epi32(0x40005010));
    __m512i lower, upper;
    decode_bytes(d, format, codes, &lower, &upper);
    unit[0] = look_up_bytes(order, lower, upper);
    unit[1] = look_up_bytes(_mm512_add_epi32(order, _mm512_set1_epi32(0x20202020)), lower, upper);
}

/* A unit of a line whose pairs lie within it, of bfloat16 or of codes that are not looked up. */
INLINE __m512i decode_unit(const void *numbers, uint32_t mask, int format, const decoder *d, magnitudes *met)
{
    __m512i pairs = decode_words(d, format, _mm512_permutexvar_epi16(halves_order(), load_words_masked(numbers, format, mask)));
    note(met, pairs);
    return pairs;
}

/* Units 2*two and 2*two + 1 of a line, whose pairs lie within it.  Those without a number inside are zeros, and are not noted. */
INLINE void decode_two_units(int looked_up, const char *numbers, const two_unit_masks *masks, int64_t two, int format, const decoder *d,
                             magnitudes *met, __m512i *unit)
{
    const uint64_t mask = two < CHAIN_MASKS ? masks->kept[two] : find_two_unit_mask(masks, two);
    const char *place = at(numbers, format, 2 * two * SUM_BLOCK);
    unit[0] = unit[1] = _mm512_setzero_si512();
    if (!mask) /* most often those after a line */
        return;
    if (looked_up) {
        look_up_two_units(_mm512_maskz_loadu_epi8(mask, place), format, d, unit);
        return;
    }
    unit[0] = decode_unit(place, (uint32_t)mask, format, d, met);
    if (mask >> SUM_BLOCK)
        unit[1] = decode_unit(at(place, format, SUM_BLOCK), (uint32_t)(mask >> SUM_BLOCK), format, d, met);
}

INLINE void clear_chain_line(float *place, int64_t floats)
{
    for (int64_t i = 0; i < floats; i += WIDTH)
        _mm512_storeu_si512(place + i, _mm512_setzero_si512());
}

/* Lines whose pairs lie within them, each number decoded once.  What taps reach `beyond` the first vector of a unit is the other halves of
 * its pairs beside those of the next; vectors overrun their unit, and what follows is written after them. */
INLINE void lay_whole_lines(int beyond, float *place, const chain_units *u, const chain_lines *l, const char *source, int format,
                            const decoder *d, magnitudes *met)
{
    uint32_t masks[2 * CHAIN_MASKS];
    for (int64_t unit = 0; unit < 2 * CHAIN_MASKS; unit++)
        masks[unit] = chain_mask(u->low[0], u->high[0], unit * SUM_BLOCK);
    for (int64_t line = 0; line < l->lines; line++, place += l->pitch) {
        if (line < l->first[0] || line >= l->end[0]) {
            clear_chain_line(place, l->pitch);
            continue;
        }
        const char *numbers = at(source, format, line * l->line_stride);
        float *next = place;
        __m512i pairs = decode_unit(numbers, masks[0], format, d, met);
        _mm512_storeu_si512(next, pairs);
        for (int64_t unit = 1; unit < u->units + beyond; unit++) {
            const uint32_t mask = unit < 2 * CHAIN_MASKS ? masks[unit] : chain_mask(u->low[0], u->high[0], unit * SUM_BLOCK);
            __m512i before = pairs;
            pairs = decode_unit(at(numbers, format, unit * SUM_BLOCK), mask, format, d, met);
            if (beyond)
                _mm512_storeu_si512(next + WIDTH, half_a_unit_further(0, before, pairs));
            next += u->width;
            if (!beyond || unit < u->units)
                _mm512_storeu_si512(next, pairs);
        }
    }
}

/* The same of codes that are looked up, two units at a time.  Units of other numbers take longer that way. */
INLINE void lay_looked_up(int beyond, float *place, const chain_units *u, const chain_lines *l, const char *source, int format,
                          const decoder *d, magnitudes *met)
{
    const two_unit_masks masks = begin_two_unit_masks(u->low[0], u->high[0], u->units + beyond);
    for (int64_t line = 0; line < l->lines; line++, place += l->pitch) {
        if (line < l->first[0] || line >= l->end[0]) {
            clear_chain_line(place, l->pitch);
            continue;
        }
        const char *numbers = at(source, format, line * l->line_stride);
        float *next = place;
        __m512i before = _mm512_setzero_si512(), unit[2];
        for (int64_t i = 0; i < u->units + beyond; i += 2, next += 2 * u->width) {
            decode_two_units(1, numbers, &masks, i / 2, format, d, met, unit);
            if (beyond && i > 0)
                _mm512_storeu_si512(next - u->width + WIDTH, half_a_unit_further(1, before, unit[0]));
            if (i == u->units)
                break;
            _mm512_storeu_si512(next, unit[0]);
            if (beyond)
                _mm512_storeu_si512(next + WIDTH, half_a_unit_further(1, unit[0], unit[1]));
            if (i + 1 < u->units)
                _mm512_storeu_si512(next + u->width, unit[1]);
            before = unit[1];
        }
    }
}

/* The codes of one unit of a line and of the next line, those that the masks tell. */
INLINE __m512i codes_of_two_lines(const char *line, uint32_t mask, const char *next, uint32_t next_mask)
{
    __m512i codes = _mm512_castsi256_si512(_mm256_maskz_loadu_epi8(mask, line));
    return _mm512_inserti64x4(codes, _mm256_maskz_loadu_epi8(next_mask, next_mask ? next : line), 1);
}

/* Lines of one unit of 8-bit codes, two at a time. */
INLINE void lay_lines_of_one_unit(float *place, const chain_units *u, const chain_lines *l, const char *source, int format, const decoder *d)
{
    const uint32_t mask = chain_mask(u->low[0], u->high[0], 0);
    for (int64_t line = 0; line < l->lines; line += 2, place += 2 * l->pitch) {
        const char *first = at(source, format, line * l->line_stride);
        const uint32_t taken = line >= l->first[0] && line < l->end[0] ? mask : 0;
        const uint32_t next = line + 1 >= l->first[0] && line + 1 < l->end[0] ? mask : 0;
        __m512i unit[2];
        look_up_two_units(codes_of_two_lines(first, taken, at(first, format, l->line_stride), next), format, d, unit);
        _mm512_storeu_si512(place, unit[0]);
        if (line + 1 < l->lines)
            _mm512_storeu_si512(place + l->pitch, unit[1]);
    }
}

/* Lines whose pairs lie within them, of any numbers. */
INLINE void lay_lines_once(int looked_up, float *place, const chain_units *u, const chain_lines *l, const char *source, int format,
                           const decoder *d, magnitudes *met)
{
    if (!looked_up && u->past > 0)
        lay_whole_lines(1, place, u, l, source, format, d, met);
    else if (!looked_up)
        lay_whole_lines(0, place, u, l, source, format, d, met);
    else if (u->past > 0)
        lay_looked_up(1, place, u, l, source, format, d, met);
    else if (u->units > 1)
        lay_looked_up(0, place, u, l, source, format, d, met);
    else
        lay_lines_of_one_unit(place, u, l, source, format, d);
}

/* Other lines, unit after unit. */
INLINE void lay_units(float *place, const chain_units *u, const chain_lines *l, const char *start, int format, const decoder *d,
                      magnitudes *met)
{
    for (int64_t unit = 0; unit < u->units; unit++)
        for (int64_t i = 0;;) {
            const int64_t number = (unit * u->reach + i) * u->step;
            if (i == 0 || unit + 1 == u->units || !u->whole)
                lay_vectors(1, place + unit * u->ways * u->width + i, u, l, start, number, format, d, met);
            else /* the next unit has these numbers too */
                lay_vectors(0, place + unit * u->ways * u->width + i, u, l, start, number, format, d, met);
            if (i + WIDTH >= u->width)
                break;
            i = i + 2 * WIDTH <= u->width ? i + WIDTH : u->width - WIDTH; /* the last vectors overlap: none goes beyond a unit */
        }
}

INLINE void lay_chains_format(float *block, const chain_units *u, const chain_lines *l, const char *source, int format, uint16_t *smallest)
{
    const decoder d = decoder_of(format);
    const int once = u->step == 1 && u->whole && u->past <= WIDTH, looked_up = once && code_size(format) == 1 && byte_look_ups;
    magnitudes met = none_met;
    for (int64_t part = 0; part < l->channels * l->images; part++) {
        const int64_t channel = part / l->images, image = part % l->images;
        const char *start = at(source, format, channel * l->channel_stride + image * l->image_stride);
        float *place = block + channel * l->channel_pitch + image * l->image_pitch;
        if (looked_up && format == NUMBER_HIFLOAT8)
            lay_lines_once(1, place, u, l, start, NUMBER_HIFLOAT8, &d, &met);
        else if (looked_up) /* the others differ in tables alone */
            lay_lines_once(1, place, u, l, start, NUMBER_FLOAT8_E4M3FN, &d, &met);
        else if (once)
            lay_lines_once(0, place, u, l, start, format, &d, &met);
        else
            lay_units(place, u, l, start, format, &d, &met);
        for (int64_t i = 0; i < u->past; i += WIDTH)
            _mm512_storeu_si512(place + l->lines * l->pitch + i, _mm512_setzero_si512());
    }
    if (looked_up)
        note_bytes(smallest);
    note_smallest(smallest, &met);
}

static void SUFFIX(lay_chains)(float *block, const chain_units *u, const chain_lines *l, const void *source, int format, uint16_t *smallest)
{
    const chain_units units = *u;
    const chain_lines lines = *l;
    if (format == NUMBER_BFLOAT16 && units.step == 1 && units.whole)
        lay_chains_format(block, &units, &lines, source, NUMBER_BFLOAT16, smallest);
    else if (format == NUMBER_BFLOAT16 && units.step == 1)
        lay_chains_format(block, &units, &lines, source, NUMBER_BFLOAT16, smallest);
    else if (format == NUMBER_BFLOAT16)
        lay_chains_format(block, &units, &lines, source, NUMBER_BFLOAT16, smallest);
    else
        lay_chains_format(block, &units, &lines, source, format, smallest);
}

INLINE void chain_tile_body(int rows, int columns, float *sums, ptrdiff_t row_sums, ptrdiff_t column_sums, const float *large,
                            ptrdiff_t large_channel, ptrdiff_t large_line, ptrdiff_t large_unit, const float *small,
                            ptrdiff_t small_channel, int64_t lines, int64_t units)
{
    vector sum[DOT_TILE][DOT_COLUMNS];
    load_dot_sums(rows, columns, sum, sums, row_sums, column_sums);
    for (int64_t y = 0; y < lines; y++) {
        const float *b = large + y * large_line;
        for (int64_t unit = 0; unit < units; unit++) {
            vector factor[DOT_TILE];
#pragma GCC unroll 4
            for (int m = 0; m < rows; m++) {
                factor[m] = *(const vector *)(small + m * small_channel);
                KEEP(factor[m]);
            }
#pragma GCC unroll 8
            for (int c = 0; c < columns; c++) {
                vector lanes = *(const vector *)(b + c * large_channel);
                KEEP(lanes);
#pragma GCC unroll 4
                for (int m = 0; m < rows; m++)
                    sum[m][c] = MULTIPLY_ADD_PAIRS(lanes, factor[m], sum[m][c]);
            }
            small += WIDTH;
            b += large_unit;
        }
    }
    store_dot_sums(rows, columns, sum, sums, row_sums, column_sums);
}

#define CHAIN_TILE(rows, columns)                                                                                             \
    static void SUFFIX(chain_tile_##rows##_##columns)(                                                                        \
        float *sums, ptrdiff_t row_sums, ptrdiff_t column_sums, const float *large, ptrdiff_t large_channel,                  \
        ptrdiff_t large_line, ptrdiff_t large_unit, const float *small, ptrdiff_t small_channel, int64_t lines, int64_t units) \
    {                                                                                                                         \
        chain_tile_body(rows, columns, sums, row_sums, column_sums, large, large_channel, large_line, large_unit, small,      \
                        small_channel, lines, units);                                                                         \
    }
DOT_SIZES(CHAIN_TILE)
