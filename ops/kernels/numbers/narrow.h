/* The one statement of how a float64 becomes a float32, under any rounding, and of the random numbers of stochastic rounding:
 * on lanes of 64 bits, as `numbers/encode.h` is on lanes of 32.  The includer defines
 *
 *     WIDE, LANES(name)        64 unsigned bits in each lane; the name of a function for these lanes
 *     WIDE_ALL(x), WIDE_LEFT(a, n), WIDE_RIGHT(a, n)  shifts by the count of each lane: 0 from 64 on
 *     WIDE_ABOVE(a, b)         a > b, of numbers below 2**63
 *     WIDE_CHOOSE(test, a, b)
 *     WIDE_PRODUCT(a, factor)  of the lower 32 bits and a constant
 */

/* The float32 bits of a float64: finite numbers beyond the range become infinite, or the largest finite float where the
 * rounding never passes it.  NaN stays one.  `random` has 32 bits. */
LANE_INLINE WIDE LANES(narrow)(WIDE bits, WIDE random, int rounding, int saturate)
{
    const uint64_t one = (uint64_t)1 << 52, lowest = 897 * one, infinity = 2047 * one; /* lowest: 2**-126 */
    int passes = !saturate && rounding != TOWARD_ZERO && rounding != TO_ODD;
    WIDE magnitude = bits & 0x7fffffffffffffffu, grid = magnitude & infinity, number, cut, kept, half;
    grid = WIDE_CHOOSE(WIDE_ABOVE(grid, WIDE_ALL(lowest)), WIDE_ALL(lowest), grid);
    grid = WIDE_CHOOSE(WIDE_ABOVE(WIDE_ALL(one), grid), WIDE_ALL(one), grid);
    number = magnitude + one - grid;
    cut = 926u - (grid >> 52);
    kept = WIDE_RIGHT(number, cut);
    half = WIDE_LEFT(WIDE_ALL(1u), cut - 1u);
    if (rounding == TO_ODD)
        kept = WIDE_CHOOSE(WIDE_ABOVE(number, WIDE_LEFT(kept, cut)), kept | 1u, kept);
    else if (rounding == NEAREST_EVEN)
        kept = WIDE_RIGHT(number + half + (kept & 1u) - 1u, cut);
    else if (rounding == HALF_AWAY)
        kept = WIDE_RIGHT(number + half, cut);
    else if (rounding == STOCHASTIC) {
        WIDE fraction = WIDE_LEFT(number, 64u - cut) | WIDE_RIGHT(number, cut - 64u);
        kept = WIDE_CHOOSE(WIDE_ABOVE(fraction >> 32, random), kept + 1u, kept);
    }
    half = WIDE_ALL(passes ? 0x7f800000u : 0x7f7fffffu);
    kept = WIDE_CHOOSE(WIDE_ABOVE(kept, half), half, kept);
    if (!passes && !saturate)
        kept = WIDE_CHOOSE(WIDE_ABOVE(magnitude, WIDE_ALL(infinity - 1u)), WIDE_ALL(0x7f800000u), kept);
    kept = WIDE_CHOOSE(WIDE_ABOVE(magnitude, WIDE_ALL(infinity)), WIDE_ALL(0x7fc00000u), kept);
    return kept | (bits >> 32 & 0x80000000u);
}

/* Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011), of key `seed` and counter
 * (counter, stream): four words, each in the lower 32 bits of a lane. */
LANE_INLINE void LANES(draw)(WIDE *word, WIDE counter, uint64_t seed, uint32_t stream)
{
    WIDE a = counter, b = counter >> 32, c = WIDE_ALL(stream), d = WIDE_ALL(0u);
    uint32_t low = (uint32_t)seed, high = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        WIDE p = WIDE_PRODUCT(a, 0xD2511F53u), q = WIDE_PRODUCT(c, 0xCD9E8D57u);
        a = (q >> 32) ^ b ^ WIDE_ALL(low);
        c = (p >> 32) ^ d ^ WIDE_ALL(high);
        b = q;
        d = p;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    word[0] = a;
    word[1] = b;
    word[2] = c;
    word[3] = d;
}
