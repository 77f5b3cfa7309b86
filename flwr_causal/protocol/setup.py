"""What all parties have agreed on before training, as it travels to each of them once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord

from flwr_causal.contract.report import States, pack_states, unpack_states
from flwr_causal.contract.when import COLUMNS_DIFFER
from flwr_causal.core.options import to_plain
from flwr_causal.data.check.handling import Handling
from flwr_causal.protocol import setup_form
from flwr_causal.protocol.options import REPORT, PartyOptions, SmallCounts, received
from flwr_causal.protocol.records import behind
from flwr_causal.protocol.terms import RunTerms
from flwr_causal.secure.purposes import purpose_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from flwr_causal.protocol.records import Value

PREFIX = "setup-"
#: The name of the digest in a node's record of the setup.
DIGEST = "digest"
_HANDLING, _OPTION = "policy-", "option-"
_NUMBERS = (PREFIX + "mean", PREFIX + "variance")
KEYS = PREFIX + "keys"
TERMS = PREFIX + "terms"
SIGNATURE = PREFIX + "signature"
KEY_NAMES, KEY_SIGNATURES = PREFIX + "key-names", PREFIX + "key-signatures"
LEAST = PREFIX + "least-parties"


@dataclass(frozen=True)
class Setup:
    """The answer to the schema exchange: everything a party needs to prepare its own rows.

    Parameters
    ----------
    names : tuple of str
        Agreed columns, in the order of the first party.
    num_rows : int
        Rows of all parties together (n).
    num_clients : int
        Number of parties (K).
    mean, variance : ndarray of shape (d,)
        Mean and variance (1/n) of every agreed column over the rows of all parties; empty where the
        method does not ask for sums.
    handling : Handling
        How problems of the data are handled.
    precision : str
        The type in which floating-point arrays are sent, "float64" or "float32".
    small : SmallCounts
        What parties do with counts of few rows.
    options : PartyOptions
        The options that the parties need: an object of the contract's class ``options``.
    exchange : str
        A random name of this schema exchange. A ServerApp may run several methods one after the
        other; a client that finds another name here discards what it kept from an earlier one.
    states : tuple of tuple of str
        For methods on categories: the agreed states of every column, empty for one that is to be
        discretised. ``()`` for the others.
    targets : tuple of tuple of str
        The different sets of columns on which known interventions act, by which rows are grouped;
        empty if there are no interventions.
    keys : tuple of str
        The public keys of all parties, in hexadecimal digits, in the parties' order; "" for a
        party that is absent from a resumed run. For secure sums, or for masked tables between
        parties that hold different columns; else empty.
    key_names, key_signatures : tuple of str
        By key, the name of its party and the party's signature of it; empty where no party signs.
    groups : tuple of int
        By key, the group of its party; a secure sum is that of one group's parties. Empty where
        all parties are in one sum.
    least_parties : tuple of int
        By group, in the order of their numbers, how many of its parties must be in a secure sum;
        one number without groups. Empty without secure aggregation.
    terms, signature : str
        What the run asks of the parties, and the coordinator's signature of it, see
        :mod:`flwr_causal.protocol.terms`; by them a party's policy decides.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.data.check.handling import Handling
    >>> from flwr_causal.protocol.setup import Setup
    >>> setup = Setup(("x", "y"), 100, 3, np.zeros(2), np.ones(2), Handling())
    >>> setup.names, setup.num_rows
    (('x', 'y'), 100)
    """

    names: tuple[str, ...]
    num_rows: int
    num_clients: int
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    handling: Handling
    precision: str = "float64"
    small: SmallCounts = REPORT
    options: Any = field(default_factory=PartyOptions)
    exchange: str = ""
    states: States = ()
    targets: tuple[tuple[str, ...], ...] = ()
    keys: tuple[str, ...] = ()
    terms: str = ""
    signature: str = ""
    key_names: tuple[str, ...] = ()
    key_signatures: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    least_parties: tuple[int, ...] = ()

    @property
    def circles(self) -> dict[int, tuple[tuple[str, ...], int]]:
        """By group, the keys of those that add up together, and how many must be in a sum.

        There is "" in the places of the parties of other groups. Without groups the number is 0.
        """
        groups = self.groups or (0,) * len(self.keys)
        pairs = list(zip(self.keys, groups, strict=True))
        return {
            group: (tuple(key if own == group else "" for key, own in pairs), least)
            for group, least in zip(sorted(set(groups)), self.least_parties, strict=True)
        }

    @property
    def present(self) -> dict[int, int]:
        """By group, how many of its parties have keys; others are in no sum."""
        groups = self.groups or (0,) * len(self.keys)
        return Counter(group for key, group in zip(self.keys, groups, strict=True) if key)

    @cached_property
    def digest(self) -> str:
        """A digest of everything that the parties have agreed on, 64 hexadecimal digits."""
        plain = {name: one for name, one in self.to_config().items() if name not in _NUMBERS}
        # A text of JSON tells types and ends of values as well, and is made faster.
        text = json.dumps(plain, sort_keys=True)
        return purpose_of("agreement", text, self.mean, self.variance).hex()

    @cached_property
    def record(self) -> ConfigRecord:
        """The setup as a node keeps it, to be copied."""
        return ConfigRecord({**self.to_config(), DIGEST: self.digest})

    def of_training(self, name: str) -> Setup:
        """Return the agreement of a further training, whose digest follows from this one's."""
        own = replace(self, exchange=f"{self.exchange} {name}")
        own.__dict__["digest"] = purpose_of("training", self.digest, name).hex()
        return own

    @cached_property
    def run(self) -> Mapping[str, Any]:
        """The run by its stated options, as the conditions of exchanges see it.

        Raises
        ------
        ConfigError
            If the terms state none.
        """
        stated = RunTerms.from_text(self.terms).options if self.terms else {}
        chosen = {
            one.name: getattr(self.options, one.name)
            for one in fields(self.options)
            if one.metadata.get("chosen")
        }
        # With secure sums there are keys in any case; rows are matched where columns are kept.
        kept = self.handling.unshared_columns == "keep" != stated.get("unshared_columns")
        return {**stated, **chosen, COLUMNS_DIFFER: bool(self.keys) and (kept or not self.masked)}

    @property
    def masked(self) -> bool:
        """Whether sums are secure sums."""
        return bool(self.least_parties)

    @property
    def continuous(self) -> tuple[str, ...]:
        """The columns that are to be discretised; none without states."""
        if not self.states:
            return ()
        pairs = zip(self.names, self.states, strict=True)
        return tuple(name for name, states in pairs if not states)

    @property
    def summed(self) -> tuple[str, ...]:
        """The columns of which parties report sums and sums of squares: those without states."""
        return self.continuous if self.states else self.names

    def to_config(self) -> dict[str, Value]:
        """Return the setup as plain values whose keys start with ``setup-``."""
        texts, counts = pack_states(self.states)
        values = {one.name.replace("_", "-"): getattr(self, one.name) for one in fields(self)}
        values |= {"states": tuple(texts), "num-states": tuple(counts)}
        values |= {"minimum-count": self.small.minimum, "small-counts": self.small.treatment}
        plain = setup_form.written(values)
        if self.keys:
            plain.setdefault("least-parties", [])
        parts = {_HANDLING: self.handling, _OPTION: self.options}
        plain |= {k + name: v for k, part in parts.items() for name, v in to_plain(part).items()}
        return {PREFIX + name: value for name, value in plain.items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], options: type[PartyOptions]) -> Setup:
        """Rebuild the setup from a message's configuration.

        Parameters
        ----------
        config : mapping
        options : type
            The class of the contract's options.

        Raises
        ------
        FormError
            If something of it is missing, unknown, or has another form than servers write.
        """
        plain = behind(PREFIX, config)
        values = setup_form.read(plain, (_HANDLING, _OPTION))
        states = unpack_states(values.pop("states", ()), values.pop("num-states", ()))
        small = SmallCounts(values.pop("minimum-count"), values.pop("small-counts"))
        return cls(
            **{name.replace("-", "_"): value for name, value in values.items()},
            states=states,
            small=small,
            handling=received(Handling, behind(_HANDLING, plain)),
            options=received(options, behind(_OPTION, plain)),
        )
