"""Options are checked when a strategy is built: names, types, values."""

import copy
import inspect
import math
import pickle
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

from flwr_causal.app.methods import METHODS, build
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.options import bounded, checked, option_types
from flwr_causal.errors import ConfigError
from flwr_causal.strategies import Moments, NotearsADMM
from flwr_causal.strategies.lingam import LingamOptions
from flwr_causal.strategies.moments import MomentsOptions
from flwr_causal.strategies.options import check_names

BOTH = [NotearsADMM, Moments]


@pytest.mark.parametrize(
    ("wanted", "good", "bad"),
    [
        (int, [0, -3], [1.0, True, "1", None]),
        (float, [0.5, 2], [True, "0.5", None]),
        (bool, [True, False], [1, 0, "true"]),
        (str, ["", "a"], [1, None]),
        (int | None, [None, 4], [4.5, "x", False]),
        (float | Literal["auto"], [0.1, 3, "auto"], ["best", None, True]),
        (Literal["a", "b"], ["a"], ["c", 1]),
        (Literal[1, 2], [1], [True, 1.0, 3]),
        (Knowledge | str | None, [Knowledge(), "k.toml", None], [3, ["a"]]),
    ],
)
def test_types(wanted, good, bad):
    for value in good:
        result = checked("rate", value, wanted)
        assert result == value
    for value in bad:
        with pytest.raises(ConfigError, match=r"The option 'rate' is .*; it must be"):
            checked("rate", value, wanted)


def test_whole_numbers_become_floats_where_those_are_wanted():
    assert type(checked("rate", 3, float)) is float
    assert type(checked("rate", 3, float | Literal["auto"])) is float
    assert type(checked("rate", 3, int)) is int
    assert type(NotearsADMM(threshold=0).options.threshold) is float


def test_bounds_hold_where_a_subclass_changes_the_default():
    @dataclass(frozen=True, kw_only=True)
    class Longer(LingamOptions):
        """The options of a user's method."""

        max_rounds: int | None = 7  # type: ignore[assignment]
        rate: float | Literal["auto"] = bounded("auto", least=0, below=1)

    assert (Longer().max_rounds, Longer(rate=0).rate, Longer(rate="auto").rate) == (7, 0.0, "auto")
    for options, words in (
        ({"max_rounds": 1}, "'max_rounds' is 1; it must be 2 or more"),
        ({"max_rounds": 10**7}, "it must be from 1 to 1000000"),
        ({"rate": 1.0}, "'rate' is 1.0; it must be from 0 to below 1"),
        ({"rate": -0.1}, "'rate' is -0.1; it must be from 0 to below 1"),
        ({"fraction_train": 0.0}, "it must be above 0, at most 1"),
    ):
        with pytest.raises(ConfigError, match=words):
            Longer(**options)


def test_types_are_found_in_all_bases():
    types = option_types(NotearsADMM.options_type)
    assert types["max_rounds"] == int | None
    assert types["standardize"] is bool
    assert types["seed"] is int
    assert not {"federation", "state", "method"} & set(types)


def test_options_that_do_not_exist():
    with pytest.raises(ConfigError, match=r"no option 'sparcity'. Did you mean 'sparsity' or"):
        check_names(Moments, {"sparcity": 0.1})
    with pytest.raises(ConfigError) as caught:
        build("moments", {"zzz": 1})
    assert "Did you mean" not in str(caught.value)
    assert "All are listed by `flwr-causal options moments` and help(Moments)" in str(caught.value)
    assert "max_rounds" not in str(caught.value)
    # Options of one method are not those of another.
    with pytest.raises(ConfigError, match="Moments has no option 'early_stop'"):
        build("moments", {"early_stop": True})


WRONG = [
    ({"threshold": -0.1}, "threshold", "0 or more"),
    ({"threshold": "0.3"}, "threshold", "a finite number"),
    ({"max_rounds": 0}, "max_rounds", "max_rounds"),
    ({"max_rounds": 12.0}, "max_rounds", "whole number"),
    ({"quorum": 2.0}, "quorum", "above 0, at most 1"),
    ({"quorum": 0}, "quorum", "above 0, at most 1"),
    ({"fraction_train": 0.0}, "fraction_train", "above 0, at most 1"),
    ({"fraction_train": 1.5}, "fraction_train", "above 0, at most 1"),
    ({"round_timeout": 0}, "round_timeout", "above 0"),
    ({"server_timeout": 0}, "server_timeout", "above 0"),
    ({"min_available_nodes": 0}, "min_available_nodes", "1 or more"),
    ({"precision": "float16"}, "precision", "'float64' or 'float32'"),
    ({"center": "client"}, "center", "'global' or 'party'"),
    ({"standardize": 1}, "standardize", "true or false"),
    ({"missing_values": "impute"}, "missing_values", "'fail' or 'drop'"),
    ({"sparsity": -1.0}, "sparsity", "0 or more"),
    ({"sparsity": "best"}, "sparsity", "'auto'"),
    ({"seed": "zero"}, "seed", "whole number"),
    ({"seed": True}, "seed", "whole number"),
    ({"knowledge": 7}, "knowledge", "a text"),
    ({"threshold": math.nan}, "threshold", "finite"),
    ({"sparsity": math.inf}, "sparsity", "finite"),
]


@pytest.mark.parametrize("strategy", BOTH)
@pytest.mark.parametrize(("options", "name", "allowed"), WRONG, ids=str)
def test_wrong_values(strategy, options, name, allowed):
    with pytest.raises(ConfigError, match=allowed) as caught:
        strategy(**options)
    assert f"'{name}' is {options[name]!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("strategy", "options", "name"),
    [
        (NotearsADMM, {"variant": "slow"}, "variant"),
        (NotearsADMM, {"max_rounds": 5}, "max_rounds"),
        (NotearsADMM, {"refit": "yes"}, "refit"),
        (NotearsADMM, {"early_stop": None}, "early_stop"),
        (Moments, {"max_rounds": 2}, "max_rounds"),
        (Moments, {"solver": "pc"}, "solver"),
        (Moments, {"score": "aic"}, "score"),
        (Moments, {"refit": 1}, "refit"),
    ],
)
def test_wrong_values_of_one_method(strategy, options, name):
    with pytest.raises(ConfigError, match=f"'{name}'"):
        strategy(**options)


@pytest.mark.parametrize("method", METHODS)
def test_options_round_trip_as_plain_values(method):
    strategy = METHODS[method].strategy()
    again = METHODS[method].strategy(**strategy.options.by_name())
    assert again.options == strategy.options


def test_a_file_that_is_not_there():
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        NotearsADMM(knowledge="/nowhere.toml")


def test_an_empty_text_means_no_knowledge():
    assert NotearsADMM(knowledge="").options.knowledge is None


def test_a_strangers_strategy_is_checked_alike():
    @dataclass(frozen=True, kw_only=True)
    class MineOptions(MomentsOptions):
        """An option more."""

        depth: int = 3

    class Mine(Moments):
        """A method of a user's."""

        options_type = MineOptions

    @dataclass(kw_only=True, eq=False)
    class Old(Moments):
        """A method whose options are its own fields."""

        depth: int = 3

    with pytest.raises(ConfigError, match=r"Old is a dataclass.*'options_type'"):
        Old(depth=4)
    with pytest.raises(ConfigError, match="Old is a dataclass"):
        Old(4)
    assert inspect.signature(Mine).parameters["depth"].default == 3
    assert Mine(depth=4).with_options(seed=3).options == MineOptions(depth=4, seed=3)
    assert (
        NotearsADMM().with_options(variant="paper").options == NotearsADMM(variant="paper").options
    )
    mine = Mine(depth=4)
    assert mine.options.depth == 4
    assert mine.depth == 4  # as attributes of Flower's strategies
    with pytest.raises(AttributeError, match="no attribute 'breadth'"):
        _ = mine.breadth
    assert repr(mine) == "Mine(depth=4)"
    for name in ("depth", "fraction_train"):
        with pytest.raises(ConfigError, match=rf"with_options\({name}="):
            setattr(mine, name, 1)
    with pytest.raises(ConfigError, match="'depth'"):
        Mine(depth=0.5)


class BareOptions(MomentsOptions):
    """Options without the decorator: its annotations are no fields."""

    depth: int = 3


@dataclass(frozen=True)
class StrangeOptions:
    """Options of no method."""

    depth: int = 3


@pytest.mark.parametrize(
    ("bases", "own", "words"),
    [
        ((Moments,), BareOptions, r"Mine\.options_type is .*BareOptions.* subclass of MomentsO"),
        ((Moments,), StrangeOptions, r"StrangeOptions.*subclass of MomentsOptions\."),
        ((Moments,), MomentsOptions(), r"a value of type MomentsOptions; .*a class of options"),
        ((Moments, NotearsADMM), None, r"MomentsOptions and NotearsADMMOptions\."),
    ],
    ids=["no decorator", "no base", "no class", "two bases"],
)
def test_a_class_of_options_that_cannot_be_one(bases, own, words):
    with pytest.raises(ConfigError, match=words):
        type("Mine", bases, {} if own is None else {"options_type": own})


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda method: pickle.loads(pickle.dumps(method))]
)
def test_a_copy_has_the_options_and_is_another_object(again):
    method = NotearsADMM(knowledge=Knowledge(forbidden=[("a", "b")]))
    other = again(method)
    assert (other.options, other.with_options().options) == (method.options, method.options)
    assert other.with_options(seed=3).options.seed == 3
    assert method.options.seed == 0


def test_scalars_of_numpy_are_plain_numbers():
    method = NotearsADMM(threshold=np.float64(0.5), max_rounds=np.int64(9), early_stop=np.bool_(0))
    kinds = [
        type(value)
        for value in (
            method.options.threshold,
            method.options.max_rounds,
            method.options.early_stop,
        )
    ]
    assert kinds == [float, int, bool]


def test_a_strategy_with_a_constructor_of_its_own_keeps_what_it_holds():
    class Named(Moments):
        def __init__(self, label, **options):
            self.label = label
            super().__init__(**options)

    other = Named("a", seed=3).with_options(replicates=2)
    assert (other.label, other.options.seed, other.options.replicates) == ("a", 3, 2)
    assert other.train_metrics_aggr_fn.__self__ is other
