"""Models of the devices' own: each method against its formula, and what never leaves a device."""

import numpy as np
import pytest
from plays import Play, fleet
from toys import Linear, Mlp, dataset, numeric_gradient, site, weights

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Layout
from edgefl.learn.algorithms.ditto import Ditto
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedbn import FedBN
from edgefl.learn.algorithms.fedper import FedPer
from edgefl.learn.algorithms.fedrep import FedRep
from edgefl.learn.algorithms.pfedme import PFedMe
from edgefl.learn.contract import Budget, Personal, Task
from edgefl.learn.losses import cross_entropy

MLP = Mlp(4, 5, 3)
START, DATA = weights(MLP, dtype=np.float64), dataset(samples=20)
HEAD = np.zeros(MLP.layout.size, bool)
HEAD[MLP.layout.slices[2].start :] = True
OWN = weights(MLP, seed=5, dtype=np.float64)
WHOLE = {"batch": 20, "lr": 0.1}


def loss(w):
    return cross_entropy(MLP.logits(w, DATA.x.astype(np.float64)), DATA.y)[0]


def slope(w):
    return numeric_gradient(loss, w)


def trained(algorithm, state=None, budget=None):
    return algorithm.train(Task(1, START, budget or Budget()), state or {}, site(MLP, DATA))


def test_fedper_trains_head_and_body_together_and_sends_the_body():
    w = np.where(HEAD, OWN, START)
    for _ in range(2):
        w = w - 0.1 * slope(w)
    update, kept = trained(FedPer(epochs=2, **WHOLE), {"private": OWN[HEAD]})
    np.testing.assert_allclose(update.delta, np.where(HEAD, 0, w - START), atol=1e-7)
    np.testing.assert_allclose(kept["private"], w[HEAD], atol=1e-7)
    assert not update.delta[HEAD].any()


def test_fedrep_trains_the_head_first_and_then_the_body():
    w = np.where(HEAD, OWN, START)
    for _ in range(3):
        w = np.where(HEAD, w - 0.1 * slope(w), w)
    head = w[HEAD]
    for _ in range(2):
        w = np.where(HEAD, w, w - 0.1 * slope(w))
    update, kept = trained(FedRep(head_epochs=3, epochs=2, **WHOLE), {"private": OWN[HEAD]})
    np.testing.assert_allclose(update.delta, np.where(HEAD, 0, w - START), atol=1e-7)
    np.testing.assert_allclose(kept["private"], head, atol=1e-7)
    assert update.steps == 2, "what is answered are the steps of the body"


def test_fedrep_shortens_both_walks_in_the_same_measure():
    short, _ = trained(FedRep(head_epochs=4, epochs=4, **WHOLE), budget=Budget(batches=2))
    as_long, _ = trained(FedRep(head_epochs=2, epochs=2, **WHOLE))
    assert (short.delta == as_long.delta).all()


def test_ditto_sends_what_fedavg_sends_and_keeps_a_model_near_the_received_one():
    v = OWN
    for _ in range(3):
        v = v - 0.1 * (slope(v) + 0.7 * (v - START))
    update, kept = trained(Ditto(lam=0.7, epochs=3, **WHOLE), {"own": OWN})
    plain, _ = trained(FedAvg(epochs=3, **WHOLE))
    assert (update.delta == plain.delta).all()
    np.testing.assert_allclose(kept["own"], v, atol=1e-7)


def test_a_devices_first_model_of_ditto_starts_at_the_first_model_it_received():
    """Its authors start it at the run's first model, whenever the device is first asked."""
    v = START
    for _ in range(2):
        v = v - 0.1 * (slope(v) + 0.7 * (v - START))
    late = Task(9, START, Budget())  # first asked in round 9: what the run began with is unknown to it
    _, kept = Ditto(lam=0.7, epochs=2, **WHOLE).train(late, {}, site(MLP, DATA))
    np.testing.assert_allclose(kept["own"], v, atol=1e-7)


def test_pfedme_moves_the_shared_model_towards_the_proximal_point():
    w, theta = START, START
    for _ in range(2):
        for _ in range(4):
            theta = theta - 0.05 * (slope(theta) + 3.0 * (theta - w))
        w = w - 0.1 * 3.0 * (w - theta)
    update, kept = trained(PFedMe(lam=3.0, inner=4, own_lr=0.05, epochs=2, **WHOLE))
    np.testing.assert_allclose(update.delta, w - START, atol=1e-7)
    np.testing.assert_allclose(kept["own"], theta, atol=1e-7)


def test_pfedme_goes_beta_of_the_way_to_the_mean():
    model = Linear(4, 3)
    whole, more = (Play(PFedMe(beta=b), fleet(3, model), weights(model)).rounds(1) for b in (1.0, 1.5))
    np.testing.assert_allclose(more.params - weights(model), 1.5 * (whole.params - weights(model)), atol=1e-6)


@pytest.mark.parametrize("algorithm", [FedPer(), FedRep(), Ditto(), PFedMe(), FedBN(private=("*.bias",))])
def test_a_device_that_kept_nothing_has_the_received_model_and_then_its_own(algorithm):
    assert isinstance(algorithm, Personal)
    assert (algorithm.own(START, {}, MLP.layout) == START).all()
    update, kept = trained(algorithm)
    assert (algorithm.own(START + update.delta, kept, MLP.layout) != START).any()


@pytest.mark.parametrize("algorithm", [FedPer(epochs=2), FedRep(), FedBN(private=("head.*",))])
def test_private_parts_of_the_shared_model_stay_what_they_were(algorithm):
    model = Mlp(4, 5, 3)
    game = Play(algorithm, fleet(3, model), weights(model)).rounds(3)
    assert (game.params[HEAD] == weights(model)[HEAD]).all()
    assert (game.params[~HEAD] != weights(model)[~HEAD]).any()
    heads = [kept["private"] for kept in game.devices.values()]
    assert not (heads[0] == heads[1]).all()


def test_fedbn_keeps_what_the_layout_says_of_norm_layers_and_no_more():
    names, shapes = ("0.weight", "rms.weight", "scale.weight", "scale.bias", "table"), ((5, 3), (5,), (5,), (5,), (5,))
    layout = Layout(names, shapes, buffers=1, norms=("rms.weight",))
    assert FedBN().mask(layout).nonzero()[0].tolist() == list(range(15, 20))
    FedBN().fits(layout)


@pytest.mark.parametrize(
    ("algorithm", "layout", "says"),
    [
        (FedPer(), Linear(4, 3).layout, "all that this network trains"),
        (FedBN(), MLP.layout, "the norm layers would stay on the devices, and that is nothing"),
        (FedRep(private=("head.*", "tail.*")), MLP.layout, r"no tensor is called 'tail.\*'; the network has hidden.w"),
    ],
)
def test_a_network_without_such_parts_is_refused(algorithm, layout, says):
    with pytest.raises(ConfigError, match=says):
        algorithm.fits(layout)
