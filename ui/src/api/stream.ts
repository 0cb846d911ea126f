// A Stream keeps a websocket to one collection open: it hands on each full list that comes, says when the connection is lost, and
// connects again, later each time it fails. It knows neither React nor the kinds.

export type StreamState = 'connecting' | 'open' | 'lost';

export interface Socket {
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: (() => void) | null;
  close(): void;
}

export interface StreamOptions<T> {
  open: () => Socket;
  onData: (data: T[]) => void;
  // onState is also told until when what was handed on was surely current, as Date.now() has it; 0: nothing was.
  onState: (state: StreamState, currentUntil: number) => void;
  // random, now and timer are given by tests.
  random?: () => number;
  now?: () => number;
  timer?: { set: (call: () => void, ms: number) => unknown; clear: (id: unknown) => void };
}

const browserTimer = {
  set: (call: () => void, ms: number): unknown => setTimeout(call, ms),
  clear: (id: unknown) => clearTimeout(id as ReturnType<typeof setTimeout>),
};

// The first wait, and the longest, in milliseconds.
export const firstWait = 1000;
export const longestWait = 30_000;

// steady is how long a connection must have been open for the next wait to be the first again, in milliseconds. A server that closes each
// one after its first list gets no rest otherwise.
export const steady = 10_000;

// longestSilence is how long a connection may say nothing before it counts as lost, in milliseconds: three periods of the API's heartbeats.
export const longestSilence = 45_000;

// checkPeriod is between two looks at the clock, in milliseconds. A timer of the whole silence would stand still with a machine that sleeps.
export const checkPeriod = 5000;

// waitBefore is the pause before an attempt, 0 being the first again: doubled each time, and spread so that many pages do not come at once.
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
  // openSince is when the first list of the connection came; null: none has.
  private openSince: number | null = null;
  // heardAt is when the connection said something last, or was begun.
  private heardAt = 0;
  private currentUntil = 0;
  // beats: this connection has sent a heartbeat, so silence means something. An older daemon sends none.
  private beats = false;
  private readonly options: Required<StreamOptions<T>>;

  constructor(options: StreamOptions<T>) {
    this.options = { random: Math.random, now: () => Date.now(), timer: browserTimer, ...options };
    options.onState('connecting', 0);
    this.connect();
  }

  // renew connects anew at once, whatever the connection claims to be, as when the browser says that it is online again.
  renew(): void {
    if (this.socket !== null) this.drop();
    this.attempt = 0;
    this.connect();
  }

  // wake is for a page that was asleep or hidden, where timers may have stood still.
  wake(): void {
    if (this.pending !== null) this.renew();
    else this.check();
  }

  close(): void {
    this.ended = true;
    this.release();
  }

  // check makes a connection that has been silent for too long anew. One that has never said anything is waited for: the next may not either.
  private check(): void {
    if (this.socket === null || this.options.now() - this.heardAt <= longestSilence) return;
    if (this.openSince === null) this.lost();
    else if (this.beats) this.renew();
  }

  // release gives back the socket and the timers.
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
    // The first message of every daemon is the list, however short: until it is there the page shows what was before.
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

  // drop closes the connection and says that it is lost.
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

  // lost drops the connection, and makes another one after a pause.
  private lost(): void {
    this.drop();
    if (this.ended) return; // by who was told
    const wait = waitBefore(this.attempt, this.options.random());
    this.attempt += 1;
    this.pending = this.options.timer.set(() => {
      this.pending = null;
      this.connect();
    }, wait);
  }
}

// parsed is what a message says as JSON; null for anything else.
function parsed(message: unknown): unknown {
  if (typeof message !== 'string') return null;
  try {
    return JSON.parse(message) as unknown;
  } catch {
    return null;
  }
}

// listOf is the list of a message; null for anything that is none, such as what a later release may send.
export function listOf(message: unknown): unknown[] | null {
  if (typeof message !== 'object' || message === null || !('data' in message)) return null;
  return Array.isArray(message.data) ? (message.data as unknown[]) : null;
}

export function isHeartbeat(message: unknown): boolean {
  return typeof message === 'object' && message !== null && 'type' in message && message.type === 'heartbeat';
}
