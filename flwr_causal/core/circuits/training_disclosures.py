"""What the sums of each training are: for each phase names, meanings and numbers of axes."""

from __future__ import annotations

Phases = dict[str, dict[str, tuple[str, int]]]

#: Layers of an Einsum network that may travel: as many splits as 65,536 columns have.
MOST_LAYERS = 16


def _class_first(more: int) -> Phases:
    """Return those of class-first circuits; `more` axes where parties hold different columns."""
    return {
        "scale": {
            "counts": ("rows of each class", 1 + more),
            "first": ("sums of each class", 2),
            "second": ("sums of squares of each class", 2),
        },
        "powers": {
            "logs": ("sums of logarithms of each class", 2),
            "powers": ("sums of powers of each class", 4),
        },
        "moments": {
            "counts": ("rows of each fold and class", 2 + more),
            "first": ("sums of each fold and class", 3 + more),
            "second": ("sums of products of each fold and class", 3),
            "tables": ("rows of each state by fold and class", 3),
        },
        "held-out": {
            "likelihoods": ("log-likelihoods under circuits of other rows", 1),
            "log_losses": ("log losses of the class under these", 2),
        },
    }


_ODDS = {"log_odds": ("rows by class and log odds", 2)}

_HEAD: Phases = {
    "head": {
        "count": ("rows", 1),
        "loss": ("log loss of the head", 1),
        "gradient": ("its gradient", 1),
        "hessian": ("its second derivatives", 1),
        "first": ("sums of the log densities of each class", 2),
        "second": ("sums of their squares", 2),
    },
    "threshold": _ODDS,
}

CLASS_FIRST: Phases = _class_first(0) | _HEAD
CLASS_FIRST_PATTERN: Phases = _class_first(1)

TREES: Phases = {
    "pairs": {"counts": ("rows of each pair of states, by class", 2)},
    "products": {"counts": ("weighted rows of each state, by component", 2)},
    "trees": {"counts": ("weighted rows of each pair of states, by component", 2)},
    "odds": _ODDS,
    "fold-pairs": {"counts": ("rows of each pair of states, by fold and class", 2)},
} | _HEAD

EINSUM: Phases = {
    "scale": {
        "rows": ("rows", 1),
        "counts": ("values of each column", 1),
        "first": ("sums of each column", 1),
        "second": ("sums of squares of each column", 1),
        "states": ("rows of each state", 1),
    },
    "counts": {
        "statistics": ("weighted sums, squares and states of each unit", 3),
        "presence": ("weighted values of each unit", 3),
        **{
            f"layer.{level}": ("weighted rows of each pair of sums below each sum", 5)
            for level in range(MOST_LAYERS)
        },
        "root": ("weighted rows of each class and replica", 2),
        "rows": ("rows", 1),
        "log_densities": ("log-likelihood of the rows", 1),
    },
}
