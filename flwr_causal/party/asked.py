"""The questions that a party has answered in exchanges that limit how many it answers.

Another question of such an exchange would tell more of the same rows than the exchange declares.
What was answered is in the node's state, and in a file beside the record: a node that was started
again, and another run of Flower's under the same agreement, have the same answers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord

from flwr_causal.core.files import alone_in, new_directory, write
from flwr_causal.core.saved import DAMAGE
from flwr_causal.errors import AskedOtherwiseError, FederationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flwr.app import Context

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
