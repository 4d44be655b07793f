"""Blocks that wait for each other: a barrier of a whole grid, right and wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptx_samples.cases import launched

from demopool import ptx

RACE, RUNAWAY = ptx.FaultKind.RACE, ptx.FaultKind.RUNAWAY

# Every block writes a number in each round, and then the sum of all numbers of the round before.
ROUNDS = """
int* from = x;
int* to = y;
for (int round = 1; round <= 3; ++round) {
  int sum = 0;
  for (int i = 0; i < gridDim.x; ++i) sum += from[i];
  if (threadIdx.x == 32) to[blockIdx.x] = sum + blockIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
    while (*(volatile int*)arrived < round * gridDim.x) {}
    __threadfence();
  }
  __syncthreads();
  int* before = from;
  from = to;
  to = before;
}"""
PARAMETERS = "int* x, int* y, int* arrived"


def _wanted(blocks: int) -> Any:
    numbers = np.ones(blocks, np.int64)
    for _ in range(3):
        numbers = numbers.sum() + np.arange(blocks)
    return numbers.astype(np.int32)


def _run(body: str, grid: int, **options: Any) -> Any:
    x, y, arrived = np.ones(grid, np.int32), np.zeros(grid, np.int32), np.zeros(1, np.int32)
    options = {"block": 64, "cooperative": True, "max_steps": 50_000, **options}
    launched(body, PARAMETERS, [x, y, arrived], grid, **options)
    return y


@pytest.mark.parametrize("check_races", [True, False])
@pytest.mark.parametrize("blocks", [1, 2, 5, 40])
def test_a_barrier_of_the_grid_is_passed_by_all_blocks(blocks: int, check_races: bool) -> None:
    np.testing.assert_array_equal(_run(ROUNDS, blocks, check_races=check_races), _wanted(blocks))


def test_blocks_in_another_order_wait_for_each_other_too() -> None:
    order = [(i,) for i in (3, 0, 6, 1, 5, 2, 4)]
    np.testing.assert_array_equal(_run(ROUNDS, 7, blocks=order), _wanted(7))


def test_blocks_in_turns_wait_in_vain() -> None:
    """As on a GPU that does not run all of them at once: more threads than there are in a turn."""
    with pytest.raises(ptx.Fault) as caught:
        _run(ROUNDS, 40, block=256, cooperative=False)
    assert caught.value.kind is RUNAWAY
    np.testing.assert_array_equal(_run(ROUNDS, 40, block=256), _wanted(40))


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("__threadfence();\n    atomicAdd", "atomicAdd", RACE),
        ("{}\n    __threadfence();", "{}", RACE),
        ("while (*(", "if (*(", RACE),
        ("round * gridDim.x) {}", "round * gridDim.x - 1) {}", RACE),
        ("round * gridDim.x) {}", "round * gridDim.x + 1) {}", RUNAWAY),
        ("(volatile int*)arrived < round", "(volatile int*)(arrived + 1) < 0 * round", RACE),
        ("int* to = y", "int* to = x", RACE),
    ],
)
def test_a_wrong_barrier_is_named(old: str, new: str, kind: ptx.FaultKind) -> None:
    """Also one that waits, but for nothing that the others have said."""
    assert old in ROUNDS
    x, y, arrived = np.ones(6, np.int32), np.zeros(6, np.int32), np.zeros(2, np.int32)
    sizes = {"block": 64, "cooperative": True, "max_steps": 50_000}
    with pytest.raises(ptx.Fault) as caught:
        launched(ROUNDS.replace(old, new), PARAMETERS, [x, y, arrived], 6, **sizes)
    assert caught.value.kind is kind


CHAIN = """
volatile int* flag = y;
if (blockIdx.x == 0) x[0] = 7;
if (blockIdx.x > 0) { while (flag[blockIdx.x - 1] == 0) {} __threadfence(); }
if (blockIdx.x == 2) x[1] = x[0];
__threadfence();
flag[blockIdx.x] = 1;"""


def _chain(body: str) -> Any:
    x, y, arrived = np.zeros(2, np.int32), np.zeros(3, np.int32), np.zeros(1, np.int32)
    launched(body, PARAMETERS, [x, y, arrived], 3, block=1, cooperative=True, max_steps=50_000)
    return x


def test_what_a_block_has_heard_it_tells_on() -> None:
    """Block 2 waits for block 1 alone, which has waited for block 0; or has not."""
    assert _chain(CHAIN).tolist() == [7, 7]
    with pytest.raises(ptx.Fault) as caught:
        _chain(CHAIN.replace("blockIdx.x > 0", "blockIdx.x > 1"))
    assert caught.value.kind is RACE


def test_a_flag_that_another_block_overwrites_no_longer_tells_of_the_first() -> None:
    """Blocks 0 and 2 raise it, and block 1 may have seen either; added to it, it tells of both."""
    body = """
    if (blockIdx.x == 1) {
      while (*(volatile int*)y < 1) {}
      __threadfence();
      x[1] = x[0];
    } else {
      if (blockIdx.x == 0) x[0] = 7;
      __threadfence();
      RAISE;
    }"""
    for raised, kind in (("atomicAdd(y, 1)", None), ("*(volatile int*)y = 1", RACE)):
        x, y, arrived = np.zeros(2, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
        given = (body.replace("RAISE", raised), PARAMETERS, [x, y, arrived], 3)
        how = {"block": 1, "cooperative": True, "max_steps": 50_000}
        how["blocks"] = [(0,), (2,), (1,)]
        if kind is None:
            launched(*given, **how)
            assert x[1] == 7
        else:
            with pytest.raises(ptx.Fault) as caught:
                launched(*given, **how)
            assert caught.value.kind is kind


def test_more_blocks_than_a_gpu_has_at_once_are_refused() -> None:
    with pytest.raises(ptx.LaunchError, match="run at once"):
        _run("", 5000, block=32)
