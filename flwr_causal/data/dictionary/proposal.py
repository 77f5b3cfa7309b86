"""A first dictionary from the parties' tables, with questions where tables cannot tell.

Each party may propose one from its own table alone, so that no tables come together: proposals are
dictionaries, and :func:`proposed` joins them as it joins tables. A proposal has names of columns,
their kinds and states, and in comments a coarse range of their numbers; never an id, a free text,
or how often something occurs.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from math import floor, log10
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from flwr_causal.core.discrete.discrete import sorted_states
from flwr_causal.core.words import as_seen, some
from flwr_causal.data.dictionary.entries import (
    NUMERIC,
    STATED,
    VARIABLES,
    Dictionary,
    plain_number,
)
from flwr_causal.data.read.texts import MISSING, are_codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from flwr_causal.core.arrays import FloatArray

#: Texts of more different values than this are no states.
MOST_STATES = 20
#: Whole numbers of up to so many different values may be codes.
MOST_CODES = 10
#: Numbers that programs and people write for missing values.
CODES = frozenset(
    float(sign + digit * length)
    for sign in ("-", "")
    for digit in "89"
    for length in range(1, 6)
    if sign or length > 2 or digit * length == "99"
)
#: Units differ where one party's usual value is so many times another's.
UNIT_RATIO = 8.0
# A date in the order of a country, such as 31.12.1960 or 12/31/60.
_DATE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{2,4}", re.ASCII)
# A number with marks between thousands, such as 1,234.50, 1.234 or 1'234.
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:[,.' \u00a0\u202f]\d{3})+(?:[.,]\d+)?", re.ASCII)
# What people write for a missing value, in lower case.
_UNKNOWN = frozenset(
    (
        *("unk", "unkn", "unknown", "nk", "n/k", "not known", "na", "n/a", "n.a.", "not available"),
        *("missing", "miss", "no data", "null", "nan", "not stated", "not recorded", "not done"),
        *("nd", "n.d.", "n/d", "none given", "no answer", "refused", "?", "??", "-", "--", "."),
        *("unbekannt", "k.a.", "keine angabe", "inconnu", "desconocido", "sconosciuto", "onbekend"),
    )
)
# Words of scales, the lowest first, in lower case.
_SCALES = (
    *(("none", "very low", "low", "middle", "medium", "normal", "moderate", "high", "very high"),),
    *(("none", "absent", "minimal", "slight", "mild", "moderate", "severe", "very severe"),),
    *(("never", "rarely", "seldom", "sometimes", "often", "usually", "always"),),
    *(("very poor", "poor", "bad", "fair", "good", "very good", "excellent"),),
    *(("very small", "small", "medium", "large", "very large"), ("i", "ii", "iii", "iv", "v")),
    *(("strongly disagree", "disagree", "neutral", "agree", "strongly agree"),),
    *(("primary", "secondary", "tertiary"), ("no", "partial", "partly", "full", "complete")),
)
# Ranges of numbers, such as 18-64, <5 and 65+.
_RANGE = re.compile(r"[<>=\u2264\u2265]*\s*\d[\d.,]*\s*(?:(?:-|\u2013|to|bis)\s*\d[\d.,]*|\+)?")
# Of a proposal: comments that say the range of a column, and what is asked of one party.
_COMMENTED = re.compile(r"^# (least|most)(?= = )", re.MULTILINE)
_ASKED = re.compile(r"# QUESTION: (.*) \(at [^()]*\)")
# Names that are keys of a TOML file without quotation marks.
_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
# Texts that are longer, or have more words, are no ids.
_LONGEST_ID, _MOST_WORDS = 40, 2


@dataclass(frozen=True)
class PartyColumn:
    """What one party's table, or its proposal, tells of a column.

    Parameters
    ----------
    kind : str
        One of :data:`~flwr_causal.data.dictionary.entries.KINDS`.
    states : tuple of str, default ()
    missing : tuple of str, default ()
        Codes of missing values.
    least, most : float, optional
        The range of its numbers, rounded outwards to a digit.
    usual : float, optional
        The median of the absolute numbers; not of a proposal.
    question : str, default ""
        What the table cannot tell.
    unit : str, default ""
        As a proposal says it.
    """

    kind: str
    states: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    usual: float | None = None
    question: str = ""
    unit: str = ""

    @property
    def typical(self) -> float:
        """The usual value, or else what lies between the ends of its range; 0: not known."""
        if self.usual is not None or self.least is None or self.most is None:
            return self.usual or 0.0
        return (abs(self.least) + abs(self.most)) / 2


def of_table(frame: pd.DataFrame) -> dict[str, PartyColumn]:
    """Return what a table tells of its columns, by name.

    Parameters
    ----------
    frame : DataFrame
        All of it as text, as read with all columns as categories; dates may be datetime64.
    """
    return {str(name): _of_column(column) for name, column in frame.items()}


def of_proposal(path: Path) -> dict[str, PartyColumn]:
    """Return what a party's proposal, or any dictionary, tells of its columns, by name.

    The ranges of a proposal are comments, and so are its questions. Both count where nothing has
    been written in their place.

    Raises
    ------
    ConfigError
        If the file is no dictionary.
    """
    dictionary = Dictionary.read(path)
    text = path.expanduser().read_text(encoding="utf-8-sig")
    try:
        ranges = tomllib.loads(_COMMENTED.sub(r"\1", text)).get("columns", {})
    except tomllib.TOMLDecodeError:  # a line stands beside its comment
        ranges = {}
    asked = _questions_in(text)
    found = {}
    for one in dictionary.columns:
        states = tuple(text for state, others in one.states for text in (state, *others))
        least, most = one.least, one.most
        if one.kind in NUMERIC and least is None and most is None:
            least, most = (ranges.get(one.name, {}).get(key) for key in ("least", "most"))
        found[one.name] = PartyColumn(
            one.kind,
            states,
            one.missing,
            least,
            most,
            question=asked.get(one.name, ""),
            unit=one.unit,
        )
    return found


def _questions_in(text: str) -> dict[str, str]:
    """Return by column the question that a proposal asks its party."""
    found, question = {}, ""
    for line in text.splitlines():
        if asked := _ASKED.fullmatch(line):
            question = asked[1]
        elif line.startswith("[columns.") and question:
            (name,) = tomllib.loads(line)["columns"]
            found[name], question = question, ""
    return found


def proposed(parties: Mapping[str, Mapping[str, PartyColumn]]) -> tuple[str, int]:
    """Return a dictionary as the text of a TOML file, and how many questions it asks.

    Parameters
    ----------
    parties : mapping of str to mapping
        By party, the facts about its columns.
    """
    names = list(dict.fromkeys(name for own in parties.values() for name in own))
    lines = [
        "# The columns of all parties. Answer the questions, correct what is wrong, and send the",
        "# file to all parties: flwr-causal check TABLE -o dictionary=FILE shows what does not",
        "# fit. What a party writes otherwise belongs in its own map, such as",
        '# sex = {1 = "male", 2 = "female"}.',
    ]
    questions = 0
    for name in names:
        held = {party: own[name] for party, own in parties.items() if name in own}
        lacking = {party: _alone(party, parties) for party in parties if party not in held}
        block, asked = _block(name, held, lacking)
        lines += ["", *(f"# QUESTION: {one}" for one in asked), *block]
        questions += len(asked)
    return "\n".join(lines) + "\n", questions


def _alone(
    party: str, parties: Mapping[str, Mapping[str, PartyColumn]]
) -> Mapping[str, PartyColumn]:
    """Return the columns that no other party has."""
    others = {name for other, own in parties.items() if other != party for name in own}
    return {name: one for name, one in parties[party].items() if name not in others}


def _of_column(column: pd.Series) -> PartyColumn:
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return PartyColumn("date")
    present = column.dropna().map(str).map(str.strip)
    counts = present[present != ""].value_counts()
    texts = [text for text in map(str, counts.index) if text not in MISSING]
    rows = int(counts.loc[texts].sum()) if texts else 0
    numbers = [plain_number(text) for text in texts]
    # A point is a decimal point, also in 1.234.
    marked = [text for text, one in zip(texts, numbers, strict=True) if one is None]
    if marked and all(map(_THOUSANDS.fullmatch, marked)):
        asked = 'some numbers have marks between thousands: a map at the party, {thousands = ","}?'
        return PartyColumn("number", question=asked)
    known = [number for number in numbers if number is not None]
    # A few texts among numbers are errors, which the check at the party finds.
    if (
        known
        and len(known) >= len(texts) / 2
        and not are_codes(
            [text for text, number in zip(texts, numbers, strict=True) if number is not None]
        )
    ):
        return _of_numbers(np.array(known), rows, marked)
    states = list(map(str, counts.index))
    if not states:
        return PartyColumn("text", question="it has no value")
    dates = pd.to_datetime(pd.Series(states, dtype=str), format="ISO8601", errors="coerce")
    if dates.notna().all():
        return PartyColumn("date")
    if all(map(_DATE.fullmatch, texts)):
        return PartyColumn("date", question="its dates are not written as 2024-01-31 is")
    if len(states) > 1 and len(states) == rows and rows > MOST_CODES:
        words = max(len(text.split()) for text in states)
        named = words <= _MOST_WORDS and max(map(len, states)) <= _LONGEST_ID
        return PartyColumn("id" if named else "text")
    # What stands in one row may be a name, or a note, that was written into the wrong field.
    single = sum(count == 1 for count in counts.tolist())
    if len(states) > MOST_STATES or 2 * single > len(states):
        return PartyColumn("text", question=f"{len(states)} different texts: free text, or states?")
    asked = f"texts of one row are not listed ({single}): states, or errors?"
    states = [text for text in states if counts[text] > 1]
    return PartyColumn("category", sorted_states(states), question=asked if single else "")


def _of_numbers(values: FloatArray, rows: int, others: Sequence[str]) -> PartyColumn:
    """Return what the different numbers of a column tell, and the texts among them."""
    missing = _codes_of_missing(values)
    values = values[~np.isin(values, missing)]
    unknown = [text for text in others if text.casefold() in _UNKNOWN]
    texts = (*(f"{code:g}" for code in missing), *unknown)
    clean = len(unknown) == len(others)
    if not len(values):
        return PartyColumn("number", missing=texts)
    least, most = float(values.min()), float(values.max())
    whole = bool((values == np.floor(values)).all())
    question = "" if clean else "some values are no numbers; check shows the party which"
    if whole and len(values) == rows > MOST_CODES and most - least < 2 * rows:
        return PartyColumn("id", question="each row has another whole number: ids, or a count?")
    if whole and not question and len(values) == rows > MOST_CODES:
        question = "each row has another whole number: a count, or ids?"
    if whole and len(values) == 2 and most - least == 1:
        return PartyColumn("category", tuple(f"{one:g}" for one in np.sort(values)), texts)
    if whole and len(values) <= MOST_CODES and not question:
        question = f"{len(values)} different whole numbers: a count, or codes of states?"
    kind = "count" if whole and least >= 0 else "number"
    usual = float(np.median(np.abs(values)))
    return PartyColumn(
        kind, (), texts, _outwards(least, up=False), _outwards(most, up=True), usual, question
    )


def _codes_of_missing(values: FloatArray) -> list[float]:
    """Return the numbers of nines and the like that lie far outside all others."""
    found = [code for code in sorted(CODES) if code in values]
    others = values[~np.isin(values, found)]
    if not len(others):
        return []
    least, most = others.min(), others.max()
    width = max(most - least, 1.0)
    return [
        code
        for code in found
        if (code < least and (least >= 0 or least - code > width)) or code - most > width
    ]


def _outwards(value: float, *, up: bool) -> float:
    """Return a number rounded to one digit, away from the values between."""
    if value == 0:
        return 0.0
    unit = 10.0 ** floor(log10(abs(value)))
    steps = np.ceil(value / unit) if up else np.floor(value / unit)
    return float(f"{steps * unit:.10g}")


def _block(
    name: str,
    held: Mapping[str, PartyColumn],
    lacking: Mapping[str, Mapping[str, PartyColumn]],
) -> tuple[list[str], list[str]]:
    """Return the table of a column, and the questions about it."""
    kind, questions = _kind(held)
    questions += dict.fromkeys(
        f"{one.question} (at {party})" for party, one in held.items() if one.question
    )
    lines = [f"[columns.{_key(name)}]", f'kind = "{kind}"']
    if kind in STATED:
        lines.append(f"states = {_states(held)}")
        questions += _questions_of_states(name, held)
        questions += _questions_of_words(kind, held)
    missing = sorted_states(code for one in held.values() for code in one.missing)
    if missing:
        lines.append(f"missing = {json.dumps(missing)}")
        questions.append(f"is {some(missing)} a missing value?")
    if kind in NUMERIC:
        lines += _range(held)
        questions += _questions_of_units(name, held)
    if kind == "id":
        lines.append('# role = "row-id"    # where parties have different columns of the same rows')
    if kind in ("date", "text"):
        lines.append("# it is not used: a column of this kind is no variable")
    if lacking and kind in VARIABLES:
        questions.append(_question_of_lacking(name, kind, lacking))
        lines.append("# optional = true")
    return lines, questions


def _question_of_lacking(
    name: str, kind: str, lacking: Mapping[str, Mapping[str, PartyColumn]]
) -> str:
    """Return the question about parties that lack a column, with its likely name there."""
    numeric = kind in NUMERIC
    alike = []
    for party, alone in lacking.items():
        alone = {
            other: one
            for other, one in alone.items()
            if one.kind in VARIABLES and (one.kind in NUMERIC) == numeric
        }
        same = [other for other in alone if as_seen(other) == as_seen(name)]
        alike += [f"{other!r} at {party}" for other in same or alone]
    perhaps = f" (perhaps {some(alike)})" if alike else ""
    return (
        f"missing at {some(lacking)}: has it another name there{perhaps}? Map it, {_key(name)} = "
        '{from = "..."}; a column that a party does not have is optional = true'
    )


def _key(name: str) -> str:
    """Return a name as a key of a TOML file."""
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _kind(held: Mapping[str, PartyColumn]) -> tuple[str, list[str]]:
    """Return the kind of most parties; a question where they differ."""
    kinds = [one.kind for one in held.values()]
    if set(kinds) <= {"number", "count"}:
        return ("number" if "number" in kinds else "count"), []
    if set(kinds) == {"id", "text"}:
        return "text", []
    first = max(dict.fromkeys(kinds), key=kinds.count)
    if len(set(kinds)) == 1:
        return first, []
    listed = ", ".join(f"{one.kind} at {party}" for party, one in held.items())
    return first, [f"which kind is it? {listed}"]


def _states(held: Mapping[str, PartyColumn]) -> str:
    """Return the states of all parties in TOML; those that differ in case alone are one."""
    # Where some write words and others codes, the words are the states.
    worded = [one for one in held.values() if one.states and not _is_coded(one)]
    written = Counter(state for one in worded or held.values() for state in one.states)
    spellings: dict[str, list[str]] = {}
    for state in sorted_states(written):
        spellings.setdefault(state.casefold(), []).append(state)
    for own in spellings.values():
        own.sort(key=lambda state: -written[state])  # first the one that most parties write
    if all(len(own) == 1 for own in spellings.values()):
        return json.dumps([own[0] for own in spellings.values()], ensure_ascii=False)
    pairs = (
        f"{_key(own[0])} = {json.dumps(own[1:], ensure_ascii=False)}" for own in spellings.values()
    )
    return f"{{{', '.join(pairs)}}}"


def _is_coded(column: PartyColumn) -> bool:
    """Return whether all states are numbers."""
    return all(plain_number(state) is not None for state in column.states)


def _questions_of_states(name: str, held: Mapping[str, PartyColumn]) -> list[str]:
    states = {party: {one.casefold() for one in own.states} for party, own in held.items()}
    stated = [own for own in states.values() if own]
    if all(own == stated[0] for own in stated[1:]):
        coded = stated and all(map(_is_coded, held.values()))
        return [f"what do {some(sorted(stated[0]))} stand for?"] if coded else []
    listed = "; ".join(f"{some(one.states)} at {party}" for party, one in held.items())
    return [
        f"the parties write it differently ({listed}): keep the states that it has, and list other "
        'spellings, states = {state = ["spelling"]}, or map them at the party, '
        f'{_key(name)} = {{1 = "state"}}'
    ]


def _questions_of_words(kind: str, held: Mapping[str, PartyColumn]) -> list[str]:
    """Return the questions about states that may be missing values, or have an order."""
    states = {state.casefold(): state for one in held.values() for state in one.states}
    questions = []
    unknown = [state for word, state in states.items() if word in _UNKNOWN]
    if unknown:
        questions.append(
            f"is {some(unknown)} a missing value? Then take it out of the states: missing = "
            f"{json.dumps(unknown, ensure_ascii=False)}"
        )
    rest = [state for word, state in states.items() if word not in _UNKNOWN]
    if kind != "ordered" and len(rest) > 2 and (order := _in_order(rest)):
        listed = json.dumps(order, ensure_ascii=False)
        questions.append(f'have the states an order? Then kind = "ordered", states = {listed}')
    return questions


def _in_order(states: Sequence[str]) -> list[str]:
    """Return states in an order that their words suggest, the lowest first; else nothing."""
    if all(map(_RANGE.fullmatch, states)) and any(plain_number(one) is None for one in states):
        return sorted(states, key=_place_of_range)
    for scale in _SCALES:
        if all(state.casefold() in scale for state in states):
            return sorted(states, key=lambda state: scale.index(state.casefold()))
    return []


def _place_of_range(state: str) -> tuple[float, bool]:
    """Return the first number of a range, and whether all that is above it is meant."""
    number = re.search(r"\d+(?:[.,]\d+)?", state)
    first = float(number[0].replace(",", ".")) if number else 0.0
    return first, not state.startswith(("<", "\u2264"))


def _range(held: Mapping[str, PartyColumn]) -> list[str]:
    least = [one.least for one in held.values() if one.least is not None]
    most = [one.most for one in held.values() if one.most is not None]
    units = {one.unit for one in held.values()} - {""}
    lines = [
        f"unit = {json.dumps(units.pop(), ensure_ascii=False)}"
        if len(units) == 1
        else '# unit = ""'
    ]
    if least and most:
        lines += [f"# least = {min(least):g}", f"# most = {max(most):g}"]
    return lines


def _questions_of_units(name: str, held: Mapping[str, PartyColumn]) -> list[str]:
    if len({one.unit for one in held.values()} - {""}) > 1:
        units = ", ".join(f"{one.unit or 'none given'} at {party}" for party, one in held.items())
        return [f"which unit has it ({units})? A map at a party multiplies by a factor"]
    usual = {party: known for party, one in held.items() if (known := one.typical)}
    if len(usual) < 2:
        return []
    low, high = min(usual, key=lambda one: usual[one]), max(usual, key=lambda one: usual[one])
    ratio = usual[high] / usual[low]
    times = f"{float(f'{ratio:.2g}'):,.10g}"
    if ratio < UNIT_RATIO:
        return []
    return [
        f"usual values at {high} are about {times} times those at {low}: another unit? (a map: "
        f"{_key(name)} = {{factor = {1 / 10 ** round(log10(ratio)):g}}})"
    ]


def labels(paths: Iterable[str]) -> list[str]:
    """Return short names of files, without their suffixes, where these differ."""
    listed = list(paths)
    short = [one.rsplit("/", 1)[-1].split(".")[0] for one in listed]
    return short if len(set(short)) == len(short) else listed
