"""Operators over Dask arrays that are chunked along the batch: tasks per chunk, and sums joined in the tree's order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from math import isnan, prod
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from ..calls.binding import asking
from ..calls.signature import Arguments, Operator, reader_of
from ..conversion import numbered_from
from ..errors import Asking, add_note
from ..formats import FORMATS
from ..guard import guarded, thread_count
from ..memory import Array
from ..ops import kernels
from ..partial_calls import Hollow, Named, Parts, run_for
from ..registry import resolve
from ..roles import NUMBERS
from .cluster import Cluster, Shares, require_distributed, threads_of_worker
from .pieces import Partial, join, merge, partial_of

APPLY = "convreg::distributed::apply"
JOINED = 8
"""The most partial sums that one task joins."""


class Shared(NamedTuple):
    """What all tasks of a call share: the call without its chunked operands."""

    operator: Named
    arguments: Arguments
    places: tuple[int, ...]
    """The inputs that are chunked."""
    shape_place: int | None
    """The input that states the shape of data, whose first extent is the batch."""
    batch: int
    shares: Shares | None
    stated: tuple[Hollow, ...]
    """Shapes and dtypes that the Dask arrays at `places` state."""

    def operand(self, index: int, slices: Sequence[Any]) -> Array:
        """Return slices of a chunked operand as one array, refused if one is no array: Dask looks at no chunk."""
        for each in slices:
            if not isinstance(each, np.ndarray):
                spec = self.operator.found().spec
                raise asking(spec, spec.conformances[0]).refuse(
                    spec.inputs[self.places[index]].name, f"a chunk of type {type(each).__name__}",
                    "a Dask array whose chunks are NumPy arrays", "arguments", wrong_type=True)
        return slices[0] if len(slices) == 1 else np.concatenate(slices)

    def parts(self, operands: Sequence[Array], samples: range) -> Parts:
        """Return the call for these samples of its batch, refused if a chunk is not as its Dask array states."""
        operator = self.operator.found()
        tensors = list(self.arguments.tensors)
        for place, operand, stated in zip(self.places, operands, self.stated, strict=True):
            shape = (len(samples), *stated.shape[1:])
            if operand.shape != shape or operand.dtype.newbyteorder("=") != stated.dtype.newbyteorder("="):
                spec = operator.spec
                raise asking(spec, spec.conformances[0]).refuse(
                    spec.inputs[place].name, f"{operand.dtype} of shape {list(operand.shape)}",
                    f"{stated.dtype} of shape {list(shape)}, as the Dask array states", "arguments")
            tensors[place] = operand
        extents = None if self.shape_place is None else tensors[self.shape_place]
        if self.shape_place is not None and extents is not None:
            tensors[self.shape_place] = [len(samples), *list(extents)[1:]]
        threads = self.arguments.threads or _threads(self.shares)
        return Parts(Asking(APPLY), operator,
                     self.arguments._replace(tensors=tensors, threads=threads), self.batch)


def _threads(shares: Shares | None) -> int | None:
    """Return the threads of a task's kernels, None for the default outside of a cluster."""
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:  # another of Dask's schedulers
        return None
    return threads_of_worker() if shares is None else shares.here()


@guarded(APPLY)
def apply(op: str | Operator, *inputs: Any, client: Any = None, **attributes: Any) -> Any:
    """Apply an operator to Dask arrays that are chunked along the batch.

    Parameters
    ----------
    op : str or function
        As for `convreg.get`, or the function itself: any operator whose inputs have roles.
    *inputs, **attributes
        The arguments of the call, `threads` included, but no `out`. The tensors with a batch (data, the gradient of
        the output, the numbers of a conversion) are Dask arrays in any chunks along axis 0, at least one of them; NumPy
        arrays among them are divided alike. Weights, biases and scales are NumPy arrays.
    client : distributed.Client, optional
        The cluster that will compute the results. Its workers' versions are checked, and a chunk that is too large for
        them is refused. Each task takes its share of the processors of its host.

    Returns
    -------
    dask.array.Array or tuple
        What the operator returns, as Dask arrays that are computed when they are asked for, None where the call leaves
        a result out. Results with a batch have its chunks; weights and bias gradients have one chunk. Bit for bit what
        the one call returns.

    Raises
    ------
    OpError, OpTypeError
        As the call would; if an array is chunked along another axis, or has chunks of unknown extent. When the
        results are computed, if a chunk is no NumPy array or not as its Dask array states.
    GraphError
        If dask and distributed are not installed.

    Notes
    -----
    A task for a data gradient holds one chunk of each operand and of the result. A task for a weights or bias gradient
    holds one chunk of each operand, or twice the samples of one piece of the sum where pieces cross chunks, and up to
    two partial sums per level of the tree; a join holds partial sums only. `convreg.distributed.reductions` tells the
    samples of a piece and the bytes of a partial sum.

    Examples
    --------
    >>> import convreg, dask.array as da, numpy as np
    >>> from convreg.distributed import apply
    >>> dy, w = da.ones((8, 4, 6, 6), chunks=(3, -1, -1, -1), dtype=np.float32), np.ones((4, 2, 3, 3), np.float32)
    >>> dx = apply("onednn::ConvolutionBackwardData", dy, w, dst_shape=(8, 2, 8, 8), strides=(1, 1),
    ...            pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1), data_format="NCX", weights_format="OIX")
    >>> dx.chunks[0], float(dx.sum().compute(scheduler="synchronous"))
    ((3, 3, 2), 20736.0)
    """
    require_distributed()
    ask, function = Asking(APPLY), resolve(op)
    if not function.spec.roles:
        raise ask.refuse("op", function.spec.qualified_name, "an operator whose inputs and outputs have roles")
    arguments = reader_of(function.spec)(inputs, dict(attributes))
    _check_extents(ask, function, arguments)
    parts = Parts(ask, function, arguments)
    thread_count(parts.bound.call, arguments.threads)
    chunked = _Chunked(ask, parts)
    shares = None if client is None else _checked(client, ask, chunked)
    graph, made = _Graph(chunked, shares), parts.made()
    results = tuple(graph.result(port.name) if port.name in made else None for port in function.spec.outputs)
    return results[0] if len(results) == 1 else results


def _check_extents(ask: Asking, function: Operator, arguments: Arguments) -> None:
    """Refuse Dask arrays whose shape is not known."""
    for port, value in zip(function.spec.inputs, arguments.tensors, strict=True):
        for axis, extent in enumerate(getattr(value, "shape", ())):
            if isnan(extent):
                raise ask.refuse(port.name, f"chunks of unknown extent along axis {axis}", "chunks of known extents "
                                 "(compute_chunk_sizes finds them)")


def _checked(client: Any, ask: Asking, chunked: _Chunked) -> Shares:
    """Check the workers of a cluster, and that each task's arrays fit the largest."""
    if isinstance(client, str):
        raise ask.refuse("client", client, "a distributed.Client, which has to be open when results are computed",
                         "cluster")
    with Cluster(client, ask) as cluster:
        workers = cluster.workers()
        room, needed = max(worker.room for worker in workers), chunked.bytes()
        if needed > room:
            raise ask.refuse("inputs", f"chunks and pieces whose tasks take {needed} bytes", f"smaller chunks: the "
                             f"largest worker has {room} bytes for a task", "memory")
        return cluster.shares(workers)


class _Chunked:
    """The operands of a call with a batch, all in the same chunks.

    Attributes
    ----------
    parts : Parts
        The call.
    places : list of int
        The inputs that are chunked.
    arrays : list
        Their Dask arrays.
    edges : list of int
        The samples at which chunks begin, and the batch.
    """

    def __init__(self, ask: Asking, parts: Parts) -> None:
        import dask.array

        self.parts, spec, tensors = parts, parts.spec, parts.arguments.tensors
        self.places = [place for place, port in enumerate(spec.inputs) if tensors[place] is not None and (
            place in parts.places or (port.role in NUMBERS and _has_batch(tensors[place], tensors[parts.places[0]])))]
        given: list[Any] = []
        for place, (port, value) in enumerate(zip(spec.inputs, tensors, strict=True)):
            if not isinstance(value, dask.array.Array):
                continue
            if place not in self.places:
                raise ask.refuse(port.name, "a Dask array", "a NumPy array: this input has no batch", wrong_type=True)
            for axis, chunks in enumerate(value.chunks):
                if axis > 0 and len(chunks) > 1:
                    raise ask.refuse(port.name, f"chunks {chunks} along axis {axis}", "chunks along axis 0, the batch; "
                                     "rechunk({" + str(axis) + ": -1}) joins them")
            given.append(value)
        if not given:
            raise ask.refuse("inputs", "no Dask array", "at least one tensor with a batch as a Dask array")
        chunks = given[-1].chunks[0]  # data, where there are several
        self.edges = [0, *accumulate(chunks)]
        self.arrays = [
            tensors[place].rechunk({0: chunks}) if isinstance(tensors[place], dask.array.Array)
            else dask.array.from_array(tensors[place], chunks=(chunks, *tensors[place].shape[1:]))
            for place in self.places]

    def bytes(self) -> int:
        """Return what the largest task takes."""
        sample = sum(array.nbytes // max(1, self.parts.batch) for array in self.arrays)
        whole = sum(array.nbytes for place, array in enumerate(self.parts.arguments.tensors)
                    if place not in self.places and isinstance(array, np.ndarray))
        chunk = max(end - first for first, end in pairwise(self.edges))
        results = {name: prod(made.extents) * FORMATS[made.format].dtype.itemsize
                   for name, made in self.parts.made().items()}
        most = 0
        for name, size in results.items():
            if name not in self.parts.computed():
                most = max(most, chunk * (sample + size // max(1, self.parts.batch)))
                continue
            how = self.parts.reduction(name)
            longest = max(self._held(how.samples(range(piece, piece + 1))) for piece in range(min(how.pieces, 64)))
            most = max(most, max(chunk, longest) * sample + 2 * how.pieces.bit_length() * how.bytes)
        return most + whole

    def _held(self, samples: range) -> int:
        """Return how many samples a task with some holds: those of several chunks twice, apart and joined."""
        inside = bisect_right(self.edges, samples.start) == bisect_left(self.edges, samples.stop)
        return len(samples) * (1 if inside else 2)


def _has_batch(value: Any, numbers: Any) -> bool:
    """Whether a scale differs from sample to sample."""
    return value.ndim == numbers.ndim > 0 and value.shape[0] == numbers.shape[0] > 1


class _Graph:
    """The tasks of a call."""

    def __init__(self, chunked: _Chunked, shares: Shares | None) -> None:
        from dask import delayed
        from dask.core import flatten

        self._chunked, self._parts = chunked, chunked.parts
        self._blocks = [array.to_delayed().ravel() for array in chunked.arrays]
        self._keys = [list(flatten(array.__dask_keys__())) for array in chunked.arrays]
        parts = chunked.parts
        tensors = [None if place in chunked.places else value for place, value in enumerate(parts.arguments.tensors)]
        stated = parts.spec.roles.get("data_shape")
        self._shared = delayed(Shared(
            Named.of(parts.function), parts.arguments._replace(tensors=tensors), tuple(chunked.places),
            None if stated is None else parts.spec.input_names.index(stated), parts.batch, shares,
            tuple(Hollow(array.shape, array.dtype) for array in chunked.arrays)), traverse=False)

    def result(self, name: str) -> Any:
        """Return a result as a Dask array."""
        return self._sum(name) if name in self._parts.computed() else self._rows(name)

    def _rows(self, name: str) -> Any:
        """Return a result that has the batch: a task per chunk."""
        import dask.array

        made = self._parts.made()[name]
        dtype = FORMATS[made.format].dtype
        pieces = []
        for index, (first, end) in enumerate(pairwise(self._chunked.edges)):
            shape = (end - first, *made.extents[1:])
            if prod(shape) == 0:
                pieces.append(dask.array.empty(shape, dtype=dtype, chunks=shape))
                continue
            block = _task(rows)(self._shared, name, range(first, end), *(blocks[index] for blocks in self._blocks))
            pieces.append(dask.array.from_delayed(block, shape, dtype))
        return dask.array.concatenate(pieces)

    def _sum(self, name: str) -> Any:
        """Return a result that is a sum over the batch: partial sums of the chunks, joined by the tree."""
        import dask.array

        made, how = self._parts.made()[name], self._parts.reduction(name)
        tasks = _Tasks(name)
        sums, piece = [], 0
        for index, (first, end) in enumerate(pairwise(self._chunked.edges)):
            while piece < how.pieces:
                last = piece + 1
                while last < how.pieces and how.samples(range(piece, last + 1)).stop <= end:
                    last += 1
                samples = how.samples(range(piece, last))
                if samples.start >= end and end < self._parts.batch:
                    break  # they begin in a later chunk
                if samples.start < first or samples.stop > end:  # one piece, in several chunks
                    taken = self._slices(samples, tasks)
                else:
                    samples, taken = range(first, end), [[keys[index]] for keys in self._keys]
                sums.append(tasks.add(partial(part, name=name, pieces=range(piece, last), samples=samples),
                                      self._shared.key, *taken))
                piece = last
        while len(sums) > JOINED:
            sums = [tasks.add(merge, sums[first:first + JOINED]) for first in range(0, len(sums), JOINED)]
        joined = tasks.result(tasks.add(join, sums), [self._shared, *self._chunked.arrays])
        return dask.array.from_delayed(joined, made.extents, FORMATS[made.format].dtype)

    def _slices(self, samples: range, tasks: _Tasks) -> list[list[Any]]:
        """Return the keys of the slices of chunks that some samples are in, per operand."""
        edges = self._chunked.edges
        taken: list[list[Any]] = [[] for _ in self._keys]
        for index in range(bisect_right(edges, samples.start) - 1, bisect_left(edges, samples.stop)):
            first, end = edges[index:index + 2]
            start, stop = max(first, samples.start), min(end, samples.stop)
            if start >= stop:  # a chunk without samples
                continue
            for own, keys in zip(taken, self._keys, strict=True):
                key = keys[index]
                if (start, stop) != (first, end):
                    key = tasks.add(partial(_sliced, start=start - first, stop=stop - first), key)
                own.append(key)
        return taken


class _Tasks:
    """A layer of a graph of Dask: `delayed` merges graphs at every task, which takes seconds for thousands of them."""

    def __init__(self, name: str) -> None:
        self._token = uuid4().hex
        self._layer = f"convreg_{name}-{self._token}"
        self._tasks: dict[str, tuple[Any, ...]] = {}

    def add(self, function: Callable[..., Any], *arguments: Any) -> str:
        """Add a task, whose arguments are keys and lists of keys; return its key."""
        kind = (function.func if isinstance(function, partial) else function).__name__.strip("_")
        key = f"convreg_{kind}-{self._token}-{len(self._tasks)}"  # Dask knows tasks of a kind by their first part
        self._tasks[key] = (function, *arguments)
        return key

    def result(self, key: str, read: Sequence[Any]) -> Any:
        """Return the result of a task; `read` has what its graph needs besides this layer."""
        from dask.delayed import Delayed
        from dask.highlevelgraph import HighLevelGraph

        return Delayed(key, HighLevelGraph.from_collections(self._layer, self._tasks, read), layer=self._layer)


def _task(function: Callable[..., Any]) -> Any:
    from dask import delayed

    return delayed(function, pure=False)


def _sliced(block: Any, start: int, stop: int) -> Any:
    """Return some samples of a chunk, without the memory of the others; what is no array is refused where it is read.
    """
    return block[start:stop].copy() if isinstance(block, np.ndarray) else block


def rows(shared: Shared, name: str, samples: range, *blocks: Array) -> Array:
    """Compute a result for the samples of a chunk."""
    try:
        parts = shared.parts([shared.operand(index, [block]) for index, block in enumerate(blocks)], samples)
        size = prod(parts.made()[name].extents[1:])
        with numbered_from(samples.start * size):
            return run_for(parts.bind(parts.arguments.tensors), name, kernels, parts.arguments.threads or 0)
    except Exception as error:
        add_note(error, _words(shared, samples))
        raise


def part(shared: Shared, *slices: list[Array], name: str, pieces: range, samples: range) -> Partial:
    """Sum some pieces of a result, given samples among which are those that they need."""
    try:
        operands = [shared.operand(index, own) for index, own in enumerate(slices)]
        return partial_of(shared.parts(operands, samples), name, pieces, samples.start)
    except Exception as error:
        add_note(error, _words(shared, samples))
        raise


def _words(shared: Shared, samples: range) -> str:
    return f"in samples {samples.start} to {samples.stop - 1} of {shared.batch}"
