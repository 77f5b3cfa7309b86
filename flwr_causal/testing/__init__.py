"""Checks of a method against its contract, for anybody's method.

:func:`check_method` runs a method on a few parties under small changes and with faulty parties, and
reports what does not hold::

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
    "method_checks",
    "parametrize_with_checks",
]
