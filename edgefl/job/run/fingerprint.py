"""By what a run is known: a digest of all that its result depends on.

That is the run file with algorithm and seed, the contents of its data, edgefl's own code, the user's files that it
names, and objects of this process (object_fingerprint.py). What those files import is not looked at.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgefl.base.version import CODE
from edgefl.job.config.schema import RunFile
from edgefl.job.run import first_model
from edgefl.job.run.object_fingerprint import fingerprint
from edgefl.learn import session_objects
from edgefl.learn.data import files
from edgefl.learn.data.catalog import FOLDERS, data_root
from edgefl.system import user_code, user_files
from edgefl.system.user_files import located

ELSEWHERE = {"broker", "page", "export", "devices"}  # what no result depends on
OURS = "the code of edgefl"
MOST = 3  # differences that are said
HEEDED = ("trust", "bounds", "weight_cap", "norm_cap", "extra_cap")  # the guards of a simulation


def digest(run: RunFile, root: Path | None = None) -> str:
    """What two runs must share to be the same run."""
    return digest_of(words(run, root))


def digest_of(words: Mapping[str, Any]) -> str:
    """The digest of what a run is known by."""
    return sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


def words(run: RunFile, root: Path | None = None) -> dict[str, Any]:
    """All that the result depends on, by what a human calls it: keys of the run file, files, objects."""
    table = run.model_dump(mode="json", exclude=ELSEWHERE)
    if data := files.contents(run.task.data):  # wherever they lie
        table["task"]["data"] = f"{(run.task.data or '').partition(':')[0]}:{data[:16]}"
    if run.fleet is not None and run.fleet.trace is not None:
        table["fleet"]["trace"] = _version(located(run.fleet.trace), read=True)
    del table["run"]["folder"]
    table["guards"] = {key: table["guards"][key] for key in HEEDED}
    folder = {"the folder of data": str(data_root(root).resolve())} if run.task.data in FOLDERS else {}
    theirs: dict[str, list[str]] = {}  # by name: wherever they are
    for file in _theirs(run):
        theirs.setdefault(file.name, []).append(_version(file))
    objects = {
        f"your {name.partition(':')[2]}": fingerprint(session_objects.found(name))
        for name in session_objects.only_here(table)
    }
    return {**_flat(table), **folder, **theirs, **objects, OURS: _ours()}


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What of two runs is not the same, in words; at most three things."""
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    phrases = [_phrase(name, before.get(name), now.get(name)) for name in names[:MOST]]
    return ", ".join(phrases) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")


def _phrase(name: str, before: Any, now: Any) -> str:
    key = name.partition(".")[0] in RunFile.model_fields
    return f"{name} = {json.dumps(now)} (was {json.dumps(before)})" if key else name


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return flat


@cache
def _ours() -> str:
    """Our own code: a result belongs to what made it."""
    digest, home = sha256(), CODE
    for file in sorted([*home.rglob("*.py"), *(home.parent / "coordinator").glob("*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _theirs(run: RunFile) -> Iterator[Path]:
    """Files from outside that the run names: of its data, model, algorithm and stages."""
    for word in (run.task.data, run.task.model):
        kind, colon, _ = (word or "").partition(":")
        # To look for a module in a package imports the package.
        if word and colon and kind not in files.KINDS and user_code.is_allowed(word):
            yield from _source(kind)
    if run.run.from_ is not None:
        yield first_model.locate(run)
    for part in (run.make_algorithm(), *run.make_stages()):
        if type(part).__module__.split(".")[0] != "edgefl":
            yield from _source(type(part).__module__)


def _source(module: str) -> Iterator[Path]:
    """The file of a module, on the path or beside the run; none if it cannot be found."""
    user_files.reach()
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    yield Path(spec.origin) if spec and spec.origin else Path(module.replace(".", "/") + ".py")


def _version(file: Path, *, read: bool = False) -> str:
    """Which version of a file this is; a model may be too large to be read for it."""
    if not file.is_file():
        return ""
    about = file.stat()
    return (
        sha256(file.read_bytes()).hexdigest()
        if read or file.suffix == ".py"
        else f"{about.st_size} {about.st_mtime_ns}"
    )
