"""What "auto" stands for in FedPC, against the same rules written as nested questions."""

from itertools import product

import numpy as np
import pytest

from flwr_causal.core.circuits.learners.by_name import NAMES
from flwr_causal.errors import ConfigError
from flwr_causal.strategies.fedpc.choices import (
    Facts,
    learner_of_tables,
    training_of_tables,
    weights_of_tables,
)
from flwr_causal.strategies.fedpc.holdings import Holdings
from flwr_causal.strategies.fedpc.options import FedPCOptions

COLUMNS = ("a", "b", "y")


def facts(same, ids, known, numbers, shared, **options):
    """Two parties; the second one lacks column a, or the target as well."""
    presence = np.ones((2, 3), dtype=bool)
    presence[1] = [same, True, known or same]
    missing = np.zeros(3, dtype=bool)
    holdings = Holdings(
        ("p", "q"), COLUMNS, presence, 9 * presence, missing, np.array([shared, False, False]), ids
    )
    return Facts(FedPCOptions(**options), holdings, options.get("target", ""), numbers)


def expected(same, ids, known, numbers, shared, options):
    """Learner, training and weights."""
    target = options.get("target", "")
    learner = options.get("learner", "auto")
    asked = learner in ("auto", "trees")
    if learner == "auto":
        learner = "class-conditional" if numbers and not shared else "trees"
    by_sums = learner in ("class-conditional", "trees", "einsum")
    plain = "components" not in options and options.get("head") is not True
    weights = "counts"
    if not same:
        if target and known:
            weights = "classes"
        elif ids:
            weights = "em"
    if "weights" in options:
        training = "one-pass"
        if not same:
            weights = options["weights"]
    elif same:
        training = "sums" if by_sums else "one-pass"
    elif learner == "class-conditional" and (not target or known or (ids and plain)):
        training = "sums"
    else:
        training = "triples" if ids and plain and asked else "one-pass"
    return learner, training, weights


OPTIONS = [
    {},
    {"target": "y"},
    {"target": "y", "components": 2},
    {"target": "y", "head": True},
    {"weights": "counts"},
    {"target": "y", "weights": "counts"},
    *({"target": "y", "learner": name} for name in NAMES if name != "decision-tree"),
]


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_auto_stands_for_what_the_tables_allow(options):
    for tables in product([False, True], repeat=5):
        found = facts(*tables, **options)
        learner = learner_of_tables(found)
        known = facts(*tables, **options)
        known = Facts(known.options, known.holdings, known.target, known.numbers, learner)
        chosen = learner, training_of_tables(known), weights_of_tables(known)
        assert chosen == expected(*tables, options), tables


def test_sums_that_are_asked_for_need_what_they_do_by_default():
    for tables in product([False, True], repeat=5):
        auto = facts(*tables, target="y")
        learner = learner_of_tables(auto)
        parts = auto.holdings, "y", auto.numbers, learner
        by_default = training_of_tables(Facts(auto.options, *parts))
        asked = Facts(FedPCOptions(target="y", training="sums"), *parts)
        if by_default == "sums":
            assert training_of_tables(asked) == "sums"
        else:
            with pytest.raises(ConfigError, match="training='sums' over different columns"):
                training_of_tables(asked)
