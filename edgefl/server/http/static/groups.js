// Devices by a label or a property: for each value how many there are, are there, and need a person.

import { byId, h, keyed, mark, say, show } from "/static/dom.js";
import { byName, integer } from "/static/format.js";
import { isFailing, isOnline, now } from "/static/state.js";
import { keysOf, showWhere, valueOf } from "./devices.js";

const MOST = 24; // values that are shown
let key = null;

export function drawGroups(page) {
  const { state } = page, devices = [...state.devices.values()], keys = keysOf(devices);
  if (!keys.includes(key)) key = keys[0] ?? null;
  keyed(byId("groups-keys"), keys, (one) => one,
    (one) => h("button", { type: "button", on: { click: () => { key = one; drawGroups(current); } } }),
    (button, one) => {
      say(button, one);
      button.setAttribute("aria-pressed", one === key);
    });
  current = page;
  const groups = key === null ? [] : grouped(devices, now(state)), largest = Math.max(1, ...groups.map((one) => one.all));
  keyed(byId("groups"), groups.slice(0, MOST), (one) => `${key}\n${one.value}`, make, (node, one) => change(node, one, largest));
  const more = groups.length - MOST, unlabelled = devices.length > 0 && devices.every((one) => one.labels && !Object.keys(one.labels).length);
  show(byId("groups-hint"), more > 0 || unlabelled || !keys.length);
  say(byId("groups-hint"), more > 0 ? `and ${integer(more)} more values` : keys.length ? "No device has a label: edgefl fleet label NAME site=north" : "No device has come yet.");
}

let current;

function grouped(devices, at) {
  const groups = new Map();
  for (const one of devices) {
    const value = valueOf(one, key);
    const group = groups.get(value) ?? { value, all: 0, online: 0, failing: 0 };
    group.all += 1;
    group.online += isOnline(one);
    group.failing += isFailing(one, at);
    groups.set(value, group);
  }
  return [...groups.values()].sort((a, b) => (a.value === null) - (b.value === null) || byName(a.value ?? "", b.value ?? ""));
}

const make = (group) => {
  const [of, value] = [key, group.value];
  return h("li", {}, h("button", { type: "button", on: { click: () => showWhere(of, value) } },
    h("span", { class: "value" }, h("bdi")), h("span", { class: "bar" }, h("i"), h("i")), h("span", { class: "figures" }), h("span", { class: "trouble" })));
};

function change(node, group, largest) {
  const [value, bar, figures, trouble] = node.firstChild.children;
  say(value.firstChild, group.value ?? "not known");
  mark(value, "unknown", group.value === null);
  const [there, away] = bar.children;
  width(there, group.online / largest);
  width(away, (group.all - group.online) / largest);
  say(figures, `${integer(group.online)} of ${integer(group.all)}`);
  say(trouble, group.failing ? `${integer(group.failing)} in trouble` : "");
}

function width(node, share) {
  const wide = `${(100 * share).toFixed(2)}%`;
  if (node.style.width !== wide) node.style.width = wide;
}
