"""Make a release: build wheel, source archive and Flower bundle, check them, set the tag.

    python tools/release.py          # builds and checks; changes nothing but dist/
    python tools/release.py --tag    # and sets the tag, which is pushed by hand

The version is that of pyproject.toml and nowhere else. Needs ``pip install -e ".[release]"``. The
changelog needs a section of this version; run ``.ci/nightly`` before. The checks: the wheel has no
tests and no data and works in an empty environment, and Flower's bundle (FAB) has only what nodes
need (``fab-exclude`` in pyproject.toml; a test compares it with what the apps import).

Versions follow SemVer: what the README, docs/ and public docstrings name is public, and before 1.0
the second number counts as the first. To remove or rename a public name, an option or a key: in one
release the old one still works, warns with ``DeprecationWarning`` (an option: a warning of the run)
what replaces it and in which version it goes, and is in the changelog under "Deprecated"; the next
release with another second number may remove it. What was never in a release is renamed without
that. Contracts have no old form: server and parties run the same version, which the schema exchange
checks. A saved run is readable by all later versions.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
# Beside Python a wheel holds the page of a run and templates.
IN_WHEEL = {".py", ".typed", ".txt", ".js", ".css", ".html"}
MOST_BYTES = {"wheel": 1_800_000, "bundle": 4_000_000}


def run(*command: object, cwd: Path = ROOT) -> str:
    """Run a command and return what it printed; its failure ends the release."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def require(condition: object, problem: str) -> None:
    """End the release with a problem."""
    if not condition:
        sys.exit(f"No release: {problem}")


def check_repository(version: str) -> None:
    """Check that the tag is free, everything is committed, and the changelog knows the version."""
    require(not run("git", "status", "--porcelain"), "there are changes that are not committed.")
    require(not run("git", "tag", "--list", f"v{version}"), f"the tag v{version} exists.")
    heads = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    require(version in heads, f"CHANGELOG.md has no section '## {version}'.")


def build() -> tuple[Path, Path, Path]:
    """Build wheel, source archive and bundle in an empty dist/."""
    for old in DIST.glob("*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", DIST)
    run("flwr", "build", "--app", ROOT)
    (bundle,) = ROOT.glob("*.fab")
    bundle = bundle.rename(DIST / bundle.name)
    (wheel,), (archive,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, archive, bundle


def check_wheel(wheel: Path, version: str) -> None:
    """Check a wheel's files, and that it works in an environment of its own."""
    names = zipfile.ZipFile(wheel).namelist()
    own = [name for name in names if ".dist-info/" not in name]
    strange = [n for n in own if not n.startswith("flwr_causal/") or Path(n).suffix not in IN_WHEEL]
    require(not strange, f"the wheel holds {strange}.")
    size = wheel.stat().st_size
    require(size <= MOST_BYTES["wheel"], f"the wheel has {size:,} bytes.")
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        programs = Path(directory) / "bin"
        run(programs / "pip", "install", "--quiet", wheel)
        program = "import flwr_causal; print(flwr_causal.__version__)"
        found = run(programs / "python", "-c", program, cwd=DIST)
        require(found.strip() == version, f"the installed wheel calls itself {found.strip()}.")
        run(programs / "flwr-causal", "methods", cwd=DIST)
    print(f"{wheel.name}: {size:,} bytes, {len(names)} files, installs and starts")


def check_bundle(bundle: Path) -> None:
    """Check a bundle's size and that it holds the app and nothing else."""
    names = zipfile.ZipFile(bundle).namelist()
    known = {"pyproject.toml", "LICENSE", ".info/CONTENT"}
    strange = [name for name in names if name not in known and not name.startswith("flwr_causal/")]
    require(not strange, f"the bundle holds {strange}.")
    size = bundle.stat().st_size
    require(size <= MOST_BYTES["bundle"], f"the bundle has {size:,} bytes.")
    print(f"{bundle.name}: {size:,} bytes, {len(names)} files")


def main(arguments: list[str]) -> int:
    """Build, check, and set the tag if it is asked for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = project["version"]
    if "--tag" in arguments:
        check_repository(version)
    wheel, archive, bundle = build()
    check_wheel(wheel, version)
    check_bundle(bundle)
    print(f"{archive.name}: {archive.stat().st_size:,} bytes")
    if "--tag" in arguments:
        run("git", "tag", "-a", f"v{version}", "-m", f"flwr-causal {version}")
        print(f"tag v{version} is set; push it: git push origin v{version}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
