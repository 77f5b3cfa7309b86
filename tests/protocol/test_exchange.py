"""Contracts as data: what cannot be declared, and what symbols in shapes stand for."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from federations import app_of, make_federation

from flwr_causal.app.methods import METHODS
from flwr_causal.clients import CausalClient, answers
from flwr_causal.contract.when import When
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.check.handling import Handling
from flwr_causal.errors import ConfigError
from flwr_causal.protocol import Contract, Disclosure, Exchange, Sent
from flwr_causal.protocol.options import PartyOptions
from flwr_causal.protocol.setup import Setup
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import Ask, CausalStrategy, Result, run

TABLES = make_federation(d=3, n=60, parties=3).tables


def setup_of(d):
    names = tuple(f"x{i}" for i in range(d))
    return Setup(names, 30, 2, np.zeros(d), np.ones(d), Handling())


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


SUM = Disclosure("products", "of the rows", ("d", "d"), combine="sum")
GRID = Sent("grid", "of steps", ("d",), values="index", below="d")


def contract_of(*, returns=SUM, sends=GRID, options=PartyOptions, reports=("sums",), **further):
    exchange = Exchange("moments", "", sends=(sends,), returns=(returns,), **further)
    return Contract("own", (exchange,), reports=reports, options=options)


@dataclass(frozen=True, kw_only=True)
class OtherOptions(PartyOptions):
    steps: int = 3


def test_the_digest_of_a_contract_is_of_what_is_declared_and_not_of_words():
    digest = contract_of().digest
    assert len(digest) == 32
    words = contract_of(returns=replace(SUM, meaning="other words"), timing="once a day")
    assert words.digest == digest
    others = [
        contract_of(returns=replace(SUM, combine="each")),
        contract_of(returns=replace(SUM, shape=("d",))),
        contract_of(returns=replace(SUM, values="products")),
        contract_of(returns=replace(SUM, optional=True)),
        contract_of(returns=replace(SUM, bound=lambda setup: 1.0)),
        contract_of(sends=replace(GRID, below="")),
        contract_of(sends=replace(GRID, exact=True)),
        contract_of(options=OtherOptions),
        contract_of(reports=("states",)),
        contract_of(weight="one"),
        contract_of(most=1),
        contract_of(when=When(model="linear")),
        contract_of(when=When(model="mlp")),
    ]
    found = {one.digest for one in others}
    assert len(found) == len(others)
    assert digest not in found
    assert contract_of(when=When(model="mlp").called("perceptrons")).digest == others[-1].digest


def test_a_party_whose_method_has_another_contract_is_named_and_nothing_is_trained():
    """Of a package of another author, whose versions the parties' versions do not tell apart."""

    def client_of(combine):
        exchange = Exchange("moments", "", returns=(replace(SUM, combine=combine),))

        class Client(CausalClient):
            contract = Contract("own", (exchange,))

            @answers(exchange)
            def reply(self, asked):
                rows = self.rows() - self.setup.mean
                return {"products": rows.T @ rows / (1 if combine == "sum" else len(rows))}

        return Client

    old, new = client_of("sum"), client_of("mean")
    apps = [app_of(TABLES, {"own": client}) for client in (old, old, new)]

    class Own(CausalStrategy):
        contract = old.contract

        def train(self, agreement, replicate=0):
            products = (yield Ask(old.contract.exchanges[0]))["products"]
            graph = CausalGraph.from_array(np.triu(products, 1), agreement.names)
            return Result(graph, reason="one")

    def mixed(message, context):
        return apps[int(context.node_config["partition-id"])](message, context)

    assert run(Own(), LocalGrid(apps[0], 3)).rounds == 1
    with pytest.raises(ConfigError, match=r"party 2 has .* with another contract of 'own'"):
        run(Own(), LocalGrid(mixed, 3))
