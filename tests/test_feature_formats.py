"""Feature files of every format: what is read is what was stored, and nothing is ever unpickled."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import safetensors.numpy
import torch
import zarr
from numpy.typing import NDArray

from demopool import InvalidInput, features
from demopool.datasets import raw_arrays

Array = NDArray[Any]
BATCH = np.random.default_rng(0).standard_normal((5, 6, 4)).astype(np.float16)
ONE = np.random.default_rng(1).standard_normal((7, 4)).astype(np.float32)
WRITERS: dict[str, Callable[[Path, dict[str, Array]], Any]] = {
    ".npz": lambda path, arrays: np.savez(path, **arrays),  # type: ignore[arg-type]
    ".safetensors": lambda path, arrays: safetensors.numpy.save_file(arrays, path),
    ".pt": lambda path, arrays: torch.save(
        {key: torch.from_numpy(array) for key, array in arrays.items()}, path
    ),
}


@pytest.fixture(params=[".npz", "compressed.npz", ".h5", ".hdf5", ".safetensors", ".zarr", ".pt"])
def mixed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file with one image and a batch, in the order of their names."""
    path = tmp_path / f"mixed{request.param}"
    arrays = {"a": ONE, "b": BATCH}
    if path.suffix in (".h5", ".hdf5"):
        with h5py.File(path, "w") as file:
            for key, array in arrays.items():
                file[key] = array
    elif path.suffix == ".zarr":
        group = zarr.create_group(path)
        for key, array in arrays.items():
            group.create_array(key, data=array)
    elif "compressed" in path.name:
        np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    else:
        WRITERS[path.suffix](path, arrays)
    return path


def test_every_format_gives_what_was_stored(mixed: Path) -> None:
    images = features.open(mixed)
    assert images.shapes == [(7, 4)] + [(6, 4)] * 5
    assert np.array_equal(images[0], ONE)
    assert np.array_equal(np.stack(images[1:]), BATCH)
    assert np.array_equal(images[-1], BATCH[4])
    with pytest.raises(IndexError):
        images[6]


def test_a_dataset_is_taken_by_its_name(mixed: Path) -> None:
    assert len(features.open(mixed, dataset="b")) == 5
    with pytest.raises(InvalidInput, match="has no array c; it holds a, b"):
        features.open(mixed, dataset="c")


def test_a_group_per_image(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for number in range(3):
            file[f"image{number}/features"] = ONE + number
            file[f"image{number}/label"] = number
    images = features.open(path, dataset="features")
    assert np.array_equal(np.stack(images[:]), [ONE, ONE + 1, ONE + 2])
    with pytest.raises(InvalidInput, match=r"image0/label, .* --dataset says which"):
        features.open(path)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f8"])
def test_npy_of_any_order_and_byte_order(
    tmp_path: Path, order: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_arrays, "SLAB_BYTES", 100)
    np.save(tmp_path / "x.npy", BATCH.astype(dtype, order=order))
    np.save(tmp_path / "y.npy", BATCH[0].astype(dtype, order=order))
    images = features.open(tmp_path)
    assert images[3].dtype.isnative
    assert np.array_equal(images[3], BATCH[3].astype(dtype))
    assert np.array_equal(images[5], BATCH[0].astype(dtype))


@pytest.mark.parametrize("ending", [".safetensors", ".pt"])
def test_bfloat16_comes_as_float32_of_equal_values(tmp_path: Path, ending: str) -> None:
    import safetensors.torch

    tensor = torch.from_numpy(ONE).to(torch.bfloat16)
    path = tmp_path / f"x{ending}"
    if ending == ".pt":
        torch.save(tensor, path)
    else:
        safetensors.torch.save_file({"x": tensor}, path)
    (image,) = features.open(path)
    assert image.dtype == np.float32
    assert np.array_equal(image, tensor.float().numpy())


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_conv_maps_become_rows(tmp_path: Path, layout: str) -> None:
    maps = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    np.save(tmp_path / "a.npy", maps)
    np.save(tmp_path / "b.npy", maps[0])
    images = features.open([tmp_path / "a.npy", tmp_path / "b.npy"], layout=layout)
    rows = maps.reshape(2, 3, 20).swapaxes(1, 2) if layout == "nchw" else maps.reshape(2, 12, 5)
    assert np.array_equal(images[1], rows[1])
    assert np.array_equal(images[2], rows[0])
    with pytest.raises(InvalidInput, match=r"give --layout nchw or nhwc"):
        features.open(tmp_path / "a.npy")


def test_files_folders_and_globs_keep_their_order(tmp_path: Path) -> None:
    for number, name in enumerate(["z.npy", "sub/b.npy", "sub/a.npy", "g1.npy", "g2.npy"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / name, ONE + number)
    (tmp_path / "sub" / "notes.txt").write_text("no features")
    images = features.open([tmp_path / "z.npy", tmp_path / "sub", str(tmp_path / "g?.npy")])
    assert [int((image - ONE).max() + 0.5) for image in images] == [0, 2, 1, 3, 4]


class _Bomb:
    """Unpickling it would be seen."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize("ending", [".npy", ".npz", ".pt"])
def test_nothing_is_ever_unpickled(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, objects = tmp_path / f"x{ending}", np.array([_Bomb()], dtype=object)
    if ending == ".npy":
        np.save(path, objects, allow_pickle=True)
    elif ending == ".npz":
        np.savez(path, x=objects)
    else:
        torch.save({"x": _Bomb()}, path)
    with pytest.raises(InvalidInput, match=rf"x{ending}.* (unpickled|code of a file is never run)"):
        features.open(path)
    assert not Path("exploded").exists()
    pickle.loads(pickle.dumps(_Bomb()))
    assert Path("exploded").exists()  # so it would have been seen


def test_a_file_that_is_cut_off_is_named(mixed: Path) -> None:
    if mixed.is_dir():
        (mixed / "zarr.json").unlink()
    else:
        mixed.write_bytes(mixed.read_bytes()[:-300])
    with pytest.raises(InvalidInput, match=mixed.name):
        list(features.open(mixed))


@pytest.mark.parametrize("ending", [".npy", ".npz", ".h5", ".safetensors", ".pt"])
def test_rubbish_is_one_sentence(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x{ending}"
    for content in (b"", b"\xff" * 7, b"\x00" * 100, bytes(range(256)) * 4):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match="cannot be read") as found:
            features.open(path)
        assert str(found.value).count("\n") == 0


def test_files_that_fail_are_left_out_when_asked(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ONE)
    (tmp_path / "b.npy").write_bytes(b"nothing")
    images = features.open(tmp_path, keep_going=True)
    assert len(images) == 1
    (reason,) = images.skipped.values()
    assert "b.npy cannot be read" in reason


def test_what_is_missing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "x.h5").write_bytes(b"")
    with pytest.raises(InvalidInput, match=r"without h5py: pip install 'demopool\[files\]'"):
        features.open(tmp_path / "x.h5")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: None, "has no feature files"),
        (lambda f: np.save(f / "x.npy", np.zeros((3, 4), np.int32)), "holds int32"),
        (lambda f: np.save(f / "x.npy", np.zeros(3)), "is no features"),
        (lambda f: np.save(f / "x.npy", np.zeros((0, 4))), "is empty"),
    ],
)
def test_what_are_no_features_is_said(
    tmp_path: Path, make: Callable[[Path], Any], message: str
) -> None:
    make(tmp_path)
    with pytest.raises(InvalidInput, match=message):
        features.open(tmp_path)


def test_files_without_any_features_say_so(tmp_path: Path) -> None:
    np.savez(tmp_path / "none.npz")
    with pytest.raises(InvalidInput, match=r"none.npz holds no array\.$"):
        features.open(tmp_path / "none.npz")
    (tmp_path / "cut.pt").write_bytes(b"")
    with pytest.raises(InvalidInput, match=r"cut.pt cannot be read: it is cut off\.$"):
        features.open(tmp_path / "cut.pt")
    torch.save(torch.eye(4).to_sparse(), tmp_path / "sparse.pt")
    with pytest.raises(InvalidInput, match=r"sparse.pt must hold a dense tensor"):
        features.open(tmp_path / "sparse.pt")
