"""The party's own door: its policy and its record, between the messages and the table.

A node without a policy and without a record has a door, too: it refuses columns that look like
identifiers. Simulated parties have none of the three.

A party keeps the questions that it has answered of exchanges that are answered a few times only:
another question of such an exchange would tell more of the same rows than the exchange declares.
What was answered is in the node's state, and in a file beside the record: a node that was started
again, and another run of Flower's under the same agreement, have the same answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from logging import ERROR, WARNING
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord
from flwr.supercore import log

from flwr_causal.core.files import alone_in, new_directory, write
from flwr_causal.core.saved import DAMAGE
from flwr_causal.core.words import printable
from flwr_causal.data.interventions import split_names
from flwr_causal.data.read.pieces import selected
from flwr_causal.data.roles import ROW_ID
from flwr_causal.errors import AskedOtherwiseError, ConfigError, FederationError, PolicyError
from flwr_causal.party.identifiers import identifiers, named_like_one
from flwr_causal.party.node_config import NodeConfig, check_keys
from flwr_causal.party.noise import losses_kept
from flwr_causal.party.policy import PartyPolicy
from flwr_causal.party.record import FAILED, REFUSED, SENT, Counts, PartyRecord, RecordError, left
from flwr_causal.protocol import settings
from flwr_causal.protocol.options import Guarantee
from flwr_causal.protocol.terms import RunTerms
from flwr_causal.secure.purposes import purpose_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from flwr.app import Context, RecordDict

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.read.pieces import Table
    from flwr_causal.party.record import Line
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.options import PartyOptions
    from flwr_causal.protocol.setup import Setup

_ALLOWS_ALL = PartyPolicy()


def policy_of(node: NodeConfig) -> PartyPolicy:
    """Return a node's policy; without one, one that allows everything.

    Raises
    ------
    ConfigError
        If it cannot be read; the party's log says why.
    """
    if node.policy is None:
        return _ALLOWS_ALL
    try:
        return PartyPolicy.read(str(node.policy))
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
    node : NodeConfig
    """

    run_id: int
    policy: PartyPolicy
    record: PartyRecord | None
    guarded: bool
    node: NodeConfig = field(default_factory=NodeConfig)

    @classmethod
    def of(
        cls,
        context: Context,
        further: Collection[str] = (),
        clients: Mapping[str, Any] | None = None,
    ) -> PartyDoor:
        """Return the door of a node.

        Parameters
        ----------
        context : Context
        further, clients
            They declare further keys of its configuration, see
            :func:`flwr_causal.party.node_config.check_keys`.

        Raises
        ------
        ConfigError
            If its configuration or its policy cannot be used; of the policy the party's log says
            why.
        """
        check_keys(context.node_config, further, clients)
        node = NodeConfig.of(context.node_config)
        record = None if node.record is None else PartyRecord(node.record)
        guarded = node.policy is not None or not node.is_simulated
        return cls(context.run_id, policy_of(node), record, guarded, node)

    def shown(self, table: Table) -> Table:
        """Return the table as runs see it, without the columns that the policy withholds."""
        if self.policy.columns.shows_all:
            return table
        return selected(
            table, [one for one in table.columns if self.policy.columns.shows(str(one))]
        )

    def left_out(self, table: Table, terms: str) -> list[str]:
        """Return the columns that look like identifiers, where a run leaves such columns out.

        Columns that an option of the run names are not among them: the run is refused if it uses
        one as a variable.

        Parameters
        ----------
        table : DataFrame or LargeFile
        terms : str
            Those of the run. Without terms nothing is left out.
        """
        options = RunTerms.from_text(terms).options if self.guarded and terms else {}
        if options.get("identifiers") != "auto" or options.get("strict"):
            return []
        texts = [
            value
            for option, value in options.items()
            if isinstance(value, str) and option != "exclude"
        ]
        kept = {ROW_ID, *(name for text in texts for name in split_names(text))}
        names = [name for name in map(str, table.columns) if name not in kept]
        return [name for name in identifiers(table, names) if not self.policy.columns.knows(name)]

    def check_question(
        self,
        contract: Contract,
        config: Mapping[str, Any],
        options: PartyOptions,
        handling: Handling,
    ) -> None:
        """Check the terms of a run that asks for the schema, and that the question keeps to them.

        Parameters
        ----------
        contract : Contract
            Of the method.
        config : mapping
            What the question holds.
        options : PartyOptions
        handling : Handling
            Both as the question states them.

        Raises
        ------
        PolicyError, ConfigError
            If the policy refuses them, or they contradict each other.
        """
        text, signature = str(config.get("terms", "")), str(config.get("signature", ""))
        masked = bool(config.get("secure-aggregation"))
        terms = self._checked_terms(contract, text, signature, options, masked=masked)
        if terms is not None:
            found = settings.of_question(contract, options, handling, masked=masked)
            self.policy.check_settings(terms, found)

    def check_agreement(
        self, contract: Contract, setup: Setup, requests: Iterable[tuple[Exchange, RecordDict]]
    ) -> None:
        """Check what a message asks, given the agreement of the parties.

        Parameters
        ----------
        contract : Contract
            Of the method.
        setup : Setup
        requests : iterable of (Exchange, RecordDict)
            Each request of the message with its content.

        Raises
        ------
        PolicyError, ConfigError
            If the policy refuses it, or it contradicts what the run states.
        """
        terms = self._checked_terms(
            contract, setup.terms, setup.signature, setup.options, masked=setup.masked
        )
        if terms is None:
            return
        # In a group the party's numbers are hidden among those of the group; a party without a key
        # is absent from a resumed run.
        together = min([setup.num_clients, *setup.present.values()])
        if together < self.policy.least_parties:
            raise PolicyError("least-parties", f"the agreement is of {together} parties")
        # Parties that do not answer leave a sum of fewer.
        fewest = min(setup.least_parties, default=together)
        if fewest < self.policy.least_parties:
            raise PolicyError(
                "least-parties",
                f"a sum may be of {fewest} parties; the coordinator raises it by 'quorum'",
            )
        asked = [
            one
            for exchange, content in requests
            for one in settings.of_request(exchange, content, setup.num_rows)
        ]
        self.policy.check_settings(terms, [*settings.of_setup(contract, setup), *asked])

    def _checked_terms(
        self,
        contract: Contract,
        text: str,
        signature: str,
        options: PartyOptions,
        *,
        masked: bool,
    ) -> RunTerms | None:
        """Return the checked terms; None where there is no policy.

        What the node's configuration demands, and that a run keeps to the guarantee that it states,
        is checked without a policy, too.
        """
        if self.node.secure_aggregation and not masked:
            raise ConfigError(
                "Its node config has secure-aggregation=true, and this run adds nothing up "
                "securely: set the option 'secure_aggregation', or take the key out of the node "
                "config."
            )
        ruled = self.policy != _ALLOWS_ALL
        terms = RunTerms.from_text(text) if ruled or (text and contract.private) else None
        if ruled and terms is not None:
            self.policy.check(terms)
            self.policy.check_asker(text, self.run_id, signature)
            self.policy.check_kept(terms, contract.method, options, masked=masked)
        if terms is not None and options.guarantee != Guarantee.of(terms.options):
            raise ConfigError(
                "The party is sent other epsilon, delta or scales than the run states: install the "
                "same version of flwr-causal on all machines."
            )
        return terms if ruled else None

    def asked_under(self, setup: Setup) -> tuple[str, ...]:
        """Return the names under which the party counts answers whose number is limited.

        The server makes agreements as it likes. With ``askers`` a signed run counts as well, by
        Flower's number and what it states, unless it may start again with changed tables.
        """
        if not self.policy.askers or setup.run.get("changed_tables") == "restart":
            return (setup.exchange,)
        return setup.exchange, purpose_of("signed run", str(self.run_id), setup.terms).hex()

    def check_report(
        self, report: TableReport, table: Table, handling: Handling, *, private: bool = False
    ) -> None:
        """Check the columns that a run would use, and how many rows it would have.

        Parameters
        ----------
        report : TableReport
            Of the party.
        table : DataFrame or LargeFile
        handling : Handling
            How the run treats problems of tables.
        private : bool, default False
            Whether the run has differential privacy: then neither rows nor values are looked at, of
            which a refusal would say something.

        Raises
        ------
        PolicyError
            If there are too few rows, or a column looks like an identifier.
        """
        names = [
            column.name
            for column in report.columns
            if not (column.kind not in ("numeric", "boolean") and handling.text_columns == "drop")
            and column.name in table.columns
            and column.name not in handling.added
        ]
        if private:
            self.check_used(None, lambda: list(filter(named_like_one, names)))
        else:
            self.check_used(report.rows, lambda: identifiers(table, names))

    def check_used(self, rows: int | None, alike: Callable[[], Sequence[str]]) -> None:
        """Check the rows and columns that a run uses, by the report and later by the agreement.

        Parameters
        ----------
        rows : int or None
            How many; None where they are not looked at.
        alike : callable
            Returns the columns that look like identifiers, of those that are used.

        Raises
        ------
        PolicyError
            If there are too few rows, or a column looks like an identifier.
        """
        if rows is not None and rows < self.policy.least_rows:
            raise PolicyError("least-rows", f"the run would have {rows} rows")
        if not self.guarded:
            return
        found = [name for name in alike() if not self.policy.columns.knows(name)]
        if found:
            raise PolicyError(
                "columns.identifiers",
                f"{', '.join(found)} look like identifiers: leave them out of the table, or out of "
                "sight by the policy's columns.never; if they are none, list them in its "
                "columns.identifiers",
            )

    def check_budget(self, about: Mapping[str, Any]) -> None:
        """Check, before anything is drawn, that a release is within the policy's epsilon.

        Parameters
        ----------
        about : mapping
            What the record will say of it.

        Raises
        ------
        PolicyError
            If all releases together would lose more.
        """
        if self.record is not None and self.policy.epsilon is not None:
            self._check_epsilon({"event": SENT, "run": self.run_id, **about}, self.record.counts())

    def note(self, content: RecordDict, **about: Any) -> None:
        """Write down that a reply is about to leave.

        Parameters
        ----------
        content : RecordDict
            Of the reply.
        **about
            ``method``, ``exchange``, after the schema exchange ``number`` and ``agreement``, and in
            a private run what it releases.

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
        check = partial(self._check_counts, line) if self.policy.counts else None
        self.record.append(line, check)

    def _check_counts(self, line: Line, counts: Counts) -> None:
        most = self.policy.most_exchanges_a_day
        if most is not None and len(counts.of_last_day().times) >= most:
            raise PolicyError("most-exchanges-a-day", f"{most} replies left in the last 24 hours")
        if self.policy.epsilon is not None:
            self._check_epsilon(line, counts)

    def _check_epsilon(self, line: Line, counts: Counts) -> None:
        epsilon, delta = self.policy.epsilon, self.policy.used_delta
        assert epsilon is not None
        # A record that was deleted, or has lost its last lines, is no reason to count less.
        kept = losses_kept(self.node.releases)
        before = counts.epsilon(delta, kept)
        counts = counts.of_last_day()
        counts.add(line)
        after = counts.epsilon(delta, kept)
        # Up to rounding, so that one run may have all of it.
        if not after <= epsilon * (1 + 1e-9):
            raise PolicyError(
                "epsilon", f"{before:g} of {epsilon:g} are spent, with this run {after:g}"
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
            why = printable(f"{error.rule}: {error.details}")
            log(WARNING, "The policy refuses run %d by its rule %s", self.run_id, why)
        if self.record is not None:
            line = {"event": event, "run": self.run_id, **about, "reason": reason}
            private = self.policy.epsilon is not None and event == FAILED and "epsilon" in line
            try:
                self.record.append(line, partial(self._check_epsilon, line) if private else None)
            except RecordError as unwritten:
                return unwritten
            except PolicyError as refused:
                return self.noted(refused, **about)
        return error


#: The record in a node's state, and the file in the directory of releases.
ASKED, ASKED_FILE = "asked", "asked.json"
#: The latest agreements that the file has. One that is older is as good as a new one.
MOST_AGREEMENTS = 256


def note_question(
    context: Context,
    directory: Path | None,
    agreement: str,
    questions: Mapping[str, tuple[str, int]],
) -> None:
    """Store the questions that are about to be answered; they are on disk when this returns.

    Parameters
    ----------
    context : Context
        Of the node.
    directory : Path or None
        Of the party's releases; None where the node keeps no files.
    agreement : str
        The name of the agreement.
    questions : mapping of str to (str, int)
        By exchange and training, or by what is sent, the digest of the question or value, and how
        many different ones are answered.

    Raises
    ------
    AskedOtherwiseError
        If so many different questions were answered under this agreement already.
    FederationError
        If the file cannot be read or written: nothing may leave then.
    """
    if directory is None:
        kept = context.state.get(ASKED)
        known = json.loads(str(kept["answered"])) if isinstance(kept, ConfigRecord) else {}
        context.state[ASKED] = ConfigRecord({"answered": _with(known, agreement, questions)})
        return
    path = directory / ASKED_FILE
    try:
        known = json.loads(path.read_bytes()) if path.exists() else {}
        own = known.get(agreement, {})
        if all(digest in own.get(name, ()) for name, (digest, _) in questions.items()):
            return
        new_directory(directory)
        with alone_in(directory):
            known = json.loads(path.read_bytes()) if path.exists() else {}
            write(path, _with(known, agreement, questions))
    except DAMAGE as error:
        raise FederationError(
            "What the party has answered before cannot be read or written "
            f"({type(error).__name__}), so nothing leaves the party. Make room, give the node's "
            f"account access to {ASKED_FILE} in its directory of releases, or delete it, at the "
            "party."
        ) from error


def _with(
    known: Mapping[str, Any], agreement: str, questions: Mapping[str, tuple[str, int]]
) -> str:
    """Return the questions that were answered, with further ones, as JSON."""
    own = {name: list(digests) for name, digests in known.get(agreement, {}).items()}
    for name, (digest, most) in questions.items():
        before = own.setdefault(name, [])
        if digest in before:
            continue
        if len(before) >= most:
            times = "once" if most == 1 else f"{most} times"
            raise AskedOtherwiseError(
                f"'{name}' is answered {times} under an agreement, and the party was asked "
                "otherwise before. Start the run again, with a new agreement."
            )
        before.append(digest)
    others = {name: one for name, one in known.items() if name != agreement}
    latest = [*others.items(), (agreement, own)][-MOST_AGREEMENTS:]
    return json.dumps(dict(latest))
