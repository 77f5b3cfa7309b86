"""Checks of a method against its contract, also for methods of other packages.

:func:`check_method` runs a method on a few parties, runs it again under small changes (another
order of the parties, lost replies), and reports which checks fail::

    report = check_method("notears-admm", parties)
    print(report.table())
    assert report.passed

Under pytest each check is a test of its own::

    @parametrize_with_checks([(MyStrategy(), parties, MyClient)])
    def test_my_method(check):
        check()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from flwr_causal.core.circuits.presence import joined_tables
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.read.tables import read_table
from flwr_causal.errors import CausalError
from flwr_causal.protocol import door, records
from flwr_causal.simulations import simulate

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict

    from flwr_causal.clients import CausalClient
    from flwr_causal.reports.run import Run
    from flwr_causal.strategies import CausalStrategy

Status = Literal["passed", "failed", "skipped", "expected failure"]
Subject = tuple["CausalStrategy[Any]", Sequence[Any], "type[CausalClient] | None"]

#: Sums of floats in another order differ by so much, relative to the largest weight.
TOLERANCE = 1e-6


class CheckFailedError(AssertionError):
    """A method does not do what its contract says."""


class CheckSkippedError(Exception):
    """A check has no meaning for the method; the message says why."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Parameters
    ----------
    name : str
    status : {"passed", "failed", "skipped", "expected failure"}
    detail : str
        What does not hold, or why the check was skipped or expected to fail.
    """

    name: str
    status: Status
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """The results of all checks of a method.

    Parameters
    ----------
    method : str
        The method's id.
    results : tuple of CheckResult
    """

    method: str
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Whether all failures were expected."""
        return all(result.status != "failed" for result in self.results)

    def table(self) -> str:
        """Return the results as text, a line for each check."""
        width = max(len(result.name) for result in self.results)
        lines = [f"{self.method}: {'passed' if self.passed else 'FAILED'}"]
        for result in self.results:
            detail = f"  {result.detail}" if result.detail else ""
            lines.append(f"  {result.name:<{width}}  {result.status}{detail}")
        return "\n".join(lines)


def check_method(
    method: str | CausalStrategy[Any],
    parties: Sequence[Any],
    client: type[CausalClient] | None = None,
    *,
    expected_failures: Mapping[str, str] | None = None,
    **options: Any,
) -> Report:
    """Run all checks of a method.

    Parameters
    ----------
    method, parties, client, options
        As of :func:`flwr_causal.simulations.simulate`; at least two parties.
    expected_failures : mapping of str to str, optional
        Names of checks that are known to fail, and why.

    Returns
    -------
    Report

    Raises
    ------
    ConfigError
        For an unknown method or option.
    """
    strategy = _strategy(method, options)
    known = expected_failures or {}
    results = []
    for name, check in method_checks(strategy, parties, client):
        try:
            check()
            result = CheckResult(name, "passed")
        except CheckSkippedError as reason:
            result = CheckResult(name, "skipped", str(reason))
        except (CheckFailedError, CausalError) as error:
            result = CheckResult(name, "failed", str(error))
        if result.status == "failed" and name in known:
            result = CheckResult(name, "expected failure", known[name])
        results.append(result)
    return Report(strategy.method, tuple(results))


def method_checks(
    method: str | CausalStrategy[Any],
    parties: Sequence[Any],
    client: type[CausalClient] | None = None,
    **options: Any,
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the name of each check, and the check: a function without arguments.

    A check raises :class:`CheckFailedError`, or :class:`CheckSkippedError` where it has no meaning.
    Parameters are those of :func:`check_method`.
    """
    subject = (_strategy(method, options), tuple(parties), client)
    undisturbed = _Undisturbed(subject)
    for check in CHECKS:
        yield check.__name__.removeprefix("check_"), partial(check, undisturbed)


def parametrize_with_checks(
    subjects: Sequence[tuple[Any, ...]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a pytest decorator that makes a test of each check of each method.

    Parameters
    ----------
    subjects : sequence of (method, parties) or (method, parties, client)
        The decorated test has an argument ``check``, and calls it.
    """
    import pytest

    def runs(check: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                check()
            except CheckSkippedError as reason:
                pytest.skip(str(reason))

        return run

    cases = [
        pytest.param(runs(check), id=f"{_strategy(subject[0], {}).method}-{name}")
        for subject in subjects
        for name, check in method_checks(*subject)
    ]
    return pytest.mark.parametrize("check", cases)


@dataclass
class _Undisturbed:
    """A method on its parties, and its run without any change, made when it is first needed."""

    subject: Subject
    _kept: list[tuple[Run, _Spy]] = field(default_factory=list)

    @property
    def strategy(self) -> CausalStrategy[Any]:
        return self.subject[0]

    @property
    def tables(self) -> list[pd.DataFrame]:
        return [read_table(party) for party in self.subject[1]]

    def run(self, parties: Sequence[Any] | None = None) -> tuple[Run, _Spy]:
        """Return the run on these parties, by default the method's own, and its messages."""
        if parties is None and self._kept:
            return self._kept[0]
        spies: list[_Spy] = []

        def spied(grid: Any) -> _Spy:
            spies.append(_Spy(grid))
            return spies[0]

        strategy, own, client = self.subject
        run = simulate(
            strategy, own if parties is None else parties, client=client, wrap_grid=spied
        )
        if parties is None:
            self._kept.append((run, spies[0]))
        return run, spies[0]


class _Spy:
    """A grid that keeps what is sent and what comes back."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self.pairs: list[tuple[RecordDict, Message]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        sent = list(messages)
        contents = {one.metadata.dst_node_id: one.content for one in sent}
        replies = list(self._grid.send_and_receive(sent, timeout=timeout))
        for reply in replies:
            if reply.has_content():
                self.pairs.append((contents[reply.metadata.src_node_id], reply))
        return replies


class _Losing(_Spy):
    """A grid that loses the first reply of one node in each exchange."""

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        sent = list(messages)
        replies = list(self._grid.send_and_receive(sent, timeout=timeout))
        if len(sent) < 2 or any(one.metadata.message_type != "train" for one in sent):
            return replies
        from flwr.app import Error, Message

        lost = Message(Error(code=0, reason="the reply was lost"), reply_to=sent[0])
        return [
            lost if reply.metadata.src_node_id == sent[0].metadata.dst_node_id else reply
            for reply in replies
        ]


def check_runs(method: _Undisturbed) -> None:
    """Check that the run ends with a graph or a model and leaves no party out."""
    run, _ = method.run()
    if run.graph is None and run.model is None:
        raise CheckFailedError("the run ended without a graph and without a model")
    if run.failures:
        raise CheckFailedError(f"parties were left out of an undisturbed run: {run.failures}")


def check_same_seed_same_result(method: _Undisturbed) -> None:
    """Check that a second run with the same seed gives the same result, bit for bit."""
    parties = method.subject[1]
    _expect_same(method, method.run()[0], method.run(parties)[0], tolerance=0.0)


def check_order_of_parties(method: _Undisturbed) -> None:
    """Check that the result does not depend on the order of the parties."""
    _expect_same(method, method.run()[0], method.run(method.subject[1][::-1])[0])


def check_split_of_rows(method: _Undisturbed) -> None:
    """Check that pooled rows give the same result in another split, and at one party."""
    if not method.strategy.pools_rows:
        raise CheckSkippedError("the method does not say that it pools rows (pools_rows)")
    tables = _tables_of_rows(method)
    whole = pd.concat(tables, ignore_index=True)
    third = max(2, len(whole) // 3)
    for parties in ([whole.iloc[:third], whole.iloc[third:]], [whole]):
        _expect_same(method, method.run()[0], method.run(parties)[0])


def check_nothing_undeclared_travels(method: _Undisturbed) -> None:
    """Check that every request and every reply is one that the contract declares."""
    run, spy = method.run()
    strategy = method.strategy
    setup = next(
        (one for one in (_setup_of(sent) for sent, _ in spy.pairs) if one is not None), None
    )
    if setup is None:
        raise CheckFailedError("no party was sent the agreement")
    rows = dict(enumerate(run.parties.values()))
    for sent, reply in spy.pairs:
        config = records.config_of(sent)
        if "exchange" not in config:
            continue  # the schema exchange, the same for all methods
        exchange = strategy.contract.find(config["exchange"])
        own = rows[sorted(spy.get_node_ids()).index(reply.metadata.src_node_id)]
        sizes = door.sizes_of(exchange, sent, strategy.contract.sizes(setup, own))
        weight = own if exchange.weight == "rows" else 1
        number = int(str(config[records.NUMBER]))
        try:
            door.accepted(exchange, reply.content, sizes, weight=weight, number=number)
        except door.RefusedError as error:
            raise CheckFailedError(f"exchange '{exchange.name}': {error}") from None


def check_no_entry_for_each_row(method: _Undisturbed) -> None:
    """Check that no array of a reply has an entry for each row without declaring it."""
    tables = _tables_of_rows(method)
    if any(name in tables[0].columns for name in method.strategy.role_columns):
        raise CheckSkippedError("rows with ids cannot be doubled")
    doubled = [pd.concat([table, table], ignore_index=True) for table in tables]
    single, double = _axes(method, method.run()), _axes(method, method.run(doubled))
    for (name, thing), axes in single.items():
        declared = {one.name: one for one in method.strategy.contract.find(name).returns}
        if declared[thing].rows:
            continue
        for axis, sizes in axes.items():
            twice = double.get((name, thing), {}).get(axis, [])
            if sizes == [len(table) for table in tables] and twice == [2 * n for n in sizes]:
                raise CheckFailedError(
                    f"axis {axis} of '{thing}' in the exchange '{name}' has the size of the "
                    "party's rows: declare in 'rows' of which rows, or send sums"
                )


def check_lost_replies(method: _Undisturbed) -> None:
    """Check that the result does not change if replies are lost once and requested again."""
    strategy, parties, client = method.subject
    if len(parties) < 2:
        raise CheckSkippedError("needs two parties")
    disturbed = simulate(strategy, parties, client=client, wrap_grid=_Losing)
    if disturbed.failures:
        raise CheckFailedError(f"a party was left out after one lost reply: {disturbed.failures}")
    _expect_same(method, method.run()[0], disturbed, tolerance=0.0)


CHECKS: tuple[Callable[[_Undisturbed], None], ...] = (
    check_runs,
    check_same_seed_same_result,
    check_order_of_parties,
    check_split_of_rows,
    check_nothing_undeclared_travels,
    check_no_entry_for_each_row,
    check_lost_replies,
)


def _strategy(method: str | CausalStrategy[Any], options: Mapping[str, Any]) -> CausalStrategy[Any]:
    from flwr_causal.app import methods

    return methods.build(method, options) if isinstance(method, str) else method


def _tables_of_rows(method: _Undisturbed) -> list[pd.DataFrame]:
    """Return the parties' tables where they hold the same columns and no time series."""
    if method.strategy.data is DataKind.SERIES:
        raise CheckSkippedError("rows of time series cannot be split or doubled")
    tables = method.tables
    if any(set(table.columns) != set(tables[0].columns) for table in tables):
        raise CheckSkippedError("the parties hold different columns")
    return tables


def _setup_of(sent: RecordDict) -> Any:
    from flwr_causal.protocol.setup import PREFIX, Setup

    config = records.config_of(sent)
    return Setup.from_config(config) if f"{PREFIX}names" in config else None


def _axes(method: _Undisturbed, result: tuple[Run, _Spy]) -> dict[Any, dict[int, list[int]]]:
    """Return by exchange, thing and axis the sizes in the first replies of all parties."""
    sizes: dict[Any, dict[int, list[int]]] = {}
    seen: set[Any] = set()
    for sent, reply in result[1].pairs:
        config, node = records.config_of(sent), reply.metadata.src_node_id
        if "exchange" not in config or (config["exchange"], node) in seen:
            continue
        seen.add((config["exchange"], node))
        for thing, array in records.arrays_of(reply.content).items():
            for axis, size in enumerate(array.shape):
                of_thing = sizes.setdefault((config["exchange"], thing), {})
                of_thing.setdefault(axis, []).append(size)
    return sizes


def _expect_same(method: _Undisturbed, one: Run, other: Run, tolerance: float = TOLERANCE) -> None:
    """Raise if two runs found different graphs, or models of different likelihood."""
    if one.graph is not None and other.graph is not None:
        found = other.graph.reordered(one.graph.names)
        for name in ("weights", "lagged"):
            first, second = getattr(one.graph, name), getattr(found, name)
            if first is None or second is None:
                continue
            scale = max(1.0, float(np.abs(first).max(initial=0.0)))
            distance = float(np.abs(first - second).max(initial=0.0))
            if distance > tolerance * scale:
                edges = int(((first != 0) != (second != 0)).sum())
                raise CheckFailedError(
                    f"the {name} of the graph differ by up to {distance:.3g}, and {edges} edges "
                    "are in one graph only"
                )
        return
    if not hasattr(one.model, "log_likelihood"):
        raise CheckSkippedError("there is no graph and no likelihood to compare")
    rows = _all_rows(method)
    first, second = one.model.log_likelihood(rows), other.model.log_likelihood(rows)
    distance = float(np.abs(first - second).max(initial=0.0))
    if distance > max(tolerance, 1e-9) * max(1.0, float(np.abs(first).max(initial=0.0))):
        raise CheckFailedError(f"the log-likelihood of a row differs by up to {distance:.3g}")


def _all_rows(method: _Undisturbed) -> pd.DataFrame:
    """Return the complete rows of all parties in one table, joined by their ids if need be."""
    tables, roles = method.tables, method.strategy.role_columns
    if all(set(table.columns) == set(tables[0].columns) for table in tables):
        return pd.concat(tables, ignore_index=True)
    whole = joined_tables(tables, roles[0] if roles else "").dropna()
    if whole.empty:
        raise CheckSkippedError("no row is complete: there is nothing to compare on")
    return whole
