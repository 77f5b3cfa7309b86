"""The keys of `flwr run` are the options of the code, no more and no less."""

import tomllib
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import flwr_causal
from flwr_causal.app import methods
from flwr_causal.app.apps import JobConfig, read_config
from flwr_causal.app.methods import METHODS
from flwr_causal.app.sources import DataConfig
from flwr_causal.errors import ConfigError
from flwr_causal.strategies import LinearStrategy

ROOT = Path(flwr_causal.__file__).parent


def flat(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def config_of_pyproject():
    with (ROOT.parent / "pyproject.toml").open("rb") as file:
        return dict(flat(tomllib.load(file)["tool"]["flwr"]["app"]["config"]))


def kebab(name):
    return name.replace("_", "-")


# Fields that a run config calls by their other name.
CONFIG_NAMES = {"start_from": "start", "kind": "model"}


def options_of_code():
    """Key -> default of every option."""
    known = {}
    for owner in (JobConfig, DataConfig):
        known |= {kebab(f.name): f.default for f in fields(owner)}
    common = {f.name for f in fields(LinearStrategy) if f.init}
    for method, (strategy, _) in METHODS.items():
        for field in fields(strategy):
            assert field.default is not MISSING, f"{method}: {field.name} has no default"
            if not field.init:
                continue
            if field.name in common:
                known.setdefault(kebab(field.name), field.default)
            else:
                name = CONFIG_NAMES.get(field.name, field.name)
                known[f"{method}.{kebab(name)}"] = field.default
    return known


def test_pyproject_lists_every_option():
    assert set(config_of_pyproject()) == set(options_of_code())


def test_pyproject_gives_the_defaults():
    known = options_of_code()
    for key, value in config_of_pyproject().items():
        if value != "":
            assert (type(value), value) == (type(known[key]), known[key]), key
    # An empty text may not stand for another default of the code's own tables.
    for owner in (JobConfig, DataConfig):
        for field in fields(owner):
            assert config_of_pyproject()[kebab(field.name)] == field.default


@pytest.mark.parametrize("method", METHODS)
def test_pyproject_builds_every_method_with_its_defaults(method):
    job, data, strategy = read_config({**config_of_pyproject(), "method": method})
    assert (job, data) == (JobConfig(method=method), DataConfig())
    assert strategy.options == METHODS[method].strategy().options


def test_options_of_the_methods_are_documented():
    for strategy, _ in METHODS.values():
        text = "".join(base.__doc__ or "" for base in strategy.__mro__)
        for field in fields(strategy):
            if field.init:
                assert field.name in text, f"{strategy.__name__}.{field.name}"


def test_a_method_is_found_by_its_id():
    for name, (strategy, _) in METHODS.items():
        assert strategy.method == name
        assert type(methods.build(name, {})) is strategy
    with pytest.raises(ConfigError, match=r"'pc'.*moments.*notears-admm"):
        methods.find("pc")
