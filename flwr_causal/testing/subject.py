"""A method on its parties: its undisturbed run, its messages, and what is compared of a result."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flwr_causal.core.circuits.presence import joined_tables
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.read.tables import read_table
from flwr_causal.simulations import Relay, simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid
    from numpy.typing import NDArray

    from flwr_causal.clients import CausalClient
    from flwr_causal.reports.run import Run
    from flwr_causal.strategies import CausalStrategy

#: What is compared of a run, by name.
Result = dict[str, "NDArray[np.float64]"]


class CheckError(Exception):
    """A check was not passed.

    Parameters
    ----------
    text : str
    code : str, default ""
        Of a fault, in the table of faults.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class CheckFailedError(CheckError, AssertionError):
    """A method does not do what its contract says.

    Examples
    --------
    >>> from flwr_causal.testing import CheckFailedError
    >>> issubclass(CheckFailedError, AssertionError)
    True
    """


class CheckSkippedError(CheckError):
    """A check has no meaning for the method; the message says why.

    Examples
    --------
    >>> from flwr_causal.testing import CheckSkippedError
    >>> str(CheckSkippedError("the method has one party"))
    'the method has one party'
    """


@dataclass
class Subject:
    """A method on its parties.

    Parameters
    ----------
    strategy : CausalStrategy
    parties : sequence
        As of :func:`flwr_causal.simulations.simulate`.
    client : type, optional
        Of a method that is not registered.
    """

    strategy: CausalStrategy
    parties: Sequence[Any]
    client: type[CausalClient] | None = None
    _kept: list[tuple[Run, Spy]] = field(default_factory=list)

    def simulate(self, parties: Sequence[Any] | None = None, **options: Any) -> Run:
        """Run the method on these parties, by default its own."""
        own = self.parties if parties is None else parties
        return simulate(self.strategy, own, client=self.client, **options)

    def run(self, parties: Sequence[Any] | None = None) -> tuple[Run, Spy]:
        """Return the run on these parties and its messages; that on its own is made once."""
        if parties is None and self._kept:
            return self._kept[0]
        spies: list[Spy] = []

        def spied(grid: Any) -> Spy:
            spies.append(Spy(grid))
            return spies[0]

        run = self.simulate(parties, wrap_grid=spied)
        if parties is None:
            self._kept.append((run, spies[0]))
        return run, spies[0]

    @cached_property
    def tables(self) -> list[pd.DataFrame]:
        """The parties' tables."""
        return [read_table(party) for party in self.parties]

    @cached_property
    def same_columns(self) -> bool:
        """Whether all parties hold the same columns."""
        return all(set(table.columns) == set(self.tables[0].columns) for table in self.tables)

    def tables_of_rows(self) -> list[pd.DataFrame]:
        """Return the parties' tables where they hold the same columns and no time series.

        Raises
        ------
        CheckSkippedError
            Otherwise.
        """
        if self.strategy.data is DataKind.SERIES:
            raise CheckSkippedError("rows of time series cannot be split or doubled")
        if not self.same_columns:
            raise CheckSkippedError("the parties hold different columns")
        return self.tables

    @cached_property
    def all_rows(self) -> pd.DataFrame:
        """The complete rows of all parties in one table, joined by their ids if need be."""
        if self.same_columns:
            return pd.concat(self.tables, ignore_index=True)
        roles = self.strategy.options.role_columns
        return joined_tables(self.tables, roles[0] if roles else "").dropna()

    @cached_property
    def undisturbed(self) -> Result:
        """The result of the undisturbed run, with the parties' own graphs."""
        run, _ = self.run()
        return {**self.result(run), **own_graphs(run)}

    @cached_property
    def without_last(self) -> Result | None:
        """The result of the run without the last party; None if the others cannot run alone."""
        try:
            run = self.simulate(self.parties[:-1])
            return {**self.result(run), **own_graphs(run)}
        except Exception:
            return None

    def result(self, run: Run) -> Result:
        """Return the result by which runs are compared: a graph, a likelihood, or figures.

        Raises
        ------
        CausalError
            If the parties that hold the circuits cannot be asked.
        """
        found: Result = {}
        if run.graph is not None:
            first = self._kept[0][0].graph if self._kept else None
            known = first is not None and set(first.names) == set(run.graph.names)
            graph = run.graph.reordered(first.names) if first is not None and known else run.graph
            found["weights of the graph"] = graph.weights
            if graph.lagged is not None:
                found["lagged weights of the graph"] = graph.lagged
        elif hasattr(run.model, "log_likelihood") and not self.all_rows.empty:
            likelihood = run.model.log_likelihood(self.all_rows)
            found["log-likelihood of the rows"] = np.asarray(likelihood, dtype=np.float64)
        elif hasattr(run.model, "figures"):
            found |= run.model.figures()
        return found


def own_graphs(run: Run) -> Result:
    """Return the weights of the parties' own graphs, where a run has such graphs."""
    return {f"weights of {party}'s graph": own.weights for party, own in run.local_graphs.items()}


def distance(one: Result, other: Result) -> tuple[float, str]:
    """Return the largest difference of two results, relative to the largest values, and its place.

    Graphs of parties that only one result has are not compared.
    """
    farthest, text = 0.0, ""
    for name in one.keys() & other.keys():
        first, second = one[name], other[name]
        if first.shape != second.shape:
            return np.inf, f"the {name} have other variables"
        apart = float(np.abs(first - second).max(initial=0.0))
        relative = apart / max(1.0, float(np.abs(first).max(initial=0.0)))
        if not relative <= farthest:
            farthest = relative if np.isfinite(relative) else np.inf
            edges = int(((first != 0) != (second != 0)).sum())
            text = f"the {name} differ by up to {apart:.3g}"
            if edges:
                text += f", and {edges} edges are in one graph only"
    return farthest, text


class Spy(Relay):
    """A grid that keeps what is sent and what comes back."""

    def __init__(self, grid: Grid) -> None:
        super().__init__(grid)
        self.pairs: list[tuple[RecordDict, Message]] = []

    def after(self, messages: list[Message], replies: list[Message]) -> list[Message]:
        """Keep the replies, each with the message to its party."""
        contents = {one.metadata.dst_node_id: one.content for one in messages}
        for reply in replies:
            if reply.has_content():
                self.pairs.append((contents[reply.metadata.src_node_id], reply))
        return replies
