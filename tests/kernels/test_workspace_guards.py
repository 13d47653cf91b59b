"""Guards between the buffers of a call's workspace, which `engine.guard_workspace` puts there for tests."""

from __future__ import annotations

import subprocess

import ml_dtypes
import numpy as np
import pytest
from c_programs import compiled
from convreg.ops.kernels import engine
from valid_calls import VALID

import convreg


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_guards_take_room_and_change_no_bit(dtype):
    call = VALID["aten::convolution_backward"]
    tensors = [array.astype(dtype) for array in call.tensors]
    plain = convreg.workspace_bytes(call.name, *tensors, **call.arguments)
    expected = convreg.get(call.name)(*tensors, **call.arguments)
    engine.guard_workspace(True)
    try:
        assert convreg.workspace_bytes(call.name, *tensors, **call.arguments) > plain
        results = convreg.get(call.name)(*tensors, **call.arguments)
    finally:
        engine.guard_workspace(False)
    assert convreg.workspace_bytes(call.name, *tensors, **call.arguments) == plain
    for result, wanted in zip(results, expected, strict=True):
        assert np.array_equal(result.view("u1"), wanted.view("u1"))


OVERRUNS = r"""
#include "workspace.h"

/* Prints for each place whether it is outside of the buffers, and whether a byte written there is found: the first and
 * the last byte of each of three buffers, the bytes before and after it, the last byte of the guard after it. */
int main(void)
{
    set_workspace_guarded(1);
    for (int number = 0; number < 3; number++)
        for (int place = 0; place < 5; place++) {
            int64_t sizes[3] = {100, 0, 4096};
            workspace w = {NULL, 0, 0, 0};
            char *buffers[3];
            for (int i = 0; i < 3; i++)
                take(&w, sizes[i]);
            w = (workspace){take_workspace(w.used), 0, w.used, 0};
            for (int i = 0; i < 3; i++) {
                buffers[i] = take(&w, sizes[i]);
                memset(buffers[i], GUARD_BYTE, sizes[i]);
            }
            int64_t at[5] = {0, sizes[number] - 1, -1, sizes[number], (sizes[number] + 63) / 64 * 64 + GUARD_BYTES - 1};
            int inside = place < 2;
            if ((inside && sizes[number] == 0) || (place == 2 && number == 0))
                continue; /* no byte, or none of the workspace */
            buffers[number][at[place]] ^= 1;
            printf("%d %d\n", !inside, workspace_overrun(&w));
            return_workspace(w.base);
        }
    return 0;
}
"""


ROOM = r"""
#include "workspace.h"

/* Ends if `argv[1]` bytes from byte `argv[2]` of the second of three buffers, of 100 bytes each, are not all inside. */
int main(int argc, char **argv)
{
    workspace w = {NULL, 0, 0, 0};
    char *second;
    set_workspace_guarded(1);
    for (int i = 0; i < 3; i++)
        take(&w, 100);
    w = (workspace){take_workspace(w.used), 0, w.used, 0};
    take(&w, 100);
    second = take(&w, 100);
    take(&w, 100);
    enter_workspace(&w);
    check_room("main", second + atoi(argv[2]), atoi(argv[1]));
    leave_workspace();
    check_room("main", second, 0);
    puts("inside");
    return 0;
}
"""


def test_guards_find_a_byte_beside_a_buffer(tmp_path):
    done = subprocess.run([compiled(tmp_path, OVERRUNS)], capture_output=True, text=True, check=True, timeout=60)
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(found) == 12
    assert all(stray == seen for stray, seen in found)


def test_a_write_beyond_a_buffer_ends_the_process(tmp_path):
    program = compiled(tmp_path, ROOM)
    for size, start, inside in [(100, 0, True), (1, 99, True), (0, 200, True), (101, 0, False), (1, 100, False),
                                (1, -1, False), (2, 99, False), (1, 256, False), (1, 100000, False)]:
        done = subprocess.run([program, str(size), str(start)], capture_output=True, text=True, timeout=60)
        assert (done.returncode == 0 and done.stdout == "inside\n") == inside, (size, start)
        assert inside or f"main writes {size} bytes beyond a buffer" in done.stderr
