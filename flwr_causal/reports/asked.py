"""The effect of a treatment on an outcome: its size, what it rests on, what would make it wrong."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from flwr_causal.core.answers import NO_EFFECT, Effect, answers
from flwr_causal.core.graphs.pag.marks import directed_edges
from flwr_causal.core.words import some
from flwr_causal.doubts.parties import clear_differences
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.reports.trust import doubts_of, fit_of, fitted_model

if TYPE_CHECKING:
    import pandas as pd

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.reports.result import RunResult

#: By these names a run's configuration has the columns that the dictionary gives these roles.
TREATMENT, OUTCOME = "treatment", "outcome"
#: So many changes are said in sentences; more are a table.
MOST_SENTENCES = 3
#: So many changes of the treatment are listed: pairs of a state and an outcome, or lags.
MOST_CHANGES = 40
#: So many doubtful edges, and independencies that fail, are named.
MOST_NAMED = 5
# The edges of the most doubt, of which those that concern the effect are named.
_DOUBTS = 50


class AskedChange(NamedTuple):
    """One change of the treatment, and its effect on the outcome.

    Attributes
    ----------
    said : str
        What is changed, in words.
    measured : str
        What of the outcome changes, in words.
    effects : list of Effect
        Several where the graph leaves open which one holds.
    """

    said: str
    measured: str
    effects: list[Effect]

    def __str__(self) -> str:
        low, high = self.ends
        if NO_EFFECT == low == high:
            return f"{self.said} does not change {self.measured}, by the graph"
        if low == high:
            return f"{self.said} changes {self.measured} by {_number(low)} on average"
        return (
            f"{self.said} changes {self.measured} on average by a number between {_number(low)} "
            f"and {_number(high)}: the graph leaves open which of {len(self.effects)} effects it is"
        )

    @property
    def ends(self) -> tuple[Effect, Effect]:
        """The smallest and the largest effect."""
        ordered = sorted(self.effects, key=lambda one: one.value)
        return ordered[0], ordered[-1]


def _number(one: Effect) -> str:
    if one == NO_EFFECT:
        return "0"
    if math.isnan(one.standard_error):
        return f"{one.value:.3g} (interval unknown)"
    low, high = one.interval
    return f"{one.value:.3g} (95 % interval {low:.3g} to {high:.3g})"


def names_of(run: RunResult) -> tuple[str, ...]:
    """Return the variables of a run."""
    return tuple(run.graph.names if run.graph is not None else getattr(run.model, "names", ()))


def asked_of(
    run: RunResult, treatment: str | None = None, outcome: str | None = None
) -> tuple[str, str] | None:
    """Return the treatment and the outcome that are asked of a run; None if there are none.

    Parameters
    ----------
    run : RunResult
        Its configuration may have both, from the dictionary.
    treatment, outcome : str, optional
        They come before those of the configuration.

    Raises
    ------
    ConfigError
        If one is given without the other, or is no variable of the run, or both are the same.
    """
    given = {TREATMENT: treatment, OUTCOME: outcome}
    names = names_of(run)
    for name, value in given.items():
        if value is not None and value not in names:
            raise ConfigError(
                f"{name} is {value!r}, which is no variable of the run: give one of "
                f"{', '.join(names) or 'a run with a result'}."
            )
    asked = {name: value or run.config.get(name) for name, value in given.items()}
    lacking = [name for name, value in asked.items() if not value]
    if len(lacking) == 1 and (treatment or outcome):
        raise ConfigError(f"{lacking[0]} is missing: give treatment and outcome together.")
    if lacking:
        return None
    if asked[TREATMENT] == asked[OUTCOME]:
        raise ConfigError(f"treatment and outcome are both {asked[OUTCOME]!r}: give two columns.")
    return str(asked[TREATMENT]), str(asked[OUTCOME])


def changes_of(run: RunResult, treatment: str, outcome: str) -> list[AskedChange]:
    """Return the effects of the treatment on the outcome by the run's model.

    Of categories there is one for each state of the treatment against the first one and each state
    of the outcome, of series one for each lag.

    Raises
    ------
    CausalError
        If the run has no model with effects, or the effect is not identified.
    """
    model = fitted_model(run, "total_effect")
    names = names_of(run)
    for name in (treatment, outcome):
        if name not in names:
            raise ConfigError(f"{name} is no variable of the run: it has {', '.join(names)}.")
    if hasattr(model, "contrast") and answers(model, "total_effect"):
        return _of_network(model, treatment, outcome)[:MOST_CHANGES]
    changes: list[AskedChange] = []
    for lag in range(1 + getattr(model, "order", 0)):
        try:
            changes += _after(model, treatment, outcome, lag)
        except CausalError:
            if lag == 0:
                raise  # of a class with open directions effects with a lag are unknown
    return changes[:MOST_CHANGES]


def _after(model: Any, treatment: str, outcome: str, lag: int) -> list[AskedChange]:
    """Return the effects so many steps later."""
    given = {"lag": lag} if lag else {}
    before = f", {lag} step{'s' * (lag > 1)} before," if lag else ""
    if answers(model, "contrasts"):
        return _contrasts(model.contrasts(treatment, outcome, **given), treatment, outcome, before)
    found = model.total_effect(treatment, outcome, **given)
    several = list(found) if isinstance(found, list) else [found]
    return [AskedChange(f"{treatment} raised by 1{before}", outcome, several)]


def _contrasts(table: pd.DataFrame, treatment: str, outcome: str, before: str) -> list[AskedChange]:
    found: dict[tuple[str, str], list[Effect]] = {}
    rows = table.to_dict("records")
    outcomes = list(dict.fromkeys(row["outcome"] for row in rows))
    for row in rows:
        # Of two outcomes one is enough: the probability of the other changes by as much.
        if len(outcomes) == 2 and row["outcome"] == outcomes[0]:
            continue
        interval = row["lower"], row["upper"]
        one = Effect(row["value"], row["standard_error"], interval, row["adjustment_set"])
        changed = _set(treatment, row["state"], row["reference"]) + before
        said = changed, _counted(outcome, row["outcome"])
        found.setdefault(said, []).append(one)
    return [AskedChange(*said, several) for said, several in found.items()]


def _of_network(model: Any, treatment: str, outcome: str) -> list[AskedChange]:
    """Return the changes of probabilities in a network of categories."""
    reference, *states = model.states[model.names.index(treatment)]
    outcomes = model.states[model.names.index(outcome)]
    found = []
    for state in states:
        for one in outcomes[1:] if len(outcomes) == 2 else outcomes:
            try:
                effect = model.contrast(treatment, outcome, one, state=state, reference=reference)
            except ConfigError:  # without numbers of rows there are no errors
                tables = model.total_effect(treatment, outcome)
                several = tables if isinstance(tables, list) else [tables]
                unknown = math.nan, (math.nan, math.nan), None
                effect = [
                    Effect(float(each.loc[state, one] - each.loc[reference, one]), *unknown)
                    for each in several
                ]
            said = _set(treatment, state, reference), _counted(outcome, one)
            found.append(AskedChange(*said, effect if isinstance(effect, list) else [effect]))
    return found


def _set(treatment: str, state: Any, reference: Any) -> str:
    if state is None:
        return f"{treatment} raised by 1"
    return f"{treatment} set to {_state(state)} in place of {_state(reference)}"


def _counted(outcome: str, state: Any) -> str:
    return outcome if state is None else f"the probability of {outcome} = {_state(state)}"


def _state(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def answer(run: RunResult, treatment: str, outcome: str) -> list[str]:
    """Return the effect in sentences, or why there is none."""
    try:
        return [f"{change}." for change in changes_of(run, treatment, outcome)]
    except CausalError as error:
        return [_unknown(treatment, outcome, error)]


def _unknown(treatment: str, outcome: str, error: CausalError) -> str:
    return f"The effect of {treatment} on {outcome} is not known. The reason: {error}"


def asked_blocks(run: RunResult, treatment: str, outcome: str) -> list[dict[str, Any]]:
    """Return the blocks of the page about the effect of a treatment on an outcome.

    Returns
    -------
    list of dict
        The effect in words, with several changes a table; what was adjusted for; and what would
        make it wrong. Where the effect is not known, the reason.
    """
    try:
        changes = changes_of(run, treatment, outcome)
    except CausalError as error:
        return [{"kind": "text", "text": _unknown(treatment, outcome, error)}]
    said = [f"{change}." for change in changes]
    blocks: list[dict[str, Any]] = [{"kind": "text", "text": text} for text in said]
    if len(said) > MOST_SENTENCES:
        rows = [
            [one.said, one.measured, end.value, *end.interval]
            for one in changes
            for end in dict.fromkeys(one.ends)
        ]
        columns = ["change", "of", "value", "from", "to"]
        caption = "Effects with 95 % intervals"
        blocks = [{"kind": "table", "caption": caption, "columns": columns, "rows": rows}]
    blocks.append({"kind": "text", "text": _adjusted(changes)})
    title = "What would make it wrong"
    blocks.append({"kind": "list", "title": title, "items": objections(run, treatment, outcome)})
    return blocks


def _adjustments(changes: list[AskedChange]) -> list[tuple[str, ...] | None]:
    return list(dict.fromkeys(one.adjustment_set for each in changes for one in each.effects))


def _adjusted(changes: list[AskedChange]) -> str:
    words: dict[tuple[str, ...], str] = {
        (): "nothing, as the graph has no path that confounds the two"
    }
    if all(one == NO_EFFECT for each in changes for one in each.effects):
        return "Nothing is adjusted for: the graph has no directed path from the one to the other."
    sets = [words.get(one, ", ".join(one)) for one in _adjustments(changes) if one is not None]
    if not sets:
        return (
            "Not by adjustment: the effect follows from all mechanisms along the directed paths of "
            "the graph."
        )
    return f"Adjusted for: {'; or '.join(sets)}."


def objections(run: RunResult, treatment: str, outcome: str) -> list[str]:
    """Return reasons why the effect of a treatment may be wrong, the gravest first."""
    said = []
    try:
        changes = changes_of(run, treatment, outcome)
    except CausalError:
        changes = []
    about = {treatment, outcome, *_between(run.graph, treatment, outcome)}
    about |= {name.partition("[")[0] for one in _adjustments(changes) for name in one or ()}
    if run.lost:
        said.append(f"The result lacks {', '.join(run.lost)}.")
    if run.graph is not None and _reaches(run.graph, outcome, treatment):
        said.append(f"In the graph {outcome} acts on {treatment}, and not the other way round.")
    known = doubts_of(run, _DOUBTS)
    doubtful = [
        one
        for one in known
        if one.doubt >= 0.5 and {one.cause.partition("[")[0], one.effect} <= about
    ]
    said += [f"Edge in doubt: {one}." for one in doubtful[:MOST_NAMED]]
    if len(doubtful) > MOST_NAMED:
        said.append(f"{len(doubtful) - MOST_NAMED} further edges of these columns are in doubt.")
    fit = fit_of(run)
    if fit is not None and len(fit.rejected):
        pairs = zip(fit.rejected["first"], fit.rejected["second"], strict=True)
        listed = some((f"{one} and {other}" for one, other in pairs), MOST_NAMED)
        said.append(f"The graph does not fit the rows: {listed} are not independent as it says.")
    word = re.compile("|".join(rf"(?<!\w){re.escape(one)}(?!\w)" for one in (treatment, outcome)))
    said += [warning for warning in run.warnings if word.search(warning)]
    if run.disagreement is not None:
        unlike = clear_differences(run.disagreement)
        parties = list(dict.fromkeys(unlike["party"]))
        if parties:
            said.append(
                f"The parties are not alike ({', '.join(parties)} differ from the others): one "
                "number stands for all of them. by_party=True of total_effect allows for it in "
                "the interval, where the model has it."
            )
    if run.graph is not None and run.graph.marks is None:
        said.append(
            f"A common cause of {treatment} and {outcome} that is in no table: the method takes "
            "it that there is none, and the rows often do not show it (hidden_causes=True of "
            "moments and fedges allows for it)."
        )
    if not answers(run.model, "contrasts") and not hasattr(run.model, "contrast"):
        said.append("Effects that are not linear: the number is the slope of a straight line.")
    said += [
        f"Rows that were chosen by {treatment} and {outcome}, or by what follows from them.",
        "Another graph: the interval holds for this one, and does not contain its uncertainty.",
    ]
    return list(dict.fromkeys(said))


def _directed(graph: CausalGraph) -> Any:
    import networkx as nx
    import numpy as np

    found: nx.DiGraph[str] = nx.DiGraph()
    found.add_nodes_from(graph.names)
    present = directed_edges(graph.marks) if graph.marks is not None else graph.adjacency
    if graph.lagged is not None:
        present = present | (graph.lagged != 0).any(axis=0)
    found.add_edges_from((graph.names[i], graph.names[j]) for i, j in np.argwhere(present))
    return found


def _between(graph: CausalGraph | None, treatment: str, outcome: str) -> set[str]:
    """Return the variables on directed paths from one variable to another."""
    import networkx as nx

    if graph is None or not {treatment, outcome} <= set(graph.names):
        return set()
    directed = _directed(graph)
    return set(nx.descendants(directed, treatment) & nx.ancestors(directed, outcome))


def _reaches(graph: CausalGraph, cause: str, effect: str) -> bool:
    """Return whether directed paths lead from one variable to another, and none back."""
    import networkx as nx

    directed = _directed(graph)
    if not {cause, effect} <= set(directed):
        return False
    return nx.has_path(directed, cause, effect) and not nx.has_path(directed, effect, cause)
