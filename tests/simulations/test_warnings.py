"""Warnings of whole runs: each fires on its case, none on the papers' data; docs/warnings.md."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.data.partition import split_even
from flwr_causal.data.synthetic.discrete import federated_discrete
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.data.synthetic.nonlinear import federated_nonlinear
from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.simulations import simulate

PAGE = Path(__file__).parents[2] / "docs" / "warnings.md"

#: Method, simulator, its arguments (variables, rows, parties, mechanism of one system), options.
#: The small ones run always, the papers' under `slow`.
LINEAR, SERIES, NONLINEAR = "linear", "series", "nonlinear"
SIMULATORS = {LINEAR: federated_linear, SERIES: federated_dynamic, NONLINEAR: federated_nonlinear}
SMALL = [
    ("moments", LINEAR, (10, 30, 10), {}),
    ("moments", LINEAR, (5, 256, 64), {}),
    ("notears-admm", LINEAR, (10, 30, 10), {}),
    ("2dbn", SERIES, (5, 30, 10), {}),
    ("moments", SERIES, (5, 30, 10), {"order": 1}),
    ("fedcausal", NONLINEAR, (5, 300, 5), {"refine": "none"}),
    ("fedcausal", NONLINEAR, (5, 300, 5), {}),
    ("fedcausal", NONLINEAR, (5, 300, 5, "lg"), {}),
    ("fedcausal", NONLINEAR, (5, 300, 5), {"model": "linear"}),
    ("fedcausal", NONLINEAR, (5, 300, 5, "lg"), {"model": "linear"}),
    ("moments", NONLINEAR, (5, 300, 5, "anm-mlp"), {"model": "additive"}),
]
LARGE = [
    *(("moments", LINEAR, (d, 3 * d, 10), {}) for d in (10, 20, 50)),
    *(("notears-admm", LINEAR, (d, 3 * d, 10), {}) for d in (10, 20)),
    *(("notears-admm", LINEAR, (10, 256, parties), {}) for parties in (2, 64)),
    *(("2dbn", SERIES, sizes, {}) for sizes in ((5, 30, 10), (10, 50, 10), (20, 100, 10))),
    *(("2dbn", SERIES, (10, 256, parties), {}) for parties in (2, 64)),
    ("fedcausal", NONLINEAR, (10, 2000, 10), {}),
    ("fedcausal", NONLINEAR, (10, 2000, 10, "lg"), {}),
    ("fedcausal", NONLINEAR, (10, 2000, 10), {"model": "linear"}),
]


def unwarned(method, simulator, sizes, options, seeds):
    system = {"mechanisms": sizes[3], "iid": True} if len(sizes) > 3 else {}
    for seed in seeds:
        parties, _ = SIMULATORS[simulator](*sizes[:3], seed=seed, **system)
        assert simulate(method, parties, seed=seed, **options).warnings == [], seed


@pytest.mark.few(5)
@pytest.mark.slow
@pytest.mark.parametrize(("method", "simulator", "sizes", "options"), SMALL, ids=str)
def test_the_papers_data_have_no_warnings(method, simulator, sizes, options):
    unwarned(method, simulator, sizes, options, range(1))


@pytest.mark.nightly
@pytest.mark.parametrize(("method", "simulator", "sizes", "options"), [*SMALL, *LARGE], ids=str)
def test_the_papers_data_have_no_warnings_with_many_seeds(method, simulator, sizes, options):
    unwarned(method, simulator, sizes, options, range(100, 103))


@pytest.mark.parametrize("mode", ["scores", "exact"])
def test_sampled_networks_have_no_warnings_but_of_small_counts(mode):
    parties, _ = federated_discrete(6, 600, 3, seed=0)
    for text in simulate("fedges", parties, mode=mode).warnings:
        assert "counts of fewer than" in text


# Each case below has its line in docs/warnings.md.


def system(d=6, n=300, parties=3, seed=0):
    """A chain with noise of one variance: c0 -> c1 -> ..."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d))
    for j in range(1, d):
        rows[:, j] += 0.9 * rows[:, j - 1]
    return split_even(pd.DataFrame(rows, columns=[f"c{j}" for j in range(d)]), parties, seed)


def changed(tables, party, **columns):
    """The tables with columns of one party, or of all of them (None), computed anew."""
    chosen = range(len(tables)) if party is None else [party]
    return [
        table.assign(**columns) if k in chosen else table.copy() for k, table in enumerate(tables)
    ]


def of_units():
    return [table * [1, 30, 0.1, 10, 0.3, 60] for table in system()]


def of_lags():
    rng = np.random.default_rng(0)
    return [np.cumsum(rng.normal(size=(120, 3)), axis=0) for _ in range(2)]


def few_rows():
    return [pd.DataFrame(np.random.default_rng(k).normal(size=(2, 5))) for k in range(4)]


def survey():
    rng = np.random.default_rng(1)
    income = rng.integers(0, 2, 900)
    school = rng.integers(0, 2, 900)
    age = np.where(rng.random(900) < 0.15, rng.integers(0, 2, 900), income | school)
    frame = pd.DataFrame({"income": income, "school": school, "age": age}).astype(str)
    return [part.reset_index(drop=True) for part in split_even(frame, 3, 0)]


def spelt():
    first, *others = survey()
    return [
        first.replace({"income": {"1": "yes"}}),
        *(table.replace({"income": {"1": "YES "}}) for table in others),
    ]


CASES = {
    "units between parties": (
        "moments",
        lambda: changed(system(), 1, c2=lambda t: t.c2 * 1000),
        {},
        ("units of some columns seem to differ", "'c2'", "'party 1'"),
    ),
    "units between parties, categories": (
        "fedges",
        lambda: changed(system(), 1, c2=lambda t: t.c2 * 1000),
        {"discretize": 3},
        ("units of some columns seem to differ", "'c2'", "'party 1'"),
    ),
    "levels": (
        "notears-admm",
        lambda: changed(system(), 2, c4=lambda t: t.c4 + 50),
        {"max_rounds": 8, "center": "global"},
        ("means of some columns", "'c4'", "'party 2'", "center='party'"),
    ),
    "levels of series": (
        "2dbn",
        lambda: [system(3, 90, 1)[0], system(3, 90, 1, seed=1)[0] + 50],
        {"max_rounds": 8},
        ("means of some columns", "center='series'"),
    ),
    **{
        f"units of columns, {method}": (
            method,
            lambda: changed(system(), None, c3=lambda t: t.c3 * 1e4),
            options,
            ("standard deviation of column 'c3'", "standardize=True"),
        )
        for method, options in {
            "moments": {},
            "notears-admm": {"variant": "paper", "max_rounds": 4},
            "fedcausal": {"refine": "none", "max_rounds": 4},
            "2dbn": {"max_rounds": 8},
        }.items()
    },
    **{
        f"units that decide, {method}": (
            method,
            of_units,
            {},
            ("The units of the columns may have decided", "'c5'", "standardize=True", "tiers"),
        )
        for method in ("moments", "notears-admm", "2dbn")
    },
    **{
        f"units that decide, {options}": (
            method,
            of_units,
            options,
            ("The units of the columns may have decided", "standardize=True", "tiers"),
        )
        for method, options in (
            ("fedcausal", {}),
            ("fedcausal", {"noise": "equal"}),
            ("fedcausal", {"refine": "none"}),
            ("fedcausal", {"model": "linear", "max_rounds": 10}),
            ("notears-admm", {"refit": False, "max_rounds": 12}),
        )
    },
    "standardised, evidence": (
        "fedcausal",
        system,
        {"standardize": True},
        ("With standardised columns", "rows as well the other way", "tiers"),
    ),
    "standardised, group lasso": (
        "fedcausal",
        system,
        {"standardize": True, "refine": "none"},
        ("With standardised columns", "rows as well the other way", "tiers"),
    ),
    "standardised": (
        "moments",
        system,
        {"standardize": True},
        ("With standardised columns", "to_cpdag()", "tiers"),
    ),
    "few rows": (
        "moments",
        lambda: system(6, 6, 2),
        {},
        ("All parties together have 6 rows for 6 columns", "Add rows"),
    ),
    "few rows a party": (
        "fedcausal",
        few_rows,
        {},
        ("largest party has 2 rows for 5 columns",),
    ),
    "no strength": (
        "fedcausal",
        few_rows,
        {},
        ("next to no strength are left out", "0 -> 1"),
    ),
    "combination": (
        "notears-admm",
        lambda: changed(system(), None, c5=lambda t: t.c1 + t.c2),
        {"max_rounds": 8},
        ("'c5' is a linear combination of 'c1', 'c2'", "Leave one of them out"),
    ),
    "combination, small parties": (
        "moments",
        lambda: changed(system(6, 42, 7), None, c5=lambda t: t.c1 + t.c2),
        {},
        ("'c5' is a linear combination of 'c1', 'c2'",),
    ),
    "combination, own mechanisms": (
        "fedcausal",
        lambda: changed(system(), None, c5=lambda t: t.c1 + t.c2),
        {"max_rounds": 4},
        ("'c5' is a linear combination of 'c1', 'c2'", "Leave one of them out"),
    ),
    "far values": (
        "fedcausal",
        lambda: changed(system(), 0, c3=lambda t: np.where(t.index == t.index[4], -9999, t.c3)),
        {"max_rounds": 4},
        ("far outside", "'c3'", "party 'party 0'", "missing_values"),
    ),
    "one row": (
        "moments",
        lambda: changed(
            system(),
            0,
            c3=lambda t: np.where(t.index == t.index[4], 1.5 * len(t) ** 0.5 * t.c3.std(), t.c3),
        ),
        {},
        ("A single row", "'c3'", "party 'party 0'", "logarithms"),
    ),
    "states": (
        "fedges",
        spelt,
        {},
        ("differ from another one only in case or blanks", "'income'", "'party 0'"),
    ),
    "states, circuits": (
        "fedpc",
        spelt,
        {"target": "age"},
        ("differ from another one only in case or blanks", "'income'"),
    ),
    "tiers": (
        "fedges",
        survey,
        {},
        ("income -> age", "[['age'], [all other columns]]"),
    ),
    "not stationary": ("moments", of_lags, {"order": 1}, ("spectral radius", "differences")),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_each_warning_fires_and_stands_on_the_page(case):
    method, tables, options, words = CASES[case]
    warnings = simulate(method, tables(), **options).warnings
    text = next((one for one in warnings if words[0] in one), "")
    for word in words:
        assert word.casefold() in text.casefold(), (word, warnings)
    for one in warnings:
        assert any(all(part in one for part in parts) for parts in listed()), one


def listed():
    """The warnings on the page: what stands between the words that differ from case to case."""
    lines = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [[part.strip() for part in line.split("...")] for line in lines]


SERIES_OF_SUMS = [
    pd.DataFrame(np.random.default_rng(k).exponential(size=(90, 2)), columns=["a", "b"]).assign(
        c=lambda t: t.a + t.b
    )
    for k in range(3)
]


@pytest.mark.few(4)
@pytest.mark.parametrize("method", ["moments", "lingam"])
@pytest.mark.parametrize(
    "options",
    [{}, {"order": 1}, {"model": "additive"}, {"solver": "ges"}, {"solver": "class", "order": 1}],
)
def test_pooled_sums_show_combinations_where_parties_say_nothing(method, options):
    """With secure sums no party reports them."""
    if method == "lingam" and options.keys() - {"order"}:
        pytest.skip("options of moments")
    for secure in (False, True):
        run = simulate(method, SERIES_OF_SUMS, secure_aggregation=secure, **options)
        said = [text for text in run.warnings if "Leave one of them out" in text]
        assert len(said) == 1
        assert "'c' is a linear combination of 'a', 'b'" in said[0]


def test_tiers_silence_doubts_about_directions():
    ages = simulate("fedges", survey(), knowledge=Knowledge(tiers=[["age"], ["income", "school"]]))
    assert not any("tiers" in text for text in ages.warnings)
    order = Knowledge(tiers=[[f"c{j}"] for j in range(6)])
    assert simulate("moments", system(), standardize=True, knowledge=order).warnings == []


def test_edges_of_no_strength_are_in_no_graph():
    run = simulate("fedcausal", few_rows())
    assert run.graph.num_edges == 0
    assert run.scores.shape == (5, 5)
