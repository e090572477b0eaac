// The devices as a table of any length: found by words, filtered by state and by labels, sorted by any column.

import { byId, h, keyed, mark, say, show } from "/static/dom.js";
import { ago, ahead, byName, integer, reading } from "/static/format.js";
import { isFailing, isOnline, now } from "/static/state.js";
import { Table } from "/static/table.js";

const RANK = ["quarantined", "no data", "barred", "refused", "declined", "busy", "asked", "training", "sending", "answered", "idle", "excluded", "offline"];
const NEVER = "not seen in this run"; // as the overview of a run says it
const COLUMNS = 3; // labels with a column of their own
const CHOICES = 6; // labels and properties with a choice of their own
const VALUES = 60; // of a label: one with more values is for the search
const WEEK = 7 * 86400;
const FILTERS = [
  ["all", "All", () => true],
  ["there", "There", isOnline],
  ["trouble", "In trouble", (one) => isFailing(one, now(current.state))],
  ["away", "Away", (one) => !isOnline(one)],
];
const PROPERTIES = {
  version: (one) => one.version || null,
  arch: (one) => one.arch || null,
  backend: (one) => (one.back_end ? one.back_end.split(" ")[0] : null),
};
const NO_DEVICE = "No device belongs to this fleet yet: edgefl fleet add NAME";

let table, current, filter = "all", words = "", chosen = new Map(), only = null, labelColumns = new Map();

/** Labels first, the most common ones before others; then properties that devices tell. */
export function keysOf(devices) {
  const counts = new Map();
  for (const one of devices) for (const name of Object.keys(one.labels ?? {})) counts.set(name, (counts.get(name) ?? 0) + 1);
  const labels = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || byName(a, b));
  const told = Object.keys(PROPERTIES).filter((name) => !counts.has(name) && devices.some(PROPERTIES[name]));
  return [...labels, ...told];
}

/** A label of the operator, else what the device says of itself; null if neither is known. */
export const valueOf = (one, key) => one.labels?.[key] ?? PROPERTIES[key]?.(one) ?? null;

const ask = (wanted) => dispatchEvent(new CustomEvent("edgefl:devices", { detail: wanted }));

/** Go to the table, and show those with this value there, or those of these names. */
export const showWhere = (key, value) => ask({ chosen: new Map([[key, value ?? ""]]) });
export const showThese = (title, names) => ask({ only: { title, names: new Set(names) } });

export function showDevices(wanted) {
  [filter, words, chosen, only] = ["all", "", wanted.chosen ?? new Map(), wanted.only ?? null];
  byId("devices-search").value = "";
}

export const stateOf = (one) => {
  if (one.state === "barred") return one.why;
  if (one.state === "offline" && one.why === NEVER) return "offline: not seen yet";
  if (one.data_trouble && one.state !== "no data") return `${one.state}; ${one.data_trouble}`;
  return one.why ? `${one.state}: ${one.why}` : one.state;
};

export function drawDevices(page) {
  current = page;
  const devices = [...page.state.devices.values()];
  if (!table) begin();
  drawFilters(devices);
  drawChoices(devices);
  const holds = FILTERS.find(([id]) => id === filter)[2];
  const shown = devices.filter((one) => holds(one) && isChosen(one) && matches(one) && (!only || only.names.has(one.name)));
  table.emptyText = devices.length ? "No device is like that." : NO_DEVICE;
  table.set(shown, columns(devices));
  drawShown(shown.length, devices.length);
}

/** Times go on though nothing happens. */
export const tickDevices = () => table?.paint();

function begin() {
  const sort = { by: "state", down: false };
  table = new Table(byId("devices-table"), { label: "Devices", columns: columns([]), sort, keyOf: (one) => one.name });
  byId("devices-search").addEventListener("input", (event) => {
    words = event.target.value.trim().toLowerCase();
    drawDevices(current);
  });
}

function drawFilters(devices) {
  keyed(byId("devices-filters"), FILTERS, ([id]) => id,
    ([id]) => h("button", { type: "button", on: { click: () => { filter = id; drawDevices(current); } } }),
    (button, [id, title, holds]) => {
      say(button, `${title} ${integer(devices.filter(holds).length)}`);
      button.setAttribute("aria-pressed", id === filter);
    });
}

/** A choice for each label with few values. */
function drawChoices(devices) {
  const known = keysOf(devices).map((key) => ({ key, values: valuesOf(devices, key) }));
  const choices = known.filter(({ key, values }) => (values.length > 1 && values.length <= VALUES) || chosen.has(key)).slice(0, CHOICES);
  keyed(byId("devices-labels"), choices, ({ key }) => key,
    ({ key }) => h("label", { class: "choice" }, h("span", {}, key), h("select", { on: { change: (event) => choose(key, event.target.value) } })),
    (label, { key, values }) => {
      const select = label.lastChild;
      const options = [["any", "any"], ...values.map((value) => [`=${value ?? ""}`, value ?? "not known"])];
      keyed(select, options, ([id]) => id, ([id, text]) => h("option", { value: id }, text), () => {});
      const wanted = chosen.has(key) ? `=${chosen.get(key)}` : "any";
      if (select.value !== wanted) select.value = wanted;
      mark(label, "chosen", chosen.has(key));
    });
}

function choose(key, id) {
  if (id === "any") chosen.delete(key);
  else chosen.set(key, id.slice(1));
  drawDevices(current);
}

function valuesOf(devices, key) {
  const values = new Set(devices.map((one) => valueOf(one, key)));
  return [...values].sort((a, b) => (a === null) - (b === null) || byName(a ?? "", b ?? ""));
}

const isChosen = (one) => [...chosen].every(([key, value]) => (valueOf(one, key) ?? "") === value);

function matches(one) {
  if (!words) return true;
  const texts = [one.name, one.host, one.version, one.back_end, one.arch ?? "", stateOf(one)];
  const pairs = Object.entries(one.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  return [...texts, ...pairs].some((text) => text.toLowerCase().includes(words));
}

function drawShown(shown, all) {
  const place = byId("devices-shown"), narrowed = only || chosen.size > 0 || words || filter !== "all";
  show(place, Boolean(narrowed));
  if (!narrowed) return;
  if (!place.firstChild) place.append(h("span"), " ", h("button", { type: "button", class: "link", on: { click: () => { showDevices({}); drawDevices(current); } } }, "Show all"));
  say(place.firstChild, `${integer(shown)} of ${integer(all)} devices${only ? `: ${only.title}` : ""}`);
}

const put = (cell, text, tone = "") => {
  say(cell, text);
  const base = cell.className.includes("right") ? "right" : "";
  const all = tone ? `${base} ${tone}`.trim() : base;
  if (cell.className !== all) cell.className = all;
};

function drawName(cell, one) {
  const link = cell.firstChild ?? cell.appendChild(h("a", { class: "name" }, h("bdi")));
  const href = `#${encodeURIComponent(current.fleet)}/device/${encodeURIComponent(one.name)}`;
  say(link.firstChild, one.name);
  if (link.getAttribute("href") !== href) link.setAttribute("href", href);
}

function drawState(cell, one) {
  const box = cell.firstChild ?? cell.appendChild(h("span", { class: "with-mark" }, h("i", { class: "mark" }), h("span")));
  const text = stateOf(one);
  mark(box.firstChild, "state", one.data_trouble ? "no data" : one.state === "idle" ? "answered" : one.state);
  say(box.lastChild, text);
  if (cell.title !== text) cell.title = text;
}

const figure = (id, title, width, wide, of, format, more = {}) => {
  const { tone = () => "", right = true, ...rest } = more;
  return { id, title, width, wide, of, right, optional: true, draw: (cell, one) => put(cell, format(of(one)), tone(one)), ...rest };
};
const text = (value) => value ?? "–";
const soon = (one) => one.certificate_ends !== null && one.certificate_ends - now(current.state) < WEEK;
const isAlarming = (signs, name) => {
  const watched = signs.filter(([other, sign]) => (other === name || sign.of === name) && sign.alarm !== null);
  return (one) => (watched.some(([other, { alarm }]) => (one.vitals?.[other] ?? -Infinity) >= alarm) ? "bad" : "");
};

const FIXED = [
  { id: "name", title: "Device", width: "minmax(9ch, 1.2fr)", of: (one) => one.name, draw: drawName },
  { id: "state", title: "State", width: "minmax(11ch, 2fr)", of: (one) => (one.data_trouble ? 0 : RANK.indexOf(one.state)), draw: drawState },
];
const LAST = [
  figure("samples", "Samples", "9ch", 820, (one) => one.samples, integer, { descending: true }),
  figure("arch", "Machine", "9ch", 1060, (one) => one.arch || null, text, { right: false }),
  figure("version", "Version", "9ch", 960, (one) => one.version || null, text, { right: false }),
  figure("certificate", "Certificate", "10ch", 900, (one) => one.certificate_ends, (ends) => ahead(ends, now(current.state)), { tone: (one) => (soon(one) ? "bad" : "") }),
  figure("seen", "Last seen", "10ch", 0, (one) => one.last_seen, (at) => ago(at, now(current.state)), {
    descending: true, optional: false, tone: (one) => (isOnline(one) ? "" : "faint"),
  }),
];

/** Labels that most devices have, and vital signs, have columns between the name and what always stands there. */
function columns(devices) {
  const keys = keysOf(devices).filter((key) => !(key in PROPERTIES)).slice(0, COLUMNS);
  const signs = current?.state.signs ?? [];
  const wanted = JSON.stringify([keys, signs.map(([name]) => name)]);
  if (labelColumns.key !== wanted) {
    const ofLabels = keys.map((key, i) => figure(`label ${key}`, key, "minmax(8ch, .7fr)", 620 + 120 * i, (one) => one.labels?.[key] ?? null, text, { right: false }));
    const ofSigns = signs.filter(([, sign]) => sign.column).map(([name, sign]) => figure(name, sign.column, "8ch", 760, (one) => one.vitals?.[name] ?? null,
      (value) => reading(value, sign.unit, 0), { descending: true, tone: isAlarming(signs, name) }));
    labelColumns = { key: wanted, all: [...FIXED, ...ofLabels, ...ofSigns, ...LAST] };
  }
  return labelColumns.all;
}
