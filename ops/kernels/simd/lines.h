/* One row of outputs along whole lines: included by simd/tile.h. */
INLINE void lines_body(const tile_run *runs, ptrdiff_t run_count, const float *rows, const float *lanes, ptrdiff_t lane_pitch,
                       ptrdiff_t line_pitch, int64_t lines, int64_t count, float *target, ptrdiff_t target_pitch, float bias,
                       int pairs)
{
    /* ROWS vectors at a time, counted along a line and then down the lines; the last are repeated where they run out. */
    int64_t across = (count + WIDTH - 1) / WIDTH, total = lines * across;
    for (int64_t first = 0, y = 0, x = 0; first < total; first += ROWS) {
        const float *place[ROWS];
        float *result[ROWS];
        int64_t left[ROWS];
#pragma GCC unroll 8
        for (int s = 0; s < ROWS; s++) {
            place[s] = lanes + y * line_pitch + x * WIDTH;
            result[s] = target + y * target_pitch + x * WIDTH;
            left[s] = count - x * WIDTH;
            if (first + s + 1 < total && ++x == across) {
                x = 0;
                y++;
            }
        }
        vector sum[ROWS];
#pragma GCC unroll 8
        for (int s = 0; s < ROWS; s++)
            sum[s] = (vector){0};
        for (ptrdiff_t r = 0; r < run_count; r++) {
            const float *a = rows + runs[r].rows;
            ptrdiff_t b = runs[r].lanes;
            for (ptrdiff_t k = runs[r].steps; k > 0; k--) {
                vector weight = BROADCAST(*a);
#pragma GCC unroll 8
                for (int s = 0; s < ROWS; s++)
                    sum[s] = pairs ? MULTIPLY_ADD_PAIRS(weight, *(const vector *)(place[s] + b), sum[s])
                                   : MULTIPLY_ADD(weight, *(const vector *)(place[s] + b), sum[s]);
                a += ROWS;
                b += lane_pitch;
            }
        }
#pragma GCC unroll 8
        for (int s = 0; s < ROWS; s++) {
            vector done = sum[s] + BROADCAST(0.0f) + BROADCAST(bias);
            if (left[s] >= WIDTH)
                *(vector *)result[s] = done;
            else
                STORE_PART(result[s], left[s], done);
        }
    }
}

static void SUFFIX(lines)(const tile_run *runs, ptrdiff_t run_count, const float *rows, const float *lanes, ptrdiff_t lane_pitch,
                          ptrdiff_t line_pitch, int64_t lines, int64_t count, float *target, ptrdiff_t target_pitch, float bias)
{
    lines_body(runs, run_count, rows, lanes, lane_pitch, line_pitch, lines, count, target, target_pitch, bias, 0);
}
