/* Opens a region compiled for the instruction set TARGET (a string) without any compiler flag; simd/end_target.h closes it.
 * System headers go before it. */
#define TARGET_PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define TARGET_REGION(t) TARGET_PRAGMA(clang attribute push(__attribute__((target(t))), apply_to = function))
#else
#define TARGET_REGION(t) TARGET_PRAGMA(GCC target(t))
#pragma GCC push_options
#endif
TARGET_REGION(TARGET)
