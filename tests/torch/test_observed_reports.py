"""observe: tables, JSON and pictures, and what is refused."""

import io
import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from observed_figures import hooks, identity  # noqa: E402
from torch import nn  # noqa: E402

import convreg  # noqa: E402
import convreg.torch  # noqa: E402
from convreg.errors import GraphError, OpError, OpTypeError, UnknownOp  # noqa: E402

convert, observe = convreg.torch.convert, convreg.torch.observe

pytestmark = pytest.mark.filterwarnings("ignore:.*VariableFunctionsClass.*", "ignore::convreg.torch.vanishing."
                                        "VanishedGradients")


def test_table_json_and_picture(tmp_path):
    torch.manual_seed(0)
    net = convert(nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Linear(6, 2)), "hifloat8")
    with observe(net) as seen:
        for step in range(3):
            net(torch.randn(2, 2, 8) * 10.0 ** (5 - 3 * step)).sum().backward()
    head, _, *lines = seen.table().splitlines()
    assert re.split("  +", head) == ["layer", "tensor", "format", "steps", "SNR dB", "worst dB", "flushed", "saturated",
                                     "largest", "scaled by", "best scale"]
    assert [line.split()[:4] for line in lines] == [
        [layer, tensor, "hifloat8", "3"] for layer in ("0", "2") for tensor in ("input", "weight", "grad_output")]
    ratios = sorted(entry.snr_db for entry in seen.select(layer="0", tensor="input"))
    assert lines[0].split()[4:6] == [f"{ratios[1]:.1f}", f"{ratios[0]:.1f}"]
    assert seen.table(markdown=True).startswith("| layer | tensor |")
    seen.save(tmp_path / "seen.json")
    held = json.loads((tmp_path / "seen.json").read_text())
    assert held["module"] == "Sequential"
    assert len(held["records"]) == len(seen)
    assert held["records"][0]["best_exponent"] == seen.records[0].best_exponent
    pytest.importorskip("matplotlib")
    for name in ("seen.png", "seen.svg", "seen.pdf"):
        seen.plot(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 4000
    stream = io.BytesIO()
    seen.plot(stream, "png")
    assert stream.getvalue().startswith(b"\x89PNG")
    with pytest.raises(GraphError, match="cannot be written"):
        seen.plot(tmp_path / "absent" / "seen.png")
    with pytest.raises(OpError, match="format='gif'"):
        seen.plot(tmp_path / "seen.gif")
    with pytest.raises(GraphError):
        seen.save(tmp_path)


def test_pictures_show_what_was_recorded():
    """Cells of a picture are the records': worst of the numbers lost, median ratio, exact ones apart from overflow."""
    from convreg.torch.observed_picture import _tables

    net = identity(4, "hifloat8")
    with observe(net) as seen:
        net(torch.tensor([[1.0, 2.0, 0.5, 0.0]]))
        net(torch.tensor([[1e9, 2.0, 1e-12, 0.0]]))
    ratios, zeros, large = _tables(seen.select(tensor="input"), ["other", ""], {0: 0, 1: 1}, 2)
    np.testing.assert_array_equal(ratios, [[np.nan, np.nan], [np.inf, -np.inf]])
    np.testing.assert_array_equal(zeros[1], [0, 1 / 3])
    np.testing.assert_array_equal(large, [[False, False], [False, True]])


def test_many_steps_and_layers_fit_a_picture():
    pytest.importorskip("matplotlib")
    net = convert(nn.Sequential(*(nn.Linear(2, 2) for _ in range(80))), "hifloat8")
    with observe(net, scales=False) as seen:
        for _ in range(3):
            net(torch.randn(1, 2))
    seen._records += [replace(entry, step=step) for step in range(3, 300) for entry in seen._records[:2]]
    assert {entry.best_exponent for entry in seen.records} == {None}
    stream = io.BytesIO()
    seen.plot(stream, "png")
    assert 10_000 < len(stream.getvalue()) < 400_000


def test_a_missing_matplotlib_is_named(monkeypatch):
    net = identity(2, "hifloat8")
    with observe(net) as seen:
        net(torch.ones(1, 2))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(GraphError, match="needs matplotlib"):
        seen.plot(io.BytesIO(), "png")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_traced_modules_are_refused():
    with pytest.raises(OpTypeError, match="scripted or traced"):
        observe(torch.jit.trace(nn.ReLU(), torch.ones(1)))


def test_wrong_arguments_are_named():
    net = identity(2, "hifloat8")
    with pytest.raises(OpTypeError, match=r"module='str' is refused; allowed: an nn\.Module"):
        observe("x")
    for changes, kind in (({"every": 0}, OpError), ({"every": 1.5}, OpTypeError), ({"every": True}, OpTypeError),
                          ({"scales": 1}, OpTypeError), ({"inference": None}, OpTypeError),
                          ({"recipe": 3}, OpTypeError),
                          ({"recipe": "hifloat"}, UnknownOp), ({"evry": 2}, OpTypeError)):
        with pytest.raises(kind):
            observe(net, **changes)
    assert hooks(net) == 0
    with observe(net) as seen:
        net(torch.ones(1, 2))
    for changes in ({"layer": "absent"}, {"tensor": "inpt"}):
        with pytest.raises(UnknownOp):
            seen.select(**changes)
    for changes in ({"step": "0"}, {"step": True}, {"step": 0.0}, {"layer": 0}, {"layer": [""]}, {"tensor": b"input"}):
        with pytest.raises(OpTypeError, match=f"{next(iter(changes))}=.* is refused"):
            seen.select(**changes)
    assert seen.select(step=np.int64(0), layer="") == seen.select(step=0) != ()
    with pytest.raises(OpTypeError):
        seen.save(None)
