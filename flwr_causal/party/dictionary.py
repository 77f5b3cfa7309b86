"""How a party reads its table for a run that has a dictionary: with its own map, by its policy."""

from __future__ import annotations

from dataclasses import replace
from logging import WARNING
from typing import TYPE_CHECKING

from flwr.supercore import log

from flwr_causal.data.dictionary.party_dictionary import NO_MAP, LocalMap
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.dictionary.faults import DictionaryFaultError
    from flwr_causal.data.read.reading import Reading
    from flwr_causal.party.policy import ColumnRules

#: The key of a node's configuration that names the party's map.
MAP_KEY = "dictionary-map"


def reading_at(
    handling: Handling, options: object, own_map: Path | None, rules: ColumnRules
) -> Reading:
    """Return how a party reads its table.

    Parameters
    ----------
    handling : Handling
        Of the run, with its dictionary, if it has one.
    options : object
        The options that the party was sent; some of them name columns with a role.
    own_map : Path or None
        The file of the party's names, codes and units.
    rules : ColumnRules
        Which columns runs see, by the party's policy: a column that it withholds, by the name in
        the table or in the dictionary, is not read.

    Raises
    ------
    ConfigError
        If the party has a map and the run no dictionary, or the map does not fit the dictionary; of
        the map the party's log says why.
    """
    reading = handling.reading.for_options(options)
    entries = handling.entries
    if reading.dictionary is None or entries is None:
        if own_map is not None:
            raise ConfigError(
                f"its table needs its map to a dictionary ({MAP_KEY}), and the run has none: give "
                "the run the option 'dictionary', or take the key out of the node's config"
            )
        return reading
    local = NO_MAP
    if own_map is not None:
        try:
            local = LocalMap.read(own_map, entries)
        except ConfigError as error:
            log(WARNING, "%s", error)
            raise ConfigError(
                f"its map to the dictionary ({MAP_KEY}) cannot be used; the log of its node says "
                "why"
            ) from error
    hidden = tuple(
        one.name for one in entries.used if not rules.shows_as(one.name, local.of(one.name).source)
    )
    return reading._replace(dictionary=replace(reading.dictionary, local=local, hidden=hidden))


def log_faults(party: str, error: DictionaryFaultError) -> None:
    """Write the faults of a party's table, with rows and values, into the log of its own node."""
    for line in error.local():
        log(WARNING, "%s does not fit the dictionary: %s", party, line)
