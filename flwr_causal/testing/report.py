"""All checks of a method, and the report on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from flwr_causal.app import methods
from flwr_causal.testing.checks import CHECKS
from flwr_causal.testing.faults import FAULTS
from flwr_causal.testing.subject import CheckFailedError, CheckSkippedError, Subject
from flwr_causal.testing.trials import CODES, WHERE, check_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from flwr_causal.clients import CausalClient
    from flwr_causal.strategies import CausalStrategy

Status = Literal["passed", "failed", "skipped", "expected failure"]


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Parameters
    ----------
    name : str
        Of a fault: ``"<fault>, one exchange"`` or ``"<fault>, all exchanges"``.
    status : {"passed", "failed", "skipped", "expected failure"}
    detail : str
        What does not hold, or why the check was skipped or expected to fail.
    code : str
        Of a fault, what became of the run: a key of :data:`flwr_causal.testing.trials.CODES`.

    Examples
    --------
    >>> from flwr_causal.testing import CheckResult
    >>> CheckResult("order_of_parties", "failed", "edges differ").status
    'failed'
    """

    name: str
    status: Status
    detail: str = ""
    code: str = ""


@dataclass(frozen=True)
class Report:
    """The results of all checks of a method.

    Parameters
    ----------
    method : str
        The method's id.
    results : tuple of CheckResult

    Examples
    --------
    >>> from flwr_causal.testing import CheckResult, Report
    >>> Report("mine", (CheckResult("order_of_parties", "passed"),)).passed
    True
    """

    method: str
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Whether all failures were expected."""
        return all(result.status != "failed" for result in self.results)

    @property
    def codes(self) -> dict[str, tuple[str, ...]]:
        """By fault, the codes of a fault in one exchange and in all exchanges."""
        codes = {result.name: result.code for result in self.results if result.code}
        rows = {
            fault.name: [codes.get(f"{fault.name}, {w}", "") for w in WHERE] for fault in FAULTS
        }
        return {name: tuple(row) for name, row in rows.items() if any(row)}

    def table(self) -> str:
        """Return the results as text: a line for each check, then the table of faults."""
        lines = [f"{self.method}: {'passed' if self.passed else 'FAILED'}"]
        # A fault has a cell in the table below, and a line only if it failed.
        lined = [one for one in self.results if not one.code or "fail" in one.status]
        width = max((len(result.name) for result in lined), default=0)
        for result in lined:
            detail = f"  {result.detail}" if result.detail else ""
            lines.append(f"  {result.name:<{width}}  {result.status}{detail}".rstrip())
        if self.codes:
            lines += ["", fault_table({"one exchange/all": self})]
        return "\n".join(lines)


def fault_table(reports: Mapping[str, Report]) -> str:
    """Return the outcome of every fault as text, a row for each.

    Parameters
    ----------
    reports : mapping of str to Report
        By the heads of their columns. A cell holds the code of a fault in one exchange and that of
        the same fault in all exchanges; a single code stands for both.

    Examples
    --------
    >>> from flwr_causal.testing import CheckResult, Report, fault_table
    >>> report = Report("mine", (CheckResult("no reply, one exchange", "passed", code="="),))
    >>> "no reply" in fault_table({"mine": report})
    True
    """
    names = [fault.name for fault in FAULTS if any(fault.name in r.codes for r in reports.values())]
    table = [["", *reports]]
    for name in names:
        cells = [report.codes.get(name, ("",)) for report in reports.values()]
        table.append([name, *("/".join(dict.fromkeys(codes)) for codes in cells)])
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = ["  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)) for row in table]
    used = {code for r in reports.values() for codes in r.codes.values() for code in codes}
    legend = [f"{code}  {meaning}" for code, meaning in CODES.items() if code in used]
    return "\n".join(line.rstrip() for line in [*lines, "", *legend])


def check_method(
    method: str | CausalStrategy,
    parties: Sequence[Any],
    client: type[CausalClient] | None = None,
    *,
    expected_failures: Mapping[str, str] | None = None,
    **options: Any,
) -> Report:
    """Run all checks of a method.

    Each fault of :data:`flwr_causal.testing.faults.FAULTS` takes two runs: choose small tables.

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

    Examples
    --------
    >>> from flwr_causal.testing import check_method
    >>> report = check_method("moments", tables)  # doctest: +SKIP
    >>> assert report.passed, report.table()  # doctest: +SKIP
    """
    strategy = _strategy(method, options)
    checks = method_checks(strategy, parties, client)
    return report_of(strategy.method, checks, expected_failures or {})


def report_of(
    method: str,
    checks: Iterable[tuple[str, Callable[[], str | None]]],
    expected_failures: Mapping[str, str],
) -> Report:
    """Run checks, as :func:`method_checks` yields them, and return their results."""
    results = []
    for name, check in checks:
        try:
            result = CheckResult(name, "passed", code=check() or "")
        except CheckSkippedError as reason:
            result = CheckResult(name, "skipped", str(reason), reason.code)
        except CheckFailedError as error:
            result = CheckResult(name, "failed", str(error), error.code)
        except Exception as error:
            result = CheckResult(name, "failed", f"{type(error).__name__}: {error}")
        if result.status == "failed" and name in expected_failures:
            result = replace(result, status="expected failure", detail=expected_failures[name])
        results.append(result)
    return Report(method, tuple(results))


def method_checks(
    method: str | CausalStrategy,
    parties: Sequence[Any],
    client: type[CausalClient] | None = None,
    **options: Any,
) -> Iterator[tuple[str, Callable[[], str | None]]]:
    """Yield the name of each check, and the check: a function without arguments.

    A check raises :class:`CheckFailedError`, or :class:`CheckSkippedError` where it has no meaning;
    that of a fault returns the code of the run's outcome. Parameters are those of
    :func:`check_method`.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> from flwr_causal.testing import method_checks
    >>> tables, truth = federated_linear(3, 60, 2)
    >>> "order_of_parties" in [name for name, check in method_checks("moments", tables)]
    True
    """
    subject = Subject(_strategy(method, options), tuple(parties), client)
    for check in CHECKS:
        yield check.__name__.removeprefix("check_"), partial(check, subject)
    for fault in FAULTS:
        for where in WHERE:
            yield f"{fault.name}, {where}", partial(check_fault, subject, fault, where)


def parametrize_with_checks(
    subjects: Sequence[tuple[Any, ...]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a pytest decorator that makes a test of each check of each method.

    Parameters
    ----------
    subjects : sequence of (method, parties) or (method, parties, client)
        The decorated test has an argument ``check``, and calls it.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> from flwr_causal.testing import parametrize_with_checks
    >>> tables, truth = federated_linear(3, 60, 2)
    >>> @parametrize_with_checks([("moments", tables)])
    ... def test_moments(check):
    ...     check()
    """
    import pytest

    def runs(check: Callable[[], Any]) -> Callable[[], None]:
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


def _strategy(method: str | CausalStrategy, options: Mapping[str, Any]) -> CausalStrategy:
    return methods.build(method, options) if isinstance(method, str) else method
