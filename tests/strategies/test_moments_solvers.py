"""A solver of ``moments`` by itself: products of rows in, a graph out; what options make of it."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from federations import make_federation
from pooled import products

from flwr_causal import simulate
from flwr_causal.core.blocks.design import Design
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.linear.stability import order_search
from flwr_causal.core.series.design import lagged_rows
from flwr_causal.data.check.agreement import Agreement
from flwr_causal.errors import ConfigError
from flwr_causal.solvers import dagma
from flwr_causal.sources.determined import without_determined
from flwr_causal.sources.products import Products
from flwr_causal.strategies.moments import MomentsOptions
from flwr_causal.strategies.moments.solvers.additive import Additive
from flwr_causal.strategies.moments.solvers.ancestral import Ancestral, AncestralBlocks
from flwr_causal.strategies.moments.solvers.blocks import BlockClasses
from flwr_causal.strategies.moments.solvers.classes import Classes, GreedyClasses
from flwr_causal.strategies.moments.solvers.orders import Orders, StableOrders
from flwr_causal.strategies.moments.solvers.penalised import Penalised
from flwr_causal.strategies.moments.solvers.series import LaggedWeights

ROWS = pd.concat(make_federation(d=4, n=300, parties=1, seed=3).tables)
NAMES, D, N = tuple(ROWS.columns), 4, len(ROWS)


def products_of(order=0, functions=1):
    """The products of all rows, as a source of one party gives them."""
    rows = ROWS.to_numpy()
    mean, variance = rows.mean(axis=0), rows.var(axis=0)
    design = Design.of(
        NAMES, mean, variance, functions=functions, standardized=functions > 1, order=order
    )
    z = lagged_rows([rows - mean], order) if order else design.rows_of(rows)
    agreement = Agreement(NAMES, ("number",) * D, {"all": len(z)}, mean, variance, {}, ())
    return Products(agreement, design, products(z)[None] / len(z))


def masks_of(order=0):
    """All edges into the variables."""
    masks = EdgeMasks.free(D * (1 + order))
    masks.allowed[:, D:] = False
    masks.allowed[D:, :D] = True
    return masks


@pytest.mark.parametrize(
    ("solver", "options"),
    [
        (StableOrders(), {}),
        (StableOrders(stability=1.0, threshold=0.4), {"stability": 1.0, "threshold": 0.4}),
        (Orders(least_effect=0.4), {"least_effect": 0.4, "stability": 0.0}),
        (Penalised(), {"solver": "dagma"}),
        (Penalised(sparsity=0.1, refit=False), {"sparsity": 0.1, "refit": False}),
        (Classes(max_parents=1), {"solver": "class", "max_parents": 1}),
        (GreedyClasses(), {"solver": "ges"}),
        (Ancestral(), {"hidden_causes": True}),
        (Additive(sparsity=0.1), {"model": "additive", "sparsity": 0.1}),
        (BlockClasses(model="curved", least_effect=0.3), {"model": "curved", "least_effect": 0.3}),
        (AncestralBlocks(), {"model": "curved", "hidden_causes": True}),
        (LaggedWeights(), {"order": 1}),
        (LaggedWeights(solver="dagma", sparsity=0.05), {"order": 1, "sparsity": 0.05}),
        (Classes(), {"order": 1, "solver": "class"}),
    ],
)
def test_a_solver_by_itself_finds_the_graph_of_a_run(solver, options):
    order, model = options.get("order", 0), options.get("model", "linear")
    given = products_of(order, {"linear": 1, "curved": 3, "additive": 5}[model])
    found = solver.solve(*without_determined(given, masks_of(order)))
    run = simulate("moments", [ROWS], **options)
    assert found.graph.kind == run.graph.kind
    # Where the minimum is found to some digits only, rounding decides on the others.
    close = partial(np.testing.assert_allclose, atol=5e-3 if model == "additive" else 1e-6)
    close(found.graph.weights, run.graph.weights)
    close(found.scores, run.scores)
    if order:
        close(found.graph.lagged, run.graph.lagged)


@pytest.mark.parametrize(
    ("solver", "same"),
    [
        (StableOrders(), order_search),
        (Orders(), partial(order_search, stability=0.0)),
        (Penalised(sparsity=0.1, refit=False), partial(dagma, sparsity=0.1, refit=False)),
    ],
)
def test_a_solver_is_the_public_one(solver, same):
    found = solver.solve(products_of(), masks_of()).graph
    np.testing.assert_allclose(found.weights, same(ROWS).weights, atol=1e-6)


def test_masks_hold():
    masks = masks_of()
    masks.allowed[0] = False
    for solver in (StableOrders(), Penalised(), Additive()):
        functions = 5 if isinstance(solver, Additive) else 1
        assert not solver.solve(products_of(functions=functions), masks).graph.adjacency[0].any()


@pytest.mark.parametrize(
    ("options", "solver"),
    [
        ({}, StableOrders()),
        ({"threshold": 0.2, "standardize": True}, StableOrders(threshold=0.2, standardize=True)),
        ({"epsilon": 1.0}, Orders()),
        ({"local_graphs": True, "least_effect": 0.2}, Orders(least_effect=0.2)),
        ({"aggregation": "median"}, Penalised()),
        ({"solver": "order", "aggregation": "median"}, Orders()),
        ({"refit": False}, Penalised(refit=False)),
        ({"solver": "notears", "sparsity": "bic"}, Penalised(solver="notears", sparsity="bic")),
        ({"order": 2, "lagged_threshold": 0.3}, LaggedWeights(lagged_threshold=0.3)),
        (
            {"order": 2, "instantaneous": "auto"},
            LaggedWeights(instantaneous="auto", solver="dagma"),
        ),
        ({"order": 2, "solver": "class"}, Classes()),
        ({"solver": "ges", "max_parents": 2}, GreedyClasses(max_parents=2)),
        ({"text_columns": "keep", "max_parents": 2}, BlockClasses(max_parents=2)),
        ({"model": "curved"}, BlockClasses(model="curved")),
        ({"model": "additive", "threshold": 0.0}, Additive(threshold=0.0)),
        (
            {"hidden_causes": True, "knowledge": Knowledge(tiers=[("x0",)])},
            Ancestral(knowledge=Knowledge(tiers=[("x0",)])),
        ),
        ({"hidden_causes": True, "text_columns": "keep"}, AncestralBlocks()),
    ],
)
def test_options_make_the_solver(options, solver):
    assert MomentsOptions(**options).solving == solver


def test_replicates_take_over_what_is_settled():
    given, masks = products_of(), masks_of()
    chosen = Penalised(sparsity="bic", threshold=0.2)
    found = chosen.solve(given, masks)
    assert chosen.settled(found) == Penalised(sparsity=found.info["sparsity"], threshold=0.2)
    assert StableOrders(stability=0.7).settled(found) == StableOrders(stability=0.0)
    assert Ancestral().settled(found) == Ancestral(confirm=False)
    assert Classes().settled(found) == Classes()


def test_replicates_take_over_what_is_settled_of_series():
    given, masks = products_of(order=2), masks_of(order=2)
    by_orders = LaggedWeights().solve(given, masks)
    assert LaggedWeights().settled(by_orders) == LaggedWeights(solver="order", lagged_sparsity=1.6)
    chosen = LaggedWeights(solver="dagma", regression="held-out", select_order=True)
    # Of a choice by held-out steps, which one set of rows does not allow.
    info = {"order": 1, "instantaneous": 0, "ridge": 0.3}
    assert chosen.settled(by_orders._replace(info=info)) == LaggedWeights(
        solver="dagma",
        regression="ridge",
        ridge=0.3,
        instantaneous=False,
        lagged_sparsity=1.6,
        select_order=True,
        num_lags=1,
    )
    info = {"order": 2, "instantaneous": 1, "sparsity": 0.2}
    settled = chosen.settled(by_orders._replace(info=info))
    assert (settled.regression, settled.sparsity, settled.instantaneous) == ("lasso", 0.2, True)
    # The chosen number of lags is that of the graph.
    shorter = LaggedWeights(num_lags=1, select_order=True).solve(given, masks)
    assert len(shorter.graph.lagged) == 1


def test_series_fit_no_required_edge_that_is_left_out():
    masks = masks_of(order=1)
    masks.required[0, 1] = True
    with pytest.raises(ConfigError, match="instantaneous=True"):
        LaggedWeights(instantaneous=False).possible(masks, D)
    assert LaggedWeights().possible(masks, D) is masks
    possible = LaggedWeights(instantaneous=False).possible(masks_of(order=1), D).allowed
    assert not possible[:D].any()
    assert possible[D:, :D].all()
