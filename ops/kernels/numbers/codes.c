#include "numbers/codes.h"

#include "numbers/numbers.h"

float code_values[3][256];
uint16_t code_magnitudes[3][128];
uint8_t code_bytes[3][2][128];

void prepare_codes(void)
{
    for (int format = NUMBER_FLOAT8_E4M3FN; format <= NUMBER_HIFLOAT8; format++)
        for (int code = 0; code < 256; code++) {
            float value = decode8((uint8_t)code, format);
            code_values[format - NUMBER_FLOAT8_E4M3FN][code] = value;
            if (code < 128) {
                code_magnitudes[format - NUMBER_FLOAT8_E4M3FN][code] = (uint16_t)(float_bits(value) >> 16);
                code_bytes[format - NUMBER_FLOAT8_E4M3FN][0][code] = (uint8_t)(float_bits(value) >> 16);
                code_bytes[format - NUMBER_FLOAT8_E4M3FN][1][code] = (uint8_t)(float_bits(value) >> 24);
            }
        }
}
