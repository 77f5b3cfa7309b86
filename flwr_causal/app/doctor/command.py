"""All checks of one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.app.doctor.connection import check_connection
from flwr_causal.app.doctor.coordinator import check_certificate, check_port, check_superlink
from flwr_causal.app.doctor.finding import WORST_FIRST, Finding
from flwr_causal.app.doctor.machine import check_machine
from flwr_causal.app.doctor.party import check_party, read_policy, read_settings

if TYPE_CHECKING:
    from pathlib import Path


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
