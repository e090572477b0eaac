// The figures that matter at a glance: how good the model is, who is there, what it costs.

import { byId, h, keyed, say } from "./dom.js";
import { bytes, duration, percent, plural } from "./format.js";
import { growsBetter, isShare, scored, scoreFormat, scoreNames, scoreTitle } from "./scores.js";
import { isFailing, isOnline, notInRun, now, opinion } from "./state.js";

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
  const judged = rounds.filter((row) => scoreNames([row]).length);
  const last = judged[judged.length - 1], before = judged[judged.length - 2];
  const looked = rounds.findLast((row) => row.evaluated); // devices tell a round later
  return [...figures(run, last, before), ...worst(looked), ...fleet(state), ...costs(run, rounds)];
}

function figures(run, last, before) {
  if (!last) {
    const blind = run.evaluating && !run.evaluating.samples;
    return [{ id: "accuracy", title: "Accuracy", value: "–", under: blind ? "not evaluated yet" : "after the first round" }];
  }
  const where = Object.keys(last.scores).length ? "" : " on devices";
  return scoreNames([last]).filter((name) => scored(name)(last) !== null).map((name) => {
    const raw = scored(name)(last), earlier = before ? scored(name)(before) : null;
    const better = earlier !== null && (growsBetter(name) ? raw >= earlier : raw <= earlier);
    const more = best(run, name, raw) || (name === "balanced_accuracy" && weakest(run, opinion("per_class")(last)));
    const told = more ? { under: more } : { under: change(name, raw, earlier), tone: better ? "up" : "" };
    return { id: name, title: `${scoreTitle(name)}${where}`, value: scoreFormat(name)(raw), raw, ...told };
  });
}

/** In which round this figure was best, if the run is judged by it and it was better than now. */
function best(run, name, value) {
  if (run.best?.measure !== name || run.best.value === null || run.best.value === value) return "";
  const better = growsBetter(name) ? run.best.value > value : run.best.value < value;
  return better ? `best ${scoreFormat(name)(run.best.value)} in round ${run.best.round}` : "";
}

function change(name, value, earlier) {
  if (earlier === null) return "first round";
  if (!isShare(name)) return `${value <= earlier ? "down" : "up"} from ${scoreFormat(name)(earlier)}`;
  const points = 100 * (value - earlier);
  return `${points >= 0 ? "+" : "−"}${Math.abs(points).toFixed(1)} points`;
}

function worst(row) {
  const value = row?.evaluated.worst_tenth ?? null;
  if (value === null) return [];
  const under = `of ${plural(row.evaluated.devices, "device")} that evaluated it`;
  const chief = scoreNames([row]).find((name) => name !== "loss");
  return [{ id: "worst", title: "Worst tenth", value: scoreFormat(chief)(value), raw: value, under }];
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
