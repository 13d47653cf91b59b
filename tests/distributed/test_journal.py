"""The file of a sweep: lines as they come, a process that ends in the middle, other sweeps, a full disk."""

import json
import resource
import signal

import pytest

from convreg.distributed.journal import Journal
from convreg.errors import GraphError

KIND, ABOUT = "convreg tests", {"seed": 1, "formats": ["hifloat8"]}


def opened(path, **changes):
    return Journal(path, KIND, {**ABOUT, **changes})


def test_lines_are_there_at_once_and_found_again(tmp_path):
    path = tmp_path / "results.jsonl"
    with opened(path) as journal:
        assert journal.done == {}
        journal.add("one", "key 1", {"a": 1})
        assert len(path.read_text().splitlines()) == 2
        journal.add("two\n", "key 2", [2.5])
    with opened(path) as journal:
        assert journal.result("one", "key 1") == {"a": 1}
        assert journal.result("two\n", "key 2") == [2.5]
        assert journal.result("three", "key 3") is None
        with pytest.raises(GraphError, match=r"results\.jsonl: has case 'one' with another call"):
            journal.result("one", "key 2")


@pytest.mark.parametrize("lost", range(1, 60, 3))
def test_a_part_of_a_line_is_dropped(tmp_path, lost):
    path = tmp_path / "results.jsonl"
    with opened(path) as journal:
        journal.add("one", "key 1", 1)
        whole = path.read_bytes()
        journal.add("two", "key 2", "x" * 60)
    path.write_bytes(path.read_bytes()[:-lost])
    with opened(path) as journal:
        assert list(journal.done) == ["one"]
        assert path.read_bytes() == whole
        journal.add("two", "key 2", 2)
    with opened(path) as journal:
        assert list(journal.done) == ["one", "two"]


def test_a_part_of_the_first_line(tmp_path):
    path = tmp_path / "results.jsonl"
    opened(path).close()
    path.write_bytes(path.read_bytes()[:-5])
    with opened(path) as journal:
        journal.add("one", "key", 1)
    with opened(path) as journal:
        assert list(journal.done) == ["one"]


@pytest.mark.parametrize(("content", "message"), [
    (b"hello", "no file of a sweep"), (b"hello\n", "no file of a sweep"), (b"{}\n", "none of convreg tests"),
    (b"[1]\n", "none of convreg tests"),
    (b'{"kind": "convreg tests", "version": 1, "about": []}\n', "none of convreg tests"),
    (b'{"kind": "other", "version": 1}\n', "none of convreg tests"),
    (b"\xff\xfe\n", "no file of a sweep"), (b'{"a": 1, "a": 2}\n', "key 'a' occurs twice")])
def test_files_of_other_things_stay_as_they_are(tmp_path, content, message):
    path = tmp_path / "results.jsonl"
    path.write_bytes(content)
    with pytest.raises(GraphError, match=message):
        opened(path)
    assert path.read_bytes() == content


def test_files_of_other_sweeps(tmp_path):
    path = tmp_path / "results.jsonl"
    opened(path).close()
    with pytest.raises(GraphError, match=r"holds a sweep with seed=1; needed: 2, or a new file"):
        opened(path, seed=2)
    with pytest.raises(GraphError, match=r"holds a sweep with more=None; needed: 'x'"):
        opened(path, more="x")
    head = json.loads(path.read_text())
    path.write_text(json.dumps({**head, "convreg": "0.0.1"}) + "\n")
    with pytest.raises(GraphError, match=r"holds results of convreg 0\.0\.1"):
        opened(path)
    path.write_text(json.dumps(head) + "\n" + '{"case": "one"}\n')
    with pytest.raises(GraphError, match="no file of a sweep: 'key'"):
        opened(path)


def test_results_that_are_none_name_the_file_and_the_case(tmp_path):
    with opened(tmp_path / "results.jsonl") as journal:
        journal.add("one", "key", {"value": 2})
        assert journal.made("one", "key", lambda held: held["value"]) == 2
        assert journal.made("two", "key", lambda held: held["value"]) is None
        for result in (3, [], "text", {}):
            journal.add("one", "key", result)
            with pytest.raises(GraphError, match=r"results\.jsonl: case 'one' has no result of such a sweep"):
                journal.made("one", "key", lambda held: held["value"])


def test_one_writer_at_a_time(tmp_path):
    path = tmp_path / "results.jsonl"
    with opened(path), pytest.raises(GraphError, match="another sweep writes to it"):
        opened(path)
    opened(path).close()


@pytest.mark.parametrize("path", ["", ".", "missing/results.jsonl", "/dev/null", "a\0b"])
def test_paths_that_take_no_file(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GraphError):
        opened(path)


def test_a_full_disk_leaves_whole_lines(tmp_path):
    path = tmp_path / "results.jsonl"
    with opened(path) as journal:
        journal.add("one", "key", 1)
        before = path.read_bytes()
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
        try:
            with pytest.raises(GraphError, match=r"results\.jsonl: cannot be written: File too large"):
                journal.add("two", "key", "x" * 1000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        assert path.read_bytes() == before
        assert list(journal.done) == ["one"]
