"""What is read from NVML, with a made-up NVML: two GPUs that can refuse to answer."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from demopool.machine import fingerprint, gpu

CHIP, SM, MEMORY = 0, 1, 2
IDLE, SETTING, POWER, THERMAL, NEW = 0x1, 0x2, 0x4, 0x20, 1 << 40


class Refused(Exception):
    """As NVMLError_NotSupported and its relatives."""


class Nvml:
    """The functions of pynvml that the code may call. ``refuses`` names those that raise."""

    def __init__(self) -> None:
        self.refuses: set[str] = set()
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.names: list[bytes | str] = [b"NVIDIA A", "NVIDIA B"]
        self.uuids: list[bytes | str] = ["GPU-aaaa-1111", b"GPU-aabb-2222"]
        self.reasons = 0
        self.clock = 1980

    def __getattr__(self, name: str) -> Any:
        if name not in ANSWERS:
            raise AttributeError(name)

        def called(*arguments: Any) -> Any:
            self.calls.append((name, arguments))
            if name in self.refuses:
                raise Refused(name)
            return ANSWERS[name](self, *arguments)

        return called


def _by_uuid(nvml: Nvml, uuid: str) -> int:
    if uuid != "MIG-cccc":
        raise Refused(uuid)
    return 1


def _memory(nvml: Nvml, gpu: int) -> SimpleNamespace:
    return SimpleNamespace(total=(80, 24)[gpu] * 2**30, used=2**30, free=0)


ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlInit": lambda nvml: None,
    "nvmlDeviceGetCount": lambda nvml: 2,
    "nvmlDeviceGetHandleByIndex": lambda nvml, index: index,
    "nvmlDeviceGetHandleByUUID": _by_uuid,
    "nvmlDeviceGetUUID": lambda nvml, gpu: nvml.uuids[gpu],
    "nvmlDeviceGetName": lambda nvml, gpu: nvml.names[gpu],
    "nvmlSystemGetDriverVersion": lambda nvml: b"580.65.06",
    "nvmlSystemGetCudaDriverVersion": lambda nvml: 13010,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetCudaComputeCapability": lambda nvml, gpu: ((9, 0), (8, 9))[gpu],
    "nvmlDeviceGetEccMode": lambda nvml, gpu: [1 - gpu, 1],
    "nvmlDeviceGetEnforcedPowerLimit": lambda nvml, gpu: 700_000,
    "nvmlDeviceGetClockInfo": lambda nvml, gpu, of: {SM: nvml.clock, MEMORY: 2619}[of],
    "nvmlDeviceGetMaxClockInfo": lambda nvml, gpu, of: {SM: 1980, MEMORY: 2619}[of],
    "nvmlDeviceGetTemperatureV": lambda nvml, gpu, of: {CHIP: 61}[of],
    "nvmlDeviceGetTemperature": lambda nvml, gpu, of: {CHIP: 60}[of],
    "nvmlDeviceGetUtilizationRates": lambda nvml, gpu: SimpleNamespace(gpu=97, memory=40),
    "nvmlDeviceGetCurrentClocksEventReasons": lambda nvml, gpu: nvml.reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda nvml, gpu: nvml.reasons | SETTING,
}


LISTING = {"nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No NVML stays open from one test to the next."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpu._nvml.cache_clear()
    yield
    gpu._nvml.cache_clear()


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    made_up = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", made_up)  # type: ignore[arg-type]
    return made_up


def _telemetry(index: int = 0) -> dict[str, Any]:
    found = gpu.telemetry(index)
    assert found is not None
    return found


def _names() -> list[str]:
    return [found["name"] for found in gpu.gpus()]


def test_gpus_are_plain_values_without_their_uuid(nvml: Nvml) -> None:
    first = {
        "index": 0,
        "name": "NVIDIA A",
        "memory_bytes": 80 * 2**30,
        "compute_capability": "9.0",
        "driver": "580.65.06",
        "cuda": "13.1",
        "ecc": True,
        "power_limit_milliwatts": 700_000,
    }
    second = {"index": 1, "name": "NVIDIA B", "compute_capability": "8.9", "ecc": False}
    assert gpu.gpus() == [first, first | second | {"memory_bytes": 24 * 2**30}]
    assert fingerprint.machine()["gpu"] == ["NVIDIA A", "NVIDIA B"]


def test_telemetry_tells_clocks_memory_and_reasons(nvml: Nvml) -> None:
    nvml.reasons = POWER | THERMAL
    assert _telemetry() == {
        "sm_clock_mhz": 1980,
        "max_sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "temperature_c": 61,
        "busy_percent": 97,
        "used_bytes": 2**30,
        "reasons": ["power cap", "thermal"],
        "throttled": True,
    }


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0,1", ["NVIDIA A", "NVIDIA B"]),
        ("1,0", ["NVIDIA B", "NVIDIA A"]),
        (" 1 , 0 ", ["NVIDIA B", "NVIDIA A"]),
        ("1", ["NVIDIA B"]),
        ("", []),
        ("-1", []),
        ("1,-1,0", ["NVIDIA B"]),
        ("0,2,1", ["NVIDIA A"]),
        ("0,0", []),
        ("NoDevFiles", []),
        ("GPU-aabb", ["NVIDIA B"]),
        ("GPU-aabb-2222,GPU-aaaa-1111", ["NVIDIA B", "NVIDIA A"]),
        ("GPU-aa", []),
        ("GPU-", []),
        ("GPU-ffff", []),
        ("MIG-cccc", ["NVIDIA B"]),
        ("MIG-dddd", []),
    ],
)
def test_list_is_what_a_cuda_program_would_see(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, visible: str, expected: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _names() == expected
    assert [found["index"] for found in gpu.gpus()] == list(range(len(expected)))


def test_telemetry_counts_like_the_list(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    gpu.telemetry(0)
    assert ("nvmlDeviceGetUtilizationRates", (1,)) in nvml.calls
    assert gpu.telemetry(1) is None
    assert gpu.telemetry(-1) is None


def test_gpu_that_this_user_may_not_open_is_not_counted(nvml: Nvml) -> None:
    nvml.refuses = {"nvmlDeviceGetHandleByIndex"}
    assert gpu.gpus() == []


@pytest.mark.parametrize("function", ANSWERS)
def test_refused_answer_is_none_and_the_rest_is_there(nvml: Nvml, function: str) -> None:
    """Scenario: one function after the other is not supported. Expected: at most its own values
    are missing; without the functions that list GPUs there are none."""
    nvml.refuses = {function}
    found, now = gpu.gpus(), gpu.telemetry()
    if function in LISTING:
        assert (found, now) == ([], None)
        return
    assert len(found) == 2
    assert now is not None
    missing = [name for name, value in {**found[0], **now}.items() if value is None]
    assert len(missing) <= 2, missing


def test_everything_refused_is_none(nvml: Nvml) -> None:
    nvml.refuses = set(ANSWERS) - LISTING
    assert set(_telemetry().values()) == {None}
    assert gpu.gpus()[1] == dict.fromkeys(gpu.gpus()[1], None) | {"index": 1}
    with gpu.Watch() as watch:
        pass
    assert watch.warning() == ""


def test_garbage_for_a_name_is_none(nvml: Nvml) -> None:
    """Some WSL drivers answer with bytes that are no text."""
    nvml.names = [b"\xf8\x01", b"NVIDIA B"]
    assert _names() == [None, "NVIDIA B"]


def test_old_names_are_asked_where_the_new_are_missing(nvml: Nvml) -> None:
    nvml.refuses = {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV"}
    found = _telemetry()
    assert found["reasons"] == ["application clocks"]
    assert found["temperature_c"] == 60


def test_no_pynvml_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # makes the import fail
    assert gpu.gpus() == []
    assert gpu.telemetry() is None
    assert fingerprint.machine()["gpu"] is None
    with gpu.Watch() as watch:
        watch.look()
    assert watch.warning() == ""


def test_nvml_is_opened_once_per_process(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        gpu.gpus()
        gpu.telemetry()
    assert nvml.calls.count(("nvmlInit", ())) == 1
    monkeypatch.setattr(gpu.os, "getpid", lambda: -1)  # as after a fork
    gpu.gpus()
    assert nvml.calls.count(("nvmlInit", ())) == 2


def test_driver_that_is_not_there_is_asked_for_once(nvml: Nvml) -> None:
    nvml.refuses = {"nvmlInit"}
    for _ in range(3):
        assert gpu.gpus() == []
    assert nvml.calls == [("nvmlInit", ())]


@pytest.mark.parametrize(
    ("bits", "words", "throttled"),
    [
        (0, [], False),
        (IDLE, ["idle"], False),
        (SETTING, ["application clocks"], False),
        (0x100, ["display clocks"], False),
        (POWER, ["power cap"], True),
        (SETTING | THERMAL, ["application clocks", "thermal"], True),
        (0x40, ["hardware thermal"], True),
        (NEW, ["unknown reason 40"], True),
    ],
)
def test_only_what_harms_is_throttling(
    nvml: Nvml, bits: int, words: list[str], throttled: bool
) -> None:
    nvml.reasons = bits
    assert _telemetry()["reasons"] == words
    assert _telemetry()["throttled"] is throttled


Look = tuple[int, int]


@pytest.mark.parametrize(
    ("looks", "warning"),
    [
        ([(1980, 0), (1965, 0)], ""),
        ([(1980, 0), (1410, 0)], "GPU clock fell from 1980 to 1410 MHz"),
        ([(1980, 0), (1980, THERMAL)], "throttled: thermal"),
        (
            [(1980, POWER), (1410, THERMAL | POWER)],
            "GPU clock fell from 1980 to 1410 MHz; throttled: power cap, thermal",
        ),
        # It was not warmed up, or is idle again: nothing to compare.
        ([(210, IDLE), (1980, 0)], ""),
        ([(1980, 0), (210, IDLE)], ""),
        # A clock that rises is a warm-up that was too short, and one that recovers has fallen.
        ([(1410, 0), (1980, 0)], ""),
        ([(1980, 0), (1410, 0), (1980, 0)], "GPU clock fell from 1980 to 1410 MHz"),
    ],
)
def test_watch_says_what_was_wrong(nvml: Nvml, looks: list[Look], warning: str) -> None:
    watch = gpu.Watch()
    (nvml.clock, nvml.reasons), *between, last = looks
    with watch:
        for nvml.clock, nvml.reasons in between:
            watch.look()
        nvml.clock, nvml.reasons = last
    assert watch.warning() == warning


def test_watch_does_not_swallow_what_goes_wrong_inside(nvml: Nvml) -> None:
    with pytest.raises(ZeroDivisionError), gpu.Watch():
        raise ZeroDivisionError


def test_every_name_exists_in_the_real_pynvml_and_takes_these_arguments(nvml: Nvml) -> None:
    gpu.gpus()
    nvml.refuses = {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV"}
    gpu.telemetry()
    calls = dict(nvml.calls) | {"nvmlDeviceGetUUID": (0,), "nvmlDeviceGetHandleByUUID": ("",)}
    used = set(re.findall(r"nvml[A-Z]\w+", Path(gpu.__file__).read_text()))
    assert used == set(calls) == set(ANSWERS)
    del sys.modules["pynvml"]
    real = pytest.importorskip("pynvml")
    for name, arguments in calls.items():
        inspect.signature(getattr(real, name)).bind(*arguments)


def test_numbers_are_those_of_the_real_pynvml() -> None:
    real = pytest.importorskip("pynvml")
    assert real.NVML_TEMPERATURE_GPU == gpu._CHIP == CHIP
    assert real.NVML_CLOCK_SM == gpu._SM == SM
    assert real.NVML_CLOCK_MEM == gpu._MEMORY == MEMORY
    words = {
        "GpuIdle": "idle",
        "ApplicationsClocksSetting": "application clocks",
        "SwPowerCap": "power cap",
        "HwSlowdown": "hardware slowdown",
        "SyncBoost": "sync boost",
        "SwThermalSlowdown": "thermal",
        "HwThermalSlowdown": "hardware thermal",
        "HwPowerBrakeSlowdown": "power brake",
        "DisplayClockSetting": "display clocks",
    }
    for name, word in words.items():
        bit = getattr(real, f"nvmlClocksEventReason{name}")
        assert gpu._REASONS[bit.bit_length() - 1] == word
    known = sum(1 << place for place in gpu._KNOWN)
    assert real.nvmlClocksEventReasonAll & ~known == 0


@pytest.mark.gpu
def test_real_gpu_answers() -> None:
    found = gpu.gpus()
    if not found:
        pytest.skip("no NVIDIA driver here")
    assert all(one["name"] and one["driver"] and one["cuda"] for one in found)
    assert gpu.telemetry(0) is not None
