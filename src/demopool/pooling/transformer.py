"""``describe`` as a transformer of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from ..errors import InvalidInput
from .description import describe

_AXES = {"nchw": ("C", "H", "W"), "nhwc": ("H", "W", "C")}
"""Of an image; ``(n, d)`` in any other layout."""

_DTYPES = [np.float64, np.float32, np.float16]
"""What is taken as it is; other numbers become the first."""

Batch = tuple[list[int], NDArray[Any]]
"""Images of one shape, with their places in X."""


class SecondOrderPooling(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """One descriptor per image, from features ``(N, n, d)`` to an array ``(N, D)``.

    ``X`` is an array, with ``layout`` also of conv maps ``(N, C, H, W)`` or ``(N, H, W, C)``, or a
    list of arrays, one per image, whose n may differ. The parameters are those of
    :func:`demopool.describe`, with the same defaults. Nothing is learnt but d, which later images
    must share.
    """

    def __init__(
        self,
        descriptor: str = "democratic",
        *,
        gamma: float = 0.5,
        tau: float = 0.5,
        iterations: int = 10,
        p: float = 0.5,
        k: int = 8192,
        seed: int = 0,
        order: int = 2,
        center: bool = False,
        layout: str | None = None,
        zero_rows: str = "warn",
        normalize: str = "signed-sqrt-l2",
        vectorize: str = "full",
        backend: str = "auto",
        route: str = "auto",
        check: bool = True,
        dtype: Any = None,
        accuracy: str | float = "fast",
    ) -> None:
        # scikit-learn wants every parameter in the signature, and stored as it was given.
        self.descriptor = descriptor
        self.gamma = gamma
        self.tau = tau
        self.iterations = iterations
        self.p = p
        self.k = k
        self.seed = seed
        self.order = order
        self.center = center
        self.layout = layout
        self.zero_rows = zero_rows
        self.normalize = normalize
        self.vectorize = vectorize
        self.backend = backend
        self.route = route
        self.check = check
        self.dtype = dtype
        self.accuracy = accuracy

    def fit(self, X: Any, y: Any = None) -> Self:
        """Validates the parameters and the shapes of the images, and remembers d."""
        batches, self.n_features_in_ = self._batches(X, finite=self.check is True)
        # Nothing is computed for no images, but everything that was asked for is validated.
        for _, images in batches:
            self._n_features_out = self._describe(images[:0]).shape[-1]
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Descriptors ``(N, D)``, in the order of the images."""
        check_is_fitted(self)
        batches, d = self._batches(X, finite=False)  # describe checks the values
        if d != self.n_features_in_:
            raise InvalidInput(
                f"X has {d} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        if len(batches) == 1 and not isinstance(X, list | tuple):
            return self._describe(batches[0][1])
        found = np.concatenate([self._of_list(*batch) for batch in batches])
        return found[np.argsort([place for places, _ in batches for place in places])]

    def _describe(self, images: NDArray[Any]) -> NDArray[Any]:
        described: NDArray[Any] = describe(images, **self.get_params(deep=False))
        return described

    def _of_list(self, places: list[int], images: NDArray[Any]) -> NDArray[Any]:
        """A batch of images from a list: errors name the place in the list, not in the batch."""
        try:
            return self._describe(images)
        except InvalidInput:
            for place, image in zip(places, images, strict=True):
                try:
                    self._describe(image)
                except InvalidInput as problem:
                    raise InvalidInput(f"Image {place} of X is refused: {problem}") from None
            raise

    def _batches(self, X: Any, *, finite: bool) -> tuple[list[Batch], int]:
        """The images of X in batches of one shape and dtype, and their common d."""
        axes = _AXES.get(str(self.layout), ("n", "d"))
        if not isinstance(X, list | tuple):
            X = _floats(X, "X", ("N", *axes), finite)
            batches: list[Batch] = [([*range(len(X))], X)]
        else:
            images = [_floats(x, f"image {i} of X", axes, finite) for i, x in enumerate(X)]
            alike: dict[Any, list[int]] = {}
            for place, image in enumerate(images):
                alike.setdefault((image.shape, image.dtype), []).append(place)
            batches = [(each, np.stack([images[i] for i in each])) for each in alike.values()]
        channels = 1 + axes.index("C" if "C" in axes else "d")
        lengths = sorted({images.shape[channels] for _, images in batches})
        if len(lengths) != 1:
            found = " and ".join(map(str, lengths)) or "no image"
            raise InvalidInput(f"X must have images of one d, at least one; got {found}.")
        return batches, lengths[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _floats(X: Any, name: str, axes: tuple[str, ...], finite: bool) -> NDArray[Any]:
    """As scikit-learn takes arrays, but for the axes."""
    anything = {"ensure_2d": False, "allow_nd": True, "ensure_all_finite": finite}
    found: NDArray[Any] = check_array(X, dtype=_DTYPES, input_name=name, **anything)
    if found.ndim != len(axes):
        maps = "" if "C" in axes else ", or give layout='nchw' or 'nhwc' for conv maps"
        raise InvalidInput(
            f"{name} must be ({', '.join(axes)}); got shape {found.shape}. Reshape your data{maps}."
        )
    return found
