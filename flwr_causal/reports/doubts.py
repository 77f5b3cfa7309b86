"""What speaks against a run's graph: the check of its fit and its most doubtful edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.answers import answers
from flwr_causal.core.graphs.doubt import doubtful_edges
from flwr_causal.core.graphs.fit_check import LEVEL
from flwr_causal.core.words import some
from flwr_causal.doubts.parties import clear_differences, odd_parties
from flwr_causal.errors import CausalError, ConfigError

if TYPE_CHECKING:
    from flwr_causal.core.graphs.doubt import DoubtfulEdge, Evidence
    from flwr_causal.core.graphs.fit_check import FitCheck
    from flwr_causal.reports.record import RunRecord

#: Values of the option ``model`` whose effects are curves, which tell directions apart.
CURVED = ("additive", "group", "mlp")
#: Reports test graphs of at most so many variables; more take seconds.
MOST_VARIABLES = 120


def fit_check(run: RunRecord, rows: Any = None) -> FitCheck:
    """Test the independencies that the graph of a run implies.

    Parameters
    ----------
    run : RunRecord
    rows : DataFrame, optional
        Default: the sums that the run's model keeps.

    Raises
    ------
    ConfigError
        If the run's model has no such check, or needs rows for it.
    """
    found: FitCheck = fitted_model(run, "fit_check").fit_check(rows)
    return found


def fitted_model(run: RunRecord, wanted: str) -> Any:
    """Return a run's model.

    Parameters
    ----------
    run : RunRecord
    wanted : str
        The method of the model that is needed.

    Raises
    ------
    ConfigError
        If the run has no model with such a method; it says which options give one.
    """
    marked = run.graph is not None and run.graph.marks is not None
    if marked and not hasattr(run.model, wanted):
        raise ConfigError(
            f"{wanted} needs a graph without hidden common causes: the run with hidden_causes=True "
            "has none. run.total_effect gives the effects that are identified, and "
            "run.graph.marked_edges() says what causes what."
        )
    if not hasattr(run.model, wanted):
        raise ConfigError(
            f"{run.config.get('method', 'this run')} gives no model with {wanted} with these "
            "options. Linear systems and Bayesian networks have it: those of lingam, 2dbn, moments "
            "and notears-admm (numbers, model='linear') and fedges (columns of states, "
            "parameters=True). Of numbers and categories moments with text_columns='keep' has "
            "effects, but not with epsilon, nor with both an order and interventions."
        )
    return run.model


def fit_of(run: RunRecord) -> FitCheck | None:
    """Return the check of a run's fit on the sums that it has; None where nothing is known."""
    if run.graph is None or len(run.graph.names) > MOST_VARIABLES:
        return None
    try:
        found = fit_check(run)
    except CausalError:
        return None
    known = len(found.independencies) > 0 or found.held_out_log_likelihood is not None
    return found if known else None


def doubts_of(run: RunRecord, count: int = 3) -> list[DoubtfulEdge]:
    """Return the most doubtful edges of a run; none without a graph."""
    if run.graph is None:
        return []
    tests = run.model.edge_tests() if answers(run.model, "edge_tests") else []
    return doubtful_edges(run.graph, tests, count, _evidence(run))


def _evidence(run: RunRecord) -> Evidence:
    """Return what tells directions apart in a run that the independencies leave open."""
    assert run.graph is not None
    if run.config.get("model") in CURVED:
        return "curves"
    assumed = run.graph.kind == "dag" and hasattr(run.model, "noise_variances")
    return "equal variances" if assumed else "independencies"


def describe_doubts(run: RunRecord) -> list[str]:
    """Return the check of the fit in one line, and the most doubtful edges in another."""
    fit, doubtful = fit_of(run), doubts_of(run)
    lines = [] if fit is None else [f"Fit: {fit.summary()}"]
    if doubtful and doubtful[0].doubt < LEVEL:
        lines.append("No edge is in doubt; run.doubtful_edges() says why")
    elif doubtful:
        doubtful = [one for one in doubtful if one.doubt >= LEVEL]
        listed = ", ".join(f"{one.cause} {one.mark} {one.effect} ({one.about})" for one in doubtful)
        lines.append(f"Most doubtful: {listed}; run.doubtful_edges() says why")
    table = run.disagreement
    if table is not None and len(unlike := clear_differences(table)):
        named = odd_parties_of(run)
        lines += [f"{party} differs: {said}" for party, said in named.items()]
        rest = [name for name in dict.fromkeys(unlike["party"]) if name not in named]
        more = f"also {some(rest)}, less clearly; " if named and rest else ""
        parties = more or f"{some(rest)}; " * bool(rest)
        lines.append(
            f"Parties that differ: {parties}{len(unlike)} effects, means or spreads, in "
            "run.disagreement"
        )
    return lines


def odd_parties_of(run: RunRecord) -> dict[str, str]:
    """Return in words what sets single parties of a run apart, see :func:`odd_parties`."""
    names = () if run.graph is None else run.graph.names
    return odd_parties(run.disagreement, run.targets, len(names))
