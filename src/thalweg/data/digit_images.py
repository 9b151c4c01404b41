"""MNIST from its four IDX files, gzip or not.

An IDX file is a magic number (0x00000803 for images, 0x00000801 for labels), its sizes as 32-bit
big-endian numbers, and then one byte per value.
"""

import gzip
import os
import struct
import zlib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from thalweg._arguments import checked
from thalweg._checks import InputError, require_count
from thalweg.data.table import Labelled

MEAN = 0.1307
"""The mean pixel of the training images, with white at 1, as elkabetz2021 rounds it."""

STANDARD_DEVIATION = 0.3081
"""The standard deviation of those pixels, likewise."""

_PREFIX = {"train": "train", "test": "t10k"}
_FOLDERS = (".", "mnist", "MNIST/raw")  # the last is where torchvision puts the files
_GZIP_MAGIC = b"\x1f\x8b"


@checked
def mnist(
    path: str | PathLike[str] | None = None,
    images: int | Sequence[int] | np.ndarray | None = None,
    part: Literal["train", "test"] = "train",
) -> Labelled:
    """Handwritten digits: pixels normalised by the mean .1307 and deviation .3081, and labels.

    Args:
        path: the folder of the IDX files. Without it, the folder that the environment variable
            THALWEG_DATA names is searched, then the user's cache.
        images: which to take: all (None), the first so many (a number), or those at the given
            places, counted from 0. elkabetz2021 trained on `range(0, 50_000, 50)`.
        part: the 60,000 training images or the 10,000 test images.
    """
    image_file, label_file = mnist_files(path, part)
    pixels, labels = _read_idx(image_file, sizes=3), _read_idx(label_file, sizes=1)
    if len(pixels) != len(labels):
        raise InputError(
            f"{image_file} and {label_file} must belong together, but they hold {len(pixels)} "
            f"images and {len(labels)} labels."
        )
    chosen = _chosen(images, len(pixels))
    # A byte has 256 values: looking them up makes no copies besides the result.
    shades = (np.arange(256) / 255 - MEAN) / STANDARD_DEVIATION
    rows = shades[pixels[chosen].reshape(len(chosen), -1)]
    return Labelled(jnp.asarray(rows), jnp.asarray(labels[chosen], int))


def mnist_files(path: str | PathLike[str] | None = None, part: str = "train") -> tuple[Path, Path]:
    """The files from which `mnist` reads images and labels: of the first folder that has both."""
    if part not in _PREFIX:
        raise InputError(f"`part` must be 'train' or 'test', got {part!r}.")
    prefix = _PREFIX[part]
    searched = [folder / inner for folder in _places(path) for inner in _FOLDERS]
    for folder in searched:
        images = _existing(folder, f"{prefix}-images", "idx3-ubyte")
        labels = _existing(folder, f"{prefix}-labels", "idx1-ubyte")
        if images and labels:
            return images, labels
    looked = ", ".join(str(folder) for folder in _places(path))
    raise InputError(
        f"MNIST must be on this machine, but {prefix}-images-idx3-ubyte and "
        f"{prefix}-labels-idx1-ubyte (.gz or not) are not both in {looked}; download the four "
        "files from https://ossci-datasets.s3.amazonaws.com/mnist/ to one of these folders, or "
        "name their folder with `path` or the environment variable THALWEG_DATA."
    )


def _chosen(images: int | Sequence[int] | np.ndarray | None, total: int) -> np.ndarray:
    if images is None:
        return np.arange(total)
    if isinstance(images, int):
        places = np.arange(require_count("images", images))
    else:
        places = np.asarray(images)
    if places.ndim != 1 or places.size == 0 or places.dtype.kind not in "iu":
        raise InputError(
            "`images` must be a number of images, or the places of at least one as whole numbers, "
            f"got {images!r}."
        )
    if places.min() < 0 or places.max() >= total:
        raise InputError(
            f"`images` must lie in 0, ..., {total - 1}, got {places.min()} to {places.max()}."
        )
    return places


def _places(path: str | PathLike[str] | None) -> list[Path]:
    if path is not None:
        return [Path(path).expanduser()]  # what is asked for by name is not replaced silently
    named = os.environ.get("THALWEG_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [*([Path(named).expanduser()] if named else []), cache / "thalweg" / "mnist"]


def _existing(folder: Path, stem: str, kind: str) -> Path | None:
    names = [f"{stem}{mark}{kind}{ending}" for mark in "-." for ending in ("", ".gz")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _read_idx(file: Path, sizes: int) -> UInt8[np.ndarray, "..."]:
    """The values of an IDX file of bytes with so many sizes."""
    content = _decompressed(file)
    start = 4 * (1 + sizes)
    if len(content) < start:
        raise InputError(f"{file} must be an IDX file, but it ends in its header; fetch it again.")
    magic, *shape = struct.unpack(f">{1 + sizes}I", content[:start])
    if magic != 0x800 + sizes:
        raise InputError(
            f"{file} must begin with the magic number {0x800 + sizes:#010x} of an IDX file, got "
            f"{magic:#010x}; is it another file under this name?"
        )
    values = np.frombuffer(content, np.uint8, offset=start)
    if values.size != np.prod(shape):
        raise InputError(
            f"{file} must hold {np.prod(shape)} values, as its header says, got {values.size}; "
            "was the download cut off? Fetch it again."
        )
    return values.reshape(shape)


def _decompressed(file: Path) -> bytes:
    try:
        content = file.read_bytes()
        # By content and not by name: browsers decompress downloads and keep the name.
        return gzip.decompress(content) if content[:2] == _GZIP_MAGIC else content
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{file} must be an IDX file, gzip or not, but it cannot be read: {error}; was the "
            "download cut off? Fetch it again."
        ) from error
