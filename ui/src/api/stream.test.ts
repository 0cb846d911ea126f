import { describe, expect, it } from 'vitest';
import { checkPeriod, isHeartbeat, listOf, longestSilence, longestWait, steady, Stream, waitBefore, type Socket, type StreamState } from './stream';

class FakeSocket implements Socket {
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;
  closed = false;
  close(): void {
    this.closed = true;
  }
  says(message: unknown): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }
}

const list = (...data: unknown[]) => ({ type: 'collection', data });
const heartbeat = { type: 'heartbeat' };

// bench is a stream with fake sockets and timers. Its clock starts at 0.
function bench() {
  const sockets: FakeSocket[] = [];
  const timers = new Map<number, { call: () => void; at: number }>();
  const states: StreamState[] = [];
  const current: number[] = [];
  const data: unknown[][] = [];
  let now = 0;
  let ids = 0;
  const stream = new Stream<unknown>({
    open: () => {
      const socket = new FakeSocket();
      sockets.push(socket);
      return socket;
    },
    onData: (list) => data.push(list),
    onState: (state, currentUntil) => {
      states.push(state);
      current.push(currentUntil);
    },
    random: () => 1,
    now: () => now,
    timer: {
      set: (call, ms) => {
        ids += 1;
        timers.set(ids, { call, at: now + ms });
        return ids;
      },
      clear: (id) => timers.delete(id as number),
    },
  });
  const last = () => sockets[sockets.length - 1] as FakeSocket;
  // pass advances the clock, from timer to timer.
  const pass = (ms: number) => {
    const end = now + ms;
    for (;;) {
      const [id, next] = [...timers].sort(([, a], [, b]) => a.at - b.at)[0] ?? [];
      if (id === undefined || next === undefined || next.at > end) break;
      timers.delete(id);
      now = next.at;
      next.call();
    }
    now = end;
  };
  // sleep advances the clock while the timers stand still.
  const sleep = (ms: number) => {
    now += ms;
    for (const timer of timers.values()) timer.at += ms;
  };
  // wait returns the time that the stream waits before it connects again.
  const wait = () => {
    const before = sockets.length;
    let waited = 0;
    for (; sockets.length === before; waited += 500) pass(500);
    return waited;
  };
  return { stream, sockets, timers, states, current, data, last, pass, sleep, wait };
}

describe('Stream', () => {
  it('hands on full lists, and is open from the first one on, though it has nothing', () => {
    const b = bench();
    expect(b.states).toEqual(['connecting']);
    b.last().says(list());
    b.last().says(list(1, 2));
    expect(b.states).toEqual(['connecting', 'open']);
    expect(b.data).toEqual([[], [1, 2]]);
  });

  it('says that the connection is lost and mends it', () => {
    const b = bench();
    b.last().says(list(1));
    b.last().onclose?.();
    expect(b.states).toEqual(['connecting', 'open', 'lost']);
    b.wait();
    expect(b.sockets.length).toBe(2);
    b.last().says(list(3));
    expect(b.states).toEqual(['connecting', 'open', 'lost', 'open']);
    expect(b.data).toEqual([[1], [3]]);
  });

  it('waits longer each time, and little again after a connection that lasted', () => {
    const b = bench();
    const waits: number[] = [];
    for (let i = 0; i < 7; i += 1) {
      b.last().says(list()); // the list alone does not reset the wait
      b.last().onclose?.();
      waits.push(b.wait());
    }
    expect(waits).toEqual([1000, 2000, 4000, 8000, 16000, 30000, 30000]);
    b.last().says(list());
    b.pass(steady);
    b.last().onclose?.();
    expect(b.wait()).toBe(1000);
  });

  it('does nothing any more when it is closed', () => {
    const b = bench();
    const socket = b.last();
    b.stream.close();
    socket.says(list(1));
    socket.onclose?.();
    b.stream.renew();
    b.stream.wake();
    expect(socket.closed).toBe(true);
    expect(b.data).toEqual([]);
    expect(b.timers.size).toBe(0);
    expect(b.sockets.length).toBe(1);
  });

  it('takes a connection that says nothing any more for lost, once it has sent heartbeats', () => {
    const b = bench();
    b.last().says(list(1));
    b.last().says(heartbeat);
    for (let i = 0; i < 10; i += 1) {
      b.pass(15_000);
      b.last().says(heartbeat);
    }
    expect(b.sockets.length).toBe(1);
    b.pass(longestSilence);
    expect(b.sockets.length).toBe(1);
    b.pass(checkPeriod);
    expect(b.sockets.length).toBe(2);
    expect(b.sockets[0]?.closed).toBe(true);
    expect(b.states).toEqual(['connecting', 'open', 'lost']);
    expect(b.current[2]).toBe(150_000);
    expect(b.data).toEqual([[1]]);
  });

  it('lets a connection be silent that has sent no heartbeat, though the one before had: its daemon may be older', () => {
    const b = bench();
    b.last().says(list(1));
    b.last().says(heartbeat);
    b.stream.renew();
    b.last().says(list(1));
    b.pass(10 * longestSilence);
    b.stream.wake();
    expect(b.sockets.length).toBe(2);
    b.last().onclose?.();
    expect(b.current[b.current.length - 1]).toBe(10 * longestSilence);
  });

  it('gives up a connection that never says anything', () => {
    const b = bench();
    b.pass(longestSilence + checkPeriod);
    expect(b.states).toEqual(['connecting', 'lost']);
    expect(b.current).toEqual([0, 0]);
    expect(b.wait()).toBe(1000);
  });

  it('sees after a sleep that the connection is old, and connects at once', () => {
    const b = bench();
    b.last().says(list(1));
    b.last().says(heartbeat);
    b.stream.wake();
    expect(b.sockets.length).toBe(1);
    b.sleep(longestSilence + 1);
    b.stream.wake();
    expect(b.sockets.length).toBe(2);
    b.last().says(list(1));
    b.last().says(heartbeat);
    b.sleep(longestSilence + 1);
    b.pass(checkPeriod); // no event told the stream that the machine was asleep
    expect(b.sockets.length).toBe(3);
  });

  it('connects at once when asked, whether it waits or not, and waits little after that', () => {
    const b = bench();
    for (let i = 0; i < 5; i += 1) {
      b.last().onclose?.();
      b.wait();
    }
    b.last().onclose?.();
    b.stream.renew();
    expect(b.sockets.length).toBe(7);
    b.last().says(list(1));
    b.stream.renew();
    expect(b.sockets.length).toBe(8);
    expect(b.sockets[6]?.closed).toBe(true);
    expect(b.states.slice(-2)).toEqual(['open', 'lost']);
    b.last().onclose?.();
    b.stream.wake();
    expect(b.sockets.length).toBe(9);
    b.last().onclose?.();
    expect(b.wait()).toBe(1000);
    expect(b.timers.size).toBe(1);
  });
});

describe('waitBefore', () => {
  it('is spread over the second half', () => {
    expect(waitBefore(0, 0)).toBe(500);
    expect(waitBefore(2, 0.5)).toBe(3000);
    expect(waitBefore(99, 1)).toBe(longestWait);
  });
});

describe('listOf and isHeartbeat', () => {
  it('take no message that is something else', () => {
    for (const message of ['', 'x', {}, { data: 1 }, null, 7, heartbeat]) expect(listOf(message)).toBeNull();
    expect(listOf({ data: [] })).toEqual([]);
    for (const message of ['', 'heartbeat', {}, null, list()]) expect(isHeartbeat(message)).toBe(false);
    expect(isHeartbeat(heartbeat)).toBe(true);
  });

  it('are asked of JSON alone', () => {
    const b = bench();
    for (const data of ['', 'x', new ArrayBuffer(1)]) b.last().onmessage?.({ data });
    expect(b.states).toEqual(['connecting']);
  });
});
