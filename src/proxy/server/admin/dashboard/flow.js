// The picture: API server, caches, clients, and what flows between them. A line is wider the more
// flows, moves while something flows, and is broken while the API server does not respond. The
// caption under the picture says the same in words.

import { STATES, setText, stateShape, svg } from "./dom.js";
import { rate } from "./format.js";
import { boxLines } from "./summary.js";

/** The picture for wide and for narrow windows. An edge has its path, its arrowhead as a point and a
 *  direction in degrees, and the place of its label. */
const LAYOUTS = {
  wide: {
    viewBox: "0 0 1000 176",
    box: [230, 118],
    boxes: { upstream: [6, 6], caches: [385, 6], clients: [764, 6] },
    edges: {
      events: { path: "M238 65H370", head: [376, 65, 0], label: [307, 48, "middle"] },
      sent: { path: "M617 50H749", head: [755, 50, 0], label: [686, 34, "middle"] },
      answered: { path: "M617 90H749", head: [755, 90, 0], label: [686, 112, "middle"] },
      forwarded: { path: "M879 126V150H121V139", head: [121, 132, 270], label: [500, 168, "middle"] },
    },
  },
  narrow: {
    viewBox: "0 0 360 508",
    box: [240, 118],
    boxes: { upstream: [4, 4], caches: [4, 194], clients: [4, 384] },
    edges: {
      events: { path: "M30 124V178", head: [30, 186, 90], label: [44, 148, "start"] },
      sent: { path: "M30 314V368", head: [30, 376, 90], label: [44, 338, "start"] },
      answered: { path: "M14 314V368", head: [14, 376, 90], label: [44, 362, "start"] },
      forwarded: { path: "M248 443H290V63H260", head: [252, 63, 180], label: [278, 176, "end"] },
    },
  },
};
const TITLES = { upstream: "API server", caches: "Caches", clients: "Clients" };
/** The most caches with a shape of their own, and how many are in a row. */
const [MOST_SHAPES, ROW] = [26, 13];

/** Draws the picture into the `svg` element. */
export class Flow {
  #picture;
  #narrow = matchMedia("(max-width: 480px)");
  #last;

  constructor(picture) {
    this.#picture = picture;
    this.#build();
    this.#narrow.addEventListener("change", () => {
      this.#build();
      if (this.#last) this.show(...this.#last);
    });
  }

  #build() {
    const { viewBox, box, boxes, edges } = this.#narrow.matches ? LAYOUTS.narrow : LAYOUTS.wide;
    this.#picture.setAttribute("viewBox", viewBox);
    this.edges = mapValues(edges, newEdge);
    this.boxes = mapValues(boxes, (at, name) => newBox(at, box, TITLES[name]));
    const parts = [...Object.values(this.edges), ...Object.values(this.boxes)];
    this.#picture.replaceChildren(...parts.map(({ node }) => node));
  }

  /** Shows a snapshot and the rates of what flows. */
  show(snapshot, flow) {
    this.#last = [snapshot, flow];
    const { upstreamResponding, items, total } = snapshot.caches;
    const lines = boxLines(snapshot);
    const { upstream, caches, clients } = this.boxes;
    const upstreamState = upstreamResponding ? "live" : "stale";
    upstream.show([lines.upstream], [upstreamState]);
    caches.show([lines.states, lines.objects], items.map(({ state }) => state), total);
    const slow = ["", "none too slow"].includes(lines.slow) ? "live" : "reconnecting";
    clients.show([lines.slow, lines.clients, lines.watches], [slow]);
    this.edges.events.show(flow.received, "events/s", !upstreamResponding);
    this.edges.sent.show(flow.sent, "events/s");
    this.edges.answered.show(flow.answered, "answers/s");
    this.edges.forwarded.show(flow.forwarded, "forwarded/s", !upstreamResponding);
  }
}

const mapValues = (object, map) =>
  Object.fromEntries(Object.entries(object).map(([key, value]) => [key, map(value, key)]));

function newEdge({ path, head: [x, y, angle], label: [left, top, anchor] }) {
  const line = svg("path", { d: path });
  const turn = `translate(${x} ${y}) rotate(${angle})`;
  const head = svg("path", { d: "M0 0-9-5.5V5.5z", class: "head", transform: turn });
  const label = svg("text", { x: left, y: top, "text-anchor": anchor });
  return {
    node: svg("g", { class: "edge" }, line, head, label),
    show(perSecond, unit, isBroken = false) {
      const speed = perSecond <= 0 ? "still" : perSecond < 100 ? "slow" : "fast";
      line.setAttribute("class", isBroken ? "line broken" : `line ${speed}`);
      line.setAttribute("stroke-width", (1.5 + Math.log10(1 + Math.max(0, perSecond))).toFixed(2));
      setText(label, isBroken ? `✕ ${rate(perSecond)} ${unit}` : `${rate(perSecond)} ${unit}`);
    },
  };
}

function newBox([x, y], [width, height], title) {
  const shapes = svg("g");
  const texts = [0, 1, 2].map(() => svg("text", { x: x + 14 }));
  const frame = svg("rect", { x, y, width, height, rx: 6, class: "box" });
  const heading = svg("text", { x: x + 14, y: y + 25, class: "heading" }, title);
  return {
    node: svg("g", {}, frame, heading, shapes, ...texts),
    show(lines, states, total = states.length) {
      const shown = states.slice(0, MOST_SHAPES).map((state, index) => {
        const [column, row] = [index % ROW, Math.floor(index / ROW)];
        const place = `translate(${x + 14 + 16 * column} ${y + 36 + 16 * row})`;
        return svg("g", { transform: place }, stateShape(state));
      });
      const isSingle = states.length === 1;
      const below = y + 36 + 16 * Math.max(1, Math.ceil(shown.length / ROW)) + 14;
      texts.forEach((text, index) => {
        text.setAttribute("y", isSingle ? y + 46 + 20 * index : below + 18 * index);
        text.setAttribute("x", isSingle && index === 0 ? x + 32 : x + 14);
        setText(text, lines[index] ?? "");
      });
      if (total > MOST_SHAPES) setText(texts[2], `the shapes are ${shown.length} of ${total}`);
      shapes.replaceChildren(...shown);
      const tone = states.some((state) => STATES[state]?.tone === "bad") ? "bad" : "";
      frame.setAttribute("class", `box ${tone}`);
    },
  };
}
