/** What a close says that our cable is to blame for. */
export const PULLED = "cable pulled";

/** A WebSocket whose cable can be pulled. It shows what the `WebSocket` option of Tidings is good for. */
export function createCable() {
  let plugged = true;
  /** @type {Set<WebSocket>} */
  const sockets = new Set();

  /** @this {unknown} @param {string} url @param {string[]} protocols */
  function CableSocket(url, protocols) {
    if (!plugged) return new DeadSocket();
    const socket = new WebSocket(url, protocols);
    sockets.add(socket);
    socket.addEventListener("close", () => sockets.delete(socket));
    return socket;
  }

  return {
    WebSocket: CableSocket,
    pull() {
      plugged = false;
      for (const socket of sockets) socket.close(4999, PULLED);
    },
    plug() {
      plugged = true;
    },
  };
}

/** What a browser gives without a network: an error, then a close. */
class DeadSocket {
  /** @type {((close: {code: number, reason: string}) => void)|null} */
  onclose = null;
  #failing = setTimeout(() => this.onclose?.({ code: 1006, reason: PULLED }), 20);

  close() {
    clearTimeout(this.#failing);
  }
}
