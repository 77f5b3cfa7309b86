"""What `flwr-causal deploy` writes: certificates, keys, bundles, services, containers."""

import json
import os
import re
import shutil
import stat
import subprocess
import tarfile
import tomllib
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from importlib.metadata import version
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from flower_apps import accepted_by_flower

import flwr_causal
from flwr_causal.app.deploy import keys
from flwr_causal.app.deploy.plan import DeploymentPlan
from flwr_causal.app.deploy.write import deploy, join, requirements
from flwr_causal.data.dictionary.entries import Dictionary
from flwr_causal.errors import ConfigError
from flwr_causal.party.policy import PartyPolicy
from flwr_causal.secure.signatures import check_peers, read_peers, signed_key
from flwr_causal.simulations import simulate

FILE = """\
name = "hospitals"
parties = ["north", "south"]
address = "superlink.example.org:9092"
names = ["10.0.0.5"]

[party.south]
data = "/data/south's.csv"
proxy = "http://proxy:3128"
""".replace("'", "")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("deployment") / "hospitals.toml"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def deployment(file):
    deploy(file, file.with_suffix(""))
    return file.with_suffix("")


def own_keys(directory):
    return {
        path.relative_to(directory): path.read_bytes()
        for path in directory.rglob("*")
        if path.name
        in {"node-key", "sums-key", "signing-key", "ca.key", "server.key", "server.crt"}
    }


# Certificates and keys.


def test_the_certificate_is_valid_for_each_address_of_the_coordinator(deployment):
    certificates = deployment / "coordinator" / "certificates"
    root = x509.load_pem_x509_certificate((certificates / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((certificates / "server.crt").read_bytes())
    verify = PolicyBuilder().store(Store([root]))
    subjects = [x509.DNSName("superlink.example.org"), x509.DNSName("localhost")]
    subjects += [x509.IPAddress(ip_address(one)) for one in ("10.0.0.5", "127.0.0.1")]
    for subject in subjects:
        assert verify.build_server_verifier(subject).verify(server, [])[-1] == root
    with pytest.raises(VerificationError):
        verify.build_server_verifier(x509.DNSName("other.example.org")).verify(server, [])
    # Clocks may differ, and the authority signs no other authority.
    assert server.not_valid_before_utc < datetime.now(UTC) - timedelta(hours=23)
    assert root.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    for party in ("north", "south"):
        own = deployment / "parties" / party / "ca.crt"
        assert own.read_bytes() == (certificates / "ca.crt").read_bytes()


def test_a_node_has_a_key_that_flower_reads_and_the_coordinator_knows(deployment):
    known = {}
    for party in ("north", "south"):
        bundle = deployment / "parties" / party
        private = load_ssh_private_key((bundle / "node-key").read_bytes(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.curve.name == "secp384r1"
        public = (deployment / "coordinator" / "keys" / f"{party}.pub").read_bytes()
        assert load_ssh_public_key(public) == private.public_key()
        known[party] = public
    assert len(set(known.values())) == 2


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_ssh_keygen_reads_the_keys(deployment):
    for key in (
        deployment / "parties" / "north" / "node-key",
        deployment / "coordinator" / "signing-key",
    ):
        told = subprocess.run(
            ["ssh-keygen", "-yf", key], capture_output=True, text=True, check=True
        )
        assert told.stdout.split()[:2] == key.with_name(f"{key.name}.pub").read_text().split()[:2]


def test_what_is_private_is_readable_for_its_owner_only(deployment):
    public = {"ca.crt", "server.crt", "peers.toml"}
    for path in [deployment, *deployment.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.name in public or path.suffix == ".pub":
            assert mode == 0o644, path
        else:
            assert mode == (0o700 if path.is_dir() or path.suffix == ".sh" else 0o600), path


def test_a_bundle_holds_its_partys_key_and_no_other(deployment):
    private = {
        path: path.read_bytes().splitlines()[-3]
        for path in deployment.rglob("*")
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes() and path.suffix != ".gz"
    }
    own_names = {"node-key", "sums-key"}
    assert {path.name for path in private} == own_names | {"signing-key", "ca.key", "server.key"}
    for party in ("north", "south"):
        with tarfile.open(deployment / "parties" / f"{party}.tar.gz") as archive:
            entries = archive.getmembers()
            content = b"".join(archive.extractfile(one).read() for one in entries if one.isfile())
        assert {one.name.split("/")[0] for one in entries} == {party}
        assert {(one.uid, one.uname) for one in entries} == {(0, "")}
        modes = {one.name: one.mode for one in entries}
        assert modes[f"{party}/node-key"] == 0o600
        own = {path for path, line in private.items() if line in content}
        assert own == {deployment / "parties" / party / name for name in own_names}


def test_parties_know_each_others_keys_for_secure_sums(deployment):
    for party in ("north", "south"):
        bundle = deployment / "parties" / party
        peers = read_peers(str(bundle / "peers.toml"))
        assert list(peers) == ["north", "south"]
        signature = signed_key("ab" * 32, party, 7, str(bundle / "sums-key"))
        check_peers(["ab" * 32], [signature], [party], 7, peers)


def test_a_party_can_make_its_own_key(tmp_path):
    file = tmp_path / "clinics.toml"
    file.write_text(FILE.replace("names =", 'keys = "party"\nnames ='))
    checklist = deploy(file, tmp_path / "clinics")
    parties = tmp_path / "clinics" / "parties"
    assert not [*parties.rglob("*-key*"), *parties.rglob("peers.toml")]
    assert "public key" in checklist.read_text()
    assert 'run --rm --volume "$PWD:/north" supernode' in checklist.read_text()
    bundle = tmp_path / "clinics" / "parties" / "north"
    lines = join(bundle)
    assert (
        load_ssh_public_key(lines["node-key"].encode())
        == load_ssh_private_key((bundle / "node-key").read_bytes(), None).public_key()
    )
    assert stat.S_IMODE((bundle / "node-key").stat().st_mode) == 0o600
    assert join(bundle) == lines
    with pytest.raises(ConfigError, match="no bundle of a party"):
        join(tmp_path)


def test_what_is_the_users_own_is_in_the_way(tmp_path):
    file = tmp_path / "h.toml"
    file.write_text(FILE)
    for name in ("CHECKLIST.md", "coordinator", "parties", "authority"):
        place = tmp_path / f"own {name}"
        place.mkdir()
        place.chmod(0o755)
        (place / name).write_text("my own")
        with pytest.raises(ConfigError, match=f"holds {name}, and no deployment"):
            deploy(file, place)
        assert [path.name for path in place.iterdir()] == [name]
        assert (place / name).read_text() == "my own"
        assert stat.S_IMODE(place.stat().st_mode) == 0o755
    (tmp_path / "notes.txt").write_text("my own")
    deploy(file, tmp_path)
    deploy(file, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "my own"


# Done again.


def test_done_again_it_keeps_keys_and_adds_a_party(tmp_path):
    file, directory = tmp_path / "h.toml", tmp_path / "h"
    file.write_text(FILE)
    deploy(file, directory)
    before = own_keys(directory)
    file.write_text(FILE.replace('"south"]', '"south", "west"]'))
    # A bundle that was handed over and deleted: its key is not made anew.
    shutil.rmtree(directory / "parties" / "south")
    deploy(file, directory)
    after = own_keys(directory)
    west = (directory / "parties" / "west").relative_to(directory)
    assert not (directory / "parties" / "south" / "node-key").exists()
    assert {*after} - {*before} == {west / "node-key", west / "sums-key"}
    assert all(before[path] == content for path, content in after.items() if path in before)
    # A party less: its key is not registered again.
    file.write_text(FILE.replace('"north", ', ""))
    deploy(file, directory)
    names = {path.stem for path in (directory / "coordinator" / "keys").glob("*.pub")}
    assert names == {"south"}


def test_a_certificate_is_renewed_in_time_or_for_another_address(tmp_path, monkeypatch):
    file, directory = tmp_path / "h.toml", tmp_path / "h"
    file.write_text(FILE)
    monkeypatch.setattr(keys, "SERVER_DAYS", 59)
    deploy(file, directory)
    server = directory / "coordinator" / "certificates" / "server.crt"
    root = server.with_name("ca.crt").read_bytes()
    assert keys.days_left(server) == 58
    monkeypatch.undo()
    deploy(file, directory)
    assert keys.days_left(server) == 364
    file.write_text(FILE.replace("10.0.0.5", "10.0.0.6"))
    deploy(file, directory)
    assert keys.is_covered("10.0.0.6", server)
    assert not keys.is_covered("10.0.0.5", server)
    assert server.with_name("ca.crt").read_bytes() == root
    (directory / "authority" / "ca.key").unlink()
    deploy(file, directory)  # nothing to sign
    file.write_text(FILE)
    with pytest.raises(ConfigError, match=r"authority/ca\.key cannot be read .* put it back"):
        deploy(file, directory)


# An existing certificate.


def existing(tmp_path, hosts):
    """Write a certificate of another authority; return the table [tls] of it."""
    tmp_path.mkdir(exist_ok=True)
    root, key = tmp_path / "root.crt", tmp_path / "root.key"
    keys.authority(root, key, "the hospital")
    keys.server_certificate(tmp_path / "own.crt", tmp_path / "own.key", hosts, root, key)
    return (
        f'\n[tls]\ncertificate = "{tmp_path}/own.crt"\nkey = "{tmp_path}/own.key"\n'
        f'authority = "{root}"\n'
    )


def test_an_existing_certificate_is_taken(tmp_path):
    file = tmp_path / "h.toml"
    file.write_text(FILE + existing(tmp_path / "pki", ["superlink.example.org"]))
    deploy(file, tmp_path / "h")
    own = tmp_path / "h" / "parties" / "north" / "ca.crt"
    assert own.read_bytes() == (tmp_path / "pki" / "root.crt").read_bytes()
    assert not (tmp_path / "h" / "authority").exists()
    # It is not for 127.0.0.1, so the SuperLink's own processes use the name.
    start = (tmp_path / "h" / "coordinator" / "start.sh").read_text()
    assert '--host "${LISTEN:-superlink.example.org}"' in start
    assert 'address = "${LOCAL:-superlink.example.org}:9092"' in start


def test_an_existing_certificate_that_does_not_fit_is_refused(tmp_path):
    file = tmp_path / "h.toml"
    file.write_text(FILE + existing(tmp_path / "pki", ["other.example.org"]))
    with pytest.raises(ConfigError, match=r"is for other\.example\.org, and not for 'superlink"):
        deploy(file, tmp_path / "h")
    table = existing(tmp_path / "pki", ["*.example.org"])
    file.write_text(FILE + table.replace("own.key", "root.key"))
    with pytest.raises(ConfigError, match="does not belong to"):
        deploy(file, tmp_path / "h")


# The deployment file.


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("superlink.example.org:9092", "superlink.example.org", "host:port"),
        ("superlink.example.org:9092", "https://superlink.example.org:9092", "host"),
        ('["north", "south"]', '["north", "north"]', "different names"),
        ('"north"', '"../north"', "no name"),
        ("names =", "adress =", "'adress' is unknown: address"),
        ("[party.south]", "[party.east]", "'east' is not among"),
        ("/data/souths.csv", "data.csv", "absolute path"),
        ("/data/souths.csv", "/data/'; rm -r", "without quotation marks"),
        ("http://proxy", "proxy", "is no URL"),
        ('name = "hospitals"', "", "'name' is missing"),
        ("names =", 'keys = "nobody"\nnames =', "coordinator"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_written(tmp_path, old, new, message):
    file = tmp_path / "h.toml"
    assert old in FILE
    file.write_text(FILE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=re.escape(message)):
        deploy(file, tmp_path / "h")
    assert not (tmp_path / "h").exists()


def test_a_missing_file_shows_the_smallest_one(tmp_path):
    with pytest.raises(ConfigError, match="smallest") as error:
        DeploymentPlan.read(tmp_path / "none.toml")
    smallest = tmp_path / "smallest.toml"
    smallest.write_text(str(error.value).partition("\n\n")[2])
    assert [party.name for party in DeploymentPlan.read(smallest).parties] == [
        "north",
        "centre",
        "south",
    ]


def test_a_reverse_proxy_may_be_between(tmp_path):
    file = tmp_path / "h.toml"
    file.write_text(FILE.replace("names =", 'listen = "127.0.0.1:9443"\nnames ='))
    deploy(file, tmp_path / "h")
    coordinator = tmp_path / "h" / "coordinator"
    site = (coordinator / "nginx.conf").read_text()
    assert "listen 9092 ssl;" in site
    # Nodes' requests and no other ones are forwarded.
    assert re.findall(r"location (\S+) \{\n +(\w+)", site) == [
        ("/v1/fleet/", "proxy_pass"),
        ("/", "return"),
    ]
    assert "proxy_pass https://127.0.0.1:9443;" in site
    start = (coordinator / "start.sh").read_text()
    assert "--port 9443" in start
    assert '--host "${LISTEN:-127.0.0.1}"' in start
    assert 'ports: ["127.0.0.1:9443:9443"]' in (coordinator / "compose.yaml").read_text()
    node = (tmp_path / "h" / "parties" / "north" / "start.sh").read_text()
    assert "--superlink 'superlink.example.org:9092'" in node


# Programs.


def stubs(directory, *names):
    """Write programs that print how they were called; return an environment with them first."""
    directory.mkdir()
    for name in names:
        program = directory / name
        program.write_text('#!/bin/sh\necho "$(basename "$0")"\nprintf "<%s>\\n" "$@"\n')
        program.chmod(0o755)
    return {"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}", "PROGRAMS": str(directory)}


def test_a_node_is_started_with_a_file_of_its_settings(deployment, tmp_path):
    bundle = tmp_path / "south bundle"
    shutil.copytree(deployment / "parties" / "south", bundle)
    table = tmp_path / "my table.csv"
    table.write_text("a\n1\n")
    environment = stubs(tmp_path / "bin", "flower-supernode", "flwr-causal")
    start = bundle / "start.sh"
    told = subprocess.run(
        [start, table], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == [
        "flower-supernode",
        "<--superlink>",
        "<superlink.example.org:9092>",
        "<--root-certificates>",
        f"<{bundle}/ca.crt>",
        "<--auth-supernode-private-key>",
        f"<{bundle}/node-key>",
        "<--node-config>",
        f"<{bundle}/state/node.toml>",
        "<--host>",
        "<127.0.0.1>",
        "<--port>",
        "<9094>",
    ]
    settings = tomllib.loads((bundle / "state" / "node.toml").read_text())
    assert settings == {
        "name": "south",
        "data-path": str(table),
        "policy": f"{bundle}/policy.example.toml",
        "record": f"{bundle}/state/record.jsonl",
        "sums-key": f"{bundle}/sums-key",
        "peers": f"{bundle}/peers.toml",
    }
    # The table is remembered, and `check` looks at the same settings.
    (bundle / "row-secret").write_text("s")
    (bundle / "policy.toml").write_text("least-rows = 9\n")
    (bundle / "node.toml").write_text("secure-aggregation = true\n")
    told = subprocess.run(
        [start, "check"], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines()[:2] == ["flwr-causal", "<doctor>"]
    assert tomllib.loads((bundle / "state" / "node.toml").read_text()) == settings | {
        "row-secret-file": f"{bundle}/row-secret",
        "policy": f"{bundle}/policy.toml",
        "secure-aggregation": True,
    }
    # A node that would take part in no run is not started.
    (tmp_path / "bin" / "flwr-causal").write_text(
        '#!/bin/sh\n[ "$2" != --settings ] || { echo "wrong: ${10}"; exit 1; }\n'
    )
    told = subprocess.run([start], env=environment, capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == f"wrong: {bundle}/state/node.toml\n"
    for wrong in ("relative.csv", "/no/such/table.csv", f"{tmp_path}/it's.csv"):
        told = subprocess.run([start, wrong], env=environment, capture_output=True, text=True)
        assert told.returncode == 2
        assert wrong in told.stderr


def test_a_node_has_the_variables_of_its_file_and_shows_none(deployment, tmp_path):
    bundle = tmp_path / "south"
    shutil.copytree(deployment / "parties" / "south", bundle)
    (tmp_path / "a.table.toml").write_text("")
    environment = stubs(tmp_path / "bin", "flower-supernode", "flwr-causal")
    seen = tmp_path / "seen"
    (tmp_path / "bin" / "flower-supernode").write_text(f'#!/bin/sh\nprintf "$DB_URL" > {seen}\n')
    (bundle / "environment").write_text("DB_URL='postgresql://bob:se cret$@host/x'\n")
    told = told_by([bundle / "start.sh", tmp_path / "a.table.toml"], environment)
    assert told.returncode == 0
    assert seen.read_text() == "postgresql://bob:se cret$@host/x"
    kept = [file.read_text() for file in (bundle / "state").glob("*") if file.is_file()]
    assert not any("cret" in text for text in [told.stdout, told.stderr, *kept])


def test_a_node_runs_once_on_a_machine_and_says_why_it_ended(deployment, tmp_path):
    bundle = tmp_path / "north"
    shutil.copytree(deployment / "parties" / "north", bundle)
    (tmp_path / "a.csv").write_text("a\n1\n")
    environment = stubs(tmp_path / "bin", "flower-supernode", "flwr-causal")
    command = [bundle / "start.sh", tmp_path / "a.csv"]
    # The first one waits until the test ends it, and then ends as if all were well.
    program = tmp_path / "bin" / "flower-supernode"
    program.write_text(
        "#!/bin/sh\ntrap 'echo leave; exit 0' TERM\necho up\nwhile :; do sleep 0.05; done\n"
    )
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "up\n"
        for more in ([], ["check"]):
            second = subprocess.run(
                [command[0], *more], env=environment, capture_output=True, text=True
            )
            assert second.returncode == 3
            assert f"runs already on this machine, from {bundle}" in second.stderr
        first.terminate()
        assert first.communicate(timeout=20)[0] == "leave\n"
        assert first.returncode == 0
    # One that ends with an error by itself is followed by the doctor's report.
    program.write_text("#!/bin/sh\nexit 1\n")
    told = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert told.returncode == 1
    assert "has ended. The doctor says why:\nflwr-causal\n<doctor>\n" in told.stderr
    assert "<--port>\n<9094>\n<--ended>\n" in told.stderr
    (bundle / "node-key").unlink()
    told = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert told.returncode == 2
    assert f"There is no key {bundle}/node-key: '{bundle}/install.sh' makes it" in told.stderr


def test_a_service_is_a_copy_that_has_a_user_of_its_own(deployment, tmp_path):
    bundle, root = tmp_path / "north", tmp_path / "root"
    shutil.copytree(deployment / "parties" / "north", bundle)
    (root / "etc/systemd/system").mkdir(parents=True)
    script = bundle / "service.sh"
    script.write_text(
        script.read_text()
        .replace("/opt/flwr-causal", f"{root}/opt")
        .replace("/etc/systemd", f"{root}/etc/systemd")
    )
    told = stubs(tmp_path / "bin", "useradd", "chown", "systemctl", "pip")
    (tmp_path / "bin" / "id").symlink_to("/bin/false")
    (tmp_path / "bin" / "python3").write_text(
        f'#!/bin/sh\necho "python3 $*"\nmkdir venv venv/bin\ncp {tmp_path}/bin/pip venv/bin\n'
    )
    (tmp_path / "bin" / "python3").chmod(0o755)
    # An update must not put old results over those of the service.
    for made in ("state", "results"):
        (bundle / made).mkdir(exist_ok=True)
        (bundle / made / "old").write_text("")
    without = subprocess.run([script], env=told, capture_output=True, text=True)
    assert without.returncode == 2
    assert "Which table?" in without.stderr

    done = subprocess.run([script, "/data/a.csv"], env=told, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    own = root / "opt" / "north"
    assert (own / "data-path").read_text() == "/data/a.csv\n"
    assert not [*own.rglob("old")]
    # The account reads, by its group, and nobody else does.
    assert stat.S_IMODE(own.stat().st_mode) == 0o750
    assert stat.S_IMODE((own / "node-key").stat().st_mode) == 0o640
    assert (root / "etc/systemd/system/flwr-causal-north.service").is_file()
    calls = " ".join(done.stdout.split())
    assert "useradd <--system> <--user-group> <--no-create-home>" in calls
    assert (
        "python3 -I -m venv venv pip <install> <--quiet> <--requirement> <requirements.txt>"
        in calls
    )
    owners = re.findall(r"chown (?:<-R> )?<(\S+)>((?: <\S+>)+)", calls)
    by_account = {path for owner, path in owners if owner.startswith("flwr-causal")}
    assert by_account == {f" <{own}/state>", f" <{own}/results>"}
    assert ("root:flwr-causal", f" <{own}/start.sh>") in owners
    assert calls.index(f"<{own}/start.sh>") < calls.index("systemctl <restart>")
    assert "systemctl <restart> <flwr-causal-north.service>" in calls

    # What the account may have written is neither executed nor followed by an update.
    treasure = tmp_path / "treasure"
    treasure.write_text("root's")
    (own / "state" / "data-path").symlink_to(treasure)
    (own / "venv" / "bin" / "python3").write_text("#!/bin/sh\necho planted\n")
    (own / "venv" / "planted.pth").write_text("")
    (own / "ssh.service").write_text("")
    chowned = (tmp_path / "bin" / "chown").read_text()
    (tmp_path / "bin" / "chown").write_text(f'{chowned}[ ! -L "$2" ]\n')

    again = subprocess.run([script, "/data/b.csv"], env=told, capture_output=True, text=True)

    assert again.returncode == 0, again.stderr
    assert treasure.read_text() == "root's"
    assert (own / "data-path").read_text() == "/data/b.csv\n"
    assert not os.path.lexists(own / "state" / "data-path")
    assert "planted" not in again.stdout
    assert not (own / "venv" / "planted.pth").exists()
    assert [path.name for path in (root / "etc/systemd/system").iterdir()] == [
        "flwr-causal-north.service"
    ]
    assert f"{own}/state" not in again.stdout


def test_a_policy_of_a_bundle_admits_the_coordinator(deployment):
    own = PartyPolicy.read(deployment / "parties" / "north" / "policy.example.toml")
    signer = (deployment / "coordinator" / "signing-key.pub").read_text().strip()
    assert own.askers == (signer,)


def test_pinned_versions_are_those_of_this_machine():
    lines = requirements().splitlines()
    assert all("==" in line for line in lines)
    assert f"numpy=={version('numpy')}" in lines


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_units(deployment, tmp_path):
    units = []
    found = [*deployment.glob("parties/south/*.service"), *deployment.glob("coordinator/*.service")]
    found += deployment.glob("coordinator/*.timer")
    assert len(found) == 4
    for unit in found:
        text, place = unit.read_text(), unit.parent
        name = "south" if place.name == "south" else "hospitals"
        script = "rerun.sh %i" if "rerun" in unit.name else "start.sh"
        assert f"ExecStart=/opt/flwr-causal/{name}/{script}\n" in text or unit.suffix == ".timer"
        # Of a template systemd looks at an instance.
        units.append(tmp_path / unit.name.replace("@", "@first"))
        # It looks whether the program and the user are there.
        text = text.replace(f"/opt/flwr-causal/{name}", str(place))
        units[-1].write_text(text.replace("=flwr-causal\n", "=daemon\n"))
    told = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    own = [line for line in told.stderr.splitlines() if any(one.name in line for one in units)]
    assert own == []
    assert told.returncode == 0


def composed(directory, environment):
    """Return what Docker Compose reads in a directory, or skip without Compose."""
    if shutil.which("docker-compose"):
        program = ["docker-compose"]
    elif (
        shutil.which("docker")
        and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode
    ):
        program = ["docker", "compose"]
    else:
        pytest.skip("needs Docker Compose")
    return subprocess.run(
        [*program, "-f", "compose.yaml", "config"],
        cwd=directory,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
    )


def test_compose_accepts_its_files(deployment):
    given = {"DATA": "/data/a.csv", "NODE_USER": "1000:1000"}
    for place in (deployment / "parties" / "north", deployment / "coordinator"):
        told = composed(place, given)
        assert told.returncode == 0, told.stderr
        (service,) = yaml.safe_load(told.stdout)["services"].values()
        assert service["user"] == "1000:1000"
        assert service["cap_drop"] == ["ALL"]
        assert service["logging"]["options"] == {"max-file": "5", "max-size": "10m"}
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][:3] == ["CMD", "python", "-c"]
    told = composed(deployment / "parties" / "north", {"DATA": "/data/a.csv"})
    assert "NODE_USER" in told.stderr


def test_no_key_goes_into_an_image(deployment):
    for place in (deployment / "parties" / "north", deployment / "coordinator"):
        recipe = (place / "Dockerfile").read_text()
        assert "USER 10001" in recipe.splitlines()
        copied = [line.split()[1:-1] for line in recipe.splitlines() if line.startswith("COPY")]
        assert copied == [["requirements.txt"]]
        assert (place / ".dockerignore").read_text() == "*\n!requirements.txt\n"


def listed(mark):
    """Return patterns, modes and words of a table of files in docs/deployment_it.md."""
    text = (Path(__file__).parents[2] / "docs" / "deployment_it.md").read_text()
    rows = text.partition(f"<!-- files of {mark} -->")[2].partition("<!-- end -->")[0]
    cells = [line.strip("| ").split(" | ") for line in rows.strip().splitlines()[2:]]
    return [(re.findall(r"`([^`]+)`", row[0]), int(row[1], 8), row[2]) for row in cells]


@pytest.mark.parametrize(
    ("mark", "place"), [("the coordinator", "."), ("a party", "parties/south")]
)
def test_the_pages_list_all_files_with_their_modes(deployment, mark, place):
    rows, found = listed(mark), set()
    assert len(rows) >= 8
    for path in (deployment / place).rglob("*"):
        if path.is_dir():
            continue
        name = path.relative_to(deployment / place).as_posix()
        # A bundle's own files are in the other table, too.
        (row,) = [row for row in rows if any(fnmatch(name, one) for one in row[0])][:1]
        found.update(one for other in rows for one in other[0] if fnmatch(name, one))
        if not name.startswith("parties/") or name.endswith(".gz"):
            assert stat.S_IMODE(path.stat().st_mode) == row[1], name
        assert b"PRIVATE KEY" not in path.read_bytes() or row[2] == "**yes**", name
    # The others are written later: by the programs, where the end-to-end test looks at them.
    later = ("coordinator/state/", "coordinator/results/", "state/")
    assert {one for row in rows for one in row[0] if not one.startswith(later)} == found


# What a party's and the coordinator's commands say, and what they keep.


def told_by(command, environment, **options):
    return subprocess.run(command, env=environment, capture_output=True, text=True, **options)


def test_a_wrong_path_is_not_kept_and_another_replaces_it(deployment, tmp_path):
    bundle = tmp_path / "north"
    shutil.copytree(deployment / "parties" / "north", bundle)
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.csv").write_text("a\n1\n")
    environment = stubs(tmp_path / "bin", "flower-supernode", "flwr-causal")
    start, kept = bundle / "start.sh", bundle / "state" / "data-path"
    for wrong in (tmp_path / "none.csv", "relative.csv"):
        assert told_by([start, wrong], environment).returncode == 2
        assert not kept.exists()
    # `check` looks at a table and keeps nothing.
    told_by([start, "check", tmp_path / "a.csv"], environment, check=True)
    assert not kept.exists()
    for right in ("a.csv", "b.csv"):
        told_by([start, tmp_path / right], environment, check=True)
        assert kept.read_text() == f"{tmp_path / right}\n"
    assert told_by([start, tmp_path / "none.csv"], environment).returncode == 2
    told_by([start], environment, check=True)
    # A table that was there is named with the file that says so, and with the remedy.
    (tmp_path / "b.csv").unlink()
    told = told_by([start], environment)
    assert told.returncode == 2
    assert f"{tmp_path}/b.csv: there is no such table" in told.stderr
    assert f"(as {kept} says; '{start}' /absolute/path/of/table.csv replaces it)" in told.stderr


def test_a_node_whose_key_is_not_registered_yet_is_started_again(deployment, tmp_path):
    bundle, count = tmp_path / "north", tmp_path / "count"
    shutil.copytree(deployment / "parties" / "north", bundle)
    (tmp_path / "a.csv").write_text("a\n1\n")
    environment = stubs(tmp_path / "bin", "flower-supernode", "flwr-causal")
    environment["RETRY_SECONDS"] = "1"
    # It is refused twice, as before its key is registered, and then ends as if all were well.
    (tmp_path / "bin" / "flower-supernode").write_text(
        f'#!/bin/sh\necho x >> {count}\n[ "$(wc -l < {count})" -gt 2 ]\n'
    )
    doctor = tmp_path / "bin" / "flwr-causal"
    doctor.write_text('#!/bin/sh\ncase "$*" in *--ended*) echo unregistered; exit 4;; esac\n')
    told = told_by([bundle / "start.sh", tmp_path / "a.csv"], environment)
    assert told.returncode == 0, told.stderr
    assert count.read_text() == "x\n" * 3
    assert told.stderr.count("unregistered") == 2
    assert "is tried again in 1 s" in told.stderr
    # Where the SuperLink does not know the key, the node is not started.
    count.unlink()
    asked = tmp_path / "asked"
    doctor.write_text(
        f'#!/bin/sh\ncase "$*" in *--settings*) echo x >> {asked}; '
        f'[ "$(wc -l < {asked})" -gt 2 ] || {{ echo unknown; exit 4; }};; esac\n'
    )
    (tmp_path / "bin" / "flower-supernode").write_text(f"#!/bin/sh\necho x >> {count}\n")
    told = told_by([bundle / "start.sh"], environment)
    assert (told.returncode, count.read_text(), asked.read_text()) == (0, "x\n", "x\n" * 3)
    assert told.stderr.count("unknown\nThe node of north is tried again in 1 s") == 2
    assert "has ended" not in told.stderr
    (tmp_path / "bin" / "flower-supernode").write_text(f"#!/bin/sh\necho x >> {count}\nexit 1\n")
    # A problem that does not pass ends it.
    count.unlink()
    doctor.write_text('#!/bin/sh\ncase "$*" in *--ended*) exit 1;; esac\n')
    assert told_by([bundle / "start.sh"], environment).returncode == 1
    assert count.read_text() == "x\n"
    # While it waits it can be ended.
    doctor.write_text('#!/bin/sh\ncase "$*" in *--ended*) echo wait >&2; exit 4;; esac\n')
    count.unlink()
    environment["RETRY_SECONDS"] = "60"
    with subprocess.Popen(
        [bundle / "start.sh"], env=environment, stderr=subprocess.PIPE, text=True
    ) as waiting:
        while "tried again" not in waiting.stderr.readline():
            pass
        waiting.terminate()
        assert waiting.wait(timeout=10) == 0


def test_a_key_of_two_parties_and_one_that_was_removed_are_not_said_to_be_registered(
    deployment, tmp_path
):
    place = tmp_path / "coordinator"
    shutil.copytree(deployment / "coordinator", place)
    environment = stubs(tmp_path / "bin", "flwr")
    flwr, known = tmp_path / "bin" / "flwr", place / "state" / "registered"

    def registered(answer, status="registered"):
        told = f'{{"nodes": [{{"status": "{status}"}}]}}'
        flwr.write_text(
            f"#!/bin/sh\ncase \"$*\" in *register*) echo '{answer}';; *) echo '{told}';; esac\n"
        )
        return told_by([place / "register.sh"], environment)

    told = registered("[code: 23] Public key already in use.", "unregistered")
    assert told.returncode == 1
    assert "The SuperLink has known the key of north before" in told.stderr
    assert f"save its public half as {place}/keys/north.pub" in told.stderr
    assert not list(known.glob("*.pub"))
    # The answer is the same where only the files were lost.
    told = registered("[code: 23] Public key already in use.")
    assert (told.returncode, told.stdout.count("is registered.")) == (0, 2)
    shutil.rmtree(known)
    told = registered("this is no key")
    assert (told.returncode, "cannot be registered: this is no key" in told.stderr) == (1, True)
    shutil.copy(place / "keys" / "north.pub", place / "keys" / "south.pub")
    told = registered("SuperNode 1 registered successfully.")
    assert told.returncode == 1
    assert told.stderr.splitlines()[1:] == [
        f"{place}/keys/{name}.pub" for name in ("north", "south")
    ]
    assert not list(known.glob("*.pub"))


COMPLETED = {
    **{"status": "completed", "stop_reason": "", "lost": {}, "rounds": 1, "config": {}},
    **{"bytes_sent": 1, "bytes_received": 1},
}


@pytest.fixture
def run_sh(deployment, tmp_path):
    """Call a coordinator's run.sh; its `flwr run` writes the given run.json."""
    place = tmp_path / "coordinator"
    shutil.copytree(deployment / "coordinator", place)
    environment = stubs(tmp_path / "bin", "flwr", "flwr-causal")
    environment["PYTHONPATH"] = str(Path(flwr_causal.__file__).parents[1])
    (place / "register.sh").write_text("#!/bin/sh\n")

    def call(*arguments, ends=None, checks=False, says=""):
        if checks:
            shutil.copy(shutil.which("flwr-causal"), tmp_path / "bin" / "flwr-causal")
        lines = ["#!/bin/sh", f'echo "$*" > {tmp_path}/asked', f"echo '{says}'"]
        if ends is not None:
            file = tmp_path / "run.json"
            file.write_text(json.dumps(ends, indent=2))
            lines += [f"mkdir -p {place}/results/first", f"cp {file} {place}/results/first"]
        (tmp_path / "bin" / "flwr").write_text("\n".join(lines) + "\n")
        (tmp_path / "asked").unlink(missing_ok=True)
        told = told_by([place / "run.sh", *arguments], environment)
        told.asked = (tmp_path / "asked").exists()
        return told

    call.place, call.environment = place, environment
    return call


def test_check_sh_asks_the_nodes_by_a_signed_question(run_sh, tmp_path):
    """It runs the command of this package, which calls `flwr run` and reads its last line."""
    place, environment = run_sh.place, run_sh.environment
    shutil.copy(shutil.which("flwr-causal"), tmp_path / "bin" / "flwr-causal")
    result = json.dumps({"flwr-causal": {"status": "failed", "error": "no"}})
    asked = tmp_path / "asked"
    program = f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {asked}\necho '{result}'\n"
    (tmp_path / "bin" / "flwr").write_text(program)
    told = told_by([place / "check.sh", "-m", "describe", "-o", "bins=64"], environment)
    assert (told.returncode, told.stderr.strip()) == (1, "The run could not begin: no")
    head, app, connection, *rest = asked.read_text().splitlines()
    assert (head, app) == ("run", str(place / "app"))
    assert connection in (place / "run.sh").read_text()
    assert rest[-1] == (f'signing-key="{place}/signing-key" bins=64 method="describe" dry-run=true')


def test_the_exit_status_of_run_sh_says_who_is_missing(run_sh):
    assert run_sh("first", ends=COMPLETED).returncode == 0
    shutil.rmtree(run_sh.place / "results" / "first")
    lost = {"north": 1749, "party 2": 0}
    told = run_sh("first", ends={**COMPLETED, "lost": lost})
    assert told.returncode == 3
    assert "completed without all parties" in told.stderr
    assert told.stderr.splitlines()[-2:] == ["north (1749 rows)", "party 2"]


def test_a_dry_run_of_run_sh_says_whether_a_run_could_begin(run_sh):
    """It writes nothing, so that its status is that of its last line."""
    for status, code in (("could begin", 0), ("failed", 1)):
        result = json.dumps({"flwr-causal": {"status": status, "error": "x"}})
        told = run_sh("first", "dry-run=true", says=result)
        assert (told.returncode, told.asked) == (code, True)
        assert result in told.stdout
        assert "kept in" not in told.stdout + told.stderr
        assert not (run_sh.place / "results" / "first").exists()
        assert not (run_sh.place / "state" / "options").exists()


def test_quotation_marks_in_a_name_or_a_path_are_refused_before_a_run(run_sh, deployment, tmp_path):
    for name in ("a'b", 'a"b', "a\\b"):
        told = run_sh(name)
        assert (told.returncode, told.asked) == (2, False)
        assert "no quotation marks" in told.stderr
    moved = tmp_path / "o'brien"
    shutil.copytree(deployment / "coordinator", moved)
    for script in ("run.sh", "rerun.sh", "check.sh", "start.sh", "register.sh"):
        told = told_by([moved / script, "first"], run_sh.environment)
        assert (told.returncode, told.stderr.split(":")[0]) == (2, "Move this directory")
    file = tmp_path / "file.toml"
    file.write_text('name = "a"\naddress = "127.0.0.1:1"\nparties = ["b"]\n')
    with pytest.raises(ConfigError, match="quotation marks"):
        deploy(file, tmp_path / "o'hara")
    assert not (tmp_path / "o'hara").exists()


def test_a_failed_run_can_be_followed_by_another_of_its_name(run_sh):
    failed = {**COMPLETED, "status": "failed"}
    told = run_sh("first", ends=failed)
    assert told.returncode == 1
    assert "the same command starts anew; with the option resume=true" in told.stderr
    for status in ("failed", "stopped"):
        told = run_sh("first", ends={**COMPLETED, "status": status})
        assert told.asked
        assert "this run replaces it. (With the option resume=true" in told.stderr
    # One that goes on and one that is completed are left alone.
    run_sh("first", ends={**COMPLETED, "status": "running"})
    told = run_sh("first", ends=COMPLETED)
    assert (told.returncode, told.asked) == (2, False)
    assert "resume=true" in told.stderr
    assert run_sh("first", "resume=true", ends=COMPLETED).returncode == 0
    told = run_sh("first", ends=COMPLETED)
    assert (told.returncode, told.asked) == (2, False)
    assert "give another name" in told.stderr


def test_the_status_is_that_of_this_run_and_what_ran_is_repeated(run_sh):
    kept = run_sh.place / "state" / "options" / "first"
    # A server that refuses the run writes nothing; an earlier run's results say nothing of it.
    assert run_sh("first", "method='fedges'").returncode == 1
    assert not kept.exists()
    assert run_sh("first", "method='fedges'", ends=COMPLETED).returncode == 0
    told = run_sh("first", "method='lingam'", "resume=true")
    assert (told.returncode, told.asked) == (1, True)
    assert "The run has not started" in told.stderr
    assert kept.read_text() == "method='fedges'\n"
    # Completed results that are asked for again are written again, and are a success.
    assert run_sh("first", "method='fedges'", "resume=true", ends=COMPLETED).returncode == 0


@pytest.mark.parametrize("name", ["it's", 'a "b"', "a\\b"])
def test_a_place_that_no_script_can_write_down_is_refused(deployment, tmp_path, name):
    place = tmp_path / name
    for script in ("coordinator/run.sh", "coordinator/start.sh", "parties/north/start.sh"):
        own = place / Path(script).parent
        shutil.copytree(deployment / Path(script).parent, own, dirs_exist_ok=True)
        told = told_by([place / script, "first"], {"PATH": os.environ["PATH"]})
        assert told.returncode == 2
        assert "Move this directory" in told.stderr


def test_a_run_is_repeated_with_its_options_and_compared(run_sh, tmp_path):
    again = run_sh.place / "rerun.sh"
    environment = run_sh.environment
    told = told_by([again, "first"], environment)
    assert told.returncode == 2
    assert "run.sh' has not completed a run first" in told.stderr
    told = run_sh("first", "method='fedges' seed=3", "resume=true", ends=COMPLETED)
    assert f"To look at: {run_sh.place}/results/first/report.html" in told.stdout
    results = run_sh.place / "results"
    # From now on flwr writes into the directory of results that it is given.
    flwr, causal = (tmp_path / "bin" / name for name in ("flwr", "flwr-causal"))
    flwr.write_text(
        f'#!/bin/sh\necho "$*" > {tmp_path}/asked\n'
        'place=$(echo "$*" | sed "s/.*output-dir=\'\\([^\']*\\)\'.*/\\1/")\n'
        f'mkdir -p "$place"; cp {tmp_path}/run.json "$place"\n'
    )
    causal.write_text(f'#!/bin/sh\ncase $1 in compare) echo "$*" >> {tmp_path}/compared;; esac\n')
    for _ in range(2):
        told = told_by([again, "first"], environment)
        assert told.returncode == 0, told.stderr
        asked = (tmp_path / "asked").read_text()
        assert "method='fedges' seed=3" in asked
        assert "resume" not in asked
    new = sorted(path.name for path in results.iterdir())
    assert new[0] == "first"
    assert all(re.fullmatch(r"first-\d{4}-\d\d-\d\dT\d{6}", name) for name in new[1:])
    compared = [line.split() for line in (tmp_path / "compared").read_text().splitlines()]
    # Each with the one before it.
    assert [line[1:3] for line in compared] == [
        [str(results / one), str(results / two)] for one, two in pairwise(new)
    ]
    assert compared[0][3:] == ["--output", str(results / new[1] / "changes.html")]
    # A run that failed is not what the next one is compared with.
    (tmp_path / "run.json").write_text(json.dumps({**COMPLETED, "status": "failed"}, indent=2))
    assert told_by([again, "first"], environment).returncode == 1
    assert len((tmp_path / "compared").read_text().splitlines()) == 2


@pytest.mark.nightly
def test_a_run_is_repeated_with_the_same_dictionary_alone(run_sh, tmp_path):
    dictionary, results = tmp_path / "dictionary.toml", run_sh.place / "results"
    columns = "[columns.a]\nkind = 'number'\n[columns.b]\nkind = 'number'\n"
    dictionary.write_text(columns)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"])
    given = {"dictionary": str(dictionary), "output_dir": results / "first"}
    simulate("moments", [table, table + 1], **given)
    kept = run_sh.place / "state" / "options" / "first"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(f"method='moments' dictionary='{dictionary}'\n")
    shutil.copy(shutil.which("flwr-causal"), tmp_path / "bin" / "flwr-causal")
    asked = tmp_path / "asked"
    (tmp_path / "run.json").write_text(json.dumps(COMPLETED, indent=2))
    (tmp_path / "bin" / "flwr").write_text(
        f'#!/bin/sh\necho "$*" > {asked}\n'
        'place=$(echo "$*" | sed "s/.*output-dir=\'\\([^\']*\\)\'.*/\\1/")\n'
        f'mkdir -p "$place"; cp {tmp_path}/run.json "$place"\n'
    )
    again = [run_sh.place / "rerun.sh", "first"]
    # Comments do not change a dictionary; a unit does.
    dictionary.write_text(f"# agreed\n{columns}")
    told = told_by(again, run_sh.environment)
    assert told.returncode == 0, told.stderr
    digest = Dictionary.read(dictionary).digest
    assert f"Its dictionary is that of {results}/first: {digest}." in told.stdout
    assert asked.exists()
    asked.unlink()
    (run_sh.place / "state" / "latest" / "first").unlink()
    for changed in (columns + "unit = 'kg'\n", columns.replace("number", "count")):
        dictionary.write_text(changed)
        told = told_by(again, run_sh.environment)
        assert told.returncode == 2
        assert "The dictionary is not the one of the run in" in told.stderr
        assert f"then the dictionary {digest}" in told.stderr
        assert Dictionary.read(dictionary).digest in told.stderr
    kept.write_text("method='moments'\n")
    told = told_by(again, run_sh.environment)
    assert told.returncode == 2
    assert "now none, then the dictionary" in told.stderr
    dictionary.unlink()
    kept.write_text(f"method='moments' dictionary='{dictionary}'\n")
    told = told_by(again, run_sh.environment)
    assert told.returncode == 2
    assert f"The dictionary {dictionary} cannot be read" in told.stderr
    assert not asked.exists()


@pytest.mark.nightly
def test_a_key_that_does_not_exist_is_named_before_flower_is_asked(run_sh):
    told = run_sh("first", "max-ruonds=3", ends=COMPLETED, checks=True)
    assert (told.returncode, told.asked) == (2, False)
    assert "There is no key 'max-ruonds'. Did you mean 'max-rounds'?" in told.stderr
    # The method is that of the app, unless another one is given.
    assert run_sh("first", "moments.solver='ges'", ends=COMPLETED).returncode == 0


@pytest.mark.parametrize("name", ["9_hospitals", "a" * 32, "hospitals"])
def test_flower_accepts_the_app_whatever_the_federation_is_called(tmp_path, name):
    file = tmp_path / "plan.toml"
    file.write_text(f'name = "{name}"\nparties = ["a"]\naddress = "example.org:9092"\n')
    deploy(file, tmp_path / "out")
    text = (tmp_path / "out" / "coordinator" / "app" / "pyproject.toml").read_text()
    accepted_by_flower(tomllib.loads(text))
