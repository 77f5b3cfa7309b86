"""The description of a method by its docstring and contract, as plain values."""

from __future__ import annotations

import inspect
import re
from typing import Any

from flwr_causal.core.documented import SECTION


def described(strategy: Any) -> dict[str, Any]:
    """Return a method's purpose, the data that it reads, and what leaves a party.

    Parameters
    ----------
    strategy : CausalStrategy

    Returns
    -------
    dict
        ``id``; ``summary`` and ``description``, the docstring's first paragraph and all of its
        text; ``references``, the papers; ``data``, the kind of tables; ``exchanges_at_most``, None
        if the method does not say; ``exchanges``, a list with ``name``, ``meaning``, ``when`` and,
        under ``leaves``, what leaves a party.
    """
    text, *sections = SECTION.split(inspect.getdoc(strategy) or "")
    papers = dict(zip(sections[::2], sections[1::2], strict=True)).get("References", "")
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text)
    return {
        "id": strategy.contract.method,
        "summary": text.partition("\n\n")[0].strip(),
        "description": text.strip(),
        "references": [" ".join(paper.split()) for paper in papers.split("\n\n") if paper.strip()],
        "data": strategy.data.value,
        "exchanges_at_most": strategy._exchanges_at_most,
        "exchanges": [
            {
                "name": exchange.name,
                "meaning": exchange.meaning,
                "when": exchange.when_in_words,
                "leaves": [
                    {
                        "name": item.name,
                        "meaning": item.meaning,
                        "shape": list(item.shape),
                        "combine": item.combine,
                        "rows": item.rows,
                    }
                    for item in exchange.returns
                ],
            }
            for exchange in strategy.contract.exchanges
        ],
    }
