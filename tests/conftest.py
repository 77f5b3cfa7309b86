"""Fixtures of the tests of the protocol."""

import pytest
from federations import make_federation
from threadpoolctl import threadpool_limits

from flwr_causal.simulations import simulate

# Threads cost more than they bring on matrices of this size; on a busy machine they cost minutes.
threadpool_limits(limits=1, user_api="blas")


@pytest.fixture(scope="session")
def federation():
    """Three parties with 80 rows each of one system of five variables."""
    return make_federation()


@pytest.fixture(scope="session")
def admm_run(federation):
    """A finished run of NOTEARS-ADMM over it; read only."""
    return simulate("notears-admm", federation.tables, max_rounds=20, truth=federation.truth)


@pytest.fixture(scope="session")
def moments_run(federation):
    """A finished run of the moments method over it; read only."""
    return simulate("moments", federation.tables, truth=federation.truth)
