"""Contracts as data: what cannot be declared, and what symbols in shapes stand for."""

import numpy as np
import pytest

from flwr_causal.app.methods import METHODS
from flwr_causal.data.check.policy import Policy
from flwr_causal.errors import ConfigError
from flwr_causal.protocol import Contract, Disclosure, Exchange, Sent
from flwr_causal.protocol.setup import Setup


def setup_of(d):
    names = tuple(f"x{i}" for i in range(d))
    return Setup(names, 30, 2, np.zeros(d), np.ones(d), Policy())


def test_raw_rows_cannot_be_declared_by_the_way():
    for shape in (("n",), ("n", "d"), ("d", "n")):
        with pytest.raises(ConfigError, match=r"'rows'.*raw rows never leave"):
            Disclosure("rows", "the data", shape)
    assert Disclosure("marks", "", ("n",), rows="of the held-out rows").rows


def test_only_an_index_has_a_bound():
    assert Disclosure("edges", "", ("*", 2), "index", below="d").below == "d"
    with pytest.raises(ConfigError, match=r"'counts' is below 'd'.*only an index"):
        Disclosure("counts", "", ("d",), "count", below="d")


def test_an_exchange_averages_all_or_nothing():
    mean = Disclosure("mean", "", ("d",), combine="mean")
    for combine in ("sum", "each"):
        other = Disclosure("other", "", ("d",), combine=combine)
        with pytest.raises(ConfigError, match="averages some arrays and not others"):
            Exchange("mixed", "", returns=(mean, other))
    assert Exchange("means", "", returns=(mean,)).averaged
    assert not Exchange("sums", "", returns=(Disclosure("s", "", combine="sum"),)).averaged
    assert not Exchange("nothing", "").averaged


def test_plain_numbers_are_not_averaged():
    """They would travel as metrics, and no privacy wrapper would see them."""
    with pytest.raises(ConfigError, match=r"plain number 'loss'.*shape \(1,\)"):
        Exchange("means", "", returns=(Disclosure("loss", "", combine="mean"),))


@pytest.mark.parametrize("shape", [("d",), ("d", "p"), ("*", "*"), ()])
def test_a_graph_is_a_square_matrix(shape):
    with pytest.raises(ConfigError, match=r"declares 'graph' as a dag of the shape .*\('d', 'd'\)"):
        Exchange("one", "", returns=(Disclosure("graph", "", shape, "dag"),))
    with pytest.raises(ConfigError, match=r"declares 'graph' as a dag"):
        Exchange("one", "", sends=(Sent("graph", "", shape, values="dag"),))
    assert Exchange("one", "", sends=(Sent("graph", "", ("*", "d", "d"), values="dag"),)).sends
    assert Exchange("one", "", sends=(Sent("graph", "", ("*", 2), values="dag", below="d"),)).sends


def test_names_are_unique():
    twice = (Disclosure("a", ""), Disclosure("a", "", ("d",)))
    with pytest.raises(ConfigError, match="declares a name twice"):
        Exchange("one", "", returns=twice)
    with pytest.raises(ConfigError, match="declares a name twice"):
        Exchange("one", "", sends=(Sent("a", ""), Sent("a", "", ("d",))))
    # What is sent and what comes back may have one name.
    both = Exchange("one", "", (Sent("a", "", ("d",)),), (Disclosure("a", "", ("d",)),))
    with pytest.raises(ConfigError, match="'toy' has a name twice"):
        Contract("toy", (both, Exchange("one", "another")))


def test_an_exchange_is_found_by_its_name():
    one, two = Exchange("one", ""), Exchange("two", "")
    contract = Contract("toy", (one, two))
    assert contract.find("two") is two
    for wrong in ("three", None):
        with pytest.raises(ConfigError, match=f"no exchange '{wrong}'; it has one, two.*version"):
            contract.find(wrong)


def test_sizes_are_those_of_the_agreement():
    assert Contract("toy", ()).sizes(setup_of(3), 7) == {"d": 3, "n": 7}
    contract = Contract("toy", (), lambda setup: {"m": 2 * len(setup.names)})
    assert contract.sizes(setup_of(3), 7) == {"d": 3, "n": 7, "m": 6}


@pytest.mark.parametrize("method", [name for name in METHODS if name != "fedpc"])
def test_contracts_say_what_everything_means(method):
    strategy, client = METHODS[method].strategy, METHODS[method].client
    assert strategy.contract is client.contract
    assert strategy.method == strategy.contract.method == method
    for exchange in strategy.contract.exchanges:
        assert exchange.meaning
        for thing in (*exchange.sends, *exchange.returns):
            assert thing.meaning, (exchange.name, thing.name)
        # Only where rows belong together across parties do exchanges speak of rows.
        apart = exchange.name in ("align", "masked tables")
        assert apart or not any(item.rows for item in exchange.returns)
