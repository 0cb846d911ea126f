import { describe, expect, it } from 'vitest';
import { ofCluster, schedulable } from './capacity';
import { disk, node } from './fixtures';

const nodes = [
  node('a', { d: disk({ storageMaximum: 100, storageAvailable: 60, storageReserved: 10, storageScheduled: 50 }) }),
  node('b', { d: disk({ storageMaximum: 200, storageAvailable: 200, storageScheduled: 0, allowScheduling: false }) }),
  node('c', { d: disk({ storageMaximum: 100, storageAvailable: 100 }) }, { evictionRequested: true }),
];

describe('capacity', () => {
  it('adds up all disks', () => expect(ofCluster(nodes)).toEqual({ total: 400, reserved: 10, used: 40, available: 360, scheduled: 50 }));
  it('has room on disks that take replicas alone', () => expect(schedulable(nodes, 100)).toBe(40));
  it('may promise more than there is', () => expect(schedulable(nodes, 200)).toBe(130));
  it('never has less than none', () => expect(schedulable(nodes, 10)).toBe(0));
});
