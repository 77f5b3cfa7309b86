"""Flower's command line and long-running programs, as the end-to-end tests use them."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "three-nodes"
APP = EXAMPLE / "app"
# Generous: a loaded machine starts a SuperLink in half a minute.
START_SECONDS = 90.0
RUN_SECONDS = 300.0


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Flower:
    """Flower's programs with a home directory of their own.

    All of them, and whatever they start in turn, carry TEST_FLOWER in their environment: that is
    how they are found again at the end, also the daemon that ``flwr run`` leaves behind.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "flower-home"
        self.home.mkdir()
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self.home),
            "TEST_FLOWER": str(self.home),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
            "FLWR_LOCAL_CONTROL_API_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def start(self, name: str, *command: object, **environment: str) -> int:
        """Start a program in the background, its output in ``name.log``; return its process id."""
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self.environment, **environment},
                cwd=self.directory,
                start_new_session=True,
            )
        # Reaped by stop(); without this its destructor would warn that it still runs.
        process.returncode = 0
        return process.pid

    def call(self, *command: object) -> str:
        """Run a program to its end and return what it printed."""
        return subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
            cwd=self.directory,
            timeout=RUN_SECONDS,
            check=False,
            text=True,
        ).stdout

    def log(self, name: str) -> str:
        """Return what a program has printed so far."""
        return (self.directory / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def run(self, app: Path, superlink: str = "", config: str = "", *options: str) -> str:
        """Do ``flwr run APP SUPERLINK --stream -c CONFIG`` and return the log."""
        where = [superlink] if superlink else []
        return self.call("flwr", "run", app, *where, "--stream", "-c", config, *options)

    def statuses(self, superlink: str = "", at_least: int = 1) -> list[str]:
        """Return the status of every run, the latest first, once ``at_least`` have finished."""
        command = ["flwr", "list", *([superlink] if superlink else []), "--format", "json"]

        def finished() -> list[str]:
            runs = json.loads(self.call(*command))["runs"]
            found = [run["status"] for run in runs]
            done = sum(status.startswith("finished") for status in found)
            return found if done >= at_least else []

        return wait_for(finished, 60.0, "the runs have finished")

    def pids(self, marker: str = "") -> list[int]:
        """Return the processes with this home (and the marker) in their environment."""
        wanted = {f"TEST_FLOWER={self.home}".encode(), *([marker.encode()] if marker else [])}
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                environment = set((entry / "environ").read_bytes().split(b"\0"))
            except OSError:
                continue  # it has ended meanwhile, or is somebody else's
            if wanted <= environment:
                found.append(int(entry.name))
        return found

    def kill(self, marker: str = "") -> None:
        """Kill processes with signal 9, until no more of them appear."""
        while pids := self.pids(marker):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                except (ProcessLookupError, ChildProcessError):
                    pass  # it has ended, or is a child of a child
            time.sleep(0.1)


def wait_for(condition, seconds: float, what: str):
    """Call the condition until it returns something, and return that."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"after {seconds:g} s it is still not true that {what}"
        time.sleep(0.3)
    return result


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


class Deployment:
    """A SuperLink, and the SuperNodes that are started one by one.

    With ``isolation="process"`` each has a SuperExec beside it, which starts the apps and shows a
    shared secret; with "subprocess", Flower's default, they start the apps themselves.
    """

    def __init__(
        self, flower: Flower, certificates: Path | None = None, isolation: str = "subprocess"
    ) -> None:
        self.flower = flower
        self.certificates = certificates
        self.isolation = isolation
        self.secret = flower.home / "superexec-secret"
        self.secret.write_bytes(os.urandom(32))
        self.started: list[int] = []
        self.port = free_port()
        self.start_superlink()
        how = (
            "insecure = true"
            if certificates is None
            else f'root-certificates = "{certificates / "ca.crt"}"'
        )
        (flower.home / "config.toml").write_text(
            f'[superlink]\ndefault = "clinic"\n\n[superlink.clinic]\n'
            f'address = "127.0.0.1:{self.port}"\n{how}\n'
        )

    def start_superlink(self) -> None:
        """Start the SuperLink, with what its database remembers."""
        certificates, files = self.certificates, {}
        if certificates is not None:
            files = {
                "--ssl-ca-certfile": certificates / "ca.crt",
                "--ssl-certfile": certificates / "server.crt",
                "--ssl-keyfile": certificates / "server.key",
            }
        transport = [part for item in files.items() for part in item] or ["--insecure"]
        self._start(
            "superlink",
            self.port,
            *("flower-superlink", *transport),
            *(["--enable-supernode-auth"] if certificates is not None else []),
            *("--disable-runtime-dependency-installation", "--database", "superlink.db"),
        )
        wait_for(self._healthy, START_SECONDS, "the SuperLink answers")

    def _start(self, name: str, port: int, *command: object) -> int:
        """Start a SuperLink or SuperNode whose apps are started by the rules of ``isolation``."""
        process = self.isolation == "process"
        secret = ("--superexec-auth-secret-file", self.secret) if process else ()
        where = ("--host", "127.0.0.1", "--port", port, "--isolation", self.isolation)
        pid = self.flower.start(name, *command, *where, *secret, TEST_NODE=name)
        self.started.append(pid)
        if process:
            address = ("--insecure", "--runtime-api-address", f"127.0.0.1:{port}")
            beside = ("flower-superexec", *address, *secret)
            self.started.append(self.flower.start(f"{name}-superexec", *beside, TEST_NODE=name))
        return pid

    def _healthy(self) -> bool:
        context = None
        if self.certificates is not None:
            context = ssl.create_default_context(cafile=str(self.certificates / "ca.crt"))
        url = f"http{'' if context is None else 's'}://127.0.0.1:{self.port}/health"
        try:
            with urllib.request.urlopen(url, timeout=5, context=context) as answer:
                return answer.status == 200
        except OSError:
            return False

    def register(self, key: Path) -> int:
        """Admit the SuperNode that has the key; return its id."""
        command = ("flwr", "supernode", "register", f"{key}.pub", "clinic", "--format", "json")
        return int(json.loads(self.flower.call(*command))["node-id"])

    def add_node(
        self, name: str, table: Path | None, key: Path | None = None, **node_config: object
    ) -> int:
        """Start a SuperNode and return its process id; with a key it proves who it is."""
        transport: list[object] = ["--insecure"]
        if self.certificates is not None:
            transport = ["--root-certificates", self.certificates / "ca.crt"]
        if key is not None:
            transport += ["--auth-supernode-private-key", key]
        config = {"name": name, **({"data-path": table} if table else {}), **node_config}
        pairs = (
            f"{key}={value if isinstance(value, int) else repr(str(value))}"
            for key, value in config.items()
        )
        return self._start(
            name,
            free_port(),
            *("flower-supernode", *transport, "--superlink", f"127.0.0.1:{self.port}"),
            *("--node-config", " ".join(pairs)),
        )

    def stop_node(self, name: str, pid: int) -> None:
        """Stop a SuperNode as its owner does, so that it takes leave of the SuperLink."""
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: os.waitpid(pid, os.WNOHANG)[0], START_SECONDS, f"{name} has stopped")
        self.kill_node(name)

    def stop(self) -> None:
        """Stop all programs as their owners do, the SuperLink last, until none is left."""
        for pid in reversed(self.started):
            os.kill(pid, signal.SIGTERM)
            wait_for(lambda pid=pid: os.waitpid(pid, os.WNOHANG)[0], START_SECONDS, "it has ended")
        wait_for(lambda: not self.flower.pids(), START_SECONDS, "no process is left")

    def server_apps(self) -> list[int]:
        """Return the ServerApps' processes, one for each run that has not ended."""
        pids = self.flower.pids("TEST_NODE=superlink")
        return [pid for pid in pids if b"flwr-serverapp" in _command_line(pid)]

    def signal_node(self, name: str, number: int) -> None:
        """Send a signal to a SuperNode and to all that it has started."""
        for pid in self.flower.pids(f"TEST_NODE={name}"):
            os.kill(pid, number)

    def kill_node(self, name: str) -> None:
        """Kill a SuperNode, or "superlink", and all that it has started, without a warning."""
        self.flower.kill(f"TEST_NODE={name}")


@contextmanager
def flower_programs(directory: Path):
    """Yield a ``Flower`` whose processes are gone afterwards, come what may."""
    flower = Flower(directory)
    try:
        yield flower
    finally:
        flower.kill()
