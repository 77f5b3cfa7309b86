"""Tables whose columns depend on each other in different ways, to be divided among parties."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.world import World
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr_causal.core.arrays import FloatArray

    Columns = dict[str, FloatArray]

#: Standard deviation of the noise of y.
NOISE = 0.3


def _network(num_parents: int) -> Callable[[np.random.Generator, int], Columns]:
    """Return the maker of eight categories of three states with so many parents each."""

    def make(rng: np.random.Generator, n: int) -> Columns:
        states, found = 3, np.zeros((8, n), dtype=np.int64)
        for j in range(8):
            parents = np.zeros(0, dtype=np.int64)
            if j:
                parents = rng.choice(j, size=min(j, num_parents), replace=False)
            tables = rng.dirichlet(np.full(states, 0.5), size=states ** len(parents))
            row = np.zeros(n, dtype=np.int64)
            for parent in parents:
                row = row * states + found[parent]
            found[j] = (rng.random(n)[:, None] > tables[row].cumsum(axis=1)[:, :-1]).sum(axis=1)
        return {f"c{j}": np.array(list("uvw"))[own] for j, own in enumerate(found)}

    return make


def _mixed(rng: np.random.Generator, n: int) -> Columns:
    group = rng.integers(3, size=n)
    x = 1.5 * group + rng.normal(size=n)
    y = np.where(group == 1, -x, x) + rng.normal(0, 0.5, n)
    state = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * y)), "yes", "no")
    return {"group": np.array(list("abc"))[group], "x": x, "y": y, "state": state}


def _curve(of: Callable[[FloatArray], FloatArray]) -> Callable[[np.random.Generator, int], Columns]:
    def make(rng: np.random.Generator, n: int) -> Columns:
        x = rng.normal(size=n)
        return {"x": x, "y": of(x) + rng.normal(0, NOISE, n)}

    return make


def _clusters(rng: np.random.Generator, n: int) -> Columns:
    centres = rng.normal(0, 2, (4, 6))
    rows = centres[rng.integers(4, size=n)] + rng.normal(0, 0.7, (n, 6))
    return {f"v{j}": own for j, own in enumerate(rows.T)}


#: Makers of the columns of n rows.
KINDS: dict[str, Callable[[np.random.Generator, int], Columns]] = {
    "one parent": _network(1),
    "two parents": _network(2),
    "three parents": _network(3),
    "numbers and categories": _mixed,
    "line": _curve(lambda x: x),
    "square": _curve(lambda x: x**2 - 1),
    "clusters": _clusters,
}


def joint(seed: int, kind: str, num_rows: float = 600, num_test: float = 3000) -> World:
    """Return one table of a kind of `KINDS`, and rows for the test.

    Raises
    ------
    ConfigError
        If there is no such kind.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"there is no kind {kind!r} of joint tables: take one of {', '.join(KINDS)}"
        )
    train, test = round(num_rows), round(num_test)
    columns = KINDS[kind](np.random.default_rng(seed), train + test)
    frame = pd.DataFrame(columns)
    return World([frame[:train]], test=frame[train:].reset_index(drop=True))
