"""Three hospitals that write differently, on real nodes: databases, a workbook, maps, a policy."""

import json
import re

import pandas as pd
import pytest
import sqlalchemy
from dirty_hospitals import ROWS, TRUTH, write_hospitals
from postgresql import postgresql_server, url_of
from processes import APP, REPOSITORY, Deployment

from flwr_causal import simulate
from flwr_causal.data.dictionary.entries import Dictionary
from flwr_causal.reports.run import Run

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

PAGE = (REPOSITORY / "docs" / "how_to" / "dictionary.md").read_text(encoding="utf-8")
KEYS = "standardize=true missing-values='drop' unshared-columns='drop'"
OPTIONS = {"standardize": True, "missing_values": "drop", "unshared_columns": "drop"}
# Rows, names, codes and passwords of the parties; nobody else may see one of them.
THEIRS = ("71,5", "412.0", "w_g", "N00004", "seen by nurse", "pa%40ss", "pa@ss", "clinic.db")


def into_database(url, table, query, path, variable):
    """Write a table into a database, and a description that names an environment variable."""
    engine = sqlalchemy.create_engine(url)
    table.to_sql("patients", engine, index=False)
    engine.dispose()
    path.write_text(f'url-variable = "{variable}"\nquery = "{query} order by patient"\n')
    return path


@pytest.fixture
def hospitals(tmp_path, monkeypatch):
    """The tables of docs/how_to/dictionary.md in three sources, the dictionary, and the maps."""
    write_hospitals(tmp_path)
    for language, name, text in re.findall(
        r"^```(toml)\n# (\S+\.toml)\n(.*?)^```$", PAGE, re.S | re.M
    ):
        assert language == "toml"
        (tmp_path / name).write_text(text)
    tables = {n: pd.read_csv(tmp_path / f"{n}.csv", keep_default_na=False) for n in ROWS}
    urls = {"WEST_DB": f"sqlite:///{tmp_path}/clinic.db"}
    with postgresql_server() as server:
        urls["NORTH_DB"] = url_of(server)
        for variable, url in urls.items():
            monkeypatch.setenv(variable, url)
        sources = {
            "north": into_database(
                urls["NORTH_DB"],
                tables["north"],
                "select age, sex, weight, pressure::numeric, stage, smoker from patients",
                tmp_path / "north.table.toml",
                "NORTH_DB",
            ),
            "south": tmp_path / "south.xlsx",
            "west": into_database(
                urls["WEST_DB"],
                tables["west"],
                "select * from patients",
                tmp_path / "west.table.toml",
                "WEST_DB",
            ),
        }
        tables["south"].to_excel(sources["south"], index=False)
        yield tmp_path, sources, urls


def test_a_dictionary_maps_and_databases_on_real_nodes(flower, hospitals):
    directory, sources, urls = hospitals
    dictionary, other = directory / "dictionary.toml", directory / "other.toml"
    other.write_text(dictionary.read_text().replace("most = 120", "most = 60"))
    digest = Dictionary.read(dictionary).digest
    policy = directory / "policy.toml"
    policy.write_text(f'[options]\ndictionary = "{digest}"\n')
    deployment, environment = Deployment(flower), flower.environment
    for name, source in sources.items():
        own = f"{name.upper()}_DB"
        # A node has the URL of its own database alone.
        flower.environment = {
            **{key: value for key, value in environment.items() if key not in urls},
            **{key: url for key, url in urls.items() if key == own},
        }
        more = {"policy": policy} if name == "west" else {}
        more["dictionary-map"] = directory / f"{name}.map.toml"
        deployment.add_node(name, source, **more)
    flower.environment = {key: value for key, value in environment.items() if key not in urls}
    asked = ("flwr-causal", "check", "--nodes", "--app", APP, "--connection", "clinic", "--json")
    ready = ("-m", "describe", "-o", "min-available-nodes=3")

    # A dry run: by the agreed dictionary, then by another one, which one party refuses.
    said = flower.call(*asked, *ready, "-o", f"dictionary={dictionary}")
    (found,) = json.loads(said)
    assert found["status"] == "could begin", said
    assert found["parties"] == ROWS
    assert found["columns"] == ["age", "sex", "weight", "pressure", "stage", "smoker"]
    (refused,) = json.loads(flower.call(*asked, *ready, "-o", f"dictionary={other}"))
    assert refused["status"] == "failed"
    assert re.search(r"west: .* by its rule 'options\.dictionary'", refused["error"])
    # The others have looked: the server is told names and counts, rows and values stay there.
    fault = (
        r"north: the table does not fit the dictionary: column 'age', \d+ values: outside 0 to 60"
    )
    assert re.search(fault, refused["error"])
    assert re.search(
        r"north does not fit the dictionary: column 'age', row \d+: '", flower.log("north")
    )
    assert "row " not in refused["error"]
    spoken = said + json.dumps(refused)

    # The run, and a description in secure sums.
    maps = [directory / f"{name}.map.toml" for name in sources]
    shared = {"dictionary": str(dictionary), "maps": maps}
    started = f"min-available-nodes=3 dictionary='{dictionary}'"
    spoken += flower.run(APP, "clinic", f"{started} {KEYS} output-dir='{directory / 'graph'}'")
    run = Run.load(directory / "graph")
    assert {(cause, effect) for cause, effect, *_ in run.graph.edges()} == TRUTH
    assert run.graph.equals(simulate("moments", list(sources.values()), **OPTIONS, **shared).graph)
    assert run.config["dictionary_digest"] == digest
    described = directory / "described"
    secure = "method='describe' secure-aggregation=true"
    spoken += flower.run(APP, "clinic", f"{started} {secure} output-dir='{described}'")
    model = Run.load(described).model
    local = simulate("describe", list(sources.values()), secure_aggregation=True, **shared).model
    assert model.table().equals(local.table())
    assert model.rows == sum(ROWS.values())
    statuses = flower.statuses("clinic", at_least=4)
    assert sorted(statuses) == ["finished:completed"] * 3 + ["finished:failed"]

    # What the server says and keeps holds nothing of single rows, and no party's secrets.
    spoken += flower.log("superlink")
    for name in ("graph", "described"):
        for file in (directory / name).rglob("*"):
            spoken += file.name + (file.read_text(errors="replace") if file.is_file() else "")
    for text in THEIRS:
        assert text not in spoken, text
    for name in sources:
        for url in urls.values():
            assert url not in flower.log(name)
