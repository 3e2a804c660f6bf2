// Values as text for people. Pure: no page, no clock.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** The most characters of a text that are shown. */
const MOST = 500;
/** Characters that change how others look or that can't be seen: controls, formats such as the
 *  change of direction, and line separators. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Returns a text as one line. Characters that can't be seen are shown as escapes. */
export function plain(value) {
  const text = String(value);
  const start = Array.from(text.slice(0, 2 * MOST)).slice(0, MOST).join("");
  const escape = (character) => `\\u{${character.codePointAt(0).toString(16)}}`;
  return start.replace(INVISIBLE, escape) + (start.length < text.length ? "…" : "");
}

/** Returns a number such as `1,234`. */
export const count = (value) => whole.format(value);

/** Returns a number with three digits such as `1.2M`. */
export const brief = (value) => short.format(value);

/** Returns bytes with a unit such as `3.4 MB`. */
export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let power = 0;
  for (; value >= 999.95 && power < units.length - 1; power += 1) value /= 1000;
  return `${power === 0 ? value : value.toFixed(1)} ${units[power]}`;
}

/** Returns seconds as a duration such as `3 s` or `2 h`; empty if they are not known. */
export function duration(seconds) {
  if (seconds === undefined) return "";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  for (const [unit, size] of [["d", 86_400], ["h", 3_600], ["min", 60]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

/** Returns a number per second such as `0.4` or `1.2K`. */
export function rate(perSecond) {
  return perSecond > 0 && perSecond < 0.1 ? "< 0.1" : brief(Math.round(perSecond * 10) / 10);
}

/** Returns the share of `part` in `all` such as `97 %`; empty if there is nothing. */
export function share(part, all) {
  if (!all) return "";
  const percent = (100 * part) / all;
  return percent > 99 && percent < 100 ? "> 99 %" : `${Math.round(percent)} %`;
}

/** Returns `1 cache` or `3 caches`. */
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** Returns a resource with its group, such as `deployments.apps`. */
export const resourceName = ({ group, resource }) => (group ? `${resource}.${group}` : resource);

/** Returns what distinguishes a cache from others of its resource. */
export function cacheDetails({ version, format, content, namespace, labelSelector, fieldSelector }) {
  const parts = [version, format];
  if (content === "metadata") parts.push("metadata only");
  if (namespace !== undefined) parts.push(`namespace ${namespace}`);
  if (labelSelector !== undefined) parts.push(`labels ${labelSelector}`);
  if (fieldSelector !== undefined) parts.push(`fields ${fieldSelector}`);
  return parts.join(", ");
}

/** Returns a key that no other cache has. */
export const cacheKey = (cache) =>
  JSON.stringify([
    cache.group,
    cache.version,
    cache.resource,
    cache.format,
    cache.content,
    cache.namespace,
    cache.labelSelector,
    cache.fieldSelector,
  ]);
