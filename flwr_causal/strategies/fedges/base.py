"""The base of FedGES: all but its training: options sent to parties, their tables, comparisons."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.blocks.design import Category, column_names
from flwr_causal.core.blocks.disagreement import disagreement
from flwr_causal.core.discrete.contingency_tables import ContingencyCounts, Sets, tables_of
from flwr_causal.core.discrete.cut_points import MAX_EXCHANGES
from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.discrete.scores import score_graph
from flwr_causal.core.ges.fusion import needed
from flwr_causal.core.ges.ges import ges
from flwr_causal.core.linear.moments import SampleMoments, columns_of
from flwr_causal.core.options import require
from flwr_causal.core.words import by_name
from flwr_causal.data.check.agreement import agree
from flwr_causal.data.check.party_table import describe, prepare_states
from flwr_causal.data.kinds import DataKind
from flwr_causal.protocol.fedges import CONTRACT, FIT, FedGESPartyOptions
from flwr_causal.runtime.options import Baselines
from flwr_causal.strategies.columns import JoiningStrategy, presence_of
from flwr_causal.strategies.fedges.joined import JoinedCounts
from flwr_causal.strategies.fedges.options import FEWEST_TESTED, FedGESOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.parts import Part
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.doubts.tables import Expected
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.strategies.base import RunAlone

#: The fewest exchanges of two searches, each with one for its tables.
FEWEST_ROUNDS = 4


class FedGESBase(JoiningStrategy):
    """Base of FedGES: all but the training."""

    options_type = FedGESOptions
    options: FedGESOptions

    contract: ClassVar[Contract] = CONTRACT
    data = DataKind.CATEGORIES

    def validate(self) -> None:
        """Check that the options fit each other."""
        super().validate()
        rounds = self.options.max_rounds
        if self.options.incomplete:
            needed_rounds = f"{FEWEST_ROUNDS} or more with missing_values='em'"
            require(rounds >= FEWEST_ROUNDS, "max_rounds", rounds, needed_rounds)
        if self.options.hidden_causes:
            needed_rounds = f"{FEWEST_TESTED} or more with hidden_causes=True"
            require(rounds >= FEWEST_TESTED, "max_rounds", rounds, needed_rounds)
        if self.options.fusion is not None:
            needed(self.options.fusion, 1)
        last = self.options.drives and self.options.keep == "last"
        require(not last, "keep", self.options.keep, "'best' for start='driven'")
        _ = self.handling

    @property
    def pools_rows(self) -> bool:
        """Whether the search sees the contingency tables of the pooled rows."""
        return self.options.chosen_mode == "exact" and not self.options.party_column

    @property
    def exchanges_beyond(self) -> int:
        """How many exchanges there may be beyond ``max_rounds``: cut points, and one search."""
        return 1 + (MAX_EXCHANGES if self.options.discretize else 0)

    @property
    def _different(self) -> type[Part]:
        """The part of parties that hold different columns: tables of two or three columns."""
        return JoinedCounts

    @property
    def handling(self) -> Handling:
        """How problems of the data are handled; one row is enough for a party."""
        return replace(super().handling, min_rows=1)

    @property
    def _expected(self) -> Expected:
        """Categories."""
        return replace(super()._expected, nominal=True)

    @property
    def client_options(self) -> FedGESPartyOptions:
        """What the parties need for their own searches and scores."""
        options = self.options
        score = "bdeu" if options.continues and options.score == "auto" else options.chosen_score
        return self.sent(FedGESPartyOptions, score=score, max_edges=options.max_edges or 10)

    def _present(self, agreement: Agreement) -> dict[str, IntArray] | None:
        """Return by party how many rows it has of each number; None where it is all of them."""
        if not agreement.columns_differ:
            return None
        presence = presence_of(agreement, agreement.continuous)
        rows = agreement.rows.items()
        return {name: n * own for (name, n), own in zip(rows, presence, strict=True)}

    @property
    def _transforms(self) -> bool:
        """Whether the variables are other columns than those of the parties' tables."""
        options = self.options
        return bool(options.discretize or options.party_column or self._columns_differ)

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return the graphs of GES with BIC; None where parties cut columns into intervals.

        None also where they are a cause. Of rows with gaps they are this method's own.
        """
        if self._transforms:
            return None
        if self.options.incomplete:
            return super().baselines(tables, names, run_alone)
        return ges_baselines(tables, names, self.handling)

    @property
    def _compared_in(self) -> str:  # type: ignore[override]
        """The exchange of the tables of the graph's families, where these are counts alone."""
        return "" if self.options.secure_aggregation else FIT.name

    def _disagreement(
        self, model: Any, replies: Mapping[str, Arrays], asked: Mapping[str, Any]
    ) -> pd.DataFrame | None:
        """Compare the parties by the tables of the families that each of them sent."""
        if not replies or not getattr(model, "tables", ()):
            return None
        order, d = by_name(model.names), len(model.names)
        edges = np.zeros((d, d), dtype=np.bool_)
        for child, own in enumerate(model.parents):
            edges[list(own), child] = True
        names, states = ([values[k] for k in order] for values in (model.names, model.states))
        return disagreement_of_tables(replies, asked, names, states, edges[np.ix_(order, order)])

    def _pooled_metrics(self, tables: Iterable[pd.DataFrame], graph: CausalGraph) -> dict[str, Any]:
        """Return ``bdeu``, the score in nats; nothing of a PAG, of cut columns, or of gaps."""
        if self._transforms or self.options.incomplete or graph.kind == "pag":
            return {}
        return {
            "bdeu": bdeu(list(tables), graph, self.handling, self.options.equivalent_sample_size)
        }


# -- the same search where all rows are in one place -----------------------------------------------


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


# -- the tables of each party ----------------------------------------------------------------------


def disagreement_of_tables(
    replies: Mapping[str, Arrays],
    asked: Mapping[str, Any],
    names: Sequence[str],
    states: Sequence[Sequence[Any]],
    edges: BoolArray,
) -> pd.DataFrame | None:
    """Compare parties by the tables that each of them sent.

    The states of a category are columns, 1 in its rows and 0 in the others. A family's table has
    their products, so that parties are compared as by the moments of columns; products of variables
    that are in no family are unknown.

    Parameters
    ----------
    replies : mapping of str to dict
        By party, its tables as they arrive.
    asked : mapping of str to ndarray
        ``sizes`` and ``members`` of the sets, see :class:`Sets`.
    names : sequence of str
        In the order of the sets' members.
    states : sequence of sequence
        Of each variable.
    edges : ndarray of bool, shape (d, d)
        A DAG whose families are among the sets.

    Returns
    -------
    DataFrame or None
        See :func:`flwr_causal.core.blocks.disagreement.disagreement`; None where fewer than two
        parties have rows.
    """
    variables = [
        Category(name, tuple(map(str, own))) for name, own in zip(names, states, strict=True)
    ]
    sets = Sets(np.asarray(asked["sizes"]), np.asarray(asked["members"]))
    columns = columns_of([one.width for one in variables])
    cardinalities = np.array([len(one.states) for one in variables], dtype=np.int64)
    parties: dict[str, SampleMoments] = {}
    for party, arrays in replies.items():
        counts = ContingencyCounts(*(arrays[name] for name in ContingencyCounts._fields))
        tables = tables_of(sets, counts, cardinalities)
        moments = _moments(tables, sets, columns, column_names(variables))
        if moments is not None:
            parties[party] = moments
    return disagreement(variables, parties, edges) if len(parties) > 1 else None


def _moments(
    tables: Sequence[IntArray], sets: Sets, columns: Sequence[IntArray], names: tuple[str, ...]
) -> SampleMoments | None:
    """Return the moments of the columns of states; NaN of those that no table has together."""
    size = len(names)
    mean, second = np.zeros(size), np.full((size, size), np.nan)
    rows = 0
    for members, table in zip(sets.lists(), tables, strict=True):
        n = int(table.sum())
        if not n:
            return None
        rows = max(rows, n)
        shares = table / n
        for place, one in enumerate(members.tolist()):
            own = _margin(shares, (place,))[:-1]
            mean[columns[one]] = own
            second[np.ix_(columns[one], columns[one])] = np.diag(own) - np.outer(own, own)
            for later, other in enumerate(members[place + 1 :].tolist(), start=place + 1):
                both = _margin(shares, (place, later))
                product = both[:-1, :-1] - np.outer(both.sum(axis=1)[:-1], both.sum(axis=0)[:-1])
                second[np.ix_(columns[one], columns[other])] = product
                second[np.ix_(columns[other], columns[one])] = product.T
    return SampleMoments(rows, mean, second, names)


def _margin(shares: FloatArray, kept: tuple[int, ...]) -> FloatArray:
    """Return the sums of a table over all axes but some."""
    others = tuple(axis for axis in range(shares.ndim) if axis not in kept)
    return np.asarray(shares.sum(axis=others))
