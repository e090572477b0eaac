"""Inputs that fuzzing begins with, and those it found: each is read or refused, and nothing else ever happens."""

from pathlib import Path

import pytest
from fuzz_atheris import CORPUS, one_input


@pytest.mark.parametrize("file", sorted(CORPUS.iterdir()), ids=lambda file: file.name)
def test_an_input_of_the_corpus_is_read_or_refused(file: Path) -> None:
    one_input(file.read_bytes())


def test_the_corpus_has_inputs_for_every_reader() -> None:
    assert {file.read_bytes()[:1] for file in CORPUS.iterdir()} == {b"f", b"c", b"t"}
