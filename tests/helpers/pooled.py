"""What the sources of ``moments`` give the server, and the same from rows in one place."""

import numpy as np
from federations import app_of

from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import Moments, run


class _FoundError(Exception):
    """The products are there."""


class _Pooling(Moments):
    """Ends once it has the products of a training."""

    wanted = 0

    def _pooled(self, agreement, replicate):
        pooled, masks = yield from super()._pooled(agreement, replicate)
        if replicate == self.wanted:
            self.pooled, self.possible = pooled, masks
            raise _FoundError
        return pooled, masks


def pooled(tables, **further):
    """The ``Products`` of a run on tables, see :func:`pooled_and_possible`."""
    return pooled_and_possible(tables, **further)[0]


def pooled_and_possible(tables, *, replicate=0, grid=lambda own: own, **options):
    """The ``Products`` of a run, and the masks of possible edges; ``grid`` disturbs the run."""
    method = _Pooling(**options)
    method.wanted = replicate
    try:
        run(method, grid(LocalGrid(app_of(tables), len(tables))))
    except _FoundError:
        return method.pooled, method.possible
    raise AssertionError("the run has ended before")


def products(rows):
    """The sums of products of the rows [1, z]."""
    own = np.column_stack([np.ones(len(rows)), rows])
    return own.T @ own
