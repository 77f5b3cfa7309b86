"""Parties that differ from the others, in words: what differs, and what to do.

The figures are those of ``run.disagreement`` (:mod:`core.blocks.disagreement`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.graphs.fit_check import LEVEL
from flwr_causal.core.words import some

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pandas as pd

#: Differences below this size are no matter, however certain: see :class:`Difference`.
LEAST_SIZE = 0.1
#: A party is named for its effects where one differs by this size and this p-value after the
#: correction for the number of all differences.
NAMED_SIZE, NAMED_LEVEL = 0.2, 1e-3
#: So many parties have a warning of their own.
MOST_NAMED = 3
#: A party whose targets are at least this share of the variables does not act on a few of them.
ALL_DIFFERENT = 0.5
FALSE_COLUMNS = ("reversed", "exchanged")


def disagreement_of(model: Any) -> pd.DataFrame | None:
    """Return how the parties differ from each other by a model's moments of each; None without."""
    known = getattr(model, "party_moments", None) and model.can("disagreement")
    return model.disagreement() if known else None


def clear_differences(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a run's disagreement that chance does not explain, and that matter."""
    return table[(table["corrected"] < LEVEL) & (table["size"] >= LEAST_SIZE)]


def odd_parties(
    table: pd.DataFrame | None, targets: Sequence[Any] | None = None, num_variables: int = 0
) -> dict[str, str]:
    """Return in words what sets single parties apart from the others that agree, by party.

    Parameters
    ----------
    table : DataFrame or None
        ``run.disagreement``.
    targets : sequence of TargetRecord, optional
        What parties act on, ``run.targets``: these variables are expected to differ.
    num_variables : int, default 0
        How many there are; read with targets only.

    Returns
    -------
    dict of str to str
        Such as ``{"north": "column 'pain' is reversed"}``, the clearest party first; empty where
        the parties agree. Of two parties it is not known which one is right: the first one is
        named.
    """
    if table is None or not len(table):
        return {}
    false = table[table["what"].isin(FALSE_COLUMNS)]
    effects = table[
        (table["what"] == "effect")
        & (table["corrected"] < NAMED_LEVEL)
        & (table["size"] >= NAMED_SIZE)
    ]
    acts = [(one["party"], one["variable"]) for one in targets or ()]
    found: dict[str, str] = {}
    for party in dict.fromkeys([*false["party"], *effects["party"]]):
        own = false[false["party"] == party]
        said = _false_columns(own)
        names = {*own["cause"], *own["effect"]} - {""}
        known = table[(table["what"] == "effect") & (table["party"] == party)]
        # A false column makes the other effects on the same variable differ, too.
        explained = names | set(known["effect"][known["cause"].isin(names)])
        explained |= {variable for acting, variable in acts if acting == party}
        left = effects[(effects["party"] == party) & ~effects["effect"].isin(explained)]
        if len(left):
            said.append(_effects(left, len(known)))
        share = sum(acting == party for acting, _ in acts) / max(num_variables, 1)
        if acts and share >= ALL_DIFFERENT:
            said.append("most mechanisms differ, and not those of a few variables")
        if said:
            found[str(party)] = "; ".join(said)
    if table["party"].nunique() == 2:
        return dict([*found.items()][:1])
    return found


def _false_columns(own: pd.DataFrame) -> list[str]:
    said = [
        f"column {name!r} is reversed (its correlations have the other sign)"
        for name in own["effect"][own["what"] == "reversed"]
    ]
    moved = own[own["what"] == "exchanged"]
    holds = dict(zip(moved["effect"], moved["cause"], strict=True))
    while holds:
        first = name = next(iter(holds))
        cycle = []
        while name in holds:
            cycle.append(name)
            name = holds.pop(name)
        said.append(_exchanged(cycle if name == first else [*cycle, name]))
    return said


def _exchanged(cycle: Sequence[str]) -> str:
    variables = {name.rpartition("=")[0] for name in cycle}
    listed = f"{', '.join(map(repr, cycle[:-1]))} and {cycle[-1]!r}"
    if len(variables) == 1 and "" not in variables:
        (variable,) = variables
        states = [name.removeprefix(f"{variable}=") for name in cycle]
        listed = f"{', '.join(map(repr, states[:-1]))} and {states[-1]!r}"
        return f"the codes {listed} of {variable!r} are exchanged"
    return f"columns {listed} stand under each other's names"


def _effects(left: pd.DataFrame, count: int) -> str:
    """Return the effect that differs most, and how many do."""
    first = left.loc[left["z"].abs().idxmax()]
    turned = ", the other sign" if first["value"] * first["others"] < 0 else ""
    said = (
        f"the effect of {first['cause']!r} on {first['effect']!r} is {first['value']:.3g} there "
        f"and {first['others']:.3g} at the others{turned}"
    )
    return said if len(left) == 1 else f"{len(left)} of {count} effects differ, most of all {said}"


def party_warnings(
    found: dict[str, str], parties: Collection[str], remedies: Sequence[str]
) -> list[str]:
    """Return a warning for each party that differs, a few at most, with what to do.

    Parameters
    ----------
    found : dict of str to str
        See :func:`odd_parties`.
    parties : collection of str
        All that were compared.
    remedies : sequence of str
        Other ways to run, in words, where there are such.
    """
    lines = []
    for party, said in [*found.items()][:MOST_NAMED]:
        others = [name for name in parties if name != party]
        two = len(others) == 1
        whom = (
            f"{party} and {others[0]} differ, and the rows do not tell which is right"
            if two
            else party
        )
        mend = "mend the table" if "column" in said or "codes" in said else "look at how it differs"
        ways = some([f"run without it (run.without({party!r}))", *remedies])
        lines.append(f"{whom}: {said}. What to do: {mend}, or {ways}. See run.disagreement.")
    more = [*found][MOST_NAMED:]
    if more:
        lines.append(f"{len(more)} more parties differ from the others: {some(more)}.")
    return lines
