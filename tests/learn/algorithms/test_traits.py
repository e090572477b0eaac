"""What an algorithm or a stage says of itself: one record, whose defaults are the plain case."""

from dataclasses import FrozenInstanceError

import pytest
from pydantic.dataclasses import dataclass

from edgefl.base.errors import ConfigError
from edgefl.learn.aggregation import Mean
from edgefl.learn.algorithms import registry
from edgefl.learn.algorithms.fedasync import Mix
from edgefl.learn.algorithms.upcycled import Upcycled
from edgefl.learn.contract import STRICT, Traits, traits_of
from edgefl.learn.training.local import LocalTraining


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Silent:
    name: str = "silent"

    def apply(self, draft, state, site):
        return draft, state


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Former(Silent):
    name: str = "former"

    free_rounds = True


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Twice(LocalTraining):
    name: str = "twice"

    traits = Traits(cohort_rounds=2)

    def stages(self):
        return (Mean(),)


def test_a_class_that_says_nothing_is_the_plain_case():
    assert traits_of(Silent()) == Traits()


def test_traits_of_a_class_replace_those_of_the_class_it_derives_from():
    assert traits_of(LocalTraining()) == Traits(buffered=True)
    assert traits_of(Twice()) == Traits(cohort_rounds=2)


def test_traits_can_follow_from_hyper_parameters():
    assert Upcycled().traits.free_rounds
    assert not Upcycled(even="device").traits.free_rounds
    assert Mix(history=7).traits.history == 7


def test_traits_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Mean().traits.nests = False


@pytest.mark.parametrize(("kind", "fits"), [(Silent, True), (Former, False)])
def test_a_trait_where_nothing_looks_for_it_is_refused(kind, fits, monkeypatch):
    monkeypatch.setitem(registry.stage_registry(), kind().name, kind)
    if fits:
        assert registry.stage({"name": "silent"}) == Silent()
        return
    with pytest.raises(ConfigError, match=r"'former' has an attribute 'free_rounds'.*traits = Traits\(free_rounds="):
        registry.stage({"name": "former"})
