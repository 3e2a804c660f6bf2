// Looks at the dashboard in a real browser. CONTRIBUTING.md says how to run it.
//
// It takes screenshots, walks through the page by keyboard, searches for violations of accessibility
// rules with axe, and shows that texts from clients stay texts and that the Content-Security-Policy
// blocks nothing of the page. With an address as its argument it looks at that kubefan instead of
// the fixtures, and leaves out what needs them.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";

import { HOSTILE, TOKEN, start } from "./server.mjs";

// The packages are in `target`, which the tests of the repository and git skip.
const require = createRequire(new URL("target/", import.meta.url));
const puppeteer = require("puppeteer-core");
const axe = require("axe-core").source;
const SCREENSHOTS = new URL("target/screenshots/", import.meta.url).pathname;
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const VIEWS = [
  ["light", 1440, 900],
  ["dark", 1440, 900],
  ["light", 800, 900],
  ["light", 400, 800],
  ["dark", 320, 640],
];

/** Opens the page, and collects what the browser complains about. */
async function open(browser, url, [scheme, width, height] = VIEWS[0]) {
  const context = await browser.createBrowserContext();
  await context.overridePermissions(new URL(url).origin, ["clipboard-read", "clipboard-sanitized-write"]);
  const tab = await context.newPage();
  const complaints = [];
  // A status that is an error is a part of some scenarios.
  const isExpected = (text) => text.startsWith("Failed to load resource: the server responded with a status of");
  const complain = (text) => {
    console.error(`${url}: ${text}`);
    complaints.push(text);
  };
  tab.on("console", (message) => isExpected(message.text()) || complain(message.text()));
  tab.on("pageerror", (error) => complain(error.message));
  await tab.setViewport({ width, height });
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await tab.goto(url);
  const close = async () => {
    assert.deepEqual(complaints, [], `the console at ${url}`);
    await context.close();
  };
  return { tab, close };
}

const text = (tab, selector) => tab.$eval(selector, (element) => element.textContent);
function waitForText(tab, selector, part) {
  const has = (selector, part) => document.querySelector(selector).textContent.includes(part);
  return tab.waitForFunction(has, {}, selector, part);
}
const hasData = (tab) => tab.waitForSelector("#caches tbody tr");

/** Fails if axe finds a violation, or if something is wider than the window. */
async function checkAccessibility(tab, name) {
  await tab.evaluate(axe);
  const { violations } = await tab.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
  assert.deepEqual(found, [], name);
  const [inner, scroll] = await tab.evaluate(() => [innerWidth, document.documentElement.scrollWidth]);
  assert.ok(scroll <= inner, `${name} is ${scroll} wide, the window ${inner}`);
}

async function checkViews(browser, url, name) {
  for (const view of VIEWS) {
    const { tab, close } = await open(browser, url, view);
    await hasData(tab);
    await tab.waitForFunction(() => performance.now() > 2_500);
    const title = `${name}-${view.slice(0, 2).join("-")}`;
    await tab.screenshot({ path: `${SCREENSHOTS}${title}.png`, fullPage: true });
    await checkAccessibility(tab, title);
    await close();
  }
}

/** Every control is reached with Tab, in the order of the document, and shows that it has the focus. */
async function checkKeyboard(browser, url) {
  const { tab, close } = await open(browser, url);
  await hasData(tab);
  // All panels are there, and data that arrive add no control.
  await Promise.all(["#bill", "#config"].map((table) => tab.waitForSelector(`${table} tbody tr`)));
  const pause = () => tab.$eval("#pause", (button) => button.click());
  await pause();
  const controls = await tab.evaluate(() => {
    const all = document.querySelectorAll("a, button, input, summary, [tabindex='0']");
    const visible = [...all].filter((one) => one.checkVisibility());
    visible.forEach((one, index) => (one.dataset.order = index));
    return visible.length;
  });
  for (let order = 0; order < controls; order += 1) {
    await tab.keyboard.press("Tab");
    const focus = await tab.evaluate(() => {
      const { outlineStyle } = getComputedStyle(document.activeElement);
      return { order: document.activeElement.dataset.order, outlineStyle };
    });
    assert.deepEqual(focus, { order: String(order), outlineStyle: "solid" });
    if (order === 0) {
      // The link past the header is the first one, and leads to the panels.
      await tab.keyboard.press("Enter");
      assert.equal(await tab.evaluate(() => document.activeElement.id), "main");
      await tab.focus(".skip");
    }
  }
  await pause();
  const press = async (selector) => {
    await tab.focus(selector);
    await tab.keyboard.press("Enter");
  };
  await press("#caches th:nth-child(3) button");
  const sorts = await tab.$$eval("#caches th[aria-sort]", (all) => all.map((one) => [one.textContent, one.ariaSort]));
  assert.deepEqual(sorts, [["Objects", "descending"]]);
  const shown = await tab.$$eval("#caches td:nth-child(3)", (all) => all.map((one) => one.textContent));
  const objects = shown.map((text) => Number(text.replace(/,/g, "")));
  assert.deepEqual(objects, [...objects].sort((a, b) => b - a));
  await press("#pause");
  const [before, since] = [await text(tab, "#caches"), await tab.evaluate(() => performance.now())];
  await tab.waitForFunction((since) => performance.now() > since + 2_500, {}, since);
  assert.equal(await text(tab, "#caches"), before, "a paused page does not change");
  await press("#pause");
  await tab.waitForFunction((before) => document.querySelector("#caches").textContent !== before, {}, before);
  await press("#theme");
  assert.equal(await text(tab, "#theme"), "Theme: light");
  await press("#caches-title + .command button");
  await waitForText(tab, "#spoken", "Copied");
  const copied = await tab.evaluate(() => navigator.clipboard.readText());
  assert.equal(copied, `curl -s ${url}admin/v1/caches`);
  await close();
}

/** Texts from clients are shown as text: no element, attribute, title or command has them. */
async function checkHostileTexts(browser) {
  const server = await start("hostile");
  const { tab, close } = await open(browser, server.url);
  await hasData(tab);
  await tab.waitForSelector("#config tbody tr");
  const page = await tab.evaluate(() => ({
    title: document.title,
    foreign: document.querySelectorAll("img, main script, iframe, [onerror], [style]").length,
    hrefs: [...document.querySelectorAll("[href], [src]")].map((one) => one.href ?? one.src).join(" "),
    commands: [...document.querySelectorAll(".command code")].map((one) => one.textContent).join(" "),
    text: document.body.textContent,
  }));
  assert.equal(page.title, "kubefan");
  assert.equal(page.foreign, 0);
  assert.ok(!/onerror|alert|touch/.test(page.hrefs + page.commands), page.hrefs + page.commands);
  assert.ok(page.text.includes(HOSTILE.slice(0, 40)), "markup is shown");
  for (const code of ["1b", "7", "a", "202e", "2066"]) assert.ok(page.text.includes(`\\u{${code}}`), code);
  assert.ok(!/[\u001b\u0007\u202e\u2066]/.test(page.text), "no character changes how others look");
  await tab.screenshot({ path: `${SCREENSHOTS}hostile.png`, fullPage: true });
  await checkAccessibility(tab, "hostile");
  await close();
  server.stop();
}

/** The token is asked for, sent in the header only, and forgotten by a reload. */
async function checkToken(browser) {
  const server = await start("token");
  const { tab, close } = await open(browser, server.url);
  await tab.waitForSelector("#access:not([hidden])");
  assert.equal(await tab.evaluate(() => document.activeElement.id), "token");
  await checkAccessibility(tab, "the token's form");
  for (const token of ["wrong", TOKEN]) {
    const tried = server.seen.length;
    await tab.focus("#token");
    await tab.keyboard.type(token);
    await tab.keyboard.press("Enter");
    while (server.seen.length === tried) await tab.waitForFunction(() => true);
  }
  await hasData(tab);
  const kept = await tab.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie]);
  assert.deepEqual(kept, [0, 0, ""]);
  assert.ok(!(await tab.content()).includes(TOKEN));
  assert.equal(tab.url(), server.url);
  assert.ok((await text(tab, "#caches-title + .command code")).includes('"Authorization: Bearer $TOKEN"'));
  for (const { cookie, referer, origin } of server.seen) assert.equal(cookie ?? referer ?? origin, undefined);
  await tab.click("#forget");
  await tab.waitForSelector("#access:not([hidden])");
  await close();
  server.stop();
}

/** A lost stream is said once, with the age of the data, and opened again. */
async function checkLostStream(browser) {
  const server = await start("calm");
  const { tab, close } = await open(browser, server.url);
  await hasData(tab);
  server.cut();
  await waitForText(tab, "#health", "No new data");
  await waitForText(tab, "#age", "old");
  await checkAccessibility(tab, "a lost stream");
  await tab.screenshot({ path: `${SCREENSHOTS}lost.png` });
  server.cut();
  await waitForText(tab, "#age", "Live");
  await waitForText(tab, "#health", "Fresh");
  await close();
  server.stop();
}

/** What a kubefan or a user does not have is hidden, and numbers take the place of names. */
async function checkBare(browser) {
  const server = await start("bare");
  const { tab, close } = await open(browser, server.url);
  await hasData(tab);
  await tab.waitForFunction(() => performance.now() > 2_000);
  for (const name of ["bill", "advice", "config"]) {
    assert.ok(await tab.$eval(`#${name}-panel`, (panel) => panel.hidden), name);
  }
  assert.ok((await text(tab, "#clients")).includes("number 1000000"));
  await close();
  server.stop();
}

mkdirSync(SCREENSHOTS, { recursive: true });
const browser = await puppeteer.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
try {
  const [, , url] = process.argv;
  if (url) {
    await checkViews(browser, url, "kubefan");
    await checkKeyboard(browser, url);
  } else {
    for (const scenario of ["calm", "trouble"]) {
      const server = await start(scenario);
      await checkViews(browser, server.url, scenario);
      if (scenario === "calm") await checkKeyboard(browser, server.url);
      server.stop();
    }
    for (const check of [checkHostileTexts, checkToken, checkLostStream, checkBare]) await check(browser);
  }
  console.log(`all checks have passed; the screenshots are in ${SCREENSHOTS}`);
} finally {
  await browser.close();
}
