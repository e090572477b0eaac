"""How a model's scores are said: the same words in views, logs, simulations and comparisons."""

from collections.abc import Sequence
from math import inf

from edgefl.base.events import Described, Done, Evaluated, Evaluating, Inherited, Round
from edgefl.base.scores import Scored
from edgefl.learn.evaluation.figures import chief, figures

WITHOUT_BOUNDS = (
    "set guards.bounds = false to play it without bounds, and see `bounded` in records, metrics.jsonl and tables"
)
AS_ON_A_FLEET = f"as it would on a fleet; the algorithm by itself makes another model: {WITHOUT_BOUNDS}"


def scores(event: Scored) -> str:
    """What a round's report, or the last word of a run, says about its model; empty if it was not evaluated."""
    return "  ".join(f"{one.title} {one.shown:>5}" for one in figures(event.scores))


def evaluated(event: Evaluated) -> str:
    """What devices saw of a model, and who they are."""
    if not event.scores:
        return f"of {event.silent} devices none has enough data set aside (evaluation.least)"
    return f"{scores(event)}  {fleet(event)}"


def fleet(event: Evaluated) -> str:
    """Who evaluated a model, how far they are apart, and what their own training made of it."""
    words = [f"on {event.samples} samples of {event.devices} devices"]
    main, own = chief(event.scores), chief(event.local_scores)
    if main and event.median is not None and event.worst_tenth is not None:
        median, worst = main._replace(value=event.median), main._replace(value=event.worst_tenth)
        words.append(f"median {median.shown}  worst tenth {worst.shown}")
    if own:
        words.append(f"own models {own.title} {own.shown}")
    return "  ".join(words)


def described(event: Described) -> str:
    """What a fleet said of its data before the first round."""
    if not event.devices:
        return f"no device said anything of its data ({event.silent} have too few): features stay as they are"
    words = [f"{event.devices} devices with {event.samples} samples described their data"]
    if event.silent:
        words.append(f"{event.silent} have too few to say anything")
    if event.mean is not None and event.deviation is not None:
        few = [f"{m:.4g} ± {d:.4g}" for m, d in zip(event.mean[:4], event.deviation[:4], strict=True)]
        words.append(f"{event.features} features: {', '.join(few)}{', ...' if event.features > 4 else ''}")
    if event.class_weights is not None:
        each = [f"{_named(i, event.class_names)} {weight:.3g}" for i, weight in enumerate(event.class_weights[:6])]
        words.append(f"classes weigh {', '.join(each)}{', ...' if len(event.class_weights) > 6 else ''}")
    return "; ".join(words)


def best(event: Done) -> str:
    """The best that a run came to, from its last word; empty if it was not evaluated."""
    when = "" if event.best_round in (None, event.rounds) else f" after round {event.best_round}"
    return "".join(f"best {figure.title} {figure.shown}{when}" for figure in figures(event.best_score))


def weakest(event: Round | Evaluated | Done, names: Sequence[str] | None) -> str:
    """The class, or the target of several, that a model knows least; empty where there is nothing to tell apart."""
    if event.per_target:
        r2, i = min((-inf if one["r2"] is None else one["r2"], i) for i, one in enumerate(event.per_target))
        return f"weakest target {_named(i, names)} R2 {number(None if r2 == -inf else r2)}"
    known = [(share, i) for i, share in enumerate(event.per_class or ()) if share is not None]
    if len(known) < 2:
        return ""
    share, i = min(known)
    return f"weakest class {_named(i, names)} {share:.1%}"


def _named(i: int, names: Sequence[str] | None) -> str:
    return f"'{names[i]}'" if names and i < len(names) else str(i)


def spent(event: Done) -> str:
    """What the last word of a private run says about privacy; empty if it promised none."""
    bill = event.privacy
    if bill is None:
        return ""
    updates = f"{bill['updates']:.0f} private updates of the device that spent most"
    if bill["epsilon"] is None:
        return f"privacy: none, after {updates}: with privacy.noise = 'seeded' the coordinator can take the noise off"
    return (
        f"privacy: epsilon {bill['epsilon']:.4g} at delta {bill['delta']:g}, after {updates}"
        f" (as published: {bill['as_published']:.4g}, which is no bound)"
    )


def bounded(event: Round) -> str:
    """Return whose answers `[guards]` scaled down in a round; empty if none were."""
    names = list(event.bounded)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"  bounded {', '.join(names[:5])}{more}" if names else ""


def guarded(event: Round | Described | Evaluated) -> str:
    """Return the caution about answers that `[guards]` scaled down; empty if they left all as they were."""
    if not event.bounded:
        return ""
    if isinstance(event, Described):
        whose = f"what {event.bounded} of {event.devices} devices said of their data"
        return f"before the first round: [guards] scaled down {whose}, {AS_ON_A_FLEET}"
    if isinstance(event, Evaluated):
        whose = f"what {event.bounded} of {event.devices} devices evaluated"
        other = "figures of all their samples are others"
        return f"round {event.round}: [guards] scaled down {whose}, as it would on a fleet; {other}: {WITHOUT_BOUNDS}"
    names, count = list(event.bounded), len(event.bounded)
    whose = f"the answer of '{names[0]}'" if count == 1 else f"{count} answers ({', '.join(names[:3])}, ...)"
    return f"round {event.round}: [guards] scaled down {whose}, {AS_ON_A_FLEET}"


def number(value: float | None) -> str:
    """Three places, or a dash."""
    return "-" if value is None else f"{value:.3f}"


def inherited(event: Inherited) -> str:
    """Where a run's first model came from."""
    maker = f", which run '{event.run}' made in {event.rounds} rounds" if event.run else ""
    return f"begins with the model of '{event.source}'{maker}: {event.model_sha256[:16]}"


def evaluating(event: Evaluating) -> str:
    """What a run will be judged by, as it is said at its start."""
    how_often = f", every {event.every} rounds" if event.every > 1 else ""
    by_devices = f"devices evaluate each model on data that they set aside{how_often}"
    if event.on == "devices":
        return f"is judged by its devices, on data that they set aside{how_often}"
    if not event.samples:
        return "has no test data: neither accuracy nor loss will be known (task.data names them)"
    classes = event.class_names or (event.target_names if event.targets > 1 else None)
    kinds = (
        f", a task of kind '{event.kind}'"
        if event.kind
        else f" in {event.classes} classes"
        if event.classes
        else ", real targets"
        if event.targets == 1
        else f", {event.targets} real targets"
    )
    named = f" ({', '.join(classes[:10])}{', ...' if len(classes) > 10 else ''})" if classes else ""
    aside = event.set_aside
    rest = f"; {aside} more are set aside, its training part (x_test and y_test in an .npz divide it)" if aside else ""
    public = f"; {event.public} are public data" if event.public else ""
    top = event.unscaled
    scale = f"; features go up to {top:.6g}: scale them to about -1 to 1, or learning will probably fail" if top else ""
    both = f"; {by_devices}" if event.on == "both" else ""
    samples = f"{event.samples} samples"
    if event.split == "validation":
        samples = f"a validation part, {event.samples} training samples"
    return f"evaluates on {samples} of '{event.data}'{kinds}{named}{public}{rest}{scale}{both}"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
