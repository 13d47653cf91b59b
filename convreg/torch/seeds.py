"""Seeds of stochastic rounding for the calls of layers."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import Asking
from .bridge import is_plain, stored

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
    return apart(torch.randint(2**62, (), dtype=torch.int64, device="cpu"))


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

    def note(self, seed: Tensor, *tensors: Tensor) -> None:
        """Remember the seed of a call on some tensors."""
        key = (_in_checkpoint(), *map(_likeness, tensors))
        _, count = self._seeds.pop(key, (seed, 0))
        self._seeds[key] = seed, count + 1
        if len(self._seeds) > MOST_CALLS:
            self._seeds.popitem(last=False)

    def recall(self, layer: str, *tensors: Tensor) -> Tensor | None:
        """Return the seed of the call that is being recomputed, None for a call that was never made."""
        likeness = tuple(map(_likeness, tensors))
        keys = [key for key in ((False, *likeness), (True, *likeness)) if key in self._seeds]
        if _in_checkpoint() and (True, *likeness) in keys:  # calls outside of such checkpoints are never repeated here
            keys = [(True, *likeness)]
        if not keys:
            return None
        if sum(self._seeds[key][1] for key in keys) > 1:
            raise Asking(f"convreg::torch.convolution of layer {layer!r}").refuse(
                "seed", "a counted seed", "seed=None under a checkpoint if a layer gets equal inputs twice before "
                "their backward pass: which of the calls is recomputed cannot be told. For use_reentrant=True, all "
                "calls in training mode count")
        key = max(keys, key=lambda key: self._seeds[key][1])  # of two calls, one was repeated before
        seed, _ = self._seeds[key]
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
    numbers = input.detach().resolve_neg().contiguous().reshape(-1)
    if is_plain(numbers):
        digest = hash(stored(numbers.view(torch.uint8)).tobytes())
    else:  # of a subclass, which torch's operators alone can read
        bits = numbers.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[input.dtype.itemsize])
        digest = int((bits * (2 * torch.arange(bits.numel()) + 1)).sum().item())
    return (tuple(input.shape), input.dtype, digest)


def _in_checkpoint() -> bool:
    """Whether the innermost hooks for saved tensors are those of a checkpoint, in its first pass or its second.

    Checkpoints of the reentrant kind have no hooks. Older versions of PyTorch do not tell which hooks there are.
    """
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    hooks = None if top is None else top(True)
    if hooks is None or getattr(hooks[0], "__module__", "") != "torch.utils.checkpoint":
        return False
    return hooks[0].__qualname__.partition(".")[0] in ("_checkpoint_hook", "_recomputation_hook")


def _readable(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor can be read: not in a trace, and not in a transform of torch.func."""
    proxy = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY)
    return not (proxy is not None or torch._C._is_tracing() or isinstance(tensor, FakeTensor)
                or torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def counted_seed(owner: Any, layer: str, remembered: bool, *tensors: Tensor) -> Tensor:
    """Return the seed of a call and advance the owner's counter, unless the call is a recomputation.

    Parameters
    ----------
    owner : object
        Has the seed of the next call, one int64, as ``_convreg_seed``, and the calls so far as ``_convreg_calls``.
    layer : str
    remembered : bool
        Whether a checkpoint may compute the call again.
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
    if readable and remembered:
        owner._convreg_calls.note(seed, *tensors)
    return seed
