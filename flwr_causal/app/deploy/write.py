"""Writing a deployment: the coordinator's directory, a bundle for each party, and a checklist."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
import tarfile
from dataclasses import dataclass
from importlib.metadata import requires, version
from importlib.resources import files
from pathlib import Path
from string import Template

from packaging.requirements import Requirement

from flwr_causal.app.deploy import keys
from flwr_causal.app.deploy.plan import BY_COORDINATOR, DeploymentPlan, PlannedParty
from flwr_causal.app.doctor.finding import LATER
from flwr_causal.app.methods import OWN_METHODS
from flwr_causal.app.pages import config_table
from flwr_causal.core.files import DIRECTORY, new_directory
from flwr_causal.errors import ConfigError
from flwr_causal.protocol.schema import own_version

PACKAGE = "flwr-causal"
#: Names of files that both sides of this module use.
ROOT = "ca.crt"
#: A party's private keys: of its node, and the one that signs its keys for secure sums.
NODE_KEY, SUMS_KEY = "node-key", "sums-key"
_MAKERS = {NODE_KEY: keys.node_key, SUMS_KEY: keys.signing_key}
#: Shown where the party's table is not known.
SOME_DATA = "/path/of/table.csv"
SCRIPT = 0o700
CHECKLIST = "CHECKLIST.md"


class _Text(Template):
    """A template with ``@name``; the shell's ``$name`` stays."""

    delimiter = "@"


def deploy(file: Path, directory: Path) -> Path:
    """Write all files of a deployment; return the path of the checklist.

    Existing keys are kept, as are certificates of the federation's own authority that are valid
    for another 60 days. Everything else is written anew.

    Parameters
    ----------
    file : Path
        The deployment file.
    directory : Path
        Is created, for its owner only; the files of an earlier deployment in it are replaced.

    Raises
    ------
    ConfigError
        If the file, or a certificate of its table ``[tls]``, cannot be used, or if the directory
        cannot be written, or holds something else under the names of a deployment.
    """
    plan = DeploymentPlan.read(file)
    try:
        own = _Deployment(plan, file, directory.absolute())
        own.check()
        new_directory(own.directory)
        return own.write()
    except OSError as error:
        raise ConfigError(
            f"'{directory}' cannot be written ({error.strerror or error}): name another directory"
        ) from error


def join(bundle: Path) -> dict[str, str]:
    """Make a party's private keys in its unpacked bundle, unless they are there.

    Returns
    -------
    dict of str to str
        The lines of the public keys: `NODE_KEY`, which the coordinator needs, and `SUMS_KEY`, which
        the other parties need.
    """
    if not (bundle / ROOT).is_file() or not (bundle / "start.sh").is_file():
        raise ConfigError(f"'{bundle}' is no bundle of a party: name the directory with {ROOT}")
    lines = {}
    for name, make in _MAKERS.items():
        key, public = bundle / name, bundle / f"{name}.pub"
        if not key.exists():
            make(key, bundle.absolute().name)
        elif not public.exists():
            raise ConfigError(f"There is a key {key}, but not its public half {public}.")
        lines[name] = public.read_text(encoding="utf-8").strip()
    return lines


@dataclass(frozen=True)
class _Deployment:
    """A plan, its file, and where to write."""

    plan: DeploymentPlan
    file: Path
    directory: Path

    @property
    def coordinator(self) -> Path:
        return self.directory / "coordinator"

    @property
    def certificate(self) -> Path:
        return self.coordinator / "certificates" / "server.crt"

    @property
    def root(self) -> Path:
        return self.coordinator / "certificates" / ROOT

    @property
    def listen(self) -> tuple[str, str]:
        """Where the SuperLink listens, and by which address its own processes reach it."""
        listen, _ = self.plan.listens
        local = "127.0.0.1" if listen == "0.0.0.0" else listen
        if keys.is_covered(local, self.certificate):
            return listen, local
        return self.plan.host, self.plan.host

    def check(self) -> None:
        """Raise a ConfigError if something that is no deployment's would be replaced.

        Also for a path that scripts cannot write between quotation marks.
        """
        if set("'\"\\") & set(str(self.directory.absolute())):
            raise ConfigError(
                f"The directory '{self.directory}' is at a path with quotation marks or "
                "backslashes, which the scripts in it refuse: name another directory."
            )
        if self.root.is_file():
            self.directory.chmod(DIRECTORY)
            return
        names = ("authority", self.coordinator.name, "parties", CHECKLIST)
        if there := [name for name in names if os.path.lexists(self.directory / name)]:
            raise ConfigError(
                f"The directory '{self.directory}' holds {', '.join(there)}, and no deployment: "
                "name another directory, or move or rename what is there."
            )

    def write(self) -> Path:
        self.write_certificates()
        signer = self.coordinator / "signing-key"
        if not signer.exists():
            keys.signing_key(signer, f"{self.plan.name} coordinator")
        listed = {party.name for party in self.plan.parties}
        for public in self.coordinator.glob("*keys/*.pub"):
            if public.stem not in listed:
                public.unlink()
        for party in self.plan.parties:
            self.write_keys(party)
        for party in self.plan.parties:
            self.write_bundle(party)
        self.write_coordinator()
        checklist = self.directory / CHECKLIST
        keys.write_private(checklist, self.checklist().encode())
        return checklist

    # Certificates.

    def write_certificates(self) -> None:
        """Take the given certificate, or make one where there is none, or not for long."""
        key = self.certificate.with_name("server.key")
        if (given := self.plan.tls) is not None:
            if not keys.is_covered(self.plan.host, given.certificate):
                names = ", ".join(sorted(keys.hosts_of(given.certificate))) or "no name"
                raise ConfigError(
                    f"{given.certificate} is for {names}, and not for '{self.plan.host}', the host "
                    "of 'address'."
                )
            if keys.days_left(given.certificate) < 0:
                raise ConfigError(f"{given.certificate} has expired: get a new one")
            keys.read_certificate(given.authority)
            keys.check_pair(given.certificate, given.key)
            keys.write_private(self.certificate, given.certificate.read_bytes(), 0o644)
            keys.write_private(key, given.key.read_bytes())
            keys.write_private(self.root, given.authority.read_bytes(), 0o644)
            return
        ca_key = self.directory / "authority" / "ca.key"
        if not self.root.exists():
            keys.authority(self.root, ca_key, self.plan.name)
        own, _ = self.plan.listens
        listen = [] if own == "0.0.0.0" else [own]
        hosts = [*dict.fromkeys([self.plan.host, *self.plan.names, *listen, *keys.LOOPBACK])]
        if (
            not self.certificate.exists()
            or not key.exists()
            or keys.days_left(self.certificate) < keys.RENEWAL_DAYS
            or keys.hosts_of(self.certificate) != frozenset(hosts)
        ):
            keys.server_certificate(self.certificate, key, hosts, self.root, ca_key)

    # A party.

    def write_bundle(self, party: PlannedParty) -> None:
        """Write a party's directory, with a key if the coordinator makes it, and pack it."""
        bundle = self.directory / "parties" / party.name
        new_directory(bundle / "state")
        given = party.data or SOME_DATA
        unit = f"flwr-causal-{party.name}"
        own = {
            "party": party.name,
            "name": self.plan.name,
            "address": self.plan.address,
            "port": str(party.port),
            "proxy": _proxy(party.proxy),
            "data": shlex.quote(given),
            "data_hint": f"set DATA={SOME_DATA}",
            "place": party.name,
            "unit": unit,
            "usage": " [DATA]",
            "description": f"SuperNode of {party.name} in {self.plan.name} (flwr-causal)",
            "before_start": (
                'case "${1-/}" in\n/*) ;;\n'
                '*) echo "$1: give an absolute path" >&2; exit 2 ;;\nesac\n'
                '[ -e "${1-/}" ] || echo "There is no $1 yet: the node waits for it" >&2\n'
                'if [ $# -eq 0 ] && [ ! -s "$here/data-path" ] && '
                '[ ! -s "$place/data-path" ]; then\n'
                f'    echo "Which table? $0 {SOME_DATA}" >&2\n    exit 2\nfi'
            ),
            # Into root's directory: a link in state/ would be followed.
            "keep_data": (
                "if [ $# -ne 0 ]; then\n"
                '    printf \'%s\\n\' "$1" > "$place/data-path"\n'
                '    rm -f "$place/state/data-path"\nfi'
            ),
            "units": f"{unit}.service",
            "after_install": f'[ -e "$here/{NODE_KEY}" ] || flwr-causal deploy --join "$here"',
            "make_key": "" if self.has_key(party) else ", and make its key",
            "container_key": ""
            if self.has_key(party)
            else _CONTAINER_KEY.format(party.name, shlex.quote(given)),
            "health": _health(f"http://127.0.0.1:{party.port}/health"),
            "later": str(LATER),
            "askers": json.dumps((self.coordinator / "signing-key.pub").read_text().strip()),
        }
        text = self.text
        if party.data:
            self.put(bundle / "data-path", f"{party.data}\n")
        if self.plan.keys == BY_COORDINATOR:
            self.put(bundle / "peers.toml", self.peers(), 0o644)
        self.put(bundle / ROOT, self.root.read_text(encoding="utf-8"), 0o644)
        self.put(bundle / "start.sh", text("node_start.sh", own), SCRIPT)
        self.put(bundle / "policy.example.toml", text("policy.example.toml", own))
        self.put(bundle / "compose.yaml", text("node_compose.yaml", own))
        self.put(bundle / "README.md", text("PARTY.md", own).replace("## Party", "# Party", 1))
        self.write_common(bundle, own)
        self.pack(bundle)

    def has_key(self, party: PlannedParty) -> bool:
        """Return whether the bundle of a party holds its private key."""
        return (self.directory / "parties" / party.name / NODE_KEY).exists()

    def write_keys(self, party: PlannedParty) -> None:
        """Make a party's key pairs where the coordinator has neither half of one."""
        for name, make in _MAKERS.items():
            public = self.known(name) / f"{party.name}.pub"
            new_directory(public.parent)
            if not public.exists() and self.plan.keys == BY_COORDINATOR:
                line = make(self.directory / "parties" / party.name / name, party.name)
                keys.write_private(public, line, 0o644)

    def known(self, name: str) -> Path:
        """Return where the coordinator keeps the public halves of one kind of keys."""
        return self.coordinator / ("keys" if name == NODE_KEY else f"{name}s")

    def peers(self) -> str:
        """Return the public keys by which parties know each other's keys for secure sums."""
        lines = ["# By these the parties know each other's keys for secure sums.\n"]
        for party in self.plan.parties:
            public = self.known(SUMS_KEY) / f"{party.name}.pub"
            if public.exists():
                lines.append(f"{party.name} = {json.dumps(public.read_text().strip())}\n")
        return "".join(lines)

    def pack(self, bundle: Path) -> None:
        """Write the archive of a bundle; its files belong to whoever unpacks them."""

        def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            return entry

        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(bundle, bundle.name, filter=plain)
        keys.write_private(bundle.with_name(f"{bundle.name}.tar.gz"), packed.getvalue())

    # The coordinator.

    def write_coordinator(self) -> None:
        listen, local = self.listen
        name, target = self.plan.name, self.coordinator
        _, port = self.plan.listens
        # A container has addresses of its own; the SuperLink's processes need one that the
        # certificate is for.
        inside = "0.0.0.0" if keys.is_covered("127.0.0.1", self.certificate) else self.plan.host
        unit = f"flwr-causal-{name}-superlink"
        again = {f"flwr-causal-{name}-rerun@.{kind}": kind for kind in ("service", "timer")}
        own = {
            "name": name,
            "host": self.plan.host,
            "port": str(port),
            "outer_port": str(self.plan.port),
            "listen": listen,
            "local": local,
            "inside": inside,
            "inner_name": "localhost" if inside == "0.0.0.0" else self.plan.host,
            "inside_local": "127.0.0.1" if inside == "0.0.0.0" else inside,
            "published": str(port) if listen in ("0.0.0.0", self.plan.host) else f"{listen}:{port}",
            "place": name,
            "unit": unit,
            "usage": "",
            "description": f"SuperLink of {name} (flwr-causal)",
            "before_start": "",
            "keep_data": "",
            "units": " ".join([f"{unit}.service", *again]),
            "after_install": "",
            "extra_hosts": "" if inside == "0.0.0.0" else f'"{inside}:0.0.0.0"',
            "health": _health(f"https://127.0.0.1:{port}/health"),
            # Where neither an environment beside the scripts nor the shell has the programs.
            "programs": str(Path(sys.executable).parent),
        }
        for empty in ("state", "results"):
            new_directory(target / empty)
        text = self.text
        self.put(target / "start.sh", text("link_start.sh", own), SCRIPT)
        self.put(target / "register.sh", text("register.sh", own), SCRIPT)
        self.put(target / "check.sh", text("check.sh", own), SCRIPT)
        self.put(target / "run.sh", text("run.sh", own), SCRIPT)
        self.put(target / "rerun.sh", text("rerun.sh", own), SCRIPT)
        for unit_file, kind in again.items():
            self.put(target / unit_file, text(f"rerun.{kind}", own))
        self.put(target / "compose.yaml", text("link_compose.yaml", own))
        if port != self.plan.port:
            self.put(target / "nginx.conf", text("nginx.conf", own))
        everyone = ",".join(party.name for party in self.plan.parties)
        chosen = [
            'method = "moments"  # one exchange',
            f"expected-parties = {json.dumps(everyone)}  # all",
            f"min-available-nodes = {len(self.plan.parties)}  # all of them",
            "round-timeout = 600.0  # ten minutes",
        ]
        app = text("pyproject.toml", own) + config_table(OWN_METHODS, chosen)
        self.put(target / "app" / "pyproject.toml", app)
        self.write_common(target, own)

    # Both.

    def write_common(self, directory: Path, own: dict[str, str]) -> None:
        """Write what installs a SuperLink or a SuperNode."""
        wheel = Path(self.plan.package) if self.plan.package else None
        copied = ["requirements.txt", *([wheel.name] if wheel else [])]
        self.put(directory / "install.sh", self.text("install.sh", own), SCRIPT)
        self.put(directory / "service.sh", self.text("service.sh", own), SCRIPT)
        self.put(directory / f"{own['unit']}.service", self.text("unit.service", own))
        self.put(
            directory / "Dockerfile", self.text("Dockerfile", {**own, "copied": " ".join(copied)})
        )
        # No key goes into an image, nor to the process that builds it.
        self.put(directory / ".dockerignore", "\n".join(["*", *(f"!{one}" for one in copied), ""]))
        self.put(directory / "requirements.txt", requirements(wheel))
        if wheel is not None:
            keys.write_private(directory / wheel.name, wheel.read_bytes(), 0o644)

    def text(self, name: str, values: dict[str, str]) -> str:
        """Return a template of this package with its values."""
        found = (files(__package__) / "templates" / f"{name}.txt").read_text(encoding="utf-8")
        python = ".".join(map(str, sys.version_info[:2]))
        own = {"version": own_version(), "python": python, "here": _HERE}
        return _Text(found).substitute({**own, **values})

    def put(self, path: Path, text: str, mode: int = 0o600) -> None:
        keys.write_private(path, text.encode(), mode)

    def checklist(self) -> str:
        parties = ""
        for party in self.plan.parties:
            readme = self.directory / "parties" / party.name / "README.md"
            parties += "#" + readme.read_text(encoding="utf-8")
        shown = os.path.relpath(self.directory)
        central = any(self.has_key(party) for party in self.plan.parties)
        wheel = self.plan.package
        return self.text(
            "CHECKLIST.md",
            {
                "name": self.plan.name,
                "address": self.plan.address,
                "port": str(self.plan.port),
                "package": shlex.quote(wheel) if wheel else f"{PACKAGE}=={own_version()}",
                "file": shlex.quote(str(self.file)),
                "directory": shlex.quote(
                    shown if not shown.startswith("..") else str(self.directory)
                ),
                "handover": _HANDOVER if central else _OWN_KEYS,
                "after_handover": _DELETE if central else _COMPARE,
                "expiry": f"{keys.read_certificate(self.certificate).not_valid_after_utc:%Y-%m-%d}",
                "parties": parties,
            },
        )


#: The beginning of each script: the directory that it is in. Paths are written between quotation
#: marks into settings, and into the commands that the scripts print.
_HERE = r"""here=$(cd "$(dirname "$0")" && pwd)
case $here in
*[\'\"\\]*)
    echo "Move this directory: its path must not contain quotation marks or backslashes: $here" >&2
    exit 2
    ;;
esac"""
#: What the checklist says of the bundles where the coordinator, or each party, makes the keys.
_HANDOVER = """\
   Give each party its bundle `parties/NAME.tar.gz`, and nobody else: it holds the private key of
   its node. Use a way that is encrypted.
"""
_DELETE = "`parties/` is deleted when the parties have their bundles: it holds their keys."
_OWN_KEYS = """\
   Give each party its bundle `parties/NAME.tar.gz`. Its command 2 prints two lines, public keys:
   save the first one as `coordinator/keys/NAME.pub`. `start.sh` and `run.sh` register new keys; the
   party starts its node afterwards. The second line is for the other parties.
"""
#: With Docker no command of the host makes a party's key.
_CONTAINER_KEY = """
   Before it, this makes the keys, and prints their public halves:
   `DATA={1} NODE_USER=$(id -u):$(id -g) docker compose run --rm --volume "$PWD:/{0}" supernode
   flwr-causal deploy --join /{0}`."""
_COMPARE = "The parties' public keys were compared with them by telephone."


def requirements(wheel: Path | None = None) -> str:
    """Return flwr-causal and what it needs, in the versions of this machine."""
    lines = [f"./{wheel.name}" if wheel else f"{PACKAGE}=={own_version()}"]
    for line in requires(PACKAGE) or ():
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            extras = f"[{','.join(sorted(needed.extras))}]" if needed.extras else ""
            lines.append(f"{needed.name}{extras}=={version(needed.name)}")
    return "\n".join([*lines, ""])


def _proxy(url: str) -> str:
    if not url:
        return "# No proxy was given: HTTPS_PROXY of the environment is used if it is set."
    return f"export HTTPS_PROXY='{url}'\nexport https_proxy=\"$HTTPS_PROXY\""


def _health(url: str) -> str:
    """Return a program for Python that fails unless a page can be read on this machine."""
    return (
        "import ssl, urllib.request as r; "
        f"r.build_opener(r.ProxyHandler({{}}), r.HTTPSHandler("
        f"context=ssl._create_unverified_context())).open('{url}', timeout=9)"
    )
