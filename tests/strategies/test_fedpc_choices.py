"""What FedPC trains, by its table, against the same rules written as nested questions."""

from itertools import product

import numpy as np
import pytest

from flwr_causal.core.circuits.learners.by_name import NAMES
from flwr_causal.errors import ConfigError
from flwr_causal.strategies.fedpc.holdings import Holdings
from flwr_causal.strategies.fedpc.options import FedPCOptions
from flwr_causal.strategies.fedpc.plan import ROWS, Facts, row_of

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
    """Learner, training, and weights in one pass."""
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
    return learner, training, weights if training == "one-pass" else ""


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
        row = row_of(found)
        assert (found.learner, row.training, row.weights) == expected(*tables, options), tables


def test_sums_that_are_asked_for_need_what_they_do_by_default():
    for tables in product([False, True], repeat=5):
        by_default = row_of(facts(*tables, target="y")).training
        asked = facts(*tables, target="y", training="sums")
        if by_default == "sums":
            assert row_of(asked).training == "sums"
        else:
            with pytest.raises(ConfigError, match="training='sums' over different columns"):
                row_of(asked)


def test_the_table_is_read_at_a_glance():
    """Each row of six applies to some tables, and the last one to all."""
    found = {
        row_of(facts(*tables, **options))
        for options in OPTIONS
        for tables in product([False, True], repeat=5)
    }
    assert found == set(ROWS)
    assert len(ROWS) <= 6
