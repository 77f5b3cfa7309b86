"""Random region graphs: which columns a tensorised circuit splits from which.

A *replica* splits the set of all columns in two, each part in two again, and so on: after ``depth``
splits it has ``2**depth`` leaf regions. Region b of a level with B regions has the children b and
b + B of the next level, so the left children of a level come first, and the leaf regions alone say
everything (Peharz et al., "Random sum-product networks", UAI 2019).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import IntArray


def random_regions(
    columns: Sequence[int],
    depth: int,
    replicas: int,
    rng: np.random.Generator,
    image: tuple[int, int] | None = None,
) -> IntArray:
    """Draw the leaf regions of some replicas.

    Parameters
    ----------
    columns : sequence of int
        The columns to be split, at least one.
    depth : int
        Splits from the root to a leaf region. No more are made than there are columns for, and at
        least one: of a single column the other part is empty.
    replicas : int
    rng : Generator
    image : tuple of int, optional
        Height and width of an image whose pixels, row after row, are the columns: then a region is
        a rectangle, and a split a cut near its middle along a random side. Default: a split is a
        random half.

    Returns
    -------
    ndarray of int64, shape (2**depth, replicas, widest)
        Columns of each leaf region; -1 where it has fewer than the widest.

    Raises
    ------
    ConfigError
        If a number is below 1, or the image has another number of pixels.
    """
    if depth < 1 or replicas < 1 or len(columns) < 1:
        raise ConfigError(
            f"regions need a depth, replicas and columns of at least 1, got {depth}, {replicas} "
            f"and {len(columns)}"
        )
    pixels = np.asarray(columns, dtype=np.int64)
    if image is not None:
        if image[0] * image[1] != len(pixels):
            raise ConfigError(f"an image {image[0]} x {image[1]} has not {len(pixels)} pixels")
        pixels = pixels.reshape(image)
    depth = max(1, min(depth, len(columns).bit_length() - 1))
    drawn = [_leaf_regions(pixels, depth, rng) for _ in range(replicas)]
    widest = max(len(region) for replica in drawn for region in replica)
    regions = np.full((2**depth, replicas, widest), -1, dtype=np.int64)
    for r, replica in enumerate(drawn):
        for g, region in enumerate(replica):
            regions[g, r, : len(region)] = np.sort(region)
    return regions


def _leaf_regions(pixels: IntArray, depth: int, rng: np.random.Generator) -> list[IntArray]:
    """Return the columns of each leaf region of one replica."""
    parts = [pixels if pixels.ndim == 2 else rng.permutation(pixels)]
    for _ in range(depth):
        halves = [_halves(part, rng) for part in parts]
        parts = [left for left, _ in halves] + [right for _, right in halves]
    return [part.ravel() for part in parts]


def _halves(part: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    if part.ndim == 1:
        # A column more on a random side, or the same side would have all of them.
        middle = (len(part) + int(rng.integers(2))) // 2
        return part[:middle], part[middle:]
    height, width = part.shape
    # The longer side is the likelier, and one pixel is never cut while there is another.
    if height == 1 or (width > 1 and rng.random() * (height + width) >= height):
        left, right = _halves_of_rows(part.T, rng)
        return left.T, right.T
    return _halves_of_rows(part, rng)


def _halves_of_rows(part: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    middle = max(1, round(len(part) * rng.uniform(0.4, 0.6)))
    return part[:middle], part[middle:]
