// Figures of a model: what each is called and how it is shown, as edgefl/learn/evaluation/figures.py has them.

import { decimal, percent } from "./format.js";

const TITLES = {
  accuracy: "accuracy", balanced_accuracy: "balanced", loss: "loss", rmse: "RMSE", mae: "MAE", r2: "R2",
  mean_iou: "mean IoU", pixel_accuracy: "pixel accuracy", f1: "F1",
  exact_match: "exact match", perplexity: "perplexity", token_accuracy: "token accuracy",
  reconstruction_error: "reconstruction error", auroc: "AUROC",
};
const SHARES = new Set([
  "accuracy", "balanced_accuracy", "mean_iou", "pixel_accuracy", "f1", "exact_match", "token_accuracy", "auroc",
]);
const HIGHER = new Set([...SHARES, "r2"]); // the others are errors

/** "kind.rmse" is the RMSE of the output "kind". */
const parts = (name) => [name.slice(0, Math.max(0, name.lastIndexOf("."))), name.slice(name.lastIndexOf(".") + 1)];

export function scoreTitle(name) {
  const [output, figure] = parts(name), title = TITLES[figure] ?? figure.replaceAll("_", " ");
  return output ? `${output} ${title}` : title.charAt(0).toUpperCase() + title.slice(1);
}

export const isShare = (name) => SHARES.has(parts(name)[1]);
export const growsBetter = (name) => HIGHER.has(parts(name)[1]);
export const scoreFormat = (name) => (isShare(name) ? (value) => percent(value, 1) : decimal);

/** A figure of a round's model: the coordinator's own, what the devices found, or the one that is there. */
export const byCoordinator = (name) => (row) => row.scores[name] ?? null;
export const byDevices = (name) => (row) => row.evaluated?.scores[name] ?? null;
export const scored = (name) => (row) => byCoordinator(name)(row) ?? byDevices(name)(row);

/** The figures that these rounds have, what models are judged by first. */
export const scoreNames = (rows) => [
  ...new Set(rows.flatMap((row) => [...Object.keys(row.scores), ...Object.keys(row.evaluated?.scores ?? {})])),
];
