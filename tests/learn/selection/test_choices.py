"""Selections that look at what is known of devices: each against its definition, and one liar against all of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base.errors import ConfigError, WireError
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import reported_loss
from edgefl.learn.contract import Update
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import cross_entropy
from edgefl.learn.selection import claims
from edgefl.learn.selection.base import Candidate, drawn
from edgefl.learn.selection.by_samples import BySamples
from edgefl.learn.selection.fastest import Fastest
from edgefl.learn.selection.in_time import InTime
from edgefl.learn.selection.oort import Oort
from edgefl.learn.selection.power_of_choice import PowerOfChoice
from edgefl.learn.selection.registry import selection

HONEST = [Candidate(f"d{i:02d}", samples=100, counted=1 + i % 3, loss=1.0 + 0.1 * i) for i in range(20)]


def firsts(chosen, candidates, cohort=5, draws=range(1, 201), seed=4):
    """How often each device is among the first of its round."""
    names = [name for draw in draws for name in chosen.order(draw, seed, candidates)[:cohort]]
    return {one.id: names.count(one.id) / len(draws) for one in candidates}


def test_samples_draws_in_proportion_to_them():
    fleet = [Candidate("a", samples=10), Candidate("b", samples=20), Candidate("c", samples=30)]
    first = firsts(BySamples(), fleet, cohort=1, draws=range(1, 2001))
    assert [first["a"], first["b"], first["c"]] == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.04)


def test_power_of_choice_asks_those_of_the_drawn_with_the_largest_loss():
    chosen, fleet = PowerOfChoice(share=0.5, clip=1.0), HONEST[:6]
    order, lots = chosen.order(3, 9, fleet), claims.by_weight(claims.samples(fleet), 9, 3)
    assert order[:3] == sorted(lots[:3], reverse=True), "d05 has the largest loss of all"
    assert order[3:] == lots[3:]


def test_power_of_choice_begins_with_those_of_whom_nothing_is_known():
    fleet = [Candidate("a", counted=1, loss=9.0), Candidate("b"), Candidate("c", failures=1)]
    assert PowerOfChoice(share=1.0).order(1, 0, fleet) == ["b", "a", "c"]


def test_oort_ranks_by_samples_times_loss_and_by_rest():
    fleet = [
        Candidate("a", samples=100, counted=9, loss=1.0),
        Candidate("b", samples=200, counted=9, loss=1.0),
        Candidate("c", samples=100, counted=1, loss=1.0),
    ]
    worth = Oort(clip=1.0).worth(10, fleet)
    rest = {counted: np.sqrt(0.1 * np.log(10) / counted) for counted in (1, 9)}
    assert worth == pytest.approx({"a": 0.5 + rest[9], "b": 1.0 + rest[9], "c": 0.5 + rest[1]})
    assert Oort(explore=0, least=0).order(10, 0, fleet) == sorted("abc", key=lambda one: -worth[one])


def test_oort_takes_from_the_worth_of_slow_devices():
    slow, quick = (Candidate(name, samples=9, counted=1, loss=1.0, seconds=s) for name, s in (("a", 40.0), ("b", 5.0)))
    worth = Oort(seconds=10.0, penalty=2.0).worth(1, [slow, quick])
    assert worth["a"] == pytest.approx(worth["b"] / 16)


def test_oort_explores_less_from_draw_to_draw():
    fleet = [*HONEST[:10], *(Candidate(f"new{i}") for i in range(10))]
    early, late = (firsts(Oort(), fleet, draws=draws) for draws in (range(1, 21), range(200, 300)))
    new = lambda seen: sum(share for name, share in seen.items() if name.startswith("new"))  # noqa: E731
    assert new(early) > 2 * new(late)
    assert new(late) == pytest.approx(5 * 0.2, abs=0.2)


def test_fastest_asks_the_unknown_then_the_quick_and_those_in_vain_last():
    fleet = [Candidate("a", seconds=3.0), Candidate("b", seconds=1.0), Candidate("c"), Candidate("d", failures=2)]
    assert list(Fastest().order(1, 0, fleet)) == ["c", "b", "a", "d"]


def test_a_deadline_is_for_everybody_who_makes_it_alike():
    fleet = [Candidate(name, seconds=s) for name, s in (("a", 3.0), ("b", 1.0), ("c", 90.0), ("d", 60.0))]
    orders = {tuple(InTime(seconds=30.0).order(draw, 0, fleet)) for draw in range(20)}
    assert orders == {("a", "b", "d", "c"), ("b", "a", "d", "c")}


LIES = st.builds(
    Candidate,
    id=st.just("liar"),
    samples=st.sampled_from([100, 10**12]),
    counted=st.just(1),
    loss=st.none() | st.floats(-1e12, 1e12),
)


@given(LIES, st.sampled_from(["samples", "power_of_choice", "oort"]))
def test_whatever_one_device_says_it_is_worth_no_more_than_the_most_that_others_say(liar, name):
    fleet = [*HONEST, liar]
    assert claims.samples(fleet)["liar"] <= claims.MOST * 100
    assert claims.losses(fleet, 0.95)["liar"] <= max(one.loss for one in HONEST)
    assert sorted(drawn(selection({"name": name}), 3, 1, fleet)) == sorted(one.id for one in fleet)


@pytest.mark.parametrize("chosen", [PowerOfChoice(), Oort(least=0.0, explore=0.0)])
def test_a_liar_is_asked_no_more_often_than_one_that_means_it(chosen):
    liar = Candidate("liar", samples=100, counted=2, loss=1e12)
    lied, meant = (firsts(chosen, [*HONEST, one]) for one in (liar, replace(liar, loss=HONEST[-1].loss)))
    assert lied["liar"] == meant["liar"], "as if it had said the largest loss that is true of anybody"


def test_silence_is_worth_the_median():
    fleet = [*HONEST, Candidate("silent", samples=100, counted=1)]
    assert claims.losses(fleet, 0.95)["silent"] == pytest.approx(1.9)


# ── the number that devices tell ─────────────────────────────────────────────────────────────────────────────


class Told:
    """Its outputs are its features."""

    def logits(self, _w, x):
        return x


def test_a_loss_is_the_mean_or_the_root_of_the_mean_square_over_samples():
    rng = np.random.default_rng(0)
    data = Dataset(rng.standard_normal((9, 3)).astype(np.float32), rng.integers(0, 3, 9), 3)
    each = [cross_entropy(data.x[i : i + 1], data.y[i : i + 1])[0] for i in range(9)]
    mean, rms = (
        reported_loss.measured(kind, Told(), np.zeros(0), data, cross_entropy, "d") for kind in ("mean", "rms")
    )
    assert (mean, rms) == pytest.approx((np.mean(each), np.sqrt(np.mean(np.square(each)))), rel=1e-3)
    assert mean * 2**10 == round(mean * 2**10), "with ten binary digits"


def test_a_loss_is_over_the_same_samples_whenever_it_is_asked_for_and_never_over_those_that_are_left_out():
    rng = np.random.default_rng(0)
    data = Dataset(rng.standard_normal((400, 3)).astype(np.float32), rng.integers(0, 3, 400), 3)
    about = "mean", Told(), np.zeros(0), data, cross_entropy, "d"
    told = reported_loss.measured(*about)
    data.x[7] = 1e6  # a sample that no mean could hide
    assert {reported_loss.measured(*about[:3], data.take(np.delete(np.arange(400), 7)), *about[4:])} != {told}
    assert reported_loss.measured(*about, left_out=(7,)) < 10
    assert reported_loss.measured(*about, left_out=(7,)) == reported_loss.measured(*about, left_out=(7,))
    assert reported_loss.measured(*about, left_out=None) is None


@pytest.mark.parametrize("told", [np.array([1.0]), np.array(1, np.int64), np.array(np.nan), np.array(-2e12)])
def test_what_is_no_loss_is_refused(told):
    with pytest.raises(WireError, match="one number"):
        reported_loss.read({"loss": told})


def test_only_a_selection_that_looks_at_losses_asks_for_them():
    tables = {name: {"rounds": {"cohort": 2}, "selection": {"name": name}} for name in ("oort", "fresh")}
    runs = {name: parse(RunFile, table, "run.toml", (), {}) for name, table in tables.items()}
    asked = {name: reported_loss.taken(reported_loss.asked(run.loss_asked))[1] for name, run in runs.items()}
    assert asked == {"oort": "rms", "fresh": None}
    assert Update(np.zeros(1), 1.0, 1).loss is None


def test_a_private_run_tells_no_losses():
    table = {
        "algorithm": {"name": "fedprox"},
        "privacy": {"mechanism": "output", "clip": 1.0, "sigma": 1.0},
        "selection": {"name": "oort"},
        "rounds": {"cohort": 2},
    }
    with pytest.raises(ConfigError, match=r"'oort' asks devices for their loss, which \[privacy\] does not cover"):
        parse(RunFile, table, "run.toml", (), {})
