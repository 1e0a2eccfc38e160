// What the machine does at each close code, against the gateway's own table: tests/vectors/close_codes.json, which is the
// output of `python -m tidings_gateway.core.closing`.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { ANY_OTHER_CODE, CLOSE_CODES, MAX_TOKEN_REFUSALS } from "../closing.js";
import { HEALTHY_MS, initial, reduce } from "../machine.js";
import { BASE_MS, CAP_MS } from "../pacing.js";

const table = JSON.parse(readFileSync(new URL("../../tests/vectors/close_codes.json", import.meta.url), "utf8"));
const POSITION = "abcdefgh.7-7";
const RANDOM = 0.5;

/** A connection that is up, `attempt` failures after the last healthy one, ends by `code`, `after_ms` after its welcome.
 * @param {number} code @param {{attempt?: number, after_ms?: number, goodbye?: object}} [how] */
function end(code, { attempt = 0, after_ms = 1, goodbye } = {}) {
  /** @type {import("../machine.js").State} */
  let state = { ...initial(POSITION), attempt };
  let now = 0;
  const frame = (/** @type {object} */ frame) => ({ type: "frame", dial: 1, frame });
  /** @type {import("../machine.js").Event[]} */
  const events = [{ type: "start" }, { type: "token", dial: 1 }, { type: "open", dial: 1 },
    frame({ type: "welcome", resumed: true, position: POSITION }), frame({ type: "synced", position: POSITION, replayed: 0 })];
  for (const event of events) [state] = reduce(state, event, now, RANDOM);
  state = { ...state, attempt };
  now = after_ms;
  if (goodbye) [state] = reduce(state, frame(goodbye), now, RANDOM);
  const [next, effects] = reduce(state, { type: "closed", dial: 1, code, reason: "why" }, now, RANDOM);
  const wait_ms = next.deadline === null ? null : next.deadline - now;
  return { next, effects, wait_ms, report: effects.find(({ type }) => type === "report") ?? null };
}

test("The table is the gateway's: no code more, none less, the same action, window and words for the developer.", () => {
  /** @type {Record<string, object>} */
  const theirs = {};
  for (const { code, client, report, retry_ms } of table.closes) theirs[code] = { client, report, retry_ms };
  /** @type {Record<string, object>} */
  const ours = {};
  for (const [code, { client, report, retry_ms }] of Object.entries(CLOSE_CODES)) ours[code] = { client, report: report ?? "", retry_ms: retry_ms ?? null };
  assert.deepEqual(ours, theirs);
  assert.equal(ANY_OTHER_CODE.client, table.any_other);
  assert.equal(MAX_TOKEN_REFUSALS, table.max_token_refusals);
});

for (const { code, reason, client, report, retry_ms, retryable } of table.closes) {
  test(`${code} ${reason}: ${client}`, () => {
    const { next, effects, wait_ms, report: told } = end(code);
    assert.equal(next.name, retryable ? "waiting" : "stopped");
    assert.equal(next.position?.[""], POSITION, "whatever the code, the position is kept");
    assert.equal(told?.message ?? "", report);
    if (!retryable) {
      assert.equal(effects[0].type, "stop");
      return assert.equal(wait_ms, null);
    }
    const window = retry_ms ?? BASE_MS;
    assert.equal(wait_ms, RANDOM * window);
    assert.equal(next.attempt, client === "jitter" ? 0 : 1);
    assert.equal(end(code, { attempt: 3 }).wait_ms, RANDOM * (client === "jitter" ? window : Math.min(CAP_MS, window * 8)));
  });
}

for (const code of [1004, 1010, 1015, 3000, 3999, 4000, 4402, 4500, 4999]) {
  test(`${code} is in no table: backoff`, () => {
    const { next, wait_ms, report } = end(code);
    assert.deepEqual([next.name, next.attempt, wait_ms, report], ["waiting", 1, RANDOM * BASE_MS, null]);
  });
}

test("The retry_ms of a goodbye wins over the table's, also above the usual cap; that of another code counts for nothing.", () => {
  assert.equal(end(1013, { goodbye: { type: "goodbye", code: 1013, retry_ms: 60_000 } }).wait_ms, RANDOM * 60_000);
  assert.equal(end(1012, { goodbye: { type: "goodbye", code: 1012, retry_ms: 60_000 } }).wait_ms, RANDOM * 60_000);
  assert.equal(end(1013, { goodbye: { type: "goodbye", code: 1012, retry_ms: 60_000 } }).wait_ms, RANDOM * 5000);
  assert.equal(end(1013, { goodbye: { type: "goodbye", code: 1013, retry_ms: null } }).wait_ms, RANDOM * 5000);
});

test("No number a gateway names makes a client wait longer than an hour, or hammer it.", () => {
  assert.equal(end(1012, { goodbye: { type: "goodbye", code: 1012, retry_ms: 1e15 } }).wait_ms, RANDOM * 3_600_000);
  assert.equal(end(1012, { goodbye: { type: "goodbye", code: 1012, retry_ms: 0 } }).wait_ms, RANDOM * BASE_MS);
  assert.equal(end(1012, { goodbye: { type: "goodbye", code: 1012, retry_ms: -5 } }).wait_ms, RANDOM * BASE_MS);
});

test("Ten healthy seconds put the counter back, and not a moment less.", () => {
  assert.equal(end(1006, { attempt: 4, after_ms: HEALTHY_MS - 1 }).next.attempt, 5);
  assert.equal(end(1006, { attempt: 4, after_ms: HEALTHY_MS }).next.attempt, 1);
  assert.equal(end(1012, { attempt: 4, after_ms: HEALTHY_MS - 1 }).next.attempt, 4);
  assert.equal(end(1012, { attempt: 4, after_ms: HEALTHY_MS }).next.attempt, 0);
});

test("However often it fails, the wait is a number within the cap.", () => {
  for (const attempt of [6, 10, 1000, 5000]) assert.equal(end(1006, { attempt }).wait_ms, RANDOM * CAP_MS);
});
