"""The commands of a generated checklist, word for word, from the files to a result."""

import re
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from processes import START_SECONDS, free_port, wait_for

from flwr_causal.app.deploy.write import deploy
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(1800)]


def commands(checklist: str) -> dict[str, list[str]]:
    """Return the commands of each heading of a checklist."""
    sections = re.split(r"^## (?:Party )?(.+)$", checklist, flags=re.MULTILINE)
    pairs = zip(sections[1::2], sections[2::2], strict=True)
    return {
        heading.lower(): [
            " ".join(line.split())
            for block in re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
            for line in block.strip().splitlines()
        ]
        for heading, text in pairs
    }


def test_a_checklist_leads_to_a_result(flower, tables, tmp_path):
    file, deployment = tmp_path / "hospitals.toml", tmp_path / "hospitals"
    port = free_port()
    own = "".join(
        f"[party.{name}]\ndata = '{table}'\nport = {free_port()}\n"
        for name, table in tables.items()
    )
    file.write_text(
        f"name = 'hospitals'\nparties = {list(tables)}\naddress = '127.0.0.1:{port}'\n"
        f"listen = '127.0.0.1'\n{own}"
    )
    listed = commands(deploy(file, deployment).read_text())
    # Beside them the coordinator installs the package and writes the files.
    assert len(listed["coordinator"]) == 2
    assert all(len(listed[name]) == 3 for name in tables)

    # Each in its own directory, which holds its own files only.
    superlink, run = listed["coordinator"]
    flower.start("superlink", "sh", "-c", f"cd {deployment} && exec {superlink}", TEST_NODE="link")
    for name in tables:
        place = tmp_path / "machines" / name
        place.mkdir(parents=True)
        shutil.copy(deployment / "parties" / f"{name}.tar.gz", place)
        unpack, install, start = listed[name]
        assert flower.call("sh", "-c", f"cd {place} && {unpack} && {install}").endswith(
            "is installed.\n"
        )
        # It starts the node again until its key is registered.
        command = f"cd {place} && exec {start}"
        flower.start(name, "sh", "-c", command, TEST_NODE=name, RETRY_SECONDS="2")
    registered = deployment / "coordinator" / "state" / "registered"
    wait_for(
        lambda: len(list(registered.glob("*.pub"))) == len(tables),
        START_SECONDS,
        "the keys are registered",
    )
    output = flower.call("sh", "-c", f"cd {deployment} && {run}")

    results = deployment / "coordinator" / "results" / "first"
    page = results / "report.html"
    assert output.endswith(f"Results: {results}\nTo look at: {page}\n"), output
    assert page.is_file()
    found, expected = Run.load(results), simulate("moments", list(tables.values()))
    np.testing.assert_array_equal(found.graph.adjacency, expected.graph.adjacency)
    assert list(found.parties) == list(tables)
    for name in tables:
        bundle = tmp_path / "machines" / name / name
        secret = (bundle / "node-key").read_text().splitlines()[-3]
        logs = output + "".join(flower.log(one) for one in ("superlink", *tables))
        assert secret not in logs
        assert "sent" in (bundle / "state" / "record.jsonl").read_text()
        for made in (bundle / "state").rglob("*"):
            readable = stat.S_IMODE(made.stat().st_mode) & 0o077
            assert not readable or made.parent != bundle / "state", made
    # The process list shows paths of keys and settings, and no table.
    shown = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in flower.pids())
    assert b"state/node.toml" in shown
    assert b"data-path" not in shown
    # A second name for the results of the first run would hide a mistake.
    assert "exists: give another name" in flower.call("sh", "-c", f"cd {deployment} && {run}")
