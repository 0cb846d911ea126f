// What is concluded from nodes, and the changes that are sent for them.

import type { Condition, Disk, DiskUpdate, Node } from '../api/types';

// refusals are the annotations of a node that were not taken; each message names key and position.
export function refusals(n: Node): Condition[] {
  return ['DefaultDisksConfig', 'DefaultDisksConfigUsed', 'DefaultNodeTags']
    .map((type) => n.conditions[type])
    .filter((c): c is Condition => c !== undefined && c.status === 'False' && c.message !== '');
}

// asked is a disk as users ask for it, without what was found of it.
export function asked(d: Disk): DiskUpdate {
  const { path, diskType, diskDriver, allowScheduling, evictionRequested, storageReserved, tags } = d;
  return { path, diskType, diskDriver, allowScheduling, evictionRequested, storageReserved, tags: tags ?? [] };
}

// disksWith are all disks of a node with one changed or added. The API replaces the whole map, so none may be left out.
export function disksWith(n: Node, name: string, disk: DiskUpdate): Record<string, DiskUpdate> {
  const all = Object.fromEntries(Object.entries(n.disks ?? {}).map(([other, d]) => [other, asked(d)]));
  return { ...all, [name]: disk };
}

export function disksWithout(n: Node, name: string): Record<string, DiskUpdate> {
  return Object.fromEntries(Object.entries(n.disks ?? {}).filter(([other]) => other !== name).map(([other, d]) => [other, asked(d)]));
}

const letters = 'abcdefghijklmnopqrstuvwxyz0123456789';

// suggestedName is disk-<random>, and none that is taken.
export function suggestedName(taken: readonly string[], random: () => number = Math.random): string {
  for (;;) {
    const tail = Array.from({ length: 5 }, () => letters.charAt(Math.floor(random() * letters.length))).join('');
    if (!taken.includes(`disk-${tail}`)) return `disk-${tail}`;
  }
}
