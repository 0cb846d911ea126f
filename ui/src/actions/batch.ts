// A Batch makes one change to each of several volumes, one after the other. It remembers the changes that succeeded: if
// some were refused, a second run makes only these again. It does not know React, or how a change is sent.

import { ApiError, pathOf } from '../api/http';
import type { Change } from '../api/live';

export interface Item {
  name: string;
  // title is the volume's name in errors.
  title: string;
  change: Change;
}

export interface Progress {
  // tried is the number of volumes that were changed or refused.
  tried: number;
  total: number;
  isStopping: boolean;
}

interface Failure {
  title: string;
  error: ApiError;
}

export class Batch {
  // done has the change that each volume has had. A different change of the same volume, for example to another number,
  // is not done yet.
  private readonly done = new Map<string, string>();
  private progress: Progress = { tried: 0, total: 0, isStopping: false };
  private readonly send: (change: Change) => Promise<unknown>;
  private readonly onProgress: (progress: Progress) => void;

  constructor(send: (change: Change) => Promise<unknown>, onProgress: (progress: Progress) => void) {
    this.send = send;
    this.onProgress = onProgress;
  }

  // stop skips the changes that have not started.
  stop(): void {
    this.tell({ isStopping: true });
  }

  // run throws an ApiError unless all volumes have had their change.
  async run(items: readonly Item[]): Promise<void> {
    const isDone = (item: Item) => this.done.get(item.name) === keyOf(item.change);
    const failures: Failure[] = [];
    this.tell({ tried: items.filter(isDone).length, total: items.length, isStopping: false });
    for (const item of items) {
      if (isDone(item)) continue;
      if (this.progress.isStopping) break;
      try {
        await this.send(item.change);
        this.done.set(item.name, keyOf(item.change));
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (error.status === 404 && item.change.method === 'DELETE') this.done.set(item.name, keyOf(item.change)); // already deleted, as requested
        else failures.push({ title: item.title, error });
        if (concernsAll(error)) break;
      }
      this.tell({ tried: this.progress.tried + 1 });
    }
    const done = items.filter(isDone).length;
    if (done < items.length) throw errorOfMany(failures, done, items.length);
  }

  private tell(change: Partial<Progress>): void {
    this.progress = { ...this.progress, ...change };
    this.onProgress(this.progress);
  }
}

function keyOf({ method, link, body }: Change): string {
  return JSON.stringify([method, pathOf(link), body]);
}

// concernsAll returns true if there is no connection or no user is logged in: the other changes would fail in the same
// way.
function concernsAll(error: ApiError): boolean {
  return error.status === 0 || error.status === 401;
}

// errorOfMany returns one error for several volumes. For a single volume, it returns the error of the API.
export function errorOfMany(failures: readonly Failure[], done: number, total: number): ApiError {
  const first = failures[0]?.error;
  if (first !== undefined && total === 1) return first;
  const left = total - done - failures.length;
  const parts = [
    ...(failures.length > 0 ? [`${failures.length} of ${total} volumes failed`] : []),
    ...(left > 0 ? [`${done} of ${total} are done, ${left} skipped`] : []),
  ];
  return new ApiError(first?.status ?? 0, first?.code ?? 'Stopped', parts.join('; '), failures.map((f) => `${f.title}: ${f.error.message}`).join('\n'));
}
