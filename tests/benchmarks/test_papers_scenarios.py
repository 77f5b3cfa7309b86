"""The scenarios of the papers have the papers' sizes and settings, by section."""

import pytest

from benchmarks.scenario import find, names

#: Chen, Ma & Yue (2024), section 7.3: by number of clients lambda_A, then lambda_W.
CLIENTS = (2, 4, 8, 16, 32, 64)
TABLES_4_AND_5 = {
    10: ((0.05, 0.5, 0.5, 0.4, 0.35, 0.4), (0.3, 0.5, 0.45, 0.5, 0.25, 0.3)),
    20: ((0.3, 0.2, 0.5, 0.5, 0.5, 0.05), (0.4, 0.5, 0.5, 0.5, 0.5, 0.25)),
}
#: Seng et al. (2025), appendix D.3, table 4: threshold and instances by setting and table.
TABLE_4 = {
    "horizontal": {"income": (0.3, 200), "credit": (0.5, 200), "breast-cancer": (0.4, 300)},
    "vertical": {"income": (0.4, 100), "credit": (0.5, 50), "breast-cancer": (0.4, 300)},
    "hybrid": {"income": (0.4, 100), "credit": (0.5, 50), "breast-cancer": (0.4, 300)},
}


def line_of(scenario, label):
    (line,) = (line for line in scenario.lines if line.label == label)
    return line


@pytest.mark.parametrize("name", names())
def test_what_is_called_the_papers_is_the_papers_algorithm(name):
    for line in find(name).lines:
        assert "the paper's" not in line.label or line.options["variant"] == "paper"


@pytest.mark.parametrize(
    ("name", "runs", "constants", "varied"),
    [
        # Ng & Zhang (2022), sections 6.1 to 6.4.
        (
            *("ng2022-variables", 30, {"rows_per_variable": 3, "num_parties": 10}),
            {"num_variables": {10, 20, 50, 100}},
        ),
        (
            *("ng2022-clients", 30, {"num_rows": 256}),
            {"num_variables": {10, 20}, "num_parties": {*CLIENTS}},
        ),
        (
            *("ng2022-clients-50", 30, {"num_rows": 256}),
            {"num_variables": {50}, "num_parties": {*CLIENTS}},
        ),
        ("ng2022-sachs", 30, {"num_rows": 512, "edges": 17}, {"num_parties": {*CLIENTS}}),
        ("ng2022-mlp", 30, {"num_rows": 512}, {"num_parties": {2, 4, 8, 16}}),
        # Yang et al. (2024): iid, non-iid and real data; supplements B to D.
        *(
            (name, 10, {"num_rows": 2000}, {"num_variables": {10, 20, 40, 80}})
            for name in ("yang2024-iid", "yang2024-noniid", "yang2024-scale-free")
        ),
        ("yang2024-sachs", 10, {"num_rows": 7460, "edges": 20, "num_parties": 10}, {}),
        *(
            (name, 10, {"num_rows": 2000}, {"num_variables": {40}})
            for name in ("yang2024-local", "yang2024-exchanges", "yang2024-uneven")
        ),
        (
            *("yang2024-clients", 10, {"num_rows": 2048, "num_variables": 40}),
            {"num_parties": {2, 4, 8, 16, 32}},
        ),
        # Chen, Ma & Yue (2024): figure 1.
        ("chen2024-example", 10, {"num_rows": 500, "num_parties": 10, "order": 3}, {}),
        # Torrijos, Gamez & Puerta (2024), section 4.2.
        ("torrijos2024-networks", 10, {"num_rows": 5000}, {"num_parties": {5, 10, 20}}),
    ],
)
def test_sizes(name, runs, constants, varied):
    scenario = find(name)
    assert scenario.runs == runs
    assert constants.items() <= {**scenario.data, **(scenario.split or {})}.items()
    for axis, values in varied.items():
        assert {point[axis] for point in scenario.grid} >= values


def test_the_sizes_of_chen():
    """Sections 4.1 and 4.2: n = 5 d or 6 d at ten clients; 256 and 512 rows over 2 to 64."""
    axes = ("num_variables", "num_rows", "num_parties")
    grid = {tuple(point[axis] for axis in axes) for point in find("chen2024-synthetic").grid}
    assert {(d, n) for d, n, parties in grid if parties == 10} == {
        *((5, 30), (10, 50), (15, 90), (20, 100))
    }
    assert {one for one in grid if one[2] != 10} == {
        (d, n, parties) for d in (10, 20) for n in (256, 512) for parties in CLIENTS
    }


@pytest.mark.parametrize("d", TABLES_4_AND_5)
def test_the_lambdas_of_chen(d):
    line = line_of(find("chen2024-synthetic"), "2Dbn, the paper's, lambdas of tables 3 to 5")
    for parties, lagged, within in zip(CLIENTS, *TABLES_4_AND_5[d], strict=True):
        point = {"num_variables": d, "num_rows": 256, "num_parties": parties}
        options = line.options_at(point)
        assert options["sparsity"] == within
        assert options["sparsity"] * options["lagged_sparsity"] == pytest.approx(lagged, abs=1e-6)
    table_3 = line.options_at({"num_variables": d, "num_rows": 5 * d, "num_parties": 10})
    assert (table_3["sparsity"], table_3["lagged_sparsity"]) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("name", "sparsity", "lagged"),
    # Sections 7.5 and 7.6: lambda_W and lambda_A.
    [("chen2024-netsim", 0.05, 0.01), ("chen2024-dream4", 0.0025, 0.0025)],
)
def test_the_lambdas_of_chens_real_data(name, sparsity, lagged):
    options = line_of(find(name), "2Dbn, the paper's").options
    assert options["sparsity"] == sparsity
    assert sparsity * options.get("lagged_sparsity", 1.0) == pytest.approx(lagged)


@pytest.mark.parametrize("name", ["seng2025-tabular", "seng2025-one-pass", "seng2025-horizontal"])
def test_the_thresholds_of_seng(name):
    scenario = find(name)
    line = line_of(scenario, "FC[PC], the paper's")
    for point in scenario.grid:
        how = point.get("how", (scenario.split or {}).get("how"))
        table = point.get("table", scenario.data.get("table"))
        expected = TABLE_4.get(how, TABLE_4["horizontal"])[table]
        options = {"correlation": 0.4, "split_rows": 300} | line.options_at(point)
        assert (options["correlation"], options["split_rows"]) == expected
