import { describe, expect, it } from 'vitest';
import { listOf, longestWait, Stream, waitBefore, type Socket, type StreamState } from './stream';

class FakeSocket implements Socket {
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;
  closed = false;
  close(): void {
    this.closed = true;
  }
}

function bench() {
  const sockets: FakeSocket[] = [];
  const timers: { call: () => void; ms: number }[] = [];
  const states: StreamState[] = [];
  const data: unknown[][] = [];
  const stream = new Stream<unknown>({
    open: () => {
      const socket = new FakeSocket();
      sockets.push(socket);
      return socket;
    },
    onData: (list) => data.push(list),
    onState: (state) => states.push(state),
    random: () => 1,
    timer: {
      set: (call, ms) => {
        timers.push({ call, ms });
        return timers.length;
      },
      clear: () => undefined,
    },
  });
  const last = () => sockets[sockets.length - 1] as FakeSocket;
  return { stream, sockets, timers, states, data, last };
}

describe('Stream', () => {
  it('hands on full lists', () => {
    const b = bench();
    b.last().onopen?.();
    b.last().onmessage?.({ data: '{"type":"collection","data":[1,2]}' });
    expect(b.states).toEqual(['connecting', 'open']);
    expect(b.data).toEqual([[1, 2]]);
  });

  it('says that the connection is lost and mends it', () => {
    const b = bench();
    b.last().onopen?.();
    b.last().onclose?.();
    expect(b.states).toEqual(['connecting', 'open', 'lost']);
    b.timers[0]?.call();
    expect(b.sockets.length).toBe(2);
    b.last().onopen?.();
    b.last().onmessage?.({ data: '{"data":[3]}' });
    expect(b.states).toEqual(['connecting', 'open', 'lost', 'open']);
    expect(b.data).toEqual([[3]]);
  });

  it('waits longer each time, and little again after a connection that worked', () => {
    const b = bench();
    for (let i = 0; i < 7; i += 1) {
      b.last().onclose?.();
      b.timers[b.timers.length - 1]?.call();
    }
    expect(b.timers.map((t) => t.ms)).toEqual([1000, 2000, 4000, 8000, 16000, 30000, 30000]);
    b.last().onopen?.();
    b.last().onmessage?.({ data: '{"data":[]}' });
    b.last().onclose?.();
    expect(b.timers[b.timers.length - 1]?.ms).toBe(1000);
  });

  it('does nothing any more when it is closed', () => {
    const b = bench();
    const socket = b.last();
    b.stream.close();
    socket.onmessage?.({ data: '{"data":[1]}' });
    socket.onclose?.();
    expect(socket.closed).toBe(true);
    expect(b.data).toEqual([]);
    expect(b.timers).toEqual([]);
    expect(b.states).toEqual(['connecting']);
  });

  it('connects at once when asked, while it waits', () => {
    const b = bench();
    b.stream.retry();
    expect(b.sockets.length).toBe(1);
    b.last().onclose?.();
    b.stream.retry();
    expect(b.sockets.length).toBe(2);
  });
});

describe('waitBefore', () => {
  it('is spread over the second half', () => {
    expect(waitBefore(0, 0)).toBe(500);
    expect(waitBefore(2, 0.5)).toBe(3000);
    expect(waitBefore(99, 1)).toBe(longestWait);
  });
});

describe('listOf', () => {
  it('takes no message that is no list', () => {
    for (const message of ['', 'x', '{}', '{"data":1}', 'null', 7]) expect(listOf(message)).toBeNull();
    expect(listOf('{"data":[]}')).toEqual([]);
  });
});
