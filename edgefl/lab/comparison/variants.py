"""What is compared: a word on the command line becomes a run.

    [label=]name[:key=value]...[+stage[:key=value]...]...

    fedprox                               the run file, with another algorithm
    gc=fedgc:sgc=false                    with hyper-parameters of its own, shown as `gc`
    ft=fedavg+finetune:max_epochs=3       with a stage after the algorithm's own
    up=upcycled:mu=0.5:run.rounds=160     a key with a dot is any other key of the run file
    mine.sgd:Twice:lr=0.1                 an algorithm or a stage of your own, as a run file names it

What all device halves share (lr, batch, epochs, weights, ...) has the values of the run file's own algorithm, defaults
included. So all entries train as much and are averaged in the same way, unless an entry sets another value. The rest
of the [algorithm] table belongs to the algorithm it names, and so does the file's [[aggregation]].
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin

from edgefl.base.errors import ConfigError, nearest
from edgefl.job.config.reader import parse, toml_value
from edgefl.job.config.schema import RunFile
from edgefl.learn.algorithms import registry
from edgefl.learn.training.local import LocalTraining

SHARED = {field.name for field in fields(LocalTraining)}


@dataclass(frozen=True, slots=True)
class Variant:
    """One curve of the comparison: its label, and the run behind it."""

    label: str
    run: RunFile


def variants(words: str, table: dict[str, Any], origin: str, sets: Sequence[str] = ()) -> tuple[Variant, ...]:
    """The variants that a comma-separated list names, on top of the tables of a run file."""
    base = parse(RunFile, table, origin, sets)
    chosen = tuple(variant(word.strip(), base, origin) for word in words.split(",") if word.strip())
    labels = [v.label for v in chosen]
    if not chosen:
        raise ConfigError("--algorithms is empty; give at least one, e.g. --algorithms fedavg,fedprox")
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"--algorithms: '{label}' stands there twice; give each a label: a={label},b={label}")
    return chosen


def variant(word: str, base: RunFile, origin: str = "run file") -> Variant:
    """The run file with what one word changes in it."""
    label, spec = split_label(word)
    head, *tails = spec.split("+")
    name, given, elsewhere = _described(head, word, registry.algorithm_registry())
    if ":" not in name and name not in registry.algorithm_registry():
        raise ConfigError(f"--algorithms {word}: no algorithm '{name}'; {nearest(name, registry.algorithm_registry())}")
    own = base.algorithm.get("name") == name
    algorithm = {**(base.algorithm if own else _shared(base, name)), "name": name, **given}
    if "epochs" in given and "batches" not in given:
        algorithm.pop("batches", None)  # a number of mini-batches would win over the epochs that were asked for
    stages = list(base.aggregation) if own else []
    for tail in tails:
        stage, keys, dotted = _described(tail, word, registry.stage_registry())
        if dotted:
            raise ConfigError(f"--algorithms {word}: '{dotted[0]}' belongs to the algorithm, before the first '+'")
        stages = stages or [registry.describe(own_stage) for own_stage in registry.algorithm(algorithm).stages()]
        stages.append({"name": stage, **keys})
    changed = {**base.model_dump(exclude_none=True), "algorithm": algorithm, "aggregation": tuple(stages)}
    # The environment and --set have had their say in the base.
    return Variant(label, parse(RunFile, changed, f"{origin}, {label}", elsewhere, environment={}))


def _shared(base: RunFile, name: str) -> dict[str, Any]:
    """How the run file's own algorithm trains, as far as the algorithm of this name has such keys, and a choice.

    MIFA has none: it is defined by the uniform mean.
    """
    own = registry.describe(registry.algorithm(base.algorithm))
    kind = registry.algorithm_registry().find(name, "algorithm.name")
    known = getattr(kind, "__dataclass_fields__", {})
    shared = {key: value for key, value in own.items() if key in SHARED and key in known and value is not None}
    return {k: v for k, v in shared.items() if get_origin(known[k].type) is not Literal or v in get_args(known[k].type)}


def seeded(run: RunFile, seed: int) -> RunFile:
    """The same run with another seed, played to its end: a comparison looks at whole curves."""
    return run.model_copy(
        update={"run": run.run.model_copy(update={"seed": seed, "target_accuracy": None, "target_loss": None})}
    )


def split_label(word: str) -> tuple[str, str]:
    """The label, and what follows it; without one the word speaks for itself."""
    head, equals, rest = word.partition("=")
    return (head, rest) if equals and not set(head) & set(":+") else (word, word)


def _described(part: str, word: str, registered: Container[str]) -> tuple[str, dict[str, Any], list[str]]:
    """A name, its own keys, and the keys with a dot, as `--set` takes them."""
    name, *pairs = part.split(":")
    if name not in registered and pairs and pairs[0].isidentifier():
        name = f"{name}:{pairs.pop(0)}"  # `package.module:name`
    own, elsewhere = {}, []
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"--algorithms {word}: write '{pair}' as key=value, e.g. fedprox:mu=0.1")
        if "." in key:
            elsewhere.append(pair)
        else:
            own[key] = toml_value(text)
    return name, own, elsewhere
