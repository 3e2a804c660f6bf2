// Reads the admin API and shows it. The stream has most of the page; a few pages are read beside it.

import { Failure, base, follow, hasToken, page, setToken } from "./api.js";
import { Bar, byId, html, setText } from "./dom.js";
import { Flow } from "./flow.js";
import { brief, bytes, duration, plural, share } from "./format.js";
import { History } from "./history.js";
import * as panels from "./panels.js";
import { flowSentences, health, noneIsSlow, slowClients } from "./summary.js";

/** The milliseconds between two reads of the pages beside the stream. */
const PERIOD = 10_000;
/** Data that are older, in seconds, are shown as old. */
const OLD = 5;
/** The most pieces of advice that are shown. */
const MOST_ADVICE = 6;

const history = new History();
/** The names of users by their numbers, as far as this user may see them. */
const users = new Map();
const flow = new Flow(byId("flow"));
const tables = {
  caches: panels.cachesTable(history),
  slow: panels.slowTable(users),
  clients: panels.clientsTable(users),
  bill: panels.billTable(users),
  recoveries: panels.recoveriesTable(),
  memory: panels.memoryTable(),
  freshness: panels.freshnessTable(),
  config: panels.configTable(),
};
const figures = makeFigures(["API server", "Objects", "Memory", "From caches", "CPU saved"]);
const memoryBar = new Bar();
figures.Memory.after(memoryBar.node);

let isPaused = false;
let newest;
/** When the newest snapshot came, by the page's clock; and why none comes, and when the next try is. */
let receivedAt;
let failure;

follow(takeSnapshot, takeFailure);
setInterval(showAge, 1_000);
setInterval(readOthers, PERIOD);
connectControls();
showCommands();

function takeSnapshot(snapshot) {
  const isFirst = receivedAt === undefined || failure !== undefined;
  [newest, receivedAt, failure] = [snapshot, performance.now(), undefined];
  history.add(Date.parse(snapshot.time) / 1_000, totalsOf(snapshot));
  if (isFirst) {
    byId("access").hidden = true;
    byId("forget").hidden = !hasToken();
    showCommands();
    readOthers();
  }
  if (!isPaused) show(snapshot);
}

function takeFailure(error, wait) {
  failure = { text: error.message, nextAt: wait === undefined ? undefined : performance.now() + wait };
  const access = byId("access");
  if ((error.code === 401 || error.code === 403) && access.hidden) {
    access.hidden = false;
    byId("token").focus();
  }
  showHealth({ tone: "bad", text: `No new data: ${failure.text}` });
  showAge();
}

/** Returns the counters of a snapshot by their keys in the history. */
function totalsOf({ caches }) {
  const totals = new Map();
  const sum = { answered: 0, forwarded: 0, rejected: 0 };
  for (const cache of caches.items) {
    totals.set(panels.keyOfEvents(cache), cache.eventsTotal);
    totals.set(panels.keyOfSent(cache), cache.sentEventsTotal);
  }
  for (const requests of caches.requests) {
    totals.set(panels.keyOfRequests(requests), requests.cache + requests.forwarded + requests.rejected);
    sum.answered += requests.cache;
    sum.forwarded += requests.forwarded;
    sum.rejected += requests.rejected;
  }
  for (const [key, total] of Object.entries(sum)) totals.set(key, total);
  return totals;
}

function show(snapshot) {
  const { caches, clients, freshness, memory, relists } = snapshot;
  const sum = (keyOf) => caches.items.reduce((all, cache) => all + history.rate(keyOf(cache)), 0);
  const rates = Object.fromEntries(["answered", "forwarded", "rejected"].map((key) => [key, history.rate(key)]));
  Object.assign(rates, { received: sum(panels.keyOfEvents), sent: sum(panels.keyOfSent) });
  showHealth(health(snapshot));
  setText(byId("version"), snapshot.version ?? "");
  showFigures(snapshot);
  flow.show(snapshot, rates);
  setText(byId("flow-text"), flowSentences(snapshot, rates));
  tables.caches.show(withHits(caches));
  const slow = slowClients(clients);
  tables.slow.show(slow);
  byId("slow").parentElement.hidden = slow.length === 0;
  byId("slow-none").hidden = !noneIsSlow(clients);
  tables.clients.show(clients.items);
  tables.memory.show(panels.memoryRows(memory));
  tables.freshness.show(freshness.items);
  tables.recoveries.show([...relists.relists, ...relists.resumes].map((one, key) => ({ key, ...one })));
}

/** Returns the caches, each with the share of its resource's requests that caches answered. */
function withHits({ items, requests }) {
  const hits = new Map();
  for (const one of requests) {
    const all = one.cache + one.forwarded + one.rejected;
    if (all > 0) hits.set(panels.keyOfRequests(one), one.cache / all);
  }
  return items.map((item) => ({ ...item, hits: hits.get(panels.keyOfRequests(item.cache)) }));
}

function showHealth({ tone, text }) {
  setText(byId("health"), text);
  byId("health").className = tone;
}

function showFigures({ caches, memory }) {
  const sum = (of) => caches.requests.reduce((all, one) => all + of(one), 0);
  const all = sum((one) => one.cache + one.forwarded + one.rejected);
  setText(figures["API server"], caches.upstreamResponding ? "responds" : "does not respond");
  const { objects, objectBytes } = memory.caches ?? { objects: 0, objectBytes: 0 };
  setText(figures.Objects, `${brief(objects)}, ${bytes(objectBytes)}`);
  const { residentBytes = 0, availableBytes } = memory;
  setText(figures.Memory, `${bytes(residentBytes)} of ${bytes(availableBytes)}`);
  memoryBar.draw(residentBytes, availableBytes);
  setText(figures["From caches"], share(sum((one) => one.cache), all) || "no requests yet");
}

function makeFigures(names) {
  const values = {};
  for (const name of names) {
    values[name] = html("dd");
    byId("figures").append(html("div", {}, html("dt", {}, name), values[name]));
  }
  values["CPU saved"].parentElement.hidden = true;
  return values;
}

/** Shows how old the data are. It changes each second, so screen readers do not announce it. */
function showAge() {
  const age = receivedAt === undefined ? undefined : (performance.now() - receivedAt) / 1_000;
  const isOld = age === undefined || age > OLD;
  const parts = [age === undefined ? "No data yet" : isOld ? `Data are ${duration(age)} old` : "Live"];
  if (isPaused) parts.push("the page is paused");
  const wait = (failure?.nextAt - performance.now()) / 1_000;
  if (isOld && wait > 0) parts.push(`next try in ${duration(Math.ceil(wait))}`);
  setText(byId("age"), parts.join(", "));
  byId("age").className = isOld ? "bad" : "";
  document.body.classList.toggle("is-old", isOld);
}

/** Reads the pages that the stream does not have. What this kubefan or this user does not have is hidden. */
async function readOthers() {
  if (isPaused || failure || receivedAt === undefined) return;
  await read("users", showUsers);
  await Promise.all([read("bill", showBill), read("advice", showAdvice), read("config", showConfig)]);
}

async function read(name, showPage) {
  try {
    showPage(await page(name));
  } catch (error) {
    // What was read before stays. If kubefan is away, the stream notices it, too, and says so.
    if (!(error instanceof Failure)) throw error;
  }
}

function showUsers(names) {
  users.clear();
  for (const { number, name } of names?.items ?? []) users.set(number, name);
  if (!isPaused) show(newest);
}

function showConfig(config) {
  byId("config-panel").hidden = !config;
  const waiting = config?.settings.filter((one) => one.waitsForRestart).length ?? 0;
  setText(byId("config-summary"), waiting > 0 ? `Settings: ${waiting} wait for a restart` : "Settings");
  tables.config.show(config?.settings ?? []);
}

function showBill(bill) {
  byId("bill-panel").hidden = !bill;
  figures["CPU saved"].parentElement.hidden = !bill;
  if (!bill) return;
  const { saved } = bill.total;
  const cpu = duration(saved.estimatedCpuSeconds);
  setText(figures["CPU saved"], `about ${cpu}`);
  const text =
    `In ${duration(bill.seconds)} the API server was saved ${brief(saved.requests)} requests, ` +
    `${brief(saved.objects)} objects in lists, ${brief(saved.events)} events and about ${cpu} of CPU time. ` +
    `kubefan has used ${duration(bill.cpu.processSeconds)}.`;
  setText(byId("saved"), text);
  tables.bill.show(bill.clients);
}

function showAdvice(advice) {
  const items = advice?.items ?? [];
  byId("advice-panel").hidden = items.length === 0;
  const lines = items.slice(0, MOST_ADVICE).map(({ client, evidence, fix }) => {
    const name = html("b", {}, html("bdi", {}, panels.clientName(client, users)));
    // A client whose user is not known has no program.
    const program = client.userAgent ? [" ", html("bdi", {}, client.userAgent)] : [];
    return html("li", {}, name, ...program, ": ", sentence(evidence), sentence(fix));
  });
  const more = (advice?.total ?? 0) - lines.length;
  if (more > 0) lines.push(html("li", {}, `${plural(more, "more piece", "more pieces")} of advice.`));
  byId("advice").replaceChildren(...lines);
}

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}. `;
}

function connectControls() {
  const [pause, theme, access] = ["pause", "theme", "access"].map(byId);
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", isPaused);
    document.body.classList.toggle("is-paused", isPaused);
    showAge();
    if (!isPaused && newest) show(newest);
  });
  const themes = ["auto", "light", "dark"];
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % themes.length];
    document.documentElement.dataset.theme = next;
    setText(theme, `Theme: ${next}`);
  });
  access.addEventListener("submit", (event) => {
    event.preventDefault();
    setToken(byId("token").value);
    byId("token").value = "";
  });
  byId("forget").addEventListener("click", () => location.reload());
}

/** Returns an address as one word of a shell. */
function quoted(url) {
  return /^[\w:/.[\]-]+$/.test(url) ? url : `'${url.replaceAll("'", "%27")}'`;
}

/** Shows in each panel the command that prints the same. The token is not in it. */
function showCommands() {
  const token = hasToken() ? ' -H "Authorization: Bearer $TOKEN"' : "";
  for (const line of document.querySelectorAll(".command")) {
    const { page: name, options } = line.dataset;
    const command =
      name === "top"
        ? `kubefan top --once --admin-url ${quoted(base.replace("/admin/v1/", ""))}`
        : `curl ${options ?? "-s"}${token} ${quoted(base + name)}`;
    const copy = html("button", { type: "button", "aria-label": `Copy the command for ${name}` }, "Copy");
    copy.addEventListener("click", async () => {
      const isCopied = await navigator.clipboard.writeText(command).then(() => true, () => false);
      const result = isCopied ? "Copied" : "Select it by hand";
      setText(copy, result);
      setText(byId("spoken"), result);
      setTimeout(() => setText(copy, "Copy"), 2_000);
    });
    line.replaceChildren(html("code", {}, command), copy);
  }
}
