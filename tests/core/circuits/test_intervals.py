"""Answers on numbers that are known by their interval are those of densities, not of masses."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_causal import simulate
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.leaves.univariate import Categorical
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.errors import ConfigError

INSIDE = ((-2.0, 1.0), (0.1, 0.3), (1.2, 0.4), (4.0, 2.0))
NUMBER = Variable("x", edges=(-1.0, 0.5, 2.0), inside=INSIDE)
SHARED = Variable(
    "y", edges=(np.nextafter(3.0, 0.0), 3.0), inside=((1.0, 1.0), (3.0, 0.0), (5.0, 2.0))
)
WHOLE = Variable("n", edges=(1.0, 4.0), inside=((0.5, 0.5), (3.0, 0.8), (7.0, 2.0)), whole=True)


def tree(rng: np.random.Generator, sizes: tuple[int, ...], columns: tuple[int, ...]) -> ChowLiuTree:
    parents = (-1, *range(len(sizes) - 1))
    rows = (1, *sizes[:-1])
    tables = tuple(rng.dirichlet(np.ones(s), r) for s, r in zip(sizes, rows, strict=True))
    return ChowLiuTree(columns, parents, tables)


def circuit() -> Circuit:
    rng = np.random.default_rng(3)
    domain = Domain((NUMBER, SHARED, Variable("c", ("a", "b"))))
    sizes = tuple(domain.num_states.tolist())
    first = tree(rng, sizes, (0, 1, 2))
    second = Product(
        [Categorical(0, rng.dirichlet(np.ones(sizes[0]))), tree(rng, sizes[1:], (1, 2))]
    )
    return Circuit(domain, Sum([first, second], np.array([0.4, 0.6])))


@pytest.mark.parametrize("variable", [NUMBER, NUMBER._replace(inside=None)], ids=["known", "even"])
def test_density_of_a_number_integrates_to_one(variable: Variable) -> None:
    shares = np.full(variable.num_states, 1.0 / variable.num_states)
    model = Circuit(Domain((variable,)), Categorical(0, shares))
    grid = np.linspace(-120.0, 120.0, 2_000_001)
    density = np.exp(model.log_likelihood(pd.DataFrame({variable.name: grid})))
    assert density.sum() * (grid[1] - grid[0]) == pytest.approx(1.0, abs=2e-3)


def test_probabilities_of_whole_numbers_sum_to_one() -> None:
    model = Circuit(Domain((WHOLE,)), Categorical(0, np.array([0.2, 0.5, 0.3])))
    found = np.exp(model.log_likelihood(pd.DataFrame({"n": np.arange(-200.0, 300.0)})))
    assert found.sum() == pytest.approx(1.0)


def test_units_of_a_number_move_all_heights_alike() -> None:
    scaled = SHARED._replace(
        edges=tuple(1000 * edge for edge in SHARED.edges or ()),
        inside=tuple((1000 * a, 1000 * b) for a, b in SHARED.inside or ()),
    )
    np.testing.assert_allclose(SHARED.log_heights - scaled.log_heights, np.log(1000.0))


def test_a_value_that_many_rows_share_has_its_probability() -> None:
    model = Circuit(Domain((SHARED,)), Categorical(0, np.array([0.2, 0.5, 0.3])))
    found = model.log_likelihood(pd.DataFrame({"y": [3.0, np.nan]}))
    np.testing.assert_allclose(found, [np.log(0.5), 0.0])


def test_mpe_is_the_largest_density_of_one_component() -> None:
    model = circuit()
    first, second = model.root.children
    states = np.array(list(product(*map(range, model.domain.num_states))), dtype=np.float64)
    heights = sum(
        np.asarray(variable.log_heights)[states[:, j].astype(int)]
        for j, variable in enumerate(model.domain.variables[:2])
    )
    for given in (None, "a", "b"):
        allowed = np.ones(len(states), bool) if given is None else states[:, 2] == "ab".index(given)
        best = max(
            (
                (np.log(weight) + Circuit(model.domain, part).log_densities(states) + heights)[k],
                tuple(states[k]),
            )
            for weight, part in ((0.4, first), (0.6, second))
            for k in np.flatnonzero(allowed)
        )
        asked = pd.DataFrame({"c": [given]}, dtype=object)
        found = model.domain.encode(model.mpe(asked))[0]
        assert tuple(found) == best[1]


def test_numbers_have_means_and_no_classes() -> None:
    model = circuit()
    rows = pd.DataFrame({"c": ["a", "b"], "x": [9.0, 9.0]})
    np.testing.assert_allclose(
        model.predict(rows, "x"), model.moments("x", rows.drop(columns="x"))[0]
    )
    for ask in (model.predict_proba, lambda data, name: model.classes(name)):
        with pytest.raises(ConfigError, match="predict"):
            ask(rows, "x")
    with pytest.raises(ConfigError, match="threshold"):
        model.predict(rows, "x", threshold=0.3)


def mixed(n: int, rng: np.random.Generator) -> pd.DataFrame:
    man = rng.random(n) < 0.5
    return pd.DataFrame(
        {
            "sex": np.where(man, "m", "f"),
            "hb": 13 + 2 * man + rng.normal(size=n),
            "age": rng.uniform(20, 80, n),
        }
    )


FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "head": {"target": "sex"},
    "one-pass": {"training": "one-pass", "learner": "trees"},
    "central": {"training": "one-pass", "learner": "trees", "queries": "central"},
    "spn": {"training": "one-pass", "learner": "spn"},
    "einsum": {"learner": "einsum", "epochs": 5},
    "paper": {"variant": "paper"},
}


@pytest.mark.few(3)
@pytest.mark.parametrize("form", FORMS)
def test_every_circuit_answers_numbers_by_densities(form: str, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    run = simulate("fedpc", [mixed(500, rng) for _ in range(2)], **FORMS[form])
    models = [run.model]
    if form in ("default", "head", "central"):
        run.model.save(tmp_path / "model.json")
        models.append(type(run.model).load(tmp_path / "model.json"))
    asked = pd.DataFrame({"sex": ["f", "m"]})
    usual = pd.DataFrame({"sex": ["f", "m"], "hb": [13.0, 15.0], "age": [50.0, 50.0]})
    for model in models:
        np.testing.assert_allclose(model.predict(asked, "hb"), [13.0, 15.0], atol=0.5)
        np.testing.assert_allclose(model.mpe(asked)["hb"].astype(float), [13.0, 15.0], atol=1.1)
        far = model.anomaly_score(usual.assign(hb=1e6)) - model.anomaly_score(usual)
        assert (far > 5.0).all()
        above = usual.assign(hb=40.0)
        assert (model.anomaly_score(usual.assign(hb=1e6)) > model.anomaly_score(above)).all()
