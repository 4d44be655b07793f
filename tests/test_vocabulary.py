"""Names that know about themselves, and the table of operations: each fact has one home."""

from __future__ import annotations

import copy
import json
import pickle
import re
from dataclasses import asdict
from inspect import Parameter, signature
from pathlib import Path

import pytest

import demopool
from demopool.contract import registry
from demopool.pooling.operations import Operations
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.cases import Case
from demopool.problem.operations import OPERATIONS
from demopool.problem.routes import DESCRIPTOR_OF, descriptor_routes, routes_of
from demopool.problem.vocabulary import BACKENDS, DESCRIPTORS, DTYPES, Backend, Descriptor

ROOT = Path(__file__).parents[1]


def test_a_backend_knows_its_library_and_its_device() -> None:
    gpu, plugin = Backend("torch:cuda"), Backend("plain:npu")
    assert (gpu.library, gpu.device, gpu.on_gpu, gpu.is_timed) == ("torch", "cuda", True, True)
    for on_cpu in map(Backend, ("cupy:ptx", "triton:interpreter")):
        assert (on_cpu.on_gpu, on_cpu.on_host) == (False, False)
        assert (on_cpu.is_timed, on_cpu.data) == (False, "device")
    assert (plugin.library, plugin.device, plugin.is_timed) == ("plain", "npu", True)
    assert plugin.arrays == "arrays of plain:npu"
    assert not plugin.survives_fork


def test_our_backends_are_those_of_our_specifications() -> None:
    for backend in BACKENDS:
        specification = registry.entry(backend).specification
        assert specification is not None
        assert specification.library == backend.library
        assert backend.device in specification.devices


def test_a_descriptor_knows_its_method_and_operations() -> None:
    found = Descriptor("sketched-democratic")
    assert (found.method, found.is_sketched) == ("democratic", True)
    assert found.operations == ("weights", "pool_sketch")
    assert not Descriptor("power").is_sketched
    assert {step for each in DESCRIPTORS for step in each.operations} < set(OPERATIONS)


def test_a_dtype_knows_its_size_and_what_it_is_worked_in() -> None:
    facts = {dtype: (dtype.bytes, dtype.result, dtype.is_half) for dtype in DTYPES}
    assert facts == {
        "float16": (2, "float32", True),
        "bfloat16": (2, "float32", True),
        "float32": (4, "float32", False),
        "float64": (8, "float64", False),
    }
    assert [dtype for dtype in DTYPES if not dtype.in_numpy] == ["bfloat16"]


@pytest.mark.parametrize("word", [*BACKENDS, *DESCRIPTORS, *DTYPES])
def test_a_word_is_stored_and_compared_as_a_string(word: str) -> None:
    plain = str(word)
    assert type(plain) is str
    assert word == plain
    assert {word: 1}[plain] == 1
    assert json.loads(json.dumps({word: word})) == {plain: plain}
    assert repr(word) == repr(plain)
    for again in (pickle.loads(pickle.dumps(word)), copy.deepcopy(word)):
        assert (type(again), again) == (type(word), word)


def test_a_case_and_a_candidate_make_words_of_strings() -> None:
    case = Case(descriptor="sketched-sum", dtype="float16")
    assert case.descriptor.is_sketched
    assert case.dtype.result.bytes == 4
    assert json.loads(json.dumps(asdict(case)))["descriptor"] == "sketched-sum"
    candidate = Candidate.parse("torch:cuda/dense")
    assert candidate.backend.on_gpu
    assert candidate == ("torch:cuda", "dense")
    assert pickle.loads(pickle.dumps(candidate)) == candidate


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_public_operations_take_what_the_table_says(name: str) -> None:
    operation = OPERATIONS[name]
    given = list(signature(getattr(Operations, name)).parameters.values())[1:]
    positional = tuple(p.name for p in given if p.kind is Parameter.POSITIONAL_OR_KEYWORD)
    named = {p.name for p in given if p.kind is Parameter.KEYWORD_ONLY}
    assert positional == operation.arrays
    picked = ("route", "accuracy") if "p" in operation.parameters else ("route",)
    # Not in every kernel's signature: only backends that promise to take them are given these.
    more = {"pool": {"norm"}, "weights": {"ordinary"}}.get(name, set())
    assert named == {*operation.parameters, *(picked if operation.is_routed else ())} | more
    assert operation.is_routed == (len(routes_of(name)) > 1)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_reference_takes_what_the_table_says(name: str) -> None:
    operation = OPERATIONS[name]
    given = set(signature(getattr(demopool.reference, name)).parameters)
    # What it writes into is its own affair.
    assert given == {*operation.arrays, *operation.parameters} - {"overwrite"}


def test_an_operation_with_a_choice_shares_the_routes_of_a_descriptor() -> None:
    assert set(DESCRIPTOR_OF) == {name for name in OPERATIONS if OPERATIONS[name].is_routed}
    for operation, descriptor in DESCRIPTOR_OF.items():
        shared, own = descriptor_routes(descriptor), [r.name for r in routes_of(operation)]
        # Those of matrix_power need A only; X has more.
        assert set(own) <= set(shared) if operation == "matrix_power" else own == list(shared)


def test_shapes_of_results_follow_the_sizes() -> None:
    case = Case(batch=3, n=5, d=4, k=7)
    shapes = {name: Subject("operation", name).output_shape(case) for name in OPERATIONS}
    assert shapes == {
        "weights": (3, 5),
        "pool": (3, 4, 4),
        "sketch": (3, 5, 7),
        "pool_sketch": (3, 7),
        "power": (3, 4, 4),
        "matrix_power": (3, 4, 4),
        "power_sketch": (3, 7),
        "normalize": (3, 16),
    }
    assert Subject("descriptor", "sketched-power").output_shape(case) == (3, 7)
    assert Subject("operation", "pool").output_shape(Case(n=5, d=4, order=1)) == (1, 4)


_TAKEN_APART = re.compile(
    r"""(starts|ends)with\(\(?"(sketched|democratic|power|:?(cpu|cuda|ptx|torch|numpy))"""
    r"""|(backend|name)\.r?partition\(":"|"sketch" in"""
)


_CANDIDATE = re.compile(r"""partition\("/"|\{([a-z]+\.)?backend\}(/|,? | by )\{[a-z.]*route""")


def _lines_with(pattern: re.Pattern[str], *folders: str) -> list[str]:
    """Outside of the vocabulary's own package, and of this file."""
    home = ROOT / "src/demopool/problem"
    return [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for folder in folders
        for file in sorted((ROOT / folder).rglob("*.py"))
        if home not in file.parents and file != Path(__file__)
        for line in file.read_text().splitlines()
        if pattern.search(line)
    ]


def test_names_are_taken_apart_in_one_place_only() -> None:
    assert _lines_with(_TAKEN_APART, "src", "tools", "benchmarks") == []
    assert _TAKEN_APART.search('name.endswith(":ptx")')


def test_candidates_are_written_and_read_in_one_place_only() -> None:
    assert _lines_with(_CANDIDATE, "src", "implementations", "tools", "benchmarks", "tests") == []
    assert _CANDIDATE.search('f"{row.backend} by {row.route}"')
    assert _CANDIDATE.search('backend, _, route = text.partition("/")')
