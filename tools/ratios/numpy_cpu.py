"""The jobs that matter most for numpy:cpu."""

from __future__ import annotations

import demopool as dp
from benchmarks.baselines import (
    dense_democratic,
    eigh_alone,
    sketch_by_three_transforms,
    two_symmetric_products,
)
from tools.ratios.rows import (
    Memory,
    Ratio,
    features,
    memory_of_half_precision,
    pooled,
    small_images,
    with_its_norm,
)

NAME = "numpy:cpu"


def ratios() -> list[Ratio]:
    ops = dp.backend(NAME)
    vgg, large, long = features(784, 512), features(3136, 512), features(12544, 64)
    res = features(196, 2048)
    A = res.T @ res
    hashes = dp.hashes(512, 8192)
    ready = ops.prepare(hashes)
    a = ops.weights(vgg)
    return [
        Ratio(
            "democratic n=784 d=512",
            "two SYRKs",
            pooled(NAME, vgg),
            lambda: two_symmetric_products(vgg),
            1.25,
        ),
        Ratio(
            "democratic n=3136 d=512",
            "two SYRKs",
            pooled(NAME, large),
            lambda: two_symmetric_products(large),
            1.4,
        ),
        Ratio(
            "democratic n=12544 d=64",
            "good dense version",
            pooled(NAME, long),
            lambda: dense_democratic(long),
            1 / 8,
        ),
        Ratio(
            "sketched pooling n=784 d=512 k=8192",
            "three FFTs per feature",
            lambda: ops.pool_sketch(vgg, ready, a),
            lambda: sketch_by_three_transforms(vgg, hashes, a),
            1 / 8,
        ),
        Ratio(
            "power n=196 d=2048 p=1/2",
            "eigh of the 2048 x 2048 matrix",
            lambda: ops.power(res),
            lambda: eigh_alone(A),
            1 / 20,
        ),
        with_its_norm(NAME, features(8, 2048, 14, 14)),
        *small_images(NAME, 1.0),
    ]


def memories() -> list[Memory]:
    """Jobs whose memory must stay small for any n, d and batch."""
    long, batch = features(12544, 64), features(8, 196, 2048)
    return [
        Memory("democratic n=12544 d=64", pooled(NAME, long), 10),
        Memory(
            "sketched democratic b=8 n=196 d=2048 k=8192",
            lambda: dp.describe(batch, "sketched-democratic"),
            16,
        ),
        memory_of_half_precision(NAME),
    ]
