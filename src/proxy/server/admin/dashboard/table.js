// A table that changes in place: rows keep their elements, so focus and selections stay while data
// arrive each second.

import { html, setText } from "./dom.js";

/** A column: its title; `value` returns what rows are sorted by, and `text` what is shown. Instead
 *  of `text`, `cell` returns an object with a `node`, once for each row, and `draw` updates it.
 *  @typedef {{title: string, value: function(any): (number|string), text?: function(any): string,
 *    cell?: function(any): {node: Node}, draw?: function(any, any): void, number?: boolean, tight?: boolean}} Column */

export class Table {
  #body = html("tbody");
  #rows = new Map();
  #items = [];
  #headers = [];

  /** Fills the `table` element. The first column has the names of the rows.
   *  @param {Column[]} columns
   *  @param {{sort: number, isDescending?: boolean, key: function(any): any, most?: number}} options */
  constructor(table, columns, { sort, isDescending = columns[sort].number ?? false, key, most = 1_000 }) {
    Object.assign(this, { columns, key, most, sort, isDescending });
    const row = html("tr");
    columns.forEach((column, index) => {
      const button = html("button", { type: "button" }, column.title);
      button.addEventListener("click", () => this.#sortBy(index));
      const header = html("th", { scope: "col", class: classOf(column) }, button);
      this.#headers.push(header);
      row.append(header);
    });
    table.append(html("thead", {}, row), this.#body);
    this.#markSort();
  }

  /** Shows `items`, the first ones if they are too many. */
  show(items) {
    this.#items = items;
    const { value } = this.columns[this.sort];
    const sign = this.isDescending ? -1 : 1;
    const order = (a, b) => sign * compare(value(a), value(b));
    const shown = [...items].sort(order).slice(0, this.most);
    const rows = new Map();
    for (const item of shown) {
      const key = this.key(item);
      rows.set(key, this.#rows.get(key) ?? this.#newRow(item));
    }
    for (const [key, { row }] of this.#rows) if (!rows.has(key)) row.remove();
    this.#rows = rows;
    [...rows.values()].forEach(({ row, cells }, index) => {
      this.columns.forEach((column, at) => {
        if (column.text) setText(cells[at], column.text(shown[index]));
        else column.draw(cells[at], shown[index]);
      });
      const before = this.#body.children[index];
      if (before !== row) this.#body.insertBefore(row, before ?? null);
    });
  }

  #newRow(item) {
    const cells = this.columns.map((column) => (column.text ? html("bdi") : column.cell(item)));
    const row = html("tr");
    this.columns.forEach((column, at) => {
      const node = cells[at].node ?? cells[at];
      const attributes = { class: classOf(column) };
      row.append(at === 0 ? html("th", { scope: "row", ...attributes }, node) : html("td", attributes, node));
    });
    return { row, cells };
  }

  #sortBy(index) {
    const isSame = this.sort === index;
    this.isDescending = isSame ? !this.isDescending : (this.columns[index].number ?? false);
    this.sort = index;
    this.#markSort();
    this.show(this.#items);
  }

  #markSort() {
    this.#headers.forEach((header, index) => {
      if (index !== this.sort) header.removeAttribute("aria-sort");
      else header.setAttribute("aria-sort", this.isDescending ? "descending" : "ascending");
    });
  }
}

const collator = new Intl.Collator("en", { numeric: true });

const classOf = (column) => (column.number ? "number" : column.tight ? "tight" : "text");

function compare(a, b) {
  return typeof a === "string" ? collator.compare(a, b) : a - b;
}
