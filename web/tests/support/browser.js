// A browser's clock, timer and WebSocket, as far as the client can tell. The socket is as strict as a browser's.

import { mock } from "node:test";

/** Virtual time for setTimeout and performance.now. Promises settle between two moments, as they would. */
export function clock() {
  let now = 1_000;
  mock.timers.enable({ apis: ["setTimeout"] });
  mock.method(performance, "now", () => now);
  const settle = async () => {
    for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  };
  return {
    settle,
    /** @param {number} ms @param {number} [step] */
    async pass(ms, step = Math.max(1, ms / 200)) {
      for (const end = now + ms; now < end; ) {
        const part = Math.min(step, end - now);
        now += part;
        mock.timers.tick(part);
        await settle();
      }
    },
    /** The clock moves and no timer fires: a frozen page, a laptop asleep. @param {number} ms */
    sleep(ms) {
      now += ms;
    },
    restore() {
      mock.timers.reset();
      mock.restoreAll();
    },
  };
}

/** A WebSocket class, and the sockets made of it. */
export function sockets() {
  /** @type {FakeSocket[]} */
  const made = [];
  class FakeSocket {
    /** @param {string} url @param {string[]} protocols */
    constructor(url, protocols) {
      this.url = url;
      this.protocols = protocols;
      this.readyState = 0;
      /** @type {any[]} */
      this.sent = [];
      /** @type {{code: number, reason: string}|null} what the client closed it with */
      this.closed_with = null;
      /** @type {any} */
      this.onopen = null;
      /** @type {any} */
      this.onmessage = null;
      /** @type {any} */
      this.onclose = null;
      /** @type {any} */
      this.onerror = null;
      made.push(this);
    }

    /** @param {string} text */
    send(text) {
      if (this.readyState === 0) throw new DOMException("still connecting", "InvalidStateError");
      this.sent.push(JSON.parse(text));
    }

    /** @param {number} code @param {string} reason */
    close(code, reason) {
      if (code !== 1000 && !(code >= 3000 && code <= 4999)) throw new DOMException(`close(${code})`, "InvalidAccessError");
      if (Buffer.byteLength(reason) > 123) throw new DOMException("reason", "SyntaxError");
      this.closed_with = { code, reason };
      this.readyState = 2;
    }

    open() {
      this.readyState = 1;
      this.onopen?.({});
    }

    /** @param {object} frame */
    says(frame) {
      this.onmessage?.({ data: JSON.stringify(frame) });
    }

    /** A dial that fails, or a path that breaks: browsers tell it twice. */
    fails() {
      this.readyState = 3;
      this.onerror?.({});
      this.onclose?.({ code: 1006, reason: "", wasClean: false });
    }

    /** @param {number} code */
    ends(code, reason = "") {
      this.readyState = 3;
      this.onclose?.({ code, reason, wasClean: code !== 1006 });
    }
  }
  return { made, FakeSocket };
}
