"""A run that ends before it trains: schema exchange, policies, warnings, and what it would cost.

Exchanges and bytes are estimated from the declarations.
"""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flwr_causal.app.config import checked_config
from flwr_causal.app.job import result_in
from flwr_causal.contract.exchange import WHOLE
from flwr_causal.errors import CausalError, ConfigError, FederationError
from flwr_causal.runtime.checkpoint import check_own
from flwr_causal.runtime.schema import exchange_schema
from flwr_causal.runtime.training import Training
from flwr_causal.secure.ring import WORD_BYTES, WordLayout, not_a_sum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr.serverapp import Grid

    from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
    from flwr_causal.protocol.setup import Setup
    from flwr_causal.runtime.federation import Federation
    from flwr_causal.runtime.method import CausalMethod
    from flwr_causal.strategies import CausalStrategy

#: Bytes of a number by what it is; of others those of a word, or of the option ``precision``.
_BYTES = {"bytes": 1, "mark": 1}


class ExchangeCost(NamedTuple):
    """One kind of exchange.

    Parameters
    ----------
    name, when : str
    sent, received : int
        Bytes of arrays to and from one party, of those whose size is known before the run.
    further : bool
        Whether there are others, whose size depends on the course of the run.
    """

    name: str
    when: str
    sent: int
    received: int
    further: bool


def costs_of(method: CausalMethod, federation: Federation) -> list[ExchangeCost]:
    """Return the cost of each exchange that a training may need with its options."""
    return [_cost(method, federation.setup, exchange) for exchange in method._exchanges]


def most_bytes(
    costs: Sequence[ExchangeCost], exchanges: int | None, parties: int, trainings: int
) -> int | None:
    """Return what travels at most in both directions; None where it is not known.

    Parameters
    ----------
    costs : sequence of ExchangeCost
    exchanges : int or None
        The most exchanges.
    parties, trainings : int
        How many there are; replicates are trainings.
    """
    if exchanges is None or any(one.further for one in costs):
        return None
    largest = max((one.sent + one.received for one in costs), default=0)
    return largest * exchanges * parties * trainings


def _cost(method: CausalMethod, setup: Setup, exchange: Exchange) -> ExchangeCost:
    try:
        sizes = exchange.sizes(method.contract.sizes(setup, setup.num_rows))
    except CausalError:  # sizes that follow from replies
        sizes = {}
    number = 4 if method.options.precision == "float32" else WORD_BYTES
    sends = [_bytes(one, sizes, number) for one in exchange.sends if one.shape is not None]
    returns = [_bytes(one, sizes, number) for one in exchange.returns]
    sent, received = (sum(size or 0 for size in known) for known in (sends, returns))
    further = None in (*sends, *returns)
    if method.options.secure_aggregation and not exchange.open and not not_a_sum(exchange):
        symbols = (str(symbol) for item in exchange.returns for symbol in item.shape)
        layout = WordLayout.of(exchange, {**dict.fromkeys(symbols, 0), **sizes}, setup)
        received = WORD_BYTES * layout.size.words
    return ExchangeCost(exchange.name, exchange.when_in_words, sent, received, further)


def _bytes(thing: Sent | Disclosure, sizes: Mapping[str, int], number: int) -> int | None:
    """Return the bytes of an array; None where its size is not known."""
    known = [one if isinstance(one, int) else sizes.get(one) for one in thing.shape or ()]
    if None in known:
        return None
    whole = WORD_BYTES if thing.values in WHOLE else number
    return _BYTES.get(thing.values, whole) * math.prod(one or 0 for one in known)


#: Flower's words for a key that the app does not have, and the file with the app's keys.
INVALID_CONFIG, PROJECT = "Invalid run configuration", "pyproject.toml"
#: What such a run is in its result.
COULD_BEGIN = "could begin"


def dry_run(strategy: CausalStrategy, grid: Grid, *, settle: float = 0.0) -> dict[str, Any]:
    """Do all that a run does before its first exchange; nothing is trained or written.

    Parameters
    ----------
    strategy : CausalStrategy
    grid : Grid
    settle : float, default 0.0
        As of :func:`flwr_causal.strategies.run`.

    Returns
    -------
    dict
        ``status``, ``parties`` (rows by party; None where they are withheld), ``rows``,
        ``columns``, ``left_out`` (by column why), ``warnings``, ``schema_bytes``,
        ``exchanges_at_most``, ``exchanges`` (see :class:`~flwr_causal.app.dry_run.ExchangeCost`)
        and ``bytes_at_most``; what cannot be told before the run is None.

    Raises
    ------
    CausalError
        What the run would raise before it trains.
    ConfigError
        With ``epsilon``: parties count the privacy loss of a run from the schema exchange on.
    """
    if strategy.options.private:
        raise ConfigError(
            "A dry run with 'epsilon' would use up the parties' privacy budgets, which count a run "
            "from its schema exchange on: leave epsilon, delta and scales out of the dry run."
        )
    if strategy.options.output_dir:
        check_own(Path(strategy.options.output_dir))
    federation, agreement, size = exchange_schema(strategy, grid, settle=settle)
    strategy._federation, strategy._grid = federation, grid
    Training(strategy, agreement, alone=True)  # refuses options that do not fit
    options, parties = strategy.options, len(federation.parties)
    exchanges = strategy._exchanges_at_most
    costs = costs_of(strategy, federation)
    trainings = 1 + options.replicates + parties * options.leave_one_out
    return {
        "status": COULD_BEGIN,
        "method": strategy.method,
        "parties": {
            one.name: None if agreement.total is not None else one.num_rows
            for one in federation.parties
        },
        "rows": agreement.n,
        "columns": list(agreement.names),
        "left_out": dict(agreement.dropped),
        "warnings": list(agreement.warnings),
        "schema_bytes": size,
        "exchanges_at_most": exchanges,
        "exchanges": [one._asdict() for one in costs],
        "bytes_at_most": most_bytes(costs, exchanges, parties, trainings),
    }


def on_nodes(app: Path, connection: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Ask connected nodes by ``flwr run`` whether a run could begin.

    Parameters
    ----------
    app : Path
        The directory of the app.
    connection : str
        The name of a SuperLink in Flower's ``config.toml``; "" for the default one.
    settings : mapping
        Keys of the run config, beside those of the app.

    Returns
    -------
    dict
        As of :func:`dry_run`, or with the ``status`` "failed" and the ``error``.

    Raises
    ------
    ConfigError
        If a key or a value cannot be used.
    FederationError
        If ``flwr run`` cannot be started, or ends without a result.
    """
    given = {**settings, "dry-run": True}
    # Flower ends a text at the first quotation mark.
    pairs = (
        f"{key}={json.dumps(value, ensure_ascii=False)}".replace('\\"', "\\u0022")
        for key, value in given.items()
    )
    command = ["flwr", "run", str(app), *filter(None, [connection]), "--stream"]
    command += ["-c", " ".join(pairs)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise FederationError(f"`flwr run` cannot be started: {error.strerror or error}") from error
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    for line in reversed(lines):
        if (result := result_in(line)) is not None:
            return result
    if any(INVALID_CONFIG in line for line in lines) and (app / PROJECT).is_file():
        checked_config([str(app / PROJECT)], given)
    last = "\n".join(lines[-5:]) or f"exit status {done.returncode}, and no output"
    raise FederationError(f"`{' '.join(command)}` ended without a result. Its last lines:\n{last}")
