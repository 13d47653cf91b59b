"""Builds of convreg in processes of their own: a process cannot import two builds of the same compiled modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import convreg
from convreg import GraphError
from convreg.files import PathLike, reason
from convreg.paths import path_of

from .calls import Job, request
from .peer import Unsupported
from .worker import Turn

OWN = Path(convreg.__file__).resolve().parents[1]
"""The folder of the build that runs."""
WORKER = Path(__file__).with_name("worker.py")


class Build:
    """The process of one build; a context manager, which ends the process."""

    def __init__(self, folder: PathLike) -> None:
        """Start the process and import the build.

        Raises
        ------
        GraphError
            If the folder holds no convreg, or it does not import.
        """
        self.folder = path_of(folder).resolve()
        if not (self.folder / "convreg" / "__init__.py").is_file():
            raise GraphError(f"{self.folder} is refused: it holds no convreg/__init__.py; allowed: a checkout with "
                             "compiled modules, or a folder such as site-packages into which convreg is installed")
        try:
            self._process = subprocess.Popen([sys.executable, str(WORKER)], stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, encoding="utf-8")
        except OSError as error:
            raise GraphError(f"no process can be started for the build in {self.folder}: {reason(error)}") from None
        try:
            answer = self._ask(do="open", folder=str(self.folder))
            if "error" in answer:
                raise GraphError(f"the build in {self.folder} cannot be imported: {answer['error']}")
        except BaseException:
            self._end()
            raise
        self.isa: str = answer["isa"]

    def __enter__(self) -> Build:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self._end()

    def prepare(self, job: Job, threads: int) -> str:
        """Make the build ready for `turn` and return a hash of its result, or raise `Unsupported`."""
        answer = self._ask(**request(job, threads))
        if "error" in answer:
            raise Unsupported(answer["error"])
        digest: str = answer["digest"]
        return digest

    def turn(self, seconds: float) -> Turn:
        """Run the prepared call for a while; the process itself measures."""
        answer = self._ask(do="turn", seconds=seconds)
        if "error" in answer:
            raise GraphError(f"the build in {self.folder} fails: {answer['error']}")
        return Turn(**answer)

    def _ask(self, **question: Any) -> dict[str, Any]:
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        try:
            print(json.dumps(question), file=asked, flush=True)
            line = answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self._status()
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            raise GraphError(f"the process of the build in {self.folder} {how}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _status(self) -> int:
        """Return how the process ended, which has closed its output."""
        try:
            return self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()
