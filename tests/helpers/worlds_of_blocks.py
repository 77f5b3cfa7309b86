"""Tables of numbers and categories with a known graph."""

import numpy as np
import pandas as pd


def mixed_table(d, n, *, seed, edges_per_node=1.5, kinds=(0, 0, 2, 3, 4)):
    """Numbers (kind 0) are linear in their causes, categories of k states softmax of them."""
    rng = np.random.default_rng(seed)
    dag = np.triu(rng.random((d, d)) < 2 * edges_per_node / (d - 1), 1)
    columns, features = [], []
    for j in range(d):
        states = int(rng.choice(kinds))
        causes = [features[i] for i in np.flatnonzero(dag[:, j])]
        if states == 0:
            value = rng.normal(size=n)
            for own in causes:
                sign = rng.choice([-1, 1], own.shape[1])
                value = value + own @ (rng.uniform(0.5, 1.5, own.shape[1]) * sign)
            value = (value - value.mean()) / value.std()
            columns.append(value)
            features.append(value[:, None])
        else:
            logits = np.tile(rng.normal(0, 0.3, states), (n, 1))
            for own in causes:
                logits = logits + own @ rng.normal(0, 1.5, (own.shape[1], states))
            drawn = (logits + rng.gumbel(size=(n, states))).argmax(axis=1)
            columns.append(np.array(list("abcd"))[drawn].astype(object))
            indicators = np.eye(states)[drawn]
            features.append((indicators - indicators.mean(axis=0))[:, :-1])
    order = rng.permutation(d)
    table = pd.DataFrame({f"v{k}": columns[k] for k in order})
    return table, dag[np.ix_(order, order)].astype(float)


def curved_table(seed, n=2000):
    """x and z cause y by even functions, which have no correlation with it; y causes w."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n))
    y = 2 * np.exp(-0.5 * x**2) + np.cos(2 * z) + 0.5 * rng.normal(size=n)
    w = np.where(y > y.mean(), "high", "low")
    w = np.where(rng.random(n) < 0.1, "low", w)
    dag = np.zeros((4, 4))
    dag[0, 2] = dag[1, 2] = dag[2, 3] = 1
    return pd.DataFrame({"x": x, "z": z, "y": y, "w": w}), dag
