"""The head by Newton sums against scikit-learn and a generic solver."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from flwr_causal.core.circuits.learners.head import head_step, head_sums, init_head
from flwr_causal.core.circuits.model import LogisticHead


def rows(num_classes, n=300, m=4, seed=0):
    rng = np.random.default_rng(seed)
    classes = rng.choice(
        num_classes, n, p=np.arange(1, num_classes + 1) / sum(range(num_classes + 1))
    )
    features = rng.normal(size=(n, num_classes, m)) * np.array([1.0, 5.0, 0.2, 2.0])[:m] - 7.0
    features[np.arange(n), classes] += np.array([0.5, 2.0, 0.1, 0.0])[:m]
    return features, classes


def trained(features, classes, penalty=2.0, parts=1, **options):
    counts = np.bincount(classes, minlength=features.shape[1]).astype(float)
    state = init_head(counts, features.shape[2], penalty, tolerance=1e-12, **options)
    while not state.done:
        replies = [
            head_sums(features[part], classes[part], state.head)
            for part in np.array_split(np.arange(len(classes)), parts)
        ]
        summed = {name: sum(reply[name] for reply in replies) for name in replies[0]}
        assert all(np.isfinite(array).all() and array.ndim for array in summed.values())
        state = head_step(state, summed)
    return state


@pytest.mark.parametrize("penalty", [0.1, 2.0, 50.0])
def test_two_classes_are_logistic_regression(penalty):
    features, classes = rows(2)
    ratios = features[:, 1] - features[:, 0]
    units = ratios.std(axis=0)
    solver = LogisticRegression(C=1.0 / penalty, tol=1e-10, max_iter=1000)
    solver.fit(ratios / units, classes)
    state = trained(features, classes, penalty)
    np.testing.assert_allclose(state.units, units)
    np.testing.assert_allclose(state.head.weights * units, solver.coef_[0], atol=1e-6)
    offset = state.head.biases[1] - state.head.biases[0]
    assert offset == pytest.approx(solver.intercept_[0], abs=1e-6)
    np.testing.assert_allclose(
        np.exp(state.head.log_posterior(features)),
        solver.predict_proba(ratios / units),
        atol=1e-6,
    )
    assert state.exchanges <= 12


def test_three_classes_reach_the_optimum():
    features, classes = rows(3)
    state = trained(features, classes)

    def objective(given):
        head = LogisticHead(given[3:], given[:3] - given[0])
        loss = -head.log_posterior(features)[np.arange(len(classes)), classes].sum()
        return loss + ((given[3:] * state.units) ** 2).sum()

    start = np.concatenate((state.head.biases, np.zeros(4)))
    best = minimize(objective, start, method="BFGS", options={"gtol": 1e-5})
    here = objective(np.concatenate((state.head.biases, state.head.weights)))
    assert here == pytest.approx(best.fun, abs=1e-6)
    np.testing.assert_allclose(
        state.head.weights * state.units, best.x[3:] * state.units, atol=1e-3
    )


def test_rows_may_be_anywhere():
    features, classes = rows(3)
    order = np.argsort(classes, kind="stable")
    one = trained(features, classes).head
    other = trained(features[order], classes[order], parts=7).head
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-10)
    np.testing.assert_allclose(one.biases, other.biases, atol=1e-10)


def test_a_class_without_rows_has_no_probability():
    features, classes = rows(3)
    kept = classes != 1
    state = trained(features[kept], classes[kept])
    posterior = np.exp(state.head.log_posterior(features))
    assert (posterior[:, 1] == 0).all()
    both = trained(features[kept][:, [0, 2]], classes[kept] // 2).head
    np.testing.assert_allclose(state.head.weights, both.weights, atol=1e-9)


def test_separable_rows():
    """The penalty keeps the weights finite, and too long a step is halved."""
    features, classes = rows(2)
    features[np.arange(300), classes, 0] += 60.0
    state = trained(features, classes, penalty=1e-3)
    assert np.isfinite(state.head.weights).all()
    assert (state.head.log_posterior(features).argmax(axis=1) == classes).all()


def test_one_class_alone_and_a_constant_feature():
    features, classes = rows(2)
    assert init_head(np.array([5.0, 0.0]), 3).done
    features[:, :, 3] = -1.0
    assert trained(features, classes).head.weights[3] == 0.0


def test_exchanges_end():
    features, classes = rows(2)
    state = trained(features, classes, most_exchanges=2)
    assert state.exchanges == 2
