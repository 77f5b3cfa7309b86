"""A party's record: a file to which a line is added before anything leaves the party.

Each line is a JSON object: when, for which run and exchange, and of everything that left its name,
shape, type, number of bytes and digest; never a value. It holds the digest of the line before, so
that a changed or deleted line shows; the last lines can be cut off without a trace, unless the
digest of the last line is kept elsewhere.

What a policy counts of the lines is kept in a file beside the record, so that not all lines are
read for each one that is added.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord

from flwr_causal.core.files import lock, write
from flwr_causal.core.privacy.calibration import USUAL_DELTA, epsilon_of
from flwr_causal.core.words import MOST_OF_NAME, printable
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.options import Guarantee

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from flwr.app import RecordDict

#: What a line says of what left: something was sent, a policy refused it, or the party failed.
SENT, REFUSED, FAILED = "sent", "refused", "failed"
#: The exchange of a party's report.
SCHEMA = "schema"
#: Seconds in which a policy counts replies.
DAY = 24 * 3600.0

Line = dict[str, Any]


class RecordError(FederationError):
    """A party's record cannot be written, so that nothing leaves the party."""


def left(content: RecordDict) -> Line:
    """Return the entry of a reply in the record: names, shapes, types, sizes and digests."""
    whole, arrays, values = hashlib.sha256(), [], []
    for record in content.values():
        if isinstance(record, ArrayRecord):
            for name, array in record.items():
                whole.update(name.encode() + array.data)
                arrays.append(
                    {
                        "name": name,
                        "shape": list(array.shape),
                        "dtype": array.dtype,
                        "bytes": len(array.data),
                        "digest": hashlib.sha256(array.data).hexdigest(),
                    }
                )
            continue
        for name, value in sorted(record.items()):
            whole.update(f"{name}={value!r};".encode())
            values.append(name)
    size = records.num_bytes(content)
    return {"arrays": arrays, "values": values, "bytes": size, "digest": whole.hexdigest()}


@dataclass
class Counts:
    """What a policy counts of the lines of a record.

    Parameters
    ----------
    times : list of float
        When replies left, schema exchanges not counted, in seconds since 1970.
    losses : dict of object to float
        The privacy losses, rho, by release; of lines without one by run.
    """

    times: list[float] = field(default_factory=list)
    losses: dict[Any, float] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Counts:
        """Return the counts of some lines."""
        counts = cls()
        for line in lines:
            counts.add(line)
        return counts

    def add(self, line: Line) -> None:
        """Count a further line.

        An error that left counts as the answer, since it may follow from the release. A release
        counts once, from the report on, also where the run is resumed: its lines have one
        ``release``. Lines without one count once a run. The ``rho`` of a line without it follows
        from its epsilon and delta. A line without a valid epsilon counts as an infinite loss.
        """
        event = line.get("event")
        if event == SENT and line.get("exchange") != SCHEMA and "time" in line:
            self.times.append(datetime.fromisoformat(line["time"]).timestamp())
        if event in (SENT, FAILED) and "epsilon" in line:
            key = line.get("release", line.get("run"))
            self.losses[key] = max(self.losses.get(key, 0.0), _rho(line))

    def of_last_day(self) -> Counts:
        """Return the counts without replies that left more than 24 hours ago."""
        since = time.time() - DAY
        return Counts([one for one in self.times if one >= since], dict(self.losses))

    def epsilon(self, delta: float, kept: Mapping[str, float] | None = None) -> float:
        """Return the privacy loss of all releases together: epsilon at this delta.

        The ``rho`` of releases add up. Releases that are ``kept`` count theirs also where the lines
        lack them.
        """
        known = kept or {}
        losses = {**known, **self.losses}
        return epsilon_of(sum(max(rho, known.get(key, 0.0)) for key, rho in losses.items()), delta)


@dataclass(frozen=True)
class PartyRecord:
    """The record in a file.

    Parameters
    ----------
    path : Path
        Made if it is not there, for its owner only; its directory must exist.
    """

    path: Path

    def append(
        self, line: Mapping[str, Any], check: Callable[[Counts], None] | None = None
    ) -> None:
        """Add a line; it is on the disk when this returns.

        Parameters
        ----------
        line : mapping
            Plain values. Of a text, which may be the server's, 500 letters are kept.
        check : callable, optional
            Called with the counts of the lines before, while no other process can add one; an
            exception of it leaves the file as it is.

        Raises
        ------
        RecordError
            If it cannot be written.
        """
        try:
            with self._opened() as file:
                size = file.seek(0, os.SEEK_END)
                own = {
                    "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    **{name: _bounded(value) for name, value in line.items()},
                    "previous": _digest(_last_line(file, size)),
                }
                counts = self._counts_kept(file, own["previous"])
                if check is not None:
                    counts = counts or Counts.of(self._chained()[0])
                    check(counts)
                file.seek(0, os.SEEK_END)
                text = json.dumps(own, ensure_ascii=False).encode()
                rest = memoryview(text + b"\n")
                try:
                    # On a disk that is nearly full a part of it may be written without an error.
                    while rest:
                        rest = rest[file.write(rest) :]
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(size)
                    raise
                if counts is not None:
                    counts.add(own)
                    self._keep(file, _digest(text), counts.of_last_day())
        except (OSError, DataError) as error:
            raise RecordError(
                f"The party's record cannot be written ({_reason(error)}), so nothing leaves the "
                "party. Make room or give the node's account access, at the party."
            ) from error

    def try_to_open(self) -> None:
        """Check that a line could be added, and add none.

        Raises
        ------
        RecordError
            If it cannot be opened.
        """
        try:
            with self._opened():
                pass
        except OSError as error:
            raise RecordError(
                f"The party's record {self.path} cannot be written ({_reason(error)})."
            ) from error

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """Open the file for this process alone."""
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            lock(handle)
            yield file

    def lines(self) -> list[Line]:
        """Return all lines; none where there is no file.

        Raises
        ------
        DataError
            If the file cannot be read, or has a line that is no JSON object.
        """
        return [_parsed(self.path, place, text) for place, text in enumerate(self._texts(), 1)]

    def counts(self) -> Counts:
        """Return what a policy counts of the lines.

        They are read from the file beside the record if the record has not changed since its last
        line was counted. Otherwise all lines are read, and their chain is checked.

        Raises
        ------
        DataError
            As :meth:`check_chain`.
        """
        with suppress(OSError, DataError), self.path.open("rb", buffering=0) as file:
            last = _last_line(file, file.seek(0, os.SEEK_END))
            if (kept := self._counts_kept(file, _digest(last))) is not None:
                return kept
        return Counts.of(self._chained()[0])

    @property
    def _beside(self) -> Path:
        """The file of counts beside the record."""
        return self.path.with_name(f"{self.path.name}.counts")

    def _counts_kept(self, file: BinaryIO, last: str) -> Counts | None:
        """Return the counts that are kept; None if the record is not as it was left with them."""
        try:
            digest, _, text = self._beside.read_bytes().partition(b"\n")
            if digest.decode() != _digest(text):
                return None
            state, times, losses = json.loads(text)
            return Counts(times, dict(losses)) if state == [*_state(file), last] else None
        except (OSError, ValueError, TypeError):
            return None

    def _keep(self, file: BinaryIO, last: str, counts: Counts) -> None:
        """Keep the counts, which are those of the record as it is now.

        Where it cannot be done, all lines are read for the next one.
        """
        with suppress(OSError):
            # The clock of files is coarser: whoever changes the record next gives it another time.
            os.utime(self.path, ns=(time.time_ns(),) * 2)
            kept = [[*_state(file), last], counts.times, [*counts.losses.items()]]
            text = json.dumps(kept).encode()
            write(self._beside, _digest(text).encode() + b"\n" + text)

    def _texts(self) -> list[bytes]:
        try:
            return self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DataError(f"The record {self.path} cannot be read: {error}") from error

    def check_chain(self) -> str:
        """Check that no line was changed, added, or deleted before another one.

        Returns
        -------
        str
            The digest of the last line; "" without lines.

        Raises
        ------
        DataError
            Naming the first line that does not follow the one before.
        """
        return self._chained()[1]

    def _chained(self) -> tuple[list[Line], str]:
        """Return all lines and the digest of the last one, from one reading of the file."""
        lines, previous = [], ""
        for place, text in enumerate(self._texts(), 1):
            lines.append(_parsed(self.path, place, text))
            if lines[-1].get("previous") != previous:
                raise DataError(
                    f"The record {self.path} was changed: line {place} does not follow the line "
                    "before it."
                )
            previous = _digest(text)
        return lines, previous


def epsilon_spent(lines: Iterable[Line], delta: float = USUAL_DELTA) -> float:
    """Return the privacy loss of all releases in some lines, see :class:`Counts`."""
    return Counts.of(lines).epsilon(delta)


def _rho(line: Line) -> float:
    rho = line.get("rho")
    if isinstance(rho, int | float) and rho > 0:
        return float(rho)
    try:
        guarantee = Guarantee.of({name: line.get(name) for name in ("epsilon", "delta")})
    except ConfigError:
        guarantee = None
    return inf if guarantee is None else guarantee.rho


def totals(lines: Sequence[Line], delta: float = USUAL_DELTA) -> list[Line]:
    """Return a line for each run, in the order of their beginnings: what left, and the loss."""
    runs: dict[Any, list[Line]] = {}
    for line in lines:
        runs.setdefault(line.get("run"), []).append(line)
    return [
        {
            "run": run,
            "method": next((one["method"] for one in own if one.get("method")), ""),
            "first": own[0]["time"],
            "last": own[-1]["time"],
            **{
                event: Counter(one.get("event") for one in own)[event]
                for event in (SENT, REFUSED, FAILED)
            },
            "bytes": sum(one.get("bytes", 0) for one in own),
            "epsilon": epsilon_spent(own, delta),
            "names": sorted({array["name"] for one in own for array in one.get("arrays", ())}),
        }
        for run, own in runs.items()
    ]


def _line_of(text: bytes) -> Line | None:
    """Return a line of a record; None for a text that is none."""
    try:
        line = json.loads(text)
        if isinstance(line, dict) and datetime.fromisoformat(line["time"]).tzinfo:
            return line
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


def _parsed(path: Path, place: int, text: bytes) -> Line:
    if (line := _line_of(text)) is not None:
        return line
    raise DataError(f"The record {path} was changed: line {place} is none of this program's.")


def _last_line(file: BinaryIO, size: int) -> bytes:
    """Return the last line of a file, without its end."""
    start, tail = size, b""
    while start > 0 and b"\n" not in tail[:-1]:
        step = min(4096, start)
        start -= step
        file.seek(start)
        tail = file.read(step) + tail
    if tail and not tail.endswith(b"\n"):
        raise DataError("its last line is damaged")
    last = tail[:-1].rpartition(b"\n")[2]
    if tail and _line_of(last) is None:
        raise DataError("the file is another program's: its last line is no line of a record")
    return last


def _state(file: BinaryIO) -> list[int]:
    """Return size and time of change of a file, in ns."""
    about = os.fstat(file.fileno())
    return [about.st_size, about.st_mtime_ns]


def _bounded(value: Any) -> Any:
    """Return a value of a line, of a text no more than the length of names."""
    return printable(value, MOST_OF_NAME) if isinstance(value, str) else value


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest() if text else ""


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
