import numpy as np
from plays import Play, fleet
from toys import Linear, site, weights

from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedavgm import FedAvgM
from edgefl.learn.algorithms.mifa import MIFA, MIFAM, UpdateTable
from edgefl.learn.contract import Draft, Update

HERE = site(Linear(2, 1, bias=False))


def play(algorithm, rounds, model=None):
    model = model or Linear(4, 3)
    return Play(algorithm, fleet(3, model), weights(model)).rounds(rounds)


def draft(updates, late=None, population=4):
    answers = {d: Update(np.array(v), 1.0, 1) for d, v in updates.items()}
    after = {d: Update(np.array(v), 1.0, 1) for d, v in (late or {}).items()}
    return Draft(1, np.zeros(2), answers, np.zeros(2), population, after)


def test_with_everybody_active_it_is_fedavg_with_equal_weights_bit_for_bit():
    for model in (Linear(4, 3), Linear(4, 3, statistics=True)):
        assert (play(MIFA(), 3, model).params == play(FedAvg(weights="uniform"), 3, model).params).all()


def test_with_momentum_and_everybody_active_it_is_fedavgm():
    assert (play(MIFAM(beta=0.7), 3).params == play(FedAvgM(beta=0.7, weights="uniform"), 3).params).all()


def test_an_absent_device_counts_with_its_last_update_and_an_unseen_one_with_zero():
    table = UpdateTable()
    first, state = table.apply(draft({"a": [4.0, 0.0]}), {}, HERE)
    np.testing.assert_allclose(first.step, [1, 0])
    second, state = table.apply(draft({"b": [0.0, 8.0]}), state, HERE)
    np.testing.assert_allclose(second.step, [1, 2])
    third, _ = table.apply(draft({"a": [-4.0, 0.0]}), state, HERE)
    np.testing.assert_allclose(third.step, [-1, 2])


def test_a_late_update_overwrites_the_row_unless_a_fresh_one_came():
    late, _ = UpdateTable().apply(draft({"a": [4.0, 0.0]}, {"b": [0.0, 4.0]}), {}, HERE)
    np.testing.assert_allclose(late.step, [1, 1])
    both, _ = UpdateTable().apply(draft({"a": [4.0, 0.0]}, {"a": [400.0, 0.0]}), {}, HERE)
    np.testing.assert_allclose(both.step, [1, 0])


def test_the_table_keeps_its_own_copies():
    sent = draft({"a": [4.0, 0.0]})
    _, state = UpdateTable().apply(sent, {}, HERE)
    sent.updates["a"].delta[:] = 99
    np.testing.assert_allclose(state["row.0"], [4, 0])
    assert state["members"].tolist() == ["a"]
    assert state["members"].dtype.kind == "U"


def test_statistics_are_the_mean_of_who_answered():
    model = Linear(4, 3, statistics=True)
    game = play(MIFA(), 1, model)
    at = game.params
    game.rounds(1, cohort=("pi-1",))
    k = model.layout.trainable
    np.testing.assert_allclose((game.params - at)[k:], game.updates["pi-1"].delta[k:], atol=1e-6)
