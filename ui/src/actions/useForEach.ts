import type { UseMutationResult } from '@tanstack/react-query';
import { useState } from 'react';
import { request, type ApiError } from '../api/http';
import { useSend, type Change } from '../api/live';
import type { Volume } from '../api/types';
import { fullNameOf } from '../lib/names';
import { Batch, type Progress } from './batch';

// ForEach is a change of several volumes.
export interface ForEach {
  mutation: UseMutationResult<undefined, ApiError, undefined>;
  progress: Progress;
  // stop skips the volumes whose change has not started.
  stop: () => void;
}

// useForEach makes one change to each volume. A change that succeeded is not made again when the user submits the same
// change again.
export function useForEach(volumes: readonly Volume[], change: (v: Volume) => Change): ForEach {
  const [progress, setProgress] = useState<Progress>({ tried: 0, total: 0, isStopping: false });
  const [batch] = useState(() => new Batch(({ method, link, body }) => request(method, link, body), setProgress));
  const run = async (): Promise<undefined> => {
    await batch.run(volumes.map((v) => ({ name: v.name, title: fullNameOf(v), change: change(v) })));
  };
  const mutation = useSend<undefined, undefined>(run, ['volumes']);
  return { mutation, progress, stop: () => batch.stop() };
}

// actionLink returns the link to which an action is POSTed. An action that the API does not offer now is sent
// nevertheless: the answer of the API gives the reason.
export function actionLink(v: Volume, action: string): string {
  return v.actions[action] ?? `/v1/volumes/${encodeURIComponent(v.name)}?action=${action}`;
}

// those returns the text that names the volumes in a dialog's title: a single volume by its claim and its name, several
// by their number.
export function those(volumes: readonly Volume[]): string {
  const [first] = volumes;
  return first !== undefined && volumes.length === 1 ? fullNameOf(first) : `${volumes.length} volumes`;
}
