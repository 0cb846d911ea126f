// Changes of nodes. The API replaces all that is asked of a node at once, and all its disks, so what is sent must be made of the node as
// it is then. Made of what the page knew, it would undo what others have changed meanwhile.

import { useMutation, useQueryClient } from '@tanstack/react-query';
import { ApiError, request } from './http';
import type { DiskUpdate, Node, NodeUpdate } from './types';

// NodeChange is what a node is to be, or all disks that it is to have.
export type NodeChange = { node: NodeUpdate } | { disks: Record<string, DiskUpdate> };

// MakeChange makes a change of the node as it is now; null: there is nothing left to do. It throws an ApiError when people must look first.
export type MakeChange = (now: Node) => NodeChange | null;

// attempts is how often a change is made anew because the node was changed in between; pause is the time between two, in milliseconds.
const attempts = 5;
const pause = 300;

// changeNode reads the node and sends what make makes of it. The API refuses it, with status 412, if the node is not as it was read any
// more; then all begins again. Daemons of earlier releases give no version, and ignore one.
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
    await new Promise((done) => setTimeout(done, wait)); // the API's own cache may be late
  }
}

export function useNodeChange(name: string) {
  const client = useQueryClient();
  return useMutation<undefined, ApiError, MakeChange>({
    mutationFn: (make) => changeNode(name, make),
    onSettled: () => Promise.all(['nodes', 'findings'].map((kind) => client.invalidateQueries({ queryKey: [kind] }))),
  });
}

// changedMeanwhile is an error that is shown like one of the API: nothing was sent.
export function changedMeanwhile(text: string): ApiError {
  return new ApiError(0, 'Conflict', text);
}
