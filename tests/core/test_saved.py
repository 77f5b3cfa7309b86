"""Files of graphs, models and knowledge that cannot be written."""

import numpy as np
import pytest

from flwr_causal import simulate
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.errors import ConfigError


def test_what_cannot_be_written_is_named_with_the_reason(tmp_path):
    rng = np.random.default_rng(0)
    run = simulate("moments", [rng.normal(size=(40, 3)) for _ in range(3)])
    knowledge = Knowledge(forbidden=[("x0", "x1")])
    (tmp_path / "file").write_text("")
    for one, suffix in ((run.graph, ".json"), (run.model, ".json"), (knowledge, ".toml")):
        for name, reason in (("a\0b", "zero byte"), ("file/inner", "exist|directory")):
            with pytest.raises(ConfigError, match=rf"cannot be written to .*({reason})"):
                one.save(str(tmp_path / f"{name}{suffix}"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
