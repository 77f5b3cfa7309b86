"""A package of one's own with a method that runs and passes its checks, made from a template."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from importlib.util import find_spec
from string import Template
from typing import TYPE_CHECKING

from flwr_causal.app.methods import METHODS
from flwr_causal.app.pages import config_table
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

#: Where each file of the template goes; `PACKAGE` stands for the package's name.
FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "__init__.py": "PACKAGE/__init__.py",
    "exchange.py": "PACKAGE/exchange.py",
    "client.py": "PACKAGE/client.py",
    "strategy.py": "PACKAGE/strategy.py",
    "test_method.py": "tests/test_PACKAGE.py",
}


def create(method: str, directory: Path) -> list[Path]:
    """Write the files of a package with a new method; return their paths.

    Parameters
    ----------
    method : str
        The id: at most 32 lower-case letters and digits, words joined by hyphens. Flower takes it
        as the name of an app.
    directory : Path
        Is created; it must not exist, or be empty.

    Raises
    ------
    ConfigError
        If the id has another form or is that of a method, if a Python package has its name, or if
        the directory is not empty or cannot be written.
    """
    if not re.fullmatch(r"(?=.{1,32}$)[a-z][a-z0-9]*(-[a-z0-9]+)*", method):
        raise ConfigError(
            f"'{method}' is no id of a method: write at most 32 lower-case letters and digits, "
            "with hyphens between words, such as my-method"
        )
    package = method.replace("-", "_")
    if method in METHODS:
        raise ConfigError(f"There is a method '{method}' already: choose another id.")
    if keyword.iskeyword(package) or find_spec(package) is not None:
        raise ConfigError(
            f"Python has a module '{package}' already: choose another id, such as {method}-graph"
        )
    names = {
        "method": method,
        "package": package,
        "class": "".join(word.capitalize() for word in method.split("-")),
    }
    try:
        if directory.exists() and any(directory.iterdir()):
            raise ConfigError(f"The directory '{directory}' is not empty: name another one.")
        written = []
        for name, place in FILES.items():
            text = (files(__package__) / "template" / f"{name}.txt").read_text(encoding="utf-8")
            path = directory / place.replace("PACKAGE", package)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = Template(text).substitute(names)
            if name == "pyproject.toml":
                text += config_table((), [f'method = "{method}"'])
            path.write_text(text, encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise ConfigError(
            f"'{directory}' cannot be written ({error.strerror or error}): name another directory"
        ) from error
    return written
