"""Schedules: the growing one, and properties that the tuned one must keep."""

import numpy as np
import paper_admm
import pytest

from flwr_causal.core.consensus.schedules import Schedule, fast_schedule, growing_schedule
from flwr_causal.core.linear.moments import data_scale
from flwr_causal.errors import ConfigError


def arguments(**changes):
    return {"num_clients": 10, "num_rows": 256, "num_variables": 20, "scale": 1.0, **changes}


def growing(max_rounds=200, **changes):
    """The schedule of Ng & Zhang, appendix B."""
    return growing_schedule(max_rounds, **{**paper_admm.CONSTANTS, **changes})


def numbers(schedule):
    return np.array(
        [schedule.consensus_penalty, schedule.acyclicity_penalty, schedule.sparsity], dtype=float
    )


def test_growing_schedule_runs_197_rounds():
    schedule = growing()
    assert schedule.rounds == 197
    assert set(schedule.sparsity) == {0.01}
    assert schedule.relaxation == 1.0
    assert schedule.patience == 0


def test_growing_schedule_grows_and_stops_at_the_cap():
    schedule = growing()
    rho_2, rho_1 = schedule.consensus_penalty, schedule.acyclicity_penalty
    np.testing.assert_allclose(rho_2, 1e-3 * 1.25 ** np.arange(197), rtol=1e-12)
    np.testing.assert_allclose(rho_1[:80], 1e-3 * 1.75 ** np.arange(80), rtol=1e-12)
    assert rho_1[78] < 1e16 <= rho_1[79]
    assert set(rho_1[79:]) == {rho_1[79]}
    assert rho_2[-1] < 1e16 <= 1.25 * rho_2[-1]


def test_growing_schedule_is_cut_by_max_rounds():
    short, whole = growing(30), growing()
    assert short.rounds == 30
    np.testing.assert_array_equal(numbers(short), numbers(whole)[:, :30])


def test_growing_schedule_takes_other_numbers():
    schedule = growing(
        100,
        consensus_penalty=1.0,
        acyclicity_penalty=1.0,
        acyclicity_growth=1.6,
        sparsity=0.05,
    )
    assert schedule.at(2) == pytest.approx((1.25**2, 1.6**2, 0.05, 1.0))


@pytest.mark.parametrize("rounds", [5, 6, 9, 14, 19, 27, 39, 40, 60, 200, 1000])
def test_fast_schedule_is_made_for_any_number_of_rounds(rounds):
    schedule = fast_schedule(rounds, **arguments())
    assert schedule.rounds == rounds
    rho_2, rho_1, sparsity = numbers(schedule)
    assert np.isfinite(numbers(schedule)).all()
    assert (np.diff(rho_2) <= 0).all()
    assert (np.diff(rho_1) > 0).all()
    assert (sparsity > 0).all()
    assert rho_1[-1] > 1e2


def test_fast_schedule_for_fewer_rounds_is_not_a_cut():
    short, long = fast_schedule(19, **arguments()), fast_schedule(39, **arguments())
    assert short.acyclicity_penalty[-1] > 100 * long.acyclicity_penalty[18]


def test_fast_schedule_changes_gradually_with_the_number_of_rounds():
    """Interpolation has no jumps: one round more never changes a number by half."""
    ends = np.array(
        [
            [*numbers(fast_schedule(rounds, **arguments()))[[0, 2], 0], schedule_relaxation(rounds)]
            for rounds in range(5, 80)
        ]
    )
    assert (np.abs(np.diff(np.log(ends), axis=0)) < np.log(1.5)).all()


def schedule_relaxation(rounds):
    return fast_schedule(rounds, **arguments()).relaxation


def test_fast_schedule_follows_the_units_of_the_loss():
    one, other = (fast_schedule(30, **arguments(scale=scale)) for scale in (1.0, 49.0))
    np.testing.assert_allclose(numbers(other), 49.0 * numbers(one), rtol=1e-12)


def test_fast_schedule_keeps_the_server_curvature_for_any_number_of_clients():
    few, many = (fast_schedule(30, **arguments(num_clients=k, num_rows=10**6)) for k in (2, 1000))
    np.testing.assert_allclose(
        2 * np.array(few.consensus_penalty), 1000 * np.array(many.consensus_penalty), rtol=1e-12
    )
    assert few.acyclicity_penalty == many.acyclicity_penalty


def test_fast_schedule_follows_the_noise_of_the_data():
    few, many = (fast_schedule(30, **arguments(num_rows=n)).sparsity[-1] for n in (10**4, 10**6))
    assert few == pytest.approx(10 * many)


def test_data_scale_is_the_harmonic_mean_and_ignores_constant_columns():
    assert data_scale(np.array([1.0, 2.0, 4.0])) == pytest.approx(3 / 1.75)
    assert data_scale(np.array([1.0, 0.0, 2.0, 4.0])) == pytest.approx(3 / 1.75)
    assert data_scale(np.array([4.0, 4.0])) == pytest.approx(4.0)
    with pytest.raises(ConfigError, match="variance"):
        data_scale(np.zeros(3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_rounds": 4}, "at least 5"),
        ({"num_clients": 0}, "num_clients"),
        ({"scale": 0.0}, "scale"),
        ({"scale": np.nan}, "scale"),
    ],
)
def test_fast_schedule_names_what_is_wrong(change, message):
    with pytest.raises(ConfigError, match=message):
        fast_schedule(**arguments(**{"max_rounds": 20, **change}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_rounds": 0}, "at least 1"),
        ({"consensus_penalty": 0.0}, "positive"),
        ({"sparsity": -0.1}, "negative"),
    ],
)
def test_growing_schedule_names_what_is_wrong(change, message):
    with pytest.raises(ConfigError, match=message):
        growing(**change)


@pytest.mark.parametrize(
    ("consensus", "acyclicity", "sparsity", "relaxation", "message"),
    [
        ((), (), (), 1.0, "for each round"),
        ((1.0,), (1.0, 2.0), (0.1,), 1.0, "for each round"),
        ((0.0,), (1.0,), (0.1,), 1.0, "positive"),
        ((1.0,), (1.0,), (-0.1,), 1.0, "negative"),
        ((1.0,), (1.0,), (0.1,), 2.0, "relaxation"),
    ],
)
def test_schedule_checks_itself(consensus, acyclicity, sparsity, relaxation, message):
    with pytest.raises(ConfigError, match=message):
        Schedule(consensus, acyclicity, sparsity, relaxation)
