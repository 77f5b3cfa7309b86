"""Simulators, metrics and peers that other packages declare by entry points."""

import re
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import scores, worlds
from benchmarks.peers import PEERS
from benchmarks.reproduce import reproduce
from flwr_causal.errors import ConfigError

#: The code and the entry points of the page.
PAGE = (Path(__file__).parents[2] / "docs/reproduce.md").read_text(encoding="utf-8")
CODE = re.search(r"^```python\n(.*?)^```", PAGE, re.S | re.M)[1]
DECLARED = dict(re.findall(r'"flwr_causal\.(\w+)s"\]\n(\w+) = "my_package', PAGE))

SCENARIO = """
title = "all three"
runs = 2
metrics = ["shd", "first_effects"]
[data]
name = "chain"
num_rows = 90
[split]
[grid]
num_variables = [3]
num_parties = [2]
[lines]
correlated = { peer = "correlated", least = 0.3 }
alone = { baseline = "each-alone" }
moments = { method = "moments" }
"""


@pytest.fixture
def theirs(installed):
    assert DECLARED == {"simulator": "chain", "metric": "first_effects", "peer": "correlated"}
    for kind, name in DECLARED.items():
        installed(f"my-{kind}", {name: name}, CODE, f"flwr_causal.{kind}s")


@pytest.mark.slow
def test_a_scenario_uses_all_three(theirs, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SCENARIO)
    out = tmp_path / "out"
    reproduce(str(path), output_dir=out)
    found = pd.read_csv(out / "results.csv")
    assert found["error"].isna().all()
    means = found.groupby("line")["first_effects"].mean()
    # x0 acts on x1, and both are correlated with x2.
    assert means["correlated"] == means["moments"] == 1.0
    assert (found[found["line"] == "correlated"]["shd"] == 1).all()
    assert found[found["line"] == "correlated"]["versions"].str.contains("my-peer 1.0").all()


def test_of_several_graphs_the_mean_is_written(theirs):
    world = worlds.WORLDS["chain"](0, 3)
    whole, empty = (PEERS["correlated"].run(world, least=least) for least in (0.1, 1.0))
    both = type(whole)((*whole.graphs, *empty.graphs))
    assert scores.measured(world, both, ["first_effects"]) == {"first_effects": 0.5}
    assert scores.measured(type(world)(world.parties), both, ["first_effects"]) == {}
    assert scores.measured(world, both, ["shd"]) == {"shd": 1.5}


def test_names_that_cannot_be_used(installed):
    installed("a-b", {"linear": "f", "lost": "f"}, "", "flwr_causal.simulators")
    with pytest.raises(ConfigError, match=r"'a-b' declares a simulator 'linear'.*of flwr-causal"):
        worlds.WORLDS["linear"]
    with pytest.raises(ConfigError, match=r"the simulator 'lost' as 'a_b:f', which cannot be imp"):
        worlds.WORLDS["lost"]
    installed("c-d", {"shd": "f"}, "", "flwr_causal.metrics")
    with pytest.raises(ConfigError, match="'c-d' declares a metric 'shd'"):
        scores.check_metrics(["shd"])
    with pytest.raises(ConfigError, match=r"'metrics' has 'sdh': choose of shd, "):
        scores.check_metrics(["sdh"])
