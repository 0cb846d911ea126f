import type { UseMutationResult } from '@tanstack/react-query';
import { useState } from 'react';
import { request, type ApiError } from '../api/http';
import { useSend, type Change } from '../api/live';
import type { Volume } from '../api/types';
import { fullNameOf } from '../lib/names';
import { Batch, type Progress } from './batch';

// ForEach is a change of some volumes.
export interface ForEach {
  mutation: UseMutationResult<undefined, ApiError, undefined>;
  progress: Progress;
  // stop leaves out the volumes whose change has not begun.
  stop: () => void;
}

// useForEach makes one change to each volume. What was made is not made again when the same is asked for once more.
export function useForEach(volumes: readonly Volume[], change: (v: Volume) => Change): ForEach {
  const [progress, setProgress] = useState<Progress>({ tried: 0, total: 0, isStopping: false });
  const [batch] = useState(() => new Batch(({ method, link, body }) => request(method, link, body), setProgress));
  const run = async (): Promise<undefined> => {
    await batch.run(volumes.map((v) => ({ name: v.name, title: fullNameOf(v), change: change(v) })));
  };
  const mutation = useSend<undefined, undefined>(run, ['volumes']);
  return { mutation, progress, stop: () => batch.stop() };
}

// actionLink is where an action is POSTed to; one that the API does not offer now is sent all the same, and its answer says why not.
export function actionLink(v: Volume, action: string): string {
  return v.actions[action] ?? `/v1/volumes/${encodeURIComponent(v.name)}?action=${action}`;
}

// those is how a dialog's title names its volumes: the only one by its claim and its name.
export function those(volumes: readonly Volume[]): string {
  const [first] = volumes;
  return first !== undefined && volumes.length === 1 ? fullNameOf(first) : `${volumes.length} volumes`;
}
