import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.data.partition import (
    draw_shares,
    round_shares,
    split,
    split_by_column,
    split_dirichlet,
    split_even,
    split_uneven,
)
from flwr_causal.errors import ConfigError, DataError


def table(rows, labels=3):
    """Return rows that can be told apart, with text labels."""
    ids = np.arange(rows)
    return pd.DataFrame({"id": ids, "label": [f"v{k % labels}" for k in ids], "x": ids / 7})


def assert_every_row_once(frame, parts):
    for part in parts:
        assert part.index.tolist() == list(range(len(part)))
        assert part.dtypes.equals(frame[part.columns].dtypes)
    together = pd.concat(parts).sort_values("id", ignore_index=True)
    pd.testing.assert_frame_equal(together, frame[together.columns])


@given(
    rows=st.integers(2, 60),
    how=st.sampled_from(["even", "uneven", "dirichlet", "column"]),
    seed=st.none() | st.integers(0, 1000),
    concentration=st.sampled_from([None, 1e-3, 0.1, 1.0, 1e4]),
    labels=st.integers(1, 5),
    data=st.data(),
)
def test_every_row_goes_to_exactly_one_party(rows, how, seed, concentration, labels, data):
    frame = table(rows, labels)
    num = data.draw(st.integers(1, rows // 2))
    if how == "column":
        num = min(labels, rows)
    column = "label" if how in ("dirichlet", "column") else None
    options = {"column": column, "seed": seed, "concentration": concentration}
    parts = split(frame, num, how, **options)
    assert len(parts) == num
    assert_every_row_once(frame, parts)
    assert min(map(len, parts)) >= (1 if how == "column" else 2)
    if seed is None:
        for part in parts:
            assert part["id"].is_monotonic_increasing
    for part, again in zip(parts, split(frame, num, how, **options), strict=True):
        pd.testing.assert_frame_equal(part, again)


def test_even_keeps_the_order_of_the_file_or_shuffles():
    parts = split_even(table(8), 3)
    assert [part["id"].tolist() for part in parts] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    shuffled = split_even(table(100), 3, seed=1)
    assert [len(part) for part in shuffled] == [34, 33, 33]
    assert not shuffled[0]["id"].is_monotonic_increasing
    assert shuffled[0]["id"].tolist() != split_even(table(100), 3, seed=2)[0]["id"].tolist()


def test_concentration_decides_how_uneven_sizes_are():
    def spread(concentration):
        sizes = [len(part) for part in split_uneven(table(1000), 10, 3, concentration)]
        return max(sizes) - min(sizes)

    assert spread(1e6) <= 2
    assert spread(1e6) < spread(1.0) < spread(1e-3)
    # One party has all that the others need not have.
    assert spread(1e-4) == 1000 - 9 * 2 - 2


def test_uneven_sizes_of_different_seeds_differ():
    sizes = {tuple(len(part) for part in split_uneven(table(200), 4, seed)) for seed in range(5)}
    assert len(sizes) == 5
    assert min(len(part) for part in split_uneven(table(200), 20, 0, 0.05)) >= 2


def test_by_column_drops_the_column_and_keeps_the_order_of_appearance():
    frame = pd.DataFrame({"c": ["b", "a", "b", "10"], "x": [1, 2, 3, 4]})
    parts = split_by_column(frame, "c", 3)
    assert [list(part.columns) for part in parts] == [["x"]] * 3
    assert [part["x"].tolist() for part in parts] == [[1, 3], [2], [4]]
    categorical = frame.astype({"c": pd.CategoricalDtype(["10", "a", "b", "unused"])})
    assert [part["x"].tolist() for part in split_by_column(categorical, "c", 3)] == [
        [1, 3],
        [2],
        [4],
    ]


def test_dirichlet_skews_labels_by_alpha():
    frame = table(3000, labels=3)

    def skew(alpha):
        parts = split_dirichlet(frame, "label", 5, alpha, seed=0)
        shares = [part["label"].value_counts(normalize=True).max() for part in parts]
        return np.mean(shares)

    assert skew(1e5) == pytest.approx(1 / 3, abs=0.02)
    assert skew(1e5) < skew(1.0) < skew(0.01)
    assert skew(0.01) > 0.7


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"how": "fair"}, ConfigError, "partition is 'fair': choose one of even, uneven"),
        ({"num": 0}, ConfigError, "number of parties is 0"),
        ({"num": True}, ConfigError, "number of parties is True"),
        ({"num": 13}, DataError, "12 rows are too few for 13 parties.*at most 12 parties"),
        ({"num": 7, "how": "uneven"}, DataError, r"7 parties with 2 row\(s\).*at most 6 parties"),
        ({"how": "uneven", "concentration": 0.0}, ConfigError, "concentration is 0.0"),
        ({"how": "dirichlet"}, ConfigError, "'dirichlet' needs partition-column"),
        ({"how": "column"}, ConfigError, "'column' needs partition-column"),
        ({"how": "even", "column": "label"}, ConfigError, "partition-column is 'label', but"),
        ({"how": "column", "column": "z"}, ConfigError, "'z' is not in the table.*id, label, x"),
        (
            {"how": "column", "column": "label", "num": 4},
            ConfigError,
            r"'label' has 3 values \(v0, v1, v2\), but there are 4 parties.*num-supernodes=3",
        ),
        (
            {"how": "dirichlet", "column": "label", "concentration": float("nan")},
            ConfigError,
            "concentration is nan",
        ),
    ],
)
def test_bad_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        split(**({"frame": table(12), "num": 2} | arguments))


@pytest.mark.parametrize("how", ["column", "dirichlet"])
def test_missing_labels_are_refused(how):
    frame = table(6)
    frame.loc[2, "label"] = None
    with pytest.raises(DataError, match="'label' has 1 missing values: fill them in"):
        split(frame, 2, how, column="label")


@given(
    concentration=st.sampled_from([1e-6, 0.3, 1.0, 1e6]),
    num=st.integers(1, 20),
    total=st.integers(0, 10_000),
    seed=st.integers(0, 100),
)
def test_shares_are_rounded_without_loss(concentration, num, total, seed):
    shares = draw_shares(np.random.default_rng(seed), concentration, num)
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1.0)
    sizes = round_shares(shares, total)
    assert sizes.sum() == total
    assert (np.abs(sizes - shares * total) < 1 + 1e-6).all()


def test_shares_have_the_moments_of_a_dirichlet():
    rng = np.random.default_rng(0)
    for concentration in (0.2, 3.0):
        shares = np.array([draw_shares(rng, concentration, 4) for _ in range(4000)])
        variance = (1 / 4) * (3 / 4) / (4 * concentration + 1)
        np.testing.assert_allclose(shares.mean(axis=0), 0.25, atol=0.02)
        np.testing.assert_allclose(shares.var(axis=0), variance, rtol=0.08)
