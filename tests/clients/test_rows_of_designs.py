"""The rows of linear clients in pieces: their sums, sets and targets, and who answers what."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from federations import setup_for

from flwr_causal.clients.design import DesignClient
from flwr_causal.clients.linear import LinearClient
from flwr_causal.clients.lingam import LingamClient
from flwr_causal.clients.moments import MomentsClient
from flwr_causal.contract.answers import Asked, answers
from flwr_causal.core.folds import split_rows
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import Disclosure, Exchange
from flwr_causal.protocol.moments import REGRESSIONS
from flwr_causal.strategies import Moments

RNG = np.random.default_rng(6)
ROWS = RNG.normal(size=(23, 2)) * (1.0, 9.0) + (4.0, -1.0)
CUTS = (4, 5, 17)
TABLE = pd.DataFrame(ROWS, columns=["a", "b"])
#: Of all parties.
SETUP = setup_for([TABLE], num_rows=90, mean=np.array([3.0, -2.0]), variance=np.array([4.0, 25.0]))


def in_pieces(rows=ROWS):
    return [part.copy() for part in np.split(rows, CUTS)]


def with_ones(rows):
    return np.column_stack([np.ones(len(rows)), rows])


def products(rows):
    return with_ones(rows).T @ with_ones(rows)


class Rows(LinearClient):
    """A client of rows in pieces."""

    def __init__(self, **options):
        usual = {"seed": 3, "held_out": False, "folds": 1, "levels": False}
        self._options = SimpleNamespace(**usual, **options)

    setup = SETUP
    num_rows = len(ROWS)

    @property
    def options(self):
        return self._options

    def row_pieces(self):
        return iter(in_pieces())

    def once(self, name, compute):
        return compute()


@pytest.fixture
def client():
    return Rows()


def test_sums_of_sets_over_pieces(client):
    np.testing.assert_allclose(client.products_by_set(iter(in_pieces())), [products(ROWS)])
    sets = RNG.integers(0, 3, len(ROWS))
    found = client.products_by_set(iter(in_pieces()), sets, 4)
    np.testing.assert_allclose(found, [products(ROWS[sets == k]) for k in range(4)])
    np.testing.assert_allclose(client.mean_products(in_pieces()), products(ROWS) / len(ROWS))


@pytest.mark.parametrize("center", ["global", "party"])
@pytest.mark.parametrize("standardize", [False, True])
def test_rows_are_centred_and_scaled_as_agreed(center, standardize):
    client = Rows(center=center)
    method = Moments(center=center, standardize=standardize)
    # Without sums of levels, as with folds.
    options = replace(method.client_options, level_sums=False)
    client.setup = setup_for([TABLE], mean=SETUP.mean, variance=SETUP.variance, options=options)
    z = ROWS - (ROWS.mean(axis=0) if center == "party" else SETUP.mean)
    z = z / (2.0, 5.0) if standardize else z
    np.testing.assert_allclose(np.concatenate([*client.design_pieces()]), z)
    np.testing.assert_allclose(client.products(), [z.T @ z])
    client.options.held_out, client.options.folds = True, 2
    seen, out = split_rows(len(z), 3)
    assert len(out) == 5
    np.testing.assert_allclose(client.products(), [z[own].T @ z[own] for own in (seen, out)])


TARGETS = ((), ("a",), ("a", "b"))


@pytest.mark.parametrize("sets", [None, RNG.integers(0, 3, len(ROWS))], ids=["none", "sets"])
def test_pieces_have_the_targets_of_their_rows(sets):
    client = SimpleNamespace(
        setup=setup_for([TABLE], targets=() if sets is None else TARGETS),
        sum_rows=lambda: iter(in_pieces()),
        strata=lambda: sets,
    )
    client.rows_with_sets = lambda: DesignClient.rows_with_sets(client)
    together = [
        np.concatenate(own) for own in zip(*DesignClient.rows_by_targets(client), strict=True)
    ]
    expected = [ROWS] if sets is None else [ROWS[sets == k] for k in range(3)]
    for own, rows in zip(together, expected, strict=True):
        np.testing.assert_array_equal(own, rows)
    pieces, acted = zip(*DesignClient.rows_with_targets(client), strict=True)
    np.testing.assert_array_equal(np.concatenate(pieces), ROWS)
    if sets is None:
        assert set(acted) == {None}
    else:
        # Which variables each row's targets are.
        by_set = np.array([[False, False], [True, False], [True, True]])
        np.testing.assert_array_equal(np.concatenate(acted), by_set[sets])


def test_functions_of_residuals_are_means_over_all_pieces():
    directions = RNG.normal(size=(3, 3))
    client = SimpleNamespace(sum_rows=lambda: iter(in_pieces()), num_rows=len(ROWS))
    sent = LingamClient.functions_of_residuals(client, {"directions": directions})
    u = with_ones(ROWS) @ directions.T
    np.testing.assert_allclose(sent["tails"], np.log(np.cosh(u)).mean(axis=0))
    np.testing.assert_allclose(sent["skew"], (u * np.exp(-(u**2) / 2)).mean(axis=0))


def test_regressions_of_categories_are_means_over_all_pieces():
    """The log-odds of the state u are 0.3 - 0.8 a; rows whose target it is say nothing of them."""
    setup = setup_for(
        [TABLE],
        names=("a", "k"),
        num_rows=90,
        mean=np.array([3.0, np.nan]),
        variance=np.array([4.0, np.nan]),
        states=((), ("u", "v")),
        options=Moments(text_columns="keep", parameters="likelihood").client_options,
    )
    is_u = RNG.integers(0, 2, len(ROWS)).astype(float)
    z = np.column_stack([(ROWS[:, 0] - 3) / 2, is_u])
    acted = np.column_stack([np.zeros(len(ROWS)), np.arange(len(ROWS)) % 4 == 0]).astype(bool)
    pieces = list(zip(np.split(z, CUTS), np.split(acted, CUTS), strict=True))
    client = SimpleNamespace(
        setup=setup, num_rows=len(ROWS), rows_with_targets=lambda: iter(pieces)
    )
    values = {
        "categories": np.array([1]),
        "sizes": np.array([1]),
        "causes": np.array([0]),
        "weights": np.array([0.3, -0.8]),
    }
    sent = MomentsClient.regression_sums(client, Asked(REGRESSIONS, 2, values))
    told = ~acted[:, 1]
    x, u = with_ones(z[told, :1]), is_u[told]
    p = 1 / (1 + np.exp(-x @ values["weights"]))
    n = len(ROWS)
    logs = u * np.log(p) + (1 - u) * np.log(1 - p)
    np.testing.assert_allclose(sent["log-likelihoods"], [logs.sum() / n])
    np.testing.assert_allclose(sent["gradient"], x.T @ (u - p) / n)
    information = x.T @ (x * (p * (1 - p))[:, None]) / n
    np.testing.assert_allclose(sent["information"], information[np.triu_indices(2)])
    values["weights"] = np.zeros(3)
    with pytest.raises(FederationError, match="of other causes"):
        MomentsClient.regression_sums(client, Asked(REGRESSIONS, 2, values))


def test_an_answer_is_to_all_the_exchanges_that_are_named():
    first, second = (
        Exchange(name, "", returns=(Disclosure("x", "", (), combine="sum"),)) for name in "ab"
    )

    @answers(first, second)
    def both(rows, asked):
        return {"x": asked["y"]}

    assert both.answers == ("a", "b")
    asked = Asked(first, 1, {"y": 3})
    assert both(None, asked) == {"x": 3}
    assert ("y" in asked, "z" in asked) == (True, False)
    with pytest.raises(ConfigError, match="exchanges"):
        answers("a")
