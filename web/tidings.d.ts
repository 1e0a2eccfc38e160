/** Types of the Tidings client, `tidings.js`. What each member means in full is told there. */

export interface Options {
  /** Where the gateway is, for example `https://push.example.com`. Default: where this module came from. */
  url?: string | URL;
  /** A function is asked before every attempt to connect, never twice at once; 30 s are given. None: the page's cookie counts. */
  token?: string | ((context: { signal: AbortSignal }) => string | null | undefined | Promise<string | null | undefined>);
  /** Fetches the page's state and shows it. `reason` is "start", or why events may have been missed for good. */
  load?: (context: { reason: string; missed: number | null; signal: AbortSignal }) => unknown;
  /** Where the page's state stands already, if a server rendered it with its position. */
  position?: string | null;
  onstate?: (status: Status) => void;
  /** Default: a warning on the console. */
  onerror?: (error: TidingsError) => void;
  /** A class with the browser's interface; default: the global one. */
  WebSocket?: any;
}

export type StateName =
  | "idle"
  | "authorizing"
  | "connecting"
  | "greeting"
  | "replaying"
  | "loading"
  | "live"
  | "waiting"
  | "stopped";

export interface Status {
  /** `live` is said only when nothing is missing: connected, caught up, and load() done where one was owed. */
  state: StateName;
  previous: StateName;
  /** Close code of the last connection that ended; 3008 and 4000 are this client's own. */
  code: number | null;
  reason: string;
  /** In waiting: milliseconds until the next attempt; null: when the page is shown again. */
  retry_ms: number | null;
  session: string | null;
  /** Who the gateway says we are. */
  user: string | null;
}

/** `Data` is what your application publishes; nothing checks it. */
export interface TidingsEvent<Data = any> {
  /** Null: ephemeral. */
  id: string | null;
  type: string;
  data: Data;
  /** When it was published, in milliseconds since 1970. */
  time: number;
  /** It happened while the page was away, or before it came. */
  replay: boolean;
  /** Null: the user's own. */
  topic: string | null;
}

export type ErrorCode =
  | "close"
  | "token"
  | "load"
  | "listener"
  | "refused"
  | "resync"
  | "gap"
  | "malformed"
  | "server"
  | "socket";

export class TidingsError extends Error {
  constructor(
    code: ErrorCode,
    message: string,
    details?: { close?: { code: number; reason: string }; cause?: unknown },
  );
  code: ErrorCode;
  /** How the connection ended, for code `close`. */
  close: { code: number; reason: string } | null;
}

export class Tidings {
  /** Connects by itself, once the code that made it has run to its end. */
  constructor(options?: Options);
  onstate: ((status: Status) => void) | undefined;
  onerror: ((error: TidingsError) => void) | undefined;
  /** What a reconnect would send: everything up to here is in the page. Null: not known yet. */
  get position(): string | null;
  get state(): StateName;
  /** `"job.*"` stands for all types that begin with `job.`, `"*"` for all. Returns what stops it. */
  on<Data = any>(pattern: string, listener: (event: TidingsEvent<Data>) => void): () => void;
  /** Connects after `close()` or a final refusal, from the position reached; while waiting for a retry: now. Else nothing. */
  connect(): void;
  /** Ends the connection and everything else at once: no listener, no timer, no request after it. */
  close(): void;
}
