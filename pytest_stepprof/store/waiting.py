"""Results that wait on the disk, and not in memory, for the end of the session that stores them."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, NamedTuple

from pytest_stepprof.errors import StoreError


class _Place(NamedTuple):
    offset: int
    size_bytes: int


class WaitingPayloads(Mapping[str, bytes]):
    """Payloads by their SHA-256 in one temporary file without a name, which is gone whatever ends this process.

    They are not written into the store itself: a session that is never stored would leave them there. The file is made
    for the first payload, and ``close`` lets go of it.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._places: dict[str, _Place] = {}

    def add(self, sha256: str, payload: bytes) -> None:
        """Write a payload down, unless one with this digest is there already.

        Raises:
            StoreError: the temporary folder is full or cannot be written.
        """
        if sha256 in self._places:
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives until close()
            offset = self._file.seek(0, os.SEEK_END)
            self._file.write(payload)
            self._file.flush()
        except OSError as error:
            raise StoreError(
                f"a result of {len(payload)} bytes cannot wait in {tempfile.gettempdir()}: {error}. Free space there, "
                "or set TMPDIR to a folder that has some."
            ) from error
        self._places[sha256] = _Place(offset, len(payload))

    def __getitem__(self, sha256: str) -> bytes:
        """Read a payload back."""
        place = self._places[sha256]
        assert self._file is not None, "a payload with a place lies in the file"
        self._file.seek(place.offset)
        return self._file.read(place.size_bytes)

    def __iter__(self) -> Iterator[str]:
        """Give the digests in the order in which payloads came."""
        return iter(self._places)

    def __len__(self) -> int:
        """Count the payloads."""
        return len(self._places)

    def keep_only(self, digests: Iterable[str]) -> None:
        """Forget all other payloads: those of tests that turned out not to belong to the session."""
        self._places = {digest: self._places[digest] for digest in digests}

    def close(self) -> None:
        """Let go of the file and of all payloads in it."""
        self._places.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
