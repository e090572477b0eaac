"""What a gateway decides between the coordinator and its site, told event by event."""

from gateway.relay import (
    Action,
    Advance,
    Begin,
    DeclineOrder,
    DeliverSum,
    End,
    Ended,
    Event,
    Order,
    OrderCancelled,
    Ordered,
    Relay,
    RoundAbandoned,
    Summed,
    step,
)


def order(number: int, round: int, model: str = "m", run: str = "job.r") -> Order:
    return Order(number, run, round, f"{model}{round}")


def feed(*happened: Event, relay: Relay | None = None) -> tuple[Relay, list[Action]]:
    did: list[Action] = []
    relay = relay or Relay()
    for event in happened:
        relay, actions = step(relay, event)
        did += actions
    return relay, did


def test_the_first_task_of_a_run_begins_it_at_the_site_and_its_sum_is_the_answer():
    assert feed(Ordered(order(1, 4)), Summed("job.r", 4))[1] == [Begin("job.r"), DeliverSum(order(1, 4))]


def test_the_next_round_goes_on_whatever_became_of_the_last_one():
    assert feed(Ordered(order(1, 4)), Ordered(order(2, 5)))[1] == [Begin("job.r"), Advance("job.r")]
    assert feed(Ordered(order(1, 4)), Summed("job.r", 4), Ordered(order(2, 9)))[1][-1] == Advance("job.r")


def test_a_task_that_comes_again_gets_the_sum_that_is_there_or_waits_for_it():
    at_work, did = feed(Ordered(order(1, 4)), OrderCancelled(), Ordered(order(2, 4)))
    assert did == [Begin("job.r")], "its devices are at work on it already"
    summed, did = feed(Summed("job.r", 4), relay=at_work)
    assert did == [DeliverSum(order(2, 4))]
    assert feed(Ordered(order(3, 4)), relay=summed)[1] == [DeliverSum(order(3, 4))]


def test_a_sum_that_nobody_waits_for_is_kept_until_somebody_does():
    relay, did = feed(Ordered(order(1, 4)), OrderCancelled(), Summed("job.r", 4))
    assert did == [Begin("job.r")]
    assert feed(Ordered(order(2, 4)), relay=relay)[1] == [DeliverSum(order(2, 4))]


def test_a_sum_of_a_round_that_is_over_is_nobodys():
    assert feed(Ordered(order(1, 4)), Ordered(order(2, 5)), Summed("job.r", 4))[1][2:] == []


def test_an_earlier_round_or_another_model_of_the_same_begins_the_run_afresh():
    for again in (order(2, 3), order(2, 4, model="other")):
        assert feed(Ordered(order(1, 4)), Ordered(again))[1] == [Begin("job.r"), Begin("job.r", afresh=True)]


def test_a_round_that_the_site_gives_up_is_declined_and_another_one_is_not():
    reason = "its site: 1 of 3 answered"
    assert feed(Ordered(order(1, 4)), RoundAbandoned("job.r", 4, reason))[1][1:] == [DeclineOrder(order(1, 4), reason)]
    assert feed(Ordered(order(1, 4)), Ordered(order(2, 5)), RoundAbandoned("job.r", 4, reason))[1][2:] == []


def test_a_run_that_is_over_ends_at_the_site_which_may_know_it_from_an_earlier_life():
    relay, did = feed(Ordered(order(1, 4)), Ended("job.r"))
    assert did == [Begin("job.r"), End("job.r")]
    assert feed(Ordered(order(2, 4)), relay=relay)[1] == [Begin("job.r")], "it was extended"
    assert feed(Ended("job.r"))[1] == [End("job.r")]


def test_runs_do_not_mix():
    other = order(2, 4, run="other.r")
    relay, did = feed(Ordered(order(1, 4)), OrderCancelled(), Ordered(other), Summed("job.r", 4))
    assert did == [Begin("job.r"), Begin("other.r")]
    assert feed(Summed("other.r", 4), relay=relay)[1] == [DeliverSum(other)]
