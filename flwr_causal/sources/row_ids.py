"""What methods share whose parties hold different columns of rows that are matched by ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.data.check.checks import some_parties
from flwr_causal.errors import DataError, FederationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.replies import Replies


def check_ids(reports: Mapping[str, TableReport]) -> None:
    """Check that rows of different parties can be matched by their ids.

    Raises
    ------
    DataError
        Naming the parties whose ids are missing, repeat, have lost digits, or are text of digits
        where they are numbers at others.
    """
    problems = {party: report.ids_problem for party, report in reports.items()}
    named = [f"{party}: {problem}" for party, problem in problems.items() if problem]
    of_kind = {
        kind: [party for party, report in reports.items() if report.ids_kind == kind]
        for kind in ("numbers", "digits")
    }
    if all(of_kind.values()):
        named.append(
            f"the ids are numbers at {some_parties(of_kind['numbers'])}, and text in the spelling "
            f"of codes at {some_parties(of_kind['digits'])}, as '007', which is not the id 7: make "
            "them numbers at all parties, without leading zeros; or, if the zeros matter, text at "
            "all parties (in Parquet files; in a CSV file digits are numbers)"
        )
    if named:
        raise DataError(
            "The parties hold different columns, and rows cannot be matched; training was not "
            "started.\n" + "\n".join(named)
        )


def check_all(parties: Sequence[str], replies: Replies, *, lacking: str) -> None:
    """Check that every party has replied.

    Parameters
    ----------
    parties : sequence of str
        That were asked.
    replies : Replies
    lacking : str
        What cannot be had without one of them, in words.

    Raises
    ------
    FederationError
        Naming the parties that have not.
    """
    absent = [name for name in parties if name not in replies.parties]
    if absent:
        raise FederationError(
            f"{', '.join(absent)} did not answer: without them there {lacking} of the columns that "
            "they alone hold. Start the run again once they are back."
        )


def problem_of_secret(parties: Sequence[str], replies: Replies) -> str:
    """Return that parties lack the secret under which ids are sent, and the remedy; else "".

    Parameters
    ----------
    parties : sequence of str
        The parties that were asked.
    replies : Replies
        Their replies to the exchange ``align``.
    """
    lacking = [name for name in parties if name not in replies.of("hashes")]
    if not lacking:
        return ""
    return (
        f"there is no secret at {', '.join(lacking)} under which ids are sent: start every "
        "SuperNode with --node-config \"row-secret-file='...'\", a file with the same text "
        "at all parties"
    )


def hashes_of(replies: Replies) -> list[list[bytes]]:
    """Return by party the hash of each of its rows, from the replies to the exchange ``align``."""
    return [[row.tobytes() for row in own] for own in replies.list("hashes")]
