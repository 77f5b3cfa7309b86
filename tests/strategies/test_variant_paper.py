"""``variant="paper"``: the constants by section of the papers, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
from federations import make_federation, spy

from flwr_causal import simulate
from flwr_causal.app.methods import METHODS, find
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.data.read.tables import read_table
from flwr_causal.errors import ConfigError
from flwr_causal.strategies import FedCausal, FedGES, NotearsADMM, TwoDBN, run
from flwr_causal.strategies.variant import VariantOptions

PAPERS = {
    "notears-admm": NotearsADMM,
    "2dbn": TwoDBN,
    "fedcausal": FedCausal,
    "fedges": FedGES,
}


def of(method, **options):
    return PAPERS[method](variant="paper", **options)


def values(strategy, *names):
    return tuple(getattr(strategy.options, name) for name in names)


class TestNgZhang:
    """Ng & Zhang (AISTATS 2022)."""

    @pytest.mark.parametrize(
        ("model", "penalty", "sparsity", "rounds"),
        [("linear", 0.001, 0.01, 197), ("mlp", 0.1, 0.001, 176)],
    )
    def test_appendix_b(self, model, penalty, sparsity, rounds):
        """Penalties, gamma_1 = 1.75, gamma_2 = 1.25, lambda, 200 iterations, at most 1e16."""
        method = of("notears-admm", model=model)
        assert method.options.max_rounds == 200
        assert method.options.sparsity == sparsity
        schedule = method.options._full_schedule(None, method.options.max_rounds)
        assert schedule.rounds == rounds
        for t in (0, 1, 5):
            rho_2, rho_1, own_sparsity, relaxation = schedule.at(t)
            assert rho_1 == pytest.approx(penalty * 1.75**t)
            assert rho_2 == pytest.approx(penalty * 1.25**t)
            assert (own_sparsity, relaxation) == (sparsity, 1.0)
        assert max(schedule.acyclicity_penalty) < 1.75e16
        assert schedule.patience == 0

    def test_section_5_1_bias_terms(self):
        """Each client centres its own rows: levels of parties make no difference."""
        assert of("notears-admm").options.center == "party"
        tables = make_federation(d=4, n=60, parties=3).tables
        shifted = [table + 9.0 * k for k, table in enumerate(tables)]
        one, other = (run(of("notears-admm", max_rounds=5), spy(t)) for t in (tables, shifted))
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-9)

    def test_section_6_methods(self):
        """The threshold, and no step after the last round (appendix B)."""
        method = of("notears-admm")
        assert values(method, "threshold", "refit") == (0.3, False)
        assert [exchange.name for exchange in method._exchanges] == ["round"]


class TestChenMaYue:
    """Chen, Ma & Yue (2024)."""

    def test_section_4_settings(self):
        """rho_1 = rho_2 = 1, phi_1 = 1.6, phi_2 = 1.1."""
        method = of("2dbn")
        schedule = method.options._full_schedule(None, method.options.max_rounds)
        for t in (0, 1, 5):
            rho_2, rho_1, *_ = schedule.at(t)
            assert rho_1 == pytest.approx(1.6**t)
            assert rho_2 == pytest.approx(1.1**t)
        assert schedule.patience == 0

    def test_section_7_3_and_figure_1(self):
        """lambda 0.5 performs well in all cases; tau_W = tau_A = 0.3."""
        method = of("2dbn")
        assert values(method, "sparsity", "threshold", "refit") == (0.5, 0.3, False)
        assert method.options._full_schedule(None, 9).sparsity == (0.5,) * 9
        assert method.options.limits(method.options.threshold) == (0.3, 0.3)
        assert np.all(method.options.block_sparsity(4) == 1.0)

    def test_sections_4_2_and_7_5(self):
        """lambda is the user's, for lagged weights too."""
        assert of("2dbn", sparsity=0.05).options._full_schedule(None, 3).sparsity == (0.05,) * 3
        netsim = of("2dbn", sparsity=0.05, lagged_sparsity=0.2)
        assert set(np.ravel(netsim.options.block_sparsity(4))) == {1.0, 0.2}

    def test_section_3_the_loss_of_a_party_is_over_its_own_rows(self):
        """S, M and N are divided by n_k: a party that comes twice is as two of its kind."""
        tables = [table.to_numpy() for table in make_federation(d=3, n=90, parties=2).tables]
        short = tables[1][:12]
        method = of("2dbn", sparsity=0.05, max_rounds=4, center="series")
        weights = [
            run(method, spy([read_table(party) for party in parties])).scores
            for parties in ((tables[0], short), (tables[0], [short, short]))
        ]
        np.testing.assert_allclose(*weights, atol=1e-9)


class TestYang:
    """Yang et al. (AAAI 2024)."""

    @pytest.mark.parametrize("model", ["linear", "mlp"])
    def test_table_s2(self, model):
        """alpha 0, rho 1, h_tol 1e-11, rho_max 1e16, gamma 0.25, beta 10."""
        constants = of("fedcausal", model=model).options.of_paper.constants
        assert dict(constants) == {
            "penalty": 1.0,
            "h_tolerance": 1e-11,
            "penalty_limit": 1e16,
            "progress": 0.25,
            "growth": 10.0,
        }

    @pytest.mark.parametrize(
        ("model", "options"), [("linear", {}), ("mlp", {"inner_steps": 2})], ids=["linear", "mlp"]
    )
    def test_table_s2_where_a_run_begins(self, model, options):
        """alpha_init 0 and rho_init 1, at the parties as at the server."""
        if model == "mlp":
            pytest.importorskip("torch")
        grid = spy(make_federation(d=3, n=60, parties=2).tables)
        run(of("fedcausal", model=model, max_rounds=1, **options), grid)
        asked = [dict(message.content["config"]) for message in grid.sent]
        (first,) = {(one["multiplier"], one["penalty"]) for one in asked if "penalty" in one}
        assert first == (0.0, 1.0)

    def test_algorithm_1_is_that_of_perceptrons(self):
        method = of("fedcausal")
        assert values(method, "model", "refine", "center") == ("mlp", "none", "party")
        (exchange,) = method._exchanges
        # Lines 4 to 6: first layers are broadcast and uploaded, and nothing else comes back.
        assert [item.name for item in exchange.returns] == ["shared"]
        assert exchange.returns[0].shape == ("d", "hidden", "d")

    def test_equations_4_and_5(self):
        method = of("fedcausal", model="linear")
        (exchange,) = method._exchanges
        assert [item.name for item in exchange.returns] == ["weights"]
        assert method.client_options.relative is False

    def test_the_proximal_term(self):
        """lambda_2 has no value in the paper; 0 is eq. (7) as it is written."""
        assert of("fedcausal").options.lambda_2 == 0.1
        assert of("fedcausal", proximity=0.0).options.lambda_2 == 0.0

    def test_first_layers_are_averaged(self, monkeypatch):
        """Weight decay as in NOTEARS-MLP: without it norms of first layers have no unit."""
        pytest.importorskip("torch")
        from flwr_causal.core.fedcausal import perceptrons

        seen = []
        step = perceptrons.client_step

        def watched(problem, *rest):
            seen.append((problem.decay, problem.averaging, problem.proximity))
            return step(problem, *rest)

        monkeypatch.setattr(perceptrons, "client_step", watched)
        tables = make_federation(d=3, n=60, parties=2).tables
        for variant in ("default", "paper"):
            method = FedCausal(model="mlp", variant=variant, max_rounds=1, inner_steps=2)
            run(method, spy(tables))
        assert set(seen) == {(0.01, "norms", 0.0), (0.01, "layers", 0.1)}

    def test_supplement_a_penalties_of_notears(self):
        """The paper gives no lambda: those of NOTEARS and NOTEARS-MLP, which it names."""
        assert of("fedcausal", model="linear").options.lambda_1 == 0.1
        assert of("fedcausal").options.lambda_1 == 0.01
        assert of("fedcausal", sparsity=0.3).options.lambda_1 == 0.3

    def test_the_ablation_is_of_the_paper(self):
        assert of("fedcausal", acyclic_server=False).options.acyclic_server is False


class TestTorrijos:
    """Torrijos, Gamez & Puerta (2024)."""

    def test_algorithm_1(self):
        """Section 3: BDeu; graphs are sent and nothing else, the last fused one is the answer."""
        method = of("fedges")
        assert values(method, "mode", "score", "keep") == ("fusion", "bdeu", "last")
        assert values(method, "turn", "max_parents", "max_fused_edges") == (False, None, None)
        assert not method.options.asks_for_tables
        sent = {item.name for item in method._exchanges[0].returns}
        assert sent == {"edges"}

    def test_section_4_1(self):
        """At most l = 10 edges a round; Union, C25 and C50."""
        assert of("fedges").client_options.max_edges == 10
        assert of("fedges").options.fusion == "union"
        for fusion in ("union", "c25", "c50"):
            assert of("fedges", fusion=fusion).options.fusion == fusion
        with pytest.raises(ConfigError, match=r"'fusion' is 0\.5.*'union' or 'c25' or 'c50'"):
            of("fedges", fusion=0.5)

    def test_section_4_4_the_rounds_reach_the_graph_if_they_are_not_cut(self):
        """A round adds ten edges of each party at most; on pigs C50 takes 29 to 39 rounds."""
        rng = np.random.default_rng(0)
        states = [rng.integers(0, 2, 1600)]
        for _ in range(24):
            flipped = rng.random(1600) < 0.1
            states.append(np.where(flipped, 1 - states[-1], states[-1]))
        table = pd.DataFrame(np.array(["no", "yes"])[np.stack(states, 1)])
        table.columns = [f"x{k:02d}" for k in range(25)]
        chain = np.eye(25, k=1, dtype=bool)
        tables = [table[k::4] for k in range(4)]

        def missing(**options):
            run = simulate("fedges", tables, variant="paper", fusion="c50", **options)
            found = run.graph.adjacency | run.graph.adjacency.T
            return (chain & ~found).sum(), (np.triu(found) & ~chain).sum()

        cut, _ = missing(max_rounds=1)
        assert cut > 4
        assert missing() == (0, 0)

    def test_section_3_the_start_is_fused_or_overwritten(self):
        assert of("fedges").options.chosen_start == "fuse"
        assert of("fedges", start="overwrite").options.chosen_start == "overwrite"
        with pytest.raises(ConfigError, match=r"'start' is 'driven'.*'fuse' or 'overwrite'"):
            of("fedges", start="driven")


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("notears-admm", {"sparsity": 0.1}),
        ("notears-admm", {"refit": True}),
        ("notears-admm", {"threshold": 0.2}),
        ("notears-admm", {"aggregation": "median"}),
        ("notears-admm", {"epsilon": 1.0}),
        ("notears-admm", {"knowledge": Knowledge(tiers=[["x0"], ["x1"]])}),
        ("2dbn", {"refit": True}),
        ("2dbn", {"sparsity": "bic"}),
        ("fedcausal", {"center": "global"}),
        ("fedcausal", {"refine": "evidence"}),
        ("fedcausal", {"local_graphs": True}),
        ("fedges", {"mode": "scores"}),
        ("fedges", {"max_edges": 5}),
        ("fedges", {"parameters": True}),
        ("fedges", {"score": "bic"}),
    ],
    ids=str,
)
def test_another_value_is_refused_by_name(method, options):
    (name,) = options
    with pytest.raises(ConfigError, match=rf"option '{name}' is .*variant='paper'"):
        of(method, **options)


@pytest.mark.parametrize("method", PAPERS)
def test_the_papers_values_may_be_given(method):
    """As where all options of a strategy are given again."""
    settled = of(method)
    again = PAPERS[method](**settled.options.by_name())
    assert again.options == settled.options
    again.validate()
    assert again.options == settled.options


@pytest.mark.parametrize("method", PAPERS)
def test_every_value_that_a_paper_settles_is_an_option(method):
    declared = of(method).options.of_paper
    names = {*declared.fixed, *declared.choices, *declared.defaults}
    assert names <= of(method).options.by_name().keys()


def test_no_option_but_variant_has_the_value_paper():
    for name in METHODS:
        strategy = find(name).strategy
        for option, annotation in strategy.options_type.__dataclass_fields__.items():
            named = "paper" in str(annotation.type)
            assert not named or (
                option == "variant" and issubclass(strategy.options_type, VariantOptions)
            )


def test_an_empty_text_is_left_out():
    assert of("notears-admm", knowledge="").options.knowledge is None
