// close(), whenever it is called: everything ends, nothing is done twice, and connect() goes on from where it was.

import assert from "node:assert/strict";
import { test } from "node:test";

import { WELCOME, at, client, event, getLive, live, made, time } from "./support/stage.js";

/** @typedef {import("../tidings.js").Tidings} Tidings */

/** After close(): nothing for five minutes. @param {Tidings} tidings @param {() => number} activity */
async function staysQuiet(tidings, activity) {
  assert.equal(tidings.state, "stopped");
  const before = activity();
  for (const socket of made) {
    if (socket.readyState < 2) assert.fail("a socket was left open");
    socket.says(event(50));
    socket.ends(1006);
  }
  await time.pass(300_000, 1_000);
  assert.equal(activity(), before, "something went on after close()");
  assert.equal(tidings.state, "stopped");
}

/** @type {Record<string, (tidings: Tidings) => Promise<void>|void>} */
const MOMENTS = {
  "right away": () => {},
  authorizing: async () => time.settle(),
  connecting: async () => time.pass(1_000, 100),
  greeting: async () => { await time.pass(1_000, 100); made[0].open(); },
  replaying: async () => { await time.pass(1_000, 100); made[0].open(); made[0].says(WELCOME); },
  live: async () => { await time.pass(1_000, 100); await getLive(); },
  closing: async () => { await time.pass(1_000, 100); await getLive(); made[0].readyState = 2; },
  waiting: async () => { await time.pass(1_000, 100); made[0].ends(1006); },
  stopped: async () => { await time.pass(1_000, 100); made[0].ends(4403); },
};
for (const [moment, reach] of Object.entries(MOMENTS)) {
  test(`close() ${moment === "right away" ? moment : `while ${moment}`} ends everything; connect() afterwards works.`, async () => {
    let calls = 0;
    const tidings = client({
      token: () => { calls += 1; return new Promise((resolve) => setTimeout(() => resolve("t"), 500)); },
      load: () => { calls += 1; return new Promise((resolve) => setTimeout(resolve, 500)); },
    });
    tidings.on("*", () => { calls += 1; });
    await reach(tidings);
    tidings.close();
    tidings.close();
    tidings.onstate = () => { calls += 1; };
    await staysQuiet(tidings, () => calls + made.length);
    tidings.onstate = undefined;
    tidings.connect();
    await time.pass(1_000, 100);
    await getLive();
    await time.pass(1_000, 100);
    assert.equal(tidings.state, "live");
  });
}

for (const callback of ["token", "load", "listener", "onstate", "onerror"]) {
  test(`close() inside ${callback} ends everything.`, async () => {
    let calls = 0;
    /** @type {Tidings} */
    let tidings;
    const closing = (/** @type {string} */ name) => { calls += 1; if (name === callback) tidings.close(); };
    tidings = client({
      token: () => { closing("token"); return "t"; },
      load: () => closing("load"),
      onstate: ({ state }) => { if (state === "live" || state === "stopped") closing("onstate"); },
      onerror: () => closing("onerror"),
    });
    tidings.on("*", () => closing("listener"));
    tidings.on("job.*", () => { calls += 1; });
    await time.pass(500, 100);
    if (made.length > 0) {
      await getLive();
      made[0].says(event(1));
      made[0].says({ type: "error", code: "x", message: "y" });
    }
    await staysQuiet(tidings, () => calls + made.length);
  });
}

test("close() in a listener that is handed what was held: the position has not passed what was never handed over.", async () => {
  let done = () => {};
  const tidings = client({ load: () => new Promise((resolve) => { done = () => resolve(undefined); }) });
  /** @type {any[]} */
  const heard = [];
  tidings.on("*", ({ id }) => { heard.push(id); if (id === at(2)) tidings.close(); });
  await time.settle();
  await getLive();
  for (const seq of [1, 2, 3]) made[0].says(event(seq));
  assert.deepEqual(heard, []);
  done();
  await time.settle();
  assert.deepEqual(heard, [at(1), at(2)]);
  assert.equal(tidings.position, at(2));
  tidings.connect();
  await time.settle();
  made[1].open();
  assert.equal(made[1].sent[0].position, at(2));
});

test("close() and connect() in one listener: one new connection, from the position reached.", async () => {
  const tidings = await live();
  tidings.on("*", () => { tidings.close(); tidings.connect(); });
  made[0].says(event(1));
  await time.settle();
  assert.equal(made.length, 2);
  made[1].open();
  assert.equal(made[1].sent[0].position, at(1));
  assert.deepEqual(made[0].closed_with, { code: 1000, reason: "" });
});

test("close() before the code that made the client has run to its end: it never dials.", async () => {
  const tidings = client();
  tidings.close();
  await time.pass(60_000, 1_000);
  assert.equal(made.length, 0);
});

test("close() aborts the signals of token() and load(), so that their requests end too.", async () => {
  /** @type {AbortSignal[]} */
  const signals = [];
  const never = (/** @type {{signal: AbortSignal}} */ { signal }) => { signals.push(signal); return new Promise(() => {}); };
  const [asking, loading] = [client({ token: /** @type {any} */ (never) }), client({ load: never })];
  await time.settle();
  await getLive();
  assert.equal(signals.length, 2);
  asking.close();
  loading.close();
  assert.deepEqual(signals.map(({ aborted }) => aborted), [true, true]);
});

test("close() in a listener: what was about to be handed over with that event is not.", async () => {
  const tidings = client({ load: () => new Promise(() => {}) });
  /** @type {any[]} */
  const heard = [];
  tidings.on("*", ({ id }) => { heard.push(id); tidings.close(); });
  await time.settle();
  await getLive();
  for (const seq of [1, 2, 3]) made[0].says(event(seq));
  made[0].says({ type: "resync", reason: "trimmed", position: at(9), missed: 9, refetch_ms: 0 });
  assert.deepEqual(heard, [at(1)]);
});

test("connect() and then close() in one listener: closed it stays.", async () => {
  const tidings = await live();
  tidings.on("*", () => { tidings.connect(); tidings.close(); });
  made[0].says(event(1));
  await time.pass(60_000, 1_000);
  assert.equal(tidings.state, "stopped");
  assert.equal(made.length, 1);
});
