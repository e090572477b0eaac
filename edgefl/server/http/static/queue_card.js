// Runs now and next: what works, what waits and where in the queue, which schedule is due when.

import { byId, h, keyed, mark, say, show } from "/static/dom.js";
import { ago, integer, moment, plural } from "/static/format.js";
import { scoreFormat, scoreTitle } from "/static/scores.js";
import { now } from "/static/state.js";
import { drawButtons, ofRun, ofSchedule } from "./actions.js";
import { seconds } from "./needs.js";
import { within } from "./tiles.js";

const QUEUED = 5; // runs that wait and are listed here; the others stand in the table of runs
const PHASE = { working: 0, stopping: 0, paused: 1, queued: 2 };
const PILL = { queued: "waiting", working: "running", stopping: "waiting", paused: "interrupted", finished: "finished", failed: "failed", cancelled: "starting" };

export const pillOf = (phase) => PILL[phase] ?? "starting";

export function drawQueue({ state, queue, fleet }) {
  const place = byId("queue"), at = now(state);
  const open = queue.runs.filter((run) => run.phase in PHASE).sort((a, b) => PHASE[a.phase] - PHASE[b.phase] || (a.position ?? 0) - (b.position ?? 0));
  const waiting = open.filter((run) => run.phase === "queued"), hidden = waiting.slice(QUEUED);
  const shown = open.filter((run) => !hidden.includes(run));
  say(byId("queue-places"), `at most ${plural(queue.at_once, "run")} at once`);
  if (!place.firstChild) {
    place.append(h("ul", { class: "runs" }), h("a", { class: "more" }), h("p", { class: "empty" }), h("h3", {}, "Schedules"), h("ul", { class: "runs" }));
  }
  const [runs, more, empty, title, schedules] = place.children;
  keyed(runs, shown, (run) => run.name, makeRun, (node, run) => changeRun(node, run, at));
  show(more, hidden.length > 0);
  say(more, `and ${integer(hidden.length)} more in the queue`);
  more.setAttribute("href", `#${encodeURIComponent(fleet)}/runs`);
  show(empty, shown.length === 0);
  say(empty, "No run works or waits: edgefl run submit run.toml");
  show(title, queue.schedules.length > 0);
  listSchedules(schedules, queue, at);
}

export function drawSchedules({ state, queue }) {
  show(byId("schedules-card"), queue.schedules.length > 0);
  listSchedules(byId("schedules"), queue, now(state));
}

function listSchedules(list, queue, at) {
  const sorted = [...queue.schedules].sort((a, b) => (seconds(a.next_due) ?? Infinity) - (seconds(b.next_due) ?? Infinity));
  keyed(list, sorted, (one) => one.name, makeSchedule, (node, one) => changeSchedule(node, one, at));
}

const makeRun = (run) => h("li", { data: { run: run.name } },
  h("span", { class: "place" }),
  h("div", { class: "body" },
    h("p", { class: "what" }, h("a", { class: "name", href: `/runs/${encodeURIComponent(run.name)}/` }, h("bdi", {}, run.name)), h("span", { class: "pill" })),
    h("div", { class: "progress" }, h("div")),
    h("p", { class: "hint" })),
  h("div", { class: "buttons" }));

function changeRun(node, run, at) {
  const [position, body, buttons] = node.children, [what, progress, hint] = body.children;
  say(position, run.position ?? "");
  mark(node, "phase", run.phase);
  const pill = what.lastChild;
  say(pill, run.phase);
  mark(pill, "state", pillOf(run.phase));
  const { round = 0, rounds = null } = run.progress ?? {};
  show(progress, Boolean(run.progress && rounds));
  if (rounds) {
    const width = `${Math.min(100, (100 * round) / rounds)}%`;
    if (progress.firstChild.style.width !== width) progress.firstChild.style.width = width;
  }
  say(hint, about(run, at));
  if (hint.title !== hint.textContent) hint.title = hint.textContent;
  drawButtons(buttons, run.name, ofRun(run));
}

/** How far it is, why it waits, who wanted it. */
export function about(run, at) {
  const parts = [far(run)];
  if (run.phase === "queued" && run.priority) parts.push(`priority ${run.priority}`);
  if (run.reason) parts.push(run.reason);
  parts.push(run.started ? `started ${ago(seconds(run.started), at)}` : `submitted ${ago(seconds(run.submitted), at)}`);
  parts.push(run.schedule ? `by schedule ${run.schedule}` : `by ${run.by}`);
  return parts.filter(Boolean).join(" · ");
}

export function far({ progress }) {
  if (!progress) return "";
  const of = progress.rounds ? ` of ${integer(progress.rounds)}` : "";
  const score = progress.measure && progress.score !== null ? ` · ${scoreTitle(progress.measure).toLowerCase()} ${scoreFormat(progress.measure)(progress.score)}` : "";
  return `round ${integer(progress.round)}${of}${score}`;
}

const makeSchedule = (one) => h("li", { data: { schedule: one.name } },
  h("span", { class: "place clock" }, "↻"),
  h("div", { class: "body" },
    h("p", { class: "what" }, h("b", { class: "name" }, h("bdi", {}, one.name)), h("span", { class: "due" })),
    h("p", { class: "hint" })),
  h("div", { class: "buttons" }));

function changeSchedule(node, one, at) {
  const [, body, buttons] = node.children, [what, hint] = body.children, next = seconds(one.next_due);
  say(what.lastChild, one.paused ? "paused" : next ? `${within(next - at)}, ${moment(next)}` : "");
  say(hint, [`cron ${one.cron}`, one.zone, one.when ? `when ${one.when}` : "", one.last_run ? `last: ${one.last_run}` : "no run yet"].filter(Boolean).join(" · "));
  drawButtons(buttons, one.name, ofSchedule(one), true);
}
