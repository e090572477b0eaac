"""The form of a back-up: a tar of plain files between a description and a list of hashes.

    backup.json        which version wrote it, when and where, and what is in it
    fleets/ server/ runs/
    manifest.json      the size and SHA-256 of every file before it

What is read is trusted only as far as it was checked: a name that leads elsewhere, a link, a file that the list does
not name, or a hash that does not agree, ends the reading. The files stand in a folder of their own until then.
"""

import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgefl.base.errors import ConfigError, StoreError
from edgefl.base.version import __version__
from edgefl.server.sealed_stream import SealedReader, SealedWriter, is_sealed
from edgefl.system.json_text import parse_json
from edgefl.system.portable import sync_folder
from edgefl.system.store import make_folder, new_file

DESCRIPTION, MANIFEST = "backup.json", "manifest.json"
FORMAT: Literal["edgefl back-up"] = "edgefl back-up"
VERSION: Literal[1] = 1
FLEETS, SERVER, RUNS = "fleets", "server", "runs"
LIMITS = {DESCRIPTION: 1 << 20, MANIFEST: 32 << 20}  # bytes
LONGEST = 4096  # characters of a path
BLOCK = 1 << 20  # bytes that are read or written at a time
_PART = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class BackupDescription(_Stored):
    """What a back-up says of itself before its files."""

    format: Literal["edgefl back-up"] = FORMAT
    version: Literal[1] = VERSION
    created: datetime
    host: str
    software: str = __version__
    state: str  # the operator's folder that the copy was made of
    fleets: tuple[str, ...]
    server: bool  # whether there was one
    runs: Mapping[str, str] = {}  # outside of the server's folder: by name, the folder that it stood in


class StoredFile(_Stored):
    """What a file must be when it is read again."""

    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class BackupManifest(_Stored):
    """Every file but the description and this list."""

    files: Mapping[str, StoredFile]


class Readable(Protocol):
    """Bytes that can be read once."""

    def read(self, size: int = ..., /) -> bytes:
        """Return the next bytes."""
        ...


class BackupWriter:
    """Writes the files of a back-up, one after another; `finish` adds the list."""

    def __init__(self, file: Any, description: BackupDescription) -> None:  # Any: whatever tarfile can write to
        self._tar = tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT, bufsize=BLOCK)  # noqa: SIM115
        self._at, self._files = int(description.created.timestamp()), dict[str, StoredFile]()
        self._put(DESCRIPTION, description.model_dump_json(indent=1).encode())

    def add(self, name: str, size: int, source: Readable) -> None:
        """Add a file of this size; what stands behind these bytes is left out."""
        hashed = _Hashed(source)
        try:
            self._tar.addfile(self._info(name, size), hashed)
        except OSError as error:
            if error.errno is None:  # what tarfile says of a source that ends too early
                raise StoreError(f"{name}: became shorter while it was copied; make the back-up again") from None
            raise
        self._files[name] = StoredFile(size=size, sha256=hashed.sum.hexdigest())

    def finish(self) -> int:
        """Write the list; return how many files are in it."""
        self._put(MANIFEST, BackupManifest(files=self._files).model_dump_json().encode())
        self.close()
        return len(self._files)

    def close(self) -> None:
        """Write nothing more; without `finish` before it, no whole back-up was written."""
        self._tar.close()

    def _put(self, name: str, data: bytes) -> None:
        self._tar.addfile(self._info(name, len(data)), BytesIO(data))

    def _info(self, name: str, size: int) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, self._at
        return info


class _Hashed:
    """Takes the hash of what is read through it."""

    def __init__(self, source: Readable) -> None:
        self.source, self.sum = source, sha256()

    def read(self, size: int = -1, /) -> bytes:
        data = self.source.read(size)
        self.sum.update(data)
        return data


@contextmanager
def written(path: Path, description: BackupDescription, reader: bytes | None = None) -> Iterator[BackupWriter]:
    """Write a back-up, sealed if there is a reader's key; the file is there when the block has ended well."""
    fresh = path.with_name(f".{path.name}.new")
    if path.exists():
        raise ConfigError(f"{path}: is there already; name another file")
    try:
        fresh.unlink(missing_ok=True)
        with new_file(fresh, private=True) as file:
            sealer = SealedWriter(file, reader) if reader is not None else None
            writer = BackupWriter(sealer or file, description)
            try:
                yield writer
                writer.finish()
            finally:
                writer.close()  # while its file is open: what it holds is written once more
            if sealer is not None:
                sealer.close()
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror or error}); free some space") from None
    finally:
        fresh.unlink(missing_ok=True)


def extract(path: Path, into: Path, key: Any, check: Callable[[BackupDescription], None]) -> BackupDescription:
    """Unpack a back-up into a new folder, and return what it says of itself; `check` may refuse it before its files.

    Nothing in the folder may be used unless this returns.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            return _extracted(_opened(file, key, path), size, path, into, check)
    except tarfile.TarError as error:
        raise StoreError(f"{path}: no whole back-up ({error}); take another copy") from None
    except OSError as error:
        raise StoreError(f"{error.filename or path}: cannot be read or written ({error.strerror or error})") from None


def _opened(file: BinaryIO, key: Any, path: Path) -> Readable:
    if is_sealed(file):
        if key is None:
            raise ConfigError(f"{path}: is sealed; --key FILE names the secret key that opens it")
        return SealedReader(file, key, str(path))
    return file


def _extracted(
    source: Readable, largest: int, path: Path, into: Path, check: Callable[[BackupDescription], None]
) -> BackupDescription:
    description: BackupDescription | None = None
    manifest: BackupManifest | None = None
    files: dict[str, StoredFile] = {}
    with tarfile.open(fileobj=source, mode="r|", bufsize=BLOCK) as tar:  # type: ignore[call-overload]  # it only reads
        for info in tar:
            content = tar.extractfile(info) if info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) else None
            if content is None or info.sparse is not None:
                raise StoreError(f"{path}: '{_shown(info.name)}' in it is no plain file; it was not made by edgefl")
            if info.size > LIMITS.get(info.name, largest):
                raise StoreError(
                    f"{path}: '{_shown(info.name)}' in it is larger than the whole back-up; take another copy"
                )
            if description is None:
                description = _description(info.name, content.read() if info.name == DESCRIPTION else b"", path)
                check(description)
            elif info.name == MANIFEST:
                manifest = _manifest(content.read(), path)
            elif manifest is not None or info.name in files or not is_name(info.name):
                raise StoreError(f"{path}: '{_shown(info.name)}' in it is no name of a file that edgefl writes there")
            else:
                files[info.name] = _copied(content, info.size, into / info.name)
    if description is None or manifest is None:
        raise StoreError(f"{path}: no whole back-up, its end is missing; take another copy")
    if files != manifest.files:
        wrong = sorted(name for name in files | dict(manifest.files) if files.get(name) != manifest.files.get(name))
        raise StoreError(f"{path}: '{_shown(wrong[0])}' in it is not what was copied; take another copy")
    return description


def is_name(name: str) -> bool:
    """Return whether a file of a back-up may have this name: a path below one of its folders, and plain."""
    first, *rest = name.split("/")
    return first in (FLEETS, SERVER, RUNS) and bool(rest) and all(map(is_plain, rest)) and len(name) < LONGEST


def is_plain(part: str) -> bool:
    """Return whether this can be the name of a file in a folder, and leads nowhere else."""
    return part not in (".", "..") and bool(_PART.fullmatch(part))


def _copied(content: Readable, size: int, to: Path) -> StoredFile:
    make_folder(to.parent)
    hashed = _Hashed(content)
    with new_file(to, private=True) as file:
        while block := hashed.read(BLOCK):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return StoredFile(size=size, sha256=hashed.sum.hexdigest())


def _description(name: str, data: bytes, path: Path) -> BackupDescription:
    try:
        table = parse_json(data) if name == DESCRIPTION else {}
        if not isinstance(table, dict) or table.get("format") != FORMAT:
            raise StoreError(f"{path}: not a back-up that edgefl has made")
        if table.get("version") != VERSION:
            software = _shown(str(table.get("software", "?")))
            raise StoreError(
                f"{path}: written by edgefl {software} in a form that this one does not know; install that"
            )
        description = BackupDescription.model_validate_json(data)
    except (ValueError, ValidationError):
        raise StoreError(f"{path}: its description cannot be read; take another copy") from None
    if not all(map(is_plain, (*description.fleets, *description.runs))):
        raise StoreError(f"{path}: it names a fleet or a run that cannot be; it was not made by edgefl")
    return description


def _manifest(data: bytes, path: Path) -> BackupManifest:
    try:
        return BackupManifest.model_validate_json(data)
    except ValidationError:
        raise StoreError(f"{path}: its list of files cannot be read; take another copy") from None


def _shown(name: str) -> str:
    return ascii(name[:100])[1:-1]
