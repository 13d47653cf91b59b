#include "numbers/codes.h"

#include "numbers/numbers.h"

float code_values[3][256];
uint16_t code_magnitudes[3][128];
uint8_t code_bytes[3][2][128];

void prepare_codes(void)
{
    for (int row = 0; row < 3; row++)
        for (int code = 0; code < 256; code++) {
            float value = decode8((uint8_t)code, NUMBER_FLOAT8_E4M3FN + row);
            uint16_t bfloat16 = (uint16_t)(float_bits(value) >> 16);
            code_values[row][code] = value;
            if (code < 128) {
                code_magnitudes[row][code] = bfloat16;
                code_bytes[row][0][code] = (uint8_t)bfloat16;
                code_bytes[row][1][code] = (uint8_t)(bfloat16 >> 8);
            }
        }
}
