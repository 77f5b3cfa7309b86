"""Tables as hospitals have them: one message says all, and the options that it names are enough."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from flwr_causal.command_line import app
from flwr_causal.errors import DataError
from flwr_causal.simulations import simulate

METHODS = ["moments", "lingam", "notears-admm", "fedcausal", "fedges", "fedpc"]
QUICK = {
    "notears-admm": {"max_rounds": 6},
    "fedcausal": {"max_rounds": 6, "model": "linear"},
}
#: What moments is to be given; the others' are checked by their runs.
ALL = {
    "unshared_columns": "keep",
    "missing_values": "em",
    "text_columns": "keep",
    "constant_columns": "drop",
    "duplicate_columns": "drop",
    "exclude": "patient,admitted",
}


def hospital(rows, seed, first_patient):
    """Numbers, a flag, a category, ids, dates, constants, a copy, and 10 % missing cells."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 8, rows)
    ward = np.where(age + rng.normal(0, 5, rows) > 60, "inner", "surgery")
    dose = 0.1 * age + (ward == "inner") + rng.normal(0, 1, rows)
    frame = pd.DataFrame(
        {
            "age": age,
            "smoker": (rng.random(rows) < 0.3).astype(int),
            "ward": ward,
            "dose": dose,
            "risk": 0.3 * dose + rng.normal(0, 0.5, rows),
            "country": "CH",
        }
    )
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    days = pd.to_timedelta(rng.integers(0, 365, rows), unit="D")
    return frame.assign(
        patient=[f"P{first_patient + row}" for row in range(rows)],
        admitted=pd.Timestamp("2024-01-01") + days,
        version=2,
        again=frame["risk"],
        lab=rng.normal(0, 1, rows),
    )


def hospitals():
    one, two, three = hospital(300, 0, 1000), hospital(250, 1, 2000), hospital(280, 2, 3000)
    return [one, two.drop(columns="lab"), three]


def refusal(method, parties, **options):
    with pytest.raises(DataError) as caught:
        simulate(method, parties, strict=True, **options)
    return caught.value


def as_text(settings):
    return "Set " + ", ".join(f"{option}={value!r}" for option, value in settings.items())


@pytest.mark.few(4)
@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_the_options_of_the_one_message_make_the_run_go(tmp_path, method, files):
    parties = hospitals()
    if files:
        for k, one in enumerate(parties):
            one.to_csv(tmp_path / f"{k}.csv", index=False)
        parties = [tmp_path / f"{k}.csv" for k in range(3)]
    error = refusal(method, parties)
    assert str(error).splitlines()[-1] == as_text(error.settings)
    run = simulate(method, parties, **error.settings, **QUICK.get(method, {}))
    names = run.model.names if run.graph is None else run.graph.names
    assert {"age", "smoker", "dose", "risk"} <= set(names)
    assert not {"patient", "admitted"} & set(names)


def test_moments_keeps_categories_incomplete_rows_and_columns_that_one_party_lacks():
    error = refusal("moments", hospitals())
    assert error.settings == ALL
    run = simulate("moments", hospitals(), **error.settings)
    assert run.graph.names == ("age", "smoker", "ward", "dose", "risk", "lab")
    assert run.num_rows == 830
    effect = run.model.total_effect("dose", "risk", state=1.0, reference=0.0)
    effects = effect if isinstance(effect, list) else [effect]
    assert any(one.interval[0] < 0.3 < one.interval[1] for one in effects)


def test_options_that_were_given_stay_and_those_that_do_not_fit_them_are_not_named():
    error = refusal("moments", hospitals(), exclude="lab", standardize=True)
    # Columns of categories are not standardised.
    assert error.settings["text_columns"] == "drop"
    assert error.settings["exclude"] == "lab,patient,admitted"
    assert "unshared_columns" not in error.settings
    assert simulate("moments", hospitals(), standardize=True, **error.settings).graph is not None
    error = refusal("moments", hospitals(), aggregation="median")
    assert error.settings["missing_values"] == error.settings["unshared_columns"] == "drop"


def test_what_only_another_table_mends_is_said_and_columns_are_not_lost_for_it():
    parties = hospitals()
    parties[0]["age"] = parties[0]["age"].map("{:.1f}".format).replace("nan", None)
    parties[0].loc[3, "age"] = "61,5"
    parties[2] = parties[2].rename(columns={"dose": "Dose"})
    parties[1].loc[4, ["risk", "again"]] = np.inf
    error = refusal("moments", parties)
    assert str(error).splitlines()[-1] == (
        as_text(error.settings) + "; what these do not mend only other tables do"
    )
    assert "age" not in error.settings["exclude"]
    # Rows with infinite values cannot be kept.
    assert error.settings["missing_values"] == "drop"
    parties[0] = parties[0].drop(index=3)
    parties[0]["age"] = parties[0]["age"].astype(float)
    parties[2] = parties[2].rename(columns={"Dose": "dose"})
    assert "dose" in simulate("moments", parties, **error.settings).graph.names


def test_without_a_remedy_no_option_is_named():
    parties = [one[["age", "dose"]].fillna(0.0) for one in hospitals()]
    parties[1] = parties[1].iloc[:, [0, 0, 1]]
    error = refusal("moments", parties)
    assert error.settings == {}
    assert "\nSet" not in str(error)


def test_the_command_line_says_them_as_they_are_typed(tmp_path):
    files = []
    for k, one in enumerate(hospitals()):
        files.append(str(tmp_path / f"{k}.csv"))
        one.to_csv(files[-1], index=False)
    shown = CliRunner().invoke(app, ["run", "moments", *files, "-o", "strict=true"]).output
    typed = " ".join(f"-o {option}={value}" for option, value in ALL.items())
    assert shown.rstrip().endswith(f"Options are given as {typed}")
    again = CliRunner().invoke(app, ["run", "moments", *files, *typed.split()])
    assert again.exit_code == 0, again.output
    assert "6 variables" in again.output
