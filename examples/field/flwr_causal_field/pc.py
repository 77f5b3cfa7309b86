"""The PC algorithm, stable in the order of the tests, without its tests (Colombo & Maathuis 2014).

References
----------
Spirtes, P. & Glymour, C. (1991). An algorithm for fast recovery of sparse causal graphs. Social
Science Computer Review 9.
Colombo, D. & Maathuis, M. H. (2014). Order-independent constraint-based causal structure learning.
JMLR 15.
"""

from itertools import combinations
from typing import Any

import numpy as np

from flwr_causal.core.graphs.equivalence import meek


class Skeleton:
    """The pairs that no test has separated so far."""

    def __init__(self, num_variables: int) -> None:
        self.joined = ~np.eye(num_variables, dtype=bool)
        self.separated: dict[Any, Any] = {}

    def tests(self, size: int) -> Any:
        """Return the tests of a level: two columns, and ``size`` neighbours of one of them."""
        return sorted(
            {
                (*sorted((i, j)), *fixed)
                for i, j in np.argwhere(self.joined).tolist()
                for fixed in combinations(np.flatnonzero(self.joined[i]).tolist(), size)
                if j not in fixed
            }
        )

    def learn(self, tests: Any, p_values: Any, alpha: float) -> None:
        """Separate pairs whose p-value is above alpha; the set of the largest one is kept."""
        for p, (i, j, *fixed) in sorted(zip(p_values, tests, strict=True)):
            if p > alpha:
                self.joined[i, j] = self.joined[j, i] = False
                self.separated[i, j] = (p, fixed)

    def directed(self) -> Any:
        """Return the class: colliders i -> k <- j, and what follows from them."""
        marks = self.joined.copy()
        # Of colliders that contradict each other, that of the larger p-value holds.
        for (i, j), (_, fixed) in sorted(self.separated.items(), key=lambda item: -item[1][0]):
            for k in np.flatnonzero(self.joined[i] & self.joined[j]).tolist():
                if k not in fixed and marks[i, k] and marks[j, k]:
                    marks[k, [i, j]] = False
        return meek(marks)
