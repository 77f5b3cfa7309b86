"""docs/privacy.md and docs/privacy/ say what the contracts declare, no more and no less."""

from pathlib import Path

import pytest

from flwr_causal.app import pages
from flwr_causal.app.methods import OWN_METHODS, find
from flwr_causal.protocol import Contract, Disclosure, Exchange, Sent, tables

ROOT = Path(__file__).parents[2]
TEXT = "".join(page.read_text(encoding="utf-8") for page in pages.privacy_pages(ROOT))


def test_the_tables_are_those_of_the_code():
    assert pages.renew_contracts(TEXT) == TEXT, "python -m flwr_causal.app.pages writes it anew"


def test_every_table_has_its_place():
    marks = [found[1] for found in pages.MARKED.finditer(TEXT)]
    wanted = {"report", "agreement", "rows"}
    wanted |= {
        f"{kind} {method}"
        for kind in ("leaves", "sent")
        for method in (*OWN_METHODS, "secure-sums")
    }
    assert len(marks) == len(wanted)
    assert set(marks) == wanted


@pytest.mark.parametrize("method", OWN_METHODS)
def test_everything_that_a_method_declares_is_on_the_page(method):
    part = TEXT.partition(f"<!-- leaves {method} -->")[2].partition("<!-- end -->")[0]
    sent = TEXT.partition(f"<!-- sent {method} -->")[2].partition("<!-- end -->")[0]
    for exchange in find(method).strategy.contract.exchanges:
        assert f"| `{exchange.name}` |" in sent
        for item in exchange.returns:
            assert f"`{item.name}`: {item.meaning}".replace("|", "\\|") in part
        for item in exchange.sends:
            assert f"`{item.name}`" in sent


def test_what_has_an_entry_for_each_row_is_listed_in_one_place_and_marked():
    listed = TEXT.partition("<!-- rows -->")[2].partition("<!-- end -->")[0]
    for method in OWN_METHODS:
        for exchange in find(method).strategy.contract.exchanges:
            for item in exchange.returns:
                line = f"| `{method}` | `{item.name}`: {item.meaning} |"
                assert (line in listed) == bool(item.rows), (method, exchange.name, item.name)
    assert listed.count("\n| `") == TEXT.count("**An entry for") - _repeated()


def _repeated():
    """How often the same thing leaves in another exchange."""
    found = [
        item
        for exchange in find("fedpc").strategy.contract.exchanges
        for item in exchange.returns
        if item.rows
    ]
    return len(found) - len(set(found))


START = Sent("start", "a | b", ("*", 2))


def test_a_table_says_how_replies_are_combined():
    mean = Exchange(
        "mean",
        "an average",
        sends=(START, Sent("step", "a number")),
        returns=(Disclosure("mean", "of x", ("d", "d"), combine="mean"),),
        timing="always",
    )
    rest = Exchange(
        "rest",
        "the rest",
        sends=(START, Sent("step", "another number")),
        returns=(
            Disclosure("sum", "of y", (), combine="sum", optional=True),
            Disclosure("labels", "of z", ("n",), "index", rows="each row"),
        ),
    )
    contract = Contract("toy", (mean, rest))
    times = "\N{MULTIPLICATION SIGN}"
    assert tables.leaves(contract).splitlines()[2:] == [
        f"| `mean` | always | `mean`: of x | d {times} d | averaged, weighted by rows |",
        "| `rest` |  | `sum`: of y (may be left out) | one number | added up |",
        "|  |  | `labels`: of z. **An entry for each row** | n | kept by party |",
    ]
    assert tables.is_sent(contract).splitlines()[2:] == [
        f"| `mean` | an average | `start`: a \\| b (any {times} 2); `step`: a number |",
        "| `rest` | the rest | `start`; `step`: another number |",
    ]
