/* The data gradient of a convolution, as somebody has just written it: dx from dy and w, channels before space.

   dx (n, c, h, w), dy (n, m, oh, ow), w (m, c, kh, kw), one stride and one padding for both axes.
   Compiled with -DFIXED it has no bug. */

#ifdef FIXED
#define ROWS oh
#else
#define ROWS (oh - 1) /* off by one: the last row of dy is never read */
#endif

void data_gradient(const float *dy, const float *w, float *dx, int n, int c, int h, int wd, int m, int oh, int ow,
                   int kh, int kw, int stride, int padding)
{
    for (int b = 0; b < n; b++)
        for (int ci = 0; ci < c; ci++)
            for (int y = 0; y < h; y++)
                for (int x = 0; x < wd; x++) {
                    float sum = 0;
                    for (int co = 0; co < m; co++)
                        for (int ky = 0; ky < kh; ky++)
                            for (int kx = 0; kx < kw; kx++) {
                                int row = y + padding - ky, column = x + padding - kx;
                                if (row < 0 || column < 0 || row % stride || column % stride)
                                    continue;
                                row /= stride;
                                column /= stride;
                                if (row >= ROWS || column >= ow)
                                    continue;
                                sum += dy[((b * m + co) * oh + row) * ow + column] *
                                       w[((co * c + ci) * kh + ky) * kw + kx];
                            }
                    dx[((b * c + ci) * h + y) * wd + x] = sum;
                }
}
