"""Write encrypted Parquet files, with a key service that keeps keys in the clear."""

from __future__ import annotations

import base64
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe


class Keys(pe.KmsClient):  # type: ignore[misc]
    """A key service in memory."""

    def __init__(self, _: object) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, wrapped: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped)


def save_encrypted(path: Path, table: pa.Table, *, plain_footer: bool = False) -> Path:
    """Write a table with all columns encrypted, and the footer too unless `plain_footer`."""
    how = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"columns": table.column_names}, plaintext_footer=plain_footer
    )
    properties = pe.CryptoFactory(Keys).file_encryption_properties(pe.KmsConnectionConfig(), how)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return path
