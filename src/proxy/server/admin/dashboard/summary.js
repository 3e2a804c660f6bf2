// What a snapshot says, in sentences. Pure.

import { brief, bytes, plural, rate } from "./format.js";

/** A reader that is behind for so many seconds is slow. Less is usual after a burst. */
const SLOW_SECONDS = 5;

/** Returns the number of caches in each state, such as `{live: 11, stale: 1}`. */
export function countStates(caches) {
  const states = {};
  for (const { state } of caches) states[state] = (states[state] ?? 0) + 1;
  return states;
}

/** Returns whether all is well, as a sentence and a tone: good, warn or bad. It changes only with the
 *  states, so that a screen reader says it only then. */
export function health({ caches, freshness }) {
  const { items, total } = caches;
  const { live = 0, ...others } = countStates(items);
  const shown = total > items.length ? `${items.length} largest caches (of ${total})` : plural(total, "cache");
  const sentence = [`${live} of ${shown} live`];
  for (const [state, number] of Object.entries(others)) sentence.push(`${number} ${state}`);
  const differing = freshness.items.filter((one) => one.isolatedSelections > 0 || one.doubted).length;
  if (differing > 0) sentence.push(`${plural(differing, "cache")} can't prove all reads`);
  const text = `${sentence.join(", ")}.`;
  if (!caches.upstreamResponding) return { tone: "bad", text: `Trouble: the API server does not respond. ${text}` };
  if (others.stale) return { tone: "bad", text: `Stale: ${text}` };
  if (live < items.length || differing > 0) return { tone: "warn", text: `Recovering: ${text}` };
  if (total === 0) return { tone: "warn", text: "Idle: no client has asked for a resource yet." };
  return { tone: "good", text: `Fresh: ${text}` };
}

/** Returns the connections with a watch that has been behind for some time, the slowest first. */
export const slowClients = (clients) =>
  clients.items
    .filter(({ slowestWatch }) => (slowestWatch?.behindSeconds ?? 0) >= SLOW_SECONDS)
    .sort((a, b) => b.slowestWatch.behindSeconds - a.slowestWatch.behindSeconds);

/** Returns true if no watch has been behind for some time. It is not known if the page lacks connections. */
export const noneIsSlow = (clients) =>
  clients.total <= clients.items.length && slowClients(clients).length === 0;

/** Returns what flows, in sentences. They say what the picture shows. */
export function flowSentences({ caches, clients }, flow) {
  const responds = caches.upstreamResponding
    ? `The API server sends ${rate(flow.received)} events per second to ${plural(caches.total, "cache")}.`
    : `The API server does not respond. ${plural(caches.total, "cache")} have what they had.`;
  const served =
    `They send ${rate(flow.sent)} events and ${rate(flow.answered)} answers per second to ` +
    `${plural(clients.total, "connection")} with ${plural(clients.watches, "watch", "watches")}.`;
  const forwarded = `${rate(flow.forwarded)} requests per second are forwarded, ${rate(flow.rejected)} refused.`;
  const slow = slowClients(clients).length;
  const sentences = [responds, served, forwarded];
  if (slow > 0) sentences.push(`Too slow: ${plural(slow, "connection")}.`);
  return sentences.join(" ");
}

/** Returns short lines about the caches and the clients, for the boxes of the picture. */
export function boxLines({ caches, clients }) {
  const sum = (field) => caches.items.reduce((all, cache) => all + cache[field], 0);
  const { live = 0 } = countStates(caches.items);
  const others = caches.items.length - live;
  const slow = slowClients(clients).length;
  return {
    upstream: caches.upstreamResponding ? "responds" : "does not respond",
    states: others > 0 ? `${live} live, ${others} not` : `${live} live`,
    objects: `${brief(sum("objects"))} objects, ${bytes(sum("objectBytes"))}`,
    clients: plural(clients.total, "connection"),
    watches: `${plural(clients.watches, "watch", "watches")}, ${bytes(clients.heldBytes)} held`,
    slow: slow > 0 ? `${slow} too slow` : noneIsSlow(clients) ? "none too slow" : "",
  };
}
