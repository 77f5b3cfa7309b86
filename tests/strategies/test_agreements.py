"""What a strategy knows of the parties' tables is in the agreement."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal import simulate
from flwr_causal.strategies import FedGES, FedPC, Moments

RNG = np.random.default_rng(3)
ROWS = pd.DataFrame(np.cumsum(RNG.normal(size=(60, 3)), axis=1), columns=list("abc"))
JOINED = [ROWS.assign(id=range(60))[["id", *own]] for own in ("ab", "bc")]
STATES = [
    table.assign(**{name: table[name] > 0 for name in table if name != "id"}) for table in JOINED
]


@pytest.mark.parametrize(
    ("strategy", "tables"),
    [
        (Moments(row_id="id"), JOINED),
        (FedGES(row_id="id", mode="exact", max_parents=2), STATES),
        (FedPC(row_id="id"), STATES),
    ],
)
def test_agree_leaves_the_strategy_as_it_is(strategy, tables, monkeypatch):
    original, agreements = type(strategy).agree, []

    def agree(self, reports):
        before = dict(vars(self))
        agreements.append(original(self, reports))
        assert vars(self) == before
        return agreements[-1]

    monkeypatch.setattr(type(strategy), "agree", agree)
    simulate(strategy, tables)
    assert all(one.columns_differ for one in agreements)
    simulate(strategy, [tables[0], tables[0]])
    assert not agreements[-1].columns_differ
