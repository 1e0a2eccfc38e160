// tests/vectors/client_traces.json: what every client of the contract does, in whatever language. The format is told in the
// README beside it; tests/core/test_client_traces.py holds the gateway's side of it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { traceClient } from "./support/client.js";

const traces = JSON.parse(readFileSync(new URL("../../tests/vectors/client_traces.json", import.meta.url), "utf8"));
const DRAWS = [0.25, 0.5, 0.999];
const MOMENT_MS = 0.001;

const isReport = (/** @type {any} */ item) => item.report !== undefined;

/** @param {any[]} actual @param {any[]} expected @param {string} at */
function same(actual, expected, at) {
  assert.deepEqual(actual.filter((item) => !isReport(item)), expected.filter((item) => !isReport(item)), at);
  assert.deepEqual(actual.filter(isReport), expected.filter(isReport), at);
}

for (const { name, why, position, steps } of traces) {
  test(`${name}: ${why}`, () => {
    for (const draw of DRAWS) {
      const client = traceClient(position, draw);
      for (const [index, { after, in: input, out, ...then }] of steps.entries()) {
        const at = `step ${index}, ${JSON.stringify(input ?? { after })}, draw ${draw}`;
        const window = input?.retry_within_ms ?? input?.load_within_ms;
        if (window !== undefined) {
          client.after(window * draw - MOMENT_MS);
          assert.deepEqual(client.take(), [], `before its time: ${at}`);
          client.after(2 * MOMENT_MS);
        } else {
          client.after(after);
          if (input) client.feed(input);
        }
        same(client.take(), out, at);
        if (then.state !== undefined) assert.equal(client.state, then.state, `state after ${at}`);
        if (then.position !== undefined) assert.equal(client.position, then.position, `position after ${at}`);
      }
    }
  });
}

test("Every trace is told apart by its name, so that a failure can be found.", () => {
  assert.equal(new Set(traces.map((/** @type {any} */ trace) => trace.name)).size, traces.length);
});
