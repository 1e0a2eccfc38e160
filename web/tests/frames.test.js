// The client's side of tests/vectors/frames.json.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { initial, reduce } from "../machine.js";
import { parsePart, parsePosition } from "../position.js";

const vectors = JSON.parse(readFileSync(new URL("../../tests/vectors/frames.json", import.meta.url), "utf8"));

/** A machine that has just sent a hello. @param {string|null} position */
function greeting(position) {
  let state = initial(position);
  for (const event of [{ type: "start" }, { type: "token", dial: 1 }, { type: "open", dial: 1 }]) [state] = reduce(state, event, 0, 0);
  return state;
}

for (const { name, frame: text } of vectors.server) {
  test(`A frame that a gateway sends is understood: ${name}`, () => {
    const frame = JSON.parse(text);
    let state = greeting(null);
    if (frame.type !== "welcome") {
      const part = parsePart(frame.id ?? frame.position);
      // As if the session had begun right before this frame.
      const before = part === null ? "k3J9xQ2m.0-0" : `${part.epoch}.${Math.max(0, part.seq - (frame.id ? 1 : 0))}-0`;
      const welcome = { type: "welcome", resumed: false, position: before, heartbeat_ms: 1, timeout_ms: 1 };
      [state] = reduce(state, { type: "frame", dial: 1, frame: welcome }, 0, 0);
    }
    const [next, effects] = reduce(state, { type: "frame", dial: 1, frame }, 1, 0);
    assert.notEqual(next.name, "waiting", "it must not be taken for a fault");
    if (frame.type === "event") {
      assert.deepEqual(effects, [{ type: "deliver", event: { id: frame.id ?? null, type: frame.event, data: frame.data, time: frame.time,
        replay: frame.replay ?? false, topic: null } }]);
    }
    if (frame.type === "welcome") assert.equal(next.session?.user, frame.user);
  });
}

for (const { name, text, ...read } of vectors.client) {
  const position = read.hello?.position ?? null;
  if (parsePosition(position) === null) continue;
  test(`The position of a hello that a gateway takes goes out as it came in: ${name}`, () => {
    let state = initial(JSON.parse(text).position);
    let effects;
    for (const event of [{ type: "start" }, { type: "token", dial: 1 }, { type: "open", dial: 1 }]) [state, effects] = reduce(state, event, 0, 0);
    assert.deepEqual(effects, [{ type: "hello", position }]);
  });
}
