// The fleet as a table: who is there, at what, how fast, and what is wrong with whom.

import { byId, deviceLink, h, keyed, mark, say } from "./dom.js";
import { ago, ahead, bytes, duration, integer, pace, reading } from "./format.js";
import { inTrouble, isOnline, notInRun, now, WORKING } from "./state.js";
import { Table } from "./table.js";

const RANK = ["quarantined", "no data", "barred", "refused", "declined", "busy", "asked", "training", "sending", "answered", "idle", "excluded", "offline"];
const WEEK = 7 * 86400;
const FILTERS = [
  ["all", "All", () => true],
  ["online", "Online", isOnline],
  ["working", "Working", (one) => WORKING.has(one.state)],
  ["trouble", "In trouble", (one) => inTrouble(one, now(current))],
  ["offline", "Offline", (one) => !isOnline(one)],
];

const NO_DEVICE = "No device has come yet. On each device: edgefl agent enrol NAME.kit, later edgefl agent start.";

let table, filter = "all", words = "", current;

const put = (cell, text, tone = "") => {
  say(cell, text);
  const base = cell.className.includes("right") ? "right" : "";
  const all = tone ? `${base} ${tone}`.trim() : base;
  if (cell.className !== all) cell.className = all;
};

export const doing = (one) => {
  const state = one.state === "training" && one.steps ? `training, step ${integer(one.steps)}` : one.state;
  if (one.state === "barred") return one.why;
  if (one.state === "excluded") return `not asked: ${one.why}`;
  if (one.data_trouble && one.state !== "no data") return `${state}; ${one.data_trouble}`;
  return one.why ? `${state}: ${one.why}` : state;
};

/** A column of one figure; `tone` says how it is coloured. */
function figure(id, title, width, wide, of, format, more = {}) {
  const { tone = () => "", ...rest } = more;
  return { id, title, width, wide, of, right: true, draw: (cell, one) => put(cell, format(of(one)), tone(one)), ...rest };
}

function drawName(cell, one) {
  const link = cell.firstChild ?? cell.appendChild(h("a", { class: "name" }, h("bdi")));
  say(link.firstChild, one.name);
  if (link.getAttribute("href") !== deviceLink(one.name)) link.setAttribute("href", deviceLink(one.name));
}

function drawState(cell, one) {
  const box = cell.firstChild ?? cell.appendChild(h("span", { class: "with-mark" }, h("i", { class: "mark" }), h("span")));
  mark(box.firstChild, "state", one.data_trouble ? "no data" : notInRun(one) ? "offline" : one.state);
  say(box.lastChild, doing(one));
  if (cell.title !== doing(one)) cell.title = doing(one);
}

const endsSoon = (one) => one.certificate_ends !== null && one.certificate_ends - now(current) < WEEK;
const unanswered = (one) => one.missed + one.late;
const most = { descending: true }; // the largest first

/** A column for each vital sign that has a title for it; red where the sign, or a flag of it, is alarming. */
const signColumns = (signs) => signs.filter(([, sign]) => sign.column).map(([name, sign]) => {
  const watched = signs.filter(([other, { of, alarm }]) => (other === name || of === name) && alarm !== null);
  const isAlarming = (one) => watched.some(([other, { alarm }]) => (one.vitals?.[other] ?? -Infinity) >= alarm);
  return figure(name, sign.column, "8ch", 620, (one) => one.vitals?.[name] ?? null, (value) => reading(value, sign.unit, 0), {
    optional: true, tone: (one) => (isAlarming(one) ? "bad" : ""),
  });
});

const columns = (signs) => [
  { id: "name", title: "Device", width: "minmax(9ch, 1.4fr)", of: (one) => one.name, draw: drawName },
  { id: "state", title: "State", width: "minmax(11ch, 2fr)", of: (one) => RANK.indexOf(one.state), draw: drawState },
  figure("speed", "ms a step", "9ch", 520, (one) => one.seconds_per_step, pace),
  figure("took", "Last answer", "10ch", 900, (one) => one.took, duration),
  ...signColumns(signs),
  figure("samples", "Samples", "9ch", 820, (one) => one.samples, integer),
  figure("answers", "Answers", "8ch", 700, (one) => one.answers, integer, most),
  figure("missed", "Missed", "7ch", 960, unanswered, integer, { ...most, tone: (one) => (unanswered(one) ? "warn" : "") }),
  figure("strikes", "Strikes", "7ch", 760, (one) => one.strikes, integer, { ...most, tone: (one) => (one.strikes ? "bad" : "") }),
  figure("sent", "Sent", "9ch", 1060, (one) => one.bytes_up, bytes, most),
  figure("version", "Version", "9ch", 1060, (one) => one.version || null, (version) => version ?? "–", { right: false }),
  figure("certificate", "Certificate", "10ch", 1160, (one) => one.certificate_ends, (ends) => ahead(ends, now(current)), {
    optional: true, tone: (one) => (endsSoon(one) ? "bad" : ""),
  }),
  figure("seen", "Last seen", "10ch", 0, (one) => one.last_seen, (at) => ago(at, now(current)), {
    ...most, tone: (one) => (isOnline(one) ? "" : "faint"),
  }),
];

export function drawFleet(state) {
  current = state;
  if (!table) begin();
  const devices = [...state.devices.values()];
  keyed(byId("fleet-filters"), FILTERS, ([id]) => id,
    ([id]) => h("button", { type: "button", on: { click: () => { filter = id; drawFleet(current); } } }),
    (button, [id, title, holds]) => {
      say(button, `${title} ${devices.filter(holds).length}`);
      button.setAttribute("aria-pressed", id === filter);
    });
  const holds = FILTERS.find(([id]) => id === filter)[2];
  table.emptyText = devices.length ? "No device is like that." : NO_DEVICE;
  table.set(devices.filter((one) => holds(one) && matches(one)));
}

function begin() {
  const sort = { by: "state", down: false };
  table = new Table(byId("fleet-table"), { label: "Devices", columns: columns(current.signs), sort, keyOf: (one) => one.name });
  byId("fleet-search").addEventListener("input", (event) => {
    words = event.target.value.trim().toLowerCase();
    drawFleet(current);
  });
}

function matches(one) {
  const texts = [one.name, one.host, one.version, one.back_end, one.state, one.why, one.data_trouble];
  return !words || texts.some((text) => text.toLowerCase().includes(words));
}

/** Times go on though nothing happens. */
export const tickFleet = () => table?.paint();
