"""The coordinator's side: port, certificate, and the nodes that the SuperLink knows."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from flwr_causal.app.doctor.connection import RENEW, check_connection, validity
from flwr_causal.app.doctor.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator


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
