"""What the launchers run, by operation and route; the ending of a route says what multiplies."""

from __future__ import annotations

from functools import partial
from typing import Any

from demopool.implementations.shared.table import work_table

from . import pool, power, sketch, weights

WORKS: dict[tuple[str, str], Any] = {
    **work_table(weights, pool, sketch, power),
    ("weights", "dense-cublas"): partial(weights.dense, gram=weights.gram_cublas),
    ("weights", "dense-syrk"): partial(weights.dense, gram=weights.gram_syrk),
    ("weights", "dense-tf32"): partial(weights.dense, gram=weights.gram_tf32),
    ("weights", "dense-128"): partial(weights.dense, gram=weights.gram_wide),
    ("weights", "dense-resident"): partial(weights.dense, iterate=weights.resident),
    ("pool", "cublas"): pool.cublas,
    ("pool", "syrk"): pool.syrk,
    ("pool", "tf32"): pool.tf32,
    ("pool", "128"): pool.wide,
}
