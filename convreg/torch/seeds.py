"""Seeds of stochastic rounding for the calls of layers."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import Asking
from .bridge import is_plain

MOST_CALLS = 4096
"""Calls that a layer remembers for their recomputation."""

_RANK_STEP = 2**40
"""The distance of the seeds of two ranks. Calls are counted in steps of 1, and 2**21 ranks fit into 64 bits."""


def first_seed(seed: int, layer: str) -> int:
    """Return the seed of a layer's first call: a hash, so that layers round with unrelated numbers."""
    digest = hashlib.blake2b(f"{seed} {layer}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2


def drawn_seed() -> Tensor:
    """Return a seed from torch's default generator, which both kinds of checkpoint restore for a recomputation."""
    return apart(torch.randint(2**62, (), dtype=torch.int64))


def apart(seed: Tensor) -> Tensor:
    """Return the seed for this process: the ranks of a distributed run round with unrelated numbers."""
    if dist.is_available() and dist.is_initialized() and (rank := dist.get_rank()):
        return seed + rank * _RANK_STEP
    return seed


def _exporting() -> bool:
    """Whether torch.export traces the call: an exported program keeps what is written in place, and nothing else."""
    return bool(getattr(torch.compiler, "is_exporting", lambda: False)())


def recomputing() -> bool:
    """Whether a backward pass runs in this thread: a forward pass in it is a recomputation by a checkpoint."""
    return bool(torch._C._current_graph_task_id() != -1)


class Calls:
    """The seeds of a layer's calls by what their inputs look like, so that a recomputation finds its own.

    A checkpoint computes the forward pass of a layer again in the backward pass. It has to round as the first time,
    although other calls may have advanced the counter in between.
    """

    def __init__(self) -> None:
        self._seeds: OrderedDict[tuple[Any, ...], tuple[Tensor, int]] = OrderedDict()

    def note(self, seed: Tensor, kind: str, *tensors: Tensor) -> None:
        """Remember the seed of a call on some tensors under a kind of checkpoint."""
        key = (kind, *map(_likeness, tensors))
        _, count = self._seeds.pop(key, (seed, 0))
        self._seeds[key] = seed, count + 1
        if len(self._seeds) > MOST_CALLS:
            self._seeds.popitem(last=False)

    def recall(self, layer: str, *tensors: Tensor) -> Tensor | None:
        """Return the seed of the call that is being recomputed, None for a call that was never made."""
        likeness = tuple(map(_likeness, tensors))
        kinds = (HOOKS, REENTRANT) if _hooks() else (REENTRANT, HOOKS)
        key = next((key for kind in kinds if (key := (kind, *likeness)) in self._seeds), None)
        if key is None:
            return None
        seed, count = self._seeds[key]
        if count > 1:
            raise Asking(f"convreg::torch.convolution of layer {layer!r}").refuse(
                "seed", "a counted seed", "seed=None under a checkpoint if a layer gets equal inputs twice before "
                "their backward pass: which of the calls is recomputed cannot be told. For use_reentrant=True, calls "
                "under no_grad in training mode count")
        self._seeds[key] = seed, 0
        return seed

    def __deepcopy__(self, memo: dict[int, Any]) -> Calls:
        """Return a record without calls: a copy of a layer has made none."""
        return Calls()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a record without calls."""
        return (Calls, ())


def _likeness(input: Tensor) -> tuple[Any, ...]:
    """Return what tells inputs apart: shape, dtype and a hash of the numbers in their order."""
    numbers = input.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return (tuple(input.shape), input.dtype, hash(numbers.tobytes()))


HOOKS, REENTRANT = "hooks", "reentrant"
"""The kinds of checkpoint. Hooks for saved tensors recompute the one, a backward pass of its own the other."""


def _hooks() -> bool:
    """Whether hooks for saved tensors are active: in a checkpoint of this kind, the first time and the second."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # PyTorch before 2.6 does not tell
    return top is None or top(True) is not None


def _checkpoint(training: bool) -> str | None:
    """Return the kind of checkpoint that may compute the present call again, None if none can."""
    if torch.is_grad_enabled():
        return HOOKS if _hooks() else None
    return REENTRANT if training else None


def _readable(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor can be read: they cannot in a trace and in a transform of torch.func."""
    proxy = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY)
    return is_plain(tensor) and proxy is None and not torch._C._is_tracing()


def counted_seed(owner: Any, layer: str, training: bool, *tensors: Tensor) -> Tensor:
    """Return the seed of a call and advance the owner's counter, unless the call is a recomputation.

    Parameters
    ----------
    owner : object
        Has the seed of the next call, one int64, as ``_convreg_seed``, and the calls so far as ``_convreg_calls``.
    layer : str
    training : bool
        Whether a checkpoint of the reentrant kind, whose first pass is under no_grad, may compute the call again.
    *tensors : Tensor
        What the call is recognised by.
    """
    if torch.compiler.is_compiling() and not _exporting():
        # A new tensor, because compiled code may compute the seed again in the backward pass from the old one.
        seed = owner._convreg_seed
        owner._convreg_seed = seed + 1
        return apart(seed)
    readable = not torch.compiler.is_compiling() and all(map(_readable, tensors))
    if readable and recomputing():
        seed = owner._convreg_calls.recall(layer, *tensors)
        if seed is not None:
            return seed
    seed = apart(owner._convreg_seed.clone())
    owner._convreg_seed.add_(1)
    if readable and (kind := _checkpoint(training)) is not None:
        owner._convreg_calls.note(seed, kind, *tensors)
    return seed
