// A grid of shares between 0 and 1 as colours: classes over rounds, or classes told for classes (a confusion matrix).

import { h, say, show } from "./dom.js";
import { colour } from "./chart.js";
import { percent } from "./format.js";

const every = new Set();
const NAMES = 24; // more rows than that have no room for their names

export class HeatMap {
  constructor(parent, { id, title, hint }) {
    this.keys = h("p", { class: "keys" }, h("span", {}));
    this.names = h("div", { class: "heat-names", "aria-hidden": "true" });
    this.canvas = h("canvas", { role: "img", "aria-label": title });
    this.foot = h("div", { class: "heat-foot" }, h("span", {}), scale(), h("span", {}));
    const body = h("div", { class: "heat" }, this.names, this.canvas, this.foot);
    const head = h("div", { class: "chart-head" }, h("h2", { title: hint }, title), this.keys);
    this.root = h("section", { class: "card chart", data: { chart: id } }, head, body);
    parent.append(this.root);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => say(this.keys.firstChild, this.resting));
    every.add(this);
  }

  /** Columns of shares, and names of the rows; `describe` tells of one cell in words, `resting` of none. */
  set({ columns, rowNames, describe, resting, ends }) {
    Object.assign(this, { columns, rowNames, describe, resting });
    show(this.root, columns.length > 0);
    const few = [rowNames[0], `${rowNames.length - 2} more`, rowNames[rowNames.length - 1]];
    const named = rowNames.length <= NAMES ? rowNames : few;
    this.names.replaceChildren(...named.map((name) => h("span", { title: name }, h("bdi", {}, name))));
    say(this.foot.firstChild, ends[0]);
    say(this.foot.lastChild, ends[1]);
    say(this.keys.firstChild, resting);
    this.paint();
  }

  paint() {
    if (!this.columns?.length) return;
    const [width, height] = [this.columns.length, this.rowNames.length];
    const canvas = this.canvas;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    const shades = palette();
    this.columns.forEach((column, x) => {
      for (let y = 0; y < height; y++) {
        const share = column?.[y];
        if (share === null || share === undefined) continue;
        image.data.set(shades[Math.round(255 * Math.min(1, Math.max(0, share)))], 4 * (y * width + x));
      }
    });
    context.putImageData(image, 0, 0);
    paintScale(this.foot.querySelector("canvas"), shades);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * this.columns.length);
    const y = Math.floor(((event.clientY - box.top) / box.height) * this.rowNames.length);
    const share = this.columns[x]?.[y];
    say(this.keys.firstChild, share === undefined ? this.resting : this.describe(x, y, percent(share)));
  }
}

function scale() {
  return h("span", { class: "scale", "aria-hidden": "true" }, "0 %", h("canvas", { width: 256, height: 1 }), "100 %");
}

function paintScale(canvas, shades) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(256, 1);
  shades.forEach((shade, i) => image.data.set(shade, 4 * i));
  context.putImageData(image, 0, 0);
}

let known = { of: "", shades: [] };

/** 256 colours from low to high, as the browser mixes them. */
function palette() {
  const of = `${colour("--low")} ${colour("--high")}`;
  if (known.of === of) return known.shades;
  const context = h("canvas", { width: 256, height: 1 }).getContext("2d");
  const gradient = context.createLinearGradient(0, 0, 256, 0);
  gradient.addColorStop(0, colour("--low"));
  gradient.addColorStop(1, colour("--high"));
  context.fillStyle = gradient;
  context.fillRect(0, 0, 256, 1);
  const { data } = context.getImageData(0, 0, 256, 1);
  known = { of, shades: Array.from({ length: 256 }, (_, i) => data.slice(4 * i, 4 * i + 4)) };
  return known.shades;
}

export function recolourMaps() {
  for (const map of every) map.paint();
}
