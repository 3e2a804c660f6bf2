// Elements of the page. All text from outside gets into it here, as plain text: no string is markup.

import { plain } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

/** Returns an HTML element. Children are nodes and texts. Names of attributes are constants. */
export function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Returns an element of a picture. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (typeof child === "string" ? plain(child) : child)));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Changes the text of a node if it differs, so that a selection in an equal text stays. */
export function setText(node, text) {
  const shown = plain(text);
  if (node.textContent !== shown) node.textContent = shown;
}

/** The states of a cache: a shape and a word for each, not only a colour. */
export const STATES = {
  live: { path: "M6 1a5 5 0 1 0 .01 0z", tone: "good" },
  reconnecting: { path: "M6 1 11.5 11H.5z", tone: "warn" },
  syncing: { path: "M6 1a5 5 0 1 0 .01 0zM6 3a3 3 0 1 1-.01 0z", tone: "warn" },
  stale: { path: "M3 1 1 3l3 3-3 3 2 2 3-3 3 3 2-2-3-3 3-3-2-2-3 3z", tone: "bad" },
};

/** Returns the shape of a state, for a picture. */
export function stateShape(state) {
  const { path, tone } = STATES[state] ?? STATES.syncing;
  return svg("path", { d: path, class: `shape ${tone}` });
}

/** Returns the shape of a state with words beside it. */
export function stateMark(state, words) {
  const mark = svg("svg", { viewBox: "0 0 12 12", class: "mark", "aria-hidden": "true" });
  mark.append(stateShape(state));
  return html("span", { class: "state" }, mark, words);
}

const [WIDTH, HEIGHT] = [90, 20];

/** A small line chart with its current value. `text` says the same to a screen reader. */
export class Sparkline {
  #line = svg("path", { class: "chart" });
  #value = html("span", { class: "value" });

  constructor() {
    const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", "aria-hidden": "true" });
    chart.append(svg("path", { d: `M0 ${HEIGHT - 0.5}H${WIDTH}`, class: "base" }), this.#line);
    this.node = html("span", { class: "trend" }, chart, this.#value);
  }

  draw(series, text) {
    setText(this.#value, text);
    const known = series.filter((value) => value !== undefined);
    const most = Math.max(1, ...known);
    let path = "";
    let pen = "M";
    series.forEach((value, index) => {
      if (value === undefined) {
        pen = "M";
        return;
      }
      const x = (index * WIDTH) / (series.length - 1);
      const y = HEIGHT - 1.5 - (value / most) * (HEIGHT - 3);
      path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = "L";
    });
    this.#line.setAttribute("d", path);
  }
}

/** A bar that shows a part of a whole. The number is in the text beside it. */
export class Bar {
  #part = svg("rect", { height: 6, width: 0, class: "part" });

  constructor() {
    this.node = svg("svg", { viewBox: "0 0 100 6", class: "bar", preserveAspectRatio: "none", "aria-hidden": "true" });
    this.node.append(svg("rect", { height: 6, width: 100, class: "all" }), this.#part);
  }

  draw(part, all) {
    const percent = all > 0 ? Math.min(100, (100 * part) / all) : 0;
    this.#part.setAttribute("width", percent.toFixed(1));
    this.#part.setAttribute("class", percent >= 90 ? "part bad" : "part");
  }
}
