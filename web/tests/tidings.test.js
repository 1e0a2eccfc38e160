import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { Tidings, TidingsError } from "../tidings.js";
import { URL, WebSocket, at, client, errors, event, getLive, live, made, time } from "./support/stage.js";

test("Importing it needs neither window nor WebSocket; making a client without one says what to do.", () => {
  assert.equal(typeof globalThis.window, "undefined");
  assert.throws(() => new Tidings({ url: URL, WebSocket: undefined }), /pass a class as \{WebSocket\}/);
});

test("A module that was not loaded from a gateway cannot guess where it is, and says so.", () => {
  assert.throws(() => new Tidings({ WebSocket }), /pass its address as \{url\}/);
});

for (const [url, expected] of [
  ["https://push.example", "wss://push.example/v1/ws"],
  ["http://127.0.0.1:8080/", "ws://127.0.0.1:8080/v1/ws"],
  ["https://app.example/push", "wss://app.example/push/v1/ws"],
  ["https://app.example/push/", "wss://app.example/push/v1/ws"],
  ["wss://push.example/v1/ws?ticket=t", "wss://push.example/v1/ws?ticket=t"],
  ["https://push.example/#x", "wss://push.example/v1/ws"],
]) {
  test(`{url: "${url}"} leads to ${expected}, and the subprotocol is offered.`, async () => {
    client({ url });
    await time.settle();
    assert.equal(made[0].url, expected);
    assert.deepEqual(made[0].protocols, ["tidings.v1"]);
  });
}

test("The hello holds the token and the position, and no member that is not there.", async () => {
  client({ token: "t", position: at(7) });
  client();
  await time.settle();
  for (const socket of made) socket.open();
  assert.deepEqual(made[0].sent, [{ type: "hello", token: "t", position: at(7) }]);
  assert.deepEqual(made[1].sent, [{ type: "hello" }]);
});

test("A token function is asked before every dial, with a signal, and never twice at once however long it takes.", async () => {
  let running = 0;
  let asked = 0;
  client({
    token: async ({ signal }) => {
      assert.ok(signal instanceof AbortSignal);
      assert.equal(++running, 1);
      await new Promise((resolve) => setTimeout(resolve, 3000));
      running -= 1;
      return `t${++asked}`;
    },
  });
  for (let round = 1; round <= 3; round += 1) {
    await time.pass(2_900, 100);
    assert.equal(made.length, round - 1);
    for (let waits = 0; made.length < round && waits < 300; waits += 1) await time.pass(100);
    made[round - 1].open();
    assert.equal(made[round - 1].sent[0].token, `t${round}`);
    made[round - 1].ends(1006);
  }
});

test("A token that is no string, or none at all because the function fails, is reported, and tried again.", async () => {
  let turn = 0;
  client({ token: /** @type {any} */ (() => { turn += 1; if (turn === 1) throw new Error("502"); return turn === 2 ? 42 : "t"; }) });
  await time.pass(3_000, 10);
  assert.deepEqual(errors.map(({ code, message }) => [code, message]), [["token", "no token: 502"], ["token", "no token: it is not a string"]]);
  assert.equal(made.length, 1);
});

test("Refused for a minute, each time told by an error and a close: one chain of attempts, never two in flight (lukeed/sockette #46).", async () => {
  client();
  await time.settle();
  let attempts = 0;
  for (let passed = 0; passed < 60_000; passed += 50) {
    const open = made.filter(({ readyState }) => readyState < 2);
    assert.ok(open.length <= 1, `${open.length} sockets at once`);
    if (open.length === 1) {
      open[0].fails();
      attempts += 1;
      assert.equal(made.length, attempts);
    }
    await time.pass(50, 50);
  }
  // Windows of 0.5, 1, 2, 4, 8, 16, 30, 30, … s, the middle of each.
  assert.equal(attempts, 9);
});

test("A listener gets one object; patterns are an exact type, a prefix with a star, or a star.", async () => {
  const tidings = await live();
  /** @type {any[]} */
  const heard = [];
  tidings.on("job.complete", (e) => heard.push(["exact", e]));
  tidings.on("job.*", (e) => heard.push(["prefix", e.type]));
  const off = tidings.on("*", (e) => heard.push(["all", e.type]));
  made[0].says(event(1));
  made[0].says(event(2, "jobs"));
  off();
  made[0].says({ type: "event", event: "job.progress", data: 5, time: 9 });
  assert.deepEqual(heard, [
    ["exact", { id: at(1), type: "job.complete", data: { seq: 1 }, time: 1, replay: false, topic: null }],
    ["prefix", "job.complete"], ["all", "job.complete"], ["all", "jobs"], ["prefix", "job.progress"],
  ]);
  assert.equal(tidings.position, at(2));
});

test("A listener that throws stops neither the other listeners, nor what comes after; it is told to onerror.", async () => {
  const tidings = await live();
  const fault = new Error("mine");
  /** @type {any[]} */
  const heard = [];
  tidings.on("*", () => { throw fault; });
  tidings.on("*", (e) => heard.push(e.id));
  made[0].says(event(1));
  made[0].says(event(2));
  assert.deepEqual(heard, [at(1), at(2)]);
  assert.deepEqual(errors.map(({ code, cause }) => [code, cause]), [["listener", fault], ["listener", fault]]);
  assert.ok(errors[0] instanceof TidingsError);
});

test("Without onerror a throwing listener looks like any uncaught error; a throwing onerror does too.", async () => {
  const seen = mock.method(console, "error", () => {});
  const tidings = await live({ onerror: undefined });
  tidings.on("*", () => { throw new Error("one"); });
  made[0].says(event(1));
  tidings.onerror = () => { throw new Error("two"); };
  made[0].says(event(2));
  assert.deepEqual(seen.mock.calls.map(({ arguments: [error] }) => error.message), ["one", "two"]);
  assert.equal(tidings.state, "live");
});

test("load() gets reason, missed and a signal; the position is there only when it is done, and live is not said before.", async () => {
  /** @type {any[]} */
  const calls = [];
  let done = () => {};
  const tidings = client({ load: (context) => { calls.push(context); return new Promise((resolve) => { done = () => resolve(undefined); }); } });
  await time.settle();
  await getLive();
  assert.deepEqual([calls[0].reason, calls[0].missed, calls[0].signal.aborted], ["start", null, false]);
  assert.deepEqual([tidings.state, tidings.position], ["loading", null]);
  made[0].says({ type: "resync", reason: "epoch", position: "newEpoch.4-4", missed: 3, refetch_ms: 0 });
  assert.deepEqual([calls[0].signal.aborted, calls[1].reason, calls[1].missed], [true, "epoch", 3]);
  done();
  await time.settle();
  assert.deepEqual([tidings.state, tidings.position], ["live", "newEpoch.4-4"]);
});

test("A load() that throws or rejects is told, and tried again.", async () => {
  let turn = 0;
  const tidings = client({ load: () => { turn += 1; if (turn === 1) throw new Error("now"); return turn === 2 ? Promise.reject(new Error("later")) : undefined; } });
  await time.settle();
  await getLive();
  await time.pass(2_000, 10);
  assert.deepEqual(errors.map(({ code, message }) => [code, message]), [["load", "load() failed: now"], ["load", "load() failed: later"]]);
  assert.equal(tidings.position, at(0));
});

test("Without load() a resync cannot be made good, so it is told; a first connect is no resync.", async () => {
  await live();
  assert.deepEqual(errors, []);
  made[0].says({ type: "resync", reason: "trimmed", position: at(9), missed: 9, refetch_ms: 0 });
  await time.settle();
  assert.deepEqual(errors.map(({ code }) => code), ["resync"]);
});

test("onstate tells every state once, with what ended the last connection and when the next attempt is due.", async () => {
  /** @type {import("../tidings.js").Status[]} */
  const told = [];
  await live({ onstate: (status) => told.push(status) });
  made[0].ends(4408, "heartbeat late");
  assert.deepEqual(told.map(({ state }) => state), ["authorizing", "connecting", "greeting", "replaying", "loading", "live", "waiting"]);
  assert.deepEqual(told.map(({ previous }) => previous).slice(1), told.map(({ state }) => state).slice(0, -1));
  const last = /** @type {import("../tidings.js").Status} */ (told.at(-1));
  assert.deepEqual([last.code, last.reason, last.user], [4408, "heartbeat late", null]);
  assert.ok(last.retry_ms !== null && last.retry_ms >= 0 && last.retry_ms <= 500);
  assert.deepEqual([told[5].user, told[5].session], ["ann", "s1"]);
});

test("Silence is judged by the last frame, and the socket is let go with a code that a browser takes.", async () => {
  const tidings = await live();
  await time.pass(25_000);
  made[0].says({ type: "heartbeat", position: at(0) });
  assert.deepEqual(made[0].sent.at(-1), { type: "heartbeat", position: at(0) });
  await time.pass(29_900);
  assert.equal(tidings.state, "live");
  await time.pass(200, 1);
  assert.equal(tidings.state, "waiting");
  assert.equal(made[0].closed_with?.code, 3008);
});

test("A page that slept finds out when it wakes, not by counting timers.", async () => {
  const tidings = await live();
  time.sleep(3_600_000);
  await time.pass(31_000);
  assert.notEqual(tidings.state, "live");
  assert.deepEqual(made[0].closed_with, { code: 3008, reason: "nothing heard for 30000 ms" });
  assert.ok(made.length > 1);
});

test("Frames cost no timer call: the one timer is moved only when it would be too late.", async () => {
  await live();
  const timers = mock.method(globalThis, "setTimeout");
  for (let seq = 1; seq <= 1000; seq += 1) made[0].says(event(seq));
  assert.ok(timers.mock.callCount() <= 1, `${timers.mock.callCount()} timers for 1,000 frames`);
});

test("What is no text frame of JSON ends the connection, not the client.", async () => {
  for (const data of [new ArrayBuffer(3), "{", "7", "null", "[]"]) {
    const tidings = await live();
    const socket = /** @type {any} */ (made.at(-1));
    socket.onmessage({ data });
    assert.equal(tidings.state, "waiting");
    assert.equal(socket.closed_with.code, 4000);
    tidings.close();
  }
});

test("A WebSocket that cannot even be made is told, and tried again with backoff.", async () => {
  let tries = 0;
  class Refused { constructor() { tries += 1; throw new DOMException("insecure", "SecurityError"); } }
  const tidings = client({ WebSocket: Refused });
  await time.settle();
  assert.equal(errors[0].code, "socket");
  assert.equal(tidings.state, "waiting");
  await time.pass(500, 10);
  assert.ok(tries >= 2 && tries < 6, `${tries} tries`);
  tidings.close();
});

test("A refused origin is told to the developer in the gateway's words, once.", async () => {
  const problem = { detail: "Add it to TIDINGS_ALLOWED_ORIGINS.", origin: "https://page.example" };
  const asked = mock.method(globalThis, "fetch", () => Promise.resolve(Response.json(problem, { status: 403, headers: { "content-type": "application/problem+json" } })));
  client();
  for (let round = 0; round < 3; round += 1) {
    await time.pass(2_000, 10);
    made.at(-1)?.ends(1006);
    await time.settle();
  }
  assert.deepEqual(errors.map(({ code, message }) => [code, message]), [["refused", "no connection: https://page.example: Add it to TIDINGS_ALLOWED_ORIGINS."]]);
  assert.equal(asked.mock.callCount(), 1);
  assert.equal(/** @type {any} */ (asked.mock.calls[0].arguments)[0], "https://push.example/v1/ws");
});

for (const [what, answer, told] of /** @type {Array<[string, () => Promise<Response>, RegExp]>} */ ([
  ["nobody there", () => Promise.reject(new TypeError("Failed to fetch")), /^no connection: nobody answers at https:\/\/push\.example\/v1\/ws, or/],
  ["another server", () => Promise.resolve(new Response("<h1>Not found", { status: 404 })), /^no connection: https:\/\/push\.example\/v1\/ws answered 404: is that where/],
  ["a gateway on its way out", () => Promise.resolve(Response.json({ detail: "draining" }, { status: 503 })), /answered 503 \(draining\)/],
  ["no upgrade on the way", () => Promise.resolve(new Response("", { status: 426 })), /the gateway is there, but no WebSocket/],
])) {
  test(`The first connection fails, and the console names what is known: ${what}; a ticket is not spent on the question.`, async () => {
    const warned = mock.method(console, "warn", () => {});
    const asked = mock.method(globalThis, "fetch", answer);
    client({ url: `${URL}/v1/ws?ticket=once`, onerror: undefined });
    await time.settle();
    made[0].ends(1006);
    await time.settle();
    assert.equal(warned.mock.callCount(), 1);
    assert.match(warned.mock.calls[0].arguments[0].replace("tidings: ", ""), told);
    assert.equal(/** @type {any} */ (asked.mock.calls[0].arguments)[0], "https://push.example/v1/ws");
  });
}

test("A question that is answered when the client is through, or closed, is told to nobody.", async () => {
  let answer = () => {};
  mock.method(globalThis, "fetch", () => new Promise((resolve) => { answer = () => resolve(new Response("", { status: 404 })); }));
  for (const end of [async () => { await time.pass(500, 10); await getLive(); }, async (/** @type {Tidings} */ tidings) => tidings.close()]) {
    const tidings = client();
    await time.settle();
    made.at(-1)?.ends(1006);
    await end(tidings);
    answer();
    await time.settle();
  }
  assert.deepEqual(errors, []);
});

test("A client that was connected before asks nobody why: a retry must not become two requests.", async () => {
  const asked = mock.method(globalThis, "fetch", () => Promise.reject(new Error()));
  for (const code of [1006, 1012]) {
    const tidings = await live();
    const before = made.length;
    made.at(-1)?.ends(code);
    await time.pass(3_000, 10);
    assert.equal(made.length, before + 1);
    made.at(-1)?.ends(1006);
    await time.settle();
    tidings.close();
  }
  assert.equal(asked.mock.callCount(), 0);
});

test("A socket that was given up says nothing any more, not even that it has closed at last.", async () => {
  await live();
  await time.pass(31_000, 100);
  assert.equal(made.length, 2);
  made[0].ends(1006);
  made[1].open();
  assert.deepEqual(made[1].sent, [{ type: "hello", position: at(0) }]);
});

test("A token is sent without the white space around it: a file that holds one ends in a line break.", async () => {
  client({ token: "a.b.c\n" });
  client({ token: async () => " a.b.c\r\n" });
  await time.settle();
  for (const socket of made) socket.open();
  assert.deepEqual(made.map(({ sent }) => sent[0].token), ["a.b.c", "a.b.c"]);
});

test("What a close means to the developer is told with its code and the gateway's reason.", async () => {
  await live();
  made[0].ends(4400, "position: not a string");
  assert.deepEqual(errors.map(({ code, message, close }) => [code, message, close]), [["close",
    "the gateway could not make sense of a frame (closed with 4400 position: not a string)", { code: 4400, reason: "position: not a string" }]]);
});

test("A token that comes after its time is not sent in place of a fresh one.", async () => {
  let asked = 0;
  client({ token: () => (asked++ === 0 ? new Promise((resolve) => setTimeout(() => resolve("old"), 31_000)) : "new") });
  await time.pass(32_000, 100);
  made[0].open();
  assert.equal(made[0].sent[0].token, "new");
});
