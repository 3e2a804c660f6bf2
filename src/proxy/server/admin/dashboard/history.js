// What counters did in the last five minutes. Snapshots have totals; the page shows rates.

/** The seconds of one point of a series, and the number of points. */
export const POINT_SECONDS = 5;
export const POINTS = 60;

/** Counters and their recent rates. A counter that is no longer given is forgotten. */
export class History {
  #time = undefined;
  #counters = new Map();

  /** Takes the totals of a snapshot. `time` is in seconds. */
  add(time, totals) {
    const elapsed = time - this.#time;
    const counters = new Map();
    for (const [key, total] of totals) {
      const counter = this.#counters.get(key) ?? { total, rate: 0, points: [] };
      // A smaller total is that of another process, or of a new cache with the same name.
      if (elapsed > 0 && total >= counter.total) note(counter, time, total - counter.total, elapsed);
      counter.total = total;
      counters.set(key, counter);
    }
    this.#counters = counters;
    this.#time = time;
  }

  /** Returns the rate per second between the last two snapshots. */
  rate(key) {
    return this.#counters.get(key)?.rate ?? 0;
  }

  /** Returns the mean rate of each point, the oldest first; undefined where there was no snapshot. */
  series(key) {
    const last = Math.floor(this.#time / POINT_SECONDS);
    const means = new Array(POINTS).fill(undefined);
    for (const { at, sum, seconds } of this.#counters.get(key)?.points ?? []) {
      const index = at - last + POINTS - 1;
      if (index >= 0) means[index] = sum / seconds;
    }
    return means;
  }
}

function note(counter, time, increase, elapsed) {
  counter.rate = increase / elapsed;
  const at = Math.floor(time / POINT_SECONDS);
  const newest = counter.points.at(-1);
  if (newest?.at === at) {
    newest.sum += increase;
    newest.seconds += elapsed;
  } else {
    counter.points.push({ at, sum: increase, seconds: elapsed });
    if (counter.points.length > POINTS) counter.points.shift();
  }
}
