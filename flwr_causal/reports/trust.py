"""How far to trust a result: the facts, the verdict that follows from them, and its one sentence.

The sentence is the first line of a run wherever it is shown: ``run.headline``, ``print(run)``, the
log, the JSON of the command line, the page.

The facts hold the check of the graph's fit and its most doubtful edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from flwr_causal.core.answers import answers
from flwr_causal.core.graphs.doubt import doubtful_edges
from flwr_causal.core.graphs.fit_check import LEVEL
from flwr_causal.core.words import counted, printable, some
from flwr_causal.doubts.parties import clear_differences, odd_parties
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.reports.result import lost_in_words
from flwr_causal.runtime.influence import known_influence, standing_out

if TYPE_CHECKING:
    from flwr_causal.core.graphs.doubt import DoubtfulEdge, Evidence
    from flwr_causal.core.graphs.fit_check import FitCheck
    from flwr_causal.reports.result import RunResult

#: Values of the option ``model`` whose effects are curves, which tell directions apart.
CURVED = ("additive", "group", "mlp")
#: Reports test graphs of at most so many variables; more take seconds.
MOST_VARIABLES = 120
#: An effect differs between parties below this corrected p-value, and by more than this share.
DIFFER, LEAST_SHARE = 0.001, 0.2


def fit_check(run: RunResult, rows: Any = None) -> FitCheck:
    """Test the independencies that the graph of a run implies.

    Parameters
    ----------
    run : RunResult
    rows : DataFrame, optional
        Default: the sums that the run's model keeps.

    Raises
    ------
    ConfigError
        If the run's model has no such check, or needs rows for it.
    """
    found: FitCheck = fitted_model(run, "fit_check").fit_check(rows)
    return found


def fitted_model(run: RunResult, wanted: str) -> Any:
    """Return a run's model.

    Parameters
    ----------
    run : RunResult
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


def fit_of(run: RunResult) -> FitCheck | None:
    """Return the check of a run's fit on the sums of its model; None where nothing is tested."""
    if run.graph is None or len(run.graph.names) > MOST_VARIABLES:
        return None
    try:
        found = fit_check(run)
    except CausalError:
        return None
    known = len(found.independencies) > 0 or found.held_out_log_likelihood is not None
    return found if known else None


def doubts_of(run: RunResult, count: int = 3) -> list[DoubtfulEdge]:
    """Return the most doubtful edges of a run; none without a graph."""
    if run.graph is None:
        return []
    tests = run.model.edge_tests() if answers(run.model, "edge_tests") else []
    return doubtful_edges(run.graph, tests, count, _evidence_of(run))


def _evidence_of(run: RunResult) -> Evidence:
    """Return what tells directions apart in a run that the independencies leave open."""
    assert run.graph is not None
    if run.config.get("model") in CURVED:
        return "curves"
    assumed = run.graph.kind == "dag" and hasattr(run.model, "noise_variances")
    return "equal variances" if assumed else "independencies"


def describe_differences(run: RunResult) -> list[str]:
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


def parties_that_differ(run: RunResult) -> list[str]:
    """Return the parties to which a result for all of them does not apply, and why not, in words.

    They are the parties that :func:`odd_parties_of` names, and those without which much of the
    graph would change (`run.influence`).
    """
    found = {party: f"{party} ({said})" for party, said in odd_parties_of(run).items()}
    influence = known_influence(run)
    for party, changed in standing_out(influence, run.graph).items():
        found.setdefault(party, f"{party} (without it {counted(changed, 'edge')} change)")
    return list(found.values())


def odd_parties_of(run: RunResult) -> dict[str, str]:
    """Return in words how single parties of a run differ, see :func:`odd_parties`."""
    names = () if run.graph is None else run.graph.names
    return odd_parties(run.disagreement, run.targets, len(names))


Verdict: TypeAlias = Literal["do not rely", "doubts", "no doubts"]

#: A graph does not fit the rows if a test of it has a p-value below ``LIMIT``, after correction for
#: the number of tests, and some correlation that should be 0 is at least ``SIZE``. The p-value
#: bounds how often right graphs are refused, whatever the number of rows; the size keeps many rows
#: from refusing graphs that are nearly right. Both were chosen on the worlds of the scenarios
#: differ-* (seeds 1000 to 1007 and 2000 to 2005); docs/how_to/interpret.md has how often the
#: sentence was right on others.
LIMIT, SIZE = 0.001, 0.05
#: An edge of at least this doubt is as likely wrong as right.
DOUBTFUL = 0.5
#: So many doubtful edges, and parties that differ, are named.
MOST_NAMED, MOST_PARTIES = 3, 2
#: Columns that are seen together in a smaller share of the rows are named.
FEW_TOGETHER = 0.5


@dataclass(frozen=True)
class Trust:
    """The facts by which a result is to be relied on or not.

    Parameters
    ----------
    status : str
        Of the run; another one than "completed" is a reason not to rely on the result.
    edges : int or None
        Edges of the graph; None of a result without a graph.
    fit : FitCheck or None
        The check of the graph's fit; None where nothing is known.
    unsettled : tuple of int or None
        Edges that were left out as the rows do not settle them, and the edges before that.
    differing : tuple of str
        Parties that differ from the others by more than chance, each in a few words.
    guarded : bool
        Whether the method allows for parties that differ, as a median of the parties does.
    hidden : tuple of str
        Pairs of variables that probably have a hidden common cause.
    lost : str
        Which parties the result lacks, in words.
    missing : str
        Which columns are seldom seen in the same rows, in words.
    doubtful : tuple of DoubtfulEdge
        The most doubtful edges, also those of little doubt.
    scores : str
        How good the result is on rows that were held out, in words.
    warnings : int
        How many the run has.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> run = simulate("moments", federated_linear(3, 200, 2)[0])
    >>> run.trust.status, run.trust.differing
    ('completed', ())
    """

    status: str = "completed"
    edges: int | None = None
    fit: FitCheck | None = None
    unsettled: tuple[int, int] | None = None
    differing: tuple[str, ...] = ()
    guarded: bool = False
    hidden: tuple[str, ...] = ()
    lost: str = ""
    missing: str = ""
    doubtful: tuple[DoubtfulEdge, ...] = ()
    scores: str = ""
    warnings: int = 0

    @property
    def against(self) -> list[str]:
        """The reasons not to rely on the result."""
        said = []
        if self.status != "completed":
            said.append(f"the run is not complete ({self.status})")
        if self.differing and not self.guarded:
            said.append(f"parties differ: {some(self.differing, MOST_PARTIES)}")
        if self.fit is not None and _largest(self.fit) >= SIZE and _p_value(self.fit) < LIMIT:
            said.append(f"it does not fit the rows ({_evidence(self.fit)})")
        if self.unsettled is not None:
            left_out = "{} of {} edges left out".format(*self.unsettled)
            said.append(f"the rows do not settle the graph ({left_out})")
        return said

    @property
    def doubts(self) -> list[str]:
        """Evidence against parts of the result, and questions that stay open.

        Where the graph is not to be relied on, doubts of its fit and of single edges are left out.
        """
        said = [f"it is {self.lost}"] if self.lost else []
        if self.edges is not None and not self.against:
            said += self._fit_in_doubt()
        if self.differing and self.guarded:
            said.append(f"parties differ: {some(self.differing, MOST_PARTIES)}")
        if self.hidden:
            said.append(f"hidden common causes are likely ({some(self.hidden)})")
        said += [self.missing] if self.missing else []
        doubtful = [one for one in self.doubtful if one.doubt >= DOUBTFUL]
        if doubtful and not self.against:
            named = some(
                (f"{one.cause} {one.mark} {one.effect} ({one.about})" for one in doubtful),
                MOST_NAMED,
            )
            said.append(f"{len(doubtful)} of {self.edges} edges are in doubt: {named}")
        return said

    def _fit_in_doubt(self) -> list[str]:
        """Return whether the fit is unknown, or tests fail which are not enough to refuse it."""
        if self.fit is None or not _evidence(self.fit):
            return ["whether it fits the rows is not known"]
        if _p_value(self.fit) < LEVEL:
            return [f"its fit is in doubt ({_evidence(self.fit)})"]
        return []

    @property
    def verdict(self) -> Verdict:
        """Whether to rely on the result."""
        return "do not rely" if self.against else "doubts" if self.doubts else "no doubts"

    @property
    def sentence(self) -> str:
        """The verdict with its reasons."""
        result = "result" if self.edges is None else "graph"
        said = [*self.against, *self.doubts]
        if self.verdict == "do not rely":
            head = f"Do not rely on this {result}: "
        elif self.verdict == "doubts":
            head = f"Rely on this {result} with these doubts: "
        elif self.fit is None:
            head, said = "", ["The run is complete"]
        else:
            head, said = "", [f"No test speaks against this graph ({_evidence(self.fit)})"]
            said += [f"none of {self.edges} edges is in doubt"] if self.doubtful else []
        said += [self.scores] if self.scores else []
        said += [counted(self.warnings, "warning")] if self.warnings else []
        return printable(head + "; ".join(said) + ".")


def trust_of(run: RunResult) -> Trust:
    """Return how far a run's result can be trusted; it takes as long as its check of the fit."""
    graph, metrics = run.graph, run.metrics
    edges = None if graph is None else graph.num_edges + graph.num_lagged_edges
    scores = ""
    if {"accuracy", "majority"} <= metrics.keys():
        scores = (
            f"accuracy {metrics['accuracy']:.3f} on rows that were held out "
            f"(most frequent class: {metrics['majority']:.3f})"
        )
    unsettled = [
        (one["unstable_edges"], one["edges"]) for one in run.history if "unstable_edges" in one
    ]
    pairs = [pair for one in run.history for pair in one.get("common_causes", ())]
    return Trust(
        status=run.status,
        edges=edges,
        fit=fit_of(run),
        unsettled=unsettled[-1] if unsettled else None,
        differing=tuple(parties_that_differ(run)),
        guarded=run.decided_config.get("aggregation") == "median",
        hidden=tuple(f"{one} <-> {other}" for one, other in pairs),
        lost=lost_in_words(run),
        missing=_missing_in_words(run),
        doubtful=tuple(doubts_of(run, edges)) if edges else (),
        scores=scores,
        warnings=len(run.warnings),
    )


def _p_value(fit: FitCheck) -> float:
    """Return the smallest p-value of the graph as a whole and of its independencies, corrected."""
    least = fit.independencies["corrected"].min() if len(fit.independencies) else 1.0
    return min(float(least), 1.0 if fit.p_value is None else fit.p_value)


def _largest(fit: FitCheck) -> float:
    """Return the largest correlation that the graph says is 0."""
    return float(fit.independencies["estimate"].abs().max()) if len(fit.independencies) else 0.0


def _evidence(fit: FitCheck) -> str:
    """Return the result of the tests of a graph in words; "" where there are none."""
    tested = len(fit.independencies)
    if not tested:
        return ""
    said = [f"{len(fit.rejected)} of {tested} implied independencies fail"]
    if fit.p_value is not None:
        said.append(f"p = {fit.p_value:.2g} for the graph as a whole")
    if _p_value(fit) < LEVEL:
        table = fit.independencies
        worst = table.iloc[int(np.argmax(table["estimate"].abs()))]
        of = f"of {worst['first']} and {worst['second']}"
        said.append(f"the largest correlation that should be 0 is {worst['estimate']:.2f}, {of}")
    return ", ".join(said)


def _missing_in_words(run: RunResult) -> str:
    """Return which two columns are seen together in few rows; "" where none are, or unknown."""
    moments: Any = getattr(run.model, "sample_moments", None)
    together = getattr(moments, "together", None)
    if together is None or not run.total_rows:
        return ""
    i, j = np.unravel_index(int(np.argmin(together)), together.shape)
    share = float(together[i, j]) / run.total_rows
    names = moments.names
    return (
        f"{names[i]} and {names[j]} are known together in {share:.0%} of the rows"
        if share < FEW_TOGETHER
        else ""
    )
