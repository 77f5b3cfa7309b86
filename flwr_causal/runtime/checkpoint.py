"""The directory of a run: what a run writes after each exchange, and what a resumed run reads.

The directory holds ``run.json`` (status, history's sums, failures, warnings), ``history.jsonl``
and, until the results are saved, ``exchanges/``: the agreement and the combined replies of each
exchange. A resumed run takes the same steps from the same replies, so that it arrives at the state
in which the run was interrupted; no method writes or reads states of its own. An exchange adds its
entry to the history and a file to ``exchanges/``. All files but the history are written beside
their place and then renamed: a write that is cut short leaves the former file, or in the history a
line without an end, which is not read.

Only files that a run has written are replaced or deleted.

``run.json`` lists them under ``files``. One without a list, of an earlier version, stands for all
names that a run may write. Everything else in the directory is its user's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.files import DIRECTORY, append, hold, new_directory, write
from flwr_causal.core.saved import DAMAGE, misplaced
from flwr_causal.data.check.report import TableReport
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.release import RELEASE_NAME, RELEASES
from flwr_causal.protocol.replies import Replies, Summed
from flwr_causal.protocol.schema import own_version
from flwr_causal.protocol.setup import (
    KEY_NAMES,
    KEY_SIGNATURES,
    KEYS,
    LEAST,
    PREFIX,
    SIGNATURE,
    TERMS,
)
from flwr_causal.runtime.federation import Failure, Party, Totals
from flwr_causal.runtime.stored import ExchangeEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.setup import Setup
    from flwr_causal.runtime.algorithm import Ask
    from flwr_causal.runtime.federation import Federation
    from flwr_causal.runtime.influence import Influence

RUN_FILE = "run.json"
HISTORY_FILE = "history.jsonl"
EXCHANGES = "exchanges"
SAVING = ".saving"
#: The first file of `EXCHANGES`.
WRITTEN = ".written"
PAGE = "report.html"
#: A page of a run says so.
PAGE_MARK = "Made by flwr-causal."
#: The files of results, of which a run has some; they are written by ``Run.save``.
RESULTS = (
    "graph.json",
    "graph.graphml",
    "graph.dot",
    "edges.csv",
    "scores.csv",
    "model.json",
    "model.bif",
    "model",
    "answers.csv",
    "local_graphs.json",
    "heterogeneity.csv",
    "disagreement.csv",
    "truth.json",
)
NAMES = (RUN_FILE, HISTORY_FILE, EXCHANGES, SAVING, *RESULTS)
#: What every ``run.json`` has, whatever the version that wrote it.
_KEYS = {"status", "rounds", "config", "stop_reason", "bytes_sent", "bytes_received"}
_STATUSES = ("running", "completed", "failed", "stopped")


class CheckpointError(ConfigError):
    """A directory that a run cannot use; its results are not changed."""


def about_run(directory: Path) -> dict[str, Any] | None:
    """Return what a directory's ``run.json`` says; None if there is none, or another program's."""
    file = directory / RUN_FILE
    try:
        found = json.loads(file.read_bytes()) if file.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    own = isinstance(found, dict) and found.keys() >= _KEYS and found["status"] in _STATUSES
    return found if own else None


def keeps_exchanges(directory: Path) -> bool:
    """Return whether a run keeps in a directory what it needs to be resumed."""
    place = directory / EXCHANGES
    return not place.is_symlink() and (place / WRITTEN).is_file()


def own_files(directory: Path) -> frozenset[str]:
    """Return the names, of those that a run may write, that an earlier run has written."""
    about = about_run(directory)
    listed: Any = () if about is None else about.get("files", RESULTS)
    own = {name for name in NAMES if isinstance(listed, list | tuple) and name in listed}
    if about is not None:
        own |= {RUN_FILE, HISTORY_FILE, SAVING}
    if keeps_exchanges(directory):
        own |= {EXCHANGES, HISTORY_FILE, RUN_FILE}
    return frozenset(own)


def check_own(directory: Path, names: Collection[str] = NAMES) -> None:
    """Check that nothing in a directory is in the way of files of these names.

    Raises
    ------
    CheckpointError
        Naming the files that no earlier run has written.
    """
    own = own_files(directory)
    foreign = [name for name in names if name not in own and os.path.lexists(directory / name)]
    if foreign:
        raise CheckpointError(
            f"The directory '{directory}' holds {', '.join(foreign)}, which no run of flwr-causal "
            "has written there, and which its results would replace: give another directory, or "
            "move or rename what is there."
        )


def remove(directory: Path, names: Collection[str]) -> None:
    """Delete the files of a list, or the directories of files, that an earlier run has written."""
    for name in own_files(directory).intersection(names):
        path = directory / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def is_page(path: Path) -> bool:
    """Return whether a file is a page of a run or of a comparison."""
    try:
        return PAGE_MARK.encode() in path.read_bytes()
    except OSError:
        return False


def check_page(path: Path) -> None:
    """Check that a page may be written to a place.

    Raises
    ------
    CheckpointError
        If there is something that is no page.
    """
    if path.exists() and not is_page(path):
        raise CheckpointError(
            f"There is '{path}' already, which is no page of flwr-causal: name another file, or "
            "move or rename that one."
        )


SETUP_FILE = "agreement.json"
# Options that may differ when a run is resumed: they do not change its result.
FREE_OPTIONS = frozenset(
    {
        *("output_dir", "resume", "round_timeout", "server_timeout", "min_available_nodes"),
        *("quorum", "signing_key", "expected_parties"),
    }
)
#: By this name a run's configuration has the digest of the arrays that it started from.
INITIAL = "initial_arrays"
#: And by this one the name of the privacy wrapper around the method.
WRAPPER = "wrapper"
#: By this name it has the options that were left open, with what was assumed of each.
ASSUMED = "assumed"
_TOKEN = f"{PREFIX}exchange"
_DECIDED = "decided"
_PARTIES = "parties"
# With secure aggregation, the reports on all rows and on each group's.
_TOTAL = "total"
# Where the training started again with other tables, what had happened before.
_HISTORY, _FAILURES = "history before", "failures before"
# Prefixes of the names of arrays in a file: of combined arrays, and of those kept by party.
_COMBINED, _OWN = "combined", "party"


@dataclass(frozen=True, eq=False)
class KeptExchange:
    """One exchange of the interrupted run.

    Parameters
    ----------
    entry : dict
        Its entry in the history.
    lost : tuple of str
        The parties without which the training started again; then there are no replies.
    failures : tuple of Failure
        Of this exchange.
    replies : Replies
        Combined.
    influence : dict
        What the graph owes to single parties, see :mod:`flwr_causal.runtime.influence`: it follows
        from single replies, which are not kept.
    asked : str
        Which request the replies answer, see :func:`digest_of_request`.
    """

    entry: dict[str, Any]
    lost: tuple[str, ...]
    failures: tuple[Failure, ...]
    replies: Replies
    influence: Influence
    asked: str


def status_of(directory: str | Path) -> str:
    """Return the status of the run in a directory: "running", "completed", "failed", "stopped".

    Returns
    -------
    str
        "" where there is no run.
    """
    about = about_run(Path(directory))
    if about is None and (file := Path(directory) / RUN_FILE).is_file():
        _read_json(file)  # which says what is wrong with it
    return "" if about is None else str(about["status"])


def forget(directory: str | Path, days: float = 0.0) -> list[Path]:
    """Delete what runs keep of the parties to be resumed, and what parties keep; results stay.

    Until its results are saved, a run's directory holds the parties' reports and the combined
    replies. A run that fails or is stopped leaves them there; it cannot be resumed without them. A
    party keeps its releases of private runs, which cannot go on without them after a restart.

    Parameters
    ----------
    directory : str or Path
        Of a run, or above the directories of runs, or of a party's releases.
    days : float, default 0.0
        Only of runs in which nothing was written for so many days.

    Returns
    -------
    list of Path
        The directories and the files of releases that were deleted.

    Raises
    ------
    CheckpointError
        If there is neither a run nor a release.
    """
    runs = [file.parent for file in sorted(Path(directory).rglob(RUN_FILE))]
    runs = [run for run in runs if about_run(run) is not None]
    releases = sorted(Path(directory).rglob(f"{RELEASES}/*.json"))
    releases = [one for one in releases if RELEASE_NAME.fullmatch(one.name)]
    if not (runs or releases):
        raise CheckpointError(f"There is no run in {directory}.")
    before = time.time() - days * 24 * 3600
    old = [run / EXCHANGES for run in runs if keeps_exchanges(run)]
    old = [one for one in old if max(f.stat().st_mtime for f in (one, *one.iterdir())) <= before]
    # Those of simulated parties are in the run's own directory.
    single = [one for one in releases if EXCHANGES not in one.parts]
    single = [one for one in single if one.stat().st_mtime <= before]
    for one in old:
        shutil.rmtree(one)
    for one in single:
        one.unlink()
    return [*old, *single]


def mark_stopped(directory: str | Path) -> None:
    """Note that the process of a run ends before the run; a run that has ended is left as it is."""
    if status_of(directory) != "running":
        return
    file = Path(directory) / RUN_FILE
    why = {"status": "stopped", "stop_reason": "stopped: the ServerApp's process was ended"}
    # The process may be ended in the middle of a write: this one has a place of its own.
    own = file.with_name(f"{RUN_FILE}.stopped")
    write(own, json.dumps({**_read_json(file), **why}, indent=2))
    own.replace(file)


def read_history(directory: str | Path) -> list[dict[str, Any]]:
    """Return the entries of the exchanges, without a last line that was cut short."""
    text = (Path(directory) / HISTORY_FILE).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]


def results_saved(directory: str | Path) -> bool:
    """Return whether a directory holds a completed run with its results.

    A process can end between the last exchange and the writing of results. Those that the loop
    writes stand beside what the run can be resumed from;
    :meth:`flwr_causal.reports.run.Run.save` takes that away.
    """
    if status_of(directory) != "completed":
        return False
    written = (about_run(Path(directory)) or {}).get("files")
    return bool(written) or not is_resumable(directory)


def is_resumable(directory: str | Path) -> bool:
    """Return whether a directory holds what a run can be resumed from."""
    return Path(directory, EXCHANGES).exists()


class Checkpoint:
    """The directory of a run, written after each exchange.

    Parameters
    ----------
    directory : str or Path
        Made where it does not exist.
    config : mapping
        Method and options, as plain values.
    resume : bool
        Whether a run that the directory holds is to be resumed. If not, its files are removed.

    Attributes
    ----------
    interrupted : bool
        Whether there is a run to resume, until its parties have agreed again.
    parties : list of Party
        That agreed in the run to resume, in their order; without nodes.
    reports : dict of str to TableReport
        Theirs, by name.
    total : Totals or None
        With secure aggregation, the reports on their rows together.
    decisions : tuple of (dict, tuple of str)
        What was assumed of options that the run leaves open, and a line each.
    history : list of dict
        The entries of its exchanges before its last agreement.
    failures : list of Failure
        Of these exchanges.
    close : callable
        Lets go of the directory, which one run at a time can use.

    Raises
    ------
    CheckpointError
        If the directory cannot be used, another run uses it, or the run in it had other options.
    """

    def __init__(self, directory: str | Path, config: Mapping[str, Any], *, resume: bool) -> None:
        self.directory = Path(directory)
        self._exchanges = self.directory / EXCHANGES
        self._agreement = self._exchanges / SETUP_FILE
        self._config = dict(config)
        self._token = ""
        self._resumed = False
        self._noted: int | None = None
        self._agreed: dict[str, Any] = {}
        self.parties: list[Party] = []
        self.reports: dict[str, TableReport] = {}
        self.total: Totals | None = None
        self.decisions: tuple[dict[str, Any], tuple[str, ...]] = {}, ()
        self.history: list[dict[str, Any]] = []
        self.failures: list[Failure] = []
        with _writable(self.directory):
            check_own(self.directory)
            new_directory(self.directory)
            self.close = _held(self.directory)
        try:
            self._begin(resume=resume)
        except BaseException:
            self.close()
            raise

    def _begin(self, *, resume: bool) -> None:
        with _writable(self.directory):
            if resume:
                check_options(self.directory, self._config)
            else:
                remove(self.directory, [EXCHANGES])
            new_directory(self._exchanges)
            self._exchanges.chmod(DIRECTORY)
            # With content: a full disk still takes names.
            write(self._exchanges / WRITTEN, bytes(4096))
        self.interrupted = resume and self._agreement.is_file()
        if self.interrupted:
            self._read_agreement()

    def _read_agreement(self) -> None:
        with _reading(self._agreement):
            content = _read_json(self._agreement)
            self._token = content.pop(_TOKEN)
            self.history = content.pop(_HISTORY)
            if wrong := misplaced(self._token, str, _TOKEN) or misplaced(
                self.history, list[ExchangeEntry], _HISTORY
            ):
                raise TypeError(wrong)
            self.failures = [Failure(**failure) for failure in content.pop(_FAILURES)]
            decided, lines = content.pop(_DECIDED, ({}, ()))
            self.decisions = dict(decided), tuple(map(str, lines))
            total = content.pop(_TOTAL, None)
            if total is not None:
                whole, groups = total
                reports = {int(one): TableReport.from_dict(own) for one, own in groups.items()}
                self.total = Totals(TableReport.from_dict(whole), reports)
            for number, (name, partition, group, report) in enumerate(content.pop(_PARTIES), 1):
                self.parties.append(Party(-number, name, partition, group=group))
                self.reports[name] = TableReport.from_dict(report)
            self._agreed = content

    def release(self) -> str:
        """Return the random name of a private run, made when it first begins."""
        file = self._exchanges / "release"
        with _writable(self.directory):
            if not file.is_file():
                write(file, secrets.token_hex(16))
            return file.read_text(encoding="utf-8")

    def agree(
        self,
        federation: Federation,
        sent: Mapping[str, Any],
        decisions: tuple[Mapping[str, Any], tuple[str, ...]] = ({}, ()),
        history: Sequence[Any] = (),
        failures: Sequence[Failure] = (),
    ) -> Setup:
        """Keep the agreement; it must be equal to the one of the run that is resumed.

        Called again where the training starts again with other tables.

        Parameters
        ----------
        federation : Federation
            The parties, and what they agreed on.
        sent : mapping
            Further plain values that are sent with each message.
        decisions : tuple of (mapping, tuple of str)
            What was assumed of options that the run leaves open, and a line each.
        history : sequence of dict
            The entries of exchanges before this agreement.
        failures : sequence of Failure
            Of these exchanges.

        Raises
        ------
        CheckpointError
            If values that the parties are sent differ from those of the interrupted run.
        """
        setup = federation.setup
        new = _comparable(setup, sent)
        if self.interrupted:
            old = self._agreed
            changed = [name for name in {**new, **old} if old.get(name) != new.get(name)]
            if changed:
                raise CheckpointError(
                    f"The run in '{self.directory}' cannot be resumed: what the parties are sent "
                    "is not what they were sent in the interrupted run "
                    f"({', '.join(name.removeprefix(PREFIX) for name in changed)}). Give the same "
                    "values, with the same version of flwr-causal, or start anew without resume."
                )
            # Another agreement later in the run takes the place of this one.
            self._resumed, self.interrupted = True, False
            return replace(setup, exchange=self._token)
        total = federation.total
        content = {
            _DECIDED: decisions,
            _TOTAL: None if total is None else _plain(total),
            _TOKEN: setup.exchange,
            _HISTORY: list(history),
            _FAILURES: [vars(one) for one in failures],
            _PARTIES: [
                (one.name, one.partition_id, one.group, federation.reports[one.name].to_dict())
                for one in federation.parties
            ],
        }
        with _writable(self.directory):
            write(self._agreement, json.dumps({**content, **new}))
        self._token = setup.exchange
        return setup

    def steps(self) -> Iterator[KeptExchange]:
        """Return the exchanges of the run that is resumed, in their order.

        Raises
        ------
        CheckpointError
            If a file cannot be read.
        """
        number = len(self.history) + 1
        while self._resumed and (path := self._file(number)).is_file():
            token, step = _read_step(path)
            if token != self._token:  # of another run that wrote into this directory
                return
            yield step
            number += 1

    def _file(self, number: int) -> Path:
        return self._exchanges / f"{number:06d}.npz"

    def fix(self, number: int, sums: Sequence[Sequence[str]]) -> None:
        """Keep which parties are in each secure sum of an exchange, before it is known.

        Raises
        ------
        FederationError
            If others were in one of them in the interrupted run: the difference of the two sums
            would be numbers of a few parties.
        """
        file = self._exchanges / f"{number:06d}.json"
        with _reading(file):
            token, former = _read_json(file)["parties"] if file.is_file() else ("", [])
        former = former if token == self._token else []
        for before in former:
            for parties in map(list, sums):
                if before != parties and not {*before}.isdisjoint(parties):
                    raise FederationError(
                        f"Exchange {number}: the sum in the interrupted run was that of "
                        f"{', '.join(before)}, and now {', '.join(parties)} have replied. The "
                        "difference would reveal the numbers of some parties: resume the run once "
                        "the same parties can answer, or start anew without resume."
                    )
        # A group that had a sum before, and has none now, must not have another one later.
        kept = [list(parties) for parties in sums]
        kept += [before for before in former if before not in kept]
        write(file, json.dumps({"parties": (self._token, kept)}))

    def exchange(self, step: KeptExchange) -> None:
        """Write the entry and the replies of an exchange, from which it can be repeated."""
        write(self._file(int(step.entry["round"])), _packed(step, self._token))

    def note(self, summary: Mapping[str, Any], history: Sequence[Any]) -> None:
        """Write the history and the summary of the run as it stands, in place of older results.

        What the history has already is not written again; a line that is cut short is not read.
        """
        new = history[self._noted or 0 :]
        lines = "".join(json.dumps(entry) + "\n" for entry in new)
        file = self.directory / HISTORY_FILE
        if self._noted is not None:
            append(file, lines)
        else:
            remove(self.directory, RESULTS)
            if is_page(page := self.directory / PAGE):
                page.unlink()
            write(file, lines)
        self._noted = len(history)
        content = {**summary, "config": self._config, "metrics": {}, "files": []}
        write(self.directory / RUN_FILE, json.dumps(content, indent=2))


@contextmanager
def _writable(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"The output directory (option 'output_dir') '{directory}' cannot be written "
            f"({error.strerror or error}): give another one, or free its disk."
        ) from error


def _held(directory: Path) -> Callable[[], None]:
    """Hold a directory for one run; return the function that lets it go."""
    try:
        return hold(directory)
    except BlockingIOError:
        raise CheckpointError(
            f"Another run uses the output directory (option 'output_dir') '{directory}': wait "
            "until it has ended, or give another one."
        ) from None


def _comparable(setup: Setup, sent: Mapping[str, Any]) -> dict[str, str]:
    """Return hashes of what two runs must have in common, beside the parties' reports."""
    plain = {
        **setup.to_config(),
        "train_config": {name: repr(value) for name, value in sent.items()},
        # Another version may take other steps from the same replies.
        "version of flwr-causal": own_version(),
    }
    del plain[_TOKEN]
    # New in each process, or of options that are free.
    for name in (KEYS, KEY_NAMES, KEY_SIGNATURES, LEAST, TERMS, SIGNATURE):
        plain.pop(name, None)
    return {
        name: hashlib.sha256(json.dumps(value).encode()).hexdigest()
        for name, value in plain.items()
    }


def digest_of(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the digest of the arrays that a run starts from, as its directory has it."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].shape} ".encode())
        found.update(np.ascontiguousarray(arrays[name], dtype="<f8").tobytes())
    return found.hexdigest()


def digest_of_request(request: Ask) -> str:
    """Return the digest of what an exchange asks, by which it is the one of an interrupted run.

    Of decimal numbers it has their shape only: other processors give other last digits.
    """
    found = hashlib.sha256(request.exchange.name.encode())
    for label, values in [("", request.values), *sorted(request.own.items())]:
        for name in sorted(name for name, value in values.items() if value is not None):
            value = np.asarray(values[name])
            found.update(f"{label} {name} {value.dtype} {value.shape}".encode())
            if value.dtype.kind != "f":
                found.update(value.tobytes())
    return found.hexdigest()


def check_tables(directory: str | Path, old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Check that a completed run is of the parties and tables that are there now.

    Parameters
    ----------
    directory : str or Path
        Of the run.
    old, new : mapping of str to str
        Of :attr:`Federation.digests`, of the run and now.

    Raises
    ------
    CheckpointError
        Naming the parties that differ.
    """
    what = {
        "not in that run": new.keys() - old.keys(),
        "missing now": old.keys() - new.keys(),
        "another table": {one for one in old.keys() & new.keys() if old[one] != new[one]},
    }
    told = [
        f"{said}: {', '.join(sorted(name or 'all together' for name in names))}"
        for said, names in what.items()
        if names
    ]
    if told:
        raise CheckpointError(
            f"The run in '{directory}' is completed, and not with the parties' tables of today: "
            f"{'; '.join(told)}. Give another directory, or start anew without resume."
        )


def check_options(directory: str | Path, config: Mapping[str, Any]) -> None:
    """Check that the run in a directory had the method and the options of the one that resumes it.

    Raises
    ------
    CheckpointError
        Naming the first that differs, the method before the options.
    """
    if not status_of(directory):
        return
    old = _read_json(Path(directory) / RUN_FILE).get("config", {})
    new = json.loads(json.dumps(dict(config)))
    for name in dict.fromkeys([*new, INITIAL, WRAPPER]):
        known = name in (INITIAL, WRAPPER) or (name not in FREE_OPTIONS and name in old)
        if known and old.get(name) != new.get(name):
            raise CheckpointError(
                f"The run in '{directory}' had {name}={old.get(name)!r}, not {new.get(name)!r}: "
                "resume it with the same options, or start anew without resume."
            )


def _plain(total: Totals) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    return total.all.to_dict(), {group: own.to_dict() for group, own in total.groups.items()}


def _packed(step: KeptExchange, token: str) -> bytes:
    replies = step.replies
    head = {
        "run": token,
        "entry": step.entry,
        "lost": step.lost,
        "failures": [vars(failure) for failure in step.failures],
        "parties": replies.parties,
        "by_party": list(replies.by_party),
        "sums": replies.sums,
        "influence": step.influence,
        "asked": step.asked,
    }
    arrays = {f"{_COMBINED} {name}": array for name, array in replies.combined.items()}
    for index, own in enumerate(replies.by_party.values()):
        arrays |= {f"{_OWN} {index} {name}": array for name, array in own.items()}
    head["digest"] = _digest(arrays)
    text = np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)
    return records.npz({"head": text, **arrays})


def _digest(arrays: Arrays) -> str:
    """Return a digest of names, types, shapes and entries: others would be computed with, too."""
    whole = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        whole.update(f"{name} {array.dtype} {array.shape};".encode() + array.tobytes())
    return whole.hexdigest()


def _read_step(path: Path) -> tuple[str, KeptExchange]:
    """Return the token of the run that wrote a file, and the step that it holds."""
    combined: Arrays = {}
    with _reading(path):
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
            head = json.loads(arrays.pop("head").tobytes())
            if head["digest"] != _digest(arrays):
                raise ValueError("its arrays are not those that were written")
            own: list[Arrays] = [{} for _ in head["by_party"]]
            for key, array in arrays.items():
                kind, _, name = key.partition(" ")
                if kind == _COMBINED:
                    combined[name] = array
                elif kind == _OWN:
                    index, _, name = name.partition(" ")
                    own[int(index)][name] = array
        return head["run"], KeptExchange(
            head["entry"],
            tuple(head["lost"]),
            tuple(Failure(**failure) for failure in head["failures"]),
            Replies(
                tuple(head["parties"]),
                combined,
                dict(zip(head["by_party"], own, strict=True)),
                {name: Summed(rows, tuple(names)) for name, (rows, names) in head["sums"].items()},
            ),
            head["influence"],
            head["asked"],
        )


def _read_json(path: Path) -> dict[str, Any]:
    with _reading(path):
        return dict(json.loads(path.read_text(encoding="utf-8")))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Say which file of an interrupted run is damaged, where it is read."""
    try:
        yield
    except DAMAGE as error:
        raise CheckpointError(
            f"The file '{path}' of the interrupted run cannot be read ({error}): start anew "
            "without resume, in another directory."
        ) from error
