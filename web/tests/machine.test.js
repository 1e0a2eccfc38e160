// The reducer against tests/vectors/sessions.json. A step's `state` names only what it is about: `position` is written out,
// `load` is its phase, `public` the name a page sees, `wake` when tick is due ("now": at once, null: never).

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { HELD_MAX, initial, publicName, reduce, wakeAt } from "../machine.js";
import { formatPosition } from "../position.js";
import { frozen } from "./support/frozen.js";

const sessions = JSON.parse(readFileSync(new URL("../../tests/vectors/sessions.json", import.meta.url), "utf8"));

/** @param {import("../machine.js").State} state */
function view(state) {
  const wake = wakeAt(state);
  return {
    ...state,
    position: formatPosition(state.position),
    load: state.load?.phase ?? null,
    public: publicName(state),
    wake: wake === -Infinity ? "now" : wake,
  };
}

for (const { name, why, position, steps } of sessions) {
  test(`${name}: ${why}`, () => {
    let state = frozen(initial(position));
    for (const [index, step] of steps.entries()) {
      const [next, effects] = reduce(state, step.event, step.now, step.random);
      const at = `step ${index}, ${JSON.stringify(step.event)}`;
      assert.deepEqual(effects, step.effects, at);
      const seen = view(next);
      for (const [key, value] of Object.entries(step.state)) assert.deepEqual(seen[key], value, `${key} after ${at}`);
      state = frozen(next);
    }
  });
}

test("Every session of the vectors is told apart by its name, so that a failure can be found.", () => {
  assert.equal(new Set(sessions.map((/** @type {any} */ session) => session.name)).size, sessions.length);
});

test("What is held during a load() is bounded: one event more, and the load is given up, its events handed over.", () => {
  let state = initial();
  /** @param {any} event */
  const step = (event, now = 0) => {
    const [next, effects] = reduce(state, event, now, 0.5);
    state = next;
    return effects;
  };
  step({ type: "start" });
  step({ type: "token", dial: 1 });
  step({ type: "open", dial: 1 });
  step({ type: "frame", dial: 1, frame: { type: "welcome", resumed: false, position: "abcdefgh.0-0" } });
  step({ type: "tick" });
  const event = (/** @type {number} */ seq) => ({ type: "frame", dial: 1, frame: { type: "event", id: `abcdefgh.${seq}-1`, event: "x", data: seq, time: 0 } });
  for (let seq = 1; seq <= HELD_MAX; seq += 1) assert.deepEqual(step(event(seq)), []);
  assert.deepEqual(step(event(HELD_MAX + 1)).map(({ type }) => type), ["abort", "report"]);
  const delivered = [];
  while (wakeAt(state) === -Infinity) delivered.push(...step({ type: "tick" }));
  assert.equal(delivered.length, HELD_MAX + 1);
  assert.equal(delivered.at(-1)?.event.data, HELD_MAX + 1);
  assert.equal(state.position, null);
  assert.deepEqual(step({ type: "loaded", load: 1 }), []);
  assert.equal(state.position, null, "the load that was given up must not make a position storable");
});
