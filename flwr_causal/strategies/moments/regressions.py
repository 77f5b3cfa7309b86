"""The graph, and its categories given their causes, by the likelihood of logistic regressions.

The Gaussian score of blocks takes the columns of categories for normal ones. Among graphs near the
best one by this score the likelihood decides (:mod:`core.blocks.near_ties`), in which a category is
a logistic regression on its causes (:mod:`core.blocks.logistic`): sums of the parties' rows, an
exchange a Newton step. The regressions of the graph's own categories are then those of the model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.blocks import logistic
from flwr_causal.core.blocks.design import Category
from flwr_causal.core.blocks.model import BlockModel
from flwr_causal.core.blocks.near_ties import best_dag, scores_of
from flwr_causal.core.words import some
from flwr_causal.protocol.moments import REGRESSIONS
from flwr_causal.runtime.algorithm import Ask, Note, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.core.blocks.logistic import Ascent, Members
    from flwr_causal.core.blocks.search import BlockProblem
    from flwr_causal.runtime.algorithm import Result, Training
    from flwr_causal.strategies.moments.outcome import Outcome

    Fits = dict[Members, Ascent]

#: How many categories a warning names.
NAMED = 3
#: Exchanges by which graphs are compared at most. Regressions that converge later nearly tell the
#: states apart; their likelihood so far counts.
MOST_COMPARED = 4


def by_likelihood(
    problem: BlockProblem,
    outcome: Outcome,
    result_of: Callable[[Outcome], Result],
    *,
    fits_model: bool,
) -> Training:
    """Choose among the graphs that are near the best one, and fit the categories of the model.

    Parameters
    ----------
    problem : BlockProblem
        The search that found the outcome.
    outcome : Outcome
    result_of : callable
        Returns the result of an outcome.
    fits_model : bool
        Whether the parameters of the model are needed, beside the graph.
    """
    model, result = outcome.model, result_of(outcome)
    assert isinstance(model, BlockModel)
    families = problem.near_families(model.member)
    members = [
        (child, causes)
        for child, sets in enumerate(families)
        for causes in sets
        if causes and isinstance(model.variables[child], Category)
    ]
    if not members:
        return result
    started = logistic.init(model.variables, model.moments, members)
    fits = dict(zip(members, started, strict=True))
    fits = yield from _ascended(fits, result, model.moments.n, MOST_COMPARED)
    rows = model.moments.n
    logs = {key: rows * fit.log_likelihood for key, fit in fits.items()}
    costs = problem.least_costs
    scores = scores_of(model.variables, model.moments, families, costs, logs)
    found = problem.class_of(best_dag(families, scores, model.member))
    if (found.graph.adjacency != outcome.graph.adjacency).any():
        model = BlockModel.of(model.variables, model.moments, found.graph.adjacency)
        outcome = outcome._replace(graph=found.graph, model=model, scores=found.strengths)
        result = result_of(outcome)
    result = replace(result, reason="the likelihood has chosen the graph")
    if not fits_model:
        return result
    own = logistic.regressed(model.variables, model.member)
    started = logistic.init(model.variables, model.moments, own)
    fits = {key: fits.get(key, start) for key, start in zip(own, started, strict=True)}
    fits = yield from _ascended(fits, result, rows, logistic.MOST_STEPS)
    return _with_parameters(result, model, list(fits.values()))


def _ascended(fits: Fits, result: Result, num_rows: int, most: int) -> Generator[Step, Any, Fits]:
    """Take Newton steps until all fits are finished, an exchange each."""
    fits = dict(fits)
    for _ in range(most):
        left = [key for key, fit in fits.items() if not fit.finished]
        if not left:
            break
        ascents = [fits[key] for key in left]
        replies = yield Ask(REGRESSIONS, _request(left, ascents), so_far=lambda: result)
        means = logistic.LogisticSums(
            replies["log-likelihoods"], replies["gradient"], replies["information"]
        )
        fits |= dict(zip(left, logistic.server_step(ascents, means, num_rows), strict=True))
        yield Note({"regressions": len(left)})
    return fits


def _request(members: list[Members], ascents: list[Ascent]) -> Arrays:
    """Return what parties are sent of some regressions."""
    return {
        "categories": np.array([child for child, _ in members], dtype=np.int64),
        "sizes": np.array([len(causes) for _, causes in members], dtype=np.int64),
        "causes": np.array([cause for _, causes in members for cause in causes], dtype=np.int64),
        "weights": logistic.asked_weights(ascents),
    }


def _with_parameters(result: Result, model: BlockModel, fits: list[Ascent]) -> Result:
    """Return the result with the model's regressions, and a warning of those not converged."""
    warnings = list(result.warnings)
    if names := [repr(model.names[fit.family.child]) for fit in fits if not fit.finished]:
        warnings.append(
            f"The regressions of {some(names, NAMED)} on their causes had not converged after "
            f"{logistic.MOST_STEPS} exchanges or more: the causes nearly tell the states apart. "
            "Few rows may have one of the states, or a cause is another name of it."
        )
    return replace(
        result,
        model=replace(model, parameters=logistic.parameters(model.variables, fits)),
        warnings=tuple(warnings),
        reason="the regressions of the categories stand",
    )
