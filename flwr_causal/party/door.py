"""The party's own door: its policy and its record, between the messages and the table.

A node without a policy and without a record has a door, too: it refuses columns that look like
identifiers. Simulated parties have none of the three.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from logging import ERROR, WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.supercore import log

from flwr_causal.data.read.pieces import whole
from flwr_causal.errors import AskedOtherwiseError, ConfigError, PolicyError
from flwr_causal.party.identifiers import identifiers
from flwr_causal.party.policy import PartyPolicy
from flwr_causal.party.record import (
    FAILED,
    REFUSED,
    SENT,
    PartyRecord,
    RecordError,
    epsilon_spent,
    exchanges_since,
    left,
)
from flwr_causal.protocol.release import RELEASES
from flwr_causal.protocol.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flwr.app import Context, RecordDict

    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.read.pieces import Table
    from flwr_causal.party.record import Line
    from flwr_causal.protocol.bundle import Training
    from flwr_causal.protocol.setup import Setup

#: The keys of the node config.
POLICY, RECORD = "policy", "record"
#: The record's name beside the policy.
RECORD_FILE = "record.jsonl"


def record_path(node_config: Mapping[str, Any]) -> Path | None:
    """Return where a node keeps its record; None where its configuration asks for none."""
    if RECORD in node_config:
        return Path(str(node_config[RECORD]))
    return Path(str(node_config[POLICY])).parent / RECORD_FILE if POLICY in node_config else None


def policy_of(node_config: Mapping[str, Any]) -> PartyPolicy:
    """Return a node's policy; without one, one that allows everything.

    Raises
    ------
    ConfigError
        If it cannot be read; the party's log says why.
    """
    for key in (POLICY, RECORD, RELEASES):
        if key in node_config and not Path(str(node_config[key])).is_absolute():
            raise ConfigError(f"'{key}' of the node config is no absolute path: give one")
    if POLICY not in node_config:
        return PartyPolicy()
    try:
        return PartyPolicy.read(str(node_config[POLICY]))
    except ConfigError as error:
        log(ERROR, "%s", error)
        raise ConfigError(
            "The party's policy cannot be used, so it takes no part; the log of its node says why."
        ) from error


@dataclass(frozen=True)
class PartyDoor:
    """What a node checks before it answers, and writes down before the answer leaves.

    Parameters
    ----------
    run_id : int
        Flower's number of the run.
    policy : PartyPolicy
    record : PartyRecord or None
    guarded : bool
        Whether the node is a real one, with a table of its own, or has a policy.
    """

    run_id: int
    policy: PartyPolicy
    record: PartyRecord | None
    guarded: bool

    @classmethod
    def of(cls, context: Context) -> PartyDoor:
        """Return the door of a node.

        Raises
        ------
        ConfigError
            If its policy cannot be read; the party's log says why.
        """
        node = context.node_config
        policy = policy_of(node)
        path = record_path(node)
        record = None if path is None else PartyRecord(path)
        return cls(context.run_id, policy, record, POLICY in node or "partition-id" not in node)

    def shown(self, table: Table) -> Table:
        """Return the table as runs see it, without the columns that the policy withholds."""
        if self.policy.columns.shows_all:
            return table
        kept = [name for name in table.columns if self.policy.columns.shows(str(name))]
        return table if len(kept) == len(table.columns) else whole(table)[kept]

    def check_question(self, config: Mapping[str, Any], *, masked: bool) -> None:
        """Check the terms of a run that asks for the schema, and that the question keeps to them.

        Parameters
        ----------
        config : mapping
            What the question holds.
        masked : bool
            Whether the party's report would be without its numbers.

        Raises
        ------
        PolicyError, ConfigError
            If the policy refuses them.
        """
        if self.policy != PartyPolicy():
            terms = self._check_terms(
                str(config.get("terms", "")), str(config.get("signature", ""))
            )
            prefix = "option-"
            options = {k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)}
            method = str(config.get("method", ""))
            self.policy.check_kept(terms, method, options, masked=masked)

    def check_agreement(self, method: str, setup: Setup, trainings: Iterable[Training]) -> None:
        """Check what an exchange asks, given the agreement of the parties.

        Raises
        ------
        PolicyError, ConfigError
            If the policy refuses it.
        """
        if self.policy == PartyPolicy():
            return
        terms = self._check_terms(setup.terms, setup.signature)
        self.policy.check_kept(terms, method, setup.options, masked=setup.masked)
        # In a group the party's numbers are hidden among those of the group.
        sizes = [setup.groups.count(group) for group in set(setup.groups)]
        together = min([setup.num_clients, *sizes])
        if together < self.policy.least_parties:
            raise PolicyError("least-parties", f"the agreement is of {together} parties")
        most = terms.options.get("replicates")
        replicates = most if isinstance(most, int) else 0
        if any(one.replicate > replicates for one in trainings):
            raise PolicyError("options.replicates", "there are more replicates than the run stated")
        if any(one.without for one in trainings) and not terms.options.get("leave_one_out"):
            raise PolicyError("options.leave-one-out", "the run did not state that it does so")

    def _check_terms(self, text: str, signature: str) -> Terms:
        terms = Terms.from_text(text)
        self.policy.check(terms)
        self.policy.check_asker(text, self.run_id, signature)
        return terms

    def check_report(
        self, report: TableReport, table: Table, policy: Policy, *, private: bool = False
    ) -> None:
        """Check the columns that a run would use, and how many rows it would have.

        Parameters
        ----------
        report : TableReport
            Of the party.
        table : DataFrame or LargeFile
        policy : Policy
            How the run treats problems of tables.
        private : bool, default False
            Whether the run has differential privacy: then neither rows nor values are looked at, of
            which a refusal would say something.

        Raises
        ------
        PolicyError
            If there are too few rows, or a column looks like an identifier.
        """
        if report.rows < self.policy.least_rows and not private:
            raise PolicyError("least-rows", f"the run would have {report.rows} rows")
        if not self.guarded:
            return
        names = [
            column.name
            for column in report.columns
            if not (column.kind not in ("numeric", "boolean") and policy.text_columns == "drop")
            and column.name in table.columns
            and not self.policy.columns.knows(column.name)
        ]
        found = identifiers(table, names, by_values=not private)
        if found:
            raise PolicyError(
                "columns.identifiers",
                f"{', '.join(found)} look like identifiers: leave them out of the table, or out of "
                "sight by the policy's columns.never; if they are none, list them in its "
                "columns.identifiers",
            )

    def note(self, content: RecordDict, terms: str = "", **about: Any) -> None:
        """Write down that a reply is about to leave.

        Parameters
        ----------
        content : RecordDict
            Of the reply.
        terms : str, optional
            What the run has stated, with a bound of its privacy loss if there is one.
        **about
            ``method``, ``exchange``, and after the schema exchange ``number`` and ``agreement``.

        Raises
        ------
        PolicyError
            If more has left than the policy allows.
        RecordError
            If it cannot be written: nothing may leave then.
        """
        if self.record is None:
            return
        line = {"event": SENT, "run": self.run_id, **about, **left(content)}
        epsilon = Terms.from_text(terms).options.get("epsilon") if terms else None
        if epsilon is not None:
            line["epsilon"] = epsilon
        check = partial(self._check_counts, line) if self.policy.counts else None
        self.record.append(line, check)

    def _check_counts(self, line: Line, lines: Sequence[Line]) -> None:
        most, epsilon = self.policy.most_exchanges_a_day, self.policy.epsilon
        if most is not None and exchanges_since(lines, 24) >= most:
            raise PolicyError("most-exchanges-a-day", f"{most} replies left in the last 24 hours")
        if epsilon is not None:
            before, after = epsilon_spent(lines), epsilon_spent([*lines, line])
            if after > epsilon:
                raise PolicyError(
                    "epsilon", f"{before:g} of {epsilon:g} are spent, and {after - before:g} asked"
                )

    def noted(self, error: Exception, **about: Any) -> Exception:
        """Write down that an error leaves in place of an answer, and log why a run is refused.

        Returns
        -------
        Exception
            What to send: the error, or one that says that it could not be written down.
        """
        event, reason = FAILED, type(error).__name__
        if isinstance(error, AskedOtherwiseError):
            event = REFUSED
        if isinstance(error, PolicyError):
            event, reason = REFUSED, error.rule
            why = f"{error.rule}: {error.details}"
            log(WARNING, "The policy refuses run %d by its rule %s", self.run_id, why)
        if self.record is not None:
            try:
                self.record.append({"event": event, "run": self.run_id, **about, "reason": reason})
            except RecordError as unwritten:
                return unwritten
        return error
