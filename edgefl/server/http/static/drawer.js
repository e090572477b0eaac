// One device, or one run that has no page yet, in a drawer over the page.

import { byId, h, keyed, mark, say, show } from "/static/dom.js";
import { ago, ahead, integer, moment, reading } from "/static/format.js";
import { now } from "/static/state.js";
import { drawButtons, ofRun } from "./actions.js";
import { stateOf } from "./devices.js";
import { seconds } from "./needs.js";
import { far, pillOf } from "./queue_card.js";

const LINES = 40; // of a run's log
let shown = { kind: "", name: "" }, asked = 0;

function open(kind, name) {
  const drawer = byId("drawer"), fresh = shown.kind !== kind || shown.name !== name;
  drawer.dataset.open = "true";
  if (!drawer.open) drawer.showModal();
  if (!fresh) return false;
  shown = { kind, name };
  say(byId("drawer-name"), name);
  byId("drawer-body").replaceChildren(h("p", { class: "empty" }, "…"));
  return true;
}

export function closeDrawer() {
  shown = { kind: "", name: "" };
  delete byId("drawer").dataset.open;
  if (byId("drawer").open) byId("drawer").close();
}

export const deviceShown = () => (shown.kind === "device" ? shown.name : null);

function parts(make) {
  const body = byId("drawer-body");
  if (body.dataset.of !== `${shown.kind} ${shown.name}` || body.querySelector(".empty")) {
    body.dataset.of = `${shown.kind} ${shown.name}`;
    body.replaceChildren(...make());
  }
  return body.children;
}

const drawFacts = (list, facts) => keyed(list, facts, ([title]) => title,
  ([title]) => h("div", {}, h("dt", {}, title), h("dd", {}, h("bdi"))),
  (node, [, value]) => say(node.lastChild.firstChild, value));

// ── a device ──────────────────────────────────────────────────────────────────────────────────────────────────

export async function drawDevice(fleet, name, state) {
  open("device", name);
  const turn = ++asked;
  const answer = await fetch(`/fleets/${encodeURIComponent(fleet)}/device/${encodeURIComponent(name)}`).catch(() => null);
  if (turn !== asked || deviceShown() !== name) return;
  if (!answer?.ok) {
    const why = answer?.status === 404 ? "No device of this name belongs to the fleet." : "The server does not answer.";
    byId("drawer-body").replaceChildren(h("p", { class: "empty" }, why));
    return;
  }
  const { device, story } = await answer.json();
  const [labels, facts, , list, nothing] = parts(() => [
    h("ul", { class: "labels" }), h("dl", { class: "facts" }), h("h3", {}, "What happened, the latest first"), h("ul", { class: "story" }),
    h("p", { class: "hint" }, "Nothing is told of it."),
  ]);
  keyed(labels, Object.entries(device.labels ?? {}), ([key]) => key, () => h("li", {}, h("b"), h("bdi")), (node, [key, value]) => {
    say(node.firstChild, key);
    say(node.lastChild, value);
  });
  drawFacts(facts, deviceFacts(device, state));
  keyed(list, [...story].reverse(), ([at, text]) => `${at}\n${text}`, ([at, text]) => h("li", {}, h("time", {}, moment(at)), h("bdi", {}, text)), () => {});
  show(nothing, story.length === 0);
}

function deviceFacts(one, state) {
  const at = now(state), signs = state.signs.filter(([name, sign]) => sign.title && (one.vitals?.[name] ?? null) !== null);
  return [
    ["State", one.state === "no data" ? one.state : stateOf(one)],
    ...(one.data_trouble ? [["Data", `${one.data_trouble} (since ${moment(one.data_since)})`]] : []),
    ["Last seen", ago(one.last_seen, at)],
    ["Samples", integer(one.samples)],
    ["Certificate ends in", one.certificate_ends === null ? "–" : ahead(one.certificate_ends, at)],
    ["Host", one.host || "–"],
    ["Machine", [one.arch, one.memory_mb ? `${integer(one.memory_mb)} MiB` : ""].filter(Boolean).join(", ") || "–"],
    ["Version", one.version || "–"],
    ["Trains with", one.back_end || "–"],
    ["Came first", moment(one.joined_at)],
    ...signs.map(([name, sign]) => [sign.title, reading(one.vitals[name], sign.unit)]),
  ];
}

// ── a run ─────────────────────────────────────────────────────────────────────────────────────────────────────

export async function drawRun(name, queue) {
  const fresh = open("run", name);
  if (queue) redrawRun(queue);
  if (!fresh) return;
  const answer = await fetch(`/api/v1/runs/${encodeURIComponent(name)}/log?lines=${LINES}`).catch(() => null);
  if (shown.kind !== "run" || shown.name !== name || !answer?.ok) return;
  const { lines } = await answer.json();
  shown.log = lines.join("\n");
  fillLog();
}

export function redrawRun(queue) {
  if (shown.kind !== "run") return;
  const run = queue.runs.find((one) => one.name === shown.name);
  if (!run) {
    byId("drawer-body").replaceChildren(h("p", { class: "empty" }, "The server tells of no such run any more: edgefl run history"));
    return;
  }
  const [head, facts, buttons] = parts(() => [
    h("p", { class: "run-head" }, h("span", { class: "pill" }), h("a", { href: `/runs/${encodeURIComponent(run.name)}/` }, "Open its page")),
    h("dl", { class: "facts" }), h("div", { class: "buttons" }), h("h3", {}, "The end of its log"), h("pre", { class: "log" }),
  ]);
  say(head.firstChild, run.phase);
  mark(head.firstChild, "state", pillOf(run.phase));
  show(head.lastChild, Boolean(run.started) && !run.deleted);
  drawFacts(facts, runFacts(run));
  drawButtons(buttons, run.name, ofRun(run));
  fillLog();
}

function fillLog() {
  const place = byId("drawer-body").querySelector(".log");
  if (place) say(place, shown.log || "It has written nothing yet.");
}

const runFacts = (run) => [
  ...(run.reason ? [["Reason", run.reason]] : []),
  ...(run.position ? [["Place in the queue", integer(run.position)]] : []),
  ...(far(run) ? [["Round", far(run).replace(/^round /, "")]] : []),
  ["By", run.schedule ? `schedule ${run.schedule}` : run.by],
  ["Priority", integer(run.priority)],
  ["Submitted", moment(seconds(run.submitted))],
  ["Started", moment(seconds(run.started))],
  ["Ended", moment(seconds(run.ended))],
  ...(run.deleted ? [["Folder", "deleted"]] : []),
];
