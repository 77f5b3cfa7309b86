"""Numbers with categories: CPU seconds of many rows, and intervals of effects."""

import numpy as np
import pandas as pd

from benchmarks.measure.registry import Table, benchmark, cpu, linear_parties, with_error
from benchmarks.real_tables import mixed, states
from flwr_causal import Knowledge
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.simulations import simulate

# Rows of all parties, and how many edges of 50 variables.
SIZES = ((10_000, 100), (100_000, 100), (100_000, 200))
NUM_VARIABLES, PARTIES = 50, 10
WORLDS_PER_SEED = 60
SHARES = (0.0, 0.15)
KINDS = ("a number on a number", "a category on a number", "a category on a category")
NAMES = ("group", "treated", "site", "a", "b", "c", "e")
EDGES = (
    ("group", "treated"),
    ("group", "a"),
    ("site", "a"),
    ("a", "b"),
    ("treated", "b"),
    ("a", "c"),
    ("b", "c"),
    ("c", "e"),
    ("site", "e"),
)


# What the graph by likelihood is compared on: words, the world of a seed, and further options.
CURVED = {"model": "curved"}
BY_LIKELIHOOD = (
    ("10 variables, 20 edges, two states cut from numbers, 1,000 rows", states, (10, 1000, 2), {}),
    ("20 variables, 37 edges, half of them categories, 2,000 rows", mixed, (20, 37, 2000), {}),
    ("10 variables, 15 edges, half of them categories, 500 rows", mixed, (10, 15, 500), {}),
    (
        "10 variables, 20 edges, three states in no order, 1,000 rows",
        states,
        (10, 1000, 3, True),
        CURVED,
    ),
    (
        "10 variables, 20 edges, four states, curved effects, 2,000 rows",
        states,
        (10, 2000, 4, True, True),
        CURVED,
    ),
)


def dealt(table, num_parties):
    """Return the rows of each party."""
    places = np.array_split(np.arange(len(table)), num_parties)
    return [table.iloc[own].reset_index(drop=True) for own in places]


@benchmark("tables-seconds", "Numbers and categories, 50 variables: CPU seconds of whole runs")
def seconds(setup):
    warm_up = linear_parties(10, 200, 3, 0)[0]
    simulate("moments", warm_up, text_columns="keep", progress=False)  # imports on first use
    rows = []
    for n, num_edges in SIZES[:1] if setup.quick else SIZES:
        found = []
        for seed in setup.seeds:
            world = mixed(seed, NUM_VARIABLES, num_edges, n)
            tables = dealt(world.pooled, PARTIES)
            options = {"text_columns": "keep", "truth": world.truth, "progress": False}
            run, used = cpu(simulate, "moments", tables, **options)
            found.append((used, run.metrics["cpdag_shd"]))
        used, errors = np.transpose(found)
        rows.append((n, num_edges, with_error(used), with_error(errors, 1), len(run.history)))
    note = (
        "Half numbers, half categories of two to four states, complete, ten parties: server and "
        "parties in one process. The goal is 20 seconds for 100,000 rows."
    )
    return Table(("rows", "edges", "CPU s", "CPDAG SHD", "exchanges"), rows, (note,))


@benchmark("tables-likelihood", "Numbers and categories: the graph by likelihood", "60000-60019")
def likelihood(setup):
    rows = []
    for words, make, sizes, options in BY_LIKELIHOOD[:1] if setup.quick else BY_LIKELIHOOD:
        found, exchanges = [], []
        for seed in setup.seeds:
            world = make(seed, *sizes)
            tables, own = dealt(world.pooled, PARTIES), []
            for parameters in ("moments", "likelihood"):
                run = simulate(
                    "moments",
                    tables,
                    text_columns="keep",
                    parameters=parameters,
                    truth=world.truth,
                    progress=False,
                    **options,
                )
                own.append(run.metrics["cpdag_shd"])
            found.append((*own, own[1] - own[0]))
            exchanges.append(run.rounds)
        errors = [with_error(column, 1) for column in np.transpose(found)]
        rows.append((words, options.get("model", "linear"), *errors, with_error(exchanges, 1)))
    note = (
        'Errors of the class (SHD of CPDAGs). `parameters="likelihood"` chooses among graphs near '
        "the best Gaussian score by the likelihood of regressions. Equal seeds, ten parties."
    )
    columns = (
        "world",
        "model",
        '`"moments"`',
        '`"likelihood"`',
        "difference",
        "exchanges",
    )
    return Table(columns, rows, (note,))


@benchmark("tables-plain", "Numbers alone: as blocks of one column, and as a class", "7800-7809")
def plain(setup):
    lines = {
        'text_columns="keep"': {"text_columns": "keep"},
        'solver="class"': {"solver": "class"},
        "default": {},
    }
    found = {name: [] for name in lines}
    for seed in setup.seeds:
        tables, weights = federated_linear(20, 1000, 5, seed=seed, edges_per_node=2)
        for name, options in lines.items():
            run = simulate("moments", tables, truth=weights, progress=False, **options)
            found[name].append((run.metrics["cpdag_shd"], run.metrics["shd"]))
    rows = [
        (f"`{name}`", *(with_error(errors, 1) for errors in np.transpose(own)))
        for name, own in found.items()
    ]
    note = (
        "Erdos-Renyi graphs of 20 variables and 40 edges, 1,000 rows of five parties, noise of one "
        "variance, from which the default finds directions beyond the class."
    )
    return Table(("options", "CPDAG SHD", "SHD"), rows, (note,))


def world_of(n, rng):
    """Draw rows of which the linear model is right, and effects: value, and what is asked."""
    group, site = rng.choice(3, n, p=[0.5, 0.3, 0.2]), rng.choice(3, n, p=[0.4, 0.4, 0.2])
    treated_by = rng.uniform(0.2, 0.8, 3)
    treated = (rng.random(n) < treated_by[group]).astype(int)
    of_group, of_site, of_site_on_e = rng.normal(size=(3, 3))
    of_treated = rng.normal()
    ab, ac, bc, ce = rng.uniform(0.3, 1.2, 4) * rng.choice([-1, 1], 4)
    noise = rng.normal(size=(4, n)) * rng.uniform(0.7, 1.4, (4, 1))
    a = of_group[group] + of_site[site] + noise[0]
    b = ab * a + of_treated * treated + noise[1]
    c = ac * a + bc * b + noise[2]
    e = ce * c + of_site_on_e[site] + noise[3]
    states = (np.array(list(text))[own] for text, own in (("xyz", group), ("ny", treated)))
    columns = (*states, np.array(list("pqr"))[site], a, b, c, e)
    on_a, on_site = of_group[1] - of_group[0], of_site[2] - of_site[0]
    on_treated, total_ac = treated_by[1] - treated_by[0], ac + ab * bc
    groups, sites = ({"state": s, "reference": r} for s, r in ("yx", "rp"))
    set_ = {"state": "y", "reference": "n"}
    effects = {
        ("a", "b"): (ab, {}),
        ("a", "c"): (total_ac, {}),
        ("a", "e"): (ce * total_ac, {}),
        ("b", "c"): (bc, {}),
        ("c", "e"): (ce, {}),
        ("group", "a"): (on_a, groups),
        ("group", "b"): (ab * on_a + of_treated * on_treated, groups),
        ("group", "c"): (total_ac * on_a + bc * of_treated * on_treated, groups),
        ("group", "treated"): (on_treated, groups | {"outcome": "y"}),
        ("site", "a"): (on_site, sites),
        ("site", "e"): (ce * total_ac * on_site + of_site_on_e[2] - of_site_on_e[0], sites),
        ("treated", "b"): (of_treated, set_),
        ("treated", "c"): (bc * of_treated, set_),
    }
    return pd.DataFrame(dict(zip(NAMES, columns, strict=True))), effects


def kind_of(cause, effect):
    if effect == "treated":
        return KINDS[2]
    return KINDS[cause in ("group", "site", "treated")]


@benchmark("tables-effects", "Intervals of effects that contain the truth, 2,000 rows", "5000-5004")
def effects(setup):
    others = [(i, j) for i in NAMES for j in NAMES if i != j and (i, j) not in EDGES]
    knowledge = Knowledge(required=list(EDGES), forbidden=others)
    rows = []
    for share in SHARES:
        hits = {name: [] for name in KINDS}
        for seed in setup.seeds:
            rng = np.random.default_rng(seed)
            for _ in range(WORLDS_PER_SEED):
                table, asked = world_of(2000, rng)
                tables = dealt(table.mask(rng.random(table.shape) < share), 4)
                options = {"missing_values": "em"} if share else {}
                options |= {"text_columns": "keep", "knowledge": knowledge, "progress": False}
                run = simulate("moments", tables, **options)
                for (cause, effect), (value, how) in asked.items():
                    low, high = run.model.total_effect(cause, effect, **how).interval
                    hits[kind_of(cause, effect)].append(low <= value <= high)
        every = np.concatenate(list(hits.values()))
        cells = (f"{100 * np.mean(own):.1f} %" for own in (*hits.values(), every))
        rows.append((f"{share:.0%}", len(setup.seeds) * WORLDS_PER_SEED, *cells))
    note = (
        "Seven variables, nine edges, four parties; the graph is given as required and forbidden "
        "edges. 95 % intervals of 13 total effects a table."
    )
    return Table(("missing cells", "tables", *KINDS, "all"), rows, (note,))
