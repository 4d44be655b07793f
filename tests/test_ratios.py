"""``make ratios``: every row can be made, here, without being timed."""

from __future__ import annotations

import pytest

from demopool.contract import registry
from tools.ratios.measuring import BACKENDS
from tools.ratios.rows import Memory, Ratio


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_has_all_its_rows(backend: str) -> None:
    if registry.probe(backend).state != "ok":
        pytest.skip(registry.probe(backend).reason)
    ratios, memories = BACKENDS[backend].ratios(), BACKENDS[backend].memories()
    assert {type(row) for row in ratios} == {Ratio}
    assert {type(row) for row in memories} == {Memory}
    assert len({(row.job, row.baseline) for row in ratios}) == len(ratios)
    for row in ratios:
        assert callable(row.ours)
        assert callable(row.theirs)
        assert row.bar > 0
