"""A small run to be told of."""

from edgefl.base.events import Done, Evaluated, Evaluating, Fact, Round, Started

STARTED = Started("sensors", "1f2e3d4c5b6a", "mqtt://b", "ed25519:k", "fedgc", 3, 60.0, at=1000.0)
EVALUATING = Evaluating("npz:/srv/test.npz", 100, 0, None, 0, 2, ("sitting down", "walking 100%"), at=1001.0)
SCORES = (0.5, 0.625, 0.75)
ROUNDS = tuple(
    Round(
        number,
        scores={"accuracy": score, "loss": 1 - score},
        per_class=(score, None if number == 1 else 0.5),
        devices=2,
        bytes_up=100 * number,
        seconds=2.5,
        at=1000.0 + 10 * number,
    )
    for number, score in enumerate(SCORES, 1)
)
DONE = Done("sensors", "fedgc", 3, scores={"accuracy": 0.75}, rounds_to_target=3, model_sha256="ab" * 32, at=1040.0)
SEEN = Evaluated(
    2, scores={"accuracy": 0.5}, per_class=(0.25, 0.75), samples=40, devices=2, worst_tenth=0.375, at=1029.0
)
STORY: tuple[Fact, ...] = (STARTED, EVALUATING, *ROUNDS, SEEN, DONE)  # of a model one hears when the next is merged
