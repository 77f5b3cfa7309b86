"""Mixtures of Chow-Liu trees over categories, trained by sums over rows: the server's side.

A Chow-Liu tree is the most probable distribution in which each variable depends on at most one
other (Chow and Liu 1968), and a function of counts of pairs of states; a mixture of them
(Meila and Jordan 2000) is trained by EM on counts weighted by responsibilities. A federation whose
parties hold the same columns thus trains the mixture of its pooled rows, to the last bit, whoever
holds which rows. A party answers (:mod:`flwr_causal.core.circuits.trees.sums`):

- pairs: counts of pairs of states, once. From them the server draws where components start;
- products: a few steps of EM of components in which variables are independent, which are small;
- trees: one step (or some more) with counts of pairs for every component.

Trees are drawn to the pooled table of pairs, each variable by as many rows as the counts ask for.
With a target each class has mixtures of its own. `request` and `step` are pure; a strategy carries
what they exchange.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.exchanges import Request, exchanged
from flwr_causal.core.circuits.trees.mixtures import Mixtures, log_weights, to_arrays
from flwr_causal.core.circuits.trees.pair_sums import Layout
from flwr_causal.core.circuits.trees.priors import (
    drawn_products,
    prior_cells,
    products,
    shrunk_trees,
)
from flwr_causal.core.circuits.trees.sums import sums
from flwr_causal.core.circuits.trees.tables import Trees, chow_liu_tree
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.circuits.trees.rows import Plan

FloatArray = NDArray[np.float64]

# Rows for each component of an automatic number of them, and for each free parameter of a tree.
ROWS_PER_COMPONENT = 250.0
ROWS_PER_PARAMETER = 0.75
MOST_COMPONENTS = 80

# fmt: off
STRENGTHS = (0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100, 200, 300, 500, 1000, 2000)
# fmt: on


@dataclass(frozen=True)
class Options:
    """How mixtures are trained.

    Parameters
    ----------
    components : int, tuple of int or None, default None
        Trees of a mixture, for each class or for all alike. None: see :func:`automatic_components`.
    ensembles : int, default 3
        Mixtures whose mean is taken: .2 to .4 nats better than one on the larger binary sets. They
        share exchanges, whose size grows in proportion.
    product_steps : int, default 5
        Exchanges before the trees. Three cost up to .04 nats, eight gain less than .01.
    tree_steps : int, default 1
        Exchanges of counts of pairs for each component. A second one overfits where rows are few:
        it cost .09 nats on jester and gained .01 on plants.
    strengths : tuple of float
        Rows of the pooled table, one of which is chosen for each variable; see
        :func:`flwr_causal.core.circuits.trees.priors.shrunk_trees`.
    """

    components: int | tuple[int, ...] | None = None
    ensembles: int = 3
    product_steps: int = 5
    tree_steps: int = 1
    strengths: tuple[float, ...] = STRENGTHS

    def __post_init__(self) -> None:
        given = self.components
        sizes = (given,) if isinstance(given, int) else given or (1,)
        if min(sizes) < 1 or min(self.ensembles, self.product_steps, self.tree_steps) < 1:
            raise ConfigError(
                "components, ensembles, product_steps and tree_steps must be 1 or more, got "
                f"{given}, {self.ensembles}, {self.product_steps} and {self.tree_steps}"
            )
        strengths = tuple(float(one) for one in self.strengths)
        if not strengths or not all(0.0 < one < np.inf for one in strengths):
            raise ConfigError(f"strengths needs numbers above 0, got {self.strengths}")
        object.__setattr__(self, "strengths", strengths)


@dataclass(frozen=True, eq=False)
class State:
    """What the server knows so far; None where that is yet to come.

    Parameters
    ----------
    plan : Plan
    options : Options
    layout : Layout, optional
    rows : ndarray of float, shape (C,), optional
        Rows of each class.
    cells : tuple of arrays (total, total), optional
        Of each class what its trees are drawn to.
    mixtures : tuple of Mixtures, optional
        Of each class.
    exchanges : int
        Done so far.
    """

    plan: Plan
    options: Options
    layout: Layout | None = None
    rows: FloatArray | None = None
    cells: tuple[FloatArray, ...] = ()
    mixtures: tuple[Mixtures, ...] = ()
    exchanges: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing is left to ask."""
        return self.exchanges == 1 + self.options.product_steps + self.options.tree_steps


def init(plan: Plan, options: Options | None = None) -> State:
    """Return the state before the first exchange.

    Raises
    ------
    ConfigError
        If the components are not given for each class.
    """
    options = options or Options()
    given = options.components
    if isinstance(given, tuple) and len(given) != plan.num_classes:
        raise ConfigError(f"components are given for {len(given)} of {plan.num_classes} classes")
    return State(plan, options)


def request(state: State) -> Request | None:
    """Return what to ask of the parties next; None when all is known."""
    if state.complete:
        return None
    if state.layout is None:
        return Request("pairs", {"num_states": np.array(state.plan.num_states, dtype=np.float64)})
    arrays = {"complete": np.array(float(state.layout.complete))} | to_arrays(state.mixtures)
    last = state.exchanges > state.options.product_steps
    return Request("trees" if last else "products", arrays)


def step(state: State, summed: Mapping[str, FloatArray]) -> State:
    """Return the state after an exchange.

    Parameters
    ----------
    state : State
    summed : mapping of str to arrays
        The parties' replies to ``request(state)``, added up.

    Raises
    ------
    DataError
        If there are no rows.
    """
    state = replace(state, exchanges=state.exchanges + 1)
    if state.layout is None:
        return _started(state, summed["counts"])
    mixtures, first = [], 0
    for known, cells in zip(state.mixtures, state.cells, strict=True):
        counts = summed["counts"][first : first + known.size]
        first += known.size
        trees = _trees(state, state.layout, counts, cells)
        mixtures.append(Mixtures(trees, log_weights(counts[:, 0].reshape(known.log_weights.shape))))
    return replace(state, mixtures=tuple(mixtures))


def train(parties: Sequence[FloatArray], plan: Plan, options: Options | None = None) -> State:
    """Exchange until all is known, with parties in one process.

    Parameters
    ----------
    parties : sequence of arrays
        Values of each.
    """
    start = init(plan, options)
    return exchanged(start, parties, plan, request=request, sums=sums, step=step)


def automatic_components(rows: float, parameters: int) -> int:
    """Return how many trees a mixture has where that is not given.

    One for every 250 rows, and for every .75 rows of a free parameter of the pooled tree, up to 80.
    On binary sets of 9,000 to 17,000 rows and 16 to 100 variables, twice as many change the
    held-out log-likelihood by less than .1 nats, half as many cost up to .15.

    Parameters
    ----------
    rows : float
        Of the class.
    parameters : int
        Of the pooled tree.
    """
    per_component = max(ROWS_PER_COMPONENT, ROWS_PER_PARAMETER * parameters)
    return int(np.clip(rows // per_component, 1, MOST_COMPONENTS))


def _started(state: State, counts: FloatArray) -> State:
    """Take the counts of pairs in, and draw where components start."""
    plan, options = state.plan, state.options
    rows = counts[:, 0]
    if rows.sum() < 1:
        raise DataError(f"the parties have no {plan.min_rows} rows that count: nothing to learn")
    everything = Layout(plan.num_states, complete=False)
    pairs = [everything.pair_counts(one) for one in counts]
    pooled = np.sum(pairs, axis=0)
    present = np.add.reduceat(np.diagonal(pooled), everything.first)
    layout = Layout(plan.num_states, bool((present == rows.sum()).all()))
    cells = tuple(prior_cells(layout, own, pooled) for own in pairs)
    mixtures = []
    for c, (own, count) in enumerate(zip(cells, rows, strict=True)):
        size = _size(options, c, float(count), layout, own)
        rng = np.random.default_rng([plan.seed, c])
        trees = drawn_products(layout, own, options.ensembles * size, rng)
        mixtures.append(Mixtures(trees, log_weights(np.ones((options.ensembles, size)))))
    return replace(state, layout=layout, rows=rows, cells=cells, mixtures=tuple(mixtures))


def _size(options: Options, which: int, rows: float, layout: Layout, cells: FloatArray) -> int:
    """Trees of a mixture of a class."""
    if isinstance(options.components, int):
        return options.components
    if options.components is not None:
        return options.components[which]
    tree = chow_liu_tree(layout, np.zeros_like(cells), cells)
    return automatic_components(rows, int((tree.sizes - tree.sizes // tree.states).sum()))


def _trees(state: State, layout: Layout, counts: FloatArray, cells: FloatArray) -> Trees:
    """Return components from their counts, of states or of pairs."""
    if state.exchanges <= 1 + state.options.product_steps:
        return products(layout, layout.state_counts(counts), cells)
    return shrunk_trees(layout, counts, cells, state.options.strengths)
