"""Products with noise: without the noise those of the pooled rows, and how much noise is told."""

import numpy as np
import pandas as pd
import pytest
from federations import make_federation
from pooled import pooled, products

from flwr_causal.core.privacy.release import Released
from flwr_causal.core.privacy.scales import Scaling
from flwr_causal.doubts.graphs import doubts_of
from flwr_causal.party import noise
from flwr_causal.sources import released

RNG = np.random.default_rng(3)
ROWS = make_federation(d=3, n=600, parties=1, seed=3).pooled * (1.0, 5.0, 0.5) + (2.0, -9.0, 0.0)
STATES = np.array(["u", "v", "w"])[RNG.integers(0, 3, 600)]
TABLE = pd.DataFrame(ROWS, columns=list("abc")).assign(k=STATES)
PARTIES = [TABLE.iloc[:100], TABLE.iloc[100:350], TABLE.iloc[350:]]
NUMBERS = [one[list("abc")] for one in PARTIES]
#: Wide enough that no row is shortened.
SCALES = {name: (float(TABLE[name].mean()) + 0.1, 3.0 * float(TABLE[name].std())) for name in "abc"}
OPTIONS = {"epsilon": 50.0, "scales": SCALES}


@pytest.fixture
def told(monkeypatch):
    """No noise is drawn; how much the server reckons with is kept, and is little."""
    found = {"read": 0.25}

    def read(counts, variance, *given, **options):
        found["variance"] = variance
        return original(counts, found["read"], *given, **options)

    original = released.read
    monkeypatch.setattr(released, "read", read)
    nothing = lambda d, *_: np.zeros((1 + d, 1 + d), dtype=np.int64)  # noqa: E731
    monkeypatch.setattr(noise, "noise_of", nothing)
    monkeypatch.setattr(released, "steps_of_noise", lambda w, multiplier, parties: 7 / parties)
    return found


@pytest.mark.parametrize("standardize", [False, True])
def test_without_noise_they_are_those_of_the_pooled_rows(standardize, told):
    found = pooled(NUMBERS, standardize=standardize, **OPTIONS)
    z = ROWS - ROWS.mean(axis=0)
    z = z / z.std(axis=0) if standardize else z
    own = np.append(1.0, z.std(axis=0))
    np.testing.assert_allclose(
        found.values[0] / np.outer(own, own), products(z) / 600 / np.outer(own, own), atol=1e-3
    )
    np.testing.assert_allclose(found.agreement.mean, ROWS.mean(axis=0), atol=2e-3)
    np.testing.assert_allclose(found.agreement.variance, ROWS.var(axis=0), rtol=2e-3)
    assert found.num_rows == found.info["rows"] == 600
    assert found.warnings == ()


def test_categories_keep_their_shares(told, tmp_path):
    file = tmp_path / "dictionary.toml"
    lines = [f'[columns.{name}]\nkind = "number"' for name in "abc"]
    file.write_text("\n".join([*lines, '[columns.k]\nkind = "category"\nstates = ["u", "v", "w"]']))
    found = pooled(PARTIES, text_columns="keep", dictionary=str(file), **OPTIONS)
    z = (ROWS - ROWS.mean(axis=0)) / ROWS.std(axis=0)
    rows = np.column_stack([z, STATES == "u", STATES == "v"])
    np.testing.assert_allclose(found.values[0], products(rows) / 600, atol=2e-3)
    assert found.design.columns == ("a", "b", "c", "k=u", "k=v")
    np.testing.assert_allclose(found.agreement.variance[:3], ROWS.var(axis=0), rtol=2e-3)
    assert np.isnan([found.agreement.mean[3], found.agreement.variance[3]]).all()


@pytest.mark.parametrize("secure", [False, True])
def test_the_noise_of_all_parties_is_told(secure, told):
    """Each adds its own, or a part of one among the fewest parties of a secure sum."""
    options = {"secure_aggregation": True, "min_parties": 3} if secure else {}
    told["read"] = 1e14
    found = pooled(NUMBERS, **OPTIONS, **options)
    assert told["variance"] == pytest.approx(3 * 7 / (3 if secure else 1))
    # Fewer rows without noise would tell as much.
    assert found.agreement.n == found.info["effective_rows"] < found.num_rows


@pytest.mark.parametrize("secure", [False, True])
def test_the_noise_of_scales_is_that_of_all_parties(secure, monkeypatch):
    told = {}

    def scales_of(counts, variance, names):
        told.update(variance=variance, names=tuple(names))
        return np.array([9.0])

    monkeypatch.setattr(released, "scales_of", scales_of)
    monkeypatch.setattr(released, "variance_of_counts", lambda d, multiplier, parties: 7 / parties)
    stated = {name: SCALES[name] for name in "ab"}
    options = {"secure_aggregation": True, "min_parties": 3} if secure else {}
    pooled(NUMBERS, epsilon=50.0, scales=stated, **options)
    assert told == {"variance": pytest.approx(7 if secure else 21), "names": ("c",)}


def test_scales_that_do_not_fit_are_named():
    """Centres at more than 2 scales, and deviations of less than a quarter or more than 2 scales.

    The fifth column is one of states, which fits any.
    """
    scaling = Scaling(np.zeros(5), np.array([1.0, 2.0, 2.0, 4.0, 9.0]), ())
    spread = np.array([2.1, 4.0, 0.4, 1.1, 0.1])
    mean = np.array([0.0, 4.1, 3.9, -7.9, 50.0])
    found = Released(100.0, mean, np.diag(spread**2), 90.0)
    numbers = np.arange(5) < 4
    (warning,) = doubts_of(unfit=released.unfit(list("abcd"), scaling, found, numbers))
    assert "do not fit a, b, c: these" in warning
    wide = found._replace(mean=np.zeros(5), second=np.diag((1.9, 3.9, 0.6, 1.1, 0.1)) ** 2)
    assert released.unfit(list("abcd"), scaling, wide, numbers) == []
