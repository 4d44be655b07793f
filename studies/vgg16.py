"""VGG-16 up to conv5_3, as the paper takes it: weights from a stranger's file, images, features."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from demopool.errors import InvalidInput

Array = NDArray[Any]

BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""Channels of the convolutions, all 3 x 3; between two blocks the map is halved by its maxima."""

SIZE = 448
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's colours, from 0 to 1: these weights were trained on images normalised so."""

PREPROCESSING = (
    f"image as RGB, turned as its EXIF tag says, resized to {SIZE} x {SIZE} px without regard to "
    "its proportions (bilinear, Pillow), from 0 to 1, minus ImageNet's mean colour, over its "
    "standard deviation"
)

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}

Weights = tuple[tuple[Array, Array], ...]
"""Of every convolution a kernel (height, width, inputs, outputs) and a bias, in their order."""


class _ArraysOnly(pickle.Unpickler):
    """A pickle can call anything that it names. This one may name what builds NumPy arrays."""

    _MODULES = ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")
    _NAMES = ("_reconstruct", "ndarray", "dtype")

    def find_class(self, module: str, name: str) -> Any:
        if module not in self._MODULES or name not in self._NAMES:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        # NumPy 2 moved the private module, and warns about its old name.
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def read_weights(content: bytes) -> Weights:
    """From a pickle of nested dictionaries ``VGG16_0 / Conv_i / kernel, bias``."""
    try:
        everything = _ArraysOnly(io.BytesIO(content)).load()
        layers = everything["VGG16_0"]
        found = tuple(_layer(layers[f"Conv_{i}"]) for i in range(sum(map(len, BLOCKS))))
    except (pickle.UnpicklingError, LookupError, TypeError, ValueError, EOFError) as problem:
        raise InvalidInput(f"the weights of VGG-16 cannot be read: {problem}.") from None
    return found


def _layer(layer: Mapping[str, Array]) -> tuple[Array, Array]:
    kernel, bias = layer["kernel"], layer["bias"]
    if kernel.ndim != 4 or kernel.dtype != np.float32 or bias.shape != kernel.shape[3:]:
        raise ValueError(f"a layer has a kernel {kernel.shape} and a bias {bias.shape}")
    return kernel, bias


class Network:
    """Images in, conv5_3 after ReLU out; channels as in the weights."""

    def __init__(self, weights: Weights, precision: str = "float32") -> None:
        self.dtype = PRECISIONS[precision]
        self._layers = [
            (
                torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy())
                .to(self.dtype)
                .contiguous(memory_format=torch.channels_last),
                torch.from_numpy(bias.copy()).to(self.dtype),
            )
            for kernel, bias in weights
        ]

    def __call__(self, pixels: Array) -> Array:
        """``pixels`` (3, height, width) become (512, height / 16, width / 16), in float32."""
        layers = iter(self._layers)
        with torch.inference_mode():
            x = torch.from_numpy(pixels)[None].to(self.dtype)
            x = x.contiguous(memory_format=torch.channels_last)
            for block in BLOCKS:
                if block is not BLOCKS[0]:
                    x = torch.max_pool2d(x, 2)
                for _ in block:
                    x = torch.conv2d(x, *next(layers), padding=1).relu_()
        found: Array = x[0].float().contiguous().numpy()
        return found


def prepared(content: bytes, size: int = SIZE) -> Array:
    """An encoded image as float32 (3, size, size)."""
    with Image.open(io.BytesIO(content)) as image:
        pixels = ImageOps.exif_transpose(image).convert("RGB")
        pixels = pixels.resize((size, size), Image.Resampling.BILINEAR)
    values = np.asarray(pixels, dtype=np.float32) / 255
    values = (values - np.array(MEAN, np.float32)) / np.array(DEVIATION, np.float32)
    return np.ascontiguousarray(values.transpose(2, 0, 1))
