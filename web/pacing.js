/** How long to wait, in milliseconds, and for whom: pure, the random number is the caller's. */

export const BASE_MS = 500; // the first retry is already jittered in this
export const CAP_MS = 30_000;
const SERVER_MS_MAX = 3_600_000; // nothing the gateway asks for is waited for longer than an hour

/** The window of the full jitter. @param {number} base @param {number} attempt */
export function backoff(base, attempt) {
  return Math.min(Math.max(base, CAP_MS), base * 2 ** attempt);
}

/** A number from the gateway, within reason. @param {unknown} value @param {number} otherwise */
export function milliseconds(value, otherwise) {
  return typeof value === "number" && value >= 0 ? Math.min(value, SERVER_MS_MAX) : otherwise;
}
