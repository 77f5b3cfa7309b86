"""The circuits that a class-first training ends in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.class_first.blocks import members
from flwr_causal.core.circuits.class_first.head import pieces
from flwr_causal.core.circuits.class_first.shrinkage import ClassMoments
from flwr_causal.core.circuits.class_first.tables import probabilities, starts_of
from flwr_causal.core.circuits.head_posterior import HeadPosterior
from flwr_causal.core.circuits.leaves.categorical import Categorical
from flwr_causal.core.circuits.leaves.elliptical import Elliptical
from flwr_causal.core.circuits.leaves.yeo_johnson import of_signed_log, signed_log
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from flwr_causal.core.circuits.class_first.training import State
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.head_posterior import Posterior
    from flwr_causal.core.circuits.nodes import Leaf, Node

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

INCOMPLETE = "the training is not complete: there is a request to answer yet"


def fitted(state: State, domain: Domain) -> CircuitModel:
    """Return the circuit of a training that is complete, and what tells the class.

    The density has one leaf over all numbers for each class. The class is told by a circuit of the
    same sums whose leaves are over blocks of correlated numbers, or by a logistic head. Classes of
    which no party has a row are in neither: their likelihood is 0.

    Raises
    ------
    ConfigError
        If an exchange is missing.
    """
    density, choice = density_of(state, domain), state.choice
    if choice is None or (state.head is not None and not state.head.done):
        raise ConfigError(INCOMPLETE)
    target = None if state.plan.target is None else domain.names[state.plan.target]
    if target is None:
        return CircuitModel(density)
    posterior: Posterior
    if state.head is None:
        posterior = Circuit(domain, root_of(state, choice.blocks, choice.block_dof))
    else:
        factors = _factors(state, pieces(choice.blocks), choice.block_dof)
        posterior = HeadPosterior(domain, target, tuple(map(tuple, factors)), state.head.head)
    return CircuitModel(density, target, posterior, state.threshold)


def density_of(state: State, domain: Domain) -> Circuit:
    """Return the circuit of the best density; see :func:`fitted`."""
    if state.choice is None:
        raise ConfigError(INCOMPLETE)
    everything = np.zeros(len(state.plan.columns), dtype=np.int64)
    return Circuit(domain, root_of(state, everything, state.choice.dof))


def root_of(state: State, blocks: IntArray, dof: float) -> Node:
    """Return the root of a circuit with one leaf for each class and block, and each category."""
    assert state.counts is not None
    present = np.flatnonzero(state.counts > 0)
    factors_of = _factors(state, members(blocks), dof)
    children: list[Node] = []
    for c in map(int, present):
        factors: list[Node] = list(factors_of[c])
        if state.plan.target is not None:
            factors.append(Categorical(state.plan.target, np.eye(state.plan.num_classes)[c]))
        children.append(Product(factors) if len(factors) > 1 else factors[0])
    if state.plan.target is None:
        return children[0]
    return Sum(children, state.counts[present] / state.counts.sum())


def _factors(state: State, parts: list[IntArray], dof: float) -> list[list[Leaf]]:
    """Return for each class its leaves over parts of the numbers, and its categories."""
    moments = transformed_moments(state)
    factors: list[list[Leaf]] = [
        [leaf_over(state, moments, c, part, dof) for part in parts]
        for c in range(state.plan.num_classes)
    ]
    if not state.plan.categories:
        return factors
    assert state.tables is not None
    sizes = np.array(state.plan.sizes, dtype=np.int64)
    tables = probabilities(state.tables.sum(axis=0), sizes)
    for leaves, row in zip(factors, tables, strict=True):
        for column, start, size in zip(state.plan.categories, starts_of(sizes), sizes, strict=True):
            leaves.append(Categorical(column, row[start : start + size]))
    return factors


def transformed_moments(state: State) -> ClassMoments:
    """Moments of the transformed numbers themselves, as leaves take them; of u where powers are 1.

    Sums were taken of coordinates that keep more digits.
    """
    known, moments = state.coordinates, state.moments
    assert known is not None
    assert moments is not None
    start = signed_log(known.middle)
    slope = np.exp((known.powers - 1.0) * start)
    origin = of_signed_log(start, known.powers) + slope * known.center
    unit = slope * known.unit
    return ClassMoments(origin + unit * moments.means, unit[:, None] * moments.covariances * unit)


def leaf_over(
    state: State, moments: ClassMoments, which: int, part: IntArray, dof: float
) -> Elliptical:
    """Return the leaf of some numbers in one class, from :func:`transformed_moments`."""
    assert state.coordinates is not None
    known = state.coordinates
    scope = tuple(np.array(state.plan.columns)[part].tolist())
    mean = moments.means[which, part]
    covariance = moments.covariances[which][np.ix_(part, part)]
    scale = known.scale[part]
    if (known.powers == 1.0).all():
        return Elliptical(scope, mean * scale, scale[:, None] * covariance * scale, dof)
    return Elliptical(scope, mean, covariance, dof, known.powers[part], scale, known.reach[part])
