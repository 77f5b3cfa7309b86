"""What a deployment file says: who takes part, and where the coordinator is reached."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

#: The smallest file, for messages.
EXAMPLE = """\
name = "hospitals"
parties = ["north", "centre", "south"]
address = "superlink.example.org:9092"
"""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
#: SuperNodes listen on this port of their own machine for the processes that they start.
NODE_PORT = 9094
_PORT = re.compile(r"(\[[0-9a-f:]+\]|[^:]+):([0-9]{1,5})")
BY_COORDINATOR, BY_PARTY = "coordinator", "party"


@dataclass(frozen=True)
class PlannedParty:
    """A party: a table ``[party.NAME]`` of the file, which may be left out.

    Parameters
    ----------
    name : str
        Names its bundle, its node and its service.
    data : str, default ""
        Absolute path of its table, on its machine; default: given when its node is started.
    proxy : str, default ""
        URL of the HTTP proxy by which it reaches the coordinator.
    port : int, default 9094
        Port on its own machine for the node's own processes. Nodes on one machine need different
        ones.
    """

    name: str
    data: str = ""
    proxy: str = ""
    port: int = NODE_PORT


@dataclass(frozen=True)
class Certificate:
    """An existing certificate of the coordinator: the table ``[tls]``, paths of PEM files.

    Parameters
    ----------
    certificate, key, authority : Path
        The certificate with the intermediate ones, its private key, and the root certificate.
    """

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True)
class DeploymentPlan:
    """A deployment file.

    Parameters
    ----------
    name : str
        Of the federation.
    parties : tuple of PlannedParty
        Who takes part.
    address : str
        ``host:port`` by which parties reach the coordinator.
    listen : str, default "0.0.0.0"
        The coordinator's own address on which it listens, with the port if that is another one than
        the port of `address`: then a reverse proxy is between.
    names : tuple of str, default ()
        Further names and addresses of the coordinator, for its certificate.
    keys : {"coordinator", "party"}, default "coordinator"
        Who makes the parties' private keys.
    package : str, default ""
        A wheel of flwr-causal that goes into the bundles; default: from the package index.
    tls : Certificate or None, default None
        Default: an authority of the federation's own.
    """

    name: str
    parties: tuple[PlannedParty, ...]
    address: str
    listen: str = "0.0.0.0"
    names: tuple[str, ...] = ()
    keys: str = BY_COORDINATOR
    package: str = ""
    tls: Certificate | None = None

    @property
    def host(self) -> str:
        """The name or IP address by which parties reach the coordinator."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port by which parties reach the coordinator."""
        return int(self.address.rpartition(":")[2])

    @property
    def listens(self) -> tuple[str, int]:
        """Host and port on which the SuperLink listens."""
        found = _PORT.fullmatch(self.listen)
        return (found[1].strip("[]"), int(found[2])) if found else (self.listen, self.port)

    @staticmethod
    def read(path: Path) -> DeploymentPlan:
        """Return what a TOML file says.

        Raises
        ------
        ConfigError
            If the file cannot be read, or an entry is unknown, missing or of another form.
        """
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"'{path}' cannot be read ({error.strerror or error}). The smallest deployment "
                f"file is:\n\n{EXAMPLE}"
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"'{path}' is no TOML file: {error}") from error
        return _Entries(path).plan(content)


@dataclass(frozen=True)
class _Entries:
    """Checks of a file's entries; messages name the file."""

    path: Path

    def plan(self, content: dict[str, Any]) -> DeploymentPlan:
        own = content.pop("party", {})
        tls = content.pop("tls", None)
        self.check_keys(content, {one.name for one in fields(DeploymentPlan)} - {"tls"}, "")
        for key in ("name", "parties", "address"):
            if key not in content:
                raise self.error(f"'{key}' is missing. The smallest file is:\n\n{EXAMPLE}")
        names = self.texts(content.pop("parties"), "parties")
        self.check_names([self.text(content["name"], "name"), *names])
        if not names or len(set(names)) < len(names):
            raise self.error("'parties' must hold different names, one at least")
        for name in own:
            if name not in names:
                raise self.error(f"[party.{name}]: '{name}' is not among 'parties'")
        plan = DeploymentPlan(
            parties=tuple(self.party(name, own.get(name, {})) for name in names),
            tls=None if tls is None else self.certificate(tls),
            names=self.texts(content.pop("names", []), "names"),
            **{key: self.text(value, key) for key, value in content.items()},
        )
        host, _, port = plan.address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise self.error(
                f"'address' is '{plan.address}': write \"host:port\", without https://"
            )
        for one in (plan.host, plan.listens[0]):
            if not re.fullmatch(r"[\w.:-]+", one):
                raise self.error(f"'{one}' is neither a host name nor an IP address")
        if plan.keys not in (BY_COORDINATOR, BY_PARTY):
            raise self.error(f"'keys' is '{plan.keys}': write \"coordinator\" or \"party\"")
        if plan.package and not self.beside(plan.package).is_file():
            raise self.error(f"'package': there is no file {self.beside(plan.package)}")
        package = str(self.beside(plan.package)) if plan.package else ""
        return DeploymentPlan(**{**vars(plan), "package": package})

    def party(self, name: str, content: dict[str, Any]) -> PlannedParty:
        where = f"[party.{name}]"
        if not isinstance(content, dict):
            raise self.error(f"{where} must be a table")
        self.check_keys(content, {"data", "proxy", "port"}, where)
        port = content.get("port", NODE_PORT)
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise self.error(f"{where} 'port' must be a number between 1 and 65535")
        data = self.text(content.get("data", ""), f"{where} data")
        proxy = self.text(content.get("proxy", ""), f"{where} proxy")
        if data and not data.startswith("/"):
            raise self.error(f"{where} 'data' is '{data}': give an absolute path")
        if proxy and not re.fullmatch(r"https?://\S+", proxy):
            raise self.error(f"{where} 'proxy' is no URL: write \"http://host:port\"")
        return PlannedParty(name, data, proxy, port)

    def certificate(self, content: Any) -> Certificate:
        if not isinstance(content, dict):
            raise self.error("[tls] must be a table")
        needed = {one.name for one in fields(Certificate)}
        self.check_keys(content, needed, "[tls]")
        if missing := needed - set(content):
            raise self.error(f"[tls] lacks {', '.join(sorted(missing))}: paths of PEM files")
        return Certificate(**{key: self.beside(str(value)) for key, value in content.items()})

    def beside(self, path: str) -> Path:
        """Return a path of the file; a relative one starts at the file's directory."""
        return (self.path.absolute().parent / path).resolve()

    def check_keys(self, content: dict[str, Any], known: set[str], where: str) -> None:
        for key in content:
            if key not in known:
                raise self.error(f"{where} '{key}' is unknown: {', '.join(sorted(known))}".lstrip())

    def check_names(self, names: list[str]) -> None:
        for name in names:
            if not NAME.fullmatch(name):
                raise self.error(
                    f"'{name}' is no name: write up to 32 lower-case letters, digits, - and _"
                )

    def text(self, value: Any, key: str) -> str:
        # Values go into shell scripts between single quotes.
        if not isinstance(value, str) or re.search(r"['\n\r]", value):
            raise self.error(f"'{key}' must be a text without quotation marks and line breaks")
        return value

    def texts(self, value: Any, key: str) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise self.error(f"'{key}' must be a list of texts")
        return tuple(self.text(one, key) for one in value)

    def error(self, text: str) -> ConfigError:
        return ConfigError(f"{self.path}: {text}")
