"""Write the language model that secid ships, from the installed py3langid.

    python -m tests.language_model

secid needs 73 of the 142 columns of the library's weights. The library compresses with LZMA, which takes 0.6 s to read.
"""

from __future__ import annotations

import lzma
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from py3langid.langid import MODEL_DIR, MODEL_FILE

from secid.findings.languages import LANGUAGES, MODEL

LEVEL = 19


def library_arrays() -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of the shipped file, from the library's model."""
    with np.load(BytesIO(lzma.decompress((MODEL_DIR / MODEL_FILE).read_bytes()))) as arrays:
        weights, feature, names = arrays["ptc"], arrays["out_feat"], arrays["classes"]
        first = [names.tolist().index(name) for name in LANGUAGES]
        second = np.setdiff1d(np.flatnonzero(np.isin(names, LANGUAGES)), first)
        columns = [*first, *second]
        return {
            "next_state": arrays["nextmove"],
            "row": arrays["nextmove_row"],
            "feature": np.where(feature < 0, len(weights), feature).astype(np.uint32),
            "weights": np.ascontiguousarray(weights[:, columns]),
            "prior": arrays["pc"][columns],
            "extra": np.array([LANGUAGES.index(name) for name in names[second]]),
        }


def main() -> None:
    """Write the file."""
    arrays = library_arrays()
    columns = [pa.ListArray.from_arrays(pa.array([0, own.size], pa.int32()), own.ravel()) for own in arrays.values()]
    row = pa.RecordBatch.from_arrays(columns, names=list(arrays))
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=LEVEL))
    with pa.OSFile(str(MODEL), "wb") as file, pa.ipc.new_file(file, row.schema, options=options) as writer:
        writer.write_batch(row)


if __name__ == "__main__":
    main()
