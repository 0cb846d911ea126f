// The state of nodes, and the changes that the page sends for them.

import type { Condition, DiskUpdate, Node, NodeUpdate } from '../api/types';
import { bytes } from './format';

// Readiness of a node. Unknown is neither good nor bad: for example, the account may not list nodes.
export type Readiness = 'ready' | 'not ready' | 'unknown';

// readinessOf returns the readiness of the node with this name. nodes is undefined while the page has not read the
// nodes, or may not read them.
export function readinessOf(nodes: readonly Node[] | undefined, name: string): Readiness {
  if (nodes === undefined) return 'unknown';
  return nodes.find((n) => n.name === name)?.conditions['Ready']?.status === 'True' ? 'ready' : 'not ready';
}

// unreadableNodes says why nodes are not shown. It is empty while the page reads them.
export function unreadableNodes(error: { status: number; message: string } | null): string {
  if (error === null) return '';
  return error.status === 403 ? 'Your account is not allowed to list nodes, so their state and their disks are not shown.' : `The state of nodes and disks is unknown: ${error.message}`;
}

// refusals returns the conditions about annotations of a node that were refused. Each message names the key and the
// position.
export function refusals(n: Node): Condition[] {
  return ['DefaultDisksConfig', 'DefaultDisksConfigUsed', 'DefaultNodeTags']
    .map((type) => n.conditions[type])
    .filter((c): c is Condition => c !== undefined && c.status === 'False' && c.message !== '');
}

// Asked contains the values of a node or of a disk that users set in a dialog.
export interface Asked extends NodeUpdate {
  storageReserved?: number;
}

// parts contains groups of fields that belong together: a user who changes one field of a group has also seen the
// others.
const parts: readonly (readonly (keyof Asked)[])[] = [['tags'], ['storageReserved'], ['allowScheduling', 'evictionRequested']];

function isSame(a: Asked[keyof Asked], b: Asked[keyof Asked]): boolean {
  const plain = (v: typeof a) => JSON.stringify(Array.isArray(v) ? [...v].sort() : (v ?? []));
  return plain(a) === plain(b);
}

// rebased applies a change to the current values. The user made mine from base. The parts that mine does not change get
// their current values. clashes contains the fields that another user has changed since then, to a value that differs
// from mine.
export function rebased<T extends Asked>(base: T, mine: Asked, now: T): { value: T; clashes: (keyof Asked)[] } {
  const value = { ...now };
  const clashes: (keyof Asked)[] = [];
  for (const part of parts) {
    if (part.every((f) => isSame(base[f], mine[f]))) continue;
    Object.assign(value, Object.fromEntries(part.filter((f) => mine[f] !== undefined).map((f) => [f, mine[f]])));
    clashes.push(...part.filter((f) => !isSame(base[f], now[f]) && !isSame(mine[f], now[f])));
  }
  return { value, clashes };
}

// clashText tells a user which fields another user has changed since the form was opened. Nothing was sent in that
// case.
export function clashText(what: string, now: Asked, clashes: readonly (keyof Asked)[]): string {
  const is = (field: keyof Asked): string => {
    switch (field) {
      case 'tags':
        return `its tags are now ${(now.tags ?? []).join(', ') || 'empty'}`;
      case 'storageReserved':
        return `its reserved space is now ${bytes(now.storageReserved ?? 0)}`;
      case 'allowScheduling':
        return now.allowScheduling ? 'its scheduling is now enabled' : 'its scheduling is now disabled';
      case 'evictionRequested':
        return now.evictionRequested ? 'its eviction is now requested' : 'its eviction is no longer requested';
    }
  };
  return `${what} was changed while this form was open: ${clashes.map(is).join(', and ')}. Nothing was sent. Save again to overwrite this with the values in the form.`;
}

// wished returns the values of a disk that users set, without the observed values.
export function wished(d: DiskUpdate): DiskUpdate {
  const { path, diskType, diskDriver, allowScheduling, evictionRequested, storageReserved, tags } = d;
  return { path, diskType, diskDriver, allowScheduling, evictionRequested, storageReserved, tags: tags ?? [] };
}

// disksWith returns all disks of a node, with one disk changed or added. The API replaces the whole map, so the result
// must contain every disk.
export function disksWith(n: Node, name: string, disk: DiskUpdate): Record<string, DiskUpdate> {
  const all = Object.fromEntries(Object.entries(n.disks ?? {}).map(([other, d]) => [other, wished(d)]));
  return { ...all, [name]: disk };
}

export function disksWithout(n: Node, name: string): Record<string, DiskUpdate> {
  return Object.fromEntries(Object.entries(n.disks ?? {}).filter(([other]) => other !== name).map(([other, d]) => [other, wished(d)]));
}

const letters = 'abcdefghijklmnopqrstuvwxyz0123456789';

// suggestedName returns a name disk-<random> that is not taken.
export function suggestedName(taken: readonly string[], random: () => number = Math.random): string {
  for (;;) {
    const tail = Array.from({ length: 5 }, () => letters.charAt(Math.floor(random() * letters.length))).join('');
    if (!taken.includes(`disk-${tail}`)) return `disk-${tail}`;
  }
}
