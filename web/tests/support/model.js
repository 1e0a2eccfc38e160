// A gateway with one user's log, and a page with its backend, for random walks. Every event has a number of its own that only
// grows (`n`); the backend's state "has" all of them, a snapshot those up to its moment, the page what it loaded and heard.

const EPOCHS = ["epochAAA", "epochBBB", "epochCCC", "epochDDD", "epochEEE", "epochFFF", "epochGGG", "epochHHH"];

/** @param {ReturnType<typeof import("./random.js").generator>} rng */
export function gatewayModel(rng) {
  let appended = 0;
  let epochs = 0;
  /** @type {{epoch: string, entries: Array<{seq: number, tag: number, before: number, n: number}>, top: {seq: number, tag: number}}} */
  let log;
  /** Everything that had happened at a position. @type {Map<string, number>} */
  const known = new Map();
  /** Events that nobody can be asked for: skipped ones, and writes that the store lost. @type {Set<number>} */
  const gone = new Set();
  /** @type {Set<{at: string, send: (frame: object) => void}>} */
  const sessions = new Set();
  const position = (/** @type {{seq: number, tag: number}} */ { seq, tag }) => `${log.epoch}.${seq}-${tag}`;
  const newLog = () => {
    log = { epoch: EPOCHS[epochs++ % EPOCHS.length] + epochs, entries: [], top: { seq: 0, tag: 0 } };
    known.set(position(log.top), appended);
  };
  /** Every session that cannot go on from where it is, and only those, is told so. */
  const settle = () => {
    for (const session of sessions) {
      const reason = verdict(session.at);
      if (reason === null) continue;
      session.at = position(log.top);
      session.send({ type: "resync", reason, position: session.at, missed: null, refetch_ms: rng.pick([0, 0, 500, 5000]) });
    }
  };
  const add = () => {
    appended += 1;
    const entry = { seq: log.top.seq + 1, tag: rng.integer(1, 1e9), before: log.top.tag, n: appended };
    log.entries.push(entry);
    log.top = entry;
    known.set(position(entry), appended);
    if (appended % 13 === 0) gone.add(appended);
    return entry;
  };
  const frameOf = (/** @type {{seq: number, tag: number, n: number}} */ entry, replay = false) => ({
    type: gone.has(entry.n) ? "skip" : "event", id: position(entry), event: "e", data: entry.n, time: entry.n, ...(replay && { replay }) });
  newLog();

  /** The reason why a reader cannot go on from a position, or null. @param {string} text */
  function verdict(text) {
    const match = /** @type {RegExpExecArray} */ (/^(.*)\.(\d+)-(\d+)$/.exec(text));
    const [seq, tag] = [Number(match[2]), Number(match[3])];
    if (match[1] !== log.epoch) return "epoch";
    if (seq > log.top.seq) return "ahead";
    if (seq === log.top.seq) return tag === log.top.tag ? null : "epoch";
    const next = log.entries.find((entry) => entry.seq === seq + 1);
    return next === undefined ? "trimmed" : next.before === tag ? null : "epoch";
  }

  return {
    known,
    gone,
    get appended() {
      return appended;
    },
    append() {
      const entry = add();
      for (const session of sessions) {
        session.at = position(entry);
        session.send(frameOf(entry));
      }
    },
    trim() {
      log.entries.splice(0, rng.integer(1, 20));
    },
    /** More was written at once than the log keeps. */
    overrun() {
      for (let i = 0; i < 3; i += 1) add();
      log.entries.length = 0;
      settle();
    },
    /** The store was lost. */
    wipe() {
      newLog();
      settle();
    },
    /** A failover lost the last writes: their numbers are given again, with other tags. Who never saw them cannot know. */
    fork() {
      if (log.entries.length < 4) return;
      for (const { n } of log.entries.splice(-rng.integer(1, 3))) gone.add(n);
      log.top = /** @type {any} */ (log.entries.at(-1));
      settle();
    },
    heartbeat() {
      for (const session of sessions) session.send({ type: "heartbeat", position: session.at });
    },
    /** @param {string|null} from @param {(frame: object) => void} send @returns {() => void} */
    attach(from, send) {
      const reason = from === null ? null : verdict(from);
      const resumed = from !== null && reason === null;
      const start = resumed ? from : position(log.top);
      send({ type: "welcome", session: "s", user: "u", resumed, position: start, heartbeat_ms: 20_000, timeout_ms: 10_000 });
      if (reason !== null) send({ type: "resync", reason, position: start, missed: null, refetch_ms: rng.pick([0, 3000]) });
      const seq = Number(/\.(\d+)-/.exec(start)?.[1]);
      const missed = resumed ? log.entries.filter((entry) => entry.seq > seq) : [];
      for (const entry of missed) send(frameOf(entry, true));
      send({ type: "synced", position: position(log.top), replayed: missed.length });
      const session = { at: position(log.top), send };
      sessions.add(session);
      return () => sessions.delete(session);
    },
  };
}

/** What the page has: a snapshot, and what was handed to it since. @param {Set<number>} gone */
export function pageModel(gone) {
  let snapshot = 0;
  /** @type {Set<number>} */
  const heard = new Set();
  return {
    /** A snapshot is shown: it takes the place of everything. @param {number} n */
    show(n) {
      snapshot = n;
      heard.clear();
    },
    /** @param {number} n */
    hear(n) {
      heard.add(n);
    },
    /** The first event up to `n` that the page has not got. @param {number} n */
    lacks(n) {
      for (let i = snapshot + 1; i <= n; i += 1) if (!heard.has(i) && !gone.has(i)) return i;
      return null;
    },
  };
}
