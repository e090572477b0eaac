"""Who is there, who is heard, and who is in quarantine: the devices of a run, as the core decides about them. Pure."""

from dataclasses import replace

from coordinator.decide import roster, rounds, vocabulary
from coordinator.decide.round_actions import feed, prepare
from coordinator.decide.state import (
    State,
    Step,
    but,
    doing,
    each,
    exclusion,
    online,
    recalling,
    say_state,
    telling,
    then,
)
from edgefl.base import events
from edgefl.base.events import Fact
from edgefl.wire.reconnect import spread

PATIENCE = 30.0  # seconds after a connection in which devices known from before must be heard of
SETTLING = 60.0  # seconds between two words to the rounds about a device that comes and goes all the time
LACKING, CONTENT = 60.0, 300.0  # seconds until the broker is asked again who is there: devices are waited for, or not
BARRED = 1000  # devices that may not take part are told of; beyond them they are only counted
NAMELESS = "-"  # stands for all who have not proven their name: they are kept in mind as one, and not answered


def connected(s: State, at: float) -> Step:
    """The broker is there, perhaps again and with nothing of what it knew."""
    s = but(unheard(s, s.rounds.present, at), listened=at, announced=(0, -1))
    if s.resumed:  # who was asked in an earlier life is not known
        s = but(s, astray=s.rounds.round)
    actions: tuple[vocabulary.Action, ...] = (vocabulary.Listen(), say_state(s), vocabulary.PublishAgain())
    facts: tuple[Fact, ...] = (events.Connected(),)
    if not s.resumed or s.phase != "idle":
        return s, actions, facts
    facts = (*facts, events.Resumed(s.rounds.round))
    if s.rounds.phase == "starting":  # the job is not needed yet
        return doing(actions, telling(facts, feed(but(s, resumed=False), rounds.RunResumed(at), at)))
    return doing(actions, telling(facts, prepare(but(s, unheard_due=None))))


def listens(s: State) -> float | None:
    """When to ask the broker again who is there: soon, where a round lacks devices."""
    if s.listened is None or s.phase == "preparing":
        return None
    return s.listened + (LACKING if s.rounds.phase in ("starting", "gathering") else CONTENT)


def unheard(s: State, devices: frozenset[str], at: float) -> State:
    """These were there before the connection, and have some time to be heard of."""
    due = at + PATIENCE + spread(len(s.fleet)) if devices and not recalling(s) else None
    return but(s, unheard=devices, unheard_due=due)


def announced(s: State, event: vocabulary.Announced) -> Step:
    """Take in a presence: a device is there, or is gone; its right to the name is checked first."""
    at, id, new = event.at, event.device, event.announcement
    claimed = _claim(s, event)
    match claimed:
        case "stale":
            return s, (), ()
        case roster.NameRefused("device.too_many" as code, reason):
            return misbehaved(s, id, code, reason, at)
        case roster.NameRefused(code, reason):
            return _turned_away(_counted(s, code), event, code, reason)
    mended = id in s.devices and bool(s.devices[id].announced.trouble) and not new.trouble
    barred = {other: why for other, why in s.barred.items() if other != id} if id in s.barred else s.barred
    s = but(s, devices={**s.devices, id: claimed}, unheard=s.unheard - {id}, barred=barred)
    vitals = (event.vitals,) if event.vitals and not event.retained else ()  # others are as old as the connection
    samples_from = new.samples_from if new.online else None
    broken = events.DataBroken(id, new.trouble, samples_from, new.version, new.host)
    if not new.online and new.trouble:  # it is there, and cannot train
        return doing((vocabulary.Meet(id),), telling((broken, *vitals), _gone(s, id, at)))
    data: tuple[Fact, ...] = (events.DataMended(id),) if mended else (broken,) if new.trouble else ()
    if not new.online:
        good = data if new.resting else ()  # a last will says nothing about data
        lost = events.Lost(id, new.resting, bool(new.resting))
        return doing((vocabulary.Meet(id),), telling((*good, *vitals, lost), _gone(s, id, at)))
    trains_with = f"gateway for {new.speaks_for} devices" if new.speaks_for > 1 else new.back_end
    joined = events.Joined(
        id, new.samples, new.host, new.version, trains_with, bool(new.trouble), new.arch, new.memory_mb
    )
    ready = (s, (), ()) if exclusion(s, id) else prepare(s)
    return doing((vocabulary.Meet(id),), telling((joined, *data, *vitals), then(ready, lambda s: _came(s, id, at))))


def _turned_away(s: State, event: vocabulary.Announced, code: str, reason: str) -> Step:
    """Say to a device that announces itself why it may not take part; tell of it once for each reason."""
    id, new = event.device, event.announcement
    if not new.online:
        return _left(s, id, code)
    away = vocabulary.TurnAway(id, code, reason, new.installation, event.key)
    why = code, "" if event.key else reason  # with a stranger's key they may give any number of reasons
    refused = events.Refused(id, code, reason, barred=True, version=new.version, host=new.host)
    return doing((away,), _barred(s, why, refused))


def unreadable(s: State, event: vocabulary.Unreadable) -> Step:
    """Tell of a device whose presence another version of edgefl wrote: it is not answered, and nothing is proven."""
    id, code, reason = event.device, event.code, event.reason
    if _is_here(s, id):
        return misbehaved(s, NAMELESS, code, reason, event.at)
    return _barred(_counted(s, code), (code, reason), events.Refused(id, code, reason, barred=True))


def _barred(s: State, why: tuple[str, str], refused: events.Refused) -> Step:
    """Tell of a device that may not take part, once for each reason."""
    id = refused.device
    if s.barred.get(id) == why or (id not in s.barred and len(s.barred) >= BARRED):
        return s, (), ()
    return but(s, barred={**s.barred, id: why}), (), (refused,)


def _left(s: State, id: str, code: str) -> Step:
    """Take in the last will of a device that may not take part."""
    if s.barred.get(id, ("",))[0] != code:
        return s, (), ()
    left = but(s, barred={other: why for other, why in s.barred.items() if other != id})
    return left, (), () if _is_here(s, id) else (events.Lost(id),)


def _is_here(s: State, id: str) -> bool:
    """Whether a device that may have this name has said that it is there, with or without data."""
    return online(s, id) or (id in s.devices and bool(s.devices[id].announced.trouble))


def enrolled(s: State, event: vocabulary.MembersRead) -> Step:
    """Take in who belongs to the run, and whose certificates have ended; tell what is new."""
    expired = {id for id, _, _ in event.expired}
    new = tuple(events.Expired(id, ended, remedy) for id, ended, remedy in event.expired if id not in s.expired)
    facts: tuple[Fact, ...] = (events.Enrolled(event.devices), *new) if event.devices != s.enrolled else new
    return but(s, enrolled=event.devices, expired=frozenset(expired)), (), facts


def known_so(s: State, event: vocabulary.Announced) -> bool:
    """Whether the broker says again what is known of a device, and the rounds have taken in."""
    id, new = event.device, event.announcement
    same = id in s.devices and s.devices[id].announced == new and id not in s.unheard
    waits = id in s.unsteady or id in s.excluded or s.conduct.quarantined(id, event.at)
    return same and (id in s.rounds.present or not new.online or waits)


def _claim(s: State, event: vocabulary.Announced) -> roster.Claim:
    if event.refusal is not None:
        taken = roster.taken(s.devices, event.device, event.announcement) if event.key else None
        return taken or roster.NameRefused(*event.refusal)
    return roster.claim(s.devices, event.device, event.announcement, retained=event.retained)


def _came(s: State, id: str, at: float) -> Step:
    return _unsteady(s, id, at) if s.story.is_unsteady(id, at) else _joined(s, id, at)


def _gone(s: State, id: str, at: float) -> Step:
    return _unsteady(s, id, at) if s.story.is_unsteady(id, at) else feed(s, rounds.DeviceLost(id, at), at)


def _unsteady(s: State, id: str, at: float) -> Step:
    """The rounds are told in a while where it is then: each of their changes is written down."""
    return but(s, unsteady=s.unsteady | {id}, unsteady_due=s.unsteady_due or at + SETTLING), (), ()


def settled(s: State, at: float) -> Step:
    """Tell the rounds which devices are there, of those that come and go all the time."""
    now: Step = but(s, unsteady=frozenset(), unsteady_due=None), (), ()
    return each(now, sorted(s.unsteady), lambda s, one: _settled(s, one, at))


def _settled(s: State, id: str, at: float) -> Step:
    return _joined(s, id, at) if online(s, id) else feed(s, rounds.DeviceLost(id, at), at)


def _joined(s: State, id: str, at: float) -> Step:
    if s.conduct.quarantined(id, at):
        return s, (), ()
    if why := exclusion(s, id):
        return _excluded(s, id, why, at)
    s = _without(s, id)
    return feed(but(s, fleet=s.fleet | {id}), rounds.DeviceJoined(id, at, s.devices[id].announced.samples), at)


def _excluded(s: State, id: str, why: str, at: float) -> Step:
    """The device is not asked. If it is at work its answer counts; another one is asked in its place."""
    now: Step = but(s, excluded={**s.excluded, id: why}), (), (events.Excluded(id, why),)
    return then(now, lambda s: feed(s, rounds.DeviceLost(id, at), at)) if id in s.rounds.present else now


def _without(s: State, id: str) -> State:
    """The device is not among the excluded ones any more."""
    return but(s, excluded={other: why for other, why in s.excluded.items() if other != id}) if id in s.excluded else s


def labelled(s: State, event: vocabulary.LabelsRead) -> Step:
    """Take in what labels devices have; those that `rounds.where` now means are asked, others are not any more."""
    names = sorted({*s.labels, *event.labels})
    news = {id: event.labels.get(id, {}) for id in names if s.labels.get(id, {}) != event.labels.get(id, {})}
    now: Step = but(s, labels=event.labels), (), (events.Labelled(news),) if news else ()
    return each(now, [id for id in news if online(s, id)], lambda s, one: _relabelled(s, one, event.at))


def _relabelled(s: State, id: str, at: float) -> Step:
    why, before = exclusion(s, id), s.excluded.get(id, "")
    if why == before:
        return s, (), ()
    if why:
        return _excluded(s, id, why, at)
    return telling(events.Included(id), then(prepare(_without(s, id)), lambda s: _joined(s, id, at)))


def _lost(s: State, id: str, why: str, at: float) -> Step:
    return telling(events.Lost(id, why), feed(s, rounds.DeviceLost(id, at), at))


def revoked(s: State, event: vocabulary.Revoked) -> Step:
    """It may have an open connection: what it has answered to counts, and it is not asked again."""
    at, id, why = event.at, event.device, event.reason
    s, actions = _counted(s, "device.revoked"), (vocabulary.TurnAway(id, "device.revoked", why), vocabulary.Dismiss(id))
    devices = {other: device for other, device in s.devices.items() if other != id}
    lost = _lost(but(s, devices=devices, unheard=s.unheard - {id}), id, why, at)
    return doing(actions, lost)


def forgotten(s: State, at: float) -> Step:
    """End the grace period of devices that were known before a reconnect and are silent since."""
    gone = {id: replace(device, live=False) for id, device in s.devices.items() if id in s.unheard}
    now: Step = but(s, unheard=frozenset(), unheard_due=None, devices={**s.devices, **gone}), (), ()
    why = "no message from it since the coordinator connected"
    return each(now, sorted(s.unheard), lambda s, one: _lost(s, one, why, at))


def severed(s: State, site: str, at: float) -> Step:
    """A site is cut off: its broker still says of its devices that they are there, but that is an old word."""
    there = {id: device for id, device in s.devices.items() if device.announced.site == site}
    gone = {id: replace(device, live=False) for id, device in there.items()}
    now: Step = but(s, severed=s.severed | {site}, devices={**s.devices, **gone}, unheard=s.unheard - set(gone)), (), ()
    why = f"its site '{site}' is cut off"
    present = sorted(s.rounds.present.intersection(gone))
    return each(now, present, lambda s, one: telling(events.Lost(one, why), _gone(s, one, at)))


def restored(s: State, site: str) -> Step:
    """It is back. Its devices announce themselves; should one not, the broker still knows of it."""
    if site not in s.severed:
        return s, (), ()
    return but(s, severed=s.severed - {site}), (vocabulary.ListenAgain(),), ()


def heard(s: State, id: str) -> State:
    """Take a device that speaks for present, and not only remembered by the broker."""
    device = s.devices.get(id)
    if device is None or device.live:
        return s
    return but(s, devices={**s.devices, id: replace(device, live=True)})


def misbehaved(s: State, id: str, code: str, reason: str, at: float) -> Step:
    """Count an unusable message against its sender; too many mean quarantine."""
    s = _counted(s, code)
    if s.conduct.quarantined(id, at):
        return s, (), ()
    conduct, quarantined = s.conduct.struck(id, at)
    s, refused = but(s, conduct=conduct), events.Refused(id, code, reason)
    if not quarantined:
        return s, (), (refused,)
    if id == NAMELESS:
        why = "too many messages whose sender is not proven: for a while they are counted, but not listed one by one"
        return s, (), (refused, events.Quarantined(id, why))
    why = f"device '{id}' sent too many messages that cannot be used; it is in quarantine for a while"
    facts = refused, events.Quarantined(id, why)
    return doing(
        (vocabulary.TurnAway(id, "device.quarantined", why),), telling(facts, feed(s, rounds.DeviceLost(id, at), at))
    )


def _counted(s: State, code: str) -> State:
    refusals = {**s.refusals, code: s.refusals.get(code, 0) + 1}
    return but(s, refusals=refusals, since_merge=s.since_merge + vocabulary.Totals(refused=1))


def released(s: State, at: float) -> Step:
    """Those whose quarantine has ended, and who are here, take part again."""
    conduct, free = s.conduct.released(at)
    here = [id for id in free if id in s.devices and s.devices[id].online]
    now: Step = but(s, conduct=conduct), (), ()
    return each(now, here, lambda s, one: telling(events.Released(one), _joined(s, one, at)))
