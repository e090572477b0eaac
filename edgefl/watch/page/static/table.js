// A table of any length: only the rows in sight are in the document, and rows are used again.

import { h, say } from "./dom.js";
import { byName } from "./format.js";

const HEIGHT = 40; // pixels of a row, as in page.css
const SPARE = 6; // rows above and below what is in sight

/**
 * Columns: { id, title, width, of(row), draw(cell, row), right, wide, optional, descending }
 * `of` is what is sorted by; `draw` fills a cell; a `wide` one is left out in a narrower place, an `optional` one while
 * nothing is known in it; `descending` is how it is sorted first.
 */
export class Table {
  constructor(parent, { label, columns, sort, keyOf, empty }) {
    Object.assign(this, { all: columns, keyOf, rows: [], shown: [], sort, pool: [], emptyText: empty });
    this.body = h("div", { class: "body", role: "rowgroup", tabindex: "0", "aria-label": label });
    this.space = h("div");
    this.empty = h("p", { class: "empty", hidden: true });
    this.head = h("div", { class: "head", role: "row" });
    const heads = h("div", { role: "rowgroup" }, this.head);
    this.root = h("div", { class: "table", role: "table", "aria-label": label }, heads, this.body, this.empty);
    this.body.append(this.space);
    parent.append(this.root);
    this.body.addEventListener("scroll", () => this.later(), { passive: true });
    new ResizeObserver(() => this.layOut()).observe(parent);
    this.layOut();
  }

  /** Other rows, or other figures in them; columns that were there before are the same objects. */
  set(rows, columns = this.all) {
    Object.assign(this, { rows, all: columns });
    this.layOut();
    this.order();
  }

  order() {
    const column = this.all.find((one) => one.id === this.sort.by) ?? this.all[0];
    const sign = this.sort.down ? -1 : 1;
    const value = new Map(this.rows.map((row) => [row, column.of(row)]));
    const byKey = (a, b) => compared(this.keyOf(a), this.keyOf(b), 1);
    this.shown = [...this.rows].sort((a, b) => compared(value.get(a), value.get(b), sign) || byKey(a, b));
    this.root.setAttribute("aria-rowcount", this.shown.length + 1);
    this.space.style.height = `${HEIGHT * this.shown.length}px`;
    this.body.hidden = this.shown.length === 0;
    this.empty.hidden = this.shown.length > 0;
    say(this.empty, this.shown.length ? "" : this.emptyText);
    this.paint();
  }

  layOut() {
    const width = this.root.parentElement.clientWidth;
    const known = (one) => this.rows.some((row) => one.of(row) !== null && one.of(row) !== undefined);
    const columns = this.all.filter((one) => (!one.wide || width >= one.wide) && (!one.optional || known(one)));
    const same = this.columns && columns.length === this.columns.length && columns.every((one, i) => one === this.columns[i]);
    this.columns = columns;
    if (!same) {
      this.template = columns.map((one) => one.width).join(" ");
      this.pool.splice(0).forEach((row) => row.node.remove());
      this.drawHead();
    }
    this.paint();
  }

  drawHead() {
    this.head.style.gridTemplateColumns = this.template;
    this.head.replaceChildren(
      ...this.columns.map((column) => {
        const button = h("button", { type: "button", on: { click: () => this.sortBy(column) } }, column.title);
        const sorted = column.id === this.sort.by ? (this.sort.down ? "descending" : "ascending") : "none";
        return h("div", { role: "columnheader", "aria-sort": sorted, class: column.right ? "right" : "" }, button);
      }),
    );
  }

  sortBy(column) {
    const again = this.sort.by === column.id;
    this.sort = { by: column.id, down: again ? !this.sort.down : Boolean(column.descending) };
    const focused = this.columns.indexOf(column);
    this.drawHead();
    this.head.children[focused]?.firstChild.focus();
    this.order();
  }

  later() {
    if (this.waits) return;
    this.waits = requestAnimationFrame(() => {
      this.waits = 0;
      this.paint();
    });
  }

  paint() {
    const height = this.body.clientHeight;
    if (!height && this.shown.length && !this.body.offsetParent) return; // it is not visible
    const first = Math.max(0, Math.floor(this.body.scrollTop / HEIGHT) - SPARE);
    const count = Math.min(this.shown.length - first, Math.ceil(height / HEIGHT) + 2 * SPARE);
    while (this.pool.length < count) this.pool.push(this.freshRow());
    this.pool.forEach((row, i) => {
      row.node.hidden = i >= count;
      if (i >= count) return;
      const place = first + i;
      row.node.style.transform = `translateY(${place * HEIGHT}px)`;
      row.node.setAttribute("aria-rowindex", place + 2);
      this.columns.forEach((column, j) => column.draw(row.cells[j], this.shown[place]));
    });
  }

  freshRow() {
    const cells = this.columns.map((column) => h("div", { role: "cell", class: column.right ? "right" : "" }));
    const node = h("div", { role: "row" }, ...cells);
    node.style.gridTemplateColumns = this.template;
    this.body.append(node);
    return { node, cells };
  }
}

/** What is not known comes last, whichever way. */
function compared(a, b, sign) {
  const noA = a === null || a === undefined, noB = b === null || b === undefined;
  if (noA || noB) return noA - noB;
  if (typeof a === "string") return sign * byName(a, b);
  return sign * (a - b);
}
