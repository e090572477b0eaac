"""Fuzzing of frame decoder, chunk assembler and config reader, guided by coverage: `fuzz` of scripts/Makefile.

The first byte of an input says who reads the rest: f frames, c chunks, t configuration. What is found is put into
`corpus/`, where `test_corpus.py` plays it for ever after.
"""

import sys
from contextlib import suppress
from pathlib import Path

from edgefl.base.errors import ConfigError, WireError
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import parse, tomllib
from edgefl.job.config.schema import RunFile
from edgefl.wire import chunks, tensors
from edgefl.wire.messages import TO_COORDINATOR, TO_DEVICE, Answer, JobState, Manifest, Presence, read, read_json

LIMIT = 1 << 20
PIECE = 200  # bytes of an input that make one message to the assembler
CORPUS = Path(__file__).with_name("corpus")


def one_input(data: bytes) -> None:
    """Anything but our own word for a bad input is a finding."""
    rest = data[1:]
    match data[:1]:
        case b"f":
            _frame(rest)
        case b"c":
            _chunks(rest)
        case b"t":
            _configuration(rest)


def _frame(data: bytes) -> None:
    for kind in (TO_COORDINATOR, TO_DEVICE):
        with suppress(WireError):
            message, opened = read(kind, data, LIMIT)
            if isinstance(message, Answer):
                tensors.decode(message.tensors, opened.body)
    for retained in (Presence, JobState, Manifest):
        with suppress(WireError):
            read_json(retained, data)


def _chunks(data: bytes) -> None:
    assembler = chunks.Assembler(LIMIT)
    for start in range(0, len(data), PIECE):
        with suppress(WireError):
            whole = assembler.add(data[start : start + PIECE])
            assert whole is None or chunks.digest(bytes(whole[1])) == whole[0]
    assert len(assembler.underway()) <= assembler.transfers


def _configuration(data: bytes) -> None:
    with suppress(UnicodeDecodeError, tomllib.TOMLDecodeError):
        table = tomllib.loads(data.decode())
        for kind in (RunFile, AgentFile):
            with suppress(ConfigError):
                parse(kind, table, "fuzz.toml", environment={})


def main() -> int:
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: use `make -f scripts/Makefile fuzz`, which installs it")
        return 2
    atheris.instrument_all()
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
