import { useMutation, useQueryClient } from '@tanstack/react-query';
import { ApiError, request, type Method } from '../api/http';
import type { Volume } from '../api/types';

// errorOfMany is one error for several volumes; of one volume it is the API's own.
export function errorOfMany(failures: { name: string; error: ApiError }[], total: number): ApiError {
  const first = failures[0]?.error;
  if (first !== undefined && total === 1) return first;
  const lines = failures.map((f) => `${f.name}: ${f.error.message}`).join('\n');
  return new ApiError(first?.status ?? 0, first?.code ?? '', `${failures.length} of ${total} volumes were refused`, lines);
}

interface One {
  method: Method;
  link: string;
  body?: unknown;
}

// useForEach sends one change for each volume, one after the other, and tells of all that were refused.
export function useForEach(volumes: Volume[], change: (v: Volume) => One) {
  const client = useQueryClient();
  return useMutation<undefined, ApiError>({
    mutationFn: async () => {
      const failures: { name: string; error: ApiError }[] = [];
      for (const v of volumes) {
        const { method, link, body } = change(v);
        try {
          await request(method, link, body);
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
          failures.push({ name: v.name, error });
        }
      }
      if (failures.length > 0) throw errorOfMany(failures, volumes.length);
      return undefined;
    },
    onSettled: () => Promise.all(['volumes', 'findings'].map((kind) => client.invalidateQueries({ queryKey: [kind] }))),
  });
}

// actionLink is where an action is POSTed to; one that the API does not offer now is sent all the same, and its answer says why not.
export function actionLink(v: Volume, action: string): string {
  return v.actions[action] ?? `/v1/volumes/${encodeURIComponent(v.name)}?action=${action}`;
}

// those is how a dialog's title names its volumes.
export function those(volumes: Volume[]): string {
  return volumes.length === 1 ? (volumes[0]?.name ?? '') : `${volumes.length} volumes`;
}
