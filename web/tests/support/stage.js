// A client of tidings.js in a browser that is not there: its clock, its sockets and its errors, new for each test.

import assert from "node:assert/strict";
import { afterEach, beforeEach, mock } from "node:test";

import { Tidings } from "../../tidings.js";
import { clock, sockets } from "./browser.js";

export const URL = "https://push.example";
export const at = (/** @type {number} */ seq) => `abcdefgh.${seq}-1`;
export const event = (/** @type {number} */ seq, type = "job.complete") => ({ type: "event", id: at(seq), event: type, data: { seq }, time: seq });
export const WELCOME = { type: "welcome", session: "s1", user: "ann", resumed: false, position: at(0), heartbeat_ms: 20_000, timeout_ms: 10_000 };

/** @type {ReturnType<typeof clock>} */
export let time;
/** @type {ReturnType<typeof sockets>["made"]} */
export let made;
/** @type {any} */
export let WebSocket;
/** @type {import("../../tidings.js").TidingsError[]} */
export let errors;

beforeEach(() => {
  time = clock();
  ({ made, FakeSocket: WebSocket } = sockets());
  errors = [];
  mock.method(Math, "random", () => 0.5);
  mock.method(globalThis, "fetch", () => Promise.reject(new TypeError("nobody there")));
});
afterEach(() => time.restore());

/** @param {import("../../tidings.js").Options} [options] */
export function client(options) {
  return new Tidings({ url: URL, WebSocket, onerror: (error) => errors.push(error), ...options });
}

/** A client that is live. @param {import("../../tidings.js").Options} [options] */
export async function live(options) {
  const tidings = client(options);
  await time.settle();
  await getLive();
  assert.equal(tidings.state, "live");
  return tidings;
}

/** The newest socket opens and is welcomed. */
export async function getLive() {
  const socket = /** @type {any} */ (made.at(-1));
  socket.open();
  socket.says(WELCOME);
  socket.says({ type: "synced", position: at(0), replayed: 0 });
  await time.settle();
}
