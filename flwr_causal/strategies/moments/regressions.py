"""The graph, and its categories given their causes, by the likelihood of logistic regressions.

The Gaussian score of blocks takes the columns of categories for normal ones. Among graphs near the
best one by this score the likelihood decides (:mod:`core.blocks.near_ties`), in which a category is
a logistic regression on its causes (:mod:`core.blocks.logistic`): sums of the parties' rows, an
exchange a Newton step. The regressions of the graph's own categories are then those of the model.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.blocks import logistic
from flwr_causal.core.blocks.design import Category
from flwr_causal.core.blocks.missing import MomentEstimate, regular
from flwr_causal.core.blocks.near_ties import best_dag, scores_of
from flwr_causal.core.systems.blocks import BlockModel
from flwr_causal.doubts.graphs import doubts_of
from flwr_causal.protocol.moments import REGRESSIONS
from flwr_causal.runtime.algorithm import Ask, Note, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.core.blocks.logistic import Ascent, Members
    from flwr_causal.core.blocks.search import BlockProblem
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Result, Steps
    from flwr_causal.sources.products import Products
    from flwr_causal.strategies.moments.solvers.solver import Solved

    Fits = dict[Members, Ascent]

#: How many categories a warning names.
#: Exchanges by which graphs are compared at most. Regressions that converge later nearly tell the
#: states apart; their likelihood so far counts.
MOST_COMPARED = 4


def by_likelihood(
    products: Products,
    outcome: Solved,
    problem: BlockProblem | None,
    result_of: Callable[[Solved], Result],
) -> Steps:
    """Choose among the graphs that are near the best one, and fit the categories of the model.

    With missing cells the graph stays that of the outcome: a likelihood of the rows in which a
    category is seen does not compare with that of another category. Parties need the moments of all
    columns then.

    Parameters
    ----------
    products : Products
    outcome : Solved
        Of the best Gaussian score.
    problem : BlockProblem or None
        The search for it; None with missing cells.
    result_of : callable
        Returns the result of an outcome.
    """
    fits: Fits = {}
    num_rows = products.agreement.n
    if problem is not None:
        fits, outcome = yield from _compared(problem, outcome, result_of(outcome), num_rows)
    model, result = outcome.model, result_of(outcome)
    assert isinstance(model, BlockModel)
    own = logistic.regressed(model.variables, model.member)
    started = logistic.init(model.variables, outcome.moments, own)
    fits = {key: fits.get(key, start) for key, start in zip(own, started, strict=True)}
    moments = model.moments
    estimate = None
    if problem is None:
        estimate = regular(MomentEstimate(moments.mean, moments.second)).for_sets(1)
    for _ in range(logistic.MOST_STEPS):
        if not (left := _unfinished(fits)):
            break
        sent = {**_request(left), **(estimate._asdict() if estimate else {})}
        replies = yield Ask(REGRESSIONS, sent, graph_stands=True, so_far=partial(_chosen, result))
        fits |= _ascended(left, replies, num_rows)
        yield Note({"regressions": len(left)})
    return _with_parameters(_chosen(result), model, list(fits.values()))


def _compared(
    problem: BlockProblem, outcome: Solved, result: Result, num_rows: int
) -> Generator[Step, Any, tuple[Fits, Solved]]:
    """Return the regressions in the graphs near the best one, and the outcome of the most likely.

    ``result`` stands if the run ends before.
    """
    model = outcome.model
    assert isinstance(model, BlockModel)
    families = problem.near_families(model.member)
    members = [
        (child, causes)
        for child, sets in enumerate(families)
        for causes in sets
        if causes and isinstance(model.variables[child], Category)
    ]
    if not members:
        return {}, outcome
    started = logistic.init(model.variables, outcome.moments, members)
    fits = dict(zip(members, started, strict=True))
    for _ in range(MOST_COMPARED):
        if not (left := _unfinished(fits)):
            break
        replies = yield Ask(REGRESSIONS, _request(left), so_far=lambda: result)
        fits |= _ascended(left, replies, num_rows)
        yield Note({"regressions": len(left)})
    logs = {key: fit.num_rows * fit.log_likelihood for key, fit in fits.items()}
    scores = scores_of(model.variables, outcome.moments, families, problem.least_costs, logs)
    found = problem.class_of(best_dag(families, scores, model.member))
    if (found.graph.adjacency != outcome.graph.adjacency).any():
        model = BlockModel.of(model.variables, outcome.moments, found.graph.adjacency)
        outcome = outcome._replace(graph=found.graph, model=model, scores=found.strengths)
    return fits, outcome


def _unfinished(fits: Fits) -> Fits:
    """Return the regressions that have not converged."""
    return {key: fit for key, fit in fits.items() if not fit.finished}


def _ascended(left: Fits, replies: Replies, num_rows: int) -> Fits:
    """Return regressions after one Newton step."""
    means = logistic.LogisticSums(
        replies["log-likelihoods"], replies["gradient"], replies["information"]
    )
    ascents = logistic.server_step(list(left.values()), means, num_rows)
    return dict(zip(left, ascents, strict=True))


def _request(left: Fits) -> Arrays:
    """Return the values of the request for some regressions."""
    return {
        "categories": np.array([child for child, _ in left], dtype=np.int64),
        "sizes": np.array([len(causes) for _, causes in left], dtype=np.int64),
        "causes": np.array([cause for _, causes in left for cause in causes], dtype=np.int64),
        "weights": logistic.asked_weights(list(left.values())),
    }


def _chosen(result: Result) -> Result:
    return replace(result, reason="the likelihood has chosen the graph")


def _with_parameters(result: Result, model: BlockModel, fits: list[Ascent]) -> Result:
    """Return the result with the model's regressions, and a warning of those not converged."""
    unfinished = [model.names[fit.family.child] for fit in fits if not fit.finished]
    return replace(
        result,
        model=replace(model, parameters=logistic.parameters(model.variables, fits)),
        warnings=(*result.warnings, *doubts_of(unfinished=unfinished, steps=logistic.MOST_STEPS)),
        reason="the regressions of the categories stand",
    )
