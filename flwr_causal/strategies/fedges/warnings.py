"""What FedGES says of counts of few rows, of two parties, and where it has no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.protocol.fedges import MIXED
from flwr_causal.strategies.fedges.fit import MOST_CELLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.fedges.options import FedGESOptions


def small_cell_warning(
    small: Mapping[str, int],
    agreement: Agreement,
    options: FedGESOptions,
    *,
    mode: str,
    continues: bool,
) -> list[str]:
    """Warn of counts of few rows: that parties sent them, or withheld them.

    Parameters
    ----------
    small : mapping of str to int
        By party, the cells of few rows that it has sent or withheld.
    agreement : Agreement
    options : FedGESOptions
    mode : str
        The mode that runs.
    continues : bool
        Whether rounds of fusion follow the search.
    """
    small = {name: count for name, count in small.items() if count}
    if not small:
        return []
    worst, minimum = max(small, key=small.__getitem__), options.minimum_count
    if options.small_counts == "suppress":
        return [
            f"{len(small)} of {len(agreement.rows)} parties withheld counts of fewer than "
            f"{minimum} rows ({worst}: {small[worst]} cells). Their tables count fewer rows than "
            "they have, and weak edges may be missing: join rare states."
        ]
    return [
        f"{len(small)} of {len(agreement.rows)} parties sent counts of fewer than {minimum} "
        f"rows ({worst}: {small[worst]} cells). Counts of few rows disclose values of single rows: "
        "join rare states, or withhold such counts (small_counts='suppress')"
        f"{_no_counts(options, mode, continues)}."
    ]


def _no_counts(options: FedGESOptions, mode: str, continues: bool) -> str:
    """Return the options with which no counts are sent, as another remedy; "" if there are none."""
    if options.score == MIXED:
        return ""
    if continues:
        return ", or send no counts (mode='scores' without 'start', and with 'parameters' off)"
    if mode == "fusion":
        return ", or send no counts (parameters=False)"
    return ", or send no counts (mode='scores' and parameters=False)"


def two_party_warning(agreement: Agreement) -> list[str]:
    """Warn that each of two parties can compute the other's share of a sum."""
    if len(agreement.rows) != 2:
        return []
    return [
        "The federation has two parties: each of them can subtract its own share from a sum and "
        "learns the other's share."
    ]


NO_NETWORK = (
    "There is no Bayesian network: a table of probabilities would have more than "
    f"{MOST_CELLS} entries, or the exchanges were used up. Limit the parents with max_parents, "
    "or allow more max_rounds."
)
