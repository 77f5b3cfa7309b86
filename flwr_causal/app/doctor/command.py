"""The checks of one call: of the machine, of the coordinator's side, and of a party's."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from flwr_causal.app.doctor.connection import RENEW, check_connection, validity
from flwr_causal.app.doctor.finding import WORST_FIRST, Finding
from flwr_causal.app.doctor.party import check_party, read_policy, read_settings
from flwr_causal.protocol.schema import own_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Flower's releases with which this package was tried, from the first on and below the second.
TRIED = ((1, 41), (1, 43))
#: Bytes that a disk should have left.
ROOM = 200 * 2**20


def check_machine(directories: Iterable[Path]) -> Iterator[Finding]:
    """Report versions, and which disks are full.

    Parameters
    ----------
    directories : iterable of Path
        Where something will be written, beside Flower's own directory and that of temporary files.
    """
    flower = version("flwr")
    text = f"flwr-causal {own_version()}, flwr {flower}, Python {sys.version.split()[0]}"
    numbers = tuple(int(part) for part in flower.split(".")[:2])
    if TRIED[0] <= numbers < TRIED[1]:
        yield Finding("ok", "versions", f"{text}; all machines must have the same flwr-causal")
    else:
        wanted = " and below ".join(".".join(map(str, one)) for one in TRIED)
        yield Finding(
            "problem", "versions", text, f'pip install "flwr[simulation]": from {wanted}.'
        )
    home = Path(os.environ.get("FLWR_HOME", "~/.flwr")).expanduser()
    for directory in dict.fromkeys([*directories, home, Path(tempfile.gettempdir())]):
        there = next(one for one in (directory, *directory.parents) if one.exists())
        free = shutil.disk_usage(there).free
        if free < ROOM:
            text = f"{directory} has {free / 2**20:.0f} MiB left"
            yield Finding("problem", "disk", text, "Make room: runs and records would fail.")
        elif not os.access(there, os.W_OK):
            text = f"{directory} cannot be written by this account"
            yield Finding("problem", "disk", text, "Give the account access.")


def check_port(port: int) -> Finding:
    """Check whether a port of this machine is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            text = f"port {port} cannot be used: {error.strerror or error}"
            return Finding(
                "problem",
                "port",
                text,
                f"Another program has it (`ss -ltnp 'sport = :{port}'` names it): end it, or take "
                "another port in the deployment file.",
            )
    return Finding("ok", "port", f"port {port} is free")


def check_certificate(certificate: Path, key: Path | None) -> Iterator[Finding]:
    """Check whether a certificate is valid, and whether a private key belongs to it."""
    try:
        shown = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError) as error:
        text = f"{certificate} cannot be read: {error}"
        yield Finding("problem", "certificate", text, RENEW)
        return
    yield validity(shown)
    if key is None:
        return
    try:
        own = load_pem_private_key(key.read_bytes(), password=None).public_key()
    except (OSError, ValueError, TypeError) as error:
        yield Finding("problem", "certificate's key", f"{key} cannot be read: {error}", RENEW)
        return
    if own != shown.public_key():
        text = f"{key} is not the key of {certificate}"
        yield Finding(
            "problem", "certificate's key", text, f"Take the pair that was made together. {RENEW}"
        )
    else:
        yield Finding("ok", "certificate's key", f"{key} belongs to it")


def check_superlink(name: str) -> Iterator[Finding]:
    """Check a SuperLink of Flower's ``config.toml``, and count its nodes."""
    file = Path(os.environ.get("FLWR_HOME", "~/.flwr")).expanduser() / "config.toml"
    try:
        found: Any = tomllib.loads(file.read_text(encoding="utf-8"))["superlink"][name]
        address = str(found["address"])
    except (OSError, ValueError, KeyError, TypeError):
        text = f"{file} has no [superlink.{name}] with an address"
        yield Finding("problem", "connection", text, "Write it there, or check FLWR_HOME.")
        return
    authority = found.get("root-certificates")
    path = None if authority is None else Path(authority).expanduser()
    if path is not None and not path.is_absolute():
        path = file.parent / path
    yield from check_connection(address, path, insecure=bool(found.get("insecure", False)))
    yield _nodes(name)


def _nodes(name: str) -> Finding:
    command = ["flwr", "supernode", "list", name, "--format", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        nodes = json.loads(done.stdout)["nodes"]
        states = [str(node["status"]) for node in nodes]
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        text = f"`{' '.join(command)}` failed: {error}"
        return Finding("problem", "nodes", text, "Run it by hand; its output says why.")
    online = sum(state == "online" for state in states)
    text = f"{online} of {len(states)} registered nodes are online"
    others = [str(node["node-id"]) for node in nodes if node["status"] != "online"]
    if not online or others:
        remedy = f"Not online: {', '.join(others) or 'none is registered'}. Ask their parties."
        return Finding("note", "nodes", text, remedy)
    return Finding("ok", "nodes", text)


def examine(
    *,
    superlink: str | None = None,
    root_certificates: Path | None = None,
    insecure: bool = False,
    key: Path | None = None,
    node_config: str | None = None,
    connection: str | None = None,
    port: int | None = None,
    certificate: Path | None = None,
    certificate_key: Path | None = None,
    ended: bool = False,
    settings: bool = False,
) -> list[Finding]:
    """Return the findings of the checks whose input is given; versions and disks always.

    The findings are in the order of their levels, problems first.

    Parameters
    ----------
    superlink, root_certificates, insecure, key
        As of :func:`flwr_causal.app.doctor.connection.check_connection`.
    node_config : str, optional
        The text of a node's configuration, or the path of a TOML file.
    connection : str, optional
        The name of a SuperLink in Flower's ``config.toml``.
    port : int, optional
        Of a SuperLink or a SuperNode that is to be started.
    certificate, certificate_key : Path, optional
        Of a SuperLink.
    ended : bool, default False
        Whether the node with this `key` was started and ended with an error: where the SuperLink
        can be reached and knows the key, another node may have its place.
    settings : bool, default False
        Whether only keys and values of `node_config` and of its policy are checked, and where these
        can be used, whether the SuperLink knows the `key`.
    """
    node, wrong = (None, None) if node_config is None else read_settings(node_config)
    found = [] if wrong is None else [wrong]
    if settings:
        refused = None if node is None else read_policy(node)[1]
        found += [refused] if refused else []
        if found or superlink is None:
            return found
        asked = check_connection(superlink, root_certificates, insecure=insecure, key=key)
        return [one for one in asked if one.passing]
    record = None if node is None else node.record
    found[:0] = check_machine([] if record is None else [record.parent])
    if node is not None:
        found += check_party(node)
    if port is not None:
        found.append(check_port(port))
    if certificate is not None:
        found += check_certificate(certificate, certificate_key)
    way: list[Finding] = []
    if superlink is not None:
        way += check_connection(superlink, root_certificates, insecure=insecure, key=key)
        found += way
    if connection is not None:
        found += check_superlink(connection)
    if ended and key is not None and way and all(one.level != "problem" for one in way):
        text = (
            f"the SuperLink knows {key}: if the node ended with code 305, another node with this "
            "key is connected, or was killed less than a minute ago"
        )
        remedy = "End the other one, maybe a copy on another machine, or wait for a minute."
        found.insert(0, Finding("problem", "node twice", text, remedy, passing=True))
    return sorted(found, key=lambda one: WORST_FIRST.index(one.level))
