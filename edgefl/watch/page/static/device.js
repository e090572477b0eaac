// The story of one device, in a drawer over the page.

import { Chart, fromZero } from "./chart.js";
import { byId, h, keyed, say, show } from "./dom.js";
import { doing } from "./fleet.js";
import { ago, ahead, bytes, duration, integer, moment, pace, reading } from "./format.js";
import { now } from "./state.js";

let shown = null, parts = null, asked = 0;

/** Open the drawer, or draw it anew: the device has done something. */
export async function drawDevice(name, state) {
  const drawer = byId("device");
  if (!drawer.open) drawer.showModal();
  if (shown !== name) {
    forget();
    shown = name;
    say(byId("device-name"), name);
    byId("device-body").replaceChildren(h("p", { class: "empty" }, "…"));
  }
  const turn = ++asked;
  const answer = await fetch(`api/device/${encodeURIComponent(name)}`).catch(() => null);
  if (turn !== asked || shown !== name) return;
  if (answer?.ok) {
    draw(await answer.json(), state);
  } else if (!parts) {
    const why = answer?.status === 404 ? "No device of this name is known." : "The coordinator does not answer.";
    byId("device-body").replaceChildren(h("p", { class: "empty" }, why));
  }
}

export function closeDevice() {
  shown = null;
  forget();
  if (byId("device").open) byId("device").close();
}

export const deviceShown = () => shown;

function forget() {
  parts?.chart.close();
  parts = null;
}

function draw({ device, story, turns }, state) {
  parts ??= begin();
  keyed(parts.facts, figures(device, state), ([title]) => title,
    ([title]) => h("div", {}, h("dt", {}, title), h("dd", {}, h("bdi"))),
    (node, [, value]) => say(node.lastChild.firstChild, value));
  parts.chart.set(turns);
  show(parts.chart.root, turns.length > 1);
  keyed(parts.story, [...story].reverse(), ([at, text]) => `${at}\n${text}`,
    ([at, text]) => h("li", {}, h("time", {}, moment(at)), h("bdi", {}, text)), () => {});
  show(parts.nothing, story.length === 0);
}

function begin() {
  const place = h("div"), facts = h("dl", { class: "facts" }), story = h("ul", { class: "story" });
  const nothing = h("p", { class: "hint" }, "The journal has nothing about it.");
  byId("device-body").replaceChildren(facts, place, h("h3", {}, "What happened, the latest first"), story, nothing);
  const chart = new Chart(place, {
    id: "turns", title: "How long its answers took", format: duration, range: fromZero, sync: "device", height: 170,
    series: [{ label: "answer", colour: "--s1", of: (turn) => turn.took, fill: true }],
  });
  return { facts, story, nothing, chart };
}

function figures(one, state) {
  const all = [
    ["State", doing(one)],
    ...(one.data_trouble ? [["Data", `${one.data_trouble} (since ${moment(one.data_since)})`]] : []),
    ["Last seen", ago(one.last_seen, now(state))],
    ["Speed", one.seconds_per_step === null ? "–" : `${pace(one.seconds_per_step)} ms a step`],
    ["Last answer", duration(one.took)],
    ["Samples", integer(one.samples)],
    ["Answers that counted", integer(one.answers)],
    ["Too late", integer(one.late)],
    ["Missed", integer(one.missed)],
    ["Declined", integer(one.declined)],
    ["Strikes", integer(one.strikes)],
    ["Sent", bytes(one.bytes_up)],
    ["Came first", moment(one.joined_at)],
    ["Host", one.host || "–"],
    ["Version", one.version || "–"],
    ["Trains with", one.back_end || "–"],
    ["Certificate ends in", one.certificate_ends === null ? "–" : ahead(one.certificate_ends, now(state))],
  ];
  return [...all, ...vitalSigns(one.vitals ?? {}, state.signs)];
}

/** A line for each sign that has a title and is known: its value, the total it is a part of, the flags that hold. */
function vitalSigns(vitals, signs) {
  const known = (name) => vitals[name] !== null && vitals[name] !== undefined;
  const line = (name, { title, unit }) => {
    const about = signs.filter(([, other]) => other.of === name);
    const totals = about.filter(([total, other]) => other.unit !== "flag" && known(total)).map(([total]) => total);
    const flags = about.filter(([flag, other]) => other.unit === "flag" && vitals[flag] && (other.alone || known(name)));
    const amounts = known(name) ? [name, ...totals].map((each) => reading(vitals[each], unit)) : [];
    return [title, [amounts.join(" of "), ...flags.map(([, flag]) => flag.words)].filter(Boolean).join(", ")];
  };
  return signs.filter(([, sign]) => sign.title).map(([name, sign]) => line(name, sign)).filter(([, text]) => text);
}
