// The admin API: requests with a token, and the stream of snapshots, which never ends for its reader.
// EventSource can't send a token, so the stream is read from the body of a fetch.

/** The times until the next try, in milliseconds: the first one, and the longest. */
const FIRST_DELAY = 1_000;
const LONGEST_DELAY = 30_000;
/** There is a snapshot per second. A stream that is silent for so many milliseconds is dead. */
const SILENCE = 10_000;

/** The token of the user. It is nowhere else: a reload forgets it. */
let token = "";
let wake = () => {};

/** The API's address. It follows the page, also below another path of a reverse proxy. */
export const base = new URL("admin/v1/", document.baseURI).href;

/** Takes the token for the next requests; none if it is empty. */
export function setToken(value) {
  token = value.trim();
  wake();
}

export const hasToken = () => token !== "";

/** A request that did not succeed. `code` is 0 if there was no answer. */
export class Failure extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** Returns a page of the API; undefined if this kubefan or this user does not have it.
 *  @throws {Failure} */
export async function page(name) {
  try {
    return await (await open(name, AbortSignal.timeout(SILENCE))).json();
  } catch (failure) {
    if (failure.code === 404 || failure.code === 403) return undefined;
    throw failure;
  }
}

async function open(name, signal) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" };
  const answer = await fetch(base + name, options).catch(() => {
    throw new Failure(0, "kubefan does not answer");
  });
  if (answer.ok) return answer;
  const status = await answer.json().catch(() => ({}));
  throw new Failure(answer.status, status.message ?? `status ${answer.status}`);
}

/** Calls `onSnapshot` for each snapshot. When the stream can't be read, calls `onFailure`, with the
 *  milliseconds until the next try, or undefined if that waits for another token. Opens the next
 *  stream when one ends. Never returns. */
export async function follow(onSnapshot, onFailure) {
  let delay = FIRST_DELAY;
  for (;;) {
    try {
      await readStream((snapshot) => {
        delay = FIRST_DELAY;
        onSnapshot(snapshot);
      });
      await pause(FIRST_DELAY);
    } catch (failure) {
      const wait = failure.code === 401 ? undefined : delay * (0.75 + Math.random() / 2);
      onFailure(failure, wait);
      await pause(wait);
      delay = Math.min(2 * delay, LONGEST_DELAY);
    }
  }
}

/** Waits until there is another token, but not longer than `milliseconds` if they are given. */
function pause(milliseconds) {
  return new Promise((resolve) => {
    wake = resolve;
    if (milliseconds !== undefined) setTimeout(resolve, milliseconds);
  });
}

async function readStream(onSnapshot) {
  const abort = new AbortController();
  let timer;
  const expectMore = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), SILENCE);
  };
  expectMore();
  try {
    const answer = await open("events", abort.signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new EventParser((data) => onSnapshot(JSON.parse(data)));
    for (;;) {
      const { done, value } = await reader.read().catch(() => {
        throw new Failure(0, "the stream of snapshots has broken off");
      });
      if (done) return;
      expectMore();
      parser.push(value);
    }
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

/** Reads server-sent events from text that arrives in pieces. Calls `onData` with the data of each. */
export class EventParser {
  #rest = "";
  #data = [];
  #onData;

  constructor(onData) {
    this.#onData = onData;
  }

  push(text) {
    const lines = (this.#rest + text).split(/\r?\n/);
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) this.#data.push(line.slice(5).replace(/^ /, ""));
      else if (line === "" && this.#data.length > 0) this.#onData(this.#data.splice(0).join("\n"));
    }
  }
}
