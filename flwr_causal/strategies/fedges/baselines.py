"""What FedGES is compared with where all rows are in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.discrete.scores import score_graph
from flwr_causal.core.ges.ges import ges
from flwr_causal.data.check.agreement import agree
from flwr_causal.data.check.party_table import describe, prepare_states
from flwr_causal.runtime.options import Baselines

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.data.check.handling import Handling


def ges_baselines(
    frames: Sequence[pd.DataFrame], names: Sequence[str], handling: Handling
) -> Baselines:
    """Return the graphs of GES with BIC on the pooled rows and on each party's own rows."""
    tables = _coded(frames, names, handling)
    alone = [ges(_as_alone(table), score="bic") for table in tables]
    return Baselines(ges(concatenated(tables), score="bic"), alone, "GES, BIC")


def bdeu(
    frames: Sequence[pd.DataFrame],
    graph: CausalGraph,
    handling: Handling,
    equivalent_sample_size: float,
) -> float:
    """Return the BDeu score of a graph on the pooled rows, in nats."""
    rows = concatenated(_coded(frames, graph.names, handling))
    return score_graph(graph, rows, "bdeu", equivalent_sample_size)


def concatenated(tables: Sequence[DiscreteTable]) -> DiscreteTable:
    """Return the rows of several tables with the same states in one."""
    first = tables[0]
    codes = np.concatenate([table.codes for table in tables], axis=1)
    return DiscreteTable(first.names, first.states, codes)


def _as_alone(table: DiscreteTable) -> DiscreteTable:
    """Return a party's table with only the states that occur in its rows."""
    states, codes = [], np.empty_like(table.codes)
    for j, own in enumerate(table.states):
        seen, codes[j] = np.unique(table.codes[j], return_inverse=True)
        states.append(tuple(own[code] for code in seen))
    return DiscreteTable(table.names, tuple(states), codes)


def _coded(
    frames: Sequence[pd.DataFrame], names: Sequence[str], handling: Handling
) -> list[DiscreteTable]:
    """Return the parties' rows, coded by the states of all parties together."""
    # The gaps of other columns are no reason to leave a row out.
    frames = [frame.loc[:, frame.columns.isin(names)] for frame in frames]
    reports = {
        str(k): describe(frame, handling, states=True)
        for k, frame in enumerate(frames)
        if len(frame)
    }
    agreement = agree(reports, handling)
    states = [agreement.states[agreement.names.index(name)] for name in names]
    return [prepare_states(frame, names, states, handling) for frame in frames if len(frame)]
