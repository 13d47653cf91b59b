"""Calls that come again take the algorithm that was measured to be the fastest, and give the same bits meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from c_programs import compiled
from convreg.ops.kernels import engine

import convreg

LAYER = {"strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1], "data_format": "NCX",
         "weights_format": "OIX"}
FORMATS = ["float32", "bfloat16", "float16"]
ENOUGH = 60
"""Calls after which no trial is open."""

RULES = """
#include <stdio.h>
#include <stdlib.h>
#include "trials.h"
/* Estimates, then times of the algorithms; prints what runs, and a dot once it is settled. */
int main(int count, char **numbers)
{
    double cycles[TRIAL_ALGORITHMS], seconds[TRIAL_ALGORITHMS];
    int algorithms = (count - 2) / 2;
    uint64_t key = strtoull(numbers[1], NULL, 10);
    for (int i = 0; i < algorithms; i++) {
        cycles[i] = atof(numbers[2 + i]);
        seconds[i] = atof(numbers[2 + algorithms + i]);
    }
    for (int call = 0; call < 40 && settled_trial(key) < 0; call++) {
        int next = next_trial(key, cycles, algorithms);
        if (settled_trial(key) < 0)
            note_trial(key, next, seconds[next]);
        printf("%d", next);
        /* problems that take the places beside this one and then its own */
        for (int i = 1; key % 2 && call == 2 && i <= TRIAL_PLACES; i++)
            next_trial(key + i * TRIAL_PROBLEMS, cycles, algorithms);
    }
    printf(" %d %d\\n", settled_trial(key), trial_key(key, 1) == trial_key(key, 2));
    forget_trials();
    printf("%d\\n", settled_trial(key));
    return 0;
}
"""


@pytest.fixture(autouse=True)
def _fresh():
    """No time is known, before and after."""
    before = engine.trials()
    engine.try_algorithms(True)
    yield
    engine.try_algorithms(before)


def gradients(dtype, threads=2):
    """The call and the inquiry of both gradients of a layer that several algorithms fit."""
    gen = np.random.default_rng(0)
    dy, x, w = (convreg.quantize(gen.standard_normal(shape).astype(np.float32), dtype)
                for shape in ((2, 24, 20, 20), (2, 32, 20, 20), (24, 32, 3, 3)))
    for function, operands in ((convreg.onednn.convolution_backward_data, (dy, w, x.shape)),
                               (convreg.onednn.convolution_backward_weights, (x, dy, w.shape))):
        call = partial(function, *operands, **LAYER, threads=threads)
        yield call, partial(convreg.algorithm, function, *operands, **LAYER, threads=threads)


def tried(choice):
    return [one for one in choice.candidates if one.seconds is not None]


def in_pairs(choice):
    """The candidates but for those that could take pairs and do not."""
    paired = {one.name for one in choice.candidates if one.unit != "multiply-adds"}
    return [one for one in choice.candidates if one.unit != "multiply-adds" or one.name not in paired]


def counted(choice):
    """The estimates that count in trials."""
    least = in_pairs(choice)[0].cycles
    return {one: one.cycles if one in in_pairs(choice) else 1.1 * least for one in tried(choice)}


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_fastest_runs_in_the_end(dtype):
    for call, inquire in gradients(dtype):
        first, = inquire()
        assert (first.name, first.unit) == (in_pairs(first)[0].name, in_pairs(first)[0].unit)
        assert not tried(first)
        results = {np.asarray(call()).tobytes()}
        after, = inquire()
        assert [one.name for one in tried(after)] in ([first.name], [])  # where one algorithm is near, none is timed
        results |= {np.asarray(call()).tobytes() for _ in range(ENOUGH)}
        assert len(results) == 1
        last, = inquire()
        if tried(last):
            estimates = counted(last)
            fastest = min(estimates, key=lambda one: one.seconds * estimates[one] ** 0.25)
            assert (last.name, last.unit) == (fastest.name, fastest.unit)
            least = in_pairs(last)[0].cycles
            assert all(one.cycles <= (2 if one in in_pairs(last) else 2.5) * least for one in tried(last))
        assert inquire()[0] == last


def test_products_without_pairs_are_tried():
    """Of 2x2x2 results with strides, pairs are laid out in pieces of two numbers, and multiply-adds take less time."""
    gen = np.random.default_rng(0)
    x, dy = (convreg.quantize(gen.standard_normal(shape).astype(np.float32), "bfloat16")
             for shape in ((8, 64, 4, 4, 4), (8, 144, 2, 2, 2)))
    arguments = x, dy, (144, 64, 3, 3, 3)
    settings = {"strides": [2] * 3, "pads_begin": [1] * 3, "pads_end": [1] * 3, "dilations": [1] * 3,
                "data_format": "NCX", "weights_format": "OIX"}
    call = partial(convreg.onednn.convolution_backward_weights, *arguments, **settings)
    results = {np.asarray(call()).tobytes() for _ in range(ENOUGH)}
    with convreg.force_algorithm("reference"):
        results.add(np.asarray(call()).tobytes())
    assert len(results) == 1
    choice, = convreg.algorithm(call.func, *arguments, **settings)
    if choice.candidates != tuple(in_pairs(choice)):  # the instruction set has pairs
        assert {one.unit for one in tried(choice)} > {"multiply-adds"}


def test_some_call_tries_several():
    """The tests of this file do not pass because nothing is ever tried."""
    numbers = []
    for dtype in FORMATS:
        for call, inquire in gradients(dtype):
            for _ in range(ENOUGH):
                call()
            numbers.append(len(tried(inquire()[0])))
    assert max(numbers) > 1


def test_workspace_bytes_covers_what_is_tried():
    for call, inquire in gradients("float32"):
        for _ in range(ENOUGH):
            call()
        told = convreg.workspace_bytes(call.func, *call.args, **call.keywords)
        assert all(one.workspace <= told for one in tried(inquire()[0]))


def test_without_trials_the_lowest_estimate_runs():
    engine.try_algorithms(False)
    for call, inquire in gradients("float32"):
        for _ in range(ENOUGH):
            call()
        choice, = inquire()
        assert choice.name == choice.candidates[0].name  # float32 has no pairs
        assert not tried(choice)


@pytest.mark.parametrize("tiny", [False, True])
def test_refused_pairs_settle_too(tiny):
    """Sums that may be subnormal are not taken in pairs: each call repeats them, and trials end all the same."""
    gen = np.random.default_rng(0)
    x, dy = (gen.standard_normal(shape).astype(np.float32) for shape in ((3, 24, 40, 40), (3, 6, 40, 40)))
    dtype = convreg.quantize(x, "bfloat16").dtype
    x, dy = (np.where(gen.random(array.shape) < 0.01, 1e-39 if tiny else 0, array).astype(dtype) for array in (x, dy))
    arguments = x, dy, (6, 24, 3, 3)
    results = {np.asarray(convreg.onednn.convolution_backward_weights(*arguments, **LAYER)).tobytes()
               for _ in range(ENOUGH)}
    with convreg.force_algorithm("reference"):
        results.add(np.asarray(convreg.onednn.convolution_backward_weights(*arguments, **LAYER)).tobytes())
    assert len(results) == 1
    choice, = convreg.algorithm("onednn::ConvolutionBackwardWeights", *arguments, **LAYER)
    assert all(0 < one.seconds < 60 for one in tried(choice))


def test_forced_calls_are_not_timed():
    for call, inquire in gradients("float32"):
        name = inquire()[0].candidates[-1].name
        with convreg.force_algorithm(name):
            for _ in range(ENOUGH):
                call()
            assert inquire()[0].name == name
        assert not tried(inquire()[0])


def test_threads_may_try_at_the_same_time():
    for call, inquire in gradients("float32", threads=1):
        with ThreadPoolExecutor(4) as pool:
            results = {result.tobytes() for result in pool.map(lambda _, call=call: call(), range(4 * ENOUGH))}
        assert len(results) == 1
        assert inquire()[0].name in convreg.algorithm_names()


@pytest.mark.parametrize(("arguments", "runs", "settled"), [
    ("2  30 10 20  5e-4 3e-4 4e-4", "112211001122111", 1),  # 5 is more than twice 3, weighed; then 4 is too far
    ("2  30 10 20  5 3 4", "112110112111", 1),              # long calls, slow ones once in a turn
    ("2  30 10 20  5 3 3.1", "1122110112211221", 1),
    # the lowest estimate runs again though it is far from the fastest
    ("2  30 10 20  1 3 9", "1121100001001000", 0),
    ("2  0 10 0  1 3 9", "111111111", 1),                   # 0: no candidate
    ("4  10 11  3 2", "00110011001100111", 1),
    ("4  10 11  1e30 2", "00110110110111", 1),              # what always fails is left in the end
    ("2  11 10  2.95 3", "11001100110011001", 1),           # a little faster, with a higher estimate
    ("3  30 10 20  5 3 4", "112112110112111", 1),           # other problems take its place after three calls
])
def test_the_rules(tmp_path, arguments, runs, settled):
    program = compiled(tmp_path, RULES)
    done = subprocess.run([program, *arguments.split()], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == [runs, str(settled), "0", "-1"]


REPEATED = """
#include <stdio.h>
#include <stdlib.h>
#include "trials.h"
/* Times of two algorithms while other programs disturb them, and afterwards; prints the settled algorithm after each
 * repetition of the last round, and the number of calls until then. */
int main(int count, char **numbers)
{
    double cycles[2] = {10, 11};
    double disturbed[2] = {atof(numbers[1]), atof(numbers[2])}, seconds[2] = {atof(numbers[3]), atof(numbers[4])};
    int settled = 0, before = 0;
    for (int call = 0; call < 800; call++) {
        int next = call_settled(7);
        if (next < 0) {
            next = next_trial(7, cycles, 2);
            note_trial(7, next, settled ? seconds[next] : disturbed[next]);
            before++;
        } else if (before) {
            printf("%d %d ", call, settled_trial(7));
            settled = 1;
            before = 0;
        }
    }
    return 0;
}
"""


@pytest.mark.parametrize(("times", "calls"), [
    # 16, 64 and 256 calls of the fastest lie between repetitions of three calls: two of the lowest estimate, which
    # leaves the other one no turn, and one that finds the fastest
    ("1 2 1 2", "10 0 29 0 96 0 355 0"),
    ("2.5 2 1 2", "17 1 36 0 103 0 362 0"),  # the lowest estimate was disturbed
])
def test_the_last_round_is_repeated(tmp_path, times, calls):
    program = compiled(tmp_path, REPEATED)
    done = subprocess.run([program, *times.split()], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == calls


@pytest.mark.parametrize(("value", "trials", "warns"), [("0", False, False), ("1", True, False), ("", True, False),
                                                       ("no", True, True)])
def test_the_environment_decides(value, trials, warns):
    done = subprocess.run([sys.executable, "-c", "import convreg; print(convreg.capabilities()['trials'])"],
                          env={**os.environ, "CONVREG_TRIALS": value}, capture_output=True, text=True, check=True,
                          timeout=60)
    assert done.stdout.split() == [str(trials)]
    assert ("CONVREG_TRIALS='no' is neither 0 nor 1" in done.stderr) == warns
