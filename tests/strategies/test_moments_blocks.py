"""Moments of numbers and categories: that of the rows in one place, and what is refused."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from agreed import agreed
from worlds_of_blocks import curved_table, mixed_table

from flwr_causal import Knowledge, simulate
from flwr_causal.clients.moments import MomentsClient
from flwr_causal.contract.answers import Asked
from flwr_causal.core.linear.order_search import LEAST_EFFECT
from flwr_causal.data.check.report import ColumnReport, TableReport
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol.moments import REGRESSIONS
from flwr_causal.protocol.second_moments import impossible_products
from flwr_causal.reports.page.payload import payload_of
from flwr_causal.solvers import block_search
from flwr_causal.strategies.moments import regressions

TABLE = mixed_table(8, 1200, seed=3)[0]
TABLE["flag"] = (TABLE["v1"] == TABLE["v1"].iloc[0]) & (np.arange(1200) % 7 > 0)
CURVED = curved_table(1)[0]


def dealt(table, parties=3):
    return [table.iloc[k::parties].reset_index(drop=True) for k in range(parties)]


def found(parties, **options):
    return simulate("moments", parties, **({"text_columns": "keep"} | options))


def central(table, functions=1):
    return block_search(table, functions=functions, least_effect=LEAST_EFFECT)


def same(graph, other):
    names = sorted(graph.names)
    assert sorted(other.names) == names
    order, others = ([one.names.index(name) for name in names] for one in (graph, other))
    np.testing.assert_allclose(
        graph.weights[np.ix_(order, order)], other.weights[np.ix_(others, others)], atol=1e-9
    )


def test_the_class_is_that_of_the_rows_in_one_place():
    run = found(dealt(TABLE))
    assert run.graph.kind == "cpdag"
    assert run.rounds == 1
    same(run.graph, central(TABLE))


def test_curved_effects_are_found_with_categories_or_without():
    numbers = CURVED.select_dtypes("number")
    curved = found(dealt(CURVED), model="curved")
    same(curved.graph, central(CURVED, 3))
    same(found(dealt(CURVED), model="curved", solver="class").graph, curved.graph)
    same(found(dealt(numbers), model="curved", text_columns="fail").graph, central(numbers, 3))


def test_units_and_names_of_states_do_not_matter():
    other = TABLE.copy()
    for name in other.select_dtypes("number"):
        other[name] = 40 + 1e-3 * other[name]
    other["v1"] = "another " + other["v1"].astype(str)
    same(found(dealt(other)).graph, found(dealt(TABLE)).graph)


def test_knowledge_is_kept():
    graph = found(dealt(TABLE)).graph
    i, j = np.argwhere(graph.adjacency & graph.adjacency.T)[0]
    cause = graph.names[j]
    tiers = [[cause], [name for name in graph.names if name != cause]]
    known = found(dealt(TABLE), knowledge=Knowledge(tiers=tiers)).graph
    assert known.adjacency[j, i]
    assert not known.adjacency[i, j]


def test_codes_are_categories_where_they_are_declared():
    codes = {state: 10 * k for k, state in enumerate(sorted(TABLE["v1"].unique()))}
    coded = TABLE.assign(v1=TABLE["v1"].map(codes))
    same(found(dealt(coded), categories="v1").graph, central(TABLE))
    assert not np.allclose(found(dealt(coded)).graph.weights, central(TABLE).weights)


def test_replicates_and_rows_with_missing_values():
    holes = TABLE.copy()
    holes.loc[::10, "v0"] = np.nan
    holes.loc[5::10, "v1"] = None
    run = found(dealt(holes), missing_values="drop", replicates=4)
    same(run.graph, central(holes.dropna().reset_index(drop=True)))
    assert run.graph.adjacency_confidence is not None
    assert set(np.unique(run.graph.adjacency_confidence)) - {0, 1}


def test_declared_columns_need_categories():
    with pytest.raises(ConfigError, match=r"'categories'.*text_columns='keep'"):
        simulate("moments", dealt(TABLE.select_dtypes("number")), categories="v0")


def test_the_error_of_text_names_the_page():
    with pytest.raises(DataError, match=r"as categories: moments with 'keep'.*docs/choose\.md"):
        simulate("moments", dealt(TABLE), strict=True)


def test_a_category_of_one_state_is_named():
    with pytest.raises(DataError, match=r"'v1': constant.*constant_columns='drop'\nSet"):
        found(dealt(TABLE.assign(v1="x")), strict=True)


def test_states_are_limited_and_no_option_is_proposed_that_there_is_not():
    many = TABLE.assign(many=[f"s{k % 70}" for k in range(len(TABLE))])
    remedy = r"join values that belong together, or drop it\nSet exclude='many'$"
    with pytest.raises(DataError, match=rf"'many': 70 different values.*; {remedy}"):
        found(dealt(many), strict=True)
    thirds = [many[many.index % 3 == k].iloc[:500] for k in range(3)]
    with pytest.raises(DataError, match=rf"70 different values in all.*; {remedy}"):
        found(
            [
                one[one["many"].str[-1].isin(list(digits))]
                for one, digits in zip(thirds, ("0123", "4567", "89"), strict=True)
            ],
            strict=True,
        )


@pytest.mark.parametrize(("model", "columns"), [("linear", 12), ("curved", 16)])
def test_few_rows_are_counted_against_the_columns_of_blocks(model, columns):
    def warned(rows):
        rng = np.random.default_rng(0)
        table = pd.DataFrame(rng.normal(size=(rows, 3)), columns=list("abc"))
        table["c"] = [f"s{k % 11}" for k in range(rows)]
        warnings = found(dealt(table), model=model).warnings
        return [text for text in warnings if "All parties together have" in text]

    assert warned(columns + 15) == []
    (text,) = warned(12)
    assert f"12 rows for {columns} columns of values and states" in text


SETUP = agreed(("x", "c"), ((), ("a", "b", "c")), np.array([2.0, np.nan]), np.array([4.0, np.nan]))


def replied(**changes):
    """The moments of a party's four rows, with entries changed, as the server's door sees them."""
    rows = np.array([[1, -1, 1, 0], [1, 1, 0, 1], [1, 0, 0, 0], [1, 2, 1, 0]], dtype=float)
    moments = rows.T @ rows / 4
    for place, value in changes.items():
        i, j = map(int, place[1:])
        moments[i, j] = moments[j, i] = value
    x = 2 + 2 * rows[:, 1]
    squares = ((x - x.mean()) ** 2).sum()
    column = ColumnReport("x", "numeric", mean=x.mean(), squares=squares)
    report = TableReport(4, 0, (column,), has_sums=True)
    known = SimpleNamespace(setup=SETUP, report=report, sizes={"n": 4}, resampled=False)
    return impossible_products({"moments": moments[None]}, known)


def test_products_that_cannot_be_are_named():
    assert replied() == ""
    # Shares of states: their diagonal, their product, and what is left for the last state.
    assert "'c'" in replied(_22=0.75)
    assert "'c'" in replied(_23=0.1)
    assert "'c'" in replied(_02=0.9, _22=0.9)
    assert "'c'" in replied(_02=-0.1, _22=-0.1)
    assert "'x'" in replied(_11=1.0)
    assert "rows that begin with 1" in replied(_00=0.9)
    assert "begin with 1" in replied(_00=1.1)


def test_a_state_that_no_row_has_and_functions_of_few_values_do_no_harm():
    # Two values have one function; the state is in dropped rows alone.
    table = TABLE.assign(two=(TABLE["v1"] == TABLE["v1"].iloc[0]).astype(float))
    table.loc[0, "v2"] = "rare"
    table.loc[0, "v0"] = np.nan
    run = found(dealt(table), model="curved", missing_values="drop")
    assert np.isfinite(run.graph.weights).all()
    same(run.graph, central(table.iloc[1:].reset_index(drop=True), 3))


def test_a_copy_of_a_category_in_numbers_leaves_the_graph_of_the_others():
    copy = TABLE.assign(copy=(TABLE["v1"] == TABLE["v1"].iloc[0]).astype(int))
    graph, alone = found(dealt(copy)).graph, found(dealt(TABLE)).graph
    places = [graph.names.index(name) for name in alone.names]
    np.testing.assert_array_equal(graph.adjacency[np.ix_(places, places)], alone.adjacency)
    assert graph.num_edges == alone.num_edges > 0


@pytest.mark.parametrize(("secure", "options"), [(False, {}), (True, {"model": "curved"})], ids=str)
def test_columns_that_others_determine_are_named(options, secure):
    number = TABLE.select_dtypes("number").columns[0]
    coded = (TABLE["v1"] == TABLE["v1"].iloc[0]).astype(int)
    table = TABLE.assign(coded=coded, x2=2 * TABLE[number])
    warnings = found(dealt(table), secure_aggregation=secure, **options).warnings
    said = [text for text in warnings if "Leave one of them out" in text]
    assert ["'coded' is a function of 'v1'" in text for text in said].count(True) == 1
    assert [f"'x2' is a multiple of {number!r}" in text for text in said].count(True) == 1
    assert len(said) == 2
    assert any(text.startswith("Left out") and "'coded', 'x2'" in text for text in warnings)


def test_weights_have_no_sign_in_words_and_pictures():
    run = found(dealt(TABLE))
    assert run.unsigned
    assert payload_of(run)["graph"]["unsigned"]
    assert not simulate("moments", dealt(TABLE.select_dtypes("number"))).unsigned


def test_frames_and_files_give_one_graph(tmp_path):
    paths = []
    for k, part in enumerate(dealt(TABLE)):
        paths.append(tmp_path / f"{k}.csv")
        part.to_csv(paths[-1], index=False)
    same(found(paths).graph, found(dealt(TABLE)).graph)
    frames = [part.astype({"v1": "category"}) for part in dealt(TABLE)]
    same(found(frames).graph, found(dealt(TABLE)).graph)
    assert isinstance(frames[0]["v1"].dtype, pd.CategoricalDtype)


FITTED = {"parameters": "likelihood"}


@pytest.fixture(scope="module")
def fitted_run():
    return found(dealt(TABLE), **FITTED)


def alike(one, other):
    assert set(one.model.parameters) == set(other.model.parameters)
    for name, own in one.model.parameters.items():
        np.testing.assert_allclose(own, other.model.parameters[name], rtol=1e-7, atol=1e-8)


def test_regressions_take_few_exchanges(fitted_run):
    plain = found(dealt(TABLE))
    names = [record["exchange"] for record in fitted_run.history]
    assert names[0] == "sums"
    assert set(names[1:]) == {"regressions"}
    assert 2 <= len(names) <= 6
    causes = fitted_run.model.member.any(axis=0)
    categories = {name for name, cause in zip(TABLE.columns, causes, strict=True) if cause}
    assert set(fitted_run.model.parameters) == categories - set(TABLE.select_dtypes("number"))
    assert plain.model.parameters == {}
    gain = fitted_run.model.log_likelihood(TABLE).mean() - plain.model.log_likelihood(TABLE).mean()
    assert gain > 0


@pytest.mark.parametrize(
    "further",
    [{"replicates": 3}, pytest.param({"leave_one_out": True}, marks=pytest.mark.nightly)],
    ids=str,
)
def test_further_trainings_choose_by_likelihood_and_fit_no_model(further, monkeypatch):
    # Regressions that are compared in one exchange have not converged then.
    monkeypatch.setattr(regressions, "MOST_COMPARED", 1)
    alone = found(dealt(TABLE), **FITTED)
    run = found(dealt(TABLE), **FITTED, **further)
    alike(run, alone)
    assert len(run.history) == len(alone.history) > 3
    received = [[record["bytes_received"] for record in one.history] for one in (run, alone)]
    compared, fitted = received[0][1], received[0][2:]
    assert compared > 2 * received[1][1]
    np.testing.assert_allclose(fitted, received[1][2:], atol=600)


def test_without_categories_that_have_causes_nothing_is_asked():
    numbers = TABLE.select_dtypes("number")
    run = found(dealt(numbers), **FITTED)
    assert run.rounds == 1
    assert run.model.parameters == {}


def test_regressions_without_blocks_are_refused():
    with pytest.raises(ConfigError, match=r"'parameters'.*text_columns='keep'"):
        found(dealt(TABLE.select_dtypes("number")), **FITTED, text_columns="fail")


COMPLETED = {**FITTED, "missing_values": "em"}
GAPS = TABLE.mask(np.random.default_rng(5).random(TABLE.shape) < 0.15)


@pytest.fixture(scope="module")
def completed_run():
    return found(dealt(GAPS), **COMPLETED)


def uncompared(problem, outcome, result, num_rows):
    yield from ()
    return {}, outcome


@pytest.mark.slow
def test_regressions_with_missing_cells_are_nearly_those_of_complete_rows(
    fitted_run, completed_run, monkeypatch
):
    names = [record["exchange"] for record in completed_run.history]
    assert names[0] == "seen"
    assert names[-1] == "regressions"
    plain = found(dealt(GAPS), missing_values="em").model.log_likelihood(TABLE).mean()
    full, own = (run.model.log_likelihood(TABLE).mean() for run in (fitted_run, completed_run))
    assert plain < own
    assert full - own < 0.06
    # Of complete rows they are those of complete rows, given the graph.
    monkeypatch.setattr(regressions, "_compared", uncompared)
    alike(found(dealt(TABLE), **COMPLETED), found(dealt(TABLE), **FITTED))


def test_causes_that_tell_the_states_apart_are_named():
    rng = np.random.default_rng(0)
    dose = rng.normal(size=600) ** 3
    frame = pd.DataFrame({"dose": dose, "high": np.where(dose > 0, "yes", "no")})
    knowledge = Knowledge(required=[("dose", "high")])
    run = found(dealt(frame), **FITTED, knowledge=knowledge)
    shares = run.model.predict_proba(frame, "high")
    assert np.isfinite(run.model.log_likelihood(frame)).all()
    assert np.isfinite(shares).all()
    assert run.rounds <= 13


def forged(**arrays):
    """What the server says of a reply with these arrays."""
    setup = agreed(("dose", "high"), ((), ("no", "yes")), np.zeros(2), np.ones(2))
    known = SimpleNamespace(setup=setup, sent=ASKED)
    return REGRESSIONS.contradiction(arrays, known)


#: The regression of the second of two variables on the first.
ASKED = {"categories": np.array([1]), "sizes": np.array([1]), "causes": np.array([0])}


def test_regressions_that_cannot_be_are_named():
    fine = {"log-likelihoods": np.array([-0.5]), "information": np.array([0.2, -0.1, 0.3])}
    assert forged(**fine) == ""
    assert "above 0" in forged(**fine | {"log-likelihoods": np.array([0.5])})
    assert "negative" in forged(**fine | {"information": np.array([0.2, 0.1, -0.3])})


def test_a_party_answers_regressions_that_there_are_only():
    client = MomentsClient.__new__(MomentsClient)
    states = ((), ("no", "yes"))
    client._setup = agreed(
        ("dose", "high"), states, np.zeros(2), np.ones(2), parameters="likelihood"
    )
    asked = Asked(REGRESSIONS, 2, ASKED | {"weights": np.zeros(3)})
    asked.values["weights"] = np.zeros(3)
    with pytest.raises(FederationError, match="of other causes"):
        client.regression_sums(asked)
    none = np.zeros(0, dtype=np.int64)
    for other in (
        {"categories": np.array([0]), "causes": np.array([1])},
        {"causes": np.array([1])},
        {"sizes": np.array([0]), "causes": none},
    ):
        asked = Asked(REGRESSIONS, 2, ASKED | {"weights": np.zeros(2)} | other)
        with pytest.raises(FederationError, match="regression that there is not"):
            client.regression_sums(asked)
    twice = {name: np.repeat(value, 2) for name, value in ASKED.items()}
    for other in ({"categories": none, "sizes": none, "causes": none}, twice):
        asked = Asked(REGRESSIONS, 2, {"weights": np.zeros(4), **other})
        with pytest.raises(FederationError, match="no regression, or for one of them twice"):
            client.regression_sums(asked)


def test_contrasts_are_on_the_page():
    run = found(dealt(TABLE))
    (table,) = [
        block
        for part in payload_of(run)["sections"]
        if part["id"] == "effects"
        for block in part["blocks"]
    ]
    numbers = set(TABLE.select_dtypes("number"))
    shown = {(row[0].split(":")[0], row[1].split(":")[0]) for row in table["rows"]}
    edges = {(one, other) for one, _, other, _ in run.graph.marked_edges()}
    assert shown >= {edge for edge in edges if not set(edge) <= numbers}
    name = next(one for one, other in shown if one not in numbers and other in numbers)
    assert any(row[0].startswith(f"{name}: ") and " for " in row[0] for row in table["rows"])


def test_effects_in_mixed_tables_have_errors_by_party():
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(0)

    def rows(n, level):
        a = rng.normal(size=n)
        c = a + rng.normal(size=n) > 0
        b = 1.1 * a + 0.9 * c + rng.normal(size=n) + level
        d = b - 0.7 * a + rng.normal(size=n)
        return pd.DataFrame({"a": a, "c": np.where(c, "hi", "lo"), "b": b, "d": d})

    tables = [rows(n, level) for n, level in ((200, 0), (300, 0.1), (260, -0.1), (340, 0.05))]
    model = found(tables).model
    pooled, clusters = pd.concat(tables), np.repeat(range(4), [len(one) for one in tables])
    (effect,) = (
        one for one in model.total_effect("b", "d", by_party=True) if one.adjustment_set == ("a",)
    )
    theirs = sm.OLS(pooled["d"].to_numpy(), sm.add_constant(pooled[["b", "a"]].to_numpy())).fit(
        cov_type="cluster", cov_kwds={"groups": clusters}
    )
    np.testing.assert_allclose(
        [effect.value, effect.standard_error], [theirs.params[1], theirs.bse[1]], rtol=1e-6
    )
    secure = found(tables, secure_aggregation=True).model
    with pytest.raises(ConfigError, match="secure"):
        secure.total_effect("b", "d", by_party=True)
