"""What a check has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "note", "problem"]
#: The levels, the worst one first.
WORST_FIRST: tuple[Level, ...] = ("problem", "note", "ok")
#: The exit status of the doctor after a node has ended for a reason that passes.
LATER = 4


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report.

    Parameters
    ----------
    level : {"ok", "note", "problem"}
        A problem keeps the program from working; a note may.
    subject : str
        What was looked at.
    text : str
        What was found.
    remedy : str, default ""
        What to do about it.
    passing : bool, default False
        Whether it goes away without a change on this machine, so that trying again helps.
    """

    level: Level
    subject: str
    text: str
    remedy: str = ""
    passing: bool = False
