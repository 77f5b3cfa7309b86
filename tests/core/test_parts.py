"""Parts: an option belongs to one, and what a value needs all chosen ones give."""

from dataclasses import dataclass
from typing import Literal

import pytest

from flwr_causal.core.options import bounded
from flwr_causal.core.parts import (
    WORDS,
    Part,
    _about,
    all_but,
    check_parts,
    option,
    unmet,
    words,
)
from flwr_causal.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Search(Part):
    """A search."""

    text = "solver='search'"

    least: float = bounded(0.1, least=0)


@dataclass(frozen=True, kw_only=True)
class Wide(Search):
    """A wide one."""

    text = "solver='wide'"
    gives = all_but("folds", "weights")

    width: int | None = option(None, needs="median", least=1)


class Grouped(Part):
    """Sums in groups."""

    text = "groups"
    gives = all_but("median")
    remedies = (("median", "all replies"),)


class HeldOut(Part):
    """Held-out rows."""

    text = "sparsity='held-out' and more"
    needs = words("replies")
    chosen_by = ("least", "sparsity")
    instead = "'auto', or less"


class Summed(Part):
    """No replies."""

    text = "sums"
    gives = all_but("replies")


class FewParties(Part):
    """Few parties."""

    text = "few parties"
    gives = all_but("sample")


class Unweighted(Part):
    """No weights."""

    text = "no weights"
    gives = all_but("weights")


class Nothing(Part):
    """Nothing is given."""

    text = "nothing"
    gives = words()


@dataclass(frozen=True, kw_only=True)
class Options(Wide):
    """The options of a method."""

    sparsity: float | Literal["auto", "bic", "held-out"] = option(
        "auto", needs={"held-out": ("folds",), "bic": ("weights",)}
    )
    share: float = option(1.0, needs=("sample",))
    replicates: bool = False
    gaps: Literal["auto", "fail", "drop"] = option("auto", needs="gaps")


@dataclass(frozen=True, kw_only=True)
class Others(Options):
    """The options of another method."""

    sparsity: float | Literal["auto", "bic", "held-out"] = 0.5
    text: str = ""


@pytest.mark.parametrize(
    ("values", "chosen", "refused"),
    [
        ({}, (), ""),
        ({"least": 0.2}, (Search,), ""),
        # A part has the options of its bases, and not those of parts that extend it.
        ({"least": 0.2}, (Wide,), ""),
        ({"width": 2}, (Search,), "'width' is 2, which is for solver='wide': leave it out."),
        ({"least": 0.2}, (), "'least' is 0.2, which is for solver='search': leave it out."),
        (
            {"sparsity": "held-out"},
            (Wide,),
            "'sparsity' is 'held-out'; it must be 'auto' or a number with solver='wide'.",
        ),
        ({"sparsity": 0.3}, (Wide,), ""),
        ({"sparsity": "held-out"}, (Search,), ""),
        (
            {"width": 2},
            (Wide, Grouped),
            "'width' is 2; it must be left out, or all replies, with groups.",
        ),
        # Two words are lacking, of which one has no other remedy.
        ({"sparsity": "bic"}, (Wide, HeldOut), "'sparsity' is 'bic'; it must be 'auto' or a num"),
        (
            {"sparsity": "held-out"},
            (HeldOut, Summed),
            "'sparsity' is 'held-out'; it must be 'auto', or less with sums.",
        ),
        ({"gaps": "fail"}, (Nothing,), ""),
    ],
)
def test_an_option_needs_what_the_parts_give(values, chosen, refused):
    options = Options(**values)
    if not refused:
        check_parts(options, chosen)
        return
    with pytest.raises(ConfigError) as caught:
        check_parts(options, chosen)
    assert f"The option {refused}" in f"{caught.value}"


def test_what_is_lacking_is_told_before_what_is_not_chosen():
    with pytest.raises(ConfigError, match="'sparsity'"):
        check_parts(Options(width=2, sparsity="bic"), (FewParties, Unweighted))
    with pytest.raises(ConfigError, match=r"'share' is 0\.5; it must be 1 with few parties"):
        check_parts(Options(share=0.5), (FewParties,))


def test_needs_hold_where_a_subclass_has_another_default():
    (found,) = unmet(Others(sparsity="held-out"), (Wide,))
    assert (found.name, found.instead) == ("sparsity", "'auto' or a number")
    assert not unmet(Others(), (Wide,))


def test_an_option_of_any_name_is_an_option():
    # "text" is what a part says of itself; of a method's options it is an option.
    assert _about(Others).owners == {"least": (Search,), "width": (Wide,)}
    check_parts(Others(text="a"), ())


def test_words_are_those_of_the_list():
    assert words() == set()
    assert all_but("folds") == set(WORDS) - {"folds"}
    for misspelt in (lambda: words("fold"), lambda: all_but("fold"), lambda: option(0, needs="x")):
        with pytest.raises(ConfigError, match="there are sample, restart"):
            misspelt()
