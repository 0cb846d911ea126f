// Collections that stay as the cluster is: read once, and then replaced by each full list that a websocket sends. While the connection
// is lost, each attempt to mend it also reads the list, so that the page is late rather than wrong.

import { QueryClient, useMutation, useQuery, useQueryClient, type UseQueryResult } from '@tanstack/react-query';
import { useEffect, useSyncExternalStore } from 'react';
import { ApiError, request, type Method } from './http';
import { Stream, type Socket, type StreamState } from './stream';
import type { Collection, Kind, Kinds } from './types';

export function newQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: Infinity,
        refetchOnWindowFocus: false,
        refetchOnReconnect: false,
        // A refusal stays one; no answer, or one that is to be tried again, may get better.
        retry: (failures, error) => failures < 5 && error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 502),
      },
    },
  });
}

export function useCollection<K extends Kind>(kind: K): UseQueryResult<Kinds[K][], ApiError> {
  return useQuery<Kinds[K][], ApiError>({
    queryKey: [kind],
    queryFn: async ({ signal }) => (await request<Collection<Kinds[K]>>('GET', `/v1/${kind}`, undefined, signal)).data,
  });
}

// streamed are the kinds whose changes the API sends. What findings rest on is in these.
const streamed = ['volumes', 'nodes', 'settings'] as const;

// findingsPause is how long after a change findings are read, in milliseconds: changes come in bursts, and explaining reads everything.
const findingsPause = 1500;

type States = Record<(typeof streamed)[number], StreamState>;

let states: States = { volumes: 'connecting', nodes: 'connecting', settings: 'connecting' };
const listeners = new Set<() => void>();

function setState(kind: keyof States, state: StreamState): void {
  if (states[kind] === state) return;
  states = { ...states, [kind]: state };
  for (const listener of listeners) listener();
}

// worstOf: one lost connection makes the page late.
export function worstOf(all: readonly StreamState[]): StreamState {
  if (all.includes('lost')) return 'lost';
  return all.includes('connecting') ? 'connecting' : 'open';
}

export function useConnection(): StreamState {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => worstOf(Object.values(states)),
  );
}

function openSocket(kind: string): Socket {
  const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
  const ws = new WebSocket(`${scheme}//${location.host}/v1/ws/${kind}`);
  const socket: Socket = { onopen: null, onmessage: null, onclose: null, close: () => ws.close() };
  ws.onopen = () => socket.onopen?.();
  ws.onmessage = (event: MessageEvent<unknown>) => socket.onmessage?.({ data: event.data });
  ws.onclose = () => socket.onclose?.();
  return socket;
}

// useStreams keeps the streams of all kinds open while the page is.
export function useStreams(): void {
  const client = useQueryClient();
  useEffect(() => {
    let findings: ReturnType<typeof setTimeout> | undefined;
    const changed = () => {
      findings ??= setTimeout(() => {
        findings = undefined;
        void client.invalidateQueries({ queryKey: ['findings'] });
      }, findingsPause);
    };
    const streams = streamed.map(
      (kind) =>
        new Stream<Kinds[typeof kind]>({
          open: () => openSocket(kind),
          onData: (data) => {
            client.setQueryData([kind], data);
            changed();
          },
          onState: (state) => {
            setState(kind, state);
            if (state === 'lost') {
              void client.invalidateQueries({ queryKey: [kind] });
              changed();
            }
          },
        }),
    );
    const online = () => streams.forEach((s) => s.retry());
    window.addEventListener('online', online);
    return () => {
      window.removeEventListener('online', online);
      clearTimeout(findings);
      for (const s of streams) s.close();
    };
  }, [client]);
}

export interface Change {
  method: Method;
  link: string;
  body?: unknown;
}

// useChange sends one change. The lists that may show it are read again, for the stream may be slow or lost.
export function useChange<T = unknown>(...kinds: Kind[]) {
  const client = useQueryClient();
  return useMutation<T, ApiError, Change>({
    mutationFn: ({ method, link, body }) => request<T>(method, link, body),
    onSettled: () => Promise.all([...kinds, 'findings'].map((kind) => client.invalidateQueries({ queryKey: [kind] }))),
  });
}
