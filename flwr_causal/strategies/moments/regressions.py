"""Logistic regressions of categories on their causes, see :mod:`core.blocks.logistic`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.blocks import logistic
from flwr_causal.core.blocks.missing import MomentEstimate
from flwr_causal.core.words import some
from flwr_causal.protocol.moments import REGRESSIONS
from flwr_causal.runtime.algorithm import Ask, Note

if TYPE_CHECKING:
    from flwr_causal.core.blocks.model import BlockModel
    from flwr_causal.runtime.algorithm import Result, Training

#: How many categories a warning names.
NAMED = 3


def with_regressions(result: Result, model: BlockModel, *, incomplete: bool) -> Training:
    """Fit the categories of a model that have causes, an exchange a Newton step.

    Parameters
    ----------
    result : Result
        With the model of the moments.
    model : BlockModel
        The same.
    incomplete : bool
        Whether cells are missing; parties then need the moments of all columns.
    """
    moments = model.moments
    estimate = MomentEstimate(moments.mean, moments.second).for_sets(1) if incomplete else None
    fits = logistic.init(model.variables, model.moments, model.member)
    steps = 0
    while (left := [fit for fit in fits if not fit.finished]) and steps < logistic.MOST_STEPS:
        children = [fit.family.child for fit in left]
        dag = np.zeros(model.member.shape, dtype=np.int64)
        dag[:, children] = model.member[:, children]
        weights = logistic.asked_weights(left)
        replies = yield Ask(
            REGRESSIONS,
            {"dag": dag, "weights": weights, **(estimate._asdict() if estimate else {})},
            graph_stands=True,
            so_far=lambda: result,
        )
        means = logistic.LogisticSums(
            replies["log-likelihoods"], replies["gradient"], replies["information"]
        )
        stepped = iter(logistic.server_step(left, means, model.moments.n))
        fits = [fit if fit.finished else next(stepped) for fit in fits]
        steps += 1
        yield Note({"regressions": len(left)})
    if not fits:
        return result
    warnings = list(result.warnings)
    if names := [repr(model.names[fit.family.child]) for fit in fits if not fit.finished]:
        warnings.append(
            f"The regressions of {some(names, NAMED)} on their causes had not converged after "
            f"{steps} exchanges: the causes nearly tell the states apart. Few rows may have one of "
            "the states, or a cause is another name of it."
        )
    return replace(
        result,
        model=replace(model, parameters=logistic.parameters(model.variables, fits)),
        warnings=tuple(warnings),
        reason="the regressions of the categories stand",
    )
