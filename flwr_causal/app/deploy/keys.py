"""Certificates and keys, as files that their owner alone can read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flwr_causal.core.files import FILE, new_directory, write
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

#: The authority of a federation, and the certificate of its coordinator.
AUTHORITY_DAYS, SERVER_DAYS = 3650, 365
#: A certificate that ends sooner is renewed.
RENEWAL_DAYS = 60
#: Clocks may differ by so much.
SKEW = timedelta(days=1)
#: The ServerApp reaches the SuperLink by this address.
LOOPBACK = ("127.0.0.1", "localhost")


def write_private(path: Path, content: bytes, mode: int = FILE) -> None:
    """Write a file as `files.write`, in a directory that is made for its owner only."""
    new_directory(path.parent)
    write(path, content, mode)


def node_key(path: Path, comment: str) -> bytes:
    """Make the key pair by which a SuperNode proves who it is; return the line of its public key.

    Flower reads elliptic curve keys of 384 bits in OpenSSH's format.
    """
    return _openssh(path, ec.generate_private_key(ec.SECP384R1()), comment)


def signing_key(path: Path, comment: str) -> bytes:
    """Make an Ed25519 key pair, which signs; return the line of its public key."""
    return _openssh(path, ed25519.Ed25519PrivateKey.generate(), comment)


def _openssh(
    path: Path, key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey, comment: str
) -> bytes:
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    line = public + f" {comment}\n".encode()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_private(path, private)
    write_private(path.with_name(f"{path.name}.pub"), line, 0o644)
    return line


def authority(certificate: Path, key: Path, name: str) -> None:
    """Make an authority, which signs the coordinator's certificate and nothing else."""
    private = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"flwr-causal authority of {name}")]
    )
    built = (
        _builder(subject, subject, private.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(private, hashes.SHA384())
    )
    write_private(key, _pem(private))
    write_private(certificate, built.public_bytes(Encoding.PEM), 0o644)


def server_certificate(
    certificate: Path, key: Path, hosts: Collection[str], ca: Path, ca_key: Path
) -> None:
    """Make a certificate for names and IP addresses of the coordinator.

    Raises
    ------
    ConfigError
        If the authority's private key is not there.
    """
    try:
        signer = load_pem_private_key(ca_key.read_bytes(), password=None)
    except OSError as error:
        raise ConfigError(
            f"A new certificate of the coordinator needs the authority's private key, and {ca_key} "
            f"cannot be read ({error.strerror or error}): put it back for this command."
        ) from error
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(ca.read_bytes())
    private = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, next(iter(hosts))[:64])])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    built = (
        _builder(subject, issuer.subject, private.public_key(), SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName([_general(one) for one in hosts]), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False
        )
        .sign(signer, hashes.SHA384())
    )
    write_private(key, _pem(private))
    write_private(certificate, built.public_bytes(Encoding.PEM), 0o644)


def hosts_of(certificate: Path) -> frozenset[str]:
    """Return names and IP addresses of a certificate, or of the first one of a chain.

    Raises
    ------
    ConfigError
        If the file holds no certificate.
    """
    found = read_certificate(certificate).extensions
    try:
        names = found.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    ips = names.get_values_for_type(x509.IPAddress)
    return frozenset([*names.get_values_for_type(x509.DNSName), *map(str, ips)])


def is_covered(host: str, certificate: Path) -> bool:
    """Return whether a certificate is valid for a name or IP address."""
    names = {name.lower() for name in hosts_of(certificate)}
    return host.lower() in names or f"*.{host.lower().partition('.')[2]}" in names


def days_left(certificate: Path) -> int:
    """Return for how many days a certificate is valid; negative: it has ended."""
    left = read_certificate(certificate).not_valid_after_utc - datetime.now(UTC)
    return left // timedelta(days=1)


def read_certificate(path: Path) -> x509.Certificate:
    """Return the first certificate of a PEM file."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} holds no PEM certificate: {error}") from error


def check_pair(certificate: Path, key: Path) -> None:
    """Check that a private key belongs to a certificate.

    Raises
    ------
    ConfigError
        If it does not, or cannot be read.
    """
    try:
        private = load_pem_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{key} holds no PEM private key without password: {error}") from error
    if private.public_key() != read_certificate(certificate).public_key():
        raise ConfigError(f"The private key {key} does not belong to {certificate}.")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
