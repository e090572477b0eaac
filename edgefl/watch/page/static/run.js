// The charts of the run, each there as soon as there is something in it.

import { Chart, fromZero } from "./chart.js";
import { byId, h, show } from "./dom.js";
import { bytes, decimal, duration, percent } from "./format.js";
import { HeatMap } from "./heatmap.js";
import { byCoordinator, byDevices, isShare, scored, scoreFormat, scoreNames, scoreTitle } from "./scores.js";
import { opinion } from "./state.js";
import { className } from "./tiles.js";

const field = (name) => (row) => row[name];
const evaluated = (name) => (row) => row.evaluated?.[name] ?? null; // by devices
const trained = (name) => (row) => row.evaluated?.local_scores[name] ?? null; // the same, of the models they trained
const known = (of) => (row) => of(row) !== null;

/** Where the time of a round went; no part is more than what the parts before have left of it. */
const waited = (row) => Math.min(row.seconds, row.waiting_seconds);
const worked = (row) => part(row.training_seconds, row.seconds - waited(row));
const merged = (row) => part(row.merging_seconds, row.seconds - waited(row) - (worked(row) ?? 0));
const rest = (row) => Math.max(0, row.seconds - waited(row) - (worked(row) ?? 0) - (merged(row) ?? 0));
const part = (seconds, left) => (seconds === null ? null : Math.max(0, Math.min(left, seconds)));

const LOSSES = ["forgetting", "local_forgetting", "aggregation_forgetting"];
const share = (digits) => (value) => percent(value, digits);

const whole = (value) => (Number.isInteger(value) ? String(value) : "");

const CHARTS = [
  { id: "forgetting", title: "Forgetting", hint: "How much of what was known is lost: over rounds, in training, in merging",
    needs: (row) => LOSSES.some((name) => opinion(name)(row)), format: decimal, series: [
    { label: "over rounds", colour: "--s4", of: opinion("forgetting"), fill: true },
    { label: "in training", colour: "--s3", of: field("local_forgetting") },
    { label: "in merging", colour: "--s8", of: field("aggregation_forgetting") }] },
  { id: "time", title: "Where a round's time went", needs: (row) => row.seconds > 0, format: duration, range: fromZero, series: [
    { label: "waiting for devices", colour: "--s3", of: waited, stacked: true },
    { label: "slowest device", colour: "--s1", of: worked, stacked: true },
    { label: "merging", colour: "--s2", of: merged, stacked: true },
    { label: "other", colour: "--s5", of: rest, stacked: true }] },
  { id: "traffic", title: "Traffic", needs: (row) => row.bytes_up + row.bytes_down > 0, format: bytes, range: fromZero, series: [
    { label: "up", colour: "--s1", of: field("bytes_up"), fill: true },
    { label: "down", colour: "--s2", of: field("bytes_down") }] },
  { id: "devices", title: "Answers", needs: (row) => row.asked > 0, format: whole, range: fromZero, series: [
    { label: "asked", colour: "--s5", of: field("asked"), dash: [5, 4] },
    { label: "merged", colour: "--s2", of: field("devices"), fill: true },
    { label: "missing", colour: "--s6", of: (row) => row.missing.length }] },
];

const BESIDE = { accuracy: "balanced_accuracy", rmse: "mae" }; // figures that share a chart

/** A figure of the model by the coordinator, and what belongs beside it. */
function ofFigure(name, more) {
  const second = BESIDE[name] ? [{ label: scoreTitle(BESIDE[name]), colour: "--s2", of: byCoordinator(BESIDE[name]), dash: [5, 4] }] : [];
  return { ...shownAs(name), id: name, title: scoreTitle(name), needs: known(scored(name)), series: [
    { label: "all samples", colour: "--s1", of: byCoordinator(name), fill: true }, ...second, ...more] };
}

/** The chief figure, and a chart of how far devices are apart in it. */
const chief = (name) => [
  { ...ofFigure(name, []), needs: known(byCoordinator(name)) },
  { ...shownAs(name), id: "spread", title: `${scoreTitle(name)} on devices`, hint: "What devices found on data they had set aside",
    needs: known(byDevices(name)), series: [
      { label: "whole fleet", colour: "--s1", of: byDevices(name), fill: true },
      { label: "median device", colour: "--s2", of: evaluated("median") },
      { label: "worst tenth", colour: "--s6", of: evaluated("worst_tenth"), dash: [5, 4] },
      { label: "after training", colour: "--s5", of: trained(name), dash: [2, 3] }] },
];

const other = (name) => [ofFigure(name, [
  { label: "on devices", colour: "--s8", of: byDevices(name) },
  { label: "after training", colour: "--s5", of: trained(name), dash: [2, 3] }])];

const shownAs = (name) => ({ format: scoreFormat(name), axisFormat: isShare(name) ? share(0) : undefined });

function figures(rows) {
  const names = scoreNames(rows), main = names.find((name) => name !== "loss");
  const alone = names.filter((name) => !Object.values(BESIDE).includes(name));
  return alone.flatMap((name) => (name === main ? chief(name) : other(name)));
}

const drawn = new Map();
let first;

export function drawCharts(state) {
  const parent = byId("charts"), rows = state.rounds;
  first ??= parent.appendChild(h("p", { class: "card empty" }, "Curves begin with the first merged round."));
  show(first, rows.length === 0);
  const charts = [...figures(rows), ...CHARTS];
  for (const plan of charts) {
    const wanted = rows.some(plan.needs);
    if (wanted && !drawn.has(plan.id)) drawn.set(plan.id, new Chart(parent, plan));
    const chart = drawn.get(plan.id);
    if (!chart) continue;
    show(chart.root, wanted);
    if (wanted) chart.set(rows);
  }
  drawClasses(parent, state);
  drawConfusion(parent, state);
  const order = charts.flatMap((plan) => (plan.id === "forgetting" ? ["classes", "confusion", plan.id] : [plan.id]));
  order.map((id) => drawn.get(id)?.root).forEach((root, i) => root && (root.style.order = i));
}

function drawClasses(parent, { run, rounds }) {
  const shares = opinion("per_class");
  const rows = rounds.filter((row) => shares(row)?.length > 1);
  if (!rows.length) return;
  const plan = { id: "classes", title: "Accuracy of each class", hint: "A column for each round" };
  if (!drawn.has("classes")) drawn.set("classes", new HeatMap(parent, plan));
  const last = rows[rows.length - 1];
  const rowNames = shares(last).map((_, i) => className(run, i));
  drawn.get("classes").set({
    columns: rows.map(shares), rowNames,
    describe: (x, y, words) => `round ${rows[x].round}, ${rowNames[y]}: ${words}`,
    resting: "", ends: [`round ${rows[0].round}`, `round ${last.round}`],
  });
}

function drawConfusion(parent, { run, rounds }) {
  const row = rounds.findLast((one) => one.evaluated?.confusion?.length > 1);
  if (!row) return;
  const plan = { id: "confusion", title: "Confusion matrix", hint: "Rows are what it is, columns what the model took it for" };
  if (!drawn.has("confusion")) drawn.set("confusion", new HeatMap(parent, plan));
  const counts = row.evaluated.confusion;
  const sums = counts.map((line) => line.reduce((a, b) => a + b, 0));
  const names = counts.map((_, i) => className(run, i));
  drawn.get("confusion").set({
    columns: names.map((_, x) => names.map((_, y) => (sums[y] ? counts[y][x] / sums[y] : null))), rowNames: names,
    describe: (x, y, words) => `${names[y]} taken for ${names[x]}: ${counts[y][x]} of ${sums[y]}, ${words}`,
    resting: `round ${row.round}`, ends: [names[0], names[names.length - 1]],
  });
}
