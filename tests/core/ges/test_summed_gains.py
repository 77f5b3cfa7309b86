"""Sums of the parties' likelihoods: one penalty, whatever the number of parties."""

import numpy as np
import pytest
from category_federations import PenalisedGains, coded, make_tables
from reference_search import log_regret

from flwr_causal.core.discrete.scores import KINDS, TableGains, terms_of
from flwr_causal.core.ges.greedy_search import prepared_search
from flwr_causal.core.ges.speculative_search import NOISE, SummedGains, answer

D = 6


def searched(tables, score, **options):
    """The gains that a federation has learned after one exchange, and the families' sizes."""
    parts = coded(tables)
    n = sum(part.num_rows for part in parts)
    terms = terms_of(KINDS[score], 1.0, n)
    source = SummedGains(parts[0].cardinalities, terms, len(parts), **options)
    for _ in range(2):
        search = prepared_search(source, parts[0].names, start=np.zeros((D, D), dtype=bool))
        source.start_again()
        search.families = source.families
        search.run()
        source.take_back(search.families)
        questions = source.questions()
        own = [TableGains(part) for part in parts]
        source.learn_sums(
            sum(answer(questions, one.likelihoods(), D) for one in own),
            sum(answer(questions, one.means(), D) for one in own),
        )
    return source, parts


def known_gains(source, parts):
    """Each known gain: y, S, x, the gain."""
    families = source.families
    for row in range(int(families.used[0])):
        members = families.members[row, : families.sizes[row]].tolist()
        for x in np.flatnonzero(~np.isnan(families.gains[row])).tolist():
            yield row, int(families.owners[row]), members, x, families.gains[row, x]


@pytest.mark.parametrize("score", ["bic", "qnml"])
def test_one_party_has_the_gains_of_its_own_score(score):
    source, parts = searched(make_tables(d=D, n=900, parties=1, seed=2)[0], score)
    own = TableGains(parts[0], score)
    found = list(known_gains(source, parts))
    assert len(found) > 30
    for _, y, members, x, gain in found:
        expected = own.family_score(y, [*members, x]) - own.family_score(y, members)
        assert gain == pytest.approx(expected, abs=0.3)  # the approximation of the regret
        if score == "bic":
            assert gain == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("score", ["bic", "qnml"])
@pytest.mark.parametrize("copies", [2, 7])
def test_the_penalty_is_paid_once(score, copies):
    """Parties with the same rows: the likelihood is that of all rows, and so is the penalty."""
    table = make_tables(d=D, n=400, parties=1, seed=4)[0][0]
    source, parts = searched([table] * copies, score)
    n = copies * len(table)
    likelihood, means = TableGains(parts[0]).likelihoods(), TableGains(parts[0]).means()
    cards = parts[0].cardinalities.astype(float)
    number = 0
    for row, y, members, x, gain in known_gains(source, parts):
        wanted = np.zeros((1, D), dtype=bool)
        wanted[0, x] = True
        values = []
        for own in (likelihood, means):
            families = source.families._replace(gains=np.full_like(source.families.gains, np.nan))
            own.fill(families, np.array([row]), wanted)
            values.append(families.gains[row, x])
        q, r, s = cards[members].prod(), cards[x], cards[y]
        penalty = 0.5 * np.log(n) * q * (r - 1) * (s - 1)
        if score == "qnml":
            penalty = log_regret(n, q * r * s) - log_regret(n, q * r)
            penalty += log_regret(n, q) - log_regret(n, q * s)
        excess = (copies - 1) * values[1]
        expected = copies * values[0] - excess - max(penalty, NOISE * np.sqrt(excess))
        assert gain == pytest.approx(expected, abs=1e-6)
        number += 1
    assert number > 30


def test_the_margin_is_a_choice():
    tables = make_tables(d=D, n=900, parties=3, seed=6)[0]
    parts = coded(tables)
    for noise in (0.5, 5.0):
        source, _ = searched(tables, "qnml", noise=noise)
        slow = PenalisedGains(parts, "qnml", noise=noise)
        for row, _, _, x, gain in known_gains(source, parts):
            wanted = np.zeros((1, D), dtype=bool)
            wanted[0, x] = True
            expected = slow.total(source.families, np.array([row]), wanted)[0, x]
            assert gain == pytest.approx(expected, abs=1e-6)


def test_independent_columns_gain_nothing_however_many_parties():
    """The sum of the likelihoods alone would overfit: K parties gain K times what one gains."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (4000, D))
    names = [f"x{k}" for k in range(D)]
    import pandas as pd

    for num_parties in (1, 10, 40):
        tables = [pd.DataFrame(part, columns=names) for part in np.split(rows, num_parties)]
        source, parts = searched(tables, "qnml")
        assert all(gain < 0 for *_, gain in known_gains(source, parts))
