"""The guide's method is complete: its very text runs, finds the edge, and is short."""

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "new_method.md"


@pytest.fixture(scope="module")
def text() -> str:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)[0]


def test_guide_runs_as_it_stands(text, capsys, monkeypatch):
    guide = types.ModuleType("guide")
    # Dataclasses look their module up by name.
    monkeypatch.setitem(sys.modules, "guide", guide)
    exec(compile(text, str(GUIDE), "exec"), guide.__dict__)
    run = guide.run
    assert "one round is enough" in capsys.readouterr().out
    ((cause, effect, weight),) = run.graph.edges()
    assert (cause, effect) == ("x0", "x1")
    assert weight == pytest.approx(2.0, abs=0.4)
    assert run.rounds == 1
    # d x d and d numbers from each of two parties, and little else.
    assert run.bytes_received >= 2 * 8 * (4 + 2)
    assert np.isfinite(run.graph.weights).all()


def test_guide_is_a_page(text):
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) < 60
