"""A PostgreSQL server of a test's own, on a socket that no network reaches."""

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

FOUND = [shutil.which("initdb"), *sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
PROGRAMS = next((Path(path).resolve().parent for path in FOUND[::-1] if path), None)
USER, PASSWORD = "omop", "pa@ss/word"


def url_of(place):
    """The URL of the server whose socket is in a directory."""
    return f"postgresql+psycopg://{USER}:pa%40ss%2Fword@/postgres?host={place}"


@contextmanager
def postgresql_server():
    """Yield the directory of the server's socket; skip the test where Debian's is not installed."""
    if PROGRAMS is None:
        pytest.skip("PostgreSQL's programs are not installed (Debian: apt-get install postgresql)")
    # Root may not run it, and a path of a socket has 107 bytes at most.
    who = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    place = Path(tempfile.mkdtemp(prefix="flwr-pg-", dir="/tmp"))
    (place / "password").write_text(PASSWORD)
    if who:
        for path in (place, place / "password"):
            shutil.chown(path, **who)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/", **who}
    how = ["--auth=scram-sha-256", f"--pwfile={place}/password", "-U", USER, "-E", "UTF8"]
    data = f"{place}/data"
    subprocess.run([PROGRAMS / "initdb", "-D", data, "--no-sync", *how], check=True, **quiet)
    command = [PROGRAMS / "postgres", "-D", data, "-k", place, "-c", "listen_addresses="]
    process = subprocess.Popen([*command, "-c", "fsync=off"], **quiet)
    try:
        ready = [PROGRAMS / "pg_isready", "-h", place, "-q"]
        for _ in range(150):
            if subprocess.run(ready, check=False, **quiet).returncode == 0:
                break
            time.sleep(0.2)
        yield place
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(place, ignore_errors=True)
