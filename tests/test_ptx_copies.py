"""Asynchronous copies of PTX: what arrives, when it may be used, and what is a mistake."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_ptx_instructions import run

from demopool import ptx
from demopool.ptx import FaultKind

Array = Any

# %r4 and %q4 are where a thread's words are copied to and from, 16 bytes of each; %r5 where those
# of the next thread go.
PLACES = """.shared .align 16 .b8 memory[1024]; mov.u32 %r4, memory;
    add.u32 %r5, %r0, 1; and.b32 %r5, %r5, 31; mad.lo.u32 %r5, %r5, 16, %r4;
    mad.lo.u32 %r4, %r0, 16, %r4; mad.wide.u32 %q4, %r0, 16, %q1;"""
COPY = "cp.async.cg.shared.global [%r4], [%q4], 16;"
SECOND = "cp.async.ca.shared.global [%r4+512], [%q4], 16;"
COMMIT, WAIT = "cp.async.commit_group;", "cp.async.wait_group 0;"
LOAD = "ld.shared.u32 %r6, [%r4]; st.global.u32 [%q9], %r6;"
LOAD_SECOND = "ld.shared.u32 %r6, [%r4+512]; st.global.u32 [%q9], %r6;"
LOAD_NEXT = "ld.shared.u32 %r6, [%r5]; st.global.u32 [%q9], %r6;"
BARRIER = "bar.sync 0;"


def given() -> Array:
    return np.arange(1, 129, dtype=np.uint32).reshape(32, 4)


def copied(body: str, x: Array | None = None, **options: Any) -> Array:
    out = np.zeros(32, np.uint32)
    run(PLACES + body, out, given() if x is None else x, **options)
    return out


@pytest.mark.parametrize(
    "body",
    [
        f"{COPY} {COMMIT} {WAIT} {LOAD}",
        f"{COPY} cp.async.wait_all; {LOAD}",
        f"{COPY} {COMMIT} {SECOND} {COMMIT} cp.async.wait_group 1; {LOAD}",
        f"{COPY} {COMMIT} {COMMIT} cp.async.wait_group 1; {LOAD}",
        f"{COPY} {COMMIT} {SECOND} {WAIT} {LOAD}",
        f"{SECOND} {COMMIT} {COPY} {COMMIT} {WAIT} {LOAD}",
    ],
    ids=["a group", "all", "the first of two", "an empty one", "not committed", "both"],
)
def test_what_was_waited_for_is_there(body: str) -> None:
    np.testing.assert_array_equal(copied(body), given()[:, 0])


def test_others_may_use_it_behind_a_barrier() -> None:
    found = copied(f"{COPY} {COMMIT} {WAIT} {BARRIER} {LOAD_NEXT}")
    np.testing.assert_array_equal(found, np.roll(given()[:, 0], -1))


def test_nothing_is_there_before_the_wait() -> None:
    """Without the checks, the old value is read: the copy does not arrive by itself."""
    body = f"mov.u32 %r7, 9; st.shared.u32 [%r4], %r7; {COPY} {COMMIT} {BARRIER} {LOAD}"
    assert set(copied(body, check_races=False)) == {9}


@pytest.mark.parametrize(("how", "size"), [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)])
def test_what_is_not_read_is_filled_with_zeros(how: str, size: int) -> None:
    """A lane reads as many bytes as its number modulo size + 1."""
    x, out = given().view(np.uint8), np.full((32, size), 7, np.uint8)
    body = f"""rem.u32 %r7, %r0, {size + 1};
        cp.async.{how}.shared::cta.global.L2::128B [%r4], [%q4], {size}, %r7; cp.async.wait_all;
        mad.wide.u32 %q5, %r0, {size}, %q0;"""
    for i in range(0, size, 4):
        body += f"ld.shared.u32 %r8, [%r4+{i}]; st.global.u32 [%q5+{i}], %r8;"
    run(PLACES + body, out, x)
    wanted = np.where(np.arange(size) < np.arange(32)[:, None] % (size + 1), x[:, :size], 0)
    np.testing.assert_array_equal(out, wanted)


def test_a_predicate_makes_zeros_of_all() -> None:
    body = "setp.lt.u32 %p0, %r0, 20; cp.async.ca.shared.global [%r4], [%q4], 16, %p0;"
    found = copied(f"{body} cp.async.wait_all; {LOAD}")
    np.testing.assert_array_equal(found, np.where(np.arange(32) < 20, 0, given()[:, 0]))


def test_bytes_that_are_not_read_need_not_be_there() -> None:
    body = "setp.lt.u32 %p0, %r0, 20; selp.u32 %r7, 16, 0, %p0;"
    copy = "cp.async.cg.shared.global [%r4], [%q4], 16, %r7;"
    found = copied(f"{body} {copy} cp.async.wait_all; {LOAD}", given()[:20])
    np.testing.assert_array_equal(found[:20], given()[:20, 0])
    assert not found[20:].any()


def test_only_some_lanes_copy_and_only_some_wait() -> None:
    body = f"""mov.u32 %r7, 5; st.shared.u32 [%r4], %r7; setp.lt.u32 %p0, %r0, 9; @%p0 {COPY}
        {COMMIT} @%p0 {WAIT} {LOAD}"""
    np.testing.assert_array_equal(copied(body), np.where(np.arange(32) < 9, given()[:, 0], 5))


def test_copies_are_counted_as_loads_and_stores() -> None:
    out = np.zeros(32, np.uint32)
    counts = run(f"{PLACES} {COPY} {COMMIT} {WAIT}", out, given())
    assert (counts.global_requests, counts.global_sectors) == (1, 16)
    assert counts.traffic["argument 1"].loaded_bytes == 512
    assert (counts.shared_requests, counts.shared_wavefronts, counts.bank_conflicts) == (1, 4, 0)


# --- mistakes ---

UNDER_WAY = "shared memory: a copy to it may be under way: its thread has not "
NOT_WAITED = f"{UNDER_WAY}waited for the group it is in"
NOT_COMMITTED = f"{UNDER_WAY}committed it to a group"
PENDING, MISALIGNED = FaultKind.PENDING_COPY, FaultKind.MISALIGNED


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (f"{COPY} {COMMIT} {LOAD}", PENDING, NOT_WAITED),
        (f"{COPY} {COMMIT} {BARRIER} {LOAD_NEXT}", PENDING, NOT_WAITED),
        (f"{COPY} {COMMIT} cp.async.wait_group 1; {LOAD}", PENDING, NOT_WAITED),
        (f"{SECOND} {COMMIT} {COPY} {COMMIT} cp.async.wait_group 1; {LOAD}", PENDING, NOT_WAITED),
        (f"{COPY} {WAIT} {LOAD}", PENDING, NOT_COMMITTED),
        (f"{SECOND} {COMMIT} {COPY} {WAIT} {LOAD}", PENDING, NOT_COMMITTED),
        (f"{COPY} {COMMIT} st.shared.u32 [%r4], %r0;", PENDING, NOT_WAITED),
        (f"{COPY} {COMMIT} st.shared.u8 [%r4+15], %r0;", PENDING, NOT_WAITED),
        (f"{COPY} {COMMIT} atom.shared.add.u32 %r6, [%r4], 1;", PENDING, NOT_WAITED),
        (f"{COPY} {COMMIT} {COPY}", PENDING, NOT_WAITED),
        (f"{COPY} {COMMIT} ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r6}}, [%r4];", PENDING,
         NOT_WAITED),
        (f"{COPY} {COMMIT} {WAIT} {LOAD_NEXT}", FaultKind.RACE, "no barrier between"),
        (f"{COPY} {COMMIT} {BARRIER} {WAIT} {LOAD_NEXT}", FaultKind.RACE, "no barrier between"),
        (f"st.shared.u32 [%r5], %r0; {COPY}", FaultKind.RACE, "another thread writes it too"),
        ("mov.u32 %r4, memory; cp.async.ca.shared.global [%r4], [%q4], 4;", FaultKind.RACE,
         "several threads write it at once"),
        ("cp.async.ca.shared.global [%r4], [%q4+4], 8;", MISALIGNED,
         "argument 1: 8 bytes at an address that is no multiple of it"),
        ("cp.async.cg.shared.global [%r4+8], [%q4], 16;", MISALIGNED,
         "shared memory: 16 bytes at an address that is no multiple of it"),
        ("cp.async.cg.shared.global [%r4], [%q4+16], 16;", FaultKind.OUT_OF_BOUNDS,
         "byte 512 of argument 1, which has 512"),
        ("cp.async.cg.shared.global [%r4+1024], [%q4], 16;", FaultKind.OUT_OF_BOUNDS,
         "byte 1024 of shared memory"),
        ("mov.u32 %r7, 20; cp.async.cg.shared.global [%r4], [%q4], 16, %r7;", FaultKind.UNDEFINED,
         "more than the 16 bytes"),
        ("cp.async.cg.shared.global [%r4], [%q4], 16, %r7;", FaultKind.UNINITIALISED,
         "register never written"),
    ],
)  # fmt: skip
def test_mistake_is_named(body: str, kind: FaultKind, says: str) -> None:
    with pytest.raises(ptx.Fault, match=says) as caught:
        copied(body)
    assert caught.value.kind is kind


def test_another_block_has_copies_of_its_own() -> None:
    """The first of two blocks forgets to wait: the place is that of its own shared memory."""
    body = f"""setp.eq.u32 %p0, %r1, 1; {COPY} {COMMIT} @%p0 {WAIT} @%p0 ld.shared.u32 %r6, [%r4];
        @!%p0 ld.shared.u32 %r6, [%r4];"""
    places = PLACES.replace("%r0", "%r3")
    with pytest.raises(ptx.Fault, match=NOT_WAITED) as caught:
        run(places + body, np.zeros(64, np.uint32), given(), grid=2)
    assert (caught.value.block, caught.value.address) == ((0, 0, 0), 0)
