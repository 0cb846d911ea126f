// Collections that follow the state of the cluster. The page reads a collection once, and then replaces it with each
// full list that a websocket sends. While the connection is lost, each attempt to connect also reads the list. So the
// page may show old data, but never wrong data.

import { QueryClient, useMutation, useQuery, useQueryClient, type UseMutationResult, type UseQueryResult } from '@tanstack/react-query';
import { useEffect, useMemo, useRef, useSyncExternalStore } from 'react';
import { ApiError, request, type Method } from './http';
import { Stream, type Socket, type StreamState } from './stream';
import type { Collection, Kind, Kinds, LonghornEvent, Snapshot, Volume } from './types';

export function newQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      // Otherwise a change would wait until the browser considers itself online. It would be sent at a time when the
      // user no longer expects it.
      mutations: { networkMode: 'always' },
      queries: {
        networkMode: 'always',
        staleTime: Infinity,
        refetchOnWindowFocus: false,
        refetchOnReconnect: false,
        // A refusal is final. A request without an answer, or with an answer that asks for a retry, may succeed later.
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

// useVolumeByName returns a function that finds a volume by its name. The function finds no volume if the page has not
// read the volumes yet, or may not read them.
export function useVolumeByName(): (name: string) => Volume | undefined {
  const { data } = useQuery<Volume[], ApiError>({ ...queryOf('volumes'), retryOnMount: false }); // a refusal is final
  return useMemo(() => {
    const all = new Map((data ?? []).map((v) => [v.name, v]));
    return (name) => all.get(name);
  }, [data]);
}

// streamed contains the kinds whose changes the API sends to every page. Findings depend on these kinds.
const streamed = ['volumes', 'nodes', 'settings'] as const;

// findingsPause is the time between a change and the next read of the findings, in milliseconds. Changes come in
// bursts, and the API reads all objects to explain them.
const findingsPause = 1500;

// eventsPeriod is the minimum time between two lists of Events: there are many Events, and the API sends all of them
// each time.
const eventsPeriod = '3s';

// Connection is the common state of the page's streams.
export interface Connection {
  state: StreamState;
  // currentUntil is the time until which all shown data was current, as in Date.now(). It is 0 if that time is not
  // known.
  currentUntil: number;
}

let streams: ReadonlyMap<Kind, Connection> = new Map();
let connection: Connection = { state: 'open', currentUntil: 0 };
const listeners = new Set<() => void>();

// setStream records the state of a stream; null if the stream no longer exists.
function setStream(kind: Kind, now: Connection | null): void {
  const next = new Map(streams);
  if (now === null) next.delete(kind);
  else next.set(kind, now);
  streams = next;
  connection = together([...streams.values()]);
  for (const listener of listeners) listener();
}

// together combines the states of all streams: if one connection is lost, the page shows old data.
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

// follow keeps the data of a kind equal to the state of the cluster, until its returned function is called.
function follow(client: QueryClient, kind: Kind, path: string, changed: () => void): () => void {
  const stream = new Stream<Kinds[Kind]>({
    open: () => openSocket(path),
    onData: (data) => {
      client.setQueryData([kind], data);
      void client.cancelQueries({ queryKey: [kind], exact: true }); // a pending answer is older than this list
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

// isRefused returns true for a list that this user may not read, and false for a list that cannot be read now. Retries
// do not help a stream whose list is refused.
export function isRefused(error: unknown): boolean {
  return error instanceof ApiError && error.status === 403;
}

// useStreams keeps the streams of the kinds that all pages show open while the page is open.
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

// useEvents returns the newest Events, and updates them while they are shown. Only one component of a page may use it.
export function useEvents(): UseQueryResult<LonghornEvent[], ApiError> {
  const client = useQueryClient();
  useEffect(() => follow(client, 'events', `${eventsPeriod}/events`, () => undefined), [client]);
  return useCollection('events');
}

// snapshotsPeriod is the minimum time between two lists of snapshots: the API sends those of all volumes each time.
const snapshotsPeriod = '2s';

// useSnapshots returns the snapshots of all volumes, and updates them while they are shown. Only one component of a page
// may use it.
export function useSnapshots(): UseQueryResult<Snapshot[], ApiError> {
  const client = useQueryClient();
  useEffect(() => follow(client, 'snapshotcrs', `${snapshotsPeriod}/snapshotcrs`, () => undefined), [client]);
  return useCollection('snapshotcrs');
}

export interface Change {
  method: Method;
  link: string;
  body?: unknown;
}

// useSend sends requests with mutationFn. Then it reads the lists that may show the result again, because the stream
// may be slow or lost. It ignores another call during that time: isPending is drawn too late for the second click of a
// double click.
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
