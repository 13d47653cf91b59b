/* Stored numbers copied as they are. */
#ifndef CONVREG_COPY_CODES_H
#define CONVREG_COPY_CODES_H

#include <stdint.h>
#include <string.h>

/* `bytes` bytes, the last of them twice where that saves steps. */
static inline void copy_bytes(char *place, const char *source, int64_t bytes)
{
    if (bytes >= 32) {
        for (int64_t i = 0; i < bytes - 32; i += 32)
            memcpy(place + i, source + i, 32);
        memcpy(place + bytes - 32, source + bytes - 32, 32);
    } else if (bytes >= 16) {
        memcpy(place, source, 16);
        memcpy(place + bytes - 16, source + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(place, source, 8);
        memcpy(place + bytes - 8, source + bytes - 8, 8);
    } else
        for (int64_t i = 0; i < bytes; i++)
            place[i] = source[i];
}

static inline void copy_apart(char *place, const char *source, int64_t count, int64_t step, int64_t size)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(place + size * i, source + size * step * i, size);
}

/* `count` codes of 1 or 2 bytes, `step` apart in the source. */
static inline void copy_codes(char *place, const char *source, int64_t count, int64_t step, int64_t size)
{
    if (step == 1)
        copy_bytes(place, source, count * size);
    else if (size == 2 && step == 2) /* steps that compilers know are taken in vectors */
        copy_apart(place, source, count, 2, 2);
    else if (size == 2)
        copy_apart(place, source, count, step, 2);
    else if (step == 2)
        copy_apart(place, source, count, 2, 1);
    else
        copy_apart(place, source, count, step, 1);
}

#endif
