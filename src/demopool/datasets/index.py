"""The table beside an output: which row is which image, and in what state."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from ..common.files import write_bytes, write_text
from .images import Images
from .output import beside

COLUMNS = ("row", "file", "key", "image", "shape", "state", "reason")
_ROWS_AT_ONCE = 65536


def has_parquet() -> bool:
    return find_spec("pyarrow") is not None


def index_path(output: Path) -> Path:
    """``.csv`` where pyarrow is absent."""
    return beside(output, "index.parquet" if has_parquet() else "index.csv")


def rows_of(images: Images, failed: Mapping[int, str]) -> Iterator[tuple[Any, ...]]:
    """In the order of the output, which is that of the input."""
    row = 0
    for array in images.arrays:
        shape = "x".join(map(str, array.shape[1:] if array.is_batch else array.shape))
        for image in range(array.images):
            state = "failed" if row in failed else "ok"
            yield row, array.file, array.key, image, shape, state, failed.get(row, "")
            row += 1


def write_index(output: Path, images: Images, failed: Mapping[int, str]) -> Path:
    """Whole or not at all."""
    path, rows = index_path(output), rows_of(images, failed)
    if not has_parquet():
        write_text(path, _as_csv(rows))
        return path
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    kinds = {"row": pa.int64(), "image": pa.int64()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    converted = pa.csv.ConvertOptions(column_types=schema)
    parsed = pa.csv.ParseOptions(newlines_in_values=True)  # a name of a file may have them
    alone = pa.csv.ReadOptions(use_threads=False)
    content = io.BytesIO()
    with pq.ParquetWriter(content, schema) as writer:
        while part := list(islice(rows, _ROWS_AT_ONCE)):
            # Not pa.array, which imports pandas if it is there: half a second.
            text = io.BytesIO(_as_csv(part).encode())
            writer.write_table(pa.csv.read_csv(text, alone, parsed, converted))
    write_bytes(path, content.getvalue())
    return path


def _as_csv(rows: Iterable[tuple[Any, ...]]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(rows)
    # Names of files may be no text; then \udc.. stands for each byte of theirs.
    return text.getvalue().encode(errors="backslashreplace").decode()
