"""Einsum networks against their definition, enumeration, autograd and themselves on pooled rows."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from circuit_cases import mixture
from trainings_by_sums import check_arrays, names_of, walked

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.einsum import EinsumNetwork
from flwr_causal.core.circuits.leaves.univariate import Categorical
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.errors import ConfigError, DataError

SMALL = EinsumNetwork(depth=2, replicas=3, sums=3, epochs=3, batch_size=None, precision="float64")


def discrete(num_states=(2, 3, 2, 2, 4), target=None, rows=200, seed=0, **options):
    """Rows in which the columns depend on a hidden class, and what is learned of them."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(2, size=rows)
    columns = [
        np.where(rng.random(rows) < 0.7, hidden * (count - 1), rng.integers(count, size=rows))
        for count in num_states
    ]
    names = "abcdefgh"
    domain = Domain(
        tuple(Variable(names[j], tuple(range(count))) for j, count in enumerate(num_states))
    )
    values = np.stack(columns, axis=1).astype(float)
    return (
        domain,
        values,
        replace(SMALL, target=target, **options).learn(domain, values, seed),
    )


def mixed_rows(rows=300, seed=1):
    """Numbers of various units and categories, some missing."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=rows)
    frame = pd.DataFrame(
        {
            "height": 170 + 8 * kind + rng.normal(size=rows),
            "income": 1e5 * (1 + kind) + 1e4 * rng.normal(size=rows),
            "label": np.array(["low", "middle", "high"])[kind],
            "flag": rng.random(rows) < 0.2 + 0.3 * kind,
            "small": 1e-3 * rng.normal(size=rows) * (1 + kind),
        }
    )
    domain = Domain.from_frame(frame)
    values = domain.encode(frame)
    values[rng.random(values.shape) < 0.1] = np.nan
    return domain, values


def worlds(domain):
    return np.array(list(product(*(range(count) for count in domain.num_states))), dtype=float)


@pytest.mark.parametrize("target", [None, "b"])
def test_the_probabilities_of_all_worlds_sum_to_one(target):
    domain, _, circuit = discrete(target=target)
    total = np.exp(circuit.log_likelihood(worlds(domain))).sum()
    assert abs(total - 1.0) < 1e-10


def test_worlds_sum_to_one_with_single_precision_too():
    domain, values, _ = discrete()
    circuit = replace(SMALL, precision="float32").learn(domain, values)
    assert abs(np.exp(circuit.log_likelihood(worlds(domain))).sum() - 1.0) < 1e-5


@pytest.mark.parametrize("target", [None, "b"])
def test_missing_values_are_summed_out(target):
    domain, _, circuit = discrete(target=target)
    everything = worlds(domain)
    masses = np.exp(circuit.log_likelihood(everything))
    rng = np.random.default_rng(2)
    rows = everything[rng.integers(len(everything), size=40)]
    rows[rng.random(rows.shape) < 0.5] = np.nan
    for row, density in zip(rows, circuit.log_likelihood(rows), strict=True):
        fits = (np.isnan(row) | (everything == row)).all(axis=1)
        assert np.exp(density) == pytest.approx(masses[fits].sum(), rel=1e-10)


@pytest.mark.parametrize("target", [None, "b"])
@pytest.mark.parametrize("asked", ["b", "e"])
def test_posterior_of_a_category_is_that_of_enumeration(target, asked):
    domain, _, circuit = discrete(target=target)
    everything = worlds(domain)
    masses = np.exp(circuit.log_likelihood(everything))
    rows = everything[::7].copy()
    rows[::2, 3] = np.nan
    column = domain.index(asked)
    answer = circuit.predict_proba(rows, asked)
    for row, own in zip(rows, answer, strict=True):
        known = [j for j in range(len(row)) if j != column and not np.isnan(row[j])]
        fits = (everything[:, known] == row[known]).all(axis=1)
        joint = np.array(
            [masses[fits & (everything[:, column] == s)].sum() for s in range(answer.shape[1])]
        )
        np.testing.assert_allclose(own, joint / joint.sum(), rtol=1e-9)


def trained(values, domain, **options):
    """What EM finds by sums: a network and its parameters."""
    learner = replace(SMALL, batches=1, **options)
    return learner.train([values], learner.plan(domain))


@pytest.mark.parametrize("target", [None, "label"])
def test_the_nodes_say_what_the_e_step_says(target):
    domain, values = mixed_rows()
    found = trained(values, domain, target=target)
    nodes = found.model(domain).density
    for rows in (values, values[:1]):
        counts = found.network.counts(found.parameters, rows)
        assert counts["log_densities"] == pytest.approx(nodes.log_likelihood(rows).sum(), rel=1e-9)


@pytest.mark.parametrize("target", [None, "label"])
@pytest.mark.parametrize("known", [("label",), ("height", "flag"), ("height", "small", "income")])
def test_conditionals_and_marginals_are_ratios_of_densities(target, known):
    domain, values = mixed_rows()
    circuit = replace(SMALL, target=target).learn(domain, values)
    row = values[~np.isnan(values).any(axis=1)][0]
    evidence = domain.decode(row[None]).iloc[0][list(known)].to_dict()
    rest = [name for name in domain.names if name not in known]
    given = values.copy()
    alone = np.full(len(row), np.nan)
    for name in known:
        given[:, domain.index(name)] = alone[domain.index(name)] = row[domain.index(name)]
    expected_density = circuit.log_likelihood(given) - circuit.log_likelihood(alone[None])
    conditional = circuit.conditional(evidence)
    assert sorted(conditional.names) == sorted(rest)
    np.testing.assert_allclose(
        conditional.log_likelihood(values), expected_density, rtol=1e-9, atol=1e-9
    )
    kept = values.copy()
    kept[:, [domain.index(name) for name in known]] = np.nan
    marginal = circuit.marginal(rest)
    assert marginal.names == conditional.names
    np.testing.assert_allclose(
        marginal.log_likelihood(values), circuit.log_likelihood(kept), rtol=1e-9, atol=1e-9
    )
    assert list(marginal.sample(5, seed=0).columns) == list(marginal.names)


def test_the_target_alone_is_a_circuit_too():
    domain, values = mixed_rows()
    circuit = replace(SMALL, target="label").learn(domain, values)
    row = values[~np.isnan(values).any(axis=1)][0]
    evidence = domain.decode(row[None]).iloc[0].drop("label").to_dict()
    alone = circuit.conditional(evidence)
    states = np.full((3, 5), np.nan)
    states[:, 2] = range(3)
    np.testing.assert_allclose(
        np.exp(alone.log_likelihood(states)), circuit.predict_proba(row[None], "label")[0]
    )
    with pytest.raises(ConfigError, match="every variable"):
        circuit.conditional(domain.decode(row[None]).iloc[0].to_dict())


def test_a_circuit_of_one_column():
    domain = Domain((Variable("x"),))
    values = np.random.default_rng(0).normal(3.0, 2.0, size=(500, 1))
    circuit = replace(SMALL, epochs=10).learn(domain, values)
    grid = np.linspace(-20, 30, 20001)
    density = np.exp(circuit.log_likelihood(grid[:, None]))
    assert density.sum() * (grid[1] - grid[0]) == pytest.approx(1.0, abs=1e-6)
    assert circuit.moments("x", np.full((1, 1), np.nan))[0][0] == pytest.approx(
        values.mean(), abs=1e-2
    )


def plain_log_likelihood(torch, network, parameters, values):
    """The definition, unit by unit and region by region; complete or missing rows (n, d)."""
    rows, terms = torch.tensor((values - network.shift) / network.scale).T, []
    k = parameters["means"].shape[2]
    ends = np.cumsum([np.prod(shape) for shape in network.shapes(k)])[:-1].tolist()
    parts = parameters["layers"].tensor_split(ends)
    layers = [one.view(shape) for one, shape in zip(parts, network.shapes(k), strict=True)]
    for r in range(network.regions.shape[1]):
        level = [0.0] * len(network.regions)
        for g, columns in enumerate(network.regions[:, r].tolist()):
            for column in (c for c in columns if c >= 0):
                x = rows[column]
                if network.num_states[column]:
                    own = parameters["probabilities"][network.states[0] == column]
                    own = own[x.nan_to_num(0.0).long(), r].T.log()
                else:
                    place = network.numbers.tolist().index(column)
                    variance = parameters["variances"][place, r][:, None]
                    apart = x.nan_to_num(0.0) - parameters["means"][place, r][:, None]
                    own = -0.5 * (apart**2 / variance + torch.log(2 * torch.pi * variance))
                    own = own - np.log(network.scale[column])
                level[g] = level[g] + torch.where(torch.isnan(x), 0.0, own)
        for weights in layers:
            half = len(weights)
            level = [
                torch.logsumexp(
                    weights[b, r].log()[..., None]
                    + level[b][None, :, None]
                    + level[b + half][None, None, :],
                    dim=(1, 2),
                )
                for b in range(half)
            ]
        terms.append(level[0] + parameters["root"][:, r].log()[:, None])
    joint = torch.logsumexp(torch.stack(terms), dim=0)
    if network.target is None:
        return joint[0]
    classes = rows[network.target]
    chosen = joint.gather(0, classes.nan_to_num(0.0).long()[None])[0]
    return torch.where(torch.isnan(classes), joint.logsumexp(dim=0), chosen)


@pytest.mark.slow
def test_counts_are_the_gradients_of_the_log_likelihood():
    torch = pytest.importorskip("torch", reason="its gradients are the measure")
    domain, values = mixed_rows(50)
    found = trained(values, domain, target="label")
    network, own = found.network, found.parameters
    free = {name: torch.tensor(array, requires_grad=True) for name, array in own.items()}
    densities = plain_log_likelihood(torch, network, free, values)
    np.testing.assert_allclose(
        densities.detach().numpy(), found.model(domain).density.log_likelihood(values), rtol=1e-9
    )
    densities.sum().backward()
    counts = network.counts(own, values)
    assert counts["log_densities"] == pytest.approx(float(densities.detach().sum()))
    slopes = {name: one.grad.numpy() for name, one in free.items()}
    for name in ("root", "layers"):
        np.testing.assert_allclose(counts[name], slopes[name] * own[name], rtol=1e-9, atol=1e-12)
    cuts = np.arange(1, 4) * len(network.numbers)
    present, first, _, states = np.split(counts["statistics"], cuts)
    apart = (first - present * own["means"]) / own["variances"]
    np.testing.assert_allclose(apart, slopes["means"], rtol=1e-9, atol=1e-9)
    shares = slopes["probabilities"] * own["probabilities"]
    np.testing.assert_allclose(states, shares, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_expected_counts_are_those_of_many_drawn_rows():
    domain, values = mixed_rows()
    found = trained(values, domain)
    layers = found.model(domain).density.layers
    drawn = layers.sample(np.full((20_000, 5), np.nan), np.random.default_rng(0))
    counts = found.network.counts(found.parameters, drawn)
    for name, said in found.network.expected(found.parameters).items():
        np.testing.assert_allclose(counts[name] / 20_000, said, atol=0.02)


def test_a_step_of_nothing_changes_nothing():
    domain, values = mixed_rows()
    found = trained(values, domain)
    counts = found.network.counts(found.parameters, values)
    same = found.network.stepped(found.parameters, counts, len(values), 1e-12, 0.0)
    for name, before in found.parameters.items():
        np.testing.assert_allclose(same[name], before, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("target", [None, "label"])
def test_em_never_loses_likelihood(target):
    domain, values = mixed_rows()
    options = replace(SMALL, target=target, epochs=25, batches=1, smoothing=1e-9)
    seen = options.train([values], options.plan(domain)).log_likelihoods
    assert len(seen) == 25
    assert (np.diff(seen) > -1e-9).all()
    assert seen[-1] > seen[0] + 0.5


@pytest.mark.parametrize("batches", [1, 3])
def test_parties_sums_make_the_circuit_of_the_pooled_rows(batches):
    domain, values = mixed_rows(120)
    learner = replace(SMALL, target="label", step=0.5, batches=batches)
    pooled = learner.learn_model(domain, values, seed=4).density
    order = np.argsort(values[:, 2])  # all of a class at one party, and one without rows
    parties = [values[order[:50]], values[order[50:53]], values[:0], values[order[53:]]]
    together = learner.train(parties, learner.plan(domain, seed=4)).model(domain).density
    np.testing.assert_allclose(
        together.log_likelihood(values), pooled.log_likelihood(values), rtol=1e-9
    )
    if batches == 1:
        learned = learner.learn(domain, values, seed=4)
        np.testing.assert_array_equal(learned.log_likelihood(values), pooled.log_likelihood(values))


def test_what_is_exchanged_is_finite_and_float64():
    domain, values = mixed_rows(60)
    learner = replace(SMALL, batches=2)
    plan = learner.plan(domain)
    _, seen = walked(learner.training(plan), plan, [values, values[:0]])
    for _, (reply, empty) in seen:
        assert {name: one.shape for name, one in reply.items()} == {
            name: one.shape for name, one in empty.items()
        }
    check_arrays(seen)
    assert names_of(seen) == ["scale"] + ["counts"] * 6


def test_a_column_far_from_zero_keeps_its_digits():
    domain = Domain((Variable("x"), Variable("y")))
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 2))
    near = SMALL.learn(domain, values)
    far = SMALL.learn(domain, values + 1e7)
    np.testing.assert_allclose(
        far.log_likelihood(values + 1e7), near.log_likelihood(values), rtol=1e-5, atol=1e-5
    )


def test_units_do_not_matter_but_for_the_density():
    domain, values = mixed_rows()
    scaled = values.copy()
    scaled[:, 1] *= 1e-3
    difference = SMALL.learn(domain, scaled).log_likelihood(scaled) - SMALL.learn(
        domain, values
    ).log_likelihood(values)
    expected_difference = np.where(np.isnan(values[:, 1]), 0.0, np.log(1e3))
    np.testing.assert_allclose(difference, expected_difference, atol=1e-7)


def test_draws_have_the_probabilities_of_the_circuit():
    domain, _, circuit = discrete((2, 3, 2), target="b")
    masses = np.exp(circuit.log_likelihood(worlds(domain)))
    drawn = circuit.sample(40_000, seed=3)
    codes = drawn["a"] * 6 + drawn["b"] * 2 + drawn["c"]
    shares = np.bincount(codes.astype(int), minlength=12) / 40_000
    np.testing.assert_allclose(shares, masses, atol=5 * np.sqrt(0.25 / 40_000))
    pd.testing.assert_frame_equal(drawn, circuit.sample(40_000, seed=3))


def test_draws_given_evidence_follow_the_posterior():
    _, _, circuit = discrete(target="b")
    drawn = circuit.sample(20_000, seed=0, given={"a": 1, "e": 3})
    assert (drawn["a"] == 1).all()
    assert (drawn["e"] == 3).all()
    given = np.full((1, 5), np.nan)
    given[0, [0, 4]] = 1.0, 3.0
    shares = drawn["b"].value_counts(normalize=True).reindex(range(3), fill_value=0.0)
    np.testing.assert_allclose(shares, circuit.predict_proba(given, "b")[0], atol=0.02)


def test_draws_of_numbers_have_their_moments():
    domain, values = mixed_rows()
    circuit = replace(SMALL, target="label").learn(domain, values)
    drawn = circuit.sample(40_000, seed=1, given={"label": "high"})
    given = np.full((1, 5), np.nan)
    given[0, 2] = domain.encode(pd.DataFrame({"label": ["high"]}))[0, 2]
    for name in ("height", "income", "small"):
        mean, variance = (float(part[0]) for part in circuit.moments(name, given))
        assert drawn[name].mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / 40_000))
        assert drawn[name].var() == pytest.approx(variance, rel=0.05)


@pytest.mark.slow
def test_stepwise_em_gets_further_than_as_many_passes_of_em():
    domain, values, _ = discrete((2,) * 8, rows=3000)
    whole = replace(SMALL, epochs=2, precision="float32").learn(domain, values)
    stepwise = replace(SMALL, epochs=2, precision="float32", batch_size=100, step=0.5).learn(
        domain, values
    )
    gain = stepwise.log_likelihood(values).mean() - whole.log_likelihood(values).mean()
    assert gain > 0.1


def test_variances_keep_their_bounds():
    domain = Domain((Variable("x"), Variable("y")))
    values = np.repeat(np.random.default_rng(0).normal(size=(4, 2)), 50, axis=0)
    variances = trained(values, domain, epochs=30, variances=(0.05, 0.3)).parameters["variances"]
    assert float(variances.min()) == pytest.approx(0.05)
    assert float(variances.max()) <= 0.3


def test_pixels_of_an_image_share_a_scale_and_may_be_constant():
    rng = np.random.default_rng(0)
    values = rng.random((100, 12)) * np.linspace(0.0, 2.0, 12)
    domain = Domain(tuple(Variable(f"p{j}") for j in range(12)))
    found = trained(values, domain, image="3x4")
    assert len(set(found.network.scale.tolist())) == 1
    assert np.isfinite(found.model(domain).log_likelihood(values)).all()


@pytest.mark.parametrize("target", [None, "label"])
def test_a_mixture_of_parties_circuits_is_the_weighted_sum_of_their_densities(target):
    domain, values = mixed_rows()
    learner = replace(SMALL, target=target)
    parties = [
        learner.learn(domain, part, seed) for seed, part in enumerate((values[:90], values[90:]))
    ]
    densities = [circuit.log_likelihood(values) for circuit in parties]
    expected_density = np.logaddexp(densities[0] + np.log(0.3), densities[1] + np.log(0.7))
    mixed = mixture(parties, [90, 210])
    np.testing.assert_allclose(mixed.log_likelihood(values), expected_density, rtol=1e-9)
    np.testing.assert_allclose(
        mixed.predict_proba(values, "flag").sum(axis=1), np.ones(len(values)), rtol=1e-9
    )


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_files_and_arrays_keep_every_digit(tmp_path, precision):
    domain, values = mixed_rows()
    circuit = replace(SMALL, target="label", precision=precision).learn(domain, values)
    circuit.save(tmp_path)
    for read in (Circuit.load(tmp_path), Circuit.from_arrays(domain, circuit.to_arrays())):
        np.testing.assert_array_equal(read.log_likelihood(values), circuit.log_likelihood(values))
        assert read.domain == domain


def test_a_row_that_one_term_excludes_is_filled_by_the_other():
    domain, values = mixed_rows(120)
    circuit = replace(SMALL, target="label").learn(domain, values)
    leaf, one = circuit.root, circuit.conditional({"label": domain.variables[2].states[0]}).root
    certain = [Product([one, Categorical(2, np.eye(3)[0])]), leaf]
    circuit = Circuit(domain, Sum(certain, [0.9, 0.1]))
    row = np.full((1, 5), np.nan)
    row[0, 2] = 1.0
    alone = Circuit(domain, leaf)
    pd.testing.assert_frame_equal(circuit.mpe(row), alone.mpe(row))
    assert (circuit.sample(20, seed=0, given={"label": "middle"})["label"] == "middle").all()


def test_a_network_moves_to_other_columns():
    domain, values = mixed_rows(120)
    circuit = replace(SMALL, target="label").learn(domain, values)
    order = [3, 0, 4, 2, 1]
    moved = Domain(tuple(domain.variables[j] for j in order))
    np.testing.assert_allclose(
        Circuit(moved, circuit.root_in(moved)).log_likelihood(values[:, order]),
        circuit.log_likelihood(values),
    )


def test_a_network_is_a_factor_and_a_term():
    domain, values = mixed_rows(120)
    parts = [SMALL.learn(domain, part) for part in (values[:60], values[60:])]
    one, other = (part.root for part in parts)
    mixture = Circuit(domain, Sum([one, other], [0.25, 0.75]))
    densities = [Circuit(domain, node).log_likelihood(values) for node in (one, other)]
    np.testing.assert_allclose(
        mixture.log_likelihood(values),
        np.logaddexp(densities[0] + np.log(0.25), densities[1] + np.log(0.75)),
    )
    parts = [
        parts[0].marginal(["height", "label", "flag"]),
        parts[1].marginal(["income", "small"]),
    ]
    product_of = Circuit(domain, Product([part.root for part in parts])).log_likelihood(values)
    np.testing.assert_allclose(product_of, sum(part.log_likelihood(values) for part in parts))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sums": 0}, "'sums' is 0"),
        ({"step": 0.0}, "step"),
        ({"smoothing": 0.0}, "smoothing"),
        ({"variances": (0.2, 0.1)}, "variances"),
        ({"precision": "float16"}, "precision"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        EinsumNetwork(**options)


def test_data_that_cannot_be_learned_from_are_refused():
    domain, values = mixed_rows()
    with pytest.raises(ConfigError, match="holds numbers"):
        replace(SMALL, target="height").learn(domain, values)
    with pytest.raises(DataError, match="no row holds a value"):
        SMALL.learn(domain, values[:0])
    values[:, 0] = np.nan
    with pytest.raises(DataError, match="height"):
        SMALL.learn(domain, values)


def test_few_rows_still_make_several_steps():
    domain, values, _ = discrete((2,) * 8, rows=200)
    stepwise = replace(SMALL, epochs=1, batch_size=1000, step=0.5)
    whole = replace(SMALL, epochs=1)
    few = [
        learner.learn(domain, values).log_likelihood(values).mean() for learner in (stepwise, whole)
    ]
    assert few[0] > few[1] + 0.4


def test_rows_without_any_value_have_the_density_one():
    domain, values = mixed_rows()
    circuit = SMALL.learn(domain, values)
    np.testing.assert_allclose(circuit.log_likelihood(np.full((2, 5), np.nan)), 0.0, atol=1e-12)
