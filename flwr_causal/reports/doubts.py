"""What speaks against a run's graph: the check of its fit and its most doubtful edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flwr_causal.errors import CausalError

if TYPE_CHECKING:
    from flwr_causal.core.graphs.doubt import DoubtfulEdge
    from flwr_causal.core.graphs.fit_check import FitCheck
    from flwr_causal.core.graphs.graph import CausalGraph

#: Reports test graphs of at most so many variables; more take seconds.
MOST_VARIABLES = 120


class Checked(Protocol):
    """A run whose graph can be tested."""

    graph: CausalGraph | None

    def fit_check(self) -> FitCheck:
        """Test the independencies that the graph implies."""

    def doubtful_edges(self) -> list[DoubtfulEdge]:
        """Return the most doubtful edges."""


def fit_of(run: Checked) -> FitCheck | None:
    """Return the check of a run's fit, None where there is none."""
    if run.graph is None or len(run.graph.names) > MOST_VARIABLES:
        return None
    try:
        found = run.fit_check()
    except CausalError:
        return None
    known = len(found.independencies) > 0 or found.held_out_log_likelihood is not None
    return found if known else None


def doubts_of(run: Checked) -> list[DoubtfulEdge]:
    """Return a run's most doubtful edges, none where they cannot be known."""
    try:
        return run.doubtful_edges()
    except CausalError:
        return []


def describe_doubts(run: Checked) -> list[str]:
    """Return the check of the fit in one line, and the most doubtful edges in another."""
    fit, doubtful = fit_of(run), doubts_of(run)
    lines = [] if fit is None else [f"Fit: {fit.summary()}"]
    if doubtful:
        listed = ", ".join(f"{one.cause} {one.mark} {one.effect} ({one.about})" for one in doubtful)
        lines.append(f"Most doubtful: {listed}; run.doubtful_edges() says why")
    return lines
