"""Flower's own checks of an app's ``pyproject.toml``."""

from flwr.cli.utils import validate_project_name
from flwr.common.config import validate_config


def accepted_by_flower(config):
    """Check a configuration as ``flwr build`` and ``flwr run`` do."""
    valid, errors, _ = validate_config(config, check_module=False)
    assert valid, errors
    validate_project_name(config["project"]["name"], "name")
    validate_project_name(config["tool"]["flwr"]["app"]["publisher"], "publisher")
