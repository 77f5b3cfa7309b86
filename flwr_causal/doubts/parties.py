"""Parties that differ from the others, in words: what differs, and what to do.

The figures are those of ``run.disagreement`` (:mod:`core.blocks.disagreement`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from flwr_causal.core.graphs.fit_check import LEVEL
from flwr_causal.data.check.rules import FactRule, listed, told

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pandas as pd

    from flwr_causal.data.check.rules import Fields

#: Differences below this size are no matter, however certain: see :class:`Difference`.
LEAST_SIZE = 0.1
#: A party is named for its effects where one differs by this size and this p-value after the
#: correction for the number of all differences.
NAMED_SIZE, NAMED_LEVEL = 0.2, 1e-3
#: So many parties have a warning of their own.
MOST_NAMED = 3
#: A party that acts on at least this share of the variables is another system.
MOST_VARIABLES = 0.5
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
    targets : sequence of TargetEntry, optional
        What parties act on, ``run.targets``: these variables are expected to differ.
    num_variables : int, default 0
        How many there are; read with targets only.

    Returns
    -------
    dict of str to str
        Such as ``{"north": "column 'pain' is reversed (its correlations have the other sign)"}``,
        those with false columns first; empty where the parties agree. Of two parties it is not
        known which one is right: one is named.
    """
    if table is None or not len(table):
        return {}
    acts: dict[str, set[str]] = {}
    for one in targets or ():
        acts.setdefault(one["party"], set()).add(one["variable"])
    false = table[table["what"].isin(FALSE_COLUMNS)]
    clear = (table["corrected"] < NAMED_LEVEL) & (table["size"] >= NAMED_SIZE)
    effects = table[(table["what"] == "effect") & clear]
    found: dict[str, str] = {}
    for party in dict.fromkeys([*false["party"], *effects["party"], *acts]):
        own = false[false["party"] == party]
        said = _false_columns(own)
        here = table[(table["what"] == "effect") & (table["party"] == party)]
        names = {_variable(name) for name in (*own["cause"], *own["effect"]) if name}
        # A false column makes the other effects on the same variable differ, too.
        of_false = here["effect"][here["cause"].map(_variable).isin(names)]
        explained = {*names, *of_false.map(_variable), *acts.get(party, ())}
        left = effects[effects["party"] == party]
        left = left[~left["effect"].map(_variable).isin(explained)]
        if len(left):
            said.append(_effects(left, len(here)))
        elif not said and len(acts.get(party, ())) >= MOST_VARIABLES * num_variables:
            many = f"{len(acts[party])} of {num_variables}"
            said.append(f"it acts on {many} variables, as if it were another system")
        if said:
            found[str(party)] = "; ".join(said)
    if table["party"].nunique() == 2:
        return dict([*found.items()][:1])
    return found


def _variable(column: str) -> str:
    """Return the variable of a column: of a state, or of a function of a number."""
    return re.sub(r" \(function \d+\)$", "", column).partition("=")[0]


def _false_columns(own: pd.DataFrame) -> list[str]:
    said = [
        f"column {name!r} is reversed (its correlations have the other sign)"
        for name in own["effect"][own["what"] == "reversed"]
    ]
    moved = own[own["what"] == "exchanged"]
    holds = dict(zip(moved["effect"], moved["cause"], strict=True))
    while holds:
        name = next(iter(holds))
        cycle = []
        while name in holds:
            cycle.append(name)
            name = holds.pop(name)
        said.append(_exchanged(cycle))
    return list(dict.fromkeys(said))


def _exchanged(cycle: Sequence[str]) -> str:
    variables = {name.partition("=")[0] for name in cycle if "=" in name}
    (variable,) = variables if len(variables) == 1 else ("",)
    names = [repr(name.removeprefix(f"{variable}=")) for name in cycle]
    if len(variables) > 1:  # of each state the same
        names = [repr(_variable(name)) for name in cycle]
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    if variable:
        return f"codes {listed} of {variable!r} are exchanged"
    return f"columns {listed} stand under each other's names"


def _effects(left: pd.DataFrame, count: int) -> str:
    """Return the effect that differs most, and how many do."""
    first = left.to_dict("records")[int(left["z"].abs().argmax())]
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
        What else helps where mechanisms differ, in words.
    """
    return told(PARTY_RULES, {"odd": found, "parties": parties, "remedies": remedies})


def _odd(odd: Mapping[str, str], parties: Collection[str], remedies: Sequence[str]) -> Fields:
    """Find the first parties that differ, and what to do about each."""
    for party, said in [*odd.items()][:MOST_NAMED]:
        others = [name for name in parties if name != party]
        two, false = len(others) == 1, said.startswith(("column", "codes"))
        yield {
            "party": party,
            "whom": others[0] if two else "the others",
            "said": said,
            "doubt": " Which of the two is right the rows do not tell." * two,
            "mend": "Mend its table" if false else "Compare how it measures and whom it has",
            "ways": "" if false else "".join(f"; {one}" for one in remedies),
        }


PARTY_RULES = (
    FactRule(
        "{party} differs from {whom}: {said}.{doubt} {mend}, or run without it "
        "(run.without({party!r}); on nodes the option expected_parties){ways}. run.disagreement "
        "has the numbers.",
        "A party's column is reversed, columns or codes stand under each other's names, or its "
        "effects differ by more than chance and by 0.2 standard deviations; `moments`, `lingam` "
        "and networks of `fedges`, see [who disagrees](effects.md#who-disagrees)",
        "[What to do](how_to/false_parties.md): mend the table, or run without the party",
        title="... differs from ...",
        finds=_odd,
    ),
    FactRule(
        "{count} more parties differ from the others: {listed}.",
        finds=lambda odd: listed([*odd][MOST_NAMED:], count=len(odd) - MOST_NAMED),
    ),
)
