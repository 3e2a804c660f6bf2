// Tests of the dashboard's pure modules: `node --test tests/browser/unit.test.mjs`. They need no packages.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { HOSTILE, fixture } from "./server.mjs";

globalThis.document = { baseURI: "http://127.0.0.1:8002/" };
const load = (name) => import(`../../src/proxy/server/admin/dashboard/${name}.js`);
const { EventParser } = await load("api");
const { bytes, cacheDetails, duration, plain, rate, share } = await load("format");
const { History, POINTS } = await load("history");
const { boxLines, health, noneIsSlow, slowClients } = await load("summary");

test("texts are one line without characters that can't be seen", () => {
  assert.equal(plain("a\u202eb\nc\u001b[0m\u200b"), "a\\u{202e}b\\u{a}c\\u{1b}[0m\\u{200b}");
  assert.equal(plain("日本 <b> 🙂"), "日本 <b> 🙂");
  assert.ok(!/[\p{Cc}\p{Cf}]/u.test(plain(HOSTILE)));
  const long = plain("🙂".repeat(10_000));
  assert.equal([...long].length, 501);
  assert.ok(long.endsWith("🙂…"), "no character is cut in half");
});

test("numbers have units", () => {
  const sizes = [[0, "0 B"], [999, "999 B"], [1_000, "1.0 kB"], [999_950, "1.0 MB"], [2_147_483_648, "2.1 GB"]];
  for (const [value, expected] of sizes) assert.equal(bytes(value), expected);
  const times = [[undefined, ""], [0.4, "400 ms"], [119, "119 s"], [120, "2 min"], [7_200, "2 h"], [200_000, "2 d"]];
  for (const [value, expected] of times) assert.equal(duration(value), expected);
  for (const [value, expected] of [[0, "0"], [0.01, "< 0.1"], [0.44, "0.4"], [12.34, "12.3"], [1_234, "1.23K"]]) {
    assert.equal(rate(value), expected);
  }
  for (const [part, all, expected] of [[0, 0, ""], [1, 2, "50 %"], [999, 1_000, "> 99 %"], [5, 5, "100 %"]]) {
    assert.equal(share(part, all), expected);
  }
});

test("a cache shows what limits it", () => {
  const [whole, part] = [0, 10].map((index) => fixture("snapshot").caches.items[index].cache);
  assert.equal(cacheDetails(whole), "v1, protobuf");
  assert.equal(cacheDetails(part), "v1, json, metadata only, namespace shop, labels app in (web,cart)");
});

test("rates are those between snapshots, and points the means of five seconds", () => {
  const history = new History();
  const add = (time, total) => history.add(time, new Map([["a", total]]));
  add(1_000, 50);
  assert.equal(history.rate("a"), 0, "a total that was not seen before has no rate");
  add(1_001, 60);
  add(1_003, 100);
  assert.equal(history.rate("a"), 20);
  assert.deepEqual(history.series("a").at(-1), 50 / 3);
  assert.deepEqual(history.series("a").slice(0, -1), new Array(POINTS - 1).fill(undefined));
  add(1_011, 180);
  assert.deepEqual(history.series("a").slice(-3), [50 / 3, undefined, 10]);
  add(1_012, 5);
  assert.equal(history.rate("a"), 10, "the total of another process is no decrease");
  add(1_013, 6);
  assert.equal(history.rate("a"), 1);
  for (let time = 1_014; time < 2_000; time += 1) add(time, time);
  assert.deepEqual(history.series("a").slice(0, 3), [1, 1, 1]);
  history.add(2_001, new Map());
  assert.equal(history.rate("a"), 0, "it is forgotten");
});

test("events are read however the stream was cut", () => {
  const stream = 'retry: 1000\nid: 1\nevent: snapshot\ndata: {"a":1}\n\n: comment\n\ndata:x\r\ndata: y\r\n\r\n';
  for (let size = 1; size <= stream.length; size += 1) {
    const seen = [];
    const parser = new EventParser((data) => seen.push(data));
    for (let at = 0; at < stream.length; at += size) parser.push(stream.slice(at, at + size));
    assert.deepEqual(seen, ['{"a":1}', "x\ny"], `pieces of ${size}`);
  }
});

test("the health names the worst state", () => {
  const change = (changes) => {
    const page = fixture("snapshot");
    changes(page);
    return health(page);
  };
  const state = (state) => (page) => (page.caches.items[0].state = state);
  assert.deepEqual(change(() => {}), { tone: "good", text: "Fresh: 12 of 12 caches live." });
  assert.deepEqual(change(state("stale")), { tone: "bad", text: "Stale: 11 of 12 caches live, 1 stale." });
  assert.deepEqual(change(state("syncing")), { tone: "warn", text: "Recovering: 11 of 12 caches live, 1 syncing." });
  assert.equal(change((page) => (page.freshness.items[0].doubted = true)).tone, "warn");
  const idle = change((page) => Object.assign(page.caches, { items: [], total: 0 }));
  assert.equal(idle.text, "Idle: no client has asked for a resource yet.");
  const away = change((page) => (page.caches.upstreamResponding = false));
  assert.deepEqual(away, { tone: "bad", text: "Trouble: the API server does not respond. 12 of 12 caches live." });
  const many = change((page) => (page.caches.total = 240));
  assert.equal(many.text, "Fresh: 12 of 12 largest caches (of 240) live.");
});

test("only lasting delays are slow", () => {
  const page = fixture("snapshot");
  const behind = (behindSeconds) => ({ slowestWatch: { behindEvents: 1, behindSeconds } });
  [4.9, 5, 60].forEach((seconds, index) => Object.assign(page.clients.items[index], behind(seconds)));
  assert.deepEqual(slowClients(page.clients).map((one) => one.slowestWatch.behindSeconds), [60, 5]);
  assert.equal(boxLines(page).slow, "2 too slow");
  assert.ok(!noneIsSlow(page.clients));
  page.clients.items.forEach((item) => delete item.slowestWatch);
  page.clients.total = page.clients.items.length;
  assert.ok(noneIsSlow(page.clients));
  assert.equal(boxLines(page).slow, "none too slow");
  page.clients.total = page.clients.items.length + 1;
  assert.ok(!noneIsSlow(page.clients));
  assert.equal(boxLines(page).slow, "");
});

// The page reads only fields that the fixtures have.
test("the OpenAPI document has all fields of the fixtures", () => {
  const document = JSON.parse(readFileSync(new URL("../../docs/admin-api.json", import.meta.url)));
  const resolve = (schema) => {
    const [one = schema] = schema.anyOf?.filter(({ type }) => type !== "null") ?? [];
    return one.$ref ? resolve(one.$ref.slice(2).split("/").reduce((node, name) => node[name], document)) : one;
  };
  const compare = (schema, value, at) => {
    const { properties, items, enum: words, oneOf } = resolve(schema);
    const values = words ?? oneOf?.flatMap((one) => one.const ?? one.enum);
    if (values) assert.ok(values.includes(value), `${at}: ${value}`);
    if (items) value.forEach((item, index) => compare(items, item, `${at}[${index}]`));
    else if (properties) {
      for (const [name, field] of Object.entries(value)) {
        assert.ok(properties[name], `${at}.${name} is unknown`);
        compare(properties[name], field, `${at}.${name}`);
      }
    }
  };
  for (const [name, page = name] of [["snapshot", "events"], ["users"], ["config"], ["bill"], ["advice"]]) {
    const { content } = document.paths[`/admin/v1/${page}`].get.responses["200"];
    compare(Object.values(content)[0].schema, fixture(name), name);
  }
});
