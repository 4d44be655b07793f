"""The scripts of examples/ learn: the pooling modules pass usable gradients in a real training."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from examples import real_features, textures

STEPS = 50
CASES = [
    pytest.param(example, pool, id=f"{example.__name__.rpartition('.')[2]}-{pool}")
    for example in (textures, real_features)
    for pool in example.POOLS
]


@pytest.fixture
def watched() -> Iterator[list[int]]:
    """Looks at the gradients of every optimizer step, and notes how many parameters it had."""
    seen: list[int] = []

    def look(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        assert all(g is not None and g.isfinite().all() and g.any() for g in gradients)
        seen.append(len(gradients))

    hook = register_optimizer_step_pre_hook(look)
    yield seen
    hook.remove()


@pytest.mark.parametrize(("example", "pool"), CASES)
def test_fifty_steps_learn(example: ModuleType, pool: str, watched: list[int]) -> None:
    losses, accuracy = example.train(steps=STEPS, pool=pool, seed=0)
    assert len(losses) == len(watched) == STEPS
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:10])
    # Two standard deviations of guessing on 500 are at most 0.045.
    assert accuracy > example.CHANCE + 0.15


@pytest.mark.parametrize("example", [textures, real_features])
def test_a_script_explains_itself(example: ModuleType, plain_environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, str(example.__file__), "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=plain_environment,
    )
    for option in ("--steps", "--pool", "--seed", *example.POOLS):
        assert option in done.stdout
