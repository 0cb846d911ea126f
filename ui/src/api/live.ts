// Collections that stay as the cluster is: read once, and then replaced by each full list that a websocket sends. While the connection
// is lost, each attempt to mend it also reads the list, so that the page is late rather than wrong.

import { QueryClient, useMutation, useQuery, useQueryClient, type UseMutationResult, type UseQueryResult } from '@tanstack/react-query';
import { useEffect, useMemo, useRef, useSyncExternalStore } from 'react';
import { ApiError, request, type Method } from './http';
import { Stream, type Socket, type StreamState } from './stream';
import type { Collection, Kind, Kinds, LonghornEvent, Volume } from './types';

export function newQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      // A change that waits until the browser believes to be online would be sent when nobody expects it any more.
      mutations: { networkMode: 'always' },
      queries: {
        networkMode: 'always',
        staleTime: Infinity,
        refetchOnWindowFocus: false,
        refetchOnReconnect: false,
        // A refusal stays one; no answer, or one that is to be tried again, may get better.
        retry: (failures, error) => failures < 5 && error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 502),
      },
    },
  });
}

function queryOf<K extends Kind>(kind: K) {
  return {
    queryKey: [kind],
    queryFn: async ({ signal }: { signal: AbortSignal }) => (await request<Collection<Kinds[K]>>('GET', `/v1/${kind}`, undefined, signal)).data,
  };
}

export function useCollection<K extends Kind>(kind: K): UseQueryResult<Kinds[K][], ApiError> {
  return useQuery<Kinds[K][], ApiError>(queryOf(kind));
}

// useVolumeByName returns a function that finds a volume by its name. It finds none while the page has not read the volumes, or may not.
export function useVolumeByName(): (name: string) => Volume | undefined {
  const { data } = useQuery<Volume[], ApiError>({ ...queryOf('volumes'), retryOnMount: false }); // a refusal stays one
  return useMemo(() => {
    const all = new Map((data ?? []).map((v) => [v.name, v]));
    return (name) => all.get(name);
  }, [data]);
}

// streamed are the kinds whose changes the API sends to every page. What findings rest on is in these.
const streamed = ['volumes', 'nodes', 'settings'] as const;

// findingsPause is how long after a change findings are read, in milliseconds: changes come in bursts, and explaining reads everything.
const findingsPause = 1500;

// eventsPeriod is at least between two lists of Events: they are many, and all are sent each time.
const eventsPeriod = '3s';

// Connection is what the page says of its streams.
export interface Connection {
  state: StreamState;
  // currentUntil is until when all that is shown was current, as Date.now() has it; 0 if that is not known.
  currentUntil: number;
}

let streams: ReadonlyMap<Kind, Connection> = new Map();
let connection: Connection = { state: 'open', currentUntil: 0 };
const listeners = new Set<() => void>();

// setStream: null for a stream that there is no more.
function setStream(kind: Kind, now: Connection | null): void {
  const next = new Map(streams);
  if (now === null) next.delete(kind);
  else next.set(kind, now);
  streams = next;
  connection = together([...streams.values()]);
  for (const listener of listeners) listener();
}

// together: one lost connection makes the page late.
export function together(all: readonly Connection[]): Connection {
  const state = (['lost', 'connecting'] as const).find((worst) => all.some((c) => c.state === worst)) ?? 'open';
  const late = all.filter((c) => c.state !== 'open');
  return { state, currentUntil: late.length === 0 ? 0 : Math.min(...late.map((c) => c.currentUntil)) };
}

export function useConnection(): Connection {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => connection,
  );
}

function openSocket(path: string): Socket {
  const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
  const ws = new WebSocket(`${scheme}//${location.host}/v1/ws/${path}?heartbeat=true`);
  const socket: Socket = { onmessage: null, onclose: null, close: () => ws.close() };
  ws.onmessage = (event: MessageEvent<unknown>) => socket.onmessage?.({ data: event.data });
  ws.onclose = () => socket.onclose?.();
  return socket;
}

// follow keeps what is known of a kind as the cluster is, until the function that it returns is called.
function follow(client: QueryClient, kind: Kind, path: string, changed: () => void): () => void {
  const stream = new Stream<Kinds[Kind]>({
    open: () => openSocket(path),
    onData: (data) => {
      client.setQueryData([kind], data);
      void client.cancelQueries({ queryKey: [kind], exact: true }); // an answer that is on its way is older
      changed();
    },
    onState: (state, currentUntil) => {
      setStream(kind, { state, currentUntil });
      if (state !== 'lost') return;
      void client.query({ ...queryOf(kind), staleTime: 0, retry: false }).then(changed, (error: unknown) => {
        if (isRefused(error)) end();
      });
    },
  });
  const online = () => stream.renew();
  const seen = () => {
    if (document.visibilityState === 'visible') stream.wake();
  };
  window.addEventListener('online', online);
  document.addEventListener('visibilitychange', seen);
  const end = () => {
    window.removeEventListener('online', online);
    document.removeEventListener('visibilitychange', seen);
    stream.close();
    setStream(kind, null);
  };
  return end;
}

// isRefused tells a list that this user may not read from one that cannot be read now: its stream is not mended by trying again.
export function isRefused(error: unknown): boolean {
  return error instanceof ApiError && error.status === 403;
}

// useStreams keeps the streams of what all pages show open while the page is.
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
    const ends = streamed.map((kind) => follow(client, kind, kind, changed));
    return () => {
      clearTimeout(findings);
      for (const end of ends) end();
    };
  }, [client]);
}

// useEvents are the newest Events, kept up to date while they are shown. Only one component of a page may use it.
export function useEvents(): UseQueryResult<LonghornEvent[], ApiError> {
  const client = useQueryClient();
  useEffect(() => follow(client, 'events', `${eventsPeriod}/events`, () => undefined), [client]);
  return useCollection('events');
}

export interface Change {
  method: Method;
  link: string;
  body?: unknown;
}

// useSend sends what mutationFn does. The lists that may show it are read again, for the stream may be slow or lost. What is asked for while
// that is under way is ignored: isPending is drawn too late for the second click of two.
export function useSend<T, V>(mutationFn: (variables: V) => Promise<T>, kinds: readonly Kind[]): UseMutationResult<T, ApiError, V> {
  const client = useQueryClient();
  const isBusy = useRef(false);
  const mutation = useMutation<T, ApiError, V>({
    mutationFn,
    onSettled: () => {
      isBusy.current = false;
      return Promise.all([...kinds, 'findings'].map((kind) => client.invalidateQueries({ queryKey: [kind] })));
    },
  });
  const mutate: typeof mutation.mutate = (...args) => {
    if (isBusy.current) return;
    isBusy.current = true;
    mutation.mutate(...args);
  };
  return { ...mutation, mutate };
}

// useChange sends one change.
export function useChange<T = unknown>(...kinds: Kind[]): UseMutationResult<T, ApiError, Change> {
  return useSend(({ method, link, body }: Change) => request<T>(method, link, body), kinds);
}
