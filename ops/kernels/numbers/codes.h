/* Tables of the 8-bit formats, one row each: E4M3FN, E5M2, HiFloat8. */
#ifndef CONVREG_CODES_H
#define CONVREG_CODES_H

#include <stdint.h>

extern float code_values[3][256];
extern uint16_t code_magnitudes[3][128]; /* bfloat16 codes of the numbers without sign: all 8-bit numbers are bfloat16 numbers */
extern uint8_t code_bytes[3][2][128];    /* the lower and the upper bytes of these */

/* To be called once, before any table is read. */
void prepare_codes(void);

#endif
