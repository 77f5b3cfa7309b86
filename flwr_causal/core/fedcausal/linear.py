"""FedCausal with linear effects: one graph from weights that every party fits to its own rows.

Yang et al., "Federated causality learning with explainable adaptive optimization", AAAI 2024,
Algorithm 1 with eqs. (4) and (5). K parties with centred rows ``X_k`` of shape ``(n_k, d)``,
``n = sum_k n_k``, ``S_k = X_k^T X_k / n_k`` and ``h(W) = tr exp(W * W) - d``. In one exchange

- each party solves (5), starting from the W that it received, and sends its ``W_k``:
  ``min 1/2 tr((I - W_k)^T S_k (I - W_k)) + lambda_1 |W_k|_1 + lambda_2 ||W_k - W||^2
  + alpha h(W_k) + rho/2 h(W_k)^2`` ;
- the server solves (4): ``min sum_k n_k/n ||W - W_k||^2 + alpha h(W) + rho/2 h(W)^2``. Up to a
  constant the sum is ``||W - M||^2`` with ``M = sum_k n_k/n W_k``, so that the server needs only
  the weighted mean. The problem is the projection of NOTEARS-ADMM with sparsity 0 and curvature 2.

:class:`~core.fedcausal.penalties.Penalties` updates alpha and rho in the two loops of Algorithm 1.
One exchange is one pass through the inner loop. :class:`ServerState` holds the variables of both
loops, so that :func:`server_step` takes one mean and returns the values to send next. A party keeps
no state between exchanges: it needs only its second moments and the server's message. The parties
that take part may therefore change from exchange to exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.consensus.projection import project
from flwr_causal.core.fedcausal.penalties import Penalties
from flwr_causal.core.graphs.acyclicity import h_exponential
from flwr_causal.core.interventions.moments import columns_by_rows
from flwr_causal.core.limits import require_computable
from flwr_causal.core.linear.solution import check_at_least_zero, check_sparsity
from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks


# The paper gives no value of lambda_1 and lambda_2. lambda_1 is that of NOTEARS (Zheng 2018): mean
# SHD with 10 parties of 200 rows and d = 10, 20, 40 (five seeds each) 0.4, 0.4, 0.6; with 0.05 it
# is 0.2, 0.2, 0.6, with 0.2 it is 1.4, 1.8, 2.4. A large lambda_2 keeps the parties near the first,
# poor W: mean SHD with two parties, d = 40 and 2048 rows (three seeds, data scaled from variance
# 15) 9.3 with 0.1, 4.7 with 0.01, 3.3 with 0.001 and with 0. It is not 0, because then a party with
# fewer rows than variables has no unique solution.
SPARSITY = 0.1
PROXIMITY = 0.001
# Measured: parties that solve their problem to full precision (50 steps, tolerance 1e-5) find the
# same graphs in as many exchanges at 4 to 5 times the work, because each exchange starts from the
# result of the one before.
MAX_STEPS = 5
# Measured: the same errors and exchanges as with 1e-4 (d = 20, 40, ten seeds each), in three
# quarters of the time.
TOLERANCE = 1e-3
# The second derivative of ||W - M||^2: eq. (4) has no factor 1/2.
CURVATURE = 2.0
# The mean is rounded to multiples of this, so that it does not depend on the order of the parties:
# an optimisation that ends early can turn a difference in the sixteenth digit into one in the
# third.
RESOLUTION = 2.0**-34


class PartyProblem(NamedTuple):
    """The parts of eq. (5) that are the same in all exchanges.

    Attributes
    ----------
    seconds
        ``(g, d, d)`` second moments ``S_k = X_k^T X_k / n_k``, divided by ``scale``: one of all
        rows or, under known interventions, of the rows that inform about some variables.
    second_of
        ``(d,)`` position in ``seconds`` of the one in the loss of each variable.
    counted
        ``(d,)`` share of the rows that inform about each variable.
    num_rows
        n_k, the party's weight in the mean.
    sparsity
        ``(d, d)`` lambda_1 of every edge, divided by ``scale``: 0 for required edges, infinite for
        edges that are not allowed.
    proximity
        lambda_2.
    """

    seconds: FloatArray
    second_of: IntArray
    counted: FloatArray
    num_rows: int
    sparsity: FloatArray
    proximity: float


class PartyStep(NamedTuple):
    """The result of a party's step.

    Attributes
    ----------
    weights
        ``(d, d)`` ``W_k``; only this is sent. Where only a share of the rows informs about a
        variable, the same share of its column is of ``W_k`` and the rest of the received W, so
        that the parties' mean converges to that of all rows that inform about it.
    h
        ``h(W_k)``.
    steps
        Number of Newton steps.
    """

    weights: FloatArray
    h: float
    steps: int


def party_problem(
    rows: FloatArray,
    masks: EdgeMasks,
    *,
    sparsity: float | FloatArray = SPARSITY,
    proximity: float = PROXIMITY,
    scale: float = 1.0,
    acted: BoolArray | None = None,
) -> PartyProblem:
    """Return eq. (5) for a party's rows.

    Parameters
    ----------
    rows
        ``(n_k, d)`` rows, centred; n_k may be 0.
    masks
        Allowed edges, and required ones, which bear no sparsity penalty.
    sparsity
        lambda_1 in units of the variables' variance, one number or ``(d, d)``.
    proximity
        lambda_2, in units of ``scale``.
    scale
        Unit of the loss, a variance that is the same for all parties (the mean variance of their
        variables), so that alpha, rho and lambda_2 do not depend on the units of the data.
        Default: 1, as in eq. (5).
    acted
        ``(n_k, d)`` whether a variable is the target of a known intervention in a row, which is
        then left out of this variable's loss; the others are centred again. Default: none is.

    Raises
    ------
    ConfigError
        If a penalty is negative or not finite, or ``scale`` is not positive.
    DataError
        If the rows have missing or infinite values.
    """
    num_rows, d = rows.shape
    check_sparsity(sparsity, d)
    check_at_least_zero(proximity=proximity)
    if not (np.isfinite(scale) and scale > 0):
        raise ConfigError(f"scale must be a positive number, got {scale}")
    if not np.isfinite(rows).all():
        raise DataError("the rows have missing or infinite values; drop or fill these rows first")
    parts = columns_by_rows(np.zeros((num_rows, d), dtype=bool) if acted is None else acted)
    seconds, second_of, counted = [], np.zeros(d, dtype=np.int64), np.ones(d)
    for k, (inside, effects) in enumerate(parts):
        own, size = rows, max(int(inside.sum()), 1)
        if not inside.all():
            own = rows[inside] - rows[inside].sum(axis=0) / size
            counted[effects] = inside.mean()
        seconds.append(own.T @ own / (size * scale))
        second_of[effects] = k
    penalties = np.where(masks.required, 0.0, np.asarray(sparsity) / scale)
    penalties[~masks.allowed] = np.inf
    np.fill_diagonal(penalties, np.inf)
    return PartyProblem(
        np.stack(seconds), second_of, counted, num_rows, penalties, float(proximity)
    )


@single_threaded()
def party_step(
    problem: PartyProblem,
    received: FloatArray,
    multiplier: float,
    penalty: float,
    *,
    max_steps: int = MAX_STEPS,
    tolerance: float = TOLERANCE,
) -> PartyStep:
    """Reduce eq. (5) by at most ``max_steps`` steps from the received W.

    Parameters
    ----------
    problem
        The party's problem.
    received
        ``(d, d)`` the server's W, the start and the centre of the proximal term.
    multiplier, penalty
        alpha and rho of this exchange.
    max_steps
        Largest number of proximal Newton steps.
    tolerance
        The steps end early after one that changes no weight by more than this.

    Raises
    ------
    ValueError
        If the received weights have the wrong shape or are not finite.
    DataError
        If they are too large to be computed with.
    """
    shape = problem.sparsity.shape
    if received.shape != shape or not np.isfinite(received).all():
        raise ValueError(
            f"the received weights must be finite and of shape {shape}, got shape {received.shape}"
        )
    # Imported here because it loads numba.
    from flwr_causal.core.fedcausal.linear_kernels import minimise

    # The variables are sorted by their moments, so that the result does not depend on their order.
    second = problem.seconds[problem.second_of, np.arange(shape[0])]
    order = np.argsort(np.sort(np.abs(second), axis=1).sum(axis=1), kind="stable")
    sorting = np.ix_(order, order)
    sparsity = problem.sparsity[sorting]
    weights, h, steps = minimise(
        np.ascontiguousarray(problem.seconds[:, order[:, None], order]),
        problem.second_of[order],
        np.where(np.isfinite(sparsity), received[sorting], 0.0),
        sparsity,
        problem.proximity,
        float(multiplier),
        float(penalty),
        max_steps,
        tolerance,
    )
    if not np.isfinite(h):
        raise DataError(
            f"eq. (5) overflows from the received weights, with alpha = {multiplier:.3g} and rho = "
            f"{penalty:.3g}: the parties' weights have become too large to be computed with; check "
            "the units of the columns at the parties"
        )
    result = np.empty_like(weights)
    result[sorting] = weights
    kept = np.where(np.isfinite(problem.sparsity), received, 0.0)
    result = problem.counted * result + (1.0 - problem.counted) * kept
    return PartyStep(result, h, steps)


@dataclass(frozen=True)
class Settings(Penalties):
    """Parameters of the two loops, and of ends before theirs. The defaults need few exchanges.

    Attributes
    ----------
    growth
        See `Penalties`. Default: 100, measured (10 parties of 200 rows of linear Gaussian
        data, d = 10 to 80, 36 cases): the final graph is reached one or two exchanges sooner than
        with 30, with as many errors or fewer (300 differs little). Weak edges on long cycles change
        only at a large rho: with the paper's 10, or with 30, the graph may stay the same for six
        exchanges at h = 1e-6 before it changes to its final form.
    max_exchanges
        Largest number of exchanges. Default: 16, the number of supplement B.
    patience
        Number of exchanges for which the thresholded graph must have stayed the same for an early
        end; 0: never end early.
    stable_h
        Largest h for an early end. Default: 1e-6, measured: at 1e-5 edges whose weights compete
        with those of their reversals still change.
    stable_weights
        Largest change of a weight in the last exchange for an early end. Default: 0.02, measured:
        before the graph is final some weights change by 0.03 or more in an exchange even while the
        graph stays the same, afterwards by 0.01 to 0.02. Without this condition one of six runs at
        d = 80 ended with four errors more than it had three exchanges later. Where the parties that
        take part change, the weights change too, and the run ends by another condition.
    acyclic
        Whether the server solves eq. (4). False: its W is the mean (the paper's ablation
        NO-w/oAcy).
    """

    growth: float = 100.0
    max_exchanges: int = 16
    patience: int = 2
    stable_h: float = 1e-6
    stable_weights: float = 0.02
    acyclic: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_zero(stable_h=self.stable_h, stable_weights=self.stable_weights)
        if self.max_exchanges < 1 or self.patience < 0:
            raise ConfigError(
                "max_exchanges must be at least 1 and patience at least 0, "
                f"got {self.max_exchanges} and {self.patience}"
            )


@dataclass(frozen=True, eq=False)
class ServerProblem:
    """The settings of a run.

    Attributes
    ----------
    num_variables
        d.
    settings
        Parameters of the two loops.
    allowed
        ``(d, d)`` mask of the allowed edges. Default: all.
    threshold
        An edge is in the graph when its absolute weight exceeds this, a number or ``(d, 1)``. Used
        only to tell whether the graph still changes.
    """

    num_variables: int
    settings: Settings = Settings()
    allowed: BoolArray | None = None
    threshold: float | FloatArray = 0.3


@dataclass(frozen=True, eq=False)
class ServerState:
    """The server's state between two exchanges; a run can be resumed from it.

    ``weights``, ``multiplier`` and ``penalty`` are sent to the parties.

    Attributes
    ----------
    exchange
        Exchanges done so far.
    weights
        ``(d, d)`` W.
    multiplier, penalty
        alpha and rho.
    last_h
        H, the h(W) at the end of the last inner loop; infinite before the first end.
    stable_exchanges
        Number of exchanges for which the thresholded graph has not changed.
    """

    exchange: int
    weights: FloatArray
    multiplier: float
    penalty: float
    last_h: float = np.inf
    stable_exchanges: int = 0


class Info(NamedTuple):
    """Diagnostics of one exchange.

    Attributes
    ----------
    h, mean_h
        Acyclicity of the server's solution W and of the mean M.
    distance
        ``||W - M||_F``, the change by eq. (4), in units of the weights.
    moved
        Largest change of a weight of W since the previous exchange.
    changed
        Number of edges above the threshold that were added or removed.
    num_edges
        Number of edges above the threshold.
    multiplier, penalty
        alpha and rho that the exchange used.
    inner_done
        Whether the inner loop ended with this exchange.
    iterations
        Iterations of the server's optimiser.
    """

    h: float
    mean_h: float
    distance: float
    moved: float
    changed: int
    num_edges: int
    multiplier: float
    penalty: float
    inner_done: bool
    iterations: int


def init(problem: ServerProblem, start: FloatArray | None = None) -> ServerState:
    """Return the state before the first exchange: W and ``alpha = 0``.

    Parameters
    ----------
    problem
    start
        ``(d, d)`` W, used where edges are allowed. Default: ``W = 0``.
    """
    weights = np.zeros((problem.num_variables, problem.num_variables))
    if start is not None:
        weights = np.where(True if problem.allowed is None else problem.allowed, start, 0.0)
    return ServerState(0, weights, 0.0, problem.settings.penalty)


def server_step(
    state: ServerState, mean: FloatArray, problem: ServerProblem
) -> tuple[ServerState, Info]:
    """Perform the server's step of an exchange: eq. (4), and lines 8 to 14 of Algorithm 1.

    Parameters
    ----------
    state
        State before the exchange.
    mean
        ``(d, d)`` mean of the received ``W_k``, weighted by ``n_k``.
    problem
        The run's fixed settings.

    Raises
    ------
    ValueError
        If the mean has the wrong shape.
    DataError
        If it is too large to be computed with.
    """
    if mean.shape != state.weights.shape:
        raise ValueError(
            f"the mean has shape {mean.shape}, but the weights have {state.weights.shape}"
        )
    settings = problem.settings
    mean = np.round(mean / RESOLUTION) * RESOLUTION + 0.0
    if problem.allowed is not None:
        mean = np.where(problem.allowed, mean, 0.0)
    mean_h = h_exponential(mean)[0]
    weights, h, iterations = mean, mean_h, 0
    if settings.acyclic:
        weights, h, iterations = project(
            mean,
            sparsity=0.0,
            curvature=CURVATURE,
            multiplier=state.multiplier,
            penalty=state.penalty,
        )
    inner_done, multiplier, penalty, last_h = settings.after(
        state.multiplier, state.penalty, state.last_h, h=h, mean_h=mean_h
    )
    require_computable("the multipliers of the acyclicity of the parties' mean weights", multiplier)
    graph, graph_before = (np.abs(w) > problem.threshold for w in (weights, state.weights))
    changed = int((graph != graph_before).sum())
    after = ServerState(
        exchange=state.exchange + 1,
        weights=weights,
        multiplier=multiplier,
        penalty=penalty,
        last_h=last_h,
        stable_exchanges=0 if changed else state.stable_exchanges + 1,
    )
    info = Info(
        h=h,
        mean_h=mean_h,
        distance=float(np.linalg.norm(weights - mean)),
        moved=float(np.abs(weights - state.weights).max(initial=0.0)),
        changed=changed,
        num_edges=int(graph.sum()),
        multiplier=state.multiplier,
        penalty=state.penalty,
        inner_done=inner_done,
        iterations=iterations,
    )
    return after, info


def finished(state: ServerState, info: Info, problem: ServerProblem) -> str | None:
    """Return why the run ends after this exchange, or None.

    Parameters
    ----------
    state, info
        Results of the last :func:`server_step`.
    problem
        The run's fixed settings.
    """
    settings = problem.settings
    reason = settings.reason_to_end(state.exchange, state.penalty, info.h)
    if info.inner_done and reason:
        return reason
    if (
        settings.patience
        and state.stable_exchanges >= settings.patience
        and info.h <= settings.stable_h
        and info.moved <= settings.stable_weights
    ):
        return (
            f"converged after {state.exchange} exchanges: the graph has not changed for "
            f"{state.stable_exchanges} exchanges, no weight by more than {info.moved:.2g} in the "
            f"last, h = {info.h:.1e}"
        )
    if state.exchange >= settings.max_exchanges:
        return f"the {settings.max_exchanges} exchanges are done: h = {info.h:.1e}"
    return None
