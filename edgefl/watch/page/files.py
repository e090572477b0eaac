"""The files of a page, read once: nothing else of the disk can be asked for."""

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

FOLDER = Path(__file__).parent / "static"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class File:
    """What is sent, and by what a browser knows that it has it already."""

    body: bytes
    kind: str
    tag: str


@cache
def known(folder: Path = FOLDER) -> dict[str, File]:
    """Every file, by its path below `folder`."""
    return {path.relative_to(folder).as_posix(): _read(path) for path in folder.rglob("*") if path.is_file()}


def answer(path: str, request: Request, folder: Path = FOLDER) -> Response:
    """One of them."""
    file = known(folder).get(path)
    if file is None:
        return PlainTextResponse("There is no such file.\n", 404)
    headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.kind, headers=headers)


def _read(path: Path) -> File:
    body = path.read_bytes()
    kind = TYPES.get(path.suffix, "text/plain")
    return File(body, kind, f'"{sha256(body).hexdigest()[:32]}"')
