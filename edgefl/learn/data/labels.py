"""What labels mean: classes or real targets, and which class has which number. What cannot be known is asked."""

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.tasks.fields import in_words
from edgefl.learn.tasks.form import PLAIN, Form
from edgefl.learn.tasks.kinds import KINDS, Outputs, formed

if TYPE_CHECKING:  # what reads sources is not in a box
    from edgefl.learn.data.source import Source

Classes: TypeAlias = int | tuple[str, ...] | None  # how many, their names in order, or whatever the data say

REAL_TARGETS = ("squared_error", "mean_squared_error")  # losses that take real numbers; the others take classes
MANY = 20  # up to this number of classes, some may well lack samples


def form_of(source: "Source", kind: str, classes: int | None, outputs: Outputs | None) -> Form:
    """How rows of these data are read in a task of this kind; of a plain one, only inputs may need that."""
    if not kind:
        return Form(inputs=source.train.form.inputs)
    return KINDS[kind].form((source.train, source.test), classes, outputs, f"data set '{source.name}'")


def settled(source: "Source", loss: str, classes: Classes, targets: Classes = None) -> "Source":
    """The coordinator's data as its run file means them: `task.loss`, `task.classes`, `task.targets`."""
    classes = 0 if classes is None and targets is not None else classes
    if labels := source.train.form.labels:
        raise ConfigError(
            f"data set '{source.name}' has labels {in_words(labels)}, neither a class nor real targets; set task.kind"
            " ('segmentation', 'next_token', 'heads', ...: docs/tasks.md)"
        )
    _ask(source, loss, classes)
    understood = understood_source(source, classes, f"data set '{source.name}'")
    if targets is None:
        return understood
    train, test = (aimed(part, targets, f"data set '{source.name}'") for part in (understood.train, understood.test))
    return replace(understood, train=train, test=test)


def understood_source(source: "Source", classes: Classes, where: str) -> "Source":
    """The source, both its parts as `understood` gives them."""
    train, test = (understood(part, classes, where) for part in (source.train, source.test))
    return replace(source, train=train, test=test)


def aimed(data: Dataset, targets: Classes, where: str) -> Dataset:
    """The data with their real targets in the run's order: by name where both have names, else as many as there are."""
    names = None if targets is None or isinstance(targets, int) else targets
    count = len(names) if names else targets
    if count is not None and data.targets != count:
        have = ", ".join((data.target_names or ("unnamed",))[:10])
        raise ConfigError(
            f"{where}: its samples have {data.targets} real targets ({have}), the run has {count};"
            " correct data.label or task.targets",
            told=f"its samples have {data.targets} real targets, the run has {count}; correct data.label",
        )
    if not names or data.targets == 1 or data.target_names in {None, names}:
        return replace(data, target_names=names or data.target_names)
    own = data.target_names or ()
    if lacking := [name for name in names if name not in own]:
        raise ConfigError(
            f"{where}: its targets are {', '.join(own[:10])}, and '{lacking[0]}' of the run is not among them; correct"
            " data.label or task.targets",
            told=f"its targets do not have '{lacking[0]}' of the run; correct data.label or task.targets",
        )
    return replace(data, y=data.y[:, [own.index(name) for name in names]], target_names=names)


def of_device(  # noqa: PLR0917 - what a run says about labels
    data: Dataset,
    classes: int,
    names: tuple[str, ...],
    where: str,
    targets: Classes = None,
    form: Form = PLAIN,
) -> Dataset:
    """Return a device's data with the classes of the run: their number, and their names if it has any.

    Without classes they have the run's `targets`. Names that a file happens to hold are no numbers: a device that lacks
    one would count differently from the others.
    """
    data = formed(data, form, where)
    if form.kind:
        return data
    if classes and not names and not data.numbered:
        how = (
            "the run does not say which is class 0, 1, ...; set task.classes in the run file, or data.classes here, to"
            " all their names in order"
        )
        raise ConfigError(
            f"{where} has texts as labels ({', '.join((data.class_names or ())[:10])}) and {how}",
            told=f"it has texts as labels and {how}",
        )
    ready = understood(data, names or classes, where)
    return ready if classes else aimed(ready, targets, where)


def understood(data: Dataset, classes: Classes, where: str) -> Dataset:
    """The data with their labels as the run numbers them; `where` begins the message of what does not fit."""
    if classes is None:
        return data
    if classes in {0, ()}:
        return data.as_targets() if data.classes else data
    count = classes if isinstance(classes, int) else len(classes)
    if not data.classes:
        how = (
            f"the run has {count} classes; number the classes 0, 1, 2, ..., or set task.classes = 0 and"
            " task.loss = 'squared_error'"
        )
        raise ConfigError(
            f"{where} has real labels (such as {_example(data.y)}), {how}", told=f"it has real labels, {how}"
        )
    if not isinstance(classes, int) and data.class_names is not None:
        return _renamed(data, classes, where)
    if len(data) and int(data.y.max()) >= count:
        raise ConfigError(
            f"{where}: its labels go up to {int(data.y.max())}, the model has {count} classes;"
            " correct data.source or task.classes",
            told=f"its labels go beyond the {count} classes of the model; correct data.source or task.classes",
        )
    names = data.class_names if isinstance(classes, int) else classes
    return replace(data, classes=count, class_names=names if names and len(names) == count else None)


def _ask(source: "Source", loss: str, classes: Classes) -> None:
    """Refuse what may be meant in two ways, with the key that says which."""
    labels = np.concatenate([source.train.y, source.test.y])
    known, name = source.train.classes, source.name
    if ":" in loss and (classes == 0 or not known):
        return  # a loss of the user's own takes real targets, if these are some
    if loss not in REAL_TARGETS:
        if classes == 0:
            raise ConfigError(
                f"task.classes = 0 means real targets, and task.loss = '{loss}' is for classes; set"
                " task.loss = 'squared_error'"
            )
        if not known:
            whole = bool((labels == np.floor(labels)).all())
            number = "number the classes 0, 1, 2, ..." if whole else "give whole numbers from 0 or texts as labels"
            raise ConfigError(
                f"data set '{name}' has labels such as {_example(labels)}, and task.loss = '{loss}' is for classes;"
                f" set task.loss = 'squared_error' if they are real targets, else {number}"
            )
        # Asked for numbers too, numpy does not import its masked arrays: a megabyte that an agent would keep.
        present, lowest = len(np.unique(labels, return_counts=True)[0]), int(labels.min())
        odd = known > MANY and (2 * present < known or lowest > 1)  # who numbers classes begins with 0, or with 1
        if classes is None and source.train.class_names is None and odd:
            raise ConfigError(
                f"data set '{name}' has {present} different labels between {lowest} and {known - 1}; set task.classes ="
                f" {known} if they are classes, or task.classes = 0 and task.loss = 'squared_error' if they are targets"
            )
    elif known and classes is None:
        raise ConfigError(
            f"data set '{name}' has whole numbers as labels, and task.loss = '{loss}' may be meant for targets or for"
            f" classes; set task.classes = 0 if they are targets, or task.classes = {known} if they are classes"
        )


def _renamed(data: Dataset, names: tuple[str, ...], where: str) -> Dataset:
    """The data with the numbers that these names have in the run."""
    own = data.class_names or ()
    if own == names:
        return data
    place = np.array([names.index(name) if name in names else -1 for name in own])
    y = place[data.y]
    if len(y) and int(y.min()) < 0:
        stranger = own[int(data.y[int(np.argmin(y))])]
        raise ConfigError(
            f"{where}: its label '{stranger}' is no class of the run ({', '.join(names[:20])}); correct one",
            told=f"one of its labels is no class of the run ({', '.join(names[:20])}); correct it",
        )
    return Dataset(data.x, y, len(names), names, form=data.form)


def _example(labels: Array) -> str:
    """A label that shows what kind they are."""
    odd = labels[labels != np.floor(labels)]
    odd = labels[labels < 0] if not len(odd) else odd
    return f"{float((odd if len(odd) else labels)[0]):g}" if len(labels) else "none"
