// The space on the cluster's disks.

import type { Disk, Node } from '../api/types';

export interface Capacity {
  // All values are in bytes. total is the size of the file systems.
  total: number;
  reserved: number;
  used: number;
  available: number;
  // scheduled is the size of all replicas when they are as large as their volumes may get.
  scheduled: number;
}

export const nothing: Capacity = { total: 0, reserved: 0, used: 0, available: 0, scheduled: 0 };

export function ofDisk(d: Disk): Capacity {
  return {
    total: d.storageMaximum,
    reserved: Math.min(d.storageReserved, d.storageMaximum),
    used: Math.max(0, d.storageMaximum - d.storageAvailable),
    available: d.storageAvailable,
    scheduled: d.storageScheduled,
  };
}

export function sum(list: readonly Capacity[]): Capacity {
  return list.reduce(
    (a, b) => ({
      total: a.total + b.total,
      reserved: a.reserved + b.reserved,
      used: a.used + b.used,
      available: a.available + b.available,
      scheduled: a.scheduled + b.scheduled,
    }),
    nothing,
  );
}

export function isTrue(conditions: Node['conditions'], type: string): boolean {
  return conditions[type]?.status === 'True';
}

// takesReplicas returns whether new replicas may be placed on the disk. The scheduler has the same rule: a cordoned
// node is not schedulable.
export function takesReplicas(n: Node, d: Disk): boolean {
  const isAllowed = n.allowScheduling && d.allowScheduling && !n.evictionRequested && !d.evictionRequested;
  return isAllowed && isUsable(n, d) && isTrue(n.conditions, 'Schedulable') && isTrue(d.conditions, 'Schedulable');
}

// isUsable returns whether the figures of the disk are current and its space can be used. The figures of other disks
// are from an earlier time.
function isUsable(n: Node, d: Disk): boolean {
  return isTrue(n.conditions, 'Ready') && isTrue(d.conditions, 'Ready');
}

interface ClusterCapacity extends Capacity {
  // notCounted is the number of disks that the sums do not include, because they or their nodes are not ready.
  notCounted: number;
}

export function ofCluster(nodes: readonly Node[]): ClusterCapacity {
  const disks = nodes.flatMap((n) => Object.values(n.disks ?? {}).map((d) => ({ n, d })));
  const usable = disks.filter(({ n, d }) => isUsable(n, d));
  return { ...sum(usable.map(({ d }) => ofDisk(d))), notCounted: disks.length - usable.length };
}

// notCountedText says how many disks the sums do not include. It is empty if the sums include all disks.
export function notCountedText(disks: number): string {
  if (disks === 0) return '';
  return disks === 1 ? 'Not counted: 1 disk that is not ready, or whose node is not ready.' : `Not counted: ${disks} disks that are not ready, or whose nodes are not ready.`;
}

// schedulable returns the space for further replicas: the size of the file systems without the reserved space, times
// the setting, minus the space of the placed replicas.
export function schedulable(nodes: readonly Node[], overProvisioningPercent: number): number {
  let free = 0;
  for (const n of nodes) {
    for (const d of Object.values(n.disks ?? {})) {
      if (!takesReplicas(n, d)) continue;
      free += Math.max(0, ((d.storageMaximum - d.storageReserved) * overProvisioningPercent) / 100 - d.storageScheduled);
    }
  }
  return free;
}
