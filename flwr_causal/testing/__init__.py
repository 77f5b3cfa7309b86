"""Checks of a method against its contract, also for methods of other packages.

:func:`check_method` runs a method on a few parties, runs it again under small changes (another
order of the parties, a faulty party), and reports which checks fail::

    report = check_method("notears-admm", parties)
    print(report.table())
    assert report.passed

Under pytest each check is a test of its own::

    @parametrize_with_checks([(MyStrategy(), parties, MyClient)])
    def test_my_method(check):
        check()
"""

from flwr_causal.testing.report import (
    CheckResult,
    Report,
    check_method,
    fault_table,
    method_checks,
    parametrize_with_checks,
)
from flwr_causal.testing.subject import CheckFailedError, CheckSkippedError

__all__ = [
    "CheckFailedError",
    "CheckResult",
    "CheckSkippedError",
    "Report",
    "check_method",
    "fault_table",
    "method_checks",
    "parametrize_with_checks",
]
