import assert from "node:assert/strict";
import test from "node:test";

import { initial, reduce, wakeAt } from "../machine.js";
import { BASE_MS, CAP_MS } from "../pacing.js";
import { generator } from "./support/random.js";
import { timeline } from "./support/timeline.js";

const CLIENTS = 2000;
const DEAD_MS = 30_000;
const BUCKET_MS = 100;

/** All clients are live on one gateway, which dies at 0 and is back after `DEAD_MS`.
 * @param {{code: number, retry_ms?: number}} end how their connections end
 * @returns {{arrivals: Array<Array<number>>, back: number[]}} moments of the dials, by number of the retry; and when each was welcome again */
function storm(end) {
  const time = timeline();
  /** @type {number[][]} */
  const arrivals = [];
  /** @type {number[]} */
  const back = [];
  for (let client = 1; client <= CLIENTS; client += 1) {
    const { random } = generator(client);
    let state = initial("abcdefgh.1-1");
    let round = -1; // the dial before the storm
    let sockets = 0;
    /** @param {import("../machine.js").Event} event */
    const dispatch = (event) => {
      const [next, effects] = reduce(state, event, time.now, random());
      state = next;
      for (const { type } of effects) {
        const { dial } = state;
        if (type === "token") time.after(0, () => dispatch({ type: "token", dial }));
        if (type !== "dial") continue;
        sockets += 1;
        assert.equal(sockets, 1, "one attempt in flight per client");
        if (round >= 0) (arrivals[round] ??= []).push(time.now);
        round += 1;
        const alive = round === 0 || time.now >= DEAD_MS;
        time.after(0, () => {
          if (alive) return arrive(dial);
          sockets -= 1;
          dispatch({ type: "closed", dial, code: 1006, reason: "" });
        });
      }
      const at = wakeAt(state);
      if (state.name === "waiting" && at !== null) time.after(at - time.now, () => dispatch({ type: "tick" }));
    };
    const arrive = (/** @type {number} */ dial) => {
      dispatch({ type: "open", dial });
      dispatch({ type: "frame", dial, frame: { type: "welcome", resumed: true, position: "abcdefgh.1-1" } });
      dispatch({ type: "frame", dial, frame: { type: "synced", position: "abcdefgh.1-1", replayed: 0 } });
      if (round > 0) back.push(time.now);
    };
    dispatch({ type: "start" });
    const first = () => {
      sockets -= 1;
      if (end.retry_ms !== undefined) dispatch({ type: "frame", dial: 1, frame: { type: "goodbye", code: end.code, retry_ms: end.retry_ms } });
      dispatch({ type: "closed", dial: 1, code: end.code, reason: "" });
    };
    time.after(0, () => time.after(0, () => time.after(0, first)));
  }
  time.run(DEAD_MS + 2 * CAP_MS);
  return { arrivals, back };
}

/** @param {number[]} moments */
function busiest(moments) {
  /** @type {Map<number, number>} */
  const buckets = new Map();
  for (const at of moments) buckets.set(Math.floor(at / BUCKET_MS), (buckets.get(Math.floor(at / BUCKET_MS)) ?? 0) + 1);
  return Math.max(...buckets.values());
}

/** What a bucket holds if `count` clients come evenly within a window. @param {number} count @param {number} window_ms */
const flat = (count, window_ms) => (count * BUCKET_MS) / window_ms;

test("A gateway dies under 2,000 clients and is away 30 s: in no round of retries does a 100 ms bucket see more than 3x the flat rate.", () => {
  const { arrivals, back } = storm({ code: 1006 });
  for (const [round, moments] of arrivals.entries()) {
    if (moments.length < CLIENTS / 2) continue; // the stragglers of the last rounds: too few for a rate to mean anything
    const rate = flat(moments.length, Math.min(CAP_MS, BASE_MS * 2 ** round));
    assert.ok(busiest(moments) <= 3 * rate, `round ${round}: ${busiest(moments)} in a bucket, flat would be ${rate}`);
  }
  assert.ok(arrivals.length >= 6, "the clients must have tried again and again");
  assert.ok(arrivals[0].length === CLIENTS && Math.max(...arrivals[0]) < BASE_MS, "the first retry is spread over the first window");
  assert.equal(back.length, CLIENTS);
  assert.ok(Math.max(...back) <= DEAD_MS + CAP_MS, "everybody is back within one cap of its return");
});

test("A store that is away (goodbye and 1013) spreads the clients over its retry_ms, not over the first backoff window.", () => {
  const { arrivals } = storm({ code: 1013, retry_ms: 7_000 });
  const rate = flat(CLIENTS, 7_000);
  assert.equal(arrivals[0].length, CLIENTS);
  assert.ok(busiest(arrivals[0]) <= 3 * rate, `${busiest(arrivals[0])} in a bucket, flat would be ${rate}`);
  assert.ok(Math.max(...arrivals[0]) > 6_500 && Math.max(...arrivals[0]) < 7_000);
});

test("A drain with goodbye and 1012 spreads the clients over retry_ms, not over the first backoff window.", () => {
  const { arrivals } = storm({ code: 1012, retry_ms: 20_000 });
  const rate = flat(CLIENTS, 20_000);
  assert.ok(busiest(arrivals[0]) <= 3 * rate, `${busiest(arrivals[0])} in a bucket, flat would be ${rate}`);
  assert.ok(Math.max(...arrivals[0]) > 19_000);
});
