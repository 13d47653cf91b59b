"""`convreg.numerics.sweep` without a cluster: results, the file of results, what is refused."""

import json

import numpy as np
import pytest
from sweep_cases import ASCEND, FORMATS, ONEDNN, numerics_cases

import convreg
from convreg.errors import GraphError, OpError, OpTypeError, UnknownOp
from convreg.numerics import Case, Comparison, Drawn, compare, draw, sweep


def shown(found):
    return {name: json.dumps(comparison.to_dict()) for name, comparison in found.items()}


def test_each_case_is_compared():
    cases = numerics_cases(3)
    found = sweep(cases, formats=FORMATS, seed=3)
    assert list(found) == list(cases)
    dy, w = draw("lognormal", (2, 8, 7, 6), 2), draw("normal", (8, 4, 3, 3), 3) * np.float32(0.25)
    own = compare("onednn::ConvolutionBackwardData", [dy, w, [2, 4, 7, 6]], ONEDNN, formats=FORMATS, seed=3)
    assert found["carried 1"] == own


def test_operators_as_functions_and_tuples():
    layer = [Drawn("normal", (1, 2, 3, 3), 1), Drawn("normal", (1, 2, 3, 3), 2), Drawn("normal", (2, 2, 3, 3), 3)]
    both = sweep({"a": (convreg.ascend.convolution_backward, layer, ASCEND),
                  "b": Case("ascend::ConvolutionBackward", layer, ASCEND)}, formats=["hifloat8"])
    assert both["a"] == both["b"]


def test_comparisons_from_dictionaries():
    """Infinities and NaN too."""
    zeros = {"dy": np.zeros((1, 2, 3, 3), np.float32), "w": np.ones((2, 2, 3, 3), np.float32)}
    found = compare("onednn::ConvolutionBackwardData", [zeros["dy"], zeros["w"], [1, 2, 3, 3]], ONEDNN)
    assert any(np.isnan(row.error.cosine) for row in found.rows)
    held = json.loads(found.to_json())
    assert Comparison.from_dict(held).to_dict() == found.to_dict()
    assert str(Comparison.from_dict(held)) == str(found)
    for damage in ({}, {**held, "rows": [{}]}, {**held, "shapes": 3}, {**held, "exact": {"x": {}}}, [], None):
        with pytest.raises(GraphError, match=r"not what Comparison\.to_dict makes"):
            Comparison.from_dict(damage)


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch):
    cases, path = numerics_cases(5), tmp_path / "results.jsonl"
    whole = sweep(cases, formats=FORMATS)
    first = dict(list(cases.items())[:3])
    assert shown(sweep(first, formats=FORMATS, path=path)) == {name: shown(whole)[name] for name in first}
    made = []

    def counted(*args, **kwargs):
        made.append(args[0])
        return compare(*args, **kwargs)

    monkeypatch.setattr("convreg.numerics.sweeping.compare", counted)
    assert shown(sweep(cases, formats=FORMATS, path=path)) == shown(whole)
    assert len(made) == 2
    assert shown(sweep(cases, formats=FORMATS, path=path)) == shown(whole)
    assert len(made) == 2
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["case"] for line in lines[1:]] == list(cases)


def test_an_interruption_leaves_what_is_done(tmp_path):
    cases, path = numerics_cases(4), tmp_path / "results.jsonl"

    def stop(done, total, name):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(cases, formats=FORMATS, path=path, progress=stop)
    assert len(path.read_text().splitlines()) == 3
    seen = []
    found = sweep(cases, formats=FORMATS, path=path, progress=lambda *step: seen.append(step))
    assert seen[0][1] == 2
    assert shown(found) == shown(sweep(cases, formats=FORMATS))


def test_another_sweep_in_the_file(tmp_path):
    cases, path = numerics_cases(2), tmp_path / "results.jsonl"
    sweep(cases, formats=FORMATS, path=path)
    with pytest.raises(GraphError, match=r"holds a sweep with formats="):
        sweep(cases, formats=["bfloat16"], path=path)
    changed = {**cases, "ascend 0": Case("ascend::ConvolutionBackward", cases["ascend 0"].inputs,
                                         {**ASCEND, "output_mask": [True, False, False]})}
    with pytest.raises(GraphError, match="has case 'ascend 0' with another call"):
        sweep(changed, formats=FORMATS, path=path)
    array = cases["carried 1"].inputs[0].copy()
    array.flat[0] += 1
    changed = {"carried 1": Case(cases["carried 1"].op, [array, *cases["carried 1"].inputs[1:]], ONEDNN)}
    with pytest.raises(GraphError, match="has case 'carried 1' with another call"):
        sweep(changed, formats=FORMATS, path=path)


SMALL = [Drawn("normal", (1, 2, 3, 3), 1), Drawn("normal", (1, 2, 3, 3), 2), Drawn("normal", (2, 2, 3, 3), 3)]


@pytest.mark.parametrize(("case", "error", "message"), [
    (Case("nothing", SMALL, ASCEND), UnknownOp, "nothing"),
    (Case("ascend::ConvolutionBackward", SMALL[:2], ASCEND), OpTypeError, "weight"),
    (Case("ascend::ConvolutionBackward", SMALL, {"stride": [1, 1]}), OpTypeError, "padding"),
    (Case("ascend::ConvolutionBackward", [Drawn("none", (1, 2, 3, 3)), *SMALL[1:]], ASCEND), OpError, "distribution"),
    (Case("ascend::ConvolutionBackward", [Drawn("normal", (1, -2, 3, 3)), *SMALL[1:]], ASCEND), OpError, "shape"),
    (Case("ascend::ConvolutionBackward", [Drawn("normal", "ab"), *SMALL[1:]], ASCEND), OpTypeError, "shape"),
    (Case("ascend::ConvolutionBackward", [Drawn("normal", (1, 2, 3, 3), -1), *SMALL[1:]], ASCEND), OpError, "seed"),
    (Case("ascend::ConvolutionBackward", [Drawn("normal", (1, 2, 3, 3), 1, np.inf), *SMALL[1:]], ASCEND), OpError,
     "factor"),
    (Case("ascend::ConvolutionBackward", [Drawn("normal", (1, 2, 3, 3), 1, 10**400), *SMALL[1:]], ASCEND), OpError,
     "factor"),
    (Case("ascend::ConvolutionBackward", 3, ASCEND), OpTypeError, "inputs"),
    (Case("ascend::ConvolutionBackward", SMALL, 3), OpTypeError, "attributes"),
    (3, OpTypeError, "cases"), (("a",), OpTypeError, "cases")])
def test_cases_that_are_refused_before_anything_is_done(tmp_path, case, error, message):
    good = Case("ascend::ConvolutionBackward", SMALL, ASCEND)
    seen = []
    with pytest.raises(error, match=message):
        sweep({"good": good, "bad": case}, path=tmp_path / "file", progress=lambda *step: seen.append(step))
    assert not seen
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize(("choices", "error"), [
    ({"formats": 3}, OpTypeError), ({"formats": [3]}, OpTypeError), ({"formats": "hifloat8"}, OpTypeError),
    ({"formats": ["none"]}, UnknownOp), ({"seed": "x"}, OpTypeError), ({"scaled": 3}, OpTypeError),
    ({"result": 3}, OpTypeError), ({"rounding": "none"}, OpError), ({"threads": 0}, OpError),
    ({"threads": "two"}, OpTypeError), ({"client": 3}, OpTypeError), ({"client": "local:x"}, OpError),
    ({"path": 3}, GraphError), ({"path": ""}, GraphError), ({"cases": 3}, OpTypeError), ({"nothing": 3}, OpTypeError),
    ({"cases": {3: ("x", [])}}, OpTypeError), ({"cases": {"": ("x", [])}}, OpError)])
def test_choices_that_are_refused(choices, error):
    if "client" in choices:
        pytest.importorskip("distributed")
    with pytest.raises(error):
        sweep(**{"cases": {"good": Case("ascend::ConvolutionBackward", SMALL, ASCEND)}, **choices})


def test_a_case_that_fails_is_named():
    layer = [np.full((1, 2, 3, 3), np.inf, np.float32), *SMALL[1:]]
    with pytest.raises(OpError, match="infinity or NaN") as failed:
        sweep({"bad": Case("ascend::ConvolutionBackward", layer, ASCEND)})
    assert failed.value.__notes__ == ["in case 'bad'"]
