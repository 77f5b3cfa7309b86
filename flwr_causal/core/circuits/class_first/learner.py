"""A class-first circuit from one table, without any exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.class_first.model import density_of, fitted
from flwr_causal.core.circuits.class_first.rows import NUM_FOLDS, plan_for
from flwr_causal.core.circuits.class_first.training import Options, State, train

if TYPE_CHECKING:
    from flwr_causal.core.circuits.circuit import Circuit
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.model import CircuitModel

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ClassFirstLearner:
    """Learner of class-first circuits.

    Parameters
    ----------
    target : str, optional
        The class, a category. None: there is none, and one leaf over all numbers is learned.
    options : Options
        A head and a threshold among them; they are for :meth:`learn_both`. The defaults serve a
        party of a few rows too: held-out rows ask for what shrinkage it needs.
        A party's circuit holds the classes that it has rows of.
    num_folds : int
    """

    target: str | None = None
    options: Options = field(default_factory=Options)
    num_folds: int = NUM_FOLDS

    def learn(self, domain: Domain, values: FloatArray, seed: int = 0) -> Circuit:
        """Return the circuit of the best density; see :meth:`learn_both`."""
        return density_of(self._trained(domain, values, seed), domain)

    def learn_both(self, domain: Domain, values: FloatArray, seed: int = 0) -> CircuitModel:
        """Return the circuit of the best density, and what tells the class best.

        Parameters
        ----------
        domain : Domain
            With one number at least.
        values : ndarray of float, shape (n, number of variables)
            As ``Domain.encode`` makes them, without missing values.
        seed : int
            Of the folds.

        Raises
        ------
        ConfigError
            If there is no number, or the options do not fit the target.
        DataError
            If values are missing, a column is constant, or there are fewer than 2 rows.
        """
        return fitted(self._trained(domain, values, seed), domain)

    def _trained(self, domain: Domain, values: FloatArray, seed: int) -> State:
        plan = plan_for(domain, self.target, num_folds=self.num_folds, seed=seed)
        return train([values], plan, self.options)
