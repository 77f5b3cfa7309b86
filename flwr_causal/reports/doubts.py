"""Evidence against a run's graph: the check of its fit and its most doubtful edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.answers import answers
from flwr_causal.core.graphs.doubt import doubtful_edges
from flwr_causal.core.words import some
from flwr_causal.doubts.parties import clear_differences, odd_parties
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.reports.page.words import counted
from flwr_causal.runtime.influence import known_influence, standing_out

if TYPE_CHECKING:
    from flwr_causal.core.graphs.doubt import DoubtfulEdge, Evidence
    from flwr_causal.core.graphs.fit_check import FitCheck
    from flwr_causal.reports.record import RunRecord

#: Values of the option ``model`` whose effects are curves, which tell directions apart.
CURVED = ("additive", "group", "mlp")
#: Reports test graphs of at most so many variables; more take seconds.
MOST_VARIABLES = 120
#: An effect differs between parties below this corrected p-value, and by more than this share.
DIFFER, LEAST_SHARE = 0.001, 0.2


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
    """Return the check of a run's fit on the sums of its model; None where nothing is tested."""
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


def describe_differences(run: RunRecord) -> list[str]:
    """Return the parties that differ in effects, means or spreads, in one line; none if none do."""
    table = run.disagreement
    if table is None or not len(unlike := clear_differences(table)):
        return []
    named = odd_parties_of(run)
    rest = [name for name in dict.fromkeys(unlike["party"]) if name not in named]
    more = f"also {some(rest)}, less clearly; " if named and rest else ""
    parties = more or f"{some(rest)}; " * bool(rest)
    return [
        *(f"{party} differs: {said}" for party, said in named.items()),
        f"Parties that differ: {parties}{len(unlike)} effects, means or spreads, in "
        "run.disagreement",
    ]


def parties_that_differ(run: RunRecord) -> list[str]:
    """Return the parties to which a result for all of them does not apply, and why not, in words.

    They are the parties that :func:`odd_parties_of` names, and those without which much of the
    graph would change (`run.influence`).
    """
    found = {party: f"{party} ({said})" for party, said in odd_parties_of(run).items()}
    influence = known_influence(run)
    for party, changed in standing_out(influence, run.graph).items():
        found.setdefault(party, f"{party} (without it {counted(changed, 'edge')} change)")
    return list(found.values())


def odd_parties_of(run: RunRecord) -> dict[str, str]:
    """Return in words how single parties of a run differ, see :func:`odd_parties`."""
    names = () if run.graph is None else run.graph.names
    return odd_parties(run.disagreement, run.targets, len(names))
