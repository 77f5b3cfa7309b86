"""EM of a tensorised circuit by sums over rows: parties with the same columns train one circuit.

The first exchange sums what standardising needs. Each of the others is an E-step: the server sends
the parameters, a party answers with expected counts, which are added, and the server divides. The
circuit is that of the pooled rows, whoever holds which. With ``folds`` above 1 an exchange asks for
a part of the rows only, chosen by a hash of their values and so the same part however they are
split: stepwise EM, which needs fewer exchanges than passes over all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.class_first.rows import row_folds
from flwr_causal.core.circuits.exchanges import Request, exchanged
from flwr_causal.core.circuits.tensors.em import Counts, cooled, counted, stepped
from flwr_causal.core.circuits.tensors.layout import TensorLayout
from flwr_causal.core.circuits.tensors.leaf import TensorLeaf
from flwr_causal.core.circuits.tensors.regions import random_regions
from flwr_causal.core.circuits.tensors.start import first_parameters, scale_sums
from flwr_causal.core.circuits.tensors.storage import parameter_arrays, parameters_from
from flwr_causal.core.linear.moments import CONSTANT_TOLERANCE
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.tensors.einsum_network import EinsumNetwork

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Arrays = dict[str, FloatArray]

# Squares about an origin that lies so many deviations from the mean have lost four digits.
FAR = 100.0


class Plan(NamedTuple):
    """What all parties agree on before the first sum.

    Parameters
    ----------
    names : tuple of str
    num_states : tuple of int
        Of each column of the domain, 0 of a number.
    target : int or None
        The column that has a root for each state.
    options : EinsumNetwork
    seed : int
        Of regions and first parameters; only the server draws them, and the folds' hash.
    folds : int
        Parts of the rows, of which each exchange takes the next.
    min_rows : int
        A party leaves out what it has of a class where it has fewer than so many rows of it, of the
        fold that is asked about. 1 leaves out none, and then sums are those of the pooled rows.
    """

    names: tuple[str, ...]
    num_states: tuple[int, ...]
    target: int | None
    options: EinsumNetwork
    seed: int = 0
    folds: int = 1
    min_rows: int = 1


@dataclass(frozen=True, eq=False)
class State:
    """What the server knows so far.

    Parameters
    ----------
    plan : Plan
    origin : ndarray of float, shape (d,)
        About which the first sums are taken.
    regions : ndarray of int64, shape (G, R, V)
    shift, scale : ndarray of float, shape (d,), optional
        None until the first sums are there.
    rows : float
        Of all parties.
    parameters : dict of arrays, optional
    exchange : int
        E-steps so far.
    log_likelihoods : tuple of float
        Mean of a row under the parameters that each E-step was asked with.
    """

    plan: Plan
    origin: FloatArray
    regions: IntArray
    shift: FloatArray | None = None
    scale: FloatArray | None = None
    rows: float = 0.0
    parameters: Arrays | None = None
    exchange: int = 0
    log_likelihoods: tuple[float, ...] = ()


def plan_for(
    domain: Domain, options: EinsumNetwork, seed: int = 0, folds: int = 1, min_rows: int = 1
) -> Plan:
    """Return the plan of a domain.

    Parameters
    ----------
    domain : Domain
    options : EinsumNetwork
        ``epochs`` times ``folds`` exchanges follow the first. ``step`` counts with more than one
        fold, ``batch_size`` never.
    seed : int, default 0
    folds, min_rows : int, default 1
        See :class:`Plan`.

    Raises
    ------
    ConfigError
        If the target has no states or is the only column, or the columns are no image.
    """
    states = domain.num_states
    target = None if options.target is None else domain.index(options.target)
    if target is not None and states[target] == 0:
        raise ConfigError(f"the target {options.target!r} holds numbers: make it a category")
    if len(states) - (target is not None) < 1:
        raise ConfigError("there is no column beside the target")
    if folds < 1 or min_rows < 1:
        raise ConfigError(f"folds and min_rows must be at least 1, got {folds} and {min_rows}")
    return Plan(domain.names, tuple(states.tolist()), target, options, seed, folds, min_rows)


def init(plan: Plan) -> State:
    """Return the state before the first exchange."""
    columns = [j for j in range(len(plan.names)) if j != plan.target]
    options = plan.options
    rng = np.random.default_rng([plan.seed, 0])
    regions = random_regions(columns, options.depth, options.replicas, rng, options.image)
    return State(plan, np.zeros(len(plan.names)), regions)


def request(state: State) -> Request | None:
    """Return what to ask of the parties next; None when all is known."""
    if state.parameters is None or state.shift is None or state.scale is None:
        return Request("scale", {"origin": state.origin})
    if state.exchange >= state.plan.options.epochs * state.plan.folds:
        return None
    arrays = {
        "fold": np.array([float(state.exchange % state.plan.folds)]),
        "regions": state.regions.astype(np.float64),
        "shift": state.shift,
        "scale": state.scale,
    }
    return Request("counts", arrays | state.parameters)


def sums(values: FloatArray, plan: Plan, request: Request) -> Arrays:
    """Answer a request from a party's rows, shape (n, d); missing values may be there."""
    if request.phase == "scale":
        return scale_sums(_enough(values, plan), plan.num_states, request.arrays["origin"])
    layout = _layout(
        plan,
        request.arrays["regions"].astype(np.int64),
        request.arrays["shift"],
        request.arrays["scale"],
    )
    parameters = parameters_from(layout, request.arrays)
    if plan.folds > 1:
        hashed = np.where(np.isnan(values), np.inf, values)
        own = row_folds(hashed, plan.folds, plan.seed) == int(request.arrays["fold"][0])
        values = values[own]
    values = _enough(values, plan)
    if not len(values):
        return _nothing(layout, request.arrays)
    counts, densities = counted(layout, parameters, layout.rows(values))
    if not np.isfinite(densities):
        raise DataError("a row is impossible under the circuit of the others: it cannot be counted")
    arrays = counts._asdict()
    layers = arrays.pop("layers")
    arrays |= {f"layer.{level}": one for level, one in enumerate(layers)}
    found = {name: one.cpu().numpy().astype(np.float64) for name, one in arrays.items()}
    return found | {"rows": np.array([float(len(values))]), "log_densities": np.array([densities])}


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
        If there are no rows, or a number is missing in all of them.
    """
    if state.parameters is None:
        return _scaled(state, summed)
    rows = float(summed["rows"][0])
    if rows == 0.0:  # a fold that no row falls into
        return replace(state, exchange=state.exchange + 1)
    layout = layout_of(state)
    options = state.plan.options
    layers = tuple(layout.tensor(summed[f"layer.{level}"]) for level in range(layout.depth))
    statistics, presence, root = (
        layout.tensor(summed[name]) for name in ("statistics", "presence", "root")
    )
    parameters = stepped(
        layout,
        parameters_from(layout, state.parameters),
        Counts(statistics, presence, layers, root),
        rows,
        step_of(state),
        options.smoothing / state.rows,
        options.variances,
    )
    return replace(
        state,
        parameters=parameter_arrays(parameters),
        exchange=state.exchange + 1,
        log_likelihoods=(*state.log_likelihoods, float(summed["log_densities"][0]) / rows),
    )


def step_of(state: State) -> float:
    """Return the step of the next M-step; with one fold it is EM itself."""
    options, folds = state.plan.options, state.plan.folds
    if folds == 1:
        return 1.0
    return cooled(options.step, state.exchange / (options.epochs * folds))


def fitted(state: State, domain: Domain) -> Circuit:
    """Return the circuit with the parameters that are known."""
    if state.parameters is None:
        raise ConfigError("there are no sums yet: exchange at least once")
    layout = layout_of(state)
    return Circuit(domain, TensorLeaf.of(layout, parameters_from(layout, state.parameters)))


def train(parties: Sequence[FloatArray], plan: Plan) -> State:
    """Exchange until all is known, with parties in one process; ``parties`` hold values."""
    start = init(plan)
    return exchanged(start, parties, plan, request=request, sums=sums, step=step)


def scaled(values: FloatArray, plan: Plan) -> State:
    """Return the state before the first E-step, of the rows of one party."""
    state = init(plan)
    while (asked := request(state)) is not None and asked.phase == "scale":
        state = step(state, sums(values, plan, asked))
    return state


def layout_of(state: State) -> TensorLayout:
    """Return the layout of a state that knows its scale."""
    assert state.shift is not None
    assert state.scale is not None
    return _layout(state.plan, state.regions, state.shift, state.scale)


def _layout(plan: Plan, regions: IntArray, shift: FloatArray, scale: FloatArray) -> TensorLayout:
    options = plan.options
    states = np.array(plan.num_states, dtype=np.int64)
    return TensorLayout(
        states, regions, shift, scale, plan.target, options.device, options.precision
    )


def _enough(values: FloatArray, plan: Plan) -> FloatArray:
    """Return the rows of classes of which there are enough."""
    if plan.min_rows == 1:
        return values
    labels = np.zeros(len(values)) if plan.target is None else values[:, plan.target]
    _, places, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return values[sizes[places] >= plan.min_rows]


def _nothing(layout: TensorLayout, parameters: Mapping[str, FloatArray]) -> Arrays:
    """Return the sums over no row."""
    units = parameters["means" if len(layout.numbers) else "probabilities"].shape[1:]
    arrays = {name: np.zeros_like(parameters[name]) for name in parameters if "layer" in name}
    return arrays | {
        "statistics": np.zeros((len(layout.statistic_columns), *units)),
        "presence": np.zeros((len(layout.columns), *units)),
        "root": np.zeros_like(parameters["root"]),
        "rows": np.zeros(1),
        "log_densities": np.zeros(1),
    }


# -- the first exchange ---------------------------------------------------------------------------


def _scaled(state: State, summed: Mapping[str, FloatArray]) -> State:
    plan, options, counts = state.plan, state.plan.options, summed["counts"]
    numbers = np.array(plan.num_states) == 0
    unseen = np.flatnonzero(numbers & (counts == 0))
    if len(unseen) or not counts.any():
        listed = ", ".join(plan.names[j] for j in unseen) or "all columns"
        raise DataError(f"no row holds a value of {listed}: leave them out")
    n = np.maximum(counts, 1.0)
    apart = summed["first"] / n
    variance = np.maximum(summed["second"] / n - apart**2, 0.0)
    far = numbers & (np.abs(apart) > FAR * np.sqrt(variance))
    if far.any() and not state.origin.any():
        return replace(state, origin=np.where(numbers, apart, 0.0))
    shift = np.where(numbers, state.origin + apart, 0.0)
    constant = variance <= (CONSTANT_TOLERANCE * np.abs(shift)) ** 2
    scale = np.where(numbers & ~constant, np.sqrt(variance), 1.0)
    if options.image is not None and numbers.any():
        # Pixels are comparable; of one that never changes nothing else would say what is little.
        common = np.sqrt(variance[numbers].mean())
        shift[numbers] = shift[numbers].mean()
        scale[numbers] = common if common > 0 else 1.0
    state = replace(
        state,
        shift=shift,
        scale=scale,
        rows=float(summed["rows"][0]),
    )
    return replace(
        state, parameters=first_parameters(layout_of(state), options, plan.seed, summed["states"])
    )
