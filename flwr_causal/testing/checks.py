"""The checks of a method without faults: what stays the same, and what travels."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flwr_causal.errors import ConfigError
from flwr_causal.protocol import door, records
from flwr_causal.protocol.bundle import exchange_of
from flwr_causal.protocol.setup import PREFIX, Setup
from flwr_causal.secure.keys import LEAST_PARTIES
from flwr_causal.simulations.relay import KilledError, Killing
from flwr_causal.testing.subject import CheckFailedError, CheckSkippedError, Spy, distance

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr_causal.contract.exchange import Disclosure
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.reports.run import Run
    from flwr_causal.strategies import CausalStrategy
    from flwr_causal.testing.subject import Subject

#: Sums of floats in another order differ by so much, relative to the largest weight.
TOLERANCE = 1e-6
#: Trainings on resampled rows in the runs that combine them with secure sums.
REPLICATES = 2


def check_runs(subject: Subject) -> None:
    """Check that the run ends with a graph or a model and leaves no party out."""
    run, _ = subject.run()
    if run.graph is None and run.model is None:
        raise CheckFailedError("the run ended without a graph and without a model")
    if run.failures:
        raise CheckFailedError(f"parties were left out of an undisturbed run: {run.failures}")


def check_same_seed_same_result(subject: Subject) -> None:
    """Check that a second run with the same seed gives the same result, bit for bit."""
    parties = subject.parties
    _expect_same(subject, subject.run()[0], subject.run(parties)[0], tolerance=0.0)


def check_order_of_parties(subject: Subject) -> None:
    """Check that the result does not depend on the order of the parties."""
    _expect_same(subject, subject.run()[0], subject.run(subject.parties[::-1])[0])


def check_split_of_rows(subject: Subject) -> None:
    """Check that pooled rows give the same result in another split, and at one party."""
    if not subject.strategy.pools_rows:
        raise CheckSkippedError("the method does not say that it pools rows (pools_rows)")
    tables = subject.tables_of_rows()
    whole = pd.concat(tables, ignore_index=True)
    third = max(2, len(whole) // 3)
    for parties in ([whole.iloc[:third], whole.iloc[third:]], [whole]):
        _expect_same(subject, subject.run()[0], subject.run(parties)[0])


def check_nothing_undeclared_travels(subject: Subject) -> None:
    """Check that every request and every reply is one that the contract declares."""
    run, spy = subject.run()
    strategy = subject.strategy
    setup = next(
        (
            Setup.from_config(config, strategy.contract.options)
            for config in (records.config_of(sent) for sent, _ in spy.pairs)
            if f"{PREFIX}names" in config
        ),
        None,
    )
    if setup is None:
        raise CheckFailedError("no party was sent the agreement")
    rows = dict(enumerate(run.parties.values()))
    for sent, reply in spy.pairs:
        config = records.config_of(sent)
        if "exchange" not in config:
            continue  # the schema exchange, the same for all methods
        exchange = exchange_of(strategy.contract, config)
        own = rows[sorted(spy.get_node_ids()).index(reply.metadata.src_node_id)]
        sizes = door.sizes_of(exchange, sent, strategy.contract.sizes(setup, own))
        weight = own if exchange.weight == "rows" else 1
        number = int(str(config[records.NUMBER]))
        try:
            door.accepted(exchange, reply.content, sizes, weight=weight, number=number)
        except door.RefusedError as error:
            raise CheckFailedError(f"exchange '{exchange.name}': {error}") from None


def check_no_entry_for_each_row(subject: Subject) -> None:
    """Check that no array of a reply has an entry for each row without declaring it."""
    tables = subject.tables_of_rows()
    if any(name in tables[0].columns for name in subject.strategy.options.role_columns):
        raise CheckSkippedError("rows with ids cannot be doubled")
    doubled = [pd.concat([table, table], ignore_index=True) for table in tables]
    contract = subject.strategy.contract
    single, double = _axes(contract, subject.run()), _axes(contract, subject.run(doubled))
    for thing, axes in single.items():
        if thing.rows:
            continue
        for axis, sizes in axes.items():
            twice = double.get(thing, {}).get(axis, [])
            if sizes == [len(table) for table in tables] and twice == [2 * n for n in sizes]:
                raise CheckFailedError(
                    f"axis {axis} of '{thing.name}' ({thing.meaning}) has the size of the party's "
                    "rows: declare in 'rows' of which rows, or send sums"
                )


def check_resume(subject: Subject) -> None:
    """Check that a run that is killed in the middle goes on to the same result, bit for bit."""
    whole, _ = subject.run()
    with tempfile.TemporaryDirectory(prefix="flwr-causal-") as directory:
        with suppress(KilledError):
            subject.simulate(
                wrap_grid=lambda grid: Killing(grid, (whole.rounds + 1) // 2),
                output_dir=directory,
            )
        resumed = subject.simulate(output_dir=directory, resume=True)
        _expect_same(subject, whole, resumed, tolerance=0.0)


def check_secure_sums(subject: Subject) -> None:
    """Check that secure sums give the result of plain ones, where all that leaves is a sum.

    Where the method has replicates, they are part of the runs.
    """
    if len(subject.parties) < LEAST_PARTIES:
        raise CheckSkippedError(f"secure sums need {LEAST_PARTIES} parties")
    try:
        strategy = subject.strategy.with_options(secure_aggregation=True)
        masked = replace(subject, strategy=strategy).simulate()
    except ConfigError as error:
        raise CheckSkippedError(str(error)) from None
    whole, _ = subject.run()
    if subject.strategy.options.small_counts != "report":
        # Secure sums have all counts, and the run without them lacks small ones.
        every = subject.strategy.with_options(small_counts="report")
        whole = replace(subject, strategy=every).simulate()
    _expect_same(subject, whole, masked)
    _check_replicates(subject, strategy)
    if len(subject.parties) < 2 * LEAST_PARTIES:
        return
    try:
        grouped = strategy.with_options(groups=2)
    except ConfigError:
        return
    _expect_same(subject, whole, replace(subject, strategy=grouped).simulate())


def _check_replicates(subject: Subject, secure: CausalStrategy) -> None:
    """Check that secure sums of several trainings give the result of plain ones."""
    runs = []
    for strategy in (subject.strategy, secure):
        try:
            own = replace(subject, strategy=strategy.with_options(replicates=REPLICATES))
            runs.append(own.simulate())
        except ConfigError:
            return
    _expect_same(subject, runs[0], runs[1])
    confidence = [None if run.graph is None else run.graph.confidence for run in runs]
    if any(one is not None for one in confidence):
        apart, text = distance(*({"confidence": np.asarray(one, float)} for one in confidence))
        if apart > TOLERANCE:
            raise CheckFailedError(f"with replicates {text}")


CHECKS: tuple[Callable[[Subject], None], ...] = (
    check_runs,
    check_same_seed_same_result,
    check_order_of_parties,
    check_split_of_rows,
    check_nothing_undeclared_travels,
    check_no_entry_for_each_row,
    check_resume,
    check_secure_sums,
)


def _axes(contract: Contract, result: tuple[Run, Spy]) -> dict[Disclosure, dict[int, list[int]]]:
    """Return by disclosure and axis the sizes in the first replies of all parties."""
    sizes: dict[Disclosure, dict[int, list[int]]] = {}
    seen: set[Any] = set()
    for sent, reply in result[1].pairs:
        config, node = records.config_of(sent), reply.metadata.src_node_id
        if "exchange" not in config or (config["exchange"], node) in seen:
            continue
        seen.add((config["exchange"], node))
        declared = {one.name: one for one in exchange_of(contract, config).returns}
        for name, array in records.arrays_of(reply.content).items():
            for axis, size in enumerate(array.shape):
                of_thing = sizes.setdefault(declared[name], {})
                of_thing.setdefault(axis, []).append(size)
    return sizes


def _expect_same(subject: Subject, one: Run, other: Run, tolerance: float = TOLERANCE) -> None:
    """Raise if two runs found different graphs, or models of different likelihood."""
    first, second = subject.result(one), subject.result(other)
    if not first or not second:
        raise CheckSkippedError("there is no graph and no likelihood to compare")
    apart, text = distance(first, second)
    if apart > tolerance:
        raise CheckFailedError(text)
