"""Second moments over parties that hold different columns of the same rows: three exchanges."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.presence import joined_tables
from flwr_causal.core.graphs.knowledge import Knowledge, as_knowledge
from flwr_causal.core.options import require
from flwr_causal.core.parts import Part, all_but, option, unmet
from flwr_causal.data.check.handling import AutoDropKeep  # noqa: TC001 (checked by type)
from flwr_causal.data.check.row_ids import name_of_ids
from flwr_causal.errors import DataError
from flwr_causal.runtime.options import CausalOptions
from flwr_causal.sources.joined import Holders
from flwr_causal.sources.row_ids import check_ids
from flwr_causal.strategies.base import CausalStrategy
from flwr_causal.strategies.options import refuse_misfits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport


class CompleteRows(Part):
    """Sums of rows without missing cells."""

    text = "complete rows"
    gives = all_but("gaps")
    remedies = (("gaps", "missing_values='em'"),)


class JoinedColumns(Part):
    """Columns of different parties, joined by the ids of their rows."""

    text = "different columns"
    gives = all_but("sample", "restart", "parties", "replies", "pooled")


@dataclass(frozen=True)
class NotedColumns:
    """What a method notes of the parties' columns.

    Parameters
    ----------
    held : tuple of frozenset of str
        The columns of each party.
    skewed : tuple of str, default ()
        Columns that are skewed as amounts are.
    """

    held: tuple[frozenset[str], ...]
    skewed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PartyAsCause(Part):
    """A column that says which party a row is from, and so has all that parties differ by in level.

    Parameters
    ----------
    party_column : str, default ""
        With ``text_columns="keep"``: the name of a further category, such as "clinic", that no
        table has. Its state in each row is the name of the row's party, nothing causes it, and it
        may cause everything; effects are then adjusted for it where the graph says so. Default:
        there is none. See docs/how_to/parties_differ.md for when it is better than ``center``.
    """

    text = "party_column"
    gives = all_but("numbers", "centring", "levels")

    party_column: str = option("", needs=("pooled", "reports", "rows", "states"))


@dataclass(frozen=True, kw_only=True)
class JoiningOptions(PartyAsCause, CausalOptions):
    """The options of the methods whose parties may hold different columns of the same rows."""

    text_columns: AutoDropKeep = "auto"  # type: ignore[assignment]

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose, also a column of the parties."""
        return (*super().parts, PartyAsCause) if self.party_column else super().parts

    def settled(self) -> Any:
        """Return the options that follow from a column of the parties.

        It is a category, and a root of the graph.
        """
        options: Any = super().settled()
        if not options.party_column:
            return options
        texts = options.text_columns
        known = as_knowledge(options.knowledge) or Knowledge()
        return replace(
            options,
            text_columns="keep" if texts == "auto" else texts,
            knowledge=replace(known, roots=(*known.roots, options.party_column)),
        )


class JoiningStrategy(CausalStrategy):
    """Base of the methods whose parties may hold different columns of the same rows.

    Its client is a :class:`~flwr_causal.clients.columns.ColumnsClient`, and the contract has the
    exchanges of :mod:`flwr_causal.protocol.columns` and reports "ids".
    """

    options: JoiningOptions

    def validate(self) -> None:
        """Check that the options fit each other."""
        super().validate()
        texts = self.options.text_columns
        fits = texts == "keep" or not self.options.party_column
        require(fits, "text_columns", texts, "'keep' with party_column")

    @property
    def _different(self) -> type[Part]:
        """The part of parties that hold different columns."""
        return JoinedColumns

    @property
    def handling(self) -> Handling:
        """How problems of the data are handled; columns that only some parties have are kept."""
        handling = super().handling
        return replace(handling, unshared_columns="keep") if self._columns_differ else handling

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on the columns; where rows have ids, on the union of the parties' columns.

        Raises
        ------
        ConfigError
            If options do not fit parties that hold different columns.
        DataError
            As in the base class.
        """
        held = tuple(frozenset(report.names) for report in reports.values())
        differ = (
            self.options.joins_columns
            and self.options.unshared_columns in ("auto", "fail")
            and len(set(held)) > 1
            and all(report.has_ids for report in reports.values())
        )
        strategy = copy.copy(self)
        strategy._columns_differ = differ
        if differ:
            check_ids(reports)
            refuse_misfits(
                unmet(self.options, (*strategy._parts, self._different)),
                "The parties hold different columns, which these options do not allow: set "
                "{remedies}, or use the columns that all share (unshared_columns='drop').",
            )
        agreement = super(JoiningStrategy, strategy).agree(reports)
        return replace(agreement, columns_differ=differ, noted=NotedColumns(held))

    def _accepts(self, changes: Mapping[str, Any]) -> bool:
        """Return whether the method has these options; if columns differ, where they do."""
        if not super()._accepts(changes) or not self._columns_differ:
            return super()._accepts(changes)
        other = self.with_options(**changes)
        return not unmet(other.options, (*other._parts, other._different))

    def _holders_of(self, agreement: Agreement, names: tuple[str, ...]) -> Holders:
        """Return the parties and which of them hold which of these columns."""
        return Holders(
            tuple(agreement.rows),
            names,
            presence_of(agreement, names),
            agreement.n,
            self.options.minimum_count,
            self.options.replicates,
            self.options.seed,
        )


def presence_of(agreement: Agreement, names: Sequence[str]) -> BoolArray:
    """Return which of these columns each party holds, shape (parties, columns)."""
    noted: NotedColumns = agreement.noted
    return np.array([[name in held for name in names] for held in noted.held])


def joined_rows(tables: Sequence[pd.DataFrame], row_id: str) -> pd.DataFrame | None:
    """Return the rows that have all columns, joined by ids; None where parties' values differ.

    Parameters
    ----------
    tables : sequence of DataFrame
        The parties' tables.
    row_id : str
        The column of ids, or "" for the usual one.
    """
    try:
        return joined_tables(tables, name_of_ids(tables[0].columns, row_id) or "").dropna()
    except DataError:
        return None  # of which the run warns
