// One chart: a card with its title, what stands under the cursor, and the plot. All charts of rounds share a cursor.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { h, say, show } from "./dom.js";

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const FONT = "12px system-ui, sans-serif";
const HEIGHT = 210;
const FEW = 25; // rounds that have a dot each
const every = new Set(); // charts in the document, to be painted anew in other colours

/**
 * Series: { label, colour: "--s1", of(row), fill, dash, stacked }
 * Stacked ones are bars that stand on each other, the first at the bottom.
 */
export class Chart {
  constructor(parent, { id, title, hint, series, format, axisFormat = format, range = snug, sync = "rounds", ...more }) {
    const { height = HEIGHT, empty = "Nothing to show yet." } = more;
    Object.assign(this, { series, format, axisFormat, range, sync, height, rows: [], plot: null });
    this.keys = h("p", { class: "keys" });
    this.area = h("div", { class: "plot", role: "img", "aria-label": title });
    this.empty = h("p", { class: "empty" }, empty);
    const head = h("div", { class: "chart-head" }, h("h2", { title: hint }, title), this.keys);
    this.root = h("section", { class: "card chart", data: { chart: id } }, head, this.area, this.empty);
    parent.append(this.root);
    new ResizeObserver(() => this.fit()).observe(this.area);
    every.add(this);
  }

  /** Rows in the order of x; nothing is painted while it is not visible. */
  set(rows) {
    this.rows = rows;
    const full = this.series.some((one) => rows.some((row) => (one.of(row) ?? null) !== null));
    show(this.empty, !full);
    show(this.area, full);
    if (!full) return;
    this.columns = this.series.map((one) => rows.map((row) => one.of(row) ?? null));
    const data = [rows.map((row) => row.round), ...this.stack()];
    if (this.plot) this.plot.setData(data, !this.zoomed);
    else this.make(data);
    this.tell(null);
  }

  /** Stacked series are drawn from the top down, each over the one before. */
  stack() {
    if (!this.series[0]?.stacked) return this.columns;
    const sums = [];
    this.columns.forEach((column, i) => sums.push(column.map((value, j) => (value ?? 0) + (i ? sums[i - 1][j] : 0))));
    return sums.reverse();
  }

  make(data) {
    const stacked = Boolean(this.series[0]?.stacked);
    const lines = stacked ? [...this.series].reverse() : this.series;
    const axis = (more) => ({
      stroke: () => colour("--muted"), font: FONT, ticks: { show: false },
      grid: { stroke: () => colour("--grid"), width: 1 }, ...more,
    });
    const options = {
      width: this.area.clientWidth || 400, height: this.height, legend: { show: false }, padding: [10, 14, 0, 0],
      cursor: { sync: { key: this.sync }, points: { size: 7 }, drag: { x: true, y: false } },
      scales: { x: { time: false, range: around }, y: { range: this.range } },
      axes: [
        axis({ size: 28, values: (u, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? String(tick) : "")) }),
        axis({ size: 62, values: (u, ticks) => ticks.map((tick) => this.axisFormat(tick)) }),
      ],
      series: [{}, ...lines.map((one) => line(one, stacked))],
      hooks: {
        setCursor: [(u) => this.tell(u.cursor.idx)],
        setSelect: [(u) => (this.zoomed = u.select.width > 0)],
      },
    };
    this.plot = new uPlot(options, data, this.area);
    this.area.addEventListener("dblclick", () => (this.zoomed = false));
  }

  /** What stands under the cursor; without one, the last figure of each. */
  tell(place) {
    const pointed = place !== null && place !== undefined;
    if (!this.rows.length || (pointed && !this.rows[place])) return;
    if (!this.keys.firstChild) this.keys.append(h("span"), ...this.series.map(key));
    const [where, ...values] = this.keys.children;
    say(where, pointed ? `round ${this.rows[place].round}` : "");
    this.series.forEach((one, i) => {
      const last = this.columns[i].findLast((known) => known !== null) ?? null;
      const value = pointed ? this.columns[i][place] : last;
      const node = values[i].lastChild;
      show(values[i], last !== null);
      say(node, this.format(value));
      node.dataset.value = value ?? "";
    });
  }

  fit() {
    const width = this.area.clientWidth;
    if (this.plot && width && Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height: this.height });
  }

  close() {
    this.plot?.destroy();
    every.delete(this);
    this.root.remove();
  }
}

function key(one) {
  const line = h("i");
  line.style.background = `var(${one.colour})`;
  return h("span", {}, line, one.label, h("b"));
}

function line(one, stacked) {
  const stroke = () => colour(one.colour);
  if (stacked) {
    const paths = uPlot.paths.bars({ size: [0.86, 42], gap: 0.5 });
    return { stroke, width: 0, fill: stroke, paths, points: { show: false } };
  }
  const fill = one.fill ? (u) => shade(u, colour(one.colour)) : undefined;
  const points = { show: (u) => u.data[0].length < FEW, size: 5, fill: stroke };
  return { stroke, fill, width: 2, dash: one.dash, spanGaps: true, points };
}

function shade(u, base) {
  const gradient = u.ctx.createLinearGradient(0, u.bbox.top, 0, u.bbox.top + u.bbox.height);
  gradient.addColorStop(0, `color-mix(in srgb, ${base} 24%, transparent)`);
  gradient.addColorStop(1, `color-mix(in srgb, ${base} 0%, transparent)`);
  return gradient;
}

/** One round alone has room on both sides. */
const around = (u, min, max) => (min === max ? [min - 1, max + 1] : [min, max]);

function snug(u, min, max) {
  if (min === null || max === null) return [0, 1];
  const room = (max - min) * 0.06 || Math.abs(max) * 0.1 || 1;
  return [min >= 0 && min - room < 0 ? 0 : min - room, max + room];
}

/** From zero up. */
export const fromZero = (u, min, max) => [0, (max || 1) * 1.06];

export function recolour() {
  for (const chart of every) chart.plot?.redraw(false);
}
