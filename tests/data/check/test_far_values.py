"""Values far outside all others: codes of missing values are found, tails of any weight are not."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.data.check.far_values import Ends, FarValues, far_values
from flwr_causal.data.check.party_table import describe


def far(values):
    ends = Ends()
    ends.add(np.asarray(values, dtype=np.float64))
    return ends.far()


def zeros_and(draw, share):
    return lambda rng, n: np.where(rng.random(n) < share, 0.0, draw(rng, n))


ORDINARY = {
    "normal": lambda rng, n: rng.normal(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "lognormal": lambda rng, n: rng.lognormal(0, 1, n),
    "lognormal, wide": lambda rng, n: rng.lognormal(0, 2, n),
    "t3": lambda rng, n: rng.standard_t(3, n),
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
    "zeros, exponential": zeros_and(lambda rng, n: rng.exponential(100, n), 0.8),
    "zeros, normal": zeros_and(lambda rng, n: rng.normal(50_000, 5_000, n), 0.5),
    "zeros, amounts": zeros_and(lambda rng, n: np.round(rng.lognormal(8, 1.5, n)), 0.9),
    "binary": lambda rng, n: rng.random(n) < 0.01,
    "1 to 9": lambda rng, n: rng.integers(1, 10, n),
    "ages": lambda rng, n: rng.integers(18, 100, n),
    "rare counts": lambda rng, n: rng.poisson(0.05, n),
    "counts": lambda rng, n: rng.negative_binomial(0.3, 0.02, n),
    "whole lognormal": lambda rng, n: np.round(rng.lognormal(2, 1, n)),
    "whole t3": lambda rng, n: np.round(10 * rng.standard_t(3, n)),
}


@pytest.mark.parametrize("kind", ORDINARY)
def test_tails_and_codes_of_categories_are_no_far_values(kind):
    rng, found = np.random.default_rng(0), 0
    for n in (30, 100, 1000):
        found += sum(far(ORDINARY[kind](rng, n)) is not None for _ in range(60))
    # Measured over all kinds with 400 draws of five sizes: 1 in 3,000.
    assert found <= 1


@pytest.mark.parametrize("kind", ["normal", "exponential", "lognormal", "t3", "1 to 9", "ages"])
@pytest.mark.parametrize("n", [50, 400])
@pytest.mark.parametrize(
    ("codes", "rows"),
    [((999,), 1), ((999,), 4), ((-999,), 0.1), ((9999,), 0.4), ((-99,), 3), ((-999, 999), 4)],
)
def test_codes_of_missing_values(kind, n, codes, rows):
    rng = np.random.default_rng(1)
    rows = rows if rows >= 1 else int(rows * n)
    for _ in range(5):
        values = np.array(ORDINARY[kind](rng, n), dtype=np.float64)
        values[: min(rows, n)] = np.resize(codes, rows)
        assert far(values) == FarValues(tuple(sorted(map(float, codes))), rows)


def test_a_few_rows_of_any_numbers():
    rng = np.random.default_rng(2)
    for n in (50, 400):
        values = rng.normal(size=n)
        values[:3] = 812, 1033, -950
        assert far(values) == FarValues((-950.0, 812.0, 1033.0), 3)
    # A second group is not a mistake.
    assert far(np.append(rng.normal(size=400), rng.normal(100, 1, 40))) is None


def test_a_negative_code_where_nothing_else_is_negative():
    values = np.append(np.random.default_rng(3).exponential(300, 200), [-99.0, -99.0])
    assert far(values) == FarValues((-99.0,), 2)
    assert far(np.append(values, [-40.0, 9999])) == FarValues((9999.0,), 1)
    assert far(np.append(values, 99_999)) == FarValues((-99.0, 99_999.0), 3)


def test_short_codes_count_where_they_repeat():
    values = np.random.default_rng(4).integers(1, 6, 80)
    assert far(np.append(values, 99)) is None
    assert far(np.append(values, [99, 99])) == FarValues((99.0,), 2)


def test_few_values_missing_ones_and_infinity():
    assert far([]) is None
    assert far([np.nan, np.inf]) is None
    assert far([0, 1, 999]) == FarValues((999.0,), 1)
    assert far([0, 0, 999]) is None


def test_pieces_give_what_all_rows_give():
    rng = np.random.default_rng(5)
    values = rng.lognormal(size=30_000)
    values[rng.integers(0, 30_000, 90)] = -999
    values[rng.integers(0, 30_000, 3)] = 99_999
    ends = Ends()
    for piece in np.array_split(values, 7):
        ends.add(piece)
    whole = far(values)
    assert whole == ends.far()
    assert whole.rows == (values == -999).sum() + (values == 99_999).sum()


def test_a_party_sees_the_values_and_reports_their_number():
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"a": rng.normal(size=90), "b": rng.normal(size=90), "c": "text"})
    frame.loc[::9, "b"] = 999
    assert [column.far for column in describe(frame).columns] == [0, 10, 0]
    assert {name: str(one) for name, one in far_values(frame).items()} == {"b": "999 (10 rows)"}
