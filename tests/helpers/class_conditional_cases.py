"""Tables of numbers, a category and a class, and the exchange with several parties."""

import numpy as np
from trainings_by_sums import check_arrays, names_of, walked

from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.class_conditional.learner import ClassConditional

#: Grids small enough for tests.
QUICK = ClassConditional(
    target="kind",
    head=False,
    powers=(-1.0, 0.0, 0.5, 1.0, 2.0),
    diagonals=(0.0, 0.1),
    pooled=(0.0, 0.2),
    dof=(np.inf, 8.0),
    cuts=(0.2, 0.6),
)
#: Nothing is chosen: a Gaussian for each class.
PLAIN = ClassConditional(
    target="kind",
    head=False,
    powers=(1.0,),
    diagonals=(0.0,),
    pooled=(0.0,),
    dof=(np.inf,),
    cuts=(1.0,),
)


def domain_of(num_classes=2, with_category=True):
    """Numbers p, q, r, a category and the class."""
    variables = [Variable(name) for name in "pqr"]
    if with_category:
        variables.append(Variable("site", ("north", "south", "west")))
    return Domain((*variables, Variable("kind", tuple("ABCD"[:num_classes]))))


def values_of(n=150, num_classes=2, with_category=True, seed=0):
    """Values of `domain_of`: skew, correlated numbers that tell the class."""
    rng = np.random.default_rng(seed)
    classes = rng.choice(
        num_classes, n, p=np.arange(1, num_classes + 1)[::-1] / sum(range(num_classes + 1))
    )
    normal = rng.normal(size=(n, 3)) @ np.array([[1.0, 0.7, 0.0], [0.0, 0.7, 0.2], [0.0, 0.0, 1.0]])
    numbers = normal + classes[:, None] * np.array([1.0, 0.5, -1.0])
    numbers[:, 0] = np.exp(0.5 * numbers[:, 0]) * 20
    columns = [numbers]
    if with_category:
        columns.append(np.where(rng.random(n) < 0.5, classes % 3, rng.integers(0, 3, n))[:, None])
    return np.column_stack((*columns, classes))


def exchanged(learner, parties, plan, presence=None):
    """Exchange until all is known, checking that arrays can be sent; return the names too."""
    found, seen = walked(learner.training(plan, presence), plan, parties)
    check_arrays(seen)
    return found, names_of(seen)
