"""What a check has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "note", "problem"]


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
    """

    level: Level
    subject: str
    text: str
    remedy: str = ""
