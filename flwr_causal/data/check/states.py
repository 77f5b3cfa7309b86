"""The checks on categories: which states a column has over all parties, and whether it has few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.core.discrete.discrete import MAX_STATES, sorted_states
from flwr_causal.data.check.findings import WORDS, problem_line, some_parties
from flwr_causal.data.check.policy import MOST_FRACTIONS
from flwr_causal.data.check.variation import check_constant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.data.check.findings import Findings, Holders
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport

__all__ = ["check_states"]

SUGGESTED_BINS = 5


def check_states(
    name: str,
    holders: Holders,
    reports: Mapping[str, TableReport],
    policy: Policy,
    found: Findings,
) -> None:
    """Unite the parties' states of a column, or find why they are no states.

    Parameters
    ----------
    name : str
        A column that is not dropped so far.
    holders : Holders
        What the parties that have it report, with states.
    reports : mapping of str to TableReport
    policy : Policy
    found : Findings
        Gets the states, or the column among the continuous ones, or a problem.
    """
    filled = {p: column for p, column in holders.items() if not reports[p].is_empty(column)}
    if not _is_one_kind(name, filled, found):
        return
    if not filled and policy.missing_values == "keep":
        found.problems.append(
            f"all parties, column {name!r}: no value at all, every one is missing; remove it"
        )
        return
    states = sorted_states(state for column in filled.values() for state in column.states)
    hidden = {party: c.distinct for party, c in filled.items() if c.hides_states}
    if policy.discretize and any(column.kind == "numeric" for column in filled.values()):
        # A party hides its states only for one of these two reasons, so that the rule depends on
        # the rows of all parties together alone.
        whole = all(column.whole for column in filled.values())
        too_fine = not whole and len(states) > policy.discretize
        too_fine |= len(states) > policy.number_states > 0
        if hidden or too_fine or len(states) > policy.max_states:
            found.continuous[name] = whole
            if policy.number_states:
                # Numbers whose values are not named may be one number at all parties.
                check_constant(name, holders, reports, policy, found)
            return
    if hidden:
        party = max(hidden, key=lambda party: hidden[party])
        others = [other for other in hidden if other != party]
        fractions = filled[party].kind == "numeric" and hidden[party] <= policy.max_states
        limit = f"more than max-states={policy.max_states}"
        if fractions:
            limit = f"not whole and more than {MOST_FRACTIONS}, so that they are no categories"
        problem = f"{hidden[party]} different values, {limit}"
        problem += f" (too many at {some_parties(others)} too)" if others else ""
        remedy = _remedy(filled[party].kind == "numeric", hidden[party], fractions)
        found.problems.append(problem_line(party, name, problem, remedy))
    elif len(states) > policy.max_states:
        numeric = any(column.kind == "numeric" for column in filled.values())
        found.problems.append(
            f"all parties, column {name!r}: {len(states)} different values in all, more than "
            f"max-states={policy.max_states}; {_remedy(numeric, len(states), False)}"
        )
    else:
        found.states[name] = states
        rows = sum(report.rows for report in reports.values())
        if len(states) >= rows > 2:
            # Two rows may well differ; where no two of more rows agree there is nothing to count.
            numeric = all(column.kind == "numeric" for column in filled.values())
            found.problems.append(
                f"all parties, column {name!r}: {len(states)} states for {rows} rows in all, so "
                f"that no value occurs twice; {_repetition_remedy(numeric, len(states), policy)}"
            )
        _check_single(name, states, policy, found)


def _is_one_kind(name: str, filled: Holders, found: Findings) -> bool:
    """Find dates and mixtures, and booleans that are numbers elsewhere.

    Text that is numbers or booleans elsewhere has been found before; it has no states either.
    """
    odd = [party for party, column in filled.items() if column.kind == "other"]
    for party in odd:
        problem = f"holds {WORDS['other']} (dates, or a mixture), so that it has no states"
        found.problems.append(
            problem_line(party, name, problem, "make it text or numbers, or remove it")
        )
    booleans = [party for party, column in filled.items() if column.kind == "boolean"]
    numbers = [party for party, column in filled.items() if column.kind == "numeric"]
    if booleans and numbers:
        for party in booleans:
            problem = f"holds booleans, but numbers at {some_parties(numbers)}"
            remedy = "make it the same everywhere: True and 1 are different states"
            found.problems.append(problem_line(party, name, problem, remedy))
    texts = any(column.kind == "category" for column in filled.values())
    return not odd and not (booleans and numbers) and not (texts and (booleans or numbers))


def _remedy(numeric: bool, count: int, fractions: bool) -> str:
    ways = []
    if numeric:
        ways.append(
            f"discretize it with the option discretize={SUGGESTED_BINS} (equal frequency, cut "
            "points agreed by all parties)"
        )
    else:
        ways.append("join values that belong together")
    if count <= MAX_STATES and not fractions:
        ways.append("raise max-states")
    return f"{', '.join(ways)}, or drop it"


def _repetition_remedy(numeric: bool, count: int, policy: Policy) -> str:
    bins = policy.discretize or SUGGESTED_BINS
    if not numeric or count <= bins:
        return "drop it if it only names the rows, else join values that belong together"
    return (
        f"drop it if it only numbers the rows, else set discretize={bins} and max-states below "
        f"{count}"
    )


def _check_single(name: str, states: tuple[str, ...], policy: Policy, found: Findings) -> None:
    if len(states) != 1 or policy.constant_columns == "keep":
        return
    if policy.constant_columns == "drop":
        found.dropped[name] = "constant over all parties"
    else:
        found.problems.append(
            f"all parties, column {name!r}: constant, one state in all rows; remove it, leave such "
            "columns out with constant-columns='drop', or keep them as isolated nodes with 'keep'"
        )
