// A Stream keeps a websocket to one collection open. It passes on each full list that it receives, reports when the
// connection is lost, and connects again, after a longer pause each time it fails. It does not know React or the kinds.

export type StreamState = 'connecting' | 'open' | 'lost';

export interface Socket {
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: (() => void) | null;
  close(): void;
}

export interface StreamOptions<T> {
  open: () => Socket;
  onData: (data: T[]) => void;
  // onState also gets the time until which the last data was certainly current, as in Date.now(). It is 0 if there was
  // no data.
  onState: (state: StreamState, currentUntil: number) => void;
  // Only tests set random, now and timer.
  random?: () => number;
  now?: () => number;
  timer?: { set: (call: () => void, ms: number) => unknown; clear: (id: unknown) => void };
}

const browserTimer = {
  set: (call: () => void, ms: number): unknown => setTimeout(call, ms),
  clear: (id: unknown) => clearTimeout(id as ReturnType<typeof setTimeout>),
};

// The first pause and the longest pause before an attempt to connect, in milliseconds.
export const firstWait = 1000;
export const longestWait = 30_000;

// steady is the time, in milliseconds, after which an open connection resets the pause to firstWait. Otherwise, pages
// would connect all the time to a server that closes each connection after its first list.
export const steady = 10_000;

// longestSilence is the time, in milliseconds, after which a connection without messages is considered lost: three
// periods of the API's heartbeats.
export const longestSilence = 45_000;

// checkPeriod is the time between two checks of the clock, in milliseconds. A single timer of length longestSilence
// would stop while the machine sleeps.
export const checkPeriod = 5000;

// waitBefore returns the pause before an attempt. Attempt 0 is the first one. The pause doubles each time, and has a
// random part, so that many pages do not connect at the same time.
export function waitBefore(attempt: number, random: number): number {
  const full = Math.min(longestWait, firstWait * 2 ** Math.min(attempt, 10));
  return full / 2 + (full / 2) * random;
}

export class Stream<T> {
  private socket: Socket | null = null;
  private pending: unknown = null;
  private checking: unknown = null;
  private attempt = 0;
  private ended = false;
  // openSince is the time at which the first list of the connection arrived; null: no list has arrived.
  private openSince: number | null = null;
  // heardAt is the time of the connection's last message, or of its start.
  private heardAt = 0;
  private currentUntil = 0;
  // beats: this connection has sent a heartbeat, so silence has a meaning. An older daemon sends no heartbeats.
  private beats = false;
  private readonly options: Required<StreamOptions<T>>;

  constructor(options: StreamOptions<T>) {
    this.options = { random: Math.random, now: () => Date.now(), timer: browserTimer, ...options };
    options.onState('connecting', 0);
    this.connect();
  }

  // renew connects again at once, whatever the state of the connection is. Used for example when the browser says that
  // it is online again.
  renew(): void {
    if (this.socket !== null) this.drop();
    this.attempt = 0;
    this.connect();
  }

  // wake is called after the page was asleep or hidden. Its timers may have stood still.
  wake(): void {
    if (this.pending !== null) this.renew();
    else this.check();
  }

  close(): void {
    this.ended = true;
    this.release();
  }

  // check replaces a connection that has been silent for too long. If the connection has never sent a list, check waits
  // before it connects again: the next connection may not send a list either.
  private check(): void {
    if (this.socket === null || this.options.now() - this.heardAt <= longestSilence) return;
    if (this.openSince === null) this.lost();
    else if (this.beats) this.renew();
  }

  // release closes the socket and removes the timers.
  private release(): void {
    const { timer } = this.options;
    if (this.pending !== null) timer.clear(this.pending);
    if (this.checking !== null) timer.clear(this.checking);
    const socket = this.socket;
    this.pending = this.checking = this.socket = null;
    socket?.close();
  }

  private connect(): void {
    if (this.ended) return;
    this.release();
    let socket: Socket;
    try {
      socket = this.options.open();
    } catch {
      this.lost();
      return;
    }
    this.socket = socket;
    this.openSince = null;
    this.beats = false;
    this.heardAt = this.options.now();
    this.watch();
    socket.onmessage = (event) => {
      if (this.socket === socket) this.hear(parsed(event.data));
    };
    socket.onclose = () => {
      if (this.socket === socket) this.lost();
    };
  }

  private hear(message: unknown): void {
    this.heardAt = this.options.now();
    if (isHeartbeat(message)) this.beats = true;
    const data = listOf(message);
    if (data === null) return;
    // The first message of every daemon is the list, even an empty one. Until it arrives, the page shows the previous
    // data.
    if (this.openSince === null) {
      this.openSince = this.heardAt;
      this.options.onState('open', this.heardAt);
    }
    this.options.onData(data as T[]);
  }

  private watch(): void {
    const watched = this.socket;
    this.checking = this.options.timer.set(() => {
      this.checking = null;
      this.check();
      if (this.socket !== null && this.socket === watched) this.watch();
    }, checkPeriod);
  }

  // drop closes the connection and reports it as lost.
  private drop(): void {
    const now = this.options.now();
    if (this.openSince !== null) {
      if (now - this.openSince >= steady) this.attempt = 0;
      this.currentUntil = this.beats ? this.heardAt : now;
    }
    this.openSince = null;
    this.release();
    this.options.onState('lost', this.currentUntil);
  }

  // lost drops the connection, and connects again after a pause.
  private lost(): void {
    this.drop();
    if (this.ended) return; // onState may have closed the stream
    const wait = waitBefore(this.attempt, this.options.random());
    this.attempt += 1;
    this.pending = this.options.timer.set(() => {
      this.pending = null;
      this.connect();
    }, wait);
  }
}

// parsed returns the message as JSON; null if it is not JSON.
function parsed(message: unknown): unknown {
  if (typeof message !== 'string') return null;
  try {
    return JSON.parse(message) as unknown;
  } catch {
    return null;
  }
}

// listOf returns the list in a message; null if the message contains no list, for example a message of a later release.
export function listOf(message: unknown): unknown[] | null {
  if (typeof message !== 'object' || message === null || !('data' in message)) return null;
  return Array.isArray(message.data) ? (message.data as unknown[]) : null;
}

export function isHeartbeat(message: unknown): boolean {
  return typeof message === 'object' && message !== null && 'type' in message && message.type === 'heartbeat';
}
