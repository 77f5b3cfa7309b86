"""Circuits of several parties composed to one, without any party's circuit leaving it.

A party's circuits are known by their outputs: it answers a row with one log density a circuit. The
composed circuit is a small structure of sums and products over outputs. It is evaluated from what
the parties answer (`Composition.log_likelihood`), or, where parties hand their circuits over, as
one circuit into which these are grafted (`Composition.circuit`): both are the same distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.nodes import Node, Product, Sum, ascending, descending
from flwr_causal.core.circuits.parameters import scope_of
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from flwr_causal.core.circuits.domain import Domain

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Output(Node):
    """A circuit that lives with a party.

    Parameters
    ----------
    scope : sequence of int
        Its columns in the joint domain.
    party : int
    index : int
        Which of the party's outputs it is.
    rows : int
        That it was trained on, above 0.
    """

    scope: tuple[int, ...]
    party: int
    index: int
    rows: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", scope_of(self.scope))
        if self.rows < 1:
            raise ConfigError(
                f"output {self.index} of party {self.party} was trained on {self.rows} rows: "
                "take fewer clusters"
            )


@dataclass(frozen=True, eq=False)
class Composition:
    """A circuit over the outputs of parties.

    Parameters
    ----------
    domain : Domain
        The joint one.
    root : Node
        Its leaves are outputs.
    num_outputs : tuple of int
        Of each party.

    Raises
    ------
    ConfigError
        If its leaves are not all of the parties' outputs, each once (as a node; it may be the child
        of several).
    """

    domain: Domain
    root: Node
    num_outputs: tuple[int, ...]

    def __post_init__(self) -> None:
        found = [node for node in ascending(self.root) if not isinstance(node, Sum | Product)]
        expected = {(p, k) for p, count in enumerate(self.num_outputs) for k in range(count)}
        if not all(isinstance(node, Output) for node in found):
            raise ConfigError("the leaves of a composition are outputs of parties")
        places = [(node.party, node.index) for node in found if isinstance(node, Output)]
        if set(places) != expected or len(places) > len(expected):
            raise ConfigError(
                f"a composition has each output of the parties once, {len(expected)} in all, got "
                f"{len(places)}: {sorted(places)}"
            )

    def log_likelihood(self, outputs: Sequence[FloatArray]) -> FloatArray:
        """Log density of each row from what the parties answer.

        Parameters
        ----------
        outputs : sequence of ndarray, shape (..., number of outputs)
            Of each party, the log densities of its circuits for what is known of the row: of other
            columns it integrates or sums. Rows are aligned by the caller. Further axes in front,
            such as one for the states of a class, are kept.

        Returns
        -------
        ndarray of float64, shape (...)
        """
        return self._upward(outputs, maximise=False)[id(self.root)]

    def posterior(self, outputs: Sequence[FloatArray]) -> FloatArray:
        """Probability of each state of a class from what the parties answer for each.

        Parameters
        ----------
        outputs : sequence of ndarray, shape (states, n, number of outputs)
            Of each party, once for every state. A party that does not hold the class may answer
            with shape (1, n, number of outputs).

        Returns
        -------
        ndarray of float64, shape (n, states)
            What is known of a row may be impossible under the circuit: then it says nothing, and
            the states are equally probable.
        """
        states = max(len(one) for one in outputs)
        joint = self.log_likelihood(
            [np.broadcast_to(one, (states, *np.shape(one)[1:])) for one in outputs]
        )
        shares = np.exp(_relative(joint))
        return np.asarray((shares / shares.sum(axis=0)).T)

    def flows(self, outputs: Sequence[FloatArray]) -> list[FloatArray]:
        """Probability that each output made its part of the row, given what is known of the row.

        It weighs what the parties say of their columns: the mean of a number is the sum over the
        outputs that hold it of flow times their means, and so are its square's mean and the
        probabilities of a category (see `party_answers`).

        Parameters
        ----------
        outputs : sequence of ndarray, shape (n, number of outputs)
            As in `log_likelihood`.

        Returns
        -------
        list of ndarray of float64, shape (n, number of outputs)
            Of each party. Over the outputs of a group of columns, of all its holders, they sum to
            1; of a row that is impossible under the circuit they are 0.
        """
        values = self._upward(outputs, maximise=False)
        arriving = {id(node): np.zeros(len(outputs[0])) for node in ascending(self.root)}
        arriving[id(self.root)] = np.isfinite(values[id(self.root)]).astype(np.float64)
        for node in descending(self.root):
            flow = arriving[id(node)]
            if isinstance(node, Sum):
                shares = np.exp(_relative(_terms(node, values)))
                shares *= flow / shares.sum(axis=0)
                for child, share in zip(node.children, shares, strict=True):
                    arriving[id(child)] += share
            else:
                for child in node.children:
                    arriving[id(child)] += flow
        return self._by_party(arriving, outputs)

    def drawn(self, outputs: Sequence[FloatArray], rng: np.random.Generator) -> list[BoolArray]:
        """Draw which outputs make each row, given what is known of it.

        Parameters
        ----------
        outputs : sequence of ndarray, shape (n, number of outputs)
            As in `log_likelihood`; zeros where nothing is known.
        rng : Generator

        Returns
        -------
        list of ndarray of bool, shape (n, number of outputs)
            Of each party. Each chosen output fills its columns by a draw of its own: together a
            draw from the composed circuit.

        Raises
        ------
        DataError
            If what is known of a row is impossible.
        """

        def choose(terms: FloatArray) -> IntArray:
            shares = np.cumsum(np.exp(_relative(terms)), axis=0)
            passed = rng.random(terms.shape[1]) * shares[-1] >= shares
            return np.asarray(np.minimum(passed.sum(axis=0), len(terms) - 1))

        return self._chosen(outputs, self._upward(outputs, maximise=False), choose)

    def most_probable(self, outputs: Sequence[FloatArray]) -> list[BoolArray]:
        """Return which outputs make the most probable explanation of each row, by max-product.

        Parameters
        ----------
        outputs : sequence of ndarray, shape (n, number of outputs)
            Of each party, the log densities of its circuits' own best explanations.

        Returns
        -------
        list of ndarray of bool, shape (n, number of outputs)
            As in `drawn`; each chosen output fills its columns by its own explanation.
        """
        return self._chosen(
            outputs, self._upward(outputs, maximise=True), lambda terms: terms.argmax(axis=0)
        )

    def circuit(self, circuits: Sequence[Sequence[Circuit]]) -> Circuit:
        """Return the composed circuit with the parties' circuits in it.

        Parameters
        ----------
        circuits : sequence of sequence of Circuit
            Of each party, one an output, over its own domain: columns are found by name.

        Raises
        ------
        ConfigError
            If a circuit's variables are not those of its output.
        """
        made: dict[int, Node] = {}
        for node in ascending(self.root):
            if isinstance(node, Output):
                grafted = circuits[node.party][node.index].root_in(self.domain)
                if grafted.scope != node.scope:
                    raise ConfigError(
                        f"circuit {node.index} of party {node.party} is over the columns "
                        f"{grafted.scope}, its place is over {node.scope}"
                    )
                made[id(node)] = grafted
                continue
            children = [made[id(child)] for child in node.children]
            made[id(node)] = (
                Sum(children, node.weights) if isinstance(node, Sum) else Product(children)
            )
        return Circuit(self.domain, made[id(self.root)])

    def _upward(self, outputs: Sequence[FloatArray], maximise: bool) -> dict[int, FloatArray]:
        """Return the log density of each node, by its identity; or its best explanation's."""
        self._check_outputs(outputs)
        values: dict[int, FloatArray] = {}
        for node in ascending(self.root):
            if isinstance(node, Output):
                value = np.asarray(outputs[node.party][..., node.index], dtype=np.float64)
            elif isinstance(node, Sum):
                terms = _terms(node, values)
                value = terms.max(axis=0) if maximise else np.logaddexp.reduce(terms, axis=0)
            else:
                value = np.sum([values[id(child)] for child in node.children], axis=0)
            values[id(node)] = value
        return values

    def _chosen(
        self,
        outputs: Sequence[FloatArray],
        values: Mapping[int, FloatArray],
        choose: Callable[[FloatArray], IntArray],
    ) -> list[BoolArray]:
        """Send each row down from the root: one child of a sum, all children of a product."""
        impossible = np.flatnonzero(~np.isfinite(values[id(self.root)]))
        if len(impossible):
            raise DataError(
                f"row {impossible[0]}: what is known of it is impossible under the circuit, so the "
                "rest of it cannot be filled; leave the row out, or the value that was never seen"
            )
        arriving = {id(node): np.zeros(len(outputs[0]), bool) for node in ascending(self.root)}
        arriving[id(self.root)][:] = True
        for node in descending(self.root):
            rows = np.flatnonzero(arriving[id(node)])
            if isinstance(node, Sum) and len(rows):
                taken = choose(_terms(node, values)[:, rows])
                for k, child in enumerate(node.children):
                    arriving[id(child)][rows[taken == k]] = True
            else:
                for child in node.children:
                    arriving[id(child)][rows] = True
        return self._by_party(arriving, outputs)

    def _by_party(
        self, arriving: Mapping[int, NDArray[Any]], outputs: Sequence[FloatArray]
    ) -> list[NDArray[Any]]:
        """Return what arrives at the outputs of each party, (n, number of outputs) each."""
        kind = arriving[id(self.root)].dtype
        result = [np.zeros(np.shape(one), dtype=kind) for one in outputs]
        for node in ascending(self.root):
            if isinstance(node, Output):
                result[node.party][:, node.index] = arriving[id(node)]
        return result

    def _check_outputs(self, outputs: Sequence[FloatArray]) -> None:
        given = tuple(np.shape(one)[-1] for one in outputs)
        if given != self.num_outputs:
            raise DataError(
                f"the parties answer with {given} numbers a row, expected {self.num_outputs}"
            )
        shapes = {np.shape(one)[:-1] for one in outputs}
        if len(shapes) > 1:
            raise DataError(f"the parties answer for different numbers of rows: {shapes}")


def _terms(node: Sum, values: Mapping[int, FloatArray]) -> FloatArray:
    """Return the log densities of a sum's children with their weights, (children, ...)."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(node.weights)
    return np.stack(
        [values[id(child)] + one for child, one in zip(node.children, log_weights, strict=True)]
    )


def _relative(terms: FloatArray) -> FloatArray:
    """Return the terms less the largest of each column; zeros where all are minus infinity."""
    peaks = terms.max(axis=0)
    return np.where(np.isfinite(peaks), terms - np.where(np.isfinite(peaks), peaks, 0.0), 0.0)


def mixture(children: Iterable[Node], weights: Iterable[float]) -> Node:
    """Return a sum, or the child itself if it is the only one; weights in proportion."""
    nodes, shares = list(children), np.array(list(weights), dtype=np.float64)
    return nodes[0] if len(nodes) == 1 else Sum(nodes, shares / shares.sum())


def joined(children: Iterable[Node]) -> Node:
    """Return a product, or the child itself if it is the only one."""
    nodes = list(children)
    return nodes[0] if len(nodes) == 1 else Product(nodes)


def trained_rows(node: Node) -> int:
    """Sum the rows of the outputs below a node, each as often as a path leads to it."""
    if isinstance(node, Output):
        return node.rows
    return sum(trained_rows(child) for child in node.children)
