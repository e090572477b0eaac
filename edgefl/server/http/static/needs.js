// What needs a person now: alerts of the server, and what follows from its devices and runs. Nothing here touches the
// document. What many devices have in common is one entry.

import { integer, plural, reading } from "/static/format.js";
import { isFailing, isOnline, now } from "/static/state.js";

const DAY = 86400;
const ENDS_SOON = 30 * DAY; // of a certificate whose device is away: it cannot renew it
const ENDS_NOW = 7 * DAY; // of a device that is there: by then it should have renewed it
const RECENT = 7 * DAY; // a run that failed longer ago is history

export const seconds = (text) => (text ? Date.parse(text) / 1000 : null);

const endedCertificate = (at) => (one) => one.certificate_ends !== null && one.certificate_ends <= at;
const endsSoon = (at) => (one) => one.certificate_ends !== null && one.certificate_ends > at
  && one.certificate_ends - at < (isOnline(one) ? ENDS_NOW : ENDS_SOON);

/** Kinds of trouble: the first that holds for a device is the one it is listed under. */
const kinds = (at) => [
  { kind: "certificate", level: "bad", holds: endedCertificate(at), of: (count) => `${count} cannot connect: the certificate has ended`,
    about: () => "", remedy: "Renew it: edgefl fleet renew NAME", since: (one) => one.certificate_ends },
  { kind: "data", level: "bad", holds: (one) => one.state === "no data" || Boolean(one.data_trouble), of: (count) => `${count} cannot use the newest data`,
    about: (one) => one.data_trouble || one.why, remedy: "Mend the data on the device; it looks again by itself.", since: (one) => one.data_since ?? one.since },
  { kind: "barred", level: "bad", holds: (one) => one.state === "barred" && isFailing(one, at), of: (count) => `${count} may not take part`,
    about: (one) => one.why, remedy: "", since: (one) => one.since },
  { kind: "other", level: "bad", holds: (one) => isFailing(one, at), of: (count) => `${count} in trouble`,
    about: (one) => `${one.state}${one.why ? `: ${one.why}` : ""}`, remedy: "", since: (one) => one.since },
  { kind: "expiry", level: "warn", holds: endsSoon(at), of: (count) => `${count}: the certificate ends soon`,
    about: (one) => `in ${plural(Math.max(1, Math.floor((one.certificate_ends - at) / DAY)), "day")}${isOnline(one) ? "" : ", and is away"}`,
    remedy: "It is renewed when the device comes: connect it.", since: () => null },
];

/** By kind of trouble: the kind of alert that is about the same. */
const ALERTED = { certificate: "certificate", expiry: "certificate", data: "stale", "sign temperature": "temperature", "sign throttled": "temperature" };

/** Alarming vital signs of devices that are there. */
function signKinds(signs) {
  return signs.filter(([, sign]) => sign.alarm !== null).map(([name, sign]) => ({
    kind: `sign ${name}`, level: "warn", holds: (one) => isOnline(one) && (one.vitals?.[name] ?? -Infinity) >= sign.alarm,
    of: (count) => (sign.unit === "flag" ? `${count}: ${sign.words}` : `${count}: ${sign.title.toLowerCase()} of ${reading(sign.alarm, sign.unit, 0)} or more`),
    about: (one) => (sign.unit === "flag" ? "" : reading(one.vitals[name], sign.unit)), remedy: "", since: () => null,
  }));
}

const oldest = (times) => times.filter((at) => at !== null && at !== 0).reduce((a, b) => Math.min(a, b), Infinity);

/** `told` has each kind of alert and its subject. */
function ofDevices(state, told) {
  const at = now(state), every = kinds(at), signs = signKinds(state.signs), groups = new Map();
  const isTold = ({ kind }, one) => told.has(`${ALERTED[kind]} ${one.name}`);
  const put = (kind, one) => groups.set(kind, [...(groups.get(kind) ?? []), one]);
  const devices = [...state.devices.values()];
  for (const one of devices) {
    const kind = every.find(({ holds }) => holds(one));
    if (kind && !isTold(kind, one)) put(kind, one);
    for (const sign of signs) if (sign.holds(one) && !isTold(sign, one)) put(sign, one);
  }
  const entries = [...every, ...signs].filter((kind) => groups.has(kind)).map((kind) => {
    const members = groups.get(kind), since = oldest(members.map(kind.since));
    return {
      key: kind.kind, level: kind.level, title: kind.of(members.length === 1 ? members[0].name : plural(members.length, "device")),
      devices: members.map((one) => ({ name: one.name, about: kind.about(one) })), remedy: kind.remedy,
      since: Number.isFinite(since) ? since : null,
    };
  });
  if (devices.length > 1 && !devices.some(isOnline)) {
    const title = `None of ${integer(devices.length)} devices is there`;
    entries.unshift({ key: "none", level: "bad", title, devices: [], text: "Devices that were there are away, or have not come yet.",
      remedy: "Is the broker reached from their network? edgefl fleet list, edgefl broker status", since: null });
  }
  return entries;
}

/** Runs that failed lately, unless a later one of the same schedule did better. */
function ofRuns(queue, at, told) {
  const isMended = (run) => run.schedule && queue.runs.some((one) => one.schedule === run.schedule
    && one.phase === "finished" && seconds(one.ended) > seconds(run.ended));
  const failed = queue.runs.filter((run) => run.phase === "failed" && at - seconds(run.ended) < RECENT && !isMended(run) && !told.has(`failed ${run.name}`));
  return failed.map((run) => ({ key: `run ${run.name}`, level: "bad", title: `Run ${run.name} has failed`, devices: [], run: run.name,
    text: run.reason, remedy: "Read its log, mend the cause and submit it again.", since: seconds(run.ended) }));
}

// ── alerts of the server ──────────────────────────────────────────────────────────────────────────────────────

/** How the alerts of each kind are summed up; a kind that is not known here shows its texts alone. */
const ALERTS = {
  away: { level: "warn", of: (count) => `${count} away` },
  stale: { level: "bad", of: (count) => `${count} cannot use the newest data` },
  certificate: { level: "bad", of: (count) => `${count}: the certificate ends, or has ended` },
  disk: { level: "bad", of: (count) => `${count}: the disk is nearly full` },
  temperature: { level: "warn", of: (count) => `${count} too hot` },
  accuracy: { level: "warn", of: (count) => `the model has become worse on ${count}` },
};
const OF_RUNS = new Set(["stalled", "failed"]);

/** Those of this fleet and of the server itself that no person has said to know of; devices of one kind together. */
function ofAlerts(alerts, fleet) {
  const open = alerts.filter((one) => !one.quieted_by && (one.fleet === fleet || !one.fleet)), groups = new Map();
  for (const one of open) {
    const key = one.kind in ALERTS && one.fleet ? one.kind : one.id;
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  return [...groups].map(([key, members]) => ofAlert(key, members));
}

function ofAlert(key, members) {
  const [first] = members, kind = ALERTS[first.kind], since = seconds(first.since);
  const about = { key: `alert ${key}`, ids: members.map((one) => one.id), since: oldest(members.map((one) => seconds(one.since))), level: kind?.level ?? "bad" };
  if (members.length === 1) {
    const run = OF_RUNS.has(first.kind) ? first.subject : null;
    const devices = kind && first.fleet ? [{ name: first.subject, about: "" }] : [];
    return { ...about, since, title: first.text, devices, run, remedy: first.remedy };
  }
  const devices = members.map((one) => ({ name: one.subject, about: unnamed(one) }));
  const remedy = first.remedy.replaceAll(first.subject, "NAME").replaceAll(first.id, "ID");
  return { ...about, title: upper(kind.of(plural(members.length, "device"))), devices, remedy };
}

/** Its text beside the name of its device. */
const unnamed = ({ text, subject }) => (text.startsWith(`${subject} `) ? text.slice(subject.length + 1) : text);
const upper = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** How many a person has said to know of. */
export const quieted = (alerts, fleet) => (alerts ?? []).filter((one) => one.quieted_by && (one.fleet === fleet || !one.fleet)).length;

/**
 * The worst first, and of those the newest. What an alert is about, of which a person may know already, is not said
 * again; an alert may wait for hours before it is told, and this list does not.
 */
export function needs(state, queue, alerts, fleet) {
  const told = new Set((alerts ?? []).filter((one) => one.fleet === fleet).map((one) => `${one.kind} ${one.subject}`));
  const all = [...ofAlerts(alerts ?? [], fleet), ...ofRuns(queue, now(state), told), ...ofDevices(state, told)];
  const rank = (one) => (one.level === "bad" ? 0 : 1);
  return all.sort((a, b) => rank(a) - rank(b) || (b.since ?? 0) - (a.since ?? 0));
}
