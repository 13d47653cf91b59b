/* Ends what the lanes of numbers/encode.h define. */
#undef LANE
#undef LANE_TEST
#undef LANE_INLINE
#undef LANES
#undef ALL
#undef LEFT
#undef RIGHT
#undef LARGER
#undef SMALLER
#undef ABOVE
#undef ABOVE_UNSIGNED
#undef CHOOSE
#undef ADD_WHERE
#undef LOOK_UP
#undef TO_HALF
