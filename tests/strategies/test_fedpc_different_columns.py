"""FedPC over different columns of the same rows: right, or it says that it cannot be."""

import numpy as np
import pandas as pd
import pytest
from federations import spy

from flwr_causal import simulate
from flwr_causal.clients import Source, client_app
from flwr_causal.clients.fedpc import FedPCClient
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol import records
from flwr_causal.reports.run import Run
from flwr_causal.reports.summary import describe_run
from flwr_causal.runtime.local_grid import LocalGrid
from flwr_causal.strategies import run
from flwr_causal.strategies.fedpc.fedpc import FedPC

NOISE = 0.3


def rows(n=800, seed=0, curve=lambda x: x):
    """x and u, y = curve(x) + noise, v; ids."""
    rng = np.random.default_rng(seed)
    x, u, v, noise = rng.standard_normal((4, n))
    return pd.DataFrame(
        {"row_id": np.arange(n), "x": x, "u": u, "y": curve(x) + NOISE * noise, "v": v}
    )


def with_class(table, shift=1.0):
    """A class that moves x, and y with it."""
    rng = np.random.default_rng(9)
    target = rng.integers(2, size=len(table))
    moved = table.assign(target=np.where(target, "sick", "well"))
    return moved.assign(x=moved["x"] + shift * target, y=moved["y"] + shift * target)


def parties(table, shared=("row_id", "target")):
    """x, u at one party; y, v, in another order of the rows, at the other."""
    both = [name for name in shared if name in table]
    second = table[[*both, "y", "v"]].sample(frac=1, random_state=0)
    return [table[[*both, "x", "u"]], second]


def expected_y(model, x, **given):
    return np.array([float(np.ravel(model.moments("y", {"x": at, **given})[0])[0]) for at in x])


def test_numbers_of_two_parties_without_a_target():
    """By sums that ignore ids E[y | x] was 0 for every x, without a warning."""
    result = simulate("fedpc", parties(rows()))
    at = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    np.testing.assert_allclose(expected_y(result.model, at), at, atol=0.1)
    _, variance = result.model.moments("y", {"x": 1.0})
    np.testing.assert_allclose(variance, NOISE**2, rtol=0.25)
    assert result.warnings == []
    # Entropy of three normal columns and of the noise; an independent y would cost 1.2 nats.
    truth = -0.5 * (4 * np.log(2 * np.pi * np.e) + 2 * np.log(NOISE))
    assert abs(result.model.log_likelihood(rows(2000, seed=1)).mean() - truth) < 0.08


def test_the_target_at_both_parties():
    """By sums that ignore ids E[y | x, class] moved by a quarter of what it should."""
    result = simulate("fedpc", parties(with_class(rows())))
    at = np.array([-2.0, 0.0, 2.0])
    for label in ("sick", "well"):
        np.testing.assert_allclose(
            expected_y(result.model, at, target=label), at, atol=0.15, err_msg=label
        )
    assert result.warnings == []
    assert "by sums" in result.stop_reason


def test_three_parties():
    table = rows().assign(w=lambda t: t["y"] + np.random.default_rng(5).normal(size=len(t)))
    tables = [table[["row_id", "x", "u"]], table[["row_id", "y", "v"]], table[["row_id", "w"]]]
    model = simulate("fedpc", tables).model
    given_both = np.ravel(model.moments("y", {"x": 1.0, "w": 2.0})[0])[0]
    # Precision-weighted: 1 with precision 1 / .09, 2 with precision 1.
    precision = 1 / NOISE**2
    assert abs(given_both - (precision + 2.0) / (precision + 1.0)) < 0.1


@pytest.mark.parametrize(
    "curve",
    [pytest.param(lambda x: x**2, marks=pytest.mark.slow), lambda x: np.sin(2 * x)],
    ids=["x^2", "sin 2x"],
)
def test_a_curve_is_counted(curve):
    result = simulate("fedpc", parties(rows(1000, curve=curve)))
    assert "counts of triples, chosen because the dependence" in result.stop_reason
    at = np.array([-1.2, -0.4, 0.4, 1.2])
    found = expected_y(result.model, at)
    # The mean of the interval of x; without the dependence the error would be 0.9.
    assert np.sqrt(np.mean((found - curve(at)) ** 2)) < 0.45
    assert result.warnings == []


@pytest.mark.slow
def test_a_curve_within_classes_is_counted():
    table = with_class(rows(1500, curve=lambda x: x**2), shift=0.0)
    result = simulate("fedpc", parties(table))
    assert result.warnings == []
    why = "by counts of triples, chosen because the dependence between parties is mostly not linear"
    assert why in result.stop_reason
    at = np.array([-1.2, -0.4, 0.4, 1.2])
    found = expected_y(result.model, at, target="sick")
    # The mean of the interval of x; without the dependence the error would be 0.9.
    assert np.sqrt(np.mean((found - at**2) ** 2)) < 0.35
    assert [record["exchange"] for record in result.history][:2] == ["align", "dependence"]


def test_a_curve_within_classes_is_warned_of():
    table = with_class(rows(1500, curve=lambda x: x**2), shift=0.0)
    result = simulate("fedpc", parties(table), training="sums")
    (warning,) = result.warnings
    assert all(word in warning for word in ("'x' (party 0)", "'y' (party 1)", "weights='em'"))
    assert "given 'target'" in warning


def test_without_ids_the_warning_names_columns_parties_and_remedy():
    for table in (rows(), with_class(rows())):
        result = simulate("fedpc", parties(table, shared=("target",)))
        (warning,) = result.warnings
        assert "'x', 'u' (party 0); 'y', 'v' (party 1)" in warning
        assert "row_id" in warning
        assert ("given 'target'" in warning) == ("target" in table)


def test_no_warning_where_every_pair_of_columns_is_at_some_party():
    table = rows().drop(columns="row_id")
    tables = [table[["x", "u", "y"]], table[["y", "v", "x"]], table[["u", "v"]]]
    assert simulate("fedpc", tables).warnings == []
    assert simulate("fedpc", [table[:400], table[400:]], learner="spn").warnings == []


@pytest.mark.parametrize("options", [{}, {"variant": "paper"}], ids=str)
def test_a_dependence_that_one_party_has_seen_is_not_lost_in_silence(options):
    """Party 0 holds both columns; numbers of rows take them to be independent."""
    rng = np.random.default_rng(0)
    state = rng.integers(2, size=400)
    copied = np.where(rng.random(400) < 0.9, state, 1 - state)
    table = pd.DataFrame({"a": np.array(["x", "y"])[copied], "s": np.array(["u", "v"])[state]})
    parted = simulate("fedpc", [table, table[["s"]]], **options)
    assert "'a' and 's'" in "\n".join(parted.warnings)
    assert "party 0" in "\n".join(parted.warnings)
    assert simulate("fedpc", [table, table], **options).warnings == []
    # Nothing is lost between columns that the same parties hold, nor with the table of another one.
    other = pd.DataFrame({"b": np.array(["x", "y"])[state]})
    assert not any(
        "also those that a party holds" in one
        for one in simulate("fedpc", [table, other], **options).warnings
    )


def test_nothing_is_found_between_independent_parties():
    table = rows().assign(y=np.random.default_rng(3).standard_normal(800))
    result = simulate("fedpc", parties(table))
    assert result.warnings == []
    np.testing.assert_allclose(expected_y(result.model, [-2.0, 2.0]), table["y"].mean(), atol=1e-6)


def test_rows_are_different_ids(tmp_path):
    table = rows(900)
    first, second = table[:600][["row_id", "x", "u"]], table[300:][["row_id", "y", "v"]]
    result = simulate("fedpc", [first, second])
    assert result.parties == {"party 0": 600, "party 1": 600}
    assert result.num_rows == 900
    assert any("900 rows" in line for line in describe_run(result))
    assert result.history[0]["common"] == 300
    assert Run.load(result.save(tmp_path)).num_rows == 900
    same_columns = simulate("fedpc", [table[:600], table[600:]])
    assert same_columns.num_rows is None
    assert any("900 rows" in line for line in describe_run(same_columns))


def test_parties_without_common_rows():
    """Sums need none; what is lost is said. Weights from common rows cannot do without."""
    table = with_class(rows())
    tables = [table[:400][["row_id", "target", "x"]], table[400:][["row_id", "target", "y"]]]
    result = simulate("fedpc", tables)
    (warning,) = result.warnings
    assert "no row in common" in warning
    assert result.num_rows == 800
    texts = [one.replace({"sick": "s", "well": "w"}).assign(g="a") for one in tables]
    texts[0].loc[:9, "g"] = "b"
    texts[1] = texts[1].drop(columns="g")
    with pytest.raises(DataError, match=r"known of 0 rows.*or set training='one-pass'"):
        simulate("fedpc", texts)
    (warning,) = simulate("fedpc", texts, training="one-pass").warnings
    assert "no row in common" in warning
    with pytest.raises(DataError, match=r'no row in common.*weights="counts"'):
        simulate("fedpc", tables, training="one-pass", weights="em")


def test_few_common_rows_are_said():
    table = rows(404)
    result = simulate("fedpc", [table[:204][["row_id", "x"]], table[200:][["row_id", "y", "v"]]])
    (warning,) = result.warnings
    assert "too few rows in common" in warning


def test_nodes_without_a_secret_are_named(tmp_path):
    tables = parties(with_class(rows()))

    def source(context):
        number = int(context.node_config["number"])
        return Source(f"clinic {number}", lambda: tables[number])

    def outcome(*secrets, **options):
        configs = [
            {"number": k}
            | ({"row-secret-file" if "/" in secret else "row-secret": secret} if secret else {})
            for k, secret in enumerate(secrets)
        ]
        grid = LocalGrid(client_app(FedPCClient, source, ["number"]), 2, node_configs=configs)
        return run(FedPC(min_available_nodes=2, **options), grid)

    secret = "e3b0c44298fc1c149afbf4c8996fb924"
    (warning,) = outcome(secret, "").warnings
    assert "no secret at clinic 1 " in warning
    assert "row-secret" in warning
    file = tmp_path / "secret"
    file.write_text(f"{secret}\n")
    assert outcome(secret, str(file)).warnings == []
    with pytest.raises(FederationError, match="row-secret-file cannot be read: No such file"):
        outcome(secret, str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"no secret at clinic 0, clinic 1 .*row-secret"):
        outcome("", "", training="one-pass", weights="em")


@pytest.mark.slow
def test_mixed_tables_of_which_all_hold_the_target():
    """Weights by classes keep nothing of the dependence within classes, counts do."""
    table = with_class(rows()).assign(g=lambda t: np.where(t["x"] > 0, "high", "low"))
    tables = parties(table)
    tables[0] = tables[0].assign(g=table["g"])
    counted = simulate("fedpc", tables)
    assert "counts of triples, chosen because not all columns are numbers" in counted.stop_reason
    assert counted.warnings == []
    at = np.array([-1.0, 0.0, 1.0, 2.0])
    given = {"g": "high", "target": "sick"}
    assert expected_y(counted.model, at, target="sick") == pytest.approx(at, abs=0.15)
    assert expected_y(counted.model, at[2:], **given) == pytest.approx(at[2:], abs=0.15)
    one_pass = {"training": "one-pass"}
    result = simulate("fedpc", tables, **one_pass)
    assert "weights by classes" in result.stop_reason
    (warning,) = result.warnings
    assert "nats a row" in warning
    assert "'y' (party 1)" in warning
    assert "weights='em'" in warning
    chosen = simulate("fedpc", tables, weights="classes")
    assert [record["exchange"] for record in chosen.history][-1] == "local, weights by classes"
    assert "align" not in [record["exchange"] for record in chosen.history]
    assert chosen.warnings == []
    independent = tables[1].assign(y=np.random.default_rng(4).standard_normal(800))
    assert simulate("fedpc", [tables[0], independent], **one_pass).warnings == []


@pytest.mark.slow
def test_clusters_keep_some_dependence_where_one_party_holds_the_target():
    """E[y | x = 2] is 1.1 when measured; independent columns have it at 0."""
    first, second = parties(with_class(rows()))
    result = simulate("fedpc", [first, second.drop(columns="target")], training="one-pass")
    assert "weights by em" in result.stop_reason
    assert result.warnings == []
    assert 0.5 < expected_y(result.model, [2.0])[0] < 1.8


def lone_class(table, *groups):
    """Columns by party, each with its rows in another order; the class at one party."""
    return [table[["row_id", *own]].sample(frac=1, random_state=k) for k, own in enumerate(groups)]


GROUPS = [["x", "u", "target"], ["y"], ["v"]]


@pytest.mark.slow
def test_a_class_that_one_party_knows_has_the_circuit_of_the_joined_rows():
    """One party with all columns, and the class for itself, gives the same sums."""
    table = with_class(rows())
    found = simulate("fedpc", lone_class(table, *GROUPS))
    assert found.stop_reason == (
        "the circuit is complete (vertical, class-conditional circuits by sums)"
    )
    assert found.warnings == []
    at = np.array([-1.0, 0.0, 1.0, 2.0])
    assert expected_y(found.model, at) == pytest.approx(at, abs=0.05)
    asked = with_class(rows(seed=1)).drop(columns="row_id")
    one_pass = simulate("fedpc", lone_class(table, *GROUPS), training="one-pass")
    gain = found.model.log_likelihood(asked) - one_pass.model.log_likelihood(asked)
    assert gain.mean() > 0.7  # of the 1.2 nats that x and y tell of each other clusters keep some
    for groups in ([["x", "u", "target"], ["y", "v"]], GROUPS[::-1]):
        other = simulate("fedpc", lone_class(table, *groups)).model
        np.testing.assert_allclose(
            other.log_likelihood(asked), found.model.log_likelihood(asked), rtol=1e-5
        )
    named = [["x", "target"], ["u", "target"], ["y"], ["v"], ["y", "v"]]
    several = simulate("fedpc", lone_class(table, *named)).model
    hidden = asked.drop(columns="target")
    probabilities = (one.predict_proba(hidden)[:, 1] for one in (several, found.model))
    np.testing.assert_allclose(*probabilities, atol=0.02)  # x and u are not labelled any more


def test_a_class_that_one_party_knows_is_predicted_from_the_columns_of_both():
    """The class is the sign of u v: each column alone says nothing of it."""
    table = rows(1000)
    table["target"] = np.where(table["u"] * table["v"] > 0, "sick", "well")
    found = simulate("fedpc", lone_class(table, *GROUPS))
    assert "by sums" in found.stop_reason
    asked = rows(1000, seed=1)
    right = np.where(asked["u"] * asked["v"] > 0, "sick", "well")
    said = found.model.predict(asked.drop(columns="row_id"))
    assert np.mean(np.asarray(said) == right) > 0.88


@pytest.mark.slow
def test_a_class_of_which_variances_tell_is_counted():
    """The class is |v| > 1, of the other party's column: no mean and no covariance shows it."""
    table = rows(1000)
    table["target"] = np.where(table["v"].abs() > 1, "sick", "well")
    given = lone_class(table, *GROUPS)
    found = simulate("fedpc", given)
    assert "counts of triples, chosen because the dependence" in found.stop_reason
    asked = simulate("fedpc", given, training="sums")
    assert "'v' (party 2) is nonlinear" in " ".join(asked.warnings)
    assert "training='triples' counts it" in " ".join(asked.warnings)


@pytest.mark.slow
def test_rows_of_a_class_that_one_party_knows_may_be_few():
    table = with_class(rows())
    table.loc[0, "target"] = "dead"
    found = simulate("fedpc", lone_class(table, *GROUPS))
    assert any("1 rows are not counted" in text for text in found.warnings)
    given = lone_class(table, *GROUPS)
    given[1] = given[1][given[1]["row_id"] < 500]
    part = simulate("fedpc", given)
    assert any("Only 500 of 800 rows have all columns" in text for text in part.warnings)
    at = np.array([0.0, 2.0])
    assert expected_y(part.model, at) == pytest.approx(at, abs=0.1)
    given[1] = given[1].assign(row_id=given[1]["row_id"] + 10_000)
    with pytest.raises(DataError, match=r"weights=\"counts\"|one-pass"):
        simulate("fedpc", given)


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"head": True}, {"decision": "macro-f1"}, {"components": 2}], ids=str
)
def test_heads_of_a_class_that_one_party_knows_are_of_one_pass(options):
    given = lone_class(with_class(rows()), *GROUPS)
    with pytest.raises(ConfigError, match="no components, head, decision or trained"):
        simulate("fedpc", given, training="sums", **options)
    assert "in one pass" in simulate("fedpc", given, **options).stop_reason


def test_exchanges_where_one_party_knows_the_class():
    """Hashes of ids twice, projections, scales, powers, masked tables, products."""
    result = simulate("fedpc", lone_class(with_class(rows()), *GROUPS))
    kinds = [record["exchange"] for record in result.history]
    assert kinds[-3:] == ["align", "masked tables", "products"]
    assert len(kinds) == 7


def test_ids_that_mean_other_rows_are_seen_where_a_column_is_shared():
    first, second = parties(rows())
    second = second.merge(rows()[["row_id", "u"]])
    assert simulate("fedpc", [first, second]).warnings == []
    second = second.assign(row_id=second["row_id"] + 1)
    texts = simulate("fedpc", [first, second]).warnings
    assert any("'u' has other values at party 1 than at party 0" in text for text in texts), texts


@pytest.mark.slow
def test_a_number_that_is_constant_in_the_common_rows():
    table = with_class(rows(400))
    table.loc[:199, "y"] = 2.5
    first, second = parties(table, shared=("row_id",))
    first = first.assign(target=table["target"])[:200]
    assert simulate("fedpc", [first, second], weights="em").failures == []
    alone = second.assign(v=np.where(second["row_id"] < 200, -1.0, second["v"]))
    assert simulate("fedpc", [first, alone], weights="em").failures == []


def test_the_same_seed_gives_the_same_circuit():
    tables, asked = parties(rows(300)), rows(50, seed=2)
    one, other = (simulate("fedpc", tables).model.log_likelihood(asked) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    swapped = simulate("fedpc", tables[::-1]).model.log_likelihood(asked)
    np.testing.assert_allclose(swapped, one, atol=0.05)


def test_sums_over_rows_are_all_that_dependence_needs():
    tables = parties(rows(400))
    grid = spy(tables, {"fedpc": FedPCClient})
    run(FedPC(min_available_nodes=2), grid)
    by_name = {}
    for message, reply in zip(grid.sent[2:], grid.replies[2:], strict=True):
        name = records.config_of(message.content).get("exchange")
        by_name.setdefault(name, records.arrays_of(reply.content))
    assert {name for name, arrays in by_name.items() if "hashes" in arrays} == {"align"}
    shapes = {name: array.shape for name, array in by_name["dependence"].items()}
    assert shapes == {"counts": (1,), "linear": (1, 2048, 2), "nonlinear": (2, 2048, 2)}
