"""The way to the SuperLink: address, proxy, TLS, clock, and whether a node's key is registered."""

from __future__ import annotations

import http.client
import os
import shlex
import socket
import ssl
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from flwr_causal.app.doctor.finding import Finding
from flwr_causal.compat import CLOCK_AHEAD, CLOCK_BEHIND, registration_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: How a certificate is renewed, and how an address is written.
RENEW = (
    "Let the coordinator renew it: `flwr-causal deploy FILE` does so for an authority of the "
    "deployment's own; then restart the SuperLink."
)
ADDRESS = "Write it as in superlink.example.org:9092 (--superlink)."
#: Seconds to wait for an answer.
PATIENCE = 10.0
#: A certificate that ends within so many days is noted.
SOON = 30
# Codes of OpenSSL's verification.
_EXPIRED, _NOT_YET, _OTHER_HOST, _OTHER_ADDRESS = 10, 9, 62, 64


def check_connection(
    address: str, root_certificates: Path | None, *, insecure: bool, key: Path | None = None
) -> Iterator[Finding]:
    """Check the connection from this machine to a SuperLink step by step, up to the first failure.

    A key whose file is missing is reported in any case.

    Parameters
    ----------
    address : str
        ``host:port``.
    root_certificates : Path or None
        The authority's certificate; None: those that the machine knows.
    insecure : bool
        Whether the connection is without TLS.
    key : Path, optional
        A node's private key, which is tried.
    """
    if key is not None and not key.expanduser().is_file():
        yield Finding("problem", "key", f"there is no file {key}", _make(key))
        key = None
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or port is None:
        yield Finding("problem", "address", f"'{address}' is no host:port", ADDRESS)
        return
    if root_certificates is not None and not root_certificates.is_file():
        yield Finding(
            "problem",
            "root certificates",
            f"there is no file {root_certificates}",
            "Copy the coordinator's ca.crt there, or name its place by --root-certificates.",
        )
        return
    proxy = _proxy("http" if insecure else "https", host)
    if proxy:
        yield Finding(
            "note",
            "proxy",
            f"the environment sends connections to {host} through the proxy {proxy}",
            f"If it must not, set NO_PROXY={host} where the node is started.",
        )
    failed = None if proxy else _reached(host, port, root_certificates, insecure=insecure)
    if failed is not None:
        yield failed
        return
    if not proxy:
        yield Finding("ok", "address", f"{address} answers")
    if not (insecure or proxy):
        yield validity(_certificate(host, port))
    answer = [*_answer(address, root_certificates, insecure=insecure, proxy=proxy)]
    yield from answer
    if key is not None and not any(one.subject == "SuperLink" and one.remedy for one in answer):
        yield _key(address, root_certificates, key, insecure=insecure)


def _proxy(scheme: str, host: str) -> str:
    """Return the proxy of the environment for a host, without its password; "" for none."""
    if urllib.request.proxy_bypass(host):
        return ""
    address = urllib.request.getproxies().get(scheme, "")
    parts = urlsplit(address)
    return f"{parts.hostname}:{parts.port}" if parts.hostname else address


def _reached(host: str, port: int, authority: Path | None, *, insecure: bool) -> Finding | None:
    """Return the problem that prevents a connection; None if there is none."""
    try:
        with socket.create_connection((host, port), PATIENCE) as plain:
            if insecure:
                return None
            context = ssl.create_default_context(cafile=authority and str(authority))
            with context.wrap_socket(plain, server_hostname=host):
                return None
    except socket.gaierror:
        text = f"the name {host} is not known on this machine"
        remedy = "Check the name, or add it to the name server or to /etc/hosts."
    except ConnectionRefusedError:
        text = f"nothing listens at port {port} of {host}"
        remedy = "Check the port, and that the SuperLink runs."
    except TimeoutError:
        text = f"{host}:{port} does not answer within {PATIENCE:g} s"
        remedy = "Check the address, and that the firewall lets this machine through."
    except ssl.SSLCertVerificationError as error:
        return _untrusted(error, host, port, authority)
    except ssl.SSLError as error:
        text = f"{host}:{port} does not speak TLS ({error.reason or error})"
        remedy = (
            "The SuperLink was started with --insecure, or this is the port of another program."
        )
    except OSError as error:
        text, remedy = f"{host}:{port} cannot be reached: {error}", "Check the network."
    return Finding("problem", "address", text, remedy)


def _untrusted(
    error: ssl.SSLCertVerificationError, host: str, port: int, authority: Path | None
) -> Finding:
    shown = _certificate(host, port)
    ends, begins = shown.not_valid_after_utc, shown.not_valid_before_utc
    now = f"this machine's clock says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    if error.verify_code == _EXPIRED:
        text = f"the SuperLink's certificate expired on {ends:%Y-%m-%d %H:%M} UTC; {now}"
        remedy = f"{RENEW} Or set this machine's clock."
    elif error.verify_code == _NOT_YET:
        text = f"the SuperLink's certificate begins on {begins:%Y-%m-%d %H:%M} UTC; {now}"
        remedy = "Set the clock of this machine, or that of the machine that made the certificate."
    elif error.verify_code in (_OTHER_HOST, _OTHER_ADDRESS):
        text = f"the SuperLink's certificate is not for {host}, but for {', '.join(_names(shown))}"
        remedy = "Use one of these names, or make a certificate that has this one."
    else:
        source = "the machine's authorities" if authority is None else str(authority)
        text = (
            f"the certificate that is shown was issued by '{_common_name(shown.issuer)}', which "
            f"{source} does not confirm"
        )
        remedy = (
            "Is it the coordinator's authority? Then its ca.crt is another one: fetch it anew. If "
            "not, a proxy in between opens the connection: let its operator exempt the SuperLink."
        )
    return Finding("problem", "certificate", text, remedy)


def _certificate(host: str, port: int) -> x509.Certificate:
    """Return the certificate that is shown, trusted or not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, port), PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        return x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b"")


def _names(certificate: x509.Certificate) -> list[str]:
    """Return the hosts that a certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [_common_name(certificate.subject)]
    return [str(one.value) for one in found]


def _common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


def validity(certificate: x509.Certificate) -> Finding:
    """Return the end of a certificate's validity, and the hosts that it is for."""
    ends = certificate.not_valid_after_utc
    text = f"it holds until {ends:%Y-%m-%d} for {', '.join(_names(certificate))}"
    if ends < datetime.now(UTC):
        text = f"it expired on {ends:%Y-%m-%d %H:%M} UTC"
        return Finding("problem", "certificate", text, RENEW)
    if ends < datetime.now(UTC) + timedelta(days=SOON):
        return Finding("note", "certificate", text, f"Before it ends: {RENEW}")
    return Finding("ok", "certificate", text)


def _answer(
    address: str, authority: Path | None, *, insecure: bool, proxy: str
) -> Iterator[Finding]:
    """Ask the SuperLink whether it is well, and compare the clocks."""
    url = f"http{'' if insecure else 's'}://{address}/health"
    context = None if insecure else ssl.create_default_context(cafile=authority and str(authority))
    # A new one: that of urlopen keeps the proxies of its first call.
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
    try:
        before = time.time()
        with opener.open(url, timeout=PATIENCE) as answer:
            status, headers = answer.status, answer.headers
        now = (before + time.time()) / 2
    except urllib.error.HTTPError as error:
        status, headers, now = error.code, error.headers, time.time()
    except (OSError, http.client.HTTPException) as error:
        through = f" through the proxy {proxy}" if proxy else ""
        reason = getattr(error, "reason", error)
        text = f"{address} gives no answer{through}: {reason}"
        if proxy and isinstance(reason, ssl.SSLCertVerificationError):
            text = (
                f"the proxy {proxy} opens the connection to {address}: it shows a certificate that "
                f"{authority or 'this machine'} does not confirm"
            )
        remedy = (
            f"Let the proxy pass CONNECT to {address} and leave TLS as it is, or set NO_PROXY."
            if proxy
            else "The SuperLink speaks TLS: give --root-certificates in place of --insecure."
        )
        yield Finding("problem", "SuperLink", text, remedy)
        return
    if status != http.client.OK:
        text = f"{address} answers with status {status}, which no SuperLink does"
        remedy = "Check the port; a proxy in between must forward all paths."
        yield Finding("problem", "SuperLink", text, remedy)
        return
    yield Finding("ok", "SuperLink", "it answers and is well")
    if headers.get("via"):
        yield Finding("note", "proxy", f"the answer came through {headers['via']}")
    date = headers.get("date")
    if date:
        ahead = now - parsedate_to_datetime(date).timestamp()
        yield _clock(ahead)


def _clock(ahead: float) -> Finding:
    """Judge by how many seconds this machine's clock is ahead of the SuperLink's."""
    # The other time is given in whole seconds.
    ahead = ahead - 1 if ahead > 1 else min(ahead, 0.0)
    if -CLOCK_BEHIND < ahead < CLOCK_AHEAD:
        return Finding("ok", "clock", "it agrees with the SuperLink's")
    which = "ahead of" if ahead > 0 else "behind"
    return Finding(
        "problem",
        "clock",
        f"this machine's clock is {abs(ahead):.0f} s {which} the SuperLink's, so that its key is "
        "refused",
        "Set the clock by NTP, at both machines.",
    )


def _make(key: Path) -> str:
    return (
        f'Make it: ssh-keygen -t ecdsa -b 384 -N "" -f {shlex.quote(str(key))}, and let the '
        f"coordinator register {key}.pub. In a bundle of `flwr-causal deploy` install.sh makes it."
    )


def _key(address: str, authority: Path | None, key: Path, *, insecure: bool) -> Finding:
    """Try a node's key, without connecting the node."""
    try:
        private = load_ssh_private_key(key.expanduser().read_bytes(), password=None)
    except (OSError, ValueError) as error:
        return Finding("problem", "key", f"{key} cannot be read: {error}", _make(key))
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        text = f"{key} is no elliptic curve key"
        return Finding("problem", "key", text, _make(key))
    certificates = None if insecure or authority is None else authority.read_bytes()
    state = registration_of(address, certificates, private, insecure=insecure)
    if state == "unknown":
        return Finding(
            "problem",
            "key",
            f"{key} is not registered at the SuperLink",
            f"Send {key}.pub to the coordinator, who registers it; with `flwr-causal deploy` it is "
            "saved as coordinator/keys/NAME.pub, and start.sh and run.sh register it.",
            passing=True,
        )
    if state == "registered":
        about = key.expanduser().stat()
        # Of a service the key is root's, and the account reads it by its group.
        if about.st_mode & (0o077 if about.st_uid else 0o037) and os.name == "posix":
            return Finding(
                "note",
                "key",
                f"{key} is registered; others may read it",
                f"chmod 600 {shlex.quote(str(key))}",
            )
        return Finding(
            "ok",
            "key",
            f"{key} is registered",
        )
    remedy = "Set the clocks of both machines by NTP, and try again."
    return Finding("problem", "key", f"{key} is refused: {state}", remedy)
