"""Damaged and hostile files: each gives a `GraphError` of one line that names the file, and never anything else."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from convreg.tools.onnx_io import import_graph_json, import_ir, import_model
from model_files import IR, graph, operation, tensor, write_graph
from places import DATA

from convreg import GraphError

CASES = DATA / "openvino_ir"
ENDS = 'from-layer="0" from-port="0" to-layer="2" to-port="0"'
"""The first edge of the damaged model."""
DOCUMENT = graph(
    operation(1, "ConvolutionBackwardData", [tensor(10, (1, 2, 3)), tensor(11, (2, 4, 3))], [tensor(12, (1, 4, 5))],
              strides=[1], pads_begin=[0], pads_end=[0], dilations=[1], groups=1, auto_pad="None", data_format="NCX",
              weights_format="OIX", dst_shape=[1, 4, 5]),
    operation(2, "LeakyReLU", [tensor(12, (1, 4, 5))], [tensor(13, (1, 4, 5))], alpha=0.5),
    input_ports=[10, 11], output_ports=[13])


def refused(path: Path, read=import_model, message: str = ".") -> None:
    with pytest.raises(GraphError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def places(value, path=()):
    """Every place in a JSON document, the outermost first."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def changed(path, new):
    document = copy.deepcopy(DOCUMENT)
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    if new is None:
        del holder[path[-1]]
    else:
        holder[path[-1]] = new
    return document


IGNORED = ("version", "engine_kind", "fpmath_mode")
PLACES = [path for path in places(DOCUMENT) if path and path[0] not in IGNORED]


def test_the_undamaged_document_is_read(tmp_path):
    assert len(import_graph_json(write_graph(tmp_path, DOCUMENT)).graph.node) == 2


def test_every_truncation_is_refused(tmp_path):
    text = json.dumps(DOCUMENT)
    path = tmp_path / "graph.json"
    for length in range(0, len(text), 7):
        path.write_text(text[:length])
        refused(path, import_graph_json)


@pytest.mark.parametrize("path", PLACES, ids=lambda path: "/".join(map(str, path)))
def test_every_confusion_of_types_is_refused(tmp_path, path):
    """In each place: null, a fraction, a nested list, an object, text, a number too large, a truth value."""
    for wrong in ({"a": 1}, [[1]], "text", 1.5, 2**70, True):
        if path[-1] == "name" and isinstance(wrong, str):
            continue  # free text
        if path[-2:] == ("alpha", "value") and wrong in (1.5, 2**70):
            continue  # numbers
        refused(write_graph(tmp_path, changed(path, wrong)), import_graph_json)
    document = json.dumps(changed(path, "@")).replace('"@"', "null")
    (tmp_path / "graph.json").write_text(document)
    refused(tmp_path / "graph.json", import_graph_json)


REQUIRED = [path for path in PLACES if isinstance(path[-1], str) and path[-1] not in
            ("input_ports", "output_ports", "name", "groups", "auto_pad", "dst_shape")]


@pytest.mark.parametrize("path", REQUIRED, ids=lambda path: "/".join(map(str, path)))
def test_every_missing_key_is_refused(tmp_path, path):
    """Optional ones apart; without data_format or weights_format the default layout does not fit."""
    refused(write_graph(tmp_path, changed(path, None)), import_graph_json)


NODE = ("graph", 0)


@pytest.mark.parametrize(
    ("path", "new", "message"),
    [
        (("graph", 1, "outputs", 0, "id"), 12, "produced twice"),
        (("graph", 1, "id"), 1, "operation id 1 occurs twice"),
        ((*NODE, "inputs", 0, "id"), 13, "form a cycle"),
        ((*NODE, "inputs", 0, "id"), 12, "form a cycle"),
        ((*NODE, "id"), -1, "unsigned 64-bit"),
        ((*NODE, "id"), 2**64, "unsigned 64-bit"),
        ((*NODE, "inputs", 0, "dtype"), "f33", "unknown dtype .f33."),
        (("graph", 1, "inputs", 0, "dtype"), "f16", "f32 in one place and f16"),
        ((*NODE, "inputs", 0, "shape"), [1, -2, 3], "negative extent -2"),
        ((*NODE, "inputs", 0, "shape"), [2**40, 2**40, 3], "more elements"),
        ((*NODE, "inputs", 0, "shape"), [1] * 13, "13 axes"),
        ((*NODE, "inputs", 0, "shape"), [], "R15|R16"),
        ((*NODE, "inputs", 0, "shape"), [0, 2, 3], "R21"),
        ((*NODE, "attrs", "strides", "value"), [], "R14"),
        ((*NODE, "attrs", "strides", "value"), [0], "R29"),
        ((*NODE, "attrs", "dilations", "value"), [2**62], "rule"),
        ((*NODE, "attrs", "pads_begin", "value"), [2**62], "rule"),
        ((*NODE, "attrs", "groups", "value"), 3, "R22|R23"),
        ((*NODE, "attrs", "dst_shape", "value"), [1, 4, 6], "R25"),
        ((*NODE, "attrs", "dst_shape", "type"), "f64[]", "unknown type 'f64.."),
        ((*NODE, "kind"), "ConvolutionBackwardDate", "is not known"),
        ((*NODE, "inputs"), [], "R8"),
        ((*NODE, "outputs"), [], "R9"),
        (("graph",), [], "holds no operation"),
        (("graph", 1, "attrs", "alpha", "value"), 10**400, "not a finite f32 number"),
        (("graph", 1, "attrs", "alpha", "type"), "s64", "not an integer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_contradictions_are_refused(tmp_path, path, new, message):
    refused(write_graph(tmp_path, changed(path, new)), import_graph_json, message)


@pytest.mark.parametrize("text", [
    "", "   ", "{", "[]", "null", "3", '"graph"', "{}", '{"graph": {}}', '{"graph": [1]}', "{'graph': []}",
    '{"graph": [], "graph": []}', '{"graph": NaN}', "[" * 100_000, '{"a":' * 100_000, '{"graph": ' + "9" * 5000 + "}",
    '{"graph": []} trailing', "\ufeff{", "\0" * 100,
])
def test_texts_that_are_no_graph(tmp_path, text):
    path = tmp_path / "graph.json"
    path.write_text(text, "utf-8")
    refused(path, import_graph_json)
    refused(path, import_model)


def test_values_that_are_no_numbers(tmp_path):
    path = tmp_path / "graph.json"
    for word in ("NaN", "Infinity", "-Infinity", "1e999"):
        path.write_text(json.dumps(DOCUMENT).replace('"value": 0.5', f'"value": {word}'))
        refused(path, import_graph_json)
    path.write_bytes(json.dumps(DOCUMENT).encode().replace(b"LeakyReLU", b"Leaky\xff"))
    refused(path, import_graph_json)


def test_random_bytes_never_escape_as_anything_else(tmp_path):
    """Single bytes changed at drawn places either leave a readable file or give the one error."""
    drawn = random.Random(5)
    for source, read in ((json.dumps(DOCUMENT).encode(), import_graph_json),
                         ((CASES / "auto_pad.xml").read_bytes(), import_ir)):
        path = tmp_path / "damaged.xml"
        shutil.copy(CASES / "auto_pad.bin", tmp_path / "damaged.bin")
        for _ in range(300):
            content = bytearray(source)
            for _ in range(drawn.randint(1, 3)):
                content[drawn.randrange(len(content))] = drawn.choice(b'0123456789"<>{}[],-x\xff\0 ')
            path.write_bytes(content)
            with contextlib.suppress(GraphError):
                read(path)


# OpenVINO


@pytest.fixture
def files(tmp_path):
    for suffix in (".xml", ".bin"):
        shutil.copy(CASES / f"auto_pad{suffix}", tmp_path)
    return tmp_path / "auto_pad.xml"


def test_every_truncated_xml_is_refused(files):
    content = files.read_bytes()
    for length in range(0, len(content.rstrip()), 41):
        files.write_bytes(content[:length])
        refused(files, import_ir)


def test_every_truncated_bin_is_refused(files):
    content = files.with_suffix(".bin").read_bytes()
    for length in range(0, len(content), 16):
        files.with_suffix(".bin").write_bytes(content[:length])
        refused(files, import_ir, "lie outside")
    files.with_suffix(".bin").unlink()
    refused(files, import_ir, "cannot be read")


BOMB = '<!DOCTYPE net [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9)) + "]>"


@pytest.mark.parametrize("prologue", [
    BOMB, "<!DOCTYPE net>", '<!DOCTYPE net SYSTEM "file:///etc/passwd">',
    '<!DOCTYPE net [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
    '<!DOCTYPE net [<!ENTITY % x SYSTEM "http://x/y"> %x;]>',
])
def test_document_types_and_entities_are_refused(files, prologue):
    text = files.read_text().replace('<?xml version="1.0"?>', '<?xml version="1.0"?>' + prologue)
    files.write_text(text.replace('name="auto_pad"', 'name="&j;"') if prologue is BOMB else text)
    refused(files, import_ir, "document type declaration is refused")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('<net name="auto_pad" version="11">', '<net name="auto_pad" version="12">', "version '12' is not known"),
        ('<net name="auto_pad" version="11">', '<net name="auto_pad" version="7">', "version '7' is not known"),
        ('<net name="auto_pad" version="11">', '<net name="auto_pad">', "no attribute 'version'"),
        ('version="opset1">', 'version="opset0">', "operation set 'opset0'"),
        ('version="opset1">', 'version="Opset1">', "operation set"),
        ('name="x" type="Parameter"', 'name="x" type="Parametre"', "Parametre. 'x': this type of layer is not known"),
        ('shape="1,2,4,4"', 'shape="1,2,4,x"', "is 'x', not an integer"),
        ('shape="1,2,4,4"', 'shape="1,2,4,-4"', "extent -4 is negative"),
        ('shape="1,2,4,4"', 'shape="4611686018427387904,2,4,4"', "more elements"),
        ('shape="1,2,4,4"', 'shape="99999999999999999999"', "'99999999999999999999', not an integer of 64 bits"),
        ('shape="1,2,4,4"', f'shape="{",".join("1" * 20)}"', "20 axes"),
        ('shape="1,2,4,4"', 'shape="..."', "."),
        ('shape="1,2,4,4" element_type="f32"', 'shape="1,2,4,4" element_type="f16"', "inconsistent|float16"),
        ('shape="1,2,4,4" element_type="f32"', 'shape="1,2,4,4" element_type="nf4"', "'nf4' is not known"),
        ('shape="1,2,4,4" element_type="f32"', 'shape="1,2,4,4"', "attribute 'element_type' is missing"),
        ('offset="0" size="192"', 'offset="0" size="191"', "needs 192 bytes"),
        ('offset="0" size="192"', 'offset="0" size="-192"', "needs 192 bytes"),
        ('offset="0" size="192"', 'offset="17" size="192"', "lie outside"),
        ('offset="0" size="192"', 'offset="-1" size="192"', "lie outside"),
        ('offset="0" size="192"', 'offset="9223372036854775807" size="192"', "lie outside"),
        ('offset="0" size="192"', 'offset="0"', "attribute 'size' is missing"),
        ('shape="2, 2, 3, 4"', 'shape="2, 2, 3, 5"', "needs 240 bytes"),
        ('shape="2, 2, 3, 4"', 'shape="2, 2, -3, -4"', "negative extent"),
        ('shape="2, 2, 3, 4"', 'shape="4611686018427387904, 4"', "more elements"),
        ('shape="2, 2, 3, 4"', 'shape="4, 1, 3, 4"', "rule 1"),
        ('shape="2, 2, 3, 4"', 'shape="2, 2, 12"', "rule 2"),
        ('<layer id="1" ', '<layer id="0" ', "layer id 0 occurs twice"),
        ('<layer id="1" ', '<layer id="one" ', "not an integer"),
        ('<layer id="1" ', '<layer id="100" ', "comes from layer 1, which does not exist|leads to layer"),
        (f'<edge {ENDS} />', "", "nothing is connected to input port 0"),
        (f'<edge {ENDS} />',
         '<edge from-layer="2" from-port="2" to-layer="2" to-port="0" />', "form a cycle"),
        (ENDS, 'from-layer="0" from-port="1" to-layer="2" to-port="0"',
         "no such output"),
        (ENDS, 'from-layer="0" from-port="0" to-layer="2" to-port="9"',
         "no such input"),
        (ENDS, 'from-layer="0" from-port="0" to-layer="5" to-port="0"',
         "two edges lead to port 0 of layer 5"),
        (ENDS, 'from-layer="77" from-port="0" to-layer="2" to-port="0"',
         "layer 77, which does not exist"),
        ("</layers>", "</layers><layers></layers>", "2 elements <layers>"),
        ("</layers>", "</layers><pre-process/>", "<pre-process>"),
        ("<data ", "<body/><data ", "element <body>"),
        ("strides=\"2, 2\"", "strides=\"0, 2\"", "rule 9"),
        ("strides=\"2, 2\"", "strides=\"4611686018427387904, 2\"", "rule"),
        ("auto_pad=\"same_upper\"", "auto_pad=\"same\"", "rule 18"),
        ("<net ", "<network ", "."),
    ],
)
def test_damaged_xml(files, old, new, message):
    text = files.read_text()
    assert old in text
    files.write_text(text.replace(old, new, 1))
    refused(files, import_ir, message)


@pytest.mark.parametrize("text", ["", "<", "<net/>", "<a></b>", "<net version='11'>&x;</net>", "<net version='11'/>",
                                  "<net version='11'><layers/></net>", "<graph/>", "<a>" * 100_000])
def test_texts_that_are_no_model(tmp_path, text):
    path = tmp_path / "model.xml"
    path.write_text(text)
    refused(path, import_ir)


def test_paths_that_are_no_files(tmp_path):
    for path in (tmp_path, tmp_path / "absent.json"):
        for read in (import_graph_json, import_ir, import_model):
            refused(path, read, "cannot be read")
    with pytest.raises(GraphError):
        import_model("a\0b")
    if Path("/dev/zero").exists():  # never ends
        refused(Path("/dev/zero"), import_model, "not a regular file")


@pytest.mark.parametrize(("options", "message"), [
    ({"bin_path": "weights.bin"}, "bin_path='weights.bin' is refused"), ({"reader": "openvino"}, "reader='openvino'"),
    ({"reader": np.zeros(2)}, "reader=array"), ({"reader": "nonsense"}, "reader='nonsense'"),
])
def test_arguments_that_a_graph_does_not_have(tmp_path, options, message):
    refused(write_graph(tmp_path, DOCUMENT), functools.partial(import_model, **options), message)


def test_argument_that_an_openvino_model_does_not_have(tmp_path):
    path = tmp_path / "model.xml"
    path.write_text("<net version='11'/>")
    refused(path, functools.partial(import_model, lenient=True), "lenient=True is refused")


def test_a_result_that_is_read(tmp_path):
    """A Result has no output in files; one that another layer reads ended the reader without its error."""
    for kind in ("Result", "Relu"):
        ir = IR()
        ir.result(ir.layer(kind, [ir.layer("Result", [ir.parameter("x", "2")], name="end")]))
        refused(ir.write(tmp_path), import_ir, "layer 1 .Result. 'end' is read by another layer")


@pytest.mark.parametrize(("kind", "shape"), [("Slice", "1,1"), ("Unsqueeze", "1,1,1"), ("Reshape", "1,2")])
def test_lists_of_two_axes(tmp_path, kind, shape):
    """Constants and inputs that must be lists of integers, or single ones."""
    extents = tuple(map(int, shape.split(",")))
    for constant in (True, False):
        ir = IR()
        lists = [ir.constant(np.ones(extents, np.int64)) if constant else ir.parameter(f"list{index}", shape, "i64")
                 for index in range(3 if kind == "Slice" else 1)]
        ir.result(ir.layer(kind, [ir.parameter("x", "1,2"), *lists], opset="opset8"))
        refused(ir.write(tmp_path), import_ir, f"input 1 has {len(extents)} axes; allowed: a list of integers, or one")
