"""All methods and modes on degenerate tables: an outcome or a named error, within bounded work.

Work is counted, not timed: iterations of the server's solvers (`check_deadline`), and exchanges.
"""

from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from degenerate import DEGENERATE, DETERMINED, cases
from sweeps import sweep

from flwr_causal import simulate
from flwr_causal.core import limits
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.runtime import server_work

#: Iterations of the server's solvers, and exchanges; twice what the longest of the runs takes.
MOST_ITERATIONS, MOST_EXCHANGES = 8_000, 70
#: Parties cannot be made to leave columns there, or an intervention sets a share.
NAMED_ONLY = ("2dbn personalised", "moments missing interventions, shares")
#: Modes of few kinds that stay among the fast tests.
FEW = ("moments", "moments hidden", "moments missing", "moments mixed")


@pytest.fixture
def counted(monkeypatch):
    """Count the iterations, and end a run of too many."""
    count = [0]
    original = limits.deadline

    @contextmanager
    def deadline(check):
        def counting():
            count[0] += 1
            assert count[0] <= MOST_ITERATIONS, "the solver does not end"
            check()

        with original(counting):
            yield

    monkeypatch.setattr(server_work, "deadline", deadline)
    return count


def outcome_of(case):
    """Run a case; return its outcome, None where an error names what is wrong with the tables."""
    try:
        run = simulate(case.method, case.parties, **case.options)
    except (DataError, ConfigError) as error:  # before the training
        said = str(error)
    except FederationError as error:  # a party says what is wrong with its rows
        said = str(error) if "DataError: no class has two rows" in str(error) else ""
    else:
        return _checked(case, run)
    assert any(word in said for word in ("column", "option", "rows", "series"))
    return None


def _checked(case, run):
    assert run.rounds <= MOST_EXCHANGES
    if run.graph is not None:
        names = {column for part in case.parties for column in part}
        table = pd.concat(case.parties)
        left = {name for name in names if table[name].nunique() < 2} - set(run.graph.names)
        assert names - {"on", "target", "row"} - left == set(run.graph.names)
        assert np.isfinite(run.graph.weights).all()
    if run.scores is not None:
        assert np.isfinite(run.scores).all()
    return run


def leaves(name, case, run):
    """The column that others determine is named, and leaves the search."""
    mode, change = name.split(", ")
    column = DETERMINED.get(change)
    if column is None or case.method in ("fedpc", "fedges") or run is None:
        return
    said = [text for text in run.warnings if "Leave one of them out" in text]
    assert any(f"Column '{column}' is " in text for text in said), run.warnings
    if mode in NAMED_ONLY or name in NAMED_ONLY:
        return
    assert any(text.startswith("Left out") and f"'{column}'" in text for text in run.warnings)
    place = run.graph.names.index(column)
    edges = run.graph.adjacency.copy()
    if run.graph.lagged is not None:
        edges |= (run.graph.lagged != 0).any(axis=0)
    assert not edges[place].any()
    assert not edges[:, place].any()


CASES = cases()
SOME = {name: case for name, case in CASES.items() if name.split(", ")[0] in FEW}


def test_each_input_is_met_by_some_mode():
    assert {name.split(", ")[1] for name in CASES} == set(DEGENERATE)


@pytest.mark.few(30)
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sweep([name for name in CASES if name not in SOME], [*CASES][:: len(FEW) + 1])
)
def test_degenerate_tables_have_an_outcome_or_a_named_error(name, counted):
    leaves(name, CASES[name], outcome_of(CASES[name]))


@pytest.mark.few(17)
@pytest.mark.parametrize("name", SOME)
def test_degenerate_tables_in_the_usual_modes(name, counted):
    leaves(name, CASES[name], outcome_of(CASES[name]))
