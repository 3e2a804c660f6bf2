// Serves the dashboard with the headers that kubefan sends, and an admin API that replays fixtures.
//
// The fixtures are made by hand after docs/admin-api.json. Counters and times go on from their values.
// `node server.mjs [SCENARIO]` serves on 127.0.0.1:8012, for work on the page.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const ADMIN = new URL("../../src/proxy/server/admin/", import.meta.url);
const TYPES = { html: "text/html", css: "text/css", js: "text/javascript" };
/** A text that is markup, a shell's and a terminal's command, and changes the direction of what follows. */
export const HOSTILE =
  `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>` +
  `'; $(touch /tmp/owned) \u001b[31mred\u0007\n\u202etxt.exe\u2066 javascript:alert(1)`;
/** The token that the scenario `token` wants. */
export const TOKEN = "the-token";

/** What a scenario changes: of the snapshot, and of the answers. */
const SCENARIOS = {
  calm: () => {},
  trouble: ({ caches, clients, freshness, relists, memory }) => {
    caches.upstreamResponding = false;
    const state = (index, state, activity) => Object.assign(caches.items[index], { state, activity });
    state(0, "stale", "waiting");
    state(3, "reconnecting", "resuming");
    state(9, "syncing", "listing");
    Object.assign(caches.items[0], { watchAgeSeconds: 191, eventsTotal: caches.items[0].eventsTotal });
    const slow = { group: "", version: "v1", resource: "pods", behindEvents: 41_200, behindSeconds: 74.2 };
    Object.assign(clients.items[2], { slowestWatch: slow, unreadBytes: 48_000_000, heldBytes: 52_000_000 });
    Object.assign(clients.items[4], { slowestWatch: { ...slow, behindEvents: 300, behindSeconds: 8.5 } });
    freshness.items[0].lastFailure = { reason: "the API server did not answer within 3 s", ageSeconds: 12.1 };
    Object.assign(freshness.items[0], { unprovenTotal: 41, isolatedSelections: 1 });
    const epoch = { result: "newEpoch", causes: ["transport", "relist_requested"], requestedBecause: "otherHistory" };
    relists.relists.unshift({ ...relists.relists[0], ...epoch, ageSeconds: 95, endedWatches: 1_203 });
    memory.residentBytes = 2_010_000_000;
  },
  hostile: hostile,
  bare: () => {},
  token: () => {},
};

/** Replaces every text of a page, except times. */
function hostile(page) {
  for (const [key, value] of Object.entries(page)) {
    if (typeof value === "string" && key !== "time") page[key] = HOSTILE;
    else if (value !== null && typeof value === "object") hostile(value);
  }
}

export const fixture = (name) => JSON.parse(readFileSync(new URL(`fixtures/${name}.json`, import.meta.url)));

/** Returns the headers that dashboard.rs sends with each file. */
function headers() {
  const source = readFileSync(new URL("dashboard.rs", ADMIN), "utf8");
  const table = /const HEADERS: .*? = \[(.*?)\n\];/s.exec(source)[1];
  const lines = table.replace(/\\\n\s*/g, "").matchAll(/\(\s*"(.*?)",\s*"(.*?)",?\s*\)/gs);
  return Object.fromEntries([...lines].map(([, name, value]) => [name, value]));
}

/** Returns a snapshot after so many seconds. */
function snapshot(scenario, seconds) {
  const page = fixture("snapshot");
  const pulse = (index) => 1 + Math.sin(seconds / (7 + index)) / 2;
  page.caches.items.forEach((cache, index) => {
    const events = Math.round((cache.eventLog.events / 200) * seconds * pulse(index) ** 0.2);
    cache.eventsTotal += events;
    cache.sentEventsTotal += events * Math.min(cache.watchers, 40);
  });
  for (const requests of page.caches.requests) {
    requests.cache += Math.round((requests.cache / 9_000) * seconds);
    requests.forwarded += Math.round((requests.forwarded / 4_000) * seconds);
  }
  SCENARIOS[scenario](page);
  page.time = new Date(Date.parse(page.time) + 1_000 * seconds).toISOString();
  return page;
}

/** Starts a server on a port of the system's choice, or the given one. `cut` ends all streams, and
 *  refuses new ones until it is called again. `seen` has the headers of the requests of the API. */
export async function start(scenario, port = 0) {
  const seen = [];
  const streams = new Set();
  const began = Date.now() - 300_000;
  let isCut = false;
  const fail = (response, code, message) => {
    response.writeHead(code, { "content-type": "application/json" });
    response.end(JSON.stringify({ kind: "Status", code, message }));
  };
  const api = (name, request, response) => {
    seen.push({ name, ...request.headers });
    if (isCut) return fail(response, 503, "the check has cut it off");
    const isKnown = scenario !== "token" || request.headers.authorization === `Bearer ${TOKEN}`;
    if (!isKnown) return fail(response, 401, "Unauthorized");
    if (name === "events") {
      response.writeHead(200, { "content-type": "text/event-stream" });
      streams.add(response);
      request.on("close", () => streams.delete(response));
      const write = (seconds) => {
        const data = JSON.stringify(snapshot(scenario, seconds));
        response.write(`event: snapshot\ndata: ${data}\n\n`);
      };
      const send = () => write((Date.now() - began) / 1_000);
      // The charts of five minutes are full at once.
      for (let seconds = 0; seconds < 300; seconds += 2) write(seconds);
      send();
      const timer = setInterval(send, 1_000);
      return response.on("close", () => clearInterval(timer));
    }
    if (scenario === "bare" && name === "users") return fail(response, 403, "forbidden");
    const exists = ["users", "config", "bill", "advice"].includes(name) && scenario !== "bare";
    if (!exists) return fail(response, 404, "not found");
    const page = fixture(name);
    if (scenario === "hostile") hostile(page);
    response.writeHead(200, { "content-type": "application/json" });
    return response.end(JSON.stringify(page));
  };
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    if (pathname.startsWith("/admin/v1/")) return api(pathname.slice("/admin/v1/".length), request, response);
    try {
      const name = pathname === "/" ? "dashboard/index.html" : pathname.slice(1);
      const text = readFileSync(new URL(name, ADMIN));
      response.writeHead(200, { "content-type": `${TYPES[name.split(".").pop()]}; charset=utf-8`, ...headers() });
      return response.end(text);
    } catch {
      return fail(response, 404, "not found");
    }
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    seen,
    cut: () => {
      isCut = !isCut;
      for (const stream of streams) stream.end();
    },
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const { url } = await start(process.argv[2] ?? "calm", 8_012);
  console.log(url);
}
