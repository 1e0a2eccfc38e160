/** The page's own application: its doors, and what it says of itself, asked past Tidings. */

const EVERY_MS = 1_000;
const CLOSELY_MS = 200; // while a gateway drains, which takes seconds
const STATE_TIMEOUT_MS = 5_000;
const STAGE_TIMEOUT_MS = 3_000;
const GONE_AFTER = 2; // failed questions in a row: one may be cut by the browser itself

/** @param {string} path @param {object} [body] @param {AbortSignal} [signal] */
export async function ask(path, body, signal) {
  const post = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(new URL(path, import.meta.url), { cache: "no-store", signal, ...post });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  const message = problem.detail ?? `The application answered ${answer.status}.`;
  throw Object.assign(new Error(message), { status: answer.status, problem });
}

/** @typedef {{gateways: import("./fleet.js").Gateway[], frozen: boolean, restarting: boolean}} Stage */

/**
 * @param {object} calls
 * @param {() => boolean} calls.asks whether there is something to ask yet
 * @param {(state: any) => void} calls.onstate what the page shows, from Redis
 * @param {(stage: Stage) => void} calls.onstage what goes on in the demo, without Redis
 * @param {(answers: boolean) => void} calls.onredis @param {(gone: boolean) => void} calls.ongone
 */
export function watchApplication({ asks, onstate, onstage, onredis, ongone }) {
  let closely = false;
  let failed = 0;

  async function askState() {
    try {
      onstate(await (await ask("state", undefined, AbortSignal.timeout(STATE_TIMEOUT_MS))).json());
      onredis(true);
    } catch (error) {
      if (/** @type {any} */ (error).status === 503) onredis(false);
    }
  }

  async function askStage() {
    try {
      const stage = await (await ask("stage", undefined, AbortSignal.timeout(STAGE_TIMEOUT_MS))).json();
      closely = stage.restarting;
      failed = 0;
      ongone(false);
      onstage(stage);
    } catch (error) {
      // An answer, whatever it says, comes from somebody.
      failed = /** @type {any} */ (error).status === undefined ? failed + 1 : 0;
      ongone(failed >= GONE_AFTER);
    }
  }

  /** @param {() => Promise<void>} question @param {() => number} pause */
  async function again(question, pause) {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, pause()));
      if (asks() && !document.hidden) await question();
    }
  }
  again(askState, () => EVERY_MS);
  again(askStage, () => (closely ? CLOSELY_MS : EVERY_MS));
  return {
    /** Something was just begun: look now, and closely. */
    look() {
      closely = true;
      return askStage();
    },
  };
}
