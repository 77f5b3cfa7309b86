"""The dictionary as a file: what it says, what is refused, and what its digest is of."""

import tomllib

import pytest

from flwr_causal.data.dictionary.entries import KINDS, ROLES, Dictionary, dictionary_digest
from flwr_causal.errors import ConfigError

FILE = """
missing = [-999, "NA"]
[columns.sex]
kind = "category"
states = {male = ["m", 1], female = ["f", 2]}
tier = 0
[columns.grade]
kind = "ordered"
states = ["low", "high"]
[columns.weight]
kind = "number"
unit = "kg"
least = 2
most = 300.5
missing = [0]
tier = 1
[columns.visit]
kind = "date"
role = "time"
[columns.born]
kind = "date"
[columns.notes]
kind = "text"
[columns.height]
kind = "number"
use = false
"""


def read(text):
    return Dictionary.from_dict(tomllib.loads(text))


def test_a_file_says_what_columns_are():
    found = read(FILE)
    assert found.missing == ("-999", "NA")
    sex, grade, weight, visit = found.used
    assert sex.states == (("male", ("m", "1")), ("female", ("f", "2")))
    assert grade.state_names == ("low", "high")
    assert (weight.least, weight.most, weight.unit, weight.missing) == (2.0, 300.5, "kg", ("0",))
    assert weight.range_in_words == "2 to 300.5 kg"
    assert (visit.role, visit.is_variable) == ("time", False)
    assert found.of_role("time") == "visit"
    assert found.of_role("series") == ""
    assert found.tiers(["sex", "weight", "grade"]) == (("sex",), ("weight",))
    assert found.tiers(["weight"]) == (("weight",),)


def test_its_text_makes_the_same_dictionary_and_its_digest_is_of_what_it_says():
    found = read(FILE)
    assert Dictionary.from_text(found.text) == found
    commented = FILE.replace("[columns.weight]", "# a comment\n\n[columns.weight]")
    assert read(commented).digest == found.digest == dictionary_digest(found.text)
    for change in (("most = 300.5", "most = 301"), ('"low", "high"', '"high", "low"')):
        assert read(FILE.replace(*change)).digest != found.digest
    swapped = FILE.replace("[columns.sex]", "[columns.a]").replace(
        "[columns.grade]", "[columns.sex]"
    )
    assert read(swapped.replace("[columns.a]", "[columns.grade]")).digest != found.digest


def column(body, name="x"):
    return f"[columns.{name}]\n{body}\n"


WRONG = {
    'colums = 1\n[columns.x]\nkind = "number"': "there is no key 'colums'; did you mean 'columns'?",
    "missing = 3": "'missing' is 3: write a list",
    "": "it uses no column",
    "missing = ['-9', ' ']": "'missing' has an empty text: empty fields are missing in any case",
    column('kind = "text"'): "it uses no column",
    "columns.x = 3": "column 'x' is no table",
    column("unit = 'kg'"): "column 'x': 'kind' is missing; it is one of number, count",
    column("kind = 'numbr'"): "'kind' is 'numbr'; .*did you mean 'number'",
    column(
        "kind = 'number'\nunti = 'kg'"
    ): "column 'x': there is no key 'unti'; did you mean 'unit'",
    column("kind = 'number'\nstates = ['a']"): "of the kind 'number', which has no 'states'",
    column("kind = 'category'\nstates = ['a', 'a']"): "lists a state twice",
    column("kind = 'category'\nstates = 3"): "'states' is 3: write",
    column("kind = 'category'\nstates = {a = ['x'], b = ['x']}"): "'x' stands for the states",
    column("kind = 'category'\nstates = ['a']\nmissing = ['a']"): "'a' is a state and a missing",
    column("kind = 'category'\nleast = 3"): "of the kind 'category', which has no 'least'",
    column("kind = 'category'\nunit = 'kg'"): "of the kind 'category', which has no 'unit'",
    column("kind = 'ordered'"): "is ordered: list its 'states'",
    column("kind = 'number'\nleast = 3\nmost = 2"): "'least' is 3, above 'most', 2",
    column("kind = 'number'\nleast = 'a'"): "'least' is 'a': write a number",
    column("kind = 'number'\nmost = inf"): "'most' is inf: write a number",
    column("kind = 'number'\ntier = -1"): "'tier' is -1: write a whole number",
    column("kind = 'number'\nuse = 1"): "'use' is 1: write true or false",
    column("kind = 'number'\nunit = 1"): "'unit' is 1: write a text",
    column("kind = 'number'\nrole = 'row-id'"): "with the role 'row-id' use: count, category, text",
    column("kind = 'number'\nrole = 'rowid'"): "'role' is 'rowid'; .*did you mean 'row-id'",
    column("kind = 'text'\nuse = true"): "of the kind 'text', which is no variable",
    column("kind = 'id'\nrole = 'row-id'\ntier = 1"): "has a tier and is no variable",
    column("kind = 'number'") + column("kind = 'number'", '" X"'): "blanks around it",
    column("kind = 'number'") + column("kind = 'number'", "X"): "'x' and 'X' read alike",
    column("kind = 'id'\nrole = 'series'")
    + column("kind = 'id'\nrole = 'series'", "y"): "'x' and 'y' both have the role 'series'",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named(text, tmp_path):
    with pytest.raises(ConfigError, match=WRONG[text]):
        read(text)
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"The dictionary .*own\.toml: "):
        Dictionary.read(file)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.toml cannot be read: No such file"):
        Dictionary.read(tmp_path / "absent.toml")
    file = tmp_path / "own.toml"
    file.write_text("x = ")
    with pytest.raises(ConfigError, match=r"own\.toml is no TOML file"):
        Dictionary.read(file)


@pytest.mark.parametrize("text", ["", "3", "[]", "{}", '{"missing": [], "columns": 3}'])
def test_a_text_of_a_server_that_is_no_dictionary_is_refused(text):
    with pytest.raises(ConfigError):
        Dictionary.from_text(text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_used_if_it_is_a_variable_or_has_a_role(kind):
    states = 'states = ["a", "b"]' if kind == "ordered" else ""
    more = column("kind = 'number'", "other")
    one = read(column(f"kind = '{kind}'\n{states}") + more).find("x")
    assert one.use is one.is_variable
    for role, kinds in ROLES.items():
        if kind in kinds:
            other = read(column(f"kind = '{kind}'\nrole = '{role}'\n{states}") + more).find("x")
            assert other.use
            assert other.is_variable is (role in ("target", "treatment", "outcome"))
