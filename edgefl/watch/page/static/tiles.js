// The figures that matter at a glance: how good the model is, who is there, what it costs.

import { byId, h, keyed, say } from "./dom.js";
import { bytes, decimal, duration, percent, plural } from "./format.js";
import { scoreFormat, scoreTitle } from "./scores.js";
import { isFailing, isOnline, notInRun, now, score } from "./state.js";

export function drawTiles(state) {
  keyed(byId("tiles"), tiles(state), (tile) => tile.id,
    (tile) => h("dl", { class: "tile", data: { tile: tile.id } }, h("dt"), h("dd", {}, h("span"), h("div", { class: "under" }))),
    (node, tile) => {
      const [term, figure] = node.children;
      say(term, tile.title);
      say(figure.firstChild, tile.value);
      figure.firstChild.dataset.value = tile.raw ?? "";
      say(figure.lastChild, tile.under);
      figure.lastChild.className = `under ${tile.tone ?? ""}`;
    });
}

function tiles(state) {
  const { run, rounds } = state;
  const scored = rounds.filter((row) => score("loss")(row) !== null || score("accuracy")(row) !== null);
  const last = scored[scored.length - 1], before = scored[scored.length - 2];
  const looked = rounds.findLast((row) => row.evaluated); // devices tell a round later
  return [...scores(run, last, before), ...worst(looked), ...fleet(state), ...costs(run, rounds)];
}

function scores(run, last, before) {
  if (!last) {
    const blind = run.evaluating && !run.evaluating.samples;
    return [{ id: "accuracy", title: "Accuracy", value: "–", under: blind ? "nobody has looked yet" : "after the first round" }];
  }
  const of = (name) => score(name)(last), was = (name) => (before ? score(name)(before) : null);
  const where = last.loss === null && last.accuracy === null ? " on devices" : "";
  const goodness = of("accuracy") === null ? errors(of, where) : accuracies(run, of, was, where);
  return [...goodness, ...loss(of, was, where)];
}

function accuracies(run, of, was, where) {
  const now = of("accuracy"), earlier = was("accuracy"), best = run.best?.accuracy ?? null, balanced = of("balanced_accuracy");
  const under = best !== null && best > now ? `best ${percent(best)} in round ${run.best.round}` : gain(now, earlier);
  const tone = earlier === null || now < earlier ? "" : "up";
  const first = { id: "accuracy", title: `Accuracy${where}`, value: percent(now), raw: now, under, tone };
  if (balanced === null) return [first];
  const weak = weakest(run, of("per_class"));
  return [first, { id: "balanced", title: "Balanced accuracy", value: percent(balanced), raw: balanced, under: weak }];
}

function errors(of, where) {
  if (of("scores")) return Object.entries(of("scores")).filter(([, value]) => value !== null).map(([name, value]) => (
    { id: `score-${name}`, title: `${scoreTitle(name)}${where}`, value: scoreFormat(name)(value), raw: value, under: "" }));
  if (of("rmse") === null) return [];
  const under = `MAE ${decimal(of("mae"))}, R² ${decimal(of("r2"))}`;
  return [{ id: "rmse", title: `RMSE${where}`, value: decimal(of("rmse")), raw: of("rmse"), under }];
}

function worst(row) {
  const value = row?.evaluated.worst_tenth ?? null;
  if (value === null) return [];
  const under = `of ${plural(row.evaluated.devices, "device")} that looked`;
  const format = row.evaluated.accuracy === null ? decimal : percent;
  return [{ id: "worst", title: "Worst tenth", value: format(value), raw: value, under }];
}

function loss(of, was, where) {
  const now = of("loss"), earlier = was("loss");
  if (now === null) return [];
  const under = earlier === null ? "first round" : `${now <= earlier ? "down" : "up"} from ${decimal(earlier)}`;
  return [{ id: "loss", title: `Loss${where}`, value: decimal(now), raw: now, under }];
}

function gain(value, earlier) {
  if (earlier === null) return "first round";
  const points = 100 * (value - earlier);
  return `${points >= 0 ? "+" : "−"}${Math.abs(points).toFixed(1)} points`;
}

function weakest(run, perClass) {
  const shares = (perClass ?? []).map((share, i) => [share, i]).filter(([share]) => share !== null);
  if (shares.length < 2) return "";
  const [share, i] = shares.reduce((a, b) => (b[0] < a[0] ? b : a));
  return `weakest: ${className(run, i)} with ${percent(share)}`;
}

export const className = (run, i) => run.evaluating?.class_names?.[i] ?? run.done?.class_names?.[i] ?? `class ${i}`;

function fleet(state) {
  const devices = [...state.devices.values()].filter((one) => !notInRun(one));
  const online = devices.filter(isOnline).length;
  const trouble = devices.filter((one) => isFailing(one, now(state))).length;
  const samples = devices.reduce((sum, one) => sum + (isOnline(one) ? one.samples : 0), 0);
  const under = trouble ? `${plural(trouble, "device")} in trouble` : samples ? plural(samples, "sample") : "";
  const value = `${online} of ${devices.length}`;
  return [{ id: "online", title: "Devices online", value, raw: online, under, tone: trouble ? "down" : "" }];
}

function costs(run, rounds) {
  const left = run.done ? 0 : run.rounds - run.rounds_done;
  const usual = recent(rounds);
  const all = `${duration(run.waiting_seconds)} of ${duration(run.seconds)} waiting`;
  const waited = run.waiting_seconds > 0 ? all : "";
  const rest = usual !== null && left > 0 ? `about ${duration(usual * left)} left` : waited;
  return [
    { id: "traffic", title: "Traffic up", value: bytes(run.bytes_up), raw: run.bytes_up, under: `down ${bytes(run.bytes_down)}` },
    { id: "seconds", title: "A round takes", value: duration(usual), raw: run.seconds, under: rest },
  ];
}

/** The usual time of the last rounds. */
function recent(rounds) {
  const last = rounds.slice(-10).map((row) => row.seconds).sort((a, b) => a - b);
  return last.length ? last[Math.floor(last.length / 2)] : null;
}
