// Random walks of the machine through a world that fails in every way we know: the invariants hold after every single step.

import assert from "node:assert/strict";
import test from "node:test";

import { initial, reduce, wakeAt } from "../machine.js";
import { formatPosition } from "../position.js";
import { frozen } from "./support/frozen.js";
import { gatewayModel, pageModel } from "./support/model.js";
import { generator } from "./support/random.js";
import { timeline } from "./support/timeline.js";

const CODES = [1000, 1001, 1005, 1006, 1006, 1006, 1008, 1011, 1012, 1012, 1013, 4400, 4401, 4403, 4408, 4409, 4429];

/** @param {number} seed @param {number} faults how often things go wrong, 0 to 1 */
function walk(seed, faults) {
  const rng = generator(seed);
  const time = timeline();
  const gateway = gatewayModel(rng);
  const page = pageModel(gateway.gone);
  let state = frozen(initial());
  /** @type {{cut: (code: number) => void, lost: boolean}|null} */
  let socket = null;
  let timer = () => {};
  /** @type {(() => void)|null} the load under way, to be aborted */
  let loading = null;
  let segment = 0;
  /** @type {{epoch: string, seq: number, segment: number}|null} */
  let last = null;
  /** @type {Set<number>} */
  const delivered = new Set();
  /** Handed over while a load was owed. If that never succeeds, the older position is sent, and they may come again. @type {Set<number>} */
  const provisional = new Set();
  const counts = { dials: 0, loads: 0, delivered: 0, resyncs: 0, live: 0, gaps: 0, resumed: 0 };

  /** @param {import("../machine.js").Event} event */
  function dispatch(event) {
    step(event);
    for (let turns = 0; (wakeAt(state) ?? Infinity) <= time.now; turns += 1) {
      assert.ok(turns < 10_000, `tick settles nothing in ${state.name}`);
      step({ type: "tick" });
    }
    timer();
    const at = wakeAt(state);
    timer = at === null ? () => {} : time.after(at - time.now, () => dispatch({ type: "tick" }));
  }

  /** @param {import("../machine.js").Event} event */
  function step(event) {
    const before = state;
    const [next, effects] = reduce(state, event, time.now, rng.random());
    state = frozen(next);
    if (before.name === "stopped" && event.type !== "start") assert.deepEqual(effects, [], `an effect of ${event.type} after the end`);
    const repositioned = event.frame?.type === "resync" || (event.frame?.type === "welcome" && !event.frame.resumed);
    for (const effect of effects) perform(effect);
    if (state.load === null && provisional.size > 0) {
      if (event.type !== "loaded") {
        for (const n of provisional) delivered.delete(n);
        last = null;
      }
      provisional.clear();
    }
    if (repositioned && effects.every(({ type }) => type !== "drop")) segment += 1;
    if (event.frame?.type === "welcome" && event.frame.resumed) counts.resumed += 1;
    if (event.frame?.type === "resync") counts.resyncs += 1;
    if (state.name === "live" && state.load === null) counts.live += 1;
    const position = formatPosition(state.position);
    if (position !== null) {
      const lacks = page.lacks(/** @type {number} */ (gateway.known.get(position)));
      assert.equal(lacks, null, `${position} is stored, and the page has not got ${lacks} (after ${JSON.stringify(event)})`);
    }
    if (state.name === "stopped") assert.equal(wakeAt(state), null);
  }

  /** @param {import("../machine.js").Effect} effect */
  function perform(effect) {
    switch (effect.type) {
      case "token":
        return token(effect.dial);
      case "dial":
        return dial(effect.dial);
      case "hello":
        assert.equal(effect.position, formatPosition(state.position));
        return void time.after(rng.integer(1, 50), () => hello?.(effect.position));
      case "probe":
        return void time.after(rng.integer(1, 50), () => answer());
      case "drop":
      case "stop":
        socket?.cut(0);
        if (effect.type === "stop") loading?.();
        return;
      case "load":
        return load(effect.load);
      case "abort":
        return loading?.();
      case "deliver":
        return deliver(effect.event);
      case "report":
        if (effect.code === "gap") counts.gaps += 1;
        assert.notEqual(effect.code, "malformed", effect.message);
    }
  }

  /** @param {number} dial */
  function token(dial) {
    if (rng.chance(0.05 * faults)) return;
    const fails = rng.chance(0.1 * faults);
    time.after(rng.integer(0, 3000), () => dispatch(fails ? { type: "tokenFailed", dial, message: "" } : { type: "token", dial }));
  }

  /** @type {((position: string|null) => void)|null} */
  let hello = null;
  /** Answers a probe, on the connection that is there then. */
  let answer = () => {};

  /** @param {number} dial */
  function dial(dial) {
    assert.equal(socket, null, "two sockets in flight");
    counts.dials += 1;
    let detach = () => {};
    let open = true;
    const line = { lost: false, cut };
    /** @param {number} code 0: the client itself let go */
    function cut(code) {
      open = false;
      detach();
      if (socket === line) socket = null;
      // A socket that was let go still says something now and then; the machine must not care.
      if (code !== 0 || rng.chance(0.3)) dispatchLater({ type: "closed", dial, code: code || 1006, reason: "" });
    }
    /** @param {import("../machine.js").Event} event */
    function dispatchLater(event) {
      time.after(event.type === "closed" && state.name !== "stopped" ? 0 : rng.integer(0, 20), () => dispatch(event));
    }
    socket = line;
    if (rng.chance(0.1 * faults)) return; // hangs in CONNECTING
    if (rng.chance(0.2 * faults)) return void time.after(rng.integer(0, 200), () => open && cut(1006));
    time.after(rng.integer(0, 100), () => open && dispatch({ type: "open", dial }));
    let clear = 0; // frames keep their order, however long each takes
    answer = () => {
      if (open && !line.lost) dispatch({ type: "frame", dial, frame: { type: "auth", expires_in_ms: 1 } });
    };
    hello = (position) => {
      if (!open) return;
      detach = gateway.attach(position, (frame) => {
        const copies = rng.chance(0.02 * faults) ? 0 : rng.chance(0.02 * faults) ? 2 : 1;
        const dropped = copies === 0 && /** @type {any} */ (frame).type === "event";
        clear = Math.max(clear, time.now + rng.integer(0, 30));
        for (let copy = 0; copy < (dropped ? 0 : /** @type {any} */ (frame).type === "event" ? Math.max(copies, 1) : 1); copy += 1) {
          time.after(clear - time.now, () => open && !line.lost && dispatch({ type: "frame", dial, frame }));
        }
      });
    };
  }

  /** @param {number} load */
  function load(load) {
    assert.equal(loading, null, "two loads at once");
    counts.loads += 1;
    let snapshot = gateway.appended;
    const fails = rng.chance(0.3 * faults);
    const takes = rng.chance(0.03 * faults) ? 100_000 : rng.integer(0, 2000);
    const undo = [
      time.after(rng.integer(0, takes), () => { snapshot = gateway.appended; }),
      time.after(takes, () => {
        loading = null;
        if (!fails) page.show(snapshot);
        dispatch(fails ? { type: "loadFailed", load, message: "" } : { type: "loaded", load });
      }),
    ];
    loading = () => {
      loading = null;
      for (const take of undo) take();
    };
  }

  /** @param {import("../machine.js").TidingsEvent} event */
  function deliver(event) {
    if (event.id === null) return;
    const n = Number(event.data);
    assert.ok(!delivered.has(n), `${event.id} was handed over twice`);
    delivered.add(n);
    if (state.load !== null) provisional.add(n);
    const [, epoch, seq] = /** @type {RegExpExecArray} */ (/^(.*)\.(\d+)-/.exec(event.id));
    const at = { epoch, seq: Number(seq), segment };
    if (last !== null && last.segment === segment && last.epoch === epoch) {
      let next = last.seq + 1;
      while (next < at.seq && [...gateway.known].some(([id, n]) => id.startsWith(`${epoch}.${next}-`) && gateway.gone.has(n))) next += 1;
      assert.equal(at.seq, next, "a hole at the listener");
    }
    last = at;
    counts.delivered += 1;
    page.hear(n);
  }

  dispatch({ type: "start" });
  for (let turn = 0; turn < 150; turn += 1) {
    time.run(time.now + rng.pick([1, 10, 100, 100, 1000, 1000, 5000, 15_000]));
    const die = rng.random();
    if (die < 0.5) for (let i = rng.integer(1, 6); i > 0; i -= 1) gateway.append();
    else if (die < 0.6) gateway.heartbeat();
    else if (die < 0.65) gateway.trim();
    else if (die < 0.65 + 0.02 * faults) gateway.wipe();
    else if (die < 0.65 + 0.05 * faults) gateway.fork();
    else if (die < 0.65 + 0.08 * faults) gateway.overrun();
    else if (die < 0.65 + 0.18 * faults) socket?.cut(rng.pick(CODES));
    else if (die < 0.65 + 0.2 * faults && socket) socket.lost = true; // silence
    else if (die < 0.65 + 0.22 * faults) dispatch({ type: "close" });
    else if (die < 0.65 + 0.25 * faults) dispatch({ type: "aside" });
    if (rng.chance(0.2)) dispatch({ type: "wake", token: rng.chance(0.8) });
    if (state.name === "stopped" && rng.chance(0.5)) dispatch({ type: "start" });
    else if (state.name === "waiting" && rng.chance(0.1)) dispatch({ type: "start" });
  }
  faults = 0; // the weather clears
  for (let round = 0; round < 40; round += 1) {
    if (state.name === "stopped") dispatch({ type: "start" });
    dispatch({ type: "wake", token: true });
    time.run(time.now + 10_000);
    gateway.heartbeat();
  }
  assert.equal(state.name, "live", "it must come back by itself");
  assert.equal(state.load, null);
  assert.equal(page.lacks(gateway.appended), null, "in the end the page has everything");
  return counts;
}

test("However it fails: one socket, one load, no stored position before the page has it, nothing twice, no hole, live in the end.", () => {
  const total = { dials: 0, loads: 0, delivered: 0, resyncs: 0, live: 0, gaps: 0, resumed: 0 };
  for (let seed = 1; seed <= Number(process.env.WALKS ?? 200); seed += 1) {
    try {
      const counts = walk(seed, seed % 4 === 0 ? 0.2 : 1);
      for (const key of /** @type {Array<keyof typeof total>} */ (Object.keys(total))) total[key] += counts[key];
    } catch (error) {
      throw new Error(`walk ${seed}: ${/** @type {Error} */ (error).message}`, { cause: error });
    }
  }
  // A walk that goes nowhere proves nothing.
  for (const [what, count] of Object.entries(total)) assert.ok(count > 100, `${what}: only ${count}`);
});
