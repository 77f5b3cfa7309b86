"""The pages that are written from the code: lists of options, and what leaves a party.

``python -m flwr_causal.app.pages`` in the repository writes the keys in ``pyproject.toml`` and
docs/options.md and the options in ``party/options.py``, from the options' fields, and the tables of
docs/privacy.md and docs/privacy/, from the contracts, the rules of docs/fedpc.md, and the tables of
docs/warnings.md.
For an app directory of another method, ``python -m flwr_causal.app.pages PYPROJECT METHOD`` writes
the keys of this method.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
import types
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args, get_origin

from flwr_causal.app import methods
from flwr_causal.app.config import DataConfig, JobConfig, kebab, key_of
from flwr_causal.core.documented import meaning
from flwr_causal.core.options import option_types
from flwr_causal.core.words import markdown_table
from flwr_causal.data.check.checks import RULES as OF_CHECKS
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.rules import table_of
from flwr_causal.doubts import graphs, runs
from flwr_causal.doubts.tables import RULES as OF_TABLES
from flwr_causal.party.options import BOOL, NUMBER, TEXT
from flwr_causal.protocol import tables
from flwr_causal.protocol.setup import Setup
from flwr_causal.secure.unmasking import SECURE_SUMS
from flwr_causal.strategies import LinearOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: The files of the repository that hold lists of options.
APPS = ("pyproject.toml", "examples/three-nodes/app/pyproject.toml")
DOCS = "docs/options.md"
#: The page that shows what FedPC's "auto" stands for.
FEDPC = "docs/fedpc.md"
NAMES = "flwr_causal/party/options.py"
#: The page of warnings, and what its tables hold.
WARNINGS = "docs/warnings.md"
NOTICES = {"before": (*OF_TABLES, *OF_CHECKS, *runs.BEFORE), "after": (*graphs.RULES, *runs.AFTER)}
TABLE = "[tool.flwr.app.config]"
# A line of the table with a comment behind its value.
COMMENTED = re.compile(r"""[^#=]+=\s*("[^"]*"|'[^']*'|[^"'#]*)\s*#""")
# A page that an option's meaning names.
PAGE = re.compile(r"docs/([\w/]+)\.md")
# Between these lines of docs/options.md stands what is written here.
BEGIN, END = "<!-- options -->\n", "<!-- end -->\n"
# Between these lines of `FEDPC`.
BEGIN_RULES = "<!-- rules -->\n"
# Between these lines of `NAMES`.
BEGIN_NAMES, END_NAMES = "# <options>\n", "# </options>\n"
# On the page of warnings: which table stands between a line and the end.
MARKED_NOTICES = re.compile(r"<!-- warnings (\w+) -->\n.*?<!-- end -->\n", re.S)
# On the pages of `privacy_pages`: which table stands between a line and the end.
MARKED = re.compile(
    r"<!-- (report|agreement|rows|(leaves|sent) ([\w-]+)) -->\n.*?<!-- end -->\n", re.S
)


class Option(NamedTuple):
    """An option as lists show it.

    Parameters
    ----------
    key : str
        As it stands in a run config.
    kind : type
    default : object
    meaning : str
        From the docstring, in Markdown.
    """

    key: str
    kind: Any
    default: Any
    meaning: str

    @property
    def toml(self) -> str:
        """The default as a value of TOML; an empty text where it cannot be written as one."""
        return '""' if self.default is None else json.dumps(self.default)


def options_of(owner: type, key: Callable[[str], str] = kebab) -> list[Option]:
    """Return an option for each field of a dataclass, in their order."""
    kinds = option_types(owner)
    return [
        Option(key(field.name), kinds[field.name], field.default, meaning(owner, field.name))
        for field in fields(owner)
        if field.init
    ]


def job_options() -> list[Option]:
    """Return the keys that belong to no method."""
    return options_of(JobConfig) + options_of(DataConfig)


def common_options() -> list[Option]:
    """Return the options that methods share, without the seed, which `job_options` lists."""
    return [option for option in options_of(LinearOptions) if option.key != "seed"]


def method_options(method: str) -> list[Option]:
    """Return a method's own options, and shared ones with another default or meaning."""
    shared = options_of(LinearOptions)
    own = options_of(methods.find(method).strategy.options_type, partial(key_of, method))
    return [option for option in own if option not in shared]


def config_table(ids: Iterable[str], own: Sequence[str] = ()) -> str:
    """Return the table of an app's ``pyproject.toml`` with every key and its default.

    Parameters
    ----------
    ids : iterable of str
        The methods whose options it lists; without any, those of the job and the common ones.
    own : sequence of str, optional
        Lines that replace the lines with the same keys.
    """
    ids = list(ids)
    lines = [f"{option.key} = {option.toml}" for option in job_options()]
    lines += [f'{option.key} = ""' for option in common_options()]
    for method in sorted(ids):
        lines += [
            f"{option.key} = {option.toml}"
            for option in method_options(method)
            if option.key.startswith(f"{method}.")
        ]
    if ids and JobConfig.method not in ids:
        lines[0] = f"method = {json.dumps(ids[0])}"
    chosen = {line.partition("=")[0].strip(): line for line in own}
    return (
        "\n".join([TABLE, *(chosen.get(line.partition(" = ")[0], line) for line in lines)]) + "\n"
    )


def renew_keys(text: str, ids: Iterable[str] = methods.OWN_METHODS) -> str:
    """Return the text of a ``pyproject.toml`` with its table of keys written anew.

    Lines of the table that end with a comment are the app's own choice and stay.
    """
    before, found, rest = text.partition(TABLE + "\n")
    if not found:
        return f"{text.rstrip()}\n\n{config_table(ids)}"
    old, following, after = rest.partition("\n[")
    own = [line for line in old.splitlines() if COMMENTED.match(line)]
    return before + config_table(ids, own) + (following + after)


def renew_options(text: str) -> str:
    """Return the text of docs/options.md with its tables written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    parts = [
        _section("The job and the data", job_options()),
        _section("Options that methods share", common_options(), who=True),
        *(
            _section(f"`{method}`", method_options(method))
            for method in sorted(methods.OWN_METHODS)
        ),
    ]
    return before + BEGIN + "\n" + "\n".join(parts) + "\n" + END + after


def renew_rules(text: str) -> str:
    """Return the text of docs/fedpc.md with the table of what is trained written anew."""
    from flwr_causal.strategies.fedpc.plan import ROWS  # of one method, which may be left out

    before, _, rest = text.partition(BEGIN_RULES)
    _, _, after = rest.partition(END)
    heads = ("Tables", "`training`", "`weights`", "`learner`", "What is sent")
    rows = [
        (
            row.where,
            f"`{row.training}`",
            f"`{row.weights}`" if row.weights else "",
            row.learner,
            row.sent,
        )
        for row in ROWS
    ]
    return f"{before}{BEGIN_RULES}\n{markdown_table(heads, rows)}\n\n{END}{after}"


def renew_notices(text: str) -> str:
    """Return the text of docs/warnings.md with its tables written anew."""
    return MARKED_NOTICES.sub(
        lambda found: f"<!-- warnings {found[1]} -->\n\n{table_of(NOTICES[found[1]])}\n{END}", text
    )


def renew_names(text: str) -> str:
    """Return the text of the module that lists all options and their values, with the list anew."""
    before, _, rest = text.partition(BEGIN_NAMES)
    _, _, after = rest.partition(END_NAMES)
    lines = []
    for method in sorted(methods.OWN_METHODS):
        kinds = dict(option_types(methods.find(method).strategy.options_type))
        # A method may send its parties another rule for problems of tables than it is given.
        kinds |= {name: kind for name, kind in option_types(Handling).items() if name in kinds}
        names = sorted(f"{name}={'|'.join(_words(kind))}" for name, kind in kinds.items())
        lines += [
            f"{method}:",
            *textwrap.wrap(
                " ".join(names),
                95,
                initial_indent="    ",
                subsequent_indent="    ",
                break_on_hyphens=False,
            ),
        ]
    listed = "\n".join(lines)
    return f'{before}{BEGIN_NAMES}_TEXT = """\n{listed}\n"""\n{END_NAMES}{after}'


def _words(kind: Any) -> list[str]:
    """Return the choices of an option, and the words for kinds of values."""
    if get_origin(kind) in (Union, types.UnionType):
        return list(dict.fromkeys(word for part in get_args(kind) for word in _words(part)))
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    words = {bool: BOOL, int: NUMBER, float: NUMBER, types.NoneType: ""}
    return [word for word in (words.get(kind, TEXT),) if word]


def privacy_pages(root: Path) -> list[Path]:
    """Return the pages of a copy of the repository that say what leaves a party."""
    return [root / "docs/privacy.md", *sorted(root.glob("docs/privacy/*.md"))]


def renew_contracts(text: str) -> str:
    """Return the text of a page on privacy with its tables written anew."""
    contracts = {one: methods.find(one).strategy.contract for one in sorted(methods.OWN_METHODS)}

    def written(found: re.Match[str]) -> str:
        name, kind, method = found.groups()
        if kind is not None:
            contract = SECURE_SUMS if method == SECURE_SUMS.method else contracts[method]
            table = tables.leaves(contract) if kind == "leaves" else tables.is_sent(contract)
        elif name == "agreement":
            table = _agreement()
        else:
            write = tables.report if name == "report" else tables.row_entries
            table = write(contracts.values())
        return f"<!-- {name} -->\n\n{table}\n{END}"

    return MARKED.sub(written, text)


def _agreement() -> str:
    rows = [(f"`{one.name}`", meaning(Setup, one.name)) for one in fields(Setup)]
    return markdown_table(("Sent once to each party", "Meaning"), rows) + "\n"


def _section(title: str, options: Sequence[Option], *, who: bool = False) -> str:
    rows = []
    for option in options:
        text = PAGE.sub(r"[\1](\1.md)", option.meaning)
        if who and (owners := _owners(option.key)):
            text += f" {owners}"
        default = "" if option.default in (None, "") else f"`{option.toml}`"
        rows.append((f"`{option.key}`", values_in_words(option.kind), default, text))
    table = markdown_table(("Key", "Value", "Default", "Meaning"), rows)
    return f"## {title}\n\n{table}\n"


def _owners(key: str) -> str:
    name = key.replace("-", "_")
    owners = [
        method
        for method in sorted(methods.OWN_METHODS)
        if name in option_types(methods.find(method).strategy.options_type)
    ]
    everybody = len(owners) == len(methods.OWN_METHODS)
    return "" if everybody else f"(Of {', '.join(f'`{method}`' for method in owners)}.)"


def values_in_words(kind: Any) -> str:
    """Return the possible values of an option, in words."""
    words = {int: "whole number", float: "number", str: "text", bool: "`true`, `false`"}
    if get_origin(kind) in (Union, types.UnionType):
        shown = [values_in_words(part) for part in get_args(kind)]
        return ", ".join(dict.fromkeys(part for part in shown if part))
    if get_origin(kind) is Literal:
        return ", ".join(f"`{json.dumps(value)}`" for value in get_args(kind))
    return words.get(kind, "")


def main(arguments: list[str]) -> int:
    """Write the pages of the repository, or the keys of some methods into an app's file."""
    if arguments:
        path, ids = Path(arguments[0]), arguments[1:]
        path.write_text(renew_keys(path.read_text(), ids or methods.OWN_METHODS))
        return 0
    for name in APPS:
        Path(name).write_text(renew_keys(Path(name).read_text()))
    Path(DOCS).write_text(renew_options(Path(DOCS).read_text()))
    Path(FEDPC).write_text(renew_rules(Path(FEDPC).read_text()))
    Path(WARNINGS).write_text(renew_notices(Path(WARNINGS).read_text()))
    Path(NAMES).write_text(renew_names(Path(NAMES).read_text()))
    for page in privacy_pages(Path()):
        page.write_text(renew_contracts(page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
