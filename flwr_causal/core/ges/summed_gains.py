"""A score of all rows from sums of the parties' likelihoods: its penalty is paid once.

The sum of the parties' own gains in log-likelihood
(:mod:`flwr_causal.core.discrete.likelihood_gains`) is that of a model in which every party has its
own probabilities. Where x and y are independent given S, K parties add K mean gains, not one: the
sum is reduced by ``excess = (1 - 1/K) * sum of the means``, which leaves one of them. And the
variance of the sum is larger than that of the gain of the pooled rows by about the excess (twice a
gain is about chi-squared, whose variance is twice its mean). A gain is therefore

    sum of gains - excess - max(penalty, noise * sqrt(excess)),

with the penalty of BIC or qNML for the rows of all parties together. For one party it is the gain
of BIC or qNML.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.compiled import compiled_in_place
from flwr_causal.core.discrete.scores import ScoreTerms, penalty_gain
from flwr_causal.core.ges.speculative_search import SpeculativeGains

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.discrete.families import Families

#: Standard deviations by which a sum must exceed what independence gives: where counts follow,
#: which remove edges again, and where they do not. Measured on samples of alarm, hailfinder,
#: win95pts and andes with 5 to 20 parties.
SCREENING_NOISE, NOISE = 5.0, 6.0


class SummedGains(SpeculativeGains):
    """Gains from sums of the parties' likelihoods, estimates of the others.

    Parameters
    ----------
    cardinalities : ndarray of int64, shape (d,)
    terms : ScoreTerms
        BIC or qNML of the rows of all parties.
    num_parties : int
    noise : float, default NOISE
        Standard deviations by which a sum must exceed what independence gives.
    """

    def __init__(
        self,
        cardinalities: IntArray,
        terms: ScoreTerms,
        num_parties: int,
        noise: float = NOISE,
    ) -> None:
        super().__init__(cardinalities, 0.5 * math.log(max(terms.num_rows, 2.0)))
        self.terms = terms
        self.num_parties = num_parties
        self.noise = noise

    def learn_sums(self, likelihoods: FloatArray, means: FloatArray) -> None:
        """Store the sums of the answers to :meth:`questions`, each of shape (M,)."""
        excess = (1.0 - 1.0 / self.num_parties) * means
        _score(
            self.families,
            self.in_order(),
            likelihoods,
            excess,
            self.noise * np.sqrt(excess),
            self.terms,
            self.cardinalities,
        )


@compiled_in_place
def _score(
    families: Families,
    asked: IntArray,
    likelihoods: FloatArray,
    excess: FloatArray,
    margin: FloatArray,
    terms: ScoreTerms,
    cards: IntArray,
) -> None:
    """Write the gains of (row, x) of ``asked``, shape (M, 2)."""
    for k in range(len(asked)):
        row, x = asked[k, 0], asked[k, 1]
        cells = 1.0
        for m in range(families.sizes[row]):
            cells *= cards[families.members[row, m]]
        penalty = penalty_gain(terms, cells, float(cards[x]), float(cards[families.owners[row]]))
        least = max(penalty, margin[k])
        families.gains[row, x] = likelihoods[k] - excess[k] - least
