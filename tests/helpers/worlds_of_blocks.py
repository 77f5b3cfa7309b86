"""Tables of numbers and categories with a known graph."""

import numpy as np
import pandas as pd

from benchmarks.real_tables import mixed_table as mixed_table_of


def mixed_table(d, n, *, seed, edges_per_node=1.5, kinds=(0, 0, 2, 3, 4)):
    """Numbers (kind 0) are linear in their causes, categories of k states softmax of them."""
    rng = np.random.default_rng(seed)
    dag = np.triu(rng.random((d, d)) < 2 * edges_per_node / (d - 1), 1)
    table = mixed_table_of(dag, n, rng, kinds, None)
    order = rng.permutation(d)
    return table.iloc[:, order], dag[np.ix_(order, order)].astype(float)


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


def intervened_table(d, n, *, seed, edges_per_node=1.5, kinds=(0, 0, 2, 3), num_targets=2):
    """A mixed table whose last rows are under interventions on single variables.

    Half of the rows are observed; in equal parts of the others one variable each was set at random:
    a number to values of mean 1, a category to states of equal probability.

    Returns
    -------
    table, graph, and the targets of each row
    """
    rng = np.random.default_rng([seed, 1])
    chosen = rng.choice(d, num_targets, replace=False)
    parts = np.array_split(np.arange(n // 2, n), num_targets)
    on = np.full(n, -1)
    for target, part in zip(chosen, parts, strict=True):
        on[part] = target
    dag = np.triu(rng.random((d, d)) < 2 * edges_per_node / (d - 1), 1)
    columns, features = [], []
    for j in range(d):
        states, hit = int(rng.choice(kinds)), on == j
        causes = [features[i] for i in np.flatnonzero(dag[:, j])]
        if states == 0:
            value = rng.normal(size=n)
            for own in causes:
                weights = rng.uniform(0.5, 1.5, own.shape[1]) * rng.choice([-1, 1], own.shape[1])
                value = value + own @ weights
            value = value / value[on < 0].std()
            value[hit] = 1 + rng.normal(size=hit.sum())
            columns.append(value)
            features.append(value[:, None])
            continue
        logits = np.tile(rng.normal(0, 0.3, states), (n, 1))
        for own in causes:
            logits = logits + own @ rng.normal(0, 1.5, (own.shape[1], states))
        logits[hit] = 0.0
        drawn = (logits + rng.gumbel(size=(n, states))).argmax(axis=1)
        columns.append(np.array(list("abcd"))[drawn].astype(object))
        features.append((np.eye(states)[drawn] - 1 / states)[:, :-1])
    names = [f"v{k}" for k in range(d)]
    targets = [() if k < 0 else (names[k],) for k in on]
    return pd.DataFrame(dict(zip(names, columns, strict=True))), dag.astype(float), targets


def mixed_series(d, steps, *, seed, edges_per_node=1.0, kinds=(0, 0, 2, 3)):
    """One stationary series of numbers and categories with lag 1, and its graphs.

    Returns
    -------
    table, instantaneous graph, lagged graph; both (d, d)
    """
    rng = np.random.default_rng([seed, 2])
    now = np.triu(rng.random((d, d)) < edges_per_node / (d - 1), 1)
    past = (rng.random((d, d)) < edges_per_node / d) | np.eye(d, dtype=bool)
    states = [int(rng.choice(kinds)) for _ in range(d)]
    width = [max(own - 1, 1) for own in states]

    def drawn(i, j):
        size = (width[i], states[j] or 1)
        strength = (0.3, 0.6) if states[j] == 0 and states[i] == 0 else (0.8, 1.6)
        return rng.uniform(*strength, size) * rng.choice([-1, 1], size)

    weights = {
        (lag, i, j): drawn(i, j)
        for lag, graph in ((0, now), (1, past))
        for i, j in np.argwhere(graph)
    }
    before = [np.zeros(own) for own in width]
    values = np.empty((50 + steps, d))
    for t in range(50 + steps):
        current = []
        for j in range(d):
            level = np.zeros(states[j] or 1)
            for lag, features in ((0, current), (1, before)):
                for i, feature in enumerate(features):
                    if (lag, i, j) in weights:
                        level = level + feature @ weights[lag, i, j]
            if states[j] == 0:
                values[t, j] = level[0] + rng.normal()
                current.append(values[t, j : j + 1])
            else:
                values[t, j] = (level + rng.gumbel(size=states[j])).argmax()
                current.append((np.eye(states[j])[int(values[t, j])] - 1 / states[j])[:-1])
        before = current
    kept = values[50:]
    columns = {
        f"v{j}": np.array(list("abcd"))[kept[:, j].astype(int)].astype(object)
        if own
        else kept[:, j]
        for j, own in enumerate(states)
    }
    return pd.DataFrame(columns), now.astype(float), past.astype(float)


def differing_tables(seed, d=8, sizes=(400,) * 5, *, kinds=(0, 0, 2, 3), changed=(1, 3)):
    """Mixed tables of parties, of which some lack an edge or have a further one.

    Returns
    -------
    tables, and the graph of each party, bool
    """
    rng = np.random.default_rng(seed)
    dag = np.triu(rng.random((d, d)) < 3 / (d - 1), 1)
    states = rng.choice(kinds, d)
    widths = [own - 1 if own else 1 for own in states]
    effects = {
        (i, j): rng.uniform(0.7, 1.5, (widths[i], max(states[j], 1)))
        * rng.choice([-1, 1], (widths[i], max(states[j], 1)))
        * (1.5 if states[j] else 1.0)
        for i in range(d)
        for j in range(i + 1, d)
    }
    level = [rng.normal(0, 0.3, max(own, 1)) for own in states]
    order = rng.permutation(d)
    tables, graphs = [], []
    for k, n in enumerate(sizes):
        own = dag.copy()
        if k in changed:
            has = rng.random() < 0.5 and dag.any()
            pairs = np.argwhere(dag if has else np.triu(~dag, 1))
            own[tuple(pairs[rng.integers(len(pairs))])] ^= True
        columns, features = {}, []
        for j in range(d):
            value = np.tile(level[j], (n, 1))
            for i in np.flatnonzero(own[:, j]):
                value = value + features[i] @ effects[i, j]
            if states[j]:
                drawn = (value + rng.gumbel(size=value.shape)).argmax(axis=1)
                columns[f"v{j}"] = np.array(list("abcd"))[drawn].astype(object)
                features.append(np.eye(states[j])[drawn][:, :-1] - 1 / states[j])
            else:
                value = value[:, 0] + rng.normal(size=n)
                columns[f"v{j}"] = value
                features.append(value[:, None])
        tables.append(pd.DataFrame(columns).iloc[:, order])
        graphs.append(own[np.ix_(order, order)])
    return tables, graphs
