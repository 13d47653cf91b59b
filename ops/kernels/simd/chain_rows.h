/* Chains of one channel of either side, of taps that lie side by side: the large side is decoded as it is met, not laid out first.
 * Included by simd/pairs.h after simd/chain_taps.h, whose sums these are. */

/* What a unit and the next hold, against the same unit of a line of the small side for each row of taps. */
INLINE void chain_rows_unit(int rows, int columns, int inside, int format, vector (*sum)[NCX_COLUMNS], __m512i here, __m512i next,
                            const float *small, ptrdiff_t small_line, int64_t line, int64_t lines, int64_t apart)
{
    const __m512i further = columns > 1 ? half_a_unit_further(format != NUMBER_BFLOAT16, here, next) : here;
    vector lanes[NCX_COLUMNS] = {(vector)here};
#define FURTHER(t)                                                      \
    if (columns > t) {                                                  \
        lanes[t] = (vector)_mm512_alignr_epi32(further, here, t);       \
        IN_TURN(lanes[t]);                                              \
    }
    FURTHER(1) FURTHER(2) FURTHER(3) FURTHER(4)
#undef FURTHER
    add_tap_rows(rows, columns, inside, sum, lanes, small, small_line, line, lines, apart);
}

INLINE void chain_rows_line(int rows, int columns, int inside, vector (*sum)[NCX_COLUMNS], const char *numbers, int format,
                            const two_unit_masks *masks, const decoder *d, magnitudes *met, const float *small, ptrdiff_t small_line,
                            int64_t line, int64_t lines, int64_t apart, int64_t units)
{
    const int looked_up = format != NUMBER_BFLOAT16;
    __m512i unit[2], following[2];
    decode_two_units(looked_up, numbers, masks, 0, format, d, met, unit);
    for (int64_t i = 0; i < units; i += 2, small += 2 * WIDTH) {
        decode_two_units(looked_up, numbers, masks, i / 2 + 1, format, d, met, following);
        chain_rows_unit(rows, columns, inside, format, sum, unit[0], unit[1], small, small_line, line, lines, apart);
        if (i + 1 < units)
            chain_rows_unit(rows, columns, inside, format, sum, unit[1], following[0], small + WIDTH, small_line, line, lines,
                            apart);
        unit[0] = following[0];
        unit[1] = following[1];
    }
}

/* Lines of 8-bit codes that have one unit, two at a time. */
INLINE void chain_rows_of_short_lines(int rows, int columns, int format, vector (*sum)[NCX_COLUMNS], const chain_rows *large, uint32_t mask,
                                      const decoder *d, const float *small, ptrdiff_t small_line, int64_t lines, int64_t apart)
{
    const int64_t before = (rows - 1) * apart;
    const __m512i nothing = _mm512_setzero_si512();
    for (int64_t line = large->first; line < large->end; line += 2) {
        const char *numbers = at(large->numbers, format, line * large->line_stride);
        const int both = line + 1 < large->end;
        __m512i unit[2];
        look_up_two_units(codes_of_two_lines(numbers, mask, at(numbers, format, large->line_stride), both ? mask : 0), format, d, unit);
        if (both && line >= before && line + 1 < lines) {
            chain_rows_unit(rows, columns, 1, format, sum, unit[0], nothing, small, small_line, line, lines, apart);
            chain_rows_unit(rows, columns, 1, format, sum, unit[1], nothing, small, small_line, line + 1, lines, apart);
        } else
            for (int i = 0; i <= both; i++)
                chain_rows_unit(rows, columns, 0, format, sum, unit[i], nothing, small, small_line, line + i, lines, apart);
    }
}

INLINE void chain_rows_body(int rows, int columns, int format, float *sums, ptrdiff_t sum_row, const chain_rows *large, const float *small,
                            ptrdiff_t small_line, int64_t lines, int64_t apart, int64_t units, uint16_t *smallest)
{
    const decoder d = decoder_of(large->format);
    const two_unit_masks masks = begin_two_unit_masks(large->low, large->high, units + 2);
    const int64_t before = (rows - 1) * apart;
    magnitudes met = none_met;
    vector sum[NCX_COLUMNS][NCX_COLUMNS];
    load_tap_sums(rows, columns, sum, sums, sum_row);
    if (format != NUMBER_BFLOAT16 && units == 1 && masks.kept[0] >> SUM_BLOCK == 0)
        chain_rows_of_short_lines(rows, columns, format, sum, large, (uint32_t)masks.kept[0], &d, small, small_line, lines, apart);
    else
        for (int64_t line = large->first; line < large->end; line++) {
            const char *numbers = at(large->numbers, format, line * large->line_stride);
            if (line >= before && line < lines)
                chain_rows_line(rows, columns, 1, sum, numbers, format, &masks, &d, &met, small, small_line, line, lines, apart, units);
            else
                chain_rows_line(rows, columns, 0, sum, numbers, format, &masks, &d, &met, small, small_line, line, lines, apart, units);
        }
    store_tap_sums(rows, columns, sum, sums, sum_row);
    if (format == NUMBER_BFLOAT16)
        note_smallest(smallest, &met);
    else
        note_bytes(smallest);
}

/* The formats of 8 bits but HiFloat8 differ in tables alone. */
#define CHAIN_ROWS_OF(rows, columns, format)                                                                                  \
    chain_rows_body(rows, columns, format, sums, sum_row, large, small, small_line, lines, apart, units, smallest)
#define CHAIN_ROWS(rows, columns)                                                                                             \
    static void SUFFIX(chain_rows_##rows##_##columns)(                                                                        \
        float *sums, ptrdiff_t sum_row, const chain_rows *large, const float *small, ptrdiff_t small_line, int64_t lines,     \
        int64_t apart, int64_t units, uint16_t *smallest)                                                                     \
    {                                                                                                                         \
        if (large->format == NUMBER_BFLOAT16)                                                                                 \
            CHAIN_ROWS_OF(rows, columns, NUMBER_BFLOAT16);                                                                    \
        else if (large->format == NUMBER_HIFLOAT8)                                                                            \
            CHAIN_ROWS_OF(rows, columns, NUMBER_HIFLOAT8);                                                                    \
        else                                                                                                                  \
            CHAIN_ROWS_OF(rows, columns, NUMBER_FLOAT8_E4M3FN);                                                               \
    }
TAP_SIZES(CHAIN_ROWS)
