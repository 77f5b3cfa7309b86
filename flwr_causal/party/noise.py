"""The party's side of differential privacy: its noise, drawn once for each question.

The noise comes from the operating system, never from the option ``seed``, which the server knows.
The party computes how much it needs from epsilon and delta itself. What it has drawn is kept in the
node's state, and in a file where the node keeps a record: the same question gets the same answer,
also after a restart of the node or in a resumed run, and another question in the same run gets
none. A node that has lost what it has drawn draws nothing more in this run.

A file keeps the party's release of a run, so that a restart draws no second noise.

There is one file for each run, also where the run is resumed under another number of Flower's. Its
name follows from the run's random name and the party's own; only the user of the node may read it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ConfigRecord

from flwr_causal.core.files import alone_in, new_directory, write
from flwr_causal.core.privacy.calibration import budget_of
from flwr_causal.core.privacy.discrete_gaussian import discrete_gaussian
from flwr_causal.core.privacy.release import (
    noise_of,
    octaves_of,
    products_of,
    read,
    scales_of,
    steps_of_noise,
    variance_of_counts,
)
from flwr_causal.core.privacy.scales import (
    Scaling,
    lacking_scales,
    scales_by_column,
    stated_centers,
)
from flwr_causal.core.saved import DAMAGE
from flwr_causal.data.check.columns import all_columns
from flwr_causal.data.check.report import ColumnReport, TableReport
from flwr_causal.data.read.by_cell import numbers_of_column
from flwr_causal.data.read.pieces import pieces
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.party.node_config import NodeConfig
from flwr_causal.party.table_digest import TABLE
from flwr_causal.protocol.options import Guarantee
from flwr_causal.protocol.release import RELEASE_NAME
from flwr_causal.protocol.schema import party_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from flwr.app import Context

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.privacy.calibration import Budget
    from flwr_causal.core.privacy.release import Released
    from flwr_causal.core.privacy.scales import Scales
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.read.pieces import Table
    from flwr_causal.protocol.options import PrivatePartyOptions

#: The records in a file: of the run, and what was drawn.
OF_RELEASE = ("private-run", "private-octaves", "private-release")
#: By this name records and lines of the party's record have what a release loses.
RHO = "rho"


@dataclass(frozen=True)
class ReleaseFile:
    """The file of one run.

    Parameters
    ----------
    path : Path or None
        None where the node keeps no files: nothing is written, and nothing found.
    """

    path: Path | None

    @classmethod
    def of(cls, node: NodeConfig, run: str, party: str) -> ReleaseFile:
        """Return the file of a run: in the directory of the node config, or beside the record."""
        if node.releases is None:
            return cls(None)
        name = hashlib.blake2b(f"{run} {party}".encode(), digest_size=16).hexdigest()
        return cls(node.releases / f"{name}.json")

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the kept values by name; empty where there is no file.

        Raises
        ------
        FederationError
            If the file cannot be read: nothing is drawn then.
        """
        try:
            return {} if self.path is None else dict(json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return {}
        except DAMAGE as error:
            raise FederationError(
                f"The party's private release of this run cannot be read ({type(error).__name__}), "
                "and it makes no second one: restore the file, at the party, or start another run, "
                "whose epsilon adds to that of this one."
            ) from error

    def add(self, values: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Keep further values, and return all that is kept; it is on the disk then.

        What is there stays: of two messages that are answered at once both send what the first one
        has drawn.

        Raises
        ------
        FederationError
            If they cannot be written: nothing may leave then.
        """
        if self.path is None:
            return dict(values)
        try:
            new_directory(self.path.parent)
            with alone_in(self.path.parent):
                kept = {**values, **self.read()}
                write(self.path, json.dumps(kept).encode())
            return kept
        except OSError as error:
            raise FederationError(
                f"The party's private release cannot be written ({error.strerror}), so nothing "
                "leaves the party. Make room or give the node's account access, at the party."
            ) from error


def losses_kept(directory: Path | None) -> dict[str, float]:
    """Return the privacy losses of the releases in a directory for which noise was drawn.

    Parameters
    ----------
    directory : Path or None
        Of a party's files. None: it keeps none.

    Returns
    -------
    dict of str to float
        rho, by the random number of the release, as in the lines of a record.

    Raises
    ------
    DataError
        If a file cannot be read.
    """
    found: dict[str, float] = {}
    for path in () if directory is None else sorted(directory.glob("*.json")):
        if not RELEASE_NAME.fullmatch(path.name):
            continue
        try:
            about = path.stat()
            found |= _losses_in(path, about.st_mtime_ns, about.st_size)
        except FileNotFoundError:  # deleted meanwhile
            continue
        except DAMAGE as error:
            raise DataError(
                f"The party's private release {path.name} cannot be read "
                f"({type(error).__name__}), so that what it lost is not known: restore the file, "
                "at the party, or delete it if its run has ended and is in the record."
            ) from error
    return found


# Each reply asks for all of them.
@lru_cache(maxsize=1024)
def _losses_in(path: Path, changed: int, size: int) -> dict[str, float]:
    """Return the privacy loss of a file's release; none where no noise was drawn."""
    kept = json.loads(path.read_bytes())
    run, *drawn = OF_RELEASE
    release = str(kept[run]["id"])
    losses = [float(kept[name][RHO]) for name in drawn if name in kept]
    return {release: max(losses)} if losses else {}


# The records in a node's state and file: of the run, and what was drawn.
_RUN, _OCTAVES, _RELEASE = OF_RELEASE


def begin(context: Context, options: PrivatePartyOptions, *, again: bool) -> bool:
    """Load the state that the node keeps of a private run, or create it.

    Parameters
    ----------
    context : Context
        Of the node.
    options : PrivatePartyOptions
        With the guarantee of the run, the same in all messages. Without the run's random name it is
        that of the context.
    again : bool
        Whether the parties have been asked before in this run.

    Returns
    -------
    bool
        Whether the state was lost, and is restored.

    Raises
    ------
    FederationError
        If the parties were asked before and the node has no state of the run, the state cannot be
        read, or the run had another guarantee.
    """
    run, asked = str(options.release or context.run_id), json.dumps(options.guarantee)
    state = context.state
    known = state.get(_RUN)
    kept = {} if isinstance(known, ConfigRecord) else _file(context, run).read()
    if again and known is None and not kept:
        raise FederationError(
            "The party's node was restarted and has lost what it has released in this private run; "
            "it makes no second release. Start another run, whose epsilon adds to that of this "
            "one. A node with 'record' or 'releases' in its node config keeps its release."
        )
    before: Any = known if isinstance(known, ConfigRecord) else kept.get(_RUN)
    if before is not None and before.get("asked") != asked:
        raise FederationError(
            "The party was asked for another epsilon, delta or scales in this run, and makes no "
            "second release: start another run, whose epsilon adds to that of this one."
        )
    # Its own random number: a file that was deleted is no reason to count less.
    # The name of the file is that of the first question, too: under a second name the release would
    # be drawn once more, and counted once.
    own = {"id": secrets.token_hex(8), "asked": asked, "run": run, **(before or {})}
    state.update({name: ConfigRecord(values) for name, values in kept.items()})
    state[_RUN] = ConfigRecord(own)
    return bool(kept)


def keep(
    context: Context, further: Mapping[str, ConfigRecord] | None = None
) -> dict[str, Mapping[str, Any]]:
    """Write the node's state of a private run to its file, if the node keeps files.

    Parameters
    ----------
    context : Context
        Of the node, in whose state it is.
    further : mapping of str to ConfigRecord, optional
        Further entries that the state will hold.

    Returns
    -------
    dict
        All entries that are kept, by name; those that the file held before are not changed.

    Raises
    ------
    FederationError
        If it cannot be written: nothing may leave then.
    """
    held = {**context.state, **(further or {})}
    own = {name: dict(held[name]) for name in (TABLE, *OF_RELEASE) if name in held}
    return _file(context, str(own[_RUN]["run"])).add(own)


def of_line(context: Context, guarantee: Guarantee, sharing: int = 1) -> dict[str, Any]:
    """Return what a line of the party's record says of a private run: its release and its loss.

    Parameters
    ----------
    context : Context
        Of the node.
    guarantee : Guarantee
        Of the request that is answered.
    sharing : int, default 1
        Among how many parties the noise is shared. Where the party does not know the others, it
        counts on its own part alone.
    """
    alone = 1 if NodeConfig.of(context.node_config).peers else sharing
    return {
        "release": context.state[_RUN]["id"],
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        RHO: guarantee.rho * alone,
    }


def _file(context: Context, run: str) -> ReleaseFile:
    return ReleaseFile.of(NodeConfig.of(context.node_config), run, party_name(context))


def public_report(context: Context, table: Table, handling: Handling) -> TableReport:
    """Return a report that depends on nothing but the names of the columns, and a dictionary.

    Parameters
    ----------
    context : Context
        Of the node.
    table : DataFrame or LargeFile
    handling : Handling
        Of the run. Its dictionary says which columns are categories, and lists their states.

    Raises
    ------
    ConfigError
        If the node's configuration states interventions, which a private run does not use.
    """
    if NodeConfig.of(context.node_config).interventions:
        raise ConfigError(
            "its node config states interventions, which a run with epsilon does not use: take "
            "them out"
        )
    report = TableReport.of_names(table.columns)
    columns = tuple(_public_column(one.name, handling) for one in report.columns)
    return replace(report, columns=columns, has_states=handling.names_states)


def _public_column(name: str, handling: Handling) -> ColumnReport:
    """Return what a dictionary says of a column; a number has more values than are named."""
    entry = None if handling.entries is None else handling.entries.find(name)
    number = ColumnReport(name, "numeric", distinct=int(handling.names_states))
    if entry is None or not entry.states:
        return number
    if handling.names_states:
        states = entry.state_names
        return replace(number, kind="category", distinct=len(states), values="str", states=states)
    return number if entry.is_scale else replace(number, kind="category")


def numbers(table: Table, names: Sequence[str]) -> Iterator[FloatArray]:
    """Yield the rows of a table in pieces of shape (rows, d); what is no number is NaN.

    A number follows from its own cell, see :mod:`flwr_causal.data.read.by_cell`; by a dictionary
    that of a state is its place.

    Raises
    ------
    DataError
        If there is no such column.
    """
    for piece in pieces(table):
        by_name = {str(column.name): column for column in all_columns(piece)}
        lacking = [name for name in names if name not in by_name]
        if lacking:
            raise DataError(f"there is no column {lacking[0]!r} any more")
        yield np.column_stack([numbers_of_column(by_name[name]) for name in names])


def about_centers(table: Table, names: Sequence[str], stated: Scales) -> Iterator[FloatArray]:
    """Yield the rows of :func:`numbers` less the stated centres, about which scales are estimated.

    Errors are those of :func:`numbers`.
    """
    centers = stated_centers(names, stated)
    for rows in numbers(table, names):
        yield rows - centers


def budget(options: PrivatePartyOptions, *, estimates: bool) -> Budget:
    """Return the noise that the run's epsilon and delta need."""
    guarantee = options.guarantee
    assert guarantee is not None
    return budget_of(guarantee.epsilon, guarantee.delta, estimates=estimates)


def drawn_octaves(
    context: Context, rows: Iterator[FloatArray], noise: Budget, parties: int, about: str
) -> IntArray:
    """Return the noisy histograms of columns, the same each time.

    Parameters
    ----------
    context : Context
        Of the node, in whose state they are kept.
    rows : iterator of ndarray of shape (rows, d)
    noise : Budget
        Of the run; it estimates scales.
    parties : int
        Among how many parties this noise is shared.
    about : str
        What else identifies the question: names of columns, and who shares the noise.
    """
    multiplier = noise.scales
    assert multiplier is not None

    def draw() -> IntArray:
        counts = octaves_of(rows)
        variance = variance_of_counts(len(counts), multiplier, parties)
        drawn = [discrete_gaussian(variance, secrets.randbelow) for _ in range(counts.size)]
        return counts + np.array(drawn, dtype=np.int64).reshape(counts.shape)

    return _once(context, _OCTAVES, about, noise, parties, draw)


def drawn_products(
    context: Context,
    rows: Iterator[FloatArray],
    scaling: Scaling,
    noise: Budget,
    parties: int,
    about: str,
) -> IntArray:
    """Return the noisy products of the rows, the same each time.

    Parameters
    ----------
    context, rows, noise, parties, about
        As of :func:`drawn_octaves`.
    scaling : Scaling
        Of their columns.
    """

    def draw() -> IntArray:
        products = products_of(rows, *scaling)
        w = len(products) - 1
        return products + noise_of(w, steps_of_noise(w, noise.release, parties), secrets.randbelow)

    shown = [scaling.centers.tolist(), scaling.scales.tolist()]
    return _once(context, _RELEASE, f"{about} {shown}", noise, parties, draw)


def released(
    context: Context, table: Table, names: tuple[str, ...], options: PrivatePartyOptions
) -> Released:
    """Return the moments of a party's own release, the same each time.

    All of the noise is its own: what follows from the release needs no further protection.

    Parameters
    ----------
    context : Context
        Of the node.
    table : DataFrame or LargeFile
    names : tuple of str
        The columns that are released.
    options : PrivatePartyOptions
        Scales that are lacking are estimated from the party's rows.
    """
    stated = scales_by_column(options.scales)
    lacking = lacking_scales(names, stated)
    noise, estimated = budget(options, estimates=bool(lacking)), None
    if noise.scales is not None:
        rows = about_centers(table, lacking, stated)
        counts = drawn_octaves(context, rows, noise, 1, str(lacking))
        variance = variance_of_counts(len(lacking), noise.scales, 1)
        estimated = scales_of(counts, variance, lacking)
    scaling = Scaling.of(names, stated, estimated)
    assert scaling is not None
    products = drawn_products(context, numbers(table, names), scaling, noise, 1, str(names))
    return read(products, steps_of_noise(len(names), noise.release, 1), *scaling)


def _once(
    context: Context,
    name: str,
    about: str,
    noise: Budget,
    parties: int,
    draw: Callable[[], IntArray],
) -> IntArray:
    """Return the noise of a question, shape (rows, columns): as drawn before, else drawn and kept.

    It is kept with its privacy loss, which counts also where the record lacks it.

    Raises
    ------
    FederationError
        If something was drawn in this run for another question, or with a share of another budget:
        histograms of a tenth and a release of the whole would lose more than the run states.
    """
    kept: Mapping[str, Any] = context.state
    question = f"{about} {parties}"
    if name not in kept:
        # Of an answer that has left, where the state of this message was lost.
        kept = {**_file(context, str(context.state[_RUN]["run"])).read(), **context.state}
    if name not in kept and _of_one_budget(kept, noise):
        drawn = draw()
        guarantee = Guarantee(*json.loads(str(context.state[_RUN]["asked"])))
        values: dict[str, Any] = {
            RHO: of_line(context, guarantee, parties)[RHO],
            "question": question,
            "noise": repr(noise),
            "rows": len(drawn),
            "drawn": drawn.ravel().tolist(),
        }
        kept = keep(context, {name: ConfigRecord(values)})
    own = kept.get(name)
    if own is None or own["question"] != question or not _of_one_budget(kept, noise):
        raise FederationError(
            "The party has made its private release in this run, with other columns, scales or "
            "options, or among other parties, and makes no second one: start another run, whose "
            "epsilon adds to that of this one."
        )
    context.state[name] = ConfigRecord(dict(own))
    return np.array(own["drawn"], dtype=np.int64).reshape(own["rows"], -1)


def _of_one_budget(kept: Mapping[str, Any], noise: Budget) -> bool:
    """Return whether all that was drawn has its share of this budget."""
    drawn = [kept[name] for name in (_OCTAVES, _RELEASE) if name in kept]
    return all(one["noise"] == repr(noise) for one in drawn)
