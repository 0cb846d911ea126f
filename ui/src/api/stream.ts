// A Stream keeps a websocket to one collection open: it hands on each full list that comes, says when the connection is lost, and
// connects again, later each time it fails. It knows neither React nor the kinds.

export type StreamState = 'connecting' | 'open' | 'lost';

export interface Socket {
  onopen: (() => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: (() => void) | null;
  close(): void;
}

export interface StreamOptions<T> {
  open: () => Socket;
  onData: (data: T[]) => void;
  onState: (state: StreamState) => void;
  // random and timer are given by tests.
  random?: () => number;
  timer?: { set: (call: () => void, ms: number) => unknown; clear: (id: unknown) => void };
}

const browserTimer = {
  set: (call: () => void, ms: number): unknown => setTimeout(call, ms),
  clear: (id: unknown) => clearTimeout(id as ReturnType<typeof setTimeout>),
};

// The first wait, and the longest, in milliseconds.
export const firstWait = 1000;
export const longestWait = 30_000;

// waitBefore is the pause before an attempt, 0 being the first again: doubled each time, and spread so that many pages do not come at once.
export function waitBefore(attempt: number, random: number): number {
  const full = Math.min(longestWait, firstWait * 2 ** Math.min(attempt, 10));
  return full / 2 + (full / 2) * random;
}

export class Stream<T> {
  private socket: Socket | null = null;
  private pending: unknown = null;
  private attempt = 0;
  private ended = false;
  private readonly options: Required<StreamOptions<T>>;

  constructor(options: StreamOptions<T>) {
    this.options = { random: Math.random, timer: browserTimer, ...options };
    options.onState('connecting');
    this.connect();
  }

  // retry connects at once if a connection is waited for, as when the browser says that it is online again.
  retry(): void {
    if (this.pending === null || this.ended) return;
    this.options.timer.clear(this.pending);
    this.pending = null;
    this.connect();
  }

  close(): void {
    this.ended = true;
    if (this.pending !== null) this.options.timer.clear(this.pending);
    this.pending = null;
    this.socket?.close();
    this.socket = null;
  }

  private connect(): void {
    let socket: Socket;
    try {
      socket = this.options.open();
    } catch {
      this.lost();
      return;
    }
    this.socket = socket;
    socket.onopen = () => {
      if (this.socket !== socket) return;
      this.options.onState('open');
    };
    socket.onmessage = (event) => {
      if (this.socket !== socket) return;
      const data = listOf(event.data);
      if (data === null) return;
      this.attempt = 0; // a connection that says something works
      this.options.onData(data as T[]);
    };
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.socket = null;
      this.lost();
    };
  }

  private lost(): void {
    if (this.ended) return;
    this.options.onState('lost');
    const wait = waitBefore(this.attempt, this.options.random());
    this.attempt += 1;
    this.pending = this.options.timer.set(() => {
      this.pending = null;
      this.connect();
    }, wait);
  }
}

// listOf is the list of a message; null for anything that is none, such as what a later release may send.
export function listOf(message: unknown): unknown[] | null {
  if (typeof message !== 'string') return null;
  try {
    const parsed: unknown = JSON.parse(message);
    if (typeof parsed === 'object' && parsed !== null && 'data' in parsed && Array.isArray(parsed.data)) return parsed.data as unknown[];
  } catch {
    // not JSON
  }
  return null;
}
