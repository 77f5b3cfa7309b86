"""Which runs have an exchange: a party answers no other one, whatever the server asks."""

import json

import numpy as np
import pandas as pd
import pytest
from method_modes import MODES, NETWORKS, NUMBERS
from tampering import Tampering, guarded, recorded

from flwr_causal.app.methods import CLIENTS
from flwr_causal.contract.when import ALWAYS, When
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.errors import CausalError
from flwr_causal.protocol import records
from flwr_causal.protocol.bundle import EXCHANGES, SEED, TRAININGS
from flwr_causal.protocol.replay import REPLAY, packed
from flwr_causal.secure.unmasking import SECURE_SUMS
from flwr_causal.simulations import simulate
from flwr_causal.simulations.relay import KilledError, Relay
from flwr_causal.strategies import NotearsADMM, run

#: Modes that the others do not have: which exchanges there are depends on these options, too.
FURTHER = {
    "admm without refit": ("notears-admm", NUMBERS, {"max_rounds": 6, "refit": False}),
    "admm required edge": (
        "notears-admm",
        NUMBERS,
        {"max_rounds": 6, "refit": False, "knowledge": Knowledge(required=[("a", "b")])},
    ),
    "admm secure": ("notears-admm", NUMBERS, {"max_rounds": 6, "secure_aggregation": True}),
    "moments secure": ("moments", NUMBERS, {"secure_aggregation": True}),
    "moments private": ("moments", NUMBERS, {"epsilon": 50.0}),
    "fedges last": ("fedges", MODES["fedges exact"][1], {"mode": "fusion", "keep": "last"}),
    "fedges without tables": (
        "fedges",
        MODES["fedges exact"][1],
        {"mode": "scores", "parameters": False},
    ),
    "fedges secure": (
        "fedges",
        MODES["fedges exact"][1],
        {"mode": "exact", "secure_aggregation": True},
    ),
    "fedges auto": ("fedges", MODES["fedges exact"][1], {}),
    "fedpc secure": ("fedpc", MODES["fedpc sums"][1], {"secure_aggregation": True}),
    "fedcausal without search": ("fedcausal", NUMBERS, {"max_rounds": 5, "refine": "none"}),
    "describe": ("describe", NUMBERS, {}),
    "describe secure": ("describe", NUMBERS, {"secure_aggregation": True}),
}
ALL = {**MODES, **FURTHER}
_QUERIES = {"densities", "peaks", "classes", "moments", "filled"}
#: Exchanges that a run of fedpc may have by its options, and has not for these tables: its
#: options are "auto", or parties do not know which columns the others hold.
_MATCHED = {"align", "dependence"}
_LEAVES = ("scale", "powers", "moments", "held-out")
_HEAD = {"class-conditional: head", "class-conditional: choice"}
_SUMS = {f"class-conditional: {one}" for one in _LEAVES}
_LOCAL = {f"local, weights by {one}" for one in ("counts", "classes", "em")}
_PRODUCTS = {"cuts", "masked tables", "products"}
_AUTO = {*_SUMS, *_HEAD, *_QUERIES, *_LOCAL, *_PRODUCTS}
LEFT_OPEN = {
    "fedpc sums": _MATCHED,
    "fedpc trees": _MATCHED,
    "fedpc one pass": _MATCHED | _QUERIES | _LOCAL,
    "fedpc central": _MATCHED | {f"{one}, circuits sent" for one in _LOCAL},
    "fedpc columns": {"dependence", *_QUERIES, *_LOCAL},
    "fedpc em": _QUERIES,
    **dict.fromkeys(("fedpc pattern", "fedpc classes", "fedpc targets"), _AUTO),
}
FAST = (
    "moments",
    "fedges last",
    "fedpc sums",
    "admm without refit",
    "fedcausal local",
    "describe secure",
    "2dbn",
)


def test_conditions_are_data_and_say_what_they_are():
    fusion = (When(mode="fusion") | When(mode="auto") & ~When(start=None)).called("fusion")
    both = fusion & When(keep=("best", None))
    assert both.holds({"mode": "auto", "start": "fuse", "keep": None})
    assert not both.holds({"mode": "auto", "start": None, "keep": None})
    assert not both.holds({"mode": "fusion", "keep": "last"})
    assert not When(keep=None).holds({})  # what is not stated has no value
    assert str(both) == "fusion and keep='best' or None"
    assert str(~(When(a=1) | When(b=2)) & When(c=3)) == "without (a=1, or b=2) and c=3"
    assert ALWAYS.holds({})
    assert str(ALWAYS) == ""


class AskingOthers(Relay):
    """Before the first exchange of the training, asks a party for all that the run has not.

    Each exchange is asked for as it is, in a bundle of trainings, and among the requests of a
    replay.
    """

    def __init__(self, grid, method, answered):
        super().__init__(grid)
        self.contract = CLIENTS[method].contract
        self.answered, self.refused, self.asked = answered, set(), 0

    def before(self, messages):
        config = records.config_of(messages[0].content)
        if "setup-names" not in config:
            return messages
        for exchange in self.contract.exchanges:
            if exchange.name in self.answered:
                continue
            reasons = [self._ask(messages[0], *one) for one in requests(config, exchange.name)]
            self.asked += len(reasons)
            if all("is for other runs of" in reason for reason in reasons):
                self.refused.add(exchange.name)
        if "secure-sums" not in self.answered:
            for exchange in SECURE_SUMS.exchanges:
                request = {**config, records.NUMBER: 0, "exchange": exchange.name}
                assert "is for other runs of" in self._ask(messages[0], request, {})
        raise KilledError

    def _ask(self, message, values, arrays):
        message.content = records.message_content(records.pack_arrays(arrays), values)
        (reply,) = self.grid.send_and_receive([message])
        return str(reply.error.reason) if reply.has_error() else ""


def requests(config, name):
    """Return three requests for an exchange, each as its plain values and its arrays."""
    own = {**config, records.NUMBER: 1, "exchange": name}
    trainings = {TRAININGS: ["", "replicate 1"], EXCHANGES: [name] * 2, SEED: 0}
    plain = {key: one for key, one in own.items() if not key.startswith("setup-")}
    replay = packed([records.message_content(records.pack_arrays({}), plain)])
    earlier = {**own, "exchange": REPLAY.name, "requests": replay["requests"]}
    return (own, {}), (own | trainings, {}), (earlier, {"archive": replay["archive"]})


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.nightly) for name in ALL],
)
def test_a_party_answers_no_exchange_that_the_run_has_not(name):
    if name in NETWORKS:
        pytest.importorskip("torch")
    method, parties, options = ALL[name]
    whole = simulate(method, parties, **options)
    asked = {part for one in whole.history for part in str(one["exchange"]).split(" and ")}
    answered = asked | LEFT_OPEN.get(name, set())
    if options.get("secure_aggregation"):
        answered |= {"secure-sums"}
    grids = []

    def wrapped(grid):
        grids.append(AskingOthers(grid, method, answered))
        return grids[-1]

    with pytest.raises(KilledError):
        simulate(method, parties, wrap_grid=wrapped, **options)
    names = {one.name for one in CLIENTS[method].contract.exchanges}
    assert grids[0].refused == names - answered
    print(f"\n{name}: {grids[0].asked} requests for {len(grids[0].refused)} exchanges were refused")


def test_a_refused_exchange_is_in_the_record(tmp_path):
    def change(config, _):
        if "setup-names" not in config:
            return None
        return {**config, "exchange": "refit"}

    grid = Tampering(guarded(NUMBERS, tmp_path, ""), change)
    with pytest.raises(CausalError):
        run(NotearsADMM(max_rounds=6, refit=False), grid)
    lines = [one for one in recorded(tmp_path) if one["event"] != "sent"]
    assert lines
    for line in lines:
        assert line["event"] == "refused"
        assert (line["exchange"], line["reason"]) == ("refit", "AskedOtherwiseError")


# -- sizes that follow from options ----------------------------------------------------------------

SETS = {
    "scores": ({"mode": "scores", "max_parents": 1, "score": "bdeu"}, "sizes"),
    "likelihoods": ({"mode": "scores", "max_parents": 2, "turn": True}, "sizes"),
    "counts": ({"mode": "exact", "max_parents": 1}, "sizes"),
    "fit": ({"mode": "exact", "max_parents": 2}, "sizes"),
    "hidden": ({"mode": "exact", "max_parents": 1, "hidden_causes": True}, "sizes"),
}


class Enlarging(Relay):
    """A grid whose sets of variables have one variable more than the options allow."""

    def __init__(self, grid, most):
        super().__init__(grid)
        self.most, self.largest, self.reasons, self.enlarged_ones = most, 0, [], set()

    def before(self, messages):
        for message in messages:
            arrays = records.arrays_of(message.content)
            if "sizes" not in arrays:
                continue
            total = arrays["sizes"] + (2 if "owners" in arrays else 0)
            self.largest = max(self.largest, int(total.max(initial=0)))
            if self.most:
                self.enlarged_ones.add(records.config_of(message.content)["exchange"])
                message.content = self.enlarged(message.content, arrays)
        return messages

    def enlarged(self, content, arrays):
        size = self.most + 1 - (2 if "owners" in arrays else 0)
        sizes = np.append(arrays["sizes"], size).astype(np.int64)
        members = np.append(arrays["members"], np.arange(size)).astype(np.int64)
        changed = {**arrays, "sizes": sizes, "members": members}
        if "owners" in arrays:
            changed["owners"] = np.append(arrays["owners"], 4).astype(np.int64)
            changed["num_others"] = np.append(arrays["num_others"], 0).astype(np.int64)
        return records.message_content(records.pack_arrays(changed), records.config_of(content))

    def after(self, messages, replies):
        self.reasons += [str(one.error.reason) for one in replies if one.has_error()]
        return replies


_FIVE = np.random.default_rng(0).integers(0, 2, (240, 5)).cumsum(axis=1) % 3
FIVE = [
    pd.DataFrame(part, columns=list("abcde")).astype(str) for part in np.split(_FIVE, (80, 160))
]


@pytest.mark.few(2)
@pytest.mark.parametrize("case", SETS)
def test_sets_of_variables_are_no_larger_than_max_parents_allows(case):
    options, name = SETS[case]
    most = 4 if case == "hidden" else options["max_parents"] + 1
    grids = []

    def wrapped(most):
        return lambda grid: grids.append(Enlarging(grid, most)) or grids[-1]

    simulate("fedges", FIVE, wrap_grid=wrapped(0), **options)
    assert 2 <= grids[0].largest <= most
    with pytest.raises(CausalError):
        simulate("fedges", FIVE, wrap_grid=wrapped(most), **options)
    assert any(f"RefusedError: '{name}' is" in reason for reason in grids[1].reasons)
    # The first one is answered by nobody, and the run ends.
    assert len(grids[1].enlarged_ones) == 1


def refused_arrays(tables, method, options, change):
    """The errors of parties that are asked with changed arrays."""

    class Changing(Relay):
        def before(self, messages):
            for message in messages:
                arrays = records.arrays_of(message.content)
                if (changed := change(arrays)) is not None:
                    packed = records.pack_arrays(changed)
                    config = records.config_of(message.content)
                    message.content = records.message_content(packed, config)
            return messages

    with pytest.raises(CausalError) as caught:
        simulate(method, tables, wrap_grid=Changing, **options)
    return str(caught.value)


def test_columns_are_cut_into_no_more_intervals_than_discretize_says():
    def more(arrays):
        if "num-cuts" not in arrays:
            return None
        points = np.arange(3.0 * len(arrays["num-cuts"])).reshape(-1, 3)
        return arrays | {"cuts": points.ravel(), "num-cuts": np.full(len(points), 3)}

    def thresholds(arrays):
        if "thresholds" not in arrays:
            return None
        return arrays | {"thresholds": np.tile(np.arange(500.0), (3, 1))}

    def unordered(arrays):
        return arrays | {"cuts": -arrays["cuts"]} if "cuts" in arrays else None

    options = {"mode": "exact", "discretize": 3}
    assert "'num-cuts' is 3, but" in refused_arrays(NUMBERS, "fedges", options, more)
    assert "has 500 thresholds" in refused_arrays(NUMBERS, "fedges", options, thresholds)
    assert "not in ascending order" in refused_arrays(NUMBERS, "fedges", options, unordered)


def test_circuits_are_over_the_agreed_variables_cut_as_bins_says():
    class Cutting(Relay):
        def before(self, messages):
            for message in messages:
                config = records.config_of(message.content)
                if "domain" in config:
                    plain = json.loads(config["domain"])
                    message.content = records.message_content(
                        records.pack_arrays(records.arrays_of(message.content)),
                        config | {"domain": json.dumps(self.changed(plain))},
                    )
            return messages

        def changed(self, plain):
            for one in plain["variables"] if isinstance(plain, dict) else plain:
                if one.get("edges"):
                    one["edges"], one["inside"] = list(range(20)), None
            return plain

    with pytest.raises(CausalError, match="has 20 cut points of 'a', more than 15"):
        simulate("fedpc", MODES["fedpc trees"][1], wrap_grid=Cutting, **MODES["fedpc trees"][2])


def test_describe_counts_on_grids_that_the_party_knows():
    def between(arrays):
        if "lowest" not in arrays:
            return None
        return arrays | {"widths": arrays["widths"] * 1.001}

    def aside(arrays):
        return arrays | {"lowest": arrays["lowest"] + 1e-3} if "lowest" in arrays else None

    for change in (between, aside):
        said = refused_arrays(NUMBERS, "describe", {}, change)
        assert "does not begin and end at edges of the coarse grid" in said
