// Changes of nodes. The API replaces all requested values of a node at once, and all its disks. So a change must be
// computed from the node as it is when the change is sent. A change that was computed from the data of the page would
// undo changes that other users made since then.

import { useMutation, useQueryClient } from '@tanstack/react-query';
import { ApiError, request } from './http';
import type { DiskUpdate, Node, NodeUpdate } from './types';

// NodeChange contains the requested values of a node, or all disks that the node gets.
export type NodeChange = { node: NodeUpdate } | { disks: Record<string, DiskUpdate> };

// MakeChange computes a change from the current node. It returns null if there is nothing left to do. It throws an
// ApiError if the user must check the node first.
export type MakeChange = (now: Node) => NodeChange | null;

// attempts is the number of times that a change is computed, because another client changed the node in between. pause
// is the time between two attempts, in milliseconds.
const attempts = 5;
const pause = 300;

// changeNode reads the node and sends the change that make returns. If the node has changed since it was read, the API
// refuses the change with status 412, and changeNode starts again. Daemons of earlier releases send no version, and
// ignore the version in a request.
export async function changeNode(name: string, make: MakeChange, send: typeof request = request, wait = pause): Promise<undefined> {
  const self = `/v1/nodes/${encodeURIComponent(name)}`;
  for (let attempt = 1; ; attempt++) {
    const now = await send<Node>('GET', self);
    const change = make(now);
    if (change === null) return undefined;
    const query = new URLSearchParams('disks' in change ? { action: 'diskUpdate' } : {});
    if (now.specVersion !== undefined) query.set('ifSpecVersion', now.specVersion);
    try {
      await send('disks' in change ? 'POST' : 'PUT', query.size === 0 ? self : `${self}?${query.toString()}`, 'disks' in change ? change : change.node);
      return undefined;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 412 || attempt === attempts) throw error;
    }
    await new Promise((done) => setTimeout(done, wait)); // the cache of the API may be late
  }
}

export function useNodeChange(name: string) {
  const client = useQueryClient();
  return useMutation<undefined, ApiError, MakeChange>({
    mutationFn: (make) => changeNode(name, make),
    onSettled: () => Promise.all(['nodes', 'findings'].map((kind) => client.invalidateQueries({ queryKey: [kind] }))),
  });
}

// changedMeanwhile returns an error that is shown like an error of the API. The change was not sent.
export function changedMeanwhile(text: string): ApiError {
  return new ApiError(0, 'Conflict', text);
}
