"""Every public name has an example in its docstring, and the examples give what they say."""

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PACKAGES = ("", ".solvers", ".simulations", ".interoperability", ".testing")
#: Examples that need a package which the tests may lack.
NEEDS = {
    "from_causal_learn": "causallearn",
    "to_causal_learn": "causallearn",
    "to_spflow": "spflow",
    "notears_mlp": "torch",
}
#: Examples that do not run, and why.
NOT_RUN = {"check_method": "its two runs for each fault take seconds"}


def found(name):
    """Return what a dotted name is."""
    parts = name.split(".")
    number = next(k for k in range(len(parts), 0, -1) if _is_module(".".join(parts[:k])))
    value = import_module(".".join(parts[:number]))
    for part in parts[number:]:
        value = getattr(value, part)
    return value


def _is_module(name):
    try:
        import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def public():
    """Return the functions and classes of the reference and of the packages, by name."""
    paths = sorted(DOCS.glob("reference/*.md"))
    # The page of algorithms shows the texts of modules, not their functions.
    pages = "\n".join(one.read_text("utf-8") for one in paths if one.stem != "algorithms")
    shown = {name: found(name) for name in re.findall(r"^::: (\S+)$", pages, re.M)}
    for package in PACKAGES:
        module = import_module(f"flwr_causal{package}")
        shown |= {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    for name, module in [(name, one) for name, one in shown.items() if inspect.ismodule(one)]:
        del shown[name]
        shown |= {
            f"{name}.{part}": one
            for part, one in vars(module).items()
            if getattr(one, "__module__", "") == name
            and callable(one)
            and inspect.getdoc(one)
            and not part.startswith("_")
        }
    once = {inspect.unwrap(one): name for name, one in shown.items()}
    return {name: one for one, name in once.items()}


PUBLIC = public()


def examples(name, value):
    """Return the examples of a docstring, None if there are none."""
    return doctest.DocTestParser().get_doctest(value.__doc__ or "", {}, name, None, None)


@pytest.mark.parametrize("name", PUBLIC)
def test_the_examples_of_a_public_name_give_what_they_say(name):
    last = name.rpartition(".")[2]
    test = examples(name, PUBLIC[name])
    assert test.examples, f"the docstring of {name} has no example"
    skipped = any(one.options.get(doctest.SKIP) for one in test.examples)
    assert skipped == (last in NOT_RUN)
    if last in NEEDS:
        pytest.importorskip(NEEDS[last])
    report = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert not report, "".join(report)


def test_the_names_are_those_of_the_manual():
    names = {name.rpartition(".")[2] for name in PUBLIC}
    assert {"simulate", "Run", "CausalGraph", "to_gml", "federated_linear", "Moments"} <= names
    assert len(names) > 120


def test_a_name_without_an_example_and_a_wrong_example_are_noticed():
    def bare():
        """Return nothing."""

    def wrong():
        """Add.

        >>> 1 + 1
        3
        """

    assert not examples("bare", bare).examples
    runner = doctest.DocTestRunner()
    runner.run(examples("wrong", wrong), out=lambda text: None)
    assert runner.failures == 1
