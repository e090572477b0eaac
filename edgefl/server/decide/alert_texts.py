"""What an alert says: what is wrong, and what a person can do about it."""

from edgefl.server.decide.alerts import Alert, AlertKind, AlertNotice

MEGABYTE = 1e6
DAY, HOUR, MINUTE = 86_400.0, 3600.0, 60.0
NAMED = 20  # subjects that a message names
TITLES: dict[AlertKind, str] = {
    "away": "devices are away",
    "stale": "devices cannot use their newest data",
    "certificate": "certificates end",
    "disk": "disks are nearly full",
    "temperature": "devices are too hot",
    "stalled": "runs stand still",
    "failed": "runs have failed",
    "accuracy": "the model has become worse on devices",
    "broker": "the broker is away",
}
REMEDIES: dict[AlertKind, str] = {
    "away": "Look at its power and its network. A device that will not come back: edgefl fleet revoke {subject}",
    "stale": "Mend its data where the text says so; the device looks again by itself. Its agent's log says more.",
    "certificate": "A device renews by itself while it is connected: turn it on, and see that it reaches the"
    " server. After the end it needs a new kit: edgefl fleet add --replace {subject}",
    "disk": "Free some space on that machine. On the server, old runs go with: edgefl run prune",
    "temperature": "Cool it or move it. [conditions] max_temperature in its agent file lets it rest while it is hot.",
    "stalled": "See what it waits for: edgefl run logs {subject}. Often too few devices are there for its quorum.",
    "failed": "Read why: edgefl run logs {subject}; mend the cause, then submit it again: edgefl run submit RUN.toml",
    "accuracy": "Look at that device's newest data: a sensor that was moved, dirty or replaced is the usual cause."
    " If what it reaches now is right, say so with: edgefl server quiet {id}",
    "broker": "Is it running? edgefl doctor, and the server's own log, say why it does not answer.",
}
TEXTS: dict[str, str] = {
    "away": "{name} has been away for {long}{why}",
    "stale": "{name} cannot use its newest data for {long}{why}",
    "certificate": "the certificate of {name} ends in {long}",
    "ended": "the certificate of {name} ended {long} ago{why}",
    "disk": "{disk} has {megabytes} MB left",
    "temperature": "{name} was {degrees} °C hot when last heard",
    "stalled": "run '{name}' has closed no round for {long} longer than allowed{why}",
    "failed": "run '{name}' has failed{why}",
    "accuracy": "the model has become worse on {name}{why}",
    "broker": "the broker has been away for {long}{why}",
}
ENDED: dict[AlertKind, str] = {
    "away": "is back",
    "stale": "can use its data again",
    "certificate": "has a new certificate",
    "disk": "has space again",
    "temperature": "has cooled down",
    "stalled": "has gone on, or ended",
    "failed": "was followed by one that has not failed, or was deleted",
    "accuracy": "is back at its usual accuracy",
    "broker": "is back",
}


def text(alert: Alert, wall: float) -> str:
    """What is wrong, in a sentence without the name of its fleet."""
    certificate = alert.kind == "certificate"
    ended = certificate and alert.figure <= wall
    words = TEXTS["ended" if ended else alert.kind]
    return words.format(
        name=alert.subject,
        disk="the server's disk" if not alert.fleet else f"the disk of {alert.subject}",
        why=f": {alert.reason}" if alert.reason else "",
        long=duration(abs(alert.figure - wall) if certificate else wall - alert.since),
        degrees=f"{alert.figure:.0f}",
        megabytes=f"{alert.figure / MEGABYTE:.0f}",
    )


def remedy(alert: Alert) -> str:
    """What a person can do about it."""
    return REMEDIES[alert.kind].replace("{subject}", alert.subject).replace("{id}", alert.id)


def title(notice: AlertNotice) -> str:
    """A notice in one line."""
    first = notice.alerts[0]
    where = f"fleet '{first.fleet}': " if first.fleet else ""
    if notice.what == "closed":
        more = f" and {len(notice.alerts) - 1} more" if len(notice.alerts) > 1 else ""
        return f"{where}over: {first.subject}{more} {ENDED[first.kind]}"
    if len(notice.alerts) == 1:
        return f"{where}{text(first, notice.at)}"
    return f"{where}{TITLES[first.kind]}: {len(notice.alerts)} ({_names(notice.alerts)})"


def body(notice: AlertNotice) -> str:
    """The whole of a notice, as a mail has it."""
    if notice.what == "closed":
        return "".join(f"{alert.subject} {ENDED[alert.kind]}\n" for alert in notice.alerts)
    lines = [f"{text(alert, notice.at)}\n" for alert in notice.alerts]
    return f"{''.join(lines)}\nWhat to do: {remedy(notice.alerts[0])}\n"


def duration(seconds: float) -> str:
    """A length of time, as a person says it."""
    for unit, word in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
        if seconds >= unit:
            count = int(seconds // unit)
            return f"{count} {word}{'s' if count > 1 else ''}"
    return "less than a minute"


def _names(alerts: tuple[Alert, ...]) -> str:
    more = f" and {len(alerts) - NAMED} more" if len(alerts) > NAMED else ""
    return ", ".join(alert.subject for alert in alerts[:NAMED]) + more
