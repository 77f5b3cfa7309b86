"""Simulated nonlinear systems with a known graph; parties may have different functions.

The models of Yang et al. (AAAI 2024), section "Experimental Evaluation", who took them from Zheng
et al. (AISTATS 2020), section 5 and public code: every variable is a function of its causes plus
standard Gaussian noise, and variables without causes are noise. Two further models, step functions
and noise scaled by the causes, serve to find the limits of a method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from flwr_causal.core.arrays import FloatArray
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.partition import even_sizes
from flwr_causal.data.synthetic.random_graphs import (
    Seed,
    acyclic_edges,
    random_graph,
    signed_weights,
)
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Takes values of k causes (n, k), standard Gaussian noise (n,) and a generator, returns values
#: (n,). Each call draws the parameters of a new function from the generator.
Mechanism = Callable[[FloatArray, FloatArray, np.random.Generator], FloatArray]

#: Absolute weights are uniform between these (Zheng et al. 2020, public code); signs are random.
WEIGHT_RANGE = (0.5, 2.0)
#: Number of hidden units of an ANM-MLP (the same source).
HIDDEN_UNITS = 100
#: Largest variance of a Gaussian process that a draw may omit; the variance of the process is 1.
GP_REMAINDER = 1e-10
#: Rows of a package: 40 packages of 50 rows among ten parties (Yang et al. 2024, supplement).
PACKAGE_ROWS = 50
#: Smallest number of rows of a party.
LEAST_ROWS = 2
#: The mechanisms of the paper's data with different mechanisms.
PAPER_MECHANISMS = ("lg", "anm-mlp", "add-gp", "mim")


def linear_gaussian(causes: FloatArray, noise: FloatArray, rng: np.random.Generator) -> FloatArray:
    """LG: a weighted sum of the causes.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.data.synthetic.nonlinear import linear_gaussian
    >>> rng = np.random.default_rng(0)
    >>> linear_gaussian(rng.normal(size=(50, 2)), rng.normal(size=50), rng).shape
    (50,)
    """
    return causes @ _weights(rng, causes.shape[1]) + noise


def anm_mlp(causes: FloatArray, noise: FloatArray, rng: np.random.Generator) -> FloatArray:
    """ANM-MLP: a network of one hidden layer of 100 sigmoid units, without biases.

    As in the public code, variables are not centred. A variable whose mean is far from 0 saturates
    the units of its effects, so that some edges have no visible effect on the data.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.data.synthetic.nonlinear import anm_mlp
    >>> rng = np.random.default_rng(0)
    >>> anm_mlp(rng.normal(size=(50, 2)), rng.normal(size=50), rng).shape
    (50,)
    """
    inner, outer = (
        _weights(rng, (causes.shape[1], HIDDEN_UNITS)),
        _weights(rng, HIDDEN_UNITS),
    )
    hidden = 0.5 + 0.5 * np.tanh(0.5 * (causes @ inner))
    return hidden @ outer + noise


def additive_gaussian_process(
    causes: FloatArray, noise: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """ADD-GP: a sum of one smooth function of each cause.

    Each is a draw from the Gaussian process with the covariance ``exp(-(x - x')^2 / 2)``.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.data.synthetic.nonlinear import additive_gaussian_process
    >>> rng = np.random.default_rng(0)
    >>> additive_gaussian_process(rng.normal(size=(50, 2)), rng.normal(size=50), rng).shape
    (50,)
    """
    return np.asarray(sum(_gp_draw(x, rng) for x in causes.T) + noise)


def additive_index(causes: FloatArray, noise: FloatArray, rng: np.random.Generator) -> FloatArray:
    """MIM: tanh, cosine and sine of three weighted sums of the causes.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.data.synthetic.nonlinear import additive_index
    >>> rng = np.random.default_rng(0)
    >>> additive_index(rng.normal(size=(50, 2)), rng.normal(size=50), rng).shape
    (50,)
    """
    first, second, third = (causes @ _weights(rng, causes.shape[1]) for _ in range(3))
    return np.tanh(first) + np.cos(second) + np.sin(third) + noise


def step_functions(causes: FloatArray, noise: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Threshold: each cause adds a weight above its threshold and subtracts it below.

    Thresholds are uniform on [-1, 1], absolute weights between 0.5 and 2, of either sign.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.data.synthetic.nonlinear import step_functions
    >>> rng = np.random.default_rng(0)
    >>> step_functions(rng.normal(size=(50, 2)), rng.normal(size=50), rng).shape
    (50,)
    """
    thresholds = rng.uniform(-1.0, 1.0, causes.shape[1])
    sides = np.where(causes > thresholds, 1.0, -1.0)
    return sides @ _weights(rng, causes.shape[1]) + noise


def scaled_noise(causes: FloatArray, noise: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Multiplicative: a weighted sum of the causes, and noise times a function of them.

    The factor is ``exp(tanh(another weighted sum))``, between 0.37 and 2.7.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.data.synthetic.nonlinear import scaled_noise
    >>> rng = np.random.default_rng(0)
    >>> scaled_noise(rng.normal(size=(50, 2)), rng.normal(size=50), rng).shape
    (50,)
    """
    mean, inner = (causes @ _weights(rng, causes.shape[1]) for _ in range(2))
    return mean + np.exp(np.tanh(inner)) * noise


#: The models by the paper's names, and two that are not the paper's.
MECHANISMS: dict[str, Mechanism] = {
    "lg": linear_gaussian,
    "anm-mlp": anm_mlp,
    "add-gp": additive_gaussian_process,
    "mim": additive_index,
    "threshold": step_functions,
    "multiplicative": scaled_noise,
}


def simulate_nonlinear(
    adjacency: ArrayLike, num_rows: int, mechanism: str | Mechanism, seed: Seed
) -> FloatArray:
    """Draw the functions of a graph, and independent rows of them.

    Parameters
    ----------
    adjacency : array of shape (d, d)
        Nonzero at ``[i, j]`` where i causes j; acyclic.
    num_rows : int
        n.
    mechanism : str or callable
        Of every variable that has causes: a name in :data:`MECHANISMS`, or a function of the values
        of the causes (n, k), the noise (n,) and a generator that returns the values (n,).
    seed : int, sequence of int, or Generator

    Returns
    -------
    float64 array of shape (n, d)

    Raises
    ------
    ConfigError
        No acyclic graph, an unknown mechanism, or a negative number of rows.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.nonlinear import simulate_nonlinear
    >>> simulate_nonlinear([[0, 1], [0, 0]], 50, "anm-mlp", seed=0).shape
    (50, 2)
    """
    edges = acyclic_edges(adjacency)
    if num_rows < 0:
        raise ConfigError(f"the number of rows is {num_rows}: it must not be negative")
    if isinstance(mechanism, str):
        _check_mechanisms((mechanism,))
        mechanism = MECHANISMS[mechanism]
    rng = np.random.default_rng(seed)
    rows = np.zeros((num_rows, len(edges)))
    for j in topological_order(edges):
        noise = rng.standard_normal(num_rows)
        causes = rows[:, edges[:, j]]
        rows[:, j] = mechanism(causes, noise, rng) if causes.shape[1] else noise
    return rows


def deal_packages(num_rows: int, num_parties: int, seed: Seed) -> list[int]:
    """Draw uneven numbers of rows, as the paper's supplement does.

    Packages of 50 rows: every party gets one, and the others go to parties at random.

    Parameters
    ----------
    num_rows : int
        n; what does not fill a package goes to a party at random.
    num_parties : int
        K, at most n / 50.
    seed : int, sequence of int, or Generator

    Returns
    -------
    list of int
        K numbers of rows with the sum n.

    Raises
    ------
    DataError
        Fewer packages than parties.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.nonlinear import deal_packages
    >>> sizes = deal_packages(1000, 5, seed=0)
    >>> sum(sizes), min(sizes) >= 50
    (1000, True)
    """
    num_packages = num_rows // PACKAGE_ROWS
    if num_packages < num_parties:
        raise DataError(
            f"{num_rows} rows are {num_packages} packages of {PACKAGE_ROWS} for {num_parties} "
            f"parties: give {num_parties * PACKAGE_ROWS} rows or more, or sizes='even'"
        )
    rng = np.random.default_rng(seed)
    owners = rng.integers(num_parties, size=num_packages - num_parties)
    sizes = PACKAGE_ROWS * (1 + np.bincount(owners, minlength=num_parties))
    sizes[rng.integers(num_parties)] += num_rows % PACKAGE_ROWS
    return [int(size) for size in sizes]


def federated_nonlinear(
    num_variables: int,
    num_rows: int,
    num_parties: int,
    *,
    mechanisms: str | Sequence[str] = PAPER_MECHANISMS,
    iid: bool = False,
    graph: str = "er",
    degree: float = 2.0,
    seed: int = 0,
    sizes: str = "even",
) -> tuple[list[pd.DataFrame], CausalGraph]:
    """Simulate a federation with one graph: the settings of Yang et al. (AAAI 2024).

    The graph depends on ``num_variables``, ``graph``, ``degree`` and ``seed`` only. If each party
    has functions of its own, they do not depend on the number of parties. With ``iid`` the rows of
    all parties together are the same for every ``num_parties``.

    Parameters
    ----------
    num_variables : int
        d.
    num_rows : int
        n, of all parties together (2000 in the paper, 200 for each of ten).
    num_parties : int
        K.
    mechanisms : str or sequence of str
        Names in :data:`MECHANISMS`, one of which is chosen at random for all variables of a party
        (with ``iid`` of all parties). Default: the paper's four for parties that differ.
    iid : bool, default False
        Whether all parties have the same functions. Otherwise each has random functions of its own,
        also if there is only one mechanism.
    graph : {"er", "sf"}, default "er"
        :func:`erdos_renyi` or :func:`scale_free`.
    degree : float, default 2
        Mean number of neighbours: ``degree d / 2`` edges (rounded, at most all pairs); for "sf"
        half of it, rounded, is the number of edges per joining variable. The paper does not say
        how dense its graphs are; d edges are the setting of Ng & Zhang (2022), section 6.1.
    seed : int
        Everything follows from it.
    sizes : {"even", "uneven"}, default "even"
        "even": parties' numbers of rows differ by one at most; "uneven": see :func:`deal_packages`.

    Returns
    -------
    parties : list of DataFrame
        One a party, variables ``x0``, ``x1``, ...
    truth : CausalGraph
        Weights are 1 for edges.

    Raises
    ------
    ConfigError
        An unknown mechanism, graph or kind of sizes, or a number out of range.
    DataError
        If a party would have fewer than two rows, or with "uneven" no package.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.nonlinear import federated_nonlinear
    >>> tables, truth = federated_nonlinear(5, 200, 2)
    >>> [table.shape for table in tables], truth.kind
    ([(100, 5), (100, 5)], 'dag')
    """
    names = (mechanisms,) if isinstance(mechanisms, str) else tuple(mechanisms)
    _check_mechanisms(names)
    if num_parties < 1:
        raise ConfigError(f"{num_parties} parties: give at least one")
    for_graph, for_sizes, for_rows = np.random.default_rng(seed).spawn(3)
    if not degree >= 0:
        raise ConfigError(f"degree is {degree}: a mean number of neighbours is not negative")
    num_edges, edges_per_node = round(degree * num_variables / 2), round(degree / 2)
    adjacency = random_graph(graph, num_variables, num_edges, edges_per_node, for_graph)
    lengths = _lengths(num_rows, num_parties, sizes, for_sizes)
    # One generator for each system, so that a party's draws do not depend on other parties.
    streams = for_rows.spawn(1 if iid else num_parties)
    systems = [
        simulate_nonlinear(adjacency, length, names[stream.integers(len(names))], stream)
        for length, stream in zip([num_rows] if iid else lengths, streams, strict=True)
    ]
    truth = CausalGraph.from_array(adjacency.astype(np.float64))
    tables = np.split(np.concatenate(systems), np.cumsum(lengths)[:-1])
    return [pd.DataFrame(rows, columns=pd.Index(truth.names)) for rows in tables], truth


def _weights(rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
    return signed_weights(rng, *WEIGHT_RANGE, shape)


def _lengths(num_rows: int, num_parties: int, sizes: str, rng: np.random.Generator) -> list[int]:
    if sizes == "uneven":
        return deal_packages(num_rows, num_parties, rng)
    if sizes != "even":
        raise ConfigError(f"sizes is {sizes!r}: choose 'even' or 'uneven'")
    if num_rows < LEAST_ROWS * num_parties:
        raise DataError(
            f"{num_rows} rows for {num_parties} parties: each needs {LEAST_ROWS}, so give at least "
            f"{LEAST_ROWS * num_parties} rows, or fewer parties"
        )
    return even_sizes(num_rows, num_parties)


def _check_mechanisms(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in MECHANISMS]
    if unknown or not names:
        raise ConfigError(
            f"mechanisms are {list(names)!r}: choose one or more of {', '.join(MECHANISMS)}"
        )


def _gp_draw(x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw a Gaussian process at n points ``(n,)``.

    The draw uses the pivoted Cholesky factor of the covariance. The covariance is smooth: some tens
    of columns suffice, and no n x n matrix is formed.
    """
    variance = np.ones_like(x)
    factor = np.empty((0, len(x)))
    while len(factor) < len(x) and variance.max() > GP_REMAINDER:
        pivot = int(variance.argmax())
        column = np.exp(-0.5 * (x - x[pivot]) ** 2) - factor[:, pivot] @ factor
        column /= np.sqrt(variance[pivot])
        factor = np.vstack([factor, column])
        variance = variance - column**2
    return np.asarray(rng.standard_normal(len(factor)) @ factor)
