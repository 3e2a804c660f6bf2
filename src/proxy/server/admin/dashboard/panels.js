// The tables: which columns each has, and what they show.

import { Bar, Sparkline, byId, html, setText, stateMark } from "./dom.js";
import { brief, bytes, cacheDetails, cacheKey, count, duration, plural, rate, resourceName, share } from "./format.js";
import { Table } from "./table.js";

/** The most rows of the tables that show the largest of many. */
const TOP = 15;

const text = (title, of) => ({ title, value: of, text: of });
const number = (title, of, show = count) => ({
  title,
  number: true,
  value: (item) => of(item) ?? -1,
  text: (item) => (of(item) === undefined ? "" : show(of(item))),
});

const address = { ...text("Address", ({ address }) => address), tight: true };

/** A column with the name of a cache, and what distinguishes it below. */
const cacheColumn = {
  title: "Cache",
  value: ({ cache }) => resourceName(cache),
  cell: () => {
    const [name, details] = [html("bdi"), html("bdi")];
    return { name, details, node: html("span", { class: "name" }, name, html("small", {}, details)) };
  },
  draw: ({ name, details }, { cache }) => {
    setText(name, resourceName(cache));
    setText(details, cacheDetails(cache));
  },
};

/** A column with a chart of the last five minutes. `key` is that of a counter in the history. */
const trend = (title, history, key) => ({
  title,
  number: true,
  value: (item) => history.rate(key(item)),
  cell: () => new Sparkline(),
  draw: (chart, item) => chart.draw(history.series(key(item)), rate(history.rate(key(item)))),
});

export const keyOfEvents = ({ cache }) => `events ${cacheKey(cache)}`;
export const keyOfSent = ({ cache }) => `sent ${cacheKey(cache)}`;
export const keyOfRequests = ({ group, resource }) => `requests ${JSON.stringify([group, resource])}`;

export function cachesTable(history) {
  const state = {
    title: "State",
    value: ({ state }) => state,
    cell: () => ({ node: html("span") }),
    draw: ({ node }, { state, activity }) => {
      const words = activity && activity !== "watching" ? `${state}, ${activity}` : state;
      if (node.textContent !== words) node.replaceChildren(stateMark(state, words));
    },
  };
  const columns = [
    cacheColumn,
    state,
    number("Objects", ({ objects }) => objects),
    number("Size", ({ objectBytes }) => objectBytes, bytes),
    number("Log", ({ eventLog }) => eventLog.spanSeconds, duration),
    number("Watches", ({ watchers }) => watchers),
    trend("Events/s", history, keyOfEvents),
    trend("Requests/s", history, ({ cache }) => keyOfRequests(cache)),
    number("Cached", ({ hits }) => hits, (hits) => share(hits, 1)),
    number("Watch alive", ({ watchAgeSeconds }) => watchAgeSeconds, (age) => `${duration(age)} ago`),
  ];
  return new Table(byId("caches"), columns, { sort: 3, key: ({ cache }) => cacheKey(cache) });
}

/** Returns the name of the user with a number, if it may be shown. */
const userName = ({ userNumber }, users) =>
  userNumber === undefined ? "not known" : (users.get(userNumber) ?? `number ${userNumber}`);

/** Returns the name of a client in the bill: its user, or its address where the user is not known. */
export const clientName = (client, users) => client.address ?? userName(client, users);

export function clientsTable(users) {
  const columns = [
    address,
    text("User", (client) => userName(client, users)),
    text("Program", ({ userAgent }) => userAgent ?? ""),
    number("Held", ({ heldBytes }) => heldBytes, bytes),
    number("Unread", ({ unreadBytes }) => unreadBytes, bytes),
    number("Watches", ({ watches }) => watches),
    number("Requests", ({ requests }) => requests),
  ];
  return new Table(byId("clients"), columns, { sort: 3, key: ({ address }) => address, most: TOP });
}

export function slowTable(users) {
  const columns = [
    address,
    text("User", (client) => userName(client, users)),
    text("Watch of", ({ slowestWatch }) => resourceName(slowestWatch)),
    number("Behind", ({ slowestWatch }) => slowestWatch.behindEvents, (events) => plural(events, "event")),
    number("For", ({ slowestWatch }) => slowestWatch.behindSeconds, duration),
  ];
  return new Table(byId("slow"), columns, { sort: 4, key: ({ address }) => address, most: TOP });
}

export function recoveriesTable() {
  const change = ({ added, modified, deleted }) => `+${count(added)} ~${count(modified)} −${count(deleted)}`;
  const columns = [
    cacheColumn,
    text("Result", ({ result }) => result),
    text("Causes", ({ causes, requestedBecause }) => [...causes, requestedBecause ?? []].flat().join(", ")),
    number("Ago", ({ ageSeconds }) => ageSeconds, duration),
    number("Took", ({ tookSeconds }) => tookSeconds, duration),
    text("Changes", ({ changes }) => (changes ? change(changes) : "")),
    number("Watches ended", ({ endedWatches }) => endedWatches),
    text("Last error", ({ error }) => error),
  ];
  return new Table(byId("recoveries"), columns, { sort: 3, isDescending: false, key: ({ key }) => key });
}

export function freshnessTable() {
  const proof = ({ lastProof }) => (lastProof ? `${lastProof.method}, ${duration(lastProof.ageSeconds)} ago` : "");
  const failure = ({ lastFailure }) =>
    lastFailure ? `${duration(lastFailure.ageSeconds)} ago: ${lastFailure.reason}` : "";
  const columns = [
    cacheColumn,
    text("Policy", ({ policy, boundSeconds }) => (boundSeconds ? `${policy} ${duration(boundSeconds)}` : policy)),
    text("Last proof", proof),
    number("Questions", ({ questionsTotal }) => questionsTotal),
    number("Failed", ({ unprovenTotal }) => unprovenTotal),
    number("Differing", ({ differingTotal }) => differingTotal),
    number("Isolated", ({ isolatedSelections }) => isolatedSelections),
    text("Doubted", ({ doubted }) => (doubted ? "yes" : "no")),
    text("Last failure", failure),
  ];
  return new Table(byId("freshness"), columns, { sort: 0, key: ({ cache }) => cacheKey(cache) });
}

export function memoryTable() {
  const part = {
    title: "Part of the limit",
    number: true,
    value: ({ bytes, limit }) => (limit ? bytes / limit : -1),
    cell: () => {
      const [bar, words] = [new Bar(), html("span", { class: "value" })];
      return { bar, words, node: html("span", { class: "trend" }, bar.node, words) };
    },
    draw: ({ bar, words, node }, { bytes, limit }) => {
      node.hidden = !limit;
      bar.draw(bytes, limit);
      setText(words, share(bytes, limit));
    },
  };
  const columns = [
    text("Use", ({ use }) => use),
    number("Now", ({ bytes }) => bytes, bytes),
    number("Limit", ({ limit }) => limit, bytes),
    part,
  ];
  return new Table(byId("memory"), columns, { sort: 1, key: ({ use }) => use });
}

/** Returns the rows of the memory. */
export function memoryRows({ residentBytes, availableBytes, caches, readers, limitBytes, kept }) {
  const rows = [
    { use: "the process", bytes: residentBytes, limit: availableBytes },
    { use: "caches: objects", bytes: caches?.objectBytes },
    { use: "caches: event logs", bytes: caches?.eventLogBytes },
    ...readers.map(({ kind, bytes }) => ({ use: `clients: ${kind}`, bytes, limit: limitBytes })),
    ...kept.map(({ kind, bytes, limitBytes: limit }) => ({ use: `shared: ${kind}`, bytes, limit })),
  ];
  return rows.filter(({ bytes }) => bytes !== undefined);
}

export function configTable() {
  const columns = [
    text("Setting", ({ key }) => key),
    text("Value", ({ value }) => JSON.stringify(value)),
    text("From", ({ origin, place }) => place ? `${origin}: ${place}` : origin),
    text("Change", ({ waitsForRestart, needsRestart }) =>
      waitsForRestart ? "waits for a restart" : needsRestart ? "needs a restart" : "applies at once"),
  ];
  return new Table(byId("config"), columns, { sort: 0, key: ({ key }) => key });
}

export function billTable(users) {
  const columns = [
    text("Client", ({ client }) => clientName(client, users)),
    text("Program", ({ client }) => client.userAgent),
    number("Requests a minute", ({ minute }) => minute.requests),
    number("Forwarded a minute", ({ minute }) => minute.forwards),
    number("Events a minute", ({ minute }) => minute.events, brief),
    number("Watches", ({ openWatches }) => openWatches),
    number("Own CPU", ({ total }) => total.cpuSeconds, duration),
    number("Saved CPU", ({ total }) => total.saved.estimatedCpuSeconds, duration),
  ];
  return new Table(byId("bill"), columns, { sort: 7, key: ({ client }) => JSON.stringify(client), most: TOP });
}
