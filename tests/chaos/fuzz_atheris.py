"""Coverage-guided fuzzing of frame decoder, chunk assembler and config reader; opt-in, needs `pip install atheris`.

python tests/chaos/fuzz_atheris.py -max_total_time=300
"""

import sys
from contextlib import suppress

from edgefl.config import RunFile
from edgefl.config_reader import parse, tomllib
from edgefl.errors import ConfigError, WireError
from edgefl.protocol import chunks, tensors
from edgefl.protocol.messages import TO_COORDINATOR, TO_DEVICE, Answer, read

LIMIT = 1 << 20


def one_input(data: bytes) -> None:
    """Anything but a WireError is a finding."""
    for kind in (TO_COORDINATOR, TO_DEVICE):
        with suppress(WireError):
            said, opened = read(kind, data, LIMIT)
            if isinstance(said, Answer):
                tensors.decode(said.tensors, opened.body)
    with suppress(ConfigError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        parse(RunFile, tomllib.loads(data.decode()), "fuzz", environment={})
    assembler = chunks.Assembler(LIMIT)
    for start in range(0, len(data), 200):
        with suppress(WireError):
            assembler.add(data[start : start + 200])


def main() -> int:
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: pip install atheris, then run this again (it is not part of edgefl's setup)")
        return 2
    atheris.instrument_all()
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
