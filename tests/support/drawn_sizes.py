"""Drawn sizes of convolutions, about the edges of the engine's blocks."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from drawn import Drawn

EDGES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65)
PRIMES = (1, 1, 2, 3, 5, 7, 11, 13, 17, 19)
TEAM = 1_000_000  # products of numbers above which the engine takes more than one thread
SMALL, LARGE = 200_000, 3_000_000  # ... of a call, at most


class Axis(NamedTuple):
    """A spatial axis of a convolution."""

    y: int
    k: int
    s: int
    d: int
    begin: int
    end: int

    @property
    def x(self) -> int:
        return (self.y - 1) * self.s + (self.k - 1) * self.d + 1 - self.begin - self.end


class Sizes(NamedTuple):
    """A convolution before it is cut to size; `c` and `m` channels in a group on the large and the small side."""

    batch: int
    groups: int
    c: int
    m: int
    axes: tuple[Axis, ...]

    @property
    def products(self) -> int:
        return self.batch * self.groups * self.c * self.m * prod(axis.y * axis.k for axis in self.axes)


def draw_axis(
    rng: random.Random, y: int, ks=(1, 2, 3, 3, 4, 5), ss=(1, 1, 1, 2, 3, 4, 5), ds=(1, 1, 1, 2, 3, 4)
) -> Axis:
    k, s, d = rng.choice(ks), rng.choice(ss), rng.choice(ds)
    begin, end = rng.choice([0, 0, k // 2, k // 2, k - 1, (k - 1) * d // 2, 1]), rng.choice([0, 0, k // 2, 1])
    return Axis(y, k, s, d, begin, end)


def draw_axes(rng: random.Random, longest: int, ranks=(1, 2, 2, 2, 3), **more: Any) -> tuple[Axis, ...]:
    edges = [edge for edge in EDGES if edge <= longest]
    return tuple(draw_axis(rng, rng.choice(edges), **more) for _ in range(rng.choice(ranks)))


def any_sizes(rng: random.Random) -> Sizes:
    return Sizes(rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2, 3, 5]), rng.choice(EDGES), rng.choice(EDGES),
                 draw_axes(rng, 65))


def few_channels(rng: random.Random) -> Sizes:
    """First layers, last layers, patches."""
    channels = [rng.choice([1, 2, 3, 3, 4, 5, 8]), rng.choice(EDGES)]
    rng.shuffle(channels)
    return Sizes(rng.choice([1, 2, 3]), rng.choice([1, 1, 1, 2]), *channels,
                 draw_axes(rng, 49, ks=(1, 3, 4, 5, 7), ss=(1, 2, 2, 3, 4, 5)))


def depthwise(rng: random.Random) -> Sizes:
    return Sizes(rng.choice([1, 2, 3, 5]), rng.choice([*EDGES, 13, 19]), *rng.choices([1, 1, 1, 2, 3], k=2),
                 draw_axes(rng, 65, ks=(1, 2, 3, 3, 5, 7)))


def prime_groups(rng: random.Random) -> Sizes:
    return Sizes(rng.choice([1, 2]), rng.choice(PRIMES), *rng.choices([1, 2, 3, 4, 5, 7, 8, 9], k=2),
                 draw_axes(rng, 33))


def pointwise(rng: random.Random) -> Sizes:
    return Sizes(rng.choice([1, 2, 4]), rng.choice([1, 1, 2]), rng.choice(EDGES), rng.choice(EDGES),
                 draw_axes(rng, 65, ks=(1,), ss=(1, 1, 2), ds=(1,)))


def long_lines(rng: random.Random) -> Sizes:
    """Lines beyond the widest tile, of few channels on the small side."""
    axes = [*draw_axes(rng, 9, ranks=(0, 1, 1)), draw_axis(rng, rng.choice([47, 48, 49, 95, 97, 130, 200, 517]))]
    if rng.random() < 0.5:
        axes.reverse()
    return Sizes(1, rng.choice([1, 1, 2]), rng.choice([1, 2, 3, 8]), rng.choice([1, 2, 7, 8, 9]), tuple(axes))


def few_columns(rng: random.Random) -> Sizes:
    return Sizes(rng.choice([1, 2, 8, 17, 33]), rng.choice([1, 1, 2]), rng.choice([17, 33, 65, 130]),
                 rng.choice([16, 64, 130]), draw_axes(rng, 3, ks=(1, 2, 3, 4), ds=(1,)))


def wide_sums(rng: random.Random) -> Sizes:
    """Channels about whole blocks of sums."""
    channels = [rng.choice([15, 16, 17, 31, 32, 33, 48, 63, 64, 65]), rng.choice([7, 8, 9, 16, 17, 33])]
    rng.shuffle(channels)
    return Sizes(rng.choice([1, 1, 2]), rng.choice([1, 1, 2]), *channels, draw_axes(rng, 33, ks=(1, 1, 2, 3)))


def separate_channels(rng: random.Random) -> Sizes:
    """One channel in a group on either side, and enough groups to fill vectors."""
    axes = draw_axes(rng, 17, ks=(1, 2, 3, 3, 5))
    return Sizes(rng.choice([1, 1, 2]), rng.choice([15, 16, 17, 32, 33, 48, 65]), 1, 1, axes)


def many_weights(rng: random.Random) -> Sizes:
    """Fully connected layers: weights beyond the caches and few positions."""
    axis = Axis(1, rng.choice([1, 2, 3]), 1, 1, 0, 0)
    channels = rng.choice([130, 200]), rng.choice([130, 300])
    return Sizes(rng.choice([1, 2, 8, 17]), 1, *channels, (axis,) * rng.choice([1, 2]))


def many_taps(rng: random.Random) -> Sizes:
    """Windows of so many taps that a call is divided; most of them meet padding."""
    k = rng.randint(40_000, 60_000)
    axis = Axis(rng.choice([1, 2]), k, 1, 1, k // 2 - 3, k // 2 - 3)
    return Sizes(1, rng.choice([1, 1, 2]), rng.choice([1, 2, 3, 5]), rng.choice([1, 2, 3]), (axis,))


KINDS: tuple[Callable[[random.Random], Sizes], ...] = (
    any_sizes, any_sizes, few_channels, few_channels, depthwise, depthwise, prime_groups, pointwise, long_lines,
    few_columns, wide_sums, wide_sums, separate_channels, separate_channels)
LARGE_KINDS = (*KINDS, many_weights, many_weights, many_weights, many_taps, many_taps, many_taps)


def cut_to_size(rng: random.Random, sizes: Sizes, most: int) -> Sizes:
    """Shorten drawn extents until there are no more products than that."""
    while sizes.products > most:
        part = rng.choice(["batch", "groups", "c", "m", *["axes"] * (2 * len(sizes.axes))])
        if part == "axes":
            axes = list(sizes.axes)
            at = rng.randrange(len(axes))
            axis = axes[at]
            axes[at] = axis._replace(y=_shorter(rng, axis.y)) if axis.y > 1 else axis._replace(k=max(1, axis.k - 1))
            sizes = sizes._replace(axes=tuple(axes))
        else:
            sizes = sizes._replace(**{part: _shorter(rng, getattr(sizes, part))})
    return sizes


def _shorter(rng: random.Random, extent: int) -> int:
    return rng.choice([edge for edge in EDGES if max(1, extent // 3) <= edge < extent] or [max(1, extent // 2)])


def drawn_case(rng: random.Random, symmetric: bool) -> Drawn:
    """A convolution; `symmetric`: padded alike at both ends."""
    large = rng.random() < 0.07
    sizes = cut_to_size(rng, rng.choice(LARGE_KINDS if large else KINDS)(rng), LARGE if large else SMALL)
    if large and sizes.products <= TEAM:  # enough for several threads
        sizes = sizes._replace(batch=sizes.batch * (TEAM // sizes.products + 1))
    axes = []
    for axis in sizes.axes:
        k, d = axis.k, axis.d
        begin = min(axis.begin, (k - 1) * d)
        axis = axis._replace(begin=begin, end=begin if symmetric else min(axis.end, (k - 1) * d))
        while axis.x < 1:
            axis = axis._replace(begin=max(0, axis.begin - 1), end=max(0, axis.end - 1))
        axes.append(axis)
    extra = [rng.choice([0, 0, axis.s - 1, axis.s // 2]) for axis in axes]
    groups, c, m = sizes.groups, sizes.c, sizes.m
    return Drawn(
        groups, *(tuple(getattr(axis, name) for axis in axes) for name in ("s", "d", "begin", "end")),
        (sizes.batch, groups * c, *(a.x + more for a, more in zip(axes, extra, strict=True))),
        (sizes.batch, groups * m, *(a.y for a in axes)), (groups * m, c, *(a.k for a in axes)))
