"""What models can answer, say that they cannot, and refuse: the three agree for all kinds."""

import copy
import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from method_modes import CATEGORIES, CLASSES, MIXED, MIXED_SERIES, NUMBERS, SERIES

from flwr_causal import Knowledge, simulate
from flwr_causal.core.answers import QUESTIONS, answers
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.interoperability import to_pgmpy

ORDERED = Knowledge(tiers=[["a"], ["b"], ["c"], ["d"]])
#: Kind of model -> the run that gives it, and what its models cannot answer.
KINDS = {
    "numbers": (
        ("moments", NUMBERS, {}),
        "contrast contrasts response predict_proba conditional coefficients",
    ),
    "series": (
        ("moments", SERIES, {"order": 1}),
        "contrast contrasts covariance predict_proba conditional coefficients",
    ),
    "blocks": (
        ("moments", MIXED, {"text_columns": "keep", "knowledge": ORDERED}),
        "contrast response mean covariance residuals",
    ),
    "series of blocks": (
        ("moments", MIXED_SERIES, {"text_columns": "keep", "order": 1}),
        "contrast response mean covariance residuals sample do conditional "
        "log_likelihood coefficients",
    ),
    "hidden causes": (
        ("moments", NUMBERS, {"hidden_causes": True}),
        "contrast contrasts response predict_proba conditional coefficients possible_effects do "
        "sample log_likelihood predict mean covariance residuals fit_check edge_tests",
    ),
    "hidden causes of blocks": (
        ("moments", MIXED, {"hidden_causes": True, "text_columns": "keep"}),
        "contrast response predict_proba conditional coefficients possible_effects do sample "
        "log_likelihood predict mean covariance residuals fit_check edge_tests",
    ),
    "categories": (
        ("fedges", CATEGORIES, {"mode": "exact", "knowledge": ORDERED}),
        "contrasts response mean covariance residuals coefficients disagreement",
    ),
    "circuit": (
        ("fedpc", CLASSES, {"minimum_count": 1}),
        "total_effect possible_effects contrast contrasts do response mean covariance residuals "
        "coefficients fit_check edge_tests disagreement",
    ),
}


@cache
def run_of(kind):
    (method, parties, options), _ = KINDS[kind]
    return simulate(method, parties, seed=0, **options)


@cache
def rows_of(kind):
    parties = KINDS[kind][0][1]
    return (
        parties[0]
        if isinstance(parties[0], pd.DataFrame)
        else pd.DataFrame(parties[0]).rename(columns=lambda k: f"x{k}")
    )


def ask(model, question, rows):
    """Ask with the arguments that the question needs."""
    first, second = model.names[:2]
    value = rows[first].iloc[0]
    state = rows[second].iloc[0]
    given = {
        **dict.fromkeys(("total_effect", "possible_effects", "contrasts"), (first, second)),
        **dict.fromkeys(("do", "conditional", "response"), ({first: value},)),
        **dict.fromkeys(("predict", "predict_proba"), (rows, model.names[-1])),
        **dict.fromkeys(("log_likelihood", "residuals"), (rows,)),
        **{"coefficients": (first,), "sample": (3, 0), "contrast": (first, second, state)},
    }
    options = {"state": value, "reference": value} if question == "contrast" else {}
    return getattr(model, question)(*given.get(question, ()), **options)


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_refuses_what_it_says_that_it_cannot(kind):
    model, rows = run_of(kind).model, rows_of(kind)
    cannot = set(KINDS[kind][1].split())
    assert cannot <= set(QUESTIONS)
    for question in QUESTIONS:
        assert model.can(question) is (question not in cannot) is answers(model, question)
        reason = model.why_not(question)
        assert bool(reason) is (question in cannot)
        if question in cannot:
            with pytest.raises(ConfigError) as refused:
                ask(model, question, rows)
            assert str(refused.value) == reason
            assert hasattr(type(model), question) or not hasattr(model, question)
        elif not kind.startswith("hidden") or question == "disagreement":  # effects may be open
            ask(model, question, rows)
    with pytest.raises(ConfigError, match="is no question: give one of total_effect"):
        model.can("total-effect")
    with pytest.raises(AttributeError, match="no_such"):
        model.no_such  # noqa: B018


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_and_a_file_answer_with_the_same_bits(kind, tmp_path):
    model, rows = run_of(kind).model, rows_of(kind)
    model.save(tmp_path / "model.json")
    loaded = type(model).load(tmp_path / "model.json")
    copies = []
    if kind != "circuit":  # its nodes are found by their identity
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for again in (loaded, *copies):
        assert repr(again) == repr(model)
        for question in QUESTIONS:
            if not again.can(question):
                # Files hold no moments of each party.
                assert not model.can(question) or question == "disagreement"
                continue
            if kind.startswith("hidden") and question != "disagreement":
                continue  # effects may be open, see above
            one, other = (ask(own, question, rows) for own in (model, again))
            if question in ("do", "conditional"):
                one, other = (own.sample(4, 1) for own in (one, other))
            if isinstance(one, pd.DataFrame):
                pd.testing.assert_frame_equal(one, other, check_exact=True)
            elif question == "fit_check":
                assert str(one) == str(other)
            elif isinstance(one, list) and isinstance(one[0], pd.DataFrame):
                for left, right in zip(one, other, strict=True):
                    pd.testing.assert_frame_equal(left, right, check_exact=True)
            else:
                np.testing.assert_equal(one, other)


def test_what_a_model_lacks_after_an_intervention_it_says():
    blocks, numbers = run_of("blocks").model, run_of("numbers").model
    name, value = blocks.names[0], 0.5
    for question in ("total_effect", "possible_effects", "contrasts", "predict", "log_likelihood"):
        assert "after an intervention there is not" in blocks.do({name: value}).why_not(question)
        assert "given values" in blocks.conditional({name: value}).why_not(question)
    assert blocks.do({name: value}).can("conditional")
    assert not blocks.conditional({name: value}).can("do")
    set_to = numbers.do({name: value})
    assert not set_to.can("total_effect")
    assert "zero noise" in set_to.why_not("log_likelihood")
    assert all(set_to.can(one) for one in ("mean", "covariance", "sample", "predict", "do"))
    assert not replace(numbers, party_moments=None).can("disagreement")
    drifting = replace(run_of("series").model, lagged=np.eye(3)[None], sample_moments=None)
    assert "not stationary" in drifting.why_not("sample")
    assert drifting.can("predict")
    network = run_of("categories").model
    seen = network.conditional({network.names[-1]: network.states[-1][0]})
    assert seen.conditioned is not seen.can("do")
    assert "no numbers of rows" in replace(network, sample_sizes=None).why_not("contrast")


@pytest.mark.parametrize("kind", ["series", "hidden causes"])
def test_models_that_pgmpy_has_not_are_refused(kind):
    with pytest.raises(DataError, match="pgmpy has no such networks"):
        to_pgmpy(run_of(kind).model)


@pytest.mark.parametrize("kind", ["numbers", "blocks"])
def test_rows_without_lags_have_no_effects_over_time(kind):
    model = run_of(kind).model
    with pytest.raises(ConfigError, match="lag is 1, and the model has no lags: leave it out"):
        model.total_effect(*model.names[:2], lag=1)
    with pytest.raises(ConfigError, match="name the variable to predict: one of a, b, c"):
        model.predict(rows_of(kind))
