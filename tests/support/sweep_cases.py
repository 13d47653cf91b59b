"""Cases of sweeps: some small layers in different operators."""

from __future__ import annotations

import numpy as np

from convreg.numerics import Case, Drawn

ASCEND = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]}
ONEDNN = {"strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1], "data_format": "NCX",
          "weights_format": "OIX"}
FORMATS = ("bfloat16", "hifloat8", "float8_e5m2")


def numerics_cases(count=6):
    """Operands that are drawn, and operands that are carried."""
    cases = {}
    for number in range(count):
        size = 6 + number
        dy, x, w = (2, 8, size, 6), (2, 4, size, 6), (8, 4, 3, 3)
        drawn = [Drawn("lognormal", dy, 1 + number), Drawn("relu", x, 2), Drawn("normal", w, 3, 0.25)]
        if number % 3 == 0:
            cases[f"ascend {number}"] = Case("ascend::ConvolutionBackward", drawn, ASCEND)
        elif number % 3 == 1:
            arrays = [drawn[0].array(), drawn[2].array(), list(x)]
            cases[f"carried {number}"] = Case("onednn::ConvolutionBackwardData", arrays, ONEDNN)
        else:
            named = {"src": drawn[1], "diff_dst": np.float64(drawn[0].array()), "weights_shape": w}
            cases[f"named {number}"] = Case("onednn::ConvolutionBackwardWeights", named, ONEDNN)
    return cases
