// The round in hand: how far it is, who is awaited, and why it waits.

import { byId, deviceLink, h, keyed, mark, say, show } from "./dom.js";
import { byName, clock, duration, percent, plural } from "./format.js";
import { now, standing } from "./state.js";

const SAID = /^round \d+: \d+ of \d+ answered; /; // the title says that already
const MOST = 60; // devices with a chip of their own; the awaited come first

export function drawNow(state) {
  const { run, open } = state;
  const done = run.rounds_done, total = Math.max(run.rounds, done);
  say(byId("now-title"), title(run, open, total));
  const why = byId("now-why");
  say(why, reason(run, open));
  mark(why, "urgent", Boolean(run.waiting_lasts && !run.done));
  mark(why, "broken", Boolean(run.paused || run.failed || (run.broker_away && !run.done)));
  const bar = byId("progress");
  bar.setAttribute("aria-valuemax", total);
  bar.setAttribute("aria-valuenow", done);
  byId("progress-bar").style.width = `${total ? (100 * done) / total : 0}%`;
  drawAsked(state);
  tick(state);
}

/** Why it waits. A folder does not tell; then it is the devices that have not answered. */
function reason(run, open) {
  if (run.paused || run.failed) return run.paused || run.failed;
  if (run.done) return ended(run);
  if (run.state === "interrupted") return `No coordinator is at work on it: the same command goes on. ${run.waiting}`;
  if (run.broker_away) return `The broker is away: ${run.broker_away}`;
  if (run.waiting || !open?.awaited.length) return run.waiting.replace(SAID, "");
  const [names, more] = [open.awaited.slice(0, 5).join(", "), open.awaited.length - 5];
  return `waiting for ${names}${more > 0 ? ` and ${more} more` : ""}`;
}

function ended(run) {
  const height = run.best?.accuracy ? ` with ${percent(run.best.accuracy)}` : "";
  const best = run.best ? `best in round ${run.best.round}${height}` : "";
  const model = run.done.model_sha256 ? `model ${run.done.model_sha256.slice(0, 16)}` : "";
  return [best, model].filter(Boolean).join(", ");
}

function title(run, open, total) {
  if (run.done) return `Finished after ${plural(run.done.rounds, "round")}`;
  if (!open) return run.rounds_done < total ? `Round ${run.rounds_done + 1} of ${total}` : "All rounds are done";
  if (open.closed_at !== null) return `Round ${open.round} of ${total}: merging ${plural(open.answered.length, "answer")}`;
  return `Round ${open.round} of ${total}: ${open.answered.length} of ${open.asked.length} answered`;
}

/** What changes with the time alone; called once a second while the page is visible. */
export function tick(state) {
  const { run, open } = state;
  if (!run) return;
  const time = byId("now-time"), label = byId("now-time-label");
  if (run.done) {
    say(time, duration(run.seconds));
    say(label, "in all");
  } else if (run.state === "interrupted") {
    say(time, "");
    say(label, "");
  } else if (open && open.closed_at === null) {
    const left = open.deadline_at === null ? null : open.deadline_at - now(state);
    say(time, clock(now(state) - open.opened_at));
    const until = left > 0 ? `${clock(left)} until its deadline` : "its deadline has passed";
    say(label, left === null ? "since it was opened" : until);
  } else if (run.waiting_since) {
    say(time, clock(now(state) - run.waiting_since));
    say(label, standing(run) === "merging" ? "merging" : "waiting");
  }
}

function drawAsked(state) {
  const { open } = state;
  show(byId("asked"), Boolean(open && open.asked.length));
  if (!open) return;
  const awaited = new Set(open.awaited), answered = new Set(open.answered);
  const late = 2 * open.answered.length >= open.asked.length; // others wait for whom is left
  const rank = (name) => (awaited.has(name) ? 0 : answered.has(name) ? 2 : 1);
  const names = [...open.asked].sort((a, b) => rank(a) - rank(b) || byName(a, b));
  const chip = (name) => ({ name, state: stateOf(state, name, answered, open), awaited: late && awaited.has(name) });
  const chips = names.slice(0, MOST).map(chip);
  if (names.length > MOST) chips.push({ more: names.length - MOST });
  keyed(byId("asked-list"), chips, (chip) => chip.name ?? "\n", makeChip, changeChip);
  drawLegend(state, open);
}

/** What a device that was asked is doing for this round. */
function stateOf(state, name, answered, open) {
  if (answered.has(name)) return "answered";
  if (Object.hasOwn(open.declined, name)) return "declined";
  return state.devices.get(name)?.state ?? "asked";
}

function makeChip(chip) {
  if (chip.more) return h("li", {}, h("span", { class: "more" }));
  const link = h("a", { href: deviceLink(chip.name) }, h("i", { class: "mark" }), h("span", {}, h("bdi", {}, chip.name)));
  return h("li", {}, link);
}

function changeChip(node, chip) {
  const link = node.firstChild;
  if (chip.more) {
    say(link, `and ${chip.more} more`);
    return;
  }
  mark(link.firstChild, "state", chip.state);
  mark(link, "awaited", chip.awaited);
  const words = `${chip.name}: ${chip.awaited ? "awaited, " : ""}${chip.state}`;
  if (link.title !== words) link.title = words;
}

function drawLegend(state, open) {
  const counts = new Map();
  const answered = new Set(open.answered);
  for (const name of open.asked) {
    const one = stateOf(state, name, answered, open);
    const word = one === "idle" ? "asked" : one;
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const parts = [...counts].map(([word, count]) => ({ word, count }));
  if (open.extended) parts.push({ word: `given more time ${plural(open.extended, "time")}`, count: null });
  keyed(byId("asked-legend"), parts, (part) => part.word,
    (part) => h("span", {}, h("i", { class: "mark", data: { state: part.word } }), h("span", {})),
    (node, part) => say(node.lastChild, part.count === null ? part.word : `${part.count} ${part.word}`));
}
