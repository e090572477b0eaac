"""The page of names lists every data set, kind of division and network that a run file can name."""

from pathlib import Path
from typing import get_args

import pytest

from edgefl.learn.data.catalog import NAMES
from edgefl.learn.data.partition import Partition
from edgefl.learn.models.zoo import ZOO

PAGE = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*NAMES, *ZOO, *get_args(Partition.model_fields["kind"].annotation)])
def test_a_name_stands_on_the_page(name: str):
    assert f"`{name}`" in PAGE
