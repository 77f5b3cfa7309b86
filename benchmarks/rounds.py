"""NOTEARS-ADMM on the paper's 22 settings: accuracy against the public code in fewer rounds."""

import numpy as np
import public_code
from cases import SETTINGS, linear_case, split
from tables import mean_and_error, print_table, verdict, with_error

from flwr_causal.data.partition import split_uneven
from flwr_causal.data.read.tables import read_table
from flwr_causal.simulations import simulate

# Goals: share of the public code's summed SHD, by exchanges.
GOALS = {40: 0.35, 20: 0.65}
MANY_SMALL_PARTIES = (50, 256, 64)
GOAL_MANY_SMALL_PARTIES = 8.0


def even(rows, num_parties, seed):
    return split(rows, num_parties)


def in_other_units(rows, num_parties, seed):
    """All columns times 1000, as in going from kilograms to grams."""
    return split(1000.0 * rows, num_parties)


def in_units_of_their_own(rows, num_parties, seed):
    """Every column in a unit of its own, from thousandths to thousands."""
    factors = 10.0 ** np.random.default_rng([9, seed]).uniform(-3, 3, rows.shape[1])
    return split(rows * factors, num_parties)


def unequal(rows, num_parties, seed):
    """Sizes from a symmetric Dirichlet distribution with concentration 1, two rows at least."""
    return split_uneven(read_table(rows), num_parties, seed, concentration=1.0)


# (name, how the parties come about, options)
VARIANTS = (
    ("all columns x 1000", in_other_units, {}),
    ("sizes of the parties Dirichlet(1)", unequal, {}),
    ("standardize=True", even, {"standardize": True}),
    ("each column in its own unit, standardize=True", in_units_of_their_own, {"standardize": True}),
    ('center="party"', even, {"center": "party"}),
    ("refit=False", even, {"refit": False}),
    ('sparsity="bic"', even, {"sparsity": "bic"}),
)


def errors(setting, seed, partition=even, **options):
    """SHD and exchanges of one federated run on the local engine."""
    d, n, num_parties = setting
    rows, truth = linear_case(d, n, seed)
    parties = partition(rows, num_parties, seed)
    run = simulate("notears-admm", parties, truth=truth, **options)
    return run.metrics["shd"], run.rounds


def suite(settings, seeds, partition=even, **options):
    """SHD and exchanges, both by setting, one entry a seed."""
    results = {s: [errors(s, seed, partition, **options) for seed in seeds] for s in settings}
    shd = {setting: [r[0] for r in pairs] for setting, pairs in results.items()}
    rounds = {setting: [r[1] for r in pairs] for setting, pairs in results.items()}
    return shd, rounds


def chosen_settings(quick):
    return [s for s in SETTINGS if s[0] <= 20 and s[2] <= 16] if quick else list(SETTINGS)


def main(seeds, quick):
    settings = chosen_settings(quick)
    by_rounds = {limit: suite(settings, seeds, max_rounds=limit) for limit in GOALS}
    rows = []
    for setting in settings:
        public = public_code.NOTEARS_ADMM.get(setting)
        cells = [*setting, with_error(public.shd, public.error) if public else "not measured"]
        for shd, rounds in by_rounds.values():
            cells += [with_error(*mean_and_error(shd[setting])), f"{np.mean(rounds[setting]):.1f}"]
        rows.append(cells)
    print_table(
        f"NOTEARS-ADMM, mean SHD ± standard error, seeds {list(seeds)}",
        (
            "d",
            "n",
            "K",
            "public code, 197 rounds",
            "default",
            "exchanges",
            "max_rounds=20",
            "exchanges",
        ),
        rows,
    )
    goals(by_rounds)


def goals(by_rounds):
    """Sums over the settings that were measured with the public code."""
    rows = []
    for limit, (shd, rounds) in by_rounds.items():
        measured = [s for s in shd if s in public_code.NOTEARS_ADMM]
        total = sum(np.mean(shd[s]) for s in measured)
        public_total = sum(public_code.NOTEARS_ADMM[s].shd for s in measured)
        above = max(measured, key=lambda s: excess(s, shd[s]))
        most = max(max(r) for r in rounds.values())
        rows += [
            (f"max_rounds={limit}: exchanges, at most", most, limit, verdict(most <= limit)),
            (
                f"max_rounds={limit}: {total:.1f} / {public_total:.1f}, {len(measured)} settings",
                f"{total / public_total:.3f}",
                GOALS[limit],
                verdict(total / public_total <= GOALS[limit]),
            ),
            (
                f"max_rounds={limit}: largest (ours - public) / standard error, at {tuple(above)}",
                f"{excess(above, shd[above]):+.1f}",
                "+2",
                verdict(excess(above, shd[above]) <= 2),
            ),
        ]
    shd = by_rounds[40][0]
    if MANY_SMALL_PARTIES in shd:
        value = np.mean(shd[MANY_SMALL_PARTIES])
        rows.append(
            (
                f"default at {MANY_SMALL_PARTIES}",
                f"{value:.1f}",
                GOAL_MANY_SMALL_PARTIES,
                verdict(value < GOAL_MANY_SMALL_PARTIES),
            )
        )
    print_table("Goals", ("quantity", "measured", "goal", "met"), rows)


def excess(setting, shd):
    """Difference to the public code in units of its standard error."""
    mean, error = mean_and_error(shd)
    public = public_code.NOTEARS_ADMM[setting]
    return (mean - public.shd) / max(np.hypot(error, public.error), 1e-9)


def variants(seeds, quick):
    """Sums over all settings, on other units, other sizes and with other options."""
    settings = chosen_settings(quick)
    default, _ = suite(settings, seeds)
    base = sum(np.mean(default[s]) for s in settings)
    rows = [("default", f"{base:.1f}", "1.00", "")]
    for name, partition, options in VARIANTS:
        shd, _ = suite(settings, seeds, partition, **options)
        total = sum(np.mean(shd[s]) for s in settings)
        same = sum(shd[s] == default[s] for s in settings)
        rows.append((name, f"{total:.1f}", f"{total / base:.2f}", f"{same} of {len(settings)}"))
    print_table(
        f"Variants of the default, SHD summed over {len(settings)} settings, seeds {list(seeds)}",
        ("variant", "summed SHD", "ratio", "settings with the same SHD for every seed"),
        rows,
    )
