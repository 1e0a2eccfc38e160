// What browsers do to pages: hide and throttle them, freeze them, put them into a cache, take the network away.

import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";

import { Tidings } from "../tidings.js";
import { clock, sockets } from "./support/browser.js";

const at = (/** @type {number} */ seq) => `abcdefgh.${seq}-1`;
const globals = /** @type {any} */ (globalThis);

/** @type {ReturnType<typeof clock>} */
let time;
/** @type {ReturnType<typeof sockets>["made"]} */
let made;
/** @type {any} */
let WebSocket;
/** @type {EventTarget} */
let window;
/** @type {any} */
let document;
/** Listeners that are there, by the name of their event. @type {Map<string, number>} */
let listeners;

beforeEach(() => {
  time = clock();
  ({ made, FakeSocket: WebSocket } = sockets());
  mock.method(Math, "random", () => 0.5);
  listeners = new Map();
  const counted = () => {
    const target = new EventTarget();
    const add = target.addEventListener.bind(target);
    target.addEventListener = (/** @type {string} */ name, /** @type {any} */ listener, /** @type {any} */ options) => {
      listeners.set(name, (listeners.get(name) ?? 0) + 1);
      options.signal.addEventListener("abort", () => listeners.set(name, (listeners.get(name) ?? 0) - 1));
      add(name, listener, options);
    };
    return target;
  };
  window = counted();
  document = Object.assign(counted(), { visibilityState: "visible" });
  globals.addEventListener = window.addEventListener;
  globals.document = document;
});
afterEach(() => {
  time.restore();
  delete globals.addEventListener;
  delete globals.document;
});

const tell = (/** @type {EventTarget} */ target, /** @type {string} */ name, more = {}) => target.dispatchEvent(Object.assign(new Event(name), more));

/** @param {import("../tidings.js").Options} [options] */
async function live(options) {
  const tidings = new Tidings({ url: "https://push.example", WebSocket, token: "t", position: at(0), onerror: () => {}, ...options });
  await time.settle();
  await welcome();
  assert.equal(tidings.state, "live");
  return tidings;
}

async function welcome() {
  const socket = /** @type {any} */ (made.at(-1));
  socket.open();
  const { position } = socket.sent[0];
  socket.says({ type: "welcome", session: "s", user: "u", resumed: true, position, heartbeat_ms: 20_000, timeout_ms: 10_000 });
  socket.says({ type: "synced", position, replayed: 0 });
  await time.settle();
}

test("Hidden for ten minutes, its timers run once a minute: as long as the gateway is heard, nothing is closed and nothing asked (SignalR/SignalR #4536).", async () => {
  const tidings = await live();
  document.visibilityState = "hidden";
  tell(document, "visibilitychange");
  for (let third = 1; third <= 30; third += 1) {
    time.sleep(20_000);
    made[0].says({ type: "heartbeat", position: at(0) });
    if (third % 3 === 0) await time.pass(1);
  }
  tell(document, "visibilitychange", { visibilityState: (document.visibilityState = "visible") });
  await time.settle();
  assert.equal(tidings.state, "live");
  assert.equal(made.length, 1);
  assert.equal(made[0].sent.filter(({ type }) => type === "heartbeat").length, 30);
  assert.equal(made[0].sent.filter(({ type }) => type === "auth").length, 0);
});

for (const [what, happen] of /** @type {Array<[string, () => void]>} */ ([
  ["is shown again", () => tell(document, "visibilitychange")],
  ["thaws", () => tell(document, "resume")],
  ["is online again", () => tell(window, "online")],
])) {
  test(`A page that ${what} on a dead path finds out, and has another socket within 5 s (eclipse-theia/theia #9298).`, async () => {
    const tidings = await live();
    await time.pass(10_000);
    happen();
    assert.deepEqual(made[0].sent.at(-1), { type: "auth", token: "t" });
    await time.pass(5_000, 50);
    assert.equal(made[0].closed_with?.code, 3008);
    assert.equal(made.length, 2);
    await welcome();
    assert.equal(tidings.state, "live");
  });

  test(`A page that ${what} on a path that is well keeps its socket, however often.`, async () => {
    const tidings = await live();
    for (let round = 0; round < 5; round += 1) {
      await time.pass(10_000, 500);
      happen();
      happen();
      made[0].says({ type: "auth", expires_in_ms: 900_000 });
    }
    await time.pass(10_000, 500);
    assert.equal(tidings.state, "live");
    assert.equal(made.length, 1);
    assert.equal(made[0].sent.filter(({ type }) => type === "auth").length, 5);
  });
}

test("A page without a token of its own (its cookie counts) has nothing to ask with: no frame, and no shorter patience.", async () => {
  const tidings = await live({ token: undefined });
  await time.pass(10_000, 500);
  tell(document, "visibilitychange");
  assert.equal(made[0].sent.length, 1);
  await time.pass(15_000, 500);
  assert.equal(tidings.state, "live");
});

test("Online again while waiting: the retry comes within the first window.", async () => {
  await live();
  for (let round = 0; round < 7; round += 1) {
    made.at(-1)?.ends(1006);
    await time.pass(20_000, 50);
  }
  made.at(-1)?.ends(1006);
  const before = made.length;
  tell(window, "online");
  await time.pass(500, 10);
  assert.equal(made.length, before + 1);
});

test("Into the browser's cache it takes no socket; back from there it has one new one, at once, from its position (reflex-dev/reflex PR #3540).", async () => {
  /** @type {import("../tidings.js").Status[]} */
  const told = [];
  const tidings = await live({ onstate: (status) => told.push(status) });
  made[0].says({ type: "event", id: at(1), event: "x", data: 1, time: 1 });
  tell(window, "pagehide", { persisted: true });
  assert.deepEqual(made[0].closed_with, { code: 1000, reason: "aside" });
  assert.deepEqual([told.at(-1)?.state, told.at(-1)?.code, told.at(-1)?.retry_ms], ["waiting", 1000, null]);
  await time.pass(3_600_000, 10_000);
  assert.equal(made.length, 1);
  tell(window, "pageshow", { persisted: true });
  await time.settle();
  assert.equal(made.length, 2);
  made[1].open();
  assert.deepEqual(made[1].sent, [{ type: "hello", token: "t", position: at(1) }]);
  tell(document, "visibilitychange");
  await time.settle();
  assert.equal(made.length, 2);
  assert.equal(tidings.state, "greeting");
});

test("A page that is left for good, or shown for the first time, is none of that.", async () => {
  await live();
  tell(window, "pagehide", { persisted: false });
  tell(window, "pageshow", { persisted: false });
  document.visibilityState = "hidden";
  tell(document, "visibilitychange");
  assert.equal(made.length, 1);
  assert.equal(made[0].closed_with, null);
  assert.equal(made[0].sent.length, 1);
});

test("Nothing unloads: a listener for that alone keeps a page out of the browser's cache.", async () => {
  await live();
  assert.deepEqual([...listeners.keys()].sort(), ["online", "pagehide", "pageshow", "resume", "visibilitychange"]);
});

for (const [how, end] of /** @type {Array<[string, (tidings: Tidings) => void]>} */ ([
  ["close()", (tidings) => tidings.close()],
  ["a final refusal", () => made[0].ends(4403)],
])) {
  test(`After ${how} the page's events reach nobody; connect() listens again, once.`, async () => {
    const tidings = await live();
    tidings.connect();
    end(tidings);
    assert.deepEqual([...listeners.values()], [0, 0, 0, 0, 0]);
    tell(window, "online");
    tell(window, "pageshow", { persisted: true });
    await time.pass(60_000, 1_000);
    assert.equal(made.length, 1);
    assert.equal(tidings.state, "stopped");
    tidings.connect();
    await time.settle();
    assert.deepEqual([...listeners.values()], [1, 1, 1, 1, 1]);
    tidings.close();
  });
}

test("A token that ends later than a timer can count, has ended, or says nothing of it: no token is asked for because of it (feathersjs/feathers #1546).", async () => {
  for (const expires_in_ms of [60 * 86_400_000, 25 * 86_400_000, 2 ** 31 - 1, 2 ** 31, 65_000, 0, -1, null]) {
    let asked = 0;
    const tidings = await live({ token: () => `t${(asked += 1)}` });
    made.at(-1)?.says({ type: "auth", expires_in_ms });
    for (let minute = 0; minute < 4; minute += 1) {
      await time.pass(15_000, 500);
      made.at(-1)?.says({ type: "heartbeat", position: at(0) });
    }
    assert.equal(asked, 1, `${expires_in_ms} ms`);
    tidings.close();
  }
});

test("Refused tokens are asked for anew with backoff, one at a time, and after three in a row it stops and says so (AntaresSimulatorTeam/AntaREST #604).", async () => {
  /** @type {string[]} */
  const errors = [];
  let asked = 0;
  const tidings = await live({ token: () => `t${(asked += 1)}`, onerror: ({ code }) => errors.push(code) });
  for (let round = 1; round <= 3; round += 1) {
    made.at(-1)?.open();
    made.at(-1)?.ends(4401, "token expired");
    await time.pass(5_000, 50);
  }
  assert.equal(tidings.state, "stopped");
  assert.equal(asked, 3);
  assert.deepEqual(errors, ["close"]);
  await time.pass(600_000, 5_000);
  assert.equal(asked, 3);
});
