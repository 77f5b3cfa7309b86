"""The query of examples/omop on SQLite and on a PostgreSQL server of the test's own."""

import os
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sqlalchemy
from postgresql import postgresql_server, url_of

from flwr_causal.data.read import pieces as reading
from flwr_causal.data.read.pieces import LargeFile, open_table, pieces
from flwr_causal.data.read.tables import read_table
from flwr_causal.errors import DataError
from flwr_causal.simulations import simulate

EXAMPLE = Path(__file__).parents[3] / "examples" / "omop" / "persons.table.toml"
TABLES = {
    "person": "person_id integer, gender_concept_id integer, year_of_birth integer",
    "visit_occurrence": "visit_occurrence_id integer, person_id integer, visit_start_date date",
    "measurement": "measurement_id integer, person_id integer, measurement_concept_id integer, "
    "value_as_number numeric, unit_concept_id integer",
    "condition_occurrence": "condition_occurrence_id integer, person_id integer, "
    "condition_concept_id integer",
    "drug_exposure": "drug_exposure_id integer, person_id integer, drug_concept_id integer",
    "concept_ancestor": "ancestor_concept_id integer, descendant_concept_id integer",
}
UNITS = {3038553: 9531, 3004249: 8876, 3004410: 8554}


def cohort(n=300, seed=0):
    """The rows of the tables, and the table of persons that the query is to make."""
    rng = np.random.default_rng(seed)
    age = rng.integers(30, 80, n)
    bmi = rng.normal(27, 4, n).round(1)
    diabetes = (rng.normal(size=n) + 0.2 * (bmi - 27) > 0.8).astype(int)
    metformin = diabetes * (rng.random(n) < 0.7)
    hba1c = (5.4 + 1.2 * diabetes + rng.normal(0, 0.3, n)).round(2)
    pressure = (100 + 0.5 * age + rng.normal(0, 8, n)).round()
    sex = rng.choice([8507, 8532, 8521], n, p=[0.48, 0.48, 0.04])
    expected = pd.DataFrame(
        {
            "sex": pd.Series(sex).map({8507: "male", 8532: "female"}),
            "age": age,
            "bmi": bmi,
            "systolic_pressure": pressure,
            "hba1c": np.where(np.arange(n) % 9 == 0, np.nan, hba1c),
            "diabetes": diabetes,
            "hypertension": (pressure > 140).astype(int),
            "metformin": metformin,
        }
    )
    rows = {name: [] for name in TABLES}
    rows["concept_ancestor"] = [(201826, 201826), (201826, 111), (316866, 222), (1503297, 333)]
    for k in rng.permutation(n):
        person = int(k) + 1
        rows["person"].append((person, int(sex[k]), 2020 - int(age[k])))
        rows["visit_occurrence"] += [
            (person, person, "2020-05-01"),
            (-person, person, "2021-01-01"),
        ]
        for concept, value in ((3038553, bmi[k]), (3004249, pressure[k]), (3004410, hba1c[k])):
            if concept == 3004410 and k % 9 == 0:
                continue
            for shift in (-0.5, 0.5):
                one = (len(rows["measurement"]), person, concept, float(value) + shift)
                rows["measurement"].append((*one, UNITS[concept]))
        # A value in another unit.
        rows["measurement"].append((-person, person, 3004410, 40.0, 9579))
        if diabetes[k]:
            rows["condition_occurrence"].append((person, person, 201826 if k % 2 else 111))
        if pressure[k] > 140:
            rows["condition_occurrence"].append((-person, person, 222))
        if metformin[k]:
            rows["drug_exposure"] += [(person, person, 333), (-person, person, 333)]
    rows["person"].append((n + 1, 8507, 1950))  # never seen
    return rows, expected


def fill(url, rows):
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        for name, columns in TABLES.items():
            connection.exec_driver_sql(f"create table {name} ({columns})")
            names = [column.split()[0] for column in columns.split(", ")]
            marks = ", ".join(f":{one}" for one in names)
            values = [dict(zip(names, row, strict=True)) for row in rows[name]]
            connection.execute(sqlalchemy.text(f"insert into {name} values ({marks})"), values)
    engine.dispose()


def check_table(found, expected):
    assert list(found.columns) == list(expected.columns)
    assert len(found) == len(expected)
    assert found.sex.fillna("").tolist() == expected.sex.fillna("").tolist()
    for name in expected.columns.drop("sex"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12)
    assert found.age.dtype == found.diabetes.dtype == np.int64


def test_the_query_makes_the_table_of_persons_on_sqlite(tmp_path, monkeypatch):
    rows, expected = cohort()
    monkeypatch.setenv("OMOP_URL", f"sqlite:///{tmp_path}/omop.db")
    fill(os.environ["OMOP_URL"], rows)
    check_table(read_table(EXAMPLE), expected)
    found = simulate("fedges", [EXAMPLE, EXAMPLE], missing_values="drop", discretize=3)
    expected.to_csv(tmp_path / "persons.csv", index=False)
    plain = [tmp_path / "persons.csv"] * 2
    known = simulate("fedges", plain, missing_values="drop", discretize=3)
    assert found.graph.marked_edges() == known.graph.marked_edges() != []


def test_the_example_holds_no_secret_and_no_id():
    content = tomllib.loads(EXAMPLE.read_text())
    assert set(content) == {"url-variable", "query"}
    assert "person_id" not in content["query"].rpartition("\nselect\n")[2].partition("from ")[0]


# PostgreSQL.


@pytest.fixture(scope="module")
def server():
    with postgresql_server() as place:
        yield place


@pytest.fixture
def url(server, monkeypatch):
    url = url_of(server)
    monkeypatch.setenv("OMOP_URL", url)
    return url


@pytest.mark.slow
def test_the_query_makes_the_table_of_persons_on_postgresql(url, monkeypatch):
    rows, expected = cohort()
    fill(url, rows)
    check_table(read_table(EXAMPLE), expected)
    monkeypatch.setattr(reading, "PIECE", 8 * 50)
    monkeypatch.setattr(reading, "HELD", 2)
    table = open_table(EXAMPLE)
    assert isinstance(table, LargeFile)
    assert [len(piece) for piece in pieces(table)] == [50] * 6
    check_table(pd.concat(list(pieces(table)), ignore_index=True), expected)
    private = pd.concat(list(pieces(open_table(EXAMPLE, by_cell=True))), ignore_index=True)
    np.testing.assert_allclose(private.hba1c, expected.hba1c)


@pytest.mark.slow
def test_types_and_signs_of_a_query_on_postgresql(url, tmp_path):
    path = tmp_path / "q.table.toml"
    path.write_text(
        'url-variable = "OMOP_URL"\nquery = """select k::int as whole, k / 3.0 as decimal, '
        "case when k > 1 then k end as gaps, k > 1 as flag, date '2020-01-01' + k as day, "
        "'%a :b'::text as t from generate_series(1, 3) k where 'abc' like '%b%' order by k\"\"\"\n"
    )
    found = read_table(path)
    assert found.whole.tolist() == [1, 2, 3]
    assert found.whole.dtype == np.int64
    assert found.decimal.tolist() == [1 / 3, 2 / 3, 1.0]
    assert found.gaps.tolist() == pytest.approx([np.nan, 2, 3], nan_ok=True)
    assert found.flag.tolist() == [False, True, True]
    assert list(map(str, found.day)) == ["2020-01-02", "2020-01-03", "2020-01-04"]
    assert set(found.t) == {"%a :b"}


@pytest.mark.slow
def test_errors_of_postgresql_hold_no_secret_and_no_value(url, tmp_path, monkeypatch, caplog):
    path = tmp_path / "q.table.toml"
    for text, kind in (
        ("select nobody from generate_series(1, 2) order by 1", "UndefinedColumn"),
        ("select cast(t as integer) from (values ('Smith')) v(t) order by 1", "Invalid"),
        ("select 1 / (3 - k) from generate_series(1, 3) k order by k", "DivisionByZero"),
        ("select 1 frm x as order by 1", "SyntaxError"),
    ):
        path.write_text(f'url-variable = "OMOP_URL"\nquery = "{text}"\n')
        with pytest.raises(DataError, match=rf"refused the query \(.*({kind})") as caught:
            read_table(path)
        assert "Smith" not in str(caught.value)
    monkeypatch.setenv("OMOP_URL", url.replace("word", "wort"))
    with pytest.raises(DataError, match=r"cannot be reached \(OperationalError\)") as caught:
        read_table(path)
    shown, error = caplog.text, caught.value
    while error is not None:
        shown += repr(error)
        error = error.__cause__ or error.__context__
    for secret in ("wort", "pa@", "pa%40", "omop"):
        assert secret not in shown
    monkeypatch.setenv("OMOP_URL", url)
    path.write_text('url-variable = "OMOP_URL"\nquery = "select * from x order by 1"\n')
    with pytest.raises(DataError, match="UndefinedTable"):
        read_table(path)
