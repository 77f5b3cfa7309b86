"""The keys of a run config: how they are read, and what is said of wrong ones."""

import subprocess
import sys
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import flwr_causal
from flwr_causal.app import config, pages
from flwr_causal.app.config import (
    DataConfig,
    JobConfig,
    checked_config,
    in_keys,
    pairs_of,
    read_config,
)
from flwr_causal.app.methods import METHODS, OWN_METHODS
from flwr_causal.errors import ConfigError
from flwr_causal.strategies import FedGES, Moments, NotearsADMM

ROOT = Path(flwr_causal.__file__).parents[1]


def listed(name="pyproject.toml"):
    """The keys and values that an app starts from."""
    with (ROOT / name).open("rb") as file:
        return config._flat(tomllib.load(file)["tool"]["flwr"]["app"]["config"])


def test_keys_are_the_options_in_kebab_case():
    job, data, method = read_config(
        {
            "method": "moments",
            "rows": 99,
            "seed": 5,
            "threshold": 0.2,
            "missing-values": "drop",
            "max-rounds": "",
            "knowledge": "",
            "moments.solver": "notears",
        }
    )
    assert job == JobConfig(method="moments")
    assert data == DataConfig(rows=99, seed=5)
    assert isinstance(method, Moments)
    assert (method.options.seed, method.options.threshold, method.options.solver) == (
        5,
        0.2,
        "notears",
    )
    assert method.options.missing_values == "drop"
    assert method.options.max_rounds == 1


def test_options_by_their_other_names():
    *_, method = read_config({"method": "moments", "moments.model": "additive"})
    assert method.options.model == "additive"
    *_, method = read_config({"method": "fedges", "fedges.start": "fuse"})
    assert method.options.start == "fuse"


def test_a_shared_option_may_stand_behind_the_id():
    *_, method = read_config({"method": "moments", "moments.threshold": 0.2})
    assert method.options.threshold == 0.2
    read_config({"method": "moments", "moments.threshold": 0.2, "threshold": 0.2})
    with pytest.raises(ConfigError, match=r"'threshold' and 'moments\.threshold' are the same"):
        read_config({"method": "moments", "moments.threshold": 0.2, "threshold": 0.1})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        # Misspelt.
        ({"sparcity": 1.0}, "There is no key 'sparcity'. Did you mean 'notears-admm.sparsity'?"),
        ({"fedges.look-ahead": 3}, "There is no key 'fedges.look-ahead'. All keys"),
        ({"max_rounds": 9}, "There is no key 'max_rounds'. Did you mean 'max-rounds'?"),
        (
            {"method": "fedges", "fedges.max-egdes": 3},
            "There is no key 'fedges.max-egdes'. Did you mean 'fedges.max-edges'? All keys are "
            "listed in docs/options.md.",
        ),
        (
            {"fedgse.mode": "exact"},
            "There is no key 'fedgse.mode'. Did you mean 'fedges.mode'? There is no method "
            "'fedgse'; there are 2dbn, describe, fedcausal",
        ),
        ({"moments.early-stop": True}, "There is no key 'moments.early-stop'."),
        ({"zzz": 1}, "There is no key 'zzz'. All keys"),
        # Of another method.
        (
            {"method": "moments", "fedges.mode": "exact"},
            "fedges.mode='exact' is an option of the method 'fedges', but the run's method is "
            "'moments': leave it out, or set method='fedges'.",
        ),
        ({"fedges.turn": True}, "fedges.turn=true is an option of the method 'fedges', but"),
        ({"fedges.max-edges": 10}, "'fedges.max-edges=10 is an option"[1:]),
        (
            {"method": "fedges", "standardize": True},
            "standardize=true is no option of the method 'fedges'",
        ),
        # Wrong values, by their keys.
        ({"method": "ges"}, "There is no method 'ges'. The methods are: 2dbn,"),
        ({"method": 3}, "The option 'method' is 3; it must be a text."),
        (
            {"threshold": "0.3"},
            "The option 'threshold' is '0.3'; it must be a finite number or left out.",
        ),
        ({"standardize": 1}, "The option 'standardize' is 1; it must be true or false."),
        ({"max-rounds": 20.5}, "The option 'max-rounds' is 20.5; it must be a whole number"),
        ({"compare": "yes"}, "The option 'compare' is 'yes'; it must be true or false."),
        ({"notears-admm.variant": "quick"}, "The option 'notears-admm.variant' is 'quick'; it"),
        (
            {"method": "moments", "moments.model": "additive", "moments.sparsity": "bic"},
            "The option 'moments.sparsity' is 'bic'; it must be 'auto' or a number with "
            "moments.model='additive'.",
        ),
        (
            {"method": "fedges", "fedges.mode": "exact", "fedges.start": "fuse"},
            "The option 'fedges.start' is 'fuse', which is for fedges.mode='fusion', or "
            "fedges.mode='scores' with fedges.start='driven': leave it out.",
        ),
        (
            {"fedcausal.local-graphs": True, "method": "fedcausal", "fraction-train": 0.5},
            "The option 'fraction-train' is 0.5; it must be 1 with fedcausal.local-graphs",
        ),
        # Paths.
        ({"output-dir": "results"}, "output-dir='results' is a relative path"),
        ({"truth": "edges.csv"}, "truth='edges.csv' is a relative path"),
        ({"truth": "/nowhere.csv"}, "There is no file '/nowhere.csv', which the option 'truth'"),
        ({"knowledge": "/nowhere.toml"}, "/nowhere.toml"),
        ({"options": "max-rounds"}, "'max-rounds' is no key=value"),
    ],
    ids=str,
)
def test_wrong_keys_and_values_are_named_as_typed(given, message):
    with pytest.raises(ConfigError) as caught:
        read_config(given)
    assert message in str(caught.value)


def test_from_python_options_have_their_names():
    with pytest.raises(ConfigError, match="'missing_values' is 'no'"):
        Moments(missing_values="no")
    with pytest.raises(ConfigError, match="The option 'model' is 'no'"):
        Moments(model="no")
    with pytest.raises(ConfigError, match=r"The option 'start' is 'fuse', .* mode='fusion'"):
        FedGES(start="fuse", mode="exact")
    with pytest.raises(ConfigError, match="The option 'constant_columns' is 'no'"):
        FedGES(constant_columns="no")
    with pytest.raises(ConfigError, match="which is for model='mlp'"):
        NotearsADMM(hidden=3)


def test_messages_in_keys():
    for text, expected in (
        ("give missing_values='drop'", "give missing-values='drop'"),
        (
            "mode='scores' and parameters=False.",
            "fedges.mode='scores' and fedges.parameters=false.",
        ),
        ("column 'knowledge' and 'max_rounds'", "column 'knowledge' and 'max_rounds'"),
        ("see /srv/max_rounds/mode=3.csv", "see /srv/max_rounds/mode=3.csv"),
        ("with max_edges.", "with fedges.max-edges."),
    ):
        assert in_keys(text, "fedges") == expected


def test_options_of_other_methods_at_their_defaults_are_let_through():
    """A pyproject.toml lists the keys of all methods, and all of them arrive."""
    *_, method = read_config({"moments.refit": True, "notears-admm.early-stop": False})
    assert isinstance(method, NotearsADMM)
    assert method.options.early_stop is False
    with pytest.raises(ConfigError, match=r"moments\.refit=0 is an option"):
        read_config({"moments.refit": 0})


@pytest.mark.parametrize(
    "text", ["a=1 a=1", "a='x' b=1  a='y'", "fedges.turn=true fedges.turn=true"]
)
def test_a_key_that_is_given_twice_is_named(text):
    key = text.partition("=")[0]
    for given in (lambda: pairs_of(text), lambda: checked_config([text]),
                  lambda: read_config({"options": text})):  # fmt: skip
        with pytest.raises(ConfigError, match=f"The key '{key}' is given twice"):
            given()
    assert "could begin" in checked_config(["max-rounds=7", "max-rounds=8"])


def test_further_pairs_as_a_text():
    text = "method='fedges' max-rounds=7 fedges.mode=exact fedges.turn=true"
    assert pairs_of(text) == {
        "method": "fedges",
        "max-rounds": 7,
        "fedges.mode": "exact",
        "fedges.turn": True,
    }
    job, _, method = read_config({"method": "moments", "rows": 9, "options": text})
    assert (job.method, method.options.max_rounds, method.options.mode, method.options.turn) == (
        "fedges",
        7,
        "exact",
        True,
    )
    with pytest.raises(ConfigError, match=r"'fedges\.max-egdes'\. Did you mean 'fedges\.max-edges"):
        read_config({"method": "fedges", "options": "fedges.max-egdes=3"})


def test_a_config_can_be_checked_without_a_run(tmp_path, capsys):
    assert config.main(["method='fedges' fedges.max-egdes=10"]) == 1
    assert "Did you mean 'fedges.max-edges'" in capsys.readouterr().err
    file = tmp_path / "run.toml"
    file.write_text("method = 'fedges'\nmax-rounds = 9\n[fedges]\nmax-edges = 10\n")
    assert config.main([str(file), "seed=3"]) == 0
    assert "'fedges'" in capsys.readouterr().out
    command = [sys.executable, "-m", "flwr_causal.app.config", "2dbn.order='one'"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert "2dbn.order='one' is an option of the method '2dbn'" in result.stderr


# The lists of options are those of the code, no more and no less.


@pytest.mark.parametrize("name", pages.APPS)
def test_the_keys_of_the_apps_are_those_of_the_code(name):
    text = (ROOT / name).read_text()
    assert pages.renew_keys(text) == text, "python -m flwr_causal.app.pages writes it anew"
    keys = {option.key for option in (*pages.job_options(), *pages.common_options())}
    for method in OWN_METHODS:
        keys |= {key for key in config.options_by_key(method) if key.startswith(f"{method}.")}
        keys -= {f"{method}.{config.kebab(name)}" for name in config.shared_options()}
    assert set(listed(name)) == keys


def test_the_table_of_fedpc_is_that_of_the_code():
    text = (ROOT / pages.FEDPC).read_text()
    assert pages.renew_rules(text) == text, "python -m flwr_causal.app.pages writes it anew"
    assert "| all parties hold the same columns | `sums` |" in text


def test_the_page_of_warnings_is_that_of_the_rules():
    text = (ROOT / pages.WARNINGS).read_text()
    assert pages.renew_notices(text) == text, "python -m flwr_causal.app.pages writes it anew"
    assert "| The time steps differ between the parties | The usual differences" in text


def test_the_page_of_options_is_that_of_the_code():
    text = (ROOT / pages.DOCS).read_text()
    assert pages.renew_options(text) == text, "python -m flwr_causal.app.pages writes it anew"
    for option in (*pages.job_options(), *pages.common_options()):
        assert option.meaning, option.key
    for method in OWN_METHODS:
        assert f"## `{method}`\n" in text
        for option in pages.method_options(method):
            assert option.meaning, option.key
            assert f"| `{option.key}` |" in text
            assert option.default is not MISSING


def test_an_apps_own_choice_stays():
    line = 'method = "moments"  # this app\'s own choice\n'
    text = f"{pages.TABLE}\n{line}rows = 3\ngone = 1\n\n[tool.other]\nx = 1\n"
    written = pages.renew_keys(text, ["moments"])
    assert line in written
    assert "rows = 0\n" in written
    assert "gone" not in written
    assert "fedges." not in written
    assert written.endswith("\n[tool.other]\nx = 1\n")
    # A file without the table gets one.
    written = pages.renew_keys('[project]\nname = "x"\n', ["moments"])
    keys = tomllib.loads(written)["tool"]["flwr"]["app"]["config"]
    assert (keys["method"], keys["moments"]["order"]) == ("moments", 0)


@pytest.mark.parametrize("method", OWN_METHODS)
def test_pyproject_builds_every_method_with_its_defaults(method):
    job, data, strategy = read_config({**listed(), "method": method})
    assert (job, data) == (JobConfig(method=method), DataConfig())
    assert strategy.options == METHODS[method].strategy().options


def test_keys_belong_to_one_section_only():
    names = [field.name for field in (*fields(JobConfig), *fields(DataConfig))]
    assert len(names) == len(set(names))
    assert set(names) & set(config.shared_options()) == {"seed"}
