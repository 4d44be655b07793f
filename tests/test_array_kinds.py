"""Arrays that nothing here works with: one sentence that names X, on every backend and by auto."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import demopool as dp
from demopool.contract import registry
from demopool.problem.vocabulary import DESCRIPTORS

NUMBERS = np.arange(1.0, 7.0).reshape(3, 2)


def _sparse(name: str) -> Any:
    return getattr(pytest.importorskip("scipy.sparse"), name)(NUMBERS)


def _torch(make: Callable[[Any], Any]) -> Any:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # prototypes of torch say so
        return make(torch)


KINDS: dict[str, Callable[[], Any]] = {
    "integer": lambda: NUMBERS.astype(int),
    "boolean": lambda: NUMBERS > 2,
    "complex": lambda: NUMBERS.astype(complex),
    "object": lambda: NUMBERS.astype(object),
    "text": lambda: NUMBERS.astype(str),
    "bytes": lambda: NUMBERS.astype("S3"),
    "longdouble": lambda: NUMBERS.astype(np.longdouble),
    "datetime": lambda: NUMBERS.astype("M8[s]"),
    "structured": lambda: np.zeros((3, 2), [("a", "f4"), ("b", "f4")]),
    "masked": lambda: np.ma.masked_array(NUMBERS, NUMBERS > 5),
    "sparse array": lambda: _sparse("csr_array"),
    "sparse matrix": lambda: _sparse("coo_matrix"),
    "list of text": lambda: [[1.0, "a"]],
    "list of nothing": lambda: [[None, 1.0]],
    "unequal lists": lambda: [[1.0, 2.0], [3.0]],
    "nothing": lambda: None,
    "number": lambda: 3.0,
    "torch integer": lambda: _torch(lambda torch: torch.ones(3, 2, dtype=torch.int32)),
    "torch boolean": lambda: _torch(lambda torch: torch.ones(3, 2, dtype=torch.bool)),
    "torch complex": lambda: _torch(lambda torch: torch.ones(3, 2, dtype=torch.complex64)),
    "torch fp8": lambda: _torch(lambda torch: torch.ones(3, 2).to(torch.float8_e4m3fn)),
    "torch quantized": lambda: _torch(
        lambda torch: torch.quantize_per_tensor(torch.ones(3, 2), 0.1, 0, torch.quint8)
    ),
    "torch sparse": lambda: _torch(lambda torch: torch.ones(3, 2).to_sparse()),
    "torch sparse rows": lambda: _torch(lambda torch: torch.ones(3, 2).to_sparse_csr()),
    "torch mkldnn": lambda: _torch(lambda torch: torch.ones(3, 2).to_mkldnn()),
    "torch nested": lambda: _torch(
        lambda torch: torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 2)])
    ),
    "torch jagged": lambda: _torch(
        lambda torch: torch.nested.nested_tensor(
            [torch.ones(2, 2), torch.ones(3, 2)], layout=torch.jagged
        )
    ),
    "torch meta": lambda: _torch(lambda torch: torch.ones(3, 2, device="meta")),
}
HOST = [name for name in registry.available() if name.endswith(":cpu")]


def refusal(call: Callable[[], Any], name: str = "X") -> str:
    with pytest.raises(dp.InvalidInput) as problem:
        call()
    told = str(problem.value)
    assert told.startswith(f"{name} must be "), told
    assert "\n" not in told
    return told


@pytest.mark.parametrize("kind", KINDS)
def test_describe_names_x(kind: str) -> None:
    X = KINDS[kind]()
    for backend in ("auto", *HOST):
        for descriptor in DESCRIPTORS:
            refusal(lambda b=backend, d=descriptor: dp.describe(X, d, backend=b))  # type: ignore[misc]
        refusal(lambda b=backend: dp.describe(X, "sum", backend=b, check=False, dtype="float32"))  # type: ignore[misc]
        refusal(lambda b=backend: dp.describe(X, "sum", backend=b, layout="nchw"))  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", HOST)
def test_the_operations_name_x(kind: str, backend: str) -> None:
    X, ops, h = KINDS[kind](), dp.backend(backend), dp.hashes(2, k=8)
    refusal(lambda: ops.weights(X))
    refusal(lambda: ops.pool(X))
    refusal(lambda: ops.sketch(X, h))
    refusal(lambda: ops.pool_sketch(X, h))
    refusal(lambda: ops.power(X))
    refusal(lambda: ops.power_sketch(X, h))
    refusal(lambda: ops.matrix_power(X), "A")
    refusal(lambda: ops.normalize(X), "v")
    fine = ops.asarray(NUMBERS)
    if X is not None:  # no weights
        refusal(lambda: ops.pool(fine, X), "a")


@pytest.mark.parametrize("backend", HOST)
@pytest.mark.parametrize("kind", ["object", "text", "longdouble", "structured"])
def test_asarray_refuses_in_a_sentence_or_leaves_it_to_the_operation(
    kind: str, backend: str
) -> None:
    ops = dp.backend(backend)
    with pytest.raises(dp.InvalidInput, match=r"^(array|X) must be "):
        ops.pool(ops.asarray(KINDS[kind]()))


def test_the_sentence_says_what_was_given() -> None:
    assert "got int64, convert it first." in refusal(
        lambda: dp.describe(NUMBERS.astype(int), "sum")
    )
    sparse, nested = KINDS["torch sparse"](), KINDS["torch nested"]()
    assert "got a sparse_coo tensor of float32" in refusal(lambda: dp.describe(sparse, "sum"))
    assert "got a nested tensor of float32" in refusal(lambda: dp.describe(nested, "sum"))


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        ("torch meta", "got a torch.Tensor on meta, which has no values."),
        ("masked", "MaskedArray; .filled(0) makes one, with 0 for what is masked."),
        ("sparse array", "csr_array; .toarray() makes one."),
        ("number", "got a builtins.float."),
    ],
)
def test_the_sentence_says_what_can_be_given(kind: str, ending: str) -> None:
    X = KINDS[kind]()
    told = refusal(lambda: dp.describe(X, "sum"))
    assert told.startswith("X must be an array (here NumPy arrays")
    assert told.endswith(ending)
    assert ":cpu" not in told
