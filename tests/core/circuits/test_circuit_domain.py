"""Between frames and the values that circuits work on."""

import json

import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.leaves.univariate import Categorical
from flwr_causal.core.circuits.nodes import Product
from flwr_causal.errors import DataError

NAN = np.nan


def test_a_frame_says_which_columns_are_categories():
    frame = pd.DataFrame(
        {
            "text": ["b", None, "a"],
            "flag": [True, False, True],
            "level": pd.Categorical(["low", "high", "low"], ["low", "mid", "high"]),
            "number": [1.5, NAN, 2.0],
            "code": [3, 1, 3],
        }
    )
    domain = Domain.from_frame(frame, categorical=["code"])
    assert [variable.states for variable in domain.variables] == [
        ("a", "b"),
        (False, True),
        ("low", "mid", "high"),
        None,
        (1, 3),
    ]
    np.testing.assert_array_equal(domain.num_states, [2, 2, 3, 0, 2])
    values = domain.encode(frame)
    np.testing.assert_array_equal(
        values, [[1, 1, 0, 1.5, 1], [NAN, 0, 2, NAN, 0], [0, 1, 0, 2.0, 1]]
    )
    back = domain.decode(values)
    assert back["text"].tolist()[::2] == ["b", "a"]
    assert pd.isna(back["text"][1])
    assert back["flag"].tolist() == [True, False, True]
    assert back["flag"].dtype == bool
    assert back["code"].tolist() == [3, 1, 3]
    np.testing.assert_array_equal(domain.encode(back), values)
    np.testing.assert_array_equal(domain.encode(values), values)
    with pytest.raises(DataError, match="'nothing'"):
        Domain.from_frame(frame, categorical=["nothing"])


def test_numbers_inside_of_intervals_are_drawn_as_they_are_known():
    known = ((-2.0, 2.0), (0.25, 0.0), (0.75, 0.5 / 12**0.5), (4.0, 3.0))
    domain = Domain((Variable("x", edges=(0.0, 0.5, 1.0), inside=known),))
    means = domain.decode(np.arange(4.0)[:, None])["x"].to_numpy()
    np.testing.assert_array_equal(means, [-2.0, 0.25, 0.75, 4.0])
    values = np.repeat(np.arange(4.0), 20_000)[:, None]
    drawn = domain.decode(values, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(domain.encode(drawn), values)
    for number, (mean, deviation) in zip(np.split(drawn["x"].to_numpy(), 4), known, strict=True):
        assert number.mean() == pytest.approx(mean, abs=0.1 * deviation)
        assert number.std() == pytest.approx(deviation, rel=0.1)
    assert Domain.from_plain(json.loads(json.dumps(domain.to_plain()))) == domain


def test_whole_numbers_are_drawn_as_such():
    known = ((0.0, 0.0), (2.5, (15 / 12) ** 0.5), (9.0, 4.0))
    domain = Domain((Variable("x", edges=(0.0, 4.0), inside=known, whole=True),))
    values = np.repeat(np.arange(3.0), 20_000)[:, None]
    drawn = domain.decode(values, rng=np.random.default_rng(0))["x"].to_numpy().reshape(3, -1)
    assert (drawn == np.rint(drawn)).all()
    assert set(drawn[0]) == {0.0}
    assert np.bincount(drawn[1].astype(int), minlength=5)[1:] == pytest.approx([5000] * 4, rel=0.1)
    assert drawn[2].min() == 5.0
    assert drawn[2].mean() == pytest.approx(9.0, abs=0.1)
    assert drawn[2].std() == pytest.approx(4.0, rel=0.1)


def test_columns_are_found_by_name_and_some_may_be_left_out():
    domain = Domain((Variable("a"), Variable("b", (1, 2)), Variable("c")))
    frame = pd.DataFrame({"c": [1.0], "other": ["?"], "b": [2.0]})
    np.testing.assert_array_equal(domain.encode(frame), [[NAN, 1, 1]])
    np.testing.assert_array_equal(domain.encode(frame, ["c", "a"]), [[NAN, NAN, 1]])
    np.testing.assert_array_equal(domain.encode([[0.5, 1, 2]], ["a"]), [[0.5, NAN, NAN]])
    assert domain.decode(domain.encode(frame), ["c", "b"]).columns.tolist() == ["b", "c"]


def test_intervals_hold_their_upper_edge():
    domain = Domain((Variable("x", edges=(0.0, 1.0, 5.0), missing_state=True),))
    frame = pd.DataFrame({"x": [-3.0, 0.0, 0.5, 1.0, 5.0, 5.1, NAN]})
    values = domain.encode(frame)
    np.testing.assert_array_equal(values[:, 0], [0, 0, 1, 1, 2, 3, 4])
    middles = domain.decode(values)["x"].to_numpy()
    np.testing.assert_array_equal(middles, [-0.5, -0.5, 0.5, 0.5, 3.0, 7.0, NAN])
    drawn = domain.decode(np.repeat(values, 200, axis=0), rng=np.random.default_rng(0))
    np.testing.assert_array_equal(domain.encode(drawn)[:, 0], np.repeat(values[:, 0], 200))
    assert drawn["x"].nunique() > 1000


def test_a_missing_value_can_be_a_state():
    domain = Domain((Variable("a", ("u", "v"), missing_state=True), Variable("b", ("u", "v"))))
    circuit = Circuit(
        domain, Product([Categorical(0, [0.2, 0.3, 0.5]), Categorical(1, [0.4, 0.6])])
    )
    frame = pd.DataFrame({"a": ["u", None], "b": [None, "v"]})
    np.testing.assert_allclose(np.exp(circuit.log_likelihood(frame)), [0.2, 0.5 * 0.6])
    # A column that is not there at all is summed over.
    np.testing.assert_allclose(np.exp(circuit.log_likelihood(frame[["b"]])), [1, 0.6])
    filled = circuit.mpe(frame)
    assert filled["b"].tolist() == ["v", "v"]
    assert filled["a"][0] == "u"
    assert pd.isna(filled["a"][1])
    assert circuit.sample(300, seed=0)["a"].isna().mean() == pytest.approx(0.5, abs=0.1)


def test_intervals_keep_given_numbers_and_have_moments():
    domain = Domain((Variable("x", edges=(0.0, 1.0), missing_state=True), Variable("y", (0, 1))))
    circuit = Circuit(
        domain, Product([Categorical(0, [0.1, 0.3, 0.4, 0.2]), Categorical(1, [0.4, 0.6])])
    )
    frame = pd.DataFrame({"x": [0.37], "y": [None]})
    assert circuit.mpe(frame).iloc[0].tolist() == [0.37, 1]
    mean, variance = circuit.moments("x", frame[["y"]])
    shares = np.array([0.1, 0.3, 0.4]) / 0.8
    middles = np.array([-0.5, 0.5, 1.5])
    assert mean[0] == pytest.approx(shares @ middles)
    # Numbers are evenly distributed in an interval.
    squares = middles**2 + 1 / 12
    assert variance[0] == pytest.approx(shares @ squares - (shares @ middles) ** 2)
    # A given value is its own mean.
    np.testing.assert_array_equal(circuit.moments("x", frame), [[0.37], [0.0]])


def test_plain_domains_come_back():
    domain = Domain(
        (Variable("a", ("x", 2, 2.5, True)), Variable("b", edges=(0.1,)), Variable("c"))
    )
    assert Domain.from_plain(domain.to_plain()) == domain
    with pytest.raises(DataError, match="Timestamp"):
        Domain((Variable("t", (pd.Timestamp("2020-01-01"),)),)).to_plain()
    with pytest.raises(DataError, match="no domain"):
        Domain.from_plain([{"nam": "a"}])


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ((Variable("a"), Variable("a")), "names repeat: a"),
        ((Variable("a", ()),), "different states"),
        ((Variable("a", (1, 1.0)),), "different states"),
        ((Variable("a", ("x",), (1.0,)),), "give one"),
        ((Variable("a", edges=(1.0, 0.0)),), "ascend"),
        ((Variable("a", edges=(np.inf,)),), "finite"),
        ((Variable("a", missing_state=True),), "no state for missing"),
        ((Variable("a", edges=(0.0,), inside=((-1.0, 1.0), (-2.0, 1.0))),), "in their intervals"),
        ((Variable("a", edges=(0.0,), inside=((-1.0, 1.0), (2.0, -1.0))),), "in their intervals"),
        ((Variable("a", edges=(0.0,), inside=((-1.0, 1.0),)),), "of each interval"),
        ((Variable("a", inside=((-1.0, 1.0),)),), "of each interval"),
    ],
)
def test_wrong_variables_are_named(variables, message):
    with pytest.raises(DataError, match=message):
        Domain(variables)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pd.DataFrame({"a": [0.5], "b": ["?"]}), "column 'b' holds '\\?'.* 'u', 'v'"),
        (pd.DataFrame({"a": ["text"]}), "column 'a' must hold numbers"),
        (pd.DataFrame({"a": [np.inf]}), "column 'a' holds an infinite number"),
        ([[0.5, 2]], "column 'b' holds 2.0: expected a whole number from 0 to 1"),
        ([[0.5, 0.5]], "column 'b' holds 0.5"),
        ([[np.inf, 0]], "column 'a' holds inf"),
        ([[0.5]], "shape \\(rows, 2\\)"),
    ],
)
def test_wrong_data_are_named(data, message):
    with pytest.raises(DataError, match=message):
        Domain((Variable("a"), Variable("b", ("u", "v")))).encode(data)
