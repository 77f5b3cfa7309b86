"""Evidence that a model excludes, and states that it does not know, the same in all models."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal import DataError, simulate
from flwr_causal.app.comparison import answers
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.discrete.bayesian_network import BayesianNetwork

TABLES = ([[0.4, 0.6]], [[1.0, 0.0], [0.0, 1.0]], [[0.9, 0.1], [0.2, 0.8]])
STATES = ("n", "y")


def network():
    first, *others = map(np.array, TABLES)
    return BayesianNetwork([*"abc"], [STATES] * 3, [(), (0,), (0,)], [first[0], *others])


def circuit():
    tree = ChowLiuTree((0, 1, 2), (-1, 0, 0), tuple(map(np.array, TABLES)))
    return Circuit(Domain(tuple(Variable(name, STATES) for name in "abc")), tree)


MODELS = {
    "network": network,
    "circuit": circuit,
    "circuit model": lambda: CircuitModel(circuit(), target="c"),
}
IMPOSSIBLE = pd.DataFrame({"a": ["n", "y"], "b": ["n", "n"]})


@pytest.mark.parametrize("model", MODELS)
def test_impossible_evidence_is_an_error_that_names_the_row(model):
    made = MODELS[model]()
    np.testing.assert_allclose(made.predict_proba(IMPOSSIBLE[:1], "c"), [[0.9, 0.1]])
    for ask in (made.predict_proba, made.predict):
        with pytest.raises(DataError, match="row 1: its values are impossible"):
            ask(IMPOSSIBLE, "c")
    with pytest.raises(DataError, match=r"probability 0|impossible"):
        made.conditional({"a": "y", "b": "n"})


def test_a_run_answers_the_rows_of_a_query_that_are_possible():
    found = answers(MODELS["circuit model"](), IMPOSSIBLE)
    assert found["log_likelihood"].tolist() == [np.log(0.4), -np.inf]
    np.testing.assert_allclose(found["p(n)"], [0.9, 0.4 * 0.9 + 0.6 * 0.2])


def table(n, seed):
    rng = np.random.default_rng(seed)
    a = rng.choice(["p", "q"], n)
    return pd.DataFrame({"a": a, "c": np.where(rng.random(n) < 0.8, a, "q")})


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedges", {"parameters": True}),
        ("moments", {"text_columns": "keep"}),
        ("fedpc", {}),
        ("fedpc", {"target": "c"}),
    ],
)
def test_a_state_that_no_party_had_is_refused_or_said_to_count_as_missing(method, options):
    model = simulate(method, [table(300, seed) for seed in range(2)], **options).model
    asked = pd.DataFrame({"a": ["zz"]})
    for ask in (model.predict_proba, model.predict):
        if method == "fedpc":
            with pytest.warns(UserWarning, match="count as missing"):
                ask(asked, "c")
        else:
            with pytest.raises(DataError, match="not among its 2 states"):
                ask(asked, "c")
