"""`sweep`: many calls compared, here or on a cluster, with the results in a file as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ..calls.arguments import boolean, entries_of, integer
from ..distributed.journal import Journal, key_of
from ..distributed.sweep import Task, named
from ..distributed.sweep import sweep as results_of
from ..errors import OpError, UnknownOp
from ..files import PathLike
from ..guard import guarded, thread_count
from ..progress import Progress
from ..spec import Rules
from .cases import ASK, Case, arrays_of, bytes_of, checked_case
from .comparison import FORMATS, compare
from .results import Comparison

KIND = "convreg numerics results"


@guarded("convreg::numerics")
def sweep(
    cases: Mapping[str, Case | tuple[Any, ...]],
    *,
    formats: Sequence[str] = FORMATS,
    scaled: bool = True,
    result: str | None = None,
    rounding: str | None = None,
    saturate: bool = False,
    seed: int = 0,
    client: Any = None,
    path: PathLike | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Comparison]:
    """Compare many calls, such as all layers of some models, each as `compare` does.

    Parameters
    ----------
    cases : mapping of str to Case
        Name -> call: a `Case`, or a tuple of operator, inputs and attributes.
    formats, scaled, result, rounding, saturate, seed
        As in `compare`, for every case.
    client : distributed.Client or str, optional
        The cluster that computes, one task per case: a client of Dask, the address of a scheduler, or ``"local:N"`` for
        N processes on this machine. Without it this process computes one case after the other. The results are equal.
    path : path-like, optional
        A file that gets a JSON line for each case as soon as it is done. Cases that the file has already are not
        computed again, so a sweep that was interrupted goes on with the same call.
    threads : int, optional
        Threads for the kernels of a case; by default the processors of a host divided among its tasks. The results do
        not depend on it.
    progress : callable, optional
        Called with the number of cases done, of all, and a name.

    Returns
    -------
    dict of str to Comparison
        In the order of the cases.

    Raises
    ------
    OpError, OpTypeError, UnknownOp
        What `compare` raises, with a note that names the case; cases that cannot be computed are refused before
        anything is. Or if the cluster is refused or lost, or no worker has the memory for a case.
    GraphError
        If the file cannot be written or belongs to another sweep, or a cluster is named and dask is not installed. What
        was done stays in the file.

    Examples
    --------
    >>> from convreg.numerics import Case, Drawn
    >>> lists = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]}
    >>> layer = [Drawn("lognormal", (2, 8, 6, 6), 1), Drawn("relu", (2, 4, 6, 6), 2), Drawn("normal", (8, 4, 3, 3), 0)]
    >>> found = convreg.numerics.sweep({"layer": Case("ascend::ConvolutionBackward", layer, lists)},
    ...                                formats=["bfloat16"])
    >>> found["layer"].row("gradInput", "bfloat16").error.snr_db > 40
    True
    """
    if not isinstance(cases, Mapping):
        raise ASK.refuse("cases", cases, "a mapping from names to cases", wrong_type=True)
    thread_count(ASK, threads)
    options = _options(formats=formats, scaled=scaled, result=result, rounding=rounding, saturate=saturate, seed=seed)
    known = {name: checked_case(name, case) for name, case in cases.items()}
    tasks = [Task(name, (case, options), _sized(name, case, threads)) for name, case in known.items()]
    found: dict[str, Comparison] = {}
    with ExitStack() as undo:
        journal = None if path is None else undo.enter_context(Journal(path, KIND, options))
        keys = {} if journal is None else {name: key_of(case) for name, case in known.items()}
        if journal is not None:
            for name, key in keys.items():
                if (held := journal.made(name, key, Comparison.from_dict)) is not None:
                    found[name] = held
        waiting = [task for task in tasks if task.name not in found]
        for task, comparison in results_of(
                compared, waiting, client, ASK, threads=threads, progress=progress):
            if journal is not None:
                journal.add(task.name, keys[task.name], comparison.to_dict())
            found[task.name] = comparison
    return {name: found[name] for name in known}


def compared(threads: int | None, case: Case, options: Mapping[str, Any]) -> Comparison:
    """Compare one case; runs in a worker, too."""
    attributes = dict(case.attributes)
    if attributes.get("threads") is None:
        attributes["threads"] = threads
    return compare(case.op, arrays_of(case.inputs), attributes, **options)


def _options(**given: Any) -> dict[str, Any]:
    """Return the arguments of `compare` that all cases share, as JSON has them."""
    rules = Rules()
    names = entries_of(ASK, rules, "formats", given["formats"], "a list of names")
    for argument, name in (*(("formats", name) for name in names),
                           *((key, given[key]) for key in ("result", "rounding") if given[key] is not None)):
        if not isinstance(name, str):
            raise ASK.refuse(argument, name, "names", wrong_type=True)
    return {**given, "formats": list(names), "scaled": boolean(ASK, rules, "scaled", given["scaled"]),
            "saturate": boolean(ASK, rules, "saturate", given["saturate"]),
            "seed": integer(ASK, rules, "seed", given["seed"])}


def _sized(name: str, case: Case, threads: int | None) -> int:
    """Return the memory of a case, and name it where its call is refused."""
    try:
        return bytes_of(case, threads)
    except (OpError, UnknownOp) as error:
        raise named(error, name) from None
