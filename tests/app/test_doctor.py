"""The doctor names each mistake; servers here are small ones of this process."""

import socket
import ssl
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from processes import free_port
from typer.testing import CliRunner

from flwr_causal import command_line
from flwr_causal.app.deploy import keys
from flwr_causal.app.doctor import command, connection
from flwr_causal.app.doctor import command as doctor
from flwr_causal.app.doctor.command import examine
from flwr_causal.app.doctor.finding import LATER, Finding
from flwr_causal.party.node_config import KEYS

NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "clinic authority")])


def certificate(directory, name="localhost", days=90):
    """Write a certificate that signs itself, and its key; return their paths."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    hosts = [x509.DNSName(name), x509.IPAddress(ip_address("127.0.0.1"))]
    built = (
        x509.CertificateBuilder(NAME, NAME, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=100))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(hosts[: 1 + (name == "localhost")]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, SHA256())
    )
    directory.mkdir(exist_ok=True)
    (directory / "crt").write_bytes(built.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "key").write_bytes(secret)
    return directory / "crt", directory / "key"


@contextmanager
def server(pair=None, ahead=0.0, status=200):
    """A server that says that it is well, at a time of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response_only(status)
            self.send_header("Date", formatdate(time.time() - ahead, usegmt=True))
            self.end_headers()

        def log_message(self, *args):
            pass

    running = HTTPServer(("127.0.0.1", 0), Handler)
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        running.socket = context.wrap_socket(running.socket, server_side=True)
    running.handle_error = lambda *_: None
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"localhost:{running.server_port}"
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


@contextmanager
def opening_proxy(pair):
    """A proxy that answers CONNECT, and then shows a certificate of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)

    def answer():
        with waiting.accept()[0] as plain:
            plain.recv(4096)
            plain.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            with suppress(OSError), context.wrap_socket(plain, server_side=True):
                pass

    with socket.create_server(("127.0.0.1", 0)) as waiting:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{waiting.getsockname()[1]}"
        thread.join()


def problems(findings, level="problem"):
    return [f"{one.subject}: {one.text}" for one in findings if one.level == level]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_a_way_that_is_free(tmp_path):
    pair = certificate(tmp_path)
    with server(pair) as address:
        found = examine(superlink=address, root_certificates=pair[0])
        assert problems(found) == []
        assert {"address", "certificate", "SuperLink", "clock"} <= {one.subject for one in found}


def test_what_is_wrong_with_the_way(tmp_path, monkeypatch):
    ca = certificate(tmp_path / "a")[0]

    def said(address, **options):
        (text,) = problems(examine(superlink=address, **{"root_certificates": ca, **options}))
        return text

    closed = f"localhost:{free_port()}"
    assert "nothing listens at port" in said(closed)
    assert "'9092' is no host:port" in said("9092")
    assert "is not known on this machine" in said("no.such.host.invalid:9092")
    assert "there is no file" in said(closed, root_certificates=tmp_path / "none")
    for days, name, words in (
        (-1, "localhost", "certificate expired on"),
        (9, "other.org", "is not for localhost, but for other.org"),
    ):
        pair = certificate(tmp_path / name, name, days)
        with server(pair) as address:
            assert words in said(address, root_certificates=pair[0])
    pair = certificate(tmp_path / "b")
    with server(pair) as address:
        assert "was issued by 'clinic authority', which" in said(address)
        assert "gives no answer" in said(address, insecure=True, root_certificates=None)
    with server() as address:
        assert "does not speak TLS" in said(address)
    for ahead, words in ((8, " s ahead of"), (-400, " s behind")):
        with server(ahead=ahead) as address:
            assert words in said(address, insecure=True, root_certificates=None)
    with server(status=404) as address:
        assert "which no SuperLink does" in said(address, insecure=True, root_certificates=None)
        monkeypatch.setenv("http_proxy", f"http://user:word@{closed}")
        monkeypatch.setenv("no_proxy", "")
        found = examine(superlink=address, insecure=True)
        assert f"no answer through the proxy {closed}" in problems(found)[0]
        assert "word" not in "".join(one.text for one in found)
    with opening_proxy(certificate(tmp_path / "c")) as proxy:
        monkeypatch.setenv("https_proxy", f"http://{proxy}")
        found = examine(superlink=closed, root_certificates=ca, key=tmp_path / "a" / "key")
        (text,) = problems(found)
        assert f"the proxy {proxy} opens the connection to {closed}: it shows a" in text
        assert f"{ca} does not confirm" in text


@pytest.mark.parametrize(
    ("state", "ended", "said"),
    [
        ("registered", False, []),
        ("registered", True, ["node twice", "another node with this key is connected"]),
        ("unknown", True, ["key", "is not registered at the SuperLink"]),
        ("status 401", True, ["key", "is refused: status 401"]),
    ],
)
def test_an_unregistered_key_and_a_second_node_are_told_apart(
    tmp_path, monkeypatch, state, ended, said
):
    key = tmp_path / "node-key"
    keys.node_key(key, "north")
    monkeypatch.setattr(connection, "registration_of", lambda *_, **__: state)
    with server() as address:
        found = examine(superlink=address, insecure=True, key=key, ended=ended)
    texts = problems(found)
    assert len(texts) == bool(said)
    assert all(word in texts[0] for word in said)


def node(tmp_path, **changes):
    x = np.random.default_rng(0).normal(size=(20, 2))
    pd.DataFrame(x, columns=["x", "y"]).to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "policy.toml").write_text("least-rows = 10\n[options.moments]\nreplicates = 0")
    given = {
        **{"name": "north", "data-path": tmp_path / "a.csv", "policy": tmp_path / "policy.toml"},
        **changes,
    }
    return " ".join(f"{key}='{value}'" for key, value in given.items() if value is not None)


def test_a_node_that_can_start(tmp_path):
    found = examine(node_config=node(tmp_path))
    assert problems(found) == []
    assert "20 rows, 2 columns" in "".join(one.text for one in found)
    file = tmp_path / "node.toml"
    file.write_text(f'name = "north"\n[tables]\nfirst = "{tmp_path / "a.csv"}"\n')
    found = examine(node_config=str(file))
    assert problems(found) == []
    assert "table first" in {one.subject for one in found}


def test_what_is_wrong_with_a_node(tmp_path, monkeypatch):
    def said(policy=None, **changes):
        config = node(tmp_path, **changes)
        if policy is not None:
            (tmp_path / "policy.toml").write_text(policy)
        (text,) = problems(examine(node_config=config))
        return text

    assert "a.txt does not exist" in said(**{"data-path": "/nowhere/a.txt"})
    assert "there is no key 'data_path' (did you mean 'data-path'?)" in said(data_path="a")
    assert "no path of its data, or two" in said(**{"data-path": None})
    assert "simulation" in said(**{"partition-id": 1})
    assert "there is no learner 'sppn'; there are" in said(learner="sppn")
    assert "there is no file /none" in said(**{"row-secret-file": "/none"})
    (tmp_path / "secret").write_text("abc\n")
    assert "can be guessed" in said(**{"row-secret-file": str(tmp_path / "secret")})
    assert "no rule 'metods'" in said("metods = []")
    assert "did you mean 'moments'" in said('methods = ["momnets"]')
    assert "no method theirs" in said('methods = ["theirs"]')
    assert "options.solver is never 'oder'" in said("[options]\nsolver = 'oder'")
    assert "options.moments: there is no option replicate" in said("[options.moments]\nreplicate=1")
    assert "options: there is no option replicate" in said("[options]\nreplicate = 1")
    assert "fewer than least-rows" in said("least-rows = 21")
    assert "record cannot be written" in said(record="/nowhere/record.jsonl").replace(
        " /nowhere/record.jsonl", ""
    )
    monkeypatch.setattr(command, "ROOM", 2**80)
    assert {one.split(":")[0] for one in problems(examine())} == {"disk"}


def test_a_stray_cell_is_shown_on_the_partys_machine(tmp_path):
    config = node(tmp_path)
    frame = pd.read_csv(tmp_path / "a.csv").astype(object)
    frame.loc[4, "y"] = "1,5"
    frame.to_csv(tmp_path / "a.csv", index=False)
    text = " ".join(problems(examine(node_config=config), "note"))
    assert "column 'y': '1,5' in row 5 is no number" in text


def test_settings_alone_say_what_the_node_would_say(tmp_path):
    def said(config):
        found = examine(node_config=config, settings=True)
        return [one.text for one in found]

    config = node(tmp_path, **{"data-path": "/nowhere/a.csv"})
    assert said(config) == []
    (text,) = said(f"{config} secure-aggregation=2 peers=''")
    assert "'secure-aggregation' is neither true nor false: write true" in text
    assert "'peers' is empty" in text
    assert "(did you mean 'policy'?)" in said(f"{config} polcy='/p'")[0]
    # Flower would leave these parts out, and start the node without them.
    for dropped in ("secure-aggregation", "secure-aggregation = true", "secure-aggregation: true"):
        assert "cannot be read: 'secure-aggregation" in said(f"{config} {dropped}")[0]
    (tmp_path / "policy.toml").write_text("methods = ['moment']")
    (text,) = said(config)
    assert "there is no method moment; did you mean 'moments'?" in text
    (tmp_path / "policy.toml").write_text("least-rows = 10")
    file = tmp_path / "node.toml"
    file.write_text("interventions = ['x']\n")
    assert "cannot be read: The value for key interventions" in said(str(file))[0]
    command = ["doctor", "--settings", "--node-config"]
    told = CliRunner().invoke(command_line.app, [*command, f"{config} polcy='/p'"])
    assert (told.exit_code, "polcy" in told.stdout) == (1, True)
    assert CliRunner().invoke(command_line.app, [*command, config]).exit_code == 0


def test_settings_say_too_that_the_key_is_not_registered_yet(tmp_path, monkeypatch):
    unknown = Finding("problem", "key", "k is not registered", "Send it.", passing=True)
    way = [Finding("problem", "clock", "it is behind"), unknown]
    monkeypatch.setattr(doctor, "check_connection", lambda *_, **__: way)
    config = node(tmp_path)
    assert examine(node_config=config, superlink="h:1", settings=True) == [unknown]
    command = ["doctor", "--settings", "--superlink", "h:1", "--node-config"]
    assert CliRunner().invoke(command_line.app, [*command, config]).exit_code == LATER
    way.pop()
    assert CliRunner().invoke(command_line.app, [*command, config]).exit_code == 0
    # Settings come first: they do not mend themselves.
    way.append(unknown)
    assert CliRunner().invoke(command_line.app, [*command, f"{config} polcy='/p'"]).exit_code == 1


def test_a_superlinks_own_files(tmp_path):
    pair, other = certificate(tmp_path / "a"), certificate(tmp_path / "b", days=-1)
    assert problems(examine(certificate=pair[0], certificate_key=pair[1])) == []
    (text,) = problems(examine(certificate=pair[0], certificate_key=other[1]))
    assert "is not the key of" in text
    (text,) = problems(examine(certificate=other[0]))
    assert "expired" in text
    with server() as address:
        (text,) = problems(examine(port=int(address.split(":")[1])))
    assert "cannot be used" in text


def test_every_key_of_a_nodes_configuration_is_documented():
    text = Path(__file__).parents[2].joinpath("docs", "policy.md").read_text()
    assert [key for key in KEYS if f"| `{key}` |" not in text] == []


def test_all_findings_are_shown_the_worst_first(tmp_path, monkeypatch):
    """What keeps the node away comes before what it does with its columns."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"patient_id": rng.permutation(60), "x": rng.normal(size=60)})
    table.to_csv(tmp_path / "ids.csv", index=False)
    key = tmp_path / "node-key"
    keys.node_key(key, "north")
    monkeypatch.setattr(connection, "registration_of", lambda *_, **__: "registered")
    config = node(tmp_path, **{"data-path": tmp_path / "ids.csv", "policy": None})
    with server() as address:
        found = examine(superlink=address, insecure=True, key=key, node_config=config, ended=True)
    texts = problems(found)
    assert texts[0].startswith("node twice: ")
    assert str(key) in texts[0]
    assert any("patient_id look like identifiers" in text for text in problems(found, "note"))
    levels = [("problem", "note", "ok").index(one.level) for one in found]
    assert levels == sorted(levels)
    assert len(set(levels)) == 3


def test_a_key_that_is_missing_is_said_where_nothing_listens(tmp_path):
    found = examine(superlink=f"localhost:{free_port()}", insecure=True, key=tmp_path / "none")
    texts = problems(found)
    assert any(f"there is no file {tmp_path}/none" in text for text in texts)
    assert any("nothing listens at port" in text for text in texts)


@pytest.mark.parametrize(
    ("state", "status"), [("unknown", 4), ("registered", 4), ("status 401", 1)]
)
def test_the_exit_status_says_whether_to_try_again(tmp_path, monkeypatch, state, status):
    key = tmp_path / "node-key"
    keys.node_key(key, "north")
    monkeypatch.setattr(connection, "registration_of", lambda *_, **__: state)
    with server() as address:
        command = ["doctor", "--superlink", address, "--insecure", "--ended"]
        told = CliRunner().invoke(
            command_line.app, [*command, "--auth-supernode-private-key", str(key)]
        )
    assert told.exit_code == status


def test_every_problem_has_a_remedy(tmp_path):
    """Of a node whose files are all wrong, and of a SuperLink whose files are."""
    wrong = dict.fromkeys(
        ("row-secret-file", "sums-key", "peers", "dictionary-map"), f"{tmp_path}/none"
    )
    wrong |= {"policy": tmp_path / "none.toml", "data-path": tmp_path / "none.csv"}
    wrong |= {"record": tmp_path / "no" / "record", "learner": "nobody"}
    (tmp_path / "no").write_text("")
    (tmp_path / "crt").write_text("no certificate")
    found = examine(node_config=node(tmp_path, **wrong))
    found += examine(certificate=tmp_path / "crt", superlink="9092")
    found += examine(superlink="localhost:1", root_certificates=tmp_path / "none.crt")
    assert len(problems(found)) >= 9
    assert all(one.remedy for one in found if one.level != "ok")
