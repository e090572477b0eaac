"""What the golden messages say is written down for readers in other languages, and is true."""

import golden_values
import pytest

from edgefl.base import seeds


def test_the_file_of_values_is_what_the_second_reader_reads() -> None:
    written = golden_values.FILE.read_text(encoding="utf-8")
    assert written == golden_values.text(), "python tests/wire/golden_values.py"


@pytest.mark.parametrize("drawn", golden_values.streams(), ids=lambda drawn: str(drawn["name"]))
def test_the_streams_in_it_are_those_that_a_simulation_draws(drawn: dict[str, object]) -> None:
    seed, name = drawn["seed"], drawn["name"]
    assert isinstance(seed, int)
    assert isinstance(name, list)
    raw = seeds.stream(seed, *name).bit_generator.random_raw(4)
    assert drawn["64 bits"] == [f"{number:016x}" for number in raw]
    permuted = seeds.stream(seed, *name)
    assert drawn["permutations of 10"] == [permuted.permutation(10).tolist() for _ in range(2)]
