"""The kernels under threads: same bits, concurrent callers, forked processes, default counts."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from convreg.ops import kernels
from emulation import not_emulated
from kernel_cases import Case, bits, call, drawn_arrays, windowed

FORWARD, BACKWARD_WEIGHTS = windowed(kernels.forward), windowed(kernels.backward_weights)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_do_not_show(threads):
    case = Case((2, 2, 5, 3, 9, 31), (2, 2, 3, 2, 4, 15), (2, 3, 5, 2, 3, 3), (1, 2, 2), (1, 1, 1), (0, 1, 1))
    large, small, taps = drawn_arrays(case, 11, np.float32)
    formats = ("float32", "float32", "bfloat16")
    for kernel, first, second, shape in (
        (kernels.forward, large, taps, case.small), (kernels.backward_data, small, taps, case.large),
        (kernels.backward_weights, large, small, case.taps),
    ):
        kernel = windowed(kernel)
        alone = call(kernel, case, first, second, shape, formats, threads=1)
        together = call(kernel, case, first, second, shape, formats, threads=threads)
        np.testing.assert_array_equal(bits(alone), bits(together))


def test_concurrent_calls_do_not_disturb_each_other():
    case = Case((1, 2, 8, 1, 20, 20), (1, 2, 8, 1, 18, 18), (2, 8, 8, 1, 3, 3))
    operands = [drawn_arrays(case, seed, np.float32) for seed in range(8)]

    def work(seed: int, threads: int) -> np.ndarray:
        large, small, taps = operands[seed]
        return np.concatenate([
            call(FORWARD, case, large, taps, case.small, ("float32",) * 3, threads=threads).ravel(),
            call(BACKWARD_WEIGHTS, case, large, small, case.taps, ("float32",) * 3, threads=threads).ravel(),
        ])

    alone = [work(seed, 1) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(work, list(range(8)) * 4, [2, 3] * 16))
    for seed, got in zip(list(range(8)) * 4, together, strict=True):
        np.testing.assert_array_equal(got, alone[seed])


def test_huge_thread_counts_are_harmless():
    case = Case((1,) * 6, (1,) * 6, (1,) * 6)
    one = np.ones(case.large, np.float32)
    assert call(FORWARD, case, one, one, case.small, ("float32",) * 3, threads=10**9) == 1


def run_python(program: str, **environment: str) -> str:
    """The output of a program in a fresh interpreter, warnings included."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env={**os.environ, **environment}, check=True, timeout=60,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ).stdout


FORKING = """
    import os, signal, threading, warnings
    import numpy as np
    from convreg.geometry import Window
    from convreg.ops import kernels
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of fork beside threads: that is the test

    def run():
        large, taps = np.ones((1, 1, 4, 1, 40, 40), "f"), np.ones((1, 4, 4, 1, 3, 3), "f")
        small = np.zeros((1, 1, 4, 1, 38, 38), "f")
        kernels.forward(large, taps, small, Window((1, 1, 1), (1, 1, 1), (0, 0, 0), ("float32",) * 3), threads=2)
        return (small == 36).all()

    def in_child(check):
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # a hang ends here, with a status
            os._exit(0 if check() else 1)
        return os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_processes_compute():
    """After the parent ran threads, while it runs them, from another thread of the child, and in a grandchild."""
    assert run_python(FORKING + """
    def in_thread():
        results = []
        worker = threading.Thread(target=lambda: results.append(run()))
        worker.start()
        worker.join()
        return results == [True]

    print(run(), in_child(run), in_child(in_thread), in_child(lambda: run() and in_child(run)), run())
    busy = threading.Event()
    def keep_busy():
        while not busy.is_set():
            run()
    worker = threading.Thread(target=keep_busy)
    worker.start()
    print(all(in_child(run) for _ in range(20)))
    busy.set()
    worker.join()
    """).split() == ["True"] * 6


LIMITED = """
    import os, resource, sys
    import numpy as np
    import convreg
    from convreg import force_algorithm
    from convreg.geometry import Window
    from convreg.ops import kernels
    STILL = (1, 1, 1), (1, 1, 1), (0, 0, 0)

    def run():
        large, taps = np.ones((4, 1, 16, 1, 40, 40), "f"), np.ones((1, 16, 16, 1, 3, 3), "f")
        small = np.zeros((4, 1, 16, 1, 38, 38), "f")
        kernels.forward(large, taps, small, Window(*STILL, ("float32",) * 3), threads=8)
        codes = convreg.quantize(np.ones(1 << 19, "f"), "bfloat16", threads=8)
        exact = np.zeros(small.shape)
        with force_algorithm("reference"):
            kernels.forward(large.astype(float), taps.astype(float), exact, Window(*STILL, ("float64",) * 3), threads=8)
        return (small == 144).all() and (codes == 1).all() and (exact == 144).all()

    def threads():
        return len(os.listdir("/proc/self/task"))

    before = threads()
"""


@pytest.mark.skipif(sys.platform != "linux" or not kernels.openmp, reason="counts threads as Linux shows them")
@not_emulated
@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer takes all address space")
class TestLimits:
    """Where threads cannot be started calls run on fewer; OpenMP alone would end the process."""

    @pytest.mark.parametrize("megabytes", [16, 72, 100])
    def test_address_space(self, megabytes):
        printed = run_python(LIMITED + f"""
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + {megabytes} * 2**20,) * 2)
    print(run(), run(), threads() - before)
    """).split()
        assert printed[:2] == ["True"] * 2
        assert int(printed[2]) <= megabytes // 8

    @pytest.mark.parametrize("most", [0, 3, 20])
    def test_threads_of_a_user(self, most):
        printed = run_python(LIMITED + f"""
    if os.getuid() == 0:  # which no limit holds
        os.setgid(54321)
        os.setuid(54321)

    def tasks(process):
        try:
            mine = os.stat(f"/proc/{{process}}").st_uid == os.getuid()
            return len(os.listdir(f"/proc/{{process}}/task")) if mine else 0
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            return 0

    processes = [process for process in os.listdir("/proc") if process.isdecimal()]
    others = sum(tasks(process) for process in processes if process != str(os.getpid()))
    resource.setrlimit(resource.RLIMIT_NPROC, (others + before + {most},) * 2)
    print(run(), run(), threads() - before)
    """).split()
        assert printed[:2] == ["True"] * 2
        assert int(printed[2]) <= most

    def test_a_forked_process(self):
        printed = run_python(FORKING.replace("import os,", "import os, resource,") + """
    def limited():
        import concurrent.futures.thread  # another user may not read it

        if os.getuid() == 0:
            os.setuid(54322)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        return run()

    print(run(), in_child(limited))
    """).split()
        assert printed == ["True"] * 2

    def test_without_limits_all_start(self):
        assert run_python(LIMITED + "    print(run(), threads() - before)").split() == ["True", "7"]


PRINT_DEFAULT = "from convreg.ops import kernels; print(kernels.default_threads())"


@pytest.mark.parametrize(("ours", "openmp", "expected"), [
    ("3", "2", 3), ("", "2", 2), ("", "2,1", 2), ("", "none", None), ("", "0", None), ("", "", None),
])
def test_default_threads(ours, openmp, expected):
    printed = run_python(PRINT_DEFAULT, CONVREG_NUM_THREADS=ours, OMP_NUM_THREADS=openmp)
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert int(printed.split()[-1]) == ((expected or available) if kernels.openmp else 1)


def test_an_instruction_set_is_named():
    program = """
        try:
            from convreg.ops import kernels
            print(kernels.capabilities()["isa"])
        except ValueError as e:
            print(e)
    """
    assert run_python(program, CONVREG_ISA="Generic").split() == ["generic"]
    assert run_python(program, CONVREG_ISA="mmx").startswith("convreg: CONVREG_ISA='mmx' is refused; allowed: ")


def test_a_wrong_default_is_named():
    printed = run_python(PRINT_DEFAULT, CONVREG_NUM_THREADS="many")
    assert "CONVREG_NUM_THREADS='many' is not a positive integer" in printed
