/**
 * Why a connection ends, and what this client does then. Made from the gateway's own table; do not edit:
 * `python -m tidings_gateway.core.closing js > web/closing.js`.
 *
 *   stay_closed         no reconnect: the page asked for it
 *   backoff             full jitter in base * 2^attempt
 *   backoff_from_retry  the same, base being the goodbye's retry_ms, else the one here
 *   jitter              full jitter in retry_ms, the attempt not counted: nothing is wrong
 *   reconnect           as backoff: the path was dead, not the server
 *   new_token           as backoff, with a fresh token; stopped when MAX_TOKEN_REFUSALS in a row were refused
 *   stop                no reconnect
 *
 * `report` is what the developer is told, where something has to be mended.
 *
 * @typedef {"stay_closed"|"backoff"|"backoff_from_retry"|"jitter"|"reconnect"|"new_token"|"stop"} ClientAction
 * @typedef {{client: ClientAction, report?: string, retry_ms?: number}} Close
 */

/** @type {Readonly<Record<number, Close>>} */
export const CLOSE_CODES = Object.freeze({
  1000: { client: "stay_closed" },
  1001: { client: "backoff" },
  1002: { client: "backoff", report: "the connection broke the WebSocket protocol" },
  1003: { client: "backoff", report: "a frame was not text" },
  1005: { client: "backoff" },
  1006: { client: "backoff" },
  1007: { client: "backoff", report: "a frame was not valid UTF-8" },
  1008: { client: "backoff" },
  1009: { client: "backoff" },
  1011: { client: "backoff" },
  1012: { client: "jitter", retry_ms: 5000 },
  1013: { client: "backoff_from_retry", retry_ms: 5000 },
  4400: { client: "stop", report: "the gateway could not make sense of a frame" },
  4401: { client: "new_token" },
  4403: { client: "stop" },
  4408: { client: "reconnect" },
  4409: { client: "stop", report: "a newer connection of this user has taken the place of this one" },
  4429: { client: "backoff_from_retry", retry_ms: 5000 },
});

/** @type {Close} */
export const ANY_OTHER_CODE = Object.freeze({ client: "backoff" });

export const MAX_TOKEN_REFUSALS = 3;
