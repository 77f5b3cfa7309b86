"""2Dbn and the one-exchange method on series: accuracy and time against the public code."""

import numpy as np
import pandas as pd
from core_loop import two_dbn
from dynamic_cases import SETTINGS, dynamic_case
from dynamic_public_code import POOLED_DYNOTEARS, TWO_DBN
from speed import cpu
from tables import mean_and_error, print_table, verdict

from flwr_causal.core.graphs.metrics import compare
from flwr_causal.simulations import series_scenarios, simulate
from flwr_causal.simulations.scenarios.baselines import average, best, pooled
from flwr_causal.simulations.scenarios.world import World

# Share of the public code's summed SHD, exchanges, standard errors that a setting may be above.
GOAL_RATIO, GOAL_EXCHANGES, GOAL_EXCESS = 0.4, 25, 2
# CPU seconds of the public code over those of the core, where it works: from this many parties on.
GOAL_SPEED, MANY_PARTIES = 50, 8
# 20 series of 1000 steps, three lags; CPU seconds.
LARGE = series_scenarios.SeriesSetting(100, 20 * 997, 20, order=3)
GOAL_LARGE = 30.0
# Sparsities of pooled DYNOTEARS: its authors' advice, and one at which it has fewer errors here.
SPARSITIES = (0.05, 0.1)
BASELINES = {"Alldata": pooled, "Ave": average, "Best": best}


def main(seeds, quick):
    settings = chosen_settings(quick)
    found = {s: [federated("2dbn", s, seed) for seed in seeds] for s in settings}
    federated_table(found, seeds)
    federated_goals(found)
    one_exchange(settings, seeds)


def times(seeds, quick):
    settings = [s for s in chosen_settings(quick) if s.num_parties >= MANY_PARTIES]
    core_and_engine(settings, seeds)
    if not quick:
        large()


def chosen_settings(quick):
    return [s for s in SETTINGS if s[0] <= 10 and s[2] <= 16] if quick else list(SETTINGS)


def federated(method, setting, seed):
    """SHD of W and of A, and exchanges, of one run on the local engine."""
    parties, truth = dynamic_case(setting, seed)
    run = simulate(method, parties, truth=truth, order=setting.order)
    return run.metrics["shd"], run.metrics["lagged_shd"], run.rounds


def federated_table(found, seeds):
    rows = []
    for setting, runs in found.items():
        public = TWO_DBN[setting[:3]]
        rows.append(
            (
                *setting[:3],
                f"{public.paper:.1f}",
                f"{public.now:.1f} + {public.lagged:.1f} ± {public.error:.1f}",
                public.rounds,
                blocks(runs),
                max(run[2] for run in runs),
                f"{excess(runs, public):+.1f}",
            )
        )
    print_table(
        f"2Dbn at its defaults, mean SHD of W + A ± standard error of the sum, seeds {list(seeds)}",
        (
            "d",
            "n",
            "K",
            "public code at .3",
            "public code at .15",
            "rounds",
            "default",
            "exchanges",
            "difference to .15 / its standard error",
        ),
        rows,
    )


def federated_goals(found):
    most = max(run[2] for runs in found.values() for run in runs)
    worst = max(found, key=lambda s: excess(found[s], TWO_DBN[s[:3]]))
    above = excess(found[worst], TWO_DBN[worst[:3]])
    rows = [
        ("exchanges, at most", most, GOAL_EXCHANGES, verdict(most <= GOAL_EXCHANGES)),
        summed("all settings", found, found, GOAL_RATIO),
        (
            f"largest difference to the public code / its standard error, at {tuple(worst[:3])}",
            f"{above:+.1f}",
            f"+{GOAL_EXCESS}",
            verdict(above <= GOAL_EXCESS),
        ),
        # Where the public code returns graphs that are not empty.
        summed(
            f"K >= {MANY_PARTIES} only", found, [s for s in found if s.num_parties >= MANY_PARTIES]
        ),
    ]
    print_table("Goals", ("quantity", "measured", "goal", "met"), rows)


def summed(name, found, settings, goal=None):
    """Row of a table: the summed SHD beside the public code's."""
    ours = sum(totals(found[s]).mean() for s in settings)
    public = sum(TWO_DBN[s[:3]].total for s in settings)
    ratio = ours / public
    judged = ("", "") if goal is None else (goal, verdict(ratio <= goal))
    return (f"summed SHD, {name}: {ours:.1f} / {public:.1f}", f"{ratio:.3f}", *judged)


def totals(runs):
    """SHD of both blocks together, one entry a run."""
    return np.array([now + lagged for now, lagged, *_ in runs], dtype=float)


def blocks(runs):
    now, lagged = (np.mean([run[block] for run in runs]) for block in (0, 1))
    return f"{now:.1f} + {lagged:.1f} ± {mean_and_error(totals(runs))[1]:.1f}"


def excess(runs, public):
    """Difference to the public code in units of its standard error."""
    mean, error = mean_and_error(totals(runs))
    return (mean - public.total) / max(np.hypot(error, public.error), 1e-9)


def one_exchange(settings, seeds):
    """Moments with lags beside DYNOTEARS on the rows of all parties, and the paper's baselines."""
    settings = [s for s in settings if s[:3] in POOLED_DYNOTEARS]
    moments = {s: [federated("moments", s, seed) for seed in seeds] for s in settings}
    peers = {s: [baselines(s, seed) for seed in seeds] for s in settings}
    columns = [(name, sparsity) for name in BASELINES for sparsity in SPARSITIES]
    by_column = {c: {s: [runs[c] for runs in peers[s]] for s in settings} for c in columns}
    rows = []
    for s in settings:
        public = POOLED_DYNOTEARS[s[:3]]
        cells = [f"{public.now:.1f} + {public.lagged:.1f} ± {public.error:.1f}", blocks(moments[s])]
        rows.append((*s[:3], *cells, *(blocks(by_column[c][s]) for c in columns)))
    header = [f"{name}, {sparsity}" for name, sparsity in columns]
    print_table(
        "One exchange (moments, order 1) and baselines, mean SHD of W + A at .15 ± standard error "
        f"of the sum, seeds {list(seeds)}",
        ("d", "n", "K", "pooled DYNOTEARS, its program", "moments", *header),
        rows,
    )
    ours = sum(totals(moments[s]).mean() for s in settings)
    limits = {"pooled DYNOTEARS, its program": sum(POOLED_DYNOTEARS[s[:3]].total for s in settings)}
    for column, name in zip(columns, header, strict=True):
        limits[name] = sum(totals(by_column[column][s]).mean() for s in settings)
    print_table(
        f"Summed SHD over {len(settings)} settings; moments has {ours:.1f}",
        ("beside", "summed SHD", "moments / this", "goal", "met"),
        [
            (name, f"{limit:.1f}", f"{ours / limit:.3f}", 1, verdict(ours <= limit))
            for name, limit in limits.items()
        ],
    )


def baselines(setting, seed):
    """SHD of W and of A of each of the paper's baselines, by name and sparsity."""
    series, truth = dynamic_case(setting, seed)
    parties = [pd.DataFrame(values, columns=list(truth.names)) for values in series]
    world = World(parties, truth)
    found = {}
    for sparsity in SPARSITIES:
        for name, baseline in BASELINES.items():
            graph = baseline(world, solver="dynotears", sparsity=sparsity).graphs[0]
            metrics = compare(truth, graph)
            found[name, sparsity] = metrics["shd"], metrics["lagged_shd"]
    return found


def core_and_engine(settings, seeds):
    """CPU seconds of one run: the public code, the core alone, the local engine."""
    warm_up, _ = dynamic_case(settings[0], 0)
    two_dbn(warm_up)
    simulate("2dbn", warm_up)  # imports on first use
    rows, public_seconds, core_seconds = [], 0.0, 0.0
    for setting in settings:
        core, engine = [], []
        for seed in seeds:
            parties, _ = dynamic_case(setting, seed)
            (graph, rounds), seconds = cpu(two_dbn, parties)
            run, total = cpu(simulate, "2dbn", parties)
            same = np.allclose(graph.weights, run.graph.weights, atol=1e-6)
            if rounds != run.rounds or not same:
                print(f"the core loop and the engine differ at {setting}, seed {seed}")
            core.append(seconds)
            engine.append(total)
        public = TWO_DBN[setting[:3]].cpu_seconds
        public_seconds += public
        core_seconds += np.mean(core)
        cells = (f"{np.mean(core):.3f}", f"{public / np.mean(core):.0f}", f"{np.mean(engine):.3f}")
        rows.append((*setting[:3], f"{public:.1f}", *cells))
    ratio = public_seconds / core_seconds
    print_table(
        "2Dbn, CPU seconds of one run",
        ("d", "n", "K", "public code", "core", "ratio", "engine, all"),
        rows,
    )
    print_table(
        "Goals",
        ("quantity", "measured", "goal", "met"),
        [
            (
                f"CPU of the public code / the core, summed: {public_seconds:.1f} / "
                f"{core_seconds:.2f} s",
                f"{ratio:.0f}",
                GOAL_SPEED,
                verdict(ratio >= GOAL_SPEED),
            )
        ],
    )


def large():
    """Many variables and several lags on the local engine."""
    parties, truth = dynamic_case(LARGE, 0)
    rows = []
    for method in ("2dbn", "moments"):
        run, seconds = cpu(simulate, method, parties, truth=truth, order=LARGE.order)
        rows.append(
            (
                method,
                *LARGE,
                f"{seconds:.1f}",
                f"{GOAL_LARGE:g}",
                verdict(seconds <= GOAL_LARGE),
                run.metrics["shd"],
                run.metrics["lagged_shd"],
                int((truth.weights != 0).sum()),
                int((truth.lagged != 0).sum()),
            )
        )
    print_table(
        "Many variables, 20 series of 1000 steps: CPU seconds of the whole run (one core)",
        (
            "method",
            "d",
            "n",
            "K",
            "p",
            "CPU s",
            "goal",
            "met",
            "SHD of W",
            "SHD of A",
            "edges of W",
            "edges of A",
        ),
        rows,
    )
